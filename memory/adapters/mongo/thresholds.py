"""Batch sizes of the adapter.

Results do not depend on them, and stores with different ones can share data. Tests make
all of them tiny. Each is at least 1, unless its text allows 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    inserted_at_once: int = 125
    """Documents per insert. The next ones are encoded while the server stores these."""
    answered_at_once: int = 1_000
    """Documents per server message of a page without limit.

    A page with a limit is one message.
    """
    counted_at_once: int = 100_000
    """Documents, or keys, per server message of a lexical search."""
    deleted_at_once: int = 500
    deleted_bytes_at_once: int = 16 * 2**20
    """Documents deleted at once, and their approximate bytes."""
    audited_at_once: int = 500
    """Documents per server message of an audit."""
    partitions_at_once: int = 200
    """Partitions that are checked together for being idle."""
    partitions_known: int = 10_000
    """Partitions whose generation is cached."""
    turns: int = 1_024
    """Number of locks. Partitions that share one sometimes wait without need."""


THRESHOLDS = Thresholds()
