"""Damaged GGUF files, made of sound ones by seeded mutations, and what the engine's command line makes of each.

A file is taken apart into keys, tensors and data, changed in one to three places, and put together again so that as
much as possible of it still agrees: a reader that only looks at structure accepts most of these. Bytes are flipped and
files cut off too. `python -m tests.gguf_mutants MODEL.gguf ... --cli PATH/syrinx --count 1000 --keep DIR`
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

import gguf

STRING, ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_FLOATS = (6, 12)
_ALIGNMENT = 32
_BLOCK = re.compile(rb"blk\.\d+\.")

Scalar = Union[int, float, bytes]  # noqa: UP007
Value = Union[int, float, bytes, list[Scalar]]  # noqa: UP007


@dataclass
class Key:
    """One value of the metadata; kind is the format's number of its type, or of its elements for a list."""

    name: bytes
    kind: int
    value: Value

    def to_bytes(self) -> bytes:
        head = struct.pack("<Q", len(self.name)) + self.name
        if isinstance(self.value, list):
            head += struct.pack("<IIQ", ARRAY, self.kind, len(self.value))
            return head + b"".join(_pack(self.kind, element) for element in self.value)
        return head + struct.pack("<I", self.kind) + _pack(self.kind, self.value)


@dataclass
class Tensor:
    """shape in the file's order (fastest first); offset None: wherever the layout puts it."""

    name: bytes
    shape: list[int]
    kind: int
    data: bytes
    offset: int | None = None

    def layout_bytes(self) -> int:
        """The bytes that shape and type take; 0 where they make no sense."""
        block = gguf.GGML_QUANT_SIZES.get(self.kind)
        if block is None or any(size <= 0 for size in self.shape):
            return 0
        return int(math.prod(self.shape) // block[0] * block[1])


@dataclass
class Image:
    """A GGUF file in pieces. border: offsets at which a section of the original begins or ends."""

    keys: list[Key]
    tensors: list[Tensor]
    version: int = 3
    borders: list[int] = field(default_factory=list)

    def to_bytes(self, most: int = 1 << 24) -> bytes:
        """The file; a tensor whose data do not match its layout is filled up or cut, up to `most` bytes."""
        infos, data = bytearray(), bytearray()
        for tensor in self.tensors:
            offset = len(data) if tensor.offset is None else tensor.offset
            infos += struct.pack("<Q", len(tensor.name)) + tensor.name + struct.pack("<I", len(tensor.shape))
            infos += b"".join(struct.pack("<q", size) for size in tensor.shape)
            infos += struct.pack("<IQ", tensor.kind, offset & (2**64 - 1))
            wanted = min(tensor.layout_bytes(), most)
            filler = tensor.data or b"\0"
            data += (filler * (wanted // len(filler) + 1))[:wanted]
            data += bytes(-len(data) % _ALIGNMENT)
        head = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))
        head += b"".join(key.to_bytes() for key in self.keys) + bytes(infos)
        return head + bytes(-len(head) % _ALIGNMENT) + bytes(data)


def _pack(kind: int, value: Scalar) -> bytes:
    if kind == STRING:
        text = value if isinstance(value, bytes) else str(value).encode()
        return struct.pack("<Q", len(text)) + text
    if kind in _FLOATS:
        return struct.pack("<" + _FORMATS[kind], 0.0 if isinstance(value, bytes) else value)
    size = struct.calcsize(_FORMATS[kind])
    number = len(value) if isinstance(value, bytes) else int(value) if math.isfinite(value) else 0
    masked: int = number & (2 ** (8 * size) - 1)
    return masked.to_bytes(size, "little")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, pattern: str) -> int:
        (value,) = struct.unpack_from("<" + pattern, self.data, self.at)
        self.at += struct.calcsize(pattern)
        return value  # type: ignore[no-any-return]

    def string(self) -> bytes:
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def scalar(self, kind: int) -> Scalar:
        return self.string() if kind == STRING else self.take(_FORMATS[kind])

    def key(self) -> Key:
        name, kind = self.string(), self.take("I")
        if kind != ARRAY:
            return Key(name, kind, self.scalar(kind))
        kind, count = self.take("I"), self.take("Q")
        return Key(name, kind, [self.scalar(kind) for _ in range(count)])


