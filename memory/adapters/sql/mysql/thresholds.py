"""Where the adapter for MySQL and MariaDB goes on in another step."""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.sql.server.thresholds import ServerThresholds


@dataclass(frozen=True, slots=True)
class Thresholds(ServerThresholds):
    """What is answered does not depend on them, and any store reads what one with
    others stored: tests make them tiny. Each is at least 1.
    """

    listed: int = 512
    """Values in one list: of more, a statement is run several times."""
    rows_at_once: int = 64
    """Rows stored by one statement. The next ones are made while the server works on
    these.
    """
    numbers_at_once: int = 1_000
    """Numbers of records taken from the database, so that a row's number is known
    before it is stored.
    """
    ranked_at_once: int = 4_096
    """Rows of a search that are read at once, from the best down."""
    audited_at_once: int = 250
    """Rows that an audit looks through at once."""

    segment: int = 512
    """Records whose words are indexed together at most."""
    postings: int = 2_048
    """In one row of words: a bucket that holds more, which long texts make, has several
    rows.
    """
    word_rows_at_once: int = 512
    """Rows of words stored by one statement."""
    words_told: int = 2_048
    """A record of more words is in nearly every bucket: nothing is gained by asking its
    texts which ones these are.
    """

    waiting_taken_up: int = 64
    """So many single records of one process are taken up together."""
    waiting_read: int = 512
    """A search that finds more records waiting has them taken up first."""
    waiting_rounds: int = 16
    """How often a search has waiting records taken up before it reads them all itself."""
    waiting_characters: int = 4_096
    """Of a record that may wait: every search would cut the texts of a longer one
    again, and whoever takes up many would be long at it.
    """


THRESHOLDS = Thresholds()
