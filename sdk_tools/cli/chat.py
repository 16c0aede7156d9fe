"""`chat`: a conversation, on a terminal or line by line from a pipe."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import click

from sdk_tools.build.driver import ensure_engine
from sdk_tools.chat_session import FINISH_NAMES, ChatSession, Turn
from sdk_tools.cli.generation import context_options, sampling_options
from sdk_tools.cli.options import engine_option, examples
from sdk_tools.cli.output import to_json
from sdk_tools.engine import ContextParams, Engine, KvType, Model, SamplerParams
from sdk_tools.errors import EngineError, UsageError
from sdk_tools.files import check_model_file
from sdk_tools.progress import Reporter, make_reporter

with contextlib.suppress(ImportError):
    import readline  # noqa: F401 - gives input() a history and an editable line

_EPILOG = examples(
    "python -m sdk_tools chat model.gguf",
    'python -m sdk_tools chat model.gguf --system "Answer in French." --temperature 0.7 --top-p 0.9',
    'printf "Hello\\nAnd in German?\\n" | python -m sdk_tools chat model.gguf',
    "python -m sdk_tools chat model.gguf --json < questions.txt",
)
_HELP = """\
/reset         forget the conversation (the system message stays)
/system TEXT   set the system message and forget the conversation; without TEXT there is none
/quit          leave (so does the end of the input)
Ctrl-C         end the answer that is being given; at an empty prompt, leave"""


@click.command(epilog=_EPILOG)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--system", help="A system message.")
@click.option("--max-tokens", type=click.IntRange(1, 1 << 20), default=512, show_default=True, help="Per answer.")
@click.option("--stop", multiple=True, help="End an answer before this text; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each answer.")
@sampling_options
@context_options
@engine_option
def command(
    model: Path,
    system: str | None,
    max_tokens: int,
    stop: tuple[str, ...],
    as_json: bool,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    repetition_penalty: float | None,
    penalty_window: int | None,
    seed: int | None,
    threads: int | None,
    ctx: int | None,
    kv: str | None,
    engine: Path | None,
) -> int:
    """Talk with a model; it remembers the conversation.

    On a terminal, type /help for the commands. From a pipe, every line is a message, answered in order. When the
    conversation outgrows the context, its oldest messages are dropped. Builds the engine if there is none yet.
    """
    check_model_file(model)
    # Ctrl-C ends an answer only; a request to terminate must end the program, in the midst of one too.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    reporter = make_reporter(quiet=as_json)
    library = ensure_engine(engine, reporter=reporter).library
    sampling = SamplerParams(temperature, top_k, top_p, repetition_penalty, penalty_window, seed)
    kv_type = KvType[kv.upper()] if kv else None
    params = ContextParams(n_ctx=ctx, n_threads=threads, type_k=kv_type, type_v=kv_type)
    with (
        Engine(library) as opened,
        opened.create_sampler(sampling) as sampler,
        open_model(opened, model, reporter) as loaded,
        loaded.open_context(params) as context,
    ):
        session = ChatSession(loaded, context, sampler, max_tokens, stop, system)
        face = JsonFace() if as_json else TerminalFace() if sys.stdin.isatty() else PipeFace()
        failures = converse(session, face)
    # A person has seen what failed and gone on; a script only sees the exit code.
    return EngineError.exit_code if failures and not isinstance(face, TerminalFace) else 0


def open_model(engine: Engine, path: Path, reporter: Reporter) -> Model:
    """Opens a model that can chat, with progress. Errors: UsageError if it cannot."""
    with reporter.step(f"Loading {path.name}", total=100) as step:

        def show(_stage: str, fraction: float) -> bool:
            step.update(round(100 * fraction))
            return True

        model = engine.open_model(path, progress=show)
    facts = model.facts
    if not facts.has_tokenizer or not facts.has_chat_template:
        model.close()
        lacking = "tokenizer" if not facts.has_tokenizer else "chat template"
        raise UsageError(f"{path} has no {lacking}, so it cannot chat.", "Use `run --raw`, or another model.")
    return model


class Face(Protocol):
    """How a conversation looks: where messages come from, and where answers go."""

    def messages(self) -> Iterator[str]:
        """The user's lines until the input ends."""

    def piece(self, text: str) -> None:
        """A part of the answer."""

    def done(self, turn: Turn) -> None:
        """The answer is complete."""

    def note(self, text: str) -> None:
        """Something that is not part of the conversation."""


def converse(session: ChatSession, face: Face) -> int:
    """Runs the conversation to its end. Returns how many answers failed."""
    failures = 0
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # one byte in another encoding must not end the conversation
    for line in face.messages():
        text = line.strip()
        if text.startswith("/"):
            if not _obey(session, face, text):
                break
        elif text and not _answer(session, face, text):
            failures += 1
    return failures


def _answer(session: ChatSession, face: Face, text: str) -> bool:
    """False if the engine failed; the session goes on."""
    try:
        turn = session.reply(text, face.piece)
    except KeyboardInterrupt:
        face.note("(stopped)")
        return True
    except EngineError as error:
        face.note(f"error: {error}")
        return False
    face.done(turn)
    if turn.dropped:
        face.note(f"(the context is full: the {turn.dropped} oldest messages were forgotten)")
    return True


def _obey(session: ChatSession, face: Face, text: str) -> bool:
    """Carries out a /command; False ends the conversation."""
    name, _, argument = text.partition(" ")
    if name in ("/quit", "/exit"):
        return False
    if name == "/reset":
        session.reset()
        face.note("(forgotten)")
    elif name == "/system":
        session.system = argument.strip() or None
        session.reset()
        face.note("(no system message)" if session.system is None else "(system message set)")
    elif name == "/help":
        face.note(_HELP)
    else:
        face.note(f"There is no command {name}.\n{_HELP}")
    return True


class PipeFace:
    """Answers on standard output, everything else on standard error."""

    def messages(self) -> Iterator[str]:
        yield from sys.stdin

    def piece(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def done(self, turn: Turn) -> None:
        del turn
        self.piece("\n")

    def note(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")


class TerminalFace(PipeFace):
    """A prompt for every message."""

    def messages(self) -> Iterator[str]:
        self.note("Type a message, or /help.")
        while True:
            try:
                yield input("> ")
            except EOFError:
                self.piece("\n")
                return

    def note(self, text: str) -> None:
        sys.stdout.write(f"\n{text}\n" if text == "(stopped)" else f"{text}\n")


class JsonFace(PipeFace):
    """One object a line: answers {"type":"answer",...}, everything else {"type":"note","text":...}."""

    def piece(self, text: str) -> None:
        del text

    def done(self, turn: Turn) -> None:
        answer = turn.answer
        self._print(
            {
                "type": "answer",
                "text": answer.text,
                "finish": FINISH_NAMES[answer.finish],
                "n_prompt": answer.n_prompt,
                "n_generated": answer.n_generated,
                "prefill_ms": answer.prefill_ms,
                "decode_ms": answer.decode_ms,
                "dropped": turn.dropped,
            }
        )

    def note(self, text: str) -> None:
        self._print({"type": "note", "text": text})

    def _print(self, value: dict[str, object]) -> None:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(to_json({"schema": 1, **value}) + "\n")
            sys.stdout.flush()
