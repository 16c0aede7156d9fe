"""What lies in the per-user cache, which of it the sources at hand still use, and how the rest is removed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from sdk_tools.build.cmake import STAMP
from sdk_tools.engine_source import PIN
from sdk_tools.files import lock
from sdk_tools.paths import cache_dir
from sdk_tools.progress import Reporter, Silent

State = Literal["used", "unused", "kept"]

_SHARED = ("engine-source", "base", "builds", "tiny-models", "models", "engines")  # folders of many entries
_DAY_S = 86400.0
_IDLE_S = 30 * _DAY_S
_RECENT_S = 3600.0  # a process that has just been told of an entry may not have begun to read it


@dataclass(frozen=True)
class Entry:
    """Something that can be removed by itself. size in bytes; age in seconds since its last use.

    state: "used" by the sources at hand, "unused", or "kept" for its own sake (models, logs, ...).
    """

    kind: str
    path: Path
    size: int
    age: float
    state: State
    reason: str

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "path": str(self.path), "age": round(self.age)}


@dataclass(frozen=True)
class Pruned:
    """What prune_cache removed, and what it left because a running process holds it."""

    removed: tuple[Entry, ...]
    busy: tuple[Entry, ...]

    @property
    def freed(self) -> int:
        """Bytes."""
        return sum(entry.size for entry in self.removed)


def list_cache(reporter: Reporter | None = None) -> list[Entry]:
    """All entries, in the order of the folders."""
    root, now = cache_dir(), time.time()
    found: list[Entry] = []
    used_bases: set[Path] = set()
    with (reporter or Silent()).step(f"Looking through {root}") as step:
        for kind in sorted((path.name for path in root.iterdir() if path.is_dir()), key=_order):
            paths = [path for path in sorted((root / kind).iterdir()) if path.suffix != ".lock"]
            for path in paths if kind in _SHARED else [root / kind]:
                step.update(len(found), note=str(path.relative_to(root)))
                with contextlib.suppress(FileNotFoundError):  # a running process tidies up as well
                    age = max(0.0, now - path.lstat().st_mtime)
                    state, reason = _judge(kind, path, age, used_bases)
                    found.append(Entry(kind, path, _measure(path), age, state, reason))
    return found


def prune_cache(*, everything: bool = False, dry_run: bool = False, reporter: Reporter | None = None) -> Pruned:
    """Removes the unused entries, or all; never one that a running process holds."""
    reporter = reporter or Silent()
    wanted = [entry for entry in list_cache(reporter) if everything or entry.state == "unused"]
    removed: list[Entry] = []
    with reporter.step("Removing", len(wanted)) as step:
        for index, entry in enumerate(wanted):
            step.update(index, note=entry.path.name)
            try:
                with contextlib.ExitStack() as stack:
                    for path in _locks(entry):
                        stack.enter_context(lock(path, _refuse))
                    if not dry_run:
                        _remove(entry.path)
            except _BusyError:
                continue
            except FileNotFoundError:  # another process was faster
                pass
            removed.append(entry)
    return Pruned(tuple(removed), tuple(entry for entry in wanted if entry not in removed))


def _order(kind: str) -> tuple[int, str]:
    """Builds come before the bases that they use."""
    return (("engine-source", "builds", "base").index(kind) if kind in ("engine-source", "builds", "base") else 9, kind)


def _judge(kind: str, path: Path, age: float, used_bases: set[Path]) -> tuple[State, str]:
    """The state of an entry and why. Collects in used_bases what the builds refer to; they must come first."""
    if kind in ("models", "engines") or (kind not in _SHARED and not kind.startswith(".")):
        return "kept", "only --all removes it"
    if age < _RECENT_S:
        if kind == "builds":
            used_bases |= _read_stamp(path)[1]
        return "used", "within the last hour"
    if path.name.startswith("."):
        return "unused", "left behind by a process that was ended"
    if kind == "engine-source":
        current = path.name in (PIN.entry_name, PIN.archive_name)
        return ("used", "what these tools build from") if current else ("unused", "not what these tools build from")
    if kind == "base" and path.suffix != ".build":
        return ("used", "a build stands on it") if path in used_bases else ("unused", "no build stands on it")
    if kind == "builds":
        source, bases = _read_stamp(path)
        if source is None or not source.is_dir():
            return "unused", f"its sources are gone: {source}" if source else "it was never configured"
        used_bases |= bases
        return "used", f"builds {source}"
    if age > _IDLE_S:
        return "unused", f"not used for {age / _DAY_S:.0f} days"
    return "used", f"within the last {_IDLE_S / _DAY_S:.0f} days"


def _read_stamp(build_dir: Path) -> tuple[Path | None, set[Path]]:
    """From the arguments of a build folder's last configuration: its sources, and the base that it links."""
    try:
        words = json.loads((build_dir / STAMP).read_text())
        source = Path(words[words.index("-S") + 1])
    except (OSError, ValueError, AttributeError, IndexError, TypeError):
        return None, set()
    name = "-DSYRINX_BASE_DIR="
    return source, {Path(word.removeprefix(name)) for word in words if word.startswith(name)}


def _measure(path: Path) -> int:
    """Bytes on disk of a file or folder; links are not followed."""
    return sum(stat.st_blocks * 512 for stat in _walk(path))


def _walk(path: Path) -> Iterator[os.stat_result]:
    with contextlib.suppress(FileNotFoundError):
        yield path.lstat()
        if path.is_dir() and not path.is_symlink():
            for folder, folders, names in os.walk(path):
                for name in (*folders, *names):
                    with contextlib.suppress(FileNotFoundError):
                        yield Path(folder, name).lstat()


class _BusyError(Exception):
    pass


def _refuse() -> None:
    raise _BusyError


def _locks(entry: Entry) -> Iterable[Path]:
    """The lock of the entry, and those of whatever may be reading it.

    A source is read under the lock of the base that is built from it, a base under that of the build that links it.
    """
    kinds = {"engine-source": ("base",), "base": ("builds",), "builds": (), "models": (), "engines": ()}
    readers: tuple[str, ...] = kinds.get(entry.kind, ("base", "builds"))
    own = entry.path.with_name(f"{entry.path.name.removesuffix('.build')}.lock")
    if own.is_file():
        yield own
    else:  # an archive, a leftover
        readers = (entry.kind, *readers)
    for kind in readers:
        yield from sorted((cache_dir() / kind).glob("*.lock"))


def _remove(path: Path) -> None:
    """At once, as far as others can see: an interrupted removal leaves a hidden folder for the next time."""
    hidden = path if path.name.startswith(".") else path.with_name(f".{path.name}.{os.getpid()}.old")
    if hidden != path:
        path.rename(hidden)
    if hidden.is_dir() and not hidden.is_symlink():
        shutil.rmtree(hidden)
    else:
        hidden.unlink()
