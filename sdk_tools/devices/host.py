"""This machine as a device."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from sdk_tools import process, system
from sdk_tools.devices.base import DeviceFacts
from sdk_tools.errors import BadInputError, DeviceError
from sdk_tools.files import hash_file, new_dir


class HostDevice:
    """Runs programs here, in a work folder of its own that goes away with close() or the end of a `with` block."""

    def __init__(self) -> None:
        self._work: Path | None = None

    def __enter__(self) -> HostDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        return "host"

    @property
    def work_dir(self) -> Path:
        """Created on first use."""
        if self._work is None:
            self._work = Path(tempfile.mkdtemp(prefix="syrinx-host-"))
        return self._work

    def facts(self) -> DeviceFacts:
        now = system.machine_facts()
        return DeviceFacts(
            kind="host",
            serial=platform.node(),
            model=now.cpu,
            system=now.system,
            abis=("host",),
            cores=now.cores_usable,
            memory_total=now.memory_total,
            details=now.to_json(),
        )

    def push(self, source: Path, target: str | None = None) -> str:
        if not source.exists():
            raise BadInputError(f"{source} does not exist.")
        if target is None:
            return str(source.absolute())
        path = self._resolve(target)
        if source.is_dir():
            with new_dir(path) as temporary:
                shutil.copytree(source, temporary, dirs_exist_ok=True)
        else:
            _copy_file(source, path)
        return str(path)

    def pull(self, source: str, target: Path) -> None:
        path = self._resolve(source)
        if not path.is_file():
            raise DeviceError(f"There is no file {source} on {self.name}.")
        _copy_file(path, target)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: process.OutputCallback | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> process.Completed:
        folder = self.work_dir if cwd is None else self._resolve(cwd)
        # The engine's program ends with the process named here, even if that one is killed.
        env = {"SYRINX_PARENT_PID": str(os.getpid()), **(env or {})}
        return process.run(command, env=env, cwd=folder, on_output=on_output, timeout_s=timeout_s, cancel=cancel)

    def close(self) -> None:
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work = None

    def _resolve(self, path: str) -> Path:
        return self.work_dir / path  # an absolute path stays as it is


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        shutil.copy2(source, temporary)
        if hash_file(temporary) != hash_file(source):
            raise DeviceError(f"Copying {source} to {target} damaged it.", "Check the disk.")
        temporary.replace(target)
    except OSError as error:
        raise DeviceError(f"Copying {source} to {target} failed: {error.strerror}.", "Check the free space.") from error
    finally:
        temporary.unlink(missing_ok=True)
