"""The store: each public call is one hop into the driver's thread, where one function does the work in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import ClassVar, TypeVar

import sqlalchemy as sa

from memory.adapters.sql.sqlite import reads
from memory.adapters.sql.sqlite.claims import CLAIMS, parse
from memory.adapters.sql.sqlite.driver import SqliteDriver
from memory.adapters.sql.sqlite.errors import is_damage, translate
from memory.adapters.sql.sqlite.fulltext import word_index_of
from memory.adapters.sql.sqlite.members import MemberCache
from memory.adapters.sql.sqlite.migrate import HEAD, make_ready
from memory.adapters.sql.sqlite.partitions import Numbers
from memory.adapters.sql.sqlite.reads import Spoiled
from memory.adapters.sql.sqlite.searching import search
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.shelf import shelf_of
from memory.adapters.sql.sqlite.writes import NotTogether, carry_out
from memory.domain.errors import InvalidInput, MemoryTiersError
from memory.ports.base import BaseStore
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.query import Count, Hit, Page, Query, Search
from memory.ports.record import Corrupt, JsonValue, Key, Stored
from memory.ports.store import Health
from memory.ports.writes import Outcome, Write

T = TypeVar("T")


class SqliteStore(BaseStore):
    """Records in a SQL database: one table a collection, today in SQLite.

    A file may be open in many processes at once. With `synchronous=NORMAL`, the default, the death of a process loses nothing that was
    acknowledged; the death of the whole machine may cost the commits of the last moments, never the file. `synchronous=FULL` waits for
    the disk at every commit and closes that window. See `SqliteConfig` for the options.
    """

    claims: ClassVar[Capabilities] = CLAIMS
    """In a literal of its own, readable without SQLAlchemy. A store in memory (`sqlite:///:memory:`) is neither durable nor shared."""

    def __init__(self, url: str, name: str = "sqlite", **options: JsonValue) -> None:
        super().__init__(name)
        self._config = parse(name, url, options)
        self._driver = SqliteDriver(name, self._config)
        self._numbers = Numbers()
        self._cache = MemberCache(self._config.cache_bytes)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._numbers = Numbers()
        self._cache = MemberCache(self._config.cache_bytes)
        if self._config.path is None:
            self._capabilities = replace(self.claims, durable=False, shared=False)
        await self._driver.open(lambda session: make_ready(session, self.name, collections, _create_words))

    async def _close(self) -> None:
        await self._driver.close()
        self._cache.clear()

    async def _check(self) -> Health:
        path = self._config.path
        facts: dict[str, JsonValue] = {} if path is None else {"path": str(path.resolve())}
        try:
            version, revision, pages, size = await self._driver.read(_vital_signs)
        except Exception as exc:
            ours = exc if isinstance(exc, MemoryTiersError) else self._translate(exc)
            if ours is None:
                raise
            return Health(ok=False, detail=str(ours), facts=facts)
        facts |= {"schema": revision, "bytes": pages * size, "synchronous": self._config.synchronous}
        return Health(ok=revision == HEAD, detail=str(path or "in memory"), version=f"SQLite {version}", facts=facts)

    # -- work ---------------------------------------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        shelf = shelf_of(collection)
        try:
            answers, spoiled = await self._driver.read(lambda session: reads.get(session, shelf, keys))
        except Exception as exc:
            if not is_damage(exc):
                raise
            return [await self._get_alone(collection, key) for key in keys]
        if spoiled:
            await self._set_aside(spoiled)
        return answers

    async def _get_alone(self, collection: Collection, key: Key) -> Stored | None:
        """One key of a damaged file: the damage may be elsewhere."""
        shelf = shelf_of(collection)
        try:
            answers, _ = await self._driver.read(lambda session: reads.get(session, shelf, [key]))
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
        return await self._until_sound(lambda session: reads.query(session, query, self._numbers))

    async def _count(self, query: Query) -> Count:
        return await self._driver.read(lambda session: reads.count(session, query, self._numbers))

    async def _search(self, wanted: Search) -> list[Hit]:
        return await self._until_sound(lambda session: search(session, wanted, self._numbers, self._cache))

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, keep: Sequence[str]) -> int:
        work = partial(reads.delete_matching, query=query, version=version, discard_at=discard_at, keep=keep, numbers=Numbers())
        return await self._driver.write(work)

    def _translate(self, error: Exception) -> Exception | None:
        if isinstance(error, UnicodeEncodeError):
            return InvalidInput("text", "holds half of a surrogate pair, which is no character")
        return translate(self.name, error)

    # -- unreadable rows ----------------------------------------------------------------------------------------------

    async def _until_sound(self, read: Callable[[Session], tuple[T, list[Spoiled]]]) -> T:
        """Read; what turns out unreadable is set aside and the reading done again, so that limits and statistics are of what can be read."""
        for _ in range(8):
            answer, spoiled = await self._driver.read(read)
            if not spoiled or not await self._set_aside(spoiled):
                break
        return answer

    async def _set_aside(self, spoiled: Sequence[Spoiled]) -> bool:
        """Whether it could be done. It cannot on a full disk or in a file whose structure is damaged; the rows still are not served."""
        try:
            await self._driver.write(lambda session: reads.set_aside(session, spoiled))
        except Exception as exc:
            if self._translate(exc) is None:
                raise
            return False
        return True


def _create_words(connection: sa.Connection, collection: Collection) -> None:
    index = word_index_of(collection)
    if index is not None:
        index.create(connection)


def _vital_signs(session: Session) -> tuple[str, str, int, int]:
    version = session.row("SELECT sqlite_version()")[0]
    revision = session.row("SELECT version_num FROM memory_schema_version")[0]
    return version, revision, session.row("PRAGMA page_count")[0], session.row("PRAGMA page_size")[0]
