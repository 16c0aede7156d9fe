from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdk_tools import __main__
from sdk_tools.cli.demo import QUESTION
from sdk_tools.lab.bench import CHECK_PROMPTS
from tests.unit.fake_engine import FakeEngine, make_fake_engine

RUN = {"prefill_ms": 100.0, "decode_ms": 400.0, "handover_ms": 0.0, "n_prompt": 64, "n_generated": 32}


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    fake = make_fake_engine(tmp_path / "engine", {"has_tokenizer": True})
    fake.answer("bench", {"load_ms": 9.0, "runs": [RUN] * 3, "peak_rss_bytes": 5, "params": {}})
    for index, prompt in enumerate(CHECK_PROMPTS):
        fake.answer(f"run {prompt}", {"tokens": [index]})
    fake.answer(f"run --message=user={QUESTION}", {"text": "It is Paris."})
    (tmp_path / "model.gguf").write_bytes(b"never read")
    return fake


def call(engine: FakeEngine, *words: str) -> int:
    folder = engine.root.parent
    common = ["--engine", str(engine.root), "--model", str(folder / "model.gguf"), "--out", str(folder / "demo.json")]
    return __main__.run(["demo", *common, *words])


def test_a_right_answer_is_measured(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(engine) == 0
    out = capsys.readouterr().out
    assert "It is Paris." in out
    assert "640.0" in out
    kept = json.loads((engine.root.parent / "demo.json").read_text())
    assert kept["answer"]["text"] == "It is Paris."
    assert kept["bench"]["decode_tokens_per_s"]["median"] == 80.0


def test_json(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(engine, "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads((engine.root.parent / "demo.json").read_text())


def test_a_wrong_answer_fails_without_figures(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.answer(f"run --message=user={QUESTION}", {"text": "It is Lyon."})
    assert call(engine) == 1
    printed = capsys.readouterr()
    assert "does not contain 'Paris'" in printed.err
    assert "tok/s" not in printed.out
    assert not (engine.root.parent / "demo.json").exists()
    assert not any(words[0] == "bench" for words in engine.calls())
