from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sdk_tools.errors import UsageError
from sdk_tools.lab.compare import ArgmaxMiss, StageDifference, compare_ids, compare_rows
from sdk_tools.lab.limits import KINDS, LOOKUP_LIMIT, UNITS, LimitPolicy, choose_kind, judge, parse_kind


@pytest.mark.parametrize(
    ("types", "architecture", "kind"),
    [
        ({"f32": 100}, "llama", "f32"),
        ({"f32": 100, "f16": 5}, "llama", "f16"),
        ({"f32": 100, "f16": 5, "bf16": 1}, "llama", "bf16"),
        ({"f32": 100, "bf16": 5, "q4_K": 1}, "llama", "q8act"),
        ({"f32": 100, "q8_0": 0}, "llama", "f32"),
        ({"f32": 100}, "starcoder2", "f16"),
        ({"q6_K": 100}, "starcoder2", "q8act"),
        ({"iq4_nl": 100}, "qwen3", "q8act"),
        ({}, "qwen3", "f32"),
    ],
)
def test_the_coarsest_type_decides(types: dict[str, int], architecture: str, kind: str) -> None:
    assert choose_kind(types, architecture) == kind


@pytest.mark.parametrize(
    ("name", "kind"), [("f32", "f32"), ("F16", "f16"), ("q4_1", "q8act"), ("Q6_K", "q8act"), ("iq4_nl", "q8act")]
)
def test_a_kind_can_be_named_by_a_type(name: str, kind: str) -> None:
    assert parse_kind(name) == kind


@pytest.mark.parametrize("name", ["", "f64", "quick", "q", "none"])
def test_unknown_kinds_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no limits for"):
        parse_kind(name)


def test_limits_grow_with_depth_and_from_kind_to_kind() -> None:
    for kind in KINDS:
        limits = [LimitPolicy(kind).make_limit(blocks, 32).typical for blocks in (1, 2, 30)]
        assert limits == sorted(limits)
        assert limits[0] > UNITS[kind]
    firsts = [LimitPolicy(kind).make_limit(1, 32).worst for kind in KINDS]
    assert firsts == sorted(firsts)
    logits = LimitPolicy("f16").make_limit(30, 32, is_logits=True)
    assert logits.typical > LimitPolicy("f16").make_limit(30, 32).typical


def test_looked_up_rows_are_exact_for_every_kind() -> None:
    for kind in KINDS:
        limit = LimitPolicy(kind, recurrent=True, experts=True).make_limit(0, 32)
        assert (limit.typical, limit.worst, limit.column) == (LOOKUP_LIMIT,) * 3


def test_columns_need_rows_to_average() -> None:
    assert LimitPolicy("f32").make_limit(1, 7).column is None
    assert LimitPolicy("f32").make_limit(1, 8).column is not None


def test_recurrent_state_and_experts_widen() -> None:
    plain = LimitPolicy("f16").make_limit(4, 32)
    recurrent = LimitPolicy("f16", recurrent=True).make_limit(4, 32)
    assert recurrent.typical == 2 * plain.typical
    experts = LimitPolicy("f16", experts=True).make_limit(4, 32)
    assert (experts.worst, experts.typical) == (4 * plain.worst, 1.5 * plain.typical)
    assert LimitPolicy("f32", experts=True).make_limit(4, 32) == LimitPolicy("f32").make_limit(4, 32)


LIMIT = LimitPolicy("f32").make_limit(2, 32)
SOUND = StageDifference("hidden", 32, 8, typical=LIMIT.typical, worst=LIMIT.worst, column=LIMIT.column or 0.0)


def test_a_stage_at_its_limits_passes() -> None:
    assert judge(SOUND, LIMIT).passed


@pytest.mark.parametrize(
    ("figure", "words"), [("typical", "median row"), ("worst", "row 0 is off"), ("column", "column 0 is off")]
)
def test_each_figure_over_its_limit_fails_and_is_said(figure: str, words: str) -> None:
    verdict = judge(replace(SOUND, **{figure: getattr(SOUND, figure) * 1.01}), LIMIT)
    assert not verdict.passed
    (failure,) = verdict.failures
    assert words in failure


@pytest.mark.parametrize("figure", ["typical", "worst", "column"])
def test_a_figure_that_is_no_number_fails(figure: str) -> None:
    values: dict[str, Any] = {figure: float("nan")}
    assert not judge(replace(SOUND, **values), LIMIT).passed


def test_a_near_tie_passes_and_another_choice_does_not() -> None:
    tie = replace(SOUND, misses=(ArgmaxMiss(3, 1, 2, 1e-6, LIMIT.margin),))
    assert judge(tie, LIMIT).passed
    choice = replace(SOUND, misses=(ArgmaxMiss(3, 1, 2, 0.5, LIMIT.margin * 1.01),))
    assert "row 3 chooses token 1, the reference 2" in judge(choice, LIMIT).failures[0]


def test_a_problem_fails_with_and_without_limits() -> None:
    assert not judge(replace(SOUND, problem="the shape is off"), LIMIT).passed
    assert not judge(compare_ids("prompt_ids", [1], [2]), None).passed
    assert judge(compare_ids("prompt_ids", [1], [1]), None).passed


def test_no_limit_lets_an_unrelated_result_pass() -> None:
    """Whatever the widening, random rows never count as equal."""
    rng = np.random.default_rng(1)
    got, want = (rng.normal(size=(32, 64)).astype(np.float32) for _ in range(2))
    for kind in KINDS:
        policy = LimitPolicy(kind, recurrent=True, experts=True)
        assert not judge(compare_rows("hidden", got, want), policy.make_limit(40, 32)).passed
