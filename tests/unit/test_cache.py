from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sdk_tools import __main__
from sdk_tools import cache as caches
from sdk_tools.build.cmake import STAMP
from sdk_tools.engine_source import PIN
from sdk_tools.files import lock, mark_used

Make = Callable[..., Path]


@pytest.fixture
def make(cache: Path) -> Make:
    """make("base/abc", days=2): a folder, or with `text` a file, and its lock, last used so long ago."""

    def create(name: str, *, days: float = 2, text: str | None = None, locked: bool = True) -> Path:
        path = cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.mkdir()
            (path / "content").write_bytes(b"x" * 10_000)
        else:
            path.write_text(text)
        if locked:
            path.with_name(f"{path.name}.lock").touch()
        age(path, days)
        return path

    return create


def age(path: Path, days: float) -> None:
    then = time.time() - 86400 * days
    os.utime(path, (then, then))


def make_build(make: Make, name: str, source: Path, base: Path, days: float = 2) -> Path:
    path = make(f"builds/{name}", days=days)
    words = ["-G", "Ninja", "-S", str(source), "-B", str(path), "-DX=1", f"-DSYRINX_BASE_DIR={base}"]
    (path / STAMP).write_text(json.dumps(words))
    age(path, days)
    return path


def states() -> dict[str, str]:
    return {f"{entry.kind}/{entry.path.name}": entry.state for entry in caches.list_cache()}


def test_an_empty_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert caches.list_cache() == []
    assert caches.prune_cache(everything=True) == caches.Pruned((), ())
    assert __main__.run(["cache"]) == 0


def test_only_what_the_sources_use_stays(make: Make, tmp_path: Path) -> None:
    checkout = tmp_path / "native"
    checkout.mkdir()
    used_base, gone_base = make("base/aaa"), make("base/bbb")
    kept = [
        make(f"engine-source/{PIN.entry_name}"),
        make(f"engine-source/{PIN.archive_name}", text="archive", locked=False),
        used_base,
        make_build(make, "host-1", checkout, used_base),
        make("base/ddd.build", days=20, locked=False),
        make("tiny-models/new", days=20),
        make("models/m.gguf", text="model", days=400),
        make("base/eee", days=0.01),
        make("ccache/0", locked=False, days=400),
        make("logs/a.log", text="log", locked=False, days=400),
        make("something-else/0", locked=False, days=400),
    ]
    gone = [
        make("engine-source/0.0.1-old"),
        make("engine-source/llama_cpp_python-0.0.1.tar.gz", text="archive", locked=False),
        make("engine-source/.download-x", locked=False),
        gone_base,
        make_build(make, "host-2", tmp_path / "removed", gone_base),
        make("builds/host-3"),
        make("base/ccc.build", days=40, locked=False),
        make("base/.aaa.x.tmp", locked=False),
        make("tiny-models/old", days=40),
        make(".logs.1.old/0", locked=False).parent,
    ]
    age(gone[-1], 2)
    dry = caches.prune_cache(dry_run=True)
    assert all(path.exists() for path in (*kept, *gone))
    pruned = caches.prune_cache()
    assert {entry.path for entry in pruned.removed} == set(gone) == {entry.path for entry in dry.removed}
    assert pruned.freed >= 7 * 10_000
    assert [path for path in gone if path.exists()] == []
    assert [path for path in kept if not path.exists()] == []
    assert [path.name for path in (gone_base.parent).iterdir() if path.name.startswith(".")] == []
    assert caches.prune_cache().removed == ()


def test_a_build_of_this_hour_protects_its_base(make: Make, tmp_path: Path) -> None:
    base = make("base/aaa")
    build = make_build(make, "host-1", tmp_path / "removed", base, days=0.01)
    assert caches.prune_cache().removed == ()
    age(build, 1)
    assert {entry.path for entry in caches.prune_cache().removed} == {base, build}


