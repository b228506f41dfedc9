"""Where a store goes on in another step, whatever the dialect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlThresholds:
    """What is answered does not depend on them, and any store reads what one with
    others stored: tests make them tiny. Each is at least 1.
    """

    statements_kept: int = 512
    """Statements kept a collection. There are some dozens of shapes, unless a caller
    lists hundreds of values.
    """
    limits_written_out: int = 1_002
    """The largest limit of a page that is part of the statement."""
    partitions_forgotten: int = 256
    """Partitions forgotten in one transaction, which keeps writers out of them for as
    long as it lasts.
    """
