from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from sdk_tools import system
from sdk_tools.build import base, checks, compiler, driver, elf_audit
from sdk_tools.build.cmake import map_prefixes
from sdk_tools.build.driver import build_engine, ensure_engine, open_workshop
from sdk_tools.build.targets import BuildOptions
from sdk_tools.cache import prune_cache
from sdk_tools.engine_source import EngineSource
from sdk_tools.errors import BadInputError, BuildError, ParityError, UsageError
from sdk_tools.files import hash_file
from sdk_tools.progress import LogReporter
from tests.unit.fake_toolchain import write_compiler, write_native, write_ndk, write_program, write_toolchain


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretended native/ folder and toolchain that the whole driver runs on."""
    folder = write_native(tmp_path / "checkout" / "native")
    tools = write_toolchain(tmp_path / "bin")
    source = EngineSource(tmp_path / "llama.cpp", "sdist:abc", "abc123", "fake 1.0")
    for module in (base, driver, checks):
        monkeypatch.setattr(module, "native_dir", lambda: folder)
    monkeypatch.setattr(driver, "audit_engine", lambda _root, _options: None)  # the pretended files are no ELF
    monkeypatch.setattr(driver, "get_source", lambda **_arguments: source)
    monkeypatch.setattr(driver, "current_identity", lambda: source.identity)
    monkeypatch.setattr(driver, "default_output_dir", lambda name: tmp_path / "out" / name)
    monkeypatch.setattr(compiler, "_find_packaged", lambda name, _constant: tools / name)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "host"


def count_configurations(cache: Path, pattern: str) -> int:
    return sum(len(path.read_text().split()) for path in cache.glob(f"{pattern}/configured"))


def definitions_of(build_dir: Path) -> list[str]:
    return (build_dir / "definitions.txt").read_text().splitlines()


# ------------------------------------------------------------------------------------------------------ building


def test_build_installs_engine_and_manifest(native: Path, out: Path) -> None:
    result = build_engine(BuildOptions())
    assert result.engine.root == out
    assert not result.base_was_cached
    manifest: Any = json.loads((out / "manifest.json").read_text())
    assert manifest == result.engine.manifest
    assert manifest["schema"] == 1
    assert manifest["options"] == {"abi": "host", "variant": "release", "native_cpu": False, "sanitize": None}
    assert manifest["compiler"]["version"] == "12.2.0"
    assert manifest["llama_cpp"] == {"origin": "fake 1.0", "commit": "abc123", "identity": "sdist:abc"}
    assert manifest["inputs"]["llama_cpp"] == "sdist:abc"
    assert manifest["ship_bytes"] == len("lib/libsyrinx.so")
    assert "CMAKE_BUILD_TYPE=Release" in manifest["inputs"]["native_definitions"]
    assert {entry["path"]: entry["sha256"] for entry in manifest["files"]} == {
        str(path.relative_to(out)): hash_file(path)
        for path in out.rglob("*")
        if path.is_file() and path.suffix != ".json"
    }
    assert {path.name for path in out.iterdir()} == {"bin", "lib", "licenses", "manifest.json"}
    assert "xxHash" in (out / "licenses" / "THIRD_PARTY_NOTICES.md").read_text()
    assert [path.name for path in out.parent.iterdir()] == ["host"]


def test_the_second_build_reuses_base_and_configuration(native: Path, cache: Path) -> None:
    build_engine(BuildOptions())
    (native / "src" / "a.cpp").write_text("changed")
    assert build_engine(BuildOptions()).base_was_cached
    assert count_configurations(cache, "builds/*") == 1
    assert not list(cache.glob("base/*.build"))


def test_what_a_build_uses_is_not_pruned_before_its_checkout_is_gone(native: Path, cache: Path) -> None:
    build_engine(BuildOptions())
    entries = [path for folder in ("base", "builds") for path in (cache / folder).iterdir() if path.is_dir()]
    for path in entries:
        os.utime(path, (1e9, 1e9))
    assert prune_cache().removed == ()
    build_engine(BuildOptions())
    assert all(path.stat().st_mtime > 1e9 for path in entries)
    shutil.rmtree(native)
    assert prune_cache().removed == ()  # a build may have looked at them just now
    for path in entries:
        os.utime(path, (1e9, 1e9))
    assert {entry.path for entry in prune_cache().removed} == set(entries)


def test_folder_names_with_spaces_and_quotes_stay_one_word() -> None:
    flags = map_prefixes({Path("/a b/it's"): "native"})
    assert shlex.split(flags) == ["-ffile-prefix-map=/a b/it's=native"]


def test_paths_of_this_machine_do_not_reach_the_binaries(native: Path, tmp_path: Path) -> None:
    result = build_engine(BuildOptions())
    flags = next(line for line in definitions_of(result.build_dir) if line.startswith("CMAKE_CXX_FLAGS="))
    assert f"-ffile-prefix-map={native}=native" in flags
    assert f"-ffile-prefix-map={result.build_dir}=build" in flags


@pytest.mark.parametrize(
    ("options", "strips", "wanted"),
    [
        (BuildOptions(), True, "CMAKE_BUILD_TYPE=Release"),
        (BuildOptions(variant="debug"), False, "CMAKE_BUILD_TYPE=Debug"),
        (BuildOptions(sanitize="thread"), False, "SYRINX_SANITIZE=thread"),
    ],
)
def test_options_reach_cmake(native: Path, options: BuildOptions, strips: bool, wanted: str) -> None:
    result = build_engine(options)
    assert wanted in definitions_of(result.build_dir)
    assert ("--strip" in (result.build_dir / "install.txt").read_text().split()) == strips
    assert result.engine.root.name == options.name


def test_android_is_built_with_the_ndks_own_toolchain_file(native: Path, tmp_path: Path) -> None:
    ndk = write_ndk(tmp_path / "ndk", "27.2.12479018")
    result = build_engine(BuildOptions("arm64"), ndk=ndk)
    definitions = definitions_of(result.build_dir)
    assert f"CMAKE_TOOLCHAIN_FILE={ndk}/build/cmake/android.toolchain.cmake" in definitions
    assert {"ANDROID_ABI=arm64-v8a", "ANDROID_PLATFORM=android-28", "SYRINX_CPU_MODULES=ON"} < set(definitions)
    assert not any(line.startswith("CMAKE_CXX_COMPILER=") for line in definitions)
    assert result.engine.manifest["compiler"] == {
        "kind": "clang",
        "version": "18.0.3, NDK 27.2.12479018",
        "target": "x86_64-linux-gnu",
        "cxx": str(ndk / "toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android28-clang++"),
    }
    write_ndk(tmp_path / "other", "28.0.1")
    assert not build_engine(BuildOptions("arm64"), ndk=tmp_path / "other").base_was_cached


def test_arm64_linux_is_built_with_debians_cross_compiler(native: Path, tmp_path: Path) -> None:
    for name in ("gcc", "g++"):
        write_compiler(tmp_path / "bin", f"aarch64-linux-gnu-{name}", "aarch64-linux-gnu-g++ (Debian 12.2.0-14) 12.2.0")
    definitions = definitions_of(build_engine(BuildOptions("arm64-linux")).build_dir)
    assert f"CMAKE_CXX_COMPILER={tmp_path}/bin/aarch64-linux-gnu-g++" in definitions
    assert {"CMAKE_SYSTEM_NAME=Linux", "CMAKE_SYSTEM_PROCESSOR=aarch64", "SYRINX_CPU_MODULES=ON"} < set(definitions)


def test_an_engine_that_fails_its_audit_is_not_installed(
    native: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_engine(BuildOptions())
    before = listing(out)
    monkeypatch.setattr(driver, "audit_engine", elf_audit.audit_engine)  # the pretended install lacks headers
    with pytest.raises(BuildError, match=r"syrinx\.h cannot be read"):
        build_engine(BuildOptions())
    assert listing(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["host"]


def test_native_cpu_only_on_request_and_recorded(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "SYRINX_NATIVE_CPU=OFF" in base.base_definitions(BuildOptions())
    assert build_engine(BuildOptions()).engine.manifest["cpu"] is None
    options = BuildOptions(native_cpu=True)
    assert "SYRINX_NATIVE_CPU=ON" in base.base_definitions(options)
    monkeypatch.setattr(system, "cpu_identity", lambda: "CPU A")
    first = build_engine(options)
    assert first.engine.manifest["cpu"] == "CPU A"
    monkeypatch.setattr(system, "cpu_identity", lambda: "CPU B")
    assert not build_engine(options).base_was_cached


@pytest.mark.parametrize("change", ["source", "recipe", "compiler"])
def test_what_decides_the_base_is_in_its_key(
    native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    first = build_engine(BuildOptions()).engine.manifest["base"]
    if change == "source":
        other = EngineSource(tmp_path / "llama.cpp", "sdist:def", "def456", "fake 2.0")
        monkeypatch.setattr(driver, "get_source", lambda **_arguments: other)
    elif change == "recipe":
        (native / "llama" / "CMakeLists.txt").write_text("changed")
    else:
        for name in ("cc", "c++"):
            path = tmp_path / "bin" / name
            path.write_text(path.read_text().replace("12.2.0", "13.1.0"))
    result = build_engine(BuildOptions())
    assert not result.base_was_cached
    assert result.engine.manifest["base"] != first


def test_a_damaged_base_is_built_anew(native: Path, cache: Path) -> None:
    build_engine(BuildOptions())
    (library,) = cache.glob("base/*/lib/libllama.a")
    library.write_text("damaged")
    assert not build_engine(BuildOptions()).base_was_cached
    assert library.read_text() == "lib/libllama.a"


@pytest.mark.parametrize("jobs", [0, -1])
def test_impossible_jobs(native: Path, jobs: int) -> None:
    with pytest.raises(UsageError, match="--jobs"):
        build_engine(BuildOptions(), jobs=jobs)


def test_default_jobs_follow_processors_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    free = psutil.virtual_memory()._replace(available=3_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    assert driver.default_jobs() == 2
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free._replace(available=1_000))
    assert driver.default_jobs() == 1


# ---------------------------------------------------------------------------------------------- failing, losing nothing


def listing(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hash_file(path) for path in folder.rglob("*") if path.is_file()}


COMPILER_SAYS = """\
FAILED: [code=1] CMakeFiles/syrinx.dir/src/a.cpp.o
/usr/bin/c++ -DSECRETLY_LONG_COMMAND -c a.cpp
/x/native/src/a.cpp:3:5: error: 'foo' was not declared in this scope
    3 |     foo();
