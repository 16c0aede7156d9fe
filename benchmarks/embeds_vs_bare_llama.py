"""What the engine costs on top of libllama: the same work through both, in one process, turn about.

    python benchmarks/embeds_vs_bare_llama.py [--model m.gguf] [--rounds 60] [--out out/embeds_vs_bare_llama.json]

Compiles bare_llama.cpp against the base archives in the build driver's cache and the host engine, and runs it once by
token ids and once by embedding rows. Each round runs both loops, in alternating order; the overhead is the median over
the rounds of (libsyrinx / bare - 1), so that what drifts during the run cancels out. It is judged by processor time,
which other programs disturb less than the clock on the wall; both are shown. Exit code 1 above the limit.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from sdk_tools import process
from sdk_tools.build.base import get_base
from sdk_tools.build.driver import ensure_engine, open_workshop
from sdk_tools.cli.output import print_table
from sdk_tools.devices.host import HostDevice
from sdk_tools.errors import BuildError, EngineError, ParityError, SyrinxError
from sdk_tools.files import write_json
from sdk_tools.lab.bench import Summary, summarize
from sdk_tools.lab.machine import describe_engine, find_warnings, take_snapshot
from sdk_tools.paths import default_output_dir
from sdk_tools.progress import make_reporter
from sdk_tools.sample_model import get_sample_model

SOURCE = Path(__file__).with_name("bare_llama.cpp")
ARCHIVES = ("llama", "ggml", "ggml-cpu", "ggml-base")
INPUTS = ("tokens", "embeds")
PHASES = ("prefill", "decode")
LIMIT = 0.03
_TIME_LIMIT_S = 3600.0

Round = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Overhead:
    """One phase of one kind of input. wall, cpu: of each round, libsyrinx / bare - 1. bare_ms: a median."""

    input_kind: str
    phase: str
    wall: Summary
    cpu: Summary
    bare_ms: float

    @property
    def passed(self) -> bool:
        return self.cpu.median <= LIMIT


def compute_overhead(input_kind: str, phase: str, rounds: Sequence[Round]) -> Overhead:
    """Pairs what was measured in the same round."""

    def ratios(key: str) -> Summary:
        return summarize([one["syrinx"][key] / one["bare"][key] - 1 for one in rounds])

    bare_ms = statistics.median(one["bare"][f"{phase}_ms"] for one in rounds)
    return Overhead(input_kind, phase, ratios(f"{phase}_ms"), ratios(f"{phase}_cpu_ms"), bare_ms)


def compile_loop(compiler: Path, base: Path, engine: Path, target: Path) -> None:
    """Links the bare loop's own libllama beside libsyrinx. Errors: BuildError with what the compiler said."""
    command: list[str | Path] = [compiler, "-std=c++17", "-O2", f"-I{engine}/include", f"-I{base}/include", SOURCE]
    command += ["-o", target, engine / "lib" / "libsyrinx.so", f"-Wl,-rpath,{engine}/lib"]
    command += [base / "lib" / f"lib{name}.a" for name in ARCHIVES]
    done = process.run([*command, "-lpthread", "-ldl", "-lm"], timeout_s=_TIME_LIMIT_S)
    if done.exit_code != 0:
        raise BuildError(f"{SOURCE.name} does not compile.\n{done.stderr[-3000:]}")


def run_loop(program: Path, model: Path, input_kind: str, counts: Sequence[int]) -> dict[str, list[Round]]:
    """Runs one kind of input. Errors: EngineError (the two disagree, or either failed)."""
    done = process.run([program, model, input_kind, *(str(count) for count in counts)], timeout_s=_TIME_LIMIT_S)
    if done.exit_code != 0:
        raise EngineError(f"The comparison by {input_kind} failed: {done.stderr.strip()[-2000:]}")
    answer: dict[str, list[Round]] = json.loads(done.stdout)
    return answer


@click.command()
@click.option("--model", type=click.Path(path_type=Path, exists=True), help="[default: SmolLM2-135M-Instruct]")
@click.option("--prompt-tokens", type=click.IntRange(1), default=32, show_default=True)
@click.option("--gen-tokens", type=click.IntRange(1), default=16, show_default=True)
@click.option("--rounds", type=click.IntRange(3), default=60, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="[default: out/embeds_vs_bare_llama.json]")
def main(model: Path | None, prompt_tokens: int, gen_tokens: int, rounds: int, threads: int, out: Path | None) -> None:
    """Measure the engine's overhead against a bare libllama loop."""
    reporter = make_reporter()
    engine = ensure_engine(reporter=reporter)
    shop = open_workshop(engine.options, reporter=reporter)
    base = get_base(shop.options, shop.source, shop.compiler, shop.tools, shop.jobs, shop.reporter)
    path = model or get_sample_model(reporter=reporter)
    counts = (prompt_tokens, gen_tokens, rounds, threads)
    measured: dict[str, list[Round]] = {}
    with HostDevice() as device, tempfile.TemporaryDirectory(prefix="syrinx-bare-") as folder:
        program = Path(folder) / "bare_llama"
        compile_loop(shop.compiler.cxx, base.path, engine.root, program)
        before = take_snapshot(device)
        for kind in INPUTS:
            with reporter.step(f"Measuring {rounds} rounds by {kind}"):
                measured[kind] = run_loop(program, path, kind, counts)["rounds"]
        after = take_snapshot(device)
    overheads = [compute_overhead(kind, phase, measured[kind]) for kind in INPUTS for phase in PHASES]
    target = out or default_output_dir("embeds_vs_bare_llama.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "schema": 1,
        "kind": "overhead",
        "model": str(path),
        "params": dict(zip(("prompt_tokens", "gen_tokens", "rounds", "threads"), counts, strict=True)),
        "limit": LIMIT,
        "overheads": [{**asdict(overhead), "passed": overhead.passed} for overhead in overheads],
        "rounds": measured,
        "engine": describe_engine(engine),
        "device": {"before": before.to_json(), "after": after.to_json()},
        "warnings": find_warnings(before, after),
    }
    write_json(target, result)
    print_result(overheads, target)
    if not all(overhead.passed for overhead in overheads):
        raise ParityError(f"The engine's overhead is above {LIMIT:.0%}.", "Run it again on an idle machine.")


def print_result(overheads: Sequence[Overhead], target: Path) -> None:
    columns = ("input", "phase", "overhead, CPU time", "middle half", "overhead, wall", "bare loop, ms")
    rows = [
        (
            overhead.input_kind,
            overhead.phase,
            f"{overhead.cpu.median:+.2%}",
            f"{overhead.cpu.low_quartile:+.1%} .. {overhead.cpu.high_quartile:+.1%}",
            f"{overhead.wall.median:+.2%}",
            f"{overhead.bare_ms:.1f}",
        )
        for overhead in overheads
    ]
    print_table("libsyrinx against a bare libllama loop", columns, rows)
    click.echo(f"Figures: {target}")


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except SyrinxError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
