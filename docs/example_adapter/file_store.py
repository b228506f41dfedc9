"""A store of one's own in a hundred lines: one JSON file, written anew at every change. The example of docs/adapters.md.

Everything that is decided, filtered, sorted and paged is decided by the library's own functions (`memory.ports.deciding`, `memory.ports.asking`):
an engine that can do these itself is faster, and has to do them to the letter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from memory.domain.errors import ConfigError, StoreError
from memory.ports.adapter import Adapter
from memory.ports.asking import lets_through, page_of
from memory.ports.base import BaseStore, record_bytes
from memory.ports.capabilities import Capabilities
from memory.ports.codec import from_json, to_json
from memory.ports.collections import Collection
from memory.ports.deciding import Slot, decide
from memory.ports.query import Count, Everywhere, Kind, Page, Partitions, Query, Tenant
from memory.ports.record import Key, Mark, Partition, Record, Standing, Stored, Tombstone
from memory.ports.store import Health
from memory.ports.writes import Append, Outcome, Put, RaiseGeneration, Status, Write

CLAIMS = Capabilities(durable=True, conditional=True, atomic=True, filter=True, order=True, tenant_wide=True)
KINDS: dict[type[Standing], Kind] = {Record: Kind.RECORD, Mark: Kind.MARK, Tombstone: Kind.TOMBSTONE}


Slots = dict[str, dict[Key, str]]
"""What stands under each key of each collection, as JSON text: what is read from it is nobody else's."""


class FileStore(BaseStore):
    """Records in one JSON file, for one process. A call is kept whole or not at all: the file is replaced when its new content is on the disk."""

    claims = CLAIMS

    def __init__(self, path: str | Path, name: str = "file") -> None:
        super().__init__(name)
        self._path = Path(path)
        self._slots: Slots = {}
        self._numbers: dict[str, int] = {}  # generations and counters

    async def _open(self, collections: Sequence[Collection]) -> None:
        held = json.loads(self._path.read_text()) if self._path.exists() else {"slots": {}, "numbers": {}}
        self._numbers = held["numbers"]
        self._slots = {c.name: {Key(*json.loads(key)): text for key, text in held["slots"].get(c.name, {}).items()} for c in collections}

    async def _close(self) -> None:
        self._slots, self._numbers = {}, {}

    async def _check(self) -> Health:
        return Health(ok=os.access(self._path.parent, os.W_OK), detail=str(self._path))

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return [_read(self._slots, collection, key) for key in keys]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        slots, numbers = self._copied()
        outcomes = [_carry_out(slots, numbers, write) for write in writes]
        if together and not all(o.applied for o in outcomes):
            return [Outcome(Status.SKIPPED) if o.applied else o for o in outcomes]
        self._keep(slots, numbers)
        return outcomes

    async def _query(self, query: Query) -> Page:
        records, cursor = page_of(self._matching(query), query)
        return Page(tuple(records), cursor)

    async def _count(self, query: Query) -> Count:
        matching = self._matching(query)
        return Count(len(matching), sum(record_bytes(s) for s in matching if isinstance(s, Record)))

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, keep: Sequence[str]) -> int:
        slots, numbers = self._copied()
        matching = self._matching(query)
        for one in matching:
            kept = {name: one.fields[name] for name in keep if one.fields.get(name) is not None} if isinstance(one, Record) else {}
            tombstone = Tombstone(one.key, max(one.version + 1, version), note=kept, discard_at=discard_at)
            slots[query.collection.name][one.key] = json.dumps(to_json(tombstone))
        self._keep(slots, numbers)
        return len(matching)

    def _translate(self, error: Exception) -> Exception | None:
        return StoreError(self.name, f"{self._path}: {error.strerror}") if isinstance(error, OSError) else None

    def _matching(self, query: Query) -> list[Standing]:
        held = [s for key in self._slots[query.collection.name] if (s := _read(self._slots, query.collection, key)) is not None]
        asked = [s for s in held if KINDS[type(s)] in query.kinds and _is_there(s, query)]
        return [s for s in asked if (not isinstance(s, Record) or s.role in query.roles) and lets_through(query.filter, s)]

    def _copied(self) -> tuple[Slots, dict[str, int]]:
        return {name: dict(held) for name, held in self._slots.items()}, dict(self._numbers)

    def _keep(self, slots: Slots, numbers: dict[str, int]) -> None:
        """On the disk first, then for readers."""
        written = {name: {json.dumps([key.tenant, key.id]): text for key, text in held.items()} for name, held in slots.items()}
        beside = self._path.with_suffix(".new")
        with beside.open("w") as file:
            json.dump({"slots": written, "numbers": numbers}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        self._slots, self._numbers = slots, numbers


def _read(slots: Slots, collection: Collection, key: Key) -> Standing | None:
    text = slots[collection.name].get(key)
    return None if text is None else from_json(collection, json.loads(text))


def _is_there(standing: Standing, query: Query) -> bool:
    if isinstance(query.where, Everywhere):
        return True
    if isinstance(query.where, Tenant):
        return standing.key.tenant == query.where.tenant
    return isinstance(standing, Record) and isinstance(query.where, Partitions) and standing.partition in query.where.partitions


def _carry_out(slots: Slots, numbers: dict[str, int], write: Write) -> Outcome:
    """One write on these slots and numbers."""
    if isinstance(write, RaiseGeneration):
        now = numbers.get(_named(write.partition), 0)
        numbers[_named(write.partition)] = now + 1 if write.to is None else max(now, write.to)
        return Outcome(Status.APPLIED, number=numbers[_named(write.partition)])
    stands = _read(slots, write.collection, write.key)
    generation = numbers.get(_named(write.record.partition), 0) if isinstance(write, Put | Append) else 0
    counter = _named(write.record.partition, write.counter) if isinstance(write, Append) else ""
    decision = decide(write, Slot(stands, None if stands is None else stands.version), generation, lambda: numbers.get(counter, 0) + 1)
    if decision.numbered:
        numbers[counter] = numbers.get(counter, 0) + 1
    if decision.changes and decision.leaves is None:
        del slots[write.collection.name][write.key]
    elif decision.changes and decision.leaves is not None:
        slots[write.collection.name][write.key] = json.dumps(to_json(decision.leaves), allow_nan=False)
    return decision.outcome


def _named(partition: Partition, counter: str | None = None) -> str:
    return json.dumps([partition.tenant, partition.scope, counter])


def _build(name: str, url: str, options: Mapping[str, Any]) -> FileStore:
    scheme, _, path = url.partition(":///")
    if scheme != "one-file" or not path or options:
        raise ConfigError(f"store '{name}': write 'one-file:///' and the path of the file; there are no options")
    return FileStore(path, name)


adapter = Adapter(schemes=("one-file",), claims=CLAIMS, build=_build)
