"""Prepares a fresh machine: the virtual environment .venv and, for tests, the system packages.

    python3 -m sdk_tools.bootstrap [--extras dev,export] [--system tests]

The Makefile runs it before anything is installed, so it uses the standard library alone. A second run with nothing to
do takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sdk_tools.errors import MissingToolError, SyrinxError

MINIMUM_PYTHON = (3, 10)
ROOT = Path(__file__).resolve().parent.parent
_STAMP = "syrinx-install.json"

CXX17_PROGRAM = "#include <filesystem>\n#include <optional>\nint main() { return std::optional<int>{0}.value(); }\n"
_EMPTY_PROGRAM = "int main() { return 0; }\n"
_FUZZ_PROGRAM = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }\n'


@dataclass(frozen=True)
class SystemPackage:
    """Something that only the system's package manager can bring, and the program whose compilation proves it.

    compilers: the first one present is used. flags: for compiling and linking `program`.
    """

    what: str
    apt: tuple[str, ...]
    compilers: tuple[str, ...]
    flags: tuple[str, ...]
    program: str
    optional: bool = False

    def is_present(self) -> bool:
        compiler = next(filter(None, map(shutil.which, self.compilers)), None)
        if compiler is None:
            return False
        if not self.program:
            return True
        try:
            with tempfile.TemporaryDirectory() as folder:
                command = [compiler, "-x", "c++", "-std=c++17", *self.flags, "-", "-o", f"{folder}/program"]
                return (
                    subprocess.run(command, input=self.program.encode(), capture_output=True, timeout=120).returncode
                    == 0
                )
        except (OSError, subprocess.TimeoutExpired):
            return False


def _cxx() -> tuple[str, ...]:
    named = os.environ.get("CXX")
    return (named,) if named else ("c++", "g++", "clang++")


def _clangs() -> tuple[str, ...]:
    return ("clang++", *(f"clang++-{number}" for number in range(30, 9, -1)))


def compiler_package() -> SystemPackage:
    """What `make demo` cannot do without."""
    return SystemPackage("a C++17 compiler", ("g++",), _cxx(), (), CXX17_PROGRAM)


def test_packages() -> tuple[SystemPackage, ...]:
    """What `make test` needs of the system."""
    return (
        compiler_package(),
        SystemPackage(
            "doctest, for the native tests",
            ("doctest-dev",),
            _cxx(),
            ("-fsyntax-only", "-include", "doctest/doctest.h"),
            _EMPTY_PROGRAM,
        ),
        SystemPackage("AddressSanitizer", ("g++",), _cxx(), ("-fsanitize=address,undefined",), _EMPTY_PROGRAM),
        SystemPackage("ThreadSanitizer", ("g++",), _cxx(), ("-fsanitize=thread",), _EMPTY_PROGRAM),
        SystemPackage(
            "clang with libFuzzer, for the fuzz targets",
            ("clang", "libclang-rt-dev"),
            _clangs(),
            ("-fsanitize=fuzzer,address",),
            _FUZZ_PROGRAM,
        ),
        SystemPackage(
            "the cross compiler for arm64 Linux",
            ("g++-aarch64-linux-gnu",),
            ("aarch64-linux-gnu-g++",),
            (),
            CXX17_PROGRAM,
        ),
        SystemPackage("ccache, for shorter rebuilds", ("ccache",), ("ccache",), (), "", optional=True),
    )


def install_system_packages(packages: Sequence[SystemPackage]) -> None:
    """Installs what is missing where we are root on Debian or Ubuntu. Errors: MissingToolError, naming the rest."""
    missing = [package for package in packages if not package.is_present()]
    if not missing:
        return
    names = sorted({name for package in missing for name in package.apt})
    needed = [package for package in missing if not package.optional]
    if _can_apt():
        _apt_install(names)
        needed = [package for package in needed if not package.is_present()]
    if needed:
        what = "; ".join(package.what for package in needed)
        raise MissingToolError(f"Missing on this system: {what}.", f"As root: apt-get install {' '.join(names)}")


def _can_apt() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _apt_install(names: Sequence[str]) -> None:
    _say(f"Installing system packages: {' '.join(names)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    commands = (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *names])
    for command in commands:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        # A stale list may still do; what counts is whether the package is there in the end.
        if done.returncode != 0:
            _say(f"`{' '.join(command)}` failed:\n{done.stderr.strip()[-1500:]}")


# ----------------------------------------------------------------------------------------------------- environment


def prepare_venv(venv: Path, extras: Sequence[str]) -> None:
    """Makes `venv` hold this project, editable, with at least these extras. Errors: MissingToolError."""
    if sys.version_info < MINIMUM_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise MissingToolError(
            f"Python {found} is too old; 3.10 or newer is needed.", "Name another: make PYTHON=python3.12 ..."
        )
    stamp = venv / _STAMP
    fingerprint = _fingerprint()
    installed = _read_stamp(stamp)
    works = _python_works(venv)
    if works and installed and installed[0] == fingerprint and set(extras) <= set(installed[1]):
        return
    if not works:
        _create_venv(venv)
        installed = None
    wanted = sorted({*extras, *(installed[1] if installed else ())})
    stamp.unlink(missing_ok=True)
    _pip_install(venv, wanted)
    stamp.write_text(json.dumps({"fingerprint": fingerprint, "extras": wanted}))


def _fingerprint() -> str:
    """Changes with the declared dependencies, the Python, and the place of the checkout (the install points to it)."""
    parts = (sys.version, str(ROOT), (ROOT / "pyproject.toml").read_text())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read_stamp(path: Path) -> tuple[str, list[str]] | None:
    try:
        value = json.loads(path.read_text())
        return str(value["fingerprint"]), [str(name) for name in value["extras"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _python_works(venv: Path) -> bool:
    python = venv / "bin" / "python"
    try:
        return subprocess.run([python, "-c", "import pip"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _create_venv(venv: Path) -> None:
    # Debian and Ubuntu ship Python without ensurepip, which venv needs to bring pip.
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        if _can_apt():
            _apt_install([package])
            importlib.invalidate_caches()
        if importlib.util.find_spec("ensurepip") is None:
            raise MissingToolError(
                f"{sys.executable} cannot make virtual environments: its module ensurepip is missing.",
                f"As root: apt-get install {package}",
            )
    _say(f"Creating {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True)
    if done.returncode != 0:
        raise MissingToolError(f"Creating {venv} failed: {(done.stderr or done.stdout).strip()[-600:]}")


def _pip_install(venv: Path, extras: Sequence[str]) -> None:
    requirement = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    _say(f"Installing the Python packages{f' ({chr(44).join(extras)})' if extras else ''} into {venv}")
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    quiet = [] if sys.stderr.isatty() else ["--quiet"]  # progress bars for people, silence for logs
    done = subprocess.run([*command, *quiet, "--editable", requirement], stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise MissingToolError(
            "pip could not install what the project needs; its own message is above.",
            "Check the network and pip's settings, and run the same command again.",
        )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m sdk_tools.bootstrap", description="Prepare .venv and the system.")
    parser.add_argument("--extras", default="", help="comma-separated extras of pyproject.toml")
    parser.add_argument(
        "--system", choices=("demo", "tests"), default="demo", help="what the system must be able to do"
    )
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    options = parser.parse_args(arguments)
    extras = [name for name in options.extras.split(",") if name]
    try:
        if options.system == "tests":
            install_system_packages(test_packages())
        elif not compiler_package().is_present():
            raise MissingToolError("There is no C++17 compiler.", "On Debian or Ubuntu, as root: apt-get install g++")
        prepare_venv(options.venv, extras)
    except SyrinxError as error:
        _say(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
