"""`run`: one answer to one prompt."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from sdk_tools.build.driver import ensure_engine
from sdk_tools.cli.generation import context_options, device_option, open_device, sampling_options, to_arguments
from sdk_tools.cli.options import engine_option, examples, json_option, time_limit_option
from sdk_tools.cli.output import format_bytes, print_json
from sdk_tools.errors import UsageError
from sdk_tools.files import check_model_file
from sdk_tools.native_cli import call_engine
from sdk_tools.progress import make_reporter

_EPILOG = examples(
    'python -m sdk_tools run model.gguf --prompt "What is the capital of France?"',
    'python -m sdk_tools run model.gguf --system "Be brief." --prompt - < question.txt',
    'python -m sdk_tools run model.gguf --raw --prompt "Once upon a time" --temperature 0.8 --seed 7',
    'python -m sdk_tools run model.gguf --prompt "Hi" --json',
)
_MAX_ARGUMENT = 120_000  # bytes; Linux allows 128 KiB for one argument, an option's name included


@click.command(epilog=_EPILOG)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--prompt", required=True, help="The user's message; - reads it from standard input.")
@click.option("--system", help="A system message before it.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without the model's chat template.")
@click.option("--max-tokens", type=click.IntRange(1, 1 << 20), default=256, show_default=True)
@click.option("--stop", multiple=True, help="End the answer before this text; may be repeated.")
@click.option("--dual", is_flag=True, help="Prefill and decode in two contexts, with a hand-over between them.")
@time_limit_option
@sampling_options
@context_options
@device_option
@engine_option
@json_option
def command(
    model: Path,
    prompt: str,
    system: str | None,
    raw: bool,
    max_tokens: int,
    stop: tuple[str, ...],
    dual: bool,
    time_limit: float,
    device: str,
    engine: Path | None,
    as_json: bool,
    **options: object,
) -> None:
    """Generate one answer and print it as it comes.

    The prompt goes through the model's own chat template, unless --raw is given. Text that looks like a control token
    stays text. Builds the engine if there is none yet.
    """
    check_model_file(model)
    prompt = _read_prompt(prompt)
    for name, text in (("--prompt", prompt), ("--system", system or ""), *(("--stop", text) for text in stop)):
        _check_text(name, text)
    words = ["--max-tokens", str(max_tokens), *to_arguments(options), *_prompt_words(prompt, system, raw)]
    words += [f"--stop={text}" for text in stop] + (["--dual"] if dual else [])
    built = ensure_engine(engine, reporter=make_reporter(quiet=as_json))
    with open_device(device) as place:
        answer = call_engine(
            place,
            built,
            ["run", place.push(model), *words, *([] if as_json else ["--stream"])],
            on_piece=None if as_json else _print_piece,
            timeout_s=time_limit,
        )
    if as_json:
        print_json(answer)
    else:
        click.echo()
        click.echo(describe_speed(answer), err=True)


def describe_speed(answer: dict[str, object]) -> str:
    """One line about an answer of `syrinx run`."""

    def number(name: str) -> float:
        value = answer.get(name)
        return float(value) if isinstance(value, (int, float)) else 0.0

    def rate(count: float, milliseconds: float) -> str:
        return f"{1000 * count / milliseconds:.1f} tok/s" if milliseconds > 0 else "-"

    return (
        f"[{answer.get('finish')}; prompt {number('n_prompt'):.0f} tokens at "
        f"{rate(number('n_prompt'), number('prefill_ms'))}, answer {number('n_generated'):.0f} tokens at "
        f"{rate(number('n_generated'), number('decode_ms'))}; load {number('load_ms') / 1000:.2f} s, "
        f"peak memory {format_bytes(number('peak_rss_bytes'))}]"
    )


def _read_prompt(prompt: str) -> str:
    try:
        text = sys.stdin.read() if prompt == "-" else prompt
    except UnicodeDecodeError as error:
        raise UsageError(f"The prompt on standard input is no {error.encoding} text: {error.reason}.") from error
    if not text.strip():
        raise UsageError("The prompt is empty.", 'Give one: --prompt "What is the capital of France?"')
    return text


def _check_text(option: str, text: str) -> None:
    """Errors: UsageError, for what the engine's command line cannot take."""
    if "\0" in text:
        raise UsageError(f"{option} holds a NUL character.", "Remove it.")
    try:
        data = os.fsencode(text)  # the bytes that the engine will get, whatever the locale
        data.decode()
    except UnicodeError as error:
        raise UsageError(f"{option} is no UTF-8 text.", "Write it in UTF-8.") from error
    if len(data) > _MAX_ARGUMENT:
        raise UsageError(f"{option} has {len(data)} bytes; more than {_MAX_ARGUMENT} are not possible.", "Shorten it.")


def _prompt_words(prompt: str, system: str | None, raw: bool) -> list[str]:
    if raw and system is not None:
        raise UsageError("--system has no use with --raw.", "Write it into the prompt, or leave --raw out.")
    if raw:
        return [f"--prompt={prompt}", "--raw"]
    return [*([] if system is None else [f"--message=system={system}"]), f"--message=user={prompt}"]


def _print_piece(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
