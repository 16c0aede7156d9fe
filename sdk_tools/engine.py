"""The engine in this process: the C ABI as Python objects, numpy arrays in and out.

    with Engine() as engine, engine.open_model(path) as model, model.open_context() as context:
        hidden, logits = context.prefill_tokens(model.tokenize("Hello"))

Every failed call raises the matching error of sdk_tools.errors with the engine's own text. Objects are context
managers; closing twice does nothing, and a call on a closed one raises ClosedError. ctypes releases the interpreter
lock, so other threads run while the engine computes.
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
from sdk_tools.errors import BadInputError, InternalError, UsageError

__all__ = [
    "BusyError", "ClosedError", "Context", "ContextFullError", "ContextParams", "Engine", "Finish", "Generated",
    "HandoverReport", "KvType", "LogLevel", "Message", "Model", "ModelFacts", "ModelParams", "Rendered", "Sampler",
    "SamplerParams", "run_interruptible",
]  # fmt: skip

Floats = npt.NDArray[np.float32]
Ids = Sequence[int] | npt.NDArray[np.int32]
Result = TypeVar("Result")
Self = TypeVar("Self", bound="_Handle")


_STATES = {Status.ERR_BUSY: "busy: another thread is inside a call on it", Status.ERR_CLOSED: "closed"}


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

    def __enter__(self: Self) -> Self:
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
            self._close(self._pointer)

    def _check(self, status: int) -> None:
        if status in (
            Status.ERR_BUSY,
            Status.ERR_CLOSED,
        ):  # answered before the object is entered: no text of their own
            raise abi.make_error(status, f"This {type(self).__name__.lower()} is {_STATES[Status(status)]}.")
        if status != Status.OK:
            raise abi.make_error(status, _last_error(self._library, self._pointer))


class Engine(_Handle):
    """The library, its log sink, and everything opened through it."""

    def __init__(self, library: Path | None = None, log: Callable[[LogLevel, str], None] | None = None) -> None:
        """log: called from any thread with one message at a time; must not raise, nor call the engine.

        Errors: MissingToolError (no library, or one of another ABI).
        """
        self.library_path = library or abi.find_library()
        loaded = abi.load_library(self.library_path)
        self._log = abi.LogCallback(_forward_log(log)) if log else abi.LogCallback()
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

    def check_model(self, path: Path) -> None:
        """The check that open_model runs first: no weights are read. Errors: BadInputError."""
        self._check(self._library.syrinx_model_check(self._pointer, _encode_path(path)))

    def open_model(
        self,
        path: Path,
        params: ModelParams | None = None,
        progress: Callable[[str, float], bool] | None = None,
    ) -> Model:
        """Opens a GGUF file. progress(stage, fraction) returns False to cancel.

        Errors: BadInputError, UsageError, EngineError, Cancelled, and what `progress` raises.
        """
        chosen = params or ModelParams()
        struct = abi.ModelParamsStruct()
        self._library.syrinx_model_default_params(ctypes.byref(struct))
        struct.device = chosen.device.encode()
        for name in ("n_gpu_layers", "use_mmap", "use_repack", "check_tensors"):
            _set_unless_none(struct, name, getattr(chosen, name))
        guard = _CallbackGuard()
        if progress:
            struct.progress = abi.ProgressCallback(guard.wrap(_forward_progress(progress)))
        pointer = ctypes.c_void_p()
        status = self._library.syrinx_model_open(
            self._pointer, _encode_path(path), ctypes.byref(struct), ctypes.byref(pointer)
        )
        guard.raise_caught()
        self._check(status)
        return Model(self._library, pointer, path)

    def create_sampler(self, params: SamplerParams | None = None) -> Sampler:
        """Errors: UsageError names the value that is out of range."""
        chosen = params or SamplerParams()
        if chosen.seed is not None and not 0 <= chosen.seed < 1 << 64:
            raise UsageError(f"The seed {chosen.seed} is not a number from 0 to 2^64 - 1.")
        struct = abi.SamplerParamsStruct()
        self._library.syrinx_sampler_default_params(ctypes.byref(struct))
        for name, value in vars(chosen).items():
            if value is not None:
                setattr(struct, name, _as_int32(name, value) if name in ("top_k", "penalty_window") else value)
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
        tokens = _as_ids(ids)
        rows = np.empty((len(tokens), self.facts.n_embd), np.float32)
        self._check(self._library.syrinx_embed_tokens(self._pointer, _ints(tokens), len(tokens), _floats(rows)))
        return rows

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """parse_special maps "<|im_start|>" and the like to their ids: not for text that a user typed."""
        data = _encode_text(text, allow_nul=True)
        return _read_ids(
            self,
            lambda ids, count: self._library.syrinx_tokenize(
                self._pointer, data, len(data), add_special, parse_special, ids, count
            ),
        )

    def detokenize(self, ids: Ids, *, special: bool = False) -> bytes:
        """The bytes of the tokens, which may end inside a character. special shows control tokens."""
        tokens = _as_ids(ids)
        return _read_sized(
            self,
            lambda buffer, size: self._library.syrinx_detokenize(
                self._pointer, _ints(tokens), len(tokens), special, buffer, size
            ),
        )

    def apply_chat_template(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> Rendered:
        """Renders messages with the model's own template. Errors: EngineError (no template, or it refuses these)."""
        structs = [abi.MessageStruct(_encode_text(message.role), _encode_text(message.content)) for message in messages]
        array = (abi.MessageStruct * max(len(structs), 1))(*structs)
        apply = self._library.syrinx_apply_chat_template
        arguments = (self._pointer, array, len(messages), add_generation_prompt)
        text = _read_text(self, lambda buffer, size: apply(*arguments, buffer, size, None, None))
        ids = _read_ids(self, lambda buffer, count: apply(*arguments, None, None, buffer, count))
        return Rendered(text, tuple(ids))

    def open_context(self, params: ContextParams | None = None) -> Context:
        struct = abi.ContextParamsStruct()
        self._library.syrinx_context_default_params(ctypes.byref(struct))
        for name, value in vars(params or ContextParams()).items():
            _set_unless_none(struct, name, value)
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
        tokens = _as_ids(ids)
        call = self._library.syrinx_prefill_tokens
        return self._prefill(lambda *out: call(self._pointer, _ints(tokens), len(tokens), *out), rows, hidden, logits)

    def prefill_embeds(
        self, embds: npt.ArrayLike, rows: Sequence[int] | None = None, *, hidden: bool = True, logits: bool = True
    ) -> tuple[Floats | None, Floats | None]:
        """Appends embedding rows [n][n_embd]; returns ([rows][n_embd_out] hidden, [rows][n_vocab] logits).

        rows: ascending indices of the rows whose results are wanted; None means the last. hidden, logits: False
        leaves that result out and returns None for it.
        """
        matrix = _as_floats(embds, "embds", (None, self.n_embd))
        call = self._library.syrinx_prefill_embeds
        return self._prefill(lambda *out: call(self._pointer, _floats(matrix), len(matrix), *out), rows, hidden, logits)

    def decode_token(self, token: int) -> tuple[Floats, Floats]:
        """Appends one token; returns (logits [n_vocab], hidden [n_embd_out])."""
        logits, hidden = np.empty(self.n_vocab, np.float32), np.empty(self.n_embd_out, np.float32)
        token = _as_int32("token", token)
        self._check(self._library.syrinx_decode_token(self._pointer, token, _floats(logits), _floats(hidden)))
        return logits, hidden

    def decode_embed(self, embd: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Appends one embedding row [n_embd]; returns (logits [n_vocab], hidden [n_embd_out])."""
        row = _as_floats(embd, "embd", (self.n_embd,))
        logits, hidden = np.empty(self.n_vocab, np.float32), np.empty(self.n_embd_out, np.float32)
        self._check(self._library.syrinx_decode_embed(self._pointer, _floats(row), _floats(logits), _floats(hidden)))
        return logits, hidden

    def save_state(self) -> bytes:
        """The sequence as a blob that load_state takes, here or in a context with the same settings."""
        return _read_sized(self, lambda buffer, size: self._library.syrinx_state_save(self._pointer, buffer, size))

    def load_state(self, blob: bytes) -> None:
        """Replaces the sequence. Errors: BadInputError (damaged), UsageError (of other settings or weights)."""
        self._check(self._library.syrinx_state_load(self._pointer, blob, len(blob)))

    def hand_over(self, target: Context) -> HandoverReport:
        """Moves a copy of this sequence into `target`."""
        struct = abi.HandoverReportStruct(struct_size=ctypes.sizeof(abi.HandoverReportStruct))
        target._check(self._library.syrinx_handover(self._pointer, target._pointer, ctypes.byref(struct)))
        return HandoverReport(struct.bytes, struct.save_ms, struct.load_ms, struct.n_past)

    def start_probe(self, stages: str = "all") -> None:
        """Captures the named stages of the following calls. Errors: UsageError names the unknown stage."""
        self._check(self._library.syrinx_probe_start(self._pointer, _encode_text(stages)))

    def write_probe(self, path: Path) -> None:
        """Writes what was captured as a GGUF dump and stops capturing."""
        self._check(self._library.syrinx_probe_write(self._pointer, _encode_path(path)))

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
        if not 1 <= max_tokens < 1 << 31:
            raise UsageError(f"max_tokens is {max_tokens}; it must be at least 1.")
        prompt = _as_ids(tokens)
        pieces: list[str] = []
        guard = _CallbackGuard()
        stops = (ctypes.c_char_p * max(len(stop), 1))(*(_encode_text(text) for text in stop))
        params = abi.GenerateParamsStruct()
        self._library.syrinx_generate_default_params(ctypes.byref(params))
        params.max_tokens, params.stop, params.n_stop = max_tokens, stops, len(stop)
        params.on_text = abi.TextCallback(guard.wrap(_forward_text(pieces, on_text)))
        result = abi.GenerateResultStruct(struct_size=ctypes.sizeof(abi.GenerateResultStruct))
        target = decode or self
        # An answer ends at n_ctx at the latest: more room than that is never written.
        out = np.empty(min(max_tokens, target.n_ctx) + 1, np.int32)
        params.max_tokens = min(max_tokens, len(out))
        status = self._library.syrinx_generate(
            self._pointer, target._pointer, sampler._pointer, _ints(prompt), len(prompt), ctypes.byref(params),
            _ints(out), ctypes.byref(result),
        )  # fmt: skip
        guard.raise_caught()
        target._check(status)
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
        self, call: Callable[..., int], rows: Sequence[int] | None, hidden: bool, logits: bool
    ) -> tuple[Floats | None, Floats | None]:
        wanted = None if rows is None else _as_ids(rows)
        n_rows = 1 if wanted is None else len(wanted)
        out_hidden = np.empty((n_rows, self.n_embd_out), np.float32) if hidden else None
        out_logits = np.empty((n_rows, self.n_vocab), np.float32) if logits else None
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
        row = _as_floats(logits, "logits", (None,))
        token = ctypes.c_int32()
        self._check(self._library.syrinx_sampler_sample(self._pointer, _floats(row), len(row), ctypes.byref(token)))
        return token.value

    def accept(self, token: int) -> None:
        """Puts a token into the history."""
        self._check(self._library.syrinx_sampler_accept(self._pointer, _as_int32("token", token)))

    def probs(self, logits: npt.ArrayLike) -> Floats:
        """The distribution that sample would draw from: [n], exact zeros outside the kept set."""
        row = _as_floats(logits, "logits", (None,))
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


def _last_error(library: ctypes.CDLL, pointer: ctypes.c_void_p) -> str:
    return str(library.syrinx_last_error(pointer).decode(errors="replace"))


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


def _as_ids(ids: Ids) -> npt.NDArray[np.int32]:
    array = np.asarray(ids)
    is_whole = array.size == 0 or np.issubdtype(array.dtype, np.integer)
    if array.ndim != 1 or not is_whole or (array.size and (array.min() < -(1 << 31) or array.max() >= 1 << 31)):
        raise UsageError(
            f"Token ids or rows must be a list of 32-bit integers; these are {array.dtype} of shape {array.shape}."
        )
    return np.ascontiguousarray(array, dtype=np.int32)


def _as_floats(values: npt.ArrayLike, name: str, shape: tuple[int | None, ...]) -> Floats:
    array: Floats = np.ascontiguousarray(values, dtype=np.float32)
    matches = array.ndim == len(shape) and all(
        want is None or have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if not matches:
        wanted = ", ".join("n" if extent is None else str(extent) for extent in shape)
        raise UsageError(f"{name} has the shape {array.shape}; ({wanted}) is needed.")
    return array


def _ints(array: npt.NDArray[np.int32]) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


def _floats(array: Floats) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def _set_unless_none(struct: ctypes.Structure, name: str, value: Any) -> None:
    if value is not None:
        setattr(struct, name, _as_int32(name, value))


def _as_int32(name: str, value: Any) -> int:
    """ctypes would cut a larger number down to 32 bits without a word."""
    if not isinstance(value, (int, np.integer)) or not -(1 << 31) <= int(value) < 1 << 31:
        raise UsageError(f"{name} is {value!r}; it must be a whole number that fits 32 bits.")
    return int(value)


def _encode_text(text: str, *, allow_nul: bool = False) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"The text cannot be written as UTF-8 (position {error.start}).") from error
    if b"\0" in data and not allow_nul:
        raise UsageError("The text holds a NUL character, which the engine does not take.")
    return data


def _encode_path(path: Path) -> bytes:
    data = str(path).encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise BadInputError("The path holds a NUL character.")
    return data
