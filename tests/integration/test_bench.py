from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sdk_tools import __main__
from tests.integration.conftest import Run

SMALL = ("--prompt-tokens", "32", "--gen-tokens", "8", "--repeats", "3", "--threads", "1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama-a", ()),
        ("llama-a", ("--dual", "--kv", "f32", "--no-flash-attention")),
        ("qwen3-none", ("--input", "embeds")),
        ("falcon-h1-b", ("--input", "embeds", "--dual")),
        ("mamba-a", ("--gen-tokens", "0")),
    ],
)
def test_measures(
    name: str, words: tuple[str, ...], tiny: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.run(["bench", str(tiny(name)), *SMALL, *words, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["schema"], len(value["runs"])) == (1, 3)
    assert all(check["passed"] for check in value["checks"])
    prefill = value["prefill_tokens_per_s"]
    assert 0 < prefill["minimum"] <= prefill["median"] <= prefill["maximum"]
    assert (value["decode_tokens_per_s"] is None) == ("0" in words)
    assert (value["handover_ms"] is not None) == ("--dual" in words)
    assert value["load_ms"] > 0
    assert value["peak_rss_bytes"] > 1 << 20
    assert len(value["engine"]["manifest_sha256"]) == 64


def test_a_real_model_in_a_table(smol: Path, sdk: Run, tmp_path: Path) -> None:
    html = tmp_path / "bench.html"
    done = sdk("bench", smol, *SMALL, "--html", html)
    assert done.returncode == 0, done.stderr
    assert "prefill, tok/s" in done.stdout
    assert "peak memory" in done.stdout
    assert "Checked first" in done.stdout
    assert "manifest_sha256" in html.read_text()


def test_a_model_that_gives_one_answer_to_everything_gets_no_figures(
    tiny: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All logits are zero: greedy chooses token 0 for ever, as a broken accelerator does."""
    from tests.integration.test_parity_mutations import File

    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny("llama-a").read_bytes())
    File(broken).tensor("output.weight")[:] = 0
    assert __main__.run(["bench", str(broken), *SMALL]) == 1
    printed = capsys.readouterr()
    assert "tok/s" not in printed.out
    assert "two prompts give different output: no" in printed.err
