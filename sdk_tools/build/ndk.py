"""The Android NDK of this machine: where it lies, how new it is, and the compilers for one ABI."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from sdk_tools.errors import MissingToolError

API_LEVEL = 28  # Android 9
_MINIMUM = 26
_HINT = (
    f"Install NDK r{_MINIMUM} or newer (Android Studio: SDK Manager, SDK Tools, NDK; or developer.android.com/ndk) and "
    "give its folder with --ndk or ANDROID_NDK_HOME. --abi arm64-linux needs only Debian's cross compiler."
)
_TRIPLES = {"arm64-v8a": "aarch64-linux-android", "x86_64": "x86_64-linux-android"}


@dataclass(frozen=True)
class Ndk:
    """An installed NDK. revision is as in its source.properties, such as "27.2.12479018"."""

    root: Path
    revision: str

    @property
    def toolchain_file(self) -> Path:
        return self.root / "build" / "cmake" / "android.toolchain.cmake"

    def compilers(self, android_abi: str) -> tuple[Path, Path]:
        """The C and C++ compilers for one ABI at API_LEVEL. Errors: MissingToolError."""
        folder = self.root / "toolchains" / "llvm" / "prebuilt" / f"{platform.system().lower()}-x86_64" / "bin"
        stem = f"{_TRIPLES[android_abi]}{API_LEVEL}-clang"
        pair = folder / stem, folder / f"{stem}++"
        for path in pair:
            if not path.is_file():
                raise MissingToolError(f"The NDK at {self.root} has no {path.relative_to(self.root)}.", _HINT)
        return pair


def find_ndk(named: Path | None = None) -> Ndk:
    """The NDK at `named` (--ndk), else at ANDROID_NDK_HOME or ANDROID_NDK_ROOT, else the newest in the ndk/ folder of
    the Android SDK (ANDROID_HOME, ANDROID_SDK_ROOT).

    A folder that was named and is no NDK is an error, not a reason to look further. Errors: MissingToolError.
    """
    if named:
        return _open(named.expanduser(), "--ndk")
    for variable in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT"):
        if value := os.environ.get(variable):
            return _open(Path(value).expanduser(), variable)
    looked = ["--ndk (not given)", "ANDROID_NDK_HOME (not set)", "ANDROID_NDK_ROOT (not set)"]
    found: list[Ndk] = []
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        value = os.environ.get(variable)
        if not value:
            looked.append(f"{variable} (not set)")
            continue
        folder = Path(value).expanduser() / "ndk"
        looked.append(f"{folder} ({variable}: none of r{_MINIMUM} or newer)")
        found += _list_ndks(folder)
    if not found:
        raise MissingToolError(f"No Android NDK was found. Looked for at: {'; '.join(looked)}.", _HINT)
    return max(found, key=lambda ndk: _numbers(ndk.revision))


def _list_ndks(folder: Path) -> list[Ndk]:
    """Those in an SDK's ndk/ that can be used; the rest are not what was asked for."""
    ndks = []
    for path in sorted(folder.glob("*/source.properties")):
        try:
            ndks.append(_open(path.parent, str(folder)))
        except MissingToolError:
            continue
    return ndks


def _open(root: Path, origin: str) -> Ndk:
    root = root.absolute()
    properties = root / "source.properties"
    try:
        text = properties.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise MissingToolError(f"{root} ({origin}) is no Android NDK: it has no source.properties.", _HINT) from error
    revision = re.search(r"^Pkg\.Revision\s*=\s*(\d+(?:\.\d+)*)", text, re.MULTILINE)
    if not revision:
        raise MissingToolError(f"{properties} ({origin}) names no Pkg.Revision.", _HINT)
    ndk = Ndk(root, revision[1])
    if _numbers(ndk.revision)[0] < _MINIMUM:
        raise MissingToolError(f"The NDK at {root} ({origin}) is r{ndk.revision}, which is too old.", _HINT)
    if not ndk.toolchain_file.is_file():
        raise MissingToolError(f"The NDK at {root} ({origin}) is incomplete: no {ndk.toolchain_file}.", _HINT)
    return ndk


def _numbers(revision: str) -> tuple[int, ...]:
    return tuple(int(part) for part in revision.split("."))
