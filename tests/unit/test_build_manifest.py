from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sdk_tools.build.manifest import MANIFEST, BuiltEngine, read_engine, write_manifest
from sdk_tools.build.targets import BuildOptions
from sdk_tools.errors import BadInputError

FACTS: dict[str, object] = {"options": BuildOptions(native_cpu=True).to_json(), "inputs": {"native_sha256": "ab"}}


@pytest.fixture
def engine(tmp_path: Path) -> BuiltEngine:
    root = tmp_path / "engine"
    for name in ("lib/libsyrinx.so", "bin/syrinx", "include/syrinx/syrinx.h"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return write_manifest(root, FACTS)


def test_round_trip(engine: BuiltEngine) -> None:
    found = read_engine(engine.root, verify=True)
    assert found == engine
    assert found.options == BuildOptions(native_cpu=True)
    assert found.inputs == {"native_sha256": "ab"}
    assert found.library.is_file()
    assert found.cli.is_file()


def test_every_file_is_listed_once_with_its_hash(engine: BuiltEngine) -> None:
    files: Any = engine.manifest["files"]
    assert [entry["path"] for entry in files] == ["bin/syrinx", "include/syrinx/syrinx.h", "lib/libsyrinx.so"]
    assert all(len(entry["sha256"]) == 64 and entry["size"] == len(entry["path"]) for entry in files)


def test_the_same_files_give_the_same_manifest(engine: BuiltEngine) -> None:
    first = (engine.root / MANIFEST).read_bytes()
    write_manifest(engine.root, FACTS)
    assert (engine.root / MANIFEST).read_bytes() == first


def test_absent_manifest(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="not a built engine"):
        read_engine(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [("{", "cannot be read"), ("[]", "unknown schema"), ('{"schema": 99}', "unknown schema")],
)
def test_unreadable_manifest(engine: BuiltEngine, text: str, match: str) -> None:
    (engine.root / MANIFEST).write_text(text)
    with pytest.raises(BadInputError, match=match):
        read_engine(engine.root)


@pytest.mark.parametrize("field", ["options", "inputs", "files"])
def test_incomplete_manifest(engine: BuiltEngine, field: str) -> None:
    manifest = {name: value for name, value in engine.manifest.items() if name != field}
    (engine.root / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BadInputError, match="is incomplete"):
        read_engine(engine.root)


def test_missing_cut_and_changed_files(engine: BuiltEngine) -> None:
    engine.library.write_text("LIB/libsyrinx.so")
    read_engine(engine.root)
    with pytest.raises(BadInputError, match=r"libsyrinx.so was changed"):
        read_engine(engine.root, verify=True)
    engine.library.write_text("lib")
    with pytest.raises(BadInputError, match="has 3 bytes, its manifest says 16"):
        read_engine(engine.root)
    engine.library.unlink()
    with pytest.raises(BadInputError, match="is missing"):
        read_engine(engine.root)
