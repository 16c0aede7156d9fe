"""The engine in this process: the C ABI as Python objects, numpy arrays in and out.

    with Engine() as engine, engine.open_model(path) as model, model.open_context() as context:
        hidden, logits = context.prefill_tokens(model.tokenize("Hello"))

Every failed call raises the matching error of sdk_tools.errors with the engine's own text, and an argument of the wrong
kind is a UsageError. Objects are context managers; closing twice does nothing, and a call on a closed one raises
ClosedError. ctypes releases the interpreter lock, so other threads run while the engine computes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from sdk_tools import abi
from sdk_tools.abi import BusyError, ClosedError, ContextFullError, Status
from sdk_tools.arguments import (
    Floats,
    Ids,
    as_bytes,
    as_flag,
    as_floats,
    as_ids,
    as_integer,
    as_list,
    as_real,
    encode_path,
    encode_text,
    require_callable,
    require_type,
)
from sdk_tools.errors import Cancelled, InternalError, UsageError

__all__ = [
    "BusyError", "ClosedError", "Context", "ContextFullError", "ContextParams", "Engine", "Finish", "Generated",
    "HandoverReport", "KvType", "LogLevel", "Message", "Model", "ModelFacts", "ModelParams", "Rendered", "Sampler",
    "SamplerParams", "run_interruptible",
]  # fmt: skip

Result = TypeVar("Result")
Self = TypeVar("Self", bound="_Handle")
Fellow = TypeVar("Fellow", bound="_Handle")

_FLAGS = frozenset(
    {"use_mmap", "use_repack", "check_tensors", "kv_unified", "flash_attention", "full_swa", "embeds_are_scaled"}
)
_REALS = frozenset({"temperature", "top_p", "repetition_penalty"})


class LogLevel(IntEnum):
    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3


class Structure(IntEnum):
    DENSE = 0
    RECURRENT = 1
    HYBRID = 2


class Rope(IntEnum):
    NONE = 0
    NORM = 1
    NEOX = 2
    MROPE = 3
    IMROPE = 4
    VISION = 5


class EmbeddingScale(IntEnum):
    NONE = 0
    TOKENS_ONLY = 1
    FOLDED = 2


class KvType(IntEnum):
    F16 = 0
    F32 = 1
    BF16 = 2
    Q8_0 = 3
    Q4_0 = 4


class Finish(IntEnum):
    EOS = 0
    STOP = 1
    LENGTH = 2
    CONTEXT = 3


@dataclass(frozen=True)
class ModelParams:
    """device "" is the CPU. See syrinx_model_params."""

    device: str = ""
    n_gpu_layers: int = -1
    use_mmap: bool = True
    use_repack: bool | None = None  # None: the engine's default
    check_tensors: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """See syrinx_model_facts. n_bytes: of tensor data."""

    architecture: str
    structure: Structure
    rope: Rope
    n_layer: int
    n_embd: int
    n_embd_out: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    n_ctx_train: int
    n_swa: int
    has_tokenizer: bool
    has_chat_template: bool
    embedding_scale: EmbeddingScale
    embedding_multiplier: float
    n_params: int
    n_bytes: int
    fingerprint: int


@dataclass(frozen=True)
class ContextParams:
    """None is the engine's default. See syrinx_context_params."""

    n_ctx: int | None = None
    n_batch: int | None = None
    n_outputs: int | None = None
    n_seq_max: int | None = None
    kv_unified: bool | None = None
    n_threads: int | None = None
    n_threads_batch: int | None = None
    poll: int | None = None
    type_k: KvType | None = None
    type_v: KvType | None = None
    flash_attention: bool | None = None
    full_swa: bool | None = None
    embeds_are_scaled: bool | None = None


@dataclass(frozen=True)
class SamplerParams:
    """None is the engine's default: greedy, everything off. See syrinx_sampler_params."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    penalty_window: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True)
class Rendered:
    """A chat template's result."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class HandoverReport:
    """bytes: moved, header included. Times in milliseconds."""

    bytes: int
    save_ms: float
    load_ms: float
    n_past: int


