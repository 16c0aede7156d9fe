"""`info`: what a model file is, as the engine loads it."""

from __future__ import annotations

from pathlib import Path

import click

from sdk_tools.build.driver import ensure_engine
from sdk_tools.cli.options import engine_option, examples, json_option
from sdk_tools.cli.output import format_bytes, print_json, print_table
from sdk_tools.devices.host import HostDevice
from sdk_tools.files import check_model_file
from sdk_tools.native_cli import call_engine
from sdk_tools.progress import make_reporter

_EPILOG = examples("python -m sdk_tools info model.gguf", "python -m sdk_tools info model.gguf --json")
_LIMIT_S = 600.0
_NESTED = ("bytes_by_type", "metadata", "devices", "schema")


@click.command(epilog=_EPILOG, short_help="Check a GGUF model and show its facts.")
@click.argument("model", type=click.Path(path_type=Path))
@engine_option
@json_option
def command(model: Path, engine: Path | None, as_json: bool) -> None:
    """Check a GGUF model and show its facts: architecture, structure, sizes, bytes by type.

    The whole file is checked first; a damaged one is refused with the tensor or key at fault. Builds the engine if
    there is none yet.
    """
    check_model_file(model)
    built = ensure_engine(engine, reporter=make_reporter())
    with HostDevice() as device:
        facts = call_engine(device, built, ["info", device.push(model)], timeout_s=_LIMIT_S)
    if as_json:
        print_json(facts)
    else:
        _print_facts(model, facts)


def _print_facts(model: Path, facts: dict[str, object]) -> None:
    rows = [(name, value) for name, value in facts.items() if name not in _NESTED]
    print_table(str(model), ("fact", "value"), rows)
    by_type = facts.get("bytes_by_type")
    if isinstance(by_type, dict):
        weights = [
            (name, use.get("tensors"), f"{use.get('params', 0):,}", format_bytes(use.get("bytes", 0)))
            for name, use in by_type.items()
        ]
        print_table("Weights by type", ("type", "tensors", "parameters", "size"), weights)
    devices = facts.get("devices")
    if isinstance(devices, list):
        places = [(item.get("name"), item.get("type"), item.get("description")) for item in devices]
        print_table("Devices of this engine", ("name", "type", "description"), places)
