"""Writes, carried out one after the other inside one write transaction: the table of `memory.ports.writes` on rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, assert_never

from memory.adapters.sql.sqlite.indexing import Indexing
from memory.adapters.sql.sqlite.partitions import Ledger
from memory.adapters.sql.sqlite.rows import GENERATION, ID, OWED, PARTITION, REVISION, ROLE, TENANT, TIER, WORDS
from memory.adapters.sql.sqlite.session import Session
from memory.adapters.sql.sqlite.shelf import Found, Shelf, shelf_of
from memory.adapters.sql.sqlite.words import Counts
from memory.adapters.sql.values import (
    CORRUPT,
    MARK,
    TOMBSTONE,
    Row,
)
from memory.domain.errors import Portable
from memory.ports.deciding import owes_on, without
from memory.ports.record import Corrupt, Key, Mark, Owed, Record, Role, Stored, Tombstone
from memory.ports.storable import HALF_A_CHARACTER, Unstorable
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    RaiseGeneration,
    Release,
    Status,
    When,
    Write,
)


class NotTogether(Portable):
    """Undoes a batch that was to be kept whole."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


class Unreadable(Portable):
    """A write whose condition needs what a corrupt row said."""

    def __init__(self, key: Key) -> None:
        super().__init__(f"record {key.id} is corrupt and was set aside; delete it or put a newer copy over it")


def carry_out(session: Session, writes: Sequence[Write], together: bool) -> list[Outcome]:
    """Do the writes and say what became of each. Raises `NotTogether` where nothing may be kept."""
    hand = Hand(session)
    outcomes = [hand.do(write) for write in writes]
    if together and not all(o.applied for o in outcomes):
        raise NotTogether([Outcome(Status.SKIPPED) if o.applied else o for o in outcomes])
    hand.finish()
    return outcomes


