"""Legal holds: placed and released, and checked before every deletion.

The archive has one record for each held thing. Its key derives from that thing, so a
deletion reads all holds on a record by key, however many holds there are. Holds are
read at that moment and never cached, so a hold of another process takes effect at once.
A hold does not save records whose deletion had begun before it was placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from memory.domain import ids
from memory.domain.errors import CorruptRecord, LegalHoldActive
from memory.domain.legal_hold import LegalHold, Over
from memory.domain.scope import ScopeKind, ancestors_of
from memory.domain.time import micros, moment
from memory.orchestrator.storage.collections import HOLDS, SESSIONS
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.placement import Placement, raise_if_corrupt, raise_if_rejected
from memory.orchestrator.storage.session_keys import session_key, session_of
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.query import Condition, Eq, Head, Query, within
from memory.ports.record import Corrupt, JsonValue, Key, Partition, Record
from memory.ports.writes import Absent, AtVersion, Delete, Put

HOLDS_SCOPE = "holds"


class LegalHoldRecords:
    """The holds of all tenants."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    # -- placed and released -----------------------------------------------------------

    async def place(self, tenant: str, hold: LegalHold, entry_scope: str | None = None) -> LegalHold:
        """Place a hold and return it. If it exists already, return the existing one.

        `entry_scope` is the scope of a held entry.
        """

        def add_hold(said: dict[str, Any]) -> dict[str, Any]:
            new = {"reason": hold.reason, "by": hold.placed_by, "at": micros(hold.placed_at)}
            return said if hold.name in said else {**said, hold.name: new}

        said = await self._change(tenant, hold.over, hold.of, entry_scope, add_hold)
        return next(one for one in _holds_of(said) if one.name == hold.name)

    async def release(self, tenant: str, name: str, until: datetime | None = None) -> list[LegalHold]:
        """Release all holds of this name and return them.

        With `until`, those stay that were placed after this moment.
        """
        released: list[LegalHold] = []
        named = [hold for hold in await self.all(tenant) if hold.name == name]
        was_held = False

        def remove(said: dict[str, Any]) -> dict[str, JsonValue]:
            nonlocal was_held
            was_held = name in said  # false if another call has removed it meanwhile
            return {other: how for other, how in said.items() if other != name}

        for hold in [hold for hold in named if until is None or hold.placed_at <= until]:
            await self._change(tenant, hold.over, hold.of, None, remove)
            released += [hold] if was_held else []
        return released

    async def all(self, tenant: str) -> list[LegalHold]:
        """Return every hold of a tenant, oldest first."""
        return sorted(
            [hold for record in await self._read(tenant) for hold in _holds_of(record)],
            key=lambda hold: (hold.placed_at, hold.name),
        )

    async def _read(self, tenant: str, asked: Condition | None = None) -> list[Record]:
        archive = self._placement.topology.archive
        query = Query(
            HOLDS, within(Partition(tenant, HOLDS_SCOPE)), asked, limit=self._placement.settings.page
        )
        found: list[Record] = []
        async for page in self._placement.pages("hold.list", archive, query):
            for key in page.corrupt:
                raise CorruptRecord(
                    archive.name,
                    key.id,
                    "a legal hold whose target cannot be read; nothing is deleted until the record is"
                    " repaired",
                )
            found += [row for row in page.records if isinstance(row, Record)]
        return found

    async def _change(
        self,
        tenant: str,
        over: Over,
        of: str,
        entry_scope: str | None,
        change: Callable[[dict[str, Any]], dict[str, JsonValue]],
    ) -> Record:
        """Change the holds on one thing, and retry if another process changed them.

        Returns the new record.
        """
        archive, key, patience = (
            self._placement.topology.archive,
            _key(tenant, over, of),
            RetryDeadline(self._placement, f"the hold over {over} {of}"),
        )
        while True:
            there = await self._placement.read_one("hold.read", archive, HOLDS, key)
            raise_if_corrupt(archive, there)
            before = there if isinstance(there, Record) else None
            now, stands = self._placement.now(), getattr(there, "version", 0)
            fields = {"held_scope": entry_scope} if before is None else before.fields
            said = change({} if before is None else dict(before.body["by_name"]))
            version = self._placement.next_version(stands)
            record = Record(
                key,
                HOLDS_SCOPE,
                version,
                now,
                now,
                fields=fields,
                body={"over": over, "of": of, "by_name": said},
                tier="mid",
            )
            if not said and before is None:
                return record
            gone = Delete(
                HOLDS,
                key,
                version=version,
                when=AtVersion(stands),
                discard_at=self._placement.tombstone_until(),
            )
            put = Put(HOLDS, record, AtVersion(stands) if stands else Absent())
            outcome = await self._placement.write_one("hold.put", archive, put if said else gone)
            if outcome.applied:
                return record
            raise_if_rejected(archive, outcome)
            await patience.wait()

    # -- asked -------------------------------------------------------------------------

    async def refuse(self, records: Sequence[Record]) -> None:
        """Raise `LegalHoldActive` if one of these records is held."""
        for held in (await self.over(records)).values():
            raise held

    async def over(self, records: Sequence[Record | Head]) -> dict[Key, LegalHoldActive]:
        """Return the records under hold, each with the error that names its holds."""
        if not records:
            return {}
        subjects = await self._subjects({record.partition for record in records})
        targets = {
            record.key: [*_of_partition(record.partition, subjects), *_of_entries(record)]
            for record in records
        }
        holds = await self._fetch_holds([key for keys in targets.values() for key in keys])
        return {
            key: LegalHoldActive(*told)
            for key, keys in targets.items()
            if (told := [hold for target in keys for hold in holds.get(target, ())])
        }

    async def refuse_partition(self, partition: Partition, *, whole: bool = True) -> None:
        """Raise `LegalHoldActive` if a partition is held.

        With `whole`, a hold on an entry in it counts too.
        """
        subjects = await self._subjects({partition})
        holds = await self._fetch_holds(_of_partition(partition, subjects))
        told = [hold for found in holds.values() for hold in found]
        if whole:
            told += [
                hold
                for record in await self._read(partition.tenant, Eq("held_scope", partition.scope))
                for hold in _holds_of(record)
            ]
        if told:
            raise LegalHoldActive(*told)

    async def refuse_change(self, partition: Partition, user: str | None) -> None:
        """Raise `LegalHoldActive` if a session of this user is held.

        Its messages, tasks and runs keep no earlier versions, so none may be
        overwritten.
        """
        holds = await self._fetch_holds(_of_partition(partition, {} if user is None else {partition: user}))
        if told := [hold for found in holds.values() for hold in found]:
            raise LegalHoldActive(*told)

    async def refuse_user(self, tenant: str, user: str) -> None:
        """Raise `LegalHoldActive` if the entries of a user are held."""
        await self.refuse_partition(Partition(tenant, f"{ScopeKind.USER}:{user}"), whole=False)

    async def refuse_unreadable(self, tenant: str) -> None:
        """Raise `LegalHoldActive` if the tenant has any hold.

        A hold might cover the unreadable record.
        """
        if told := await self.all(tenant):
            raise LegalHoldActive(*told)

    async def _subjects(self, partitions: Iterable[Partition]) -> Mapping[Partition, str]:
        """Return the users of these partitions. A session's record names its user."""
        of_users = {
            p: p.scope.partition(":")[2] for p in partitions if p.scope.startswith(f"{ScopeKind.USER}:")
        }
        of_sessions = {p: session_key(p.tenant, session_of(p.scope)) for p in partitions if _is_of_session(p)}
        if of_sessions:
            archive, keys = self._placement.topology.archive, list(dict.fromkeys(of_sessions.values()))
            found = await self._placement.read("hold.session", archive, SESSIONS, keys)
            subjects = {
                row.key: str(row.fields["subject"])
                for row in found
                if isinstance(row, Record) and row.fields.get("subject") is not None
            }
            of_users |= {p: subjects[key] for p, key in of_sessions.items() if key in subjects}
        return of_users

    async def _fetch_holds(self, keys: Iterable[Key]) -> dict[Key, list[LegalHold]]:
        archive = self._placement.topology.archive
        found = await self._placement.read("hold.read", archive, HOLDS, list(dict.fromkeys(keys)))
        for row in found:
            if isinstance(row, Corrupt):
                raise CorruptRecord(
                    archive.name, row.key.id, f"a legal hold; nothing under it is deleted ({row.problem})"
                )
        return {row.key: _holds_of(row) for row in found if isinstance(row, Record)}