@dataclass(frozen=True)
class Generated:
    """text: without the stop string. tokens: as generated. Times in milliseconds, load not included."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish
    n_prompt: int
    n_generated: int
    prefill_ms: float
    handover_ms: float
    decode_ms: float
    handover_bytes: int


class _Handle:
    """A native object and the function that closes it."""

    def __init__(
        self, library: ctypes.CDLL, pointer: ctypes.c_void_p, close: Callable[[ctypes.c_void_p], None]
    ) -> None:
        self._library = library
        self._pointer = pointer
        self._close = close
        self._closed = False

    def __enter__(self: Self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what runs on the object, waits for it, and frees it. May be called from any thread, and twice."""
        # The engine ignores a handle that is closed already; it is kept, so that later calls answer ClosedError.
        if getattr(self, "_pointer", None):
            self._closed = True
            self._close(self._pointer)

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError(f"This {self._name} is closed.")

    def _require_fellow(self, name: str, other: object, kind: type[Fellow]) -> Fellow:
        """`other`, if it is open, of that class and of the same library. Errors: UsageError, ClosedError."""
        fellow = require_type(name, other, kind)
        fellow._require_open()
        if fellow._library._handle != self._library._handle:
            raise UsageError(f"{name} belongs to another engine library.")
        return fellow

    def _check(self, status: int, *others: _Handle) -> None:
        """others: further objects that the call uses."""
        if status == Status.OK:
            return
        # Busy and closed are answered before the object is entered: the engine has no text for them.
        objects = list(dict.fromkeys((self, *others)))
        if status == Status.ERR_BUSY:
            names = " or the ".join(handle._name for handle in objects)
            raise BusyError(f"This {names} is busy: another thread is inside a call on it.")
        closed = next((handle for handle in objects if handle._closed), self)
        if status == Status.ERR_CLOSED:
            raise ClosedError(f"This {closed._name} is closed.")
        if status == Status.ERR_CANCELLED and closed._closed:
            raise Cancelled(f"This {closed._name} was closed while a call was running on it.")
        raise abi.make_error(status, self._text())

    def _text(self) -> str:
        return str(self._library.syrinx_last_error(self._pointer).decode(errors="replace"))


class Engine(_Handle):
    """The library, its log sink, and everything opened through it."""

    def __init__(self, library: Path | str | None = None, log: Callable[[LogLevel, str], None] | None = None) -> None:
        """log: called from any thread with one message at a time; must not raise, nor call the engine.

        Errors: MissingToolError (no library, or one of another ABI).
        """
        if library is not None:
            encode_path("library", library)
        self.library_path = abi.find_library() if library is None else Path(library)
        loaded = abi.load_library(self.library_path)
        require_callable("log", log)
        self._log = abi.LogCallback(_forward_log(log)) if log is not None else abi.LogCallback()
        pointer = ctypes.c_void_p()
        status = loaded.syrinx_engine_create(abi.ABI_VERSION, self._log, None, ctypes.byref(pointer))
        if status != Status.OK:
            raise abi.make_error(status, f"{self.library_path} cannot be initialised.")
        super().__init__(loaded, pointer, loaded.syrinx_engine_close)

    @property
    def version(self) -> str:
        """ "major.minor.patch+llama.cpp-commit"."""
        return str(self._library.syrinx_version().decode())

    def devices(self) -> list[dict[str, Any]]:
        """What this build and machine can compute on: name, description, type, memory_total, memory_free (bytes)."""
        text = _read_text(self, lambda buffer, size: self._library.syrinx_engine_devices(self._pointer, buffer, size))
        return cast("list[dict[str, Any]]", json.loads(text))

    def check_model(self, path: Path | str) -> None:
        """The check that open_model runs first: no weights are read. Errors: BadInputError."""
        self._check(self._library.syrinx_model_check(self._pointer, encode_path("path", path)))

    def open_model(
        self,
        path: Path | str,
        params: ModelParams | None = None,
        progress: Callable[[str, float], bool] | None = None,
    ) -> Model:
        """Opens a GGUF file. progress(stage, fraction) returns False to cancel.

        Errors: BadInputError, UsageError, EngineError, Cancelled, and what `progress` raises.
        """
        data = encode_path("path", path)
        struct = abi.ModelParamsStruct()
        self._library.syrinx_model_default_params(ctypes.byref(struct))
        _fill(struct, ModelParams() if params is None else require_type("params", params, ModelParams))
        guard = _CallbackGuard()
        require_callable("progress", progress)
        if progress is not None:
            struct.progress = abi.ProgressCallback(guard.wrap(_forward_progress(progress)))
        pointer = ctypes.c_void_p()
        status = self._library.syrinx_model_open(self._pointer, data, ctypes.byref(struct), ctypes.byref(pointer))
        guard.raise_caught()
        self._check(status)
        return Model(self._library, pointer, Path(path))

    def create_sampler(self, params: SamplerParams | None = None) -> Sampler:
        """Errors: UsageError names the value that is out of range."""
        struct = abi.SamplerParamsStruct()
        self._library.syrinx_sampler_default_params(ctypes.byref(struct))
        _fill(struct, SamplerParams() if params is None else require_type("params", params, SamplerParams))
        pointer = ctypes.c_void_p()
        self._check(self._library.syrinx_sampler_create(self._pointer, ctypes.byref(struct), ctypes.byref(pointer)))
        return Sampler(self._library, pointer)


