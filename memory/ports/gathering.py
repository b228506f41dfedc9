"""Candidates of a store that has no way of its own to bring them in one trip: gathered by its questions and searches, and laid out as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memory.ports import lexical
from memory.ports.candidates import Around, Candidates, Measured, Statistics
from memory.ports.nearness import best, by_nearness
from memory.ports.pace import paced
from memory.ports.query import MAX_LIMIT, VECTOR, WORDS, And, Eq, Filter, Head, Hit, In, Near, Or, Query, Search, Words, all_of
from memory.ports.scanning import scan
from memory.ports.store import Store
from memory.ports.text import query_words, scored

if TYPE_CHECKING:
    from memory.ports.candidates import Floats

GROUPS_ASKED = 200
"""Groups whose neighbours one question asks for."""


async def gather(store: Store, asked: Candidates, statistics: Statistics) -> Measured:
    """The candidates, by the store's own searches where it has an index, else by looking through all there is. The statistics are the store's."""
    select = selected(asked)
    found: dict[str, Head] = {}
    unindexed = not store.capabilities.lexical if asked.text.strip() else False, not store.capabilities.semantic if asked.near is not None else False
    heads = [h async for page in scan(store, _query(asked, select), MAX_LIMIT) for h in page.heads] if any(unindexed) else []
    if asked.text.strip():
        hits = await ranked_by_words(asked, heads, statistics) if unindexed[0] else await store.search(_search(asked, Words(asked.text), select))
        found |= {hit.head.key.id: hit.head for hit in hits}
    if asked.near is not None:
        if unindexed[1]:
            near = [head for head, _ in best(by_nearness(asked.near, heads), asked.limit)]
        else:
            near = [hit.head for hit in await store.search(_search(asked, Near(asked.near), select))]
        found |= {head.key.id: head for head in near}
    if unread := [i for i in asked.among if i not in found]:
        found |= {h.key.id: h for h in (await store.query(_query(asked, select, In("id", tuple(unread))))).heads}
    if asked.around is not None:
        wanted = neighbours(found.values(), asked.around)
        for part in _beside(wanted, asked.around):
            async for page in scan(store, _query(asked, select, part), MAX_LIMIT):
                found |= {h.key.id: h for h in page.heads if h.key.id not in found and place_of(h, asked.around) in wanted}
    return await measured(asked, list(found.values()), statistics)


async def count_through(store: Store, asked: Candidates) -> Statistics:
    """The statistics, by looking through the words of all there is."""
    documents, words, containing = 0, 0, dict.fromkeys(asked.counted, 0)
    query = replace(_query(asked, selected(replace(asked, near=None, around=None, select=frozenset()))), filter=None)
    async for page in scan(store, query, MAX_LIMIT):
        async for head in paced(page.heads, 100):
            documents += 1
            words += lexical.length(head.words or lexical.NO_WORDS)
            for stem in lexical.counts(asked.collection, head.words or lexical.NO_WORDS, asked.counted):
                containing[stem] += 1
    return Statistics(documents, words, containing)


def selected(asked: Candidates) -> frozenset[str]:
    """What heads have to carry for the answer."""
    beside = frozenset({asked.around.group, asked.around.number}) if asked.around is not None else frozenset()
    words = frozenset({WORDS}) if asked.collection.texts else frozenset()
    return asked.select | beside | words | (frozenset({VECTOR}) if asked.width else frozenset())


async def ranked_by_words(asked: Candidates, heads: Sequence[Head], statistics: Statistics) -> list[Hit]:
    """What a search by words would answer, from heads with their words."""
    wanted = query_words(asked.text)
    counted = [(h, lexical.counts(asked.collection, h.words, wanted), lexical.length(h.words)) async for h in paced(heads) if h.words is not None]
    hits = [Hit(head, score) for head, score in scored(counted, statistics.documents, statistics.words)]
    return sorted(hits, key=lambda hit: (-hit.score, hit.head.key.id))[: asked.limit]


Place = tuple[str, str, int]
"""Where a record stands: its scope, its group, its number."""


def place_of(head: Head, around: Around) -> Place | None:
    group, number = head.fields.get(around.group), head.fields.get(around.number)
    return (head.scope, group, number) if isinstance(group, str) and isinstance(number, int) else None


def neighbours(heads: Iterable[Head], around: Around) -> frozenset[Place]:
    """The places beside these that none of them has."""
    there = {place for head in heads if (place := place_of(head, around)) is not None}
    reach = range(-around.reach, around.reach + 1)
    return frozenset({(scope, group, number + step) for scope, group, number in there for step in reach} - there)


def _beside(wanted: Iterable[Place], around: Around) -> Iterable[Filter]:
    """The questions for these places, of so many groups each."""
    groups: dict[str, dict[int, None]] = {}
    for _, group, number in sorted(wanted):
        groups.setdefault(group, {})[number] = None
    of = [And((Eq(around.group, group), In(around.number, tuple(numbers)))) for group, numbers in groups.items()]
    for start in range(0, len(of), GROUPS_ASKED):
        yield Or(tuple(of[start : start + GROUPS_ASKED]))


def _query(asked: Candidates, select: frozenset[str], part: Filter | None = None) -> Query:
    return Query(asked.collection, asked.where, all_of(asked.filter, part), limit=MAX_LIMIT, roles=asked.roles, select=select)


def _search(asked: Candidates, by: Words | Near, select: frozenset[str]) -> Search:
    return Search(asked.collection, asked.where, by, asked.limit, asked.filter, asked.roles, select)


async def measured(asked: Candidates, heads: Sequence[Head], statistics: Statistics) -> Measured:
    """The heads as columns. They carry what `selected` names."""
    import numpy as np

    counts = np.zeros((len(heads), len(asked.counted)))
    lengths = np.zeros(len(heads), np.int64)
    columns = {stem: column for column, stem in enumerate(asked.counted)}
    async for row, head in paced(enumerate(heads), 100):
        if head.words is not None:
            lengths[row] = lexical.length(head.words)
            for stem, count in lexical.counts(asked.collection, head.words, asked.counted).items():
                counts[row, columns[stem]] = count
    return Measured(
        [h.key.id for h in heads],
        [h.scope for h in heads],
        [h.version for h in heads],
        [h.role for h in heads],
        [h.tier for h in heads],
        lengths,
        counts,
        stacked([h.vector for h in heads], asked.width),
        {name: [h.fields.get(name) if name != "id" else h.key.id for h in heads] for name in asked.select},
        statistics,
    )


def stacked(vectors: Sequence[bytes | None], dimensions: int) -> Floats:
    """Packed vectors as rows; zeros for what is none of these dimensions."""
    import numpy as np

    size = 4 * dimensions
    none = bytes(size)
    whole = b"".join([v if v is not None and len(v) == size else none for v in vectors])
    return np.frombuffer(whole, "<f4").reshape(len(vectors), dimensions)
