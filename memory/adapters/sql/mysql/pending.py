"""Records whose words are still to come into the table of words: searches read them by themselves, and some at a time they are taken up.

A record's words are some ten rows: together with the record they would need a transaction of four round trips. Left for later, sixty records' words
are one segment and two statements.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.rows import shown
from memory.adapters.sql.mysql.shelf import MyShelf
from memory.adapters.sql.mysql.words import Indexed

Counts = Mapping[str, int]


async def take_up(connection: Connection, shelf: MyShelf, segment: int) -> int:
    """Index the words of some of the records that wait for it and that nobody else has under way, as a segment of this number; how many there were.

    Within a transaction.
    """
    most = shelf.thresholds.segment
    rows = await connection.fetch(f"{shelf.pending} AND partition_no IS NOT NULL ORDER BY number LIMIT {most} FOR UPDATE SKIP LOCKED")
    if shelf.words is not None:
        records = [Indexed(row[0], row[1], row[3], counts_of(shelf, row[4:])) for row in rows]
        await shelf.words.add(connection.send, segment, records)
    await shelf.say_indexed(connection, [row[0] for row in rows], segment)
    return len(rows)


def counts_of(shelf: MyShelf, texts: tuple[bytes | None, ...]) -> Counts:
    """The packed counts of each word of the text parts."""
    return shelf.layout.parts.index([None if text is None else shown(text) for text in texts])[1]
