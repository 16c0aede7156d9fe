from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdk_tools import system

CPUINFO = "processor\t: 0\nmodel name\t: Test CPU\nflags\t\t: avx sse2\n\nprocessor\t: 1\nmodel name\t: Test CPU\n"


def test_facts_are_json_and_plausible() -> None:
    facts = system.machine_facts()
    assert facts.cores_usable >= 1
    assert facts.memory_total > facts.memory_available > 0
    assert json.loads(json.dumps(facts.to_json()))["cpu"] == facts.cpu


def test_cpu_identity_depends_on_model_and_flags_in_any_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(system, "_CPUINFO", path)

    def identity(text: str) -> str:
        path.write_text(text)
        return system.cpu_identity()

    first = identity(CPUINFO)
    assert first.startswith("Test CPU [")
    assert identity(CPUINFO.replace("avx sse2", "sse2 avx")) == first
    assert identity(CPUINFO.replace("avx", "avx avx2")) != first
    assert identity(CPUINFO.replace("Test CPU", "Other CPU")) != first


def test_without_cpuinfo_there_is_still_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "_CPUINFO", tmp_path / "absent")
    assert system.cpu_model()


def test_temperature_ignores_sensors_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "_THERMAL", tmp_path)
    assert system.machine_facts().temperature is None
    for index, text in enumerate(("0", "41500", "-274000", "n/a")):
        (tmp_path / f"thermal_zone{index}").mkdir()
        (tmp_path / f"thermal_zone{index}" / "temp").write_text(text)
    assert system.machine_facts().temperature == 41.5
