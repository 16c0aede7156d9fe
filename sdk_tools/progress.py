"""Progress of long work, on standard error: a bar on a terminal, a line now and then in a log, or nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import IO, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

_LOG_INTERVAL_S = 15.0


class Step(Protocol):
    """One piece of long work while it runs."""

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        """`done` of `total` units (None: as before, or unknown) are finished; `note` says what is under way."""


class Reporter(Protocol):
    """Where a library function reports what it is doing. Callers that care for none pass Silent()."""

    def say(self, text: str) -> None:
        """One line that stays."""

    def step(self, title: str, total: int | None = None) -> contextlib.AbstractContextManager[Step]:
        """Begins a piece of work; it is over when the block ends."""


class Silent:
    """Reports nothing; both a Reporter and a Step."""

    def say(self, text: str) -> None:
        del text

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        del done, total, note

    @contextlib.contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Step]:
        del title, total
        yield self


class LogReporter:
    """Plain lines for logs: when work begins, every 15 s while it lasts, and when it ends."""

    def __init__(self, stream: IO[str] | None = None, interval_s: float = _LOG_INTERVAL_S) -> None:
        self._stream = stream
        self._interval_s = interval_s

    def say(self, text: str) -> None:
        print(text, file=self._stream or sys.stderr, flush=True)

    @contextlib.contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Step]:
        started = time.monotonic()
        self.say(f"{title} ...")
        yield _LogStep(self, title, total, self._interval_s)
        self.say(f"{title}: done in {time.monotonic() - started:.1f} s")


class _LogStep:
    def __init__(self, reporter: LogReporter, title: str, total: int | None, interval_s: float) -> None:
        self._reporter = reporter
        self._title = title
        self._total = total
        self._interval_s = interval_s
        self._last = time.monotonic()

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        self._total = self._total if total is None else total
        if time.monotonic() - self._last < self._interval_s:
            return
        self._last = time.monotonic()
        share = f"{done}/{self._total}" if self._total else str(done)
        self._reporter.say(f"{self._title}: {share} {note}".rstrip())


class TerminalReporter:
    """A live bar for people."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    @contextlib.contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Step]:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
        )
        with RichProgress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(title, total=total, note="")
            started = time.monotonic()
            yield _BarStep(bar, task)
        self.say(f"{title}: done in {time.monotonic() - started:.1f} s")


class _BarStep:
    def __init__(self, bar: RichProgress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def update(self, done: int, total: int | None = None, note: str = "") -> None:
        if total is not None:
            self._bar.update(self._task, total=total)
        self._bar.update(self._task, completed=done, note=note[-60:])


def make_reporter(*, quiet: bool = False) -> Reporter:
    """The reporter that suits standard error: silent, a live bar on a terminal, or plain lines."""
    if quiet:
        return Silent()
    console = Console(stderr=True)
    return TerminalReporter(console) if console.is_terminal else LogReporter()
