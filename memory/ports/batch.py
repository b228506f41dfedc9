"""The writes of one call, decided in order on what stands under their keys: for every
adapter that reads, decides and writes back.

A `WriteResolver` names the rows to read (`reads`), takes them (`take`) and decides one
write after the other; each sees those before it (`decide`). Then it names the rows to
store, the last of each key (`changes`), and the generations that were raised. An
adapter that holds a lock or a transaction reads, decides and stores, and is done.
`carry_out` is for the others: they store each change on condition that what was read
still stands, and what others got to first is decided again.
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
    """What an adapter read under a key. `row` of None: nothing stands there, or, with a
    `problem`, nothing that can be read; then `version` is what can still be told of it.
    `token` is the adapter's own: by it what stands there is written over, and known
    again.
    """

    row: Row | None = None
    token: Any = None
    problem: str = ""
    version: int | None = None


NOTHING = StoredRow()


@dataclass(slots=True)
class ResolvedWrite:
    """The row that a call leaves under a key; None deletes what is there.

    `found_anew`: its words or its vector may differ from the row before.
    """

    collection: Collection
    key: Key
    held: StoredRow
    row: Row | None
    found_anew: bool
    content: Any = None
    """What `lay_out` made of the row."""
    born: Partition | None = None
    """The partition of a record that was put: it may stand there only while that
    partition's generation is not above the row's.
    """

    @property
    def address(self) -> Address:
        return (self.collection.name, self.key)


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What is to be read: keys by collection, and partitions whose generations are
    asked for.
    """

    keys: dict[Collection, list[Key]] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)


LayOut: TypeAlias = Callable[[Collection, Row], Any]
"""Makes of a row what an adapter stores. Raises `Unstorable` for what it cannot hold:
that write is rejected, its neighbours are not.
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
        """What stands there: what is not named is not there, and a partition that is
        not named has generation 0.
        """
        self._held, self._generations = held, dict(generations)

    def generation(self, partition: Partition) -> int:
        """As it was read, or raised by the call itself."""
        return self._generations.get(partition, 0)

    def decide(self, number: int) -> None:
        """Decide the write of this number, seeing those that were decided before."""
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
        """What is to be stored, one change a key; what was not there and is not to be
        is no change.
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
        """Take in what a write leaves. Where it cannot be laid out nothing has changed."""
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
    """What was read, to be decided on."""
    if held.problem:
        return Slot.of(collection, Row(key.tenant, key.id, "", 0), held.problem, held.version)
    return EMPTY if held.row is None else Slot.of(collection, held.row)


def partition_of(write: Write) -> Partition | None:
    """The partition whose generation the write asks for or raises."""
    if isinstance(write, RaiseGeneration):
        return write.partition
    return write.record.partition if isinstance(write, Put) else None


class WriteCollision(Exception):
    """Undoes a transaction that others got in the way of: nothing of it was kept, and
    it may be done again at once.
    """


class BatchRollback(PicklableException):
    """Undoes a batch that was to be kept whole: a lock or a transaction is left without
    storing anything. `outcomes` is what the call answers.
    """

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


def as_skipped(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """What a call that is kept whole or not at all answers where one of its writes
    failed.
    """
    return [Outcome(Status.SKIPPED) if o.applied else o for o in outcomes]


# -- on condition that what was read still stands --------------------------------------


class Backend(Protocol):
    """What `carry_out` asks of an adapter."""

    atomic: bool
    """Whether a turn is a transaction: where others were first anywhere, all of it is
    undone and decided again.
    """
    fenced: bool
    """Whether a change that brings a record of a generation that has been raised cannot
    come to stand: else it is looked for and taken back.
    """

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Around one reading, deciding and storing: a lock, a transaction that is
        undone by what is raised within, or nothing.

        Raises `WriteCollision` where others got in the way.
        """
        ...

    def lay_out(self, collection: Collection, row: Row) -> Any: ...

    async def read(self, reads: ReadSet) -> tuple[Mapping[Address, StoredRow], Mapping[Partition, int]]:
        """What stands under the keys, and the partitions' generations."""
        ...

    async def raise_generations(self, raised: Mapping[Partition, int]) -> set[Partition]:
        """Set these generations, each over the one that was read: those that others
        have set first.
        """
        ...

    async def store(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        """Let each change stand in the place of exactly what was read: those where
        something else stands by now.
        """
        ...

    async def generations(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        """The generations as they are now; only where not `fenced`."""
        ...

    async def take_back(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        """Let stand what stood before, where the change still stands: those that were
        taken back; only where not `fenced`.
        """
        ...


async def carry_out(
    store: str, backend: Backend, writes: Sequence[Write], *, together: bool, patience: float
) -> list[Outcome]:
    """What became of each write. Raises `StoreUnavailable` where others kept getting
    there first for `patience` seconds.
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
            pass  # all of it again
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
        await asyncio.sleep(random.uniform(0, min(0.002 * 2 ** min(rounds, 10), 0.1)))  # noqa: S311 - so that the two do not meet again


async def _round(
    desk: WriteResolver, backend: Backend, together: bool
) -> tuple[list[ResolvedWrite], set[Address | Partition]]:
    """Read, decide, store: what was stored, and what others got to first, with
    everything that was decided on it.
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
    """What was stored under a generation that others have raised meanwhile, and no
    longer stands. A call that is kept whole goes whole; where others went on from it
    only what is void goes, and how the call ended is unknown; where nothing void stands
    any more it was before the erasure.
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
    """Whether the write was decided on something that others got to first."""
    if not isinstance(write, RaiseGeneration) and (write.collection.name, write.key) in lost:
        return True
    return partition_of(write) in lost
