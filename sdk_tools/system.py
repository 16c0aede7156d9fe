"""Facts about this machine: what a measurement needs to be comparable, and what a build needs to be possible."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_CPUINFO = Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_THERMAL = Path("/sys/class/thermal")


@dataclass(frozen=True)
class MachineFacts:
    """A machine at one moment. Memory in bytes, frequency in MHz, temperature in degrees Celsius; None: not known."""

    system: str
    architecture: str
    cpu: str
    cores_physical: int | None
    cores_usable: int
    memory_total: int
    memory_available: int
    load_1min: float
    governor: str | None
    cpu_mhz: float | None
    temperature: float | None
    python: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def machine_facts() -> MachineFacts:
    """The facts as of now."""
    memory = psutil.virtual_memory()
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return MachineFacts(
        system=system_name(),
        architecture=platform.machine(),
        cpu=cpu_model(),
        cores_physical=psutil.cpu_count(logical=False),
        cores_usable=len(os.sched_getaffinity(0)),
        memory_total=memory.total,
        memory_available=memory.available,
        load_1min=round(os.getloadavg()[0], 2),
        governor=_read_line(_GOVERNOR),
        cpu_mhz=round(frequency.current, 1) if frequency and frequency.current else None,
        temperature=_max_temperature(),
        python=platform.python_version(),
    )


def system_name() -> str:
    """Such as "Debian GNU/Linux 12 (bookworm), kernel 6.1.0"."""
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return f"{name}, kernel {platform.release()}"


def is_debian_like() -> bool:
    """Whether apt is how this system gets packages."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    return bool({"debian", "ubuntu"} & {release.get("ID", ""), *release.get("ID_LIKE", "").split()})


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    return _cpuinfo_field("model name", "Model", "Hardware") or platform.processor() or platform.machine()


def cpu_identity() -> str:
    """Equal for processors that run the same machine-specific code: model and instruction-set flags."""
    flags = _cpuinfo_field("flags", "Features") or ""
    digest = hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:12]
    return f"{cpu_model()} [{digest}]"


def _cpuinfo_field(*names: str) -> str | None:
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in names and value.strip():
            return value.strip()
    return None


def _max_temperature() -> float | None:
    values = []
    for path in _THERMAL.glob("thermal_zone*/temp"):
        text = _read_line(path)
        if text and text.lstrip("-").isdigit():
            values.append(int(text) / 1000)
    # A zone that reads 0 or less is a sensor that is not there.
    return max((value for value in values if value > 0), default=None)


def _read_line(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
