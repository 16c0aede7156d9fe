"""Tiny random models, one GGUF file each, for every structure the engine knows: no download, the same bytes each time.

Each architecture comes in configurations of which no dimension is equal (a test holds that), so that a constant of one
model hidden in the code, or two dimensions mixed up, breaks on the other. Weights are uniform with variances that give
logits a standard deviation of 1 to 5 and keep recurrent states bounded. `python -m tests.tiny_models --out DIR`
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from sdk_tools.errors import UsageError
from sdk_tools.files import hash_file, write_atomic

FloatArray = npt.NDArray[np.float32]
Value = bool | int | float | str | Sequence[bool] | Sequence[int] | Sequence[float] | Sequence[str]

DTYPES = ("f32", "f16", "q8_0")
# Multipliers of a checkpoint that its converter folds into weights, so that the reference can take them out again.
MULTIPLIER_PREFIX = "tiny.multiplier."
_FILE_TYPE = {"f32": 0, "f16": 1, "q8_0": 7}
_Q8_BLOCK = 32
# Weights that the engine only ever multiplies a matrix with, or looks rows up in.
_MATMUL_STEMS = frozenset(
    (
        *("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_gate", "attn_output"),
        *("ffn_gate", "ffn_up", "ffn_down", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"),
        *("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "ssm_in", "ssm_out"),
    )
)


@dataclass(frozen=True)
class TinyModel:
    """One file to write, and the facts about it that tests compare with what the engine reports.

    dims: sizes by name, also those that follow from others ("q_width"), except where the architecture makes two equal.
    structure: dense, recurrent or hybrid. rope: none, norm, neox, mrope or imrope. embedding_scale: none, tokens_only
    (the graph multiplies looked-up rows, but not given ones) or folded (rows of the checkpoint that this would come
    from lack a multiplier). multipliers: see MULTIPLIER_PREFIX.
    """

    name: str
    arch: str
    structure: str
    rope: str
    dims: Mapping[str, int]
    eps: float
    rope_base: float
    tied: bool = False
    has_tokenizer: bool = True
    swa_pattern: int | None = None
    rope_base_swa: float | None = None
    sections: tuple[int, int, int, int] | None = None
    recurrent_layers: tuple[bool, ...] | None = None
    full_attention_interval: int | None = None
    embedding_scale: str = "none"
    multipliers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def n_vocab(self) -> int:
        return self.dims["n_vocab"]

    @property
    def n_embd(self) -> int:
        return self.dims["n_embd"]

    @property
    def n_layer(self) -> int:
        return self.dims["n_layer"]

    @property
    def embedding_multiplier(self) -> float:
        """What the graph multiplies looked-up rows by, but not given ones: as syrinx_model_facts has it."""
        return math.sqrt(self.n_embd) if self.embedding_scale == "tokens_only" else 1.0

    def is_recurrent_layer(self, layer: int) -> bool:
        """Whether a layer of a model with a full_attention_interval keeps a recurrent state in place of keys."""
        if self.recurrent_layers is not None:
            return self.recurrent_layers[layer]
        return self.full_attention_interval is not None and (layer + 1) % self.full_attention_interval != 0


class Recipe:
    """Collects the keys and float32 tensors of one file. Each tensor has a random stream of its own."""

    def __init__(self, model: TinyModel) -> None:
        self.model = model
        self.keys: dict[str, Value] = {}
        self.tensors: dict[str, FloatArray] = {}

    def key(self, name: str, value: Value) -> None:
        """Sets a key of the architecture, such as "attention.head_count"."""
        self.keys[f"{self.model.arch}.{name}"] = value

    def matrix(self, name: str, rows: int, columns: int, gain: float = 1.0, batch: int | None = None) -> None:
        """A weight that maps `columns` inputs of variance 1 to `rows` outputs of variance gain^2."""
        shape = (rows, columns) if batch is None else (batch, rows, columns)
        scale = np.float32(gain * math.sqrt(3.0 / columns))
        self.tensors[name] = self._draw(name, shape) * scale

    def uniform(self, name: str, shape: int | tuple[int, ...], low: float, high: float) -> None:
        """Values spread evenly from low to high."""
        shape = (shape,) if isinstance(shape, int) else shape
        half = np.float32((high - low) / 2)
        self.tensors[name] = self._draw(name, shape) * half + np.float32((high + low) / 2)

    def norm(self, name: str, shape: int | tuple[int, ...]) -> None:
        self.uniform(name, shape, 0.6, 1.4)

    def bias(self, name: str, size: int) -> None:
        self.uniform(name, size, -0.3, 0.3)

    def _draw(self, name: str, shape: tuple[int, ...]) -> FloatArray:
        """Uniform in [-1, 1): from the raw stream, which NumPy keeps the same in all versions, and exact in float32."""
        seed = int.from_bytes(hashlib.sha256(f"{self.model.name}/{name}".encode()).digest()[:16], "little")
        raw = np.random.PCG64(seed).random_raw(math.prod(shape))
        integers = (raw >> np.uint64(40)).astype(np.int32) - np.int32(1 << 23)
        values: FloatArray = integers.astype(np.float32) * np.float32(2.0**-23)
        return values.reshape(shape)


# ----------------------------------------------------------------------------------------------------------- tokenizer

# Of two characters of the byte alphabet each. "Ġ" is a space, "Ċ" a newline; "Ã ©" spells é, and "Ģ Ļ" is the end of
# a character of three bytes without its beginning.
_MERGES = (
    *("h e", "i n", "r e", "a n", "e r", "Ġ t", "Ġt he", "o n", "Ġ a", "i s", "Ġ is", "n d", "Ġa nd", "o u", "l l"),
    *("o r", "Ġ c", "a t", "e n", "in g", "s t", "Ã ©", "Ģ Ļ", "Ċ Ċ"),
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
N_BASE_TOKENS = 256 + len(_MERGES) + len(CONTROL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def list_byte_tokens() -> list[str]:
    """The token text of each byte 0..255 in a byte-level BPE: itself if it is visible in Latin-1, else from U+0100."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(0x100 + hidden.index(byte)) for byte in range(256)]


