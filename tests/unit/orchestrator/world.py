"""A small world for the engine: stores that fail when told to, a clock that obeys, and
engines that come and go over the same stores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import StoreUnavailable
from memory.domain.legal_hold import LegalHold
from memory.domain.scope import Scope
from memory.orchestrator.conversations.log.passages import Where
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.storage.kinds import KINDS, Kinds
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.steps import current_step
from memory.orchestrator.storage.topology import Topology
from memory.policies.entry_query import EntryQuery
from memory.policies.promotion import DEFAULT_RULES, CustomRule, PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.policies.window_exit import WindowExitFunction
from memory.ports.advisor import Advisor
from memory.ports.capabilities import Capabilities
from memory.ports.clock import system_clock
from memory.ports.collections import Collection
from memory.ports.embedder import Embedder
from memory.ports.query import Everywhere, Page, Query, RowType
from memory.ports.record import Key, Mark, Record, Role, Stored, Tombstone

TENANT = "acme"
SESSION, USER, ORG = Scope.session("s1"), Scope.user("ada"), Scope.org("o1")
VOLATILE = InMemoryStore.claims
DURABLE = replace(VOLATILE, durable=True, shared=True)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Flaky(InMemoryStore):
    """A store in memory that can be told to fail: at a step before or after carrying it
    out, or altogether; or not to answer.
    """

    def __init__(
        self, name: str, capabilities: Capabilities, clock: Callable[[], datetime] = system_clock
    ) -> None:
        super().__init__(name, capabilities=capabilities, clock=clock)
        self.fails_before: set[str] = set()
        self.fails_after: set[str] = set()
        self.down = False
        self.silent = False
        self.steps: list[str] = []
        self.rows_read = 0
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}
        """What others do, once, when a step has come so far that it is to be carried
        out.
        """
        self.after: dict[str, Callable[[], Awaitable[object]]] = {}
        """What others do, once, when a step has been carried out and its caller does
        not have the answer yet.
        """

    def heal(self) -> None:
        self.fails_before.clear()
        self.fails_after.clear()
        self.down = self.silent = False

    async def on_call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        step = current_step.get()
        self.steps.append(step)
        if step in self.before:
            await self.before.pop(step)()
        if self.silent:
            await asyncio.Event().wait()
        if self.down or step in self.fails_before:
            raise StoreUnavailable(self.name, f"fails before {step}")
        answer = await getattr(InMemoryStore, method)(self, *args, **kwargs)
        self.rows_read += (
            len(answer.records) + len(answer.heads)
            if isinstance(answer, Page)
            else len(answer)
            if method == "get"
            else 0
        )
        if step in self.after:
            await self.after.pop(step)()
        if step in self.fails_after:
            raise StoreUnavailable(self.name, f"fails after {step}")
        return answer

    async def get(self, *args: Any, **kwargs: Any) -> Any:
        return await self.on_call("get", *args, **kwargs)

    async def apply(self, *args: Any, **kwargs: Any) -> Any:
        return await self.on_call("apply", *args, **kwargs)

    async def query(self, *args: Any, **kwargs: Any) -> Any:
        return await self.on_call("query", *args, **kwargs)

    async def search(self, *args: Any, **kwargs: Any) -> Any:
        return await self.on_call("search", *args, **kwargs)

    async def candidates(self, *args: Any, **kwargs: Any) -> Any:
        return await self.on_call("candidates", *args, **kwargs)

    async def delete_matching(self, *args: Any, **kwargs: Any) -> Any:
        return await self.on_call("delete_matching", *args, **kwargs)

    async def due(self, *args: Any, **kwargs: Any) -> Any:
        return await self.on_call("due", *args, **kwargs)


async def held(count: int = 1) -> None:
    """Nobody else does maintenance."""


class Died(BaseException):
    """The process is gone."""


async def dies() -> None:
    raise Died


class Clock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.moment += timedelta(microseconds=1)
        return self.moment

    def advance(self, by: timedelta = HOUR) -> datetime:
        self.moment += by
        return self.moment


class World:
    """Three stores and as many engines over them as a test wants."""

    def __init__(
        self,
        *,
        short: Capabilities = DURABLE,
        mid: Capabilities = DURABLE,
        long: Capabilities = DURABLE,
        embedder: Embedder | None = None,
        rules: Sequence[PromotionRule] = DEFAULT_RULES,
        policies: Sequence[CustomRule] = (),
        retention: Sequence[RetentionRule] = (),
        quotas: Sequence[Quota] = (),
        settings: EngineSettings | None = None,
        kinds: Kinds = KINDS,
        passages: Where = "home",
        advisor: Advisor | None = None,
        on_window_exit: WindowExitFunction | Literal["elsewhere"] | None = None,
    ) -> None:
        self.clock, self.advisor, self.on_window_exit = Clock(), advisor, on_window_exit
        self.short, self.mid, self.long = (
            Flaky(name, can, self.clock) for name, can in (("short", short), ("mid", mid), ("long", long))
        )
        self.embedder, self.rules, self.settings, self.kinds, self.passages = (
            embedder,
            rules,
            settings,
            kinds,
            passages,
        )
        self.policies, self.retention, self.quotas = policies, retention, quotas
        self.engine = self.another_engine()

    @property
    def stores(self) -> tuple[Flaky, Flaky, Flaky]:
        return self.short, self.mid, self.long

    def in_one_store(self, tier: str, other: str) -> World:
        """The same world, not opened yet, with one store for two tiers."""
        setattr(self, other, getattr(self, tier))
        self.engine = self.another_engine()
        return self

    def another_engine(self) -> Engine:
        """As another process would have it: the same stores, nothing else shared."""
        topology = Topology(short=self.short, mid=self.mid, long=self.long)
        rules, policies, settings, kinds, passages = (
            self.rules,
            self.policies,
            self.settings,
            self.kinds,
            self.passages,
        )
        return Engine(
            topology,
            embedder=self.embedder,
            clock=self.clock,
            rules=rules,
            policies=policies,
            retention=self.retention,
            quotas=self.quotas,
            settings=settings,
            kinds=kinds,
            passages=passages,
            advisor=self.advisor,
            on_window_exit=self.on_window_exit,
        )

    async def another_process(self) -> Engine:
        """An open engine that shares nothing with this world's but the stores."""
        engine = self.another_engine()
        await engine.open()
        return engine

    async def __aenter__(self) -> World:
        await self.engine.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()

    def heal(self) -> None:
        for store in self.stores:
            store.heal()

    # -- what callers do ---------------------------------------------------------------

    async def write(
        self,
        content: str = "text",
        scope: Scope = SESSION,
        *,
        revive: bool = False,
        consistency: Consistency | None = None,
        **more: Any,
    ) -> Entry:
        draft = EntryDraft(scope=scope, content=content, **more)
        return await self.engine.entries.write(TENANT, draft, revive=revive, consistency=consistency)

    async def write_hourly(self, *contents: str, scope: Scope = SESSION, **more: Any) -> list[Entry]:
        entries = []
        for content in contents:
            self.clock.advance(HOUR)
            entries.append(await self.write(content, scope, **more))
        return entries

    async def hold(self, entry: Entry) -> None:
        hold = LegalHold("case", "entry", entry.id, "r", None, self.clock())
        await self.engine.erasure.holds.place(TENANT, hold, entry.scope.text)

    async def update(self, entry: Entry, **changes: Any) -> Entry:
        return await self.engine.entries.update(TENANT, entry.id, changes)

    async def get(self, entry: Entry, **at: Any) -> Entry | None:
        return await self.engine.entries.get(TENANT, entry.id, **at)

    async def delete(self, entry: Entry) -> bool:
        return bool(await self.engine.deletion.delete(TENANT, entry.id))

    async def move(self, entry: Entry, to: str) -> str:
        return await self.engine.tier_mover.move(ENTRIES, Key(TENANT, entry.id), to)

    async def break_off(self, entry: Entry, to: str) -> None:
        """A move that makes its copy and gets no further: its source has not let go."""
        for store in self.stores:
            store.fails_before.add("move.release")
        with pytest.raises(StoreUnavailable, match=r"fails before move\.release"):
            await self.move(entry, to)
        for store in self.stores:
            store.fails_before.discard("move.release")

    async def browse(self, scope: Scope = SESSION, **more: Any) -> list[str]:
        return [e.content for e in await self.engine.browser.browse(EntryQuery(TENANT, (scope,), **more))]

    async def search(self, text: str, scope: Scope = SESSION, **more: Any) -> list[str]:
        return [
            h.entry.content
            for h in await self.engine.entry_search.search(EntryQuery(TENANT, (scope,), **more), text)
        ]

    async def seen(self, entry: Entry) -> list[str]:
        """What every way of reading shows of an entry, which must agree."""
        got = await self.get(entry)
        asked = EntryQuery(TENANT, (entry.scope,))
        listed = await self.engine.browser.browse(asked)
        found = [hit.entry for hit in await self.engine.entry_search.search(asked, "text")]
        ways = [[e.content for e in way if e.id == entry.id] for way in ([got] if got else [], listed, found)]
        assert ways[0] == ways[1] == ways[2], ways
        return ways[0]

    async def flush(self) -> None:
        """Wait for what is delivered behind writes."""
        await self.engine.deliveries.flush()

    # -- what stands in the stores -----------------------------------------------------

    async def standing(self, store: Flaky, record_id: str, collection: Collection = ENTRIES) -> Stored | None:
        await self.flush()
        return (await InMemoryStore.get(store, collection, [Key(TENANT, record_id)]))[0]

    async def write_undelivered(self, count: int = 1) -> None:
        """Write so many entries whose replica is still to be delivered."""
        self.long.down = True
        for n in range(count):
            await self.write(f"text {n}", scope=USER)
        await self.flush()
        self.heal()

    async def record_of(self, entry: Entry) -> Record:
        """The record of an entry, wherever it is at home."""
        found = (await self.engine.placement.locate(ENTRIES, Key(TENANT, entry.id))).record
        assert found is not None
        return found

    async def stands(self, entry: Entry) -> list[str]:
        """What stands for an entry in short, mid and long."""
        return [_describe(await self.standing(store, entry.id)) for store in self.stores]

    async def rows(self, store: Flaky, collection: Collection) -> list[Record]:
        await self.flush()
        page = await InMemoryStore.query(
            store, Query(collection, Everywhere(), roles=frozenset(Role), types=frozenset({RowType.RECORD}))
        )
        return [r for r in page.records if isinstance(r, Record)]

    async def homes_in(self, scope: Scope) -> list[str]:
        """The ids of the entries of the scope, in every store."""
        rows = [row for store in dict.fromkeys(self.stores) for row in await self.rows(store, ENTRIES)]
        return [row.key.id for row in rows if row.role is Role.HOME and row.scope == scope.text]

    async def settled(self, lapse: timedelta = timedelta(0)) -> Engine:
        """Another process, once every store answers and all is done that is owed; so
        much time passes before each sweep.
        """
        self.heal()
        engine = await self.another_process()
        for _ in range(4):
            self.clock.advance(lapse)
            await engine.maintenance.sweep()
        assert await engine.maintenance.count_pending() == 0
        return engine

    async def owed(self) -> int:
        await self.flush()
        return await self.engine.maintenance.count_pending()


def _describe(row: Stored | None) -> str:
    if row is None:
        return "-"
    if isinstance(row, Record):
        return row.role.value
    return "mark" if isinstance(row, Mark) else "tombstone" if isinstance(row, Tombstone) else "corrupt"
