"""The command line. One module per command: parse, call, print.

A command is a module `sdk_tools/cli/NAME.py` that defines `command`, a `click.Command`, and a name in
`sdk_tools.cli.app.COMMANDS`. Commands are imported when they are called or listed, so a module keeps slow imports
(torch, numpy) inside its functions. Every command takes `--json` (`options.json_option`), prints its result with
`output.print_json` or as text on standard output, and everything else on standard error. Failures are raised as
`sdk_tools.errors`; `sdk_tools.cli.main` prints them, and `sdk_tools.__main__` exits.
"""

from __future__ import annotations
