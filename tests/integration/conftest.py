"""A real model, and the command line as users call it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sdk_tools.sample_model import get_sample_model

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def smol() -> Path:
    """SmolLM2-135M-Instruct, from the user's cache."""
    return get_sample_model()


@pytest.fixture(scope="session")
def sdk() -> Run:
    """sdk(*words, stdin=""): runs `python -m sdk_tools WORDS`."""

    def run(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sdk_tools", *(str(word) for word in words)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=900, check=False)

    return run
