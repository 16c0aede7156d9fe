"""The device as an interface: the same case runs on this machine, under emulation, or on a phone."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from sdk_tools.process import Completed, OutputCallback


@dataclass(frozen=True)
class DeviceFacts:
    """What makes measurements from two devices comparable, or not. Memory in bytes.

    serial: unique among the devices of its kind. abis: what it can execute, best first. details: whatever else this
    kind of device knows (governor, temperatures, build fingerprint, ...), as JSON values.
    """

    kind: str
    serial: str
    model: str
    system: str
    abis: tuple[str, ...]
    cores: int
    memory_total: int
    details: Mapping[str, object]

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "abis": list(self.abis), "details": dict(self.details)}


class Device(Protocol):
    """A place with files and processes. Paths on the device are strings; relative ones lie in its work folder.

    Every method may raise DeviceError: absent, refused, vanished.
    """

    @property
    def name(self) -> str:
        """For people: "host", or a model and serial."""

    def facts(self) -> DeviceFacts:
        """The facts as of now."""

    def push(self, source: Path, target: str | None = None) -> str:
        """Makes a local file or folder available on the device, verified, and returns its path there.

        Without `target` the device chooses, and may answer with what it already has: the caller must not change it.
        Errors: BadInputError (no such local file), DeviceError (no space, damaged on the way).
        """

    def pull(self, source: str, target: Path) -> None:
        """Copies a file of the device to a local path, whole or not at all. Errors: DeviceError (no such file)."""

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: OutputCallback | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """Runs a program on the device to its end, and returns its exit code and output.

        cwd None is the work folder; env is added to the device's own. on_output gets pieces of text as they come.
        Errors: TimeLimitError (after timeout_s), Cancelled (`cancel` was set): the program is ended in both cases;
        MissingToolError (no such program).
        """

    def close(self) -> None:
        """Removes what was left in the work folder. Does nothing the second time."""
