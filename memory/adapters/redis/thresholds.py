"""Where the adapter goes on in another step. What is answered does not depend on it,
and any store reads what one with others stored: tests make all of it tiny. Each is at
least 1, unless it says that 0 is something.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    page: int = 500
    """The most records one step of a script reads from one index."""
    beyond: int = 64
    """So many beyond its limit an unordered question keeps until it sorts them, or as
    many as its limit where that is more.
    """
    least_in_order: int = 8
    least_in_portions: int = 16
    """The fewest that are read from each of several indexes at first."""
    indexes_at_once: int = 64
    """Indexes of which one call of a script reads, where the order does not matter."""
    answer_bytes: int = 4 * 2**20
    """About how many bytes of values one call of a script answers with; at least one
    value from each index it reads.
    """
    keys_at_once: int = 1_000
    """Keys that the server looks at in one step where all are gone through."""
    audited_at_once: int = 100
    """Records compared with their indexes in one call of a script."""
    members_at_once: int = 500
    """Members of an index compared with what stands there in one step of a script."""
    partitions_at_once: int = 100
    """Partitions of a bucket looked at in one step of a script."""
    changes_told: int = 250
    """Changes of a partition that are told at least: whoever has seen fewer of the last
    reads it anew.
    """
    forgotten_at_once: int = 200
    """Partitions forgotten in one call of a script."""


THRESHOLDS = Thresholds()