ninja: build stopped: subcommand failed."""


@pytest.mark.parametrize("where", [".", "llama"])
def test_a_failed_build_says_why_and_keeps_the_old_engine(native: Path, out: Path, cache: Path, where: str) -> None:
    build_engine(BuildOptions())
    before = listing(out)
    (native / where / "FAIL").write_text(COMPILER_SAYS)
    with pytest.raises(BuildError) as caught:
        build_engine(BuildOptions())
    assert "a.cpp:3:5: error: 'foo' was not declared" in caught.value.what
    assert "3 |     foo();" in caught.value.what
    assert "SECRETLY_LONG_COMMAND" not in caught.value.what
    log = Path(caught.value.hint.removeprefix("The whole output is in ").rstrip("."))
    assert "SECRETLY_LONG_COMMAND" in log.read_text()
    assert listing(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["host"]


def test_out_of_memory_is_explained(native: Path) -> None:
    (native / "FAIL").write_text("c++: fatal error: Killed signal terminated program cc1plus")
    with pytest.raises(BuildError) as caught:
        build_engine(BuildOptions())
    assert "--jobs 1" in caught.value.hint


def test_a_foreign_folder_is_not_replaced(native: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("")
    with pytest.raises(UsageError, match="not a built engine"):
        build_engine(BuildOptions(), out=tmp_path / "precious")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a built engine"):
        build_engine(BuildOptions(), out=tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert build_engine(BuildOptions(), out=tmp_path / "empty").engine.cli.is_file()


BUILD_IN_CHILD = """
import sys
from pathlib import Path
from sdk_tools import __main__, engine_source
from sdk_tools import system
from sdk_tools.build import base, compiler, driver
native, tools, out = map(Path, sys.argv[1:])
for module in (base, driver):
    module.native_dir = lambda: native
