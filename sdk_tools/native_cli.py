"""Calls the engine's own command line, `syrinx`, on a device, and turns its answer into values or errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

from sdk_tools.abi import make_error
from sdk_tools.build.manifest import BuiltEngine
from sdk_tools.devices.base import Device
from sdk_tools.errors import EngineError
from sdk_tools.process import Stream


def call_engine(
    device: Device,
    engine: BuiltEngine,
    arguments: Sequence[str],
    *,
    on_piece: Callable[[str], None] | None = None,
    timeout_s: float | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, object]:
    """Runs `syrinx ARGUMENTS` and returns the JSON object it prints last. With `--stream` among the arguments, on_piece
    gets the answer's text as it comes.

    Errors: by the status it reports, as abi.make_error says, with its text; EngineError if it crashed or printed no
    JSON; those of Device.run.
    """
    program = device.push(engine.cli)
    lines = _PieceReader(on_piece) if on_piece else None
    done = device.run([program, *arguments], on_output=lines, timeout_s=timeout_s, cancel=cancel)
    answer = _parse(done.stdout.rstrip().rpartition("\n")[2])
    if done.exit_code == 0 and isinstance(answer, dict):
        return answer
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        status = str(error.get("status"))
        raise make_error(status, str(error.get("text")), f"The engine's status is {status}.")
    how = f"was ended by signal {-done.exit_code}" if done.exit_code < 0 else f"exited with code {done.exit_code}"
    last = "\n".join(f"  {line}" for line in (done.stderr or done.stdout).splitlines()[-8:])
    raise EngineError(f"`syrinx {arguments[0]}` {how} without an answer.\n{last}".rstrip(), "This is a bug; report it.")


class _PieceReader:
    """Takes a program's output as it comes, and finds the lines {"piece": TEXT} in it."""

    def __init__(self, on_piece: Callable[[str], None]) -> None:
        self._on_piece = on_piece
        self._line = ""

    def __call__(self, stream: Stream, text: str) -> None:
        if stream != "stdout":
            return
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            value = _parse(line)
            if isinstance(value, dict) and isinstance(value.get("piece"), str):
                self._on_piece(value["piece"])


def _parse(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
