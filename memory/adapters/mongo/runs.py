"""A run: writes to different keys, decided each for itself and sent in bulk; and taking back what a raised generation has made void."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.errors import BulkWriteError

from memory.adapters.mongo.codec import ASIDE, key_in
from memory.adapters.mongo.errors import is_only_refusals
from memory.adapters.mongo.shelf import Shelf
from memory.adapters.mongo.values import Document
from memory.adapters.mongo.writing import Desk, slot_of
from memory.ports.deciding import Decision, KeyedWrite, decide
from memory.ports.pace import paced
from memory.ports.record import Key, Partition, Record
from memory.ports.storable import Unstorable
from memory.ports.writes import AtVersion, Outcome, Put, Status


@dataclass(frozen=True, slots=True)
class Change:
    """What a write did: `after` stands where `before` stood; None is nothing."""

    write: KeyedWrite
    shelf: Shelf
    before: Document | None
    after: Document | None

    @property
    def place(self) -> tuple[str, Key]:
        return self.shelf.name, self.write.key

    def is_void(self, raised: Mapping[Partition, int]) -> bool:
        """Whether it brought a record of a generation that these have left behind."""
        if self.after is None or not isinstance(self.write, Put):
            return False
        return int(self.after["generation"]) < raised.get(self.write.record.partition, 0)

    async def take_back(self, session: Any = None) -> bool:
        """Let stand what stood before; whether this change still stood there."""
        try:
            done = await self.shelf.documents.bulk_write([self.shelf.swap(self.write.key, self.after, self.before)], session=session)
        except BulkWriteError as exc:
            if session is not None or not is_only_refusals(exc):
                raise
            return False
        return self.before is not None or done.deleted_count > 0


class Run:
    """One run. What others got in the way of has no outcome afterwards; in a transaction that ends it."""

    def __init__(self, desk: Desk, writes: Mapping[int, KeyedWrite], generations: Mapping[Partition, int], session: Any) -> None:
        self._desk = desk
        self._left = dict(writes)
        self._generations = generations
        self._session = session
        self.outcomes: dict[int, Outcome] = {}
        self.changes: dict[int, Change] = {}

    async def insert(self) -> None:
        """New records go in as they are. What meets something stays to be decided."""
        by_shelf: dict[str, tuple[Shelf, list[tuple[int, Put]]]] = {}
        for i, write in self._left.items():
            assert isinstance(write, Put)  # noqa: S101 - see `is_blind`
            shelf = self._desk.shelf(write.collection)
            by_shelf.setdefault(shelf.name, (shelf, []))[1].append((i, write))
        for shelf, writes in by_shelf.values():
            most = shelf.thresholds.inserted_at_once
            under_way: asyncio.Task[None] | None = None
            try:
                for start in range(0, len(writes), most):
                    portion = await self._documents(shelf, writes[start : start + most])
                    if under_way is not None:
                        await under_way
                    last = start + most >= len(writes)
                    under_way = asyncio.ensure_future(self._insert(shelf, portion, last=last))
                    await asyncio.sleep(0)  # it is sent, and the next documents made meanwhile
            finally:
                if under_way is not None:
                    await under_way

    async def _documents(self, shelf: Shelf, writes: Sequence[tuple[int, Put]]) -> dict[int, Document]:
        """The documents of these writes but for those that are refused, or will be."""
        documents: dict[int, Document] = {}
        async for i, write in paced(writes):  # what is being sent goes on
            generation = self._generations[write.record.partition]
            if write.record.generation is not None and write.record.generation < generation:
                continue
            try:
                documents[i] = shelf.layout.document(write.record, generation)
            except Unstorable as exc:
                self.outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))
                del self._left[i]
        return documents

    async def _insert(self, shelf: Shelf, documents: Mapping[int, Document], *, last: bool) -> None:
        """Only the last portion waits for the journal, which then has the others too."""
        if not documents:
            if last and self.changes and self._session is None:
                await shelf.in_the_journal()
            return
        met: set[int] = set()
        try:
            await (shelf.documents if last else shelf.unwaited).insert_many(documents.values(), ordered=False, session=self._session)
        except BulkWriteError as exc:
            if self._session is not None or not is_only_refusals(exc):
                raise
            met = {error["index"] for error in exc.details["writeErrors"]}
        for place, (i, document) in enumerate(documents.items()):
            if place not in met:
                self.changes[i] = Change(self._left.pop(i), shelf, None, document)
                self.outcomes[i] = Outcome(Status.APPLIED, version=int(document["version"]), generation=int(document["generation"]))

    async def decide(self) -> None:
        """Look at what stands there, decide, and put the results in the place of exactly that."""
        if not self._left:
            return
        found = await self._look()
        decisions: dict[int, Decision] = {}
        async for i, write in paced(self._left.items()):
            decisions[i] = self._decided(write, found)
        by_shelf: dict[str, tuple[Shelf, dict[int, Change]]] = {}
        async for i, decision in paced(decisions.items()):
            write = self._left[i]
            shelf = self._desk.shelf(write.collection)
            if not decision.changes:
                self.outcomes[i] = decision.outcome
                continue
            try:
                after = None if decision.leaves is None else shelf.layout.document(decision.leaves)
            except Unstorable as exc:
                self.outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))
                continue
            by_shelf.setdefault(shelf.name, (shelf, {}))[1][i] = Change(write, shelf, found.get((shelf.name, write.key)), after)
        for shelf, changes in by_shelf.values():
            for i in await self._send(shelf, changes):
                del changes[i]
            self.outcomes |= {i: decisions[i].outcome for i in changes}
            self.changes |= changes
            gone = [c.write.key for i, c in changes.items() if not isinstance(decisions[i].leaves, Record) and ASIDE in (c.before or {})]
            await self._desk.aside.forget(shelf, gone, self._session)

    async def _look(self) -> dict[tuple[str, Key], Document]:
        by_shelf: dict[str, tuple[Shelf, list[Key]]] = {}
        for write in self._left.values():
            shelf = self._desk.shelf(write.collection)
            by_shelf.setdefault(shelf.name, (shelf, []))[1].append(write.key)
        found: dict[tuple[str, Key], Document] = {}
        for name, (shelf, keys) in by_shelf.items():
            async for document in shelf.documents.find(shelf.among(keys), session=self._session):
                found[(name, Key(document["_id"]["tenant"], document["_id"]["id"]))] = document
        return found

    def _decided(self, write: KeyedWrite, found: Mapping[tuple[str, Key], Document]) -> Decision:
        shelf = self._desk.shelf(write.collection)
        generation = self._generations[write.record.partition] if isinstance(write, Put) else 0
        return decide(write, slot_of(shelf, found.get((shelf.name, write.key))), generation)

    async def _send(self, shelf: Shelf, changes: Mapping[int, Change]) -> set[int]:
        """Which of them met something else than was found."""
        numbered = list(changes)
        sent = [shelf.swap(c.write.key, c.before, c.after) for c in changes.values()]
        try:
            done = (await shelf.documents.bulk_write(sent, ordered=False, session=self._session)).bulk_api_result
        except BulkWriteError as exc:
            if self._session is not None or not is_only_refusals(exc):
                raise
            done = dict(exc.details)
        lost = {numbered[error["index"]] for error in done["writeErrors"]}
        purged = {c.write.key: i for i, c in changes.items() if c.after is None}
        if done["nRemoved"] < len(purged):  # which, it does not say
            async for document in shelf.documents.find(shelf.among(list(purged)), {"_id": 1}, session=self._session):
                lost.add(purged[key_in(document)])
        return lost


def is_blind(writes: Mapping[int, KeyedWrite]) -> bool:
    """Whether every write puts a record where probably nothing stands."""
    return all(isinstance(write, Put) and not isinstance(write.when, AtVersion) for write in writes.values())
