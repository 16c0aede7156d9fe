"""The session and the command's conversation, on a model that answers as it is told."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from sdk_tools.chat_session import ChatSession
from sdk_tools.cli.chat import JsonFace, PipeFace, TerminalFace, converse
from sdk_tools.engine import Context, ContextFullError, Finish, Generated, Message, Model, Rendered, Sampler
from sdk_tools.errors import Cancelled, EngineError


class FakeModel:
    """Renders one token a message; refuses system messages if told to."""

    def __init__(self) -> None:
        self.seen: list[list[Message]] = []
        self.refuses_system = False

    def apply_chat_template(self, messages: Sequence[Message]) -> Rendered:
        if self.refuses_system and messages[0].role == "system":
            raise EngineError("the template takes no system message")
        self.seen.append(list(messages))
        return Rendered("", tuple(range(len(messages))))


class FakeContext:
    """Answers with the number of the call; room for n_ctx messages."""

    def __init__(self, n_ctx: int = 1000) -> None:
        self.n_ctx = n_ctx
        self.calls = 0
        self.options: dict[str, Any] = {}
        self.interrupt_after: int | None = None

    def cancel(self) -> None:
        self.interrupt_after = None

    def generate(
        self, tokens: Sequence[int], sampler: object, *, on_text: Callable[[str], None], **options: Any
    ) -> Generated:
        del sampler
        if len(tokens) > self.n_ctx:
            raise ContextFullError("too long")
        self.calls += 1
        self.options = options
        pieces = ["answer ", str(self.calls)]
        for index, piece in enumerate(pieces):
            if self.interrupt_after == index:
                raise KeyboardInterrupt
            on_text(piece)
        return Generated("".join(pieces), (1, 2), Finish.EOS, len(tokens), 2, 1.0, 0.0, 2.0, 0)


class Fixture:
    def __init__(self) -> None:
        self.model = FakeModel()
        self.context = FakeContext()
        self.session = ChatSession(
            cast("Model", self.model), cast("Context", self.context), cast("Sampler", None), max_tokens=7, stop=("x",)
        )

    def reply(self, text: str) -> str:
        return self.session.reply(text, lambda _piece: None).answer.text


@pytest.fixture
def chat() -> Fixture:
    return Fixture()


# ---------------------------------------------------------------------------------------------------------- session


def test_history_is_kept(chat: Fixture) -> None:
    chat.session.system = "Be brief."
    assert [chat.reply("one"), chat.reply("two")] == ["answer 1", "answer 2"]
    assert chat.model.seen[1] == [
        Message("system", "Be brief."),
        Message("user", "one"),
        Message("assistant", "answer 1"),
        Message("user", "two"),
    ]
    assert chat.context.options == {"max_tokens": 7, "stop": ("x",)}


def test_pieces_come_in_order(chat: Fixture) -> None:
    pieces: list[str] = []
    chat.session.reply("one", pieces.append)
    assert pieces == ["answer ", "1"]


def test_reset_forgets_all_but_the_system_message(chat: Fixture) -> None:
    chat.session.system = "s"
    chat.reply("one")
    chat.session.reset()
    chat.reply("two")
    assert chat.model.seen[1] == [Message("system", "s"), Message("user", "two")]


def test_an_error_leaves_the_history_as_it_was(chat: Fixture) -> None:
    chat.reply("one")
    chat.session.system, chat.model.refuses_system = "s", True
    before = list(chat.session.history)
    with pytest.raises(EngineError, match="no system message"):
        chat.reply("two")
    assert chat.session.history == before


def test_an_interrupted_answer_is_remembered_as_far_as_it_came(chat: Fixture) -> None:
    chat.context.interrupt_after = 1
    with pytest.raises(KeyboardInterrupt):
        chat.reply("one")
    assert chat.session.history == [Message("user", "one"), Message("assistant", "answer ")]
    chat.context.interrupt_after = None
    assert chat.reply("two") == "answer 2"


def test_an_answer_interrupted_before_its_first_word_leaves_no_trace(chat: Fixture) -> None:
    chat.context.interrupt_after = 0
    with pytest.raises(KeyboardInterrupt):
        chat.reply("one")
    assert chat.session.history == []


def test_a_full_context_drops_the_oldest_messages(chat: Fixture) -> None:
    chat.context.n_ctx = 4
    chat.reply("one")
    chat.reply("two")
    turn = chat.session.reply("three", lambda _piece: None)
    assert turn.dropped == 2
    assert [message.content for message in chat.session.history] == ["two", "answer 2", "three", "answer 3"]


def test_a_message_that_is_too_long_by_itself(chat: Fixture) -> None:
    chat.reply("one")
    chat.context.n_ctx = 0
    with pytest.raises(ContextFullError):
        chat.reply("two")
    assert [message.content for message in chat.session.history] == ["one", "answer 1"]


def test_a_cancel_from_elsewhere_is_an_error(chat: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def cancelled(*_: object, **__: object) -> Generated:
        raise Cancelled

    monkeypatch.setattr(chat.context, "generate", cancelled)
    with pytest.raises(Cancelled):
        chat.reply("one")
    assert chat.session.history == []


# ------------------------------------------------------------------------------------------------------ conversation


def talk(chat: Fixture, monkeypatch: pytest.MonkeyPatch, *lines: str, as_json: bool = False) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    converse(chat.session, JsonFace() if as_json else PipeFace())


def test_piped_lines_are_answered_in_order(
    chat: Fixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(chat, monkeypatch, "one", "", "  two  ")
    assert capsys.readouterr().out == "answer 1\nanswer 2\n"
    assert chat.model.seen[1][-1] == Message("user", "two")


def test_commands(chat: Fixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    talk(chat, monkeypatch, "one", "/system Be brief.", "two", "/system", "three", "/reset", "/what", "/quit", "four")
    printed = capsys.readouterr()
    assert printed.out == "answer 1\nanswer 2\nanswer 3\n"
    assert [len(messages) for messages in chat.model.seen] == [1, 2, 1]
    assert chat.model.seen[1][0] == Message("system", "Be brief.")
    assert "There is no command /what" in printed.err
    assert chat.session.history == []


def test_an_error_does_not_end_the_conversation(
    chat: Fixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat.model.refuses_system = True
    talk(chat, monkeypatch, "/system no", "one", "/system", "two")
    printed = capsys.readouterr()
    assert "the template takes no system message" in printed.err
    assert printed.out == "answer 1\n"


def test_ctrl_c_ends_the_answer_and_not_the_conversation(
    chat: Fixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat.context.interrupt_after = 1

    def lines() -> Iterator[str]:
        yield "one"
        chat.context.interrupt_after = None
        yield "two"

    face = PipeFace()
    monkeypatch.setattr(face, "messages", lines)
    converse(chat.session, face)
    printed = capsys.readouterr()
    assert printed.out == "answer answer 2\n"
    assert "(stopped)" in printed.err


def test_json_lines(chat: Fixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    talk(chat, monkeypatch, "one", "/reset", "two", as_json=True)
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [value["type"] for value in values] == ["answer", "note", "answer"]
    assert (values[0]["text"], values[0]["finish"], values[0]["schema"]) == ("answer 1", "eos", 1)


def test_a_line_that_is_no_text_does_not_end_the_conversation(
    chat: Fixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ncaf\xe9\nthree\n"), "utf-8"))
    converse(chat.session, PipeFace())
    assert capsys.readouterr().out == "answer 1\nanswer 2\nanswer 3\n"
    assert chat.model.seen[1][-1] == Message("user", "caf\N{REPLACEMENT CHARACTER}")


def test_terminal_prompts_and_ends_with_the_input(
    chat: Fixture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["one"])
    prompts: list[str] = []

    def fake_input(prompt: str) -> str:
        prompts.append(prompt)
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", fake_input)
    converse(chat.session, TerminalFace())
    assert "answer 1\n" in capsys.readouterr().out
    assert prompts == ["> ", "> "]
