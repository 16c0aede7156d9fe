"""`doctor`: what is here, what is missing, how to get it."""

from __future__ import annotations

import click

from sdk_tools.cli.options import examples, json_option
from sdk_tools.cli.output import print_json, print_table
from sdk_tools.doctor import Purpose, examine, machine_summary
from sdk_tools.errors import MissingToolError
from sdk_tools.system import machine_facts

_EPILOG = examples("python -m sdk_tools doctor", "python -m sdk_tools doctor --json")


@click.command(epilog=_EPILOG, short_help="Say what is here, what is missing, how to get it.")
@json_option
def command(as_json: bool) -> int:
    """Say for everything one can do here what is present, what is missing, and how to get it.

    Exits with 0 if `make demo` can run, else with 3.
    """
    purposes = examine()
    ready = purposes[0].ready
    if as_json:
        print_json(
            {
                "schema": 1,
                "ready": ready,
                "machine": machine_facts().to_json(),
                "purposes": [purpose.to_json() for purpose in purposes],
            }
        )
    else:
        _print(purposes)
    return 0 if ready else MissingToolError.exit_code


def _print(purposes: tuple[Purpose, ...]) -> None:
    click.echo(machine_summary() + "\n")
    for purpose in purposes:
        state = "ready" if purpose.ready else "something is missing"
        title = f"{purpose.name}: {state}" + (f"   ({purpose.command})" if purpose.command else "")
        rows = []
        for item in purpose.items:
            mark = "ok" if item.found else ("-" if item.optional else "MISSING")
            rows.append((mark, item.name, item.found or item.how))
        print_table(title, ("", "item", "found, or how to get it"), rows)
