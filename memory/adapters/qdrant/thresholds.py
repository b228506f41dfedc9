"""Where the adapter goes on in another step. What is answered does not depend on it,
and any store reads what one with others stored: tests make all of it tiny. Each is at
least 1, unless it says that 0 is something.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Beside these `EdgeConfig.log_bytes`, which is an option."""

    read_at_once: int = 500
    """Points read at once where all that matches is read, and those kept beyond twice a
    page until the first of them are chosen.
    """
    beyond_a_page: int = 8
    """Points read beside a page, and a quarter of it, for ties at its end and what is
    filtered out here; of a search by words as well.
    """
    retrieved_at_once: int = 1_000
    """Points asked for by their ids in one request to a server."""
    changed_at_once: int = 100
    changed_bytes_at_once: int = 8 * 2**20
    """The most changes of one request to a server, and about the most it carries; a
    server takes 32 MiB.
    """
    changed_in_a_turn: int = 8
    """Points that Edge changes at once; then others have a turn: each takes some two
    tenths of a millisecond, the largest some two.
    """
    audited_at_once: int = 200
    """Points that an audit reads at once."""
    partitions_at_once: int = 200
    """Partitions asked about in one request."""
    rewritten_at_once: int = 500
    """Points that a folder's rewriting takes over at once."""


THRESHOLDS = Thresholds()
