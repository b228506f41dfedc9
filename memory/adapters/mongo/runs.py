"""A run: writes to different keys, decided each for itself and sent in bulk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.errors import BulkWriteError

from memory.adapters.mongo.documents import ASIDE, FENCE, address
from memory.adapters.mongo.errors import is_only_duplicates
from memory.adapters.mongo.partitions import Announcement
from memory.adapters.mongo.shelf import Shelf, as_it_was, unfenced
from memory.adapters.mongo.values import Document
from memory.adapters.mongo.writing import Desk, slot_of
from memory.ports.deciding import Decision, KeyedWrite, decide
from memory.ports.pace import paced
from memory.ports.record import Key, Partition, Record
from memory.ports.storable import Unstorable
from memory.ports.writes import AtVersion, Outcome, Put, Status


class Run:
    """One run. What others got in the way of has no outcome afterwards; in a transaction that ends it."""

    def __init__(
        self,
        desk: Desk,
        writes: Mapping[int, KeyedWrite],
        announcement: Announcement,
        generations: Mapping[Partition, int],
        session: Any,
        written: set[tuple[str, Key]] | None = None,
    ) -> None:
        self._desk = desk
        self._left = dict(writes)
        self._token = announcement.token
        self._generations = generations
        self._session = session
        self._written = set() if written is None else written
        self.outcomes: dict[int, Outcome] = {}

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
                    under_way = asyncio.ensure_future(self._insert(shelf, portion, last=start + most >= len(writes)))
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
        """Only the last portion waits for the journal, which then has the others too: whatever follows on that server does, also the end of the
        announcement where nothing of the last portion was to be written.
        """
        if not documents:
            return
        met: set[int] = set()
        try:
            await (shelf.documents if last else shelf.unwaited).insert_many(documents.values(), ordered=False, session=self._session)
        except BulkWriteError as exc:
            if self._session is not None or not is_only_duplicates(exc):
                raise
            met = {error["index"] for error in exc.details["writeErrors"]}
        for place, (i, document) in enumerate(documents.items()):
            if place not in met:
                self._written.add((shelf.name, self._left.pop(i).key))
                self.outcomes[i] = Outcome(Status.APPLIED, version=int(document["version"]), generation=int(document["generation"]))

    async def decide(self) -> None:
        """Look at what stands there, decide, and put the results in the place of exactly that."""
        if not self._left:
            return
        found = await self._look()
        decisions: dict[int, Decision] = {}
        async for i, write in paced(self._left.items()):
            decisions[i] = self._decided(write, found)
        by_shelf: dict[str, tuple[Shelf, list[int], list[Any]]] = {}
        async for i, decision in paced(decisions.items()):
            write = self._left[i]
            shelf = self._desk.shelf(write.collection)
            if not decision.changes:
                self.outcomes[i] = decision.outcome
                continue
            try:
                change = self._change(shelf, write, decision, found.get((shelf.name, write.key)))
            except Unstorable as exc:
                self.outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))
                continue
            _, places, changes = by_shelf.setdefault(shelf.name, (shelf, [], []))
            places.append(i)
            changes.append(change)
        for shelf, places, changes in by_shelf.values():
            collided = await self._send(shelf, changes)
            for place, i in enumerate(places):
                if place not in collided:
                    self.outcomes[i] = decisions[i].outcome
                    self._written.add((shelf.name, self._left[i].key))
            await self._clear(shelf, [i for place, i in enumerate(places) if place not in collided and decisions[i].leaves is None])
            await self._forget_aside(shelf, [i for place, i in enumerate(places) if place not in collided], decisions, found)

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

    def _change(self, shelf: Shelf, write: KeyedWrite, decision: Decision, found: Document | None) -> Any:
        if decision.leaves is None:
            document = {**address(write.key), "_id": address(write.key), "kind": FENCE}
        else:
            document = shelf.layout.document(decision.leaves)
        # What this transaction wrote itself is fenced by that write already, and nobody else can change it.
        ours = (shelf.name, write.key) in self._written
        token = self._token if isinstance(write, Put) and not ours else None
        return shelf.swap(write.key, as_it_was(found) | unfenced(token), document)

    async def _send(self, shelf: Shelf, changes: Sequence[Any]) -> set[int]:
        """Which of them met something else than was found."""
        try:
            await shelf.documents.bulk_write(changes, ordered=False, session=self._session)
        except BulkWriteError as exc:
            if self._session is not None or not is_only_duplicates(exc):
                raise
            return {error["index"] for error in exc.details["writeErrors"]}
        return set()

    async def _clear(self, shelf: Shelf, purged: Sequence[int]) -> None:
        """What was purged has left a fence. One that keeps nobody out need not stand there for a day."""
        if purged:
            nothing = {"kind": {"$eq": FENCE}, "fenced": {"$exists": False}}
            await shelf.documents.delete_many(shelf.among([self._left[i].key for i in purged]) | nothing, session=self._session)

    async def _forget_aside(
        self, shelf: Shelf, places: Sequence[int], decisions: Mapping[int, Decision], found: Mapping[tuple[str, Key], Document]
    ) -> None:
        gone = [
            self._left[i].key
            for i in places
            if not isinstance(decisions[i].leaves, Record) and ASIDE in found.get((shelf.name, self._left[i].key), {})
        ]
        await self._desk.aside.forget(shelf, gone, self._session)


def is_blind(writes: Mapping[int, KeyedWrite]) -> bool:
    """Whether every write puts a record where probably nothing stands."""
    return all(isinstance(write, Put) and not isinstance(write.when, AtVersion) for write in writes.values())
