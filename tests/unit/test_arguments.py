from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sdk_tools import arguments
from sdk_tools.errors import UsageError


class Hostile:
    """An array type that fails in its own way."""

    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("on another device")


WRONG_IDS: list[Any] = [
    None, "123", b"123", 5, [1.5], [[1, 2]], [[1], [2, 3]], [1 << 31], [-(1 << 31) - 1], [1 << 70], ["a"], [None],
    [True, 2], np.array([True]), np.array([1 + 2j]), np.array([1.0]), {1, 2}, iter([1, 2]), Hostile(),
    np.broadcast_to(np.int32(1), (1 << 31,)),
]  # fmt: skip
WRONG_FLOATS: list[Any] = [
    None, "123", ["1", "2", "3"], [[1.0], [2.0, 3.0]], [1j, 0, 0], [object()] * 3, [True, False, True], {}, Hostile(),
    [[1.0, 2.0, 3.0]], [1.0, 2.0], 4.0,
]  # fmt: skip


@pytest.mark.parametrize("ids", WRONG_IDS, ids=lambda value: type(value).__name__)
def test_ids_that_are_none(ids: Any) -> None:
    with pytest.raises(UsageError, match="tokens"):
        arguments.as_ids("tokens", ids)


@pytest.mark.parametrize("ids", [[], [1, 2], np.array([3], np.int64), np.array([3, 4, 5], np.int32)[::2], range(3)])
def test_ids_become_contiguous_int32(ids: Any) -> None:
    array = arguments.as_ids("tokens", ids)
    assert array.dtype == np.int32
    assert array.flags.c_contiguous
    assert list(array) == list(ids)


@pytest.mark.parametrize("values", WRONG_FLOATS, ids=lambda value: type(value).__name__)
def test_floats_that_are_none(values: Any) -> None:
    with pytest.raises(UsageError, match="embd"):
        arguments.as_floats("embd", values, (3,))


@pytest.mark.filterwarnings("error")
def test_floats_are_checked_for_shape_and_made_contiguous() -> None:
    array = arguments.as_floats("embds", np.ones((4, 6))[:, ::2], (None, 3))
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    with pytest.raises(UsageError, match=r"embds has the shape \(4, 3\); \(n, 5\) is needed"):
        arguments.as_floats("embds", array, (None, 5))
    np.testing.assert_array_equal(arguments.as_floats("embd", [1, 2], (2,)), np.array([1, 2], np.float32))
    assert math.isinf(arguments.as_floats("embd", [1e300], (1,))[0])


def test_floats_for_which_there_is_no_memory() -> None:
    with pytest.raises(UsageError, match="no memory"):
        arguments._as_contiguous("embds", np.broadcast_to(np.int8(0), (1 << 60,)), np.float32)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (arguments.as_integer, [0, -5, np.int64(7), (1 << 31) - 1], [True, 1.0, "1", None, 1 << 31, -(1 << 31) - 1]),
        (arguments.as_flag, [True, False, np.bool_(True)], [0, 1, None, "yes"]),
        (arguments.as_real, [0, 0.5, -1, np.float32(2)], [True, "1", None, math.nan, math.inf, 1e300, 10**400, 1j]),
        (arguments.as_bytes, [b"a", bytearray(b"a"), memoryview(b"a"), np.zeros(3, np.uint8)], [None, "a", 5, [1]]),
        (arguments.encode_text, ["", "é"], [None, b"a", 5, "a\0b", "a\ud800"]),
        (arguments.encode_path, ["a b", Path("x"), "\udcff"], [None, 5, "", "a\0b", "\ud800"]),
        (arguments.require_callable, [None, len], [5, "f"]),
    ],
)
def test_single_values(check: Callable[[str, Any], Any], good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check("option", value)
    for value in bad:
        with pytest.raises(UsageError, match="option"):
            check("option", value)


def test_values_that_come_out() -> None:
    assert arguments.as_bytes("blob", memoryview(b"abcd")[::2]) == b"ac"
    assert arguments.encode_text("text", "a\0b", allow_nul=True) == b"a\0b"
    assert arguments.encode_path("path", "\udcff") == b"\xff"
    assert arguments.as_list("stop", ("a", "b"), str) == ["a", "b"]
    assert arguments.as_integer("max_tokens", 1, 1) == 1
    with pytest.raises(UsageError, match="max_tokens is 0; it must be a whole number from 1 to"):
        arguments.as_integer("max_tokens", 0, 1)


@pytest.mark.parametrize("values", ["ab", b"ab", None, 5, {"a"}, ["a", 5], ["a", None]])
def test_lists_that_are_none(values: Any) -> None:
    with pytest.raises(UsageError, match="stop"):
        arguments.as_list("stop", values, str)


def test_an_error_does_not_repeat_a_whole_blob() -> None:
    with pytest.raises(UsageError) as caught:
        arguments.require_type("params", "x" * 1000, int)
    assert len(str(caught.value)) < 100
