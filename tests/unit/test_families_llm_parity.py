from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sdk_tools import __main__
from sdk_tools.devices.host import HostDevice
from sdk_tools.errors import BadInputError, EngineError, UsageError
from sdk_tools.families.llm import stages
from sdk_tools.families.llm.parity import DEFAULT_PROMPT, ParityCase, ParityReport, run_parity
from sdk_tools.gguf_io import StageDump, read_dump, write_gguf_dump, write_npz_dump
from tests.unit.fake_engine import FakeEngine, make_fake_engine

FACTS: dict[str, object] = {
    "architecture": "llama",
    "structure": "dense",
    "n_layer": 2,
    "has_tokenizer": True,
    "bytes_by_type": {"f32": {"tensors": 3, "params": 100, "bytes": 400}},
    "metadata": {"llama.block_count": "2"},
    "fingerprint": "00000000000000ff",
}
IDS = (7, 8, 9, 7, 1, 2, 3, 4, 5, 6)


def make_dump() -> StageDump:
    rng = np.random.default_rng(4)
    names = [name for name in stages.list_stages(2) if name != stages.PROMPT_IDS]
    return StageDump({name: rng.normal(size=(len(IDS), 6)).astype(np.float32) for name in names}, IDS, 255, "engine 1")


class Bench:
    """A model file, a fake engine, and a reference dump that agrees with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model.gguf"
        self.model.write_bytes(b"never read")
        self.engine: FakeEngine = make_fake_engine(folder / "engine", FACTS)
        self.dump = make_dump()
        self.reference = folder / "reference.npz"
        write_npz_dump(self.reference, replace(self.dump, version="torch"))
        self.set_dump(self.dump)

    def set_dump(self, dump: StageDump) -> None:
        write_gguf_dump(self.folder / "engine-dump.gguf", dump)
        self.engine.answer("parity", {"schema": 1, "tokens": list(dump.ids)}, dump=self.folder / "engine-dump.gguf")

    def run(self, **options: object) -> ParityReport:
        case = ParityCase(self.model, reference=str(self.reference))
        with HostDevice() as device:
            return run_parity(replace(case, **options), device, self.engine.built)  # type: ignore[arg-type]

    def change(self, stage: str, factor: float) -> None:
        rows = self.dump.stages[stage] * np.float32(factor)
        self.set_dump(replace(self.dump, stages={**self.dump.stages, stage: rows}))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_equal_dumps_pass(bench: Bench) -> None:
    report = bench.run()
    assert report.passed
    assert report.first_diverging is None
    assert [verdict.difference.stage for verdict in report.verdicts] == stages.list_stages(2)
    assert (report.engine_version, report.reference_version, report.ids) == ("engine 1", "torch", IDS)


@pytest.mark.parametrize("stage", ["embeds", "layer.0.hidden", "layer.1.hidden", "hidden", "logits"])
def test_the_first_diverging_stage_is_named(bench: Bench, stage: str) -> None:
    bench.change(stage, 1.001)
    report = bench.run()
    assert not report.passed
    assert report.first_diverging is not None
    assert report.first_diverging.difference.stage == stage
    assert report.to_json()["first_diverging_stage"] == stage


def test_the_limits_follow_from_the_weights(bench: Bench) -> None:
    bench.change("hidden", 1.001)
    assert not bench.run().passed
    assert bench.run(kind="q8_0").passed
    bench.engine.answer("info", {**FACTS, "bytes_by_type": {"f32": {"params": 9}, "q4_K": {"params": 1}}})
    report = bench.run()
    assert (report.passed, report.policy.kind) == (True, "q8act")
    hybrid = {**FACTS, "structure": "hybrid", "metadata": {"llama.expert_count": "8"}}
    bench.engine.answer("info", hybrid)
    assert (bench.run().policy.recurrent, bench.run().policy.experts) == (True, True)


def test_other_ids_are_the_first_divergence(bench: Bench) -> None:
    bench.set_dump(replace(bench.dump, ids=(*IDS[:-1], 99)))
    report = bench.run(prompt="text")
    assert report.first_diverging is not None
    assert report.first_diverging.difference.stage == stages.PROMPT_IDS
    assert "id 9 is 99 instead of 6" in report.first_diverging.failures[0]


def test_what_the_engine_is_asked(bench: Bench) -> None:
    def last_call() -> list[str]:
        return bench.engine.calls()[-1]

    bench.run()
    assert "--tokens=7,8,9,7,1,2,3,4,5,6" in last_call()  # the dump's own
    bench.run(prompt="--odd text")
    assert "--prompt=--odd text" in last_call()
    bench.run(tokens=IDS, stages="logits,prompt_ids", input_kind="embeds", threads=2)
    words = last_call()
    assert words[words.index("--stages") + 1] == "logits"
    assert words[words.index("--input") + 1] == "embeds"
    assert words[words.index("--threads") + 1] == "2"
    assert DEFAULT_PROMPT not in " ".join(words)


def test_only_the_stages_asked_for_are_judged(bench: Bench) -> None:
    bench.change("hidden", 2.0)
    report = bench.run(stages="layer.*.hidden")
    assert report.passed
    assert [verdict.difference.stage for verdict in report.verdicts] == ["layer.0.hidden", "layer.1.hidden"]


@pytest.mark.parametrize("side", ["reference", "engine's dump"])
def test_a_missing_stage_is_no_pass(bench: Bench, side: str) -> None:
    less = replace(bench.dump, stages={"logits": bench.dump.stages["logits"]})
    if side == "reference":
        write_npz_dump(bench.reference, less)
    else:
        bench.set_dump(less)
    with pytest.raises(BadInputError, match=f"The {side} has no stage 'embeds'; it has logits"):
        bench.run()


def test_another_number_of_rows_is_a_divergence(bench: Bench) -> None:
    bench.set_dump(replace(bench.dump, stages={name: rows[:-1] for name, rows in bench.dump.stages.items()}))
    report = bench.run()
    assert report.first_diverging is not None
    assert "(9, 6) instead of (10, 6)" in report.first_diverging.failures[0]


def test_dumps_can_be_kept(bench: Bench) -> None:
    kept, reference = bench.folder / "kept.gguf", bench.folder / "kept.npz"
    bench.run(save_dump=kept, save_reference=reference)
    assert list(read_dump(kept).stages) == list(bench.dump.stages)
    assert read_dump(reference).version == "torch"


def test_a_kept_dump_of_the_engine_is_a_reference_too(bench: Bench) -> None:
    assert bench.run(reference=str(bench.folder / "engine-dump.gguf")).passed


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prompt": "a", "tokens": (1,)}, "Both a prompt and tokens"),
        ({"tokens": ()}, "no token ids"),
        ({"stages": "hiden"}, "'hiden'"),
        ({"kind": "f63"}, "'f63'"),
    ],
)
def test_wrong_options(bench: Bench, options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        bench.run(**options)


def test_a_model_without_a_tokenizer_needs_tokens(bench: Bench) -> None:
    bench.engine.answer("info", {**FACTS, "has_tokenizer": False})
    with pytest.raises(UsageError, match="no tokenizer"):
        bench.run(prompt="text")


def test_no_such_model_or_reference(bench: Bench) -> None:
    with pytest.raises(BadInputError, match="There is no file"):
        bench.run(model=bench.folder / "none.gguf")
    with pytest.raises(BadInputError, match=r"config\.json"):
        bench.run(reference=str(bench.folder))


def test_an_engine_of_another_version(bench: Bench) -> None:
    bench.engine.answer("info", {"n_layer": 2})
    with pytest.raises(EngineError, match="syrinx info"):
        bench.run()
    bench.engine.answer("info", FACTS)
    bench.engine.answer("parity", {"schema": 1}, dump=bench.folder / "engine-dump.gguf")
    with pytest.raises(EngineError, match="which tokens"):
        bench.run()


# --------------------------------------------------------------------------------------------------- the command


def call(bench: Bench, *words: str) -> int:
    common = ["--reference", str(bench.reference), "--engine", str(bench.engine.root)]
    return __main__.run(["parity", str(bench.model), *common, *words])


def test_command_passes(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    report = bench.folder / "report.html"
    assert call(bench, "--report", str(report)) == 0
    out = capsys.readouterr().out
    assert "PASSED" in out
    assert "layer.1.hidden" in out
    html = report.read_text()
    assert "PASSED" in html
    assert html.count("<svg") == 2


def test_command_fails_and_names_the_stage(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.change("layer.1.hidden", 1.01)
    report = bench.folder / "report.html"
    assert call(bench, "--report", str(report)) == 1
    assert "The first diverging stage is layer.1.hidden" in capsys.readouterr().out
    assert "first diverging stage is layer.1.hidden" in report.read_text()


def test_command_json(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.change("logits", -1.0)
    assert call(bench, "--json", "--tokens", "7,8,9,7,1,2,3,4,5,6") == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["schema"], result["passed"], result["first_diverging_stage"]) == (1, False, "logits")
    assert [stage["stage"] for stage in result["stages"]] == stages.list_stages(2)
    assert result["stages"][-1]["argmax_agreement"] < 1
    assert result["stages"][-1]["cosine"] == pytest.approx(-1)
    assert result["limits"]["kind"] == "f32"


@pytest.mark.parametrize("words", [("--tokens", "1,x"), ("--tokens", ""), ("--report", "/no/such/folder/r.html")])
def test_command_usage_errors(bench: Bench, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(bench, *words) == 2
    assert "error:" in capsys.readouterr().err
