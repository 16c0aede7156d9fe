"""What a caller of sdk_tools.engine passes, as what ctypes takes: every misuse is a UsageError that names the argument.

ctypes itself would cut numbers down to 32 bits, take a list for a pointer, and raise errors that name nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sdk_tools.errors import UsageError

Floats = npt.NDArray[np.float32]
Ids = Sequence[int] | npt.NDArray[np.int32]
T = TypeVar("T")

_MAX_VALUES = (1 << 31) - 1  # the C ABI counts in int32
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


def require_type(name: str, value: object, kind: type[T]) -> T:
    """The value, if it is one of that class."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} is {_show(value)}; it must be a {kind.__name__}.")
    return value


def require_callable(name: str, value: object) -> None:
    """None is no function, and just as good."""
    if value is not None and not callable(value):
        raise UsageError(f"{name} is {_show(value)}; it must be a function.")


def as_list(name: str, values: Sequence[T], kind: type[T]) -> list[T]:
    """A list of values of one class; a text alone is not taken for the list of its characters."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise UsageError(f"{name} is {_show(values)}; it must be a list of {kind.__name__}.")
    return [require_type(f"{name}[{index}]", value, kind) for index, value in enumerate(values)]


def as_integer(name: str, value: Any, low: int = -(1 << 31), high: int = (1 << 31) - 1) -> int:
    """A whole number within bounds; by default those of 32 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= int(value) <= high:
        raise UsageError(f"{name} is {_show(value)}; it must be a whole number from {low} to {high}.")
    return int(value)


def as_flag(name: str, value: Any) -> int:
    """True or False, as 1 or 0."""
    if not isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{name} is {_show(value)}; it must be True or False.")
    return int(value)


def as_real(name: str, value: Any) -> float:
    """A number that is finite as a float32."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not abs(value) <= _MAX_FLOAT32:  # NaN is no less than anything
        raise UsageError(f"{name} is {_show(value)}; it must be a finite number.")
    return float(value)


def as_ids(name: str, values: Ids) -> npt.NDArray[np.int32]:
    """A list or array of 32-bit integers, in one piece."""
    array = _as_array(name, values)
    is_whole = array.size == 0 or np.issubdtype(array.dtype, np.integer)
    if isinstance(values, Sequence) and any(isinstance(value, (bool, np.bool_)) for value in values):
        is_whole = False
    if array.ndim != 1 or not is_whole or (array.size and (array.min() < -(1 << 31) or array.max() >= 1 << 31)):
        raise UsageError(
            f"{name} must be a list of 32-bit integers; what was given is {array.dtype} of shape {array.shape}."
        )
    return _as_contiguous(name, array, np.int32)


def as_floats(name: str, values: npt.ArrayLike, shape: tuple[int | None, ...]) -> Floats:
    """A float32 array of that shape (None: any extent), in one piece."""
    array = _as_array(name, values)
    if array.dtype.kind not in "fiu":
        raise UsageError(f"{name} holds {array.dtype}; real numbers are needed.")
    matches = array.ndim == len(shape) and all(
        want is None or have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if not matches:
        wanted = ", ".join("n" if extent is None else str(extent) for extent in shape)
        raise UsageError(f"{name} has the shape {array.shape}; ({wanted}) is needed.")
    return _as_contiguous(name, array, np.float32)


def as_bytes(name: str, value: Any) -> bytes:
    """Any bytes-like object."""
    if isinstance(value, bytes):
        return value
    try:
        return bytes(memoryview(value))
    except TypeError as error:
        raise UsageError(f"{name} is {_show(value)}; it must be bytes, a bytearray or a memoryview.") from error


def encode_text(name: str, text: str, *, allow_nul: bool = False) -> bytes:
    """Text as UTF-8."""
    try:
        data = require_type(name, text, str).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} cannot be written as UTF-8 (position {error.start}).") from error
    if b"\0" in data and not allow_nul:
        raise UsageError(f"{name} holds a NUL character, which the engine does not take.")
    return data


def encode_path(name: str, path: str | os.PathLike[str]) -> bytes:
    """A path as the system knows it."""
    try:
        data = os.fsencode(path)
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"{name} is {_show(path)}; it must be a path.") from error
    if not data or b"\0" in data:
        raise UsageError(f"{name} is {_show(path)}; a path is not empty and holds no NUL character.")
    return data


def _as_array(name: str, values: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except Exception as error:  # whatever a foreign array type raises
        raise UsageError(f"{name} cannot be read as an array: {error}.") from error
    if array.size > _MAX_VALUES:
        raise UsageError(f"{name} holds {array.size} values, more than fit a call.")
    return array


def _as_contiguous(name: str, array: npt.NDArray[Any], kind: type[T]) -> npt.NDArray[Any]:
    try:
        with np.errstate(over="ignore"):  # the engine refuses the infinity that comes of it
            return np.ascontiguousarray(array, dtype=kind)
    except (MemoryError, ValueError) as error:
        raise UsageError(f"{name} holds {array.size} values: there is no memory for them.") from error


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
