from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.integration.conftest import Run

CAPITAL = "What is the capital of France? Answer in one sentence."


def test_a_real_answer_is_streamed(smol: Path, sdk: Run) -> None:
    done = sdk("run", smol, "--prompt", CAPITAL, "--max-tokens", 40)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert done.stdout.endswith("\n")
    assert "[eos; prompt" in done.stderr


def test_json_and_stream_say_the_same(smol: Path, sdk: Run) -> None:
    streamed = sdk("run", smol, "--prompt", "-", "--max-tokens", 24, stdin="Count to five in German.")
    answer = json.loads(sdk("run", smol, "--prompt", "Count to five in German.", "--max-tokens", 24, "--json").stdout)
    assert streamed.stdout == answer["text"] + "\n"
    assert answer["n_generated"] == len(answer["tokens"])


def test_dual_gives_the_same_text(smol: Path, sdk: Run) -> None:
    words = ("run", smol, "--prompt", CAPITAL, "--max-tokens", 16, "--json")
    alone, dual = (json.loads(sdk(*words, *extra).stdout) for extra in ((), ("--dual",)))
    assert dual["tokens"] == alone["tokens"]
    assert dual["handover_bytes"] > 0


def test_sampling_is_repeatable_by_its_seed(tiny: Callable[[str], Path], sdk: Run) -> None:
    words = ("run", tiny("llama-a"), "--prompt", "the", "--raw", "--temperature", 1, "--max-tokens", 24, "--json")
    one, again, other = (json.loads(sdk(*words, "--seed", seed).stdout)["tokens"] for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_a_damaged_model(tiny: Callable[[str], Path], sdk: Run, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny("llama-a").read_bytes()[:-1000])
    done = sdk("run", cut, "--prompt", "a")
    assert (done.returncode, done.stdout) == (4, "")
    assert "cut.gguf" in done.stderr


def test_a_model_without_a_tokenizer(tiny: Callable[[str], Path], sdk: Run) -> None:
    done = sdk("run", tiny("qwen3-none"), "--prompt", "a")
    assert (done.returncode, done.stdout) == (8, "")
    assert "tokenizer" in done.stderr


def test_a_prompt_longer_than_the_training_length_is_refused(tiny: Callable[[str], Path], sdk: Run) -> None:
    done = sdk("run", tiny("llama-a"), "--raw", "--prompt", "word " * 600, "--max-tokens", 3)
    assert done.returncode == 8
    assert "do not fit" in done.stderr


def test_a_nul_in_the_prompt_is_a_usage_error(tiny: Callable[[str], Path], sdk: Run) -> None:
    done = sdk("run", tiny("llama-a"), "--prompt", "-", stdin="a\0b")
    assert done.returncode == 2
    assert "NUL" in done.stderr
