"""The store on MongoDB. What it promises where, and how, is told at the top of `partitions`, `batches` and `words`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from bson.codec_options import CodecOptions
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import ConfigurationError, InvalidURI, OperationFailure
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo import reading
from memory.adapters.mongo.aside import Aside, Spoiled
from memory.adapters.mongo.auditing import audit_copies, audit_words
from memory.adapters.mongo.batches import Batch
from memory.adapters.mongo.claims import CLAIMS, MongoConfig, parse
from memory.adapters.mongo.closing import Heartbeats
from memory.adapters.mongo.errors import translate
from memory.adapters.mongo.idle import Idle
from memory.adapters.mongo.inspection import Inspection, inspect
from memory.adapters.mongo.partitions import Registry
from memory.adapters.mongo.reading import Burial
from memory.adapters.mongo.schema import SCHEMA, Names, make_ready, version_of
from memory.adapters.mongo.searching import search
from memory.adapters.mongo.shelf import Shelf
from memory.adapters.mongo.thresholds import THRESHOLDS, Thresholds
from memory.adapters.mongo.turns import Turns
from memory.adapters.mongo.values import Document
from memory.adapters.mongo.writing import Busy, Desk, delete_one, put_one, raise_generation
from memory.domain.errors import ConfigError, InvalidInput, NotOpen, StoreUnavailable
from memory.ports.answering import expecting
from memory.ports.base import BaseStore
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.query import Count, Hit, Page, Query, Search, Words
from memory.ports.record import JsonValue, Key, Partition, Stored
from memory.ports.storable import Unstorable
from memory.ports.store import Audit, Health
from memory.ports.writes import Delete, Outcome, Put, RaiseGeneration, Write

T = TypeVar("T")

log = logging.getLogger(__name__)

_MOST_PROBLEMS = 100
_TURNS = 3
"""How many times as long as one operation a call may take that others get in the way of."""


class MongoStore(BaseStore):
    """Records in a MongoDB database of version 4.4 or later: one collection a collection. See `MongoConfig` for options.

    Many processes may use it at once. A write is acknowledged when a majority of the members have it in their journals. On a server of its own
    several writes are not kept whole or not at all: `atomic` is off there.
    """

    claims: ClassVar[Capabilities] = CLAIMS

    def __init__(self, url: str, name: str = "mongodb", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue) -> None:
        super().__init__(name)
        self._config = replace(parse(name, url, options), thresholds=thresholds)
        _require_uri(name, self._config)
        self._names = Names(self._config.prefix)
        self._client: AsyncMongoClient[Document] | None = None
        self._heartbeats = Heartbeats()
        self._found: Inspection | None = None
        self._shelves: dict[str, Shelf] = {}
        self._desk: Desk | None = None
        self._epoch = ""
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def epoch(self) -> str:
        return self._epoch

    # -- life ---------------------------------------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        await self._all_over()  # an opening that was cut off goes on to its end
        await self._to_its_end(self._connect(collections))

    async def _connect(self, collections: Sequence[Collection]) -> None:
        await self._disconnect()  # where an opening was cut off
        heartbeats = Heartbeats()
        client = _client(self._config, heartbeats)
        try:
            found = await self._inspected(client)
            database = _database(client, self._config, found)
            await make_ready(self.name, database, self._names, collections, passes=not found.sharded)
        except BaseException:
            await heartbeats.close(client)
            raise
        self._client, self._heartbeats, self._found = client, heartbeats, found
        thresholds, majority, sharded = self._config.thresholds, found.transactions, found.sharded
        self._shelves = {c.name: Shelf(c, database, self._names, thresholds, majority=majority, sharded=sharded) for c in collections}
        registry = Registry(database, self._names, thresholds, passes=not sharded)
        aside = Aside(database, self._names)
        self._desk = Desk(self._shelf, registry, aside, Turns(thresholds.turns), _TURNS * self._config.timeout)
        self._capabilities = replace(self.claims, atomic=found.transactions, durable=found.durable)
        self._epoch = "" if found.durable else found.run
        for line in found.advice:
            log.warning("store '%s' is not durable: %s", self.name, line)

    async def _inspected(self, client: AsyncMongoClient[Document]) -> Inspection:
        host, _, port = self._config.hosts.partition(",")[0].rpartition(":") if ":" in self._config.hosts else (self._config.hosts, "", "27017")
        looking = inspect(self.name, client)
        if self._config.uri.startswith("mongodb+srv://") or not port.isdecimal() or "," in self._config.hosts:
            return await looking
        return await expecting("MongoDB", self.name, host.strip("[]"), int(port), looking, lambda error: isinstance(error, OperationFailure))

    async def close(self) -> None:
        await super().close()
        await self._all_over()
        await self._to_its_end(self._disconnect())

    async def _close(self) -> None:
        if self._desk is not None:
            self._desk.turns.closing = True
        await self._all_over()

    async def _all_over(self) -> None:
        while self._calls:
            await asyncio.wait(self._calls)

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await self._heartbeats.close(client)

    async def _check(self) -> Health:
        try:
            found, schema = await self._to_its_end(self._vital_signs())
        except Exception as exc:
            ours = self._translate(exc)
            if ours is None:
                raise
            return Health(ok=False, detail=str(ours), epoch=self._epoch)
        weaker = self.capabilities.durable and not found.durable
        if not self.capabilities.durable:
            self._epoch = found.run
        notes = [self._config.place, *found.advice]
        if weaker:
            notes.insert(1, "the server changed since it was opened: it is no longer durable")
        if not found.transactions:
            notes.append("a server on its own has no transactions: several writes together are refused; start it with --replSet for them")
        facts: dict[str, JsonValue] = {"schema": schema, **found.facts, "durable": found.durable}
        return Health(schema == SCHEMA and not weaker, "; ".join(notes), f"MongoDB {found.version}", self._epoch, facts)

    async def _vital_signs(self) -> tuple[Inspection, int | None]:
        client = self._connected()
        return await inspect(self.name, client), await version_of(client[self._config.database], self._names)

    def _connected(self) -> AsyncMongoClient[Document]:
        if self._client is None:
            raise NotOpen(f"store '{self.name}'")
        return self._client

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work whether or not somebody still waits for it.

        A caller that gives up leaves no connection in the middle of an answer and no transaction open; every operation ends in time by itself.
        """
        task = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it

    # -- work ---------------------------------------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return await self._to_its_end(self._found_under(self._shelf(collection), keys))

    async def _found_under(self, shelf: Shelf, keys: Sequence[Key]) -> list[Stored | None]:
        answers, spoiled = await reading.get(shelf, keys)
        await self._set_aside(spoiled)
        return answers

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        client, desk = self._connected(), self._desk
        assert desk is not None  # noqa: S101 - it is connected
        if len(writes) == 1 and not together:
            match writes[0]:
                case Put() as put:
                    return [await self._to_its_end(put_one(desk, put))]
                case Delete() as delete:
                    return [await self._to_its_end(delete_one(desk, delete))]
                case RaiseGeneration() as raised:
                    return [await self._to_its_end(raise_generation(desk, raised))]
        batch = Batch(desk, writes)
        if self.capabilities.atomic and (together or len(writes) > 1):
            return await self._to_its_end(batch.in_transaction(client, together))
        return await self._to_its_end(batch.in_order())

    async def _query(self, query: Query) -> Page:
        shelf = self._shelf(query.collection)
        return await self._to_its_end(self._until_sound(lambda: reading.query(shelf, query)))

    async def _count(self, query: Query) -> Count:
        return await self._to_its_end(reading.count(self._shelf(query.collection), query))

    async def _search(self, wanted: Search) -> list[Hit]:
        if not isinstance(wanted.by, Words):
            return await super()._search(wanted)
        shelf, text = self._shelf(wanted.collection), wanted.by.text
        return await self._to_its_end(self._until_sound(lambda: search(shelf, wanted, text)))

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, keep: Sequence[str]) -> int:
        assert self._desk is not None  # noqa: S101 - it is open
        burial = Burial(query, version, discard_at, keep)
        return await self._to_its_end(reading.delete_matching(self._shelf(query.collection), self._desk.aside, burial))

    # -- upkeep -------------------------------------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        """`vacuum` is not offered: `compact` needs a right of its own, and WiredTiger uses the room of deleted documents again."""
        return await self._to_its_end(self._audited(repair))

    async def _audited(self, repair: bool) -> Audit:
        client, checked, problems = self._connected(), 0, list[str]()
        assert self._found is not None  # noqa: S101 - it is open
        for shelf in self._shelves.values():
            checked += await audit_words(shelf, problems, repair=repair)
        database, page = _database(client, self._config, self._found), self._config.thresholds.audited_at_once
        await audit_copies(database, self._names, self._shelves, problems, page, repair=repair)
        return Audit(checked, tuple(problems[:_MOST_PROBLEMS]))

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return await self._to_its_end(self._idle().find(limit))

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await self._to_its_end(self._idle().forget(dict(idle)))

    def _idle(self) -> Idle:
        client, desk = self._connected(), self._desk
        assert desk is not None and self._found is not None  # noqa: S101, PT018 - it is connected
        return Idle(_database(client, self._config, self._found), self._names, desk.registry, self._config.thresholds.partitions_at_once)

    def _shelf(self, collection: Collection) -> Shelf:
        return self._shelves[collection.name]

    # -- unreadable documents -----------------------------------------------------------------------------------------

    async def _until_sound(self, read: Callable[[], Awaitable[tuple[T, list[Spoiled]]]]) -> T:
        """Read; what turns out unreadable is set aside and the reading done again, so that limits and statistics are of what can be read."""
        for _ in range(8):
            answer, spoiled = await read()
            if not spoiled or not await self._set_aside(spoiled):
                break
        return answer

    async def _set_aside(self, spoiled: Sequence[Spoiled]) -> bool:
        """Whether it could be done. It cannot on a full disk; the documents still are not served."""
        if not spoiled:
            return True
        assert self._desk is not None  # noqa: S101 - it is open
        try:
            await self._desk.aside.keep(spoiled)
        except Exception as exc:
            if self._translate(exc) is None:
                raise
            log.warning("store '%s': %d corrupt records could not be set aside: %s", self.name, len(spoiled), type(exc).__name__)
            return False
        return True

    def _translate(self, error: Exception) -> Exception | None:
        if isinstance(error, Unstorable):
            return InvalidInput("text", str(error))
        if isinstance(error, Busy):
            return StoreUnavailable(self.name, "others kept changing what the call is about; it may have been done in part; try again")
        return translate(self.name, self._config.place, error)


