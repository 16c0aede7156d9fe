from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from sdk_tools import process
from sdk_tools.errors import Cancelled, MissingToolError


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_streams_exit_code_and_environment(tmp_path: Path) -> None:
    pieces: list[tuple[str, str]] = []
    code = "import os, sys; print(os.environ['GREETING'], os.getcwd()); print('bad', file=sys.stderr); sys.exit(3)"
    done = process.run(
        python(code),
        env={"GREETING": "hello"},
        cwd=tmp_path,
        on_output=lambda stream, text: pieces.append((stream, text)),
    )
    assert done.exit_code == 3
    assert done.stdout == f"hello {tmp_path}\n"
    assert done.stderr == "bad\n"
    for stream, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        assert "".join(piece for name, piece in pieces if name == stream) == text


def test_output_comes_while_the_program_runs() -> None:
    seen_at: list[float] = []
    code = "import time; print('first', flush=True); time.sleep(0.5); print('second')"
    started = time.monotonic()
    process.run(python(code), on_output=lambda _stream, _text: seen_at.append(time.monotonic() - started))
    assert seen_at[-1] - seen_at[0] > 0.3


def test_large_output_on_both_pipes_does_not_block() -> None:
    code = "import sys; sys.stderr.write('e' * 3_000_000); sys.stdout.write('o' * 3_000_000)"
    done = process.run(python(code), timeout_s=60)
    assert (len(done.stdout), len(done.stderr)) == (3_000_000, 3_000_000)


def test_split_and_invalid_utf8() -> None:
    code = (
        "import sys, time; o = sys.stdout.buffer; e = '\\u20ac'.encode();"
        "o.write(e[:1]); o.flush(); time.sleep(0.2); o.write(e[1:] + b'\\xff' + e[:2])"
    )
    assert process.run(python(code)).stdout == "\u20ac\ufffd\ufffd"


def test_standard_input_is_empty() -> None:
    assert process.run(python("import sys; print(repr(sys.stdin.read()))")).stdout == "''\n"


def test_signal_is_a_negative_exit_code() -> None:
    done = process.run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert done.exit_code == -signal.SIGKILL


# Starts a grandchild, says its pid, and waits.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


class Family:
    """Collects the grandchild's pid from PARENT's output."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.grandchild = 0
        self._said = ""

    def __call__(self, _stream: process.Stream, text: str) -> None:
        self._said += text
        if self._said.endswith("\n") and not self.started.is_set():
            self.grandchild = int(self._said)
            self.started.set()

    def is_gone(self) -> bool:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                if psutil.Process(self.grandchild).status() == psutil.STATUS_ZOMBIE:
                    return True
            except psutil.NoSuchProcess:
                return True
            time.sleep(0.05)
        return False


def test_time_limit_ends_the_whole_group() -> None:
    family = Family()
    with pytest.raises(process.TimeLimitError, match="within 1 s"):
        process.run(python(PARENT), on_output=family, timeout_s=1)
    assert family.is_gone()


def test_cancel_ends_the_whole_group() -> None:
    family, cancel = Family(), threading.Event()

    def cancel_when_started() -> None:
        family.started.wait(20)
        cancel.set()

    threading.Thread(target=cancel_when_started).start()
    with pytest.raises(Cancelled):
        process.run(python(PARENT), on_output=family, cancel=cancel)
    assert family.is_gone()


def test_ctrl_c_ends_the_whole_group() -> None:
    family = Family()

    def press_ctrl_c(stream: process.Stream, text: str) -> None:
        family(stream, text)
        if family.started.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        process.run(python(PARENT), on_output=press_ctrl_c, timeout_s=30)
    assert family.is_gone()


def test_a_program_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 0.5)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    started = time.monotonic()
    with pytest.raises(process.TimeLimitError):
        process.run(python(code), timeout_s=1)
    assert time.monotonic() - started < 10


def test_a_background_child_that_keeps_the_pipe_open_is_not_waited_for() -> None:
    code = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(5)']); print('done')"
    )
    started = time.monotonic()
    assert process.run(python(code)).stdout == "done\n"
    assert time.monotonic() - started < 4


def test_missing_program_and_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="no-such-program was not found"):
        process.run(["no-such-program"])
    with pytest.raises(MissingToolError, match="does not exist"):
        process.run(python(""), cwd=tmp_path / "absent")
    (tmp_path / "plain").write_text("")
    with pytest.raises(MissingToolError, match="may not be executed"):
        process.run([tmp_path / "plain"])
