"""The ctypes declarations against the header: a field added in the one and not in the other is a crash."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import pytest

from sdk_tools import abi
from sdk_tools.abi import Status
from sdk_tools.engine import EmbeddingScale, Finish, KvType, LogLevel, Rope, Structure
from sdk_tools.errors import BadInputError, Cancelled, EngineError, InternalError, MissingToolError, UsageError
from sdk_tools.paths import native_dir

_HEADER = (native_dir() / "include" / "syrinx" / "syrinx.h").read_text()
_CODE = re.sub(r"//[^\n]*", "", _HEADER)

STRUCTS: dict[str, type[ctypes.Structure]] = {
    "syrinx_model_params": abi.ModelParamsStruct,
    "syrinx_model_facts": abi.ModelFactsStruct,
    "syrinx_message": abi.MessageStruct,
    "syrinx_context_params": abi.ContextParamsStruct,
    "syrinx_handover_report": abi.HandoverReportStruct,
    "syrinx_sampler_params": abi.SamplerParamsStruct,
    "syrinx_generate_params": abi.GenerateParamsStruct,
    "syrinx_generate_result": abi.GenerateResultStruct,
}
ENUMS = {
    "syrinx_status": Status,
    "syrinx_log_level": LogLevel,
    "syrinx_structure": Structure,
    "syrinx_rope": Rope,
    "syrinx_embedding_scale": EmbeddingScale,
    "syrinx_kv_type": KvType,
    "syrinx_finish": Finish,
}
_SCALARS: dict[str, Any] = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "syrinx_log_callback": abi.LogCallback,
    "syrinx_progress_callback": abi.ProgressCallback,
    "syrinx_text_callback": abi.TextCallback,
    **dict.fromkeys(ENUMS, ctypes.c_int),
}
_HANDLES = ("syrinx_engine", "syrinx_model", "syrinx_context", "syrinx_sampler")


def as_ctypes(declaration: str) -> Any:
    """The ctypes type of a C parameter or field type, such as "const float *"."""
    match = re.fullmatch(r"(\w+)([\s*]*)", declaration.replace("const", "").strip())
    assert match, declaration
    name, stars = match[1], match[2].count("*")
    if name in _HANDLES:
        return (ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))[stars - 1]
    if name in ("char", "void"):
        if stars == 0:
            return None
        if stars == 2:
            return ctypes.POINTER(ctypes.c_char_p)
        # Text that the callee fills goes in as an address.
        return ctypes.c_char_p if name == "char" and "const" in declaration else ctypes.c_void_p
    kind: Any = STRUCTS.get(name) or _SCALARS[name]
    return ctypes.POINTER(kind) if stars else kind


def split_declaration(text: str) -> tuple[str, str]:
    """ "const char * const * stop" -> ("const char * const *", "stop")."""
    match = re.fullmatch(r"(.*?[\s*])(\w+)", text.strip(), re.DOTALL)
    assert match, text
    return match[1].strip(), match[2]


def read_fields(name: str) -> list[tuple[str, Any]]:
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", _CODE, re.DOTALL)
    assert body, name
    fields: list[tuple[str, Any]] = []
    for line in (part.strip() for part in body[1].split(";")):
        array = re.fullmatch(r"char (\w+)\[(\d+)\]", line)
        if array:
            fields.append((array[1], ctypes.c_char * int(array[2])))
        elif line:
            first, *others = line.split(",")
            kind, field = split_declaration(first)
            fields += [(each.strip(), as_ctypes(kind)) for each in (field, *others)]
    return fields


def read_functions() -> dict[str, tuple[Any, ...]]:
    functions = {}
    for result, name, arguments in re.findall(r"SYRINX_API\s+([\w\s*]+?)\s*(syrinx_\w+)\((.*?)\);", _CODE, re.DOTALL):
        kinds = [] if arguments.strip() == "void" else [split_declaration(part)[0] for part in arguments.split(",")]
        functions[name] = (as_ctypes(result), *(as_ctypes(kind) for kind in kinds))
    return functions


@pytest.mark.parametrize("name", STRUCTS)
def test_struct(name: str) -> None:
    assert [(field[0], field[1]) for field in STRUCTS[name]._fields_] == read_fields(name)


def test_there_are_no_other_structs() -> None:
    assert set(re.findall(r"typedef struct (\w+) \{", _CODE)) == set(STRUCTS)


@pytest.mark.parametrize("name", ENUMS)
def test_enum(name: str) -> None:
    body = re.search(rf"typedef enum {name} \{{(.*?)\}} {name};", _CODE, re.DOTALL)
    assert body
    values = {key: int(value) for key, value in re.findall(r"SYRINX_(\w+)\s*=\s*(\d+)", body[1])}
    prefixes = {
        "syrinx_status": "",
        "syrinx_structure": "",
        "syrinx_embedding_scale": "SCALE_",
        "syrinx_log_level": "LOG_",
    }
    prefix = prefixes.get(
        name, {"syrinx_rope": "ROPE_", "syrinx_kv_type": "KV_", "syrinx_finish": "FINISH_"}.get(name, "")
    )
    assert {f"{prefix}{member.name}": member.value for member in ENUMS[name]} == values


def test_there_are_no_other_enums() -> None:
    assert set(re.findall(r"typedef enum (\w+) \{", _CODE)) == set(ENUMS)


def test_functions() -> None:
    declared = read_functions()
    assert set(abi.PROTOTYPES) == set(declared)
    for name, prototype in declared.items():
        assert abi.PROTOTYPES[name] == prototype, name


def test_abi_version() -> None:
    match = re.search(r"#define SYRINX_ABI_VERSION (\d+)", _CODE)
    assert match
    assert int(match[1]) == abi.ABI_VERSION


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (1, UsageError),
        (4, BadInputError),
        (7, abi.ContextFullError),
        (8, Cancelled),
        (11, abi.BusyError),
        (12, abi.ClosedError),
        (13, MissingToolError),
        (15, EngineError),
        ("SYRINX_ERR_BAD_STATE", BadInputError),
        ("SYRINX_ERR_INCOMPATIBLE", UsageError),
        (99, InternalError),
        ("SYRINX_ERR_NEW", InternalError),
    ],
)
def test_status_to_error(status: int | str, kind: type[Exception]) -> None:
    error = abi.make_error(status, "the engine's words")
    assert type(error) is kind
    assert "the engine's words" in error.what


def test_every_status_has_an_error() -> None:
    for status in Status:
        if status is not Status.OK:
            assert f"SYRINX_{status.name}" in abi.make_error(status, "").what


# ----------------------------------------------------------------------------------------------------------- library


def test_library_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libsyrinx.so"
    monkeypatch.setenv("SYRINX_LIBRARY", str(path))
    with pytest.raises(MissingToolError, match="SYRINX_LIBRARY names"):
        abi.find_library()
    path.write_bytes(b"")
    assert abi.find_library() == path


def test_no_engine_is_said_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abi, "default_output_dir", lambda _name: tmp_path / "none")
    with pytest.raises(MissingToolError) as caught:
        abi.find_library()
    assert "sdk_tools build" in caught.value.hint


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libsyrinx.so"
    path.write_bytes(b"no ELF file")
    with pytest.raises(MissingToolError, match="cannot be loaded as the engine"):
        abi.load_library(path)


def test_another_library() -> None:
    with pytest.raises(MissingToolError, match="cannot be loaded as the engine"):
        abi.load_library(Path("libc.so.6"))
