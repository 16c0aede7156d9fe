"""Runs one command line: every failure becomes a message and an exit code here."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import sys
import time
import traceback
from pathlib import Path

import click

from sdk_tools.cli.app import app
from sdk_tools.cli.output import to_json
from sdk_tools.errors import Cancelled, InternalError, SyrinxError, UsageError
from sdk_tools.paths import cache_dir

# No bugs of ours: the disk, a permission, a name. Of anything else the traceback is kept.
_CIRCUMSTANCES = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.E2BIG,
    }
)
_bugs = itertools.count(1)


def run_commands(arguments: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _prepare_streams()
    try:
        return _invoke(arguments)
    except SyrinxError as error:
        return _report(error, as_json="--json" in words)
    except KeyboardInterrupt:
        return _report(Cancelled(), as_json="--json" in words)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): nothing is left to say, and nobody to say it to.
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _CIRCUMSTANCES:
            return _report(_save_bug(error, show="--debug" in words), as_json="--json" in words)
        if error.filename is not None:
            return _report(_explain_refusal(error), as_json="--json" in words)
        _discard_output()
        hint = "Make room where it goes, and in the cache (`python -m sdk_tools cache`)."
        return _report(UsageError(f"The output cannot be written: {error.strerror}.", hint), as_json=False)
    except Exception as error:
        return _report(_save_bug(error, show="--debug" in words), as_json="--json" in words)


def _invoke(arguments: list[str]) -> int:
    # Not app.main(): click would turn some failures into its own exits.
    try:
        with app.make_context("python -m sdk_tools", list(arguments)) as context:
            result = app.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:  # of --help and --version
        sys.stdout.flush()
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return UsageError.exit_code
    except (click.Abort, EOFError) as error:
        raise Cancelled() from error
    except click.ClickException as error:
        raise _as_usage_error(error) from error
    return result if isinstance(result, int) else 0


def _as_usage_error(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "python -m sdk_tools"
    return UsageError(error.format_message(), f"See `{command} --help`.")


def _explain_refusal(error: OSError) -> UsageError:
    hint = ""
    with contextlib.suppress(UsageError):  # there is no cache
        if Path(os.fsdecode(error.filename)).is_relative_to(cache_dir()):
            hint = "Set SYRINX_CACHE_DIR to a folder that you may write to, and that has room."
    return UsageError(f"{os.fsdecode(error.filename)}: {error.strerror}.", hint)


def _report(error: SyrinxError, *, as_json: bool) -> int:
    try:
        if as_json:
            print(to_json(error.to_json()), flush=True)  # on one line, as `chat` prints its objects
        else:
            sys.stderr.write(f"{'' if isinstance(error, Cancelled) else 'error: '}{error}\n")
            sys.stderr.flush()
    except OSError:  # the exit code is all that can be said
        _discard_output()
    return error.exit_code


def _discard_output() -> None:
    # Python would flush once more at exit, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_streams() -> None:
    """A program started with a stream closed (`>&-`) behaves as if it were the null device.

    A file name that is no text, or a character that the locale lacks, is printed as an escape and ends nothing.
    """
    null = Path(os.devnull)
    sys.stdin = sys.stdin or null.open()
    sys.stdout = sys.stdout or null.open("w")
    sys.stderr = sys.stderr or null.open("w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _save_bug(error: Exception, *, show: bool) -> InternalError:
    text = "".join(traceback.format_exception(error))
    what = f"An unexpected {type(error).__name__}: {error}"
    if show:
        sys.stderr.write(text)
        return InternalError(what, "This is a bug: please report it, with the traceback above.")
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_bugs)}-internal-error.txt"
    try:
        path = cache_dir() / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{sys.argv}\n\n{text}")
    except (OSError, UsageError):  # UsageError: there is no cache folder
        return InternalError(what, "This is a bug: run again with `--debug` first, and report the traceback.")
    return InternalError(what, f"This is a bug: please report it, with the traceback in {path}.")
