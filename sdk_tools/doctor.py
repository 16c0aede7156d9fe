"""What this machine can do with the SDK, what is missing for the rest, and how to get it."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from sdk_tools import system
from sdk_tools.bootstrap import MINIMUM_PYTHON, SystemPackage, test_packages
from sdk_tools.build.compiler import find_build_tools, find_clang, find_compiler_for
from sdk_tools.build.manifest import read_engine
from sdk_tools.build.targets import find_target
from sdk_tools.engine_source import PIN, current_identity
from sdk_tools.errors import SyrinxError
from sdk_tools.paths import cache_dir, default_output_dir

_DISK_NEEDED = 2 << 30  # bytes: source, build folders, engines, compiler cache


@dataclass(frozen=True)
class Item:
    """One thing a purpose needs. found: version or place; None if it is missing. how: the way to get it."""

    name: str
    found: str | None
    how: str
    optional: bool = False


@dataclass(frozen=True)
class Purpose:
    """Something one may want to do, and what it takes."""

    name: str
    command: str
    items: tuple[Item, ...]

    @property
    def ready(self) -> bool:
        return all(item.found is not None or item.optional for item in self.items)

    def to_json(self) -> dict[str, object]:
        items = [asdict(item) for item in self.items]
        return {"name": self.name, "command": self.command, "ready": self.ready, "items": items}


def examine() -> tuple[Purpose, ...]:
    """Looks at everything. The first purpose is the one that `make demo` needs."""
    pip_extra = "pip install -e '.[{}]'".format
    return (
        Purpose("host engine and demo", "make demo", tuple(_host_items())),
        Purpose("Android engine", "python -m sdk_tools build --abi arm64", (_target_item("arm64", "Android NDK"),)),
        Purpose(
            "arm64 Linux engine",
            "python -m sdk_tools build --abi arm64-linux",
            (_target_item("arm64-linux", "cross compiler"),),
        ),
        Purpose("tests", "make test", tuple(_test_items(pip_extra("dev")))),
        Purpose("parity and conversion", "python -m sdk_tools parity MODEL", tuple(_extra_items("export"))),
        Purpose("fuzzing", "make fuzz", (_clang_item(),)),
        Purpose("hosted devices (Qualcomm AI Hub)", "", tuple(_extra_items("hub"))),
    )


def _host_items() -> Iterable[Item]:
    version = platform.python_version()
    wanted = ".".join(map(str, MINIMUM_PYTHON))
    yield Item(
        f"Python {wanted} or newer", version if sys.version_info >= MINIMUM_PYTHON else None, "apt install python3"
    )
    yield _probe("C++17 compiler", _describe_compiler, "apt install g++")
    yield _probe("CMake 3.21 or newer", lambda: find_build_tools().cmake_version, "pip install cmake")
    yield _probe("Ninja", lambda: find_build_tools().ninja_version, "pip install ninja")
    yield Item("pip", _package_version("pip"), "apt install python3-venv, or python -m ensurepip")
    yield from _requirement_items(None)
    free = shutil.disk_usage(cache_dir()).free
    enough = f"{free / (1 << 30):.0f} GiB free in {cache_dir()}" if free >= _DISK_NEEDED else None
    yield Item("2 GiB of disk for the cache", enough, f"free some at {cache_dir()}, or set SYRINX_CACHE_DIR")
    yield Item("make", shutil.which("make"), "apt install make", optional=True)
    yield _ccache_item()
    yield _source_item()
    yield _engine_item()


def _test_items(how: str) -> Iterable[Item]:
    yield from _extra_items("dev", how)
    for package in test_packages():
        if not package.optional:
            yield _system_item(package)


def _system_item(package: SystemPackage) -> Item:
    return Item(package.what, "present" if package.is_present() else None, f"apt install {' '.join(package.apt)}")


def _clang_item() -> Item:
    package = next(package for package in test_packages() if "libFuzzer" in package.what)
    if not package.is_present():
        return _system_item(package)
    return _probe(package.what, lambda: f"clang {find_clang().version}", f"apt install {' '.join(package.apt)}")


def _target_item(abi: str, name: str) -> Item:
    """What a target needs beyond the host engine's items."""
    return _probe(name, lambda: _describe_compiler(abi), f"python -m sdk_tools build --abi {abi} says how")


def _describe_compiler(abi: str = "host") -> str:
    compiler = find_compiler_for(find_target(abi))
    return f"{compiler.kind} {compiler.version} for {compiler.target} ({compiler.cxx})"


def _ccache_item() -> Item:
    return Item("ccache, for shorter rebuilds", shutil.which("ccache"), "apt install ccache", optional=True)


def _source_item() -> Item:
    """Not being there is no defect: the first build fetches it."""
    name = f"{PIN.project} {PIN.version} source"
    try:
        identity = current_identity()
    except SyrinxError as error:
        return Item(name, None, error.what)
    if not identity.startswith("sdist:"):
        return Item(name, "your own checkout (SYRINX_LLAMA_CPP_DIR)", "")
    entry = cache_dir() / "engine-source" / PIN.entry_name
    return Item(name, str(entry) if entry.is_dir() else None, "fetched by the first build", optional=True)


def _engine_item() -> Item:
    out = default_output_dir("host")
    try:
        version = str(read_engine(out).manifest.get("version"))
        return Item("built engine", f"{version} in {out}", "")
    except SyrinxError:
        return Item("built engine", None, "python -m sdk_tools build", optional=True)


def _probe(name: str, look: Callable[[], str], how: str) -> Item:
    try:
        return Item(name, look(), how)
    except SyrinxError as error:
        return Item(name, None, f"{error.what} {error.hint}".strip() if error.hint else how)


def _extra_items(extra: str, how: str = "") -> Iterable[Item]:
    yield from _requirement_items(extra, how or f"pip install -e '.[{extra}]'")


def _requirement_items(extra: str | None, how: str = "pip install -e .") -> Iterable[Item]:
    """The packages that our own metadata declares, for one extra or (None) in any case."""
    for name, specifier in _declared_requirements(extra):
        version = _package_version(name)
        wanted = f"{name}{specifier}"
        if version is not None and not _satisfies(version, specifier):
            yield Item(wanted, None, f"{version} is installed; {how}")
        else:
            yield Item(wanted, version, how)


def _declared_requirements(extra: str | None) -> list[tuple[str, str]]:
    found = []
    for line in importlib.metadata.requires("syrinx-sdk-tools") or []:
        requirement, _, marker = line.partition(";")
        named = re.search(r"""extra\s*==\s*["']([^"']+)""", marker)
        if (named[1] if named else None) == extra:
            parts = re.match(r"\s*([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(.*?)\s*$", requirement)
            if parts:
                found.append((parts[1], parts[2]))
    return found


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _satisfies(version: str, specifier: str) -> bool:
    """Whether `version` is what "==1.2.3" or ">=1.2" asks for; local parts such as "+cpu" do not count."""
    have = _numbers(version)
    for part in filter(None, (part.strip() for part in specifier.split(","))):
        operator, wanted = part[:2], _numbers(part[2:])
        if operator == ">=" and have < wanted:
            return False
        if operator == "==" and have != wanted:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(\.\d+)*", version.strip())
    numbers = [int(part) for part in leading.group().split(".")] if leading else [0]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def machine_summary() -> str:
    """One line about the machine."""
    facts = system.machine_facts()
    memory = facts.memory_total / (1 << 30)
    return f"{facts.system}; {facts.cpu}, {facts.cores_usable} cores, {memory:.0f} GiB; Python {facts.python}"
