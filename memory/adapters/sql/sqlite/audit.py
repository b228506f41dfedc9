"""The audit: it compares all derived data with the records.

Derived are the words, the counts, the registry of partitions, and SQLite's own indexes.
A row that fails its checksum does not count: reads quarantine it and delete its index
entries then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from memory.adapters.sql.sqlite.errors import is_of_a_table
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.table import LENGTH, NUMBER, SqliteTable, partition_of, table_of
from memory.adapters.sql.sqlite.transaction import Transaction
from memory.adapters.sql.sqlite.words import IS_DOUBTED, TRUSTED, Counts, Posting, WordIndex
from memory.adapters.sql.table import Columns
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.record import Partition
from memory.ports.rows import CORRUPT
from memory.ports.store import MOST_NAMED, Audit

_PARTITIONS = "SELECT number, tenant, scope FROM memory_partitions"
_FORGOTTEN = "partition_no NOT IN (SELECT number FROM memory_partitions)"
_NOT_QUARANTINED = (
    f"collection = ? AND (tenant, id) NOT IN (SELECT tenant, id FROM {{}} WHERE row_type = '{CORRUPT}')"  # noqa: S608
)

Registry = Mapping[int, Partition]
"""The partition of each number."""


def audit(session: Session, collections: Sequence[Collection], repair: bool) -> Audit:
    """Compare, and with `repair` rebuild the data that differs.

    It runs in one transaction: it sees one moment, and keeps all repairs or none.
    """
    problems = _indexes(session, repair)
    registry: Registry = {
        number: Partition(tenant, scope) for number, tenant, scope in session.rows(_PARTITIONS)
    }
    checked = 0
    for collection in collections:
        one = _CollectionAudit(session, table_of(session, collection), registry)
        problems += one.problems()
        checked += one.checked
        if repair:
            one.mend()
    problems += _left_over(session, collections, repair)
    return Audit(checked, tuple(problems))


def _indexes(session: Session, repair: bool) -> list[str]:
    """Return SQLite's own findings about tables and indexes.

    They name these and numbers of rows, never contents.
    """
    said = [str(line) for (line,) in session.rows(f"PRAGMA integrity_check({MOST_NAMED})")]
    if said == ["ok"]:
        return []
    if repair:
        with suppress(sqlite3.IntegrityError):  # two rows of one key: no index shows which is right
            session.run("REINDEX")
    return [f"the file: {line.replace(chr(10), '; ')[:200]}" for line in said]


def _left_over(session: Session, collections: Sequence[Collection], repair: bool) -> list[str]:
    """Return leftovers of forgotten partitions, and of rows no longer quarantined."""
    problems = []
    asked: list[tuple[str, str, tuple[str, ...]]] = [("memory_revisions", _FORGOTTEN, ())]
    asked += [
        ("memory_quarantine", _NOT_QUARANTINED.format(collection.name), (collection.name,))
        for collection in collections
    ]
    for table, where, values in asked:
        ((count,),) = session.rows(f"SELECT count(*) FROM {table} WHERE {where}", values)  # noqa: S608
        if count:
            problems.append(f"{table}: {count} rows are of what is no longer there")
            if repair:
                session.run(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608
    return problems


class _CollectionAudit:
    """The data derived from the records of one collection."""

    def __init__(self, session: Session, table: SqliteTable, registry: Registry) -> None:
        self._session, self._table, self._registry = session, table, registry
        self._misplaced: list[int] = []
        self._miscounted: list[int] = []
        self._reindex = False
        self.checked = 0

    def problems(self) -> list[str]:
        """Return the differences, a sentence each."""
        name = self._table.name
        if self._table.words is None:
            self._look_at_all()
        words = self._words(self._table.words) if self._table.words is not None else []
        self._reindex = bool(words)
        if self._misplaced:
            words.append(
                f"{name}: {len(self._misplaced)} records are in a partition that is not registered as theirs"
            )
        if self._miscounted:
            words.append(f"{name}: {len(self._miscounted)} records carry a wrong count of their words")
        return words

    def _records(self) -> Iterator[tuple[int, int | None, Counts | None]]:
        """Yield the number, partition and words of every live row.

        Partition and words are None where the row is not as it was written.
        """
        self._misplaced, self._miscounted, self.checked = [], [], 0
        for rows in self._table.live(self._session):
            self.checked += len(rows)
            for found in rows:
                (row, problem), number, partition = (
                    self._table.read_row(found),
                    found[NUMBER],
                    partition_of(found),
                )
                if problem:
                    yield number, None, None
                    continue
                if self._registry.get(partition or 0) != Partition(row.tenant, row.scope or ""):
                    self._misplaced.append(number)
                words = None
                if self._table.words is not None:
                    words = lexical.index(self._table.collection, row.texts)
                    if (
                        words != self._table.words_of(self._session, found)
                        or lexical.length(words) != found[LENGTH]
                    ):
                        self._miscounted.append(number)
                yield number, partition, {} if words is None else lexical.packed_counts(words)

    def _look_at_all(self) -> None:
        for _ in self._records():
            pass

    def _words(self, index: WordIndex) -> list[str]:
        name = self._table.name
        doubted = self._session.row(IS_DOUBTED, (name,)) is not None
        problems = [f"{name}: a write found the word index damaged"] if doubted else []
        lacking = surplus = 0
        try:
            held = index.words_per_row(self._session)
            for number, partition, counts in self._records():
                holds = held.pop(number, 0)
                if partition is None or counts is None:
                    continue
                if any(
                    index.count(self._session, partition, word, number) != count
                    for word, count in counts.items()
                ):
                    lacking += 1
                elif holds != len(counts):
                    surplus += 1
        except sqlite3.Error as exc:
            if not is_of_a_table(exc):
                raise
            self._look_at_all()
            return [*problems, f"{name}: the word index is missing or damaged"]
        found = (
            (lacking, "records are not in the word index with all their words"),
            (surplus, "records are in the word index with words they do not hold"),
            (len(held), "rows are in the word index that hold no record"),
        )
        return problems + [f"{name}: {count} {what}" for count, what in found if count]

    def mend(self) -> None:
        """Rebuild the data that `problems` found to differ."""
        within = Transaction(self._session)
        for found in self._table.at(self._session, sorted({*self._misplaced, *self._miscounted})):
            self._mend(found, within)
        within.finish()
        if self._table.words is not None and (self._reindex or self._misplaced):
            reindex(self._session, self._table)

    def _mend(self, found: Columns, within: Transaction) -> None:
        table, was = self._table, partition_of(found)
        row, _ = table.read_row(found)
        partition = Partition(row.tenant, row.scope or "")
        if row.generation > within.generation(partition):
            within.raise_to(partition, row.generation)  # the stored rows show how high it was
        number, _ = within.ensure_partition(table.revisions, partition)
        if was is not None and was != number:
            within.touch(table.revisions, was, removed=True)
        if table.words is not None:
            row = row._replace(words=lexical.index(table.collection, row.texts))
        table.update(
            self._session,
            found[NUMBER],
            table.codec.laid_out(row, number, within.touch(table.revisions, number)),
        )


def reindex(session: Session, table: SqliteTable) -> None:
    """Rebuild the word index from the records, and trust it again."""
    assert table.words is not None  # noqa: S101 - asked only for collections with texts
    assert table.tables.words is not None  # noqa: S101 - so there is a table of them
    session.run(f"DROP VIEW IF EXISTS {table.words.table}_instances")
    session.run(f"DROP TABLE IF EXISTS {table.words.table}")
    table.tables.words.create(session.connection)
    for rows in table.live(session):
        postings: list[Posting] = []
        for found in rows:
            (row, problem), partition = table.read_row(found), partition_of(found)
            if not problem and partition is not None:
                counts = lexical.packed_counts(lexical.index(table.collection, row.texts))
                postings += [(partition, word, found[NUMBER], count) for word, count in counts.items()]
        table.words.put(session, postings)
    session.run(TRUSTED, (table.name,))
