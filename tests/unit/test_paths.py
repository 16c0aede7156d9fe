from __future__ import annotations

from pathlib import Path

import pytest

from sdk_tools import __version__, paths
from sdk_tools.errors import UsageError


def test_cache_dir_own_variable_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("SYRINX_CACHE_DIR", str(tmp_path / "own"))
    assert paths.cache_dir() == tmp_path / "own"
    assert (tmp_path / "own").is_dir()


def test_cache_dir_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SYRINX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert paths.cache_dir() == tmp_path / "syrinx"


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_cache_dir_ignores_unusable_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
    monkeypatch.delenv("SYRINX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.cache_dir() == tmp_path / ".cache" / "syrinx"


def test_cache_dir_that_cannot_be_made_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SYRINX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match="cannot be created"):
        paths.cache_dir()


def test_sources_are_the_checkouts() -> None:
    root = paths.checkout_dir()
    assert root == Path(__file__).resolve().parents[2]
    assert paths.native_dir() == root / "native"
    assert paths.default_output_dir("host") == root / "out" / "host"


def test_installed_package_uses_its_own_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    package = tmp_path / "site-packages" / "sdk_tools"
    (package / "_native").mkdir(parents=True)
    monkeypatch.setattr(paths, "_PACKAGE", package)
    with pytest.raises(UsageError, match="C\\+\\+ sources"):
        paths.native_dir()
    (package / "_native" / "CMakeLists.txt").write_text("")
    assert paths.checkout_dir() is None
    assert paths.native_dir() == package / "_native"
    assert paths.default_output_dir("host") == cache / "engines" / "host"


def test_versions_agree() -> None:
    assert f"project(syrinx VERSION {__version__} " in (paths.native_dir() / "CMakeLists.txt").read_text()


@pytest.mark.parametrize("override", [None, "~no-such-user/cache"])
def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, override: str | None) -> None:
    def homeless(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("SYRINX_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    if override:
        monkeypatch.setenv("SYRINX_CACHE_DIR", override)
    else:
        monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UsageError, match="home folder is not known"):
        paths.cache_dir()
