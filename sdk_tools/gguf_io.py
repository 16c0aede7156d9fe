"""Dumps of stages: float32 matrices by name with the prompt's ids, read with every offset checked, written whole.

The engine writes them as GGUF; the PyTorch reference is kept as .npz. Both are read into the same object.
The GGUF reader here is our own because gguf-py trusts counts and offsets: a damaged file makes it loop or read short.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, Union, cast

import numpy as np

from sdk_tools.errors import BadInputError
from sdk_tools.files import write_atomic
from sdk_tools.lab.compare import FloatArray

IDS_KEY = "syrinx.prompt_ids"
FINGERPRINT_KEY = "syrinx.model.fingerprint"
VERSION_KEY = "syrinx.version"
_IDS_ENTRY = "prompt_ids"
_VERSION_ENTRY = "syrinx_version"

_MAGIC = b"GGUF"
_GGUF_VERSION = 3
_ALIGNMENT_KEY = "general.alignment"
_ALIGNMENT = 32
_F32 = 0
_MAX_DIMENSIONS = 4
_STRING, _ARRAY, _INT32, _UINT64 = 8, 9, 5, 10
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

_NPZ_ERRORS = (ValueError, OSError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)

T = TypeVar("T", bound="Value")
Value = Union[int, float, bool, str, list["Value"]]  # noqa: UP007


@dataclass(frozen=True)
class StageDump:
    """stages: [rows][width] float32 by stage name. ids: the prompt, empty if it was given as embeddings.

    fingerprint: of the model file that the engine ran; 0 in a reference. version: of what wrote the dump.
    """

    stages: Mapping[str, FloatArray]
    ids: tuple[int, ...] = ()
    fingerprint: int = 0
    version: str = ""
    path: Path | None = field(default=None, compare=False)


def read_dump(path: Path) -> StageDump:
    """Reads a dump, GGUF or .npz by its content. Errors: BadInputError that names the file and what is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"The dump {path} cannot be read: {error.strerror}.") from error
    if data[:4] == _MAGIC:
        return _GgufParser(path, data).parse()
    if data[:2] == b"PK":
        return _parse_npz(path, data)
    raise BadInputError(
        f"{path} is neither a GGUF dump nor an .npz file: it begins with {data[:8]!r}.",
        "Write one with `parity --save-dump` or `parity --save-reference`.",
    )


def write_npz_dump(path: Path, dump: StageDump) -> None:
    """Writes a dump as .npz: one array a stage, "prompt_ids" (int64) and "syrinx_version"."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        **{name: np.ascontiguousarray(rows, np.float32) for name, rows in dump.stages.items()},
        **{_IDS_ENTRY: np.asarray(dump.ids, np.int64), _VERSION_ENTRY: np.asarray(dump.version)},
    )
    write_atomic(path, buffer.getvalue())


def write_gguf_dump(path: Path, dump: StageDump) -> None:
    """Writes a dump in the engine's format; for tests and tools that stand in for an engine."""
    keys = [
        (FINGERPRINT_KEY, _UINT64, struct.pack("<Q", dump.fingerprint)),
        (VERSION_KEY, _STRING, _pack(dump.version)),
    ]
    if dump.ids:
        items = struct.pack(f"<{len(dump.ids)}i", *dump.ids)
        keys.append((IDS_KEY, _ARRAY, struct.pack("<IQ", _INT32, len(dump.ids)) + items))
    head, body = io.BytesIO(), io.BytesIO()
    head.write(_MAGIC + struct.pack("<IQQ", _GGUF_VERSION, len(dump.stages), len(keys)))
    for key, kind, packed in keys:
        head.write(_pack(key) + struct.pack("<I", kind) + packed)
    for name, rows in dump.stages.items():
        height, width = rows.shape
        head.write(_pack(name) + struct.pack("<IQQIQ", 2, width, height, _F32, body.tell()))
        body.write(np.ascontiguousarray(rows, "<f4").tobytes())
        body.write(bytes(-body.tell() % _ALIGNMENT))
    head.write(bytes(-head.tell() % _ALIGNMENT))
    write_atomic(path, head.getvalue() + body.getvalue())


