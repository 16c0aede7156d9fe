"""How far two runs of the same stage lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
_Wide = npt.NDArray[np.float64]

_TINY = 1e-30
_BLOCK_ROWS = 64  # rows compared at once: logits of a long prompt are large in float64
_SHOWN_IDS = 8


@dataclass(frozen=True)
class ArgmaxMiss:
    """A position where the two sides would choose different tokens.

    margin: how much the reference prefers its own choice, in logits; relative_margin: in units of the row's RMS.
    A small one is a near-tie, not an error.
    """

    row: int
    got: int
    want: int
    margin: float
    relative_margin: float


@dataclass(frozen=True)
class StageDifference:
    """One stage of the engine against the reference. Rows are positions.

    problem: why the two differ at once (ids, shape, NaN), else ""; the figures are then not filled in.
    scale: RMS of the reference. max_abs at [max_row][max_column], rmse: of the difference, over all elements.
    row_errors: |difference| / |reference| (L2) of every row; typical is their median, worst their maximum.
    column: the largest error of a column, relative: root mean square over the rows, each in units of its row's RMS.
    It sees a single wrong weight row, which the errors of whole rows drown.
    cosine: of the row where the directions agree least.
    misses: for logits, the rows whose best token differs; else None.
    """

    stage: str
    rows: int
    width: int
    problem: str = ""
    scale: float = 0.0
    max_abs: float = 0.0
    max_row: int = 0
    max_column: int = 0
    rmse: float = 0.0
    typical: float = 0.0
    worst: float = 0.0
    worst_row: int = 0
    column: float = 0.0
    worst_column: int = 0
    cosine: float = 1.0
    row_errors: tuple[float, ...] = ()
    misses: tuple[ArgmaxMiss, ...] | None = None

    @property
    def argmax_agreement(self) -> float | None:
        """The share of rows with the same best token; None for stages that are not logits."""
        return None if self.misses is None else 1.0 - len(self.misses) / max(self.rows, 1)


def compare_rows(stage: str, got: FloatArray, want: FloatArray, *, is_logits: bool = False) -> StageDifference:
    """Compares two [rows][width] matrices of one stage."""
    rows, width = (want.shape[0], want.shape[1]) if want.ndim == 2 else (0, 0)
    problem = _find_problem(got, want)
    if problem:
        return StageDifference(stage, rows, width, problem)
    sums = _Sums(width)
    for begin in range(0, rows, _BLOCK_ROWS):
        block = slice(begin, begin + _BLOCK_ROWS)
        sums.add(got[block].astype(np.float64), want[block].astype(np.float64))
    row_errors, columns = np.concatenate(sums.row_errors), sums.column_errors(rows)
    max_abs, max_row, max_column = max(sums.peaks)
    return StageDifference(
        stage=stage,
        rows=rows,
        width=width,
        scale=float(np.sqrt(sums.reference / want.size)),
        max_abs=max_abs,
        max_row=-max_row,
        max_column=max_column,
        rmse=float(np.sqrt(sums.difference / want.size)),
        typical=float(np.median(row_errors)),
        worst=float(row_errors.max()),
        worst_row=int(row_errors.argmax()),
        column=float(columns.max()),
        worst_column=int(columns.argmax()),
        cosine=min(sums.cosines),
        row_errors=tuple(float(value) for value in row_errors),
        misses=_find_misses(got, want) if is_logits else None,
    )


def compare_ids(stage: str, got: Sequence[int], want: Sequence[int]) -> StageDifference:
    """Compares token ids, which must be equal."""
    rows = len(want)
    if list(got) == list(want):
        return StageDifference(stage, rows, 1)
    if len(got) != len(want):
        problem = f"{len(got)} ids instead of {len(want)}: {_show_ids(got)} instead of {_show_ids(want)}"
        return StageDifference(stage, rows, 1, problem)
    row = next(i for i, (a, b) in enumerate(zip(got, want, strict=True)) if a != b)
    return StageDifference(stage, rows, 1, f"id {row} is {got[row]} instead of {want[row]}")


class _Sums:
    """What compare_rows gathers block by block."""

    def __init__(self, width: int) -> None:
        self.reference = 0.0
        self.difference = 0.0
        self.row_errors: list[_Wide] = []
        self.cosines: list[float] = []
        self.peaks: list[tuple[float, int, int]] = []  # (value, -row, column): the maximum is the first row's
        self._columns = np.zeros(width)
        self._column_scales = np.zeros(width)
        self._rows = 0

    def add(self, got: _Wide, want: _Wide) -> None:
        difference = got - want
        norms = np.linalg.norm(want, axis=1)
        self.reference += float(np.sum(want**2))
        self.difference += float(np.sum(difference**2))
        self.row_errors.append(np.linalg.norm(difference, axis=1) / np.maximum(norms, _TINY))
        self.cosines.append(float(_row_cosines(got, want).min()))
        row, column = np.unravel_index(int(np.abs(difference).argmax()), difference.shape)
        self.peaks.append((float(np.abs(difference[row, column])), -(self._rows + int(row)), int(column)))
        scales = np.maximum(norms / np.sqrt(want.shape[1]), _TINY)[:, None]
        self._columns += np.sum((difference / scales) ** 2, axis=0)
        self._column_scales += np.sum((want / scales) ** 2, axis=0)
        self._rows += len(want)

    def column_errors(self, rows: int) -> _Wide:
        # Columns that are large by nature (a few channels of every model) err in proportion.
        errors: _Wide = np.sqrt(self._columns / rows) / np.sqrt(1 + self._column_scales / rows)
        return errors


def _find_problem(got: FloatArray, want: FloatArray) -> str:
    if want.ndim != 2 or want.size == 0:
        return f"the reference has the shape {want.shape}, not rows of values"
    if got.shape != want.shape:
        return f"the shape is {got.shape} instead of {want.shape}"
    for side, array in (("the reference", want), ("the engine", got)):
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            row, column = (int(value) for value in bad[0])
            return f"{side} has {array[row, column]} at row {row}, column {column} ({len(bad)} such values)"
    return ""


def _row_cosines(got: _Wide, want: _Wide) -> _Wide:
    """A row that is zero on both sides counts as equal, on one side as orthogonal."""
    norms = np.linalg.norm(got, axis=1) * np.linalg.norm(want, axis=1)
    both_zero = ~got.any(axis=1) & ~want.any(axis=1)
    cosines = np.einsum("ij,ij->i", got, want) / np.maximum(norms, _TINY)
    return np.where(both_zero, 1.0, np.clip(cosines, -1.0, 1.0))


def _find_misses(got: FloatArray, want: FloatArray) -> tuple[ArgmaxMiss, ...]:
    chosen, wanted = got.argmax(axis=1), want.argmax(axis=1)
    misses = []
    for row in np.flatnonzero(chosen != wanted):
        margin = float(want[row, wanted[row]]) - float(want[row, chosen[row]])
        rms = float(np.sqrt(np.mean(want[row].astype(np.float64) ** 2)))
        misses.append(ArgmaxMiss(int(row), int(chosen[row]), int(wanted[row]), margin, margin / max(rms, _TINY)))
    return tuple(misses)


def _show_ids(ids: Sequence[int]) -> str:
    shown = ", ".join(str(value) for value in ids[:_SHOWN_IDS])
    return f"[{shown}{', ...' if len(ids) > _SHOWN_IDS else ''}]"
