"""The state of a device around a measurement, and whether it spoils the figures."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sdk_tools.build.manifest import MANIFEST, BuiltEngine
from sdk_tools.devices.base import Device, DeviceFacts
from sdk_tools.files import hash_file

_CPU_ROOT = Path("/sys/devices/system/cpu")
_CLOCK_DROP = 0.15
_BUSY_SHARE = 0.5


@dataclass(frozen=True)
class Snapshot:
    """A device at one moment (UTC, ISO 8601). frequencies: see read_frequencies."""

    time: str
    facts: DeviceFacts
    frequencies: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {"time": self.time, **self.facts.to_json(), "frequencies": dict(self.frequencies)}


def take_snapshot(device: Device) -> Snapshot:
    """The device as of now."""
    now = datetime.datetime.now(datetime.timezone.utc)
    facts = device.facts()
    return Snapshot(now.isoformat(timespec="seconds"), facts, read_frequencies() if facts.kind == "host" else {})


def describe_engine(engine: BuiltEngine) -> dict[str, object]:
    """What the engine under test is: figures of two engines are comparable where these are equal."""
    manifest = engine.manifest
    return {
        "manifest_sha256": hash_file(engine.root / MANIFEST),
        **{key: manifest.get(key) for key in ("version", "options", "llama_cpp", "compiler")},
    }


def read_frequencies(root: Path = _CPU_ROOT) -> dict[str, object]:
    """Governor and clock limits of every core of this machine, in MHz; empty where the kernel shows none."""
    cores = []
    for folder in sorted(root.glob("cpu[0-9]*/cpufreq"), key=lambda path: int(path.parent.name[3:])):
        values = {name: _read(folder / name) for name in ("scaling_governor", "scaling_min_freq", "scaling_max_freq")}
        low, high = values["scaling_min_freq"], values["scaling_max_freq"]
        cores.append(
            {
                "core": int(folder.parent.name[3:]),
                "governor": values["scaling_governor"],
                "min_mhz": int(low) / 1000 if low.isdigit() else None,
                "max_mhz": int(high) / 1000 if high.isdigit() else None,
            }
        )
    return {"cores": cores} if cores else {}


def find_warnings(before: Snapshot, after: Snapshot) -> list[str]:
    """What makes the figures between the two doubtful, one sentence each."""
    old, new = before.facts.details, after.facts.details
    warnings = []
    load, cores = _number(old, "load_1min"), before.facts.cores
    if load is not None and load > _BUSY_SHARE * cores:
        warnings.append(f"The machine was busy before the run: load {load:g} on {cores} cores.")
    governor = old.get("governor")
    if governor in ("powersave", "conservative"):
        warnings.append(f"The frequency governor is {governor}, which slows the clock down.")
    clock_before, clock_after = _number(old, "cpu_mhz"), _number(new, "cpu_mhz")
    if clock_before and clock_after and clock_after < (1 - _CLOCK_DROP) * clock_before:
        warnings.append(f"The clock fell from {clock_before:.0f} to {clock_after:.0f} MHz during the run.")
    return warnings


def summarize(facts: DeviceFacts) -> Mapping[str, object]:
    """The facts that people look for first, for a table."""
    details = facts.details
    return {
        "machine": facts.model,
        "system": facts.system,
        "cores": facts.cores,
        "memory": f"{facts.memory_total / 2**30:.1f} GiB",
        "load": details.get("load_1min"),
        "governor": details.get("governor"),
        "clock": f"{details['cpu_mhz']:.0f} MHz" if _number(details, "cpu_mhz") else None,
        "temperature": f"{details['temperature']:.0f} °C" if _number(details, "temperature") else None,
    }


def _number(details: Mapping[str, object], name: str) -> float | None:
    value = details.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
