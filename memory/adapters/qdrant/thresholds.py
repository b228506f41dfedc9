"""Batch sizes of the adapter.

Results do not depend on them, and stores with different ones can share data. Tests make
all of them tiny. Each is at least 1, unless its text allows 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits besides the option `EdgeConfig.log_bytes`."""

    read_at_once: int = 500
    """Points per read of all matches.

    This many, beyond twice a page, are kept before the first ones are selected.
    """
    beyond_a_page: int = 8
    """Extra points of a page, besides a quarter of it, for ties and filtering here.

    A search by words uses it, too.
    """
    retrieved_at_once: int = 1_000
    """Points read by id in one request to a server."""
    changed_at_once: int = 100
    changed_bytes_at_once: int = 8 * 2**20
    """Most changes per request to a server, and their approximate bytes.

    A server accepts 32 MiB.
    """
    changed_in_a_turn: int = 8
    """Points that Edge changes before other tasks get a turn.

    Each takes about 0.2 milliseconds, the largest about two.
    """
    audited_at_once: int = 200
    """Points that an audit reads at once."""
    partitions_at_once: int = 200
    """Partitions that one request checks."""
    rewritten_at_once: int = 500
    """Points that a rewrite of a folder copies at once."""


THRESHOLDS = Thresholds()
