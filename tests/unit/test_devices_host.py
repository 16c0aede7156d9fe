from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from sdk_tools.devices.base import Device
from sdk_tools.devices.host import HostDevice
from sdk_tools.errors import BadInputError, Cancelled, DeviceError
from sdk_tools.process import TimeLimitError


def test_it_is_a_device_and_knows_its_facts() -> None:
    device: Device = HostDevice()
    facts = device.facts()
    assert (facts.kind, device.name) == ("host", "host")
    assert facts.abis == ("host",)
    assert facts.to_json()["memory_total"] == facts.memory_total > 0
    device.close()


def test_push_without_target_copies_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("weights")
    with HostDevice() as device:
        assert device.push(tmp_path / "model.gguf") == str(tmp_path / "model.gguf")
        assert list(device.work_dir.iterdir()) == []


def test_push_run_pull(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("text")
    with HostDevice() as device:
        pushed = device.push(tmp_path / "in.txt", "case 1/in.txt")
        assert Path(pushed) == device.work_dir / "case 1" / "in.txt"
        code = "import os, sys; open('out.txt', 'w').write(open(sys.argv[1]).read() + os.environ['MORE'])"
        done = device.run([sys.executable, "-c", code, "in.txt"], cwd="case 1", env={"MORE": "!"})
        assert done.exit_code == 0, done.stderr
        device.pull("case 1/out.txt", tmp_path / "results" / "out.txt")
    assert (tmp_path / "results" / "out.txt").read_text() == "text!"
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["out.txt"]


def test_pushed_folder_replaces_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "engine" / "bin").mkdir(parents=True)
    (tmp_path / "engine" / "bin" / "syrinx").write_text("1")
    (tmp_path / "engine" / "bin" / "syrinx").chmod(0o755)
    with HostDevice() as device:
        device.push(tmp_path / "engine", "engine")
        (tmp_path / "engine" / "bin" / "syrinx").rename(tmp_path / "engine" / "bin" / "other")
        folder = Path(device.push(tmp_path / "engine", "engine"))
        assert [path.name for path in (folder / "bin").iterdir()] == ["other"]
        assert (folder / "bin" / "other").stat().st_mode & 0o111


def test_absent_files(tmp_path: Path) -> None:
    with HostDevice() as device:
        with pytest.raises(BadInputError, match="does not exist"):
            device.push(tmp_path / "absent")
        with pytest.raises(DeviceError, match="no file absent"):
            device.pull("absent", tmp_path / "x")
        assert not (tmp_path / "x").exists()


def test_damage_on_the_way_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.txt").write_text("text")
    hashes = iter(["one", "another"])
    monkeypatch.setattr("sdk_tools.devices.host.hash_file", lambda _path: next(hashes))
    with HostDevice() as device, pytest.raises(DeviceError, match="damaged it"):
        device.push(tmp_path / "in.txt", "in.txt")


def test_run_streams_and_reports_failure() -> None:
    pieces: list[str] = []
    with HostDevice() as device:
        done = device.run(
            [sys.executable, "-c", "import sys; print('a'); sys.exit(14)"],
            on_output=lambda _stream, text: pieces.append(text),
        )
    assert (done.exit_code, "".join(pieces)) == (14, "a\n")


def test_run_honours_time_limit_and_cancel() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    cancel = threading.Event()
    cancel.set()
    with HostDevice() as device:
        with pytest.raises(TimeLimitError):
            device.run(command, timeout_s=0.3)
        with pytest.raises(Cancelled):
            device.run(command, cancel=cancel)


def test_close_removes_the_work_folder_and_may_be_repeated() -> None:
    device = HostDevice()
    folder = device.work_dir
    assert folder.is_dir()
    device.close()
    device.close()
    assert not folder.exists()
