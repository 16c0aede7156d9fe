from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from sdk_tools import __main__
from sdk_tools.cli.run import describe_speed
from tests.unit.fake_engine import FakeEngine, make_fake_engine

ANSWER = {
    "schema": 1, "text": "Paris.", "finish": "eos", "n_prompt": 20, "n_generated": 10, "load_ms": 1500.0,
    "prefill_ms": 100.0, "decode_ms": 500.0, "peak_rss_bytes": 3 << 20,
}  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    fake = make_fake_engine(tmp_path / "engine", {})
    fake.answer("run", ANSWER, pieces=["Par\n", "is. é"], stderr="a warning of llama.cpp\n")
    (tmp_path / "model.gguf").write_bytes(b"never read")
    return fake


def call(engine: FakeEngine, *words: str) -> int:
    return __main__.run(["run", str(engine.root.parent / "model.gguf"), "--engine", str(engine.root), *words])


def test_streams_the_answer_and_tells_the_speed(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(engine, "--prompt", "Capital?") == 0
    printed = capsys.readouterr()
    assert printed.out == "Par\nis. é\n"
    assert "prompt 20 tokens at 200.0 tok/s, answer 10 tokens at 20.0 tok/s; load 1.50 s" in printed.err
    assert "--stream" in engine.calls()[-1]


def test_json_is_the_engines_answer(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(engine, "--prompt", "Capital?", "--json") == 0
    assert json.loads(capsys.readouterr().out) == ANSWER
    assert "--stream" not in engine.calls()[-1]


def test_options_reach_the_engine(engine: FakeEngine) -> None:
    words = [
        "--system",
        "Be brief.",
        "--temperature",
        "0.5",
        "--top-k",
        "4",
        "--top-p",
        "0.9",
        "--seed",
        "18446744073709551615",
    ]
    words += [
        "--repetition-penalty",
        "1.1",
        "--penalty-window",
        "-1",
        "--stop",
        "a",
        "--stop",
        "--b",
        "--max-tokens",
        "9",
    ]
    words += ["--threads", "2", "--ctx", "256", "--kv", "q8_0", "--dual"]
    assert call(engine, "--prompt", "--odd", *words) == 0
    asked = engine.calls()[-1]
    joined = " ".join(asked)
    assert asked[asked.index("--message=system=Be brief.") + 1] == "--message=user=--odd"
    assert [word for word in asked if word.startswith("--stop=")] == ["--stop=a", "--stop=--b"]
    for part in ("--temperature 0.5", "--top-k 4", "--top-p 0.9", "--seed 18446744073709551615", "--max-tokens 9"):
        assert part in joined
    for part in ("--repetition-penalty 1.1", "--penalty-window -1", "--threads 2", "--ctx 256", "--kv q8_0", "--dual"):
        assert part in joined


def test_raw_prompt(engine: FakeEngine) -> None:
    assert call(engine, "--prompt", "Once", "--raw") == 0
    assert {"--prompt=Once", "--raw"} <= set(engine.calls()[-1])


def test_prompt_from_standard_input(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines"))
    assert call(engine, "--prompt", "-") == 0
    assert "--message=user=two\nlines" in engine.calls()[-1]


def test_a_prompt_that_is_no_text(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8"))
    assert call(engine, "--prompt", "-") == 2
    assert "standard input is no utf-8 text" in capsys.readouterr().err
    assert engine.calls() == []


def test_a_long_system_message_fits(engine: FakeEngine) -> None:
    assert call(engine, "--prompt", "a", "--system", "x" * 120_000) == 0


def test_a_failure_of_the_engine_is_not_printed_as_an_answer(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = {"schema": 1, "error": {"status": "SYRINX_ERR_BAD_MODEL", "text": "tensor 'x' lies outside"}}
    engine.answer("run", failure, stderr="llama.cpp: bad\nsyrinx: tensor 'x' lies outside\n", exit_code=14)
    assert call(engine, "--prompt", "a") == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "tensor 'x' lies outside" in printed.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--prompt", " "), 2),
        (("--prompt", "a", "--raw", "--system", "b"), 2),
        (("--prompt", "x" * 130_000), 2),
        (("--prompt", "a", "--system", "x" * 130_000), 2),
        (("--prompt", "a", "--stop", "a", "--stop", "x" * 130_000), 2),
        (("--prompt", "a\udcff"), 2),
        (("--prompt", "a", "--stop", "\udcff"), 2),
        (("--prompt", "a", "--time-limit", "nan"), 2),
        (("--prompt", "a", "--time-limit", "inf"), 2),
        (("--prompt", "a", "--time-limit", "1e300"), 2),
        (("--prompt", "a", "--temperature", "nan"), 2),
        (("--prompt", "a", "--temperature", "1e300"), 2),
        (("--prompt", "a", "--top-p", "nan"), 2),
        (("--prompt", "a", "--repetition-penalty", "nan"), 2),
        (("--prompt", "a", "--repetition-penalty", "1e-300"), 2),
        (("--prompt", "a", "--device", "moon"), 2),
        (("--prompt", "a", "--temperature", "-1"), 2),
        (("--prompt", "a", "--max-tokens", "0"), 2),
        ((), 2),
    ],
)
def test_usage_errors(engine: FakeEngine, words: tuple[str, ...], code: int) -> None:
    assert call(engine, *words) == code
    assert engine.calls() == []


def test_no_such_model(engine: FakeEngine) -> None:
    assert __main__.run(["run", "/none.gguf", "--prompt", "a", "--engine", str(engine.root)]) == 4


def test_speed_without_times() -> None:
    assert "-" in describe_speed({"finish": "eos", "prefill_ms": 0.0})
