"""Long histories: single writes on a store and on the specification, compared.

Questions, erasures, reopenings and audits come between the writes. The specification is
the store in memory. A history depends on its seed alone, and is made before it runs. A
failing history is replayed with steps left out, until every step is needed. The rest is
printed as a script.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.harness import STEMMING, Harness
from memory.ports.contract.random_work import IDS, PLACES, RandomWork
from memory.ports.contract.support import T0
from memory.ports.full_scan import follow
from memory.ports.query import (
    MAX_LIMIT,
    Eq,
    Everywhere,
    Ge,
    IsNull,
    Lt,
    Near,
    Not,
    Order,
    Query,
    RowType,
    Search,
    Tenant,
)
from memory.ports.record import Key, PendingStep, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Absent, Always, Annotate, AtVersion, Delete, Newer, Purge, Put, Release, Write

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
class Restart:
    """Kill process and server, and start them again."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Writes to several collections in one call."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class LookAtAll:
    """All stored items, and the store's derived data."""


@dataclass(frozen=True, slots=True)
class Tidy:
    """A vacuum, and the removal of idle partitions.

    It forgets the partitions that both stores report as idle.
    """


@dataclass(frozen=True, slots=True)
class Pages:
    """A query, page by page to its end."""

    query: Query


@dataclass(frozen=True, slots=True)
class ListDue:
    """The rows that are due at a moment, page by page to the end."""

    now: datetime
    expired: datetime
    limit: int


@dataclass(frozen=True, slots=True)
class ListPartitions:
    """The partitions, page by page to the end."""

    where: Tenant | Everywhere
    prefix: str
    limit: int


Step = (
    Write
    | Batch
    | Erase
    | Ask
    | Find
    | Measure
    | Reopen
    | Restart
    | LookAtAll
    | Tidy
    | Pages
    | ListDue
    | ListPartitions
)


def history(
    seed: int, claims: Capabilities, writes: int, *, revives: bool = True, restarts: bool = False
) -> Iterator[Step]:
    """Yield the steps of a history: busy stretches and quiet ones.

    Busy stretches have questions and other steps between the writes. Quiet stretches
    have only writes, so an adapter postpones words, statistics and caches for long.
    `revives` is the harness's. With `restarts`, a durable store dies now and then.
    """
    work, chance = RandomWork(seed, claims), random.Random(f"steps of {seed}")  # noqa: S311
    wider = _HistoryGenerator(seed, claims)
    turn = 0
    while turn < writes:
        quiet = turn > 0 and chance.random() < 0.5
        until = min(writes, turn + (chance.randrange(100, 400) if quiet else chance.randrange(60, 200)))
        while turn < until:
            turn += 1
            write = _fresh(work) if chance.random() < 0.5 else work.write()
            if turn % 4 == 0:
                write = wider.write()
            yield write if revives else upward(write)
            if turn % 12 == 0:
                batch = tuple(wider.write() for _ in range(6))
                yield Batch(batch if revives else tuple(map(upward, batch)))
            if restarts and claims.durable and turn % 70 == 50:
                yield Restart()
                yield LookAtAll()
            if not quiet:
                yield from _between(work, chance, turn)
                if turn % 10 == 0:
                    yield from wider.questions()
        yield LookAtAll()


