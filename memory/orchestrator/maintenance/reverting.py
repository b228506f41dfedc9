"""Revert all that a source, an agent or a run wrote.

Entries that it created are retired or erased. Entries that it changed are stored again
as they would be without its changes. Entries derived from its entries are listed and,
if asked, reverted too. The operation is stored in the archive as a pending step, so a
sweep finishes it after a crash. Each entry is judged by its versions, and is changed
only while it still has the version that was judged. So nothing is reverted twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from memory.domain.errors import LegalHoldActive, MemoryTiersError, NotFound, StoreError, TooMuchContention
from memory.domain.provenance import named_in, parts_of
from memory.domain.revert_report import RevertedEntry, RevertReport
from memory.domain.time import micros
from memory.orchestrator.conversations.blobs.manifests import Manifests
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import ENTRIES, OPERATIONS
from memory.orchestrator.storage.entry_records import RESTATED, TAKEN_BACK, apply_changes, without, writer_of
from memory.orchestrator.storage.operations import end_operation, new_operation
from memory.orchestrator.storage.outbox import Outbox
from memory.orchestrator.storage.partial_answers import BROWSED
from memory.orchestrator.storage.past_versions import kept_versions
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.versions import version_at
from memory.policies.visibility import is_current, is_expired, window_end
from memory.ports.query import Condition, Eq, Ge, Has, Order, Query, Tenant, all_of
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import Newer, Put

TAKE_BACK = "take_back"
NOT_KEPT = "the earlier version is not kept"
HELD = "under legal hold: retired instead"


@dataclass(frozen=True, slots=True)
class RevertRequest:
    """Which writes to revert: those of these origins, from `since` to `until`.

    Both moments are versions.
    """

    origins: tuple[str, ...]
    since: int
    until: int
    erase: bool
    derived: bool

    def is_of(self, step: Record) -> bool:
        """Whether one of the origins wrote this version."""
        return self.since <= step.version <= self.until and not set(self.origins).isdisjoint(writer_of(step))


@dataclass(frozen=True, slots=True)
class PlannedRevert:
    """One entry in its current version, and the action of a revert on it."""

    record: Record
    verdict: RevertedEntry
    new: Record | None = None
    """The replacement, unless the entry is erased."""


class SourceReverter:
    """Reverts what blocked sources wrote."""

    def __init__(
        self,
        placement: Placement,
        *,
        browser: EntryBrowser,
        entries: Entries,
        erasure: Erasure,
        outbox: Outbox,
        manifests: Manifests,
    ) -> None:
        self._placement = placement
        self._browser = browser
        self._entries = entries
        self._erasure = erasure
        self._known = manifests.existing_ids
        outbox.register_for_records(TAKE_BACK, self._take_back_noted)

    async def plan(
        self, tenant: str, origins: Sequence[str], *, since: datetime | None, erase: bool, derived: bool
    ) -> RevertReport:
        """Return the report that `run` would give now."""
        wanted = await self._revert_request(tenant, origins, since, erase, derived)
        found = [one async for one in self._affected_entries(tenant, wanted)]
        held = await self._erasure.holds.over([one.record for one in found if one.verdict.done == "erased"])
        told = [
            replace(one.verdict, done="retired", note=HELD) if one.record.key in held else one.verdict
            for one in found
        ]
        return RevertReport(
            wanted.origins,
            True,
            [said for said, one in zip(told, found, strict=True) if said.note != HELD or one.new is not None],
        )

    async def run(
        self,
        tenant: str,
        origins: Sequence[str],
        *,
        since: datetime | None,
        erase: bool,
        derived: bool,
        until: datetime | None = None,
    ) -> RevertReport:
        """Revert everything that these origins have written until a moment, or now.

        If a store fails, the call raises, and a sweep does the rest.
        """
        wanted = await self._revert_request(tenant, origins, since, erase, derived, until)
        store, subject = self._placement.topology.archive, (tenant, str(wanted.until), *wanted.origins)
        data = {"tenant": tenant, **asdict(wanted), "origins": list(wanted.origins)}
        operation = new_operation(self._placement, TAKE_BACK, subject, data)
        begun = await self._placement.write_one("take_back.begin", store, Put(OPERATIONS, operation, Newer()))
        raise_if_rejected(store, begun)
        done = await self._carry_out(tenant, wanted)
        await end_operation("take_back.end", self._placement, operation, TAKE_BACK)
        return RevertReport(wanted.origins, False, done)

    async def _take_back_noted(self, operation: Record, store: Store, owed: PendingStep) -> bool:
        data = owed.data
        wanted = RevertRequest(
            tuple(data["origins"]), data["since"], data["until"], data["erase"], data["derived"]
        )
        await self._carry_out(data["tenant"], wanted)
        await end_operation("take_back.end", self._placement, operation, TAKE_BACK)
        return True

    async def _revert_request(
        self,
        tenant: str,
        origins: Sequence[str],
        since: datetime | None,
        erase: bool,
        derived: bool,
        until: datetime | None = None,
    ) -> RevertRequest:
        """Return the request, until now or the newest version of a clock ahead."""
        now = self._placement.next_version()
        first, last = 0 if since is None else micros(since), now if until is None else micros(until)
        for origin in origins if until is None else ():
            for filters in _origin_filters(origin, now + 1):
                with suppress(StoreError):  # the revert itself, once it is noted, says which one failed
                    async for record in self._matching_entries(tenant, filters):
                        last = max(last, record.version)
        return RevertRequest(tuple(origins), first, last, erase, derived)

    # -- what is concerned -------------------------------------------------------------

    async def _affected_entries(self, tenant: str, wanted: RevertRequest) -> AsyncIterator[PlannedRevert]:
        """Yield every affected entry once, in its current version."""
        seen = set[Key]()
        for origin in wanted.origins:
            for filters in _origin_filters(origin, wanted.since):
                async for record in self._matching_entries(tenant, filters):
                    if record.key not in seen and (judged := await self._judge(record, wanted)) is not None:
                        yield judged
                    seen.add(record.key)

    async def _matching_entries(self, tenant: str, filters: Condition | None) -> AsyncIterator[Record]:
        for store in self._placement.topology.homes:
            query = Query(
                ENTRIES,
                Tenant(tenant),
                filters,
                (Order("created_at"),),
                self._placement.settings.page,
                roles=BROWSED,
            )
            async for page in self._placement.pages("take_back.find", store, query):
                for record in await self._browser.authoritative_rows(
                    store, ENTRIES, [row for row in page.records if isinstance(row, Record)]
                ):
                    yield record

    async def _judge(self, record: Record, wanted: RevertRequest) -> PlannedRevert | None:
        """Decide what to do with an entry; None if nothing is left to do."""
        if is_expired(record, self._placement.now()):
            return None
        steps = _contiguous_versions(
            [*(await kept_versions(self._placement, record) if record.previous is not None else ()), record]
        )
        taken = [wanted.is_of(step) for step in steps]
        restated = _restated_by_another(steps, taken)
        steps, taken = steps[restated:], taken[restated:]
        whole = restated > 0 or steps[0].previous is None or steps[0].version < wanted.since
        is_derived = _is_derived(record)
        if taken[0] and whole and not is_derived:
            return self._taken_away(record, wanted, "written")
        if any(taken[1:]) and not taken[0]:
            new = without(
                steps,
                taken,
                version_at(self._placement.now(), record.version),
                await self._missing_artifacts(steps),
            )
            return (
                None
                if new is record
                else PlannedRevert(
                    record, RevertedEntry(record.key.id, record.scope, "changed", "restored"), new
                )
            )
        if not whole and not is_derived:
            if any(taken) or not set(wanted.origins).isdisjoint(named_in(record.fields)):
                return self._taken_away(record, replace(wanted, erase=False), "changed", NOT_KEPT)
            return PlannedRevert(
                record, RevertedEntry(record.key.id, record.scope, "changed", "left", NOT_KEPT)
            )
        made = steps[0].version if steps[0].previous is None else micros(record.created_at)
        if not is_derived or not wanted.since <= made <= wanted.until:
            return None
        if wanted.derived:
            return self._taken_away(record, wanted, "derived")
        return (
            PlannedRevert(record, RevertedEntry(record.key.id, record.scope, "derived", "left"))
            if is_current(record, self._placement.now())
            else None
        )

    async def _missing_artifacts(self, steps: Sequence[Record]) -> set[str]:
        """Return the artifacts of earlier versions that do not exist any more.

        A deletion does not change the references in earlier versions.
        """
        named = {
            str(one)
            for step in steps[:-1]
            if (one := step.fields.get("artifact_id")) not in (None, steps[-1].fields.get("artifact_id"))
        }
        return named - await self._known(steps[-1].key.tenant, sorted(named)) if named else set()

    def _taken_away(
        self, record: Record, wanted: RevertRequest, why: Any, note: str = ""
    ) -> PlannedRevert | None:
        """Plan to erase or retire an entry; None if it is retired already."""
        if wanted.erase:
            return PlannedRevert(
                record, RevertedEntry(record.key.id, record.scope, why, "erased", note), self._retire(record)
            )
        retired = self._retire(record)
        return (
            None
            if retired is None
            else PlannedRevert(
                record, RevertedEntry(record.key.id, record.scope, why, "retired", note), retired
            )
        )

    def _retire(self, record: Record) -> Record | None:
        now = self._placement.now()
        start: Any = record.fields["valid_from"]
        if not is_current(record, now):
            return None
        end = window_end(start, now, now)
        gone = apply_changes(record, {"valid_to": end}, version=version_at(now, record.version))
        return replace(gone, body={**gone.body, TAKEN_BACK: True})

    # -- done --------------------------------------------------------------------------

    async def _carry_out(self, tenant: str, wanted: RevertRequest) -> list[RevertedEntry]:
        """Revert as much as possible.

        The first failure is raised at the end, and the operation stays pending.
        """
        done, failures = list[RevertedEntry](), list[MemoryTiersError]()
        async for judged in self._affected_entries(tenant, wanted):
            try:
                came = await self._take_back(judged, wanted)
            except (StoreError, TooMuchContention) as error:
                failures.append(error)
                continue
            except NotFound:  # its scope was erased meanwhile
                continue
            done += [] if came is None else [came]
        if failures:
            raise failures[0]
        return done

    async def _take_back(self, judged: PlannedRevert, wanted: RevertRequest) -> RevertedEntry | None:
        """Revert one entry; None if another process has done it."""
        verdict, key = judged.verdict, judged.record.key
        if verdict.done == "left":
            return verdict
        if verdict.done == "erased":
            try:
                if await self._erasure.delete(ENTRIES, key, at=judged.record.version):
                    return verdict
                now = (await self._placement.locate(ENTRIES, key)).record  # changed or deleted meanwhile
                again = None if now is None else await self._judge(now, wanted)
                return None if again is None else await self._take_back(again, wanted)
            except LegalHoldActive:
                wanted, verdict = replace(wanted, erase=False), replace(verdict, done="retired", note=HELD)
        said: list[RevertedEntry] = []

        async def rewrite_entry(record: Record) -> Record | None:
            again = await self._judge(record, wanted)
            said[:] = (
                [] if again is None else [replace(again.verdict, note=again.verdict.note or verdict.note)]
            )
            return None if again is None else again.new

        return said[0] if await self._entries.rewrite(key, rewrite_entry) else None


def _origin_filters(origin: str, since: int) -> Iterable[Condition | None]:
    """Yield the conditions for one origin.

    The first matches entries that name it, by an index. The second matches entries that
    it contributed to.
    """
    kind, name = parts_of(origin)
    changed_since = Ge("version", since) if since else None
    return all_of(Eq(kind, name), changed_since), all_of(Has("origins", origin), changed_since)


def _contiguous_versions(steps: Sequence[Record]) -> Sequence[Record]:
    """Return the last kept versions that follow one another without a gap.

    `steps` is oldest first. A version's author is known only from the version before
    it.
    """
    gaps = [
        number
        for number, (before, step) in enumerate(pairwise(steps), start=1)
        if step.previous != before.version
    ]
    return steps[gaps[-1] :] if gaps else steps


def _restated_by_another(steps: Sequence[Record], taken: Sequence[bool]) -> int:
    """Return the position of the last version that another writer stated completely.

    Versions before it do not matter. 0 if there is none.
    """
    return max(
        (
            at
            for at, (step, is_taken) in enumerate(zip(steps, taken, strict=True))
            if RESTATED in step.body and not is_taken
        ),
        default=0,
    )


def _is_derived(record: Record) -> bool:
    """Return whether the entry was derived from other entries."""
    return (
        record.fields.get("promoted_from_id") is not None or record.body.get("compacted_from_ids") is not None
    )
