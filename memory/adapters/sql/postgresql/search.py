"""Searches: by words the server finds and counts, and the arithmetic of `memory.ports.text` ranks; by meaning the server ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memory.adapters.sql.postgresql.connection import Connection
from memory.adapters.sql.postgresql.places import PgPlaces
from memory.adapters.sql.postgresql.questions import among, nearest, postings
from memory.adapters.sql.postgresql.rows import ID, TENANT, Row
from memory.adapters.sql.postgresql.shelf import PgShelf
from memory.adapters.sql.postgresql.values import unescape
from memory.adapters.sql.postgresql.words import lexeme
from memory.adapters.sql.scoring import gained, norms
from memory.adapters.sql.words import Parts, token
from memory.ports.nearness import exact_cosines
from memory.ports.pace import paced
from memory.ports.query import Hit, Near, Partitions, Search, Words
from memory.ports.record import Key
from memory.ports.text import query_words, rarity


async def search(connection: Connection, shelf: PgShelf, places: PgPlaces, wanted: Search) -> list[Hit]:
    """The best hits, best first."""
    numbers = await places.numbers(connection, wanted.where)
    if not numbers:
        return []
    asked = numbers if isinstance(wanted.where, Partitions) else ()
    if isinstance(wanted.by, Near):
        return await _by_meaning(connection, shelf, wanted, wanted.by, asked) if shelf.embeds else []
    return await _by_words(connection, shelf, wanted, wanted.by, numbers, asked)


# -- by words ---------------------------------------------------------------------------------------------------------


async def _by_words(connection: Connection, shelf: PgShelf, search: Search, by: Words, numbers: Sequence[int], asked: Sequence[int]) -> list[Hit]:
    stems = query_words(by.text)
    if not stems or not shelf.collection.texts:
        return []
    lexemes = ""
    if len(stems) * len(numbers) <= shelf.thresholds.lexemes_asked:
        lexemes = " or ".join([lexeme(number, stem) for number in numbers for stem in stems])
    question = postings(shelf, search, asked, lexemes, [token(stem) for stem in stems])
    answer = await connection.fetchrow(question.sql, *question.arguments)
    if answer is None or answer[0] is None or answer[4] is None:
        return []
    scores = _scored(_Postings(*answer), shelf.layout.parts, len(stems))
    ranked = sorted(scores, key=lambda score: (-score[1], score[0].id))
    hits: list[Hit] = []
    start, step = 0, search.limit
    while start < len(ranked) and len(hits) < search.limit:  # more than once only where records changed in between
        some = dict(ranked[start : start + step])
        rows = await _rows_of(connection, shelf, search, list(some))
        hits += await _hits(shelf, search, [(row, some[Key(unescape(row[TENANT]), unescape(row[ID]))]) for row in rows])
        start, step = start + step, 4 * step
    hits.sort(key=lambda hit: (-hit.score, hit.head.key.id))
    return hits[: search.limit]


@dataclass(frozen=True, slots=True)
class _Postings:
    """What the server found: of each record its key, its number of words and whether it passes; of each word in a record its counts."""

    tenants: list[str]
    ids: list[str]
    words: list[int]
    passes: list[bool]
    records: list[int]
    stems: list[int]
    packed: list[int]
    asked: tuple[int, int]


def _scored(found: _Postings, parts: Parts, stems: int) -> list[tuple[Key, float]]:
    """BM25F with the statistics of exactly the asked records; those that the filter lets through."""
    documents, total = found.asked
    norm = norms(np.array(found.words, np.float64), total / documents if documents else 0.0)
    records, which = np.array(found.records, np.int64) - 1, np.array(found.stems, np.int64) - 1
    counts = parts.unpacked(np.array(found.packed, np.int64))
    frequencies: npt.NDArray[Any] = np.zeros(len(records))
    for weight, count in zip(parts.weights, counts, strict=True):
        frequencies += weight * count
    scores, held = np.zeros(len(found.ids)), np.zeros(len(found.ids), np.bool_)
    by_stem = np.argsort(which, kind="stable")
    for chosen in np.split(by_stem, np.searchsorted(which[by_stem], np.arange(1, stems))):
        chosen = chosen[frequencies[chosen] > 0]
        at = records[chosen]
        scores[at] += gained(rarity(documents, len(at)), frequencies[chosen], norm[at])
        held[at] = True
    best = np.flatnonzero(held & np.array(found.passes, np.bool_)).tolist()
    return [(Key(unescape(found.tenants[i]), unescape(found.ids[i])), float(scores[i])) for i in best]


async def _rows_of(connection: Connection, shelf: PgShelf, search: Search, keys: Sequence[Key]) -> list[Row]:
    rows: list[Row] = []
    by_tenant: dict[str, list[str]] = {}
    for key in keys:
        by_tenant.setdefault(key.tenant, []).append(key.id)
    for tenant, ids in by_tenant.items():
        question = among(shelf, search, tenant, ids)
        rows += await connection.fetch(question.sql, *question.arguments)
    return rows


# -- by meaning -------------------------------------------------------------------------------------------------------


async def _by_meaning(connection: Connection, shelf: PgShelf, search: Search, by: Near, partitions: Sequence[int]) -> list[Hit]:
    question = nearest(shelf, search, partitions, by.vector)
    rows = await connection.fetch(question.sql, *question.arguments)
    if not rows:
        return []
    cosines = exact_cosines(by.vector, [row["exactly"] for row in rows])  # the extension ranks in single precision
    hits = await _hits(shelf, search, list(zip(rows, cosines, strict=True)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.head.key.id))


async def _hits(shelf: PgShelf, search: Search, scored: Sequence[tuple[Row, float]]) -> list[Hit]:
    """The hits of rows and their scores."""
    heads = shelf.heads(search.select)
    found = [(heads.read(heads.widened(heads.columns, row)), score) async for row, score in paced(scored)]
    return [Hit(head, score) for head, score in found if head is not None]
