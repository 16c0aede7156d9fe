from __future__ import annotations

import os
from pathlib import Path

import pytest

from sdk_tools.build import compiler
from sdk_tools.build.ndk import find_ndk
from sdk_tools.build.targets import TARGETS, find_target
from sdk_tools.errors import MissingToolError, UsageError
from tests.unit.fake_toolchain import write_ndk

VARIABLES = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_HOME", "ANDROID_SDK_ROOT")


@pytest.fixture(autouse=True)
def no_android(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_an_ndk_every_place_is_named() -> None:
    with pytest.raises(MissingToolError) as caught:
        find_ndk()
    for name in ("--ndk", *VARIABLES):
        assert name in caught.value.what
    assert "r26" in caught.value.hint
    assert "arm64-linux needs only Debian's cross compiler" in caught.value.hint
    assert caught.value.exit_code == 3


def test_the_order_of_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, home, root = (write_ndk(tmp_path / name, f"26.{i}.0") for i, name in enumerate(("named", "home", "root")))
    for revision in ("26.1.10909125", "27.0.12077973", "27.0.2"):
        write_ndk(tmp_path / "sdk" / "ndk" / revision, revision)
    monkeypatch.setenv("ANDROID_SDK_ROOT", str(tmp_path / "sdk"))
    assert find_ndk().root == tmp_path / "sdk" / "ndk" / "27.0.12077973"  # numbers, not text: 12077973 is over 2
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(root))
    assert find_ndk().root == root
    monkeypatch.setenv("ANDROID_NDK_HOME", str(home))
    assert find_ndk().root == home
    assert find_ndk(named).root == named


def test_a_named_folder_that_is_none_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = write_ndk(tmp_path / "good", "27.0.1")
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(good))
    with pytest.raises(MissingToolError, match=r"absent \(--ndk\) is no Android NDK"):
        find_ndk(tmp_path / "absent")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(write_ndk(tmp_path / "old", "25.2.9519653")))
    with pytest.raises(MissingToolError, match=r"old \(ANDROID_NDK_HOME\) is r25\.2\.9519653, which is too old"):
        find_ndk()


def test_too_old_and_damaged_ones_in_the_sdk_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ndk"
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path))
    write_ndk(folder / "25.1.1", "25.1.1")
    write_ndk(folder / "29.0.1", "29.0.1").joinpath("build/cmake/android.toolchain.cmake").unlink()
    with pytest.raises(MissingToolError, match="none of r26 or newer"):
        find_ndk()
    assert find_ndk(write_ndk(folder / "26.3.2", "26.3.2")) == find_ndk()


@pytest.mark.parametrize("text", ["Pkg.Desc = Android NDK\n", "Pkg.Revision = unknown\n"])
def test_source_properties_without_a_revision(tmp_path: Path, text: str) -> None:
    root = write_ndk(tmp_path / "ndk", "27.0.1")
    (root / "source.properties").write_text(text)
    with pytest.raises(MissingToolError, match=r"names no Pkg\.Revision"):
        find_ndk(root)


@pytest.mark.parametrize("abi", ["arm64", "x86_64"])
def test_android_compilers(tmp_path: Path, abi: str) -> None:
    root = write_ndk(tmp_path / "ndk", "27.2.12479018")
    found = compiler.find_compiler_for(find_target(abi), root)
    assert (found.kind, found.version) == ("clang", "18.0.3, NDK 27.2.12479018")
    assert found.cmake_definitions() == (f"CMAKE_TOOLCHAIN_FILE={root}/build/cmake/android.toolchain.cmake",)
    assert found.cxx.name.endswith("-linux-android28-clang++")
    (found.cxx).unlink()
    with pytest.raises(MissingToolError, match=r"has no toolchains/llvm/.*clang\+\+"):
        compiler.find_compiler_for(find_target(abi), root)


def test_an_ndk_is_for_android_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--ndk has no use with --abi arm64-linux"):
        compiler.find_compiler_for(find_target("arm64-linux"), tmp_path)


def test_debians_cross_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="'aarch64-linux-gnu-gcc' was not found") as caught:
        compiler.find_compiler_for(find_target("arm64-linux"))
    assert "apt install g++-aarch64-linux-gnu" in caught.value.hint


def test_what_android_is_built_for() -> None:
    definitions = TARGETS["arm64"].definitions
    assert {"ANDROID_ABI=arm64-v8a", "ANDROID_PLATFORM=android-28", "ANDROID_STL=c++_static"} < set(definitions)
    assert "ANDROID_ABI=x86_64" in TARGETS["x86_64"].definitions
    assert os.sep not in "".join(definitions)  # no path of this machine: they are in the manifest
