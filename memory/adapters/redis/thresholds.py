"""Batch sizes of the adapter.

Results do not depend on them, and stores with different ones can share data. Tests make
all of them tiny. Each is at least 1, unless its text allows 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    page: int = 500
    """Most records that one step of a script reads from one index."""
    beyond: int = 64
    """Records beyond its limit that an unordered query collects before it sorts.

    If the limit is larger, the limit counts instead.
    """
    least_in_order: int = 8
    least_in_portions: int = 16
    """Fewest records that the first read takes from each of several indexes."""
    indexes_at_once: int = 64
    """Indexes that one script call reads if the order does not matter."""
    answer_bytes: int = 4 * 2**20
    """Approximate bytes of values in the answer of one script call.

    Each index returns at least one value.
    """
    keys_at_once: int = 1_000
    """Keys that the server examines per step of a full scan."""
    audited_at_once: int = 100
    """Records that one script call compares with their indexes."""
    members_at_once: int = 500
    """Index members that one script step compares with the stored records."""
    partitions_at_once: int = 100
    """Partitions of a bucket that one script step examines."""
    changes_told: int = 250
    """Least number of a partition's last changes that the server can report.

    A process that lacks more of them reads the partition again.
    """
    forgotten_at_once: int = 200
    """Partitions that one script call forgets."""


THRESHOLDS = Thresholds()
