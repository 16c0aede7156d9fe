"""`python -m sdk_tools`: the list of commands and the help around them."""

from __future__ import annotations

import importlib

import click

from sdk_tools import __version__
from sdk_tools.errors import EXIT_CODES
from sdk_tools.interrupts import raise_on_signals

# In the order of the help text; each is a module of this package, see its docstring.
COMMANDS = ("doctor", "build", "info", "run", "chat", "parity", "bench", "demo", "cache")


class LazyGroup(click.Group):
    """Imports a command's module only when that command is called or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"sdk_tools.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


def _epilog() -> str:
    codes = "\n".join(f"  {code:>3}  {text}" for code, text in EXIT_CODES.items())
    return (
        "\b\nStart here:\n  python -m sdk_tools doctor          what is here, what is missing\n"
        "  python -m sdk_tools build           build the engine for this machine\n"
        '  python -m sdk_tools run MODEL.gguf --prompt "Hello"\n\n'
        f"\b\nExit codes:\n{codes}"
    )


@click.group(
    cls=LazyGroup,
    epilog=_epilog(),
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="syrinx-sdk-tools")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def app(debug: bool) -> None:
    """Syrinx: build, run, verify and measure speech and language models on ggml."""
    del debug  # read by sdk_tools.cli.main, which must know it even when parsing fails
    raise_on_signals()  # the command's module is imported by now
