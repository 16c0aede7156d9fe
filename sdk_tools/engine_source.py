"""The pinned llama.cpp source: downloaded by pip as part of an sdist, verified, unpacked once per user.

Nothing inside the sdist is executed. Everything appears in the cache whole or not at all, and two processes may ask at
the same time. A cache entry that was changed by hand or by a failing disk is noticed and unpacked anew.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sdk_tools import process
from sdk_tools.errors import EngineSourceError, MissingToolError
from sdk_tools.files import hash_file, hash_tree, list_tree, lock, mark_used, new_dir, write_json
from sdk_tools.patches import apply_patches, hash_patches
from sdk_tools.paths import cache_dir, native_dir
from sdk_tools.progress import Reporter, Silent

_MARKER = "source.json"
_DOWNLOAD_LIMIT_S = 1800.0

# What a build, a conversion or a test reads. The rest of the tree (server, its web UI, docs, media, ...) stays packed.
KEEP = (
    "AUTHORS",
    "CMakeLists.txt",
    "LICENSE",
    "cmake",
    "common",
    "conversion",
    "convert_hf_to_gguf.py",
    "convert_lora_to_gguf.py",
    "ggml",
    "gguf-py",
    "include",
    "licenses",
    "models",
    "requirements",
    "src",
    "tools/mtmd",
    "tools/quantize",
    "vendor",
)

# Files without which a folder is no llama.cpp tree of the kind that native/llama builds.
_REQUIRED = (
    "CMakeLists.txt",
    "LICENSE",
    "common/jinja/runtime.h",
    "ggml/CMakeLists.txt",
    "ggml/include/ggml.h",
    "include/llama.h",
    "src/CMakeLists.txt",
    "vendor/nlohmann/json.hpp",
)


@dataclass(frozen=True)
class SourcePin:
    """One release of an sdist that carries llama.cpp, and which commit that is."""

    project: str
    version: str
    sha256: str
    folder: str  # of llama.cpp inside the archive
    commit: str
    required: tuple[str, ...] = _REQUIRED
    patches: Path | None = None  # folder of what is changed in it after unpacking

    @property
    def archive_name(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}.tar.gz"

    @property
    def entry_name(self) -> str:
        """Of the folder in the cache: other patches do not touch the tree that another checkout builds from."""
        return f"{self.version}-{hashlib.sha256(self.identity.encode()).hexdigest()[:16]}"

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"

    @property
    def identity(self) -> str:
        """Equal for equal trees: archive and patches."""
        return f"sdist:{self.sha256}" + (f"+patches:{hash_patches(self.patches)[:16]}" if self.patches else "")


PIN = SourcePin(
    project="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    folder="llama_cpp_python-0.3.36/vendor/llama.cpp",
    commit="0c1e57098",
    patches=native_dir() / "llama" / "patches",
)


@dataclass(frozen=True)
class EngineSource:
    """A llama.cpp tree on disk.

    identity is equal for equal trees: the hashes of archive and patches, or of the files of KEEP in one's own checkout.
    """

    path: Path
    identity: str
    commit: str
    origin: str  # "llama-cpp-python 0.3.36", or the folder that the user named

    def to_json(self) -> dict[str, str]:
        return {"origin": self.origin, "commit": self.commit, "identity": self.identity}


def get_source(
    *,
    llama_cpp_dir: Path | None = None,
    sdist: Path | None = None,
    pin: SourcePin = PIN,
    reporter: Reporter | None = None,
) -> EngineSource:
    """The llama.cpp tree to build from, fetched and unpacked if it is not in the cache yet.

    llama_cpp_dir (or $SYRINX_LLAMA_CPP_DIR): one's own checkout, used in place and never written to.
    sdist (or $SYRINX_LLAMA_CPP_SDIST): the pinned archive as a local file, for machines without a network.
    Errors: EngineSourceError, MissingToolError (pip), Cancelled. The cache is unharmed by any of them.
    """
    llama_cpp_dir = llama_cpp_dir or _path_from_env("SYRINX_LLAMA_CPP_DIR")
    if llama_cpp_dir:
        return use_checkout(llama_cpp_dir, pin)
    reporter = reporter or Silent()
    sdist = sdist or _path_from_env("SYRINX_LLAMA_CPP_SDIST")
    root = cache_dir() / "engine-source"
    entry = root / pin.entry_name
    with lock(root / f"{entry.name}.lock", lambda: reporter.say("Another process is fetching the engine source ...")):
        found = _read_entry(entry, pin)
        if found:
            mark_used(entry)
            return found
        _remove_leftovers(root, entry)
        archive = _get_archive(root, pin, sdist, reporter)
        with reporter.step(f"Unpacking llama.cpp from {archive.name}"):
            return _unpack_entry(archive, entry, pin)


def current_identity(llama_cpp_dir: Path | None = None) -> str:
    """The identity that get_source's answer would have, without fetching anything. Errors: EngineSourceError."""
    llama_cpp_dir = llama_cpp_dir or _path_from_env("SYRINX_LLAMA_CPP_DIR")
    return use_checkout(llama_cpp_dir).identity if llama_cpp_dir else PIN.identity


