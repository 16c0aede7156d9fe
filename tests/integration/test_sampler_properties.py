"""The engine's sampler against transformers' own logits processors, and against its documentation in plain Python."""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from sdk_tools.engine import Engine, Sampler, SamplerParams
from sdk_tools.errors import UsageError
from sdk_tools.paths import native_dir

N_CASES = 6000
MAX_PROBABILITY_ERROR = 1e-6
BORDER = 1e-6  # how near to a threshold float32 may decide otherwise

Scores: TypeAlias = "torch.Tensor"
Step = Callable[[Scores], Scores]


@dataclass(frozen=True)
class Options:
    """SamplerParams, all of them set."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    penalty_window: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Case:
    """One row of logits [n] float32, what was generated before, and the options."""

    logits: npt.NDArray[np.float32]
    history: tuple[int, ...]
    options: Options

    def recent(self) -> tuple[int, ...]:
        """The part of the history that the penalty sees."""
        window = self.options.penalty_window
        return self.history if window < 0 else self.history[max(0, len(self.history) - window) :]


@dataclass(frozen=True)
class Outcome:
    """kept: bool [n]. probs: float64 [n]."""

    kept: npt.NDArray[np.bool_]
    probs: npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as engine:
        yield engine


@pytest.fixture
def stable_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """TopPLogitsWarper's sort is not stable on CPUs with AVX: among equal scores it removes any. Here: the lower id."""
    monkeypatch.setattr(torch, "sort", functools.partial(torch.sort, stable=True))


