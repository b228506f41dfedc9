"""The sizes at which a store of any dialect starts another step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlThresholds:
    """Sizes that tests make tiny; each is at least 1.

    Answers do not depend on them, and any store reads data that a store with other
    thresholds wrote.
    """

    statements_kept: int = 512
    """The number of statements cached per collection.

    There are some dozens of shapes, unless a caller lists hundreds of values.
    """
    limits_written_out: int = 1_002
    """The largest limit of a page that is part of the statement."""
    partitions_forgotten: int = 256
    """The number of partitions forgotten in one transaction.

    The transaction keeps writers out of them as long as it lasts.
    """
