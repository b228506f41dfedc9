"""Candidates by several questions, for a store without a single request for them.

It gathers them by the store's queries and searches, and lays them out as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from memory.ports import lexical
from memory.ports.candidates import CandidateColumns, Candidates, Neighbourhood, Statistics
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.full_scan import scan
from memory.ports.lexical_scan import rank_by_words
from memory.ports.query import (
    MAX_LIMIT,
    VECTOR,
    WORDS,
    And,
    Condition,
    Eq,
    Head,
    In,
    Near,
    Or,
    Query,
    Search,
    Words,
    all_of,
)
from memory.ports.store import Store
from memory.ports.vector_scan import best, by_nearness

if TYPE_CHECKING:
    from memory.ports.candidates import Floats

PLACES_ASKED = 300
"""The most places in one question.

For places in as many groups, a filter has three parts for each.
"""


async def gather(store: Store, asked: Candidates, statistics: Statistics) -> CandidateColumns:
    """Gather the candidates by the store's own searches, or by a full scan.

    It scans all records of the question if the store has no index. The statistics are
    the store's.
    """
    select = head_fields(asked)
    found: dict[str, Head] = {}
    can, by_words = store.capabilities, bool(asked.text.strip())
    heads: list[Head] = []
    if (by_words and not can.lexical) or (asked.near is not None and not can.semantic):
        heads = [head async for page in scan(store, _query(asked, select), MAX_LIMIT) for head in page.heads]
    if by_words:
        search = _search(asked, Words(asked.text), select)
        hits = (
            await store.search(search)
            if can.lexical
            else await rank_by_words(heads, asked.collection, asked.text, asked.limit)
        )
        found |= {hit.head.key.id: hit.head for hit in hits}
    if asked.near is not None and can.semantic:
        found |= {
            hit.head.key.id: hit.head for hit in await store.search(_search(asked, Near(asked.near), select))
        }
    elif asked.near is not None:
        found |= {head.key.id: head for head, _ in best(by_nearness(asked.near, heads), asked.limit)}
    if unread := frozenset(asked.among) - found.keys():
        parts: list[Condition | None] = [In("id", tuple(sorted(unread))) if can.filter else None]
        found |= await _scan_heads(store, asked, select, parts, lambda head: head.key.id in unread)
    if (around := asked.around) is not None and (wanted := neighbours(found.values(), around)):
        parts = list(asking_for(wanted, around)) if can.filter else [None]
        beside_them = await _scan_heads(
            store, asked, select, parts, lambda head: place_of(head, around) in wanted
        )
        found = {**beside_them, **found}
    return await measure_heads(asked, list(found.values()), statistics)


async def _scan_heads(
    store: Store,
    asked: Candidates,
    select: frozenset[str],
    parts: Sequence[Condition | None],
    is_chosen: Callable[[Head], bool],
) -> dict[str, Head]:
    """Return the chosen heads, by id, among the records that pass these filters.

    A store without filters is asked for all its records.
    """
    chosen: dict[str, Head] = {}
    for part in parts:
        async for page in scan(store, _query(asked, select, part), MAX_LIMIT):
            chosen |= {head.key.id: head for head in page.heads if is_chosen(head)}
    return chosen


async def count_through(store: Store, asked: Candidates) -> Statistics:
    """Compute the statistics by reading the words of all records."""
    documents, words, containing = 0, 0, dict.fromkeys(asked.counted, 0)
    query = replace(
        _query(asked, head_fields(replace(asked, near=None, around=None, select=frozenset()))), filter=None
    )
    async for page in scan(store, query, MAX_LIMIT):
        async for head in iterate_cooperatively(page.heads, 100):
            documents += 1
            words += lexical.length(head.words or lexical.NO_WORDS)
            for stem in lexical.counts(asked.collection, head.words or lexical.NO_WORDS, asked.counted):
                containing[stem] += 1
    return Statistics(documents, words, containing)


def head_fields(asked: Candidates) -> frozenset[str]:
    """Return the fields that heads must carry for the answer."""
    beside = frozenset({asked.around.group, asked.around.number}) if asked.around is not None else frozenset()
    words = frozenset({WORDS}) if asked.collection.texts else frozenset()
    return asked.select | beside | words | (frozenset({VECTOR}) if asked.width else frozenset())


Place = tuple[str, str, int]
"""The place of a record: its scope, its group, its number."""


def place_of(head: Head, around: Neighbourhood) -> Place | None:
    group, number = head.fields.get(around.group), head.fields.get(around.number)
    return (head.scope, group, number) if isinstance(group, str) and isinstance(number, int) else None


def neighbours(heads: Iterable[Head], around: Neighbourhood) -> frozenset[Place]:
    """Return the neighbouring places of these heads, without their own places."""
    return beside({place for head in heads if (place := place_of(head, around)) is not None}, around.reach)


def beside(there: Set[Place], reach: int) -> frozenset[Place]:
    """Return the places within `reach` of the given ones, without these."""
    around = {
        (scope, group, number + step) for scope, group, number in there for step in range(-reach, reach + 1)
    }
    return frozenset(
        {place for place in around - there if -(2**63) <= place[2] < 2**63}
    )  # an integer field has no others


def asking_for(wanted: Iterable[Place], around: Neighbourhood) -> Iterator[Condition]:
    """Yield conditions for these places, several places in each."""
    places = sorted({(group, number) for _, group, number in wanted})
    for start in range(0, len(places), PLACES_ASKED):
        groups: dict[str, list[int]] = {}
        for group, number in places[start : start + PLACES_ASKED]:
            groups.setdefault(group, []).append(number)
        yield Or(
            tuple(
                [
                    And((Eq(around.group, group), In(around.number, tuple(numbers))))
                    for group, numbers in groups.items()
                ]
            )
        )


def _query(asked: Candidates, select: frozenset[str], part: Condition | None = None) -> Query:
    return Query(
        asked.collection,
        asked.where,
        all_of(asked.filter, part),
        limit=MAX_LIMIT,
        roles=asked.roles,
        select=select,
    )


def _search(asked: Candidates, by: Words | Near, select: frozenset[str]) -> Search:
    return Search(asked.collection, asked.where, by, asked.limit, asked.filter, asked.roles, select)


async def measure_heads(asked: Candidates, heads: Sequence[Head], statistics: Statistics) -> CandidateColumns:
    """Lay out the heads as columns. They carry the fields of `head_fields`."""
    import numpy as np

    counts = np.zeros((len(heads), len(asked.counted)))
    lengths = np.zeros(len(heads), np.int64)
    columns = {stem: column for column, stem in enumerate(asked.counted)}
    async for row, head in iterate_cooperatively(enumerate(heads), 100):
        if head.words is not None:
            lengths[row] = lexical.length(head.words)
            for stem, count in lexical.counts(asked.collection, head.words, asked.counted).items():
                counts[row, columns[stem]] = count
    return CandidateColumns(
        [h.key.id for h in heads],
        [h.scope for h in heads],
        [h.version for h in heads],
        [h.role for h in heads],
        [h.tier for h in heads],
        lengths,
        counts,
        stack_vectors([h.vector for h in heads], asked.width),
        {name: [h.fields.get(name) if name != "id" else h.key.id for h in heads] for name in asked.select},
        statistics,
    )


def stack_vectors(vectors: Sequence[bytes | None], dimensions: int) -> Floats:
    """Return packed vectors as rows; zeros for a vector of other dimensions."""
    import numpy as np

    size = 4 * dimensions
    none = bytes(size)
    whole = b"".join([v if v is not None and len(v) == size else none for v in vectors])
    return np.frombuffer(whole, "<f4").reshape(len(vectors), dimensions)
