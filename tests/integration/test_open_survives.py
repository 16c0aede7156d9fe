"""No file, however damaged, ends the process that opens it: it is opened, or refused with a documented status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

import pytest

from sdk_tools.abi import find_library
from tests.gguf_mutants import (
    COMMANDS,
    Mutant,
    cut_everywhere,
    drop_each_tensor,
    mutate,
    open_file,
    read_image,
    survive,
)

# One of each structure and rope type.
MODELS = ("llama-a", "qwen3-b", "gemma3-a", "qwen2vl-a", "starcoder2-a", "mamba-a", "falcon-h1-a", "qwen3next-a",
          "qwen35-b")  # fmt: skip
N_MUTANTS = 50  # of each; the campaign over more seeds and files is `python -m tests.gguf_mutants`


@pytest.fixture(scope="module")
def cli() -> Path:
    """The command line beside the library: bin/ of an engine folder, or the same folder of a build tree."""
    library = find_library()
    places = (library.parent.parent / "bin" / "syrinx", library.parent / "syrinx")
    found = [place for place in places if place.is_file()]
    assert found, f"no syrinx beside {library}"
    return found[0]


def open_all(cli: Path, mutants: Iterable[Mutant], commands: Sequence[str] = COMMANDS) -> list[tuple[str, int | None]]:
    """Opens each, and returns how it ended: command and exit code."""
    ends = []
    for mutant, outcomes in survive(cli, mutants, commands):
        for outcome in outcomes:
            assert not outcome.fault, f"{outcome.command}: {outcome.fault}, by {mutant.what}\n{outcome.text}"
            ends.append((outcome.command, outcome.exit_code))
    return ends


@pytest.mark.parametrize("name", MODELS)
def test_mutants(name: str, cli: Path, tiny: Callable[[str], Path]) -> None:
    image = read_image(tiny(name))
    ends = open_all(cli, (mutate(image, seed) for seed in range(N_MUTANTS)))
    # Neither everything refused, nor everything let through.
    assert len(ends) == 2 * N_MUTANTS
    assert sum(code == 0 for _, code in ends) > N_MUTANTS // 5
    assert sum(code != 0 for _, code in ends) > N_MUTANTS // 5


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_tensor(name: str, cli: Path, tiny: Callable[[str], Path]) -> None:
    assert open_all(cli, drop_each_tensor(read_image(tiny(name))), ["run"])


def test_files_cut_off_at_every_border(cli: Path, tiny: Callable[[str], Path]) -> None:
    path = tiny("llama-a")
    image, data = read_image(path), path.read_bytes()
    ends = open_all(cli, islice(cut_everywhere(image, data), 0, None, 3))
    assert len(ends) > 100
    assert {code for _, code in ends} == {14}  # 10 + SYRINX_ERR_BAD_MODEL


def test_taking_apart_and_putting_together_changes_nothing(tiny: Callable[[str], Path]) -> None:
    for name in MODELS:
        assert read_image(tiny(name)).to_bytes() == tiny(name).read_bytes()


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("kill -SEGV $$", "exit code -11"),
        ("kill -ABRT $$", "exit code -6"),
        ("exit 1", "exit code 1"),
        ("exit 26", "exit code 26"),
        ("echo no json; exit 14", "not the documented JSON"),
        ("exit 0", "not the documented JSON"),
        ("""echo '{"schema":1,"error":{"status":"SYRINX_ERR_BAD_MODEL","text":"bad"}}'; exit 14""", ""),
        ("""echo '{"schema":1}'""", ""),
    ],
)
def test_what_counts_as_a_fault(script: str, fault: str, tmp_path: Path) -> None:
    program = tmp_path / "syrinx"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    outcome = open_file(program, tmp_path / "model.gguf", "info")
    assert (fault in outcome.fault) if fault else not outcome.fault
