"""Cursors of browsing: the time, sequence and id of the last entry that was shown."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b

from memory.domain.errors import InvalidInput
from memory.policies.entry_query import EntryQuery
from memory.ports.query import Order, decode_cursor, encode_cursor

_HELD = (Order("moment"), Order("sequence"), Order("seal"))
"""The values of a cursor besides the id."""


def cursor_behind(asked: EntryQuery, moment: datetime, sequence: int, entry_id: str) -> str:
    """Return the cursor after this entry. It fits the same query, with any limit."""
    question = (
        asked.tenant,
        [scope.text for scope in asked.scopes],
        (asked.tags, asked.any_tags, asked.types, asked.filter),
        (asked.since, asked.before, asked.as_of, asked.known_at),
        (asked.along, asked.updated_before, asked.conversation, asked.include_retired),
        asked.order,
    )
    seal = blake2b(repr((question, moment, sequence, entry_id)).encode(), digest_size=8).hexdigest()
    return encode_cursor((moment, sequence, seal), entry_id)


def place_of(cursor: str, asked: EntryQuery) -> tuple[datetime, int, str]:
    """Return the time, the sequence and the id of the entry that a cursor follows.

    Raises:
        InvalidInput: If the cursor is damaged or belongs to another query.
    """
    position = decode_cursor(cursor, _HELD)
    moment, sequence, _ = position.values
    if (
        isinstance(moment, datetime)
        and isinstance(sequence, int)
        and cursor_behind(asked, moment, sequence, position.id) == cursor
    ):
        return moment, sequence, position.id
    raise InvalidInput(
        "cursor",
        "is damaged, or belongs to another query. Keep scope, filters and order the same for all pages",
    )
