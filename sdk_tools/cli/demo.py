"""`demo`: from nothing to a checked answer of a real model, with measured figures."""

from __future__ import annotations

from pathlib import Path

import click

from sdk_tools.build.driver import ensure_engine
from sdk_tools.build.manifest import BuiltEngine
from sdk_tools.cli.bench import COLUMNS, figure_rows
from sdk_tools.cli.options import engine_option, examples, json_option
from sdk_tools.cli.output import print_json, print_table
from sdk_tools.devices.base import Device
from sdk_tools.devices.host import HostDevice
from sdk_tools.errors import ParityError
from sdk_tools.files import check_model_file, check_output, write_json
from sdk_tools.lab.bench import BenchCase, run_bench
from sdk_tools.native_cli import call_engine
from sdk_tools.paths import default_output_dir
from sdk_tools.progress import make_reporter
from sdk_tools.sample_model import SMOLLM2, get_sample_model

QUESTION = "What is the capital of France? Answer in one sentence."
EXPECTED = "Paris"
_EPILOG = examples(
    "python -m sdk_tools demo", "python -m sdk_tools demo --json", "python -m sdk_tools demo --model m.gguf"
)
_LIMIT_S = 900.0


@click.command(epilog=_EPILOG)
@click.option("--model", type=click.Path(path_type=Path), help=f"Another chat model [default: {SMOLLM2.file_name}].")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write the figures [default: out/demo.json].")
@engine_option
@json_option
def command(model: Path | None, out: Path | None, engine: Path | None, as_json: bool) -> None:
    """Build the engine, fetch a small model, ask it a question, check the answer, and measure.

    Exit code 1 if the answer is wrong. The figures are also written to out/demo.json.
    """
    if model:
        check_model_file(model)
    if out:
        check_output(out, (model,) if model else ())
    reporter = make_reporter(quiet=as_json)
    built = ensure_engine(engine, reporter=reporter)
    path = model or get_sample_model(reporter=reporter)
    with HostDevice() as device:
        answer = ask(device, built, path)
        if not as_json:
            click.echo(f"Question: {QUESTION}\nAnswer:   {answer['text']}")
        check_answer(str(answer["text"]))
        bench = run_bench(BenchCase(path, prompt_tokens=64, gen_tokens=32, repeats=3), device, built, reporter)
    result = {"schema": 1, "kind": "demo", "question": QUESTION, "answer": answer, "bench": bench.to_json()}
    target = out or default_output_dir("demo.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, result)
    if as_json:
        print_json(result)
    else:
        print_table(f"{path.name} on this machine", COLUMNS, figure_rows(bench))
        click.echo(f"The answer is right. Figures: {target}")


def ask(device: Device, engine: BuiltEngine, model: Path) -> dict[str, object]:
    """Asks the question, greedily."""
    words = [f"--message=user={QUESTION}", "--temperature", "0", "--max-tokens", "64"]
    return call_engine(device, engine, ["run", device.push(model), *words], timeout_s=_LIMIT_S)


def check_answer(text: str) -> None:
    """Errors: ParityError if the answer does not name the city."""
    if EXPECTED not in text:
        raise ParityError(
            f"The answer is wrong: it does not contain '{EXPECTED}'. It is: {text!r}",
            "Find the first stage that differs with `python -m sdk_tools parity MODEL`.",
        )
