"""The desk on a toy that stores on condition: what others get to first is decided
again, and nothing is applied twice or lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memory.domain.errors import StoreUnavailable
from memory.ports.batch import (
    Address,
    ReadSet,
    ResolvedWrite,
    StoredRow,
    WriteCollision,
    WriteResolver,
    carry_out,
)
from memory.ports.collections import Collection
from memory.ports.contract.collections import PLAIN, SAMPLES
from memory.ports.contract.support import HERE, delete, key_of, put, record
from memory.ports.record import Partition, Record, Tombstone
from memory.ports.rows import Row, row_of, standing_of
from memory.ports.storable import Unstorable
from memory.ports.writes import (
    Absent,
    Annotate,
    AtVersion,
    Newer,
    Outcome,
    Purge,
    Put,
    RaiseGeneration,
    Status,
    Write,
)

Interference = Callable[["Toy"], None]


class Toy:
    """Rows by address, each replaced only where exactly what was read still stands.
    `before_storing` is done once, by somebody else.
    """

    def __init__(self, *, atomic: bool = False, fenced: bool = False) -> None:
        self.atomic, self.fenced = atomic, fenced
        self.rows: dict[Address, Row] = {}
        self.raised: dict[Partition, int] = {}
        self.before_storing: list[Interference] = []
        self.after_storing: list[Interference] = []
        self.reads: list[ReadSet] = []

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        kept = dict(self.rows), dict(self.raised)
        try:
            yield
        except BaseException:
            self.rows, self.raised = kept
            raise

    def lay_out(self, collection: Collection, row: Row) -> Any:
        if row.body and "too much" in row.body:
            raise Unstorable("body: too much")

    async def read(self, reads: ReadSet) -> tuple[Mapping[Address, StoredRow], Mapping[Partition, int]]:
        self.reads.append(reads)
        wanted = [(c.name, key) for c, keys in reads.keys.items() for key in keys]
        return {a: StoredRow(self.rows[a], token=self.rows[a]) for a in wanted if a in self.rows}, dict(
            self.raised
        )

    async def raise_generations(self, raised: Mapping[Partition, int]) -> set[Partition]:
        self.raised |= raised
        return set()

    async def store(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        while self.before_storing:
            self.before_storing.pop()(self)
        lost = {c.address for c in changes if self.rows.get(c.address) != c.held.token}
        for change in changes:
            if change.address in lost:
                continue
            if change.row is None:
                del self.rows[change.address]
            else:
                self.rows[change.address] = change.row
        while self.after_storing:
            self.after_storing.pop()(self)
        return lost

    async def generations(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        return {p: self.raised.get(p, 0) for p in partitions}

    async def take_back(self, changes: Sequence[ResolvedWrite]) -> set[Address]:
        taken = [c for c in changes if self.rows.get(c.address) is c.row]
        for change in taken:
            del self.rows[change.address]
            if change.held.row is not None:
                self.rows[change.address] = change.held.row
        return {c.address for c in taken}

    def stands(self, n: int = 1, collection: Collection = SAMPLES) -> Any:
        row = self.rows.get((collection.name, key_of(n)))
        return None if row is None else standing_of(collection, row)


def done(toy: Toy, *writes: Write, together: bool = False, patience: float = 5.0) -> Awaitable[list[Outcome]]:
    return carry_out("toy", toy, writes, together=together, patience=patience)


def somebody(write: Put) -> Interference:
    """Somebody else stores this record, whatever stands there."""

    def interfere(toy: Toy) -> None:
        desk = WriteResolver({0: write})
        desk.take({}, toy.raised)
        desk.decide_all()
        toy.rows |= {c.address: c.row for c in desk.changes if c.row is not None}

    return interfere


async def test_each_write_sees_those_before_it_and_a_key_is_stored_once() -> None:
    toy = Toy()
    writes: list[Write] = [
        put(record(1), Absent()),
        put(record(1, version=2), AtVersion(1)),
        delete(1, version=3),
        put(record(2)),
        put(record(1), collection=PLAIN),
    ]
    assert [o.status for o in await done(toy, *writes)] == [Status.APPLIED] * 5
    assert isinstance(toy.stands(), Tombstone)
    assert toy.stands().version == 3
    assert isinstance(toy.stands(2), Record)
    assert isinstance(toy.stands(1, PLAIN), Record)
    assert len(toy.reads) == 1


async def test_what_came_and_went_within_a_call_is_not_stored() -> None:
    toy = Toy()
    stored: list[ResolvedWrite] = []
    toy.before_storing.append(lambda toy: stored.append(None))  # type: ignore[arg-type]
    assert all(
        o.applied
        for o in await done(toy, put(record(1)), delete(1, version=2), Purge(SAMPLES, key_of(1), at=2))
    )
    assert (toy.rows, stored) == ({}, [])


async def test_what_others_got_to_first_is_decided_again_and_nothing_else() -> None:
    toy = Toy()
    toy.before_storing.append(somebody(put(record(1, version=5))))
    first, second = await done(toy, put(record(1), Absent()), put(record(2), Absent()))
    assert (first.status, first.version) == (Status.CONFLICT, 5)
    assert second.applied
    assert toy.stands().version == 5
    assert [list(r.keys.values()) for r in toy.reads] == [[[key_of(1), key_of(2)]], [[key_of(1)]]]


async def test_a_transaction_goes_again_as_a_whole() -> None:
    toy = Toy(atomic=True)
    toy.before_storing.append(lambda toy: collide())
    assert all(
        o.applied for o in await done(toy, put(record(1), Absent()), put(record(2), Absent()), together=True)
    )
    assert len(toy.reads) == 2


def collide() -> None:
    raise WriteCollision


async def test_together_keeps_nothing_where_one_fails() -> None:
    toy = Toy(atomic=True)
    outcomes = await done(
        toy, put(record(1), Absent()), RaiseGeneration(HERE), put(record(2), AtVersion(9)), together=True
    )
    assert [o.status for o in outcomes] == [Status.SKIPPED, Status.SKIPPED, Status.CONFLICT]
    assert (toy.rows, toy.raised) == ({}, {})


async def test_a_write_that_cannot_be_laid_out_is_refused_alone_and_leaves_what_stood() -> None:
    toy = Toy()
    large = put(record(1, version=2, body={"said": "too much"}), Newer())
    first, refused, last = await done(
        toy, put(record(1)), large, Annotate(SAMPLES, key_of(1), at=1, tier="long")
    )
    assert (refused.status, refused.reason) == (Status.REJECTED, "body: too much")
    assert first.applied
    assert last.applied
    assert (toy.stands().version, toy.stands().tier) == (1, "long")


@pytest.mark.parametrize("stood", [None, 1])
async def test_a_record_whose_generation_was_raised_beside_it_is_taken_back_and_refused(
    stood: int | None,
) -> None:
    toy = Toy()
    if stood:
        await done(toy, put(record(1, version=stood)))
    toy.after_storing.append(lambda toy: toy.raised.update({HERE: 1}))
    generation_0 = put(record(1, version=2, generation=0), Newer())
    outcomes = await done(toy, generation_0, put(record(2, generation=1)))
    assert [(o.status, o.reason) for o in outcomes] == [(Status.REJECTED, "generation"), (Status.APPLIED, "")]
    assert (toy.stands().version if stood else toy.stands()) == stood
    assert toy.stands(2).generation == 1


async def test_what_the_call_raised_itself_takes_nothing_back() -> None:
    toy = Toy()
    outcomes = await done(toy, put(record(1, generation=0)), RaiseGeneration(HERE), put(record(2)))
    assert [o.status for o in outcomes] == [Status.APPLIED] * 3
    assert [toy.stands(n).generation for n in (1, 2)] == [0, 1]
    toy.after_storing.append(lambda toy: toy.raised.update({HERE: 5}))
    outcomes = await done(toy, put(record(3, generation=1)), RaiseGeneration(HERE))
    assert [(o.status, o.reason) for o in outcomes] == [(Status.REJECTED, "generation"), (Status.APPLIED, "")]
    assert toy.stands(3) is None


async def test_a_call_that_is_kept_whole_is_taken_back_whole_and_decided_again() -> None:
    toy = Toy(atomic=True)
    toy.after_storing.append(lambda toy: toy.raised.update({HERE: 1}))
    outcomes = await done(toy, put(record(1, generation=0)), put(record(1), collection=PLAIN), together=True)
    assert [o.status for o in outcomes] == [Status.REJECTED, Status.SKIPPED]
    assert toy.rows == {}


async def test_a_call_that_is_kept_whole_and_others_went_on_from_says_so() -> None:
    toy = Toy(atomic=True)
    toy.after_storing += [lambda toy: toy.raised.update({HERE: 1}), somebody(put(record(9, version=2)))]
    with pytest.raises(StoreUnavailable, match="in part"):
        await done(toy, put(record(1, generation=0)), delete(9), together=True)
    assert (toy.stands(1), toy.stands(9).version) == (None, 2)


async def test_a_call_that_is_kept_whole_and_an_erasure_has_taken_was_before_it() -> None:
    toy = Toy(atomic=True)

    def erased(toy: Toy) -> None:
        toy.raised[HERE] = 1
        toy.rows[(SAMPLES.name, key_of(1))] = row_of(SAMPLES, Tombstone(key_of(1), 50))

    toy.after_storing.append(erased)
    outcomes = await done(toy, put(record(1, generation=0)), delete(9, version=2), together=True)
    assert [o.status for o in outcomes] == [Status.APPLIED] * 2
    assert toy.stands(9).version == 2


async def test_a_record_of_no_generation_is_born_in_the_one_that_counts_in_the_end() -> None:
    toy = Toy()
    toy.after_storing.append(lambda toy: toy.raised.update({HERE: 4}))
    (outcome,) = await done(toy, put(record(1), Absent()))
    assert (outcome.generation, toy.stands().generation) == (4, 4)


async def test_a_raised_generation_is_seen_by_what_follows_it() -> None:
    toy = Toy()
    raised, refused, born = await done(
        toy, RaiseGeneration(HERE, 3), put(record(1, generation=2)), put(record(2))
    )
    assert (raised.number, refused.reason, born.generation) == (3, "generation", 3)


async def test_what_a_call_brought_before_it_raised_the_generation_itself_stays() -> None:
    toy = Toy()
    assert all(o.applied for o in await done(toy, put(record(1)), RaiseGeneration(HERE)))
    assert (toy.stands().generation, toy.raised) == (0, {HERE: 1})


async def test_who_never_gets_there_says_so() -> None:
    toy = Toy()

    def again(toy: Toy) -> None:
        newer = toy.stands().version + 1 if toy.rows else 1
        somebody(put(record(1, version=newer)))(toy)
        toy.after_storing.append(lambda toy: toy.before_storing.append(again))

    toy.before_storing.append(again)
    with pytest.raises(StoreUnavailable, match="others kept changing"):
        await done(toy, put(record(1, version=10**9), Newer()), patience=0.05)


async def test_what_is_damaged_is_written_over_by_the_newer_and_conflicts_with_the_rest() -> None:
    address = (SAMPLES.name, key_of(1))
    for write, status in (
        (put(record(1, version=8), Newer()), Status.APPLIED),
        (put(record(1, version=7), Newer()), Status.CONFLICT),
        (put(record(1), AtVersion(7)), Status.CONFLICT),
    ):
        desk = WriteResolver({0: write})
        desk.take({address: StoredRow(token=12, problem="checksum mismatch", version=7)}, {})
        desk.decide_all()
        assert desk.outcomes[0].status is status
        assert [c.held.token for c in desk.changes] == ([12] if status is Status.APPLIED else [])
