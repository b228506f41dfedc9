"""What PostgreSQL's columns hold: text without NUL, and what is made of a record's
words for its full-text index.

PostgreSQL refuses NUL in text. It is written as two characters, which keeps equality,
order and ranges by code point as they are and can be undone.
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
"""A tsvector holds less than 1 MiB of lexemes and positions."""


def escape(text: str) -> str:
    return text.translate(_ESCAPED) if "\x00" in text or "\x01" in text else text


def unescape(text: str) -> str:
    return _UNESCAPE.sub(lambda found: _PLAIN[found[1]], text) if "\x01" in text else text


def array(items: Sequence[str]) -> str:
    """A text[] as PostgreSQL reads it: arrays of arrays cannot be taken apart row by
    row.
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
    """What a record's packed words leave in its row: how many there are, the counts as
    a JSON object, and a tsvector as text.

    Each lexeme carries the number of its partition, so that every posting list is one
    partition's own and a small scope is found at once in a large table. It stands there
    without a position, and is counted beside (no limit of 255); of the distinct words
    beyond 1 MiB the first are indexed.
    """
    counts, prefix = lexical.packed_counts(words), _prefix(partition)
    lexemes = [prefix + _plain(token) for token in counts]
    if sum(map(len, lexemes)) + 16 * len(lexemes) > _MOST_BYTES:
        lexemes = _truncate(lexemes)
    return lexical.length(words), json_of(counts), " ".join(lexemes)


def lexeme(partition: int, stem: str) -> str:
    return f"{_prefix(partition)}{_plain(lexical.token(stem))}"


def _prefix(partition: int) -> str:
    """What tells a partition's lexemes from others': the end of its number. Where two
    share that, their rows are told apart by the whole.
    """
    return f"p{partition % 2**31}"


def _plain(token: str) -> str:
    """A token in ASCII letters and digits, which no server's analysis splits and is no
    operator of `websearch_to_tsquery`.
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
