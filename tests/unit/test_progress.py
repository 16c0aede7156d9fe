from __future__ import annotations

import io

import pytest
from rich.console import Console

from sdk_tools.progress import LogReporter, Reporter, Silent, TerminalReporter, make_reporter


def work(reporter: Reporter) -> None:
    with reporter.step("Building", total=2) as step:
        step.update(1, note="a.o")
        step.update(2, total=3, note="b.o")
    reporter.say("[1/2] is no markup")


def test_log_says_begin_progress_and_end() -> None:
    stream = io.StringIO()
    work(LogReporter(stream, interval_s=0))
    lines = stream.getvalue().splitlines()
    assert lines[:3] == ["Building ...", "Building: 1/2 a.o", "Building: 2/3 b.o"]
    assert lines[3].startswith("Building: done in ")
    assert lines[4] == "[1/2] is no markup"


def test_log_is_quiet_between_intervals() -> None:
    stream = io.StringIO()
    work(LogReporter(stream, interval_s=3600))
    assert len(stream.getvalue().splitlines()) == 3


def test_log_does_not_claim_that_failed_work_is_done() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError), LogReporter(stream).step("Building"):
        raise ValueError
    assert stream.getvalue() == "Building ...\n"


def test_terminal_shows_text_as_it_is() -> None:
    stream = io.StringIO()
    work(TerminalReporter(Console(file=stream, force_terminal=True, width=100)))
    assert "Building: done in" in stream.getvalue()
    assert "[1/2] is no markup" in stream.getvalue()


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    work(Silent())
    work(make_reporter(quiet=True))
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert isinstance(make_reporter(), LogReporter)
