from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path

import pytest

from sdk_tools.build import compiler
from sdk_tools.errors import MissingToolError
from tests.unit.fake_toolchain import write_compiler, write_program

GCC = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0"
CLANG = "Debian clang version 14.0.6"


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(shutil, "which", lambda name: which_only_in(tmp_path, name))
    return tmp_path


def which_only_in(folder: Path, name: str) -> str | None:
    path = Path(name) if "/" in name else folder / name
    return str(path) if path.is_file() else None


def test_system_compiler(bin_dir: Path) -> None:
    write_compiler(bin_dir, "cc", GCC)
    write_compiler(bin_dir, "c++", GCC)
    found = compiler.find_compiler()
    assert found == compiler.Compiler(bin_dir / "cc", bin_dir / "c++", "gcc", "12.2.0", "x86_64-linux-gnu")
    assert found.identity() == "gcc 12.2.0 x86_64-linux-gnu"


def test_the_next_one_is_taken_if_the_first_has_no_standard_library(bin_dir: Path) -> None:
    for name in ("cc", "c++"):
        write_compiler(bin_dir, name, CLANG, works=False)
    for name in ("gcc", "g++"):
        write_compiler(bin_dir, name, GCC)
    assert compiler.find_compiler().cxx.name == "g++"


def test_no_compiler(bin_dir: Path) -> None:
    with pytest.raises(MissingToolError, match=r"No C\+\+ compiler") as caught:
        compiler.find_compiler()
    assert "apt install g++" in caught.value.hint


def test_only_an_unusable_compiler_says_why(bin_dir: Path) -> None:
    for name in ("cc", "c++"):
        write_compiler(bin_dir, name, GCC, works=False)
    with pytest.raises(MissingToolError, match=r"cannot compile C\+\+17: .*fatal error: optional"):
        compiler.find_compiler()


@pytest.mark.parametrize(("cxx", "cc"), [("g++-13", "gcc-13"), ("clang++-18", "clang-18"), ("c++", "cc")])
def test_cxx_variable_brings_its_c_compiler(bin_dir: Path, monkeypatch: pytest.MonkeyPatch, cxx: str, cc: str) -> None:
    for name in (cxx, cc):
        write_compiler(bin_dir, name, CLANG if "clang" in name else GCC)
    monkeypatch.setenv("CXX", cxx)
    found = compiler.find_compiler()
    assert (found.cxx.name, found.cc.name) == (cxx, cc)
    assert (found.kind, found.version) == (("clang", "14.0.6") if "clang" in cxx else ("gcc", "12.2.0"))


def test_cxx_variable_that_names_nothing(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++-99")
    with pytest.raises(MissingToolError, match=r"'gcc-99' was not found"):
        compiler.find_compiler()


def test_newest_clang(bin_dir: Path) -> None:
    with pytest.raises(MissingToolError, match="No clang"):
        compiler.find_clang()
    for number in (14, 19):
        write_compiler(bin_dir, f"clang++-{number}", f"clang version {number}.0.1")
        write_compiler(bin_dir, f"clang-{number}", f"clang version {number}.0.1")
    assert compiler.find_clang().version == "19.0.1"


def test_build_tools_of_this_python() -> None:
    tools = compiler.find_build_tools()
    assert Path(sys.prefix) in tools.cmake.parents
    assert tools.ctest.is_file()
    assert int(tools.cmake_version.split(".")[0]) >= 3


def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)


def test_build_tools_of_the_system(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_packages(monkeypatch)
    with pytest.raises(MissingToolError, match="cmake was not found") as caught:
        compiler.find_build_tools()
    assert caught.value.hint == "pip install cmake"
    write_program(bin_dir / "cmake", "#!/bin/sh\necho cmake version 3.25.1\n")
    write_program(bin_dir / "ninja", "#!/bin/sh\necho 1.11.1\n")
    tools = compiler.find_build_tools()
    assert (tools.cmake_version, tools.ninja_version, tools.ccache) == ("3.25.1", "1.11.1", None)


def test_old_cmake_is_refused(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_packages(monkeypatch)
    write_program(bin_dir / "cmake", "#!/bin/sh\necho cmake version 3.16.3\n")
    with pytest.raises(MissingToolError, match=r"version 3\.16\.3; 3\.21 or newer"):
        compiler.find_build_tools()
