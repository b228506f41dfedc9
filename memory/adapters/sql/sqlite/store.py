"""The store: each public call is one hop into the driver's thread, where one function does the work in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from memory.adapters.sql.migrate import FORM
from memory.adapters.sql.sqlite import partitions, reads
from memory.adapters.sql.sqlite.audit import MOST_PROBLEMS, audit
from memory.adapters.sql.sqlite.batch import carry_out, delete_matching
from memory.adapters.sql.sqlite.config import CLAIMS, THRESHOLDS, Thresholds, parse
from memory.adapters.sql.sqlite.connection import SqliteDriver
from memory.adapters.sql.sqlite.errors import is_damage, translate
from memory.adapters.sql.sqlite.members import MemberCache
from memory.adapters.sql.sqlite.migrate import make_ready, tables_there
from memory.adapters.sql.sqlite.reads import Unreadable
from memory.adapters.sql.sqlite.search import search
from memory.adapters.sql.sqlite.session import Session
from memory.domain.errors import InvalidInput, MemoryTiersError
from memory.ports.base import BaseStore
from memory.ports.batch import NotTogether
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.machine import WRITTEN_BACK, run_of_the_machine
from memory.ports.quarantine import quarantined, sound
from memory.ports.query import Count, Everywhere, Hit, Page, Query, Search, Tenant
from memory.ports.record import Corrupt, JsonValue, Key, Partition, Stored
from memory.ports.store import Audit, Health
from memory.ports.writes import Outcome, Write

T = TypeVar("T")


class SqliteStore(BaseStore):
    """Records in a SQL database: one table a collection, today in SQLite.

    A file may be open in many processes at once. Every commit waits for the disk: what was acknowledged survives the death of the process and
    of the machine. With `synchronous=NORMAL` it does not wait: the death of a process still loses nothing, that of the machine may cost the
    commits of the last half minute, never the file. See `SqliteConfig` for the options.
    """

    claims: ClassVar[Capabilities] = CLAIMS
    """In a literal of its own, readable without SQLAlchemy. A store in memory (`sqlite:///:memory:`) is neither durable nor shared."""

    def __init__(self, url: str, name: str = "sqlite", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue) -> None:
        super().__init__(name)
        self._config = replace(parse(name, url, options), thresholds=thresholds)
        self._run = ""
        if self._config.path is None:
            self._capabilities = replace(self.claims, durable=False, shared=False)
        elif self._config.synchronous == "NORMAL":
            self._capabilities = replace(self.claims, durable=False, loss_window=WRITTEN_BACK)
            self._run = run_of_the_machine()
        self._driver = SqliteDriver(name, self._config)
        self._cache = MemberCache(self._config.cache_bytes)

    @property
    def epoch(self) -> str:
        """Where commits do not wait for the disk the run of the machine, in memory that of the store: their ends may cost what they held."""
        return self._run

    @property
    def path(self) -> Path | None:
        return None if self._config.path is None else self._config.path.absolute()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._cache = MemberCache(self._config.cache_bytes)
        if self._config.path is None:
            self._run = secrets.token_hex(8)
        await self._driver.open(
            lambda session: make_ready(session, self.name, collections), lambda session: tables_there(session, self.name, collections)
        )

    async def _close(self) -> None:
        await self._driver.close()
        self._cache.clear()

    async def _check(self) -> Health:
        path = self._config.path
        facts: dict[str, JsonValue] = {} if path is None else {"path": str(path.resolve())}
        try:
            version, form, pages, size = await self._driver.read(_vital_signs)
        except Exception as exc:
            ours = exc if isinstance(exc, MemoryTiersError) else self._translate(exc)
            if ours is None:
                raise
            return Health(ok=False, detail=str(ours), epoch=self.epoch, facts=facts)
        facts |= {"schema": form, "bytes": pages * size, "synchronous": self._config.synchronous}
        return Health(ok=form == str(FORM), detail=str(path or "in memory"), version=f"SQLite {version}", epoch=self.epoch, facts=facts)

    # -- work ---------------------------------------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        try:
            answers, unreadable = await self._driver.read(lambda session: reads.get(session, collection, keys))
        except Exception as exc:
            if not is_damage(exc):
                raise
            return [await self._get_alone(collection, key) for key in keys]
        if unreadable:
            await self._into_quarantine(unreadable)
        return answers

    async def _get_alone(self, collection: Collection, key: Key) -> Stored | None:
        """One key of a damaged file: the damage may be elsewhere."""
        try:
            answers, _ = await self._driver.read(lambda session: reads.get(session, collection, [key]))
        except Exception as exc:
            if not is_damage(exc):
                raise
            return Corrupt(key, "the file is damaged where it was")
        return answers[0]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        try:
            return await self._driver.write(lambda session: carry_out(session, writes, together))
        except NotTogether as undone:
            return undone.outcomes

    async def _query(self, query: Query) -> Page:
        return await self._until_sound(lambda session: reads.query(session, query))

    async def _count(self, query: Query) -> Count:
        return await self._driver.read(lambda session: reads.count(session, query))

    async def _search(self, wanted: Search) -> list[Hit]:
        return await self._driver.read(lambda session: search(session, wanted, self._cache))

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]) -> int:
        work = partial(delete_matching, query=query, version=version, discard_at=discard_at, carry=carry)
        return await self._driver.write(work)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        collections = tuple(self._collections.values())
        found = await self._driver.read_beside(lambda session: audit(session, collections, repair=False))
        cached = await self._driver.read(lambda session: self._cache.differing(session, repair))
        if repair and found.problems:
            await self._driver.write(lambda session: audit(session, collections, repair=True))
        return Audit(found.checked, (found.problems + tuple(cached))[:MOST_PROBLEMS])

    async def _vacuum(self) -> int:
        return await self._driver.shrink()

    async def _partitions(self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int) -> list[tuple[Partition, int]]:
        return await self._driver.read(lambda session: partitions.listed(session, where, prefix, after, limit))

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return await self._driver.read_beside(lambda session: partitions.idle(session, limit))

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await self._driver.write(lambda session: partitions.forget(session, idle))

    def _translate(self, error: Exception) -> Exception | None:
        if isinstance(error, UnicodeEncodeError):
            return InvalidInput("text", "holds half of a surrogate pair, which is no character")
        return translate(self.name, error)

    # -- unreadable rows ----------------------------------------------------------------------------------------------

    async def _until_sound(self, read: Callable[[Session], tuple[T, list[Unreadable]]]) -> T:
        """Read; what cannot be read goes into the quarantine, and it is read again: limits are of what can be read."""
        return await sound(lambda: self._driver.read(read), self._into_quarantine)

    async def _into_quarantine(self, unreadable: Sequence[Unreadable]) -> bool:
        """Whether it could be done; the rows are not served either way."""
        return await quarantined(self.name, self._moved, unreadable, self._translate)

    async def _moved(self, unreadable: Sequence[Unreadable]) -> None:
        await self._driver.write(lambda session: reads.into_quarantine(session, unreadable))


def _vital_signs(session: Session) -> tuple[str, str, int, int]:
    version = session.row("SELECT sqlite_version()")[0]
    form = session.row("SELECT version_num FROM memory_schema_version")[0]
    return version, form, session.row("PRAGMA page_count")[0], session.row("PRAGMA page_size")[0]
