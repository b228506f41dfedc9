"""Statements about several values: few different lengths, so that few statements are
prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def pad_to_power_of_two(values: Sequence[T]) -> list[T]:
    """The values, the first repeated, as many as the next power of two says."""
    wide = 1 << (len(values) - 1).bit_length()
    return [*values, *[values[0]] * (wide - len(values))]


def in_list(count: int) -> str:
    return f"({', '.join('?' * count)})"


def portions(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """The values in portions of at most so many."""
    for start in range(0, len(values), most):
        yield values[start : start + most]


def packets(
    rows: Sequence[T], most: int, room: int, largest: int, *, fill: bool = False
) -> Iterator[Sequence[T]]:
    """The rows in portions, each a power of two, at most `most` and, if the largest
    takes so many bytes, within the room of one statement.

    With `fill` the last portions are one: a row repeated does no harm.
    """
    fit = 1 << max(1, min(most, room // largest)).bit_length() - 1
    if not fill:
        yield from powers(rows, fit)
        return
    for some in portions(rows, fit):
        yield pad_to_power_of_two(some)


def powers(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """The values in portions of a power of two each, at most `most`, in order."""
    start = 0
    while start < len(values):
        size = min(most, 1 << (len(values) - start).bit_length() - 1)
        yield values[start : start + size]
        start += size
