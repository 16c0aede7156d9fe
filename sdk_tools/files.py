"""Files that appear whole or not at all, their hashes, and locks between processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sdk_tools.errors import BadInputError, UsageError

_CHUNK = 1 << 20


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def list_tree(root: Path, parts: Iterable[str] = (".",)) -> list[Path]:
    """All regular files under root/part for each part (a file or folder that may be absent), sorted, each once.

    Symbolic links are not followed into folders; version control and Python's caches are left out.
    """
    found: set[Path] = set()
    for part in parts:
        start = root / part
        if start.is_file():
            found.add(start)
            continue
        for folder, folders, names in os.walk(start):
            folders[:] = [name for name in folders if name not in {".git", "__pycache__"}]
            found.update(Path(folder) / name for name in names if not name.endswith(".pyc"))
    return sorted(path for path in found if path.is_file())


def hash_tree(root: Path, parts: Iterable[str] = (".",)) -> str:
    """SHA-256 over the relative names and contents of the files that list_tree finds."""
    digest = hashlib.sha256()
    for path in list_tree(root, parts):
        digest.update(f"{path.relative_to(root).as_posix()}\0{hash_file(path)}\n".encode())
    return digest.hexdigest()


def check_model_file(path: Path) -> None:
    """Before long work: there is a file to read. Errors: BadInputError says what is there instead."""
    hint = "Give the path of a GGUF file."
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        if path.is_symlink():
            raise BadInputError(f"{path} is a link to {path.readlink()}, which does not exist.", hint) from error
        raise BadInputError(f"There is no file {path}.", hint) from error
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}.", hint) from error
    if stat.S_ISDIR(mode):
        raise BadInputError(f"{path} is a folder, not a model file.", hint)
    if not stat.S_ISREG(mode):
        raise BadInputError(f"{path} is a device or pipe, not a model file.", hint)
    if not os.access(path, os.R_OK):
        raise BadInputError(f"{path} may not be read by this user.", "Change its permissions.")


def check_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Before long work: `path` can be written later, and is not one of the files that the work reads.

    Errors: UsageError (its folder is absent or not writable; it is a folder, device or pipe; it is an input).
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"The folder of {path} does not exist.", "Create it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"Nothing can be written into the folder of {path}.", "Choose another place.")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is a folder, device or pipe.", "Give the name of a file.")
    for other in inputs:
        if path.exists() and other.exists() and path.samefile(other):
            raise UsageError(f"{path} would be overwritten while it is read.", "Give another name.")


def write_atomic(path: Path, data: bytes | str) -> None:
    """Writes a file so that readers see the old content or the new, never a part. The folder must exist.

    A symbolic link is followed. Errors: UsageError (a folder, device or pipe), OSError.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is a folder, device or pipe.", "Give the name of a file.")
    path = path.resolve()
    content = data.encode() if isinstance(data, str) else data
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object) -> None:
    """write_atomic of indented JSON."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def new_dir(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target`, which takes its place when the block ends without an exception.

    What was at `target` before stays until then, and is put back if the exchange fails.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    temporary.chmod(0o777 & ~_umask())
    try:
        yield temporary
        replace_dir(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_dir(source: Path, target: Path) -> None:
    """Renames the folder `source` to `target`; a folder already there is removed, or put back if this fails."""
    if not target.exists():
        source.rename(target)
        return
    retired = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".old"))
    target.rename(retired / target.name)
    try:
        source.rename(target)
    except BaseException:
        (retired / target.name).rename(target)
        retired.rmdir()
        raise
    shutil.rmtree(retired, ignore_errors=True)


@contextlib.contextmanager
def lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Holds an exclusive lock between processes for the block; calls on_wait once if another process has it.

    The system frees the lock when its holder dies, however it dies. The file itself stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        waiting = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting and on_wait:
                    on_wait()
                waiting = True
                time.sleep(0.1)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def mark_used(path: Path) -> None:
    """Makes the age of a cache entry its time of last use. A cache that cannot be written is none the worse."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
