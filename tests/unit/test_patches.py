"""Patches apply as they are numbered, exactly or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdk_tools.errors import EngineSourceError
from sdk_tools.patches import apply_patches, hash_patches, list_patches

_FIRST = """\
Why: a test.

--- a/src/one.c
+++ b/src/one.c
@@ -1,3 +1,3 @@
 int a;
-int b;
+int c;
 int d;
"""
_SECOND = _FIRST.replace("-int b;", "-int c;").replace("+int c;", "+int e;")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree/src").mkdir(parents=True)
    (tmp_path / "tree/src/one.c").write_text("int a;\nint b;\nint d;\n")
    (tmp_path / "patches").mkdir()
    return tmp_path / "tree"


def test_patches_apply_in_order(tree: Path, tmp_path: Path) -> None:
    folder = tmp_path / "patches"
    (folder / "0002-second.patch").write_text(_SECOND)
    (folder / "0001-first.patch").write_text(_FIRST)
    (folder / "README.md").write_text("no patch")
    assert [path.name for path in list_patches(folder)] == ["0001-first.patch", "0002-second.patch"]
    apply_patches(tree, folder)
    assert (tree / "src/one.c").read_text() == "int a;\nint e;\nint d;\n"


@pytest.mark.parametrize("found", ["int a;\nint x;\nint d;\n", "int z;\nint a;\nint x;\nint d;\n", ""])
def test_a_patch_that_does_not_fit_is_named(found: str, tree: Path, tmp_path: Path) -> None:
    (tree / "src/one.c").write_text(found)
    (tmp_path / "patches/0001-first.patch").write_text(_FIRST)
    with pytest.raises(EngineSourceError, match=r"0001-first\.patch"):
        apply_patches(tree, tmp_path / "patches")


def test_a_damaged_patch_is_named(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "patches/0001-first.patch").write_text("no patch at all")
    with pytest.raises(EngineSourceError, match=r"0001-first\.patch"):
        apply_patches(tree, tmp_path / "patches")


def test_the_hash_follows_names_and_contents(tmp_path: Path) -> None:
    path = tmp_path / "0001-first.patch"
    path.write_text(_FIRST)
    first = hash_patches(tmp_path)
    path.write_text(_SECOND)
    assert hash_patches(tmp_path) != first
    path.write_text(_FIRST)
    assert hash_patches(tmp_path) == first
    path.rename(tmp_path / "0003-first.patch")
    assert hash_patches(tmp_path) != first
