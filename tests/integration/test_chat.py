from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Run


def test_the_conversation_is_remembered(smol: Path, sdk: Run) -> None:
    lines = "What is the capital of France? Answer in one sentence.\nAnd of Italy?\n/reset\nAnd of Italy?\n"
    done = sdk("chat", smol, "--max-tokens", 24, "--json", stdin=lines)
    assert done.returncode == 0, done.stderr
    first, second, note, alone = (json.loads(line) for line in done.stdout.splitlines())
    assert "Paris" in first["text"]
    assert note["type"] == "note"
    assert second["n_prompt"] > first["n_prompt"] + first["n_generated"]
    assert alone["n_prompt"] < first["n_prompt"]


def test_plain_lines_from_a_pipe(tiny: Callable[[str], Path], sdk: Run) -> None:
    done = sdk("chat", tiny("llama-a"), "--max-tokens", 4, stdin="a\n/system be\nb\n/nothing\n/quit\nc\n")
    assert done.returncode == 0, done.stderr
    assert "There is no command /nothing" in done.stderr


def test_a_conversation_longer_than_the_context_goes_on(tiny: Callable[[str], Path], sdk: Run) -> None:
    lines = "a word or two for the context to hold\n" * 6
    done = sdk("chat", tiny("llama-a"), "--max-tokens", 16, "--ctx", 160, "--json", stdin=lines)
    assert done.returncode == 0, done.stderr
    values = [json.loads(line) for line in done.stdout.splitlines()]
    answers = [value for value in values if value["type"] == "answer"]
    assert len(answers) == 6
    assert any(answer["dropped"] for answer in answers)
    assert all(answer["n_prompt"] <= 160 for answer in answers)


def test_failed_answers_from_a_pipe_are_an_exit_code(tiny: Callable[[str], Path], sdk: Run) -> None:
    done = sdk("chat", tiny("llama-a"), "--ctx", 8, "--json", stdin="a message that does not fit\n")
    assert done.returncode == 8
    assert "do not fit" in done.stdout


@pytest.mark.parametrize(("name", "says"), [("qwen3-none", "tokenizer")])
def test_models_that_cannot_chat(name: str, says: str, tiny: Callable[[str], Path], sdk: Run) -> None:
    done = sdk("chat", tiny(name), stdin="a\n")
    assert done.returncode == 2
    assert says in done.stderr


class Terminal:
    """`chat` on a pseudo-terminal."""

    def __init__(self, *words: object) -> None:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-m", "sdk_tools", "chat", *(str(word) for word in words)]
        # A session of its own with this terminal in charge, so that Ctrl-C reaches it as a signal.
        self.child = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env={**os.environ, "TERM": "dumb"}
        )
        os.close(slave)
        self.text = ""
        self._unread = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str, seconds: float = 120.0) -> None:
        """Reads until `text` has come, and takes all up to it away."""
        deadline = time.monotonic() + seconds
        while text not in self._unread:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.text[-2000:]}"
            if select.select([self._master], [], [], 0.2)[0]:
                piece = os.read(self._master, 1 << 16).decode(errors="replace")
                self._unread += piece
                self.text += piece
        self._unread = self._unread.partition(text)[2]

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        os.close(self._master)


@pytest.fixture
def terminal(smol: Path) -> Iterator[Terminal]:
    started = Terminal(smol, "--max-tokens", 2000, "--ctx", 4096)
    yield started
    started.close()


def test_ctrl_c_ends_the_answer_and_keeps_the_session(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("Write a very long story about a fox, with many chapters.\n")
    terminal.wait_for("chapters.")
    terminal.wait_for(" ")
    time.sleep(1.0)
    interrupted = time.monotonic()
    terminal.child.send_signal(signal.SIGINT)
    terminal.wait_for("(stopped)", 30)
    assert time.monotonic() - interrupted < 10
    assert terminal.child.poll() is None
    terminal.wait_for("> ")
    terminal.type("/reset\n")
    terminal.wait_for("(forgotten)")
    terminal.type("/quit\n")
    assert terminal.child.wait(30) == 0


def test_ctrl_c_at_the_prompt_leaves(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    time.sleep(0.5)  # readline prints the prompt, and then begins to wait: between the two a signal is only noted
    terminal.child.send_signal(signal.SIGINT)
    assert terminal.child.wait(30) == 130
