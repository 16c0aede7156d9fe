from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sdk_tools.devices.base import DeviceFacts
from sdk_tools.devices.host import HostDevice
from sdk_tools.lab.machine import Snapshot, find_warnings, read_frequencies, summarize, take_snapshot


def snapshot(**details: Any) -> Snapshot:
    return Snapshot("2026-01-01T00:00:00+00:00", DeviceFacts("host", "a", "cpu", "os", ("host",), 4, 1 << 33, details))


def test_a_quiet_machine_gives_no_warning() -> None:
    quiet = snapshot(load_1min=0.3, governor="performance", cpu_mhz=3000.0)
    assert find_warnings(quiet, quiet) == []
    assert find_warnings(snapshot(), snapshot()) == []


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({"load_1min": 2.5}, {}, "busy before the run: load 2.5 on 4 cores"),
        ({"governor": "powersave"}, {}, "governor is powersave"),
        ({"cpu_mhz": 3000.0}, {"cpu_mhz": 2500.0}, "fell from 3000 to 2500 MHz"),
    ],
)
def test_each_thing_that_spoils_figures(before: dict[str, Any], after: dict[str, Any], says: str) -> None:
    (warning,) = find_warnings(snapshot(**before), snapshot(**after))
    assert says in warning


def test_our_own_load_is_none_of_it() -> None:
    assert find_warnings(snapshot(load_1min=0.1), snapshot(load_1min=4.0)) == []


def test_a_small_drop_of_the_clock_is_none() -> None:
    assert find_warnings(snapshot(cpu_mhz=3000.0), snapshot(cpu_mhz=2600.0)) == []


def test_snapshot_of_this_machine() -> None:
    with HostDevice() as device:
        taken = take_snapshot(device)
    value = taken.to_json()
    assert value["time"] == taken.time
    assert value["cores"] == taken.facts.cores
    shown = summarize(taken.facts)
    assert shown["cores"] == taken.facts.cores
    assert str(shown["memory"]).endswith("GiB")


def test_frequencies_of_every_core(tmp_path: Path) -> None:
    for core in (0, 1, 10):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("schedutil\n")
        (folder / "scaling_min_freq").write_text("300000\n")
        (folder / "scaling_max_freq").write_text(f"{2000000 + core}\n")
    cores = read_frequencies(tmp_path)["cores"]
    assert isinstance(cores, list)
    assert [entry["core"] for entry in cores] == [0, 1, 10]
    assert cores[2] == {"core": 10, "governor": "schedutil", "min_mhz": 300.0, "max_mhz": 2000.01}


def test_no_frequencies_are_no_error(tmp_path: Path) -> None:
    assert read_frequencies(tmp_path) == {}
    (tmp_path / "cpu0" / "cpufreq").mkdir(parents=True)
    assert read_frequencies(tmp_path) == {"cores": [{"core": 0, "governor": "", "min_mhz": None, "max_mhz": None}]}