def _database(client: AsyncMongoClient[Document], config: MongoConfig, found: Inspection) -> AsyncDatabase[Document]:
    plain: CodecOptions[Document] = CodecOptions(unicode_decode_error_handler="replace")  # a damaged text is told by the checksum
    # A server without a journal refuses a write that asks for it.
    return client.get_database(config.database, plain, write_concern=None if found.journaled else WriteConcern("majority"))


def _client(config: MongoConfig, heartbeats: Heartbeats) -> AsyncMongoClient[Document]:
    """Every operation ends within the timeout, whatever the server does; the driver's own repeats included, which no write is doubled by."""
    settings: dict[str, Any] = {
        "w": "majority",
        "journal": True,
        "timeoutMS": round(config.timeout * 1000),
        "serverSelectionTimeoutMS": round(config.timeout * 1000),
        "connectTimeoutMS": round(config.connect_timeout * 1000),
        "socketTimeoutMS": round(config.timeout * 1000),
        "maxPoolSize": config.connections,
        "serverMonitoringMode": "poll",
        "appname": "memory-tiers",
        "event_listeners": [heartbeats],
    }
    return AsyncMongoClient(config.uri, **settings)


def _require_uri(name: str, config: MongoConfig) -> None:
    """Refuse what the driver would refuse, before anything is connected. A name that DNS resolves is looked up when the store is opened."""
    if config.uri.startswith("mongodb+srv://"):
        return
    try:
        parse_uri(config.uri, warn=False)
    except (InvalidURI, ConfigurationError, ValueError) as exc:
        raise ConfigError(f"store '{name}': the driver refuses the URL ({_told(exc)}); special characters are written as %40 for @") from None


def _told(error: Exception) -> str:
    """What is wrong, without the URL: messages about user and password may quote them."""
    return "an option is not one of MongoDB's" if isinstance(error, ConfigurationError) else type(error).__name__
