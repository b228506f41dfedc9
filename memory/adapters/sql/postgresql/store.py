"""The store on PostgreSQL: each public call takes one connection for as long as it lasts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, TypeVar

import asyncpg

from memory.adapters.sql.postgresql import reading
from memory.adapters.sql.postgresql.batches import Batch, Collided, NotTogether
from memory.adapters.sql.postgresql.claims import CLAIMS, parse
from memory.adapters.sql.postgresql.errors import is_collision, translate
from memory.adapters.sql.postgresql.extension import embed_the_rest, speak
from memory.adapters.sql.postgresql.migrate import HEAD, VERSION_TABLE, Found, make_ready
from memory.adapters.sql.postgresql.places import Places
from memory.adapters.sql.postgresql.pool import Connection, Pool, connect, goodbye
from memory.adapters.sql.postgresql.reading import Burial, Spoiled
from memory.adapters.sql.postgresql.searching import search
from memory.adapters.sql.postgresql.settings import Settings
from memory.adapters.sql.postgresql.shelf import Shelf
from memory.adapters.sql.postgresql.writing import Busy, write_one
from memory.adapters.sql.values import Unstorable
from memory.domain.errors import InvalidInput, MemoryTiersError, NotOpen, StoreUnavailable
from memory.ports.base import BaseStore
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.query import Count, Hit, Page, Query, Search
from memory.ports.record import JsonValue, Key, Stored
from memory.ports.store import Health
from memory.ports.writes import Append, Outcome, Write

T = TypeVar("T")

ATTEMPTS = 12
"""How often a transaction is tried that others get in the way of."""


class PostgresStore(BaseStore):
    """Records in a PostgreSQL database of version 13 or later: one table a collection, in a schema of its own. See `PostgresConfig` for options.

    Many processes may use it at once. What is acknowledged is as safe as the server's settings make it: with `fsync` or
    `synchronous_commit` off the store does not claim to be durable. Searches by meaning need the extension pgvector.
    """

    claims: ClassVar[Capabilities] = CLAIMS

    def __init__(self, url: str, name: str = "postgresql", **options: JsonValue) -> None:
        super().__init__(name)
        self._config = parse(name, url, options)
        self._places = Places(self._config.schema)
        self._pool: Pool | None = None
        self._shelves: dict[str, Shelf] = {}
        self._found: Found | None = None
        self._settings: Settings | None = None
        self._epoch = ""

    @property
    def epoch(self) -> str:
        return self._epoch

    # -- life ---------------------------------------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        connection = await connect(self._config)
        try:
            self._settings = await Settings.read(connection, self.name)
            self._found = await make_ready(connection, self._config, self.name, collections)
            if self._found.namespace:
                await speak(connection, self._found.namespace)
                for collection in collections:
                    if collection.vector:
                        await embed_the_rest(connection, self._config.schema, collection.name, self._found.namespace)
        finally:
            await goodbye(connection)
        vector_type = f'"{self._found.namespace}".vector' if self._found.namespace else ""
        self._shelves = {c.name: Shelf(c, self._config.schema, vector_type) for c in collections}
        self._capabilities = self._settings.limit(self.claims)
        if not vector_type:
            self._capabilities = replace(self._capabilities, semantic=False, max_vector_dims=None)
        self._pool = Pool(self._config, self._greet)
        self._epoch = "" if self._capabilities.durable else self._settings.started

    async def _greet(self, connection: Connection) -> None:
        """On each new connection: behind it may be another run of the server, or another database."""
        self._places.forget()
        if self._found is not None and self._found.namespace:
            await speak(connection, self._found.namespace)
        if not self._capabilities.durable and self._settings is not None:
            self._epoch = (await Settings.read(connection, self.name)).started

    async def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        self._places.forget()

    async def _check(self) -> Health:
        assert self._found is not None  # noqa: S101 - it is open
        try:
            settings, revision, size = await self._with(self._vital_signs)
        except Exception as exc:
            ours = exc if isinstance(exc, MemoryTiersError) else self._translate(exc)
            if ours is None:
                raise
            return Health(ok=False, detail=str(ours))
        facts: dict[str, JsonValue] = {"schema": revision, "bytes": size, "pool": self._config.pool_size, **settings.facts}
        facts["pgvector"] = self._found.extension if self._found.namespace else f"off: {self._found.extension}"
        return Health(revision == HEAD, self._config.place, f"PostgreSQL {settings.version}", self._epoch, facts)

    async def _vital_signs(self, connection: Connection) -> tuple[Settings, str, int]:
        settings = await Settings.read(connection, self.name)
        schema = self._config.schema
        revision = await connection.fetchval(f'SELECT version_num FROM "{schema}".{VERSION_TABLE}')  # noqa: S608
        size = await connection.fetchval(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "WHERE n.nspname = $1 AND c.relkind = 'r'",
            schema,
        )
        return settings, str(revision), int(size)

    # -- work ---------------------------------------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        shelf = self._shelf(collection)
        answers, spoiled = await self._with(lambda connection: reading.get(connection, shelf, keys))
        if spoiled:
            await self._set_aside(spoiled)
        return answers

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if len(writes) == 1 and not isinstance(writes[0], Append):
            write = writes[0]
            return [await self._with(lambda connection: write_one(connection, self._shelf, self._places, write))]
        try:
            return await self._with(lambda connection: self._batch(connection, writes, together))
        except NotTogether as undone:
            return undone.outcomes

    async def _batch(self, connection: Connection, writes: Sequence[Write], together: bool) -> list[Outcome]:
        batch = Batch(connection, self._shelf, self._places, writes)
        await batch.prepare()
        return await _in_transaction(connection, lambda: batch.carry_out(together))

    async def _query(self, query: Query) -> Page:
        shelf = self._shelf(query.collection)
        return await self._until_sound(lambda connection: reading.query(connection, shelf, self._places, query))

    async def _count(self, query: Query) -> Count:
        shelf = self._shelf(query.collection)
        return await self._with(lambda connection: reading.count(connection, shelf, self._places, query))

    async def _search(self, wanted: Search) -> list[Hit]:
        shelf = self._shelf(wanted.collection)
        return await self._until_sound(lambda connection: search(connection, shelf, self._places, wanted))

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, keep: Sequence[str]) -> int:
        shelf, burial = self._shelf(query.collection), Burial(query, version, discard_at, keep)

        async def bury(connection: Connection) -> int:
            return await _in_transaction(connection, lambda: reading.delete_matching(connection, shelf, self._places, burial))

        return await self._with(bury)

    def _translate(self, error: Exception) -> Exception | None:
        if isinstance(error, Unstorable):
            return InvalidInput("text", str(error))
        if isinstance(error, Busy | Collided):
            return StoreUnavailable(self.name, "others kept changing what the call is about; nothing of it was kept; try again")
        return translate(self.name, self._config.place, error)

    # -- connections --------------------------------------------------------------------------------------------------

    def _shelf(self, collection: Collection) -> Shelf:
        return self._shelves[collection.name]

    async def _with(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do the work on a connection; again, a little later, where another transaction got in its way."""
        for attempt in range(ATTEMPTS):
            if self._pool is None:
                raise NotOpen(f"store '{self.name}'")
            try:
                async with self._pool.connection() as connection:
                    return await work(connection)
            except (asyncpg.PostgresError, Collided) as exc:
                if not (isinstance(exc, Collided) or is_collision(exc)) or attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(random.uniform(0, min(0.002 * 2**attempt, 0.25)))  # noqa: S311 - so that the two do not meet again
        raise AssertionError("the last attempt returns or raises")

    # -- unreadable rows ----------------------------------------------------------------------------------------------

    async def _until_sound(self, read: Callable[[Connection], Awaitable[tuple[T, list[Spoiled]]]]) -> T:
        """Read; what turns out unreadable is set aside and the reading done again, so that limits and statistics are of what can be read."""
        for _ in range(8):
            answer, spoiled = await self._with(read)
            if not spoiled or not await self._set_aside(spoiled):
                break
        return answer

    async def _set_aside(self, spoiled: Sequence[Spoiled]) -> bool:
        """Whether it could be done. It cannot on a full disk or a standby; the rows still are not served."""
        try:
            await self._with(lambda connection: reading.set_aside(connection, spoiled))
        except Exception as exc:
            if self._translate(exc) is None:
                raise
            return False
        return True


async def _in_transaction(connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
    """Do the work in one transaction. What ends it otherwise than by an answer of the server's leaves the connection to be dropped."""
    await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    try:
        result = await work()
    except (asyncpg.PostgresError, Collided, NotTogether, MemoryTiersError):
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("COMMIT")
    return result
