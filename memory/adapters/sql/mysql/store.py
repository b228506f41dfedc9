"""The store on MySQL and MariaDB."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from memory.adapters.sql.mysql.audit import audit_registries, audit_rows, audit_words
from memory.adapters.sql.mysql.batch import MyBatch, NumberAllocator, annotate, put_absent
from memory.adapters.sql.mysql.candidates import candidates
from memory.adapters.sql.mysql.config import CLAIMS, parse
from memory.adapters.sql.mysql.connection import Connection, connect
from memory.adapters.sql.mysql.errors import (
    NO_COLUMN,
    is_collision,
    is_read_only,
    no_room,
    number_of,
    server_said,
    translate,
)
from memory.adapters.sql.mysql.filters import is_comparable
from memory.adapters.sql.mysql.flavour import MARIADB
from memory.adapters.sql.mysql.migrate import MySqlSchema, look, make_ready, may_only_read, refusal_of_writes
from memory.adapters.sql.mysql.partitions import MyDirectory
from memory.adapters.sql.mysql.search import IndexBacklog, search
from memory.adapters.sql.mysql.settings import Settings
from memory.adapters.sql.mysql.table import MyTable
from memory.adapters.sql.mysql.thresholds import THRESHOLDS, Thresholds
from memory.adapters.sql.naming import TableNames, form_and_format
from memory.adapters.sql.server.pool import PoolOptions
from memory.adapters.sql.server.store import AuditPage, ServerStore
from memory.adapters.sql.several import in_list
from memory.domain.errors import MemoryTiersError, NotOpen
from memory.ports.batch import BatchRollback, WriteCollision
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.query import Hit, JsonPath, Search
from memory.ports.record import JsonValue, Record
from memory.ports.server_probe import expect_server
from memory.ports.storable import Unstorable
from memory.ports.store import Health
from memory.ports.writes import Absent, Annotate, Outcome, Put, RaiseGeneration, Status, Write

T = TypeVar("T")

log = logging.getLogger(__name__)

_SIZE = (
    "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS SIGNED) FROM information_schema.tables WHERE"
    " table_schema = DATABASE()"
)


class MySqlStore(ServerStore[Connection, MyTable]):
    """Records in a database of MySQL 8.0.19 or MariaDB 10.6 or later.

    Each collection has one table. See `MySqlConfig` for options.

    Many processes may use it at once. Acknowledged writes are as safe as the server's
    settings make them. If `innodb_flush_log_at_trx_commit` is not 1, or the binary log
    is not synced, the store does not claim to be durable. It then says what to change.
    Texts that are alike in their first 64 KiB have no order among them.
    """

    claims: ClassVar[Capabilities] = CLAIMS
    _thresholds: Thresholds

    def __init__(
        self, url: str, name: str = "mysql", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue
    ) -> None:
        self.config = parse(name, url, options)
        self._my_directory = MyDirectory(TableNames(self.config.prefix), thresholds)
        super().__init__(name, self._my_directory, thresholds)
        self._numbers = NumberAllocator(self._my_directory.names, thresholds.numbers_at_once)
        self._settings: Settings | None = None
        self._unindexed: dict[str, int] = {}

    # -- life --------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        place = self.config.socket or self.config.host, self.config.port
        connection = await expect_server(
            "MySQL or MariaDB",
            self.name,
            *place,
            connect(self.config),
            self._server_said,
            lambda made: made.terminate(),
        )
        try:
            settings = self._settings = await Settings.read(connection, self.name)
            schema = MySqlSchema(self.name, self.config, settings.flavour)
            found = await make_ready(connection, self.config, schema, collections)
            self._stored = {growth.collection.name: growth.was for growth in found.grown}
            self._reads_only = bool(self._stored) or await may_only_read(connection, schema.names.registry)
        finally:
            await connection.goodbye()
        if settings.advice:
            log.warning("store '%s' is not durable: %s", self.name, settings.advice)
        self._take_format(schema.noted)
        self.directory.names = schema.names
        self._numbers = NumberAllocator(schema.names, self._thresholds.numbers_at_once)
        self._tables = self._make_tables(found.tables)
        self._capabilities = settings.limit(self.claims)
        self._epoch = "" if self._capabilities.durable else settings.started
        self._lend(
            PoolOptions(
                size=self.config.pool_size,
                patience=self.config.pool_timeout,
                connect_patience=self.config.connect_timeout,
                call_patience=self.config.command_timeout,
                connect=lambda: connect(self.config),
                greet=self._greet,
                goodbye=Connection.goodbye,
                still_good=_still_good,
                moved=is_read_only,
                no_room=no_room,
            )
        )

    def _reads_json(self, part: JsonPath) -> bool:
        """MariaDB does; MySQL reads some numbers in JSON inexactly."""
        assert self._settings is not None  # noqa: S101 - it is open
        return self._settings.flavour is MARIADB and is_comparable(part)

    def _make_tables(self, collections: Mapping[str, Collection]) -> dict[str, MyTable]:
        assert self._settings is not None  # noqa: S101 - it is being opened
        collation, packet = self._settings.flavour.collation, self._settings.packet
        names, stored = self.directory.names, self._stored
        return {
            name: MyTable(c, names, collation, packet, self._thresholds, stored.get(name))
            for name, c in collections.items()
        }

    async def _look_again(self, connection: Connection) -> Mapping[str, Collection]:
        assert self._settings is not None  # noqa: S101 - it is open
        schema = MySqlSchema(self.name, self.config, self._settings.flavour)
        found = await look(connection, schema, tuple(self._collections.values()))
        self._stored = {} if found is None else {growth.collection.name: growth.was for growth in found.grown}
        return {} if found is None else found.tables

    def _is_outgrown(self, error: Exception) -> bool:
        return number_of(error) == NO_COLUMN

    async def _greet(self, connection: Connection) -> None:
        """Prepare each new connection.

        It may lead to another run of the server, or to another database.
        """
        self.directory.forget()
        self._numbers.forget()
        assert self._settings is not None  # noqa: S101 - it is open
        seconds = self.config.command_timeout
        await connection.tell(
            self._settings.flavour.statement_limit.format(seconds=seconds, milliseconds=int(seconds * 1000))
        )
        if not self._capabilities.durable:
            self._epoch = (await Settings.read(connection, self.name)).started

    async def _vital_signs(self, connection: Connection) -> Health:
        settings = await Settings.read(connection, self.name)
        names = self.directory.names
        form, _ = await self._versions(connection)
        tables = names.all_of(await self._names(connection))
        size = int(await connection.fetchval(f"{_SIZE} AND table_name IN {in_list(len(tables))}", *tables))
        facts: dict[str, JsonValue] = {
            "schema": form,
            "bytes": size,
            "pool": self.config.pool_size,
            **settings.facts,
        }
        in_quarantine = int(await connection.fetchval(f"SELECT count(*) FROM `{names.quarantine}`"))  # noqa: S608
        refusal = await refusal_of_writes(connection, names.registry)
        no_writes = refusal is not None and is_read_only(refusal)
        return Health(
            form == str(names.form) and not no_writes,
            self.config.place
            + ("; it takes no writes: a replica, or a server that is read only" * no_writes),
            f"{settings.flavour.product} {settings.version}",
            self._epoch,
            facts,
            in_quarantine,
        )

    # -- work --------------------------------------------------------------------------

    async def _carry_out(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        if len(writes) == 1 and (outcome := await self._apply_alone(writes[0])) is not None:
            return [outcome]
        try:
            return await self.with_connection(lambda connection: self._batch(connection, writes, together))
        except BatchRollback as undone:
            return undone.outcomes

    async def _apply_alone(self, write: Write) -> Outcome | None:
        """Do a write that needs no transaction, and return its outcome.

        Returns None where the write needs one.
        """
        try:
            if isinstance(write, Put) and isinstance(write.when, Absent) and self._may_wait(write.record):
                return await self._put(write)
            if isinstance(write, Annotate):
                return await self.with_connection(
                    lambda connection: annotate(connection, self.table(write.collection), write)
                )
            if isinstance(write, RaiseGeneration) and write.to == 0:
                number = await self.with_connection(
                    lambda connection: self.directory.raise_generation(connection, write.partition, 0)
                )
                return Outcome(Status.APPLIED, number=number)
        except Unstorable as exc:
            return Outcome(Status.REJECTED, reason=str(exc))
        return None

    def _may_wait(self, record: Record) -> bool:
        """Whether the record's words may be indexed later."""
        return sum(map(len, record.texts.values())) <= self._thresholds.waiting_characters

    async def _put(self, write: Put) -> Outcome | None:
        collection = write.collection
        outcome = await self.with_connection(
            lambda connection: put_absent(
                connection, self.table(collection), self._my_directory, self._numbers, write
            )
        )
        if outcome is not None and outcome.applied and any(write.record.texts.values()):
            table = self.table(collection)
            waiting = self._unindexed[table.name] = self._unindexed.get(table.name, 0) + 1
            if waiting >= self._thresholds.waiting_taken_up:
                self._unindexed[table.name] = 0
                await self._take_up(table)
        return outcome

    async def _take_up(self, table: MyTable) -> bool:
        """Index the words of waiting records; return whether there may be more.

        If that fails, the records still wait, and searches find them.
        """

        async def work(connection: Connection) -> int:
            (segment,) = await self._numbers.take(connection)
            return await self._in_transaction(connection, lambda: table.take_up(connection, segment))

        try:
            return await self.with_connection(work) > 0
        except NotOpen:  # closed in between
            return False
        except Exception as exc:
            if self._translate(exc) is None:
                raise
            return False

    async def _batch(self, connection: Connection, writes: Sequence[Write], together: bool) -> list[Outcome]:
        batch = MyBatch(connection, self.table, self._my_directory, self._numbers, self._thresholds, writes)
        await batch.prepare()
        try:
            outcomes = await self._in_transaction(connection, lambda: batch.carry_out(together))
        except WriteCollision:
            if not batch.at_once:
                raise
            batch.at_once = False  # one of the keys is taken: now read each row first
            outcomes = await self._in_transaction(connection, lambda: batch.carry_out(together))
        batch.finish()
        return outcomes

    async def _search(self, wanted: Search) -> list[Hit]:
        directory = self._my_directory
        return await self._ask_word_index(
            wanted.collection,
            lambda connection, table, most: search(connection, table, directory, wanted, most),
        )

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        directory = self._my_directory
        return await self._ask_word_index(
            asked.collection,
            lambda connection, table, most: candidates(connection, table, directory, asked, most),
        )

    async def _ask_word_index(
        self, collection: Collection, ask: Callable[[Connection, MyTable, int], Awaitable[T]]
    ) -> T:
        """Run a search on the word index.

        One search reads a limited number of records that wait to be indexed. Where more
        wait, some are indexed first. After `waiting_rounds` such attempts, the search
        reads all that wait.
        """
        most = self._thresholds.waiting_read
        for _ in range(self._thresholds.waiting_rounds):
            try:
                return await self.with_connection(
                    lambda connection: ask(connection, self.table(collection), most)
                )
            except IndexBacklog:
                await self._take_up(self.table(collection))
        return await self.with_connection(
            lambda connection: ask(connection, self.table(collection), sys.maxsize - 1)
        )

    # -- upkeep ------------------------------------------------------------------------

    def _audit_steps(
        self, table: MyTable, repair: bool
    ) -> Sequence[Callable[[Connection, Any], Awaitable[AuditPage]]]:
        """Return the audit steps.

        `vacuum` is not offered: InnoDB reuses the room of deleted rows, and OPTIMIZE
        copies whole tables to give it back.
        """
        return [
            lambda connection, after: audit_rows(connection, table, after, repair),
            lambda connection, after: audit_words(connection, table, after, repair),
            lambda connection, _: audit_registries(connection, table, repair),
        ]

    async def _versions(
        self, connection: Connection, *, locked: bool = False
    ) -> tuple[str | None, str | None]:
        select = f"SELECT version_num FROM `{self.directory.names.version}`{' FOR UPDATE' * locked}"  # noqa: S608
        return form_and_format([row.decode() for (row,) in await connection.fetch(select)])

    async def _put_version(self, connection: Connection, row: str, before: str | None) -> None:
        table = self.directory.names.version
        if before is None:
            await connection.change(f"INSERT INTO `{table}` (version_num) VALUES (?)", row)  # noqa: S608
        else:
            await connection.change(
                f"UPDATE `{table}` SET version_num = ? WHERE version_num = ?",  # noqa: S608
                row,
                before,
            )

    async def _names(self, connection: Connection) -> list[str]:
        return [
            name.decode()
            for (name,) in await connection.fetch(f"SELECT name FROM `{self.directory.names.registry}`")  # noqa: S608
        ]

    # -- the driver's ------------------------------------------------------------------

    def _translate_driver(self, error: Exception) -> Exception | None:
        return translate(self.name, self.config.place, error)

    def _is_collision(self, error: Exception) -> bool:
        return is_collision(error)

    def _server_said(self, error: BaseException) -> bool:
        return server_said(error)

    def _on_collision(self) -> None:
        self._numbers.forget()

    async def _begin(self, connection: Connection) -> None:
        await connection.begin()

    async def _commit(self, connection: Connection) -> None:
        await connection.commit()

    async def _roll_back(self, connection: Connection) -> None:
        await connection.rollback()


def _still_good(error: BaseException) -> bool:
    """Whether the connection is still good.

    It is, if the server answered with an error, or the error is our own and nothing was
    under way.
    """
    return (server_said(error) and not is_read_only(error)) or isinstance(
        error, MemoryTiersError | BatchRollback | WriteCollision | IndexBacklog | Unstorable
    )
