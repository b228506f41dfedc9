"""The sizes at which a store on a database server starts another step."""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.sql.thresholds import SqlThresholds


@dataclass(frozen=True, slots=True)
class ServerThresholds(SqlThresholds):
    """Sizes that tests make tiny; each is at least 1.

    Answers do not depend on them, and any store reads data that a store with other
    thresholds wrote.
    """

    partitions_known: int = 100_000
    """The number of partitions remembered before all are looked up anew."""
    values_written_out: int = 512
    """The number of values of a list that are bound one by one.

    Servers take no statement with more values, so a longer list is bound as one value.
    """
    writes_shared: int = 64
    """The number of waiting new records that go as one call, of different callers."""