class _HistoryGenerator:
    """Draws writes to several collections, and questions paged to their end.

    The writes have many dates and many steps, some of them unknown.
    """

    def __init__(self, seed: int, claims: Capabilities) -> None:
        self._work = RandomWork(seed + 10**9, claims)
        self._chance, self._claims = self._work.chance, claims
        self._last: Put | None = None

    def write(self) -> Write:
        """Return a write; one in three continues from the last put."""
        chance = self._chance
        if self._last is not None and chance.random() < 0.35:
            put, self._last = self._last, None
            return self._upon(put.collection, put.record)
        made = replace(self._work.record(), owed=tuple(chance.sample(_STEPS, chance.randrange(len(_STEPS)))))
        collection = chance.choice((SAMPLES, MORE_SAMPLES, PLAIN))
        if collection is PLAIN:
            made = replace(made, fields={}, texts={}, vector=None)
        if self._claims.conditional and chance.random() < 0.5:
            return self._upon(collection, made)
        settles = frozenset(chance.sample(_SETTLED, chance.randrange(4)))
        when = chance.choice((Newer(), Always(), Absent())) if self._claims.conditional else Always()
        put = Put(collection, made, when, settles)
        self._last = put if self._claims.conditional else None
        return put

    def _upon(self, collection: Collection, made: Record) -> Write:
        """Return a write other than a put, on an item that may exist."""
        chance, version = self._chance, made.version
        date, settles = chance.choice(_DATES), frozenset(chance.sample(_SETTLED, chance.randrange(4)))
        when = chance.choice((Newer(), Newer(), AtVersion(version)))
        ids = tuple(chance.sample([*(step.id for step in _STEPS), "unknown"], chance.randrange(1, 5)))
        writes: list[Write] = [
            Delete(collection, made.key, version, when, made.owed, {"k": [version]}, date, settles),
            Release(collection, made.key, version, chance.choice(("mid", "long")), made.owed, date, settles),
            Annotate(collection, made.key, version, settle=ids),
            Annotate(collection, made.key, version, discard_at=date),
            Purge(collection, made.key, version, None, settles),
        ]
        return chance.choices(writes, weights=[2, 1, 3, 1, 1])[0]

    def questions(self) -> Iterator[Step]:
        """Yield the rows that are due, and one other question that a store accepts."""
        chance, claims = self._chance, self._claims
        moment, limit = chance.choice(_DATES) or T0, chance.choice((1, 3, 7))
        if not claims.tenant_wide:
            return
        asked: list[Step] = [
            ListPartitions(
                chance.choice((Everywhere(), Tenant("acme"))), chance.choice(("", "user:", "o")), limit
            )
        ]
        left = frozenset(chance.choice(({RowType.MARK}, {RowType.TOMBSTONE}, set(RowType))))
        asked.append(
            Pages(
                Query(chance.choice(DECLARED), Everywhere(), limit=limit, types=left, roles=frozenset(Role))
            )
        )
        if claims.filter:
            yield ListDue(moment, chance.choice((T0, moment)), limit)
            part = chance.choice(
                (
                    Lt("discard_at", moment),
                    Ge("discard_at", moment),
                    Not(Eq("owing", True)),
                    IsNull("discard_at"),
                )
            )
            asked.append(
                Pages(
                    Query(
                        SAMPLES,
                        Everywhere(),
                        part,
                        limit=limit,
                        types=frozenset({RowType.MARK, RowType.TOMBSTONE}),
                    )
                )
            )
        if claims.order:
            order = tuple(Order(name, chance.random() < 0.5) for name in chance.sample(_TIED, 2))
            asked.append(
                Pages(
                    Query(
                        SAMPLES,
                        chance.choice((Everywhere(), Tenant("acme"))),
                        None,
                        order,
                        limit,
                        roles=frozenset(Role),
                    )
                )
            )
        yield chance.choice(asked)


_STEPS = tuple(
    PendingStep(str(n), step, {"n": n})
    for n, step in enumerate(("deliver", "erase", "deliver", "copy", "erase", "tell", "copy"))
)
_SETTLED = ("deliver", "erase", "copy", "tell", "unknown")
_DATES = (
    None,
    T0,
    T0 + timedelta(microseconds=1),
    T0 + timedelta(days=1),
    T0.replace(year=2263),
    T0.replace(year=9999),
)
_TIED = ("tier", "pinned", "role", "owing", "type")
"""Fields with few values: most records are tied."""


def upward(write: Write) -> Write:
    """Return the same write, but never over a higher version."""
    match write:
        case Put(record=Record(version=version), when=when) | Delete(version=version, when=when):
            lower = isinstance(when, Always) or (isinstance(when, AtVersion) and when.version >= version)
            return replace(write, when=Newer()) if lower else write
        case _:
            return write