def list_tokens(n_vocab: int) -> tuple[list[str], list[int]]:
    """Texts and types of all tokens: bytes, merges, control tokens, and unused ones up to n_vocab.

    The first N_BASE_TOKENS are the same in every model, so that the same text has the same ids.
    """
    texts = [*list_byte_tokens(), *(merge.replace(" ", "") for merge in _MERGES)]
    types = [int(gguf.TokenType.NORMAL)] * len(texts)
    texts += CONTROL_TOKENS
    types += [int(gguf.TokenType.CONTROL)] * len(CONTROL_TOKENS)
    n_unused = n_vocab - len(texts)
    if n_unused < 0:
        raise UsageError(f"A vocabulary of {n_vocab} tokens is smaller than the {len(texts)} that every model has.")
    texts += [f"[UNUSED{index}]" for index in range(n_unused)]
    types += [int(gguf.TokenType.UNUSED)] * n_unused
    return texts, types


def _tokenizer_keys(model: TinyModel) -> dict[str, Value]:
    if not model.has_tokenizer:
        return {"tokenizer.ggml.model": "none"}
    texts, types = list_tokens(model.n_vocab)
    end_of_text, _, end_of_turn = (texts.index(text) for text in CONTROL_TOKENS)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": _MERGES,
        "tokenizer.ggml.bos_token_id": end_of_text,
        "tokenizer.ggml.eos_token_id": end_of_turn,
        "tokenizer.ggml.padding_token_id": end_of_text,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


# ------------------------------------------------------------------------------------------------------- architectures

_LOGIT_STD = 3.0


def _ends(recipe: Recipe, norm_bias: bool = False) -> None:
    """The token table, the final norm and the output head. Rows have variance 1 where the first block sees them."""
    model, n_embd = recipe.model, recipe.model.n_embd
    if model.tied:
        # The table is the head too. In gemma3 the graph scales its looked-up rows back to logit size.
        recipe.matrix("token_embd.weight", model.n_vocab, n_embd, _LOGIT_STD)
    else:
        recipe.uniform("token_embd.weight", (model.n_vocab, n_embd), -math.sqrt(3.0), math.sqrt(3.0))
        recipe.matrix("output.weight", model.n_vocab, n_embd, _LOGIT_STD)
    recipe.norm("output_norm.weight", n_embd)
    if norm_bias:
        recipe.bias("output_norm.bias", n_embd)
    recipe.key("context_length", model.dims["n_ctx"])
    recipe.key("embedding_length", n_embd)
    recipe.key("block_count", model.n_layer)
    recipe.key("vocab_size", model.n_vocab)


def _attention_keys(recipe: Recipe) -> None:
    model, dims = recipe.model, recipe.model.dims
    recipe.key("attention.head_count", dims["n_head"])
    recipe.key("attention.head_count_kv", dims["n_head_kv"])
    recipe.key("attention.key_length", dims["head_dim"])
    recipe.key("attention.value_length", dims["head_dim"])
    recipe.key("attention.layer_norm_rms_epsilon", model.eps)
    recipe.key("rope.dimension_count", dims.get("rope_dim", dims["head_dim"]))
    recipe.key("rope.freq_base", model.rope_base)
    if model.sections is not None:
        recipe.key("rope.dimension_sections", list(model.sections))


