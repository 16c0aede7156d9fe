"""Tiny random models as fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sdk_tools.files import lock, new_dir
from sdk_tools.paths import cache_dir
from tests.tiny_models import file_name, find_model, folder_key, write_model, write_models


@pytest.fixture(scope="session")
def tiny_dir() -> Path:
    """A folder with every tiny model in float32, NAME.gguf; made once for each version of the generator."""
    # The same folder and lock as the native tests' driver has.
    folder = cache_dir() / "tiny-models" / folder_key()
    with lock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            with new_dir(folder) as temporary:
                write_models(temporary)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_dir: Path) -> Callable[..., Path]:
    """tiny(name, dtype="f32"): the path of a tiny model, which tests must not write to."""

    def locate(name: str, dtype: str = "f32") -> Path:
        path = tiny_dir / file_name(name, dtype)
        if not path.is_file():
            write_model(find_model(name), path, dtype)
        return path

    return locate
