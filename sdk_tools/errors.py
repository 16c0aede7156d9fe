"""Everything that can go wrong, as one tree. A class is one exit code; an instance says what happened and what to do.

Library code raises; `sdk_tools.cli.main` turns it into an exit code.
"""

from __future__ import annotations

from typing import ClassVar


class SyrinxError(Exception):
    """A failure with a meaning for the user.

    what: what happened, naming the file, tensor, row or option. hint: what to do about it; may be empty.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 70

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n{self.hint}" if self.hint else self.what

    def to_json(self) -> dict[str, object]:
        """The object that `--json` prints in place of a result."""
        return {"schema": 1, "error": {"code": self.code, "what": self.what, "hint": self.hint}}


class InternalError(SyrinxError):
    """A bug of ours: an exception nobody expected."""


class ParityError(SyrinxError):
    """A check ran to its end and failed: a stage over its limit, or an answer that is wrong."""

    code = "check-failed"
    exit_code = 1


class UsageError(SyrinxError):
    """An option or argument is unknown, out of range, or contradicts another."""

    code = "usage"
    exit_code = 2


class MissingToolError(SyrinxError):
    """A program or package is missing or too old; the hint says how to get it."""

    code = "missing-tool"
    exit_code = 3


class BadInputError(SyrinxError):
    """A model or another input file is damaged, incomplete or not what it should be."""

    code = "bad-input"
    exit_code = 4


class BuildError(SyrinxError):
    """The compiler or CMake failed, or what came out does not pass its checks."""

    code = "build"
    exit_code = 5


class EngineSourceError(SyrinxError):
    """The llama.cpp source could not be downloaded, or is not the pinned one."""

    code = "engine-source"
    exit_code = 6


class DeviceError(SyrinxError):
    """A device is absent, refuses, vanished, or took longer than allowed."""

    code = "device"
    exit_code = 7


class EngineError(SyrinxError):
    """A call into the engine failed while running."""

    code = "engine"
    exit_code = 8


class Cancelled(SyrinxError):
    """Ctrl-C, or a request to stop. What was begun has been taken back."""

    code = "cancelled"
    exit_code = 130

    def __init__(self, what: str = "Cancelled.", hint: str = "") -> None:
        super().__init__(what, hint)


EXIT_CODES: dict[int, str] = {
    0: "success",
    ParityError.exit_code: "a check failed (parity over its limit, a wrong answer)",
    UsageError.exit_code: "wrong option or argument",
    MissingToolError.exit_code: "a program or package is missing (see `doctor`)",
    BadInputError.exit_code: "a model or input file is damaged or not what it should be",
    BuildError.exit_code: "the build failed",
    EngineSourceError.exit_code: "the engine source could not be fetched or verified",
    DeviceError.exit_code: "a device is absent, refused or timed out",
    EngineError.exit_code: "a call into the engine failed",
    InternalError.exit_code: "internal error: a bug, please report it",
    Cancelled.exit_code: "cancelled",
}