def _fresh(work: RandomWork) -> Write:
    """Return a write of a record with a low version, over any stored item.

    Without it, most keys would get versions that hardly any write exceeds.
    """
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
    died: list[Store] = field(default_factory=list)
    """Stores that restarts left behind; the caller closes them."""

    async def run(self, steps: Sequence[Step], seconds: float = 1e9) -> int | None:
        """Return the number of the first step with different answers, or None.

        Steps after `seconds` are left out.
        """
        until = asyncio.get_running_loop().time() + seconds
        for number, step in enumerate(steps):
            if asyncio.get_running_loop().time() > until:
                return None
            if not await self._same(step):
                return number
        return None

    async def _same(self, step: Step) -> bool:
        """Return whether both answer alike.

        A store that raises answers differently, because the specification never raises.
        """
        try:
            return await self._run_step(step)
        except Exception:  # noqa: BLE001
            return False

    async def _begin_again(self, *, dies: bool) -> None:
        if dies:
            self.died.append(self.store)
        self.store = await (self.harness.restart if dies else self.harness.reopen)(self.store)
        await self.store.open(DECLARED)

    async def _run_step(self, step: Step) -> bool:
        match step:
            case Reopen() | Restart():
                await self._begin_again(dies=isinstance(step, Restart))
                return True
            case Batch(writes):
                return await self._alike(lambda s: s.apply(writes))
            case Tidy():
                theirs = set(await self.specification.idle_partitions())
                idle = [one for one in await self.store.idle_partitions() if one in theirs]
                return await self.store.vacuum() >= 0 and await self._alike(
                    lambda s: s.forget_partitions(idle)
                )
            case Erase(query):
                return await self._alike(lambda s: s.delete_matching(query, 7, T0, frozenset({"deliver"})))
            case Ask(query):
                return await self._alike(lambda s: _answer(s, query))
            case Find(search):
                return await self._alike(lambda s: self._hits(s, search))
            case Measure(asked):
                return self._measured_alike(
                    asked, await self.store.candidates(asked), await self.specification.candidates(asked)
                )
            case LookAtAll():
                wide = self.store.capabilities.tenant_wide
                return (
                    await self._alike(lambda s: _all(s, wide)) and (await self.store.audit()).problems == ()
                )
            case Pages(query):
                return await self._alike(lambda s: _to_the_end(s, query))
            case ListDue():
                return await self._alike(lambda s: _fetch_due(s, step))
            case ListPartitions():
                return await self._alike(lambda s: _partitions(s, step))
            case _:
                return await self._alike(lambda s: s.apply([step]))

    async def _alike(self, call: Callable[[Store], Awaitable[object]]) -> bool:
        return await call(self.store) == await call(self.specification)

    def _measured_alike(self, asked: Candidates, one: CandidateColumns, other: CandidateColumns) -> bool:
        """Return whether both measure their candidates alike.

        Both must find the same ones, unless the store stems words differently or misses
        near ones.
        """
        ours, theirs = _columns(asked, one), _columns(asked, other)
        everything = self.harness.stemming is STEMMING and (self.harness.recall == 1.0 or asked.near is None)
        if (
            len(ours) != len(one)
            or one.statistics != other.statistics
            or (everything and ours.keys() != theirs.keys())
        ):
            return False
        return all(ours[key] == theirs[key] for key in ours.keys() & theirs.keys())

    async def _hits(self, store: Store, search: Search) -> object:
        hits = await store.search(search)
        if isinstance(search.by, Near):
            return (
                {h.head.key for h in hits}
                if self.harness.recall == 1.0 and search.limit > len(KEYS)
                else None
            )
        if self.harness.exact_scores:
            return {h.head.key: round(h.score, 6) for h in hits}
        return {h.head.key for h in hits} if self.harness.stemming is STEMMING else None


def _columns(asked: Candidates, found: CandidateColumns) -> dict[str, object]:
    """Return the columns of each candidate, by id."""
    fields = [[found.fields[name][row] for name in sorted(asked.select)] for row in range(len(found))]
    heads = zip(
        found.scopes,
        found.versions,
        found.roles,
        found.tiers,
        found.lengths.tolist(),
        found.counts.round(6).tolist(),
        fields,
        strict=True,
    )
    vectors = (vector.tobytes() for vector in found.vectors)
    return dict(zip(found.ids, zip(heads, vectors, strict=True), strict=True))


async def _answer(store: Store, query: Query) -> object:
    page = await store.query(query)
    wide = isinstance(query.where, Everywhere)
    return (None if wide else page), (await store.count(query)).records


async def _to_the_end(store: Store, query: Query) -> object:
    """Return all rows of the pages.

    Tied rows may come in any order if several tenants are asked.
    """
    found = [standing async for page in follow(store.query, query) for standing in page.records]
    return sorted(found, key=lambda standing: standing.key)


async def _fetch_due(store: Store, asked: ListDue) -> object:
    rows: list[tuple[str, Key, int, str, str]] = []
    cursor: str | None = None
    while True:
        page = await store.due(asked.now, asked.limit, cursor, expired=dict.fromkeys(DECLARED, asked.expired))
        rows += [(row.collection.name, row.key, row.version, row.why, row.tier) for row in page.rows]
        if (cursor := page.cursor) is None:
            return sorted(rows)


async def _partitions(store: Store, asked: ListPartitions) -> object:
    found: list[object] = []
    cursor: str | None = None
    while True:
        page = await store.partitions(asked.where, prefix=asked.prefix, limit=asked.limit, cursor=cursor)
        found += page.partitions
        if (cursor := page.cursor) is None:
            return found


async def _all(store: Store, wide: bool) -> object:
    seen: list[object] = [await store.get(collection, KEYS) for collection in DECLARED]
    if wide:
        page = await store.query(
            Query(SAMPLES, Everywhere(), limit=MAX_LIMIT, roles=frozenset(Role), types=frozenset(RowType))
        )
        seen.append(sorted(s.key for s in page.records))
    return seen


async def shrunk(
    steps: Sequence[Step], fails: Callable[[Sequence[Step]], Awaitable[bool]], seconds: float
) -> list[Step]:
    """Return the steps that the failure needs, as far as time allows.

    Larger pieces are left out first.
    """
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
    """Return the history as a program that replays it."""
    lines = ",\n    ".join(source(step) for step in steps)
    return (
        f"steps = [\n    {lines},\n]\n# await Play(harness, store, specification).run(steps)  #"
        " memory.ports.contract.histories"
    )


def source(value: Any) -> str:
    """Return a value as Python source."""
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
