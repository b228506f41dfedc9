"""The operations that stores on database servers share, in any dialect.

Each public call takes one connection for its whole duration. A call that collides with
another transaction is repeated.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from memory.adapters.sql.naming import format_row
from memory.adapters.sql.server.partitions import ServerDirectory
from memory.adapters.sql.server.pool import Link, Pool, PoolClosed, PoolOptions
from memory.adapters.sql.server.sharing import PutBatcher, is_fresh
from memory.adapters.sql.server.thresholds import ServerThresholds
from memory.adapters.sql.store import SqlStore
from memory.adapters.sql.table import DamagedRow, Table
from memory.domain.errors import ConfigError, InvalidInput, MemoryTiersError, NotOpen, StoreUnavailable
from memory.ports.batch import BatchRollback, WriteCollision
from memory.ports.collections import Collection
from memory.ports.store import Audit, Health
from memory.ports.writes import Outcome, Put, Write

ATTEMPTS = 12
"""The maximum number of attempts for a call that collides with others."""


C = TypeVar("C", bound=Link)
R = TypeVar("R", bound=Table[Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditPage:
    """The result of one page of an audit.

    The next page begins at `after`; None means that there is none.
    """

    checked: int = 0
    problems: Sequence[str] = ()
    after: Any = None


class WriteContention(Exception):
    """Others kept changing the records of a write."""


class ServerStore(SqlStore[C, R], Generic[C, R]):
    """Records on a database server.

    `C` is the dialect's connection, `R` the dialect's table.
    """

    directory: ServerDirectory[C]
    _thresholds: ServerThresholds
    _sharing: PutBatcher

    def __init__(self, name: str, directory: ServerDirectory[C], thresholds: ServerThresholds) -> None:
        super().__init__(name, directory, thresholds)
        self.pool: Pool[C] | None = None
        self._tables: dict[str, R] = {}
        self._stored: dict[str, Collection] = {}
        """Collections as their tables are, where those lack fields.

        This store may not change these tables.
        """
        self._epoch = ""
        self._reads_only = False
        self._patience = 0.0

    @property
    def epoch(self) -> str:
        return self._epoch

    @property
    def reads_only(self) -> bool:
        """Whether the user may change no table.

        A replica refuses writes now, but may take them later.
        """
        return self._reads_only

    def _lend(self, options: PoolOptions[C]) -> None:
        """Begin to lend connections.

        Callers that waited in an event loop that has ended are forgotten.
        """
        self._patience = options.call_patience
        self.pool = Pool(options)
        self._sharing = PutBatcher(
            lambda puts: self._put_shared(puts), self._is_undone, self._thresholds.writes_shared
        )

    def _end_waiting(self) -> None:
        if self.pool is not None:
            self.pool.end_waiting()

    async def _close(self) -> None:
        pool, self.pool = self.pool, None
        if pool is not None:
            await pool.close()
        self.directory.forget()

    async def _check(self) -> Health:
        return await self.with_connection(self._vital_signs)

    @abstractmethod
    async def _vital_signs(self, connection: C) -> Health:
        """Return the store's health as the server reports it."""

    # -- writes ------------------------------------------------------------------------

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if self._stored:
            raise ConfigError(
                f"store '{self.name}' is open to read only: its tables lack fields of this release"
                f" ({', '.join(sorted(self._stored))}). Open it once with a user who may alter tables, then"
                " open it here again"
            )
        return (
            [await self._sharing.put(writes[0])]
            if is_fresh(writes)
            else await self._carry_out(writes, together)
        )

    @abstractmethod
    async def _carry_out(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        """Do the same as `apply`."""

    async def _put_shared(self, puts: Sequence[Put]) -> list[Outcome]:
        """Do the same as `apply`, for the puts of several callers.

        It may fail where some would wait for others' locks: then each is put by itself.
        """
        return await self._carry_out(puts, together=False)

    def _is_undone(self, error: Exception) -> bool:
        """Whether the failed call kept nothing, while the server is there."""
        return self._server_said(error) or isinstance(error, WriteContention | WriteCollision)

    # -- the note of the format --------------------------------------------------------

    @abstractmethod
    async def _versions(self, connection: C, *, locked: bool = False) -> tuple[str | None, str | None]:
        """Return the form of the tables, and the note of the format.

        `locked` keeps others from changing the note in this transaction.
        """

    @abstractmethod
    async def _put_version(self, connection: C, row: str, before: str | None) -> None:
        """Add the row to the table of versions, replacing the one before."""

    async def _read_format(self) -> str | None:
        return (await self.with_connection(self._versions))[1]

    async def _swap_format(self, before: str | None, after: str) -> bool:
        async def swap(connection: C) -> bool:
            await self._versions(connection, locked=True)
            if (await self._versions(connection))[1] != before:
                return False
            await self._put_version(
                connection, format_row(after), None if before is None else format_row(before)
            )
            return True

        return await self._within(swap)

    # -- upkeep ------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        checked, problems = 0, list[str]()
        for name in list(self._tables):
            after: Any = None
            for step in range(len(self._audit_steps(self._tables[name], repair))):
                while True:
                    found = await self.with_connection(
                        lambda connection, name=name, step=step, after=after: self._audit_steps(
                            self._tables[name], repair
                        )[step](connection, after)  # type: ignore[misc]
                    )
                    checked += found.checked
                    problems += found.problems
                    after = found.after
                    if after is None:
                        break
        return Audit(checked, tuple(problems))

    @abstractmethod
    def _audit_steps(self, table: R, repair: bool) -> Sequence[Callable[[C, Any], Awaitable[AuditPage]]]:
        """Return the steps that compare a collection, for an audit.

        Each step runs page by page on a connection, from where its last page ended.
        """

    # -- errors ------------------------------------------------------------------------

    def _translate(self, error: Exception) -> Exception | None:
        if isinstance(error, UnicodeEncodeError) or isinstance(error.__cause__, UnicodeEncodeError):
            return InvalidInput("text", "holds half of a surrogate pair, which is no character")
        if isinstance(error, WriteContention | WriteCollision):
            return StoreUnavailable(
                self.name,
                "other clients kept changing the records of this call; nothing was stored; try again",
            )
        return self._translate_driver(error)

    @abstractmethod
    def _translate_driver(self, error: Exception) -> Exception | None:
        """Return our error for the driver's; None if it is not the driver's."""

    @abstractmethod
    def _is_collision(self, error: Exception) -> bool:
        """Whether two transactions collided.

        Nothing of this one was kept, and it may be repeated at once.
        """

    @abstractmethod
    def _is_outgrown(self, error: Exception) -> bool:
        """Whether a column is missing: its table has grown since the last look.

        See `memory.adapters.sql.columns.checksum_column`.
        """

    @abstractmethod
    async def _look_again(self, connection: C) -> Mapping[str, Collection]:
        """Return the collections as their tables are now."""

    @abstractmethod
    def _make_tables(self, collections: Mapping[str, Collection]) -> dict[str, R]:
        """Return the statements of collections that are as their tables are."""

    @abstractmethod
    def _server_said(self, error: BaseException) -> bool:
        """Whether the server's error leaves the connection usable."""

    # -- connections -------------------------------------------------------------------

    @abstractmethod
    async def _begin(self, connection: C) -> None: ...

    @abstractmethod
    async def _commit(self, connection: C) -> None: ...

    @abstractmethod
    async def _roll_back(self, connection: C) -> None: ...

    def table(self, collection: Collection) -> R:
        return self._tables[collection.name]

    def _table_on(self, connection: C, collection: Collection) -> R:
        return self.table(collection)

    async def with_connection(self, work: Callable[[C], Awaitable[T]]) -> T:
        """Do the work on a connection, and repeat it where that can help.

        After a collision, it starts again a little later. It starts again at once where
        other processes have added to the tables, or where the server has moved; the
        latter is tried once only. Repeats end after about the time that one command may
        take.
        """
        begun = time.monotonic()
        for attempt in range(ATTEMPTS):
            if self.pool is None:
                raise NotOpen(f"store '{self.name}'")
            seen = self._tables
            try:
                async with self.pool.connection() as connection:
                    return await work(connection)
            except PoolClosed:
                raise NotOpen(f"store '{self.name}'") from None
            except Exception as exc:
                again = attempt < ATTEMPTS - 1 and time.monotonic() - begun < self._patience
                if again and self._is_outgrown(exc) and await self._have_grown(seen):
                    continue
                if attempt == 0 and self.pool is not None and self.pool.is_moved(exc):
                    # nothing of it was kept, and a new connection may lead to the
                    # server that took over
                    continue
                if not again or not (isinstance(exc, WriteCollision) or self._is_collision(exc)):
                    raise
                self._on_collision()
            await asyncio.sleep(random.uniform(0, min(0.002 * 2**attempt, 0.25)))  # noqa: S311 - so that the two do not meet again
        raise AssertionError("the last attempt returns or raises")

    async def _have_grown(self, since: Mapping[str, R]) -> bool:
        """Whether tables differ from those that these statements are made for.

        The change may be one that another call has already seen.
        """
        if self._tables is since and self.pool is not None:
            async with self.pool.connection() as connection:
                now = await self._look_again(connection)
            if self._tables is since and any(
                since[name].collection != collection
                or since[name].codec.stored != self._stored.get(name, collection)
                for name, collection in now.items()
            ):
                self._tables = self._make_tables(now)
        return self._tables is not since

    def _on_collision(self) -> None:
        """Called before a call is made again."""

    async def _within(self, work: Callable[[C], Awaitable[T]]) -> T:
        return await self.with_connection(
            lambda connection: self._in_transaction(connection, lambda: work(connection))
        )

    async def _move(self, collection: Collection, unreadable: Sequence[DamagedRow]) -> None:
        """Move each row in its own transaction, so that nobody waits for many rows."""

        async def move(connection: C) -> None:
            table = self.table(collection)
            for one in unreadable:
                await self._in_transaction(connection, lambda one=one: table.quarantine(connection, one))  # type: ignore[misc]

        await self.with_connection(move)

    async def _in_transaction(self, connection: C, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work in one transaction.

        If it ends in any way but an answer of the server's, the connection is dropped.
        """
        await self._begin(connection)
        try:
            result = await work()
        except Exception as exc:
            if (
                isinstance(exc, WriteCollision | BatchRollback | MemoryTiersError) or self._server_said(exc)
            ) and not connection.is_closed():
                await self._roll_back(connection)
            raise
        await self._commit(connection)
        return result
