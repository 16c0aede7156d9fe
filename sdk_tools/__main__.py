"""The entry point, and the only place that exits."""

from __future__ import annotations

import sys

from sdk_tools.interrupts import EXIT_CODE, leave_on_signals


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and exits the process."""
    leave_on_signals()
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # once more, while the first one was being reported
        code = EXIT_CODE
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    from sdk_tools.cli.main import run_commands  # takes a while: after leave_on_signals

    return run_commands(arguments)


if __name__ == "__main__":
    main()
