"""Running programs: streamed output, a time limit, and no child left behind."""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from sdk_tools.errors import Cancelled, DeviceError, MissingToolError

Stream = Literal["stdout", "stderr"]
OutputCallback = Callable[[Stream, str], None]

_GRACE_S = 5.0
_POLL_S = 0.1


class TimeLimitError(DeviceError):
    """A program ran longer than it was allowed to and was ended."""


@dataclass(frozen=True)
class Completed:
    """A program that ended by itself. exit_code is negative for a signal, as in subprocess."""

    command: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    seconds: float


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_output: OutputCallback | None = None,
    timeout_s: float | None = None,
    cancel: threading.Event | None = None,
) -> Completed:
    """Runs a program to its end, without standard input, in a process group of its own.

    env is added to this process's environment. on_output gets decoded pieces as they come (invalid UTF-8 becomes
    U+FFFD); the whole text is in the result as well. When the time limit passes, `cancel` is set, or an exception such
    as Ctrl-C arrives, the whole group is ended (SIGTERM, then SIGKILL after 5 s).
    Errors: MissingToolError (no such program), TimeLimitError, Cancelled.
    """
    words = tuple(str(word) for word in command)
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise MissingToolError(f"The folder {cwd} to run {words[0]} in does not exist.") from error
        raise MissingToolError(f"The program {words[0]} was not found.", "Run `python -m sdk_tools doctor`.") from error
    except PermissionError as error:
        raise MissingToolError(f"The program {words[0]} may not be executed: {error.strerror}.") from error
    try:
        stdout, stderr = _collect(child, words, on_output, timeout_s, cancel)
    except BaseException:
        kill_group(child)
        raise
    finally:
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()
    return Completed(words, child.returncode, stdout, stderr, time.monotonic() - started)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Ends a child that leads its own process group, and all that it started; returns when it is gone."""
    for number, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait_s)
    child.wait()


class _Sink:
    """Decodes one pipe and remembers what it said."""

    def __init__(self, name: Stream, on_output: OutputCallback | None) -> None:
        self._name = name
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []

    def feed(self, data: bytes) -> None:
        text = self._decoder.decode(data, final=not data)
        if text:
            self._pieces.append(text)
            if self._on_output:
                self._on_output(self._name, text)

    def text(self) -> str:
        return "".join(self._pieces)


def _collect(
    child: subprocess.Popen[bytes],
    words: tuple[str, ...],
    on_output: OutputCallback | None,
    timeout_s: float | None,
    cancel: threading.Event | None,
) -> tuple[str, str]:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    out, err = _Sink("stdout", on_output), _Sink("stderr", on_output)
    with selectors.DefaultSelector() as selector:
        _register(selector, child.stdout, out)
        _register(selector, child.stderr, err)
        # A grandchild may keep the pipes open after the program itself has ended; its output is not waited for.
        while selector.get_map() and not (child.poll() is not None and not selector.select(0)):
            _check_limits(words, deadline, timeout_s, cancel)
            for key, _ in selector.select(_POLL_S):
                data = os.read(key.fd, 1 << 16)
                key.data.feed(data)
                if not data:
                    selector.unregister(key.fileobj)
    while child.poll() is None:
        _check_limits(words, deadline, timeout_s, cancel)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_POLL_S)
    return out.text(), err.text()


def _register(selector: selectors.BaseSelector, pipe: IO[bytes] | None, sink: _Sink) -> None:
    assert pipe is not None
    selector.register(pipe, selectors.EVENT_READ, sink)


def _check_limits(
    words: tuple[str, ...], deadline: float | None, timeout_s: float | None, cancel: threading.Event | None
) -> None:
    if cancel is not None and cancel.is_set():
        raise Cancelled(f"{Path(words[0]).name} was stopped on request.")
    if deadline is not None and time.monotonic() > deadline:
        raise TimeLimitError(
            f"{Path(words[0]).name} did not end within {timeout_s:g} s and was stopped.", "Allow it more time."
        )
