"""The SQLite store: each public call is one hop into the driver's thread.

There one coroutine, which never waits, does the work in one transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from memory.adapters.sql import reading
from memory.adapters.sql.naming import BARE_FORM
from memory.adapters.sql.shapes import is_comparable
from memory.adapters.sql.sqlite.audit import audit
from memory.adapters.sql.sqlite.batch import carry_out
from memory.adapters.sql.sqlite.bodies import has_json
from memory.adapters.sql.sqlite.candidates import candidates
from memory.adapters.sql.sqlite.config import CLAIMS, THRESHOLDS, Thresholds, parse
from memory.adapters.sql.sqlite.connection import SqliteDriver
from memory.adapters.sql.sqlite.errors import is_damage, translate
from memory.adapters.sql.sqlite.members import MemberCache
from memory.adapters.sql.sqlite.migrate import (
    SqliteSchema,
    complete,
    make_ready,
    swap_format,
    tables_there,
    versions,
)
from memory.adapters.sql.sqlite.partitions import SqliteDirectory
from memory.adapters.sql.sqlite.search import search
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import SqliteTable, index_bodies, table_of
from memory.adapters.sql.sqlite.worker import run_synchronously
from memory.adapters.sql.store import SqlStore
from memory.adapters.sql.table import DamagedRow
from memory.domain.errors import InvalidInput
from memory.ports.batch import BatchRollback
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.machine import WRITTEN_BACK, run_of_the_machine
from memory.ports.query import Hit, JsonPath, Search
from memory.ports.record import Corrupt, JsonValue, Key, Stored
from memory.ports.store import Audit, Health
from memory.ports.writes import Outcome, Write

T = TypeVar("T")


class SqliteStore(SqlStore[Session, SqliteTable]):
    """Records in a SQLite file, with one table per collection.

    Many processes may open a file at once. Every commit waits for the disk, so
    acknowledged writes survive the death of the process and of the machine. With
    `synchronous=NORMAL` commits do not wait. The death of a process still loses
    nothing; the death of the machine may lose the commits of the last half minute,
    never the file. See `SqliteConfig` for the options.
    """

    claims: ClassVar[Capabilities] = CLAIMS
    """A literal of its own, readable without SQLAlchemy.

    A store in memory (`sqlite:///:memory:`) is neither durable nor shared.
    """

    def __init__(
        self, url: str, name: str = "sqlite", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue
    ) -> None:
        super().__init__(name, SqliteDirectory(), thresholds)
        self.config = replace(parse(name, url, options), thresholds=thresholds)
        self._run = ""
        self._has_json = False
        """Whether SQLite was built with its JSON functions."""
        if self.config.path is None:
            self._capabilities = replace(self.claims, durable=False, shared=False)
        elif self.config.synchronous == "NORMAL":
            self._capabilities = replace(self.claims, durable=False, loss_window=WRITTEN_BACK)
            self._run = run_of_the_machine()
        self.driver = SqliteDriver(name, self.config)
        self._cache = MemberCache(self.config.cache_bytes)

    @property
    def epoch(self) -> str:
        """Identify the run whose end may lose data, or return an empty string.

        Where commits do not wait for the disk, it is the run of the machine. In memory
        it is the run of the store.
        """
        return self._run

    @property
    def path(self) -> Path | None:
        return None if self.config.path is None else self.config.path.absolute()

    # -- life --------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._cache = MemberCache(self.config.cache_bytes)
        if self.config.path is None:
            self._run = secrets.token_hex(8)
        schema = SqliteSchema(self.name)
        await self.driver.open(
            lambda session: make_ready(session, schema, collections),
            lambda session: tables_there(session, schema, collections),
            lambda session: complete(session, schema, collections),
        )
        self._take_format(schema.noted)
        self._has_json = await self.driver.read(has_json)
        if not self._has_json:
            return
        self.driver.declarations.json_paths = self.json_paths
        if self.json_paths and not self.driver.is_read_only:
            there = {collection.name: collection for collection in collections}
            await self.driver.write(lambda session: index_bodies(session, there))

    async def _read_format(self) -> str | None:
        return await self.driver.read(lambda session: versions(session)[1])

    async def _swap_format(self, before: str | None, after: str) -> bool:
        return await self.driver.write(lambda session: swap_format(session, before, after))

    @property
    def reads_only(self) -> bool:
        return self.driver.is_read_only

    async def _close(self) -> None:
        await self.driver.close()
        self._cache.clear()

    def _reads_json(self, part: JsonPath) -> bool:
        return self._has_json and is_comparable(part)

    async def _check(self) -> Health:
        await self.driver.check_files()
        version, form, pages, size, in_quarantine = await self.driver.read(_vital_signs)
        facts: dict[str, JsonValue] = {
            "schema": form,
            "bytes": pages * size,
            "synchronous": self.config.synchronous,
        }
        facts |= {"read_only": True} if self.driver.is_read_only else {}
        return Health(
            form == str(BARE_FORM),
            str(self.config.path or "in memory"),
            f"SQLite {version}",
            self.epoch,
            facts,
            in_quarantine,
        )

    # -- work --------------------------------------------------------------------------

    async def with_connection(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        return await self.driver.read(lambda session: run_synchronously(work(session)))

    async def _at_length(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        return await self.driver.read_beside(lambda session: run_synchronously(work(session)))

    async def _within(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        return await self.driver.write(lambda session: run_synchronously(work(session)))

    def _table_on(self, connection: Session, collection: Collection) -> SqliteTable:
        return table_of(connection, collection)

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        try:
            return await super()._get(collection, keys)
        except Exception as exc:
            if not is_damage(exc):
                raise
        return [await self._get_alone(collection, key) for key in keys]

    async def _get_alone(self, collection: Collection, key: Key) -> Stored | None:
        """Read one key of a damaged file: the damage may be elsewhere."""
        try:
            answers, _ = await self.with_connection(
                lambda session: reading.get(session, table_of(session, collection), [key])
            )
        except Exception as exc:
            if not is_damage(exc):
                raise
            return Corrupt(key, "the file is damaged where it was")
        return answers[0]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        try:
            return await self._within(lambda session: carry_out(session, writes, together))
        except BatchRollback as undone:
            return undone.outcomes

    async def _search(self, wanted: Search) -> list[Hit]:
        return await self.with_connection(
            lambda session: search(session, self.directory, wanted, self._cache)
        )

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return await self.with_connection(
            lambda session: candidates(session, self.directory, asked, self._cache)
        )

    async def _move(self, collection: Collection, unreadable: Sequence[DamagedRow]) -> None:
        async def move(session: Session) -> None:
            for one in unreadable:
                await table_of(session, collection).quarantine(session, one)

        await self._within(move)

    async def _names(self, connection: Session) -> list[str]:
        return [name for (name,) in connection.rows("SELECT name FROM memory_collections")]

    # -- upkeep ------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        collections = tuple(self._collections.values())
        found = await self.driver.read_beside(lambda session: audit(session, collections, repair=False))
        cached = await self.driver.read(lambda session: self._cache.differences(session, repair))
        if repair and found.problems:
            await self.driver.write(lambda session: audit(session, collections, repair=True))
        return Audit(found.checked, found.problems + tuple(cached))

    async def _vacuum(self) -> int:
        return await self.driver.shrink()

    def _translate(self, error: Exception) -> Exception | None:
        if isinstance(error, UnicodeEncodeError):
            return InvalidInput("text", "holds half of a surrogate pair, which is no character")
        return translate(self.name, error)


def _vital_signs(session: Session) -> tuple[str, str | None, int, int, int]:
    version = session.row("SELECT sqlite_version()")[0]
    form, _ = versions(session)
    in_quarantine = session.row("SELECT count(*) FROM memory_quarantine")[0]
    return (
        version,
        form,
        session.row("PRAGMA page_count")[0],
        session.row("PRAGMA page_size")[0],
        in_quarantine,
    )
