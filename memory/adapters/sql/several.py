"""Statements about several values.

They come in few different lengths, so that few statements are prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def pad_to_power_of_two(values: Sequence[T]) -> list[T]:
    """Repeat the first value until the length is a power of two."""
    wide = 1 << (len(values) - 1).bit_length()
    return [*values, *[values[0]] * (wide - len(values))]


LISTED = "(SELECT value FROM json_each(?))"
"""A list of any number of integers, bound as one JSON text. SQLite only."""


def in_list(count: int) -> str:
    return f"({', '.join('?' * count)})"


def portions(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the values in portions of at most `most`."""
    for start in range(0, len(values), most):
        yield values[start : start + most]


def packets(
    rows: Sequence[T], most: int, room: int, largest: int, *, fill: bool = False
) -> Iterator[Sequence[T]]:
    """Yield the rows in portions of a power of two, at most `most` each.

    A portion fits into the room of one statement even if each row takes `largest`
    bytes. With `fill` the last portions become one: a repeated row does no harm.
    """
    fit = 1 << max(1, min(most, room // largest)).bit_length() - 1
    if not fill:
        yield from powers(rows, fit)
        return
    for some in portions(rows, fit):
        yield pad_to_power_of_two(some)


def powers(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the values in order, in portions of a power of two, at most `most`."""
    start = 0
    while start < len(values):
        size = min(most, 1 << (len(values) - start).bit_length() - 1)
        yield values[start : start + size]
        start += size