def read_image(path: Path) -> Image:
    """Takes a sound file apart."""
    reader = _Reader(path.read_bytes())
    reader.at = 8
    n_tensors, n_keys = reader.take("Q"), reader.take("Q")
    image = Image([], [], borders=[0, 4, 8, 16, 24])
    for _ in range(n_keys):
        image.keys.append(reader.key())
        image.borders.append(reader.at)
    for _ in range(n_tensors):
        name = reader.string()
        shape = [reader.take("q") for _ in range(reader.take("I"))]
        image.tensors.append(Tensor(name, shape, reader.take("I"), b"", reader.take("Q")))
        image.borders.append(reader.at)
    begin = reader.at + -reader.at % _ALIGNMENT
    for tensor in image.tensors:
        assert tensor.offset is not None
        at = begin + tensor.offset
        tensor.data = reader.data[at : at + tensor.layout_bytes()]
        image.borders += [at, at + len(tensor.data)]
        tensor.offset = None
    return image


# ------------------------------------------------------------------------------------------------------- mutations

_INTEGERS = (0, 1, 2, 3, 7, 255, 256, 511, 512, 513, 65535, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**63, -1, -2)
_REALS = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
_TEXTS = (b"", b"none", b"x", b"\xff\xfe", b"a\0b", b"<unk>", b" ", b"%s%n", b"A" * 5000)
_TOKENIZERS = (b"llama", b"gpt2", b"bert", b"t5", b"rwkv", b"plamo2", b"gemma4", b"none", b"test", b"hybriddna",
               b"whitespace")  # fmt: skip
_SCALING = (b"none", b"linear", b"yarn", b"longrope", b"dynamic")

Mutation = Callable[[Image, random.Random], str]