def _path_from_env(name: str) -> Path | None:
    value = os.environ.get(name)
    return Path(value).expanduser() if value else None


def use_checkout(path: Path, pin: SourcePin = PIN) -> EngineSource:
    """One's own llama.cpp tree, in place. Errors: EngineSourceError if it is not one."""
    path = path.expanduser().absolute()
    if not path.is_dir():
        raise EngineSourceError(f"The llama.cpp folder {path} does not exist.", "Check --llama-cpp-dir.")
    _check_tree(path, pin, f"{path} is not a usable llama.cpp tree")
    return EngineSource(path, f"tree:{hash_tree(path, KEEP)}", "own-checkout", str(path))


def _check_tree(path: Path, pin: SourcePin, what: str) -> None:
    missing = [name for name in pin.required if not (path / name).is_file()]
    if missing:
        raise EngineSourceError(
            f"{what}: {', '.join(missing)} missing.", f"It must be llama.cpp at or near commit {pin.commit}."
        )


def _read_entry(entry: Path, pin: SourcePin) -> EngineSource | None:
    """The unpacked tree, or None if it is absent or differs in any byte from what was unpacked."""
    try:
        marker = json.loads((entry / _MARKER).read_text())
        recorded = (marker["identity"], marker["tree_sha256"], tuple(marker["keep"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    tree = entry / "llama.cpp"
    if recorded != (pin.identity, hash_tree(tree), KEEP):
        return None
    return _pinned(tree, pin)


def _pinned(tree: Path, pin: SourcePin) -> EngineSource:
    return EngineSource(tree, pin.identity, pin.commit, f"{pin.project} {pin.version}")


def _remove_leftovers(root: Path, entry: Path) -> None:
    """What a process that was killed left behind; called with the lock held, so nobody is using it."""
    for path in (*root.glob(".download-*"), *root.glob(f".{entry.name}.*")):
        shutil.rmtree(path, ignore_errors=True)


# --------------------------------------------------------------------------------------------------- the archive


def _get_archive(root: Path, pin: SourcePin, sdist: Path | None, reporter: Reporter) -> Path:
    if sdist:
        _verify(sdist.absolute(), pin)
        return sdist.absolute()
    kept = root / pin.archive_name
    if kept.is_file() and hash_file(kept) == pin.sha256:
        mark_used(kept)
        return kept
    with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as folder:
        downloaded = _download(Path(folder), pin, reporter)
        _verify(downloaded, pin)
        downloaded.replace(kept)
    return kept


def _verify(archive: Path, pin: SourcePin) -> None:
    if not archive.is_file():
        raise EngineSourceError(f"The source archive {archive} does not exist.", "Check SYRINX_LLAMA_CPP_SDIST.")
    found = hash_file(archive)
    if found != pin.sha256:
        raise EngineSourceError(
            f"{archive} ({archive.stat().st_size} bytes) is not the pinned {pin.requirement}: "
            f"its SHA-256 is {found}, expected {pin.sha256}.",
            "It is truncated or another file; download it again.",
        )


# pip asks a source archive for its metadata before it hands it over, and that would import and run the archive's own
# build backend. This stand-in of the same name comes first on the path and answers instead.
_STUB_BACKEND = """\
import os


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = {folder!r}
    os.makedirs(os.path.join(metadata_directory, name))
    with open(os.path.join(metadata_directory, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return name
"""


def _write_stub_backend(folder: Path, pin: SourcePin) -> None:
    name = pin.project.replace("-", "_")
    package = folder / "scikit_build_core"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    stub = _STUB_BACKEND.format(folder=f"{name}-{pin.version}.dist-info", name=name, version=pin.version)
    (package / "build.py").write_text(stub)


def _download(folder: Path, pin: SourcePin, reporter: Reporter) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise MissingToolError(
            f"pip is not installed for {sys.executable}, and the engine source comes through it.",
            "Install it (`python -m ensurepip`), or set SYRINX_LLAMA_CPP_SDIST to a downloaded archive.",
        )
    stub, target = folder / "stub", folder / "archive"
    target.mkdir()
    _write_stub_backend(stub, pin)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{pin.requirement} --hash=sha256:{pin.sha256}\n")
    options = ["--no-deps", "--no-build-isolation", "--require-hashes", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--no-binary", pin.project]
    command += ["--dest", str(target), "--requirement", str(requirements)]
    with reporter.step(f"Downloading {pin.requirement} (source archive)"):
        done = process.run(command, env={"PYTHONPATH": str(stub)}, cwd=folder, timeout_s=_DOWNLOAD_LIMIT_S)
    archive = target / pin.archive_name
    if done.exit_code != 0 or not archive.is_file():
        raise _explain_download(done, pin)
    return archive


_OFFLINE_SIGNS = (
    "NewConnectionError",
    "NameResolutionError",
    "Temporary failure in name resolution",
    "Could not find a version",
    "No matching distribution",
    "ProxyError",
    "ConnectTimeoutError",
    "Network is unreachable",
)
_DAMAGE_SIGNS = ("DO NOT MATCH THE HASHES", "IncompleteRead", "incomplete", "Connection broken", "ReadTimeoutError")


def _explain_download(done: process.Completed, pin: SourcePin) -> EngineSourceError:
    said = done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()] or done.stdout.splitlines()
    tail = "\n".join(f"  pip: {line.strip()}" for line in lines[-4:])
    if "No space left on device" in said:
        cause = "the disk is full"
    elif any(sign in said for sign in _DAMAGE_SIGNS):
        cause = "what arrived was truncated or is another file (its hash is wrong)"
    elif any(sign in said for sign in _OFFLINE_SIGNS):
        cause = "the package index cannot be reached or does not have it"
    else:
        cause = f"pip failed with exit code {done.exit_code}"
    return EngineSourceError(
        f"Downloading {pin.requirement} failed: {cause}.\n{tail}",
        "Check the network and pip's settings and try again; or set SYRINX_LLAMA_CPP_SDIST to the archive "
        f"{pin.archive_name}, fetched elsewhere, or --llama-cpp-dir to a llama.cpp checkout.",
    )


# --------------------------------------------------------------------------------------------------------- unpacking


def _unpack_entry(archive: Path, entry: Path, pin: SourcePin) -> EngineSource:
    with new_dir(entry) as temporary:
        tree = temporary / "llama.cpp"
        tree.mkdir()
        try:
            unpack(archive, tree, PurePosixPath(pin.folder), KEEP)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise EngineSourceError(f"Unpacking {archive} failed: {error}.", "Check the disk's free space.") from error
        _check_tree(tree, pin, f"{archive} does not hold the expected llama.cpp tree")
        if pin.patches:
            apply_patches(tree, pin.patches)
        marker = {"schema": 1, "identity": pin.identity, "tree_sha256": hash_tree(tree), "keep": list(KEEP)}
        write_json(temporary / _MARKER, {**marker, "files": len(list_tree(tree)), "commit": pin.commit})
    return _pinned(entry / "llama.cpp", pin)


def unpack(archive: Path, target: Path, folder: PurePosixPath, keep: tuple[str, ...]) -> None:
    """Unpacks the regular files of `folder` that lie under one of `keep` into `target`.

    Links and devices are refused, and so are names that lead out of the folder: no file is written outside `target`.
    Errors: EngineSourceError, tarfile.TarError, OSError.
    """
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if ".." in name.parts or name.is_absolute():
                raise EngineSourceError(f"{archive} holds a file with the unsafe name {member.name!r}.")
            relative = _relative(name, folder, keep)
            if relative is None or member.isdir():
                continue
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                raise EngineSourceError(f"{archive} holds {member.name!r}, which is neither a file nor a folder.")
            path = target / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("xb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)


def _relative(name: PurePosixPath, folder: PurePosixPath, keep: tuple[str, ...]) -> PurePosixPath | None:
    try:
        relative = name.relative_to(folder)
    except ValueError:
        return None
    wanted = any(relative == PurePosixPath(part) or PurePosixPath(part) in relative.parents for part in keep)
    return relative if wanted else None
