"""What an engine can be built for, and the choices a build has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sdk_tools.errors import UsageError

Variant = Literal["release", "debug"]
Sanitizer = Literal["", "address", "thread"]


@dataclass(frozen=True)
class Target:
    """One platform. The definitions go to both CMake projects (native/llama and native)."""

    abi: str
    description: str
    definitions: tuple[str, ...] = ()
    runs_here: bool = False  # whether this machine can execute what comes out


# A new platform is a new line here, with the toolchain file or compiler that it needs among its definitions.
TARGETS: dict[str, Target] = {
    target.abi: target
    for target in (Target("host", "this machine's kind: Linux, with the system compiler", runs_here=True),)
}


def find_target(abi: str) -> Target:
    """Errors: UsageError, naming the targets there are."""
    try:
        return TARGETS[abi]
    except KeyError:
        known = ", ".join(TARGETS)
        raise UsageError(f"There is no build target {abi!r}.", f"--abi takes one of: {known}.") from None


@dataclass(frozen=True)
class BuildOptions:
    """What decides the bytes that come out, apart from the sources and the compiler.

    variant: "debug" keeps symbols and assertions in our code; llama.cpp is optimized in both.
    native_cpu: compile for exactly this machine's CPU. Never for anything that goes to another machine.
    sanitize: instrument our code (llama.cpp stays as it is) with ASan+UBSan ("address") or TSan ("thread").
    """

    abi: str = "host"
    variant: Variant = "release"
    native_cpu: bool = False
    sanitize: Sanitizer = ""

    def __post_init__(self) -> None:
        find_target(self.abi)
        for name, value, allowed in (
            ("--variant", self.variant, get_args(Variant)),
            ("--sanitize", self.sanitize, get_args(Sanitizer)),
        ):
            if value not in allowed:
                known = ", ".join(word for word in allowed if word)
                raise UsageError(f"{name} does not know {value!r}.", f"It takes one of: {known}.")

    @property
    def target(self) -> Target:
        return find_target(self.abi)

    @property
    def name(self) -> str:
        """A folder name: "host", "host-debug", "host-address", ..."""
        parts = [self.abi, "" if self.variant == "release" else self.variant, self.sanitize]
        parts.append("native-cpu" if self.native_cpu else "")
        return "-".join(part for part in parts if part)

    def to_json(self) -> dict[str, object]:
        return {
            "abi": self.abi,
            "variant": self.variant,
            "native_cpu": self.native_cpu,
            "sanitize": self.sanitize or None,
        }


def options_from_json(value: dict[str, object]) -> BuildOptions:
    """The inverse of BuildOptions.to_json. Errors: KeyError, UsageError."""
    return BuildOptions(
        abi=str(value["abi"]),
        variant=value["variant"],  # type: ignore[arg-type]  # checked by BuildOptions itself
        native_cpu=bool(value["native_cpu"]),
        sanitize=value["sanitize"] or "",  # type: ignore[arg-type]
    )
