from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import jinja2
import numpy as np
import pytest

from sdk_tools.errors import BadInputError, UsageError
from tests import reference_tiny, tiny_models
from tests.tiny_models import MODELS, TinyModel, cook_recipe, write_model

TINY = [model for model in MODELS.values() if model.name != "llama-large"]
PAIRS = [(a, b) for a, b in itertools.combinations(MODELS.values(), 2) if a.arch == b.arch]
each_model = pytest.mark.parametrize("model", TINY, ids=lambda model: model.name)


def read_tensors(path: Path) -> dict[str, Any]:
    reader: Any = gguf.GGUFReader(str(path))
    return {tensor.name: tensor for tensor in reader.tensors}


def read_key(path: Path, name: str) -> Any:
    reader: Any = gguf.GGUFReader(str(path))
    return reader.get_field(name).contents()


# ------------------------------------------------------------------------------------------------------ configurations


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_no_two_dimensions_of_a_model_are_equal(model: TinyModel) -> None:
    by_size: dict[int, list[str]] = {}
    for name, size in model.dims.items():
        by_size.setdefault(size, []).append(name)
    assert {size: names for size, names in by_size.items() if len(names) > 1} == {}


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=lambda model: model.name)
def test_no_dimension_is_equal_in_two_models_of_an_architecture(a: TinyModel, b: TinyModel) -> None:
    assert a.dims.keys() == b.dims.keys()
    assert [name for name in a.dims if a.dims[name] == b.dims[name]] == []
    assert a.eps != b.eps
    assert a.rope == "none" or a.rope_base != b.rope_base
    assert a.sections is None or a.sections != b.sections


def test_every_structure_and_rope_comes_in_two_configurations() -> None:
    for arch in {model.arch for model in TINY}:
        assert len([model for model in TINY if model.arch == arch]) >= 2, arch
    assert {model.structure for model in TINY} == {"dense", "recurrent", "hybrid"}
    assert {model.rope for model in TINY} == {"none", "norm", "neox", "mrope", "imrope"}
    assert [model.name for model in TINY if not model.has_tokenizer] == ["qwen3-none"]


@each_model
def test_ratios_of_heads(model: TinyModel) -> None:
    for more, fewer in (("n_head", "n_head_kv"), ("n_value_heads", "n_key_heads"), ("n_ssm_head", "n_group")):
        if more in model.dims:
            assert model.dims[more] % model.dims[fewer] == 0
            assert model.dims[more] > model.dims[fewer]


@each_model
def test_layers_with_a_recurrent_state(model: TinyModel) -> None:
    tensors = cook_recipe(model).tensors
    recurrent = [f"blk.{layer}.ssm_a" in tensors for layer in range(model.n_layer)]
    attention = [f"blk.{layer}.attn_q.weight" in tensors for layer in range(model.n_layer)]
    assert any(recurrent) == (model.structure != "dense")
    assert any(attention) == (model.structure != "recurrent")
    if model.arch in ("qwen3next", "qwen35"):
        assert recurrent == [model.is_recurrent_layer(layer) for layer in range(model.n_layer)]
        assert attention == [not flag for flag in recurrent]


# ---------------------------------------------------------------------------------------------------------------- files


@each_model
def test_files_are_small_sound_and_equal_on_every_run(model: TinyModel, tmp_path: Path) -> None:
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    write_model(model, first)
    write_model(model, second)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 1_100_000
    recipe, tensors = cook_recipe(model), read_tensors(first)
    assert tensors.keys() == recipe.tensors.keys()
    for name, expected in recipe.tensors.items():
        assert expected.dtype == np.float32
        assert np.array_equal(np.asarray(tensors[name].data), expected), name
        assert np.isfinite(expected).all()


def test_weights_are_the_same_on_every_machine() -> None:
    digest = hashlib.sha256()
    for name, tensor in cook_recipe(MODELS["qwen3next-a"]).tensors.items():
        digest.update(name.encode() + tensor.astype("<f4").tobytes())
    assert digest.hexdigest()[:16] == "7f9d118f83f1f6c3"


