"""The C ABI of native/include/syrinx/syrinx.h as ctypes: structs, prototypes, and where the library lies.

Nothing but sdk_tools.engine calls the library. A test compares every declaration here with the header.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from pathlib import Path
from typing import Any

from sdk_tools import errors
from sdk_tools.build.manifest import read_engine
from sdk_tools.paths import default_output_dir

ABI_VERSION = 1
LIBRARY_VARIABLE = "SYRINX_LIBRARY"
_BUILD_HINT = "Build the engine: python -m sdk_tools build --abi host"


class Status(IntEnum):
    """syrinx_status."""

    OK = 0
    ERR_INVALID_ARGUMENT = 1
    ERR_NOT_FOUND = 2
    ERR_IO = 3
    ERR_BAD_MODEL = 4
    ERR_UNSUPPORTED = 5
    ERR_OUT_OF_MEMORY = 6
    ERR_CONTEXT_FULL = 7
    ERR_CANCELLED = 8
    ERR_BAD_STATE = 9
    ERR_INCOMPATIBLE = 10
    ERR_BUSY = 11
    ERR_CLOSED = 12
    ERR_ABI = 13
    ERR_BUFFER_TOO_SMALL = 14
    ERR_INTERNAL = 15


class ContextFullError(errors.EngineError):
    """More positions than the context holds."""


class ClosedError(errors.EngineError):
    """The handle was closed."""


class BusyError(errors.EngineError):
    """Another thread is inside a call on the same handle."""


_ERRORS: dict[Status, type[errors.SyrinxError]] = {
    Status.ERR_INVALID_ARGUMENT: errors.UsageError,
    Status.ERR_NOT_FOUND: errors.BadInputError,
    Status.ERR_IO: errors.BadInputError,
    Status.ERR_BAD_MODEL: errors.BadInputError,
    Status.ERR_UNSUPPORTED: errors.EngineError,
    Status.ERR_OUT_OF_MEMORY: errors.EngineError,
    Status.ERR_CONTEXT_FULL: ContextFullError,
    Status.ERR_CANCELLED: errors.Cancelled,
    Status.ERR_BAD_STATE: errors.BadInputError,
    Status.ERR_INCOMPATIBLE: errors.UsageError,
    Status.ERR_BUSY: BusyError,
    Status.ERR_CLOSED: ClosedError,
    Status.ERR_ABI: errors.MissingToolError,
    Status.ERR_BUFFER_TOO_SMALL: errors.InternalError,
    Status.ERR_INTERNAL: errors.EngineError,
}


def make_error(status: int | str, text: str, hint: str = "") -> errors.SyrinxError:
    """The error for a status (its number, or its name as the native CLI prints it) with the engine's own words."""
    try:
        known = Status[status.removeprefix("SYRINX_")] if isinstance(status, str) else Status(status)
    except (KeyError, ValueError):
        return errors.InternalError(f"The engine answered the unknown status {status}: {text}", _BUILD_HINT)
    hint = _BUILD_HINT if known is Status.ERR_ABI else hint
    return _ERRORS[known](text or f"The engine answered SYRINX_{known.name}.", hint)


LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
ProgressCallback = ctypes.CFUNCTYPE(c_int32, c_char_p, c_float, c_void_p)
# The text is not NUL-terminated: taken as an address, or ctypes would read on.
TextCallback = ctypes.CFUNCTYPE(c_int32, c_void_p, c_size_t, c_void_p)


class ModelParamsStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("device", c_char_p),
        ("n_gpu_layers", c_int32),
        ("use_mmap", c_int32),
        ("use_repack", c_int32),
        ("check_tensors", c_int32),
        ("progress", ProgressCallback),
        ("progress_user_data", c_void_p),
    )


class ModelFactsStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("architecture", ctypes.c_char * 64),
        ("structure", c_int),
        ("rope", c_int),
        ("n_layer", c_int32),
        ("n_embd", c_int32),
        ("n_embd_out", c_int32),
        ("n_head", c_int32),
        ("n_head_kv", c_int32),
        ("n_vocab", c_int32),
        ("n_ctx_train", c_int32),
        ("n_swa", c_int32),
        ("has_tokenizer", c_int32),
        ("has_chat_template", c_int32),
        ("embedding_scale", c_int),
        ("embedding_multiplier", c_float),
        ("n_params", c_uint64),
        ("n_bytes", c_uint64),
        ("fingerprint", c_uint64),
    )


class MessageStruct(ctypes.Structure):
    _fields_ = (("role", c_char_p), ("content", c_char_p))


class ContextParamsStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("n_ctx", c_int32),
        ("n_batch", c_int32),
        ("n_outputs", c_int32),
        ("n_seq_max", c_int32),
        ("kv_unified", c_int32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("poll", c_int32),
        ("type_k", c_int),
        ("type_v", c_int),
        ("flash_attention", c_int32),
        ("full_swa", c_int32),
        ("embeds_are_scaled", c_int32),
    )


class HandoverReportStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("bytes", c_uint64),
        ("save_ms", c_double),
        ("load_ms", c_double),
        ("n_past", c_int32),
    )


class SamplerParamsStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("repetition_penalty", c_float),
        ("penalty_window", c_int32),
        ("seed", c_uint64),
    )


class GenerateParamsStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("max_tokens", c_int32),
        ("stop", POINTER(c_char_p)),
        ("n_stop", c_int32),
        ("on_text", TextCallback),
        ("user_data", c_void_p),
    )


class GenerateResultStruct(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("finish", c_int),
        ("n_prompt", c_int32),
        ("n_generated", c_int32),
        ("prefill_ms", c_double),
        ("handover_ms", c_double),
        ("decode_ms", c_double),
        ("handover_bytes", c_uint64),
    )


_HANDLE = c_void_p
_NEW_HANDLE = POINTER(c_void_p)
_FLOATS = POINTER(c_float)
_INTS = POINTER(c_int32)
_SIZE = POINTER(c_size_t)

