"""Parity of a language model: the engine on a device against PyTorch, stage by stage, on one prompt."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from sdk_tools.build.manifest import BuiltEngine
from sdk_tools.devices.base import Device
from sdk_tools.errors import BadInputError, EngineError, UsageError
from sdk_tools.families.llm import stages
from sdk_tools.files import check_model_file
from sdk_tools.gguf_io import StageDump, read_dump, write_npz_dump
from sdk_tools.lab.compare import compare_ids, compare_rows
from sdk_tools.lab.limits import LimitPolicy, Verdict, choose_kind, judge, parse_kind
from sdk_tools.native_cli import call_engine
from sdk_tools.progress import Reporter, Silent

DEFAULT_PROMPT = (
    "The quick brown fox jumps over the lazy dog. In 1969, humans first walked on the Moon; "
    "the journey took about three days each way."
)
FROM_GGUF = "gguf"
_DUMP_NAME = "syrinx-parity-dump.gguf"
_INFO_LIMIT_S = 600.0

InputKind = Literal["tokens", "embeds"]


@dataclass(frozen=True)
class ParityCase:
    """What to compare.

    prompt or tokens: at most one; neither is the ids of a dump given as reference, else DEFAULT_PROMPT.
    reference: "gguf" (PyTorch reads the model file itself), a checkpoint folder, or a dump (.npz or .gguf).
    stages: a choice for stages.expand_stages. kind: of limits, None for what the weights call for.
    input_kind: whether the engine is given ids, or the rows that it looks up for them itself.
    """

    model: Path
    prompt: str | None = None
    tokens: tuple[int, ...] | None = None
    reference: str = FROM_GGUF
    stages: str = "all"
    input_kind: InputKind = "tokens"
    kind: str | None = None
    threads: int | None = None
    save_reference: Path | None = None
    save_dump: Path | None = None
    timeout_s: float = 3600.0


@dataclass(frozen=True)
class ParityReport:
    """The verdicts in the order the stages are computed."""

    case: ParityCase
    device: str
    facts: Mapping[str, object]
    policy: LimitPolicy
    ids: tuple[int, ...]
    verdicts: tuple[Verdict, ...]
    engine_version: str
    reference_version: str

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def first_diverging(self) -> Verdict | None:
        return next((verdict for verdict in self.verdicts if not verdict.passed), None)

    def to_json(self) -> dict[str, object]:
        first = self.first_diverging
        return {
            "schema": 1,
            "kind": "parity",
            "passed": self.passed,
            "first_diverging_stage": first.difference.stage if first else None,
            "model": str(self.case.model),
            "architecture": self.facts.get("architecture"),
            "fingerprint": self.facts.get("fingerprint"),
            "device": self.device,
            "input": self.case.input_kind,
            "limits": asdict(self.policy),
            "engine": self.engine_version,
            "reference": {"source": self.case.reference, "version": self.reference_version},
            "tokens": list(self.ids),
            "stages": [_verdict_to_json(verdict) for verdict in self.verdicts],
        }


class _Reference(Protocol):
    """Where the wanted values come from."""

    name: str

    def tokenize(self, text: str) -> list[int] | None:
        """None: this reference has no tokenizer."""

    def compute(self, ids: Sequence[int], wanted: Sequence[str] | None = None) -> StageDump: ...


class _DumpReference:
    """Values written down earlier, for the ids they were computed with."""

    def __init__(self, dump: StageDump) -> None:
        self.name = str(dump.path)
        self.dump = dump

    def tokenize(self, text: str) -> list[int] | None:
        del text
        return list(self.dump.ids)

    def compute(self, ids: Sequence[int], wanted: Sequence[str] | None = None) -> StageDump:
        del ids, wanted
        return self.dump


def run_parity(case: ParityCase, device: Device, engine: BuiltEngine, reporter: Reporter | None = None) -> ParityReport:
    """Runs both sides and compares. A difference over a limit is a result, not an error.

    Errors: UsageError, BadInputError, MissingToolError (no torch), EngineError, DeviceError, Cancelled.
    """
    reporter = reporter or Silent()
    if case.prompt is not None and case.tokens is not None:
        raise UsageError("Both a prompt and tokens were given.", "Give --prompt or --tokens, not both.")
    check_model_file(case.model)
    model = device.push(case.model)
    facts = call_engine(device, engine, ["info", model], timeout_s=_INFO_LIMIT_S)
    n_layer = _number(facts, "n_layer")
    wanted = stages.expand_stages(case.stages, n_layer)
    policy = _choose_policy(case, facts)
    reference = _open_reference(case, reporter)
    prompt_arguments = _choose_prompt(case, reference, facts)
    with reporter.step(f"Running the engine on {device.name}"):
        got = _run_engine(case, device, engine, model, wanted, prompt_arguments)
    with reporter.step(f"Computing the reference: {reference.name}"):
        wanted_ids = _reference_ids(case, reference)
        want = reference.compute(got.ids, wanted)
    if case.save_reference:
        write_npz_dump(case.save_reference, want)
    ids = list(got.ids) if wanted_ids is None else wanted_ids
    verdicts = tuple(_judge_stage(stage, got, want, ids, policy, n_layer) for stage in wanted)
    return ParityReport(case, device.name, facts, policy, got.ids, verdicts, got.version, want.version)


def _open_reference(case: ParityCase, reporter: Reporter) -> _Reference:
    source = Path(case.reference)
    if case.reference != FROM_GGUF and source.is_file():
        return _DumpReference(read_dump(source))
    from sdk_tools.families.llm import reference

    if case.reference == FROM_GGUF:
        return reference.load_gguf(case.model, reporter)
    return reference.load_checkpoint(source, reporter)


def _choose_prompt(case: ParityCase, reference: _Reference, facts: Mapping[str, object]) -> list[str]:
    """The engine's arguments that say what to run."""
    tokens = case.tokens
    if tokens is None and case.prompt is None and isinstance(reference, _DumpReference):
        tokens = reference.dump.ids
    if tokens is not None:
        if not tokens:
            raise UsageError("There are no token ids to run.", "Give ids with --tokens, or text with --prompt.")
        return ["--tokens=" + ",".join(str(value) for value in tokens)]
    if not facts.get("has_tokenizer"):
        raise UsageError(f"{case.model} has no tokenizer, so it cannot run a prompt.", "Give ids: --tokens 1,2,3")
    return [f"--prompt={DEFAULT_PROMPT if case.prompt is None else case.prompt}"]


