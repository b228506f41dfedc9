"""Decides the writes of one call in order.

Every adapter that reads, decides and writes back uses this module.

A `WriteResolver` names the rows to read (`reads`) and takes them (`take`). It decides
one write after the other, and each decision sees the earlier writes (`decide`). Then it
names the last row of each key to store (`changes`), and the raised generations.

An adapter that holds a lock or a transaction reads, decides and stores. The other
adapters use `carry_out`, which stores each change on condition that the row has not
changed since the read. If another client was first, `carry_out` decides again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from memory.domain.errors import PicklableException, StoreUnavailable
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Key, Partition, Record
from memory.ports.rows import Row, row_of
from memory.ports.storable import Unstorable
from memory.ports.write_decision import EMPTY, Decision, KeyedWrite, Slot, decide
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

Address: TypeAlias = tuple[str, Key]
"""The name of a collection and a key."""


@dataclass(slots=True)
class StoredRow:
    """The row that an adapter read under a key.

    `row` of None means that nothing is stored or, with a `problem`, that nothing is
    readable. Then `version` is the version that is still readable. `token` belongs to
    the adapter: it identifies the stored row, to recognise and overwrite it.
    """

    row: Row | None = None
    token: Any = None
    problem: str = ""
    version: int | None = None


NOTHING = StoredRow()


@dataclass(slots=True)
class ResolvedWrite:
    """The row that a call leaves under a key; None deletes the stored row.

    With `found_anew`, its words or its vector may differ from those of the row before.
    """

    collection: Collection
    key: Key
    held: StoredRow
    row: Row | None
    found_anew: bool
    content: Any = None
    """The result of `lay_out` for the row."""
    born: Partition | None = None
    """The partition of a record that was put.

    The record may be stored only while the partition's generation is not above its own.
    """

    @property
    def address(self) -> Address:
        return (self.collection.name, self.key)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """The keys to read, by collection, and the partitions whose generations to read."""

    keys: dict[Collection, list[Key]] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)


LayOut: TypeAlias = Callable[[Collection, Row], Any]
"""Turns a row into the adapter's stored form.

