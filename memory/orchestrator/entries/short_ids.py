"""Short ids, such as `#42`, by which people and commands name entries and artifacts.

A number is given when a thing is first shown by its number. The tenant's counter is
advanced by the needed count with compare-and-set. The number of an entry is a record of
its own, whose key derives from the entry's id. The number of an artifact is a field of
its manifest, put at the version that was read.

So a thing has at most one number, and no number is given twice, however many processes
give numbers at once. The numbers of a process that dies in between, or comes second,
stay unused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, Protocol, get_args

from memory.domain import ids, validation
from memory.domain.errors import InvalidInput
from memory.domain.short_id import NumberedItem, NumberedKind
from memory.orchestrator.storage.collections import COUNTERS, ENTRIES, MANIFESTS, NUMBERS
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import (
    Placement,
    raise_if_corrupt,
    raise_if_rejected,
    rejection_error,
)
from memory.orchestrator.storage.versions import version_at
from memory.ports.query import In, Query, Tenant
from memory.ports.record import Corrupt, Key, Record, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Put, Status

COUNTERS_SCOPE = "counters"

_REFERENCE = re.compile(
    r"\s*#?\s*(?:(?P<number>[0-9]{1,18})|(?P<id>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}))\s*"
)


def reference_of(text: str) -> int | str:
    """Read `#42`, `42` or a full id; return the number or the id."""
    if (found := _REFERENCE.fullmatch(text)) is None:
        raise InvalidInput("id", f"{text[:40]!r} is neither a number, such as #42, nor an id")
    return int(found["number"]) if found["number"] else found["id"].lower()


def kind_of(value: object) -> NumberedKind:
    return validation.one_of("kind", value, get_args(NumberedKind))


class NumberedManifests(Protocol):
    """Finds the manifests of artifacts by id or number."""

    async def find_manifests(
        self, tenant: str, field: Literal["artifact_id", "number"], values: Sequence[str] | Sequence[int]
    ) -> list[Record]:
        """Return the manifests with one of these ids or numbers that can be read."""
        ...


class ShortIds:
    """Gives short ids, and resolves them."""

    def __init__(
        self,
        placement: Placement,
        *,
        generations: Generations,
        outbox: Outbox,
        key_locks: KeyLocks,
        manifests: NumberedManifests,
    ) -> None:
        self._placement = placement
        self._generations = generations
        self._outbox = outbox
        self._key_locks = key_locks
        self._manifests = manifests

    async def of(self, tenant: str, asked: Sequence[str], kind: NumberedKind = "entry") -> dict[str, int]:
        """Return the numbers of these things, and give new ones to those without.

        The oldest thing gets the lowest number. Things that do not exist, or that no
        store can find now, are left out.
        """
        wanted = list(dict.fromkeys(one for one in asked if ids.is_id(one)))
        found = await (self._of_entries if kind == "entry" else self._of_artifacts)(tenant, wanted)
        return {one: found[one] for one in wanted if one in found}

    async def _of_entries(self, tenant: str, wanted: Sequence[str]) -> dict[str, int]:
        rows = dict(zip(wanted, await self._fetch_stored(tenant, wanted), strict=True))
        found = {one: _number(row) for one, row in rows.items() if isinstance(row, Record)}
        lacking = [Key(tenant, one) for one, row in rows.items() if not isinstance(row, Record | Corrupt)]
        located = await self._placement.locate_many(ENTRIES, lacking, partial=True) if lacking else []
        return found | await self._give(tenant, [home for at in located if (home := at.home()) is not None])

    async def _of_artifacts(self, tenant: str, wanted: Sequence[str]) -> dict[str, int]:
        manifests = await self._manifests.find_manifests(tenant, "artifact_id", wanted)
        found = {_artifact(row): _number(row) for row in manifests if _has_number(row)}
        return found | await self._give_artifacts(tenant, [row for row in manifests if not _has_number(row)])

    async def resolve(self, tenant: str, references: Sequence[int | str]) -> list[NumberedItem | None]:
        """Return the thing of each number or id.

        None if this tenant has no such thing any more.
        """
        found = await self._entries(tenant, references)
        if lacking := [one for one in dict.fromkeys(references) if one not in found]:
            found |= await self._artifacts(tenant, lacking)
        return [found.get(one) for one in references]

    async def _entries(self, tenant: str, references: Sequence[int | str]) -> dict[int | str, NumberedItem]:
        found: dict[int | str, NumberedItem] = {}
        numbers, named = _told_apart(references)
        rows: list[Stored | None] = []
        if numbers:
            query = Query(NUMBERS, Tenant(tenant), In("number", numbers), limit=len(numbers))
            rows += (
                await self._placement.page("number.find", self._placement.topology.archive, query)
            ).records
        rows += await self._fetch_stored(tenant, named)
        by_id = {str(row.fields["entry_id"]): _number(row) for row in rows if isinstance(row, Record)}
        asked = [Key(tenant, one) for one in dict.fromkeys([*by_id, *named])]
        for at in await self._placement.locate_many(ENTRIES, asked) if asked else ():
            if at.record is not None or at.corrupt is not None:
                thing = NumberedItem("entry", at.key.id, by_id.get(at.key.id))
                found |= {name: thing for name in (thing.id, thing.number) if name is not None}
        return found

    async def _artifacts(self, tenant: str, references: Sequence[int | str]) -> dict[int | str, NumberedItem]:
        numbers, named = _told_apart(references)
        rows = await self._manifests.find_manifests(tenant, "number", numbers) if numbers else []
        rows += await self._manifests.find_manifests(tenant, "artifact_id", named) if named else []
        things = [
            NumberedItem("artifact", _artifact(row), _number(row) if _has_number(row) else None)
            for row in rows
        ]
        return {name: thing for thing in things for name in (thing.id, thing.number) if name is not None}

    async def _fetch_stored(self, tenant: str, of: Iterable[str]) -> Sequence[Stored | None]:
        archive, keys = self._placement.topology.archive, [_key(tenant, one) for one in of]
        return await self._placement.read("number.read", archive, NUMBERS, keys) if keys else []

    # -- given -------------------------------------------------------------------------

    async def _give(self, tenant: str, homes: Sequence[tuple[Record, Store]]) -> dict[str, int]:
        """Give numbers to these entries.

        A number that another process gave first stays.
        """
        if not homes:
            return {}
        archive, given = self._placement.topology.archive, dict[str, int]()
        homes = sorted(homes, key=lambda home: (home[0].created_at, home[0].key.id))
        first = await self._reserve(tenant, len(homes))
        puts = [(self._number_put(thing, first + n), thing, home) for n, (thing, home) in enumerate(homes)]
        for _ in range(self._placement.settings.attempts):
            outcomes = await self._placement.write("number.put", archive, *(put for put, _, _ in puts))
            again: list[tuple[Put, Record, Store]] = []
            for (put, thing, home), outcome in zip(puts, outcomes, strict=True):
                there = put.record if outcome.applied else outcome.stored
                if isinstance(there, Record):
                    given[thing.key.id] = _number(there)
                elif isinstance(
                    there, Tombstone
                ):  # of an earlier life of the entry, or of one that ended since it was found
                    if await self._outbox.finish(OutboxRecord(NUMBERS, archive, there)):
                        continue  # its deletion is not complete: until then the id belongs to it
                    for now in await self._now(thing.key):
                        record = self._number_put(now[0], _number(put.record)).record
                        later = replace(record, version=self._placement.next_version(there.version))
                        again.append((Put(NUMBERS, later, AtVersion(there.version)), *now))
                elif (error := rejection_error(archive, outcome)) is not None:
                    raise error
                elif outcome.status is Status.REJECTED and await self._generations.lives_on(thing, home):
                    again += [
                        (self._number_put(now[0], _number(put.record)), *now)
                        for now in await self._now(thing.key)
                    ]
            if not (puts := again):
                break
        return given

    async def _now(self, key: Key) -> list[tuple[Record, Store]]:
        return [
            home
            for at in await self._placement.locate_many(ENTRIES, [key], partial=True)
            if (home := at.home()) is not None
        ]

    def _number_put(self, thing: Record, number: int) -> Put:
        now = self._placement.now()
        record = Record(
            key=_key(thing.key.tenant, thing.key.id),
            scope=thing.scope,
            version=version_at(now),
            created_at=now,
            updated_at=now,
            fields={"number": number, "entry_id": thing.key.id},
            generation=thing.generation,
            tier="mid",
        )
        return Put(NUMBERS, record, Absent())

    async def _give_artifacts(self, tenant: str, manifests: Sequence[Record]) -> dict[str, int]:
        """Give numbers to the artifacts of these manifests.

        An artifact that is replaced meanwhile stays the same artifact, and is tried
        again. An artifact that is deleted, or whose session is, gets none.
        """
        if not manifests:
            return {}
        archive, given = self._placement.topology.archive, dict[str, int]()
        first = await self._reserve(tenant, len(manifests))
        puts = [
            self._manifest_put(row, first + n)
            for n, row in enumerate(sorted(manifests, key=lambda row: (row.created_at, _artifact(row))))
        ]
        for _ in range(self._placement.settings.attempts):
            again: list[Put] = []
            for put, outcome in zip(
                puts, await self._placement.write("number.put", archive, *puts), strict=True
            ):
                raise_if_rejected(archive, outcome)
                there = put.record if outcome.applied else outcome.stored
                if not isinstance(there, Record) or _artifact(there) != _artifact(put.record):
                    continue
                if _has_number(there):
                    given[_artifact(there)] = _number(there)
                else:
                    again.append(self._manifest_put(there, _number(put.record)))
            if not (puts := again):
                break
        return given

    def _manifest_put(self, manifest: Record, number: int) -> Put:
        """Return the put of a number.

        `updated_at` stays, because the content does not change.
        """
        version = self._placement.next_version(manifest.version)
        return Put(
            MANIFESTS,
            replace(manifest, version=version, fields={**manifest.fields, "number": number}),
            AtVersion(manifest.version),
        )

    async def _reserve(self, tenant: str, count: int) -> int:
        """Advance the counter by `count` and return the first reserved number."""
        archive, key = (
            self._placement.topology.archive,
            Key(tenant, ids.derived_id(tenant, COUNTERS_SCOPE, "numbers")),
        )
        patience = RetryDeadline(self._placement, key.id)
        async with self._key_locks.take(COUNTERS, key, patience):
            while True:
                there = await self._placement.read_one("number.count", archive, COUNTERS, key)
                raise_if_corrupt(archive, there)
                last = int(str(there.fields["last"])) if isinstance(there, Record) else 0
                now, stands = self._placement.now(), getattr(there, "version", 0)
                counter = Record(
                    key=key,
                    scope=COUNTERS_SCOPE,
                    version=version_at(now, stands),
                    created_at=now,
                    updated_at=now,
                    # Without the nonce, a repeated put would mistake another process's
                    # counter of the same moment for its own.
                    fields={"last": last + count, "nonce": self._placement.nonce()},
                    tier="mid",
                )
                put = Put(COUNTERS, counter, AtVersion(stands) if stands else Absent())
                outcome = await self._placement.write_one("number.reserve", archive, put)
                if outcome.applied:
                    return last + 1
                raise_if_rejected(archive, outcome)
                await patience.wait()


def _key(tenant: str, thing_id: str) -> Key:
    """Return the key of a thing's number, whether it has one or not."""
    return Key(tenant, ids.beside(thing_id, "number"))


def _number(row: Record) -> int:
    return int(str(row.fields["number"]))


def _has_number(manifest: Record) -> bool:
    return manifest.fields.get("number") is not None


def _artifact(manifest: Record) -> str:
    return str(manifest.fields["artifact_id"])


def _told_apart(references: Sequence[int | str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the numbers and the ids among these references, each once."""
    once = dict.fromkeys(references)
    return tuple(one for one in once if isinstance(one, int)), tuple(
        one for one in once if isinstance(one, str) and ids.is_id(one)
    )