def _run_engine(
    case: ParityCase,
    device: Device,
    engine: BuiltEngine,
    model: str,
    wanted: Sequence[str],
    prompt_arguments: Sequence[str],
) -> StageDump:
    computed = [stage for stage in wanted if stage != stages.PROMPT_IDS] or [stages.LOGITS]
    arguments = ["parity", model, "--out", _DUMP_NAME, "--stages", ",".join(computed), "--input", case.input_kind]
    if case.threads is not None:
        arguments += ["--threads", str(case.threads)]
    answer = call_engine(device, engine, [*arguments, *prompt_arguments], timeout_s=case.timeout_s)
    with tempfile.TemporaryDirectory(prefix="syrinx-parity-") as folder:
        local = Path(folder) / _DUMP_NAME
        device.pull(_DUMP_NAME, local)
        dump = read_dump(local)
        if case.save_dump:
            device.pull(_DUMP_NAME, case.save_dump)
    ids = answer.get("tokens")
    if not isinstance(ids, list) or not all(isinstance(value, int) for value in ids):
        raise EngineError("`syrinx parity` did not say which tokens it ran.", "The engine is not of this version.")
    return StageDump(dump.stages, tuple(ids), dump.fingerprint, dump.version)


def _reference_ids(case: ParityCase, reference: _Reference) -> list[int] | None:
    """What the reference makes of the prompt; None if it has no say in it."""
    if case.tokens is not None:
        return list(case.tokens)
    return reference.tokenize(DEFAULT_PROMPT if case.prompt is None else case.prompt)


def _judge_stage(
    stage: str, got: StageDump, want: StageDump, wanted_ids: Sequence[int], policy: LimitPolicy, n_layer: int
) -> Verdict:
    if stage == stages.PROMPT_IDS:
        return judge(compare_ids(stage, got.ids, wanted_ids), None)
    for side, dump in (("reference", want), ("engine's dump", got)):
        if stage not in dump.stages:
            raise BadInputError(
                f"The {side} has no stage '{stage}'; it has {', '.join(stages.sort_stages(dump.stages)) or 'none'}.",
                "Choose with --stages what both sides have.",
            )
    layer = stages.layer_of(stage)
    blocks = 0 if stage == stages.EMBEDS else n_layer if layer is None else layer + 1
    is_logits = stage == stages.LOGITS
    difference = compare_rows(stage, got.stages[stage], want.stages[stage], is_logits=is_logits)
    return judge(difference, policy.make_limit(blocks, difference.rows, is_logits=is_logits))


def _choose_policy(case: ParityCase, facts: Mapping[str, object]) -> LimitPolicy:
    by_type, metadata = facts.get("bytes_by_type"), facts.get("metadata")
    if not isinstance(by_type, dict) or not by_type or not isinstance(metadata, dict):
        raise EngineError("`syrinx info` did not say what the weights are.", "The engine is not of this version.")
    architecture = str(facts.get("architecture", ""))
    counts = {str(name): int(use.get("params", 0)) for name, use in by_type.items()}
    return LimitPolicy(
        kind=parse_kind(case.kind) if case.kind else choose_kind(counts, architecture),
        recurrent=facts.get("structure") in ("recurrent", "hybrid"),
        experts=metadata.get(f"{architecture}.expert_count", 0) not in (0, "0"),
    )


def _number(facts: Mapping[str, object], name: str) -> int:
    value = facts.get(name)
    if not isinstance(value, int):
        raise EngineError(f"`syrinx info` did not say {name}.", "The engine is not of this version.")
    return value


def _verdict_to_json(verdict: Verdict) -> dict[str, object]:
    difference = verdict.difference
    return {
        "stage": difference.stage,
        "passed": verdict.passed,
        "failures": list(verdict.failures),
        "rows": difference.rows,
        "width": difference.width,
        "scale": difference.scale,
        "max_abs": difference.max_abs,
        "max_at": [difference.max_row, difference.max_column],
        "rmse": difference.rmse,
        "typical": difference.typical,
        "worst": difference.worst,
        "worst_row": difference.worst_row,
        "column": difference.column,
        "worst_column": difference.worst_column,
        "cosine": difference.cosine,
        "argmax_agreement": difference.argmax_agreement,
        "argmax_misses": [asdict(miss) for miss in difference.misses or ()],
        "limit": asdict(verdict.limit) if verdict.limit else None,
    }
