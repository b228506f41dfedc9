"""A store in under 150 lines of code: one JSON file, rewritten at every change.

This is the example of docs/adapters.md. The library's own functions decide, filter,
sort and page (`memory.ports.batch`, `memory.ports.query_evaluation`). An engine that
can do this itself is faster, and must follow the same rules exactly.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from memory.domain.errors import ConfigError, StoreError
from memory.ports.adapter import Adapter
from memory.ports.base import BaseStore
from memory.ports.batch import StoredRow, WriteResolver, as_skipped
from memory.ports.capabilities import Capabilities
from memory.ports.codec import from_json, to_json
from memory.ports.collections import Collection
from memory.ports.local_paths import local_path
from memory.ports.query import Count, Everywhere, Page, Partitions, Query, RowType, Tenant
from memory.ports.query_evaluation import condition, first_partitions, page_of
from memory.ports.record import Corrupt, Key, Mark, Partition, Record, Standing, Stored, Tombstone
from memory.ports.rows import row_of, standing_of
from memory.ports.store import Health
from memory.ports.write_decision import carried_steps
from memory.ports.writes import Outcome, Write

CLAIMS = Capabilities(durable=True, conditional=True, atomic=True, filter=True, order=True, tenant_wide=True, fenced=True)
KINDS: dict[type[Standing], RowType] = {Record: RowType.RECORD, Mark: RowType.MARK, Tombstone: RowType.TOMBSTONE}


Text = tuple[str | None, str, int]
"""A stored item: its scope, its JSON text, and the text's checksum."""
Slots = dict[str, dict[Key, Text]]
"""The stored items by collection and key."""


