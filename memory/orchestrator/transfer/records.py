"""Export and import of records: entries with their kept versions, and other kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from memory.domain import ids
from memory.domain.enrichment import NOTES
from memory.domain.entry import Entry, ImportedDraft
from memory.domain.errors import InvalidInput, RejectedByGate, StoreUnavailable
from memory.domain.filters import Filter
from memory.domain.provenance import names_server_caller
from memory.domain.scope import Scope, Subtree
from memory.domain.time import EPOCH
from memory.orchestrator.conversations.blobs.large_texts import chunk_key, chunks_of
from memory.orchestrator.conversations.blobs.uploads import READ_AT_ONCE
from memory.orchestrator.conversations.log.events import artifacts_of
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.admission import Admission, NewEntry
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import (
    ARTIFACTS,
    DIGEST,
    ENTRIES,
    ENTRY_VERSIONS,
    MESSAGES,
    RELATIONS,
    SESSIONS,
)
from memory.orchestrator.storage.deliveries import Deliveries
from memory.orchestrator.storage.entry_records import (
    DATA,
    KEY,
    LIFETIME,
    OWN_VECTOR,
    PARTS,
    WRITTEN_AS,
    entry_of,
    record_of,
)
from memory.orchestrator.storage.kinds import Kind, Kinds
from memory.orchestrator.storage.outbox import OutboxRecord, write_steps
from memory.orchestrator.storage.past_versions import kept_versions, same_life
from memory.orchestrator.storage.placement import LocatedRecord, Placement, rejection_error
from memory.orchestrator.storage.sources import with_notes, with_sources
from memory.orchestrator.storage.versions import kept_version, version_at
from memory.orchestrator.trust.trust import Trust
from memory.policies.entry_filters import UNSEARCHED
from memory.policies.entry_query import where_of
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Tenant, Where, within
from memory.ports.record import JsonValue, Key, Partition, Record, Tombstone
from memory.ports.record_validation import record_problem
from memory.ports.writes import Absent, Outcome, Put, Status

WITH_A_FORM_OF_THEIR_OWN = frozenset({ENTRIES, RELATIONS})
"""Collections that their own modules export and restore."""


def exported_kinds(kinds: Kinds) -> tuple[Kind, ...]:
    """Return the kinds that are exported as records."""
    return tuple(
        kind for kind in kinds.scoped if kind.exported and kind.collection not in WITH_A_FORM_OF_THEIR_OWN
    )


def id_here(tenant: str, kind: Kind, scope: str, record_id: str) -> str:
    """Return the id that an imported record gets here.

    Repeated imports return the same id.
    """
    return ids.derived_id(tenant, scope, "import", kind.collection.name, record_id)


@dataclass(frozen=True, slots=True)
class ImportedEntry:
    """An entry as it was exported or, with `replaced_by`, one of its kept versions."""

    id: str
    draft: ImportedDraft
    """The draft with the original ids, and a `created_at`."""
    version: int
    updated_at: datetime
    tier: str
    previous: int | None = None
    digest: str | None = None
    noted: Mapping[str, JsonValue] = field(default_factory=dict)
    """Other values that the engine noted in the body."""
    replaced_by: int | None = None


class Fate(StrEnum):
    """The result of restoring a record."""

    WRITTEN = "written"
    THERE = "there"
    DELETED = "deleted"
    """The record, or its owner, was deleted since an earlier import."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of restoring a record, with the reason if it was refused."""

    fate: Fate
    problem: str = ""


WRITTEN, THERE, DELETED = RestoreResult(Fate.WRITTEN), RestoreResult(Fate.THERE), RestoreResult(Fate.DELETED)
TAKEN = RestoreResult(Fate.REFUSED, "id: another record uses it here")

SAID = frozenset({"content", "title", "metadata", DATA, "compacted_from_ids", "contributors", KEY})
SAID |= {LIFETIME, OWN_VECTOR, UNSEARCHED}
"""The entry's own values in the body. Notes of the engine must not use these names."""
DERIVED = frozenset({PARTS})
"""Notes on derived data, which is made again after an import."""


