"""Writes utf8_cases.inc: byte strings, what Python's decoder makes of them, and where their first error lies.

    python3 native/tests/data/make_utf8_cases.py

Python replaces each maximal subpart of an ill-formed sequence by U+FFFD, as the Unicode standard recommends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

# Where the ranges of the standard's table of well-formed sequences begin and end, and their neighbours.
EDGES = bytes.fromhex("00 41 7F 80 8F 90 9F A0 BF C0 C1 C2 DF E0 E1 EC ED EE EF F0 F1 F3 F4 F5 FF")
CHARACTERS = "a\x7f\x80é߿ࠀ한\ud7ff\ue000\uffff𐀀😀\U0010ffff"


def generate_pairs() -> Iterator[bytes]:
    """Every pair of edge bytes, with something sound around it."""
    for first in EDGES:
        for second in EDGES:
            yield bytes([0x41, first, second, 0x80, 0x42])


def generate_cut_characters() -> Iterator[bytes]:
    """Every beginning of every character, alone and before another character."""
    for character in CHARACTERS:
        encoded = character.encode()
        for n in range(1, len(encoded) + 1):
            yield encoded[:n]
            yield encoded[:n] + "é".encode()


def generate_random(count: int) -> Iterator[bytes]:
    """Sound text, edge bytes and noise in random order."""
    rng = random.Random(20)
    for _ in range(count):
        pieces = []
        for _ in range(rng.randint(1, 8)):
            character = rng.choice(CHARACTERS).encode()
            cut = character[rng.randint(0, 1) : rng.randint(1, 4)]
            pieces.append(rng.choice([character, cut, bytes([rng.choice(EDGES)]), rng.randbytes(2)]))
        yield b"".join(pieces)


def find_first_bad(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def main() -> None:
    cases = [*generate_pairs(), *generate_cut_characters(), *generate_random(400)]
    lines = ["// Written by make_utf8_cases.py: {bytes, repaired, where the first error begins or the length}."]
    for data in cases:
        repaired = data.decode("utf-8", errors="replace").encode()
        lines.append(f'{{"{data.hex()}", "{repaired.hex()}", {find_first_bad(data)}}},')
    (Path(__file__).parent / "utf8_cases.inc").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