@pytest.mark.parametrize(
    ("held", "name"),
    [
        ("base/aaa.lock", "base/aaa"),
        ("builds/host-1.lock", "base/aaa"),
        ("base/aaa.lock", "engine-source/old"),
        ("base/aaa.lock", "engine-source/.download-x"),
        ("engine-source/old.lock", "engine-source/.download-x"),
        ("engine-source/old.lock", "engine-source/old"),
        ("builds/host-1.lock", "builds/host-1"),
        ("builds/host-1.lock", "ccache/ccache"),
        ("builds/host-1.lock", "logs/logs"),
    ],
)
@pytest.mark.parametrize("everything", [False, True])
def test_what_a_running_build_holds_is_left(make: Make, cache: Path, held: str, name: str, everything: bool) -> None:
    paths = [make("base/aaa"), make("engine-source/old"), make("builds/host-1")]
    paths += [make(path, locked=False) for path in ("engine-source/.download-x", "ccache/0", "logs/0")]
    wanted = {f"{entry.kind}/{entry.path.name}" for entry in prune(everything, dry_run=True).removed}
    with lock(cache / held):
        pruned = prune(everything)
    busy = {f"{entry.kind}/{entry.path.name}" for entry in pruned.busy}
    removed = {f"{entry.kind}/{entry.path.name}" for entry in pruned.removed}
    assert busy | removed == wanted
    assert (name in busy) == (name in wanted)
    assert all(path.exists() for path in paths if f"{path.parent.name}/{path.name}" in busy)
    assert {entry.path for entry in prune(everything).removed} == {entry.path for entry in pruned.busy}


def prune(everything: bool, dry_run: bool = False) -> caches.Pruned:
    return caches.prune_cache(everything=everything, dry_run=dry_run)


def test_all_leaves_nothing_but_locks(make: Make, cache: Path) -> None:
    make("base/aaa", days=0)
    make("models/m.gguf", text="model")
    make("logs/a.log", text="log", locked=False)
    assert len(prune(everything=True).removed) == 3
    assert {path.suffix for path in cache.rglob("*") if path.is_file()} == {".lock"}


def test_a_link_is_removed_and_not_what_it_points_to(make: Make, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    make("base/aaa")
    link = cache / "base" / "link"
    link.symlink_to(tmp_path, target_is_directory=True)
    assert link in {entry.path for entry in prune(everything=True).removed}
    assert not link.is_symlink()
    assert (tmp_path / "precious").exists()


def test_two_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking and removing, another process removes an entry."""
    gone, other = make("base/aaa"), make("base/bbb")
    look = caches.list_cache

    def look_and_lose(*arguments: Any) -> list[caches.Entry]:
        found = look(*arguments)
        shutil.rmtree(gone)
        return found

    monkeypatch.setattr(caches, "list_cache", look_and_lose)
    assert {entry.path for entry in caches.prune_cache().removed} == {gone, other}
    assert not other.exists()


def test_use_is_remembered(make: Make, cache: Path) -> None:
    path = make("base/aaa", days=10)
    assert states()["base/aaa"] == "unused"
    mark_used(path)
    assert states()["base/aaa"] == "used"
    mark_used(cache / "absent")


def test_the_command(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    path = make("base/aaa", days=3)
    assert __main__.run(["cache"]) == 0
    assert "3 days ago" in capsys.readouterr().out
    assert __main__.run(["cache", "list", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert (entry["kind"], entry["path"], entry["state"]) == ("base", str(path), "unused")
    assert entry["size"] >= 10_000
    assert __main__.run(["cache", "prune", "--dry-run"]) == 0
    assert "Would free" in capsys.readouterr().out
    assert path.exists()
    with lock(path.with_name("aaa.lock")):
        assert __main__.run(["cache", "prune"]) == 0
        assert f"In use by a running process, and left: {path}" in capsys.readouterr().out
    assert __main__.run(["cache", "prune", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["freed"], answer["busy"], len(answer["entries"])) == (entry["size"], [], 1)
    assert not path.exists()


@pytest.mark.parametrize("words", [["list", "--all"], ["--dry-run"], ["purge"]])
def test_usage_errors(words: list[str]) -> None:
    assert __main__.run(["cache", *words]) == 2