def _pack(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


class _GgufParser:
    """Reads one file front to back. Whatever it takes, it first checks that it is there."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        self._data = data
        self._at = 0
        self._keys: dict[str, Value] = {}

    def parse(self) -> StageDump:
        self._take(len(_MAGIC), "its magic")
        version, n_tensors, n_keys = self._unpack("<IQQ", "its header")
        if version != _GGUF_VERSION:
            raise self._error(f"it is GGUF version {version}, not {_GGUF_VERSION}")
        for _ in range(n_keys):
            key = self._read_string("the name of a key")
            (kind,) = self._unpack("<I", f"key '{key}'")
            self._keys[key] = self._read_value(kind, f"key '{key}'")
        records = [self._read_record() for _ in range(n_tensors)]
        alignment = self._key(_ALIGNMENT_KEY, _ALIGNMENT)
        if alignment < 1:
            raise self._error(f"its alignment is {alignment}")
        base = self._at + -self._at % alignment
        stages = {name: self._read_rows(name, width, rows, base + offset) for name, width, rows, offset in records}
        if len(stages) != n_tensors:
            raise self._error("it holds a stage twice")
        ids = self._key(IDS_KEY, list[Value]())
        if not all(isinstance(value, int) for value in ids):
            raise self._error(f"key '{IDS_KEY}' is no list of integers")
        fingerprint, written_by = self._key(FINGERPRINT_KEY, 0), self._key(VERSION_KEY, "")
        return StageDump(stages, tuple(cast("list[int]", ids)), fingerprint, written_by, self._path)

    def _key(self, name: str, default: T) -> T:
        value = self._keys.get(name, default)
        if not isinstance(value, type(default)):
            raise self._error(f"key '{name}' is {type(value).__name__}, not {type(default).__name__}")
        return value

    def _read_value(self, kind: int, what: str) -> Value:
        if kind == _STRING:
            return self._read_string(what)
        if kind == _ARRAY:
            item_kind, count = self._unpack("<IQ", what)
            if item_kind in _SCALARS:
                return list(self._unpack_many(_SCALARS[item_kind], count, what))
            if item_kind != _STRING:
                raise self._error(f"{what} is an array of the unknown type {item_kind}")
            return [self._read_string(what) for _ in range(count)]
        if kind not in _SCALARS:
            raise self._error(f"{what} has the unknown type {kind}")
        value: Value = self._unpack("<" + _SCALARS[kind], what)[0]
        return value

    def _read_record(self) -> tuple[str, int, int, int]:
        name = self._read_string("the name of a stage")
        (n_dimensions,) = self._unpack("<I", f"stage '{name}'")
        if not 1 <= n_dimensions <= _MAX_DIMENSIONS:
            raise self._error(f"stage '{name}' has {n_dimensions} dimensions")
        shape = self._unpack_many("Q", n_dimensions, f"stage '{name}'")
        kind, offset = self._unpack("<IQ", f"stage '{name}'")
        if kind != _F32 or any(extent != 1 for extent in shape[2:]):
            raise self._error(f"stage '{name}' is type {kind} of shape {shape}, not an F32 matrix")
        return name, shape[0], shape[1] if n_dimensions > 1 else 1, offset

    def _read_rows(self, name: str, width: int, rows: int, begin: int) -> FloatArray:
        missing = begin + 4 * width * rows - len(self._data)
        if missing > 0:
            raise self._error(f"{missing} bytes of stage '{name}' ({rows} rows of {width}) are missing")
        return np.frombuffer(self._data, "<f4", width * rows, begin).reshape(rows, width).astype(np.float32)

    def _read_string(self, what: str) -> str:
        (length,) = self._unpack("<Q", what)
        try:
            return self._take(length, what).decode()
        except UnicodeDecodeError as error:
            raise self._error(f"{what} is not UTF-8") from error

    def _unpack(self, layout: str, what: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout), what))

    def _unpack_many(self, code: str, count: int, what: str) -> tuple[int, ...]:
        # Checked before the layout is made: a count beyond the file would cost memory first.
        data = self._take(count * struct.calcsize("<" + code), what)
        return struct.unpack(f"<{count}{code}", data)

    def _take(self, count: int, what: str) -> bytes:
        if count > len(self._data) - self._at:
            raise self._error(f"it ends within {what}: {count} bytes needed at {self._at}, {len(self._data)} in all")
        self._at += count
        return self._data[self._at - count : self._at]

    def _error(self, what: str) -> BadInputError:
        return BadInputError(
            f"The dump {self._path} is damaged: {what}.", "It may have been cut short; write or pull it anew."
        )


def _parse_npz(path: Path, data: bytes) -> StageDump:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (
        ValueError,
        OSError,
        EOFError,
        KeyError,
        NotImplementedError,
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
    ) as error:
        raise BadInputError(f"The dump {path} is damaged: {error}.", "Write or pull it anew.") from error
    ids = arrays.pop(_IDS_ENTRY, np.zeros(0, np.int64))
    written_by = arrays.pop(_VERSION_ENTRY, np.asarray(""))
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise BadInputError(f"'{_IDS_ENTRY}' in {path} is {ids.dtype} of shape {ids.shape}, not a list of integers.")
    for name, array in arrays.items():
        if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
            raise BadInputError(f"The stage '{name}' in {path} is {array.dtype} of shape {array.shape}, not a matrix.")
    stages = {name: array.astype(np.float32) for name, array in arrays.items()}
    return StageDump(stages, tuple(int(value) for value in ids), 0, str(written_by), path)
