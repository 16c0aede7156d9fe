"""The PyTorch reference of a language model: transformers' float32 forward pass, stage by stage.

The only place of this family that imports torch and transformers, and only when it is called.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sdk_tools.errors import BadInputError, MissingToolError, SyrinxError, UsageError
from sdk_tools.families.llm import stages
from sdk_tools.gguf_io import StageDump
from sdk_tools.lab.compare import FloatArray
from sdk_tools.progress import Reporter, Silent

_PACKAGES = ("torch", "transformers", "gguf", "accelerate")
_INSTALL_HINT = "Install the reference's packages: pip install 'syrinx-sdk-tools[export]'"
_SHOWN = 5
# Keys of an architecture in GGUF, and what transformers calls them.
_CONFIG_KEYS = {"rope.freq_base": "rope_theta", "attention.key_length": "head_dim"}
_BLOCK_LISTS = ("layers", "h", "blocks")


class TorchReference:
    """A causal language model in float32 with eager attention, on the CPU. Made by load_gguf or load_checkpoint."""

    def __init__(self, model: Any, tokenize: Callable[[str], list[int]], name: str) -> None:
        self._model = model
        self._tokenize = tokenize
        self._blocks = _find_blocks(model, name)
        self.name = name

    @property
    def n_layer(self) -> int:
        return len(self._blocks)

    def tokenize(self, text: str) -> list[int]:
        """The ids of a raw prompt, with the special tokens that the model wants around it. Errors: BadInputError."""
        try:
            return self._tokenize(text)
        except SyrinxError:
            raise
        except Exception as error:
            what = f"transformers cannot make a tokenizer from {self.name}"
            raise _explain(what, error, "Give token ids in place of text: --tokens 1,2,3") from error

    def compute(self, ids: Sequence[int], wanted: Sequence[str] | None = None) -> StageDump:
        """Runs the ids through the model; one row an id for every stage in `wanted` (None: all).

        Errors: UsageError (an id outside the vocabulary).
        """
        import torch
        import transformers

        n_vocab = int(self._model.get_input_embeddings().weight.shape[0])
        bad = [value for value in ids if not 0 <= value < n_vocab]
        if bad or not ids:
            what = (
                f"The token id {bad[0]} is outside the vocabulary of {n_vocab}." if bad else "There are no token ids."
            )
            raise UsageError(what, "Give ids with --tokens, or text with --prompt.")
        captured: dict[str, FloatArray] = {}
        with self._hooks(captured), torch.inference_mode():
            output = self._model(input_ids=torch.tensor([list(ids)]), use_cache=False)
        captured[stages.LOGITS] = _to_rows(output.logits)
        chosen = stages.list_stages(self.n_layer) if wanted is None else wanted
        kept = {stage: captured[stage] for stage in stages.sort_stages(captured) if stage in chosen}
        return StageDump(kept, tuple(ids), 0, f"torch {torch.__version__}, transformers {transformers.__version__}")

    @contextlib.contextmanager
    def _hooks(self, captured: dict[str, FloatArray]) -> Iterator[None]:
        """Taps the blocks themselves: in transformers' own hidden_states the last entry is already normed."""

        def enter_first(_module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            captured[stages.EMBEDS] = _to_rows(arguments[0] if arguments else keywords["hidden_states"])

        def leave_block(layer: int) -> Callable[[Any, Any, Any], None]:
            def hook(_module: Any, _arguments: Any, output: Any) -> None:
                captured[stages.layer_hidden(layer)] = _to_rows(output[0] if isinstance(output, tuple) else output)

            return hook

        def enter_head(_module: Any, arguments: tuple[Any, ...]) -> None:
            captured[stages.HIDDEN] = _to_rows(arguments[0])

        handles = [
            self._blocks[0].register_forward_pre_hook(enter_first, with_kwargs=True),
            self._model.get_output_embeddings().register_forward_pre_hook(enter_head),
            *(block.register_forward_hook(leave_block(layer)) for layer, block in enumerate(self._blocks)),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def load_gguf(path: Path, reporter: Reporter | None = None) -> TorchReference:
    """Reads a GGUF file's weights, dequantized to float32. Errors: MissingToolError, BadInputError, UsageError."""
    if not path.is_file():
        raise BadInputError(f"There is no file {path}.")
    hint = "For an architecture that transformers cannot read from GGUF, give the checkpoint: --reference HF_DIR"
    folder, options = str(path.parent.absolute()), {"gguf_file": path.name}
    model = _load_model(folder, str(path), options, reporter, hint, lambda config: _complete_config(config, path))
    return TorchReference(model, lambda text: _tokenize_as_gguf(path, folder, text), str(path))


def load_checkpoint(folder: Path, reporter: Reporter | None = None) -> TorchReference:
    """Reads a Hugging Face checkpoint folder. Errors: MissingToolError, BadInputError."""
    if not (folder / "config.json").is_file():
        raise BadInputError(
            f"{folder} is not a Hugging Face checkpoint: it has no config.json.",
            "Give a checkpoint folder, a dump (.npz or .gguf), or the word gguf.",
        )
    path = str(folder.absolute())
    model = _load_model(path, str(folder), {}, reporter, "Check that the checkpoint is complete.")
    return TorchReference(model, lambda text: _tokenize(path, text, {}, add_special_tokens=True), str(folder))


def _load_model(
    folder: str,
    name: str,
    options: dict[str, str],
    reporter: Reporter | None,
    hint: str,
    complete_config: Callable[[Any], None] = lambda _config: None,
) -> Any:
    _require_packages()
    _quieten_libraries()
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        with (reporter or Silent()).step(f"Loading the PyTorch reference from {Path(name).name}"):
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, **options)
            complete_config(config)
            model, loading = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:
        raise _explain(f"transformers cannot load {name}", error, hint) from error
    # transformers fills what it does not find with random numbers, and only warns.
    missing = sorted(loading["missing_keys"])
    if missing:
        shown = ", ".join(missing[:_SHOWN])
        raise BadInputError(f"{name} lacks {len(missing)} weights that transformers expects: {shown}.", hint)
    return model.eval()


def _tokenize(folder: str, text: str, options: dict[str, str], *, add_special_tokens: bool) -> list[int]:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
    return [int(value) for value in tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]]


