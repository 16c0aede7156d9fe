"""Options that `run`, `chat` and `demo` share: where to run, and how tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from sdk_tools.cli.options import FiniteRange
from sdk_tools.devices.host import HostDevice
from sdk_tools.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

DEVICES = ("host",)
KV_TYPES = ("f16", "f32", "bf16", "q8_0", "q4_0")

_SAMPLING = (
    click.option("--temperature", type=FiniteRange(0, 1e6), help="0 is greedy [default: 0]."),
    click.option("--top-k", type=click.IntRange(min=0), help="Keep the k best tokens; 0 is off [default: 0]."),
    click.option("--top-p", type=FiniteRange(0, 1), help="Keep the best tokens up to this mass [default: 1, off]."),
    click.option("--repetition-penalty", type=FiniteRange(1e-6, 1e6), help="[default: 1, off]"),
    click.option("--penalty-window", type=click.IntRange(min=-1), help="Tokens it looks back on [default: -1, all]."),
    click.option("--seed", type=click.IntRange(0, (1 << 64) - 1), help="Of the random numbers [default: 0]."),
)
_CONTEXT = (
    click.option("--threads", type=click.IntRange(1, 512), help="[default: the processors, at most 4]"),
    click.option(
        "--ctx",
        type=click.IntRange(min=1),
        help="Positions held [default: what the run needs, at most what the model was trained for].",
    ),
    click.option("--kv", type=click.Choice(KV_TYPES), help="Type of the KV cache [default: f16]."),
)


def device_option(function: F) -> F:
    """`--device NAME`, passed as `device`: for open_device."""
    return click.option("--device", default="host", show_default=True, metavar="NAME", help="Where to run.")(function)


def open_device(name: str) -> HostDevice:
    """The device of that name; use it in a `with` block. Errors: UsageError."""
    if name not in DEVICES:
        raise UsageError(f"There is no device '{name}'.", f"The devices are: {', '.join(DEVICES)}.")
    return HostDevice()


def sampling_options(function: F) -> F:
    """How tokens are chosen; those not given are passed as None."""
    return _apply(function, _SAMPLING)


def context_options(function: F) -> F:
    """`--threads`, `--ctx`, `--kv`; those not given are passed as None."""
    return _apply(function, _CONTEXT)


def to_arguments(options: dict[str, object]) -> list[str]:
    """The engine's command-line words for the options that are not None: top_k=3 -> ["--top-k", "3"]."""
    return [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def _apply(function: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        function = option(function)
    return function
