from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sdk_tools import bootstrap
from sdk_tools.bootstrap import SystemPackage
from sdk_tools.errors import MissingToolError
from tests.unit.fake_toolchain import write_program

PRESENT = SystemPackage("a shell", ("dash",), ("sh",), (), "")
ABSENT = SystemPackage("a unicorn", ("unicorn-dev",), ("no-such-compiler",), (), "")
OPTIONAL = SystemPackage("a luxury", ("luxury",), ("no-such-luxury",), (), "", optional=True)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What bootstrap would have run; nothing is."""
    seen: list[list[str]] = []

    def record(command: list[Any], **_options: object) -> subprocess.CompletedProcess[str]:
        seen.append([str(word) for word in command])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", record)
    return seen


# --------------------------------------------------------------------------------------------------- system packages


def test_nothing_is_installed_when_all_is_there(calls: list[list[str]]) -> None:
    bootstrap.install_system_packages([PRESENT])
    assert calls == []


def test_without_root_the_missing_ones_are_named(monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]) -> None:
    monkeypatch.setattr(bootstrap, "_can_apt", lambda: False)
    with pytest.raises(MissingToolError, match="a unicorn") as caught:
        bootstrap.install_system_packages([PRESENT, ABSENT, OPTIONAL])
    assert "apt-get install luxury unicorn-dev" in caught.value.hint
    assert calls == []


def test_without_root_a_missing_luxury_is_no_error(monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]) -> None:
    monkeypatch.setattr(bootstrap, "_can_apt", lambda: False)
    bootstrap.install_system_packages([PRESENT, OPTIONAL])


def test_root_installs_and_looks_again(monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]) -> None:
    monkeypatch.setattr(bootstrap, "_can_apt", lambda: True)
    monkeypatch.setattr(SystemPackage, "is_present", lambda self: self is PRESENT or len(calls) >= 2)
    bootstrap.install_system_packages([PRESENT, ABSENT, OPTIONAL])
    assert calls[0][:2] == ["apt-get", "update"]
    assert calls[1][:3] == ["apt-get", "install", "-y"]
    assert calls[1][-2:] == ["luxury", "unicorn-dev"]


def test_root_fails_if_the_package_did_not_help(monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]) -> None:
    monkeypatch.setattr(bootstrap, "_can_apt", lambda: True)
    with pytest.raises(MissingToolError, match="a unicorn"):
        bootstrap.install_system_packages([ABSENT])


def test_presence_is_proved_by_compiling(tmp_path: Path) -> None:
    compiler = write_program(tmp_path / "c++", '#!/bin/sh\ngrep -q wanted && test "$4" = -DX\n')
    package = SystemPackage("x", ("x",), ("absent", str(compiler)), ("-DX",), "wanted")
    assert package.is_present()
    assert not SystemPackage("x", ("x",), (str(compiler),), ("-DX",), "other").is_present()
    assert not SystemPackage("x", ("x",), (str(compiler),), ("-DY",), "wanted").is_present()


def test_the_tests_need_these_packages() -> None:
    names = {name for package in bootstrap.test_packages() for name in package.apt}
    assert names == {"g++", "g++-aarch64-linux-gnu", "doctest-dev", "clang", "libclang-rt-dev", "ccache"}


# ------------------------------------------------------------------------------------------------------- environment


def pip_calls(calls: list[list[str]]) -> list[str]:
    return [call[-1] for call in calls if call[1:4] == ["-m", "pip", "install"]]


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]) -> Path:
    folder = tmp_path / ".venv"
    monkeypatch.setattr(bootstrap, "_python_works", lambda _venv: folder.is_dir())
    monkeypatch.setattr(bootstrap, "_create_venv", lambda _venv: folder.mkdir())
    return folder


def test_first_time_creates_and_installs_then_nothing(venv: Path, calls: list[list[str]]) -> None:
    bootstrap.prepare_venv(venv, ["dev"])
    bootstrap.prepare_venv(venv, ["dev"])
    bootstrap.prepare_venv(venv, [])
    assert pip_calls(calls) == [f"{bootstrap.ROOT}[dev]"]


def test_more_extras_are_added_to_those_before(venv: Path, calls: list[list[str]]) -> None:
    bootstrap.prepare_venv(venv, [])
    bootstrap.prepare_venv(venv, ["export"])
    bootstrap.prepare_venv(venv, ["dev"])
    bootstrap.prepare_venv(venv, ["dev", "export"])
    root = str(bootstrap.ROOT)
    assert pip_calls(calls) == [root, f"{root}[export]", f"{root}[dev,export]"]


def test_changed_requirements_install_again(
    venv: Path, calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text("one")
    bootstrap.prepare_venv(venv, ["dev"])
    (tmp_path / "pyproject.toml").write_text("two")
    bootstrap.prepare_venv(venv, [])
    assert pip_calls(calls) == [f"{tmp_path}[dev]"] * 2


def test_a_broken_environment_is_made_anew(venv: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap.prepare_venv(venv, ["dev"])
    created: list[Path] = []
    monkeypatch.setattr(bootstrap, "_python_works", lambda _venv: False)
    monkeypatch.setattr(bootstrap, "_create_venv", created.append)
    bootstrap.prepare_venv(venv, [])
    assert created == [venv]
    assert pip_calls(calls)[1:] == [str(bootstrap.ROOT)]


def test_a_failed_install_is_not_remembered(
    venv: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    def fail(command: list[Any], **_options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(MissingToolError, match="pip could not install"):
        bootstrap.prepare_venv(venv, [])
    assert not (venv / "syrinx-install.json").exists()


def test_old_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(MissingToolError, match=r"Python 3\.9\.2 is too old"):
        bootstrap.prepare_venv(tmp_path / ".venv", [])


def without_ensurepip(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find_spec(name))


@pytest.mark.parametrize("root", [False, True])
def test_debian_python_without_ensurepip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]], root: bool
) -> None:
    without_ensurepip(monkeypatch)
    monkeypatch.setattr(bootstrap, "_python_works", lambda _venv: False)
    monkeypatch.setattr(bootstrap, "_can_apt", lambda: root)
    package = f"python3.{sys.version_info[1]}-venv"
    with pytest.raises(MissingToolError, match="ensurepip is missing") as caught:
        bootstrap.prepare_venv(tmp_path / ".venv", [])
    assert f"apt-get install {package}" in caught.value.hint
    assert [call[-1] for call in calls if call[:2] == ["apt-get", "install"]] == ([package] if root else [])


def test_a_new_environment_is_asked_of_venv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[list[str]]
) -> None:
    monkeypatch.setattr(bootstrap, "_python_works", lambda _venv: False)
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "stale").write_text("")
    bootstrap._create_venv(venv)
    assert calls == [[sys.executable, "-m", "venv", str(venv)]]
    assert not venv.exists()


def test_main_prints_errors_and_returns_their_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(SystemPackage, "is_present", lambda _self: False)
    assert bootstrap.main(["--venv", str(tmp_path / ".venv")]) == 3
    assert "error: There is no C++17 compiler." in capsys.readouterr().err
    assert not (tmp_path / ".venv").exists()


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = "import sys; sys.modules.update(dict.fromkeys(('click', 'psutil', 'rich'))); import sdk_tools.bootstrap"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=bootstrap.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
