"""Long histories: one write after the other on a store and on the specification, with questions, erasures, reopenings and audits between.

A history is made from its seed alone, before anything is run, so that one which fails can be played again with steps left out, until none can be:
what is left is printed as a script.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from memory.ports.candidates import Candidates, Measured
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, SAMPLES
from memory.ports.contract.harness import STEMMING, Harness
from memory.ports.contract.random_work import IDS, PLACES, RandomWork
from memory.ports.contract.support import T0
from memory.ports.query import MAX_LIMIT, Everywhere, Near, Query, RowType, Search
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Always, AtVersion, Delete, Newer, Put, Write

KEYS = [Key(tenant, id_) for tenant in sorted({place.tenant for place in PLACES}) for id_ in IDS]


@dataclass(frozen=True, slots=True)
class Erase:
    query: Query


@dataclass(frozen=True, slots=True)
class Ask:
    """A query and its count."""

    query: Query


@dataclass(frozen=True, slots=True)
class Find:
    search: Search


@dataclass(frozen=True, slots=True)
class Measure:
    asked: Candidates


@dataclass(frozen=True, slots=True)
class Reopen:
    """Close the store in good order and open it again."""


@dataclass(frozen=True, slots=True)
class LookAtAll:
    """Everything that stands, and what the store derives from it."""


@dataclass(frozen=True, slots=True)
class Tidy:
    """Room is given back, and partitions in which nothing stands any more are forgotten: those that both stores let go."""


Step = Write | Erase | Ask | Find | Measure | Reopen | LookAtAll | Tidy


def history(seed: int, claims: Capabilities, writes: int, *, revives: bool = True) -> Iterator[Step]:
    """Busy stretches, with questions and all else between the writes, and quiet ones of writes alone: what an adapter puts off until somebody asks
    (words, statistics, caches) is put off for long there. `revives` is the harness's.
    """
    work, chance = RandomWork(seed, claims), random.Random(f"steps of {seed}")  # noqa: S311
    turn = 0
    while turn < writes:
        quiet = turn > 0 and chance.random() < 0.5
        until = min(writes, turn + (chance.randrange(100, 400) if quiet else chance.randrange(60, 200)))
        while turn < until:
            turn += 1
            write = _fresh(work) if chance.random() < 0.5 else work.write()
            yield write if revives else upward(write)
            if not quiet:
                yield from _between(work, chance, turn)
        yield LookAtAll()


def upward(write: Write) -> Write:
    """The same, but never over what has a higher version."""
    match write:
        case Put(record=Record(version=version), when=when) | Delete(version=version, when=when):
            lower = isinstance(when, Always) or (isinstance(when, AtVersion) and when.version >= version)
            return replace(write, when=Newer()) if lower else write
        case _:
            return write


def _fresh(work: RandomWork) -> Write:
    """A record of a low version whatever stands there: without, most keys would come to hold versions that hardly any write is newer than."""
    return Put(SAMPLES, replace(work.record(), version=work.chance.randrange(1, 4)), Always())


def _between(work: RandomWork, chance: random.Random, turn: int) -> Iterator[Step]:
    if turn % 25 == 0:
        yield Ask(work.query())
    if turn % 40 == 0 and work.claims.lexical:
        yield Find(work.by_words(1_000))
    if turn % 40 == 20 and work.claims.semantic:
        yield Find(work.by_meaning())
    if turn % 40 == 10:
        yield Measure(work.candidates())
    if turn % 60 == 0:
        yield Erase(work.query())
    if turn % 100 == 0:
        yield LookAtAll()
    if chance.random() < 0.01:
        yield Tidy()
    if chance.random() < 0.01:
        yield Reopen()


@dataclass
class Play:
    """One history on one store, beside the specification."""

    harness: Harness
    store: Store
    specification: Store

    async def run(self, steps: Sequence[Step], seconds: float = 1e9) -> int | None:
        """The number of the first step on which they part, None where they never do. What comes after so many seconds is left out."""
        until = asyncio.get_running_loop().time() + seconds
        for number, step in enumerate(steps):
            if asyncio.get_running_loop().time() > until:
                return None
            if not await self._same(step):
                return number
        return None

    async def _same(self, step: Step) -> bool:
        """Whether both answer alike. A store that raises answers otherwise: the specification does not."""
        try:
            return await self._taken(step)
        except Exception:  # noqa: BLE001
            return False

    async def _taken(self, step: Step) -> bool:
        match step:
            case Reopen():
                self.store = await self.harness.reopen(self.store)
                await self.store.open(DECLARED)
                return True
            case Tidy():
                theirs = set(await self.specification.idle_partitions())
                idle = [one for one in await self.store.idle_partitions() if one in theirs]
                return await self.store.vacuum() >= 0 and await self._alike(lambda s: s.forget_partitions(idle))
            case Erase(query):
                return await self._alike(lambda s: s.delete_matching(query, 7, T0, frozenset({"deliver"})))
            case Ask(query):
                return await self._alike(lambda s: _answer(s, query))
            case Find(search):
                return await self._alike(lambda s: self._hits(s, search))
            case Measure(asked):
                return self._measured_alike(asked, await self.store.candidates(asked), await self.specification.candidates(asked))
            case LookAtAll():
                wide = self.store.capabilities.tenant_wide
                return await self._alike(lambda s: _all(s, wide)) and (await self.store.audit()).problems == ()
            case _:
                return await self._alike(lambda s: s.apply([step]))

    async def _alike(self, call: Callable[[Store], Awaitable[object]]) -> bool:
        return await call(self.store) == await call(self.specification)

    def _measured_alike(self, asked: Candidates, one: Measured, other: Measured) -> bool:
        """What both have is measured alike, and both have the same, but where a store stems words otherwise or does not find all that is near."""
        ours, theirs = _columns(asked, one), _columns(asked, other)
        everything = self.harness.stemming is STEMMING and (self.harness.recall == 1.0 or asked.near is None)
        if len(ours) != len(one) or one.statistics != other.statistics or (everything and ours.keys() != theirs.keys()):
            return False
        return all(ours[key] == theirs[key] for key in ours.keys() & theirs.keys())

    async def _hits(self, store: Store, search: Search) -> object:
        hits = await store.search(search)
        if isinstance(search.by, Near):
            return {h.head.key for h in hits} if self.harness.recall == 1.0 and search.limit > len(KEYS) else None
        if self.harness.exact_scores:
            return {h.head.key: round(h.score, 6) for h in hits}
        return {h.head.key for h in hits} if self.harness.stemming is STEMMING else None


def _columns(asked: Candidates, found: Measured) -> dict[str, object]:
    """By id what the columns say of each."""
    fields = [[found.fields[name][row] for name in sorted(asked.select)] for row in range(len(found))]
    heads = zip(found.scopes, found.versions, found.roles, found.tiers, found.lengths.tolist(), found.counts.round(6).tolist(), fields, strict=True)
    vectors = (vector.tobytes() for vector in found.vectors)
    return dict(zip(found.ids, zip(heads, vectors, strict=True), strict=True))


async def _answer(store: Store, query: Query) -> object:
    page = await store.query(query)
    wide = isinstance(query.where, Everywhere)
    return (None if wide else page), (await store.count(query)).records


async def _all(store: Store, wide: bool) -> object:
    seen: list[object] = [await store.get(collection, KEYS) for collection in (SAMPLES, MORE_SAMPLES)]
    if wide:
        page = await store.query(Query(SAMPLES, Everywhere(), limit=MAX_LIMIT, roles=frozenset(Role), types=frozenset(RowType)))
        seen.append(sorted(s.key for s in page.records))
    return seen


async def shrunk(steps: Sequence[Step], fails: Callable[[Sequence[Step]], Awaitable[bool]], seconds: float) -> list[Step]:
    """The steps without which it would not fail, as far as the time goes: larger pieces are left out first."""
    until = asyncio.get_running_loop().time() + seconds
    left, size = list(steps), max(1, len(steps) // 2)
    while True:
        start, before = 0, len(left)
        while start < len(left) and asyncio.get_running_loop().time() < until:
            without = left[:start] + left[start + size :]
            if without and await fails(without):
                left = without
            else:
                start += size
        if asyncio.get_running_loop().time() >= until or (size == 1 and len(left) == before):
            return left
        size = max(1, size // 2)


def script(steps: Sequence[Step]) -> str:
    """The history as a program that replays it."""
    lines = ",\n    ".join(source(step) for step in steps)
    return f"steps = [\n    {lines},\n]\n# await Play(harness, store, specification).run(steps)  # memory.ports.contract.histories"


def source(value: Any) -> str:
    """A value as Python writes it."""
    if isinstance(value, Collection):
        return value.name.upper()
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, datetime):
        return f"datetime.fromisoformat({value.isoformat()!r})"
    if is_dataclass(value) and not isinstance(value, type):
        given = [f"{f.name}={source(getattr(value, f.name))}" for f in fields(value) if f.init]
        return f"{type(value).__name__}({', '.join(given)})"
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(sorted(map(source, value)))}}})" if value else "frozenset()"
    if isinstance(value, tuple):
        return f"({', '.join(map(source, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(source, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{source(k)}: {source(v)}' for k, v in value.items())}}}"
    return repr(value)
