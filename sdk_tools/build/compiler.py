"""The compilers and build programs of this machine."""

from __future__ import annotations

import importlib
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from sdk_tools import process
from sdk_tools.build.ndk import find_ndk
from sdk_tools.build.targets import Target
from sdk_tools.errors import MissingToolError, UsageError

_APT_HINT = "On Debian or Ubuntu: apt install g++. Or set CC and CXX to compilers that know C++17."
_CMAKE_MINIMUM = (3, 21)

# Headers that exist only where a whole C++17 library is installed: a bare clang without one is found out here.
_PROBE = "#include <filesystem>\n#include <optional>\n#include <string_view>\nint main() { std::optional<int> x{}; }\n"


@dataclass(frozen=True)
class Compiler:
    """A pair of C and C++ compilers of one kind. target is the triple they compile for.

    toolchain_file: what CMake is given instead of the two, if the compilers come with one (the NDK).
    """

    cc: Path
    cxx: Path
    kind: str  # "gcc" or "clang"
    version: str
    target: str
    toolchain_file: Path | None = None

    def cmake_definitions(self) -> tuple[str, ...]:
        """How CMake is told to use them."""
        if self.toolchain_file:
            return (f"CMAKE_TOOLCHAIN_FILE={self.toolchain_file}",)
        return f"CMAKE_C_COMPILER={self.cc}", f"CMAKE_CXX_COMPILER={self.cxx}"

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "version": self.version, "target": self.target, "cxx": str(self.cxx)}

    def identity(self) -> str:
        """Equal for compilers that give the same output."""
        return f"{self.kind} {self.version} {self.target}"


def find_compiler_for(target: Target, ndk: Path | None = None) -> Compiler:
    """The compilers of a target; `ndk` is for ndk.find_ndk. Errors: MissingToolError, UsageError (`ndk` has no use)."""
    if target.android_abi:
        kit = find_ndk(ndk)
        cc, cxx = kit.compilers(target.android_abi)
        found = _describe(str(cc), str(cxx), "Install the NDK anew.")
        return replace(found, version=f"{found.version}, NDK {kit.revision}", toolchain_file=kit.toolchain_file)
    if ndk:
        raise UsageError(f"--ndk has no use with --abi {target.abi}.", "It is for the Android targets.")
    if target.cross_prefix:
        hint = f"On Debian or Ubuntu: apt install g++-{target.cross_prefix}."
        return _describe(f"{target.cross_prefix}-gcc", f"{target.cross_prefix}-g++", hint)
    return find_compiler()


def find_compiler() -> Compiler:
    """The compilers that CC and CXX name, or the system's. Errors: MissingToolError."""
    named = os.environ.get("CXX")
    if named:
        return _describe(os.environ.get("CC") or _c_name(named), named)
    reasons: list[str] = []
    for cc, cxx in (("cc", "c++"), ("gcc", "g++"), ("clang", "clang++")):
        if not (shutil.which(cc) and shutil.which(cxx)):
            continue
        try:
            return _describe(cc, cxx)
        except MissingToolError as error:
            reasons.append(error.what)
    raise MissingToolError(reasons[0] if reasons else "No C++ compiler was found (c++, g++, clang++).", _APT_HINT)


def find_clang() -> Compiler:
    """A clang with libFuzzer, for the fuzz targets: the unversioned one, else the newest. Errors: MissingToolError."""
    names = ["clang++", *(f"clang++-{number}" for number in range(30, 9, -1))]
    for name in names:
        if shutil.which(name) and shutil.which(_c_name(name)):
            return _describe(_c_name(name), name)
    raise MissingToolError(
        "No clang was found; the fuzz targets need it for libFuzzer.",
        "On Debian or Ubuntu: apt install clang libclang-rt-dev (Debian 12: clang libclang-rt-14-dev).",
    )


def _c_name(cxx: str) -> str:
    folder, _, name = cxx.rpartition("/")
    swapped = name.replace("clang++", "clang").replace("g++", "gcc") if "++" in name else name
    if swapped.startswith("c++"):
        swapped = "cc" + swapped[3:]
    return f"{folder}/{swapped}" if folder else swapped


def _describe(cc: str, cxx: str, hint: str = _APT_HINT) -> Compiler:
    paths = []
    for name in (cc, cxx):
        found = shutil.which(name)
        if not found:
            raise MissingToolError(f"The compiler {name!r} was not found.", hint)
        paths.append(Path(found))
    version = _ask(paths[1], "--version", hint)
    _check_cxx17(paths[1], hint)
    kind = "clang" if "clang" in version else "gcc"
    first_line = version.splitlines()[0] if version else ""
    number = re.search(r"\d+\.\d+(\.\d+)?", re.sub(r"\(.*?\)", "", first_line))
    return Compiler(
        cc=paths[0],
        cxx=paths[1],
        kind=kind,
        version=number.group() if number else first_line,
        target=_ask(paths[1], "-dumpmachine", hint),
    )


def _ask(compiler: Path, option: str, hint: str) -> str:
    done = process.run([compiler, option], env={"LC_ALL": "C"}, timeout_s=60)
    if done.exit_code != 0:
        raise MissingToolError(f"{compiler} {option} failed: {done.stderr.strip()[:300]}", hint)
    return done.stdout.strip()


def _check_cxx17(compiler: Path, hint: str) -> None:
    command = ["sh", "-c", 'printf "%s" "$1" | "$0" -std=c++17 -x c++ -fsyntax-only -', str(compiler), _PROBE]
    done = process.run(command, env={"LC_ALL": "C"}, timeout_s=60)
    if done.exit_code != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise MissingToolError(f"{compiler} cannot compile C++17: {reason[:300]}", hint)


@dataclass(frozen=True)
class BuildTools:
    """Programs that drive the compiler. ccache is optional: it makes repeated builds shorter."""

    cmake: Path
    ctest: Path
    cmake_version: str
    ninja: Path
    ninja_version: str
    ccache: Path | None


def find_build_tools() -> BuildTools:
    """CMake and Ninja from this Python's own packages, else from the system. Errors: MissingToolError."""
    cmake = _find_packaged("cmake", "CMAKE_BIN_DIR")
    version = _ask_version(cmake)
    if tuple(int(part) for part in version.split(".")[:2]) < _CMAKE_MINIMUM:
        raise MissingToolError(f"{cmake} is version {version}; 3.21 or newer is needed.", "pip install cmake")
    ninja = _find_packaged("ninja", "BIN_DIR")
    ccache = shutil.which("ccache")
    return BuildTools(
        cmake=cmake,
        ctest=cmake.with_name("ctest"),
        cmake_version=version,
        ninja=ninja,
        ninja_version=_ask_version(ninja),
        ccache=Path(ccache) if ccache else None,
    )


def _find_packaged(name: str, constant: str) -> Path:
    try:
        path = Path(getattr(importlib.import_module(name), constant)) / name
        if path.is_file():
            return path
    except (ImportError, AttributeError):
        pass
    found = shutil.which(name)
    if not found:
        raise MissingToolError(f"{name} was not found.", f"pip install {name}")
    return Path(found)


def _ask_version(program: Path) -> str:
    done = process.run([program, "--version"], timeout_s=60)
    number = re.search(r"\d+\.\d+(\.\d+)*", done.stdout)
    if done.exit_code != 0 or not number:
        raise MissingToolError(f"{program} --version failed: {(done.stderr or done.stdout).strip()[:300]}")
    return number.group()
