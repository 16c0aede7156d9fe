"""Every architecture at two unequal sizes against PyTorch, stage by stage, by token ids and by embedding rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sdk_tools.engine import ContextParams, Engine, KvType
from sdk_tools.gguf_io import StageDump, read_dump
from tests import reference_tiny
from tests.tiny_models import MODELS

# Of a stage's largest value. Where ggml looks GELU up in a table of float16 steps, the reference does the same; what
# remains are arguments on the edge between two steps.
_LIMIT = 2e-5
_GELU_TABLE_LIMIT = 3e-4
_GELU_TABLE = ("gemma3", "starcoder2")
_N = 24

_EXACT = ContextParams(
    n_ctx=64,
    n_batch=64,
    n_outputs=64,
    n_threads=1,
    type_k=KvType.F32,
    type_v=KvType.F32,
    flash_attention=False,
    embeds_are_scaled=True,
)


def token_ids(n_vocab: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(5).integers(0, n_vocab, _N)]


def capture(path: Path, folder: Path, *, by_embeds: bool) -> tuple[list[int], StageDump]:
    with Engine() as engine, engine.open_model(path) as model, model.open_context(_EXACT) as context:
        ids = token_ids(model.facts.n_vocab)
        context.start_probe("all")
        if by_embeds:
            context.prefill_embeds(model.embed_tokens(ids), rows=range(_N))
        else:
            context.prefill_tokens(ids, rows=range(_N))
        context.write_probe(folder / "dump.gguf")
    return ids, read_dump(folder / "dump.gguf")


def worst_errors(path: Path, dump: StageDump, ids: list[int]) -> dict[str, float]:
    """The largest error of each stage over the stage's largest value."""
    half_gelu = path.stem.startswith(_GELU_TABLE)
    model = reference_tiny.load_reference(path, half_gelu=half_gelu)
    expected = reference_tiny.reference_stages(model, ids)
    assert set(expected) - {"prompt_ids"} == set(dump.stages)
    return {
        stage: float(np.abs(rows - expected[stage]).max() / np.abs(expected[stage]).max())
        for stage, rows in dump.stages.items()
    }


@pytest.mark.parametrize("by_embeds", [False, True], ids=["tokens", "embeds"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_equals_pytorch(name: str, by_embeds: bool, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    ids, dump = capture(tiny(name), tmp_path, by_embeds=by_embeds)
    errors = worst_errors(tiny(name), dump, ids)
    limit = _GELU_TABLE_LIMIT if name.startswith(_GELU_TABLE) else _LIMIT
    # Given rows pass Gemma's scale by: what the first block sees is the same all the same.
    assert {stage: error for stage, error in errors.items() if not error <= limit} == {}


def test_another_models_reference_does_not_pass(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    """The comparison can fail: one norm weight of one layer, one per cent off."""
    ids, dump = capture(tiny("qwen3-a"), tmp_path, by_embeds=False)
    model = reference_tiny.load_reference(tiny("qwen3-a"))
    parameters = dict(model.named_parameters())
    name = next(name for name in parameters if "layers.1." in name and "post_attention_layernorm" in name)
    parameters[name].data[3] *= 1.01
    expected = reference_tiny.reference_stages(model, ids)
    errors = {
        stage: float(np.abs(rows - expected[stage]).max() / np.abs(expected[stage]).max())
        for stage, rows in dump.stages.items()
    }
    assert errors["embeds"] <= _LIMIT
    assert errors["layer.0.hidden"] <= _LIMIT
    assert errors["layer.1.hidden"] > _LIMIT
    assert errors["logits"] > _LIMIT