def test_no_two_models_share_weights() -> None:
    tables = [cook_recipe(model).tensors["token_embd.weight"].reshape(-1)[:64].tobytes() for model in MODELS.values()]
    assert len(set(tables)) == len(MODELS)


def test_variances() -> None:
    recipe = tiny_models.Recipe(MODELS["llama-a"])
    recipe.matrix("m", 200, 300, gain=2.0)
    recipe.uniform("u", 5000, -4.0, -1.0)
    inputs = np.random.default_rng(0).standard_normal((300, 50))
    assert np.std(recipe.tensors["m"] @ inputs) == pytest.approx(2.0, rel=0.05)
    assert -4.0 <= recipe.tensors["u"].min() < -3.9
    assert -1.1 < recipe.tensors["u"].max() <= -1.0


@pytest.mark.parametrize("name", ["llama-a", "gemma3-b", "falcon-h1-b", "qwen3next-a"])
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_smaller_types(name: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(MODELS[name], path, dtype)
    kinds, tensors = set(), read_tensors(path)
    for tensor_name, expected in cook_recipe(MODELS[name]).tensors.items():
        tensor = tensors[tensor_name]
        quantizable = dtype == "q8_0" and expected.shape[-1] % 32 == 0
        wanted = "F32" if not tiny_models.is_matmul_weight(tensor_name) else "Q8_0" if quantizable else "F16"
        assert tensor.tensor_type.name == wanted, tensor_name
        kinds.add(wanted)
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(expected.shape)
        assert np.abs(values - expected).max() <= np.abs(expected).max() / 128
    assert {"F32", dtype.upper()} <= kinds


def test_norms_and_what_is_read_element_by_element_stay_float32() -> None:
    for name in (
        "blk.0.attn_norm.weight",
        "blk.0.attn_q.bias",
        "blk.0.ssm_conv1d.weight",
        "blk.0.ssm_a",
        "blk.0.ffn_norm",
    ):
        assert not tiny_models.is_matmul_weight(name)
    for name in ("token_embd.weight", "output.weight", "blk.11.attn_q.weight", "blk.3.ffn_down_exps.weight"):
        assert tiny_models.is_matmul_weight(name)


# ------------------------------------------------------------------------------------------------------------ tokenizer


def test_every_byte_is_a_token_and_merges_build_on_tokens() -> None:
    texts, types = tiny_models.list_tokens(300)
    assert len(texts) == len(types) == 300
    assert len(set(texts)) == 300
    assert all(len(text) == 1 for text in texts[:256])
    assert texts[ord("A")] == "A"
    assert texts[0x20] == "\u0120"
    merges = read_merges()
    for position, merge in enumerate(merges):
        left, right = merge.split(" ")
        known = texts[: 256 + position]
        assert left in known
        assert right in known
        assert texts[256 + position] == left + right
    assert texts[256 + len(merges) :][:3] == list(tiny_models.CONTROL_TOKENS)
    assert [types[texts.index(text)] for text in tiny_models.CONTROL_TOKENS] == [gguf.TokenType.CONTROL] * 3
    assert set(types[tiny_models.N_BASE_TOKENS :]) == {gguf.TokenType.UNUSED}


def read_merges() -> list[str]:
    merges = cook_recipe(MODELS["llama-a"]).keys["tokenizer.ggml.merges"]
    assert not isinstance(merges, (str, int, float))
    return [str(merge) for merge in merges]


def test_byte_alphabet_agrees_with_the_published_one() -> None:
    # From the vocabulary of GPT-2: space, newline, delete, soft hyphen, the first and last byte.
    tokens = tiny_models.list_byte_tokens()
    chosen = {0x20: "Ġ", 0x0A: "Ċ", 0x7F: "ġ", 0xAD: "Ń", 0x00: "Ā", 0xFF: "ÿ", 0xC3: "Ã", 0xA9: "©", 0x80: "Ģ"}
    assert {byte: tokens[byte] for byte in chosen} == chosen


@each_model
def test_vocabularies_begin_alike_and_end_turns_alike(model: TinyModel, tiny: Callable[..., Path]) -> None:
    path = tiny(model.name)
    if not model.has_tokenizer:
        assert read_key(path, "tokenizer.ggml.model") == "none"
        assert read_key(path, f"{model.arch}.vocab_size") == model.n_vocab
        return
    texts = read_key(path, "tokenizer.ggml.tokens")
    assert len(texts) == model.n_vocab
    assert texts[: tiny_models.N_BASE_TOKENS] == tiny_models.list_tokens(tiny_models.N_BASE_TOKENS)[0]
    assert texts[read_key(path, "tokenizer.ggml.eos_token_id")] == "<|im_end|>"


def test_chat_template() -> None:
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(tiny_models.CHAT_TEMPLATE)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert template.render(messages=messages) == turns
    assert template.render(messages=messages, add_generation_prompt=True) == f"{turns}<|im_start|>assistant\n"


def test_a_vocabulary_too_small_is_refused() -> None:
    with pytest.raises(UsageError, match="256"):
        tiny_models.list_tokens(256)


# ---------------------------------------------------------------------------------------------- command line, fixtures


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--out", str(tmp_path / "new"), "--only", "mamba-a", "--only", "qwen2vl-b", "--dtype", "q8_0"]
    assert tiny_models.main(arguments) == 0
    names = ["mamba-a-q8_0.gguf", "qwen2vl-b-q8_0.gguf"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    assert capsys.readouterr().out.split() == [str(tmp_path / "new" / name) for name in names]


def test_unknown_names_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny_models.main(["--out", str(tmp_path), "--only", "llama-z"]) == 2
    assert "llama-z" in capsys.readouterr().err
    with pytest.raises(UsageError, match="q9"):
        write_model(MODELS["llama-a"], tmp_path / "model.gguf", "q9")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(tiny_models, "write_atomic", fail)
    with pytest.raises(OSError, match="disk full"):
        write_model(MODELS["mamba-a"], tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_fixtures(tiny_dir: Path, tiny: Callable[..., Path], tmp_path: Path) -> None:
    assert {tiny_models.file_name(name) for name in MODELS} <= {path.name for path in tiny_dir.iterdir()}
    write_model(MODELS["qwen35-b"], tmp_path / "fresh.gguf", "f16")
    assert tiny("qwen35-b", "f16").read_bytes() == (tmp_path / "fresh.gguf").read_bytes()
    assert tiny("qwen35-b") != tiny("qwen35-b", "f16")
    before = tiny("qwen35-b", "f16").stat().st_mtime_ns
    assert tiny("qwen35-b", "f16").stat().st_mtime_ns == before
    with pytest.raises(UsageError, match="no-such"):
        tiny("no-such")


# ------------------------------------------------------------------------------------- mapping to transformers' names


def open_file(model: TinyModel, folder: Path, **changes: Any) -> reference_tiny.GgufFile:
    """changes: tensors to add, or to leave out (None)."""
    path = folder / "model.gguf"
    recipe = cook_recipe(model)
    for name, tensor in changes.items():
        if tensor is None:
            del recipe.tensors[name]
        else:
            recipe.tensors[name] = tensor
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_models, "cook_recipe", lambda _: recipe)
        write_model(model, path)
    return reference_tiny.GgufFile(path)


@each_model
def test_every_tensor_is_mapped(model: TinyModel, tmp_path: Path) -> None:
    weights = reference_tiny.map_weights(open_file(model, tmp_path))
    tensors = cook_recipe(model).tensors
    sizes = sum(tensor.size for tensor in tensors.values())
    assert sum(weight.size for weight in weights.values()) == sizes + (tensors["token_embd.weight"].size * model.tied)
    assert all(np.isfinite(weight).all() for weight in weights.values())


@each_model
def test_a_tensor_too_many_or_too_few_is_an_error(model: TinyModel, tmp_path: Path) -> None:
    surplus = {"blk.0.new_norm.weight": np.ones(3, np.float32)}
    with pytest.raises(BadInputError, match=r"not mapped: blk\.0\.new_norm\.weight"):
        reference_tiny.map_weights(open_file(model, tmp_path, **surplus))
    last = [name for name in cook_recipe(model).tensors if name.startswith("blk.")][-1]
    with pytest.raises(BadInputError, match=f"no tensor '{last}'"):
        reference_tiny.map_weights(open_file(model, tmp_path, **{last: None}))


def test_an_architecture_without_a_reference_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(reference_tiny.ARCHITECTURES, "mamba")
    with pytest.raises(UsageError, match="'mamba'"):
        reference_tiny.map_weights(open_file(MODELS["mamba-a"], tmp_path))


def test_rope_halves() -> None:
    # Two heads of width 4: pairs (x0 y0 x1 y1) become halves (x0 x1 y0 y1).
    rows = np.arange(8, dtype=np.float32)[:, None]
    assert reference_tiny.join_rope_halves(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_value_heads_are_grouped(tmp_path: Path) -> None:
    model = MODELS["qwen35-b"]
    n_key, n_value = model.dims["n_key_heads"], model.dims["n_value_heads"]
    file = open_file(model, tmp_path)
    # Tiled: value head v belongs to key head v % n_key.
    owners = np.arange(n_value, dtype=np.float32) % n_key
    assert reference_tiny.group_value_heads(file, owners).tolist() == sorted(owners.tolist())
    rows = np.repeat(np.arange(n_value, dtype=np.float32), 3)[:, None]
    assert reference_tiny.group_value_heads(file, rows)[:6, 0].tolist() == [0, 0, 0, n_key, n_key, n_key]


def test_norms_lose_what_was_added(tmp_path: Path) -> None:
    for name, plain in (("gemma3-a", None), ("qwen3next-a", "model.layers.0.linear_attn.norm.weight")):
        weights = reference_tiny.map_weights(open_file(MODELS[name], tmp_path))
        for key, weight in weights.items():
            if key.endswith("norm.weight"):
                low, high = (0.6, 1.4) if key.endswith("linear_attn.norm.weight") else (-0.4, 0.4)
                assert low - 1e-6 <= weight.min() <= weight.max() <= high + 1e-6, key
        assert plain is None or plain in weights


def test_falcon_multipliers_are_taken_out(tmp_path: Path) -> None:
    model = MODELS["falcon-h1-b"]
    weights = reference_tiny.map_weights(open_file(model, tmp_path))
    tensors, dims, factor = cook_recipe(model).tensors, model.dims, model.multipliers
    table = weights["model.embed_tokens.weight"] * np.float32(factor["embedding"][0])
    np.testing.assert_allclose(table, tensors["token_embd.weight"], rtol=1e-6)
    projection = weights["model.layers.2.mamba.in_proj.weight"] / tensors["blk.2.ssm_in.weight"]
    states = dims["n_group"] * dims["d_state"]
    edges = np.cumsum([0, dims["d_inner"], dims["d_inner"], states, states, dims["n_ssm_head"]])
    assert edges[-1] == dims["in_width"]
    for begin, end, part in zip(edges[:-1], edges[1:], factor["ssm"], strict=True):
        np.testing.assert_allclose(projection[begin:end], 1 / (part * factor["ssm_in"][0]), rtol=1e-5)


def test_projections_of_the_delta_net_are_joined_by_key_head(tmp_path: Path) -> None:
    model = MODELS["qwen3next-b"]
    dims, tensors = model.dims, cook_recipe(model).tensors
    joined = reference_tiny.map_weights(open_file(model, tmp_path))["model.layers.1.linear_attn.in_proj_qkvz.weight"]
    width, values = dims["d_state"], dims["value_dim"] // dims["n_key_heads"]
    second = joined.reshape(dims["n_key_heads"], -1, model.n_embd)[1]
    qkv, z = tensors["blk.1.attn_qkv.weight"], tensors["blk.1.attn_gate.weight"]
    key_dim = dims["key_dim"]
    parts = [qkv[width : 2 * width], qkv[key_dim + width : key_dim + 2 * width], qkv[2 * key_dim + values :][:values]]
    assert np.array_equal(second, np.concatenate([*parts, z[values : 2 * values]]))