def _place_of(kind: Kind, tenant: str, scope: Scope | Subtree | None) -> Where | None:
    """Return where a kind has the records that belong to a scope; None if nowhere."""
    if scope is None:
        return Tenant(tenant)
    if isinstance(scope, Subtree):
        return where_of(tenant, (scope,)) if kind.apart is None else None
    text = kind.scope_of(scope)
    return None if text is None else within(Partition(tenant, text))


class Transfer:
    """Exports and restores records."""

    def __init__(
        self,
        placement: Placement,
        *,
        browser: EntryBrowser,
        embeddings: Embeddings,
        deliveries: Deliveries,
        erasure: Erasure,
        quotas: Admission,
        trust: Trust,
    ) -> None:
        self._placement = placement
        self._browser = browser
        self._embeddings = embeddings
        self._deliveries = deliveries
        self._erasure = erasure
        self._quotas = quotas
        self._trust = trust

    # -- out ---------------------------------------------------------------------------

    async def entries(
        self, tenant: str, scope: Scope | Subtree | None, passing: Filter | None = None
    ) -> AsyncIterator[tuple[Record, list[Record]]]:
        """Yield every entry of a tenant, scope or subtree, including retired ones.

        With `passing`, only entries that pass this filter are yielded. Each comes
        with its kept versions, oldest first.
        """
        async for record in self._browser.every_record(
            ENTRIES, where_of(tenant, () if scope is None else (scope,)), passing=passing
        ):
            yield record, [] if record.previous is None else await kept_versions(self._placement, record)

    async def of_sessions(
        self, collection: Collection, tenant: str, scope: Scope | Subtree | None
    ) -> AsyncIterator[Record]:
        """Yield every session record or every manifest, oldest first.

        `scope` limits them to one scope or subtree of the tenant.
        """
        where = _place_of(self._placement.kinds.of(SESSIONS), tenant, scope)
        if where is not None:
            async for record in self._browser.every_record(collection, where):
                yield record

    async def records(self, tenant: str, scope: Scope | Subtree | None) -> AsyncIterator[tuple[Kind, Record]]:
        """Yield every record of the other kinds, of a tenant, scope or subtree.

        A session's scope includes its conversation. The chunks of a message's large
        texts come before the message.
        """
        for kind in exported_kinds(self._placement.kinds):
            where = _place_of(kind, tenant, scope)
            if kind.collection not in (SESSIONS, ARTIFACTS) and where is not None:
                async for record in self._browser.every_record(kind.collection, where):
                    if kind.collection is MESSAGES and artifacts_of(record):
                        row, chunks = await self._with_chunks(record)
                        for chunk in chunks:
                            yield self._placement.kinds.of(ARTIFACTS), chunk
                        if row is not None:
                            yield kind, row
                    else:
                        yield kind, record

    async def _with_chunks(self, row: Record) -> tuple[Record | None, list[Record]]:
        """Return the current row of a message, and its readable chunks.

        None and no chunks if the message is gone.
        """
        archive = self._placement.topology.archive
        while True:
            keys, found = (
                [chunk_key(row.key.tenant, row.scope, chunk) for chunk in chunks_of(artifacts_of(row))],
                list[Record](),
            )
            for start in range(0, len(keys), READ_AT_ONCE):
                chunks = await self._placement.read(
                    "artifacts.read", archive, ARTIFACTS, keys[start : start + READ_AT_ONCE]
                )
                found += [chunk for chunk in chunks if isinstance(chunk, Record)]
            if len(found) == len(keys):
                return row, found
            now = await self._placement.read_one("log.read", archive, MESSAGES, row.key)
            if not isinstance(now, Record):
                return None, []
            if now.version == row.version:
                return row, found
            row = now

    # -- in: entries -------------------------------------------------------------------

    async def restore_entries(self, tenant: str, entries: Sequence[ImportedEntry]) -> list[RestoreResult]:
        """Store entries under their own ids and versions where no record exists.

        Returns the result for each entry. Each id must occur once. Raises
        `QuotaExceeded` before any of them is stored.
        """
        fates: dict[Key, RestoreResult] = {}
        let_in = [await self._let_in(tenant, one, fates) for one in entries]
        records = [
            _record(tenant, one, self._placement.next_sequence())
            async for one in iterate_cooperatively(let_in)
        ]
        located = await self._placement.locate_many(ENTRIES, [record.key for record in records])
        for record, there in zip(records, located, strict=True):
            if record.key in fates:
                continue
            if there.record or there.tombstone or there.corrupt:
                fates[record.key] = await self._existing_fate(record, there)
        fresh = [record for record in records if record.key not in fates]
        new_entries = [NewEntry.of(record, derived=True) for record in fresh] if self._quotas.quotas else []
        async with self._quotas.admit(tenant, new_entries) as stay:
            await self._put(fresh, fates)
            stay |= {record.key for record in fresh}
        return [fates[record.key] for record in records]

    async def _let_in(
        self, tenant: str, one: ImportedEntry, fates: dict[Key, RestoreResult]
    ) -> ImportedEntry:
        """Return the entry as the write gate accepts it.

        If the gate rejects it, `fates` receives that result.
        """
        try:
            [draft] = await self._trust.let_in(tenant, [one.draft])
        except RejectedByGate as refusal:
            fates[Key(tenant, one.id)] = RestoreResult(Fate.REFUSED, refusal.reason)
            return one
        return replace(one, draft=draft)

    async def _put(self, records: Sequence[Record], fates: dict[Key, RestoreResult]) -> None:
        records = await self._embeddings.embed_records(records)
        for store in dict.fromkeys(self._placement.topology.home(record.tier) for record in records):
            here = [record for record in records if self._placement.topology.home(record.tier) is store]
            here = [
                replace(record, owed=write_steps(self._placement, ENTRIES, record, store)) for record in here
            ]
            outcomes = await self._placement.write(
                "write.home", store, *(Put(ENTRIES, record, Absent()) for record in here)
            )
            met = list(zip(here, outcomes, strict=True))
            born = [
                replace(record, generation=outcome.generation) for record, outcome in met if outcome.applied
            ]
            await self._deliveries.deliver([OutboxRecord(ENTRIES, store, record) for record in born])
            for record, outcome in met:
                if outcome.applied:
                    fates[record.key] = WRITTEN
                elif (error := rejection_error(store, outcome)) is not None:
                    fates[record.key] = RestoreResult(Fate.REFUSED, error.problem)
                else:
                    fates[record.key] = await self._existing_fate(
                        record, await self._placement.locate(ENTRIES, record.key)
                    )

    async def _existing_fate(self, record: Record, there: LocatedRecord) -> RestoreResult:
        """Return the result for an entry whose id is in use here.

        The id may hold the same entry, perhaps edited since, a tombstone, or another
        record.
        """
        if there.corrupt is not None:
            return RestoreResult(Fate.REFUSED, "id: the record stored under it is damaged")
        if there.record is None:
            if there.tombstone is None:
                raise StoreUnavailable(
                    self._placement.topology.home(record.tier).name,
                    f"entry {record.key.id} is moving; try again",
                )
            return DELETED
        before = [] if there.record.previous is None else await kept_versions(self._placement, there.record)
        return THERE if any(_says_the_same(one, record) for one in (there.record, *before)) else TAKEN

    # -- in: kept versions -------------------------------------------------------------

    async def restore_versions(self, tenant: str, versions: Sequence[ImportedEntry]) -> list[RestoreResult]:
        """Store kept versions of existing entries; return the result for each.

        If an entry is deleted meanwhile, its versions are deleted too.
        """
        keys = list(dict.fromkeys(Key(tenant, one.id) for one in versions))
        located = {at.key: at for at in await self._placement.locate_many(ENTRIES, keys)}
        fates: list[RestoreResult | None] = [None] * len(versions)
        kept: dict[int, Record] = {}
        for place, one in enumerate(versions):
            found = self._of_its_entry(one, located[Key(tenant, one.id)])
            if isinstance(found, RestoreResult):
                fates[place] = found
            else:
                kept[place] = found
        embedded = dict(zip(kept, await self._embeddings.embed_records(list(kept.values())), strict=True))
        archive = self._placement.topology.archive
        outcomes = await self._placement.write(
            "version.keep", archive, *(Put(ENTRY_VERSIONS, row, Absent()) for row in embedded.values())
        )
        for (place, row), outcome in zip(embedded.items(), outcomes, strict=True):
            fates[place] = _put_fate(row, outcome)
        written = {place: row for place, row in embedded.items() if fates[place] is WRITTEN}
        for place in await self._left_behind(written):
            fates[place] = DELETED
        return [fate or DELETED for fate in fates]

    def _of_its_entry(self, one: ImportedEntry, there: LocatedRecord) -> Record | RestoreResult:
        """Return the kept version for the existing entry, or why there is none."""
        home, version = there.record, _record(there.key.tenant, one, self._placement.next_sequence())
        if there.corrupt is not None:
            return RestoreResult(Fate.REFUSED, "id: the entry stored under it is damaged")
        if home is None:
            if there.mark is not None and there.tombstone is None:
                raise StoreUnavailable(
                    self._placement.topology.archive.name, f"entry {one.id} is moving; try again"
                )
            return DELETED
        if not same_life(version, home):
            return RestoreResult(
                Fate.REFUSED, "id: this version belongs to another entry that had the same id"
            )
        if one.replaced_by is None or one.replaced_by > home.version:
            return RestoreResult(
                Fate.REFUSED, "replaced_version: is later than the version of the entry stored here"
            )
        return kept_version(replace(version, generation=home.generation), one.replaced_by)

    async def _left_behind(self, written: Mapping[int, Record]) -> list[int]:
        """Delete kept versions whose entry was deleted meanwhile.

        Returns their positions.
        """
        keys = {place: Key(row.key.tenant, str(row.fields["entry_id"])) for place, row in written.items()}
        homes = (
            {
                at.key: at.record
                for at in await self._placement.locate_many(ENTRIES, list(dict.fromkeys(keys.values())))
            }
            if keys
            else {}
        )
        gone = [
            place
            for place, row in written.items()
            if (home := homes[keys[place]]) is None or not same_life(row, home)
        ]
        for place in gone:
            await self._erasure.delete(ENTRY_VERSIONS, written[place].key, held="deleted")
        return gone

    # -- in: other kinds ---------------------------------------------------------------

    async def restore(
        self, tenant: str, kind: Kind, record: Record, *, as_it_was: bool = False
    ) -> RestoreResult:
        """Store a record under its id here.

        With `as_it_was`, it keeps its version, times and tier if it has them. A version
        of 0 means that it has none. It is then stored only if no other record has the
        id.
        """
        said = as_it_was and record.version > 0
        tier = record.tier if said else kind.route(Scope.parse(record.scope).kind).tier
        key, now = Key(tenant, record.key.id), self._placement.now()
        store = self._placement.topology.home(tier)
        there = await self._placement.locate(kind.collection, key, born_in=None if as_it_was else store)
        if there.record is not None:
            same = not as_it_was or _content(there.record) == _content(record)
            return THERE if same else TAKEN
        if there.tombstone is not None:
            return DELETED
        fresh = Record(
            key,
            record.scope,
            record.version if said else version_at(now),
            record.created_at,
            record.updated_at if said else now,
            expires_at=record.expires_at,
            fields=record.fields,
            body=record.body,
            texts=record.texts,
            tier=tier,
        )
        if kind.collection.vector:
            fresh = (await self._embeddings.embed_records([fresh]))[0]
        fresh = replace(fresh, owed=write_steps(self._placement, kind.collection, fresh, store))
        outcome = await self._placement.write_one("write.home", store, Put(kind.collection, fresh, Absent()))
        if (error := rejection_error(store, outcome)) is not None:
            if as_it_was:
                return RestoreResult(Fate.REFUSED, error.problem)
            raise error
        if not outcome.applied:
            return await self.restore(tenant, kind, record, as_it_was=True) if as_it_was else THERE
        await self._deliveries.deliver(
            [OutboxRecord(kind.collection, store, replace(fresh, generation=outcome.generation))]
        )
        return WRITTEN