class Model(_Handle):
    """Weights and vocabulary. Opened by Engine.open_model."""

    def __init__(self, library: ctypes.CDLL, pointer: ctypes.c_void_p, path: Path) -> None:
        super().__init__(library, pointer, library.syrinx_model_close)
        self.path = path

    @property
    def facts(self) -> ModelFacts:
        struct = abi.ModelFactsStruct(struct_size=ctypes.sizeof(abi.ModelFactsStruct))
        self._check(self._library.syrinx_model_get_facts(self._pointer, ctypes.byref(struct)))
        values = {name: getattr(struct, name) for name, *_ in abi.ModelFactsStruct._fields_ if name != "struct_size"}
        values |= {
            "architecture": struct.architecture.decode(),
            "structure": Structure(struct.structure),
            "rope": Rope(struct.rope),
            "embedding_scale": EmbeddingScale(struct.embedding_scale),
            "has_tokenizer": bool(struct.has_tokenizer),
            "has_chat_template": bool(struct.has_chat_template),
        }
        return ModelFacts(**values)

    def read_facts_json(self) -> dict[str, Any]:
        """The facts with "bytes_by_type" and "metadata"."""
        text = _read_text(
            self, lambda buffer, size: self._library.syrinx_model_get_facts_json(self._pointer, buffer, size)
        )
        return cast("dict[str, Any]", json.loads(text))

    def embed_tokens(self, ids: Ids) -> Floats:
        """Rows of the token table, scaled so that prefilling them equals prefilling the ids: [n][n_embd]."""
        tokens = as_ids("ids", ids)
        rows = _empty(len(tokens), self.facts.n_embd)
        self._check(self._library.syrinx_embed_tokens(self._pointer, _ints(tokens), len(tokens), _floats(rows)))
        return rows

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """parse_special maps "<|im_start|>" and the like to their ids: not for text that a user typed."""
        data = encode_text("text", text, allow_nul=True)
        return _read_ids(
            self,
            lambda ids, count: self._library.syrinx_tokenize(
                self._pointer, data, len(data), bool(add_special), bool(parse_special), ids, count
            ),
        )

    def detokenize(self, ids: Ids, *, special: bool = False) -> bytes:
        """The bytes of the tokens, which may end inside a character. special shows control tokens."""
        tokens = as_ids("ids", ids)
        return _read_sized(
            self,
            lambda buffer, size: self._library.syrinx_detokenize(
                self._pointer, _ints(tokens), len(tokens), bool(special), buffer, size
            ),
        )

    def apply_chat_template(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> Rendered:
        """Renders messages with the model's own template. Errors: EngineError (no template, or it refuses these)."""
        structs = [
            abi.MessageStruct(encode_text("role", message.role), encode_text("content", message.content))
            for message in as_list("messages", messages, Message)
        ]
        array = (abi.MessageStruct * max(len(structs), 1))(*structs)
        apply = self._library.syrinx_apply_chat_template
        arguments = (self._pointer, array, len(structs), bool(add_generation_prompt))
        text = _read_text(self, lambda buffer, size: apply(*arguments, buffer, size, None, None))
        ids = _read_ids(self, lambda buffer, count: apply(*arguments, None, None, buffer, count))
        return Rendered(text, tuple(ids))

    def open_context(self, params: ContextParams | None = None) -> Context:
        struct = abi.ContextParamsStruct()
        self._library.syrinx_context_default_params(ctypes.byref(struct))
        _fill(struct, ContextParams() if params is None else require_type("params", params, ContextParams))
        pointer = ctypes.c_void_p()
        self._check(self._library.syrinx_context_open(self._pointer, ctypes.byref(struct), ctypes.byref(pointer)))
        return Context(self._library, pointer)


class Context(_Handle):
    """One sequence. Opened by Model.open_context."""

    def __init__(self, library: ctypes.CDLL, pointer: ctypes.c_void_p) -> None:
        super().__init__(library, pointer, library.syrinx_context_close)
        self.n_embd = int(library.syrinx_context_n_embd(pointer))
        self.n_embd_out = int(library.syrinx_context_n_embd_out(pointer))
        self.n_vocab = int(library.syrinx_context_n_vocab(pointer))
        self.n_ctx = int(library.syrinx_context_n_ctx(pointer))

    @property
    def n_past(self) -> int:
        """Positions held; 0 when closed."""
        return int(self._library.syrinx_context_n_past(self._pointer))

    def reset(self) -> None:
        """Forgets the sequence."""
        self._check(self._library.syrinx_context_reset(self._pointer))

    def cancel(self) -> None:
        """Ends the call that is running on the context, from another thread."""
        self._check(self._library.syrinx_context_cancel(self._pointer))

    def prefill_tokens(
        self, ids: Ids, rows: Sequence[int] | None = None, *, hidden: bool = True, logits: bool = True
    ) -> tuple[Floats | None, Floats | None]:
        """Appends tokens; the hidden rows and logits of `rows` (None: the last one). See prefill_embeds."""
        tokens = as_ids("ids", ids)
        call = self._library.syrinx_prefill_tokens
        wanted = None if rows is None else as_ids("rows", rows)
        return self._prefill(
            lambda *out: call(self._pointer, _ints(tokens), len(tokens), *out), len(tokens), wanted, hidden, logits
        )

    def prefill_embeds(
        self, embds: npt.ArrayLike, rows: Sequence[int] | None = None, *, hidden: bool = True, logits: bool = True
    ) -> tuple[Floats | None, Floats | None]:
        """Appends embedding rows [n][n_embd]; returns ([rows][n_embd_out] hidden, [rows][n_vocab] logits).

        rows: ascending indices of the rows whose results are wanted; None means the last. hidden, logits: False
        leaves that result out and returns None for it.
        """
        matrix = as_floats("embds", embds, (None, self.n_embd))
        call = self._library.syrinx_prefill_embeds
        wanted = None if rows is None else as_ids("rows", rows)
        return self._prefill(
            lambda *out: call(self._pointer, _floats(matrix), len(matrix), *out), len(matrix), wanted, hidden, logits
        )

    def decode_token(self, token: int) -> tuple[Floats, Floats]:
        """Appends one token; returns (logits [n_vocab], hidden [n_embd_out])."""
        logits, hidden = np.empty(self.n_vocab, np.float32), np.empty(self.n_embd_out, np.float32)
        token = as_integer("token", token)
        self._check(self._library.syrinx_decode_token(self._pointer, token, _floats(logits), _floats(hidden)))
        return logits, hidden

    def decode_embed(self, embd: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Appends one embedding row [n_embd]; returns (logits [n_vocab], hidden [n_embd_out])."""
        row = as_floats("embd", embd, (self.n_embd,))
        logits, hidden = np.empty(self.n_vocab, np.float32), np.empty(self.n_embd_out, np.float32)
        self._check(self._library.syrinx_decode_embed(self._pointer, _floats(row), _floats(logits), _floats(hidden)))
        return logits, hidden

    def save_state(self) -> bytes:
        """The sequence as a blob that load_state takes, here or in a context with the same settings."""
        return _read_sized(self, lambda buffer, size: self._library.syrinx_state_save(self._pointer, buffer, size))

    def load_state(self, blob: bytes | bytearray | memoryview) -> None:
        """Replaces the sequence. Errors: BadInputError (damaged), UsageError (of other settings or weights)."""
        data = as_bytes("blob", blob)
        self._check(self._library.syrinx_state_load(self._pointer, data, len(data)))

    def hand_over(self, target: Context) -> HandoverReport:
        """Moves a copy of this sequence into `target`."""
        self._require_open()
        self._require_fellow("target", target, Context)
        struct = abi.HandoverReportStruct(struct_size=ctypes.sizeof(abi.HandoverReportStruct))
        target._check(self._library.syrinx_handover(self._pointer, target._pointer, ctypes.byref(struct)), self)
        return HandoverReport(struct.bytes, struct.save_ms, struct.load_ms, struct.n_past)

    def start_probe(self, stages: str = "all") -> None:
        """Captures the named stages of the following calls. Errors: UsageError names the unknown stage."""
        self._check(self._library.syrinx_probe_start(self._pointer, encode_text("stages", stages)))

    def write_probe(self, path: Path | str) -> None:
        """Writes what was captured as a GGUF dump and stops capturing."""
        self._check(self._library.syrinx_probe_write(self._pointer, encode_path("path", path)))

    def generate(
        self,
        tokens: Ids,
        sampler: Sampler,
        *,
        max_tokens: int,
        decode: Context | None = None,
        stop: Sequence[str] = (),
        on_text: Callable[[str], bool | None] | None = None,
    ) -> Generated:
        """Prefills `tokens` here and generates here, or in `decode` after a hand-over.

        on_text gets whole characters as they come; returning False cancels. Errors: Cancelled, ContextFullError,
        UsageError, and what `on_text` raises.
        """
        self._require_open()
        self._require_fellow("sampler", sampler, Sampler)
        target = self if decode is None else self._require_fellow("decode", decode, Context)
        max_tokens = as_integer("max_tokens", max_tokens, 1)
        prompt = as_ids("tokens", tokens)
        pieces: list[str] = []
        guard = _CallbackGuard()
        ends = [encode_text("stop", text) for text in as_list("stop", stop, str)]
        stops = (ctypes.c_char_p * max(len(ends), 1))(*ends)
        params = abi.GenerateParamsStruct()
        self._library.syrinx_generate_default_params(ctypes.byref(params))
        params.stop, params.n_stop = stops, len(ends)
        require_callable("on_text", on_text)
        params.on_text = abi.TextCallback(guard.wrap(_forward_text(pieces, on_text)))
        result = abi.GenerateResultStruct(struct_size=ctypes.sizeof(abi.GenerateResultStruct))
        # An answer ends at n_ctx at the latest: more room than that is never written.
        out = np.empty(min(max_tokens, target.n_ctx) + 1, np.int32)
        params.max_tokens = min(max_tokens, len(out))
        status = self._library.syrinx_generate(
            self._pointer, target._pointer, sampler._pointer, _ints(prompt), len(prompt), ctypes.byref(params),
            _ints(out), ctypes.byref(result),
        )  # fmt: skip
        guard.raise_caught()
        target._check(status, self, sampler)
        return Generated(
            text="".join(pieces),
            tokens=tuple(int(value) for value in out[: result.n_generated]),
            finish=Finish(result.finish),
            n_prompt=result.n_prompt,
            n_generated=result.n_generated,
            prefill_ms=result.prefill_ms,
            handover_ms=result.handover_ms,
            decode_ms=result.decode_ms,
            handover_bytes=result.handover_bytes,
        )

    def _prefill(
        self,
        call: Callable[..., int],
        n: int,
        wanted: npt.NDArray[np.int32] | None,
        hidden: bool,
        logits: bool,
    ) -> tuple[Floats | None, Floats | None]:
        n_rows = 1 if wanted is None else len(wanted)
        if n_rows > max(n, 1):
            raise UsageError(f"{n_rows} result rows are wanted of {n}.")
        out_hidden = _empty(n_rows, self.n_embd_out) if hidden else None
        out_logits = _empty(n_rows, self.n_vocab) if logits else None
        self._check(
            call(
                None if wanted is None else _ints(wanted),
                n_rows,
                None if out_hidden is None else _floats(out_hidden),
                None if out_logits is None else _floats(out_logits),
            )
        )
        return out_hidden, out_logits


class Sampler(_Handle):
    """Logits to a token, in Hugging Face's order. Created by Engine.create_sampler."""

    def __init__(self, library: ctypes.CDLL, pointer: ctypes.c_void_p) -> None:
        super().__init__(library, pointer, library.syrinx_sampler_close)

    def reset(self) -> None:
        """History and random state as at creation."""
        self._check(self._library.syrinx_sampler_reset(self._pointer))

    def sample(self, logits: npt.ArrayLike) -> int:
        """Chooses a token; does not put it into the history."""
        row = as_floats("logits", logits, (None,))
        token = ctypes.c_int32()
        self._check(self._library.syrinx_sampler_sample(self._pointer, _floats(row), len(row), ctypes.byref(token)))
        return token.value

    def accept(self, token: int) -> None:
        """Puts a token into the history."""
        self._check(self._library.syrinx_sampler_accept(self._pointer, as_integer("token", token)))

    def probs(self, logits: npt.ArrayLike) -> Floats:
        """The distribution that sample would draw from: [n], exact zeros outside the kept set."""
        row = as_floats("logits", logits, (None,))
        probabilities = np.empty_like(row)
        self._check(self._library.syrinx_sampler_probs(self._pointer, _floats(row), len(row), _floats(probabilities)))
        return probabilities


@contextlib.contextmanager
def _noted_interrupts() -> Iterator[threading.Event]:
    """Within, Ctrl-C (and SIGTERM, if it is handled) sets the event instead of raising in the midst of something."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted  # signals arrive elsewhere
        return
    signals = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
    old = {number: signal.signal(number, lambda *_: noted.set()) for number in signals}
    try:
        yield noted
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def run_interruptible(work: Callable[[], Result], cancel: Callable[[], None]) -> Result:
    """Runs `work` on a thread of its own and waits; Ctrl-C calls `cancel` and is raised once `work` has ended.

    A call into the engine on the main thread would hold Ctrl-C back until it returns.
    """
    results: list[Result] = []
    failures: list[BaseException] = []
    done = threading.Event()  # Thread.join takes an interrupted wait for the thread's end

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    with _noted_interrupts() as interrupted:
        threading.Thread(target=run, name="engine call").start()
        while not done.wait(0.1):
            if interrupted.is_set():
                cancel()  # again and again: `work` may be between two calls, where a cancel is forgotten
    if interrupted.is_set():
        raise KeyboardInterrupt
    if failures:
        raise failures[0]
    return results[0]


class _CallbackGuard:
    """Keeps a Python exception from being lost inside C: the call is cancelled, and it is raised afterwards."""

    def __init__(self) -> None:
        self._caught: BaseException | None = None

    def wrap(self, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except BaseException as error:
                self._caught = error
                return 1

        return call

    def raise_caught(self) -> None:
        if self._caught:
            raise self._caught


def _forward_log(log: Callable[[LogLevel, str], None]) -> Callable[[int, bytes, object], None]:
    def call(level: int, message: bytes, _user_data: object) -> None:
        log(LogLevel(level), message.decode(errors="replace"))

    return call


def _forward_progress(progress: Callable[[str, float], bool]) -> Callable[[bytes, float, object], int]:
    def call(stage: bytes, fraction: float, _user_data: object) -> int:
        return 0 if progress(stage.decode(), fraction) else 1

    return call


def _forward_text(pieces: list[str], on_text: Callable[[str], bool | None] | None) -> Callable[[int, int, object], int]:
    def call(address: int, size: int, _user_data: object) -> int:
        text = ctypes.string_at(address, size).decode()
        pieces.append(text)
        return 1 if on_text and on_text(text) is False else 0

    return call


def _read_text(handle: _Handle, call: Callable[[Any, Any], int]) -> str:
    """As _read_sized, for text that ends with a NUL."""
    return _read_sized(handle, call).removesuffix(b"\0").decode()


def _read_sized(handle: _Handle, call: Callable[[Any, Any], int]) -> bytes:
    """Asks for the size, then for the bytes."""
    size = ctypes.c_size_t(0)
    status = call(None, ctypes.byref(size))
    for _ in range(4):  # what is described may grow between the two calls
        if status not in (Status.OK, Status.ERR_BUFFER_TOO_SMALL):
            handle._check(status)
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        status = call(buffer, ctypes.byref(size))
        if status == Status.OK:
            return buffer.raw[: size.value]
    raise InternalError("The engine asked for a larger buffer four times over.")


def _read_ids(handle: _Handle, call: Callable[[Any, Any], int]) -> list[int]:
    count = ctypes.c_int32(0)
    status = call(None, ctypes.byref(count))
    if status not in (Status.OK, Status.ERR_BUFFER_TOO_SMALL):
        handle._check(status)
    ids = np.empty(max(count.value, 1), np.int32)
    handle._check(call(_ints(ids), ctypes.byref(count)))
    return [int(value) for value in ids[: count.value]]


def _empty(rows: int, columns: int) -> Floats:
    try:
        return np.empty((rows, columns), np.float32)
    except MemoryError as error:
        raise UsageError(f"There is no memory for {rows} result rows of {columns} values.") from error


def _ints(array: npt.NDArray[np.int32]) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


def _floats(array: Floats) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def _fill(struct: ctypes.Structure, params: ModelParams | ContextParams | SamplerParams) -> None:
    """Sets the fields of `struct` to what is not None in `params`. Errors: UsageError names the field."""
    for name, value in vars(params).items():
        if value is None:
            continue
        if name == "device":
            setattr(struct, name, encode_text(name, value))
        elif name == "seed":
            setattr(struct, name, as_integer(name, value, 0, (1 << 64) - 1))
        elif name in _REALS:
            setattr(struct, name, as_real(name, value))
        else:
            setattr(struct, name, as_flag(name, value) if name in _FLAGS else as_integer(name, value))
