"""The base: llama.cpp and ggml as static archives, built once per user and kept in the cache.

The key is everything that decides its bytes: source, recipe, flags, compiler, and the CPU if compiled for one only.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from sdk_tools import system
from sdk_tools.build.cmake import Project, Runner, map_prefixes
from sdk_tools.build.compiler import BuildTools, Compiler
from sdk_tools.build.targets import BuildOptions
from sdk_tools.engine_source import EngineSource
from sdk_tools.files import hash_tree, lock, mark_used, new_dir, write_json
from sdk_tools.paths import cache_dir, native_dir
from sdk_tools.progress import Reporter

_MARKER = "base.json"
_CONTENT = ("lib", "include")


@dataclass(frozen=True)
class Base:
    """A built base. was_cached tells whether this call found it."""

    path: Path
    key: str
    was_cached: bool


def base_definitions(options: BuildOptions) -> tuple[str, ...]:
    """The CMake definitions that decide the base's bytes, without the paths of this machine."""
    return (
        "CMAKE_BUILD_TYPE=Release",
        f"SYRINX_NATIVE_CPU={'ON' if options.native_cpu else 'OFF'}",
        *options.target.definitions,
    )


def get_base(
    options: BuildOptions,
    source: EngineSource,
    compiler: Compiler,
    tools: BuildTools,
    jobs: int,
    reporter: Reporter,
) -> Base:
    """The base for these options, from the cache or built into it. Errors: BuildError, Cancelled.

    An interrupted build goes on where it stopped; other processes that want the same base wait for it.
    """
    key = _make_key(options, source, compiler)
    root = cache_dir() / "base"
    entry = root / key
    with lock(root / f"{key}.lock", lambda: reporter.say("Another process is building llama.cpp; waiting ...")):
        if _is_whole(entry):
            mark_used(entry)
            return Base(entry, key, was_cached=True)
        build_dir = root / f"{key}.build"
        runner = Runner(_make_project(options, source, compiler, tools, build_dir), reporter)
        runner.configure()
        runner.build(jobs)
        with new_dir(entry) as temporary:
            runner.install(temporary, strip=False)
            write_json(temporary / _MARKER, {"schema": 1, "content_sha256": hash_tree(temporary, _CONTENT)})
        shutil.rmtree(build_dir, ignore_errors=True)
    return Base(entry, key, was_cached=False)


def _make_key(options: BuildOptions, source: EngineSource, compiler: Compiler) -> str:
    parts = {
        "source": source.identity,
        "recipe": hash_tree(native_dir() / "llama"),
        "definitions": base_definitions(options),
        "compiler": compiler.identity(),
        "cpu": system.cpu_identity() if options.native_cpu else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _is_whole(entry: Path) -> bool:
    try:
        marker = json.loads((entry / _MARKER).read_text())
        return bool(marker["content_sha256"] == hash_tree(entry, _CONTENT))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _make_project(
    options: BuildOptions, source: EngineSource, compiler: Compiler, tools: BuildTools, build_dir: Path
) -> Project:
    prefix_map = map_prefixes({source.path: "llama.cpp", build_dir: "base"})
    return Project(
        title="llama.cpp (once; kept in the cache)",
        source=native_dir() / "llama",
        build_dir=build_dir,
        definitions=(
            *base_definitions(options),
            f"SYRINX_LLAMA_DIR={source.path}",
            f"LLAMA_BUILD_COMMIT={source.commit}",
            "LLAMA_BUILD_NUMBER=0",
            f"CMAKE_C_FLAGS={prefix_map}",
            f"CMAKE_CXX_FLAGS={prefix_map}",
        ),
        compiler=compiler,
        tools=tools,
    )
