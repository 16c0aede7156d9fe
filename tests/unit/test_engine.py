"""What the binding decides without a library; the rest is in tests/integration/test_engine.py."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from sdk_tools import engine
from sdk_tools.errors import BadInputError, UsageError


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


@pytest.mark.parametrize("ids", [[1.5], [[1, 2]], [1 << 31], ["a"], [-(1 << 31) - 1]])
def test_ids_that_are_none(ids: object) -> None:
    with pytest.raises(UsageError, match="list of 32-bit integers"):
        engine._as_ids(ids)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[], [1, 2], np.array([3], np.int64), np.array([3, 4, 5], np.int32)[::2], range(3)])
def test_ids_become_contiguous_int32(ids: object) -> None:
    array = engine._as_ids(ids)  # type: ignore[arg-type]
    assert array.dtype == np.int32
    assert array.flags.c_contiguous
    assert list(array) == list(ids)  # type: ignore[call-overload]


def test_floats_are_checked_for_shape_and_made_contiguous() -> None:
    array = engine._as_floats(np.ones((4, 6))[:, ::2], "embds", (None, 3))
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    with pytest.raises(UsageError, match=r"embds has the shape \(4, 3\); \(n, 5\) is needed"):
        engine._as_floats(array, "embds", (None, 5))
    with pytest.raises(UsageError, match="embds has the shape"):
        engine._as_floats(array[0], "embds", (None, 3))


def test_text_that_cannot_cross() -> None:
    with pytest.raises(UsageError, match="NUL"):
        engine._encode_text("a\0b")
    with pytest.raises(UsageError, match="position 1"):
        engine._encode_text("a\ud800")
    assert engine._encode_text("a\0b", allow_nul=True) == b"a\0b"
    with pytest.raises(BadInputError, match="NUL"):
        engine._encode_path(Path("a\0b"))


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
