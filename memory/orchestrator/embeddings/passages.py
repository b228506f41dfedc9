"""Passages: vectors of the parts of texts, for search by meaning.

Each passage is the vector of one part, and has none of the text.

The write of a text adds a pending step to its record. Any process that finds the step
makes the passages of the text that the record has then. The keys of passages derive
from the record's key. A passage has the version at which the record got this text, so
no passage of an earlier text replaces one of a later text. A deletion leaves tombstones
under the keys of all parts that ever existed. They also keep out the passages of a slow
process.

Passages are in the record's partition, under its generation. So an erasure of the
partition erases them, and late ones are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from memory.domain import ids
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.storage.outbox import Came, Item, Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement
from memory.ports.candidates import CandidateColumns
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Condition
from memory.ports.record import FieldValue, Key, Record, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.vector_scan import exact_cosines
from memory.ports.writes import AtVersion, Delete, Newer, Put

AT_ONCE = 50
"""The number of records whose passages are made together. Later ones wait for no more
than these.
"""
LOOKED_FOR = 50
"""The number of parts of an unreadable record that are looked up at once."""


@dataclass(frozen=True, slots=True)
class PassageSpec:
    """The records that have passages, and how their passages are made.

    `parts` returns the parts of a record's text. `before` returns how many parts its
    earlier texts may have had. `said_at` returns the version at which it got its text.
    """

    of: Collection
    collection: Collection
    named: str
    """The field of a passage that has the id of its record."""
    parts: Callable[[Record], list[str]]
    before: Callable[[Record], int]
    said_at: Callable[[Record], int]
    shared: tuple[str, ...] = ()
    """Fields that a passage copies from its record."""
    which: Condition | None = None
    """Which records of the collection may have passages."""


class PassageBuilder:
    """Makes, renews and ends passages."""

    def __init__(
        self, form: PassageSpec, placement: Placement, *, embeddings: Embeddings, outbox: Outbox
    ) -> None:
        self.form = form
        self._placement = placement
        self._embeddings = embeddings
        self._outbox = outbox

    async def make(self, items: Sequence[Item], tier: str) -> list[Came]:
        """Make the passages of each owner that still exists, in the store of a tier."""
        store, came = self._placement.topology.home(tier), list[Came]()
        for start in range(0, len(items), AT_ONCE):
            pending = [one for one, _ in items[start : start + AT_ONCE]]
            writes = await self._writes([one.owner for one in pending if isinstance(one.owner, Record)], tier)
            of_each = [writes.get(one.owner.key, []) for one in pending]
            done = await self._apply_writes(store, pending, of_each)
            came += [
                one_done or await self._make_restamped(store, one, some)
                for one_done, one, some in zip(done, pending, of_each, strict=True)
            ]
        return came

    async def _make_restamped(
        self, store: Store, pending: OutboxRecord, writes: Sequence[Put | Delete]
    ) -> Came:
        """Write them again, if the owner got the generation of the store since."""
        if (owner := await self._outbox.with_new_generation(pending)) is None:
            return False
        again = [
            replace(one, record=replace(one.record, generation=owner.generation))
            if isinstance(one, Put)
            else one
            for one in writes
        ]
        (came,) = await self._apply_writes(store, [replace(pending, owner=owner)], [again])
        return came

    async def end(self, pending: OutboxRecord, stores: Mapping[Store, int | None]) -> bool:
        """End the passages of an owner in these stores.

        Each store has a number of parts. With None, the number is unknown, and the
        parts are counted first.
        """
        owner = pending.owner
        version = self.form.said_at(owner) if isinstance(owner, Record) else owner.version
        for store, parts in stores.items():
            ends = list(
                self._ends(
                    owner.key, version, await self.count_parts(store, owner.key) if parts is None else parts
                )
            )
            (came,) = await self._apply_writes(store, [pending], [ends])
            if isinstance(came, Exception):
                raise came
            if not came:
                return False
        return True

    async def count_parts(self, store: Store, owner: Key) -> int:
        """Return how many parts a record has, at most."""
        parts = 0
        while True:
            keys = [part_key(owner, parts + part) for part in range(LOOKED_FOR)]
            found = await self._placement.read("passages.read", store, self.form.collection, keys)
            if not any(found):
                return parts
            parts += LOOKED_FOR

    # -- anew --------------------------------------------------------------------------

    async def renewals(self, store: Store, records: Sequence[Record], tier: str) -> list[Put]:
        """Return the puts that give these records' passages a vector of this embedder.

        Passages with another embedder's vector are replaced, and missing ones are
        added. A concurrent writer wins, and ended passages stay ended.
        """
        form, whose, keys = self.form, await self._embeddings.whose(), dict[Key, list[Key]]()
        for record in records:
            keys[record.key] = [part_key(record.key, part) for part, _ in enumerate(form.parts(record))]
        there = await self._there(store, [key for each in keys.values() for key in each])
        lacking = [r for r in records if any(not self._has(there[key], r, whose) for key in keys[r.key])]
        made = await self._writes(lacking, tier)
        puts: list[Put] = []
        for record in lacking:
            new = {write.key: write.record for write in made[record.key] if isinstance(write, Put)}
            for key in keys[record.key]:
                old, passage = there[key], new.get(key)
                if self._has(old, record, whose):
                    continue
                if isinstance(old, Record) and old.version == form.said_at(record):
                    vector = None if passage is None else passage.vector
                    puts.append(
                        Put(
                            form.collection,
                            replace(old, vector=vector, fields={**old.fields, **whose}),
                            AtVersion(old.version),
                        )
                    )
                elif passage is not None:
                    puts.append(Put(form.collection, passage, Newer()))
        return puts

    async def passage_renewals(self, store: Store, passages: Sequence[Record]) -> list[Put]:
        """Return the puts that renew these passages and the others of their records.

        A passage loses its vector if its record has another text now or is gone.
        """
        keys = {
            passage.key: Key(passage.key.tenant, str(passage.fields[self.form.named])) for passage in passages
        }
        located = await self._placement.locate_many(self.form.of, list(dict.fromkeys(keys.values())))
        records = {at.key: at.record for at in located if at.record is not None}
        puts, whose = (
            await self.renewals(store, list(records.values()), passages[0].tier),
            await self._embeddings.whose(),
        )
        for passage in passages:
            record = records.get(keys[passage.key])
            if record is None or not self._is_of(passage, record):
                nothing = replace(passage, vector=None, fields={**passage.fields, **whose})
                puts.append(
                    Put(self.form.collection, nothing, AtVersion(passage.version, passage.role, passage.tier))
                )
        return puts

    async def records_missing_passages(self, store: Store, records: Sequence[Record]) -> list[Record]:
        """Return the records that lack a passage of their current text in a store."""
        keys = {
            record.key: [part_key(record.key, part) for part, _ in enumerate(self.form.parts(record))]
            for record in records
        }
        there = await self._there(store, [key for each in keys.values() for key in each])
        return [
            record
            for record in records
            if not all(self._has(there[key], record, {}) for key in keys[record.key])
        ]

    async def _there(self, store: Store, keys: Sequence[Key]) -> dict[Key, Stored | None]:
        return await self._placement.read_by_key("passages.read", store, self.form.collection, keys)

    def _is_of(self, passage: Record, record: Record) -> bool:
        """Return whether the passage belongs to the record's current text."""
        return passage.version == self.form.said_at(record) and int(str(passage.fields["part"])) < len(
            self.form.parts(record)
        )

    def _has(self, passage: Stored | None, record: Record, whose: Mapping[str, FieldValue]) -> bool:
        """Return whether this is the record's passage with such a vector, or its end.

        With an empty `whose`, any vector will do.
        """
        if isinstance(passage, Record):
            return passage.version == self.form.said_at(record) and passage.fields.items() >= whose.items()
        return isinstance(passage, Tombstone) and passage.version >= self.form.said_at(record)

    # -- writes ------------------------------------------------------------------------

    async def _writes(self, records: Sequence[Record], tier: str) -> dict[Key, list[Put | Delete]]:
        """Return the writes of each record's passages.

        They are a passage for each part, and tombstones for the further parts of longer
        earlier texts.
        """
        parts, whose = (
            [self.form.parts(record) async for record in iterate_cooperatively(records)],
            await self._embeddings.whose(),
        )
        vectors = iter(await self._embeddings.of_texts([part for each in parts for part in each]))
        made: dict[Key, list[Put | Delete]] = {}
        async for record, said in iterate_cooperatively(zip(records, parts, strict=True)):
            had = self._ends(record.key, self.form.said_at(record), self.form.before(record))
            puts: dict[Key, Put | Delete] = {delete.key: delete for delete in had}
            for number, _ in enumerate(said):
                if (vector := next(vectors)) is not None:
                    passage = self._passage(record, number, vector, tier, whose)
                    puts[passage.key] = Put(self.form.collection, passage, Newer())
            made[record.key] = list(puts.values())
        return made

    def _passage(
        self, record: Record, part: int, vector: bytes, tier: str, whose: Mapping[str, FieldValue]
    ) -> Record:
        shared = {name: record.fields.get(name) for name in self.form.shared}
        return Record(
            part_key(record.key, part),
            record.scope,
            self.form.said_at(record),
            record.created_at,
            record.updated_at,
            fields={**shared, **whose, self.form.named: record.key.id, "part": part},
            vector=vector,
            generation=record.generation,
            tier=tier,
        )

    def _ends(self, owner: Key, version: int, parts: int) -> Iterator[Delete]:
        for number in range(parts):
            until = self._placement.tombstone_until()
            yield Delete(self.form.collection, part_key(owner, number), version, Newer(), discard_at=until)

    async def _apply_writes(
        self, store: Store, pending: Sequence[OutboxRecord], writes: Sequence[Sequence[Put | Delete]]
    ) -> list[Came]:
        """Apply the writes, and return the result for each of the owners.

        A write succeeds too if the same or something newer is stored already.
        """
        flat = [write for each in writes for write in each]
        outcomes = iter(await self._placement.write("passages.write", store, *flat) if flat else ())
        came: list[Came] = []
        for one, each in zip(pending, writes, strict=True):
            settled: Came = True
            for write in each:
                try:
                    settled = (
                        await self._outbox.is_settled(one, store, write, next(outcomes), set()) and settled
                    )
                except Exception as error:  # noqa: BLE001 - of one owner
                    settled = error
            came.append(settled)
        return came


def part_key(owner: Key, part: int) -> Key:
    """Return the key of the passage of one part."""
    return Key(owner.tenant, part_id(owner.id, part))


def part_id(owner_id: str, part: int) -> str:
    return ids.beside(owner_id, "passage", str(part))


# -- found -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage that was found.

    `said_at` is the version at which its record got this text. `number` is the number
    of its part, from 0. `cosine` is its similarity to the query.
    """

    vector: bytes
    said_at: int
    number: int
    cosine: float


def by_record(near: bytes, found: CandidateColumns, named: str) -> dict[str, list[FoundPassage]]:
    """Return the passages by the ids of their records.

    Records and passages are sorted by similarity. `found` has the fields `named` and
    `part`.
    """
    vectors = [vector.tobytes() for vector in found.vectors]
    parts: dict[str, list[FoundPassage]] = {}
    rows = zip(
        exact_cosines(near, vectors),
        found.fields[named],
        vectors,
        found.versions,
        found.fields["part"],
        strict=True,
    )
    for cosine, owner, vector, version, part in sorted(rows, key=lambda row: -row[0]):
        parts.setdefault(str(owner), []).append(FoundPassage(vector, version, int(str(part)), cosine))
    return parts
