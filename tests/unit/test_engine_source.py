from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath

import pytest

from sdk_tools import engine_source
from sdk_tools.engine_source import EngineSource, SourcePin, get_source
from sdk_tools.errors import EngineSourceError
from sdk_tools.files import hash_file

PROJECT = "fake-llama"
TOP = "fake_llama-1.0"
TREE = {
    "CMakeLists.txt": "# llama",
    "include/llama.h": "int llama(void);",
    "src/llama.cpp": "int x;",
    "tools/mtmd/mtmd.cpp": "int y;",
    "tools/server/server.cpp": "int z;",
    "docs/big.md": "never needed",
}
# What a source archive can do to whoever runs its code.
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "scikit_build_core.build"\n'
TRAP = "import pathlib\npathlib.Path({sentinel!r}).write_text('ran')\n"


def add_file(tar: tarfile.TarFile, name: str, content: str, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content.encode())
    info.mode = mode
    tar.addfile(info, io.BytesIO(content.encode()))


def make_sdist(
    folder: Path, tree: Mapping[str, str] = TREE, extra: Callable[[tarfile.TarFile], None] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{TOP}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        add_file(tar, f"{TOP}/PKG-INFO", f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: 1.0\n")
        add_file(tar, f"{TOP}/pyproject.toml", PYPROJECT)
        add_file(tar, f"{TOP}/setup.py", TRAP.format(sentinel=str(folder / "setup-ran")))
        for name, content in tree.items():
            add_file(tar, f"{TOP}/vendor/llama.cpp/{name}", content)
        if extra:
            extra(tar)
    return path


def make_pin(archive: Path) -> SourcePin:
    return SourcePin(
        project=PROJECT,
        version="1.0",
        sha256=hash_file(archive),
        folder=f"{TOP}/vendor/llama.cpp",
        commit="abc123",
        required=("CMakeLists.txt", "include/llama.h"),
    )


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    return make_sdist(tmp_path / "index")


@pytest.fixture
def pin(sdist: Path) -> SourcePin:
    return make_pin(sdist)


def use_index(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    """pip sees the archives in `folder` and nothing else; with None, nothing at all."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    if folder:
        monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def snapshot(folder: Path) -> dict[str, str]:
    """Every file below, but for locks."""
    return {
        str(path.relative_to(folder)): hash_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


def entry_of(cache: Path, pin: SourcePin) -> Path:
    return cache / "engine-source" / pin.entry_name


# ---------------------------------------------------------------------------------------------------- the good way


def test_pip_downloads_it_and_only_what_is_needed_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, sdist: Path, pin: SourcePin, cache: Path
) -> None:
    use_index(monkeypatch, sdist.parent)
    source = get_source(pin=pin)
    assert source == EngineSource(entry_of(cache, pin) / "llama.cpp", f"sdist:{pin.sha256}", "abc123", "fake-llama 1.0")
    found = {str(path.relative_to(source.path)) for path in source.path.rglob("*") if path.is_file()}
    assert found == {"CMakeLists.txt", "include/llama.h", "src/llama.cpp", "tools/mtmd/mtmd.cpp"}
    assert not (sdist.parent / "setup-ran").exists()


def test_the_second_time_nothing_is_downloaded_or_written(
    monkeypatch: pytest.MonkeyPatch, sdist: Path, pin: SourcePin, cache: Path
) -> None:
    first = get_source(pin=pin, sdist=sdist)
    sdist.unlink()
    use_index(monkeypatch, None)
    before = snapshot(cache)
    os.utime(entry_of(cache, pin), (1e9, 1e9))
    assert get_source(pin=pin) == first
    assert snapshot(cache) == before
    assert entry_of(cache, pin).stat().st_mtime > 1e9  # the time of last use


def test_a_local_archive_serves_machines_without_a_network(
    monkeypatch: pytest.MonkeyPatch, sdist: Path, pin: SourcePin
) -> None:
    use_index(monkeypatch, None)
    monkeypatch.setenv("SYRINX_LLAMA_CPP_SDIST", str(sdist))
    assert (get_source(pin=pin).path / "include" / "llama.h").is_file()


def test_executable_files_stay_executable_and_nothing_else(tmp_path: Path) -> None:
    def extra(tar: tarfile.TarFile) -> None:
        add_file(tar, f"{TOP}/vendor/llama.cpp/src/gen.py", "", mode=0o7777)

    archive = make_sdist(tmp_path / "index", extra=extra)
    source = get_source(pin=make_pin(archive), sdist=archive)
    assert (source.path / "src" / "gen.py").stat().st_mode & 0o7777 == 0o755
    assert (source.path / "src" / "llama.cpp").stat().st_mode & 0o7777 == 0o644


# ------------------------------------------------------------------------------------------------ damaged and repaired


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "marker", "no-marker"])
def test_a_damaged_entry_is_noticed_and_unpacked_anew(sdist: Path, pin: SourcePin, cache: Path, damage: str) -> None:
    source = get_source(pin=pin, sdist=sdist)
    before = snapshot(cache)
    marker = entry_of(cache, pin) / "source.json"
    if damage == "changed":
        (source.path / "src" / "llama.cpp").write_text("int w;")
    elif damage == "removed":
        (source.path / "src" / "llama.cpp").unlink()
    elif damage == "added":
        (source.path / "src" / "more.cpp").write_text("")
    elif damage == "marker":
        marker.write_text(marker.read_text()[:-10])
    else:
        marker.unlink()
    assert get_source(pin=pin, sdist=sdist) == source
    assert snapshot(cache) == before


def test_the_kept_archive_repairs_it_offline(
    monkeypatch: pytest.MonkeyPatch, sdist: Path, pin: SourcePin, cache: Path
) -> None:
    use_index(monkeypatch, sdist.parent)
    source = get_source(pin=pin)
    use_index(monkeypatch, None)
    shutil.rmtree(source.path)
    assert get_source(pin=pin) == source
    assert (source.path / "CMakeLists.txt").is_file()


def test_leftovers_of_a_killed_process_are_removed(sdist: Path, pin: SourcePin, cache: Path) -> None:
    root = cache / "engine-source"
    for name in (".download-abc", f".{pin.entry_name}.xyz.tmp"):
        (root / name).mkdir(parents=True)
        (root / name / "half").write_text("half")
    get_source(pin=pin, sdist=sdist)
    assert not [path for path in root.iterdir() if path.name.startswith(".")]


# ------------------------------------------------------------------------------------ refused, with the cache unharmed


def refuse(cache: Path, match: str, **arguments: object) -> EngineSourceError:
    """get_source fails, and what was in the cache before is all that is there after."""
    before = snapshot(cache)
    with pytest.raises(EngineSourceError, match=match) as caught:
        get_source(**arguments)  # type: ignore[arg-type]
    assert snapshot(cache) == before
    assert not list((cache / "engine-source").glob(".*"))
    return caught.value


def test_offline(monkeypatch: pytest.MonkeyPatch, pin: SourcePin, cache: Path) -> None:
    use_index(monkeypatch, None)
    error = refuse(cache, "cannot be reached or does not have it", pin=pin)
    assert "SYRINX_LLAMA_CPP_SDIST" in error.hint
    assert "--llama-cpp-dir" in error.hint


def test_another_file_on_the_index(monkeypatch: pytest.MonkeyPatch, sdist: Path, pin: SourcePin, cache: Path) -> None:
    use_index(monkeypatch, sdist.parent)
    refuse(cache, "truncated or is another file", pin=replace(pin, sha256="0" * 64))


def test_truncated_download(monkeypatch: pytest.MonkeyPatch, sdist: Path, pin: SourcePin, cache: Path) -> None:
    get_source(pin=pin, sdist=sdist)  # an older entry, which must survive
    newer = make_sdist(sdist.parent, {**TREE, "src/new.cpp": "int n;"})
    newer_pin = make_pin(newer)
    newer.write_bytes(newer.read_bytes()[:-20])
    use_index(monkeypatch, newer.parent)
    refuse(cache, "truncated or is another file", pin=newer_pin)


def test_truncated_local_archive(sdist: Path, pin: SourcePin, cache: Path) -> None:
    sdist.write_bytes(sdist.read_bytes()[:-20])
    error = refuse(cache, "is not the pinned fake-llama==1.0", pin=pin, sdist=sdist)
    assert pin.sha256 in error.what


def test_absent_local_archive(pin: SourcePin, cache: Path, tmp_path: Path) -> None:
    refuse(cache, "does not exist", pin=pin, sdist=tmp_path / "absent.tar.gz")


def test_truncated_inside_though_the_hash_fits(sdist: Path, cache: Path) -> None:
    sdist.write_bytes(sdist.read_bytes()[:-20])
    refuse(cache, "Unpacking .* failed", pin=make_pin(sdist), sdist=sdist)


def test_archive_without_the_expected_tree(tmp_path: Path, cache: Path) -> None:
    archive = make_sdist(tmp_path / "index", {"CMakeLists.txt": ""})
    refuse(cache, "include/llama.h missing", pin=make_pin(archive), sdist=archive)


def test_ctrl_c_while_unpacking(monkeypatch: pytest.MonkeyPatch, sdist: Path, pin: SourcePin, cache: Path) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine_source, "unpack", interrupt)
        with pytest.raises(KeyboardInterrupt):
            get_source(pin=pin, sdist=sdist)
    assert snapshot(cache) == {}
    assert get_source(pin=pin, sdist=sdist).path.is_dir()


# ------------------------------------------------------------------------------------------------- hostile archives


def link(kind: bytes, name: str, target: str) -> Callable[[tarfile.TarFile], None]:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type = kind
        info.linkname = target
        tar.addfile(info)

    return add


def plain(name: str) -> Callable[[tarfile.TarFile], None]:
    return lambda tar: add_file(tar, name, "evil")


INSIDE = f"{TOP}/vendor/llama.cpp/src"


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        (plain(f"{INSIDE}/../../../../../evil"), "unsafe name"),
        (plain("../evil"), "unsafe name"),
        (plain("/tmp/syrinx-test-evil"), "unsafe name"),
        (link(tarfile.SYMTYPE, f"{INSIDE}/evil", "/etc/passwd"), "neither a file nor a folder"),
        (link(tarfile.SYMTYPE, f"{INSIDE}/evil", "../../../.."), "neither a file nor a folder"),
        (link(tarfile.LNKTYPE, f"{INSIDE}/evil", f"{INSIDE}/llama.cpp"), "neither a file nor a folder"),
        (link(tarfile.CHRTYPE, f"{INSIDE}/evil", ""), "neither a file nor a folder"),
        (link(tarfile.FIFOTYPE, f"{INSIDE}/evil", ""), "neither a file nor a folder"),
        (plain(f"{INSIDE}/llama.cpp"), "Unpacking .* failed"),
    ],
    ids=["traversal", "parent", "absolute", "symlink", "symlink-up", "hardlink", "device", "fifo", "twice"],
)
def test_hostile_archives_write_nothing(
    tmp_path: Path, cache: Path, extra: Callable[[tarfile.TarFile], None], match: str
) -> None:
    archive = make_sdist(tmp_path / "index", extra=extra)
    outside = set(tmp_path.rglob("*"))
    refuse(cache, match, pin=make_pin(archive), sdist=archive)
    assert set(tmp_path.rglob("*")) == outside
    assert not Path("/tmp/syrinx-test-evil").exists()


def test_names_that_only_look_like_the_folder_are_left_out(tmp_path: Path) -> None:
    archive = make_sdist(tmp_path / "index", extra=plain(f"{TOP}/vendor/llama.cpp-evil/src/x.cpp"))
    engine_source.unpack(archive, tmp_path / "tree", PurePosixPath(f"{TOP}/vendor/llama.cpp"), ("src",))
    assert [path.name for path in (tmp_path / "tree").rglob("*") if path.is_file()] == ["llama.cpp"]


# -------------------------------------------------------------------------------------------------- two at a time

GET_SOURCE = """
import json, sys
from pathlib import Path
from sdk_tools.engine_source import SourcePin, get_source
from sdk_tools.progress import LogReporter
fields = json.loads(sys.argv[1])
fields["required"] = tuple(fields["required"])
print(get_source(pin=SourcePin(**fields), sdist=Path(sys.argv[2]), reporter=LogReporter()).path)
"""


def test_two_processes_at_once_unpack_once(tmp_path: Path, cache: Path) -> None:
    # Large enough that the second process arrives while the first unpacks.
    tree = {**TREE, **{f"src/file{index}.cpp": "x" * 20_000 for index in range(400)}}
    archive = make_sdist(tmp_path / "index", tree)
    pin = make_pin(archive)
    command = [sys.executable, "-c", GET_SOURCE, json.dumps(asdict(pin)), str(archive)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert {out for out, _ in said} == {f"{entry_of(cache, pin) / 'llama.cpp'}\n"}
    assert sum("Unpacking" in err and "done" in err for _, err in said) == 1
    assert get_source(pin=pin, sdist=archive).path.is_dir()


# ------------------------------------------------------------------------------------------------- one's own checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "llama.cpp"
    for name, content in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_own_checkout_is_used_in_place(
    monkeypatch: pytest.MonkeyPatch, checkout: Path, pin: SourcePin, cache: Path
) -> None:
    use_index(monkeypatch, None)
    source = get_source(pin=pin, llama_cpp_dir=checkout)
    assert source.path == checkout
    assert source.commit == "own-checkout"
    assert snapshot(cache) == {}
    monkeypatch.setenv("SYRINX_LLAMA_CPP_DIR", str(checkout))
    assert get_source(pin=pin) == source


def test_own_checkout_identity_follows_what_a_build_reads(checkout: Path, pin: SourcePin) -> None:
    def identity() -> str:
        return engine_source.use_checkout(checkout, pin).identity

    first = identity()
    (checkout / "docs" / "big.md").write_text("changed")
    (checkout / "build").mkdir()
    (checkout / "build" / "x.o").write_text("")
    assert identity() == first
    (checkout / "src" / "llama.cpp").write_text("changed")
    assert identity() != first


def test_own_checkout_that_is_none(checkout: Path, pin: SourcePin, tmp_path: Path) -> None:
    (checkout / "include" / "llama.h").unlink()
    with pytest.raises(EngineSourceError, match=r"not a usable llama.cpp tree: include/llama.h missing"):
        get_source(pin=pin, llama_cpp_dir=checkout)
    with pytest.raises(EngineSourceError, match="does not exist"):
        get_source(pin=pin, llama_cpp_dir=tmp_path / "absent")


def test_current_identity_fetches_nothing(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_index(monkeypatch, None)
    assert engine_source.current_identity() == engine_source.PIN.identity
    assert snapshot(cache) == {}


def test_patches_are_applied_and_other_patches_are_another_tree(
    pin: SourcePin, sdist: Path, cache: Path, tmp_path: Path
) -> None:
    patch = tmp_path / "patches" / "0001-test.patch"
    patch.parent.mkdir()
    patched = replace(pin, patches=patch.parent)
    plain = get_source(pin=pin, sdist=sdist)
    name = "include/llama.h"
    before = (plain.path / name).read_text()
    patch.write_text(f"--- a/{name}\n+++ b/{name}\n@@ -1,1 +1,1 @@\n-{before.splitlines()[0]}\n+changed\n")
    changed = get_source(pin=patched, sdist=sdist)
    assert (changed.path / name).read_text().startswith("changed")
    assert (plain.path / name).read_text() == before
    assert changed.identity != plain.identity
    patch.write_text(patch.read_text().replace("-" + before.splitlines()[0], "-something else"))
    with pytest.raises(EngineSourceError, match=r"0001-test\.patch"):
        get_source(pin=patched, sdist=sdist)
    assert sorted(path.name for path in (cache / "engine-source").iterdir() if path.is_dir()) == sorted(
        [plain.path.parent.name, changed.path.parent.name]
    )


def test_the_pin_is_the_documented_one() -> None:
    assert engine_source.PIN.requirement == "llama-cpp-python==0.3.36"
    assert engine_source.PIN.archive_name == "llama_cpp_python-0.3.36.tar.gz"
    assert len(engine_source.PIN.sha256) == 64
