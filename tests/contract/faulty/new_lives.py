"""Faulty adapters, written without a look at the suite: restarts, upkeep, calls at
once, other processes and files.
"""

from __future__ import annotations

import asyncio
import copy
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.ports.collections import Collection
from memory.ports.query import MAX_LIMIT, Query
from memory.ports.record import Key, Mark, PendingStep, Record, Stored
from memory.ports.store import Store
from memory.ports.writes import Annotate, Outcome, Put, Status, Write
from tests.contract.faulty.registry import FAULTY_ADAPTERS, PerWrite, faulty_adapter
from tests.contract.harnesses import InMemory, InMemoryServer, Sqlite

# -- restarts --------------------------------------------------------------------------


@faulty_adapter(
    "test_everything_stands_after_the_death_of_a_durable_store_as_it_stood_before", InMemoryServer
)
class LosesWhatFollowsARestart(InMemoryStore):
    """It reads its journal when it starts, and writes a new one that nobody reads."""

    def restart(self, keep: bool) -> None:
        first = getattr(self.state, "first", None)
        if first is None:
            self.state.first = self.state.snapshot()  # type: ignore[attr-defined]
        else:
            self.state.restore(first)
        super().restart(keep)


@faulty_adapter(
    "test_everything_stands_after_the_death_of_a_durable_store_as_it_stood_before", InMemoryServer
)
class RestartForgetsDatedMarks(InMemoryStore):
    def restart(self, keep: bool) -> None:
        for name in self._collections:
            for standing in list(self.state.everything(name)):
                if isinstance(standing, Mark) and standing.discard_at is not None:
                    self.state.place(name, standing.key, None)
        super().restart(keep)


@faulty_adapter(
    "test_everything_stands_after_the_death_of_a_durable_store_as_it_stood_before", InMemoryServer
)
class RestartRevivesSettledSteps(PerWrite):
    """What an annotation settles is not in its journal."""

    def lie(self, write: Write) -> Outcome:
        before = (
            self.state.fetch_stored(write.collection.name, write.key)
            if isinstance(write, Annotate) and write.settle
            else None
        )
        outcome = super().lie(write)
        if isinstance(write, Annotate) and before is not None and before.owed and outcome.applied:
            if not hasattr(self.state, "settled"):
                self.state.settled = {}  # type: ignore[attr-defined]
            self.state.settled[write.collection.name, write.key] = (before.version, before.owed)  # type: ignore[attr-defined]
        return outcome

    def restart(self, keep: bool) -> None:
        settled: dict[tuple[str, Key], tuple[int, tuple[PendingStep, ...]]] = getattr(
            self.state, "settled", {}
        )
        for (name, key), (version, owed) in settled.items():
            stored = self.state.fetch_stored(name, key)
            if stored is not None and stored.version == version:
                self.state.place(name, key, replace(stored, owed=owed))
        super().restart(keep)


class _LossWindow(InMemory):
    """It says that a hundredth of a second is lost at most, and loses all."""

    claims = replace(InMemory.claims, loss_window=timedelta(milliseconds=10))


@faulty_adapter("test_what_was_acknowledged_before_the_loss_window_survives_a_death", _LossWindow)
class ClaimsALossWindow(InMemoryStore):
    """It writes nothing to the disk."""


# -- upkeep and many calls at once -----------------------------------------------------


@faulty_adapter("test_an_audit_beside_writers_takes_their_writes_for_no_damage")
class VacuumDropsWrites(InMemoryStore):
    """It copies everything to a new file, and puts that in the place of the old one."""

    async def _vacuum(self) -> int:
        held = self.state.snapshot()
        for _ in range(10):
            await asyncio.sleep(0)
        self.state.restore(held)
        return 0


@faulty_adapter("test_reads_and_writes_at_once_disturb_no_one")
class LosesWhatItsQueueCannotTake(InMemoryStore):
    """256 calls wait; what comes while the queue is full is acknowledged and dropped."""

    _waiting = 0

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        self._waiting += 1
        try:
            await asyncio.sleep(0)
            if self._waiting > 256:
                return [
                    (
                        Outcome(Status.APPLIED, w.record.version, generation=0)
                        if isinstance(w, Put)
                        else Outcome(Status.APPLIED)
                    )
                    for w in writes
                ]
            return await super()._apply(writes, together)
        finally:
            self._waiting -= 1


# -- SQLite: other processes and files -------------------------------------------------


def sqlite_faulty_adapter(caught_by: str) -> Callable[[type[SqliteStore]], type[SqliteStore]]:
    def register(store_type: type[SqliteStore]) -> type[SqliteStore]:
        def make(self: Sqlite) -> Store:
            return store_type(f"sqlite:///{self.folder / 'memory.db'}", name="sqlite")

        name = f"{store_type.__name__}Harness"
        harness = type(
            name,
            (Sqlite,),
            {"name": store_type.__name__, "_store": make, "__module__": store_type.__module__},
        )
        FAULTY_ADAPTERS[store_type.__name__] = (harness, caught_by)
        setattr(sys.modules[store_type.__module__], name, harness)
        return store_type

    return register


@sqlite_faulty_adapter("test_two_processes_see_each_others_writes_at_once_and_lose_none")
class CachesInTheProcess(SqliteStore):
    """All stores of a process share what was read; those of another process change it
    unseen.
    """

    _read: ClassVar[dict[tuple[str, str, Key], Stored | None]] = {}

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        place = str(self.path)
        if any((place, collection.name, key) not in self._read for key in keys):
            for key, stored in zip(keys, await super()._get(collection, keys), strict=True):
                self._read[place, collection.name, key] = stored
        return [copy.deepcopy(self._read[place, collection.name, key]) for key in keys]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        try:
            return await super()._apply(writes, together)
        finally:
            self._read.clear()

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        try:
            return await super()._delete_matching(query, version, discard_at, carry)
        finally:
            self._read.clear()

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._read.clear()
        await super()._open(collections)


class _KeepsVersions(SqliteStore):
    """It has a table of what stood there before, to restore it."""

    def keep(self, stored: Any) -> None:
        with closing(sqlite3.connect(str(self.path), timeout=10)) as file, file:
            file.execute("CREATE TABLE IF NOT EXISTS kept (said TEXT)")
            file.execute("INSERT INTO kept VALUES (?)", (repr((dict(stored.texts), dict(stored.body))),))


@sqlite_faulty_adapter("test_erased_text_is_in_no_file_after_a_vacuum")
class ErasingPutKeepsACopy(_KeepsVersions):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        erasing = [w for w in writes if isinstance(w, Put) and w.erases]
        stood = [(await super(_KeepsVersions, self)._get(w.collection, [w.key]))[0] for w in erasing]
        outcomes = await super()._apply(writes, together)
        for stored in stood:
            if isinstance(stored, Record):
                self.keep(stored)
        return outcomes


@sqlite_faulty_adapter("test_erased_text_is_in_no_file_after_a_vacuum")
class ErasureKeepsACopy(_KeepsVersions):
    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        page = await self._query(replace(query, cursor=None, order=(), select=None, limit=MAX_LIMIT))
        count = await super()._delete_matching(query, version, discard_at, carry)
        for stored in page.records:
            if isinstance(stored, Record):
                self.keep(stored)
        return count
