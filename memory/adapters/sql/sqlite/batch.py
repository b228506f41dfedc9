"""The writes of one call: read, decided and stored in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import table_of
from memory.adapters.sql.sqlite.transaction import Transaction
from memory.ports.batch import Address, BatchRollback, ReadSet, StoredRow, WriteResolver, as_skipped
from memory.ports.record import Partition
from memory.ports.rows import RECORD, row_of
from memory.ports.writes import Absent, Outcome, Put, RaiseGeneration, Status, Write


async def carry_out(session: Session, writes: Sequence[Write], together: bool) -> list[Outcome]:
    """Do the writes and return their outcomes.

    Raises:
        BatchRollback: Nothing may be kept.
    """
    within = Transaction(session)
    outcomes: dict[int, Outcome] = {}
    left: dict[int, Write] = {}
    touched: set[Address | Partition] = set()
    for number, write in enumerate(writes):
        outcome = _put_fresh(within, write) if isinstance(write, Put) and not _meets(write, touched) else None
        if outcome is not None:
            outcomes[number] = outcome
        else:
            left[number] = write
            touched.add(
                write.partition if isinstance(write, RaiseGeneration) else (write.collection.name, write.key)
            )
    if left:
        desk = WriteResolver(left)
        desk.take(*await _read(within, desk.reads))
        desk.decide_all()
        outcomes |= desk.outcomes
        if together and not all(o.applied for o in desk.outcomes.values()):
            raise BatchRollback(as_skipped([outcomes[i] for i in range(len(writes))]))
        _store(within, desk)
    within.finish()
    return [outcomes[i] for i in range(len(writes))]


def _meets(write: Put, touched: set[Address | Partition]) -> bool:
    """Whether an earlier write, decided later, has the same key or partition."""
    return bool(touched) and (
        (write.collection.name, write.key) in touched or write.record.partition in touched
    )


def _put_fresh(within: Transaction, put: Put) -> Outcome | None:
    """Store a record whose key must be free, without looking first.

    Returns None, with nothing changed, where that cannot be done.
    """
    record = put.record
    if not isinstance(put.when, Absent):
        return None
    table = table_of(within.session, put.collection)
    number, generation = within.ensure_partition(table.revisions, record.partition)
    if record.generation is not None and record.generation < generation:
        return None
    row = row_of(put.collection, record)
    if record.generation is None and generation:
        row = row._replace(generation=generation)
    if not table.put_fresh(within, row, number):
        return None
    return Outcome(Status.APPLIED, version=record.version, generation=row.generation)


async def _read(
    within: Transaction, reads: ReadSet
) -> tuple[Mapping[Address, StoredRow], Mapping[Partition, int]]:
    """Return the rows under the keys, and the partitions' generations."""
    held: dict[Address, StoredRow] = {}
    for collection, keys in reads.keys.items():
        table = table_of(within.session, collection)
        for key, columns in (await table.find_all(within.session, keys)).items():
            held[(collection.name, key)] = there = table.held_in(columns, key)
            if table.codec.is_quarantined(columns):
                there.problem = await table.problem(within.session, key) or there.problem
    return held, {partition: within.generation(partition) for partition in reads.partitions}


def _store(within: Transaction, desk: WriteResolver) -> None:
    """Store the decided rows."""
    for partition, generation in desk.raised.items():
        within.raise_to(partition, generation)
    for change in desk.changes:
        table, row = table_of(within.session, change.collection), change.row
        if row is None:
            table.remove(within, change.held)
        elif row.type == RECORD:
            number, _ = within.ensure_partition(table.revisions, Partition(row.tenant, row.scope or ""))
            table.put(within, row, number, change.held, change.found_anew)
        else:
            table.replace(within, row, change.held)
