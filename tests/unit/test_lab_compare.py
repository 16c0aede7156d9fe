from __future__ import annotations

import numpy as np
import pytest

from sdk_tools.lab import compare
from sdk_tools.lab.compare import FloatArray, StageDifference, compare_ids, compare_rows


@pytest.fixture
def want() -> FloatArray:
    return np.random.default_rng(5).normal(size=(150, 40)).astype(np.float32)


def test_equal_arrays_do_not_differ(want: FloatArray) -> None:
    difference = compare_rows("hidden", want.copy(), want)
    assert (difference.rows, difference.width, difference.problem) == (150, 40, "")
    assert (difference.max_abs, difference.rmse, difference.typical, difference.worst, difference.column) == (0,) * 5
    assert difference.cosine == pytest.approx(1.0, abs=1e-12)
    assert difference.misses is None
    assert difference.argmax_agreement is None


def test_figures_are_those_of_numpy(want: FloatArray) -> None:
    noise = np.random.default_rng(6).normal(scale=1e-3, size=want.shape).astype(np.float32)
    got = want + noise
    difference = compare_rows("hidden", got, want)
    delta = got.astype(np.float64) - want
    errors = np.linalg.norm(delta, axis=1) / np.linalg.norm(want.astype(np.float64), axis=1)
    assert difference.scale == pytest.approx(np.sqrt(np.mean(want.astype(np.float64) ** 2)))
    assert difference.max_abs == pytest.approx(np.abs(delta).max())
    assert abs(delta[difference.max_row, difference.max_column]) == difference.max_abs
    assert difference.rmse == pytest.approx(np.sqrt(np.mean(delta**2)))
    assert difference.typical == pytest.approx(np.median(errors))
    assert difference.worst == pytest.approx(errors.max())
    assert difference.worst_row == errors.argmax()
    assert difference.row_errors == pytest.approx(errors)


def test_one_wrong_row_is_the_worst_and_not_typical(want: FloatArray) -> None:
    got = want.copy()
    got[97] = want[98]  # beyond the first block of rows
    difference = compare_rows("embeds", got, want)
    assert (difference.worst_row, difference.max_row, difference.typical) == (97, 97, 0.0)
    assert difference.worst > 0.5
    assert difference.cosine < 0.9


def test_one_wrong_column_is_seen_though_every_row_is_nearly_right(want: FloatArray) -> None:
    wide = np.tile(want, (1, 50))
    got = wide.copy()
    got[:, 77] = wide[:, 78]
    difference = compare_rows("logits", got, wide)
    assert difference.worst < 0.15
    assert difference.worst_column == 77
    assert difference.column > 0.8


def test_a_column_that_is_large_by_nature_errs_in_proportion(want: FloatArray) -> None:
    large = want.copy()
    large[:, 3] *= 1000
    got = large * np.float32(1.001)
    assert compare_rows("hidden", got, large).column == pytest.approx(1e-3, rel=0.05)


def test_rows_of_zeros(want: FloatArray) -> None:
    zeros = np.zeros_like(want)
    assert compare_rows("hidden", zeros, zeros).cosine == 1.0
    assert compare_rows("hidden", want, zeros).cosine == 0.0
    assert compare_rows("hidden", want, zeros).worst > 1e6
    assert compare_rows("hidden", zeros, want).worst == pytest.approx(1.0)


def test_opposite_rows_have_cosine_minus_one(want: FloatArray) -> None:
    assert compare_rows("hidden", -want, want).cosine == pytest.approx(-1.0)


def test_argmax_misses_tell_the_margin() -> None:
    want = np.array([[1.0, 5.0, 4.5], [9.0, 0.0, 0.0], [0.0, 0.0, 2.0]], np.float32)
    got = np.array([[1.0, 4.0, 4.5], [9.0, 0.0, 0.0], [0.0, 0.0, 2.0]], np.float32)
    difference = compare_rows("logits", got, want, is_logits=True)
    assert difference.argmax_agreement == pytest.approx(2 / 3)
    assert difference.misses is not None
    (miss,) = difference.misses
    assert (miss.row, miss.got, miss.want, miss.margin) == (0, 2, 1, 0.5)
    assert miss.relative_margin == pytest.approx(0.5 / np.sqrt((1 + 25 + 4.5**2) / 3))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["engine", "reference"])
def test_a_value_that_is_no_number_is_a_problem(want: FloatArray, bad: float, side: str) -> None:
    got, wanted = want.copy(), want.copy()
    (got if side == "engine" else wanted)[3, 7] = bad
    problem = compare_rows("hidden", got, wanted).problem
    assert side in problem
    assert "row 3, column 7" in problem


@pytest.mark.parametrize(
    ("got", "wanted", "says"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32), "(2, 3) instead of (3, 3)"),
        (np.zeros((3, 3), np.float32), np.zeros(3, np.float32), "not rows of values"),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), "not rows of values"),
    ],
)
def test_shapes_that_cannot_be_compared(got: FloatArray, wanted: FloatArray, says: str) -> None:
    assert says in compare_rows("hidden", got, wanted).problem


def test_ids() -> None:
    assert compare_ids("prompt_ids", [1, 2, 3], (1, 2, 3)) == StageDifference("prompt_ids", 3, 1)
    assert compare_ids("prompt_ids", [1, 9, 3], [1, 2, 3]).problem == "id 1 is 9 instead of 2"
    assert "2 ids instead of 3" in compare_ids("prompt_ids", [1, 2], [1, 2, 3]).problem
    assert "..." in compare_ids("prompt_ids", range(20), [1]).problem


def test_block_size_does_not_matter(want: FloatArray, monkeypatch: pytest.MonkeyPatch) -> None:
    got = want + np.float32(0.01)
    whole = compare_rows("hidden", got, want)
    monkeypatch.setattr(compare, "_BLOCK_ROWS", 7)
    parts = compare_rows("hidden", got, want)
    assert (parts.max_row, parts.max_column, parts.worst_row) == (whole.max_row, whole.max_column, whole.worst_row)
    assert parts.rmse == pytest.approx(whole.rmse)
    assert parts.column == pytest.approx(whole.column)
