from __future__ import annotations

import pytest

from sdk_tools import errors


def all_classes() -> list[type[errors.SyrinxError]]:
    found = [errors.SyrinxError]
    for cls in found:
        found += cls.__subclasses__()
    return [cls for cls in found if cls.__module__ == "sdk_tools.errors" and cls is not errors.SyrinxError]


def test_each_class_has_its_own_documented_exit_code() -> None:
    codes = [cls.exit_code for cls in all_classes()]
    assert sorted(codes) == [1, 2, 3, 4, 5, 6, 7, 8, 70, 130]
    assert set(codes) | {0} == set(errors.EXIT_CODES)


def test_each_class_has_its_own_name() -> None:
    names = [cls.code for cls in all_classes()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("cls", all_classes())
def test_text_and_json_say_what_and_hint(cls: type[errors.SyrinxError]) -> None:
    error = cls("The file a.gguf is empty.", "Download it again.")
    assert str(error) == "The file a.gguf is empty.\nDownload it again."
    assert error.to_json() == {
        "schema": 1,
        "error": {"code": cls.code, "what": "The file a.gguf is empty.", "hint": "Download it again."},
    }


def test_without_hint_there_is_no_empty_line() -> None:
    assert str(errors.BuildError("It failed.")) == "It failed."
