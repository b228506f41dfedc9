"""The writes of one call, and tombstones for what a query matches: read, decided and stored in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from memory.adapters.sql.sqlite import quarantine
from memory.adapters.sql.sqlite.filters import matches
from memory.adapters.sql.sqlite.partitions import Directory, numbers_of
from memory.adapters.sql.sqlite.session import Session, chunked
from memory.adapters.sql.sqlite.table import Found, Table, table_of
from memory.adapters.sql.sqlite.words import NOTHING, Indexed, Indexing, indexed
from memory.ports.batch import Address, Change, Desk, Held, NotTogether, Reads, skipped, slot_of
from memory.ports.deciding import tombstone_over
from memory.ports.query import Partitions, Query
from memory.ports.record import Key, Partition
from memory.ports.rows import RECORD, Row, corrupt_row, row_of
from memory.ports.writes import Absent, Outcome, Put, RaiseGeneration, Status, Write


def carry_out(session: Session, writes: Sequence[Write], together: bool) -> list[Outcome]:
    """Do the writes and say what became of each. Raises `NotTogether` where nothing may be kept."""
    batch = Batch(session)
    outcomes: dict[int, Outcome] = {}
    left: dict[int, Write] = {}
    touched: set[Address | Partition] = set()
    for number, write in enumerate(writes):
        outcome = batch.put_fresh(write) if isinstance(write, Put) and not _meets(write, touched) else None
        if outcome is not None:
            outcomes[number] = outcome
        else:
            left[number] = write
            touched.add(write.partition if isinstance(write, RaiseGeneration) else (write.collection.name, write.key))
    if left:
        desk = Desk(left)
        desk.take(*batch.read(desk.reads))
        desk.decide_all()
        outcomes |= desk.outcomes
        if together and not all(o.applied for o in desk.outcomes.values()):
            raise NotTogether(skipped([outcomes[i] for i in range(len(writes))]))
        batch.store(desk)
    batch.finish()
    return [outcomes[i] for i in range(len(writes))]


def _meets(write: Put, touched: set[Address | Partition]) -> bool:
    """Whether a write before it, which is decided later, is about its key or its partition."""
    return bool(touched) and ((write.collection.name, write.key) in touched or write.record.partition in touched)


def delete_matching(session: Session, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]) -> int:
    """Tombstones for what matches and for every corrupt record there, whatever the filter."""
    table = table_of(session, query.collection)
    partitions = numbers_of(session, query.where) if isinstance(query.where, Partitions) else ()
    if isinstance(query.where, Partitions) and not partitions:
        return 0
    batch = Batch(session)
    deleted = 0

    def delete(key: Key, held: Held) -> None:
        nonlocal deleted
        tombstone = tombstone_over(key, slot_of(table.collection, key, held), version, discard_at, carry)
        batch.replace(table, held, row_of(table.collection, tombstone))
        deleted += 1

    asked = matches(session, table, query, partitions)
    for chunk in chunked(list(asked), session.thresholds.deleted_at_once):
        for found in table.at(session, chunk):
            key = table.key(found)
            held = table.held(session, found, key)
            if asked[found.number] or held.problem:
                delete(key, held)
    for key in quarantine.keys(session, table.name, query.where, partitions):
        there = table.find(session, key)
        if there is not None and table.is_quarantined(there):
            delete(key, table.held(session, there, key))
    batch.finish()
    return deleted


class Batch:
    """What is read and stored within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = Directory(session)
        self._indexings: dict[str, Indexing] = {}

    def read(self, reads: Reads) -> tuple[Mapping[Address, Held], Mapping[Partition, int]]:
        """What stands under the keys, and the partitions' generations."""
        held: dict[Address, Held] = {}
        for collection, keys in reads.keys.items():
            table = table_of(self._session, collection)
            for key in keys:
                if (found := table.find(self._session, key)) is not None:
                    held[(collection.name, key)] = table.held(self._session, found, key)
        return held, {partition: self._directory.generation(partition) for partition in reads.partitions}

    def put_fresh(self, put: Put) -> Outcome | None:
        """Store what may only stand where nothing does, without looking first. None, and nothing changed, where that cannot be done."""
        record = put.record
        if not isinstance(put.when, Absent):
            return None
        table = table_of(self._session, put.collection)
        number, generation = self._directory.registered(table, record.partition)
        if record.generation is not None and record.generation < generation:
            return None
        row = row_of(put.collection, record)
        if record.generation is None and generation:
            row = row._replace(generation=generation)
        inserted = table.insert_absent(self._session, table.codec.laid_out(row, number, self._directory.touch(table, number)))
        if inserted is None:
            return None
        self._index(table, inserted, number, row)
        return Outcome(Status.APPLIED, version=record.version, generation=row.generation)

    def store(self, desk: Desk) -> None:
        """Let stand what was decided."""
        for partition, generation in desk.raised.items():
            self._directory.raise_to(partition, generation)
        for change in desk.changes:
            table = table_of(self._session, change.collection)
            if change.row is None:
                self._leave(table, change.held)
                table.remove(self._session, change.held.token.number)
            elif change.row.type == RECORD:
                self._store_record(table, change, change.row)
            else:
                self.replace(table, change.held, change.row)

    def _store_record(self, table: Table, change: Change, row: Row) -> None:
        held = change.held
        found: Found | None = held.token
        number, _ = self._directory.registered(table, Partition(row.tenant, row.scope or ""))
        if found is None:
            self._index(table, table.insert(self._session, table.codec.laid_out(row, number, self._directory.touch(table, number))), number, row)
            return
        stood = held.row
        unseen = not change.found_anew and stood is not None and stood.role == row.role  # by searches
        same_words = not change.found_anew or (stood is not None and found.partition == number and stood.texts == row.texts)
        revision = found.derived.revision if unseen else self._directory.touch(table, number)
        values = table.codec.laid_out(row, number, revision, found.derived.length if same_words else None)
        self._leave(table, held, staying_in=number, keep_words=same_words)
        table.update(self._session, found.number, values, but_words=same_words)
        if not same_words:
            self._index(table, found.number, number, row)

    def _index(self, table: Table, row_number: int, partition: int, row: Row) -> None:
        if row.words is not None:
            self._indexing(table).put(row_number, partition, row.words)

    def replace(self, table: Table, held: Held, row: Row) -> None:
        """Put a row that is no record where one was found, or a new one."""
        values = table.codec.laid_out(row)
        if held.token is None:
            table.insert(self._session, values)
        else:
            self._leave(table, held)
            table.update(self._session, held.token.number, values)

    def quarantine(self, table: Table, found: Found, key: Key, problem: str) -> None:
        """Move a row that cannot be read into the quarantine, and leave a bare one in its place."""
        columns = dict(zip(table.codec.read_columns, (*found.derived, *found.values), strict=True))
        quarantine.keep(self._session, table.name, key, found.partition, problem, columns)
        self._unindex(table, found, None)
        table.update(self._session, found.number, table.codec.laid_out(corrupt_row(key, table.codec.version(found.values))))

    def _leave(self, table: Table, held: Held, staying_in: int | None = None, keep_words: bool = False) -> None:
        """Take what stands there out of the indexes of its partition, and out of the quarantine."""
        found: Found = held.token
        if table.is_quarantined(found):
            quarantine.drop(self._session, table.name, table.key(found))
        self._unindex(table, found, None if keep_words else self._indexed(table, held), staying_in, keep_words)

    def _indexed(self, table: Table, held: Held) -> Indexed | None:
        """What the word index holds of what stands there; None where that cannot be told."""
        found: Found = held.token
        if held.row is None and not table.is_quarantined(found):
            return None
        if found.partition is None or table.words is None:
            return NOTHING
        return indexed(found.partition, table.words_of(self._session, found.number))

    def _unindex(self, table: Table, found: Found, was: Indexed | None, staying_in: int | None = None, keep_words: bool = False) -> None:
        if table.words is not None and not keep_words:
            self._indexing(table).remove(found.number, was)
        if found.partition not in (None, staying_in):
            self._directory.touch(table, found.partition, removed=True)

    def _indexing(self, table: Table) -> Indexing:
        """What is done to the words of a collection that has texts."""
        indexing = self._indexings.get(table.name)
        if indexing is None:
            assert table.words is not None  # noqa: S101 - asked only for collections with texts
            indexing = self._indexings[table.name] = Indexing(self._session, table.collection, table.words)
        return indexing

    def finish(self) -> None:
        """What is done once, before the commit."""
        for indexing in self._indexings.values():
            indexing.finish()
        self._directory.flush()
