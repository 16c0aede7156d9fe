"""`parity` on a real model, and the ways to name a reference. What it finds is in test_parity_mutations.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sdk_tools import __main__
from sdk_tools.families.llm import stages
from tests.integration.conftest import Run
from tests.reference_tiny import load_reference

IDS = "7,8,9,250,251,7,41,42,100,101,102,3"


def run_json(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, object]]:
    code = __main__.run(["parity", *(str(word) for word in words), "--json"])
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return code, value


@pytest.fixture(scope="module")
def smol_reference(smol: Path, sdk: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the default prompt. Made by a run of its own, which is a test too: text in, PyTorch from the GGUF file."""
    folder = tmp_path_factory.mktemp("smol")
    reference, report = folder / "reference.npz", folder / "report.html"
    done = sdk("parity", smol, "--save-reference", reference, "--report", report)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout
    assert "layer.29.hidden" in done.stdout
    assert "PASSED" in report.read_text()
    return reference


def test_a_real_model_agrees_with_pytorch(smol: Path, smol_reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, value = run_json(capsys, smol, "--reference", smol_reference)
    assert code == 0
    assert value["limits"] == {"kind": "q8act", "recurrent": False, "experts": False}
    found = value["stages"]
    assert isinstance(found, list)
    assert [stage["stage"] for stage in found] == stages.list_stages(30)
    logits = found[-1]
    assert logits["argmax_agreement"] >= 0.8
    assert logits["cosine"] > 0.95
    assert all(miss["margin"] < 2 for miss in logits["argmax_misses"])


def test_a_real_model_by_rows(smol: Path, smol_reference: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, value = run_json(capsys, smol, "--reference", smol_reference, "--input", "embeds")
    assert (code, value["input"]) == (0, "embeds")


def test_quantized_kernels_do_not_pass_as_exact(
    smol: Path, smol_reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The limits are not so wide that the noise of 8-bit activations goes unseen."""
    for kind in ("f32", "f16"):
        code, value = run_json(capsys, smol, "--reference", smol_reference, "--limits", kind)
        assert (code, value["first_diverging_stage"]) == (1, "layer.0.hidden")


def test_another_prompt_than_the_references(
    smol: Path, smol_reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, value = run_json(capsys, smol, "--reference", smol_reference, "--prompt", "Something else.")
    assert (code, value["first_diverging_stage"]) == (1, "prompt_ids")


@pytest.mark.parametrize("name", ["llama-a", "llama-b", "qwen3-a", "starcoder2-b", "mamba-a"])
def test_gguf_read_by_transformers(name: str, tiny: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, value = run_json(capsys, tiny(name), "--prompt", "hello the world, 123")
    assert (code, value["passed"]) == (0, True)


@pytest.mark.parametrize("name", ["falcon-h1-a", "gemma3-a", "qwen3-none", "qwen3next-b"])
def test_checkpoint_folder(
    name: str, tiny: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "checkpoint"
    load_reference(tiny(name)).save_pretrained(checkpoint)
    code, value = run_json(capsys, tiny(name), "--reference", checkpoint, "--tokens", IDS)
    assert (code, value["passed"]) == (0, True)


def test_the_engines_own_dump_as_reference(
    tiny: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.gguf"
    assert run_json(capsys, tiny("llama-a"), "--tokens", IDS, "--save-dump", dump)[0] == 0
    code, value = run_json(capsys, tiny("llama-a"), "--reference", dump)
    assert code == 0
    found = value["stages"]
    assert isinstance(found, list)
    assert all(stage["max_abs"] == 0 for stage in found)


def test_a_checkpoint_with_a_weight_missing(
    tiny: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers would fill it with random numbers."""
    model = load_reference(tiny("llama-a"))
    weights = {name: value for name, value in model.state_dict().items() if "layers.1.mlp.up_proj" not in name}
    model.save_pretrained(tmp_path / "checkpoint", state_dict=weights)
    code = __main__.run(["parity", str(tiny("llama-a")), "--reference", str(tmp_path / "checkpoint"), "--tokens", IDS])
    assert code == 4
    assert "model.layers.1.mlp.up_proj.weight" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("falcon-h1-a", "--tokens", IDS), 4, "falcon-h1"),
        (("qwen3-none",), 2, "no tokenizer"),
        (("llama-a", "--tokens", "1,99999"), 2, "99999"),
        (("llama-a", "--stages", "layer.9.hidden"), 2, "layer.9.hidden"),
    ],
)
def test_errors(
    words: tuple[str, ...], code: int, says: str, tiny: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.run(["parity", str(tiny(words[0])), *words[1:]]) == code
    assert says in capsys.readouterr().err


def test_the_model_is_never_an_output(tiny: Callable[[str], Path], sdk: Run, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(tiny("llama-a").read_bytes())
    for option in ("--save-dump", "--save-reference", "--report"):
        done = sdk("parity", model, "--tokens", "1,2,3", option, model)
        assert done.returncode == 2
        assert model.read_bytes() == tiny("llama-a").read_bytes()
