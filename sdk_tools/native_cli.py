"""Calls the engine's own command line, `syrinx`, on a device, and turns its answer into values or errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

from sdk_tools.abi import make_error
from sdk_tools.build.manifest import BuiltEngine
from sdk_tools.devices.base import Device
from sdk_tools.errors import EngineError
from sdk_tools.process import OutputCallback


def call_engine(
    device: Device,
    engine: BuiltEngine,
    arguments: Sequence[str],
    *,
    on_output: OutputCallback | None = None,
    timeout_s: float | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, object]:
    """Runs `syrinx ARGUMENTS` and returns the JSON object it prints.

    Errors: by the status it reports, as abi.make_error says, with its text; EngineError if it crashed or printed no
    JSON; those of Device.run.
    """
    program = device.push(engine.cli)
    done = device.run([program, *arguments], on_output=on_output, timeout_s=timeout_s, cancel=cancel)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if done.exit_code == 0 and isinstance(answer, dict):
        return answer
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        status = str(error.get("status"))
        raise make_error(status, str(error.get("text")), f"The engine's status is {status}.")
    how = f"was ended by signal {-done.exit_code}" if done.exit_code < 0 else f"exited with code {done.exit_code}"
    last = "\n".join(f"  {line}" for line in (done.stderr or done.stdout).splitlines()[-8:])
    raise EngineError(f"`syrinx {arguments[0]}` {how} without an answer.\n{last}".rstrip(), "This is a bug; report it.")
