"""An error planted into a model must make `parity` fail, and name the stage where it first shows.

The reference is that of the sound model; the file that the engine runs differs from it in one respect. Everything
goes through the command itself.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGUFReader

from sdk_tools import __main__
from sdk_tools.engine import Engine
from sdk_tools.gguf_io import StageDump, write_npz_dump
from tests.reference_tiny import join_rope_halves, load_reference, reference_stages
from tests.tiny_models import find_model

# Some twice and some neighbours: what is shifted by one must not land on an equal row.
IDS = (7, 8, 9, 250, 251, 7, 41, 42, 100, 101, 102, 3, 4, 200, 199, 60, 61, 8, 9, 10, 77, 150, 33, 34)
TEXT = "the other hand is in the air and on the water"

Array = npt.NDArray[Any]
Change = Callable[["File"], None]


class File:
    """A copy of a model whose tensors and keys can be changed in place. Matrices are [rows][columns]."""

    def __init__(self, path: Path) -> None:
        self._reader: Any = GGUFReader(str(path), "r+")

    def tensor(self, name: str) -> Array:
        (found,) = (tensor for tensor in self._reader.tensors if tensor.name == name)
        data: Array = found.data
        return data

    def scale_key(self, name: str, factor: float) -> None:
        """Multiplies a number."""
        found = self._reader.get_field(name)
        found.parts[found.data[0]][0] *= factor

    def swap_strings(self, name: str, one: str, other: str) -> None:
        """Swaps two entries of equal length of a list of strings."""
        found = self._reader.get_field(name)
        parts = {bytes(found.parts[index]).decode(): found.parts[index] for index in found.data}
        first, second = parts[one], parts[other]
        first[:], second[:] = second.copy(), first.copy()


def edit(name: str, change: Callable[[Array], Array]) -> Change:
    """Replaces a tensor by what `change` makes of it."""

    def apply(file: File) -> None:
        data = file.tensor(name)
        data[:] = change(data.copy())

    return apply


def roll_rows(data: Array) -> Array:
    return np.roll(data, 1, axis=0)


def reverse_taps(data: Array) -> Array:
    return data[:, ::-1]


def roll_heads(data: Array) -> Array:
    """By one head of qwen3-a."""
    return np.roll(data, find_model("qwen3-a").dims["head_dim"], axis=0)


def scale_key(name: str, factor: float) -> Change:
    return lambda file: file.scale_key(name, factor)


def swap_tensors(one: str, other: str) -> Change:
    def apply(file: File) -> None:
        first, second = file.tensor(one), file.tensor(other)
        first[:], second[:] = second.copy(), first.copy()

    return apply


def swap_rows(one: int, other: int) -> Callable[[Array], Array]:
    def change(data: Array) -> Array:
        data[[one, other]] = data[[other, one]]
        return data

    return change


def scale(factor: float) -> Callable[[Array], Array]:
    def change(data: Array) -> Array:
        scaled: Array = data * np.float32(factor)
        return scaled

    return change


def as_other_rope(file: File) -> None:
    """The rows of q and k in the order that the other kind of rope wants."""
    dims = find_model("llama-a").dims
    for layer in range(dims["n_layer"]):
        for name, heads in (("attn_q", dims["n_head"]), ("attn_k", dims["n_head_kv"])):
            data = file.tensor(f"blk.{layer}.{name}.weight")
            data[:] = join_rope_halves(data, heads)


@dataclass(frozen=True)
class Mutation:
    """stage: where it must first show. words: more arguments for the command."""

    name: str
    model: str
    change: Change
    stage: str
    dtype: str = "f32"
    words: tuple[str, ...] = field(default=("--tokens", ",".join(str(value) for value in IDS)))


_BY_ROWS = ("--tokens", ",".join(str(value) for value in IDS), "--input", "embeds")
_IN_K = edit("blk.1.attn_k.weight", roll_rows)
_IN_TABLE = edit("token_embd.weight", swap_rows(41, 42))
_IN_HEAD = edit("output.weight", roll_rows)
_GATE_AND_UP = swap_tensors("blk.0.ffn_up.weight", "blk.0.ffn_gate.weight")
_WINDOW = scale_key("gemma3.attention.sliding_window", 2)
_EXPERTS = edit("blk.1.ffn_down_exps.weight", swap_rows(0, 1))


def _swap_tokens(file: File) -> None:
    file.swap_strings("tokenizer.ggml.tokens", "he", "in")


MUTATIONS = (
    Mutation("token-rows-swapped", "llama-a", _IN_TABLE, "embeds"),
    Mutation("token-rows-swapped-by-rows", "qwen3-a", _IN_TABLE, "embeds", words=_BY_ROWS),
    Mutation("one-token-row", "falcon-h1-a", edit("token_embd.weight", swap_rows(250, 0)), "embeds"),
    Mutation("rope-mode", "llama-a", as_other_rope, "layer.0.hidden"),
    Mutation("rope-base", "llama-a", scale_key("llama.rope.freq_base", 1.02), "layer.0.hidden"),
    Mutation("m-rope-base", "qwen3vl-a", scale_key("qwen3vl.rope.freq_base", 1.5), "layer.0.hidden", words=_BY_ROWS),
    Mutation("norm-scaled", "llama-a", edit("blk.2.attn_norm.weight", scale(1.001)), "layer.2.hidden"),
    Mutation("ffn-norm-scaled", "llama-a", edit("blk.1.ffn_norm.weight", scale(0.999)), "layer.1.hidden"),
    Mutation("k-shifted", "llama-a", _IN_K, "layer.1.hidden"),
    Mutation("q-heads-shifted", "qwen3-a", edit("blk.4.attn_q.weight", roll_heads), "layer.4.hidden"),
    Mutation("up-and-gate-swapped", "llama-b", _GATE_AND_UP, "layer.0.hidden"),
    Mutation("final-norm-scaled", "llama-a", edit("output_norm.weight", scale(1.001)), "hidden"),
    Mutation("head-shifted", "llama-a", _IN_HEAD, "logits"),
    Mutation("one-row-of-the-head", "qwen3-a", edit("output.weight", swap_rows(270, 271)), "logits"),
    Mutation("conv-taps-reversed", "falcon-h1-a", edit("blk.1.ssm_conv1d.weight", reverse_taps), "layer.1.hidden"),
    Mutation("conv-sign", "falcon-h1-b", edit("blk.3.ssm_conv1d.weight", scale(-1)), "layer.3.hidden"),
    Mutation("decay", "mamba-b", edit("blk.2.ssm_a", scale(1.01)), "layer.2.hidden"),
    Mutation("experts-swapped", "qwen3next-a", _EXPERTS, "layer.1.hidden"),
    Mutation("delta-heads-shifted", "qwen35-a", edit("blk.0.ssm_dt.bias", roll_rows), "layer.0.hidden"),
    Mutation("window-wider", "gemma3-a", _WINDOW, "layer.0.hidden"),
    Mutation("k-shifted-f16", "llama-a", _IN_K, "layer.1.hidden", dtype="f16"),
    Mutation("k-shifted-q8", "llama-a", _IN_K, "layer.1.hidden", dtype="q8_0"),
    Mutation("head-shifted-q8", "llama-a", _IN_HEAD, "logits", dtype="q8_0"),
    Mutation("token-rows-swapped-q8", "llama-a", _IN_TABLE, "embeds", dtype="q8_0"),
    Mutation("tokens-swapped", "llama-a", _swap_tokens, "prompt_ids", words=("--prompt", TEXT)),
)


@pytest.fixture(scope="module")
def reference(
    tiny: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, tuple[int, ...]], Path]:
    """reference(model, dtype, ids): the sound model's stages from PyTorch, computed once."""
    folder = tmp_path_factory.mktemp("references")

    def make(model: str, dtype: str, ids: tuple[int, ...]) -> Path:
        path = folder / f"{model}-{dtype}-{hash(ids)}.npz"
        if not path.exists():
            stages = reference_stages(load_reference(tiny(model, dtype)), ids)
            write_npz_dump(path, StageDump(stages, ids, 0, "torch"))
        return path

    return make


