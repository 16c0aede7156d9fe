"""Outputs never replace an input, a device or a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sdk_tools.errors import UsageError
from sdk_tools.files import check_output, write_atomic


def test_a_sound_place_is_accepted(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_text("weights")
    check_output(tmp_path / "report.html", (model,))
    (tmp_path / "report.html").write_text("old")
    check_output(tmp_path / "report.html", (model, tmp_path / "absent"))


@pytest.mark.parametrize("name", ["model.gguf", "link.gguf", "./model.gguf"])
def test_an_input_is_not_an_output(name: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_text("weights")
    (tmp_path / "link.gguf").symlink_to(model)
    with pytest.raises(UsageError, match="overwritten while it is read"):
        check_output(tmp_path / name, (model,))


def test_folders_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(UsageError, match="folder, device or pipe"):
            check_output(path)
        with pytest.raises(UsageError, match="folder, device or pipe"):
            write_atomic(path, "x")
    assert Path("/dev/null").is_char_device()


def test_a_place_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        check_output(tmp_path / "absent" / "report.html")


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