def _key(tenant: str, over: Over, of: str) -> Key:
    return Key(tenant, ids.derived_id(tenant, HOLDS_SCOPE, over, of))


def _of_partition(partition: Partition, subjects: Mapping[Partition, str]) -> list[Key]:
    """Return the keys of all holds that may cover a partition."""
    tenant, scope = partition.tenant, partition.scope
    scope = (
        f"{ScopeKind.SESSION}:{scope.partition(':')[2]}" if scope.startswith(f"{CONVERSATION}:") else scope
    )
    held = [_key(tenant, "tenant", tenant)]
    held += [_key(tenant, "scope", one) for one in (*ancestors_of(scope), scope)]
    return [*held, _key(tenant, "user", subjects[partition])] if partition in subjects else held


def _of_entries(record: Record | Head) -> list[Key]:
    """Return the keys of the holds on the entries of a record.

    These are the entry itself, the entry of a version, or the linked entries of a
    relation.
    """
    named = (record.key.id, *(record.fields.get(name) for name in ("entry_id", "source_id", "target_id")))
    return [_key(record.key.tenant, "entry", str(entry_id)) for entry_id in named if entry_id is not None]


def _is_of_session(partition: Partition) -> bool:
    return partition.scope.partition(":")[0] in (ScopeKind.SESSION.value, CONVERSATION)


def _holds_of(record: Record) -> list[LegalHold]:
    body: Mapping[str, Any] = record.body
    by_age = sorted(body["by_name"].items(), key=lambda named: named[1]["at"])
    return [
        LegalHold(name, body["over"], body["of"], how["reason"], how["by"], moment(how["at"]))
        for name, how in by_age
    ]
