"""How far the engine may lie from the float32 reference, and why that far.

Both sides start from the same weights: the reference reads the GGUF file dequantized. What is left is what the engine's
kernels do to *activations*, and that follows from the type of the weights they meet (ggml's CPU backend):

  f32    float32 sums in another order
  f16    activations rounded to f16 (11 bits) before every matmul
  bf16   activations rounded to bf16 (8 bits)
  q8act  any quantized type: activations quantized to 8 bits in blocks of 32 (or 256 for the K types)

So a 4-bit and an 8-bit file have the same limits. Three figures of a stage are limited, all relative to the reference:
the median row (`typical`), the worst row, and the worst column. Errors add up over the blocks like a random walk, so a
limit grows with the square root of depth:

  limit(stage) = unit[kind] * factor[figure] * sqrt(1 + blocks / 4)        (logits: 1.25 times that of the last block)

It doubles for recurrent state, which carries rounding from position to position. With experts, a rounded router may
choose another expert for a position, which changes that row altogether: the limits of the worst row and column are 4
times, of the median row 1.5 times as wide, unless the weights are f32.

Measured with this engine on x86-64, the largest shares of these limits over all stages: median row, worst row, column.

  SmolLM2-135M, 30 blocks, 33 tokens      f32  0.17 0.33 0.14   f16  0.16 0.20 0.23   bf16 0.17 0.16 0.09
                                          q8_0 0.25 0.22 0.12   q5_0 0.27 0.21 0.12   q4_1 0.24 0.16 0.12
                                          q4_k 0.41 0.37 0.20   q6_k 0.42 0.36 0.17
  22 tiny random models of all kinds of   f32  0.49 0.43 0.16   f16  0.57 0.42 0.18   q8_0 0.55 0.36 0.18
  architecture, 40 tokens

Random weights are the harder case: every block adds as much to the residual stream as it holds. The rest is left to
other CPUs, which sum in other orders. A planted error (tests/integration/test_parity_mutations.py) exceeds the f32
limits by a factor of 100 and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from sdk_tools.errors import UsageError
from sdk_tools.lab.compare import StageDifference

KINDS = ("f32", "f16", "bf16", "q8act")
UNITS: Mapping[str, float] = {"f32": 2.5e-6, "f16": 1.4e-3, "bf16": 1e-2, "q8act": 4e-2}
# A row of the token table is dequantized in the same float32 steps on both sides; a multiplier may round once more.
LOOKUP_LIMIT = 1e-6
_WORST_ROW = 5.0
_WORST_COLUMN = 4.0
_LOGITS = 1.25
_RECURRENT = 2.0
_EXPERTS_TYPICAL = 1.5
_EXPERTS_WORST = 4.0
# Fewer rows average too little: a column's error is then a single element's.
_MIN_ROWS_FOR_COLUMNS = 8
# Where the best token differs, the reference must hold it for a near-tie: by at most so many worst-row limits.
_MARGIN = 2.0
# ggml evaluates GELU from a table of f16 values, whatever the weights are. SwiGLU is computed in float32.
GELU_ARCHITECTURES = frozenset(
    {"bloom", "codeshell", "falcon", "gemma", "gemma2", "gemma3", "gemma3n", "gemma4", "gpt2", "gptneox", "grok", "mpt",
     "phi2", "starcoder", "starcoder2"}
)  # fmt: skip


@dataclass(frozen=True)
class StageLimit:
    """Upper limits of one stage's figures. column None: not judged. margin: for differing best tokens."""

    typical: float
    worst: float
    column: float | None
    margin: float


@dataclass(frozen=True)
class Verdict:
    """failures: what is over its limit, in words; empty if the stage passes. limit None: no difference is allowed."""

    difference: StageDifference
    limit: StageLimit | None
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures


def kind_of_type(name: str) -> str:
    """The limits' kind for one ggml type, by its name ("f32", "q4_1", "q6_k", ...)."""
    lowered = name.lower()
    return lowered if lowered in ("f32", "f16", "bf16") else "q8act"


def choose_kind(types: Mapping[str, int], architecture: str) -> str:
    """The coarsest kind among the types that the model's weights have.

    types: number of parameters by type name. Types that hold no parameters are ignored.
    """
    kinds = {kind_of_type(name) for name, count in types.items() if count > 0}
    if architecture in GELU_ARCHITECTURES:
        kinds.add("f16")
    return max(kinds, key=KINDS.index, default="f32")


def parse_kind(name: str) -> str:
    """The kind for `--limits NAME`, where NAME is a kind or a ggml type. Errors: UsageError."""
    lowered = name.lower()
    is_quantized = lowered.startswith(("q", "iq", "tq", "mxfp", "nvfp")) and any(c.isdigit() for c in lowered)
    if lowered in KINDS or is_quantized:
        return lowered if lowered in KINDS else "q8act"
    raise UsageError(f"There are no limits for '{name}'.", f"Give one of {', '.join(KINDS)}, or a type such as q4_1.")


@dataclass(frozen=True)
class LimitPolicy:
    """What a model's limits follow from. kind: one of KINDS."""

    kind: str
    recurrent: bool = False
    experts: bool = False

    def make_limit(self, blocks: int, rows: int, *, is_logits: bool = False) -> StageLimit:
        """The limits of a stage that `blocks` blocks lie before; 0: rows that were only looked up."""
        if blocks == 0:
            return StageLimit(LOOKUP_LIMIT, LOOKUP_LIMIT, LOOKUP_LIMIT, 0.0)
        base = UNITS[self.kind] * sqrt(1 + blocks / 4)
        base *= (_LOGITS if is_logits else 1.0) * (_RECURRENT if self.recurrent else 1.0)
        flips = self.experts and self.kind != "f32"
        outlier = base * (_EXPERTS_WORST if flips else 1.0)
        worst = outlier * _WORST_ROW
        column = outlier * _WORST_COLUMN if rows >= _MIN_ROWS_FOR_COLUMNS else None
        return StageLimit(base * (_EXPERTS_TYPICAL if flips else 1.0), worst, column, worst * _MARGIN)


def judge(difference: StageDifference, limit: StageLimit | None) -> Verdict:
    """Holds one stage against its limits; without limits (token ids) only `problem` counts."""
    if difference.problem:
        return Verdict(difference, limit, (difference.problem,))
    if limit is None:
        return Verdict(difference, limit, ())
    failures = []
    if not difference.typical <= limit.typical:
        failures.append(f"the median row is off by {difference.typical:.2e}, the limit is {limit.typical:.2e}")
    if not difference.worst <= limit.worst:
        failures.append(f"row {difference.worst_row} is off by {difference.worst:.2e}, the limit is {limit.worst:.2e}")
    if limit.column is not None and not difference.column <= limit.column:
        failures.append(
            f"column {difference.worst_column} is off by {difference.column:.2e}, the limit is {limit.column:.2e}"
        )
    for miss in difference.misses or ():
        if not miss.relative_margin <= limit.margin:
            failures.append(
                f"row {miss.row} chooses token {miss.got}, the reference {miss.want} by {miss.margin:.3g} logits"
            )
    return Verdict(difference, limit, tuple(failures))