def _attention(recipe: Recipe, block: str, qk_norm: bool = False, qkv_bias: bool = False, gated: bool = False) -> None:
    """Grouped-query attention. gated: q has, head by head, as many rows again for the output's gate."""
    dims, n_embd = recipe.model.dims, recipe.model.n_embd
    q_width, kv_width = dims["n_head"] * dims["head_dim"], dims["n_head_kv"] * dims["head_dim"]
    recipe.matrix(f"{block}.attn_q.weight", q_width * (2 if gated else 1), n_embd, 1.4)
    recipe.matrix(f"{block}.attn_k.weight", kv_width, n_embd, 1.4)
    recipe.matrix(f"{block}.attn_v.weight", kv_width, n_embd)
    recipe.matrix(f"{block}.attn_output.weight", n_embd, q_width)
    if qk_norm:
        recipe.norm(f"{block}.attn_q_norm.weight", dims["head_dim"])
        recipe.norm(f"{block}.attn_k_norm.weight", dims["head_dim"])
    if qkv_bias:
        for name, width in (("q", q_width), ("k", kv_width), ("v", kv_width)):
            recipe.bias(f"{block}.attn_{name}.bias", width)


def _gated_ffn(recipe: Recipe, block: str) -> None:
    n_embd, n_ff = recipe.model.n_embd, recipe.model.dims["n_ff"]
    recipe.key("feed_forward_length", n_ff)
    recipe.matrix(f"{block}.ffn_gate.weight", n_ff, n_embd, 1.4)
    recipe.matrix(f"{block}.ffn_up.weight", n_ff, n_embd, 1.4)
    recipe.matrix(f"{block}.ffn_down.weight", n_embd, n_ff)


def _blocks(recipe: Recipe, *norms: str) -> Iterable[tuple[int, str]]:
    """(index, name prefix) of each block, with the norms of its n_embd inputs written."""
    for index in range(recipe.model.n_layer):
        for norm in norms:
            recipe.norm(f"blk.{index}.{norm}.weight", recipe.model.n_embd)
        yield index, f"blk.{index}"


def _build_llama(recipe: Recipe) -> None:
    """Dense, rope on neighbouring pairs."""
    _ends(recipe)
    _attention_keys(recipe)
    for _, block in _blocks(recipe, "attn_norm", "ffn_norm"):
        _attention(recipe, block)
        _gated_ffn(recipe, block)


def _build_qwen3(recipe: Recipe) -> None:
    """Dense with norms on the heads of q and k; qwen3vl is the same with M-RoPE."""
    _ends(recipe)
    _attention_keys(recipe)
    for _, block in _blocks(recipe, "attn_norm", "ffn_norm"):
        _attention(recipe, block, qk_norm=True)
        _gated_ffn(recipe, block)


def _build_qwen2vl(recipe: Recipe) -> None:
    """Dense with biases on q, k, v, and M-RoPE whose sections lie one behind the other."""
    _ends(recipe)
    _attention_keys(recipe)
    for _, block in _blocks(recipe, "attn_norm", "ffn_norm"):
        _attention(recipe, block, qkv_bias=True)
        _gated_ffn(recipe, block)


