"""Where the adapter goes on in another step. What is answered does not depend on it,
and any store reads what one with others stored: tests make all of it tiny. Each is at
least 1, unless it says that 0 is something.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    inserted_at_once: int = 125
    """Documents sent at once. The next ones are made while the server works on these."""
    answered_at_once: int = 1_000
    """Documents of a page that has no end in one message of the server's; one that has
    is in one.
    """
    counted_at_once: int = 100_000
    """Documents of which a search needs the counts, or the key, in one message."""
    deleted_at_once: int = 500
    deleted_bytes_at_once: int = 16 * 2**20
    """Documents deleted at once, and about how many bytes of them."""
    audited_at_once: int = 500
    """Documents in one message to an audit."""
    partitions_at_once: int = 200
    """Partitions looked at together for whether they are idle."""
    partitions_known: int = 10_000
    """Partitions whose generation is remembered."""
    turns: int = 1_024
    """So many turns there are. Partitions that share one wait for each other where they
    need not.
    """


THRESHOLDS = Thresholds()