Raises `Unstorable` for a value that the adapter cannot hold. Only the write with that
value is rejected.
"""


def _not_laid_out(collection: Collection, row: Row) -> Any:
    return None


class WriteResolver:
    """Decides the writes of one call, in order.

    `outcomes` holds the outcomes so far, by the number of the write.
    """

    def __init__(self, writes: Mapping[int, Write], lay_out: LayOut = _not_laid_out) -> None:
        self.writes = writes
        self.outcomes: dict[int, Outcome] = {}
        self.raised: dict[Partition, int] = {}
        self._lay_out = lay_out
        self._held: Mapping[Address, StoredRow] = {}
        self._slots: dict[Address, Slot] = {}
        self._generations: dict[Partition, int] = {}
        self._changes: dict[Address, ResolvedWrite] = {}

    @property
    def reads(self) -> ReadSet:
        keys: dict[Collection, dict[Key, None]] = {}
        partitions: dict[Partition, None] = {}
        for write in self.writes.values():
            if not isinstance(write, RaiseGeneration):
                keys.setdefault(write.collection, {})[write.key] = None
            if (partition := partition_of(write)) is not None:
                partitions[partition] = None
        return ReadSet({collection: list(wanted) for collection, wanted in keys.items()}, list(partitions))

    def take(self, held: Mapping[Address, StoredRow], generations: Mapping[Partition, int]) -> None:
        """Take the rows and generations that were read.

        A missing key has no row, and a missing partition has generation 0.
        """
        self._held, self._generations = held, dict(generations)

    def generation(self, partition: Partition) -> int:
        """Return the generation that was read, or raised by the call itself."""
        return self._generations.get(partition, 0)

    def decide(self, number: int) -> None:
        """Decide the write of this number, after the writes decided before."""
        write = self.writes[number]
        try:
            self.outcomes[number] = (
                self._raise(write) if isinstance(write, RaiseGeneration) else self._decide(write)
            )
        except Unstorable as exc:
            self.outcomes[number] = Outcome(Status.REJECTED, reason=str(exc))

    def decide_all(self) -> None:
        for number in self.writes:
            self.decide(number)

    @property
    def changes(self) -> list[ResolvedWrite]:
        """Return the rows to store or delete, one for each key.

        A key that had no row and gets none is left out.
        """
        return [
            c for c in self._changes.values() if c.row is not None or c.held.row is not None or c.held.problem
        ]

    def _raise(self, write: RaiseGeneration) -> Outcome:
        current = self.generation(write.partition)
        raised = current + 1 if write.to is None else max(current, write.to)
        if raised != current:
            self._generations[write.partition] = self.raised[write.partition] = raised
        return Outcome(Status.APPLIED, number=raised)

    def _decide(self, write: KeyedWrite) -> Outcome:
        collection = write.collection
        address = (collection.name, write.key)
        slot = self._slots.get(address)
        if slot is None:
            slot = self._slots[address] = slot_of(collection, write.key, self._held.get(address, NOTHING))
        born = write.record.partition if isinstance(write, Put) else None
        decision = decide(write, slot, 0 if born is None else self.generation(born))
        if decision.changes:
            self._become(address, collection, decision, born)
        return decision.outcome

    def _become(
        self, address: Address, collection: Collection, decision: Decision, born: Partition | None
    ) -> None:
        """Apply a decision. If the row cannot be laid out, nothing has changed."""
        before = self._changes.get(address)
        held = self._held.get(address, NOTHING) if before is None else before.held
        if decision.leaves is None:
            self._changes[address] = ResolvedWrite(collection, address[1], held, None, True)
            self._slots[address] = EMPTY
            return
        stood = held.row if before is None else before.row
        row = row_of(collection, decision.leaves, None if decision.found_by or stood is None else stood.words)
        content = self._lay_out(collection, row)
        anew = decision.found_by or (before is not None and before.found_anew)
        if born is None and before is not None and isinstance(decision.leaves, Record):
            born = before.born  # it was put by this call, and annotated since
        self._changes[address] = ResolvedWrite(collection, address[1], held, row, anew, content, born)
        self._slots[address] = Slot.of(collection, row)


def slot_of(collection: Collection, key: Key, held: StoredRow) -> Slot:
    """Return the `Slot` of a key, made of the row that was read under the key.

    `decide` takes the item under a key in this form.
    """
    if held.problem:
        return Slot.of(collection, Row(key.tenant, key.id, "", 0), held.problem, held.version)
    return EMPTY if held.row is None else Slot.of(collection, held.row)


def partition_of(write: Write) -> Partition | None:
    """Return the partition whose generation the write needs or raises."""
    if isinstance(write, RaiseGeneration):
        return write.partition
    return write.record.partition if isinstance(write, Put) else None


class WriteCollision(Exception):
    """Rolls back a transaction that collided with other clients.

    Nothing of the transaction was kept, and it may be repeated at once.
    """


class BatchRollback(PicklableException):
    """Rolls back a batch that is kept whole or not at all.

    Raised inside a lock or a transaction, it ends that without storing anything.
    `outcomes` is the answer of the call.
    """

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


def as_skipped(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes of a call with `together` in which one write failed."""
    return [Outcome(Status.SKIPPED) if o.applied else o for o in outcomes]


# -- on condition that the rows are unchanged ------------------------------------------


