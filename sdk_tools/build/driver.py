"""From sources to an engine folder: the cached base, then our own code on top, then an atomic install."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sdk_tools import __version__, system
from sdk_tools.build.base import Base, base_definitions, get_base
from sdk_tools.build.cmake import Project, Runner, map_prefixes
from sdk_tools.build.compiler import BuildTools, Compiler, find_build_tools, find_compiler_for
from sdk_tools.build.elf_audit import audit_engine
from sdk_tools.build.manifest import MANIFEST, BuiltEngine, read_engine, write_manifest
from sdk_tools.build.targets import BuildOptions
from sdk_tools.engine_source import EngineSource, current_identity, get_source
from sdk_tools.errors import BadInputError, UsageError
from sdk_tools.files import hash_tree, lock, mark_used, new_dir
from sdk_tools.paths import cache_dir, default_output_dir, license_files, native_dir
from sdk_tools.progress import Reporter, Silent

_MEMORY_PER_JOB = 1_200_000_000  # bytes; the largest unity file of libllama peaks at 1.0 GB


@dataclass(frozen=True)
class Workshop:
    """What every build step needs, found out once. Make one with open_workshop."""

    options: BuildOptions
    source: EngineSource
    compiler: Compiler
    tools: BuildTools
    jobs: int
    reporter: Reporter


@dataclass(frozen=True)
class BuildResult:
    """An installed engine and how it came about. seconds are wall time by phase."""

    engine: BuiltEngine
    build_dir: Path
    base_was_cached: bool
    seconds: dict[str, float] = field(default_factory=dict)


def open_workshop(
    options: BuildOptions,
    *,
    llama_cpp_dir: Path | None = None,
    ndk: Path | None = None,
    jobs: int | None = None,
    reporter: Reporter | None = None,
) -> Workshop:
    """Finds the compiler and build programs and fetches the source. Errors: MissingToolError, EngineSourceError."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} is not possible.", "Give 1 or more.")
    reporter = reporter or Silent()
    compiler = find_compiler_for(options.target, ndk)  # before the download: the likelier thing to be missing
    tools = find_build_tools()
    source = get_source(llama_cpp_dir=llama_cpp_dir, reporter=reporter)
    return Workshop(options, source, compiler, tools, jobs or default_jobs(), reporter)


def build_engine(
    options: BuildOptions,
    *,
    out: Path | None = None,
    llama_cpp_dir: Path | None = None,
    ndk: Path | None = None,
    jobs: int | None = None,
    reporter: Reporter | None = None,
) -> BuildResult:
    """Builds an engine, audits it and puts it at `out` (default: paths.default_output_dir). Whatever fails, an engine
    that was there before stays as it was. ndk: the NDK's folder, for the Android targets.

    Errors: UsageError, MissingToolError, EngineSourceError, BuildError, Cancelled.
    """
    out = (out or default_output_dir(options.name)).expanduser().absolute()
    _check_output(out)
    started = time.monotonic()
    shop = open_workshop(options, llama_cpp_dir=llama_cpp_dir, ndk=ndk, jobs=jobs, reporter=reporter)
    inputs = make_inputs(options, shop.source.identity)
    with_source = time.monotonic()
    base = get_base(options, shop.source, shop.compiler, shop.tools, shop.jobs, shop.reporter)
    with_base = time.monotonic()
    with lock_native(shop) as build_dir:
        runner = Runner(native_project(shop, base, build_dir), shop.reporter)
        runner.configure()
        runner.build(shop.jobs)
        engine = _install(shop, runner, out, base, inputs)
    seconds = {
        "source": with_source - started,
        "base": with_base - with_source,
        "native": time.monotonic() - with_base,
        "total": time.monotonic() - started,
    }
    return BuildResult(engine, build_dir, base.was_cached, {name: round(value, 2) for name, value in seconds.items()})


def ensure_engine(root: Path | None = None, *, reporter: Reporter | None = None) -> BuiltEngine:
    """A host engine that is up to date with the sources, built now if need be.

    root (or $SYRINX_ENGINE_DIR): an engine folder to use as it is, whatever the sources say. Without it the default
    output folder is used, and rebuilt with the options it was built with when it is absent, damaged or out of date.
    Errors: BadInputError (root is no engine), and those of build_engine.
    """
    named = os.environ.get("SYRINX_ENGINE_DIR")
    root = root or (Path(named) if named else None)
    if root:
        return read_engine(root.expanduser().absolute())
    reporter = reporter or Silent()
    options = BuildOptions()
    out = default_output_dir(options.name)
    try:
        engine = read_engine(out)
        options = engine.options
        if engine.inputs == make_inputs(options, current_identity()):
            return engine
        reporter.say("The engine is older than its sources: building it anew.")
    except BadInputError:
        reporter.say("There is no built engine yet: building it (a few minutes the first time).")
    return build_engine(options, out=out, reporter=reporter).engine


