from __future__ import annotations

import itertools
from typing import Any

import pytest

from sdk_tools.build.targets import BuildOptions, find_target, options_from_json
from sdk_tools.errors import UsageError


def test_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no build target 'mips'") as caught:
        find_target("mips")
    assert "host" in caught.value.hint


@pytest.mark.parametrize("fields", [{"abi": "mips"}, {"variant": "fast"}, {"sanitize": "memory"}])
def test_unknown_choices_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        BuildOptions(**fields)


@pytest.mark.parametrize("fields", [{"native_cpu": True}, {"sanitize": "address"}])
@pytest.mark.parametrize("abi", ["arm64", "x86_64", "arm64-linux"])
def test_what_is_for_this_machine_alone_is_refused_elsewhere(abi: str, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"cannot go with --abi {abi}"):
        BuildOptions(abi, **fields)


def every_option() -> list[BuildOptions]:
    choices: Any = itertools.product(["release", "debug"], [False, True], ["", "address", "thread"])
    cross = [
        BuildOptions(abi, variant) for abi in ("arm64", "x86_64", "arm64-linux") for variant in ("release", "debug")
    ]
    return [*cross, *(BuildOptions("host", variant, native, sanitize) for variant, native, sanitize in choices)]


def test_each_choice_has_its_own_folder_name() -> None:
    names = [options.name for options in every_option()]
    assert len(set(names)) == len(names)
    assert BuildOptions().name == "host"


@pytest.mark.parametrize("options", every_option(), ids=lambda options: options.name)
def test_json_round_trip(options: BuildOptions) -> None:
    assert options_from_json(options.to_json()) == options