def _pick_integer(value: int, rng: random.Random) -> int:
    near = (value - 1, value + 1, value * 2, value // 2, value * 16, -value)
    return rng.choice((*near, *_INTEGERS))


def _pick_scalar(kind: int, value: Scalar, rng: random.Random) -> Scalar:
    if kind == STRING:
        return rng.choice(_TEXTS)
    if kind in _FLOATS:
        return rng.choice(_REALS)
    return _pick_integer(int(value) if not isinstance(value, bytes) else 0, rng)


def _pick_key(image: Image, rng: random.Random) -> Key:
    # Keys of the architecture matter most; the vocabulary is long.
    own = [key for key in image.keys if not key.name.startswith((b"tokenizer.", b"general."))]
    return rng.choice(own if own and rng.random() < 0.7 else image.keys)


def _change_value(image: Image, rng: random.Random) -> str:
    key = _pick_key(image, rng)
    if isinstance(key.value, list):
        return _change_element(key, rng)
    key.value = _pick_scalar(key.kind, key.value, rng)
    return f"{key.name!r} = {key.value!r}"


def _change_element(key: Key, rng: random.Random) -> str:
    assert isinstance(key.value, list)
    if not key.value:
        return f"{key.name!r} is empty"
    at = rng.choice((0, len(key.value) - 1, rng.randrange(len(key.value))))
    key.value[at] = rng.choice((_pick_scalar(key.kind, key.value[at], rng), rng.choice(key.value)))
    return f"{key.name!r}[{at}] = {key.value[at]!r}"


def _change_kind(image: Image, rng: random.Random) -> str:
    key = _pick_key(image, rng)
    key.kind = rng.choice([*_FORMATS, STRING])
    return f"{key.name!r} of kind {key.kind}"


def _change_length(image: Image, rng: random.Random) -> str:
    lists = [key for key in image.keys if isinstance(key.value, list)]
    if not lists:
        return _change_value(image, rng)
    key = rng.choice(lists)
    assert isinstance(key.value, list)
    length = rng.choice((0, 1, len(key.value) - 1, len(key.value) // 2, len(key.value) + 1, len(key.value) * 2, 600))
    key.value = (key.value * (length // max(1, len(key.value)) + 1))[: max(0, length)]
    return f"{key.name!r} of {length} elements"


def _make_list(image: Image, rng: random.Random) -> str:
    key = _pick_key(image, rng)
    if isinstance(key.value, list):
        key.value = key.value[0] if key.value else 0
        return f"{key.name!r} of one element"
    layers = [other.value for other in image.keys if other.name.endswith(b".block_count")]
    length = layers[0] if layers and isinstance(layers[0], int) and 0 < layers[0] < 600 else 4
    value = key.value
    key.value = [rng.choice((value, value, _pick_scalar(key.kind, value, rng))) for _ in range(length)]
    return f"{key.name!r} = {key.value!r}"


def _drop_key(image: Image, rng: random.Random) -> str:
    key = _pick_key(image, rng)
    image.keys.remove(key)
    return f"without {key.name!r}"


def _swap_values(image: Image, rng: random.Random) -> str:
    one, other = _pick_key(image, rng), _pick_key(image, rng)
    one.value, other.value, one.kind, other.kind = other.value, one.value, other.kind, one.kind
    return f"{one.name!r} and {other.name!r} swapped"


def _repeat_key(image: Image, rng: random.Random) -> str:
    key = deepcopy(_pick_key(image, rng))
    image.keys.append(key)
    return f"{key.name!r} twice"


def _add_key(image: Image, rng: random.Random) -> str:
    architecture = next((key.value for key in image.keys if key.name == b"general.architecture"), b"")
    suffix, kind = rng.choice(_OPTIONAL_KEYS)
    name = (bytes(architecture) if isinstance(architecture, bytes) else b"") + suffix
    if not suffix.startswith(b"."):
        name = suffix
    image.keys = [key for key in image.keys if key.name != name]
    value: Scalar = rng.choice(_SCALING) if name.endswith(b"scaling.type") else _pick_scalar(kind, 0, rng)
    image.keys.append(Key(name, kind, value))
    return f"{name!r} = {value!r}"


_OPTIONAL_KEYS: tuple[tuple[bytes, int], ...] = (
    *((f".{name}".encode(), 4) for name in (
        "nextn_predict_layers", "expert_count", "expert_used_count", "expert_group_count", "expert_group_used_count",
        "expert_feed_forward_length", "expert_shared_count", "expert_gating_func", "pooling_type", "vocab_size",
        "leading_dense_block_count", "attention.key_length", "attention.value_length", "attention.key_length_swa",
        "attention.value_length_swa", "attention.sliding_window", "attention.sliding_window_pattern",
        "rope.dimension_count", "rope.dimension_count_swa", "rope.scaling.original_context_length",
        "embedding_length_out", "full_attention_interval", "n_deepstack_layers", "ssm.group_count",
        "attention.head_count_kv", "interleave_moe_layer_step", "decoder_block_count", "token_shift_count",
        "embedding_length_per_layer_input", "attention.shared_kv_layers",
    )),
    *((f".{name}".encode(), 6) for name in (
        "attention.layer_norm_epsilon", "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
        "attn_logit_softcapping", "final_logit_softcapping", "rope.freq_base", "rope.scaling.factor",
        "rope.scaling.attn_factor", "rope.freq_base_swa", "logit_scale", "residual_scale", "embedding_scale",
        "rope.scaling.yarn_log_multiplier",
    )),
    *((f".{name}".encode(), 7) for name in ("attention.causal", "use_parallel_residual", "rope.scaling.finetuned")),
    (b".rope.scaling.type", STRING), (b"split.count", 2), (b"general.alignment", 4), (b"tokenizer.ggml.pre", STRING),
)  # fmt: skip


def _change_tokenizer(image: Image, rng: random.Random) -> str:
    name = rng.choice(_TOKENIZERS)
    for key in image.keys:
        if key.name == b"tokenizer.ggml.model":
            key.value = name
    return f"tokenizer {name!r}"


def _change_architecture(image: Image, rng: random.Random) -> str:
    old = next((key.value for key in image.keys if key.name == b"general.architecture"), b"")
    new = rng.choice(list(gguf.MODEL_ARCH_NAMES.values())).encode()
    for key in image.keys:
        if key.name == b"general.architecture":
            key.value = new
        elif isinstance(old, bytes) and key.name.startswith(old + b"."):
            key.name = new + key.name[len(old) :]
    return f"architecture {new!r}"


# A size in every place at once, so that the file still agrees with itself.
def _resize(image: Image, rng: random.Random) -> str:
    sizes = [key for key in image.keys if isinstance(key.value, int) and key.kind == 4 and key.value > 1]
    if not sizes:
        return _change_value(image, rng)
    chosen = rng.choice(sizes)
    old = chosen.value
    assert isinstance(old, int)
    new = max(1, rng.choice((1, 2, 3, old - 1, old + 1, old * 2, old // 2, old * 3)))
    for key in image.keys:
        if key is chosen or (key.value == old and key.kind == 4 and rng.random() < 0.3):
            key.value = new
    for tensor in image.tensors:
        tensor.shape = [new if size == old else size for size in tensor.shape]
    return f"{chosen.name!r} and dimensions {old} -> {new}"


def _change_shape(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    at = rng.randrange(len(tensor.shape)) if tensor.shape else 0
    how = rng.randrange(4)
    if how == 0:
        rng.shuffle(tensor.shape)
    elif how == 1 and tensor.shape:
        tensor.shape[at] = rng.choice((0, -1, 1, tensor.shape[at] + 1, tensor.shape[at] * 2, 2**31, 2**62))
    elif how == 2:
        tensor.shape.append(rng.choice((1, 2)))
    else:
        tensor.shape = [math.prod(tensor.shape)]
    return f"{tensor.name!r} of shape {tensor.shape}"


def _change_type(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    tensor.kind = rng.choice((*gguf.GGML_QUANT_SIZES, 4, 5, 31, 36, 43, 99))
    return f"{tensor.name!r} of type {int(tensor.kind)}"


# Every row fits its blocks, so that the type itself is what decides.
def _change_fitting_type(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    fitting = [kind for kind, (block, _) in gguf.GGML_QUANT_SIZES.items() if tensor.shape[0] % block == 0]
    tensor.kind = rng.choice(fitting)
    return f"{tensor.name!r} of type {int(tensor.kind)}"


def _rename_tensor(image: Image, rng: random.Random) -> str:
    tensor, other = rng.choice(image.tensors), rng.choice(image.tensors)
    old = tensor.name
    tensor.name = rng.choice(
        (other.name, old.replace(b"blk.0", b"blk.7"), old.replace(b".weight", b".bias"), b"x", b"")
    )
    return f"{old!r} called {tensor.name!r}"


def _drop_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    image.tensors.remove(tensor)
    return f"without {tensor.name!r}"


def _move_tensor(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    tensor.offset = rng.choice((0, 1, 32, 2**31, 2**63, 2**64 - 32, rng.randrange(1 << 20) * 32))
    return f"{tensor.name!r} at {tensor.offset}"


def _spoil_data(image: Image, rng: random.Random) -> str:
    tensor = rng.choice(image.tensors)
    pattern = rng.choice((b"\xff", b"\0", b"\x7f", struct.pack("<f", float("nan")), struct.pack("<f", 3e38), b""))
    size = len(tensor.data)
    tensor.data = (pattern * (size // len(pattern) + 1))[:size] if pattern else rng.randbytes(size)
    return f"{tensor.name!r} filled with {pattern!r}"


_MUTATIONS: Sequence[tuple[Mutation, int]] = (
    (_change_value, 30), (_change_length, 6), (_change_kind, 4), (_make_list, 6), (_drop_key, 5), (_swap_values, 4),
    (_repeat_key, 1), (_add_key, 12), (_change_tokenizer, 3), (_change_architecture, 4), (_resize, 20),
    (_change_shape, 6), (_change_type, 4), (_change_fitting_type, 12), (_rename_tensor, 5), (_drop_tensor, 4),
    (_move_tensor, 2), (_spoil_data, 6),
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """what: for a person, how it differs from its origin."""

    what: str
    data: bytes


def mutate(image: Image, seed: int) -> Mutant:
    """One damaged file; the same for the same seed."""
    rng = random.Random(seed)
    changed = deepcopy(image)
    what = []
    mutations, weights = zip(*_MUTATIONS, strict=True)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if changed.tensors and changed.keys:
            what.append(rng.choices(mutations, weights)[0](changed, rng))
    data = bytearray(changed.to_bytes())
    if rng.random() < 0.08:
        where = rng.choice((64, image.borders[len(image.borders) // 3], len(data)))
        for _ in range(rng.choice((1, 2, 8))):
            at = rng.randrange(min(where, len(data)))
            data[at] ^= 1 << rng.randrange(8)
            what.append(f"bit flipped in byte {at}")
    return Mutant("; ".join(what), bytes(data))


def drop_each_tensor(image: Image) -> Iterator[Mutant]:
    """The file without one tensor; of those that every block has, without the first and the last."""
    names = [tensor.name for tensor in image.tensors]
    for name in names:
        alike = [other for other in names if _BLOCK.sub(b"blk.", other) == _BLOCK.sub(b"blk.", name)]
        if name in (alike[0], alike[-1]):
            rest = [tensor for tensor in image.tensors if tensor.name != name]
            yield Mutant(f"without {name!r}", Image(image.keys, rest).to_bytes())


def cut_everywhere(image: Image, data: bytes) -> Iterator[Mutant]:
    """The file cut off at every border of a section, and one byte to each side."""
    for border in sorted({max(0, b + d) for b in image.borders for d in (-1, 0, 1)}):
        if border < len(data):
            yield Mutant(f"cut off at byte {border}", data[:border])


# ------------------------------------------------------------------------------------------------------------ runs

_MEMORY_LIMIT = 4 << 30
_TIME_LIMIT_S = 90.0  # of some milliseconds' work: the machine may be busy
_STATUSES = range(11, 26)  # 10 + a syrinx_status
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "info": (),
    "run": ("--raw", "--prompt", "a", "--max-tokens", "1", "--threads", "2"),
}
COMMANDS = tuple(_OPTIONS)


@dataclass(frozen=True)
class Outcome:
    """fault: what no file may cause; "" if it was opened, or refused as it should be."""

    command: str
    exit_code: int | None
    text: str
    fault: str


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def open_file(cli: Path, path: Path, command: str) -> Outcome:
    """Has `syrinx COMMAND` open a file, in a process with limits on memory and time."""
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    try:
        done = subprocess.run(
            [cli, command, path, *_OPTIONS[command]],
            capture_output=True, timeout=_TIME_LIMIT_S, preexec_fn=_limit, env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(command, None, "", f"no end after {_TIME_LIMIT_S:.0f} s")
    tail = done.stderr.decode(errors="replace")[-400:]
    if done.returncode != 0 and done.returncode not in _STATUSES:
        return Outcome(command, done.returncode, tail, f"exit code {done.returncode}")
    try:
        answer = json.loads(done.stdout)
        text = "" if done.returncode == 0 else str(answer["error"]["text"])
    except (ValueError, KeyError, TypeError) as error:
        return Outcome(command, done.returncode, tail, f"stdout is not the documented JSON: {error!r}")
    return Outcome(command, done.returncode, text, "")


def open_mutant(cli: Path, mutant: Mutant, commands: Sequence[str] = COMMANDS) -> list[Outcome]:
    """Writes a mutant to a temporary file and opens it with each command."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(mutant.data)
        file.flush()
        return [open_file(cli, Path(file.name), command) for command in commands]


def survive(
    cli: Path, mutants: Iterable[Mutant], commands: Sequence[str] = COMMANDS, jobs: int = 2
) -> Iterator[tuple[Mutant, list[Outcome]]]:
    """Opens every mutant, `jobs` at a time, in their order."""
    running: deque[tuple[Mutant, Future[list[Outcome]]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        for mutant in mutants:
            running.append((mutant, pool.submit(open_mutant, cli, mutant, commands)))
            if len(running) > 2 * jobs:  # mutants take memory: make no more than are opened soon
                first, future = running.popleft()
                yield first, future.result()
        for mutant, future in running:
            yield mutant, future.result()


def try_model(model: Path, options: argparse.Namespace) -> int:
    """Opens `options.count` mutants of one file and writes down what happened. Returns the number of faults."""
    image, faults = read_image(model), 0
    results: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    mutants = (mutate(image, options.seed + i) for i in range(options.count))
    for number, (mutant, outcomes) in enumerate(survive(options.cli, mutants), options.seed):
        for outcome in outcomes:
            results[outcome.fault or f"{outcome.command} {outcome.exit_code}"] += 1
            texts[outcome.text[-110:]] += 1
            if outcome.fault:
                faults += 1
                sys.stdout.write(f"{model.name} seed {number}, {outcome.command}: {outcome.fault}\n")
                sys.stdout.write(f"    {mutant.what[:500]}\n    {outcome.text[-300:]!r}\n")
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{model.stem}-{number}.gguf").write_bytes(mutant.data)
    sys.stdout.write(f"{model.name}: {dict(sorted(results.items()))}\n")
    for text, n in texts.most_common(40 if options.texts else 0):
        sys.stdout.write(f"    {n:5} {text}\n")
    sys.stdout.flush()
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL.gguf", help="sound files to damage")
    parser.add_argument("--cli", type=Path, required=True, help="the engine's command line, bin/syrinx")
    parser.add_argument("--count", type=int, default=1000, help="mutants of each model (default: 1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder for mutants that end the process")
    parser.add_argument("--texts", action="store_true", help="show the most frequent refusals")
    options = parser.parse_args()
    return 1 if sum(try_model(model, options) for model in options.models) else 0


if __name__ == "__main__":
    sys.exit(main())
