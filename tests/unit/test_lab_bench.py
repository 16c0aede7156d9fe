from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sdk_tools import __main__
from sdk_tools.devices.host import HostDevice
from sdk_tools.errors import BadInputError, EngineError, ParityError, UsageError
from sdk_tools.gguf_io import StageDump, write_gguf_dump
from sdk_tools.lab.bench import CHECK_PROMPTS, BenchCase, BenchReport, run_bench, summarize
from tests.unit.fake_engine import FakeEngine, make_fake_engine

RUNS = [
    {"prefill_ms": 500.0, "decode_ms": 800.0, "handover_ms": 1.5, "n_prompt": 100, "n_generated": 16},
    {"prefill_ms": 400.0, "decode_ms": 400.0, "handover_ms": 2.5, "n_prompt": 100, "n_generated": 16},
    {"prefill_ms": 1000.0, "decode_ms": 1600.0, "handover_ms": 0.5, "n_prompt": 100, "n_generated": 16},
]
ANSWER: dict[str, Any] = {
    "schema": 1, "load_ms": 250.0, "runs": RUNS, "peak_rss_bytes": 1 << 20, "params": {"threads": 2},
}  # fmt: skip
FACTS: dict[str, object] = {"architecture": "llama", "has_tokenizer": True, "n_params": 5}


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    fake = make_fake_engine(tmp_path / "engine", FACTS)
    fake.answer("bench", ANSWER)
    fake.answer(f"run {CHECK_PROMPTS[0]}", {"tokens": [1, 2, 3]})
    fake.answer(f"run {CHECK_PROMPTS[1]}", {"tokens": [1, 2, 4]})
    return fake


@pytest.fixture
def case(tmp_path: Path) -> BenchCase:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"never read")
    return BenchCase(model, prompt_tokens=100, gen_tokens=16, repeats=3)


def measure(case: BenchCase, engine: FakeEngine) -> BenchReport:
    with HostDevice() as device:
        return run_bench(case, device, engine.built)


# ----------------------------------------------------------------------------------------------------- summarize


