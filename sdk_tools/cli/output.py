"""What a command prints: results on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit by itself, with 1


def print_json(value: object) -> None:
    """One object on standard output. NaN and infinities are not JSON: ValueError."""
    print(to_json(value, indent=2))


def to_json(value: object, indent: int | None = None) -> str:
    """JSON that standard output can say: with escapes for what its encoding lacks, or is no text."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, allow_nan=False)
    return text


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output, as wide as the terminal, or as its content when it goes to a file."""
    console = _Console()
    if not console.is_terminal:
        console = _Console(width=200)
    if title:
        console.print(Text(title, style="bold"))
    table = Table()
    # As Text, because in a plain string rich takes "[...]" for markup.
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console.print(table)


def format_bytes(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
