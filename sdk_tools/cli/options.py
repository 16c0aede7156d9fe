"""Options that several commands share, as decorators."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A FloatRange that refuses NaN, which is neither too small nor too large. Give it both bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def json_option(function: F) -> F:
    """`--json`, passed as `as_json`: one JSON object on standard output, for failures too."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object (failures too).")(function)


def engine_option(function: F) -> F:
    """`--engine DIR`, passed as `engine`: for driver.ensure_engine."""
    return click.option(
        "--engine",
        type=click.Path(path_type=Path, file_okay=False),
        help="Use this built engine as it is [default: out/host, brought up to date; or $SYRINX_ENGINE_DIR].",
    )(function)


def llama_cpp_dir_option(function: F) -> F:
    """`--llama-cpp-dir DIR`, passed as `llama_cpp_dir`: for engine_source.get_source."""
    return click.option(
        "--llama-cpp-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Build from your own llama.cpp checkout [default: the pinned source; or $SYRINX_LLAMA_CPP_DIR].",
    )(function)


def time_limit_option(function: F) -> F:
    """`--time-limit SECONDS`, passed as `time_limit`."""
    return click.option("--time-limit", type=FiniteRange(1, 1e7), default=3600.0, show_default=True, metavar="SECONDS")(
        function
    )


def examples(*lines: str) -> str:
    """An epilog for a command's help that shows how it is called."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