def make_inputs(options: BuildOptions, source_identity: str) -> dict[str, object]:
    """Everything from which the bytes of an engine follow, but for the compiler."""
    native = native_dir()
    parts = sorted(path.name for path in native.iterdir() if path.name != "tests")
    return {
        "native_sha256": hash_tree(native, parts),
        "llama_cpp": source_identity,
        "base_definitions": list(base_definitions(options)),
        "native_definitions": list(native_definitions(options)),
    }


def native_definitions(options: BuildOptions) -> tuple[str, ...]:
    """The CMake definitions of our own code, without the paths of this machine."""
    return (
        f"CMAKE_BUILD_TYPE={'Debug' if options.variant == 'debug' or options.sanitize else 'Release'}",
        "CMAKE_CXX_FLAGS_DEBUG=-O1 -g1",  # stack traces with lines; a sanitizer at -O3 takes thrice as long to build
        f"SYRINX_SANITIZE={options.sanitize}",
        "CMAKE_BUILD_RPATH_USE_ORIGIN=ON",  # else the build folder's path would be in the program
        *options.target.definitions,
    )


def native_project(
    shop: Workshop,
    base: Base,
    build_dir: Path,
    *,
    tests: bool = False,
    fuzzers: bool = False,
    compiler: Compiler | None = None,
) -> Project:
    """Our own code as a CMake project on `base`; with its tests or fuzz targets on demand."""
    source = native_dir()
    prefix_map = map_prefixes({source: "native", base.path: "base", build_dir: "build"})
    kind = " ".join(part for part in (shop.options.sanitize, "with tests" if tests else "") if part)
    title = "the fuzz targets" if fuzzers else f"the engine{f' ({kind})' if kind else ''}"
    return Project(
        title=title,
        source=source,
        build_dir=build_dir,
        definitions=(
            *native_definitions(shop.options),
            f"SYRINX_BASE_DIR={base.path}",
            f"SYRINX_LLAMA_COMMIT={shop.source.commit}",
            f"SYRINX_BUILD_TESTS={'ON' if tests else 'OFF'}",
            f"SYRINX_BUILD_FUZZERS={'ON' if fuzzers else 'OFF'}",
            f"CMAKE_C_FLAGS={prefix_map}",
            f"CMAKE_CXX_FLAGS={prefix_map}",
        ),
        compiler=compiler or shop.compiler,
        tools=shop.tools,
    )


@contextlib.contextmanager
def lock_native(shop: Workshop, suffix: str = "") -> Iterator[Path]:
    """Holds the build folder of our code for these options; the value is its path.

    There is one folder per checkout and options, outside the checkout, so that rebuilds are incremental.
    """
    key = hashlib.sha256(str(native_dir()).encode()).hexdigest()[:12]
    path = cache_dir() / "builds" / f"{shop.options.name}{suffix}-{key}"
    with lock(path.with_suffix(".lock"), lambda: shop.reporter.say("Another build of this checkout is running ...")):
        mark_used(path)
        yield path


def default_jobs() -> int:
    """As many compilers at once as there are processors, and as the free memory holds."""
    processors = len(os.sched_getaffinity(0))
    return max(1, min(processors, psutil.virtual_memory().available // _MEMORY_PER_JOB))


def _check_output(out: Path) -> None:
    """Refuses to replace a folder that no build of ours has made."""
    if out.exists() and not (out / MANIFEST).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(
            f"{out} exists and is not a built engine; it would be replaced.", "Name another --out folder, or remove it."
        )


def _install(shop: Workshop, runner: Runner, out: Path, base: Base, inputs: dict[str, object]) -> BuiltEngine:
    with new_dir(out) as temporary:
        runner.install(temporary, strip=shop.options.variant == "release" and not shop.options.sanitize)
        audit_engine(temporary, shop.options)
        (temporary / "licenses").mkdir()
        for path in license_files():
            shutil.copyfile(path, temporary / "licenses" / path.name)
        facts: dict[str, object] = {
            "version": __version__,
            "options": shop.options.to_json(),
            "inputs": inputs,
            "llama_cpp": shop.source.to_json(),
            "base": base.key,
            "compiler": shop.compiler.to_json(),
            "tools": {"cmake": shop.tools.cmake_version, "ninja": shop.tools.ninja_version},
            "ship_bytes": sum(path.stat().st_size for path in (temporary / "lib").glob("*.so")),
            "cpu": system.cpu_identity() if shop.options.native_cpu else None,
        }
        manifest = write_manifest(temporary, facts).manifest
    return BuiltEngine(out, manifest)
