"""Unit tests see none of the user's settings, and write to no cache but their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SYRINX_")] + ["CC", "CXX", "CCACHE_DIR"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SYRINX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def cache(isolated_environment: None) -> Path:
    """The cache folder of this test."""
    return Path(os.environ["SYRINX_CACHE_DIR"])
