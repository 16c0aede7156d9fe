"""A conversation with a model in this process: history kept, the model's own template, one answer at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sdk_tools.engine import Context, ContextFullError, Finish, Generated, Message, Model, Sampler, run_interruptible


@dataclass(frozen=True)
class Turn:
    """An answer. dropped: how many of the oldest messages had to go for it to fit; they are out of the history."""

    answer: Generated
    dropped: int = 0


@dataclass
class ChatSession:
    """max_tokens and stop hold for every answer."""

    model: Model
    context: Context
    sampler: Sampler
    max_tokens: int = 512
    stop: Sequence[str] = ()
    system: str | None = None
    history: list[Message] = field(default_factory=list)

    def reset(self) -> None:
        """Forgets the conversation; the system message stays."""
        self.history.clear()

    def reply(self, text: str, on_text: Callable[[str], None]) -> Turn:
        """Answers one message. on_text gets the pieces as they come, on another thread.

        The history gains both messages when the answer is complete. On KeyboardInterrupt it gains what was said so
        far; on any error it is as it was. Errors: KeyboardInterrupt (Ctrl-C: the session goes on), EngineError (the
        template refuses the messages), ContextFullError (this message alone is too long).
        """
        said: list[str] = []

        def collect(piece: str) -> None:
            said.append(piece)
            on_text(piece)

        question = Message("user", text)
        kept = list(self.history)
        while True:
            messages = [*self._system_messages(), *kept, question]
            try:
                answer = run_interruptible(lambda: self._generate(messages, collect), self.context.cancel)  # noqa: B023
            except KeyboardInterrupt:
                if said:
                    self.history = [*kept, question, Message("assistant", "".join(said))]
                raise
            except ContextFullError:
                if not kept or said:
                    raise
                del kept[:2]
                continue
            dropped = len(self.history) - len(kept)
            self.history = [*kept, question, Message("assistant", answer.text)]
            return Turn(answer, dropped)

    def _system_messages(self) -> list[Message]:
        return [] if self.system is None else [Message("system", self.system)]

    def _generate(self, messages: Sequence[Message], on_text: Callable[[str], None]) -> Generated:
        prompt = self.model.apply_chat_template(messages)
        return self.context.generate(
            prompt.tokens, self.sampler, max_tokens=self.max_tokens, stop=self.stop, on_text=on_text
        )


FINISH_NAMES = {Finish.EOS: "eos", Finish.STOP: "stop", Finish.LENGTH: "length", Finish.CONTEXT: "context"}
