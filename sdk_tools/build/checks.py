"""Native tests and fuzz targets: built beside the engine from the same base, and run here."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sdk_tools import process
from sdk_tools.build.base import get_base
from sdk_tools.build.cmake import Runner
from sdk_tools.build.compiler import find_clang
from sdk_tools.build.driver import Workshop, lock_native, native_project
from sdk_tools.build.targets import BuildOptions
from sdk_tools.errors import BuildError, ParityError, UsageError
from sdk_tools.files import hash_file, lock, mark_used, new_dir
from sdk_tools.paths import cache_dir, native_dir
from sdk_tools.progress import Reporter

_CTEST_LIMIT_S = 1800
_FUZZ_FOLDER = Path("tests") / "fuzz"
_FUZZ_SLACK_S = 120.0


@dataclass(frozen=True)
class TestReport:
    """What ctest said. sanitize: "", "address" or "thread"."""

    sanitize: str
    passed: int
    failed: int
    seconds: float

    def to_json(self) -> dict[str, object]:
        return {"schema": 1, "native_tests": asdict(self)}

    def summary(self) -> str:
        kind = {"": "", "address": " under ASan and UBSan", "thread": " under TSan"}[self.sanitize]
        return f"Native tests{kind}: {self.passed} passed, {self.failed} failed in {self.seconds:.1f} s"


@dataclass(frozen=True)
class FuzzRun:
    """One fuzz target that ran to its end without a finding."""

    target: str
    executions: int
    corpus_files: int
    seconds: float


@dataclass(frozen=True)
class FuzzReport:
    """All fuzz targets."""

    runs: tuple[FuzzRun, ...]

    def to_json(self) -> dict[str, object]:
        return {"schema": 1, "fuzz": [asdict(run) for run in self.runs]}

    def summary(self) -> str:
        return "\n".join(
            f"{run.target}: {run.executions} executions in {run.seconds:.0f} s from {run.corpus_files} corpus files, "
            "no finding"
            for run in self.runs
        )


def run_native_tests(shop: Workshop) -> TestReport:
    """Builds and runs the native tests for shop.options.

    Errors: UsageError (a target this machine cannot run), BuildError, ParityError (tests failed), Cancelled.
    """
    _require_runnable(shop.options)
    base = get_base(shop.options, shop.source, shop.compiler, shop.tools, shop.jobs, shop.reporter)
    with lock_native(shop) as build_dir:
        runner = Runner(native_project(shop, base, build_dir, tests=True), shop.reporter)
        runner.configure()
        runner.build(shop.jobs)
        return _run_ctest(shop, build_dir, _tiny_models(shop.reporter))


def run_fuzzers(shop: Workshop, seconds: int) -> FuzzReport:
    """Builds every fuzz target with clang (libFuzzer, ASan, UBSan) and runs each for `seconds`.

    Starts from the corpus kept in native/tests/fuzz/corpus, or its subfolder of the target's name if there is one, and
    from what earlier runs found, in the cache.
    Errors: MissingToolError (no clang), BuildError, ParityError (a finding; its input is kept), Cancelled.
    """
    _require_runnable(shop.options)
    clang = find_clang()
    base = get_base(shop.options, shop.source, shop.compiler, shop.tools, shop.jobs, shop.reporter)
    shop = replace(shop, options=replace(shop.options, variant="debug", sanitize=""))
    with lock_native(shop, "-fuzz") as build_dir:
        runner = Runner(native_project(shop, base, build_dir, fuzzers=True, compiler=clang), shop.reporter)
        runner.configure()
        runner.build(shop.jobs, f"{_FUZZ_FOLDER}/all")
        folder = build_dir / _FUZZ_FOLDER
        targets = sorted(path for path in folder.glob("*_fuzz") if path.is_file())
        if not targets:
            raise BuildError(f"No fuzz target came out of the build: there is no {folder}/*_fuzz.")
        return FuzzReport(tuple(_run_fuzzer(target, seconds, shop.reporter) for target in targets))


def _require_runnable(options: BuildOptions) -> None:
    if not options.target.runs_here:
        raise UsageError(f"Programs for --abi {options.abi} do not run on this machine.", "Use --abi host.")


def _tiny_models(reporter: Reporter) -> Path:
    """The folder of tiny random models that the native tests open: $SYRINX_TINY_DIR, or made once into the cache."""
    named = os.environ.get("SYRINX_TINY_DIR")
    if named:
        return Path(named)
    maker = native_dir().parent / "tests" / "tiny_models.py"
    if not maker.is_file():
        raise UsageError(f"The native tests need {maker}, which only a checkout has.", "Run them from a checkout.")
    folder = cache_dir() / "tiny-models" / hash_file(maker)[:16]
    with lock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            with new_dir(folder) as temporary, reporter.step("Making the tiny models for the tests"):
                command = [sys.executable, "-m", "tests.tiny_models", "--out", str(temporary)]
                done = process.run(command, cwd=maker.parent.parent)
                if done.exit_code != 0:
                    raise BuildError(f"{maker} failed:\n{_tail(done.stderr, 10)}")
        mark_used(folder)
    return folder


def _run_ctest(shop: Workshop, build_dir: Path, tiny_models: Path) -> TestReport:
    started = time.monotonic()
    command: list[str | Path] = [shop.tools.ctest, "--test-dir", build_dir, "--output-on-failure", "--no-tests=error"]
    command += ["--timeout", str(_CTEST_LIMIT_S)]
    kind = f" ({shop.options.sanitize})" if shop.options.sanitize else ""
    with shop.reporter.step(f"Running the native tests{kind}") as step:

        def on_output(_stream: process.Stream, text: str) -> None:
            for found in re.finditer(r"^\s*(\d+)/(\d+) Test +#\d+: (\S+)", text, re.MULTILINE):
                step.update(int(found[1]), int(found[2]), found[3])

        environment = {**_sanitizer_environment(), "SYRINX_TINY_DIR": str(tiny_models)}
        done = process.run(command, env=environment, on_output=on_output)
    # CMake 4.4 says "100% tests passed out of 10", older ones and a run with failures "..., 1 tests failed out of 10".
    summary = re.search(r"tests passed(?:, (\d+) tests? failed)? out of (\d+)", done.stdout)
    if not summary:
        raise BuildError(f"ctest did not run the tests:\n{_tail(done.stdout + done.stderr, 20)}")
    failed, total = int(summary[1] or 0), int(summary[2])
    report = TestReport(shop.options.sanitize, total - failed, failed, round(time.monotonic() - started, 1))
    if done.exit_code != 0 or failed:
        log = _keep_log("native-tests", done)
        failures = _tail(_failures(done.stdout), 80)
        raise ParityError(f"{report.summary()}.\n{failures}", f"The whole output is in {log}.")
    return report


def _failures(text: str) -> str:
    """What ctest printed for the tests that failed ("***Failed", "***Timeout", "***Exception: ...")."""
    shown: list[str] = []
    inside = False
    for line in text.splitlines():
        if re.match(r"\s*(Start +\d+:|\d+/\d+ Test)|\d+% tests passed", line):
            inside = "***" in line
        if inside:
            shown.append(line)
    return "\n".join(shown) or text


def _sanitizer_environment() -> dict[str, str]:
    """Findings end the test; what the user set in the environment comes last and so wins."""
    common = {
        "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    }
    suppressions = native_dir() / "tests" / "tsan.supp"
    if suppressions.is_file():
        common["TSAN_OPTIONS"] += f":suppressions={suppressions}"
    return {name: ":".join(part for part in (value, os.environ.get(name)) if part) for name, value in common.items()}


def _run_fuzzer(target: Path, seconds: int, reporter: Reporter) -> FuzzRun:
    kept = native_dir() / _FUZZ_FOLDER / "corpus"
    kept = kept / target.name if (kept / target.name).is_dir() else kept
    found = cache_dir() / "fuzz" / target.name
    findings = found.with_name(f"{target.name}-findings")
    for folder in (found, findings):
        folder.mkdir(parents=True, exist_ok=True)
    corpora = [found, *([kept] if kept.is_dir() else [])]
    corpus_files = sum(1 for folder in corpora for path in folder.iterdir() if path.is_file())
    command: list[str | Path] = [
        target,
        f"-max_total_time={seconds}",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]
    command += [f"-artifact_prefix={findings}/", *corpora]
    started = time.monotonic()
    with reporter.step(f"Fuzzing with {target.name}", seconds) as step:

        def on_output(_stream: process.Stream, _text: str) -> None:
            step.update(min(seconds, int(time.monotonic() - started)))

        done = process.run(
            command, env=_sanitizer_environment(), on_output=on_output, timeout_s=seconds + _FUZZ_SLACK_S
        )
    if done.exit_code != 0:
        raise _explain_finding(target, done, findings)
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    if not executions or int(executions[1]) == 0:
        raise BuildError(f"{target.name} executed nothing:\n{_tail(done.stderr, 10)}")
    return FuzzRun(target.name, int(executions[1]), corpus_files, round(done.seconds, 1))


def _explain_finding(target: Path, done: process.Completed, findings: Path) -> ParityError:
    log = _keep_log(target.name, done)
    named = re.search(r"Test unit written to (\S+)", done.stderr)
    what = f"{target.name} found a failure (exit code {done.exit_code})."
    lines = [line for line in done.stderr.splitlines() if re.search(r"ERROR|SUMMARY|runtime error", line)][:4]
    hint = f"The whole output is in {log}."
    if named and Path(named[1]).is_file():
        path = Path(named[1])
        short = findings / f"{target.name}-{hash_file(path)[:12]}"
        shutil.copyfile(path, short)
        hint += f" Repeat it with: {target} {short}"
    return ParityError("\n".join([what, *(f"  {line}" for line in lines)]), hint)


def _keep_log(name: str, done: process.Completed) -> Path:
    path = cache_dir() / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(done.stdout + done.stderr)
    return path


def _tail(text: str, lines: int) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])
