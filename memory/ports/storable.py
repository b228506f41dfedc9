"""What a database cannot hold as it is, refused alike by every adapter: integers beyond 64 bits, numbers that are not finite, half a character."""

from __future__ import annotations

HALF_A_CHARACTER = "record: text holds half of a surrogate pair, which is no character"


class Unstorable(ValueError):
    """A value that the store cannot hold; the message names it and the limit. A write with it is rejected, and its neighbours are not."""


def encode_integer(name: str, value: int) -> int:
    """An integer of 64 bits. Raises `Unstorable`."""
    if not -(2**63) <= value < 2**63:
        raise Unstorable(f"{name}: an integer has at most 64 bits")
    return int(value)


def encode_real(name: str, value: float) -> float:
    """A finite real number of 64 bits. Raises `Unstorable`."""
    try:
        real = float(value)
    except OverflowError:
        real = float("inf")
    if real - real != 0:
        raise Unstorable(f"{name}: a real number must be finite")
    return real
