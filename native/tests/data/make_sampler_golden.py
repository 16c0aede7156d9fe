"""Writes sampler_golden.inc: the tokens that the sampler must draw on every target.

    python3 native/tests/data/make_sampler_golden.py

Nothing of the engine is used here: this is what core/sampler.h and core/random.h describe, once more, in plain Python.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class Pcg32:
    def __init__(self, seed: int, stream: int = 54) -> None:
        self.state = 0
        self.increment = 2 * stream + 1
        self.next()
        self.state += seed
        self.next()

    def next(self) -> int:
        old = self.state
        self.state = (old * 6364136223846793005 + self.increment) % 2**64
        mixed = (((old >> 18) ^ old) >> 27) % 2**32
        turn = old >> 59
        return (mixed >> turn | mixed << 32 - turn) % 2**32


@dataclass(frozen=True)
class Case:
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    penalty_window: int
    seed: int
    n: int
    steps: int


CASES = (
    Case(1.0, 0, 1.0, 1.0, 0, 0, 1, 4),
    Case(1.0, 0, 1.0, 1.0, 0, 42, 3, 60),
    Case(0.0, 0, 1.0, 1.3, -1, 1, 40, 40),
    Case(0.7, 20, 0.8, 1.05, 64, 42, 4096, 60),
    Case(0.9, 50, 1.0, 1.1, -1, 2**64 - 1, 3072, 60),
    Case(1.5, 0, 0.95, 1.2, 16, 7, 1024, 60),
    Case(0.05, 0, 0.999, 0.8, 4, 8, 200, 60),
    Case(30.0, 2, 0.5, 1.0, 0, 9, 500, 60),
    Case(0.8, 0, 0.9, 1.1, 64, 10, 151936, 4),
    Case(1.0, 40, 1.0, 1.0, 0, 11, 151936, 4),
)


def as_f32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def make_logits(random: Pcg32, n: int) -> list[float]:
    """-8..8 in steps of 2^-20, which float32 holds exactly."""
    return [((random.next() >> 8) - 2**23) / 2**20 for _ in range(n)]


def find_kept(scores: Sequence[float], case: Case) -> list[int]:
    """Ids that top-k and top-p leave, ascending."""
    ids = [i for i in range(len(scores)) if scores[i] > -math.inf]
    ids.sort(key=lambda i: scores[i])  # stable: among equals the lower id comes first
    if 0 < case.top_k < len(ids):
        kth = scores[ids[-case.top_k]]
        ids = [i for i in ids if scores[i] >= kth]
    if case.top_p < 1:
        weights = [math.exp(scores[i] - scores[ids[-1]]) for i in ids]
        total = math.fsum(weights)
        running, n_removed = 0.0, 0
        for weight in weights[:-1]:
            running += weight / total
            n_removed += running <= 1 - as_f32(case.top_p)
        ids = ids[n_removed:]
    return sorted(ids)


def draw(logits: Sequence[float], history: Sequence[int], case: Case, random: Pcg32) -> int:
    scores = list(logits)
    penalty = as_f32(case.repetition_penalty)
    recent = history[-case.penalty_window :] if case.penalty_window > 0 else history if case.penalty_window else []
    for token in set(recent):
        scores[token] = scores[token] * penalty if scores[token] < 0 else scores[token] / penalty
    if case.temperature == 0:
        return scores.index(max(scores))
    scores = [score / as_f32(case.temperature) for score in scores]
    ids = find_kept(scores, case)
    highest = max(scores)
    weights = [math.exp(scores[i] - highest) for i in ids]
    total, scale = math.fsum(weights), 2.0**62
    while total * scale > 2.0**62:
        scale /= 2
    quanta = [max(1, math.trunc(weight * scale)) for weight in weights]
    left = ((random.next() << 32 | random.next()) * sum(quanta)) >> 64
    for token, quantum in zip(ids, quanta, strict=True):
        if left < quantum:
            return token
        left -= quantum
    raise AssertionError("left exceeds the sum of the weights")


def run_case(case: Case) -> list[int]:
    row_random, random = Pcg32(case.seed, stream=1), Pcg32(case.seed)
    tokens: list[int] = []
    for _ in range(case.steps):
        tokens.append(draw(make_logits(row_random, case.n), tokens, case, random))
    return tokens


def render() -> str:
    lines = [
        "// Written by make_sampler_golden.py. temperature, top_k, top_p, repetition_penalty, penalty_window, seed, n,",
        "// and the tokens drawn, each put into the history. Logits: make_logits there, from PCG32 (seed, stream 1).",
    ]
    for case in CASES:
        numbers = f"{case.temperature}f, {case.top_k}, {case.top_p}f, {case.repetition_penalty}f, {case.penalty_window}"
        tokens = ", ".join(map(str, run_case(case)))
        lines.append(f"{{{numbers}, {case.seed}u, {case.n}, {{{tokens}}}}},")
    return "\n".join(lines) + "\n"


def main() -> None:
    (Path(__file__).parent / "sampler_golden.inc").write_text(render(), encoding="ascii")


if __name__ == "__main__":
    main()
