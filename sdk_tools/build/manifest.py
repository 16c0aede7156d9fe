"""manifest.json of a built engine: what it was made from, how, and the SHA-256 of every file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sdk_tools.build.targets import BuildOptions, options_from_json
from sdk_tools.errors import BadInputError, UsageError
from sdk_tools.files import hash_file, list_tree, write_json

MANIFEST = "manifest.json"
SCHEMA = 1


@dataclass(frozen=True)
class BuiltEngine:
    """An engine folder: lib/, include/, bin/ and manifest.json."""

    root: Path
    manifest: dict[str, object]

    @property
    def library(self) -> Path:
        return self.root / "lib" / "libsyrinx.so"

    @property
    def cli(self) -> Path:
        return self.root / "bin" / "syrinx"

    @property
    def options(self) -> BuildOptions:
        value = self.manifest["options"]
        assert isinstance(value, dict)
        return options_from_json(value)

    @property
    def inputs(self) -> object:
        """Equal to that of another build exactly if both were made from the same sources in the same way."""
        return self.manifest["inputs"]


def write_manifest(root: Path, facts: dict[str, object]) -> BuiltEngine:
    """Lists the files of `root` and writes its manifest: `facts`, then the files. Has no time in it: same build,
    same manifest."""
    files = [
        {"path": path.relative_to(root).as_posix(), "size": path.stat().st_size, "sha256": hash_file(path)}
        for path in list_tree(root)
        if path.name != MANIFEST
    ]
    manifest: dict[str, object] = {"schema": SCHEMA, **facts, "files": files}
    write_json(root / MANIFEST, manifest)
    return BuiltEngine(root, manifest)


def read_engine(root: Path, *, verify: bool = False) -> BuiltEngine:
    """The engine at `root`. Files are checked for presence and size, with `verify` for their SHA-256 too.

    Errors: BadInputError.
    """
    path = root / MANIFEST
    hint = "Build it: python -m sdk_tools build --abi host"
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise BadInputError(f"{root} is not a built engine: there is no {MANIFEST}.", hint) from error
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}.", hint) from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise BadInputError(f"{path} has an unknown schema.", f"Schema {SCHEMA} is expected. {hint}")
    try:
        engine = BuiltEngine(root, manifest)
        _ = engine.options, engine.inputs
        listed = [(str(entry["path"]), int(entry["size"]), str(entry["sha256"])) for entry in manifest["files"]]
    except (KeyError, TypeError, ValueError, AssertionError, UsageError) as error:
        raise BadInputError(f"{path} is incomplete: {error}.", hint) from error
    for name, size, sha256 in listed:
        _check_file(root / name, size, sha256 if verify else None, hint)
    return engine


def _check_file(path: Path, size: int, sha256: str | None, hint: str) -> None:
    if not path.is_file():
        raise BadInputError(f"{path} is missing, though the engine's manifest lists it.", hint)
    if path.stat().st_size != size:
        raise BadInputError(f"{path} has {path.stat().st_size} bytes, its manifest says {size}.", hint)
    if sha256 and hash_file(path) != sha256:
        raise BadInputError(f"{path} was changed: its SHA-256 is not the one in the manifest.", hint)
