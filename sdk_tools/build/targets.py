"""What an engine can be built for, and the choices a build has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from sdk_tools.build.ndk import API_LEVEL
from sdk_tools.errors import UsageError

Variant = Literal["release", "debug"]
Sanitizer = Literal["", "address", "thread"]


@dataclass(frozen=True)
class Target:
    """One platform. The definitions go to both CMake projects (native/llama and native).

    android_abi: what the NDK calls it, if the NDK builds for it. cross_prefix: of a cross compiler's programs, such as
    "aarch64-linux-gnu". Neither: the system's compiler.
    """

    abi: str
    description: str
    definitions: tuple[str, ...] = ()
    runs_here: bool = False  # whether this machine can execute what comes out
    android_abi: str = ""
    cross_prefix: str = ""


def _android(abi: str, description: str, android_abi: str) -> Target:
    platform = (f"ANDROID_ABI={android_abi}", f"ANDROID_PLATFORM=android-{API_LEVEL}", "ANDROID_STL=c++_static")
    return Target(abi, description, (*platform, _MODULES), android_abi=android_abi)


_MODULES = "SYRINX_CPU_MODULES=ON"

# A new platform is a new line here, with what its compiler needs to be told among its definitions.
TARGETS: dict[str, Target] = {
    target.abi: target
    for target in (
        Target("host", "this machine's kind: Linux, with the system compiler", runs_here=True),
        _android("arm64", "Android phones: arm64-v8a, with the NDK", "arm64-v8a"),
        _android("x86_64", "the Android emulator: x86_64, with the NDK", "x86_64"),
        Target(
            "arm64-linux",
            "arm64 Linux, with Debian's cross compiler",
            ("CMAKE_SYSTEM_NAME=Linux", "CMAKE_SYSTEM_PROCESSOR=aarch64", _MODULES),
            cross_prefix="aarch64-linux-gnu",
        ),
    )
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
        for name, given in (("--native-cpu", self.native_cpu), ("--sanitize", bool(self.sanitize))):
            if given and not self.target.runs_here:
                raise UsageError(f"{name} cannot go with --abi {self.abi}.", "It is for what runs on this machine.")

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
