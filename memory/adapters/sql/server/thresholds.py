"""Where a store on a database server goes on in another step, whatever the dialect."""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.sql.thresholds import SqlThresholds


@dataclass(frozen=True, slots=True)
class ServerThresholds(SqlThresholds):
    """What is answered does not depend on them, and any store reads what one with
    others stored: tests make them tiny. Each is at least 1.
    """

    partitions_known: int = 100_000
    """Partitions remembered before all are forgotten and looked up anew."""
    values_written_out: int = 512
    """Values of a list that are bound one by one. Of more, servers take no statement
    with so many of them: they are bound as one.
    """
    writes_shared: int = 64
    """New records of different callers that go as one call where they wait at the same
    time.
    """