class Backend(Protocol):
    """The methods of an adapter that `carry_out` needs."""

    atomic: bool
    """Whether a turn is a transaction.

    If another client was first at any row, the whole turn is undone and decided again.
    """
    fenced: bool
    """Whether the backend prevents records of a generation that was since raised.

    Otherwise `carry_out` looks for such records and takes them back.
    """

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Enclose one round of reading, deciding and storing.

        The context is a lock, a transaction that an exception rolls back, or nothing.

        Raises:
            WriteCollision: Another client got in the way.
        """
        ...

    def lay_out(self, collection: Collection, row: Row) -> Any: ...

    async def read(self, reads: ReadSet) -> tuple[Mapping[Address, StoredRow], Mapping[Partition, int]]:
        """Read the rows under the keys, and the partitions' generations."""
        ...

    async def raise_generations(self, raised: Mapping[Partition, int]) -> set[Partition]:
        """Set these generations, each on condition that it is unchanged since the read.

        Returns:
            The partitions whose generation another client has set first.
        """
        ...

    async def store(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        """Store each change, on condition that the row is exactly as it was read.

        Returns:
            The addresses that hold another row by now.
        """
        ...

    async def generations(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """Read the current generations. Only used if not `fenced`."""
        ...

    async def take_back(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        """Restore the row before each change, if the change is still stored.

        Only used if not `fenced`.

        Returns:
            The addresses that were restored.
        """
        ...


async def carry_out(
    store: str, backend: Backend, writes: Sequence[Write], *, together: bool, patience: float
) -> list[Outcome]:
    """Apply the writes and return their outcomes.

    Raises:
        StoreUnavailable: Other clients were first for `patience` seconds.
    """
    outcomes: dict[int, Outcome] = {}
    left: dict[int, Write] = dict(enumerate(writes))
    late, rounds = time.monotonic() + patience, 0
    while True:
        desk = WriteResolver(left, backend.lay_out)
        try:
            async with backend.turn():
                stored, lost = await _round(desk, backend, together)
                if lost and backend.atomic:
                    raise WriteCollision
        except WriteCollision:
            pass  # decide all of it again
        else:
            if not backend.fenced:
                lost |= await _taken_back(store, backend, desk, stored, together)
            outcomes |= desk.outcomes
            left = (
                {i: write for i, write in left.items() if together or _touches(write, lost)} if lost else {}
            )
        if not left:
            return [outcomes[i] for i in range(len(writes))]
        rounds += 1
        if time.monotonic() > late:
            raise StoreUnavailable(store, "others kept changing what the call is about; try again")
        await asyncio.sleep(random.uniform(0, min(0.002 * 2 ** min(rounds, 10), 0.1)))  # noqa: S311 - so that the two do not collide again


async def _round(
    desk: WriteResolver, backend: Backend, together: bool
) -> tuple[list[ResolvedWrite], set[Address | Partition]]:
    """Read, decide and store once.

    Returns:
        The stored changes, and the rows and generations at which other clients were
            first, with the rows that depend on them.
    """
    desk.take(*await backend.read(desk.reads))
    async for number in iterate_cooperatively(desk.writes):
        desk.decide(number)
    if together and not all(o.applied for o in desk.outcomes.values()):
        desk.outcomes = dict(zip(desk.outcomes, as_skipped(desk.outcomes.values()), strict=True))
        return [], set()
    lost: set[Address | Partition] = set()
    if desk.raised:
        lost |= await backend.raise_generations(desk.raised)
    lost |= {c.address for c in desk.changes if c.born in lost}
    changes = [c for c in desk.changes if c.address not in lost]
    if changes:
        lost |= await backend.store(changes)
    return [c for c in changes if c.address not in lost], lost


async def _taken_back(
    store: str, backend: Backend, desk: WriteResolver, stored: Sequence[ResolvedWrite], together: bool
) -> set[Address]:
    """Take back changes under a generation that was raised meanwhile.

    A call with `together` is taken back as a whole. If other clients continued from it,
    only the void changes are taken back, and the outcome of the call is unknown. If no
    void change is stored any more, the call happened before the erasure.

    Returns:
        The addresses that were restored.
    """
    known = {c.born: desk.generation(c.born) for c in stored if c.born is not None}
    if not known:
        return set()
    now = await backend.generations(list(known))
    void = [
        c
        for c in stored
        if c.row is not None
        and c.born is not None
        and max(c.row.generation, known[c.born]) < now.get(c.born, 0)
    ]
    if not void or not together:
        return await backend.take_back(void) if void else set()
    try:
        async with backend.turn():
            taken = await backend.take_back(stored)
            if len(taken) < len(stored):
                raise WriteCollision
        return taken
    except WriteCollision:
        if await backend.take_back(void):
            raise StoreUnavailable(
                store,
                "a generation was raised, and others went on from the call: it was kept in part; try again",
            ) from None
        return set()


def _touches(write: Write, lost: set[Address | Partition]) -> bool:
    """Return whether the write depends on a row or generation that was lost."""
    if not isinstance(write, RaiseGeneration) and (write.collection.name, write.key) in lost:
        return True
    return partition_of(write) in lost
