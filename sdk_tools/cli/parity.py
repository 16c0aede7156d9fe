"""`parity`: the engine against PyTorch, stage by stage."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from sdk_tools.build.driver import ensure_engine
from sdk_tools.cli.generation import device_option, open_device
from sdk_tools.cli.options import engine_option, examples, json_option, time_limit_option
from sdk_tools.cli.output import print_json, print_table
from sdk_tools.errors import ParityError, UsageError
from sdk_tools.families.llm.parity import DEFAULT_PROMPT, InputKind, ParityCase, ParityReport, run_parity
from sdk_tools.files import check_output, write_atomic
from sdk_tools.lab.limits import KINDS, Verdict
from sdk_tools.lab.report import render_parity
from sdk_tools.progress import make_reporter

_EPILOG = examples(
    "python -m sdk_tools parity model.gguf",
    "python -m sdk_tools parity model.gguf --tokens 1,2,3 --stages embeds,layer.0.hidden,logits",
    "python -m sdk_tools parity model.gguf --reference checkpoint/ --report report.html",
    "python -m sdk_tools parity model.gguf --save-reference ref.npz     # where PyTorch is",
    "python -m sdk_tools parity model.gguf --reference ref.npz          # where it is not",
)


@click.command(epilog=_EPILOG)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--prompt", help=f"Raw text to run [default: {DEFAULT_PROMPT[:44]}...].")
@click.option("--tokens", metavar="IDS", help="Token ids to run instead, such as 1,2,3.")
@click.option(
    "--reference",
    default="gguf",
    show_default=True,
    metavar="gguf|HF_DIR|DUMP",
    help="PyTorch reading the model file itself, a checkpoint folder, or a dump (.npz, .gguf).",
)
@click.option("--stages", default="all", show_default=True, help="Such as embeds,layer.*.hidden,hidden,logits.")
@click.option("--input", "input_kind", type=click.Choice(["tokens", "embeds"]), default="tokens", show_default=True)
@click.option("--limits", metavar="KIND", help=f"Limits of {', '.join(KINDS)} or a weight type [default: the model's].")
@click.option("--threads", type=click.IntRange(1, 512))
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write an HTML report.")
@click.option("--save-reference", type=click.Path(path_type=Path, dir_okay=False), help="Keep the reference (.npz).")
@click.option("--save-dump", type=click.Path(path_type=Path, dir_okay=False), help="Keep the engine's dump (.gguf).")
@time_limit_option
@device_option
@engine_option
@json_option
def command(
    model: Path,
    prompt: str | None,
    tokens: str | None,
    reference: str,
    stages: str,
    input_kind: str,
    limits: str | None,
    threads: int | None,
    report: Path | None,
    save_reference: Path | None,
    save_dump: Path | None,
    time_limit: float,
    device: str,
    engine: Path | None,
    as_json: bool,
) -> int:
    """Compare the engine with PyTorch, stage by stage, on one prompt.

    Both start from the same weights; what may differ is bounded by limits that follow from the type of the weights.
    The first stage over its limits is named. Exit code 0: all within their limits, 1: not.

    The stages are prompt_ids, embeds, layer.N.hidden (the output of block N), hidden (after the final norm), logits.
    """
    case = ParityCase(
        model=model,
        prompt=prompt,
        tokens=None if tokens is None else parse_ids(tokens),
        reference=reference,
        stages=stages,
        input_kind=cast("InputKind", input_kind),
        kind=limits,
        threads=threads,
        save_reference=save_reference,
        save_dump=save_dump,
        timeout_s=time_limit,
    )
    for path in (report, save_reference, save_dump):
        if path:
            check_output(path, (model, Path(reference)))
    reporter = make_reporter(quiet=as_json)
    built = ensure_engine(engine, reporter=reporter)
    with open_device(device) as place:
        result = run_parity(case, place, built, reporter)
    if report:
        write_atomic(report, render_parity(_facts(result), result.verdicts))
    if as_json:
        print_json(result.to_json())
    else:
        _print_result(result, report)
    return 0 if result.passed else ParityError.exit_code


def parse_ids(text: str) -> tuple[int, ...]:
    """ "1,2,3" to ids. Errors: UsageError."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--tokens '{text}' is not a list of token ids.", "Write it as 1,2,3.") from None


def _facts(result: ParityReport) -> dict[str, object]:
    shown = ", ".join(str(value) for value in result.ids[:40])
    return {
        "model": result.case.model,
        "architecture": result.facts.get("architecture"),
        "device": result.device,
        "engine": result.engine_version,
        "reference": f"{result.case.reference} ({result.reference_version or 'version unknown'})",
        "input": result.case.input_kind,
        "limits": _describe_policy(result),
        "tokens": f"{len(result.ids)}: {shown}{' ...' if len(result.ids) > 40 else ''}",
    }


def _describe_policy(result: ParityReport) -> str:
    policy = result.policy
    return policy.kind + (", recurrent" if policy.recurrent else "") + (", experts" if policy.experts else "")


def _print_result(result: ParityReport, report: Path | None) -> None:
    columns = ("stage", "max abs", "RMSE", "median row", "worst row", "worst column", "cosine", "argmax", "verdict")
    title = f"{result.case.model.name} on {result.device}, limits {_describe_policy(result)}, {len(result.ids)} tokens"
    print_table(title, columns, [_row(verdict) for verdict in result.verdicts])
    for miss in [miss for verdict in result.verdicts for miss in verdict.difference.misses or ()]:
        click.echo(
            f"position {miss.row}: token {miss.got} instead of {miss.want}, which led by {miss.margin:.3g} logits"
        )
    first = result.first_diverging
    if first:
        click.secho(f"FAILED. The first diverging stage is {first.difference.stage}:", fg="red", bold=True)
        for failure in first.failures:
            click.echo(f"  {failure}")
    else:
        click.secho("PASSED: every stage is within its limits.", fg="green")
    if report:
        click.echo(f"Report: {report}")


def _row(verdict: Verdict) -> tuple[str, ...]:
    difference = verdict.difference
    word = "pass" if verdict.passed else "FAIL"
    if verdict.limit is None or difference.problem:
        return (difference.stage, *[""] * 7, word)
    agreement = difference.argmax_agreement
    return (
        difference.stage,
        f"{difference.max_abs:.3g}",
        f"{difference.rmse:.3g}",
        f"{difference.typical:.1e}",
        f"{difference.worst:.1e}",
        f"{difference.column:.1e}",
        f"{difference.cosine:.6f}",
        "" if agreement is None else f"{agreement:.0%}",
        word,
    )
