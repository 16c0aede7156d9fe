"""What Ctrl-C, SIGTERM and SIGHUP do to the command line: in its first moments, and from then on."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

EXIT_CODE = 130
_TEXT = b"Cancelled.\n"
_JSON = b'{"schema": 1, "error": {"code": "cancelled", "what": "Cancelled.", "hint": ""}}\n'


def leave_on_signals() -> None:
    """Until raise_on_signals, ends the process at once, with the one line that Cancelled prints.

    For the time of the imports: an exception would come up wherever it strikes, or be swallowed, and there is nothing
    to clean up yet. Signals that are ignored (nohup, a job in the background) stay so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)


def raise_on_signals() -> None:
    """Ends what leave_on_signals began, if it did: the signals raise KeyboardInterrupt on the main thread."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is _leave:
            signal.signal(number, _raise)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    as_json = "--json" in sys.argv
    try:
        os.write(1 if as_json else 2, _JSON if as_json else _TEXT)
    finally:
        os._exit(EXIT_CODE)


def _raise(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
