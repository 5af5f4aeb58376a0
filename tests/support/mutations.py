"""Mutates bytes, as a faulty client or network does."""

from __future__ import annotations

import random


def damaged(rng: random.Random, body: bytes) -> bytes:
    """The bytes with one mutation: truncated, extended, partly replaced, or with a wrong length."""
    data = bytearray(body or b"\0")
    match rng.randrange(4):
        case 0:
            del data[rng.randrange(len(data)) :]
        case 1:
            data += rng.randbytes(rng.randrange(1, 9))
        case 2:
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        case 3:
            start = rng.randrange(len(data))
            data[start : start + 8] = rng.choice((b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\xff" * 8))
    return bytes(data)