driver.get_source = lambda **_: engine_source.EngineSource(native, "sdist:abc", "abc123", "fake 1.0")
compiler._find_packaged = lambda name, _constant: tools / name
__main__.main(["build", "--out", str(out)])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_compilers_and_exits_130(
    native: Path, out: Path, tmp_path: Path, number: signal.Signals
) -> None:
    build_engine(BuildOptions())
    before = listing(out)
    (native / "HANG").write_text("")
    command = [sys.executable, "-c", BUILD_IN_CHILD, str(native), str(tmp_path / "bin"), str(out)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (pid := (native / "HANG").read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pid
    child.send_signal(number)
    said = child.communicate(timeout=30)
    assert child.returncode == 130, said
    assert "Cancelled." in said[1]
    assert "Traceback" not in said[1]
    assert not psutil.pid_exists(int(pid))
    assert listing(out) == before
    (native / "HANG").unlink()
    build_engine(BuildOptions())  # its locks are free


# -------------------------------------------------------------------------------------------------- ensuring an engine


def test_ensure_builds_once(native: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = ensure_engine(reporter=LogReporter())
    assert engine.root == out
    assert "no built engine yet" in capsys.readouterr().err
    stamp = engine.library.stat().st_mtime_ns
    assert ensure_engine(reporter=LogReporter()) == engine
    assert engine.library.stat().st_mtime_ns == stamp
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("change", ["source", "removed", "damaged"])
def test_ensure_builds_anew_when_needed_with_the_same_options(native: Path, out: Path, change: str) -> None:
    first = build_engine(BuildOptions(native_cpu=True), out=out).engine
    if change == "source":
        (native / "src" / "a.cpp").write_text("changed")
    elif change == "removed":
        first.library.unlink()
    else:
        (out / "lib" / "libsyrinx.so").write_text("x")
    second = ensure_engine()
    assert second.library.read_text() == "lib/libsyrinx.so"
    assert second.options == (BuildOptions(native_cpu=True) if change == "source" else BuildOptions())
    assert (second.inputs != first.inputs) == (change == "source" or second.options != first.options)


def test_tests_do_not_make_an_engine_old(native: Path) -> None:
    first = ensure_engine()
    (native / "tests" / "a_test.cpp").write_text("changed")
    assert ensure_engine().manifest == first.manifest


def test_a_named_engine_is_used_as_it_is(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = build_engine(BuildOptions(), out=tmp_path / "mine").engine
    (native / "src" / "a.cpp").write_text("changed")
    assert ensure_engine(tmp_path / "mine") == mine
    monkeypatch.setenv("SYRINX_ENGINE_DIR", str(tmp_path / "mine"))
    assert ensure_engine() == mine
    with pytest.raises(BadInputError, match="not a built engine"):
        ensure_engine(tmp_path / "absent")


# ---------------------------------------------------------------------------------------------------- native tests


def test_native_tests_report(native: Path) -> None:
    report = checks.run_native_tests(open_workshop(BuildOptions(sanitize="address")))
    assert (report.passed, report.failed) == (1, 0)
    assert report.summary().startswith("Native tests under ASan and UBSan: 1 passed, 0 failed")


def test_tiny_models_are_made_once(native: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for _ in range(2):
        checks.run_native_tests(open_workshop(BuildOptions()))
    (folder,) = (path for path in cache.glob("tiny-models/*") if path.is_dir())
    maker = native.parent / "tests" / "tiny_models.py"
    maker.write_text("raise SystemExit('no numpy')")
    with pytest.raises(BuildError, match="no numpy"):
        checks.run_native_tests(open_workshop(BuildOptions()))
    assert [path for path in cache.glob("tiny-models/*") if path.is_dir()] == [folder]
    monkeypatch.setenv("SYRINX_TINY_DIR", str(folder))
    assert checks.run_native_tests(open_workshop(BuildOptions())).passed == 1


def test_failing_native_tests_are_an_error(native: Path, cache: Path) -> None:
    checks.run_native_tests(open_workshop(BuildOptions()))
    (build_dir,) = (path for path in cache.glob("builds/*") if path.is_dir())
    (build_dir / "ctest-output").write_text(
        "1/2 Test #1: abi ...   Passed\n2/2 Test #2: state ...***Failed  0.1 sec\nstate_test.cpp:7: ERROR: 1 == 2\n\n"
        "50% tests passed, 1 tests failed out of 2\nTotal Test time"
    )
    with pytest.raises(ParityError, match="1 passed, 1 failed") as caught:
        checks.run_native_tests(open_workshop(BuildOptions()))
    assert "Test #2: state" in caught.value.what
    assert "state_test.cpp:7: ERROR" in caught.value.what
    assert "Passed" not in caught.value.what


def test_ctest_that_runs_nothing_is_an_error(native: Path, cache: Path) -> None:
    checks.run_native_tests(open_workshop(BuildOptions()))
    (build_dir,) = (path for path in cache.glob("builds/*") if path.is_dir())
    (build_dir / "ctest-output").write_text("No tests were found!!!")
    with pytest.raises(BuildError, match="did not run the tests"):
        checks.run_native_tests(open_workshop(BuildOptions()))


def test_engine_and_tests_share_a_build_folder(native: Path, cache: Path) -> None:
    build_engine(BuildOptions())
    checks.run_native_tests(open_workshop(BuildOptions()))
    (build_dir,) = (path for path in cache.glob("builds/*") if path.is_dir())
    assert "SYRINX_BUILD_TESTS=ON" in definitions_of(build_dir)
    assert count_configurations(cache, "builds/*") == 2


# --------------------------------------------------------------------------------------------------------- fuzzing

FUZZER = """#!/bin/sh
echo "$@" > "$0.arguments"
{does}
"""
RUNS = "echo stat::number_of_executed_units: 4711 >&2"
CRASHES = """for word in "$@"; do case $word in -artifact_prefix=*) found=${word#*=}crash-1 ;; esac; done
echo bad > "$found"
echo "==1==ERROR: AddressSanitizer: heap-buffer-overflow" >&2
echo "Test unit written to $found" >&2
exit 77"""


def write_fuzzer(native: Path, does: str) -> None:
    write_program(native / "tests" / "fuzz" / "gguf_fuzz", FUZZER.replace("{does}", does))


def fuzz() -> checks.FuzzReport:
    return checks.run_fuzzers(open_workshop(BuildOptions()), 1)


@pytest.mark.parametrize("subfolder", [".", "gguf_fuzz"])
def test_fuzzers_start_from_both_corpora(native: Path, cache: Path, subfolder: str) -> None:
    write_fuzzer(native, RUNS)
    kept = native / "tests" / "fuzz" / "corpus" / subfolder
    kept.mkdir(parents=True)
    (kept / "seed").write_text("GGUF")
    report = fuzz()
    assert [(run.target, run.executions, run.corpus_files) for run in report.runs] == [("gguf_fuzz", 4711, 1)]
    assert "no finding" in report.summary()
    (arguments,) = cache.glob("builds/*/tests/fuzz/*.arguments")
    assert f"{cache}/fuzz/gguf_fuzz {kept}\n" in arguments.read_text()
    (build_dir,) = (path for path in cache.glob("builds/*-fuzz-*") if path.is_dir())
    assert any(line.endswith("/clang++") for line in definitions_of(build_dir))


def test_a_finding_is_an_error_that_says_how_to_repeat_it(native: Path, cache: Path) -> None:
    write_fuzzer(native, CRASHES)
    with pytest.raises(ParityError, match="heap-buffer-overflow") as caught:
        fuzz()
    target, finding = caught.value.hint.rsplit(": ", 1)[1].split()
    assert Path(target).name == "gguf_fuzz"
    assert Path(finding).read_text() == "bad\n"
    assert cache in Path(finding).parents


def test_a_fuzzer_that_executes_nothing_is_an_error(native: Path) -> None:
    write_fuzzer(native, "exit 0")
    with pytest.raises(BuildError, match="executed nothing"):
        fuzz()


def test_no_fuzz_targets_at_all_is_an_error(native: Path) -> None:
    with pytest.raises(BuildError, match="No fuzz target"):
        fuzz()
