"""The ctypes binding against the library, on tiny models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sdk_tools.engine import (
    BusyError,
    ClosedError,
    Context,
    ContextFullError,
    ContextParams,
    Engine,
    Finish,
    KvType,
    LogLevel,
    Message,
    Model,
    ModelParams,
    Sampler,
    SamplerParams,
    run_interruptible,
)
from sdk_tools.errors import BadInputError, Cancelled, EngineError, UsageError
from sdk_tools.families.llm import stages
from sdk_tools.gguf_io import read_dump
from tests.tiny_models import find_model

IDS = [5, 6, 7, 250, 100, 5, 9]
PARAMS = ContextParams(n_ctx=128, n_threads=1, embeds_are_scaled=True)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as opened:
        yield opened


@pytest.fixture
def model(engine: Engine, tiny: Callable[[str], Path]) -> Iterator[Model]:
    with engine.open_model(tiny("llama-a")) as opened:
        yield opened


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    with model.open_context(PARAMS) as opened:
        yield opened


@pytest.fixture
def greedy(engine: Engine) -> Iterator[Sampler]:
    with engine.create_sampler() as created:
        yield created


# ----------------------------------------------------------------------------------------------------------- engine


def test_version_and_devices(engine: Engine) -> None:
    assert "+llama.cpp-" in engine.version
    assert "cpu" in {device["type"] for device in engine.devices()}


def test_log_lines_arrive(tiny: Callable[[str], Path]) -> None:
    lines: list[tuple[LogLevel, str]] = []
    with Engine(log=lambda level, text: lines.append((level, text))) as engine, engine.open_model(tiny("llama-a")):
        pass
    assert any("llama" in text for _, text in lines)
    assert all(isinstance(level, LogLevel) for level, _ in lines)


# ------------------------------------------------------------------------------------------------------------ model


@pytest.mark.parametrize("name", ["llama-a", "gemma3-a", "mamba-b", "falcon-h1-a", "qwen35-b", "qwen3-none"])
def test_facts(engine: Engine, tiny: Callable[[str], Path], name: str) -> None:
    expected = find_model(name)
    with engine.open_model(tiny(name)) as model:
        facts, value = model.facts, model.read_facts_json()
    assert (facts.architecture, facts.n_layer, facts.n_vocab) == (expected.arch, expected.n_layer, expected.n_vocab)
    assert facts.structure.name.lower() == expected.structure == value["structure"]
    assert facts.rope.name.lower() == expected.rope
    assert facts.has_tokenizer == expected.has_tokenizer
    assert facts.embedding_scale.name.lower() == expected.embedding_scale
    assert facts.embedding_multiplier == pytest.approx(expected.embedding_multiplier)
    assert value["n_params"] == facts.n_params == sum(use["params"] for use in value["bytes_by_type"].values())
    assert int(value["fingerprint"], 16) == facts.fingerprint


def test_text(model: Model) -> None:
    ids = model.tokenize("héllo the 🙂", add_special=False)
    assert model.detokenize(ids).decode() == "héllo the 🙂"
    assert model.detokenize(ids[:1] + ids[-1:]) == model.detokenize(ids[:1]) + model.detokenize(ids[-1:])
    assert model.tokenize("") == []
    assert model.tokenize("a\0b", add_special=False) != model.tokenize("ab", add_special=False)


def test_control_tokens_only_where_asked_for(model: Model) -> None:
    parsed = model.tokenize("<|im_end|>", add_special=False, parse_special=True)
    assert len(parsed) == 1
    assert model.detokenize(parsed) == b""
    assert model.detokenize(parsed, special=True) == b"<|im_end|>"
    assert len(model.tokenize("<|im_end|>", add_special=False)) > 1


def test_chat_template(model: Model) -> None:
    rendered = model.apply_chat_template([Message("user", "a<|im_end|>")])
    assert rendered.text == "<|im_start|>user\na<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    (end,) = model.tokenize("<|im_end|>", add_special=False, parse_special=True)
    assert rendered.tokens.count(end) == 1  # what a user types is text
    with pytest.raises(UsageError):
        model.apply_chat_template([])


def test_progress_and_cancelling_it(engine: Engine, tiny: Callable[[str], Path]) -> None:
    seen: list[float] = []

    def watch(stage: str, fraction: float) -> bool:
        assert stage == "load"
        seen.append(fraction)
        return True

    engine.open_model(tiny("llama-a"), progress=watch).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    with pytest.raises(Cancelled):
        engine.open_model(tiny("llama-a"), progress=lambda _stage, _fraction: False)


def test_an_exception_in_a_callback_comes_out(engine: Engine, tiny: Callable[[str], Path]) -> None:
    def fail(_stage: str, _fraction: float) -> bool:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        engine.open_model(tiny("llama-a"), progress=fail)


def test_bad_files(engine: Engine, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.gguf"):
        engine.open_model(tmp_path / "none.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny("llama-a").read_bytes()[:-100])
    for call in (engine.check_model, engine.open_model):
        with pytest.raises(BadInputError, match=r"cut\.gguf"):
            call(cut)
    engine.check_model(tiny("llama-a"))


def test_an_unknown_device(engine: Engine, tiny: Callable[[str], Path]) -> None:
    with pytest.raises((UsageError, EngineError), match="moon"):
        engine.open_model(tiny("llama-a"), ModelParams(device="moon"))


# ---------------------------------------------------------------------------------------------------------- context


def test_rows_asked_for(context: Context) -> None:
    hidden, logits = context.prefill_tokens(IDS, rows=[0, 3, 6])
    assert hidden is not None
    assert logits is not None
    assert (hidden.shape, logits.shape) == ((3, context.n_embd_out), (3, context.n_vocab))
    assert context.n_past == len(IDS)
    context.reset()
    last_hidden, last_logits = context.prefill_tokens(IDS)
    assert last_hidden is not None
    assert last_logits is not None
    np.testing.assert_allclose(last_hidden[0], hidden[2], atol=1e-3)
    context.reset()
    assert context.prefill_tokens(IDS, hidden=False)[0] is None
    context.reset()
    assert context.prefill_tokens(IDS, logits=False)[1] is None


@pytest.mark.parametrize("name", ["llama-a", "qwen2vl-a", "gemma3-a", "falcon-h1-a", "qwen35-a"])
def test_rows_equal_ids(engine: Engine, tiny: Callable[[str], Path], name: str) -> None:
    with engine.open_model(tiny(name)) as model, model.open_context(PARAMS) as context:
        by_ids = context.prefill_tokens(IDS)
        step_by_ids = context.decode_token(11)
        context.reset()
        by_rows = context.prefill_embeds(model.embed_tokens(IDS))
        step_by_rows = context.decode_embed(model.embed_tokens([11])[0])
    for one, other in zip((*by_ids, *step_by_ids), (*by_rows, *step_by_rows), strict=True):
        assert one is not None
        np.testing.assert_array_equal(one, other)


def test_arguments_are_checked(context: Context) -> None:
    with pytest.raises(UsageError, match="embds has the shape"):
        context.prefill_embeds(np.zeros((3, context.n_embd + 1)))
    with pytest.raises(UsageError, match="row 1"):
        context.prefill_embeds(np.array([[0.0] * context.n_embd, [np.nan] * context.n_embd]))
    with pytest.raises(UsageError, match="rows must ascend"):
        context.prefill_tokens(IDS, rows=[2, 1])
    with pytest.raises(UsageError, match="token 100000"):
        context.prefill_tokens([100000])
    assert context.n_past == 0
    with pytest.raises(ContextFullError):
        context.prefill_tokens([1] * 129)
    assert context.n_past == 0


def test_a_multiplier_must_be_known(engine: Engine, tiny: Callable[[str], Path]) -> None:
    params = ContextParams(n_ctx=32)
    with engine.open_model(tiny("gemma3-a")) as model, model.open_context(params) as context:  # noqa: SIM117
        with pytest.raises(EngineError, match="embeds_are_scaled"):
            context.prefill_embeds(np.zeros((1, context.n_embd)))


def test_state_goes_out_and_in(model: Model, context: Context) -> None:
    context.prefill_tokens(IDS)
    blob = context.save_state()
    expected, _ = context.decode_token(4)
    with model.open_context(PARAMS) as other:
        other.load_state(blob)
        assert other.n_past == len(IDS)
        np.testing.assert_array_equal(other.decode_token(4)[0], expected)
        for bad in (blob[:-1], b"", blob[:-1] + bytes([blob[-1] ^ 1])):
            with pytest.raises(BadInputError):
                other.load_state(bad)
        assert other.n_past == len(IDS) + 1
    with model.open_context(ContextParams(n_ctx=128, type_k=KvType.F32)) as different, pytest.raises(UsageError):
        different.load_state(blob)


def test_hand_over(model: Model, context: Context) -> None:
    context.prefill_tokens(IDS)
    with model.open_context(PARAMS) as other:
        report = context.hand_over(other)
        assert report.n_past == other.n_past == len(IDS)
        assert report.bytes > 64
        np.testing.assert_array_equal(other.decode_token(4)[0], context.decode_token(4)[0])


def test_probe_has_the_stages_that_are_written_down(model: Model, context: Context, tmp_path: Path) -> None:
    n_layer = model.facts.n_layer
    context.start_probe("all")
    context.prefill_tokens(IDS, rows=range(len(IDS)))
    path = tmp_path / "dump.gguf"
    context.write_probe(path)
    dump = read_dump(path)
    assert [stages.PROMPT_IDS, *stages.sort_stages(dump.stages)] == stages.list_stages(n_layer)
    assert dump.ids == tuple(IDS)
    assert dump.fingerprint == model.facts.fingerprint
    for stage in stages.list_stages(n_layer)[1:]:
        context.start_probe(stage)
    with pytest.raises(UsageError, match=r"layer\.99\.hidden"):
        context.start_probe("layer.99.hidden")
    context.start_probe("logits")
    context.prefill_tokens(IDS)
    with pytest.raises(BadInputError):
        context.write_probe(tmp_path / "none" / "dump.gguf")


# ---------------------------------------------------------------------------------------------------------- sampler


def test_sampler(engine: Engine, greedy: Sampler) -> None:
    logits = np.array([0.0, 3.0, 2.9, -1.0], np.float32)
    assert greedy.sample(logits) == 1
    np.testing.assert_array_equal(greedy.probs(logits), [0, 1, 0, 0])
    with engine.create_sampler(SamplerParams(repetition_penalty=2.0)) as penalised:
        penalised.accept(1)
        assert penalised.sample(logits) == 2
        penalised.reset()
        assert penalised.sample(logits) == 1
    with pytest.raises(UsageError, match="logit 2 of 3"):
        greedy.sample([0.0, 1.0, np.nan])
    with pytest.raises(UsageError):
        engine.create_sampler(SamplerParams(temperature=-1.0))
    with pytest.raises(UsageError, match="seed"):
        engine.create_sampler(SamplerParams(seed=1 << 64))


# ------------------------------------------------------------------------------------------------------- generation


def test_generate(context: Context, greedy: Sampler) -> None:
    pieces: list[str] = []
    one = context.generate(IDS, greedy, max_tokens=20, on_text=pieces.append)
    assert one.text == "".join(pieces)
    assert one.n_prompt == len(IDS)
    assert len(one.tokens) == one.n_generated <= 20
    assert one.finish in (Finish.LENGTH, Finish.EOS)
    assert one.prefill_ms > 0
    again = context.generate(IDS, greedy, max_tokens=20)
    assert (again.text, again.tokens) == (one.text, one.tokens)


def test_generate_as_step_by_step(context: Context, greedy: Sampler) -> None:
    generated = context.generate(IDS, greedy, max_tokens=10).tokens
    context.reset()
    _, logits = context.prefill_tokens(IDS)
    assert logits is not None
    row, tokens = logits[0], list[int]()
    for _ in generated:
        tokens.append(int(row.argmax()))
        row, _ = context.decode_token(tokens[-1])
    assert tuple(tokens) == generated


def test_generate_in_another_context(model: Model, context: Context, greedy: Sampler) -> None:
    alone = context.generate(IDS, greedy, max_tokens=10)
    with model.open_context(PARAMS) as other:
        moved = context.generate(IDS, greedy, max_tokens=10, decode=other)
    assert moved.tokens == alone.tokens
    assert moved.handover_bytes > 0
    assert alone.handover_bytes == 0


def test_stop_strings(context: Context, greedy: Sampler) -> None:
    whole = context.generate(IDS, greedy, max_tokens=30).text
    middle = whole[len(whole) // 2 : len(whole) // 2 + 2]
    stopped = context.generate(IDS, greedy, max_tokens=30, stop=[middle])
    assert stopped.finish is Finish.STOP
    assert stopped.text == whole[: whole.index(middle)]


def test_the_context_ends_an_answer(model: Model, greedy: Sampler) -> None:
    with model.open_context(ContextParams(n_ctx=12, n_batch=12, n_threads=1)) as small:
        assert small.generate(IDS, greedy, max_tokens=1 << 30).finish is Finish.CONTEXT
        with pytest.raises(ContextFullError):
            small.generate([1] * 13, greedy, max_tokens=1)


def test_a_callback_can_end_it(context: Context, greedy: Sampler) -> None:
    pieces: list[str] = []

    def second_is_enough(text: str) -> bool:
        pieces.append(text)
        return len(pieces) < 2

    with pytest.raises(Cancelled):
        context.generate(IDS, greedy, max_tokens=50, on_text=second_is_enough)
    assert len(pieces) == 2

    def fail(_text: str) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        context.generate(IDS, greedy, max_tokens=50, on_text=fail)


def test_cancel_from_another_thread(model: Model, greedy: Sampler) -> None:
    started = threading.Event()

    def slow(_text: str) -> None:
        started.set()
        time.sleep(0.02)

    with model.open_context(ContextParams(n_ctx=512, n_threads=1)) as context:

        def stop() -> None:
            started.wait(30)
            context.cancel()

        canceller = threading.Thread(target=stop)
        canceller.start()
        with pytest.raises(Cancelled):
            run_interruptible(lambda: context.generate(IDS, greedy, max_tokens=400, on_text=slow), context.cancel)
        canceller.join()
        assert context.generate(IDS, greedy, max_tokens=3).n_generated <= 3


# ---------------------------------------------------------------------------------------------------------- handles


def test_closed_objects(engine: Engine, tiny: Callable[[str], Path]) -> None:
    model = engine.open_model(tiny("llama-a"))
    context = model.open_context(PARAMS)
    model.close()
    context.prefill_tokens(IDS)  # keeps what it needs
    context.close()
    context.close()
    with pytest.raises(ClosedError, match="context is closed"):
        context.prefill_tokens(IDS)
    with pytest.raises(ClosedError, match="model is closed"):
        model.tokenize("a")
    assert context.n_past == 0


def test_a_second_thread_is_told_that_it_is_busy(context: Context, greedy: Sampler) -> None:
    busy: list[BaseException] = []

    def intrude(_text: str) -> bool:
        try:
            context.decode_token(1)
        except BusyError as error:
            busy.append(error)
        return False

    with pytest.raises(Cancelled):
        context.generate(IDS, greedy, max_tokens=5, on_text=intrude)
    assert len(busy) == 1


def test_a_size_out_of_range_is_told_what_0_means(model: Model) -> None:
    for params in (ContextParams(n_ctx=-1), ContextParams(n_threads=-1)):
        with pytest.raises(UsageError, match=r"it must be 1 to \d+, or 0 for the default"):
            model.open_context(params)


def test_numbers_that_do_not_fit_are_refused_not_cut(engine: Engine, tiny: Callable[..., Path]) -> None:
    with engine.open_model(tiny("llama-a")) as model:
        for params in (ContextParams(n_ctx=1 << 40), ContextParams(n_batch=1.7)):  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="whole number"):
                model.open_context(params)
        with pytest.raises(UsageError, match="top_k"):
            engine.create_sampler(SamplerParams(top_k=2**32 + 1))
        with model.open_context(ContextParams(n_ctx=16)) as context, engine.create_sampler() as sampler:
            with pytest.raises(UsageError, match="token"):
                context.decode_token(2**32 + 1)
            with pytest.raises(UsageError, match="token"):
                sampler.accept(2**32 + 3)
            assert context.n_past == 0


# Of an engine, a model, a context and a sampler.
MISUSE: dict[str, Callable[[Any, Any, Any, Any], object]] = {
    "open a number": lambda e, m, c, s: e.open_model(5),
    "check nothing": lambda e, m, c, s: e.check_model(""),
    "params of another kind": lambda e, m, c, s: m.open_context(ModelParams()),
    "params as a dict": lambda e, m, c, s: e.create_sampler({"top_k": 1}),
    "a callback that is none": lambda e, m, c, s: e.open_model(m.path, progress=1),
    "a device that is none": lambda e, m, c, s: e.open_model(m.path, ModelParams(5)),  # type: ignore[arg-type]
    "a flag that is none": lambda e, m, c, s: m.open_context(ContextParams(full_swa=2)),  # type: ignore[arg-type]
    "a temperature as text": lambda e, m, c, s: e.create_sampler(SamplerParams("1")),  # type: ignore[arg-type]
    "an infinite temperature": lambda e, m, c, s: e.create_sampler(SamplerParams(1e300)),
    "a fraction of a seed": lambda e, m, c, s: e.create_sampler(SamplerParams(seed=0.5)),  # type: ignore[arg-type]
    "text as bytes": lambda e, m, c, s: m.tokenize(b"a"),
    "detokenize text": lambda e, m, c, s: m.detokenize("12"),
    "one message": lambda e, m, c, s: m.apply_chat_template(Message("user", "a")),
    "messages as pairs": lambda e, m, c, s: m.apply_chat_template([("user", "a")]),
    "a message without text": lambda e, m, c, s: m.apply_chat_template([Message("user", None)]),  # type: ignore[arg-type]
    "embed floats": lambda e, m, c, s: m.embed_tokens([1.0]),
    "prefill truths": lambda e, m, c, s: c.prefill_tokens([True]),
    "ragged rows": lambda e, m, c, s: c.prefill_embeds([[1.0], [1.0, 2.0]]),
    "complex rows": lambda e, m, c, s: c.prefill_embeds(np.ones((1, c.n_embd), complex)),
    "infinite rows": lambda e, m, c, s: c.prefill_embeds(np.full((1, c.n_embd), 1e300)),
    "no rows": lambda e, m, c, s: c.prefill_embeds(np.ones((0, c.n_embd))),
    "more results than rows": lambda e, m, c, s: c.prefill_tokens([1], rows=range(9)),
    "decode a truth": lambda e, m, c, s: c.decode_token(True),
    "decode text": lambda e, m, c, s: c.decode_embed("a" * c.n_embd),
    "load nothing": lambda e, m, c, s: c.load_state(None),
    "hand over to nothing": lambda e, m, c, s: c.hand_over(None),
    "hand over to a model": lambda e, m, c, s: c.hand_over(m),
    "probe a list": lambda e, m, c, s: c.start_probe(["all"]),
    "write to nothing": lambda e, m, c, s: c.write_probe(None),
    "no sampler": lambda e, m, c, s: c.generate([1], None, max_tokens=1),
    "decode in a model": lambda e, m, c, s: c.generate([1], s, max_tokens=1, decode=m),
    "a fraction of a token": lambda e, m, c, s: c.generate([1], s, max_tokens=1.5),
    "stops as one text": lambda e, m, c, s: c.generate([1], s, max_tokens=1, stop="ab"),
    "no stops": lambda e, m, c, s: c.generate([1], s, max_tokens=1, stop=None),
    "a text callback that is none": lambda e, m, c, s: c.generate([1], s, max_tokens=1, on_text=5),
    "sample text": lambda e, m, c, s: s.sample("abc"),
    "accept a fraction": lambda e, m, c, s: s.accept(1.5),
    "probabilities of nothing": lambda e, m, c, s: s.probs([]),
}  # fmt: skip


@pytest.mark.parametrize("what", MISUSE)
def test_misuse_is_a_usage_error(engine: Engine, model: Model, context: Context, greedy: Sampler, what: str) -> None:
    with pytest.raises(UsageError):
        MISUSE[what](engine, model, context, greedy)
    assert context.n_past == 0
    assert greedy.sample([0.0, 1.0]) == 1


def test_state_from_anything_like_bytes(context: Context) -> None:
    context.prefill_tokens(IDS)
    blob = context.save_state()
    for view in (bytearray(blob), memoryview(blob), np.frombuffer(blob, np.uint8)):
        context.reset()
        context.load_state(view)  # type: ignore[arg-type]
        assert context.n_past == len(IDS)


def test_closed_objects_are_refused_wherever_they_come(engine: Engine, model: Model, context: Context) -> None:
    other, sampler = model.open_context(PARAMS), engine.create_sampler()
    other.close()
    sampler.close()
    with pytest.raises(ClosedError, match="context is closed"), other:
        pass
    with pytest.raises(ClosedError, match="context is closed"):
        context.hand_over(other)
    with pytest.raises(ClosedError, match="context is closed"):
        other.hand_over(context)
    with pytest.raises(ClosedError, match="sampler is closed"):
        context.generate([1], sampler, max_tokens=1)
    with engine.create_sampler() as open_sampler, pytest.raises(ClosedError, match="context is closed"):
        context.generate([1], open_sampler, max_tokens=1, decode=other)
    second = Engine()
    second.close()
    with pytest.raises(ClosedError, match="engine is closed"):
        second.open_model(model.path)


@pytest.mark.parametrize("dual", [False, True])
def test_closing_a_context_ends_its_call_and_says_so(model: Model, greedy: Sampler, dual: bool) -> None:
    first = model.open_context(PARAMS)
    second = model.open_context(PARAMS) if dual else first
    closers: list[threading.Thread] = []

    def close(_text: str) -> None:
        if not closers:
            closers.append(threading.Thread(target=second.close))
            closers[0].start()
            while not second._closed:
                time.sleep(0.001)
        time.sleep(0.02)

    with first, pytest.raises(Cancelled, match="context was closed while a call was running on it"):
        first.generate(IDS, greedy, max_tokens=100, decode=second if dual else None, on_text=close)
    closers[0].join(30)
    assert not closers[0].is_alive()