def tokenize(path: Path) -> tuple[int, ...]:
    with Engine() as engine, engine.open_model(path) as model:
        return tuple(model.tokenize(TEXT))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_planted_error_is_found_where_it_is(
    mutation: Mutation,
    tiny: Callable[..., Path],
    reference: Callable[[str, str, tuple[int, ...]], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sound = tiny(mutation.model, mutation.dtype)
    ids = IDS if "--tokens" in mutation.words else tokenize(sound)
    common = ["--reference", str(reference(mutation.model, mutation.dtype, ids)), "--json", *mutation.words]

    assert __main__.run(["parity", str(sound), *common]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]

    mutant = tmp_path / "mutant.gguf"
    shutil.copy(sound, mutant)
    mutant.chmod(0o644)
    mutation.change(File(mutant))
    assert __main__.run(["parity", str(mutant), *common]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["first_diverging_stage"] == mutation.stage
    failed = [stage["stage"] for stage in result["stages"] if not stage["passed"]]
    assert failed[0] == mutation.stage
    assert "logits" in failed or mutation.stage == "logits" or mutation.stage == "prompt_ids"


def test_the_table_of_a_failure_names_the_stage(
    tiny: Callable[..., Path],
    reference: Callable[[str, str, tuple[int, ...]], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mutant, report = tmp_path / "mutant.gguf", tmp_path / "report.html"
    shutil.copy(tiny("llama-a"), mutant)
    mutant.chmod(0o644)
    edit("blk.1.attn_k.weight", roll_rows)(File(mutant))
    words = ["--reference", str(reference("llama-a", "f32", IDS)), "--report", str(report)]
    assert __main__.run(["parity", str(mutant), *words]) == 1
    assert "The first diverging stage is layer.1.hidden" in capsys.readouterr().out
    assert "first diverging stage is layer.1.hidden" in report.read_text()