def test_summary_of_several() -> None:
    summary = summarize([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (summary.count, summary.median, summary.minimum, summary.maximum) == (5, 3.0, 1.0, 5.0)
    assert (summary.low_quartile, summary.high_quartile) == (2.0, 4.0)
    assert summary.spread == pytest.approx(2 / 3)


def test_summary_of_one() -> None:
    summary = summarize([7.0])
    assert (summary.median, summary.low_quartile, summary.high_quartile, summary.spread) == (7.0, 7.0, 7.0, 0.0)


# ----------------------------------------------------------------------------------------------------- the figures


def test_rates_are_tokens_by_their_own_time(case: BenchCase, engine: FakeEngine) -> None:
    report = measure(case, engine)
    assert report.prefill == summarize([200.0, 250.0, 100.0])
    assert report.decode == summarize([20.0, 40.0, 10.0])
    assert report.handover_ms is None
    assert (report.load_ms, report.peak_rss_bytes) == (250.0, 1 << 20)


def test_handover_only_with_two_contexts(case: BenchCase, engine: FakeEngine) -> None:
    report = measure(replace(case, dual=True), engine)
    assert report.handover_ms is not None
    assert report.handover_ms.median == 1.5
    assert "--dual" in engine.calls()[-1]


def test_without_generated_tokens_there_is_no_decode_rate(case: BenchCase, engine: FakeEngine) -> None:
    engine.answer("bench", {**ANSWER, "runs": [{**run, "n_generated": 0, "decode_ms": 0.0} for run in RUNS]})
    assert measure(replace(case, gen_tokens=0), engine).decode is None


def test_what_the_engine_is_asked(case: BenchCase, engine: FakeEngine) -> None:
    measure(replace(case, threads=2, kv="q8_0", flash_attention=False, ctx=512, input_kind="embeds"), engine)
    words = " ".join(engine.calls()[-1])
    for part in ("--prompt-tokens 100", "--gen-tokens 16", "--repeats 3", "--warmup 1", "--input embeds"):
        assert part in words
    for part in ("--threads 2", "--kv q8_0", "--flash-attention 0", "--ctx 512"):
        assert part in words
    assert "--threads 2" in " ".join(engine.calls()[1])  # the check runs where the measurement does


def test_json_holds_what_makes_figures_comparable(case: BenchCase, engine: FakeEngine) -> None:
    value = measure(case, engine).to_json()
    json.dumps(value, allow_nan=False)
    assert (value["schema"], value["kind"]) == (1, "bench")
    assert isinstance(value["engine"], dict)
    assert len(value["engine"]["manifest_sha256"]) == 64
    assert isinstance(value["device"], dict)
    assert value["device"]["before"]["cores"] >= 1
    assert value["device"]["after"]["time"] >= value["device"]["before"]["time"]
    assert value["runs"] == RUNS
    assert isinstance(value["params"], dict)
    assert (value["params"]["prompt_tokens"], value["params"]["threads"]) == (100, 2)


@pytest.mark.parametrize("broken", [{"runs": []}, {"runs": [{"prefill_ms": 0, "n_prompt": 1}]}, {"load_ms": None}, {}])
def test_figures_that_make_no_sense(case: BenchCase, engine: FakeEngine, broken: dict[str, Any]) -> None:
    engine.answer("bench", {**ANSWER, **broken} if broken else {})
    with pytest.raises(EngineError, match="make no sense"):
        measure(case, engine)


@pytest.mark.parametrize("name", ["prompt_tokens", "gen_tokens", "repeats", "warmup"])
def test_case_checks_its_numbers(case: BenchCase, name: str) -> None:
    values: dict[str, Any] = {name: -1}
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} is -1"):
        replace(case, **values)


def test_no_such_model(case: BenchCase, engine: FakeEngine) -> None:
    with pytest.raises(BadInputError, match="There is no file"):
        measure(replace(case, model=Path("/none.gguf")), engine)


# -------------------------------------------------------------------------------------------------- the output check


def measured(engine: FakeEngine) -> bool:
    return any(call[0] == "bench" for call in engine.calls())


def test_the_same_answer_to_everything_is_refused(case: BenchCase, engine: FakeEngine) -> None:
    engine.answer("run", {"tokens": [1, 1, 1]})
    with pytest.raises(ParityError, match="two prompts give different output: no"):
        measure(case, engine)
    assert not measured(engine)


def test_another_answer_each_time_is_refused(
    case: BenchCase, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(range(100))
    monkeypatch.setattr("sdk_tools.lab.bench._probe_text", lambda *_: next(answers))
    with pytest.raises(ParityError, match="a repeated prompt gives the same output: no"):
        measure(case, engine)
    assert not measured(engine)


def set_logits(engine: FakeEngine, folder: Path, ids: str, value: float) -> None:
    path = folder / f"{ids}.gguf"
    write_gguf_dump(path, StageDump({"logits": np.full((4, 3), value, np.float32)}))
    engine.answer(f"parity {ids}", {"schema": 1}, dump=path)


def test_without_a_tokenizer_logits_are_compared(case: BenchCase, engine: FakeEngine, tmp_path: Path) -> None:
    engine.answer("info", {**FACTS, "has_tokenizer": False})
    set_logits(engine, tmp_path, "1,2,3,4", 1.0)
    set_logits(engine, tmp_path, "4,3,2,1", 1.0)
    with pytest.raises(ParityError, match="logits of two prompts"):
        measure(case, engine)
    assert not measured(engine)
    set_logits(engine, tmp_path, "4,3,2,1", 2.0)
    assert all(check.passed for check in measure(case, engine).checks)


# --------------------------------------------------------------------------------------------------- the command


def call(case: BenchCase, engine: FakeEngine, *words: str) -> int:
    sizes = ["--prompt-tokens", "100", "--gen-tokens", "16", "--repeats", "3"]
    return __main__.run(["bench", str(case.model), "--engine", str(engine.root), *sizes, *words])


def test_command_table_and_report(
    case: BenchCase, engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "bench.html"
    assert call(case, engine, "--html", str(html)) == 0
    out = capsys.readouterr().out
    assert "200.0" in out
    assert "20.0" in out
    assert "1.0 MiB" in out
    text = html.read_text()
    assert "200.0" in text
    assert "manifest_sha256" in text


def test_command_json(case: BenchCase, engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(case, engine, "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["prefill_tokens_per_s"]["median"] == 200.0
    assert value["decode_tokens_per_s"]["maximum"] == 40.0


def test_command_prints_no_figure_when_the_check_fails(
    case: BenchCase, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.answer("run", {"tokens": []})
    assert call(case, engine) == 1
    printed = capsys.readouterr()
    assert "tok/s" not in printed.out
    assert "output check failed" in printed.err