class FileStore(BaseStore):
    """Records in one JSON file, for one process.

    A call is kept whole or not at all: the new file replaces the old one once it is on
    the disk.
    """

    claims = CLAIMS
    notes_format = True

    def __init__(self, path: str | Path, name: str = "file") -> None:
        super().__init__(name)
        self._path = Path(path)
        self._slots: Slots = {}
        self._known: dict[str, Collection] = {}
        self._generations: dict[str, int] = {}
        self._note: str | None = None

    async def _open(self, collections: Sequence[Collection]) -> None:
        held = json.loads(self._path.read_text()) if self._path.exists() else {"slots": {}, "generations": {}}
        self._note = held.get("format")
        self._take_format(self._note)
        self._generations = held["generations"]
        self._known = {name: Collection(name) for name in held["slots"]} | {c.name: c for c in collections}  # others stay
        self._slots = {name: {Key(*json.loads(key)): tuple(text) for key, text in held["slots"].get(name, {}).items()} for name in self._known}

    async def _close(self) -> None:
        self._slots, self._generations = {}, {}

    async def _check(self) -> Health:
        damaged = [key for name, held in self._slots.items() for key in held if isinstance(_read(self._slots, self._known[name], key), Corrupt)]
        return Health(ok=os.access(self._path.parent, os.W_OK), detail=str(self._path), quarantined=len(damaged))

    async def _read_format(self) -> str | None:
        return self._note

    async def _swap_format(self, before: str | None, after: str) -> bool:
        if self._note != before:
            return False
        self._note = after
        self._keep(self._slots, self._generations)
        return True

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        return [_read(self._slots, collection, key) for key in keys]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        resolver = WriteResolver(dict(enumerate(writes)))
        wanted = [(collection, key) for collection, keys in resolver.reads.keys.items() for key in keys]
        generations = {Partition(*json.loads(name)): number for name, number in self._generations.items()}
        resolver.take({(c.name, key): _held(c, _read(self._slots, c, key)) for c, key in wanted}, generations)
        resolver.decide_all()
        outcomes = list(resolver.outcomes.values())
        if together and not all(o.applied for o in outcomes):
            return as_skipped(outcomes)
        slots, kept = self._copied()
        for change in resolver.changes:
            slots[change.collection.name].pop(change.key, None)
            if change.row is not None:
                slots[change.collection.name][change.key] = _text(standing_of(change.collection, change.row))
        self._keep(slots, kept | {_named(partition): number for partition, number in resolver.raised.items()})
        return outcomes

    async def _query(self, query: Query) -> Page:
        matching, corrupt = self._matching(query)
        records, cursor = page_of(matching, query)
        return Page(tuple(records), cursor, tuple(corrupt))

    async def _count(self, query: Query) -> Count:
        matching, _ = self._matching(query)
        return Count(len(matching), sum(self.counted_bytes(query.collection, s) for s in matching if isinstance(s, Record)))

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]) -> int:
        slots, generations = self._copied()
        matching, corrupt = self._matching(query)
        tombstoned = [Tombstone(key, version, discard_at=discard_at) for key in corrupt]
        tombstoned += [Tombstone(one.key, max(one.version + 1, version), carried_steps(one.owed, carry), discard_at=discard_at) for one in matching]
        slots[query.collection.name] |= {tombstone.key: _text(tombstone) for tombstone in tombstoned}
        self._keep(slots, generations)
        return len(tombstoned)

    async def _partitions(self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int) -> Sequence[tuple[Partition, int]]:
        found = {Partition(*json.loads(name)): number for name, number in self._generations.items() if number}
        for name, held in self._slots.items():
            for key, (scope, _, _) in held.items():
                if scope is not None and not isinstance(_read(self._slots, self._known[name], key), Mark):
                    found.setdefault(Partition(key.tenant, scope), 0)
        return first_partitions(found.items(), where, prefix, after, limit)

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return list(self._idle().items())[:limit]

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        forgotten = {_named(partition) for partition, _ in self._idle().items() & set(idle)}
        self._keep(self._slots, {name: number for name, number in self._generations.items() if name not in forgotten})
        return len(forgotten)

    def _translate(self, error: Exception) -> Exception | None:
        return StoreError(self.name, f"{self._path}: {error.strerror}") if isinstance(error, OSError) else None

    def _matching(self, query: Query) -> tuple[list[Standing], list[Key]]:
        """Return the matching items, and the keys that the query could not read."""
        matching: list[Standing] = []
        corrupt: list[Key] = []
        lets_through = condition(query.filter)
        for key, (scope, _, _) in self._slots[query.collection.name].items():
            stands = _read(self._slots, query.collection, key) if _is_there(key, scope, query) else None
            if isinstance(stands, Corrupt):
                corrupt.append(key)
            elif stands is not None and _is_asked(stands, query) and lets_through(stands):
                matching.append(stands)
        return matching, corrupt

    def _idle(self) -> dict[Partition, int]:
        """Return the generation of every empty partition."""
        taken = {(key.tenant, scope) for held in self._slots.values() for key, (scope, _, _) in held.items()}
        generations = [(Partition(*json.loads(name)), number) for name, number in self._generations.items()]
        return {p: number for p, number in generations if (p.tenant, p.scope) not in taken}

    def _copied(self) -> tuple[Slots, dict[str, int]]:
        return {name: dict(held) for name, held in self._slots.items()}, dict(self._generations)

    def _keep(self, slots: Slots, generations: dict[str, int]) -> None:
        """Write to the disk first, then publish the state to readers."""
        written = {name: {json.dumps([key.tenant, key.id]): text for key, text in held.items()} for name, held in slots.items()}
        beside = self._path.with_suffix(".new")
        with beside.open("w") as file:
            json.dump({"slots": written, "generations": generations, "format": self._note}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        self._slots, self._generations = slots, generations


def _text(standing: Standing) -> Text:
    text = json.dumps(to_json(standing), allow_nan=False)
    return (None if isinstance(standing, Tombstone) else standing.scope, text, zlib.crc32(text.encode()))


def _read(slots: Slots, collection: Collection, key: Key) -> Stored | None:
    if key not in slots[collection.name]:
        return None
    _, text, checksum = slots[collection.name][key]
    if zlib.crc32(text.encode()) != checksum:
        return Corrupt(key, "checksum mismatch")
    return from_json(collection, json.loads(text))


def _is_there(key: Key, scope: str | None, query: Query) -> bool:
    if isinstance(query.where, Partitions):
        return scope is not None and Partition(key.tenant, scope) in query.where.partitions
    return isinstance(query.where, Everywhere) or key.tenant == query.where.tenant


def _is_asked(stands: Standing, query: Query) -> bool:
    return KINDS[type(stands)] in query.types and (not isinstance(stands, Record) or stands.role in query.roles)


def _held(collection: Collection, stands: Stored | None) -> StoredRow:
    """Return a stored item in the form that the resolver takes."""
    if isinstance(stands, Corrupt):
        return StoredRow(problem=stands.problem)
    return StoredRow() if stands is None else StoredRow(row_of(collection, stands))


def _named(partition: Partition) -> str:
    return json.dumps([partition.tenant, partition.scope])


def _build(name: str, url: str, options: Mapping[str, Any]) -> FileStore:
    path = local_path(url)
    if path is None or "?" in url:
        raise ConfigError(f"store '{name}': write 'one-file:' and the path of the file, without options")
    if options:
        raise ConfigError(f"store '{name}': unknown options {sorted(options)}; there are none")
    return FileStore(path, name)


adapter = Adapter(schemes=("one-file",), claims=CLAIMS, build=_build)
