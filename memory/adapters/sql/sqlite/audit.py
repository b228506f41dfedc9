"""Whether all that is derived from the records is what the records say: the words, the counts, the registry of partitions, SQLite's own indexes.

A row that fails its checksum says nothing: reads set it aside, and what is indexed of it goes with it then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from memory.adapters.sql.sqlite.errors import is_of_a_table
from memory.adapters.sql.sqlite.indexing import IS_DOUBTED, index_anew
from memory.adapters.sql.sqlite.partitions import Ledger
from memory.adapters.sql.sqlite.rows import GENERATION, PARTITION, REVISION, SCOPE, TENANT, WORDS
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.shelf import Found, Shelf, shelf_of
from memory.adapters.sql.sqlite.words import Counts, WordIndex
from memory.adapters.sql.values import CORRUPT
from memory.ports.collections import Collection
from memory.ports.record import Partition
from memory.ports.store import Audit

MOST_PROBLEMS = 100
_PARTITIONS = "SELECT number, tenant, scope FROM memory_partitions"
_FORGOTTEN = "partition_no NOT IN (SELECT number FROM memory_partitions)"
_NOT_ASIDE = f"collection = ? AND (tenant, id) NOT IN (SELECT tenant, id FROM {{}} WHERE record_kind = '{CORRUPT}')"  # noqa: S608

Registry = Mapping[int, Partition]
"""The partition of each number."""


def audit(session: Session, collections: Sequence[Collection], repair: bool) -> Audit:
    """Compare, and with `repair` make anew what differs. In one transaction: it sees one moment, and keeps all of what it mends or nothing."""
    problems = _indexes(session, repair)
    registry: Registry = {number: Partition(tenant, scope) for number, tenant, scope in session.rows(_PARTITIONS)}
    checked = 0
    for collection in collections:
        one = _OfCollection(session, shelf_of(session, collection), registry)
        problems += one.problems()
        checked += one.checked
        if repair:
            one.mend()
    problems += _left_over(session, collections, repair)
    return Audit(checked, tuple(problems[:MOST_PROBLEMS]))


def _indexes(session: Session, repair: bool) -> list[str]:
    """SQLite's own view of tables and indexes. It names these and numbers of rows, never what they hold."""
    said = [str(line) for (line,) in session.rows(f"PRAGMA integrity_check({MOST_PROBLEMS})")]
    if said == ["ok"]:
        return []
    if repair:
        with suppress(sqlite3.IntegrityError):  # two rows of one key: which of them is right no index can say
            session.run("REINDEX")
    return [f"the file: {line.replace(chr(10), '; ')[:200]}" for line in said]


def _left_over(session: Session, collections: Sequence[Collection], repair: bool) -> list[str]:
    """What is kept of partitions that are forgotten, and of rows that are no longer set aside."""
    problems = []
    asked: list[tuple[str, str, tuple[str, ...]]] = [("memory_revisions", _FORGOTTEN, ())]
    asked += [("memory_quarantine", _NOT_ASIDE.format(collection.name), (collection.name,)) for collection in collections]
    for table, where, values in asked:
        ((count,),) = session.rows(f"SELECT count(*) FROM {table} WHERE {where}", values)  # noqa: S608
        if count:
            problems.append(f"{table}: {count} rows are of what is no longer there")
            if repair:
                session.run(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608
    return problems


class _OfCollection:
    """What is derived from the records of one collection."""

    def __init__(self, session: Session, shelf: Shelf, registry: Registry) -> None:
        self._session, self._shelf, self._registry = session, shelf, registry
        self._misplaced: list[int] = []
        self._miscounted: list[int] = []
        self._reindex = False
        self.checked = 0

    def problems(self) -> list[str]:
        """What differs, a sentence each."""
        name = self._shelf.name
        if self._shelf.words is None:
            self._look_at_all()
        words = self._words(self._shelf.words) if self._shelf.words is not None else []
        self._reindex = bool(words)
        if self._misplaced:
            words.append(f"{name}: {len(self._misplaced)} records are in a partition that is not registered as theirs")
        if self._miscounted:
            words.append(f"{name}: {len(self._miscounted)} records carry a wrong count of their words")
        return words

    def _records(self) -> Iterator[tuple[int, int | None, Counts | None]]:
        """Every live row: its number, its partition and its words; neither where it is not as it was written."""
        self._misplaced, self._miscounted, self.checked = [], [], 0
        for rows in self._shelf.live(self._session):
            self.checked += len(rows)
            for found in rows:
                if not self._shelf.layout.is_sound(found.row):
                    yield found.number, None, None
                    continue
                if self._registry.get(found.partition or 0) != Partition(found.row[TENANT], found.row[SCOPE]):
                    self._misplaced.append(found.number)
                total, counts = self._shelf.layout.words(found.row)
                if total != found.row[WORDS]:
                    self._miscounted.append(found.number)
                yield found.number, found.partition, counts

    def _look_at_all(self) -> None:
        for _ in self._records():
            pass

    def _words(self, index: WordIndex) -> list[str]:
        name = self._shelf.name
        doubted = self._session.row(IS_DOUBTED, (name,)) is not None
        problems = [f"{name}: a write found the word index damaged"] if doubted else []
        lacking = surplus = 0
        try:
            held = index.held(self._session)
            for number, partition, counts in self._records():
                holds = held.pop(number, 0)
                if partition is None or counts is None:
                    continue
                if any(index.count(self._session, partition, word, number) != count for word, count in counts.items()):
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
        """Make anew what `problems` found."""
        ledger = Ledger(self._session)
        for found in self._shelf.at(self._session, sorted({*self._misplaced, *self._miscounted})):
            self._mend(found, ledger)
        ledger.flush()
        if self._shelf.words is not None and (self._reindex or self._misplaced):
            index_anew(self._session, self._shelf)

    def _mend(self, found: Found, ledger: Ledger) -> None:
        row = list(found.row)
        partition = Partition(row[TENANT], row[SCOPE])
        ledger.raise_generation(partition, row[GENERATION])  # what is stored there tells how high it was
        row[PARTITION] = ledger.place(self._shelf, partition)[0]
        if found.partition is not None and found.partition != row[PARTITION]:
            ledger.touch(self._shelf, found.partition, removed=True)
        row[REVISION], row[WORDS] = ledger.touch(self._shelf, row[PARTITION]), self._shelf.layout.words(row)[0]
        self._shelf.layout.seal(row)
        self._shelf.update(self._session, found.number, row)