def _tokenize_as_gguf(path: Path, folder: str, text: str) -> list[int]:
    """Begin and end tokens as the file's own keys say: transformers adds them by the class of the tokenizer."""
    keys = _read_keys(path)

    def read(key: str, default: Any) -> Any:
        return keys.get(f"tokenizer.ggml.{key}", default)

    ids = _tokenize(folder, text, {"gguf_file": path.name}, add_special_tokens=False)
    # Without the key, SentencePiece models begin with BOS and the others do not.
    begin = [int(read("bos_token_id", 1))] if read("add_bos_token", read("model", "") == "llama") else []
    end = [int(read("eos_token_id", 2))] if read("add_eos_token", False) else []
    return begin + ids + end


def _complete_config(config: Any, path: Path) -> None:
    """Sets what transformers leaves at its default, for some architectures, though the file says it."""
    keys = _read_keys(path)
    architecture = keys.get("general.architecture")
    for key, attribute in _CONFIG_KEYS.items():
        value = keys.get(f"{architecture}.{key}")
        if value is not None and hasattr(config, attribute):
            setattr(config, attribute, value)


def _read_keys(path: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    reader: Any = GGUFReader(str(path))
    # Vocabularies are long lists, slow to read and of no use here.
    return {name: field.contents() for name, field in reader.fields.items() if len(field.data) <= 1}


def _require_packages() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingToolError(f"The PyTorch reference needs {', '.join(missing)}, not installed here.", _INSTALL_HINT)


def _quieten_libraries() -> None:
    """Before their import: no network, and no bars beside ours."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _explain(what: str, error: Exception, hint: str = "") -> SyrinxError:
    """transformers raises anything from KeyError to RuntimeError for files it cannot make sense of."""
    if isinstance(error, MemoryError):
        return BadInputError(f"{what}: there is not enough memory.")
    reason = " ".join(str(error).split())
    return BadInputError(f"{what}: {type(error).__name__}: {reason[:500]}", hint)


def _find_blocks(model: Any, name: str) -> Any:
    for part in (model.get_decoder(), model.base_model):
        for attribute in _BLOCK_LISTS:
            blocks = getattr(part, attribute, None)
            if blocks is not None and len(blocks):
                return blocks
    raise BadInputError(
        f"{name}: {type(model).__name__} has no list of blocks that is known here.",
        f"The blocks are looked for as {', '.join(_BLOCK_LISTS)} of its base model.",
    )


def _to_rows(tensor: Any) -> FloatArray:
    """[1][rows][width] to a copy of [rows][width]."""
    return np.array(tensor.detach().float().numpy()[0], np.float32)
