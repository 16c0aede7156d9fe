"""Where things lie: the per-user cache, the C++ sources, and where built engines go."""

from __future__ import annotations

import os
from pathlib import Path

from sdk_tools.errors import UsageError

_PACKAGE = Path(__file__).resolve().parent


def cache_dir() -> Path:
    """The per-user cache: $SYRINX_CACHE_DIR, else $XDG_CACHE_HOME/syrinx, else ~/.cache/syrinx. Created on demand."""
    override = os.environ.get("SYRINX_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        if override:
            path = Path(override).expanduser().absolute()
        elif base and Path(base).is_absolute():  # the XDG rules: a relative path is to be ignored
            path = Path(base) / "syrinx"
        else:
            path = Path.home() / ".cache" / "syrinx"
    except RuntimeError as error:  # such as a container's user without an entry in /etc/passwd
        raise UsageError("The user's home folder is not known.", "Set HOME or SYRINX_CACHE_DIR.") from error
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"The cache folder {path} cannot be created: {error.strerror}.",
            "Set SYRINX_CACHE_DIR to a folder that you may write to.",
        ) from error
    return path


def checkout_dir() -> Path | None:
    """The root of the checkout that this module runs from; None when it is installed as a wheel."""
    root = _PACKAGE.parent
    return root if (root / "native" / "CMakeLists.txt").is_file() and (root / "pyproject.toml").is_file() else None


def native_dir() -> Path:
    """Our C++ sources: native/ of the checkout, or the copy that a wheel carries."""
    root = checkout_dir()
    path = root / "native" if root else _PACKAGE / "_native"
    if not (path / "CMakeLists.txt").is_file():
        raise UsageError(
            f"The engine's C++ sources are not at {path}.", "Run from a checkout, or install syrinx-sdk-tools anew."
        )
    return path


def license_files() -> list[Path]:
    """What has to go along with a built engine."""
    root = checkout_dir() or _PACKAGE / "_native"
    return [root / name for name in ("LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md")]


def default_output_dir(name: str) -> Path:
    """Where `build` puts an engine, and where the other commands look for it: out/NAME in the checkout.

    Outside a checkout it is engines/NAME in the cache.
    """
    root = checkout_dir()
    return root / "out" / name if root else cache_dir() / "engines" / name
