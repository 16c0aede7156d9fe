from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdk_tools import __main__, doctor
from sdk_tools.bootstrap import SystemPackage
from sdk_tools.build.compiler import Compiler
from sdk_tools.doctor import Item, Purpose
from sdk_tools.errors import MissingToolError


@pytest.fixture(autouse=True)
def no_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes of system packages take seconds; here they answer at once, by name."""
    monkeypatch.setattr(SystemPackage, "is_present", lambda self: "doctest" not in self.what)
    monkeypatch.setattr(doctor, "_describe_compiler", lambda abi="host": f"gcc 12 for {abi}")
    clang = Compiler(Path("clang"), Path("clang++"), "clang", "14.0.6", "x86_64-linux-gnu")
    monkeypatch.setattr(doctor, "find_clang", lambda: clang)


def by_name() -> dict[str, Purpose]:
    return {purpose.name: purpose for purpose in doctor.examine()}


def test_every_missing_item_says_how_to_get_it() -> None:
    for purpose in doctor.examine():
        for item in purpose.items:
            assert item.found or item.how, item


def test_purposes_cover_the_commands() -> None:
    assert list(by_name()) == [
        "host engine and demo",
        "Android engine",
        "arm64 Linux engine",
        "tests",
        "parity and conversion",
        "fuzzing",
        "hosted devices (Qualcomm AI Hub)",
    ]


def test_this_python_can_run_the_demo() -> None:
    host = by_name()["host engine and demo"]
    assert host.ready, host
    names = [item.name for item in host.items]
    assert any(name.startswith("numpy>=") for name in names)
    assert not any(name.startswith("torch") for name in names)


def test_a_missing_system_package_is_named_with_its_apt_line() -> None:
    tests = by_name()["tests"]
    assert not tests.ready
    (missing,) = [item for item in tests.items if "doctest" in item.name]
    assert missing == Item("doctest, for the native tests", None, "apt install doctest-dev")


def run_json(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    code = __main__.run(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert isinstance(answer, dict)
    return code, answer


def test_command_exits_0_though_optional_things_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = run_json(capsys)
    assert (code, answer["ready"], answer["schema"]) == (0, True, 1)


def test_command_exits_3_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(_abi: str = "host") -> str:
        raise MissingToolError("No C++ compiler was found.", "apt install g++")

    monkeypatch.setattr(doctor, "_describe_compiler", absent)
    code, answer = run_json(capsys)
    assert (code, answer["ready"]) == (3, False)
    assert __main__.run(["doctor"]) == 3
    text = capsys.readouterr().out
    assert "MISSING" in text
    assert "apt install g++" in text


@pytest.mark.parametrize(
    ("version", "specifier", "wanted"),
    [
        ("2.13.0+cpu", "==2.13.0", True),
        ("2.13.1", "==2.13.0", False),
        ("2.13", "==2.13.0", True),
        ("8.10", ">=8.9", True),
        ("8.9.9", ">=8.10", False),
        ("4.57.3", ">=4,==4.57.3", True),
        ("1.0", "", True),
    ],
)
def test_version_comparison(version: str, specifier: str, wanted: bool) -> None:
    assert doctor._satisfies(version, specifier) is wanted


def test_an_installed_package_that_is_too_old_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_package_version", lambda _name: "0.1")
    torch = next(item for item in by_name()["parity and conversion"].items if item.name.startswith("torch"))
    assert torch == Item("torch==2.13.0", None, "0.1 is installed; pip install -e '.[export]'")
