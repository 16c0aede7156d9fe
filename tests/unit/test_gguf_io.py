from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from sdk_tools.errors import BadInputError
from sdk_tools.gguf_io import StageDump, read_dump, write_gguf_dump, write_npz_dump


@pytest.fixture
def dump() -> StageDump:
    rng = np.random.default_rng(2)
    stages = {
        "embeds": rng.normal(size=(3, 5)).astype(np.float32),
        "layer.0.hidden": rng.normal(size=(3, 4)).astype(np.float32),
        "logits": rng.normal(size=(3, 7)).astype(np.float32),
    }
    return StageDump(stages, (5, 0, 280), 0xFEDC_BA98_7654_3210, "1.2.3+llama.cpp-abc")


def assert_same(got: StageDump, want: StageDump) -> None:
    assert list(got.stages) == list(want.stages)
    for name, rows in want.stages.items():
        np.testing.assert_array_equal(got.stages[name], rows)
        assert got.stages[name].dtype == np.float32
        assert got.stages[name].flags.writeable
    assert (got.ids, got.version) == (want.ids, want.version)


def test_gguf_round_trip(dump: StageDump, tmp_path: Path) -> None:
    path = tmp_path / "d.gguf"
    write_gguf_dump(path, dump)
    got = read_dump(path)
    assert_same(got, dump)
    assert got.fingerprint == dump.fingerprint
    assert got.path == path
    assert list(tmp_path.iterdir()) == [path]


def test_npz_round_trip(dump: StageDump, tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    write_npz_dump(path, dump)
    assert_same(read_dump(path), dump)
    assert list(tmp_path.iterdir()) == [path]


def test_what_we_write_is_gguf_for_others_too(dump: StageDump, tmp_path: Path) -> None:
    path = tmp_path / "d.gguf"
    write_gguf_dump(path, dump)
    reader: Any = GGUFReader(str(path))
    assert {tensor.name: tuple(tensor.shape) for tensor in reader.tensors} == {
        "embeds": (5, 3), "layer.0.hidden": (4, 3), "logits": (7, 3),
    }  # fmt: skip
    np.testing.assert_array_equal(reader.tensors[2].data, dump.stages["logits"])
    assert reader.get_field("syrinx.prompt_ids").contents() == list(dump.ids)


def test_reads_what_others_write(dump: StageDump, tmp_path: Path) -> None:
    path = tmp_path / "d.gguf"
    writer: Any = GGUFWriter(str(path), arch="any")
    writer.add_custom_alignment(64)
    writer.add_array("names", ["a", "b"])
    writer.add_bool("flag", True)
    writer.add_float64("number", 1.5)
    writer.add_array("syrinx.prompt_ids", [int(value) for value in dump.ids])
    for name, rows in dump.stages.items():
        writer.add_tensor(name, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    got = read_dump(path)
    assert (list(got.stages), got.ids) == (list(dump.stages), dump.ids)
    np.testing.assert_array_equal(got.stages["logits"], dump.stages["logits"])


def test_without_ids(tmp_path: Path) -> None:
    path = tmp_path / "d.gguf"
    write_gguf_dump(path, StageDump({"logits": np.zeros((1, 2), np.float32)}))
    assert read_dump(path).ids == ()


def test_every_truncation_is_an_error(dump: StageDump, tmp_path: Path) -> None:
    path = tmp_path / "d.gguf"
    write_gguf_dump(path, dump)
    data = path.read_bytes()
    end = len(data) - (-sum(rows.nbytes for rows in [dump.stages["logits"]]) % 32)  # the last padding may go
    for size in range(end):
        path.write_bytes(data[:size])
        with pytest.raises(BadInputError) as caught:
            read_dump(path)
        assert str(path) in caught.value.what
    path.write_bytes(data[:end])
    read_dump(path)


def test_every_changed_byte_is_an_error_or_another_value(dump: StageDump, tmp_path: Path) -> None:
    """No exception but BadInputError, no hang, no huge allocation, whatever the header claims."""
    path = tmp_path / "d.gguf"
    write_gguf_dump(path, dump)
    data = path.read_bytes()
    for at in range(len(data) - sum(rows.nbytes for rows in dump.stages.values())):
        for value in (0x00, 0x7F, 0xFF):
            damaged = bytearray(data)
            damaged[at] = value
            path.write_bytes(damaged)
            try:
                read_dump(path)
            except BadInputError as error:
                assert str(path) in error.what


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "neither a GGUF dump nor an .npz"),
        (b"<!DOCTYPE html>", "neither a GGUF dump nor an .npz"),
        (b"version https://git-lfs.github.com/spec/v1", "neither a GGUF dump nor an .npz"),
        (b"GGUF" + struct.pack("<IQQ", 2, 0, 0), "GGUF version 2"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "ends within"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 63), "ends within"),
        (b"PK\x03\x04 not really", "damaged"),
    ],
)
def test_other_files(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "d.gguf"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=says):
        read_dump(path)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        read_dump(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"hidden": np.zeros(3, np.float32)}, "'hidden'"),
        ({"hidden": np.zeros((3, 2), np.int32)}, "'hidden'"),
        ({"prompt_ids": np.zeros(3, np.float32)}, "'prompt_ids'"),
        ({"prompt_ids": np.zeros((3, 1), np.int64)}, "'prompt_ids'"),
    ],
)
def test_npz_with_other_arrays(arrays: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, **arrays)
    with pytest.raises(BadInputError, match=says):
        read_dump(path)


def test_npz_never_unpickles(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, hidden=np.array([[{"a": 1}]], dtype=object))
    with pytest.raises(BadInputError, match="damaged"):
        read_dump(path)


def test_npz_with_a_damaged_member(dump: StageDump, tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    write_npz_dump(path, dump)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("logits.npy").header_offset + 100
    data = bytearray(path.read_bytes())
    data[at + 100] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BadInputError, match="damaged"):
        read_dump(path)
