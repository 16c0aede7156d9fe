"""What the binding decides without a library; the rest is in tests/integration/test_engine.py."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from sdk_tools import engine


def test_interruptible_returns_what_the_work_returns() -> None:
    threads: list[threading.Thread] = []

    def work() -> int:
        threads.append(threading.current_thread())
        return 5

    assert engine.run_interruptible(work, lambda: None) == 5
    assert threads != [threading.main_thread()]


def test_interruptible_raises_what_the_work_raises() -> None:
    def work() -> int:
        raise ValueError("from the thread")

    with pytest.raises(ValueError, match="from the thread"):
        engine.run_interruptible(work, lambda: None)


@pytest.mark.parametrize("delay_s", [0.0, 0.2])
def test_ctrl_c_cancels_until_the_work_ends(delay_s: float) -> None:
    """The first cancel comes between two calls of the work, and is lost; without delay, while the thread starts."""
    cancels: list[float] = []
    ended = threading.Event()

    def work() -> None:
        time.sleep(delay_s)
        os.kill(os.getpid(), signal.SIGINT)
        deadline = time.monotonic() + 10
        while len(cancels) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        engine.run_interruptible(work, lambda: cancels.append(time.monotonic()))
    assert ended.is_set()
    assert len(cancels) >= 2


def test_an_exception_in_a_callback_is_kept_and_cancels() -> None:
    guard = engine._CallbackGuard()

    def fail(*_: object) -> int:
        raise KeyboardInterrupt

    assert guard.wrap(fail)(1, 2) == 1
    with pytest.raises(KeyboardInterrupt):
        guard.raise_caught()
    sound = engine._CallbackGuard()
    assert sound.wrap(lambda *_: 0)() == 0
    sound.raise_caught()
