from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdk_tools.abi import ContextFullError
from sdk_tools.build.manifest import BuiltEngine
from sdk_tools.devices.host import HostDevice
from sdk_tools.errors import BadInputError, Cancelled, EngineError, InternalError, SyrinxError, UsageError
from sdk_tools.native_cli import call_engine
from tests.unit.fake_toolchain import write_program


def make_engine(root: Path, script: str) -> BuiltEngine:
    engine = BuiltEngine(root, {})
    write_program(engine.cli, f"#!/bin/sh\n{script}\n")
    return engine


def call(engine: BuiltEngine, *arguments: str) -> dict[str, object]:
    with HostDevice() as device:
        return call_engine(device, engine, arguments, timeout_s=30)


def test_answer(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, 'echo log >&2; echo \'{"schema": 1, "arguments": "\'$1-$2\'"}\'')
    assert call(engine, "info", "a b.gguf") == {"schema": 1, "arguments": "info-a b.gguf"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("SYRINX_ERR_BAD_MODEL", BadInputError),
        ("SYRINX_ERR_NOT_FOUND", BadInputError),
        ("SYRINX_ERR_INVALID_ARGUMENT", UsageError),
        ("SYRINX_ERR_CANCELLED", Cancelled),
        ("SYRINX_ERR_OUT_OF_MEMORY", EngineError),
        ("SYRINX_ERR_CONTEXT_FULL", ContextFullError),
        ("SYRINX_ERR_IO", BadInputError),
        ("SYRINX_ERR_INTERNAL", EngineError),
    ],
)
def test_reported_failure(tmp_path: Path, status: str, kind: type[SyrinxError]) -> None:
    answer = json.dumps({"schema": 1, "error": {"status": status, "text": "tensor 'x' ends outside"}})
    engine = make_engine(tmp_path, f"cat <<'END'\n{answer}\nEND\nexit 14")
    with pytest.raises(kind, match="tensor 'x' ends outside") as caught:
        call(engine, "info")
    assert type(caught.value) is kind
    assert status in caught.value.hint


def test_a_status_of_another_version(tmp_path: Path) -> None:
    answer = json.dumps({"schema": 1, "error": {"status": "SYRINX_ERR_NEW", "text": "odd"}})
    engine = make_engine(tmp_path, f"cat <<'END'\n{answer}\nEND\nexit 99")
    with pytest.raises(InternalError, match="unknown status SYRINX_ERR_NEW: odd") as caught:
        call(engine, "info")
    assert "Build the engine" in caught.value.hint


@pytest.mark.parametrize(
    ("script", "match"),
    [
        ("echo oops >&2; kill -9 $$", "ended by signal 9 without an answer.\n  oops"),
        ("echo not json; exit 1", "exited with code 1 without an answer.\n  not json"),
        ("exit 0", "exited with code 0 without an answer"),
        ("echo '[1]'", "without an answer"),
    ],
)
def test_no_answer(tmp_path: Path, script: str, match: str) -> None:
    with pytest.raises(EngineError, match=match):
        call(make_engine(tmp_path, script), "info")


def test_pieces_come_whole_whatever_the_pipe_does(tmp_path: Path) -> None:
    engine = make_engine(
        tmp_path,
        """printf '{"piece": "one\\\\n'; sleep 0.2; echo '"}'; echo '{"piece": 3}'; echo oops; echo '{"piece": "two"}'
        echo '{"piece": "not output"}' >&2; echo '{"schema": 1}'""",
    )
    pieces: list[str] = []
    with HostDevice() as device:
        assert call_engine(device, engine, ["run"], on_piece=pieces.append, timeout_s=30) == {"schema": 1}
    assert pieces == ["one\n", "two"]
