"""Writes.

Writes that a script can decide take one round trip. For other calls, the adapter reads
the stored values and decides. It stores the results only over exactly those values.

The script knows one operation per key: store a value, or delete it, if a condition
holds (`lua/batch.lua`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from memory.adapters.redis.codec import Parts, held_in, lay_out, name_of
from memory.adapters.redis.connection import Connections
from memory.adapters.redis.keys import Address, address_of, home_bucket, partition_token, tenant_token
from memory.adapters.redis.scripts import Call
from memory.ports.batch import Address as BatchAddress
from memory.ports.batch import (
    ReadSet,
    ResolvedWrite,
    StoredRow,
    WriteCollision,
    as_skipped,
    carry_out,
    slot_of,
)
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.record import Partition, Tombstone
from memory.ports.rows import Row, row_of
from memory.ports.storable import Unstorable
from memory.ports.writes import (
    Absent,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Put,
    RaiseGeneration,
    Status,
    When,
    Write,
)

Direct: TypeAlias = Put | Delete | RaiseGeneration
"""Writes that the script decides by itself."""

_NOTHING = Parts("", "", "", "", "", b"", "")


async def apply(
    store: str, connections: Connections, writes: Sequence[Write], together: bool
) -> list[Outcome]:
    """Apply the writes of a call and return their outcomes."""
    raises = any(isinstance(write, RaiseGeneration) for write in writes)
    if not all(isinstance(write, Direct) for write in writes) and (connections.one_server or not raises):
        return await _by_desk(
            store, connections, writes, together
        )  # stored in one step per server, even if the call is cancelled
    outcomes: list[Outcome] = []
    for is_direct, some in groupby(writes, lambda write: isinstance(write, Direct)):
        run = list(some)
        outcomes += await (
            _at_once(connections, run, together) if is_direct else _by_desk(store, connections, run, together)  # type: ignore[arg-type]
        )
    return outcomes


# -- by the script ---------------------------------------------------------------------


async def _at_once(connections: Connections, writes: Sequence[Direct], together: bool) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    calls: dict[int, Call] = {}
    async for number, write in iterate_cooperatively(enumerate(writes)):
        try:
            calls[number] = _call_for(write)
        except Unstorable as exc:
            outcomes[number] = Outcome(Status.REJECTED, reason=str(exc))
    if not (together and outcomes):
        answers = await send(connections, list(calls.values()), together)
        outcomes |= {
            number: _outcome_of(writes[number], answer) for number, answer in zip(calls, answers, strict=True)
        }
    done = [outcomes.get(number, Outcome(Status.SKIPPED)) for number in range(len(writes))]
    return as_skipped(done) if together and not all(outcome.applied for outcome in done) else done


def _call_for(write: Direct) -> Call:
    match write:
        case RaiseGeneration(partition, to):
            return _raise_call(partition, to)
        case Put(collection, record, when, settles, erases):
            address = address_of(collection.name, record.key)
            generation = "" if record.generation is None else str(record.generation)
            parts = lay_out(collection, row_of(collection, record))
            return write_call(
                address,
                _condition(when),
                parts,
                generation,
                settles=settles,
                fenced=True,
                upkeep=collection.upkeep or erases,
            )
        case Delete(collection, key, version, when, owed, note, discard_at, settles):
            row = row_of(collection, Tombstone(key, version, owed, note, discard_at))
            return write_call(
                address_of(collection.name, key), _condition(when), lay_out(collection, row), settles=settles
            )


def write_call(
    address: Address,
    when: str | bytes,
    parts: Parts | None,
    generation: str = "0",
    *,
    settles: frozenset[str] = frozenset(),
    fenced: bool = False,
    upkeep: bool = False,
) -> Call:
    """Build a call that stores the parts at the address, or removes them for None.

    Args:
        fenced: Store only if the partition's generation is not above `generation`. An
            empty `generation` then stands for the partition's own.
        upkeep: Store even if the server has reached its memory limit.
    """
    p = parts or _NOTHING
    said = (p.kind, p.head, generation, int(fenced), p.tail, p.tier, p.owed, p.content, p.name, int(upkeep))
    return Call(address.bucket, ("write", *address.arguments, when, *said, len(settles), *settles))


def _raise_call(partition: Partition, to: int | None, expected: int | None = None) -> Call:
    bucket = home_bucket(partition)
    wanted = ("" if to is None else to, "" if expected is None else expected)
    return Call(
        bucket,
        (
            "raise",
            bucket,
            tenant_token(partition.tenant),
            partition_token(partition),
            *wanted,
            name_of(partition),
        ),
    )


def still(token: bytes) -> bytes:
    """Return the condition that the stored value is still the one that was read."""
    return b"S" + token


def _condition(when: When) -> str:
    match when:
        case Absent():
            return "A"
        case AtVersion(version, role, tier):
            wanted = (
                f"{version:019d}" if 0 <= version < 2**63 else "-" * 19
            )  # not a possible version, so it equals none
            return f"V{wanted}{role[0] if role else '-'}{'' if tier is None else '=' + tier}"
        case Newer():
            return "N"
        case _:
            return "L"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the script to one call.

    The status is A(pplied), C(onflict) or G(eneration). `value` is the stored value.
    """

    status: str
    generation: int
    value: bytes

    @property
    def applied(self) -> bool:
        return self.status == "A"


