"""Erasure of a tenant or a subtree: all it had at one moment, in every scope.

It is an operation in the archive with a pending step, so a sweep continues it after a
crash (decision 068). The version of its record is the moment. Older records are
deleted, even if they were changed since. Records created since stay, even in a scope
that is processed later. The operation is deleted when it is done.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from memory.domain import ids
from memory.domain.errors import LegalHoldActive, MemoryTiersError, StoreError, StoreUnavailable
from memory.domain.scope import Subtree
from memory.domain.session import ErasedScope, ErasedTenant
from memory.orchestrator.conversations.sessions import SessionRecords, is_of_before
from memory.orchestrator.erasure.erasure import Erased, Erasure, Unmakes
from memory.orchestrator.storage.collections import DOCUMENTS, ENTRIES, OPERATIONS, SESSIONS
from memory.orchestrator.storage.operations import end_operation, new_operation
from memory.orchestrator.storage.outbox import Outbox
from memory.orchestrator.storage.past_versions import is_older
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.session_keys import session_of
from memory.orchestrator.storage.split import CONVERSATION
from memory.ports.query import Condition, Ge, Lt, Page, Query, Tenant, Under
from memory.ports.record import JsonValue, Partition, PendingStep, Record, Role
from memory.ports.store import Store
from memory.ports.writes import Newer, Put

log = logging.getLogger(__name__)

ERASE_TENANT, ERASE_SUBTREE = "erase_tenant", "erase_subtree"
"""The steps of the two erasures, and the kinds of their operations."""
Place: TypeAlias = Tenant | Under
"""A whole tenant, or its scopes that begin with one prefix."""
QUIET, MOST_ROUNDS = 2, 10
"""The number of consecutive rounds without results that end it, and the most rounds."""
CHANGED = frozenset({Role.HOME, Role.ARRIVING})


@dataclass(slots=True)
class _EraseProgress:
    """The progress of an erasure.

    It has the erased scopes and counts, the errors by scope, and the stores that did
    not answer.
    """

    scopes: set[str] = field(default_factory=set)
    counts: Erased = field(default_factory=Counter)
    refused: dict[str, MemoryTiersError] = field(default_factory=dict)
    away: dict[str, StoreError] = field(default_factory=dict)
    goes_on: bool = False
    """Whether every round found more."""

    @property
    def problems(self) -> list[MemoryTiersError]:
        """The reasons why older records stay; legal holds come last.

        Legal holds alone leave nothing to be done.
        """
        return sorted(
            (*self.away.values(), *self.refused.values()),
            key=lambda error: isinstance(error, LegalHoldActive),
        )


class TenantErasure:
    """Finds the data of a tenant or a subtree, and erases it."""

    def __init__(
        self, placement: Placement, *, outbox: Outbox, erasure: Erasure, sessions: SessionRecords
    ) -> None:
        self._placement = placement
        self._erasure = erasure
        self._sessions = sessions
        outbox.register_for_records(ERASE_TENANT, self._erase_noted)
        outbox.register_for_records(ERASE_SUBTREE, self._erase_noted)

    async def erase(self, tenant: str) -> ErasedTenant:
        """Erase everything that a tenant has now; see `_erase_place`."""
        return await self._erase_place(Tenant(tenant))

    async def erase_subtree(self, tenant: str, subtree: Subtree) -> ErasedScope:
        """Erase everything that a subtree has now; see `_erase_place`."""
        done = await self._erase_place(Under(tenant, (subtree.prefix,)))
        entries, documents = (sum(done.records.get(c.name, {}).values()) for c in (ENTRIES, DOCUMENTS))
        return ErasedScope(entries, documents=documents, scopes=done.scopes)

    async def scopes_of(self, tenant: str, subtree: Subtree) -> AsyncIterator[str]:
        """Yield the scopes of a subtree that have data, in order.

        Raises:
            StoreUnavailable: A store did not answer.
        """
        done, place = _EraseProgress(), Under(tenant, (subtree.prefix,))
        for scope in sorted(await self._scopes(place, self._placement.next_version(), done)):
            yield scope
        for error in done.problems:
            raise error

    async def _erase_place(self, place: Place) -> ErasedTenant:
        """Erase everything that is there now.

        It ends after two rounds in a row without results. If a store does not answer,
        the others are erased, and the call raises. A sweep does the rest, and the call
        can be repeated. An error in one scope is raised once the others are erased.
        Data under legal hold stays then; other data stays pending. A repeated call
        starts again from a later moment, beside any other call.
        """
        done = _EraseProgress()
        operation = await self._begin(place, done)
        await self._carry_out(place, operation, done)
        for error in done.problems:
            raise error
        if done.goes_on:
            raise StoreUnavailable(
                self._placement.topology.archive.name,
                "earlier writes are still arriving; a sweep checks again",
            )
        return ErasedTenant(len(done.scopes), _by_kind(done.counts))

    async def _begin(self, place: Place, done: _EraseProgress) -> Record:
        """Store the operation, with a version above that of all stored data.

        That data may come from a clock that is ahead of this one.
        """
        archive, version = self._placement.topology.archive, self._placement.next_version()
        async for _, page in self._heads(place, Ge("version", version), done):
            version = max([version, *(head.version + 1 for head in page.heads)])
        if (error := done.away.get(archive.name)) is not None:
            raise error
        name = ERASE_SUBTREE if isinstance(place, Under) else ERASE_TENANT
        data = _note_of(place)
        first = new_operation(self._placement, name, tuple(map(str, data.values())), data)
        while True:
            operation = replace(first, version=version)
            begun = await self._placement.write_one(
                "tenant.begin", archive, Put(OPERATIONS, operation, Newer())
            )
            if begun.applied:
                return operation
            raise_if_rejected(archive, begun)
            if isinstance(begun.stored, Record):
                return begun.stored  # another call's, of a later moment
            version = self._placement.next_version(begun.version or 0)

    async def _erase_noted(self, operation: Record, store: Store, owed: PendingStep) -> bool:
        done = _EraseProgress()
        await self._carry_out(_place_in(owed), operation, done)
        for error in done.problems:
            log.warning("an erasure of several scopes is not complete: %s", error)
            if not isinstance(error, LegalHoldActive):
                raise error
        return not done.goes_on  # the end of the operation has removed the step

    async def _carry_out(self, place: Place, operation: Record, done: _EraseProgress) -> None:
        """Erase, and end the operation if only data under legal hold is left."""
        quiet = 0
        for _ in range(MOST_ROUNDS):
            quiet = 0 if await self._round(place, operation.version, done) else quiet + 1
            if quiet == QUIET:
                break
        done.goes_on = quiet < QUIET
        if not done.goes_on and all(isinstance(error, LegalHoldActive) for error in done.problems):
            await end_operation("tenant.end", self._placement, operation, str(operation.fields["kind"]))

    async def _round(self, place: Place, before: int, done: _EraseProgress) -> bool:
        """Erase everything older than this version; return whether there was any.

        Conversations come last, so that entries derived from them are counted in their
        own scopes.
        """
        found = sorted(
            await self._scopes(place, before, done) - done.refused.keys(),
            key=lambda scope: (_is_conversation(scope), scope),
        )
        for scope in found:
            try:
                done.counts += await self._erase(place, scope, before)
                done.scopes.add(scope)
            except MemoryTiersError as error:
                done.refused[scope] = error
        changed = 0
        async for store, record in self._changed_entries(place, before, done):
            if record.scope not in done.refused:
                changed += 1
                await self._delete(place, store, record, done)
        return bool(found or changed)

    async def _erase(self, place: Place, scope: str, before: int) -> Erased:
        if _is_conversation(scope):
            return await self._sessions.erase_before(place.tenant, session_of(scope), before)
        return await self._erasure.erase(Partition(place.tenant, scope), before=before, prefix=_prefix(place))

    async def _delete(self, place: Place, store: Store, record: Record, done: _EraseProgress) -> None:
        unmake: Unmakes | None = "all" if _prefix(place) else None  # a tenant's are all found
        try:
            gone = await self._erasure.delete(ENTRIES, record.key, at=record.version, unmake=unmake)
        except MemoryTiersError as error:
            done.refused[record.scope] = error
        else:
            done.counts[ENTRIES.name, store.name] += gone
            done.scopes.add(record.scope)

    async def _scopes(self, place: Place, before: int, done: _EraseProgress) -> set[str]:
        """Return the scopes with older data.

        The data may have any role, and be expired or damaged. The scopes include older
        conversations whose records were changed since.
        """
        found, damaged = set[str](), dict[Store, set[int]]()
        async for store, page in self._heads(place, Lt("version", before), done):
            found |= {head.scope for head in page.heads}
            damaged.setdefault(store, set()).update(
                ids.digest_of(key.id) for key in page.corrupt if ids.is_id(key.id)
            )
        for store in [
            store for store, digests in damaged.items() if digests
        ]:  # a damaged record has no readable scope
            within, prefix = Tenant(place.tenant), _prefix(place)
            async for partition, _ in self._placement.partitions("tenant.scopes", store, within, prefix):
                if ids.partition_digest(place.tenant, partition.scope) in damaged[store]:
                    found.add(partition.scope)
        if isinstance(place, Under):
            return found
        query = Query(SESSIONS, place, Ge("version", before), limit=self._placement.settings.page)
        async for page in self._pages("tenant.changed", self._placement.topology.archive, query, done):
            found |= {
                row.scope for row in page.records if isinstance(row, Record) and is_of_before(row, before)
            }
        return found

    async def _heads(
        self, place: Place, asked: Condition, done: _EraseProgress
    ) -> AsyncIterator[tuple[Store, Page]]:
        for kind in self._placement.kinds.scoped:
            if isinstance(place, Under) and kind.apart is not None:
                continue
            for store in self._placement.topology.homes:
                query = Query(
                    kind.collection,
                    place,
                    asked,
                    roles=frozenset(Role),
                    select=frozenset(),
                    limit=self._placement.settings.page,
                )
                async for page in self._pages("tenant.scopes", store, query, done):
                    yield store, page

    async def _changed_entries(
        self, place: Place, before: int, done: _EraseProgress
    ) -> AsyncIterator[tuple[Store, Record]]:
        """Yield older entries that were changed since, and newer derived entries.

        The derived entries were made of older ones.
        """
        for store in self._placement.topology.homes:
            query = Query(
                ENTRIES,
                place,
                Ge("version", before),
                limit=self._placement.settings.page,
                roles=CHANGED,
            )
            async for page in self._pages("tenant.changed", store, query, done):
                for row in page.records:
                    if isinstance(row, Record) and await is_older(self._placement, row, before):
                        yield store, row

    async def _pages(
        self, name: str, store: Store, query: Query, done: _EraseProgress
    ) -> AsyncIterator[Page]:
        """Yield every page, but none of a store that has not answered."""
        try:
            if store.name not in done.away:
                async for page in self._placement.pages(name, store, query):
                    yield page
        except StoreError as error:
            done.away[store.name] = error


def _prefix(place: Place) -> str:
    return place.prefixes[0] if isinstance(place, Under) else ""


def _note_of(place: Place) -> dict[str, JsonValue]:
    """Return what the step notes of the place."""
    return {"tenant": place.tenant} | ({"prefix": _prefix(place)} if isinstance(place, Under) else {})


def _place_in(owed: PendingStep) -> Place:
    tenant = str(owed.data["tenant"])
    return Tenant(tenant) if owed.step == ERASE_TENANT else Under(tenant, (str(owed.data["prefix"]),))


def _is_conversation(scope: str) -> bool:
    return scope.startswith(f"{CONVERSATION}:")


def _by_kind(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (collection, store), count in sorted(counts.items()):
        found.setdefault(collection, {})[store] = count
    return found
