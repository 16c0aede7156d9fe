"""The numbered patches of native/llama/patches, applied to a freshly unpacked engine source."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import patch_ng

from sdk_tools.errors import EngineSourceError


def list_patches(folder: Path) -> list[Path]:
    """In the order in which they apply: by number."""
    return sorted(folder.glob("[0-9][0-9][0-9][0-9]-*.patch"))


def hash_patches(folder: Path) -> str:
    """Equal for equal patches: SHA-256 over names and contents."""
    digest = hashlib.sha256()
    for path in list_patches(folder):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def apply_patches(tree: Path, folder: Path) -> None:
    """Changes `tree` in place. Errors: EngineSourceError names the patch that does not fit; the tree is then spoilt."""
    logging.getLogger("patch_ng").setLevel(logging.CRITICAL)  # what it says is said by our own error
    for path in list_patches(folder):
        patches = patch_ng.fromfile(str(path))
        # strict: a hunk that fits only elsewhere in the file is a patch for another source
        if not patches or not patches.apply(strip=1, root=str(tree), fuzz=False):
            raise EngineSourceError(
                f"The patch {path.name} does not fit the llama.cpp source in {tree}.",
                "It is for the pinned release; after a new pin, make it anew or drop it.",
            )
