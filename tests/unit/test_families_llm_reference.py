"""Without torch: what is said when it is missing, and that nothing else asks for it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import sdk_tools
from sdk_tools.errors import BadInputError, MissingToolError
from sdk_tools.families.llm import reference

_HEAVY = re.compile(r"^\s*(?:import|from)\s+(torch|transformers)\b", re.MULTILINE)


def test_only_references_import_torch() -> None:
    package = Path(sdk_tools.__file__).parent
    importing = {str(path.relative_to(package)) for path in package.rglob("*.py") if _HEAVY.search(path.read_text())}
    assert importing == {"families/llm/reference.py"}


def test_and_only_when_called() -> None:
    text = Path(reference.__file__).read_text()
    assert not [match for match in _HEAVY.finditer(text) if not match[0].startswith((" ", "\n "))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"never read")
    (tmp_path / "config.json").write_text("{}")
    return path


@pytest.mark.parametrize("from_gguf", [True, False])
def test_missing_packages_are_named_with_the_extra(
    from_gguf: bool, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("torch", "transformers") else name)
    with pytest.raises(MissingToolError, match="torch, transformers") as caught:
        reference.load_gguf(model) if from_gguf else reference.load_checkpoint(model.parent)
    assert "[export]" in caught.value.hint


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="There is no file"):
        reference.load_gguf(tmp_path / "none.gguf")
    with pytest.raises(BadInputError, match=r"config\.json"):
        reference.load_checkpoint(tmp_path)


def test_an_error_of_transformers_is_one_line_with_its_kind() -> None:
    error = reference._explain("transformers cannot load x", KeyError("a\n  b"), "do this")
    assert error.what == "transformers cannot load x: KeyError: 'a\\n b'"
    assert error.hint == "do this"
    assert "memory" in reference._explain("x", MemoryError()).what
