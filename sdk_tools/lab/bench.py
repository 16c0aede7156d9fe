"""Speed of a model on a device: checked output first, then warm-up, repeats, median and spread."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast

from sdk_tools.build.manifest import BuiltEngine
from sdk_tools.devices.base import Device
from sdk_tools.errors import EngineError, ParityError, UsageError
from sdk_tools.files import check_model_file
from sdk_tools.gguf_io import read_dump
from sdk_tools.lab import machine
from sdk_tools.native_cli import call_engine
from sdk_tools.progress import Reporter, Silent

SCHEMA = 1
# Two prompts that no sound model continues alike.
CHECK_PROMPTS = ("The capital of France is", "Water begins to boil when it")
_CHECK_TOKENS = 16
_CHECK_IDS = ((1, 2, 3, 4), (4, 3, 2, 1))

InputKind = Literal["tokens", "embeds"]


@dataclass(frozen=True)
class BenchCase:
    """What to measure. None is the engine's default; threads count for single rows and, unless set, for several."""

    model: Path
    prompt_tokens: int = 128
    gen_tokens: int = 32
    repeats: int = 5
    warmup: int = 1
    input_kind: InputKind = "tokens"
    threads: int | None = None
    threads_batch: int | None = None
    ctx: int | None = None
    kv: str | None = None
    flash_attention: bool | None = None
    dual: bool = False
    timeout_s: float = 3600.0

    def __post_init__(self) -> None:
        for name, low in (("prompt_tokens", 1), ("gen_tokens", 0), ("repeats", 1), ("warmup", 0)):
            value = getattr(self, name)
            if value < low:
                raise UsageError(f"--{name.replace('_', '-')} is {value}; it must be at least {low}.")


@dataclass(frozen=True)
class Summary:
    """Repeated measurements of one quantity. low_quartile to high_quartile is the middle half."""

    count: int
    median: float
    minimum: float
    maximum: float
    low_quartile: float
    high_quartile: float

    @property
    def spread(self) -> float:
        """The middle half's width as a share of the median."""
        return (self.high_quartile - self.low_quartile) / self.median if self.median else 0.0


@dataclass(frozen=True)
class OutputCheck:
    """What was checked before anything was measured, and whether it held."""

    what: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class BenchReport:
    """Times in milliseconds, rates in tokens per second; load is not part of them. decode None: none was asked for."""

    case: BenchCase
    checks: tuple[OutputCheck, ...]
    load_ms: float
    prefill: Summary
    decode: Summary | None
    handover_ms: Summary | None
    peak_rss_bytes: int
    runs: tuple[Mapping[str, float], ...]
    model: Mapping[str, object]
    params: Mapping[str, object]
    engine: Mapping[str, object]
    before: machine.Snapshot
    after: machine.Snapshot
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "kind": "bench",
            "model": {"path": str(self.case.model), **self.model},
            "params": dict(self.params),
            "checks": [asdict(check) for check in self.checks],
            "load_ms": self.load_ms,
            "prefill_tokens_per_s": asdict(self.prefill),
            "decode_tokens_per_s": asdict(self.decode) if self.decode else None,
            "handover_ms": asdict(self.handover_ms) if self.handover_ms else None,
            "peak_rss_bytes": self.peak_rss_bytes,
            "runs": [dict(run) for run in self.runs],
            "engine": dict(self.engine),
            "device": {"before": self.before.to_json(), "after": self.after.to_json()},
            "warnings": list(self.warnings),
        }


def run_bench(case: BenchCase, device: Device, engine: BuiltEngine, reporter: Reporter | None = None) -> BenchReport:
    """Checks the output, then measures.

    Errors: ParityError (the output check failed: there are no figures), BadInputError, UsageError, EngineError,
    DeviceError, Cancelled.
    """
    reporter = reporter or Silent()
    check_model_file(case.model)
    with reporter.step(f"Pushing {case.model.name} to {device.name}"):
        model = device.push(case.model)
    facts = call_engine(device, engine, ["info", model], timeout_s=case.timeout_s)
    with reporter.step("Checking the output"):
        checks = check_output(case, device, engine, model, has_tokenizer=bool(facts.get("has_tokenizer")))
    require_passed(checks)
    before = machine.take_snapshot(device)
    title = f"Measuring {case.warmup} + {case.repeats} runs of {case.prompt_tokens} + {case.gen_tokens} tokens"
    with reporter.step(title):
        answer = call_engine(device, engine, ["bench", model, *_bench_options(case)], timeout_s=case.timeout_s)
    after = machine.take_snapshot(device)
    return _make_report(case, checks, facts, answer, machine.describe_engine(engine), before, after)


# ------------------------------------------------------------------------------------------------- the output check