def check_storable(draft: ImportedDraft, one: ImportedEntry | None) -> None:
    """Raise `InvalidInput` if no store accepts the entry.

    `one` is its exact form, if the entry keeps its id.
    """
    if one is None:
        born = draft.created_at or EPOCH
        record = with_sources(
            record_of(draft, key=Key(_ANY, _ANY), version=1, now=born, tier="mid", sequence=0), draft.sources
        )
    else:
        record = _record(_ANY, one, 0)
    if problem := stores_problem(ENTRIES, record):
        raise InvalidInput("entry", problem)


_ANY = "any"


def stores_problem(collection: Collection, record: Record) -> str:
    """Return why no store accepts the record, regardless of its id and version here."""
    return record_problem(
        collection, replace(record, key=_any_key(record.scope), version=max(1, record.version))
    )


@lru_cache
def _any_key(scope: str) -> Key:
    return Key(_ANY, ids.derived_id(_ANY, scope, "import"))


def _record(tenant: str, one: ImportedEntry, sequence: int) -> Record:
    born = one.draft.created_at
    assert born is not None  # noqa: S101 - who makes these sees to it
    key = Key(tenant, one.id)
    record = record_of(
        one.draft, key=key, version=one.version, now=born, tier=one.tier, sequence=sequence, digest=one.digest
    )
    own = {name: value for name, value in record.body.items() if name != WRITTEN_AS}
    record = replace(record, updated_at=one.updated_at, body={**one.noted, **own}, previous=one.previous)
    return with_sources(with_notes(record, _shown_to_an_advisor(one.noted)), one.draft.sources)


