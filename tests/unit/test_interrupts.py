"""Signals while the command line is still being imported, and after that."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from sdk_tools.errors import Cancelled

# Runs the command line as `python -m sdk_tools` does, and raises a signal when it asks for a certain module.
_PROGRAM = """\
import os, runpy, signal, sys

name, number, *sys.argv[1:] = sys.argv[1:]

class Strike:
    def find_spec(self, wanted, path=None, target=None):
        if wanted == name and self in sys.meta_path:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Strike())
runpy.run_module("sdk_tools", run_name="__main__", alter_sys=True)
sys.exit("the module was never imported, or the signal was lost")
"""


def strike(module: str, number: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PROGRAM, module, str(int(number)), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


MODULES = ["click", "json", "sdk_tools.cli.app", "sdk_tools.errors", "rich.console", "sdk_tools.cli.doctor", "psutil"]


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_while_modules_are_imported(module: str) -> None:
    done = strike(module, signal.SIGINT, "doctor")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Cancelled.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_requests_to_end_are_the_same(number: signal.Signals) -> None:
    done = strike("click", number, "doctor")
    assert (done.returncode, done.stderr) == (130, "Cancelled.\n")


def test_with_json_it_is_the_same_object_as_later() -> None:
    done = strike("click", signal.SIGINT, "doctor", "--json")
    assert (done.returncode, done.stderr) == (130, "")
    assert json.loads(done.stdout) == Cancelled().to_json()


def test_a_signal_that_is_ignored_stays_so() -> None:
    program = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{_PROGRAM}"
    command = [sys.executable, "-c", program, "click", str(int(signal.SIGHUP)), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "syrinx-sdk-tools" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_a_command_runs_signals_are_exceptions(number: signal.Signals) -> None:
    """So that what was begun is taken back."""
    program = f"""\
import os, sys
from sdk_tools import __main__
from sdk_tools.cli import doctor

def examine():
    try:
        os.kill(os.getpid(), {int(number)})
        __import__("time").sleep(30)
    finally:
        sys.stderr.write("taken back; ")

doctor.examine = examine
__main__.main(["doctor"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "taken back; Cancelled.\n")


def test_a_second_ctrl_c_while_the_first_is_reported() -> None:
    program = """\
from sdk_tools import __main__
from sdk_tools.cli import doctor, main

def interrupted(*_, **__):
    raise KeyboardInterrupt

doctor.examine = main._report = interrupted
__main__.main(["doctor"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "")
