"""Limits at which the adapter for MySQL and MariaDB starts another step."""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.sql.server.thresholds import ServerThresholds


@dataclass(frozen=True, slots=True)
class Thresholds(ServerThresholds):
    """Step sizes, each at least 1. Tests make them tiny.

    No answer depends on them. Stores with different thresholds read each other's data.
    """

    listed: int = 512
    """Values in one list; a statement with more runs several times."""
    rows_at_once: int = 64
    """Rows stored by one statement.

    The adapter makes the next ones while the server works on these.
    """
    numbers_at_once: int = 1_000
    """Record numbers that the adapter reserves in the database at once.

    So it knows the number of a row before it stores the row.
    """
    ranked_at_once: int = 4_096
    """Rows that a search reads at once, from the best down."""
    audited_at_once: int = 250
    """Rows that one step of an audit checks."""

    segment: int = 512
    """The most records whose words are indexed together."""
    postings: int = 2_048
    """The most postings in one row of words.

    A bucket with more, as from long texts, has several rows.
    """
    word_rows_at_once: int = 512
    """Rows of words stored by one statement."""
    words_told: int = 2_048
    """The most words for which a record's buckets are computed from its words.

    A record with more words is in nearly every bucket anyway.
    """

    waiting_taken_up: int = 64
    """The number of single records of one process that are indexed together."""
    waiting_read: int = 512
    """The most unindexed records that a search reads; more are indexed first."""
    waiting_rounds: int = 16
    """How often a search indexes waiting records before it reads all of them itself."""
    waiting_characters: int = 4_096
    """The longest record, in characters, that may wait to be indexed.

    Every search would split the texts of a waiting record again. Indexing many long
    records at once would also take long.
    """


THRESHOLDS = Thresholds()
