from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sdk_tools import files
from sdk_tools.errors import BadInputError


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_write_atomic_replaces_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "value.txt"
    files.write_atomic(path, "old")
    files.write_atomic(path, b"new")
    assert path.read_text() == "new"
    assert leftovers(tmp_path) == []


def test_write_atomic_honours_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        files.write_atomic(tmp_path / "value.txt", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "value.txt").stat().st_mode) == 0o640


def test_write_atomic_keeps_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "value.txt"
    files.write_atomic(path, "old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == []


def test_new_dir_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for content in ("first", "second"):
        with files.new_dir(target) as folder:
            (folder / content).write_text(content)
    assert [path.name for path in target.iterdir()] == ["second"]
    assert leftovers(tmp_path) == []


def test_new_dir_keeps_the_old_one_when_the_block_fails(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with files.new_dir(target) as folder:
        (folder / "first").write_text("")
    with pytest.raises(KeyboardInterrupt), files.new_dir(target) as folder:
        (folder / "second").write_text("")
        raise KeyboardInterrupt
    assert [path.name for path in target.iterdir()] == ["first"]
    assert leftovers(tmp_path) == []


def test_replace_dir_puts_the_old_one_back(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("")
    with pytest.raises(FileNotFoundError):
        files.replace_dir(tmp_path / "absent", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["old"]
    assert leftovers(tmp_path) == []


def test_hash_tree_sees_names_contents_and_additions(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("2")
    seen = {files.hash_tree(tmp_path)}
    (tmp_path / "a").write_text("2")
    seen.add(files.hash_tree(tmp_path))
    (tmp_path / "a").rename(tmp_path / "c")
    seen.add(files.hash_tree(tmp_path))
    (tmp_path / "sub" / "d").write_text("")
    seen.add(files.hash_tree(tmp_path))
    assert len(seen) == 4


def test_hash_tree_of_parts_ignores_the_rest_and_caches(tmp_path: Path) -> None:
    for name in ("src/a.c", "docs/b.md", "src/__pycache__/x.pyc", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert files.list_tree(tmp_path, ["src", "absent"]) == [tmp_path / "src" / "a.c"]
    assert len(files.list_tree(tmp_path)) == 2
    assert files.hash_tree(tmp_path, ["src"]) == files.hash_tree(tmp_path, ["src", "src/a.c"])


HOLD_LOCK = """
import sys, time
from pathlib import Path
from sdk_tools.files import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_lock_keeps_other_processes_out_until_the_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "a.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD_LOCK, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    waited = threading.Event()
    entered = threading.Event()

    def enter() -> None:
        with files.lock(path, waited.set):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert waited.wait(10)
    time.sleep(0.3)
    assert not entered.is_set()
    holder.kill()
    holder.communicate()
    assert entered.wait(10)
    thread.join()


# ------------------------------------------------------------------------------------------------------------ inputs


def test_a_model_is_a_file(tmp_path: Path) -> None:
    model = tmp_path / "model \n é.gguf"
    model.write_bytes(b"")
    files.check_model_file(model)
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    files.check_model_file(link)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("absent.gguf", "There is no file"),
        ("dangling.gguf", "is a link to .*nothing, which does not exist"),
        (".", "is a folder"),
        ("pipe.gguf", "device or pipe"),
        ("/dev/null", "device or pipe"),
        ("file/model.gguf", "Not a directory"),
        ("loop", "symbolic links"),
        ("x" * 300, "too long"),
    ],
)
def test_what_is_no_model_file_is_named(tmp_path: Path, name: str, match: str) -> None:
    (tmp_path / "dangling.gguf").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(BadInputError, match=match):
        files.check_model_file(tmp_path / name)


def test_a_model_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    (tmp_path / "model.gguf").write_bytes(b"")
    with pytest.raises(BadInputError, match="may not be read"):
        files.check_model_file(tmp_path / "model.gguf")
