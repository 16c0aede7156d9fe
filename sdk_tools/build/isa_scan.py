"""Which instruction-set extensions an arm64 program uses, read from its machine code.

Every arm64 instruction is one little-endian word of 32 bits, and constants lie elsewhere: so masks over the executable
sections find them all. The encodings are those of the Arm Architecture Reference Manual (DDI 0487, chapter C4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# extension -> (mask, value): a word belongs to it if word & mask == value.
_ENCODINGS: dict[str, tuple[tuple[int, int], ...]] = {
    "dotprod": (
        (0x9FE0FC00, 0x0E809400),  # sdot, udot: vectors
        (0x9FC0F400, 0x0F80E000),  # sdot, udot: by element
    ),
    "i8mm": (
        (0xDFE0FC00, 0x4E80A400),  # smmla, ummla
        (0xFFE0FC00, 0x4E80AC00),  # usmmla
        (0xBFE0FC00, 0x0E809C00),  # usdot: vectors
        (0xBFC0F400, 0x0F80F000),  # usdot: by element
        (0xBFC0F400, 0x0F00F000),  # sudot: by element
    ),
    "fp16": (
        (0x9F60C400, 0x0E400400),  # three vectors of half floats
        (0x9F7E0C00, 0x0E780800),  # two vectors of half floats
        (0xBFC0B400, 0x0F001000),  # fmla, fmls: by element
        (0x9FC0F400, 0x0F009000),  # fmul, fmulx: by element
    ),
    "bf16": (
        (0xBFE0FC00, 0x2E40FC00),  # bfdot: vectors
        (0xBFC0F400, 0x0F40F000),  # bfdot: by element
        (0xFFE0FC00, 0x6E40EC00),  # bfmmla
        (0xBFE0FC00, 0x2EC0FC00),  # bfmlalb, bfmlalt: vectors
        (0xBFC0F400, 0x0FC0F000),  # bfmlalb, bfmlalt: by element
    ),
    "sve": ((0x1E000000, 0x04000000),),
    "sme": (
        (0x9E000000, 0x80000000),
        (0xFFFFF0FF, 0xD503407F),  # smstart, smstop
    ),
}
# `cntd x0`, which the unwinders of GCC and LLVM hold by its number, for frames of SVE code alone. No SVE code makes do
# with it, so that to overlook this one word overlooks nothing else.
_UNWINDER = 0x04E0E3E0
EXTENSIONS = tuple(_ENCODINGS)


@dataclass(frozen=True)
class Use:
    """How often an extension is used, and where first: the address and its word."""

    extension: str
    count: int
    address: int
    word: int

    def __str__(self) -> str:
        return f"{self.count} {self.extension} instructions, the first at {self.address:#x} ({self.word:08x})"


def scan_code(code: bytes, address: int) -> dict[str, Use]:
    """The extensions that machine code loaded at `address` uses, by name. Trailing bytes that fill no word are data."""
    words = np.frombuffer(code, dtype="<u4", count=len(code) // 4)
    uses = {}
    for extension, encodings in _ENCODINGS.items():
        hits = np.zeros(words.shape, dtype=bool)
        for mask, value in encodings:
            hits |= (words & np.uint32(mask)) == np.uint32(value)
        hits &= words != np.uint32(_UNWINDER)
        (places,) = np.nonzero(hits)
        if places.size:
            first = int(places[0])
            uses[extension] = Use(extension, int(places.size), address + 4 * first, int(words[first]))
    return uses