async def send(connections: Connections, calls: Sequence[Call], together: bool = False) -> list[Answer]:
    options = (int(together), int(connections.config.grace * 1000))
    raw = await connections.run("batch", calls, options, repeatable=False)
    return [Answer(chr(one[0]), int(one[1:17]), one[17:]) for one in raw]


def _outcome_of(write: Direct, answer: Answer) -> Outcome:
    if isinstance(write, RaiseGeneration):
        return Outcome(Status.APPLIED, number=answer.generation)
    if answer.applied:
        if isinstance(write, Put):
            return Outcome(Status.APPLIED, write.record.version, generation=answer.generation)
        return Outcome(Status.APPLIED, write.version)
    slot = slot_of(write.collection, write.key, held_in(write.collection, write.key, answer.value or None))
    if answer.status == "G":
        return Outcome(Status.REJECTED, slot.version, reason="generation")
    return Outcome(Status.CONFLICT, slot.version, stored=slot.stored_value)


# -- by the desk -----------------------------------------------------------------------


async def _by_desk(
    store: str, connections: Connections, writes: Sequence[Write], together: bool
) -> list[Outcome]:
    return await carry_out(
        store,
        _Backend(connections, together),
        writes,
        together=together,
        patience=connections.config.timeout,
    )


class _Backend:
    """Reads with one script and stores with another.

    It raises generations in the same step. On a cluster, calls that raise generations
    do not use it.
    """

    fenced = True

    def __init__(self, connections: Connections, together: bool) -> None:
        """On a cluster, only writes of one slot come `together`."""
        self.atomic = connections.one_server or together
        self._connections = connections
        self._generations: Mapping[Partition, int] = {}
        self._raises: list[Call] = []

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self._raises = []
        yield
        if self._raises:
            await self._send([])

    def lay_out(self, collection: Collection, row: Row) -> Parts:
        return lay_out(collection, row)

    async def read(self, reads: ReadSet) -> tuple[Mapping[BatchAddress, StoredRow], Mapping[Partition, int]]:
        wanted = [(collection, key) for collection, keys in reads.keys.items() for key in keys]
        calls = [_read_call("value", address_of(collection.name, key)) for collection, key in wanted]
        calls += [
            Call(bucket, ("generation", bucket, partition_token(p)))
            for p in reads.partitions
            for bucket in (home_bucket(p),)
        ]
        answers = await self._connections.run("read", calls, [0], repeatable=True)
        held: dict[BatchAddress, StoredRow] = {}
        async for (collection, key), answer in iterate_cooperatively(zip(wanted, answers, strict=False)):
            held[collection.name, key] = held_in(collection, key, answer[1:] if answer else None)
        self._generations = {
            p: int(answer) for p, answer in zip(reads.partitions, answers[len(wanted) :], strict=True)
        }
        return held, self._generations

    async def raise_generations(self, raised: Mapping[Partition, int]) -> set[Partition]:
        self._raises = [
            _raise_call(partition, to, self._generations.get(partition, 0))
            for partition, to in raised.items()
        ]
        return set()

    async def store(self, changes: Sequence[ResolvedWrite]) -> set[BatchAddress]:
        calls = [
            write_call(
                address_of(c.collection.name, c.key),
                still(c.held.token),
                c.content,
                str(c.row.generation if c.row else 0),
                fenced=c.born is not None,
                upkeep=c.collection.upkeep,
            )
            for c in changes
        ]
        answers = await self._send(calls)
        return {change.address for change, answer in zip(changes, answers, strict=True) if not answer.applied}

    async def _send(self, calls: Sequence[Call]) -> list[Answer]:
        raises, self._raises = self._raises, []
        # The script checks the generations that were read: the call may raise one after
        # it has put a record.
        answers = await send(self._connections, [*calls, *raises], self.atomic)
        if not all(answer.applied for answer in answers[len(calls) :]):
            raise WriteCollision
        return answers[: len(calls)]

    async def generations(self, partitions: Sequence[Partition]) -> Mapping[Partition, int]:
        raise NotImplementedError  # called only for stores that are not fenced

    async def take_back(self, changes: Sequence[ResolvedWrite]) -> set[BatchAddress]:
        raise NotImplementedError


def _read_call(operation: str, address: Address) -> Call:
    return Call(address.bucket, (operation, *address.arguments))
