"""Ranges of places in a log. A window of ten thousand messages is a few numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Places:
    """Ascending places, as ranges of first and last. No two ranges touch."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, places: Iterable[int]) -> Places:
        ranges: list[tuple[int, int]] = []
        for place in sorted(set(places)):
            if ranges and ranges[-1][1] == place - 1:
                ranges[-1] = (ranges[-1][0], place)
            else:
                ranges.append((place, place))
        return cls(tuple(ranges))

    @classmethod
    def from_json(cls, said: Sequence[Sequence[int]]) -> Places:
        """Return the places from the result of `to_json`."""
        return cls(tuple([(int(first), int(last)) for first, last in said]))

    def to_json(self) -> list[list[int]]:
        return [[first, last] for first, last in self.ranges]

    def __iter__(self) -> Iterator[int]:
        return (place for first, last in self.ranges for place in range(first, last + 1))

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and any(first <= place <= last for first, last in self.ranges)

    @property
    def last(self) -> int:
        return self.ranges[-1][1] if self.ranges else 0

    def with_one(self, place: int) -> Places:
        if place == self.last + 1 and self.ranges:
            return Places((*self.ranges[:-1], (self.ranges[-1][0], place)))
        if place > self.last:
            return Places((*self.ranges, (place, place)))
        return self if place in self else Places.of((*self, place))

    def with_all(self, others: Places) -> Places:
        """Return these places and the others."""
        return Places.of((*self, *others)) if others.ranges else self

    def without(self, others: Places) -> Places:
        """Return these places without the others."""
        left = list(self.ranges)
        for first, last in others.ranges:
            left = [
                part
                for low, high in left
                for part in ((low, min(high, first - 1)), (max(low, last + 1), high))
                if part[0] <= part[1]
            ]
        return Places(tuple(left))

    def between(self, first: int, last: int) -> Places:
        """Return the places from the first to the last, both included."""
        cut = ((max(low, first), min(high, last)) for low, high in self.ranges)
        return Places(tuple([(low, high) for low, high in cut if low <= high]))

    def both(self, others: Places) -> Places:
        """Return the places that are in both."""
        return self.without(self.without(others))

    def newest(self, most: int) -> Places:
        """Return the last `most` places."""
        left, ranges = most, list[tuple[int, int]]()
        for first, last in reversed(self.ranges):
            if left <= 0:
                break
            ranges.insert(0, (max(first, last - left + 1), last))
            left -= last - first + 1
        return Places(tuple(ranges))


NOWHERE = Places()
