"""PyTorch models with the weights of tiny GGUF files: what the engine's stages are compared with, without a checkpoint.

Every tensor is mapped by name and turned back into what its converter started from: q and k of llama to half-split
order, norms of gemma3 and qwen3next without the 1 that was added, multipliers of falcon-h1 out of the weights, decays
to logarithms, the joint projections of qwen3next. A tensor that is not mapped and a parameter that gets no value are
both errors. Three architectures borrow a class that computes the same for text, where all axes of M-RoPE hold the same
position: qwen2vl that of qwen2, qwen3vl that of qwen3, and qwen35 (which transformers 4.57 lacks) that of qwen3next
without experts. Needs the `export` extra.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import gguf
import numpy as np
import numpy.typing as npt

from sdk_tools.errors import BadInputError, UsageError
from sdk_tools.families.llm.stages import EMBEDS, HIDDEN, LOGITS, layer_hidden
from tests.tiny_models import MULTIPLIER_PREFIX

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FloatArray = npt.NDArray[np.float32]
Weights: TypeAlias = dict[str, FloatArray]


class GgufFile:
    """Keys and float32 tensors of a file. A tensor can be taken once; finish() says which never were."""

    def __init__(self, path: Path) -> None:
        reader: Any = gguf.GGUFReader(str(path))
        self.path = path
        self._keys = {name: field.contents() for name, field in reader.fields.items()}
        self.arch = str(self._keys["general.architecture"])
        self._tensors: Weights = {
            # A copy: what the reader gives is a view of the mapped file.
            tensor.name: np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            for tensor in reader.tensors
        }

    def key(self, name: str, default: Any = None) -> Any:
        """A key of the architecture, such as "attention.head_count". Errors: BadInputError if absent, no default."""
        return self.any_key(f"{self.arch}.{name}", default)

    def any_key(self, name: str, default: Any = None) -> Any:
        value = self._keys.get(name, default)
        if value is None:
            raise BadInputError(f"{self.path} has no key '{name}'.")
        return value

    def multiplier(self, name: str) -> Any:
        """A number, or a list of them; see MULTIPLIER_PREFIX."""
        values = self.any_key(f"{MULTIPLIER_PREFIX}{name}")
        return values[0] if len(values) == 1 else values

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str) -> FloatArray:
        """Errors: BadInputError that shows the nearest names of those left."""
        if name not in self._tensors:
            near = difflib.get_close_matches(name, self._tensors, n=3)
            raise BadInputError(f"{self.path} has no tensor '{name}' left.", f"The nearest are: {', '.join(near)}.")
        return self._tensors.pop(name)

    def finish(self) -> None:
        """Errors: BadInputError that names the tensors nobody took."""
        if self._tensors:
            raise BadInputError(f"{self.path}: these tensors are not mapped: {', '.join(sorted(self._tensors))}.")


@dataclass(frozen=True)
class Architecture:
    """How a GGUF architecture becomes a transformers model.

    config: keyword arguments of the configuration class. map_block: weights of block i, by name below prefix.i.
    """

    model_class: str
    config: Callable[[GgufFile], dict[str, Any]]
    map_block: Callable[[GgufFile, int], Weights]
    ends: Mapping[str, str]
    prefix: str = "model.layers"
    norm: str = "model.norm"
    norm_shift: float = 0.0


def _take_block(file: GgufFile, index: int, names: Mapping[str, str]) -> Weights:
    return {to: file.take(f"blk.{index}.{name}") for name, to in names.items()}


def _shift_norms(weights: Weights, shift: float, names: Iterable[str]) -> Weights:
    """Takes off what the converter added to norms whose class computes x * (1 + w)."""
    return weights | {name: weights[name] - np.float32(shift) for name in names if name in weights}


def _common_config(file: GgufFile) -> dict[str, Any]:
    return {
        "vocab_size": file.key("vocab_size"),
        "hidden_size": file.key("embedding_length"),
        "num_hidden_layers": file.key("block_count"),
        "max_position_embeddings": file.key("context_length"),
        "tie_word_embeddings": "output.weight" not in file,
    }


def _attention_config(file: GgufFile) -> dict[str, Any]:
    return _common_config(file) | {
        "num_attention_heads": file.key("attention.head_count"),
        "num_key_value_heads": file.key("attention.head_count_kv"),
        "head_dim": file.key("attention.key_length"),
        "rope_theta": file.key("rope.freq_base"),
    }


def _gated_config(file: GgufFile) -> dict[str, Any]:
    return _attention_config(file) | {
        "intermediate_size": file.key("feed_forward_length"),
        "rms_norm_eps": file.key("attention.layer_norm_rms_epsilon"),
    }


_ENDS = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_ATTENTION = {
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
}
_QK_NORM = {"attn_q_norm.weight": "self_attn.q_norm.weight", "attn_k_norm.weight": "self_attn.k_norm.weight"}
_GATED_FFN = {
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_TWO_NORMS = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
}

# --------------------------------------------------------------------------------------------------------------- dense


def join_rope_halves(weight: FloatArray, n_head: int) -> FloatArray:
    """Rows of each head from neighbouring pairs (x0 y0 x1 y1 ...) to halves (x0 x1 ... y0 y1 ...)."""
    rows, columns = weight.shape
    pairs = weight.reshape(n_head, rows // n_head // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)


def _map_llama(file: GgufFile, index: int) -> Weights:
    weights = _take_block(file, index, _TWO_NORMS | _ATTENTION | _GATED_FFN)
    for name, heads in (("q", "head_count"), ("k", "head_count_kv")):
        key = f"self_attn.{name}_proj.weight"
        weights[key] = join_rope_halves(weights[key], file.key(f"attention.{heads}"))
    return weights


def _map_qwen3(file: GgufFile, index: int) -> Weights:
    return _take_block(file, index, _TWO_NORMS | _ATTENTION | _QK_NORM | _GATED_FFN)


def _qwen2vl_config(file: GgufFile) -> dict[str, Any]:
    # The pinned llama.cpp does not read this architecture's epsilon, and computes with 0.
    return _gated_config(file) | {"rms_norm_eps": 0.0}


def _map_qwen2vl(file: GgufFile, index: int) -> Weights:
    biases = {f"attn_{name}.bias": f"self_attn.{name}_proj.bias" for name in ("q", "k", "v")}
    return _take_block(file, index, _TWO_NORMS | _ATTENTION | biases | _GATED_FFN)


_GEMMA3_NORMS = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}


def _gemma3_config(file: GgufFile) -> dict[str, Any]:
    config = _gated_config(file)
    pattern = file.key("attention.sliding_window_pattern", 6)
    kinds = ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(config["num_hidden_layers"])]
    return config | {
        "layer_types": kinds,
        "sliding_window": file.key("attention.sliding_window"),
        "rope_local_base_freq": file.key("rope.freq_base_swa", 10000.0),
        "query_pre_attn_scalar": config["head_dim"],
    }


def _map_gemma3(file: GgufFile, index: int) -> Weights:
    weights = _take_block(file, index, _GEMMA3_NORMS | _ATTENTION | _QK_NORM | _GATED_FFN)
    return _shift_norms(weights, 1.0, [*_GEMMA3_NORMS.values(), *_QK_NORM.values()])


def _starcoder2_config(file: GgufFile) -> dict[str, Any]:
    return _attention_config(file) | {
        "intermediate_size": file.key("feed_forward_length"),
        "norm_epsilon": file.key("attention.layer_norm_epsilon"),
        "sliding_window": None,
    }


def _map_starcoder2(file: GgufFile, index: int) -> Weights:
    ffn = {"ffn_up.weight": "mlp.c_fc.weight", "ffn_down.weight": "mlp.c_proj.weight"}
    names = _TWO_NORMS | _ATTENTION | ffn
    biases = {name.replace(".weight", ".bias"): to.replace(".weight", ".bias") for name, to in names.items()}
    return _take_block(file, index, names | biases)


# ----------------------------------------------------------------------------------------------------------- recurrent


def _log_decay(decay: FloatArray) -> FloatArray:
    """The converter stores -exp(A_log)."""
    return np.log(-decay)


def _mamba_config(file: GgufFile) -> dict[str, Any]:
    return _common_config(file) | {
        "state_size": file.key("ssm.state_size"),
        "conv_kernel": file.key("ssm.conv_kernel"),
        "expand": file.key("ssm.inner_size") // file.key("embedding_length"),
        "time_step_rank": file.key("ssm.time_step_rank"),
        "layer_norm_epsilon": file.key("attention.layer_norm_rms_epsilon"),
    }


def _map_mamba(file: GgufFile, index: int) -> Weights:
    names = {
        "attn_norm.weight": "norm.weight",
        "ssm_in.weight": "mixer.in_proj.weight",
        "ssm_conv1d.weight": "mixer.conv1d.weight",
        "ssm_conv1d.bias": "mixer.conv1d.bias",
        "ssm_x.weight": "mixer.x_proj.weight",
        "ssm_dt.weight": "mixer.dt_proj.weight",
        "ssm_dt.bias": "mixer.dt_proj.bias",
        "ssm_a": "mixer.A_log",
        "ssm_d": "mixer.D",
        "ssm_out.weight": "mixer.out_proj.weight",
    }
    weights = _take_block(file, index, names)
    weights["mixer.A_log"] = _log_decay(weights["mixer.A_log"])
    weights["mixer.conv1d.weight"] = weights["mixer.conv1d.weight"][:, None, :]
    return weights


# -------------------------------------------------------------------------------------------------------------- hybrid


def _falcon_h1_config(file: GgufFile) -> dict[str, Any]:
    n_ssm_head, d_inner = file.key("ssm.time_step_rank"), file.key("ssm.inner_size")
    config = _gated_config(file) | {
        "mamba_d_ssm": d_inner,
        "mamba_n_heads": n_ssm_head,
        "mamba_d_head": d_inner // n_ssm_head,
        "mamba_n_groups": file.key("ssm.group_count"),
        "mamba_d_state": file.key("ssm.state_size"),
        "mamba_d_conv": file.key("ssm.conv_kernel"),
        "mamba_rms_norm": "blk.0.ssm_norm.weight" in file,
        # The engine's graph gates first; a checkpoint that does not cannot be converted rightly.
        "mamba_norm_before_gate": False,
        "mlp_multipliers": file.multiplier("mlp"),
        "ssm_multipliers": file.multiplier("ssm"),
    }
    for name in ("embedding", "lm_head", "attention_in", "attention_out", "key", "ssm_in", "ssm_out"):
        config[f"{name}_multiplier"] = file.multiplier(name)
    return config


_FALCON_H1 = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm": "pre_ff_layernorm.weight",
    "ffn_gate.weight": "feed_forward.gate_proj.weight",
    "ffn_up.weight": "feed_forward.up_proj.weight",
    "ffn_down.weight": "feed_forward.down_proj.weight",
    "ssm_in.weight": "mamba.in_proj.weight",
    "ssm_conv1d.weight": "mamba.conv1d.weight",
    "ssm_conv1d.bias": "mamba.conv1d.bias",
    "ssm_dt.bias": "mamba.dt_bias",
    "ssm_a": "mamba.A_log",
    "ssm_d": "mamba.D",
    "ssm_out.weight": "mamba.out_proj.weight",
}


def _falcon_divisors(file: GgufFile) -> dict[str, Any]:
    """What each weight was multiplied by when it was converted: a number, or a column with one for each row."""
    attention_in, mlp = file.multiplier("attention_in"), file.multiplier("mlp")
    states = file.key("ssm.group_count") * file.key("ssm.state_size")
    d_inner, n_ssm_head = file.key("ssm.inner_size"), file.key("ssm.time_step_rank")
    rows = np.repeat(file.multiplier("ssm"), [d_inner, d_inner, states, states, n_ssm_head])
    return {
        "self_attn.q_proj.weight": attention_in,
        "self_attn.k_proj.weight": attention_in * file.multiplier("key"),
        "self_attn.v_proj.weight": attention_in,
        "self_attn.o_proj.weight": file.multiplier("attention_out"),
        "feed_forward.gate_proj.weight": mlp[0],
        "feed_forward.down_proj.weight": mlp[1],
        "mamba.in_proj.weight": rows[:, None] * file.multiplier("ssm_in"),
        "mamba.out_proj.weight": file.multiplier("ssm_out"),
    }


def _map_falcon_h1(file: GgufFile, index: int) -> Weights:
    weights = _take_block(file, index, _FALCON_H1 | _ATTENTION)
    norm = f"blk.{index}.ssm_norm.weight"
    if norm in file:
        weights["mamba.norm.weight"] = file.take(norm).reshape(-1)
    weights["mamba.conv1d.weight"] = weights["mamba.conv1d.weight"][:, None, :]
    weights["mamba.A_log"] = _log_decay(weights["mamba.A_log"]).reshape(-1)
    weights["mamba.D"] = weights["mamba.D"].reshape(-1)
    for name, divisor in _falcon_divisors(file).items():
        weights[name] = (weights[name].astype(np.float64) / divisor).astype(np.float32)
    return weights


def _delta_net_config(file: GgufFile) -> dict[str, Any]:
    n_layer, n_value_heads = file.key("block_count"), file.key("ssm.time_step_rank")
    interval = file.key("full_attention_interval", 4)
    recurrent = file.key("attention.recurrent_layers", [(i + 1) % interval != 0 for i in range(n_layer)])
    return _attention_config(file) | {
        "rms_norm_eps": file.key("attention.layer_norm_rms_epsilon"),
        "partial_rotary_factor": file.key("rope.dimension_count") / file.key("attention.key_length"),
        "layer_types": ["linear_attention" if flag else "full_attention" for flag in recurrent],
        "linear_conv_kernel_dim": file.key("ssm.conv_kernel"),
        "linear_key_head_dim": file.key("ssm.state_size"),
        "linear_value_head_dim": file.key("ssm.inner_size") // n_value_heads,
        "linear_num_key_heads": file.key("ssm.group_count"),
        "linear_num_value_heads": n_value_heads,
    }


def _qwen3next_config(file: GgufFile) -> dict[str, Any]:
    return _delta_net_config(file) | {
        "num_experts": file.key("expert_count"),
        "num_experts_per_tok": file.key("expert_used_count"),
        "moe_intermediate_size": file.key("expert_feed_forward_length"),
        "shared_expert_intermediate_size": file.key("expert_shared_feed_forward_length"),
    }


def _qwen35_config(file: GgufFile) -> dict[str, Any]:
    n_layer, n_ff = file.key("block_count"), file.key("feed_forward_length")
    return _delta_net_config(file) | {"mlp_only_layers": list(range(n_layer)), "intermediate_size": n_ff}


def _join_by_key_head(file: GgufFile, parts: Iterable[FloatArray]) -> FloatArray:
    """Rows [part 0 | part 1 ...], each ordered by key head, to one group for each key head with its rows of all."""
    grouped = [part.reshape(file.key("ssm.group_count"), -1, part.shape[-1]) for part in parts]
    joined = np.concatenate(grouped, axis=1)
    return joined.reshape(-1, joined.shape[-1])


def _split_qkv(file: GgufFile, rows: FloatArray) -> list[FloatArray]:
    key_dim = file.key("ssm.group_count") * file.key("ssm.state_size")
    return [rows[:key_dim], rows[key_dim : 2 * key_dim], rows[2 * key_dim :]]


def group_value_heads(file: GgufFile, rows: FloatArray) -> FloatArray:
    """Value heads from tiled order (the first of each key head, the second of each ...) to that of their key heads."""
    n_key_heads, n_value_heads = file.key("ssm.group_count"), file.key("ssm.time_step_rank")
    tiled = rows.reshape(n_value_heads // n_key_heads, n_key_heads, -1, *rows.shape[1:])
    return np.ascontiguousarray(tiled.swapaxes(0, 1)).reshape(rows.shape)


_DELTA_NET = {
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
}


def _map_delta_net(file: GgufFile, index: int) -> Weights:
    weights = _take_block(file, index, _DELTA_NET | {"ssm_ba.weight": "linear_attn.in_proj_ba.weight"})
    qkv, z = file.take(f"blk.{index}.attn_qkv.weight"), file.take(f"blk.{index}.attn_gate.weight")
    weights["linear_attn.in_proj_qkvz.weight"] = _join_by_key_head(file, [*_split_qkv(file, qkv), z])
    weights["linear_attn.conv1d.weight"] = weights["linear_attn.conv1d.weight"][:, None, :]
    weights["linear_attn.A_log"] = _log_decay(weights["linear_attn.A_log"])
    return weights


def _map_tiled_delta_net(file: GgufFile, index: int) -> Weights:
    weights = _take_block(file, index, _DELTA_NET)
    q, k, v = _split_qkv(file, file.take(f"blk.{index}.attn_qkv.weight"))
    z, beta, alpha = (file.take(f"blk.{index}.{name}.weight") for name in ("attn_gate", "ssm_beta", "ssm_alpha"))
    v, z, beta, alpha = (group_value_heads(file, rows) for rows in (v, z, beta, alpha))
    weights["linear_attn.in_proj_qkvz.weight"] = _join_by_key_head(file, [q, k, v, z])
    weights["linear_attn.in_proj_ba.weight"] = _join_by_key_head(file, [beta, alpha])
    q, k, v = _split_qkv(file, weights["linear_attn.conv1d.weight"])
    weights["linear_attn.conv1d.weight"] = np.concatenate([q, k, group_value_heads(file, v)])[:, None, :]
    weights["linear_attn.A_log"] = group_value_heads(file, _log_decay(weights["linear_attn.A_log"]))
    weights["linear_attn.dt_bias"] = group_value_heads(file, weights["linear_attn.dt_bias"])
    out = weights["linear_attn.out_proj.weight"]
    weights["linear_attn.out_proj.weight"] = np.ascontiguousarray(group_value_heads(file, out.T).T)
    return weights


def _map_experts(file: GgufFile, index: int) -> Weights:
    names = {
        "ffn_gate_inp.weight": "mlp.gate.weight",
        "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
        "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
        "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
    }
    weights = _take_block(file, index, names)
    weights["mlp.shared_expert_gate.weight"] = file.take(f"blk.{index}.ffn_gate_inp_shexp.weight")[None, :]
    for kind in ("gate", "up", "down"):
        for expert, weight in enumerate(file.take(f"blk.{index}.ffn_{kind}_exps.weight")):
            weights[f"mlp.experts.{expert}.{kind}_proj.weight"] = weight
    return weights


_BLOCK_NORMS = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
}


def _map_hybrid_block(file: GgufFile, index: int, map_mixer: Callable[[GgufFile, int], Weights]) -> Weights:
    """Norms, and either full attention or the delta net that map_mixer maps."""
    weights = _take_block(file, index, _BLOCK_NORMS)
    if f"blk.{index}.ssm_a" in file:
        weights |= map_mixer(file, index)
    else:
        weights |= _take_block(file, index, _ATTENTION | _QK_NORM)
    return _shift_norms(weights, 1.0, [*_BLOCK_NORMS.values(), *_QK_NORM.values()])


def _map_qwen3next(file: GgufFile, index: int) -> Weights:
    return _map_hybrid_block(file, index, _map_delta_net) | _map_experts(file, index)


def _map_qwen35(file: GgufFile, index: int) -> Weights:
    return _map_hybrid_block(file, index, _map_tiled_delta_net) | _take_block(file, index, _GATED_FFN)


# --------------------------------------------------------------------------------------------------------------- whole

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", _gated_config, _map_llama, _ENDS),
    "qwen3": Architecture("Qwen3ForCausalLM", _gated_config, _map_qwen3, _ENDS),
    "qwen3vl": Architecture("Qwen3ForCausalLM", _gated_config, _map_qwen3, _ENDS),
    "qwen2vl": Architecture("Qwen2ForCausalLM", _qwen2vl_config, _map_qwen2vl, _ENDS),
    "gemma3": Architecture("Gemma3ForCausalLM", _gemma3_config, _map_gemma3, _ENDS, norm_shift=1.0),
    "starcoder2": Architecture(
        "Starcoder2ForCausalLM", _starcoder2_config, _map_starcoder2, _ENDS | {"output_norm.bias": "model.norm.bias"}
    ),
    "mamba": Architecture(
        "MambaForCausalLM",
        _mamba_config,
        _map_mamba,
        {"token_embd.weight": "backbone.embeddings.weight", "output_norm.weight": "backbone.norm_f.weight"},
        prefix="backbone.layers",
        norm="backbone.norm_f",
    ),
    "falcon-h1": Architecture(
        "FalconH1ForCausalLM",
        _falcon_h1_config,
        _map_falcon_h1,
        {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.final_layernorm.weight"},
        norm="model.final_layernorm",
    ),
    "qwen3next": Architecture("Qwen3NextForCausalLM", _qwen3next_config, _map_qwen3next, _ENDS, norm_shift=1.0),
    "qwen35": Architecture("Qwen3NextForCausalLM", _qwen35_config, _map_qwen35, _ENDS, norm_shift=1.0),
}


def _find_architecture(file: GgufFile) -> Architecture:
    if file.arch not in ARCHITECTURES:
        raise UsageError(
            f"{file.path} is a '{file.arch}' model, for which there is no PyTorch reference.",
            f"There is one for: {', '.join(ARCHITECTURES)}.",
        )
    return ARCHITECTURES[file.arch]


def map_weights(file: GgufFile) -> Weights:
    """All parameters of the transformers model, by name. Errors: BadInputError for a missing or unmapped tensor."""
    architecture = _find_architecture(file)
    weights = {to: file.take(name) for name, to in architecture.ends.items()}
    embedding, norm = architecture.ends["token_embd.weight"], architecture.ends["output_norm.weight"]
    weights = _shift_norms(weights, architecture.norm_shift, [norm])
    weights["lm_head.weight"] = file.take("output.weight") if "output.weight" in file else weights[embedding]
    if file.arch == "falcon-h1":
        weights[embedding] = weights[embedding] / np.float32(file.multiplier("embedding"))
        weights["lm_head.weight"] = weights["lm_head.weight"] / np.float32(file.multiplier("lm_head"))
    for index in range(file.key("block_count")):
        block = architecture.map_block(file, index)
        weights |= {f"{architecture.prefix}.{index}.{name}": weight for name, weight in block.items()}
    file.finish()
    return weights


def load_reference(path: Path, half_gelu: bool = False) -> PreTrainedModel:
    """The float32 transformers model with the weights of a tiny GGUF file, ready for reference_stages.

    half_gelu: computes GELU as ggml's CPU backend does, from a table with float16 arguments and values. Without it,
    architectures with GELU (gemma3, starcoder2) differ from the engine by about 3e-4 of the logits' scale.
    Errors: UsageError for an architecture without a class, BadInputError for tensors that do not fit.
    """
    import torch
    import transformers

    file = GgufFile(path)
    architecture = _find_architecture(file)
    model_class = getattr(transformers, architecture.model_class)
    # Before the weights are mapped: configurations look at which tensors there are.
    config = model_class.config_class(**architecture.config(file))
    config._attn_implementation = "eager"
    weights = map_weights(file)
    model: PreTrainedModel = model_class(config).to(torch.float32).eval()
    _check_fit(path, {name: tuple(value.shape) for name, value in model.state_dict().items()}, weights)
    model.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights.items()})
    if half_gelu:
        _use_half_gelu(model)
    return model


def _check_fit(path: Path, parameters: Mapping[str, tuple[int, ...]], weights: Weights) -> None:
    missing, unknown = sorted(parameters.keys() - weights.keys()), sorted(weights.keys() - parameters.keys())
    if missing or unknown:
        raise BadInputError(f"{path}: parameters without a tensor: {missing}; tensors without a parameter: {unknown}.")
    for name, shape in parameters.items():
        if weights[name].shape != shape:
            raise BadInputError(f"{path}: '{name}' is {weights[name].shape} in the file, and {shape} in the model.")


def _use_half_gelu(model: PreTrainedModel) -> None:
    import torch

    def half_gelu(x: torch.Tensor) -> torch.Tensor:
        value = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x <= -10.0, torch.zeros_like(x), torch.where(x >= 10.0, x, value))

    for name, module in model.named_modules():
        if name.endswith(".mlp"):
            attribute = "act_fn" if hasattr(module, "act_fn") else "act"
            # A registered submodule cannot be assigned a function.
            delattr(module, attribute)
            setattr(module, attribute, half_gelu)


def reference_stages(model: PreTrainedModel, token_ids: Iterable[int]) -> dict[str, FloatArray]:
    """Every stage but the ids: [positions][width] float32 by stage name, in the order they are computed."""
    import torch

    architecture = next(a for a in ARCHITECTURES.values() if a.model_class == type(model).__name__)
    captured: dict[str, FloatArray] = {}

    def keep(stage: str, value: Any) -> None:
        tensor = value[0] if isinstance(value, tuple) else value
        captured[stage] = tensor.detach().reshape(-1, tensor.shape[-1]).numpy().astype(np.float32)

    layers = model.get_submodule(architecture.prefix)
    handles = [
        layers[0].register_forward_pre_hook(
            lambda _module, args, kwargs: keep(EMBEDS, args[0] if args else kwargs["hidden_states"]), with_kwargs=True
        ),
        model.get_submodule(architecture.norm).register_forward_hook(lambda _m, _a, output: keep(HIDDEN, output)),
    ]
    for index, layer in enumerate(layers):
        stage = layer_hidden(index)
        handles.append(layer.register_forward_hook(lambda _m, _a, output, stage=stage: keep(stage, output)))
    try:
        with torch.no_grad():
            output = model(torch.tensor([list(token_ids)]), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    keep(LOGITS, output.logits)
    return captured
