from __future__ import annotations

import pytest

from sdk_tools.errors import UsageError
from sdk_tools.families.llm import stages


def test_all_stages_are_in_the_order_they_are_computed() -> None:
    assert stages.list_stages(2) == ["prompt_ids", "embeds", "layer.0.hidden", "layer.1.hidden", "hidden", "logits"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("all", stages.list_stages(3)),
        ("logits, embeds", ["embeds", "logits"]),
        ("layer.*.hidden", ["layer.0.hidden", "layer.1.hidden", "layer.2.hidden"]),
        ("layer.2.hidden,layer.0.hidden,layer.2.hidden", ["layer.0.hidden", "layer.2.hidden"]),
        ("hidden,layer.*.hidden", ["layer.0.hidden", "layer.1.hidden", "layer.2.hidden", "hidden"]),
    ],
)
def test_a_choice_is_expanded_in_order(choice: str, expected: list[str]) -> None:
    assert stages.expand_stages(choice, 3) == expected


@pytest.mark.parametrize(
    "choice", ["layer.3.hidden", "layer.-1.hidden", "layer.01.hidden", "hiden", "", "all,", "Logits"]
)
def test_an_unknown_stage_is_named_with_the_known_ones(choice: str) -> None:
    with pytest.raises(UsageError) as caught:
        stages.expand_stages(choice, 3)
    assert f"'{choice.rpartition(',')[2]}'" in caught.value.what
    assert "layer.2.hidden" in caught.value.hint


@pytest.mark.parametrize(("stage", "layer"), [("layer.12.hidden", 12), ("layer.0.hidden", 0), ("hidden", None)])
def test_layer_of(stage: str, layer: int | None) -> None:
    assert stages.layer_of(stage) == layer


def test_sorting_is_by_number_not_by_text() -> None:
    names = ["logits", "layer.10.hidden", "layer.9.hidden", "else", "embeds", "hidden", "prompt_ids"]
    assert stages.sort_stages(names) == [
        "prompt_ids", "embeds", "layer.9.hidden", "layer.10.hidden", "hidden", "logits", "else",
    ]  # fmt: skip
