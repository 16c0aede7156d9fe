"""`cache`: what the per-user cache holds, and removing what is not used any more."""

from __future__ import annotations

from collections.abc import Iterable

import click

from sdk_tools.cache import Entry, list_cache, prune_cache
from sdk_tools.cli.options import examples, json_option
from sdk_tools.cli.output import format_bytes, print_json, print_table
from sdk_tools.errors import UsageError
from sdk_tools.paths import cache_dir
from sdk_tools.progress import make_reporter

_EPILOG = examples(
    "python -m sdk_tools cache",
    "python -m sdk_tools cache prune --dry-run",
    "python -m sdk_tools cache prune",
    "python -m sdk_tools cache prune --all",
)


@click.command(epilog=_EPILOG, short_help="List the cache, or remove what is not used any more.")
@click.argument("action", type=click.Choice(["list", "prune"]), default="list")
@click.option("--all", "everything", is_flag=True, help="Remove everything that no running process holds.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed.")
@json_option
def command(action: str, everything: bool, dry_run: bool, as_json: bool) -> None:
    """List what the cache holds, with size and last use; or remove what the sources at hand do not use.

    `prune` removes engine sources other than the pinned one, builds whose checkout is gone, compiled copies of
    llama.cpp that no build stands on, test models and interrupted builds not used for 30 days, and what processes that
    were ended left behind. Nothing used within the last hour, or by a running build, is touched. Whatever is removed is
    made again when it is needed.
    """
    if action == "list":
        if everything or dry_run:
            raise UsageError("--all and --dry-run belong to `cache prune`.")
        _print(list_cache(make_reporter(quiet=as_json)), {}, as_json=as_json)
        return
    pruned = prune_cache(everything=everything, dry_run=dry_run, reporter=make_reporter(quiet=as_json))
    busy = [entry.to_json() for entry in pruned.busy]
    _print(pruned.removed, {"dry_run": dry_run, "freed": pruned.freed, "busy": busy}, as_json=as_json)
    if not as_json:
        for entry in pruned.busy:
            click.echo(f"In use by a running process, and left: {entry.path}")
        click.echo(f"{'Would free' if dry_run else 'Freed'} {format_bytes(pruned.freed)}.")


def _print(entries: Iterable[Entry], more: dict[str, object], *, as_json: bool) -> None:
    entries = list(entries)
    if as_json:
        print_json({"schema": 1, "cache": str(cache_dir()), "entries": [entry.to_json() for entry in entries], **more})
        return
    rows = [
        (
            entry.kind,
            entry.path.name,
            format_bytes(entry.size),
            _format_age(entry.age),
            f"{entry.state}: {entry.reason}",
        )
        for entry in entries
    ]
    total = format_bytes(sum(entry.size for entry in entries))
    print_table(f"{cache_dir()}: {total}", ("kind", "entry", "size", "last used", "state"), rows)


def _format_age(seconds: float) -> str:
    """90 -> "2 minutes ago"."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = round(seconds / length)
            return f"{count} {unit}{'s' if count != 1 else ''} ago"
    return "just now"
