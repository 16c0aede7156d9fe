from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import embeds_vs_bare_llama as overhead
from sdk_tools.errors import BuildError, EngineError
from tests.unit.fake_toolchain import write_program


def make_rounds(*ratios: float) -> list[overhead.Round]:
    """Rounds on a machine that gets slower and slower."""
    return [
        {
            "bare": {"decode_ms": 100.0 * (i + 1), "decode_cpu_ms": 90.0 * (i + 1)},
            "syrinx": {"decode_ms": 110.0 * (i + 1), "decode_cpu_ms": 90.0 * (i + 1) * ratio},
        }
        for i, ratio in enumerate(ratios)
    ]


def test_rounds_are_paired_so_that_drift_cancels() -> None:
    result = overhead.compute_overhead("embeds", "decode", make_rounds(1.01, 1.02, 1.5))
    assert result.cpu.median == pytest.approx(0.02)
    assert (result.wall.minimum, result.wall.maximum) == pytest.approx((0.1, 0.1))
    assert result.bare_ms == 200.0
    assert result.passed


def test_more_than_the_limit_fails() -> None:
    assert not overhead.compute_overhead("tokens", "decode", make_rounds(1.031, 1.031, 1.031)).passed


def test_a_compiler_error_is_shown(tmp_path: Path) -> None:
    compiler = tmp_path / "c++"
    write_program(compiler, "#!/bin/sh\necho 'no such header' >&2; exit 1\n")
    with pytest.raises(BuildError, match="no such header"):
        overhead.compile_loop(compiler, tmp_path, tmp_path, tmp_path / "out")


def test_a_disagreement_of_the_loops_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "bare_llama"
    write_program(program, "#!/bin/sh\necho 'the two loops disagree by 1 logits' >&2; exit 1\n")
    with pytest.raises(EngineError, match="disagree"):
        overhead.run_loop(program, tmp_path, "tokens", (1, 2, 3, 4))
