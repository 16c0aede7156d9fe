from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from sdk_tools import __main__, __version__
from sdk_tools.cli import app, output
from sdk_tools.errors import BadInputError


def load(name: str) -> click.Command:
    command = app.app.get_command(click.Context(app.app), name)
    assert command is not None
    return command


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Makes `doctor` raise whatever is put into this list."""
    errors: list[BaseException] = []

    def fail() -> None:
        raise errors[0]

    monkeypatch.setattr("sdk_tools.cli.doctor.examine", fail)
    return errors


# --------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize("name", app.COMMANDS)
def test_every_command_has_json_and_examples_in_its_help(name: str) -> None:
    command = load(name)
    assert any("--json" in parameter.opts for parameter in command.params)
    context = click.Context(command, info_name=name)
    text = command.get_help(context)
    assert "Examples:" in text
    assert f"python -m sdk_tools {name}" in text
    assert command.help


def test_help_lists_all_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.run(["--help"]) == 0
    text = capsys.readouterr().out
    for name in app.COMMANDS:
        assert f"\n  {name} " in text
    assert "130  cancelled" in text


def test_without_arguments_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.run([]) == 2
    assert "Commands:" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.run(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_listing_a_command_imports_nothing_slow() -> None:
    code = (
        "import sys; from sdk_tools.cli.app import app, COMMANDS; import click;"
        "[app.get_command(click.Context(app), name) for name in COMMANDS];"
        "print([name for name in ('torch', 'transformers', 'gguf') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ----------------------------------------------------------------------------------------------------------- errors


def test_error_as_text(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(BadInputError("The file is empty.", "Download it again."))
    assert __main__.run(["doctor"]) == 4
    assert capsys.readouterr() == ("", "error: The file is empty.\nDownload it again.\n")


def test_error_as_json(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(BadInputError("The file is empty.", "Download it again."))
    assert __main__.run(["doctor", "--json"]) == 4
    said = capsys.readouterr()
    assert json.loads(said.out) == failing[0].to_json()  # type: ignore[attr-defined]
    assert said.err == ""


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["no-such-command"], "No such command"),
        (["doctor", "--no-such-option"], "no such option"),
        (["build", "--jobs", "many"], "'many' is not a valid integer"),
        (["build", "--variant", "fast"], "'fast' is not one of"),
        (["build", "--abi", "mips"], "no build target 'mips'"),
        (["build", "--tests", "--out", "x"], "--out has no use"),
        (["build", "--fuzz", "5", "--tests"], "--fuzz stands alone"),
        (["info"], "Missing argument"),
    ],
)
def test_usage_errors(arguments: list[str], match: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.run([*arguments, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert match.lower() in error["what"].lower()
    assert error["code"] == "usage"
    assert error["hint"]
    assert __main__.run(arguments) == 2
    assert match.lower() in capsys.readouterr().err.lower()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort(), EOFError()])
def test_ctrl_c(error: BaseException, failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(error)
    assert __main__.run(["doctor", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "cancelled"
    assert __main__.run(["doctor"]) == 130
    assert capsys.readouterr().err.strip() == "Cancelled."


def test_unexpected_error_is_saved(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], cache: Path
) -> None:
    failing.append(ZeroDivisionError("a bug"))
    assert __main__.run(["doctor"]) == 70
    text = capsys.readouterr().err
    assert "An unexpected ZeroDivisionError: a bug" in text
    assert "Traceback" not in text
    (saved,) = (cache / "logs").glob("*internal-error.txt")
    assert str(saved) in text
    assert "Traceback" in saved.read_text()


def test_bugs_within_one_second_have_their_own_files(failing: list[BaseException], cache: Path) -> None:
    failing.append(ZeroDivisionError("a bug"))
    assert [__main__.run(["doctor"]) for _ in range(3)] == [70] * 3
    names = [path.name for path in (cache / "logs").glob("*internal-error.txt")]
    assert len(names) == 3
    assert all(f"-{os.getpid()}-" in name for name in names)


def test_a_bug_without_a_cache_folder(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYRINX_CACHE_DIR", "/dev/null/cache")
    failing.append(ZeroDivisionError("a bug"))
    assert __main__.run(["doctor"]) == 70
    assert "run again with `--debug`" in capsys.readouterr().err


def test_unexpected_error_is_shown_with_debug(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(ZeroDivisionError("a bug"))
    assert __main__.run(["--debug", "doctor"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_unexpected_error_as_json(failing: list[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    failing.append(ZeroDivisionError("a bug"))
    assert __main__.run(["doctor", "--json"]) == 70
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "internal"


def test_words_after_two_dashes_are_no_options(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.run(["doctor", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_exit_code_of_the_process_and_closed_pipe() -> None:
    run = [sys.executable, "-m", "sdk_tools"]
    assert subprocess.run([*run, "info", "/no/such/file"], capture_output=True, check=False).returncode == 4
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*run, "--help"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENAMETOOLONG])
def test_what_the_system_refuses_is_no_bug(
    number: int, failing: list[BaseException], capsys: pytest.CaptureFixture[str], cache: Path
) -> None:
    failing.append(OSError(number, os.strerror(number), "/cache/logs"))
    assert __main__.run(["doctor"]) == 2
    assert capsys.readouterr().err == f"error: /cache/logs: {os.strerror(number)}.\n"
    assert __main__.run(["doctor", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"
    failing[0] = OSError(number, os.strerror(number), str(cache / "base"))
    assert __main__.run(["doctor"]) == 2
    assert "Set SYRINX_CACHE_DIR" in capsys.readouterr().err
    assert not (cache / "logs").exists()
    failing[0] = OSError(errno.ENOTTY, "odd", "/cache/logs")
    assert __main__.run(["doctor"]) == 70


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_is_no_text_can_still_be_printed(encoding: str, options: list[str]) -> None:
    """A file name in no encoding, and letters that the locale lacks."""
    program = """\
import sys
from sdk_tools import __main__
from sdk_tools.cli import doctor
from sdk_tools.doctor import Purpose
doctor.examine = lambda: (Purpose("caf\\xe9 \\u20ac \\udcff", "x", ()),)
sys.exit(__main__.run(["doctor", *sys.argv[1:]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *options],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    if options:
        assert json.loads(text)["purposes"][0]["name"] == "caf\xe9 \u20ac \udcff"
    else:
        assert "\\udcff" in text


# ----------------------------------------------------------------------------------------------------------- output


def test_json_refuses_what_json_cannot_say() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.print_json({"value": float("nan")})


def test_table_shows_brackets_and_long_paths(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("title [x]", ("a [b]",), [("[red]text[/red]",), ("/very/long/" + "x" * 120,)])
    text = capsys.readouterr().out
    assert "[red]text[/red]" in text
    assert "title [x]" in text
    assert "a [b]" in text
    assert "x" * 120 in text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3072.0 GiB")]
)
def test_format_bytes(count: int, text: str) -> None:
    assert output.format_bytes(count) == text
