"""Encodes values for PostgreSQL: text without NUL, and words for the full-text index.

PostgreSQL refuses NUL in text, so it is written as two characters. This can be undone,
and keeps equality, order and ranges by code point.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from asyncpg.pgproto.pgproto import UUID

from memory.adapters.sql.codec import ID, TAG, TypeCodec, TypeTable
from memory.ports import lexical
from memory.ports.collections import FieldType
from memory.ports.rows import json_of

_ESCAPED = str.maketrans({"\x00": "\x01\x01", "\x01": "\x01\x02"})
_UNESCAPE = re.compile("\x01([\x01\x02])")
_PLAIN = {"\x01": "\x00", "\x02": "\x01"}
_MOST_BYTES = 2**20 - 2**16
"""A limit below the 1 MiB of lexemes and positions that a tsvector holds."""


def escape(text: str) -> str:
    return text.translate(_ESCAPED) if "\x00" in text or "\x01" in text else text


def unescape(text: str) -> str:
    return _UNESCAPE.sub(lambda found: _PLAIN[found[1]], text) if "\x01" in text else text


def array(items: Sequence[str]) -> str:
    """Return a text[] in PostgreSQL's text form.

    It is sent as text because SQL cannot split an array of arrays row by row.
    """
    quoted = [item.replace("\\", "\\\\").replace('"', '\\"') for item in items]
    return "{" + ",".join([f'"{item}"' for item in quoted]) + "}"


_TEXT = TypeCodec(escape, unescape)
TYPES: TypeTable = {
    FieldType.TEXT: _TEXT,
    ID: TypeCodec(UUID, str),
    TAG: _TEXT,
    FieldType.TAGS: TypeCodec(lambda tags: list(map(escape, tags)), lambda tags: tuple(map(unescape, tags))),
}


# -- words -----------------------------------------------------------------------------


def index_columns(partition: int, words: bytes) -> tuple[int, str, str]:
    """Return the columns of a record's packed words.

    They are the number of words, the counts as a JSON object, and a tsvector as text.

    Each lexeme has the number of its partition, so that every posting list belongs to
    one partition. So a small scope is found fast in a large table. Lexemes have no
    positions: the counts are in the JSON object, without the limit of 255 positions.
    If the distinct words exceed 1 MiB, only the first ones are indexed.
    """
    counts, prefix = lexical.packed_counts(words), _prefix(partition)
    lexemes = [prefix + _plain(token) for token in counts]
    if sum(map(len, lexemes)) + 16 * len(lexemes) > _MOST_BYTES:
        lexemes = _truncate(lexemes)
    return lexical.length(words), json_of(counts), " ".join(lexemes)


def any_lexeme(partitions: Sequence[int], stem: str) -> str:
    """Return a query for a word in any of these partitions."""
    plain = _plain(lexical.token(stem))
    return "|".join([f"{_prefix(partition)}{plain}" for partition in partitions])


def _prefix(partition: int) -> str:
    """Return the prefix of a partition's lexemes: the end of its number.

    Two partitions may share it; searches then separate rows by the whole number.
    """
    return f"p{partition % 2**31}"


def _plain(token: str) -> str:
    """Return a token in ASCII letters and digits.

    No text analysis splits it, and it is not an operator of a `tsquery`.
    """
    return (
        f"h{token[1:]}"
        if token[0] == "#"
        else f"x{token}"
        if token.isascii()
        else f"y{token.encode('utf-8', 'surrogatepass').hex()}"
    )


def _truncate(lexemes: Sequence[str]) -> list[str]:
    kept: list[str] = []
    room = _MOST_BYTES
    for one in lexemes:
        room -= len(one) + 16
        if room < 0:
            break
        kept.append(one)
    return kept
