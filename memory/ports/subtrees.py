"""Answers questions about `Under` by questions about the partitions that exist there.

For adapters that do not answer `Under` themselves. The partitions are listed and asked
in groups, so the size of a request does not depend on their number.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from memory.ports.candidate_scan import measure_heads
from memory.ports.candidates import CandidateColumns, Candidates, Statistics, concatenate, none_of
from memory.ports.heads import head_of
from memory.ports.merging import best_hits, merge_answers, with_sort_values, without_sort_values
from memory.ports.query import (
    MAX_LIMIT,
    Count,
    Hit,
    Page,
    Partitions,
    Query,
    Search,
    Tenant,
    Under,
    Words,
)
from memory.ports.query_evaluation import condition
from memory.ports.record import Key, Partition, Record
from memory.ports.store import Store
from memory.ports.text import bm25, query_words, rarity
from memory.ports.vector_scan import exact_cosines

ASKED_AT_ONCE = 2_000
"""The most partitions of one group."""
Ranked = list[tuple[float, str, str]]
"""Negative score, id and scope of records, best first."""


async def groups(store: Store, where: Under) -> AsyncIterator[Partitions]:
    """Yield the partitions there, some at a time, each once.

    A partition that appears or disappears meanwhile may be missed or yielded. The
    scopes that `where` names are yielded whether they exist or not.
    """
    found = [Partition(where.tenant, scope) for scope in where.scopes]
    for prefix in where.prefixes:
        cursor: str | None = None
        while True:
            page = await store.partitions(
                Tenant(where.tenant), prefix=prefix, limit=ASKED_AT_ONCE, cursor=cursor
            )
            found += [partition for partition, _ in page.partitions]
            while len(found) >= ASKED_AT_ONCE:
                yield Partitions(tuple(found[:ASKED_AT_ONCE]))
                found = found[ASKED_AT_ONCE:]
            cursor = page.cursor
            if cursor is None:
                break
    if found:
        yield Partitions(tuple(found))


async def only_group(store: Store, where: Under) -> Partitions | None:
    """Return the partitions there if they are one group, else None."""
    found: Partitions | None = None
    async for group in groups(store, where):
        if found is not None:
            return None
        found = group
    return found


async def query_groups(store: Store, query: Query, where: Under) -> Page:
    """Return a page of the records there; the pages of all groups are merged."""
    found, asked = Page(), with_sort_values(query)
    async for group in groups(store, where):
        found = merge_answers([found, await store.query(replace(asked, where=group))], query)
    return without_sort_values(found, query)


async def count_groups(store: Store, query: Query, where: Under) -> Count:
    records = size = 0
    async for group in groups(store, where):
        counted = await store.count(replace(query, where=group))
        records, size = records + counted.records, size + counted.bytes
    return Count(records, size)


async def delete_groups(
    store: Store,
    query: Query,
    where: Under,
    version: int,
    discard_at: datetime | None,
    carry: frozenset[str],
) -> int:
    deleted = 0
    async for group in groups(store, where):
        deleted += await store.delete_matching(replace(query, where=group), version, discard_at, carry)
    return deleted


# -- searches --------------------------------------------------------------------------


async def search_groups(store: Store, search: Search, where: Under) -> list[Hit]:
    """Return the best hits of all groups.

    By words, the statistics are those of the whole place.
    """
    if (only := await only_group(store, where)) is not None:
        return await store.search(replace(search, where=only))
    if isinstance(search.by, Words):
        asked = Candidates(
            search.collection,
            where,
            search.by.text,
            limit=search.limit,
            filter=search.filter,
            roles=search.roles,
        )
        return await _read_hits(store, search, (await _best_by_words(store, asked, where))[0])
    best: list[Hit] = []
    async for group in groups(store, where):
        best = best_hits([*best, *await store.search(replace(search, where=group))], search.limit)
    return best


async def candidates_of_groups(store: Store, asked: Candidates, where: Under) -> CandidateColumns:
    """Return the candidates of all groups, with the statistics of the whole place."""
    if (only := await only_group(store, where)) is not None:
        return await store.candidates(replace(asked, where=only))
    by_words, statistics = await _best_by_words(store, asked, where)
    found = {record_id: scope for _, record_id, scope in by_words}
    if asked.near is not None or asked.among:
        found |= await _near_and_named(store, asked, where)
    if not found:
        return replace(await measure_heads(asked, (), none_of(asked)), statistics=statistics)
    answers = [
        await store.candidates(
            replace(
                asked,
                where=Partitions(tuple(Partition(where.tenant, scope) for scope in scopes)),
                text="",
                near=None,
                dimensions=asked.width,
                among=ids,
                statistics=False,
            )
        )
        for scopes, ids in _portions(found)
    ]
    return replace(concatenate(answers), statistics=statistics)


def _portions(found: dict[str, str]) -> Iterator[tuple[Sequence[str], tuple[str, ...]]]:
    """Yield scopes with the ids found there, for one request each.

    A scope comes once, and its records with it: neighbours lie in the same scope.
    """
    by_scope: dict[str, list[str]] = {}
    for record_id, scope in found.items():
        by_scope.setdefault(scope, []).append(record_id)
    scopes: list[str] = []
    ids: list[str] = []
    for scope, there in by_scope.items():
        if scopes and (len(scopes) == ASKED_AT_ONCE or len(ids) + len(there) > MAX_LIMIT):
            yield scopes, tuple(ids)
            scopes, ids = [], []
        scopes.append(scope)
        ids += there[:MAX_LIMIT]
    yield scopes, tuple(ids)


async def _best_by_words(store: Store, asked: Candidates, where: Under) -> tuple[Ranked, Statistics]:
    """Return the best `limit` records by words, and the statistics of the whole place.

    Each group returns all records with one of the words. If these are more than
    `MAX_LIMIT`, it returns the best by its own statistics.
    """
    stems = query_words(asked.text) if asked.text.strip() else []
    if not stems and not asked.statistics:
        return [], none_of(asked)
    counted = tuple(dict.fromkeys([*stems, *(asked.counted if asked.statistics else ())]))
    words = replace(
        asked,
        near=None,
        dimensions=0,
        among=(),
        around=None,
        select=frozenset(),
        counted=counted,
        limit=MAX_LIMIT,
        statistics=True,
    )
    total = Statistics(containing=dict.fromkeys(counted, 0))
    matches: list[tuple[str, str, dict[str, float], float]] = []
    async for group in groups(store, where):
        answer = await store.candidates(replace(words, where=group))
        total += answer.statistics
        matches += _matches(answer, stems)
    average = total.words / total.documents if total.documents else 0.0
    rarities = {stem: rarity(total.documents, total.containing[stem]) for stem in stems}
    ranked = sorted(
        (-bm25(frequencies, length, average, rarities), record_id, scope)
        for record_id, scope, frequencies, length in matches
    )
    return ranked[: asked.limit], _only(total, asked)


def _matches(
    answer: CandidateColumns, stems: Sequence[str]
) -> Iterable[tuple[str, str, dict[str, float], float]]:
    """Return id, scope, counts of words and length of each record with a word.

    The first columns of the counts are those of these stems.
    """
    for row, counts in enumerate(answer.counts[:, : len(stems)].tolist()):
        frequencies = {stem: count for stem, count in zip(stems, counts, strict=True) if count > 0}
        if frequencies:
            yield answer.ids[row], answer.scopes[row], frequencies, int(answer.lengths[row])


def _only(total: Statistics, asked: Candidates) -> Statistics:
    if not asked.statistics:
        return none_of(asked)
    return replace(total, containing={stem: total.containing[stem] for stem in asked.counted})


async def _near_and_named(store: Store, asked: Candidates, where: Under) -> dict[str, str]:
    """Return the ids of the nearest and of the named records, with their scopes."""
    near, named = asked.near, frozenset(asked.among)
    wanted = replace(asked, text="", around=None, counted=(), select=frozenset(), statistics=False)
    found: dict[str, str] = {}
    best: Ranked = []
    async for group in groups(store, where):
        answer = await store.candidates(replace(wanted, where=group))
        rows = list(zip(answer.ids, answer.scopes, strict=True))
        found |= {record_id: scope for record_id, scope in rows if record_id in named}
        if near is None:
            continue
        vectors = [vector.tobytes() if vector.any() else None for vector in answer.vectors.astype("<f4")]
        scored = zip(exact_cosines(near, vectors), vectors, rows, strict=True)
        best += [(-score, *row) for score, vector, row in scored if vector is not None]
        best = sorted(best)[: asked.limit]
    return found | {record_id: scope for _, record_id, scope in best}


async def _read_hits(store: Store, search: Search, ranked: Ranked) -> list[Hit]:
    """Return the hits of these records, as far as they still are in the place."""
    tenant, passes = search.where.tenant if isinstance(search.where, Under) else "", condition(search.filter)
    scores = {Key(tenant, record_id): (-score, scope) for score, record_id, scope in ranked}
    hits: list[Hit] = []
    for record in await store.get(search.collection, list(scores)):
        if not isinstance(record, Record) or record.role not in search.roles or not passes(record):
            continue
        score, scope = scores[record.key]
        if record.scope == scope:
            hits.append(Hit(head_of(search.collection, record, search.select), score))
    return best_hits(hits, search.limit)
