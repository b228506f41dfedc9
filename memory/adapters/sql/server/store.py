"""What a store on a database server does whatever the dialect: each public call takes one connection for as long as it lasts.

Where another transaction gets in the way the call is made again; what turns out unreadable is set aside and the reading done again.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from memory.adapters.sql.server import reading
from memory.adapters.sql.server.batch import Collided, NotTogether
from memory.adapters.sql.server.places import Places
from memory.adapters.sql.server.pool import Lending, Link, Pool, PoolClosed
from memory.adapters.sql.server.reading import Burial
from memory.adapters.sql.server.shelf import Shelf, Spoiled
from memory.adapters.sql.server.thresholds import ServerThresholds
from memory.domain.errors import InvalidInput, MemoryTiersError, NotOpen, StoreUnavailable
from memory.ports.base import BaseStore
from memory.ports.collections import Collection
from memory.ports.query import Count, Page, Query
from memory.ports.record import Key, Partition, Stored
from memory.ports.storable import Unstorable
from memory.ports.store import Audit, Health

ATTEMPTS = 12
"""How often a call is tried that others get in the way of."""
MOST_PROBLEMS = 100


class Session(Link, Protocol):
    """A connection that a store works with."""


C = TypeVar("C", bound=Session)
S = TypeVar("S", bound=Shelf[Any])
T = TypeVar("T")


class Pooling(Protocol):
    """What a config says of the pool, times in seconds."""

    @property
    def pool_size(self) -> int: ...

    @property
    def pool_timeout(self) -> float: ...

    @property
    def connect_timeout(self) -> float: ...

    @property
    def command_timeout(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Audited:
    """What came of a page of an audit; `after` is where the next one begins, None where there is none."""

    checked: int = 0
    problems: Sequence[str] = ()
    after: Any = None


class Busy(Exception):
    """Others kept changing what a write is about."""


class ServerStore(BaseStore, Generic[C, S]):
    """Records on a database server: `C` is a connection, `S` a shelf, as the dialect has them."""

    def __init__(self, name: str, places: Places[C], thresholds: ServerThresholds) -> None:
        super().__init__(name)
        self._thresholds = thresholds
        self._places = places
        self._pool: Pool[C] | None = None
        self._shelves: dict[str, S] = {}
        self._epoch = ""
        self._patience = 0.0

    @property
    def epoch(self) -> str:
        return self._epoch

    def _lend(
        self,
        config: Pooling,
        connect: Callable[[], Awaitable[C]],
        greet: Callable[[C], Awaitable[None]],
        goodbye: Callable[[C], Awaitable[None]],
        still_good: Callable[[BaseException], bool],
    ) -> None:
        """Begin to lend connections, see `Lending`."""
        self._patience = config.command_timeout
        patience, connect_patience, call_patience = config.pool_timeout, config.connect_timeout, config.command_timeout
        self._pool = Pool(Lending(config.pool_size, patience, connect_patience, call_patience, connect, greet, goodbye, still_good))

    async def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        self._places.forget()

    async def _check(self) -> Health:
        try:
            return await self._with(self._vital_signs)
        except Exception as exc:
            ours = exc if isinstance(exc, MemoryTiersError) else self._translate(exc)
            if ours is None:
                raise
            return Health(ok=False, detail=str(ours))

    @abstractmethod
    async def _vital_signs(self, connection: C) -> Health:
        """How the store is, as the server says."""

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        answers, spoiled = await self._with(lambda connection: reading.get(connection, self._shelf(collection), keys))
        if spoiled:
            await self._set_aside(collection, spoiled)
        return answers

    async def _query(self, query: Query) -> Page:
        return await self._until_sound(query.collection, lambda connection, shelf: reading.query(connection, shelf, self._places, query))

    async def _count(self, query: Query) -> Count:
        return await self._with(lambda connection: reading.count(connection, self._shelf(query.collection), self._places, query))

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]) -> int:
        burial = Burial(query, version, discard_at, carry)

        async def bury(connection: C) -> int:
            shelf = self._shelf(query.collection)
            return await self._in_transaction(connection, lambda: reading.delete_matching(connection, shelf, self._places, burial))

        return await self._with(bury)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    @abstractmethod
    async def _tables(self, connection: C) -> list[str]:
        """The tables of all collections that the database has, opened with or not."""

    async def _audit(self, repair: bool) -> Audit:
        checked, problems = 0, list[str]()
        for name in list(self._shelves):
            place: Any = None
            for step in range(len(self._audit_steps(self._shelves[name], repair))):
                while True:
                    found = await self._with(
                        lambda connection, name=name, step=step, place=place: self._audit_steps(self._shelves[name], repair)[step](connection, place)  # type: ignore[misc]
                    )
                    checked += found.checked
                    problems += found.problems
                    place = found.after
                    if place is None:
                        break
        return Audit(checked, tuple(problems[:MOST_PROBLEMS]))

    @abstractmethod
    def _audit_steps(self, shelf: S, repair: bool) -> Sequence[Callable[[C, Any], Awaitable[Audited]]]:
        """What is to be compared of a collection: each is done page by page, on a connection, from where its last page ended."""

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        async def look(connection: C) -> list[tuple[Partition, int]]:
            return await self._places.idle(connection, await self._tables(connection), limit)

        return await self._with(look)

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        wanted = dict(idle)

        async def forget(connection: C) -> int:
            tables = await self._tables(connection)
            most = self._thresholds.partitions_forgotten
            portions = [dict(list(wanted.items())[start : start + most]) for start in range(0, len(wanted), most)]
            forgotten = 0
            for some in portions:
                forgotten += await self._in_transaction(connection, lambda some=some: self._places.forget_idle(connection, tables, some))  # type: ignore[misc]
            return forgotten

        return await self._with(forget)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _translate(self, error: Exception) -> Exception | None:
        if isinstance(error, Unstorable):
            return InvalidInput("text", str(error))
        if isinstance(error, UnicodeEncodeError):
            return InvalidInput("text", "holds half of a surrogate pair, which is no character")
        if isinstance(error, Busy | Collided):
            return StoreUnavailable(self.name, "others kept changing what the call is about; nothing of it was kept; try again")
        return self._translate_driver(error)

    @abstractmethod
    def _translate_driver(self, error: Exception) -> Exception | None:
        """Our error for the driver's; None for what is not the driver's."""

    @abstractmethod
    def _is_collision(self, error: Exception) -> bool:
        """Two transactions got in each other's way: nothing of this one was kept, and it may be done again at once."""

    @abstractmethod
    def _is_outgrown(self, error: Exception) -> bool:
        """A column is not there: its table was given more fields since it was looked at, see `memory.adapters.sql.columns.checksum_column`."""

    @abstractmethod
    async def _look_again(self, connection: C) -> Mapping[str, Collection]:
        """The collections as their tables are now."""

    @abstractmethod
    def _shelved(self, tables: Mapping[str, Collection]) -> dict[str, S]:
        """The shelves of collections that are as their tables are."""

    @abstractmethod
    def _server_said(self, error: BaseException) -> bool:
        """Whether the server answered with an error, after which the connection can be used."""

    # -- connections --------------------------------------------------------------------------------------------------

    @abstractmethod
    async def _begin(self, connection: C) -> None: ...

    @abstractmethod
    async def _commit(self, connection: C) -> None: ...

    @abstractmethod
    async def _roll_back(self, connection: C) -> None: ...

    def _shelf(self, collection: Collection) -> S:
        return self._shelves[collection.name]

    async def _with(self, work: Callable[[C], Awaitable[T]]) -> T:
        """Do the work on a connection; again, a little later, where another transaction got in its way, for about as long as one command may take."""
        begun = time.monotonic()
        for attempt in range(ATTEMPTS):
            if self._pool is None:
                raise NotOpen(f"store '{self.name}'")
            shelves = self._shelves
            try:
                async with self._pool.connection() as connection:
                    return await work(connection)
            except PoolClosed:
                raise NotOpen(f"store '{self.name}'") from None
            except Exception as exc:
                again = attempt < ATTEMPTS - 1 and time.monotonic() - begun < self._patience
                if again and self._is_outgrown(exc) and await self._have_grown(shelves):
                    continue
                if not again or not (isinstance(exc, Collided) or self._is_collision(exc)):
                    raise
                self._collided()
            await asyncio.sleep(random.uniform(0, min(0.002 * 2**attempt, 0.25)))  # noqa: S311 - so that the two do not meet again
        raise AssertionError("the last attempt returns or raises")

    async def _have_grown(self, since: Mapping[str, S]) -> bool:
        """Whether tables are others than these shelves are for, also by what another call has seen already."""
        if self._shelves is since and self._pool is not None:
            async with self._pool.connection() as connection:
                tables = await self._look_again(connection)
            if self._shelves is since and any(since[name].collection != table for name, table in tables.items()):
                self._shelves = self._shelved(tables)
        return self._shelves is not since

    def _collided(self) -> None:
        """Told before a call is made again."""

    async def _in_transaction(self, connection: C, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work in one transaction. What ends it otherwise than by an answer of the server's leaves the connection to be dropped."""
        await self._begin(connection)
        try:
            result = await work()
        except Exception as exc:
            if (isinstance(exc, Collided | NotTogether | MemoryTiersError) or self._server_said(exc)) and not connection.is_closed():
                await self._roll_back(connection)
            raise
        await self._commit(connection)
        return result

    # -- unreadable rows ----------------------------------------------------------------------------------------------

    async def _until_sound(self, collection: Collection, read: Callable[[C, S], Awaitable[tuple[T, list[Spoiled]]]]) -> T:
        """Read; what turns out unreadable is set aside and the reading done again, so that limits and statistics are of what can be read."""
        for _ in range(8):
            answer, spoiled = await self._with(lambda connection: read(connection, self._shelf(collection)))
            if not spoiled or not await self._set_aside(collection, spoiled):
                break
        return answer

    async def _set_aside(self, collection: Collection, spoiled: Sequence[Spoiled]) -> bool:
        """Whether it could be done. It cannot on a full disk or a standby; the rows still are not served."""

        async def move(connection: C) -> None:
            shelf = self._shelf(collection)
            for one in spoiled:
                await self._in_transaction(connection, lambda one=one: shelf.set_aside(connection, one))  # type: ignore[misc]

        try:
            await self._with(move)
        except Exception as exc:
            if self._translate(exc) is None:
                raise
            return False
        return True
