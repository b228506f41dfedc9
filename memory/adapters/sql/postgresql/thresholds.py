"""Where the adapter for PostgreSQL goes on in another step."""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.sql.server.thresholds import ServerThresholds


@dataclass(frozen=True, slots=True)
class Thresholds(ServerThresholds):
    """What is answered does not depend on them, and any store reads what one with
    others stored: tests make them tiny. Each is at least 1.
    """

    rows_at_once: int = 84
    """Rows sent by one statement. The next ones are made ready while the server works
    on these.
    """
    rows_at_ends: int = 28
    """Of the first and the last statement: one side waits then."""
    bytes_at_once: int = 512 * 2**10
    """Rows of so many bytes are sent without waiting for more."""
    rows_in_one: int = 128
    """Up to so many writes, whatever collections and conditions they have, are stored
    by one statement without a look first.
    """
    deleted_at_once: int = 500
    """Rows read, and replaced by tombstones, by one statement."""
    embedded_at_once: int = 200
    """Rows without an embedding that are given theirs at once."""
    audited_at_once: int = 500
    """Rows that an audit looks through at once."""
    lexemes_asked: int = 16_384
    """Beyond so many pairs of partition and word the index is not asked: every record's
    words are gone through.
    """


THRESHOLDS = Thresholds()
