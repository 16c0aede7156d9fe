"""Standard streams that are closed, full or gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest


def shell(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Runs a shell line in which SDK is the command line and $1, $2, ... are `words`."""
    line = script.replace("SDK", f"'{sys.executable}' -m sdk_tools")
    return subprocess.run(["bash", "-c", line, "bash", *map(str, words)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("options", ["", "--json"])
def test_a_full_disk_is_said_without_a_traceback(options: str, tiny: Callable[[str], Path]) -> None:
    done = shell(f'SDK info "$1" {options} > /dev/full', tiny("llama-a"))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stream", [">&-", "2>&-", "<&-"])
def test_a_closed_stream_is_as_the_null_device(stream: str, tiny: Callable[[str], Path]) -> None:
    done = shell(f'SDK info "$1" {stream}', tiny("llama-a"))
    assert done.returncode == 0, done.stderr


def test_a_full_error_stream_keeps_the_exit_code(tmp_path: Path) -> None:
    assert shell('SDK info "$1" 2> /dev/full', tmp_path / "absent.gguf").returncode == 4


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_a_reader_that_goes_away_is_no_failure(command: str, tiny: Callable[[str], Path]) -> None:
    model = tiny("llama-a") if command == "info" else ""
    done = shell(f"set -o pipefail; SDK {command} $1 | head -c 1", model)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_engine_is_left_computing(number: signal.Signals, tiny: Callable[[str], Path]) -> None:
    command = [sys.executable, "-m", "sdk_tools", "run", str(tiny("llama-large")), "--raw", "--prompt", "a"]
    child = subprocess.Popen([*command, "--max-tokens", "100000", "--ctx", "100001"], stdout=subprocess.DEVNULL)
    engine: psutil.Process | None = None
    deadline = time.monotonic() + 60
    while not engine and time.monotonic() < deadline:
        time.sleep(0.05)
        engine = next((p for p in psutil.Process(child.pid).children() if p.name() == "syrinx"), None)
    assert engine, "the engine did not start"
    os.kill(child.pid, number)
    assert child.wait(timeout=30) == (-9 if number == signal.SIGKILL else 130)
    psutil.wait_procs([engine], timeout=5)
    assert not engine.is_running()