def _build_gemma3(recipe: Recipe) -> None:
    """Sliding-window layers between full ones. Without a pattern key, every sixth layer is a full one."""
    model = recipe.model
    _ends(recipe)
    _attention_keys(recipe)
    recipe.key("attention.sliding_window", model.dims["n_swa"])
    if model.swa_pattern is not None:
        recipe.key("attention.sliding_window_pattern", model.swa_pattern)
    if model.rope_base_swa is not None:
        recipe.key("rope.freq_base_swa", model.rope_base_swa)
    for _, block in _blocks(recipe, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
        _attention(recipe, block, qk_norm=True)
        _gated_ffn(recipe, block)


def _build_starcoder2(recipe: Recipe) -> None:
    """Dense with LayerNorm, biases everywhere, and an ungated feed-forward."""
    dims, n_embd = recipe.model.dims, recipe.model.n_embd
    _ends(recipe, norm_bias=True)
    _attention_keys(recipe)
    del recipe.keys["starcoder2.attention.layer_norm_rms_epsilon"]
    recipe.key("attention.layer_norm_epsilon", recipe.model.eps)
    recipe.key("feed_forward_length", dims["n_ff"])
    for _, block in _blocks(recipe, "attn_norm", "ffn_norm"):
        _attention(recipe, block, qkv_bias=True)
        recipe.matrix(f"{block}.ffn_up.weight", dims["n_ff"], n_embd, 1.4)
        recipe.matrix(f"{block}.ffn_down.weight", n_embd, dims["n_ff"])
        for name in ("attn_norm", "attn_output", "ffn_norm", "ffn_down"):
            recipe.bias(f"{block}.{name}.bias", n_embd)
        recipe.bias(f"{block}.ffn_up.bias", dims["n_ff"])


def _build_mamba(recipe: Recipe) -> None:
    """Recurrent only: selective scan with a decay for each channel and state."""
    model, dims, n_embd = recipe.model, recipe.model.dims, recipe.model.n_embd
    d_inner, d_state, dt_rank = dims["d_inner"], dims["d_state"], dims["dt_rank"]
    _ends(recipe)
    recipe.key("attention.head_count", 0)
    recipe.key("feed_forward_length", 0)
    recipe.key("attention.layer_norm_rms_epsilon", model.eps)
    _ssm_keys(recipe, inner=d_inner, rank=dt_rank)
    for _, block in _blocks(recipe, "attn_norm"):
        recipe.matrix(f"{block}.ssm_in.weight", 2 * d_inner, n_embd, 1.4)
        recipe.matrix(f"{block}.ssm_conv1d.weight", d_inner, dims["d_conv"])
        recipe.bias(f"{block}.ssm_conv1d.bias", d_inner)
        recipe.matrix(f"{block}.ssm_x.weight", dt_rank + 2 * d_state, d_inner, 2.0)
        recipe.matrix(f"{block}.ssm_dt.weight", d_inner, dt_rank)
        recipe.uniform(f"{block}.ssm_dt.bias", d_inner, -3.0, -0.5)
        recipe.uniform(f"{block}.ssm_a", (d_inner, d_state), -4.0, -0.2)
        recipe.uniform(f"{block}.ssm_d", d_inner, 0.5, 1.5)
        recipe.matrix(f"{block}.ssm_out.weight", n_embd, d_inner)


def _ssm_keys(recipe: Recipe, inner: int, rank: int, groups: int | None = None) -> None:
    recipe.key("ssm.conv_kernel", recipe.model.dims["d_conv"])
    recipe.key("ssm.state_size", recipe.model.dims["d_state"])
    recipe.key("ssm.inner_size", inner)
    recipe.key("ssm.time_step_rank", rank)
    if groups is not None:
        recipe.key("ssm.group_count", groups)


def _build_falcon_h1(recipe: Recipe) -> None:
    """Hybrid: attention and a Mamba-2 mixer side by side in every layer, with all multipliers folded into weights."""
    dims, n_embd = recipe.model.dims, recipe.model.n_embd
    d_inner, n_group, n_heads = dims["d_inner"], dims["n_group"], dims["n_ssm_head"]
    conv_dim = dims["conv_dim"]
    _ends(recipe)
    _attention_keys(recipe)
    _ssm_keys(recipe, inner=d_inner, rank=n_heads, groups=n_group)
    for _, block in _blocks(recipe, "attn_norm"):
        # The loader wants this one name without its suffix.
        recipe.norm(f"{block}.ffn_norm", n_embd)
        _attention(recipe, block)
        _gated_ffn(recipe, block)
        recipe.matrix(f"{block}.ssm_in.weight", dims["in_width"], n_embd, 1.2)
        recipe.matrix(f"{block}.ssm_conv1d.weight", conv_dim, dims["d_conv"])
        recipe.bias(f"{block}.ssm_conv1d.bias", conv_dim)
        recipe.uniform(f"{block}.ssm_dt.bias", n_heads, -3.0, -0.5)
        recipe.uniform(f"{block}.ssm_a", (n_heads, 1), -4.0, -0.2)
        recipe.uniform(f"{block}.ssm_d", (n_heads, 1), 0.5, 1.5)
        if n_group > 1:
            recipe.norm(f"{block}.ssm_norm.weight", (n_group, d_inner // n_group))
        recipe.matrix(f"{block}.ssm_out.weight", n_embd, d_inner)


def _delta_net(recipe: Recipe, block: str, joint_beta_alpha: bool) -> None:
    """Gated delta net. joint_beta_alpha: one matrix [key head][beta or alpha][value head of it] in place of two."""
    dims, n_embd = recipe.model.dims, recipe.model.n_embd
    n_value_heads, value_dim, conv_dim = dims["n_value_heads"], dims["value_dim"], dims["conv_dim"]
    recipe.matrix(f"{block}.attn_qkv.weight", conv_dim, n_embd, 1.4)
    recipe.matrix(f"{block}.attn_gate.weight", value_dim, n_embd, 1.4)
    recipe.matrix(f"{block}.ssm_conv1d.weight", conv_dim, dims["d_conv"], 1.4)
    recipe.uniform(f"{block}.ssm_dt.bias", n_value_heads, -3.0, -0.5)
    recipe.uniform(f"{block}.ssm_a", n_value_heads, -4.0, -0.2)
    if joint_beta_alpha:
        recipe.matrix(f"{block}.ssm_ba.weight", 2 * n_value_heads, n_embd)
    else:
        recipe.matrix(f"{block}.ssm_beta.weight", n_value_heads, n_embd)
        recipe.matrix(f"{block}.ssm_alpha.weight", n_value_heads, n_embd)
    recipe.norm(f"{block}.ssm_norm.weight", dims["d_state"])
    recipe.matrix(f"{block}.ssm_out.weight", n_embd, value_dim)


def _mixture_of_experts(recipe: Recipe, block: str) -> None:
    dims, n_embd = recipe.model.dims, recipe.model.n_embd
    n_expert, n_ff, n_shared = dims["n_expert"], dims["n_ff_exp"], dims["n_ff_shexp"]
    recipe.matrix(f"{block}.ffn_gate_inp.weight", n_expert, n_embd, 2.0)
    recipe.matrix(f"{block}.ffn_gate_exps.weight", n_ff, n_embd, 1.4, batch=n_expert)
    recipe.matrix(f"{block}.ffn_up_exps.weight", n_ff, n_embd, 1.4, batch=n_expert)
    recipe.matrix(f"{block}.ffn_down_exps.weight", n_embd, n_ff, batch=n_expert)
    recipe.uniform(f"{block}.ffn_gate_inp_shexp.weight", n_embd, -0.25, 0.25)
    recipe.matrix(f"{block}.ffn_gate_shexp.weight", n_shared, n_embd, 1.4)
    recipe.matrix(f"{block}.ffn_up_shexp.weight", n_shared, n_embd, 1.4)
    recipe.matrix(f"{block}.ffn_down_shexp.weight", n_embd, n_shared)


def _delta_net_model(recipe: Recipe, joint_beta_alpha: bool, ffn: Callable[[Recipe, str], None]) -> None:
    model = recipe.model
    _ends(recipe)
    _attention_keys(recipe)
    _ssm_keys(recipe, model.dims["value_dim"], model.dims["n_value_heads"], model.dims["n_key_heads"])
    if model.recurrent_layers is not None:
        recipe.key("attention.recurrent_layers", list(model.recurrent_layers))
    if model.full_attention_interval is not None:
        recipe.key("full_attention_interval", model.full_attention_interval)
    for index, block in _blocks(recipe, "attn_norm", "post_attention_norm"):
        if model.is_recurrent_layer(index):
            _delta_net(recipe, block, joint_beta_alpha)
        else:
            _attention(recipe, block, qk_norm=True, gated=True)
        ffn(recipe, block)


def _build_qwen3next(recipe: Recipe) -> None:
    """Hybrid: layers with a gated delta net, layers with gated attention, experts in each."""
    dims = recipe.model.dims
    recipe.key("expert_count", dims["n_expert"])
    recipe.key("expert_used_count", dims["n_expert_used"])
    recipe.key("expert_feed_forward_length", dims["n_ff_exp"])
    recipe.key("expert_shared_feed_forward_length", dims["n_ff_shexp"])
    _delta_net_model(recipe, joint_beta_alpha=True, ffn=_mixture_of_experts)


def _build_qwen35(recipe: Recipe) -> None:
    """Hybrid: as qwen3next, but dense, with interleaved M-RoPE, and value heads in tiled order."""
    _delta_net_model(recipe, joint_beta_alpha=False, ffn=_gated_ffn)


_BUILDERS: Mapping[str, Callable[[Recipe], None]] = {
    "llama": _build_llama,
    "qwen3": _build_qwen3,
    "qwen3vl": _build_qwen3,
    "qwen2vl": _build_qwen2vl,
    "gemma3": _build_gemma3,
    "starcoder2": _build_starcoder2,
    "mamba": _build_mamba,
    "falcon-h1": _build_falcon_h1,
    "qwen3next": _build_qwen3next,
    "qwen35": _build_qwen35,
}


# ---------------------------------------------------------------------------------------------------------- the models


def _dims(n_ctx: int, n_vocab: int, n_embd: int, n_layer: int) -> dict[str, int]:
    return {"n_ctx": n_ctx, "n_vocab": n_vocab, "n_embd": n_embd, "n_layer": n_layer}


def _square_heads(n_head: int, n_head_kv: int, head_dim: int) -> dict[str, int]:
    """For architectures that demand n_head * head_dim == n_embd."""
    return {"n_head": n_head, "n_head_kv": n_head_kv, "head_dim": head_dim, "kv_width": n_head_kv * head_dim}


def _heads(n_head: int, n_head_kv: int, head_dim: int) -> dict[str, int]:
    return _square_heads(n_head, n_head_kv, head_dim) | {"q_width": n_head * head_dim}


def _mamba2(d_conv: int, d_state: int, n_group: int, n_ssm_head: int, ssm_head_dim: int) -> dict[str, int]:
    d_inner = n_ssm_head * ssm_head_dim
    conv_dim = d_inner + 2 * n_group * d_state
    heads = {"n_ssm_head": n_ssm_head, "ssm_head_dim": ssm_head_dim, "n_group": n_group}
    widths = {"d_inner": d_inner, "conv_dim": conv_dim, "in_width": d_inner + conv_dim + n_ssm_head}
    return {"d_conv": d_conv, "d_state": d_state} | heads | widths


def _delta(d_conv: int, d_state: int, n_key_heads: int, n_value_heads: int) -> dict[str, int]:
    key_dim, value_dim = n_key_heads * d_state, n_value_heads * d_state
    heads = {"n_key_heads": n_key_heads, "n_value_heads": n_value_heads}
    widths = {"key_dim": key_dim, "value_dim": value_dim, "conv_dim": 2 * key_dim + value_dim}
    return {"d_conv": d_conv, "d_state": d_state} | heads | widths


def _experts(n_expert: int, n_expert_used: int, n_ff_exp: int, n_ff_shexp: int) -> dict[str, int]:
    return {"n_expert": n_expert, "n_expert_used": n_expert_used, "n_ff_exp": n_ff_exp, "n_ff_shexp": n_ff_shexp}


def _list_dense() -> list[TinyModel]:
    llama = partial(TinyModel, arch="llama", structure="dense", rope="norm")
    qwen3 = partial(TinyModel, arch="qwen3", structure="dense", rope="neox")
    starcoder2 = partial(TinyModel, arch="starcoder2", structure="dense", rope="neox")
    llama_a = _dims(512, 293, 32, 3) | _heads(8, 4, 12) | {"n_ff": 160}
    llama_b = _dims(640, 317, 64, 2) | _heads(9, 3, 32) | {"n_ff": 128}
    llama_large = _dims(8192, 337, 256, 10) | _heads(20, 5, 24) | {"n_ff": 704}
    qwen3_a = _dims(512, 299, 32, 5) | _heads(4, 2, 40) | {"n_ff": 128}
    qwen3_b = _dims(640, 311, 64, 2) | _heads(9, 3, 32) | {"n_ff": 192}
    qwen3_none = _dims(768, 331, 96, 3) | _heads(24, 6, 8) | {"n_ff": 64}
    starcoder2_a = _dims(512, 307, 64, 3) | _square_heads(4, 2, 16) | {"n_ff": 160}
    starcoder2_b = _dims(640, 313, 96, 2) | _square_heads(12, 3, 8) | {"n_ff": 128}
    return [
        llama("llama-a", dims=llama_a, eps=1e-5, rope_base=1e4),
        llama("llama-b", dims=llama_b, eps=1e-6, rope_base=5e4, tied=True),
        # Not so tiny: for what takes time to cancel, or memory to share.
        llama("llama-large", dims=llama_large, eps=2e-6, rope_base=2e4),
        qwen3("qwen3-a", dims=qwen3_a, eps=1e-6, rope_base=1e6),
        qwen3("qwen3-b", dims=qwen3_b, eps=1e-5, rope_base=1e4, tied=True),
        qwen3("qwen3-none", dims=qwen3_none, eps=3e-6, rope_base=3e5, has_tokenizer=False),
        starcoder2("starcoder2-a", dims=starcoder2_a, eps=1e-5, rope_base=1e5),
        starcoder2("starcoder2-b", dims=starcoder2_b, eps=1e-6, rope_base=1e4, tied=True),
    ]


def _list_swa() -> list[TinyModel]:
    gemma3 = partial(TinyModel, arch="gemma3", structure="dense", rope="neox", tied=True, embedding_scale="tokens_only")
    gemma3_a = _dims(512, 303, 32, 7) | _heads(12, 3, 8) | {"n_ff": 64, "n_swa": 9}
    gemma3_b = _dims(640, 321, 96, 3) | _heads(4, 2, 32) | {"n_ff": 48, "n_swa": 14}
    return [
        gemma3("gemma3-a", dims=gemma3_a, eps=1e-6, rope_base=1e6),
        gemma3("gemma3-b", dims=gemma3_b, eps=1e-5, rope_base=2e5, swa_pattern=3, rope_base_swa=5e3),
    ]


def _list_mrope() -> list[TinyModel]:
    qwen2vl = partial(TinyModel, arch="qwen2vl", structure="dense", rope="mrope")
    qwen3vl = partial(TinyModel, arch="qwen3vl", structure="dense", rope="imrope")
    qwen2vl_a = _dims(512, 306, 96, 2) | _square_heads(6, 3, 16) | {"n_ff": 128}
    qwen2vl_b = _dims(640, 322, 128, 3) | _square_heads(16, 4, 8) | {"n_ff": 64}
    qwen3vl_a = _dims(512, 310, 64, 2) | _heads(6, 3, 16) | {"n_ff": 128}
    qwen3vl_b = _dims(640, 323, 32, 3) | _heads(12, 4, 24) | {"n_ff": 160}
    return [
        qwen2vl("qwen2vl-a", dims=qwen2vl_a, eps=1e-6, rope_base=1e6, sections=(4, 2, 2, 0)),
        qwen2vl("qwen2vl-b", dims=qwen2vl_b, eps=1e-5, rope_base=1e4, sections=(2, 1, 1, 0), tied=True),
        qwen3vl("qwen3vl-a", dims=qwen3vl_a, eps=1e-6, rope_base=5e6, sections=(3, 3, 2, 0)),
        qwen3vl("qwen3vl-b", dims=qwen3vl_b, eps=1e-5, rope_base=1e4, sections=(4, 4, 4, 0), tied=True),
    ]


def _list_recurrent() -> list[TinyModel]:
    mamba = partial(TinyModel, arch="mamba", structure="recurrent", rope="none", rope_base=0.0)
    mamba_a = _dims(512, 309, 32, 3) | {"d_inner": 64, "d_state": 16, "dt_rank": 6, "d_conv": 4}
    mamba_b = _dims(640, 315, 64, 4) | {"d_inner": 128, "d_state": 10, "dt_rank": 7, "d_conv": 3}
    return [mamba("mamba-a", dims=mamba_a, eps=1e-5), mamba("mamba-b", dims=mamba_b, eps=1e-6, tied=True)]


def _falcon_multipliers(scale: float) -> Mapping[str, tuple[float, ...]]:
    """All different from 1 and from one another."""
    table = {
        "embedding": (5.7,),
        "lm_head": (0.045,),
        "attention_in": (1.31,),
        "attention_out": (0.83,),
        "key": (0.41,),
        "ssm_in": (1.62,),
        "ssm_out": (0.57,),
        "mlp": (0.91, 0.37),
        "ssm": (0.35, 0.26, 0.18, 0.52, 0.67),
    }
    return {name: tuple(scale * value for value in values) for name, values in table.items()}


def _list_hybrid() -> list[TinyModel]:
    falcon = partial(TinyModel, arch="falcon-h1", structure="hybrid", rope="neox", embedding_scale="folded")
    qwen3next = partial(TinyModel, arch="qwen3next", structure="hybrid", rope="neox")
    qwen35 = partial(TinyModel, arch="qwen35", structure="hybrid", rope="imrope")
    falcon_a = _dims(512, 294, 64, 2) | _heads(12, 3, 8) | {"n_ff": 128} | _mamba2(4, 32, 1, 10, 16)
    falcon_b = _dims(640, 308, 32, 4) | _heads(10, 5, 16) | {"n_ff": 64} | _mamba2(3, 20, 2, 12, 24)
    next_a = (
        _dims(512, 295, 64, 3) | _heads(8, 4, 20) | {"rope_dim": 12} | _experts(6, 2, 10, 34) | _delta(5, 16, 7, 14)
    )
    next_b = (
        _dims(640, 319, 32, 4) | _heads(20, 5, 40) | {"rope_dim": 16} | _experts(11, 3, 14, 50) | _delta(6, 24, 2, 8)
    )
    qwen35_a = _dims(512, 301, 64, 3) | _heads(4, 2, 24) | {"rope_dim": 20, "n_ff": 112} | _delta(6, 16, 5, 10)
    qwen35_b = _dims(640, 305, 32, 4) | _heads(20, 5, 16) | {"rope_dim": 10, "n_ff": 64} | _delta(3, 24, 2, 8)
    middle, last = (True, False, True), (True, True, False)
    return [
        falcon("falcon-h1-a", dims=falcon_a, eps=1e-5, rope_base=1e6, multipliers=_falcon_multipliers(1.0)),
        falcon("falcon-h1-b", dims=falcon_b, eps=1e-6, rope_base=1e4, multipliers=_falcon_multipliers(1.13)),
        qwen3next("qwen3next-a", dims=next_a, eps=1e-6, rope_base=1e6, recurrent_layers=middle),
        qwen3next("qwen3next-b", dims=next_b, eps=1e-5, rope_base=1e4, full_attention_interval=4, tied=True),
        qwen35("qwen35-a", dims=qwen35_a, eps=1e-6, rope_base=1e6, recurrent_layers=last, sections=(4, 3, 3, 0)),
        qwen35(
            "qwen35-b",
            dims=qwen35_b,
            eps=1e-5,
            rope_base=1e4,
            full_attention_interval=4,
            sections=(2, 2, 1, 0),
            tied=True,
        ),
    ]


MODELS: Mapping[str, TinyModel] = {
    model.name: model for model in [*_list_dense(), *_list_swa(), *_list_mrope(), *_list_recurrent(), *_list_hybrid()]
}


# ------------------------------------------------------------------------------------------------------------- writing


def find_model(name: str) -> TinyModel:
    """Errors: UsageError that names the models there are."""
    if name not in MODELS:
        raise UsageError(f"There is no tiny model '{name}'.", f"The models are: {', '.join(MODELS)}.")
    return MODELS[name]


def file_name(name: str, dtype: str = "f32") -> str:
    """The name that write_models gives a file: llama-a.gguf, llama-a-q8_0.gguf."""
    return f"{name}.gguf" if dtype == "f32" else f"{name}-{dtype}.gguf"


def cook_recipe(model: TinyModel) -> Recipe:
    """All keys and tensors of a model, float32, in the row-major shapes of NumPy (the reverse of ggml's)."""
    recipe = Recipe(model)
    _BUILDERS[model.arch](recipe)
    recipe.keys.update(_tokenizer_keys(model))
    for name, values in model.multipliers.items():
        recipe.keys[f"{MULTIPLIER_PREFIX}{name}"] = list(values)
    return recipe


def write_model(model: TinyModel, path: Path, dtype: str = "f32") -> None:
    """Writes one file, whole or not at all; the same bytes on every run.

    dtype: of the weights that matrices are multiplied with; q8_0 falls back to f16 where a row is no multiple of 32.
    """
    if dtype not in DTYPES:
        raise UsageError(f"There is no weight type '{dtype}'.", f"The types are: {', '.join(DTYPES)}.")
    recipe = cook_recipe(model)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder) / "model.gguf"
        writer = gguf.GGUFWriter(str(temporary), model.arch)
        writer.add_name(f"tiny {model.name}")
        writer.add_file_type(_FILE_TYPE[dtype])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        for key, value in recipe.keys.items():
            _add_key(writer, key, value)
        for name, tensor in recipe.tensors.items():
            _add_tensor(writer, name, tensor, dtype)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        write_atomic(path, temporary.read_bytes())


def _add_key(writer: Any, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))


def is_matmul_weight(name: str) -> bool:
    """Whether a tensor may be stored in a smaller type: all others are read element by element and stay float32."""
    *_, stem, suffix = ("", *name.split("."))
    return suffix == "weight" and stem in _MATMUL_STEMS


def _add_tensor(writer: Any, name: str, tensor: FloatArray, dtype: str) -> None:
    if dtype == "f32" or not is_matmul_weight(name):
        writer.add_tensor(name, tensor)
    elif dtype == "q8_0" and tensor.shape[-1] % _Q8_BLOCK == 0:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, tensor.astype(np.float16))


def write_models(folder: Path, names: Iterable[str] = (), dtype: str = "f32") -> list[Path]:
    """Writes the named models, or all, into `folder` (created if absent), and returns their paths."""
    models = [find_model(name) for name in names] or list(MODELS.values())
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / file_name(model.name, dtype) for model in models]
    for model, path in zip(models, paths, strict=True):
        write_model(model, path, dtype)
    return paths


def folder_key() -> str:
    """Names the folder that generated files are kept in: changes with this file, and so with their bytes."""
    return hash_file(Path(__file__))[:16]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tiny_models", description="Writes tiny random models.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this model; may be repeated")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="type of the weights (default: f32)")
    options = parser.parse_args(arguments)
    try:
        paths = write_models(options.out, options.only, options.dtype)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for path in paths:
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