def make_logits(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    n = int(rng.choice([1, 2, 3, 4, 16, 17, 4096, int(2 ** rng.uniform(0, 12))]))
    scale = float(rng.choice([1e-3, 0.3, 1.0, 4.0, 30.0, 1e4]))
    rows: dict[str, Callable[[], npt.NDArray[Any]]] = {
        "normal": lambda: rng.normal(size=n) * scale,
        "few values": lambda: rng.integers(-3, 4, size=n) * scale,
        "constant": lambda: np.full(n, scale),
        "half precision": lambda: (rng.normal(size=n) * 4).astype(np.float16),
        "ascending": lambda: np.sort(rng.normal(size=n)) * scale,
        "descending": lambda: -np.sort(rng.normal(size=n)) * scale,
    }
    row = rows[str(rng.choice(list(rows)))]().astype(np.float32)
    if rng.random() < 0.3:
        row[rng.random(n) < rng.choice([0.1, 0.5, 0.95])] = -np.inf
        row[rng.integers(n)] = scale
    return row


def make_options(rng: np.random.Generator, n: int) -> Options:
    """Options as float32 holds them, so that the reference computes with the same numbers."""
    pick = rng.choice
    temperature = pick([1e-3, 0.7, 1.0, 100.0, float(rng.uniform(0.05, 3))])
    top_p = pick([0.0, 1e-6, 0.25, 0.5, 0.75, 0.9, 1 - 2**-24, 1.0, float(rng.random()), float(rng.random())])
    penalty = pick([0.5, 1.0, 1.1, 5.0, float(rng.uniform(0.8, 2))])
    return Options(
        temperature=float(np.float32(temperature)),
        top_k=int(pick([0, 0, 1, 2, max(0, n - 1), n, n + 1, 2**31 - 1, int(rng.integers(1, n + 1))])),
        top_p=float(np.float32(top_p)),
        repetition_penalty=float(np.float32(penalty)),
        penalty_window=int(pick([-1, -1, 0, 1, 2, int(rng.integers(0, 60))])),
        seed=int(rng.integers(2**63)),
    )


def make_cases(seed: int, count: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    cases = []
    for _ in range(count):
        logits = make_logits(rng)
        n_ids = int(rng.integers(1, len(logits) + 1))  # fewer distinct ids, more repetitions
        history = tuple(int(i) for i in rng.integers(n_ids, size=rng.integers(0, 60)))
        cases.append(Case(logits, history, make_options(rng, len(logits))))
    return cases


def create_sampler(engine: Engine, options: Options) -> Sampler:
    return engine.create_sampler(SamplerParams(**vars(options)))


def run_engine(engine: Engine, case: Case) -> Outcome:
    with create_sampler(engine, case.options) as sampler:
        for token in case.history:
            sampler.accept(token)
        probs = sampler.probs(case.logits)
    return Outcome(probs > 0, probs.astype(np.float64))


def penalize(case: Case) -> Step:
    recent = torch.tensor([case.recent()], dtype=torch.long)
    processor = RepetitionPenaltyLogitsProcessor(case.options.repetition_penalty)
    return lambda scores: processor(recent, scores)


def warm(case: Case) -> Step:
    return functools.partial(TemperatureLogitsWarper(case.options.temperature), None)


def cut_top_k(case: Case) -> Step:
    if case.options.top_k == 0:  # generate() leaves the warper out then
        return lambda scores: scores
    return functools.partial(TopKLogitsWarper(case.options.top_k), None)


def cut_top_p(case: Case) -> Step:
    if case.options.top_p == 1:
        return lambda scores: scores
    return functools.partial(TopPLogitsWarper(case.options.top_p), None)


def run_steps(case: Case, steps: Sequence[Step], dtype: torch.dtype = torch.float64) -> Outcome:
    scores = torch.from_numpy(case.logits.copy())[None].to(dtype)
    for step in steps:
        scores = step(scores)
    probs = torch.softmax(scores, dim=-1).to(torch.float64)
    return Outcome((scores > -math.inf)[0].numpy(), probs[0].numpy())


def run_reference(case: Case, dtype: torch.dtype = torch.float64) -> Outcome:
    return run_steps(case, [penalize(case), warm(case), cut_top_k(case), cut_top_p(case)], dtype)


def find_mismatches(engine: Engine, cases: Sequence[Case], reference: Callable[[Case], Outcome]) -> list[str]:
    """A line for each row where the kept sets are not equal, or a probability is off by more than the limit."""
    mismatches = []
    for index, case in enumerate(cases):
        ours, theirs = run_engine(engine, case), reference(case)
        differing = np.flatnonzero(ours.kept != theirs.kept)
        error = float(np.max(np.abs(ours.probs - theirs.probs)))
        if differing.size or not error <= MAX_PROBABILITY_ERROR:
            row = f"row {index}, n {len(case.logits)}, {case.options}"
            mismatches.append(f"{row}: kept sets differ at {differing[:5]}, largest error {error:.2g}")
    return mismatches


def test_kept_sets_and_probabilities_are_those_of_transformers(engine: Engine, stable_sort: None) -> None:
    mismatches = find_mismatches(engine, make_cases(1, N_CASES), run_reference)
    assert not mismatches, f"{len(mismatches)} rows of {N_CASES}, the first: {mismatches[0]}"


def test_with_an_unstable_sort_only_equal_scores_change_places(
    engine: Engine, record_property: Callable[[str, object], None]
) -> None:
    n_exchanged = 0
    for index, case in enumerate(make_cases(2, 1500)):
        ours, theirs = run_engine(engine, case).kept, run_reference(case).kept
        scores = run_steps(case, [penalize(case), warm(case)]).probs
        assert np.array_equal(np.sort(scores[ours]), np.sort(scores[theirs])), f"row {index}: {case.options}"
        n_exchanged += not np.array_equal(ours, theirs)
    record_property("rows_that_keep_other_ones_of_equal_scores", n_exchanged)


def is_borderline(case: Case, token: int) -> bool:
    """Whether float64 puts this token within BORDER of the k-th score, or of where top-p begins to keep."""
    scores = torch.from_numpy(case.logits.copy())[None].to(torch.float64)
    scores = warm(case)(penalize(case)(scores))
    options = case.options
    if 0 < options.top_k < scores.shape[-1]:
        kth = torch.topk(scores, options.top_k)[0][0, -1]
        if abs(float(scores[0, token] - kth)) <= BORDER * max(1.0, abs(float(kth))):
            return True
    left = torch.softmax(cut_top_k(case)(scores), dim=-1)[0]
    below = left[left < left[token] - BORDER].sum()
    up_to = left[left <= left[token] + BORDER].sum()
    return float(below) - BORDER <= 1 - options.top_p <= float(up_to) + BORDER


def test_float32_decides_otherwise_only_at_the_border(
    engine: Engine, stable_sort: None, record_property: Callable[[str, object], None]
) -> None:
    cases = [case for case in make_cases(3, 2000) if case.options.temperature > 0.01]
    n_differing = 0
    for index, case in enumerate(cases):
        ours, theirs = run_engine(engine, case), run_reference(case, torch.float32)
        differing = np.flatnonzero(ours.kept != theirs.kept)
        n_differing += bool(differing.size)
        for token in differing:
            assert is_borderline(case, int(token)), f"row {index}, token {token}: {case.options}"
    record_property("rows_where_float32_differs", n_differing)
    assert n_differing <= 0.01 * len(cases)


# Errors that others have shipped, planted into the reference: the comparison must see each of them.


def plant_top_p_before_temperature(case: Case) -> Outcome:
    return run_steps(case, [penalize(case), cut_top_k(case), cut_top_p(case), warm(case)])


def plant_top_p_before_top_k(case: Case) -> Outcome:
    return run_steps(case, [penalize(case), warm(case), cut_top_p(case), cut_top_k(case)])


def plant_inverse_penalty(case: Case) -> Outcome:
    return run_reference(
        replace(case, options=replace(case.options, repetition_penalty=1 / case.options.repetition_penalty))
    )


def plant_division_of_negative_logits(case: Case) -> Outcome:
    def divide_all(scores: Scores) -> Scores:
        scores = scores.clone()
        scores[0, list(set(case.recent()))] /= case.options.repetition_penalty
        return scores

    return run_steps(case, [divide_all, warm(case), cut_top_k(case), cut_top_p(case)])


def plant_penalty_per_occurrence(case: Case) -> Outcome:
    singles = [penalize(replace(case, history=(token,))) for token in case.recent()]
    return run_steps(case, [*singles, warm(case), cut_top_k(case), cut_top_p(case)])


def plant_whole_history(case: Case) -> Outcome:
    return run_reference(replace(case, options=replace(case.options, penalty_window=-1)))


def plant_no_ties_at_the_kth(case: Case) -> Outcome:
    def cut(scores: Scores) -> Scores:
        k = min(case.options.top_k or scores.shape[-1], scores.shape[-1])
        cut_scores = torch.full_like(scores, -math.inf)
        best = torch.topk(scores, k).indices
        return cut_scores.scatter(1, best, scores.gather(1, best))

    return run_steps(case, [penalize(case), warm(case), cut, cut_top_p(case)])


def plant_top_p_without_the_token_that_crosses(case: Case) -> Outcome:
    def cut(scores: Scores) -> Scores:
        order = torch.sort(scores, descending=True).indices
        kept = torch.softmax(scores, dim=-1).gather(1, order).cumsum(dim=-1) <= case.options.top_p
        kept[:, 0] = True
        return scores.masked_fill(~torch.zeros_like(kept).scatter(1, order, kept), -math.inf)

    return run_steps(case, [penalize(case), warm(case), cut_top_k(case), cut])


@pytest.mark.parametrize(
    "planted",
    [
        plant_top_p_before_temperature,
        plant_top_p_before_top_k,
        plant_inverse_penalty,
        plant_division_of_negative_logits,
        plant_penalty_per_occurrence,
        plant_whole_history,
        plant_no_ties_at_the_kth,
        plant_top_p_without_the_token_that_crosses,
    ],
)
def test_comparison_sees_a_planted_error(engine: Engine, stable_sort: None, planted: Callable[[Case], Outcome]) -> None:
    cases = make_cases(4, 400)
    assert not find_mismatches(engine, cases, run_reference)
    assert len(find_mismatches(engine, cases, planted)) >= 5


def test_temperature_0_is_the_best_after_the_penalty(engine: Engine) -> None:
    for case in make_cases(5, 300):
        greedy = replace(case, options=replace(case.options, temperature=0.0))
        scores = penalize(greedy)(torch.from_numpy(greedy.logits.copy())[None].to(torch.float64))[0].numpy()
        best = int(np.flatnonzero(scores == scores.max())[0])
        ours = run_engine(engine, greedy)
        assert np.flatnonzero(ours.kept).tolist() == [best]
        assert ours.probs[best] == 1


# Drawing


def load_description() -> ModuleType:
    """The sampler's documentation as plain Python, which also wrote the golden tokens of the native tests."""
    path = native_dir() / "tests" / "data" / "make_sampler_golden.py"
    spec = importlib.util.spec_from_file_location("make_sampler_golden", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def draw_tokens(sampler: Sampler, logits: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
    return np.array([sampler.sample(logits) for _ in range(count)])


def find_p_value(counts: npt.NDArray[np.int64], probs: npt.NDArray[np.float64]) -> float:
    """Chi-square: how likely counts that far from `probs` are by chance. Rare tokens are counted together."""
    order = np.argsort(probs)[np.count_nonzero(probs == 0) :]
    expected = probs[order] * counts.sum()
    groups = np.cumsum(expected) // 20  # at least about 20 expected in each
    sums = [np.bincount(np.unique(groups, return_inverse=True)[1], weights=w) for w in (counts[order], expected)]
    statistic = float(np.sum((sums[0] - sums[1]) ** 2 / sums[1]))
    half = torch.tensor([(len(sums[0]) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@pytest.mark.parametrize("options", [
    Options(seed=1),
    Options(temperature=0.7, top_k=20, top_p=0.9, repetition_penalty=1.3, penalty_window=-1, seed=2),
])  # fmt: skip
def test_draws_follow_the_probabilities(engine: Engine, options: Options) -> None:
    logits = np.random.default_rng(6).normal(size=200).astype(np.float32) * 2
    with create_sampler(engine, options) as sampler:
        for token in range(0, 200, 3):
            sampler.accept(token)
        probs = sampler.probs(logits).astype(np.float64)
        counts = np.bincount(draw_tokens(sampler, logits, 100_000), minlength=200)
    assert np.all(counts[probs == 0] == 0)
    assert find_p_value(counts, probs / probs.sum()) > 0.01
    tilted = probs**1.05
    assert find_p_value(counts, tilted / tilted.sum()) < 1e-6, "the test would not see a temperature 5 % off"


def test_same_seed_same_tokens(engine: Engine) -> None:
    logits = np.zeros(1000, np.float32)

    def draw(seed: int) -> list[int]:
        with create_sampler(engine, Options(seed=seed)) as sampler:
            first = draw_tokens(sampler, logits, 50).tolist()
            sampler.reset()
            assert draw_tokens(sampler, logits, 50).tolist() == first
        return [int(token) for token in first]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_draws_are_what_the_documentation_says(engine: Engine) -> None:
    description = load_description()
    for case in make_cases(7, 150):
        options = case.options
        if len(case.logits) > 600:  # slow in plain Python
            continue
        spec = description.Case(**vars(options), n=len(case.logits), steps=8)
        random = description.Pcg32(options.seed)
        with create_sampler(engine, options) as sampler:
            tokens: list[int] = []
            for _ in range(spec.steps):
                expected = description.draw([float(x) for x in case.logits], tokens, spec, random)
                assert sampler.sample(case.logits) == expected, options
                sampler.accept(expected)
                tokens.append(expected)


def test_golden_tokens_are_those_of_their_script_and_drawn_through_the_library(engine: Engine) -> None:
    description = load_description()
    written = (native_dir() / "tests" / "data" / "sampler_golden.inc").read_text(encoding="ascii")
    assert description.render() == written
    for spec in description.CASES:
        options = Options(**{name: getattr(spec, name) for name in vars(Options())})
        rows = description.Pcg32(spec.seed, stream=1)
        tokens = []
        with create_sampler(engine, options) as sampler:
            for _ in range(spec.steps):
                logits = np.array(description.make_logits(rows, spec.n), np.float32)
                tokens.append(sampler.sample(logits))
                sampler.accept(tokens[-1])
        assert "{" + ", ".join(map(str, tokens)) + "}" in written


@pytest.mark.parametrize("name, value", [
    ("temperature", -1.0), ("temperature", math.nan), ("temperature", math.inf), ("top_k", -1), ("top_p", -0.5),
    ("top_p", 1.5), ("top_p", math.nan), ("repetition_penalty", 0.0), ("repetition_penalty", -2.0),
    ("penalty_window", -2),
])  # fmt: skip
def test_options_out_of_range_are_refused_by_name(engine: Engine, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} is {value:g}"):
        create_sampler(engine, replace(Options(), **{name: value}))


@pytest.mark.parametrize("logits, text", [
    ([], "n is 0"),
    ([0, math.nan, math.inf], "logit 1 of 3 is NaN"),
    ([0, 1, math.inf], r"logit 2 of 3 is \+Inf"),
    ([-math.inf, -math.inf], "all 2 logits are -Inf"),
])  # fmt: skip
def test_logits_without_a_choice_are_refused(engine: Engine, logits: list[float], text: str) -> None:
    row = np.array(logits, np.float32)
    with create_sampler(engine, Options()) as sampler:
        with pytest.raises(UsageError, match=text):
            sampler.sample(row)
        with pytest.raises(UsageError, match=text):
            sampler.probs(row)
        assert sampler.sample(np.array([1.0], np.float32)) == 0
