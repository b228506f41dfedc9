"""The MongoDB store. See `partitions`, `batch` and `search` for its guarantees."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import bson
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import OperationFailure

from memory.adapters.mongo import reading
from memory.adapters.mongo.audit import audit_copies, audit_foreign, audit_words
from memory.adapters.mongo.batch import KeyLocks, WriteBatch
from memory.adapters.mongo.candidates import candidates
from memory.adapters.mongo.codec import Document, document_of
from memory.adapters.mongo.config import CLAIMS, parse
from memory.adapters.mongo.connection import (
    Heartbeats,
    Inspection,
    client_of,
    database_of,
    inspect,
    require_uri,
)
from memory.adapters.mongo.errors import translate
from memory.adapters.mongo.partitions import Directory, IdlePartitions
from memory.adapters.mongo.paths import is_comparable, labels_of
from memory.adapters.mongo.quarantine import DamagedDocument, Quarantine
from memory.adapters.mongo.reading import Deletion
from memory.adapters.mongo.schema import SCHEMA, CollectionNames, make_ready, swap_format, versions_of
from memory.adapters.mongo.search import search
from memory.adapters.mongo.single import WriteContext, delete_one, put_one
from memory.adapters.mongo.table import Table
from memory.adapters.mongo.thresholds import THRESHOLDS, Thresholds
from memory.domain.errors import ConfigError, NotOpen
from memory.ports.base import BaseStore
from memory.ports.batch import carry_out
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.concurrency import outcomes_at_once
from memory.ports.quarantine import sound, try_quarantine
from memory.ports.query import Count, Everywhere, Hit, JsonPath, Page, Query, Search, Tenant, Words
from memory.ports.record import JsonValue, Key, Partition, Record, Stored
from memory.ports.rows import row_of
from memory.ports.server_probe import expect_server
from memory.ports.storable import Unstorable
from memory.ports.store import Audit, Health
from memory.ports.writes import Delete, Outcome, Put, RaiseGeneration, Status, Write

T = TypeVar("T")

log = logging.getLogger(__name__)

_TURNS = 3
"""A call with conflicts may take this many times the timeout of one operation."""


class MongoStore(BaseStore):
    """Stores records in a MongoDB database, version 4.4 or later.

    Each collection of the port is a collection of the database. See `MongoConfig` for
    the options. Many processes may use it at once. A write is acknowledged when a
    majority of the members have it in their journals. On a single server, calls with
    several writes are not atomic, so `atomic` is off there.
    """

    answers_under: ClassVar[bool] = True
    claims: ClassVar[Capabilities] = CLAIMS
    notes_format: ClassVar[bool] = True

    def __init__(
        self, url: str, name: str = "mongodb", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue
    ) -> None:
        super().__init__(name)
        self.config = replace(parse(name, url, options), thresholds=thresholds)
        require_uri(name, self.config)
        self._names = CollectionNames(self.config.prefix)
        self._client: AsyncMongoClient[Document] | None = None
        self._heartbeats = Heartbeats()
        self._backing: WriteContext | None = None
        self._turns = KeyLocks(1)
        self._epoch = ""
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def epoch(self) -> str:
        return self._epoch

    # -- life --------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        await self._all_over()  # a cancelled opening runs to its end
        await self._to_its_end(self._connect(collections))

    async def _connect(self, collections: Sequence[Collection]) -> None:
        await self._disconnect()  # left over by a cancelled opening
        named = "" if self.config.uri.startswith("mongodb+srv://") else self.config.replica_set
        heartbeats = Heartbeats(named, len(self.config.hosts.split(",")))
        client = client_of(self.config, heartbeats)
        try:
            found = await self._inspect(client, heartbeats)
            database = database_of(client, self.config, found)
            labels = {name: labels_of(paths) for name, paths in self.json_paths.items()}
            self._take_format(await make_ready(self.name, database, self._names, collections, labels))
        except BaseException:
            await heartbeats.close(client)
            raise
        self._client, self._heartbeats = client, heartbeats
        thresholds, majority, sharded = self.config.thresholds, found.transactions, found.sharded
        tables = {
            c.name: Table(
                c,
                database,
                self._names,
                thresholds,
                majority=majority,
                sharded=sharded,
                labels=labels.get(c.name),
            )
            for c in collections
        }
        directory, quarantine = (
            Directory(database, self._names, thresholds, majority=majority),
            Quarantine(database, self._names),
        )
        self._backing = WriteContext(self.name, client, tables, directory, quarantine)
        self._turns = KeyLocks(thresholds.turns)
        self._capabilities = replace(self.claims, atomic=found.transactions, durable=found.durable)
        self._epoch = "" if found.durable else found.run
        for line in found.advice:
            log.warning("store '%s' is not durable: %s", self.name, line)

    async def _inspect(self, client: AsyncMongoClient[Document], heartbeats: Heartbeats) -> Inspection:
        host, _, port = (
            self.config.hosts.partition(",")[0].rpartition(":")
            if ":" in self.config.hosts
            else (self.config.hosts, "", "27017")
        )
        looking = self._of_the_named_set(inspect(self.name, client), heartbeats)
        if self.config.uri.startswith("mongodb+srv://") or not port.isdecimal() or "," in self.config.hosts:
            return await looking
        return await expect_server(
            "MongoDB",
            self.name,
            host.strip("[]"),
            int(port),
            looking,
            lambda error: isinstance(error, OperationFailure | ConfigError),
        )

    async def _of_the_named_set(
        self, looking: Coroutine[Any, Any, Inspection], heartbeats: Heartbeats
    ) -> Inspection:
        """Return the inspection, or fail if the servers are of another replica set.

        It fails at once; the driver would search for the named set until its timeout.
        """
        work, mismatch = (
            asyncio.ensure_future(looking),
            asyncio.ensure_future(heartbeats.of_another_set.wait()),
        )
        try:
            await asyncio.wait((work, mismatch), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                found = ", ".join(
                    f"'{name}'" if name else "no replica set" for name in sorted(heartbeats.sets)
                )
                raise ConfigError(
                    f"store '{self.name}': the URL says replicaSet={self.config.replica_set}, "
                    f"but {self.config.hosts} belongs to {found}; correct replicaSet"
                )
            return work.result()
        finally:
            for one in (work, mismatch):
                one.cancel()
            await outcomes_at_once((work, mismatch))

    async def close(self) -> None:
        await super().close()
        await self._all_over()
        await self._to_its_end(self._disconnect())

    async def _close(self) -> None:
        self._turns.closing = True
        await self._all_over()

    async def _all_over(self) -> None:
        while self._calls:
            await asyncio.wait(self._calls)

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._heartbeats.close(client)

    async def _check(self) -> Health:
        found, schema, in_quarantine = await self._to_its_end(self._vital_signs())
        weaker = self.capabilities.durable and not found.durable
        if not self.capabilities.durable:
            self._epoch = found.run
        notes = [self.config.place, *found.advice]
        if weaker:
            notes.insert(1, "the server changed since it was opened: it is no longer durable")
        if not found.transactions:
            notes.append(
                "a single server has no transactions, so atomic batches are refused; start it with --replSet"
                " for them"
            )
        facts: dict[str, JsonValue] = {"schema": schema, **found.facts, "durable": found.durable}
        return Health(
            schema == SCHEMA and not weaker,
            "; ".join(notes),
            f"MongoDB {found.version}",
            self._epoch,
            facts,
            in_quarantine,
        )

    async def _vital_signs(self) -> tuple[Inspection, int | None, int]:
        client = self._live_client()
        database = client[self.config.database]
        found, (schema, _) = await inspect(self.name, client), await versions_of(database, self._names)
        return found, schema, await database[self._names.quarantine].count_documents({})

    def _reads_json(self, part: JsonPath) -> bool:
        """Whether documents have a copy of the value."""
        return any(part.parts in paths for paths in self.json_paths.values()) and is_comparable(part)

    async def _read_format(self) -> str | None:
        return (await self._to_its_end(versions_of(self._live_client()[self.config.database], self._names)))[
            1
        ]

    async def _swap_format(self, before: str | None, after: str) -> bool:
        return await self._to_its_end(
            swap_format(self._live_client()[self.config.database], self._names, before, after)
        )

    def _live_client(self) -> AsyncMongoClient[Document]:
        if self._client is None:
            raise NotOpen(f"store '{self.name}'")
        return self._client

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work to its end, even if the caller stops waiting.

        A cancelled caller leaves no connection in the middle of an answer and no open
        transaction. Every operation has its own time limit.
        """
        task = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # avoids a warning if nobody awaits it

    # -- work --------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return await self._to_its_end(self._found_under(self.table(collection), keys))

    async def _found_under(self, table: Table, keys: Sequence[Key]) -> list[Stored | None]:
        answers, damaged = await reading.get(table, keys)
        if damaged:
            await self._quarantine(damaged)
        return answers

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        alone = writes[0] if len(writes) == 1 and not together else None
        if isinstance(alone, Put | Delete | RaiseGeneration):
            return [await self._to_its_end(self._alone(alone))]
        return await self._to_its_end(self._several(writes, together))

    async def _alone(self, write: Put | Delete | RaiseGeneration) -> Outcome:
        backing = self.ready()
        try:
            match write:
                case Put():
                    return await put_one(backing, write)
                case Delete():
                    return await delete_one(backing, write)
                case RaiseGeneration():
                    return Outcome(
                        Status.APPLIED, number=await backing.directory.raise_to(write.partition, write.to)
                    )
        except Unstorable as exc:
            return Outcome(Status.REJECTED, reason=str(exc))

    async def _several(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        atomic, patience = (
            self.capabilities.atomic and (together or len(writes) > 1),
            _TURNS * self.config.timeout,
        )
        late = asyncio.get_running_loop().time() + patience
        batch = WriteBatch(self.ready(), self._turns, writes, atomic=atomic, together=together, late=late)
        return await carry_out(self.name, batch, writes, together=together, patience=patience)

    async def _query(self, query: Query) -> Page:
        table = self.table(query.collection)
        return await self._to_its_end(sound(lambda: reading.query(table, query), self._quarantine))

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        labels = labels_of(self.json_paths.get(collection.name, ()))
        return len(bson.encode(document_of(row_of(collection, record), labels)))

    async def _count(self, query: Query) -> Count:
        return await self._to_its_end(reading.count(self.table(query.collection), query))

    async def _search(self, wanted: Search) -> list[Hit]:
        if not isinstance(wanted.by, Words):
            return await super()._search(wanted)
        table, text = self.table(wanted.collection), wanted.by.text
        return await self._to_its_end(search(table, wanted, text))

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return await self._to_its_end(candidates(self.table(asked.collection), asked))

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        backing, deletion = self.ready(), Deletion(query, version, discard_at, carry)
        return await self._to_its_end(
            reading.delete_matching(self.table(query.collection), backing.quarantine, deletion)
        )

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> Sequence[tuple[Partition, int]]:
        backing = self.ready()
        tables = [table.name for table in backing.tables.values()]
        return await self._to_its_end(backing.directory.list_partitions(tables, where, prefix, after, limit))

    async def _may_be_due(self, now: datetime, expired: Mapping[Collection, datetime]) -> bool:
        return await self._to_its_end(reading.may_be_due(list(self.ready().tables.values()), now, expired))

    # -- upkeep ------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        """Audit all tables.

        There is no `vacuum`: `compact` needs an extra privilege, and WiredTiger reuses
        the space of deleted documents.
        """
        return await self._to_its_end(self._audit_tables(repair))

    async def _audit_tables(self, repair: bool) -> Audit:
        backing, checked, problems = self.ready(), 0, list[str]()
        for table in backing.tables.values():
            checked += await audit_words(table, problems, repair=repair)
            await audit_foreign(table, problems)
        await audit_copies(
            backing.quarantine,
            backing.tables,
            problems,
            self.config.thresholds.audited_at_once,
            repair=repair,
        )
        return Audit(checked, tuple(problems))

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return await self._to_its_end(self._idle().find(limit))

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await self._to_its_end(self._idle().forget(dict(idle)))

    def _idle(self) -> IdlePartitions:
        return IdlePartitions(self.ready().directory, self._names, self.config.thresholds.partitions_at_once)

    def table(self, collection: Collection) -> Table:
        return self.ready().table(collection)

    def ready(self) -> WriteContext:
        if self._backing is None:
            raise NotOpen(f"store '{self.name}'")
        return self._backing

    async def _quarantine(self, damaged: Sequence[DamagedDocument]) -> bool:
        return await try_quarantine(self.name, self.ready().quarantine.keep, damaged, self._translate)

    def _translate(self, error: Exception) -> Exception | None:
        return translate(self.name, self.config.place, error)
