"""The named stages of a language backbone, in the order they are computed.

The same names are written once more for the engine, in native/src/backbone/stages.cpp; a test holds the two together.
Every stage but prompt_ids is a float32 matrix with one row a position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sdk_tools.errors import UsageError

PROMPT_IDS = "prompt_ids"
EMBEDS = "embeds"  # what enters layer 0, the model's embedding multiplier applied
HIDDEN = "hidden"  # after the final norm: what the output head reads
LOGITS = "logits"

_LAYER = re.compile(r"layer\.(0|[1-9][0-9]*)\.hidden")
EVERY_LAYER = "layer.*.hidden"


def layer_hidden(layer: int) -> str:
    """The output of block `layer`, counted from 0."""
    return f"layer.{layer}.hidden"


def layer_of(stage: str) -> int | None:
    """The block that a stage belongs to; None for the stages outside the blocks."""
    match = _LAYER.fullmatch(stage)
    return int(match[1]) if match else None


def list_stages(n_layer: int) -> list[str]:
    """All stages of a model with n_layer blocks, in the order they are computed."""
    return [PROMPT_IDS, EMBEDS, *(layer_hidden(i) for i in range(n_layer)), HIDDEN, LOGITS]


def expand_stages(choice: str, n_layer: int) -> list[str]:
    """The stages that a comma-separated choice names ("all", "layer.*.hidden", "layer.3.hidden", "logits"), in order.

    Errors: UsageError that names the unknown stage and the known ones.
    """
    known = list_stages(n_layer)
    chosen: set[str] = set()
    for name in (part.strip() for part in choice.split(",")):
        if name == "all":
            chosen.update(known)
        elif name == EVERY_LAYER:
            chosen.update(layer_hidden(i) for i in range(n_layer))
        elif name in known:
            chosen.add(name)
        else:
            raise UsageError(
                f"There is no stage '{name}' in a model of {n_layer} layers.",
                f"The stages are: {PROMPT_IDS}, {EMBEDS}, {layer_hidden(0)} to {layer_hidden(n_layer - 1)} "
                f"(all of them: {EVERY_LAYER}), {HIDDEN}, {LOGITS}, or all.",
            )
    return [stage for stage in known if stage in chosen]


def sort_stages(stages: Iterable[str]) -> list[str]:
    """Known stages in the order they are computed, unknown ones behind them by name."""

    def rank(stage: str) -> tuple[int, int, str]:
        layer = layer_of(stage)
        if layer is not None:
            return (2, layer, stage)
        order = {PROMPT_IDS: 0, EMBEDS: 1, HIDDEN: 3, LOGITS: 4}
        return (order.get(stage, 5), 0, stage)

    return sorted(stages, key=rank)
