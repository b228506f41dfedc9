"""Limits at which the adapter for PostgreSQL starts another step."""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.sql.server.thresholds import ServerThresholds


@dataclass(frozen=True, slots=True)
class Thresholds(ServerThresholds):
    """Step sizes, each at least 1. Tests make them tiny.

    No answer depends on them. Stores with different thresholds read each other's data.
    """

    rows_at_once: int = 84
    """Rows sent by one statement.

    The adapter prepares the next ones while the server works on these.
    """
    rows_at_ends: int = 28
    """Rows of the first and the last statement: one side waits for the other then."""
    bytes_at_once: int = 512 * 2**10
    """The number of bytes at which rows are sent without waiting for more."""
    rows_in_one: int = 128
    """The most writes that one statement stores without reading their rows first.

    They may have any collections and conditions.
    """
    deleted_at_once: int = 500
    """Rows that one statement reads and replaces by tombstones."""
    embedded_at_once: int = 200
    """Rows without an embedding that one statement adds it to."""
    audited_at_once: int = 500
    """Rows that one step of an audit checks."""
    lexemes_asked: int = 16_384
    """The most pairs of partition and word that are looked up in the index.

    With more pairs, a search scans the words of every record.
    """
    lexemes_flushed: int = 256
    """From so many lookups on, the index first takes in its list of single writes.

    Each lookup would read that list.
    """


THRESHOLDS = Thresholds()
