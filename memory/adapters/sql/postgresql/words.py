"""What a record's texts leave in the full-text index: one lexeme a word, labelled with the parts it stands in, and how often it does.

Tokens are those of `memory.adapters.sql.words`. Each carries the number of its partition, so that every posting list is one partition's own and a
small scope is found at once in a large table. A lexeme is no operator of `websearch_to_tsquery`.

PostgreSQL's limits never refuse a text: a word is labelled once a part and its occurrences counted beside the tsvector (no limit of 255), and
of the distinct words beyond 1 MiB the heaviest parts' are indexed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory.adapters.sql.words import token

_MOST_BYTES = 2**20 - 2**16  # a tsvector holds less than 1 MiB of lexemes and positions


def lexeme(partition: int, stem: str) -> str:
    return f"{_prefix(partition)}{token(stem)}"


def _prefix(partition: int) -> str:
    """What tells a partition's lexemes from others': the end of its number. Where two share that, their rows are told apart by the whole."""
    return f"p{partition % 2**31}"


def vector_text(partition: int, labels: Mapping[str, str]) -> str:
    """A tsvector as text."""
    prefix = _prefix(partition)
    lexemes = [f"{prefix}{word}:{label}" for word, label in labels.items()]
    if sum(map(len, lexemes)) + 16 * len(lexemes) > _MOST_BYTES:
        lexemes = _fitting(lexemes)
    return " ".join(lexemes)


def _fitting(lexemes: Sequence[str]) -> list[str]:
    kept: list[str] = []
    room = _MOST_BYTES
    for one in lexemes:
        room -= len(one) + 16
        if room < 0:
            break
        kept.append(one)
    return kept


def counts_text(counts: Mapping[str, int]) -> str:
    """The packed counts as a JSON object."""
    return "{" + ",".join([f'"{word}":{count}' for word, count in counts.items()]) + "}"
