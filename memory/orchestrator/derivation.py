"""Entries made from entries: promoted into a broader scope, or compacted into one. The new entry is stored first; what remains is owed by it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from memory.domain import door, ids
from memory.domain.entry import Entry, EntryDraft, EntryType
from memory.domain.errors import CompactionError, InvalidInput, NotFound, StoreUnavailable
from memory.domain.scope import Scope, ScopeKind, check_promotion
from memory.orchestrator.entries import Entries
from memory.orchestrator.entry_records import entry_of, record_of
from memory.orchestrator.erasure import Erasure
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.owed import DELETE, Debt, OwedWork
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.tiering import owed_replicas
from memory.policies.routing import route
from memory.ports.collections import ENTRIES
from memory.ports.record import Key, Owed, Record
from memory.ports.writes import Absent, AtVersion, Put, Status

Callback: TypeAlias = Callable[[list[Entry]], str | Awaitable[str]]
"""Makes one text of several entries; gets copies of them in the order asked, may be async (A77)."""


class Derivation:
    """Promotion across scopes, and compaction. Ids derive from the sources, so that a repeat finds what it made before."""

    def __init__(self, placement: Placement, *, entries: Entries, meaning: Meaning, owed: OwedWork, erasure: Erasure) -> None:
        self._placement = placement
        self._entries = entries
        self._meaning = meaning
        self._owed = owed
        self._erasure = erasure

    async def promote(
        self, tenant: str, entry_id: str, target: Scope, *, overrides: dict[str, Any] | None = None, delete_original: bool = False
    ) -> Entry:
        """Copy an entry into a broader scope (A59-A71). Promoting the same source to the same scope again returns the same entry (A72)."""
        try:
            source = await self._entries.live_record(tenant, entry_id)
        except NotFound:  # promoted before, and the original deleted with it: a repeat of that call
            return await self._promoted(tenant, entry_id, target)
        origin = entry_of(source)
        check_promotion(origin.scope, target)
        metadata = dict(origin.metadata)
        if origin.scope.kind is ScopeKind.SESSION:
            metadata.setdefault("created_in_session_id", origin.scope.id)
        wanted = {"content": origin.content, "tags": origin.tags} | (overrides or {})
        if "metadata" in wanted:  # laid over the source's: provenance is never stripped (A88)
            metadata = door.json_object("metadata", metadata | wanted["metadata"])
        wanted["metadata"] = metadata
        # Checked when it was written, and again where overridden: what could be stored can be promoted, empty content too (A52).
        draft = EntryDraft.model_construct(
            scope=target, type=origin.type, title=origin.title, source=origin.source, expires_at=origin.expires_at, **wanted
        )
        record = record_of(
            draft,
            key=_promoted_key(tenant, entry_id, target),
            version=self._placement.next_version(),
            now=self._placement.now(),
            tier=route(ENTRIES.name, target.kind).tier,
            promoted_from_id=entry_id,
            compacted_from_ids=origin.compacted_from_ids,
            contributors=None if origin.contributors is None else [c.model_dump() for c in origin.contributors],
        )
        return await self._store(record, [source] if delete_original else [])

    async def _promoted(self, tenant: str, entry_id: str, target: Scope) -> Entry:
        """What an entry that is gone was promoted to; raises `NotFound` naming that entry where it was not."""
        located = await self._placement.locate(ENTRIES, _promoted_key(tenant, entry_id, target))
        if located.record is None:
            raise NotFound(entry_id)
        return entry_of(await self._entries.live_record(tenant, located.key.id))

    async def compact(
        self,
        tenant: str,
        entry_ids: Sequence[str],
        callback: Callback,
        *,
        target_scope: Scope | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        delete_sources: bool = False,
    ) -> Entry:
        """Make one entry of several of one scope (A73-A87). The library calls no model: the callback does (A85)."""
        distinct = list(dict.fromkeys(entry_ids))
        if not distinct:
            raise CompactionError(distinct, "sourceEntryIds must be non-empty.")
        sources = [await self._entries.live_record(tenant, entry_id) for entry_id in distinct]
        scopes = {s.scope for s in sources}
        if len(scopes) > 1:
            raise CompactionError(distinct, "All source entries must share the same scope.")
        scope = Scope.parse(sources[0].scope)
        if target_scope is not None and target_scope != scope:
            raise CompactionError(distinct, "Compaction targetScope must match the shared source scope.")
        content = await self._called(callback, sources, distinct)
        origins = [entry_of(s) for s in sources]
        merged = {name: value for origin in reversed(origins) for name, value in origin.metadata.items()} | (metadata or {})
        union = list(dict.fromkeys(tag for origin in origins for tag in origin.tags))
        kinds = {origin.type for origin in origins}
        try:
            draft = self._draft(
                scope,
                kinds.pop() if len(kinds) == 1 else EntryType.CONTEXT,
                None,
                None,
                _latest([o.expires_at for o in origins]),
                {"content": content, "tags": union if tags is None else tags, "metadata": merged},
            )
        except InvalidInput as error:
            raise CompactionError(distinct, str(error)) from error
        made_of = [f"{s.key.id}@{s.version}" for s in sources]
        identity = ids.derived_id(tenant, scope.text, "compact", *made_of, content, repr(draft.tags), repr(draft.metadata))
        record = record_of(
            draft,
            key=Key(tenant, identity),
            version=self._placement.next_version(),
            now=self._placement.now(),
            tier=route(ENTRIES.name, scope.kind).tier,
            compacted_from_ids=distinct,
            contributors=[c for origin in origins for c in _contributors(origin)],
        )
        generation = min(s.generation or 0 for s in sources)  # sources erased meanwhile take their summary with them
        return await self._store(replace(record, generation=generation), sources if delete_sources else [])

    async def _called(self, callback: Callback, sources: Sequence[Record], entry_ids: Sequence[str]) -> str:
        try:
            made = callback([entry_of(s) for s in sources])
            content = await made if inspect.isawaitable(made) else made
        except Exception as error:
            raise CompactionError(entry_ids, str(error) or type(error).__name__) from error
        if not isinstance(content, str):
            raise CompactionError(entry_ids, f"the callback must return text, not {type(content).__name__}")
        return content

    @staticmethod
    def _draft(
        scope: Scope, kind: EntryType, title: str | None, source: str | None, expires_at: datetime | None, wanted: dict[str, Any]
    ) -> EntryDraft:
        return EntryDraft(scope=scope, type=kind, title=title, source=source, expires_at=expires_at, **wanted)

    async def _store(self, record: Record, to_delete: Sequence[Record]) -> Entry:
        """Put a derived record where nothing stands under its id, or over the tombstone of an earlier life; return the first one else."""
        record = (await self._meaning.embedded([record]))[0]
        store = self._placement.topology.home(record.tier)
        debts = [Owed(DELETE, {"records": [[s.key.id, s.version] for s in to_delete]})] if to_delete else []
        for _ in range(self._placement.settings.attempts):
            there = await self._placement.locate(ENTRIES, record.key)
            if there.record is not None:
                for source in to_delete:
                    await self._erasure.delete(ENTRIES, source.key, at=source.version)
                return entry_of(there.record)
            grave = there.tombstone
            home = there.store if grave is not None and there.store is not None else store
            version = self._placement.next_version(0 if grave is None else await self._highest_grave(record.key))
            tier = record.tier if home is store else self._placement.topology.tiers_of(home)[0]
            owed = (*owed_replicas(self._placement, ENTRIES, home, tier), *debts)
            new = replace(record, version=version, tier=tier, owed=owed)
            when = Absent() if grave is None else AtVersion(grave.version)
            outcome = await self._placement.write_one("derive.home", home, Put(ENTRIES, new, when))
            if (error := refused(home, outcome)) is not None:
                raise error
            if outcome.status is Status.REJECTED:
                raise NotFound(record.key.id)  # the scope was erased under it
            if outcome.applied:
                stored = replace(new, generation=outcome.generation)
                await self._owed.try_finish(Debt(ENTRIES, home, stored))
                return entry_of(stored)
        raise StoreUnavailable(store.name, f"entry {record.key.id} keeps changing; try again")

    async def _highest_grave(self, key: Key) -> int:
        """The highest version of what stands under the key in any store: a new life must be newer than all of it."""
        rows = [(await store.get(ENTRIES, [key]))[0] for store in self._placement.topology.homes]
        return max((getattr(row, "version", 0) for row in rows), default=0)


def _promoted_key(tenant: str, entry_id: str, target: Scope) -> Key:
    return Key(tenant, ids.derived_id(tenant, target.text, "promote", entry_id))


def _latest(moments: Sequence[datetime | None]) -> datetime | None:
    """The latest expiry; none where one never expires (decision A83)."""
    known = [m for m in moments if m is not None]
    return max(known) if known and len(known) == len(moments) else None


def _contributors(origin: Entry) -> list[dict[str, Any]]:
    """Where a source came from; of a compacted one, where its own sources came from (decision A82)."""
    if origin.contributors:
        return [c.model_dump() for c in origin.contributors]
    given = origin.metadata
    agent = given.get("agent_id", given.get("agentId"))
    return [{"entry_id": origin.id, "agent_id": agent, "source": given.get("source", origin.source), "confidence": given.get("confidence")}]
