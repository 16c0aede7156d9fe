from __future__ import annotations

import json
from pathlib import Path

from tests.integration.conftest import Run


def test_the_demo(smol: Path, sdk: Run, tmp_path: Path) -> None:
    figures = tmp_path / "demo.json"
    done = sdk("demo", "--out", figures)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    for name in ("prefill, tok/s", "decode, tok/s", "load, ms", "peak memory"):
        assert name in done.stdout
    value = json.loads(figures.read_text())
    assert value["bench"]["decode_tokens_per_s"]["median"] > 0
    assert "Paris" in value["answer"]["text"]


def test_another_model_gives_another_answer(sdk: Run, tiny: object, tmp_path: Path) -> None:
    """A model of random weights knows no capital: the check can fail."""
    assert callable(tiny)
    done = sdk("demo", "--model", tiny("llama-a"), "--out", tmp_path / "demo.json")
    assert done.returncode == 1
    assert "does not contain 'Paris'" in done.stderr
    assert not (tmp_path / "demo.json").exists()
