"""`bench`: how fast a model runs, with what the figures need to be comparable."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from sdk_tools.build.driver import ensure_engine
from sdk_tools.cli.generation import context_options, device_option, open_device
from sdk_tools.cli.options import engine_option, examples, json_option, time_limit_option
from sdk_tools.cli.output import format_bytes, print_json, print_table
from sdk_tools.files import check_output, write_atomic
from sdk_tools.lab.bench import BenchCase, BenchReport, InputKind, Summary, run_bench
from sdk_tools.lab.machine import summarize
from sdk_tools.lab.report import render_bench
from sdk_tools.progress import make_reporter

_EPILOG = examples(
    "python -m sdk_tools bench model.gguf",
    "python -m sdk_tools bench model.gguf --prompt-tokens 512 --gen-tokens 64 --repeats 10 --threads 2",
    "python -m sdk_tools bench model.gguf --input embeds --dual --json",
    "python -m sdk_tools bench model.gguf --html bench.html",
)
COLUMNS = ("", "median", "min", "max", "middle half")


@click.command(epilog=_EPILOG)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--prompt-tokens", type=click.IntRange(1, 1 << 20), default=128, show_default=True)
@click.option("--gen-tokens", type=click.IntRange(0, 1 << 20), default=32, show_default=True)
@click.option("--repeats", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--warmup", type=click.IntRange(0, 1000), default=1, show_default=True, help="Runs that do not count.")
@click.option("--input", "input_kind", type=click.Choice(["tokens", "embeds"]), default="tokens", show_default=True)
@click.option("--threads-batch", type=click.IntRange(1, 512), help="Threads for several rows [default: --threads].")
@click.option("--flash-attention/--no-flash-attention", default=None, help="[default: on]")
@click.option("--dual", is_flag=True, help="Prefill and decode in two contexts, with a hand-over between them.")
@time_limit_option
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write an HTML report.")
@context_options
@device_option
@engine_option
@json_option
def command(
    model: Path,
    prompt_tokens: int,
    gen_tokens: int,
    repeats: int,
    warmup: int,
    input_kind: str,
    threads: int | None,
    threads_batch: int | None,
    ctx: int | None,
    kv: str | None,
    flash_attention: bool | None,
    dual: bool,
    time_limit: float,
    html: Path | None,
    device: str,
    engine: Path | None,
    as_json: bool,
) -> None:
    """Measure prefill and decode: tokens per second as median and spread over repeated runs.

    The output is checked first, and without a sound one there are no figures: two prompts must give different answers,
    and a repeated one the same. Loading is timed apart and is no part of the rates.
    """
    case = BenchCase(
        model=model,
        prompt_tokens=prompt_tokens,
        gen_tokens=gen_tokens,
        repeats=repeats,
        warmup=warmup,
        input_kind=cast("InputKind", input_kind),
        threads=threads,
        threads_batch=threads_batch,
        ctx=ctx,
        kv=kv,
        flash_attention=flash_attention,
        dual=dual,
        timeout_s=time_limit,
    )
    if html:
        check_output(html, (model,))
    reporter = make_reporter(quiet=as_json)
    built = ensure_engine(engine, reporter=reporter)
    with open_device(device) as place:
        result = run_bench(case, place, built, reporter)
    if html:
        write_atomic(html, render_bench(f"{model.name} on {device}", COLUMNS, figure_rows(result), result.to_json()))
    if as_json:
        print_json(result.to_json())
    else:
        _print_result(result, html)


def figure_rows(result: BenchReport) -> list[tuple[str, ...]]:
    """The rows of COLUMNS."""
    rows = [_figure("prefill, tok/s", result.prefill)]
    if result.decode:
        rows.append(_figure("decode, tok/s", result.decode))
    if result.handover_ms:
        rows.append(_figure("hand-over, ms", result.handover_ms))
    rows.append(("load, ms", f"{result.load_ms:.0f}", "", "", ""))
    rows.append(("peak memory", format_bytes(result.peak_rss_bytes), "", "", ""))
    return rows


def _figure(name: str, summary: Summary) -> tuple[str, ...]:
    low, high = summary.low_quartile, summary.high_quartile
    middle = f"{low:.1f} .. {high:.1f} ({summary.spread:.0%})"
    return (name, f"{summary.median:.1f}", f"{summary.minimum:.1f}", f"{summary.maximum:.1f}", middle)


def _print_result(result: BenchReport, html: Path | None) -> None:
    case = result.case
    title = (
        f"{case.model.name}: {case.prompt_tokens} + {case.gen_tokens} tokens as {case.input_kind}, {case.repeats} runs"
    )
    print_table(title, COLUMNS, figure_rows(result))
    facts = [(name, value) for name, value in summarize(result.before.facts).items() if value is not None]
    print_table("", ("device", result.before.facts.serial), facts)
    click.echo(f"Checked first: {'; '.join(check.what for check in result.checks)}.")
    for warning in result.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    if html:
        click.echo(f"Report: {html}")