def _shown_to_an_advisor(noted: Mapping[str, Any]) -> Sequence[str]:
    """Return the entries that an advisor's note may refer to."""
    told: Mapping[str, Any] = (noted.get(NOTES) or {}).get("auto_supersede") or {}
    return told["candidates"] if told.get("named") else ()


def _says_the_same(there: Record, record: Record) -> bool:
    """Return whether both are the same version of an entry, in any tier.

    References to artifacts are ignored: a deleted artifact is cleared without a new
    version. So are the callers of servers that wrote or imported it, and an expiry that
    reads move.
    """
    one, other = (_as_compared(entry_of(replace(row, tier=record.tier))) for row in (there, record))
    return there.version == record.version and one == other


def _as_compared(entry: Entry) -> Entry:
    origins = [one for one in entry.origins or () if not names_server_caller(one)]
    ends = None if entry.lifetime is not None else entry.expires_at
    return entry.model_copy(update={"artifact_id": None, "origins": origins, "expires_at": ends})


def _put_fate(row: Record, outcome: Outcome) -> RestoreResult:
    if outcome.applied:
        return WRITTEN
    if outcome.status is Status.REJECTED:
        return DELETED if outcome.reason == "generation" else RestoreResult(Fate.REFUSED, outcome.reason)
    if isinstance(outcome.stored, Tombstone):
        return DELETED
    same = isinstance(outcome.stored, Record) and _says_the_same(outcome.stored, row)
    return (
        THERE
        if same
        else RestoreResult(Fate.REFUSED, "version: another version with this number is stored here")
    )


def _content(record: Record) -> tuple[object, ...]:
    given = {name: value for name, value in record.fields.items() if value is not None}
    return record.scope, record.created_at, record.expires_at, given, dict(record.body), dict(record.texts)


def noted_of(record: Record) -> dict[str, JsonValue]:
    """Return the engine's notes on an entry, from which it can be restored exactly."""
    said = {name: value for name, value in record.body.items() if name not in SAID | DERIVED}
    found = {"previous": record.previous, "request_digest": record.fields.get(DIGEST), "body": said}
    return {name: value for name, value in found.items() if value not in (None, {})}