# name: (result, *arguments)
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "syrinx_status_name": (c_char_p, c_int),
    "syrinx_version": (c_char_p,),
    "syrinx_abi_version": (c_uint32,),
    "syrinx_last_error": (c_char_p, _HANDLE),
    "syrinx_engine_create": (c_int, c_uint32, LogCallback, c_void_p, _NEW_HANDLE),
    "syrinx_engine_close": (None, _HANDLE),
    "syrinx_engine_devices": (c_int, _HANDLE, c_void_p, _SIZE),
    "syrinx_model_default_params": (None, POINTER(ModelParamsStruct)),
    "syrinx_model_open": (c_int, _HANDLE, c_char_p, POINTER(ModelParamsStruct), _NEW_HANDLE),
    "syrinx_model_close": (None, _HANDLE),
    "syrinx_model_check": (c_int, _HANDLE, c_char_p),
    "syrinx_model_get_facts": (c_int, _HANDLE, POINTER(ModelFactsStruct)),
    "syrinx_model_get_facts_json": (c_int, _HANDLE, c_void_p, _SIZE),
    "syrinx_embed_tokens": (c_int, _HANDLE, _INTS, c_int32, _FLOATS),
    "syrinx_tokenize": (c_int, _HANDLE, c_char_p, c_size_t, c_int32, c_int32, _INTS, _INTS),
    "syrinx_detokenize": (c_int, _HANDLE, _INTS, c_int32, c_int32, c_void_p, _SIZE),
    "syrinx_apply_chat_template": (
        c_int, _HANDLE, POINTER(MessageStruct), c_int32, c_int32, c_void_p, _SIZE, _INTS, _INTS,
    ),
    "syrinx_context_default_params": (None, POINTER(ContextParamsStruct)),
    "syrinx_context_open": (c_int, _HANDLE, POINTER(ContextParamsStruct), _NEW_HANDLE),
    "syrinx_context_close": (None, _HANDLE),
    "syrinx_context_n_embd": (c_int32, _HANDLE),
    "syrinx_context_n_embd_out": (c_int32, _HANDLE),
    "syrinx_context_n_vocab": (c_int32, _HANDLE),
    "syrinx_context_n_ctx": (c_int32, _HANDLE),
    "syrinx_context_n_past": (c_int32, _HANDLE),
    "syrinx_context_reset": (c_int, _HANDLE),
    "syrinx_context_cancel": (c_int, _HANDLE),
    "syrinx_prefill_embeds": (c_int, _HANDLE, _FLOATS, c_int32, _INTS, c_int32, _FLOATS, _FLOATS),
    "syrinx_prefill_tokens": (c_int, _HANDLE, _INTS, c_int32, _INTS, c_int32, _FLOATS, _FLOATS),
    "syrinx_decode_embed": (c_int, _HANDLE, _FLOATS, _FLOATS, _FLOATS),
    "syrinx_decode_token": (c_int, _HANDLE, c_int32, _FLOATS, _FLOATS),
    "syrinx_state_save": (c_int, _HANDLE, c_void_p, _SIZE),
    "syrinx_state_load": (c_int, _HANDLE, c_void_p, c_size_t),
    "syrinx_handover": (c_int, _HANDLE, _HANDLE, POINTER(HandoverReportStruct)),
    "syrinx_probe_start": (c_int, _HANDLE, c_char_p),
    "syrinx_probe_write": (c_int, _HANDLE, c_char_p),
    "syrinx_sampler_default_params": (None, POINTER(SamplerParamsStruct)),
    "syrinx_sampler_create": (c_int, _HANDLE, POINTER(SamplerParamsStruct), _NEW_HANDLE),
    "syrinx_sampler_close": (None, _HANDLE),
    "syrinx_sampler_reset": (c_int, _HANDLE),
    "syrinx_sampler_sample": (c_int, _HANDLE, _FLOATS, c_int32, _INTS),
    "syrinx_sampler_accept": (c_int, _HANDLE, c_int32),
    "syrinx_sampler_probs": (c_int, _HANDLE, _FLOATS, c_int32, _FLOATS),
    "syrinx_generate_default_params": (None, POINTER(GenerateParamsStruct)),
    "syrinx_generate": (
        c_int, _HANDLE, _HANDLE, _HANDLE, _INTS, c_int32, POINTER(GenerateParamsStruct), _INTS,
        POINTER(GenerateResultStruct),
    ),
}  # fmt: skip


def find_library() -> Path:
    """libsyrinx.so: $SYRINX_LIBRARY, else that of $SYRINX_ENGINE_DIR, else of `build --abi host`'s default place.

    Errors: MissingToolError, BadInputError (an engine folder that is incomplete).
    """
    override = os.environ.get(LIBRARY_VARIABLE)
    if override:
        path = Path(override).expanduser().absolute()
        if not path.is_file():
            raise errors.MissingToolError(f"{LIBRARY_VARIABLE} names {path}, which is not there.", _BUILD_HINT)
        return path
    folder = os.environ.get("SYRINX_ENGINE_DIR")
    root = Path(folder).expanduser().absolute() if folder else default_output_dir("host")
    if not root.exists():
        raise errors.MissingToolError(f"There is no built engine at {root}.", _BUILD_HINT)
    return read_engine(root).library


def load_library(path: Path) -> ctypes.CDLL:
    """Loads the library and declares its functions. Errors: MissingToolError (not loadable, or of another ABI)."""
    try:
        library = ctypes.CDLL(str(path))
        version = library.syrinx_abi_version
        version.restype = c_uint32
        if version() != ABI_VERSION:
            raise errors.MissingToolError(
                f"{path} has the ABI version {version()}; these tools need {ABI_VERSION}.", _BUILD_HINT
            )
        for name, (result, *arguments) in PROTOTYPES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise errors.MissingToolError(f"{path} cannot be loaded as the engine: {error}.", _BUILD_HINT) from error
    return library