class Hand:
    """What writes, within one transaction."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.ledger = Ledger(session)
        self._indexing: dict[str, Indexing] = {}

    def finish(self) -> None:
        """What is done once, before the commit."""
        for indexing in self._indexing.values():
            indexing.finish()
        self.ledger.flush()

    def indexing(self, shelf: Shelf) -> Indexing:
        """What is done to the words of a collection that has texts."""
        indexing = self._indexing.get(shelf.name)
        if indexing is None:
            assert shelf.words is not None  # noqa: S101 - asked only for collections with texts
            indexing = self._indexing[shelf.name] = Indexing(self.session, shelf, shelf.words)
        return indexing

    def do(self, write: Write) -> Outcome:
        try:
            return self._do(write)
        except (Unstorable, Unreadable) as exc:
            return Outcome(Status.REJECTED, reason=str(exc))
        except UnicodeEncodeError:
            return Outcome(Status.REJECTED, reason=HALF_A_CHARACTER)

    def _do(self, write: Write) -> Outcome:
        match write:
            case Put():
                return self._put(write)
            case Delete():
                return self._delete(write)
            case Release():
                return self._release(write)
            case Annotate():
                return self._annotate(write)
            case Purge():
                return self._purge(write)
            case RaiseGeneration():
                return Outcome(Status.APPLIED, number=self.ledger.raise_generation(write.partition, write.to))
            case _:
                assert_never(write)

    # -- the writes ---------------------------------------------------------------------------------------------------

    def _put(self, write: Put) -> Outcome:
        shelf = shelf_of(self.session, write.collection)
        record = write.record
        if isinstance(write.when, Absent) and (outcome := self._put_fresh(shelf, record)) is not None:
            return outcome
        found = shelf.find(self.session, write.key)
        if record.generation is not None and record.generation < self.ledger.generation(record.partition):
            return Outcome(Status.REJECTED, version=found.version if found else None, reason="generation")
        bound = not isinstance(write.when, Always) and self._owes_on(shelf, found, record.owed, write.settles)
        if bound or not self._holds(shelf, write.when, found, record.version, write.key):
            return self._conflict(shelf, found, write.key)
        return self._store(shelf, found, record)

    def _put_fresh(self, shelf: Shelf, record: Record) -> Outcome | None:
        """Store it without looking first; None, and nothing changed, where something stands there or the record is to be refused."""
        try:
            row = shelf.layout.record_row(record)
            shelf.layout.check(row)
        except (Unstorable, UnicodeEncodeError):
            return None
        place = self.ledger.place(shelf, record.partition)
        if record.generation is not None and record.generation < place[1]:
            return None
        counts = self._complete(shelf, row, place)
        number = shelf.insert_absent(self.session, row)
        if number is None:
            return None
        if counts:
            self.indexing(shelf).put(number, place[0], counts)
        return Outcome(Status.APPLIED, version=record.version, generation=row[GENERATION])

    def _delete(self, write: Delete) -> Outcome:
        shelf = shelf_of(self.session, write.collection)
        found = shelf.find(self.session, write.key)
        bound = self._owes_on(shelf, found, write.owed, write.settles)
        if bound or not self._holds(shelf, write.when, found, write.version, write.key):
            return self._conflict(shelf, found, write.key)
        self.bury(shelf, found, Tombstone(write.key, write.version, write.owed, write.note, write.discard_at))
        return Outcome(Status.APPLIED, version=write.version)

    def _release(self, write: Release) -> Outcome:
        shelf = shelf_of(self.session, write.collection)
        found, stored = self._standing(shelf, write.key)
        if isinstance(stored, Mark) and stored.version == write.at and stored.to == write.to:
            return Outcome(Status.APPLIED, version=write.at)
        if (
            found is None
            or not isinstance(stored, Record)
            or stored.version != write.at
            or stored.role is not Role.HOME
            or owes_on(stored, write.owed, write.settles)
        ):
            return self._conflict(shelf, found, write.key)
        row = shelf.layout.mark_row(Mark(write.key, stored.scope, write.at, write.to, write.owed, write.discard_at))
        shelf.layout.check(row)
        shelf.layout.seal(row)
        self._leave(shelf, found)
        self._replace(shelf, found, row)
        return Outcome(Status.APPLIED, version=write.at)

    def _annotate(self, write: Annotate) -> Outcome:
        shelf = shelf_of(self.session, write.collection)
        found, stored = self._standing(shelf, write.key)
        if found is None or stored is None or isinstance(stored, Corrupt) or stored.version != write.at or not _annotatable(stored, write):
            return self._conflict(shelf, found, write.key)
        owed = without(stored.owed, write.settle)
        layout = shelf.layout
        if isinstance(stored, Mark | Tombstone):
            changed = replace(stored, owed=owed, discard_at=stored.discard_at if write.discard_at is None else write.discard_at)
            row = layout.mark_row(changed) if isinstance(changed, Mark) else layout.tombstone_row(changed)
        else:
            annotated = replace(
                stored,
                owed=owed,
                role=stored.role if write.role is None else write.role,
                tier=stored.tier if write.tier is None else write.tier,
                accesses=stored.accesses + (write.accessed_at is not None),
                accessed_at=stored.accessed_at if write.accessed_at is None else write.accessed_at,
            )
            row = layout.record_row(annotated)
            for at in (PARTITION, GENERATION, REVISION, WORDS):
                row[at] = found.row[at]
            if annotated.role is not stored.role and found.partition is not None:  # searches ask for roles
                row[REVISION] = self.ledger.touch(shelf, found.partition)
        layout.check(row)
        layout.seal(row)
        shelf.update(self.session, found.number, row)
        return Outcome(Status.APPLIED, version=write.at)

    def _purge(self, write: Purge) -> Outcome:
        shelf = shelf_of(self.session, write.collection)
        found, stored = self._standing(shelf, write.key)
        if found is not None and stored is not None:
            if not write.takes(stored) or owes_on(stored, (), write.settles):
                return self._conflict(shelf, found, write.key)
            self._leave(shelf, found)
            shelf.remove(self.session, found.number)
        return Outcome(Status.APPLIED)

    # -- what stands there --------------------------------------------------------------------------------------------

    def _standing(self, shelf: Shelf, key: Key) -> tuple[Found | None, Stored | None]:
        found = shelf.find(self.session, key)
        return found, None if found is None else shelf.stored(self.session, found, key)

    def _holds(self, shelf: Shelf, when: When, found: Found | None, version: int, key: Key) -> bool:
        if found is None:
            return not isinstance(when, AtVersion)
        match when:
            case Absent():
                return False
            case Always():
                return True
            case Newer():
                return found.version < version
            case AtVersion(n, role, tier):
                if found.kind == CORRUPT or not shelf.layout.is_sound(found.row):
                    raise Unreadable(key)
                if found.kind == MARK or found.version != n:
                    return False
                if found.kind == TOMBSTONE:
                    return role is None and tier is None
                return (role is None or found.row[ROLE] == role.value) and tier in (None, found.row[TIER])
            case _:
                assert_never(when)

    def _owes_on(self, shelf: Shelf, found: Found | None, owed: tuple[Owed, ...], settles: frozenset[str]) -> bool:
        """Whether a step is owed there that the write neither owes too nor settles; of a row that cannot be read nothing is known to be owed."""
        if found is None or found.row[OWED] is None:
            return False
        return owes_on(shelf.stored(self.session, found, Key(found.row[TENANT], found.row[ID])), owed, settles)

    def _conflict(self, shelf: Shelf, found: Found | None, key: Key) -> Outcome:
        if found is None:
            return Outcome(Status.CONFLICT)
        return Outcome(Status.CONFLICT, version=found.version, stored=shelf.stored(self.session, found, key))

    # -- changing what stands there -----------------------------------------------------------------------------------

    def _store(self, shelf: Shelf, found: Found | None, record: Record) -> Outcome:
        layout = shelf.layout
        # Everything that may be refused happens before anything is changed.
        row = layout.record_row(record)
        layout.check(row)
        place = self.ledger.place(shelf, record.partition)
        counts = self._complete(shelf, row, place)
        if found is None:
            row_number, same_words = shelf.insert(self.session, row), False
        else:
            row_number = found.number
            same_words = found.partition == place[0] and layout.texts(found.row) == layout.texts(row) and layout.is_sound(found.row)
            self._leave(shelf, found, staying_in=place[0], keep_words=same_words)
            shelf.update(self.session, row_number, row)
        if counts and not same_words:
            self.indexing(shelf).put(row_number, place[0], counts)
        return Outcome(Status.APPLIED, version=record.version, generation=row[GENERATION])

    def _complete(self, shelf: Shelf, row: list[Any], place: tuple[int, int]) -> Counts:
        """Give a record's row what its partition decides; its words."""
        row[WORDS], counts = shelf.layout.words(row)
        row[PARTITION], row[REVISION] = place[0], self.ledger.touch(shelf, place[0])
        if row[GENERATION] is None:
            row[GENERATION] = place[1]
        shelf.layout.seal(row)
        return counts

    def bury(self, shelf: Shelf, found: Found | None, tombstone: Tombstone) -> None:
        """Leave a tombstone where the row is, or a new one."""
        row = shelf.layout.tombstone_row(tombstone)
        shelf.layout.check(row)
        shelf.layout.seal(row)
        if found is not None:
            self._leave(shelf, found)
        self._replace(shelf, found, row)

    def set_aside(self, shelf: Shelf, found: Found, key: Key, problem: str) -> None:
        """Move a row that cannot be read into the quarantine, and leave a bare one in its place."""
        shelf.set_aside(self.session, found, key, found.partition, problem)
        if shelf.words:
            self.indexing(shelf).remove(found)
        if found.partition is not None:
            self.ledger.touch(shelf, found.partition, removed=True)
        row = shelf.layout.corrupt_row(key, found.version)
        shelf.layout.seal(row)
        shelf.update(self.session, found.number, row)

    def _leave(self, shelf: Shelf, found: Found, staying_in: int | None = None, keep_words: bool = False) -> None:
        """Take the row out of the indexes of its partition."""
        if found.kind == CORRUPT:
            shelf.forget_aside(self.session, Key(found.row[TENANT], found.row[ID]))
        if shelf.words and not keep_words:
            self.indexing(shelf).remove(found)
        if found.partition is None:
            return
        if found.partition != staying_in:
            self.ledger.touch(shelf, found.partition, removed=True)

    def _replace(self, shelf: Shelf, found: Found | None, row: Row) -> None:
        """Put a row that is no record where one was found, or a new one."""
        if found is None:
            shelf.insert(self.session, row)
        else:
            shelf.update(self.session, found.number, row)


def _annotatable(stored: Record | Mark | Tombstone, write: Annotate) -> bool:
    """Whether every change asked for can be made to what stands there."""
    if isinstance(stored, Record):
        return write.role_is is None or stored.role is write.role_is
    return write.role_is is None and write.role is None and write.tier is None and write.accessed_at is None