def check_output(
    case: BenchCase, device: Device, engine: BuiltEngine, model: str, *, has_tokenizer: bool
) -> tuple[OutputCheck, ...]:
    """Runs two prompts, and the first one again: a broken accelerator gives the same answer to everything, or another
    one each time. Models without a tokenizer are judged by their logits for two lists of ids."""
    first, second = CHECK_PROMPTS if has_tokenizer else _CHECK_IDS
    probe = _probe_text if has_tokenizer else _probe_logits
    one, again, other = (probe(case, device, engine, model, item) for item in (first, first, second))
    what = "greedy answers" if has_tokenizer else "logits"
    return (
        OutputCheck("a repeated prompt gives the same output", one == again, f"{what} of one prompt, run twice"),
        OutputCheck("two prompts give different output", one != other, f"{what} of two prompts"),
    )


def require_passed(checks: Sequence[OutputCheck]) -> None:
    """Errors: ParityError if a check failed."""
    failed = [check for check in checks if not check.passed]
    if failed:
        reasons = "; ".join(f"{check.what}: no ({check.detail})" for check in failed)
        raise ParityError(
            f"The output check failed, so nothing was measured: {reasons}.",
            "The figures of a wrong computation mean nothing. Look for the cause with `parity`.",
        )


def _probe_text(case: BenchCase, device: Device, engine: BuiltEngine, model: str, prompt: object) -> object:
    options = [*_placement_options(case), *(["--dual"] if case.dual else [])]
    command = ["run", model, "--raw", f"--prompt={prompt}", "--max-tokens", str(_CHECK_TOKENS), "--temperature", "0"]
    return call_engine(device, engine, [*command, *options], timeout_s=case.timeout_s).get("tokens")


def _probe_logits(case: BenchCase, device: Device, engine: BuiltEngine, model: str, ids: object) -> object:
    name = "syrinx-bench-check.gguf"
    tokens = ",".join(str(value) for value in cast("tuple[int, ...]", ids))
    command = ["parity", model, "--out", name, "--stages", "logits", "--tokens", tokens, "--input", case.input_kind]
    call_engine(device, engine, [*command, *_placement_options(case)], timeout_s=case.timeout_s)
    with tempfile.TemporaryDirectory(prefix="syrinx-bench-") as folder:
        device.pull(name, Path(folder) / name)
        return read_dump(Path(folder) / name).stages["logits"].tobytes()


# ---------------------------------------------------------------------------------------------------- the figures


def summarize(values: Sequence[float]) -> Summary:
    """Median, range and quartiles (inclusive method) of at least one value."""
    ordered = sorted(values)
    low, _, high = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else [ordered[0]] * 3
    return Summary(len(ordered), statistics.median(ordered), ordered[0], ordered[-1], low, high)


def _bench_options(case: BenchCase) -> list[str]:
    numbers = ("prompt_tokens", "gen_tokens", "repeats", "warmup")
    options = [word for name in numbers for word in (f"--{name.replace('_', '-')}", str(getattr(case, name)))]
    options += ["--input", case.input_kind, *_placement_options(case)]
    if case.ctx is not None:
        options += ["--ctx", str(case.ctx)]
    return [*options, "--dual"] if case.dual else options


def _placement_options(case: BenchCase) -> list[str]:
    options = []
    for name in ("threads", "threads_batch", "kv"):
        if getattr(case, name) is not None:
            options += [f"--{name.replace('_', '-')}", str(getattr(case, name))]
    if case.flash_attention is not None:
        options += ["--flash-attention", str(int(case.flash_attention))]
    return options


def _make_report(
    case: BenchCase,
    checks: tuple[OutputCheck, ...],
    facts: Mapping[str, object],
    answer: Mapping[str, object],
    engine: Mapping[str, object],
    before: machine.Snapshot,
    after: machine.Snapshot,
) -> BenchReport:
    try:
        runs = cast("list[dict[str, float]]", answer["runs"])
        prefill = summarize([1000 * run["n_prompt"] / run["prefill_ms"] for run in runs])
        has_decode = all(run["n_generated"] > 0 for run in runs)
        decode = summarize([1000 * run["n_generated"] / run["decode_ms"] for run in runs]) if has_decode else None
        handover = summarize([run["handover_ms"] for run in runs]) if case.dual else None
        load_ms, peak_rss = float(cast("float", answer["load_ms"])), int(cast("int", answer["peak_rss_bytes"]))
        params = dict(cast("dict[str, object]", answer["params"]))
    except (KeyError, TypeError, ZeroDivisionError, IndexError, ValueError) as error:
        raise EngineError(
            f"`syrinx bench` gave figures that make no sense ({type(error).__name__}: {error}).",
            "The engine is not of this version: build it anew.",
        ) from error
    params |= {"prompt_tokens": case.prompt_tokens, "gen_tokens": case.gen_tokens, "repeats": case.repeats}
    keep = ("architecture", "structure", "n_params", "n_bytes", "fingerprint", "bytes_by_type")
    return BenchReport(
        case=case,
        checks=checks,
        load_ms=load_ms,
        prefill=prefill,
        decode=decode,
        handover_ms=handover,
        peak_rss_bytes=peak_rss,
        runs=tuple(runs),
        model={name: facts.get(name) for name in keep},
        params=params,
        engine=engine,
        before=before,
        after=after,
        warnings=tuple(machine.find_warnings(before, after)),
    )
