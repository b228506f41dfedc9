"""Entries made from entries: promoted into a broader scope, or compacted into one.

The new entry is stored first, with the remaining work as its pending steps.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeAlias, TypeVar

from memory.domain import ids, validation
from memory.domain.entry import WHERE_SAID, Entry, EntryDraft, EntryType
from memory.domain.errors import CompactionError, Conflict, InvalidInput, NotFound, error_text
from memory.domain.filters import equal
from memory.domain.provenance import all_in
from memory.domain.scope import Scope, ScopeKind, check_promotion
from memory.domain.time import moment
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.entries.admission import NewEntry
from memory.orchestrator.entries.derivatives import Derivatives
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.writing import refuse_gone
from memory.orchestrator.erasure.erasure import DELETE, Erasure
from memory.orchestrator.storage.collections import ENTRIES, MODEL
from memory.orchestrator.storage.deliveries import Consistency, Deliveries
from memory.orchestrator.storage.entry_records import (
    apply_changes,
    entry_of,
    meaning_of,
    own_vector,
    record_of,
)
from memory.orchestrator.storage.id_reuse import IdReuse
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import OutboxRecord, write_steps
from memory.orchestrator.storage.past_versions import MADE_OF, kept_versions, life_of, oldest_in
from memory.orchestrator.storage.placement import LocatedRecord, Placement, raise_if_rejected
from memory.orchestrator.storage.requests import UNDONE, RequestMark
from memory.orchestrator.storage.sources import CONFIRM_SOURCES, CONFIRMS, as_moved, is_unconfirmed, made_of
from memory.orchestrator.storage.versions import version_at
from memory.policies.visibility import is_current, is_expired
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import Put, Status

Callback: TypeAlias = Callable[[list[Entry]], str | Awaitable[str]]
"""Makes one text of several entries. It receives copies of them in the requested order,
and may be async.
"""

COPIED_VERSION = "promoted_from_version"
"""In the body of a promoted entry: the version of the original that was copied."""
Ends = TypeVar("Ends", datetime, timedelta)
SHARED: Final = object()
"""As the data of a compacted entry: the data that its sources have in common."""
OVERRIDES = "promoted_with"
"""In the body of a promoted entry: a digest of the values that the promotion overrode.
"""


class Derivation:
    """Promotion across scopes, and compaction.

    Ids derive from the sources, so that a repeated call finds its earlier result.
    """

    def __init__(
        self,
        placement: Placement,
        *,
        entries: Entries,
        embeddings: Embeddings,
        deliveries: Deliveries,
        erasure: Erasure,
        id_reuse: IdReuse,
        derivatives: Derivatives,
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._embeddings = embeddings
        self._deliveries = deliveries
        self._erasure = erasure
        self._id_reuse = id_reuse
        self._derivatives = derivatives
        erasure.keep_sources = self._keep_sources

    async def promote(
        self,
        tenant: str,
        entry_id: str,
        target: Scope,
        *,
        overrides: dict[str, Any] | None = None,
        delete_original: bool = False,
        revive: bool = True,
        automatic: bool = False,
        consistency: Consistency | None = None,
        request: RequestMark | None = None,
        origins: Sequence[str] = (),
    ) -> Entry:
        """Copy an entry into a broader scope.

        `automatic` means that a rule asks for it, and no caller. `origins` are those of
        the caller, which the copy has beside those of the entry.

        A repeated promotion of the same source to the same scope with the same
        overrides returns the same entry. If the copy was deleted since, another is
        made, unless `revive` is false. If the original is edited before the copy is
        confirmed, it is copied again, by a repeat of a call that was cut off too. If it
        is deleted meanwhile, the copy is deleted too. The original is deleted only at
        the version that was copied, and only while its copy can be read.

        Raises:
            Conflict: It was promoted with other overrides. Or the copy was deleted and
                `revive` is false, or the request is repeated. Or the original to delete
                was edited after it was copied.
            NotFound: The entry does not exist, or was deleted meanwhile.
        """
        patience, asked = RetryDeadline(self._placement, entry_id), _digest(overrides or {})
        while True:
            try:
                source = await self._entries.confirmed_record(tenant, entry_id)
            except NotFound:  # a repeat: the entry was promoted before, and the original deleted with it
                return await self._find_promoted(tenant, entry_id, target, asked)
            record = await self._copy_of(tenant, source, target, overrides or {}, origins, gated=True)
            record = made_of(record, [source], automatic=automatic, moved=delete_original)

            def check(there: Record, source: Record = source) -> None:
                _check_overrides(there, asked)
                if delete_original and there.body.get(COPIED_VERSION) != source.version:
                    raise Conflict(
                        f"entry {entry_id} was edited after it was promoted, and its copy lacks the edit, so"
                        " it was not deleted. Update the copy with the text to keep, then delete the"
                        " original",
                        there.key.id,
                    )

            to_delete = [source] if delete_original else []
            try:
                return await self._store(
                    record,
                    [source],
                    to_delete,
                    check,
                    revive=revive,
                    consistency=consistency,
                    request=request,
                )
            except NotFound:
                if (await self._placement.locate(ENTRIES, source.key)).record is None:
                    raise
                await patience.wait()  # the original was edited while it was copied

    async def plan_promotion(
        self, tenant: str, entry_id: str, target: Scope, to_come: Record | None = None
    ) -> tuple[Record, LocatedRecord]:
        """Return the copy that `promote` would make now, and the row under its id.

        That row is an earlier copy, or the tombstone of one. `to_come` is the entry, if
        it is not stored yet. Nothing is written, and neither the quotas nor the write
        gate are called.

        Raises:
            NotFound: As in `promote`.
            InvalidScopePromotion: As in `promote`.
        """
        source = to_come or await self._entries.live_record(tenant, entry_id)
        record = await self._copy_of(tenant, source, target, {}, (), gated=False)
        whose = {} if source.vector is None else await self._embeddings.whose()
        record = replace(record, fields={**record.fields, **whose})
        return record, await self._placement.locate(
            ENTRIES, record.key, born_in=self._placement.topology.home(record.tier)
        )

    @property
    def decided_when_made(self) -> tuple[str, ...]:
        """Conditions that decide when the copy is made, and are not checked before."""
        return ("if the write gate accepts it",) if self._entries.trust.gates.write is not None else ()

    async def _copy_of(
        self,
        tenant: str,
        source: Record,
        target: Scope,
        overrides: dict[str, Any],
        origins: Sequence[str],
        *,
        gated: bool,
    ) -> Record:
        origin = entry_of(source)
        check_promotion(origin.scope, target)
        metadata = dict(origin.metadata)
        if origin.scope.kind is ScopeKind.SESSION:
            metadata.setdefault("created_in_session_id", origin.scope.id)
        said = {name: getattr(origin, name) for name in WHERE_SAID}
        wanted = {"content": origin.content, "tags": origin.tags, "data": origin.data} | overrides
        if "metadata" in wanted:  # laid over the source's metadata: provenance is never removed
            metadata = validation.json_object("metadata", metadata | wanted["metadata"])
        wanted["metadata"] = metadata
        # The values were checked when they were written, and are checked again if
        # overridden. Everything that could be stored can be promoted, even empty
        # content.
        draft = EntryDraft.model_construct(
            scope=target,
            type=origin.type,
            title=origin.title,
            expires_at=origin.expires_at,
            lifetime=origin.lifetime,
            searchable=origin.searchable,
            vector=None if "content" in overrides else own_vector(source),
            **origin_fields(origin, origins),
            **said,
            **wanted,
        )
        if gated:
            [draft] = await self._entries.trust.let_in(tenant, [draft], derived=True)
        now = self._placement.now()
        record = record_of(
            draft,
            key=_promoted_key(tenant, source.key.id, target),
            version=version_at(now),
            now=now,
            tier=self._placement.kinds.of(ENTRIES).route(target.kind).tier,
            sequence=self._placement.next_sequence(),
            promoted_from_id=source.key.id,
            compacted_from_ids=origin.compacted_from_ids,
            contributors=(
                None if origin.contributors is None else [c.model_dump() for c in origin.contributors]
            ),
        )
        if own_vector(record) == own_vector(source) and meaning_of(record) == meaning_of(source):
            model = {MODEL: source.fields[MODEL]} if MODEL in source.fields else {}
            record = replace(record, vector=source.vector, fields={**record.fields, **model})
        return replace(
            record,
            body={
                **record.body,
                COPIED_VERSION: source.version,
                MADE_OF: oldest_in([source]),
                OVERRIDES: _digest(overrides),
            },
        )

    async def _find_promoted(self, tenant: str, entry_id: str, target: Scope, asked: str) -> Entry:
        """Return the copy of an entry that was promoted and deleted.

        Raises:
            NotFound: The entry was not promoted, or its copy is hidden, or the entry
                was deleted before the copy was confirmed. In the last case the copy is
                deleted too. The error names the entry.
        """
        try:
            made = await self._entries.live_record(tenant, _promoted_key(tenant, entry_id, target).id)
        except NotFound:  # not promoted, or the copy is hidden: it expires with its original
            raise NotFound(entry_id) from None
        if is_unconfirmed(made):
            there = await self._placement.locate(ENTRIES, made.key)
            if (
                there.store is None
                or there.record is None
                or await self._is_undone(there.store, there.record)
            ):
                raise NotFound(entry_id)
        _check_overrides(made, asked)
        return entry_of(made)

    async def compact(
        self,
        tenant: str,
        entry_ids: Sequence[str],
        callback: Callback,
        *,
        target_scope: Scope | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        data: Any = SHARED,
        delete_sources: bool = False,
        consistency: Consistency | None = None,
        request: RequestMark | None = None,
        origins: Sequence[str] = (),
    ) -> Entry:
        """Make one entry of several entries of one scope.

        The library calls no model: the callback does. A repeat of a request returns the
        entry that it made. `origins` are those of the caller.
        """
        distinct = list(dict.fromkeys(entry_ids))
        if not distinct:
            raise CompactionError(distinct, "sourceEntryIds must be non-empty.")
        options: dict[str, Any] = {
            "target_scope": target_scope,
            "tags": tags,
            "metadata": metadata,
            "data": data,
            "delete_sources": delete_sources,
            "consistency": consistency,
        }
        options |= {"request": request, "origins": origins}
        if request is None or not ids.is_id(distinct[0]):
            return await self._compact(tenant, distinct, callback, named=None, **options)
        named = ids.beside(distinct[0], "compact", request.text)
        if (
            request.repeats
            and (made := await self._earlier_compaction(Key(tenant, named), consistency)) is not None
        ):
            return made
        try:
            return await self._compact(tenant, distinct, callback, named=named, **options)
        except (NotFound, CompactionError):  # the same request may have deleted them just now
            if (made := await self._earlier_compaction(Key(tenant, named), consistency)) is None:
                raise
            return made

    async def _compact(
        self,
        tenant: str,
        distinct: Sequence[str],
        callback: Callback,
        *,
        named: str | None,
        target_scope: Scope | None,
        tags: list[str] | None,
        metadata: dict[str, Any] | None,
        data: Any,
        delete_sources: bool,
        consistency: Consistency | None,
        request: RequestMark | None,
        origins: Sequence[str],
    ) -> Entry:
        """Make the entry, under the id `named` if a request has one for it."""
        sources = [await self._entries.confirmed_record(tenant, entry_id) for entry_id in distinct]
        scopes = {s.scope for s in sources}
        if len(scopes) > 1:
            raise CompactionError(distinct, "All source entries must share the same scope.")
        scope = Scope.parse(sources[0].scope)
        if target_scope is not None and target_scope != scope:
            raise CompactionError(distinct, "Compaction targetScope must match the shared source scope.")
        entries = [entry_of(s) for s in sources]
        union = _united_tags(entries, distinct) if tags is None else tags
        merged = _merged_metadata(entries, metadata, distinct)
        carried = _shared_data(entries, distinct) if data is SHARED else data
        content = await self._invoke_callback(callback, sources, distinct)
        kinds = {origin.type for origin in entries}
        try:
            draft = EntryDraft(
                scope=scope,
                type=kinds.pop() if len(kinds) == 1 else EntryType.CONTEXT,
                content=content,
                tags=union,
                metadata=merged,
                data=carried,
                searchable=all(origin.searchable for origin in entries),
                origins=[*(one for source in sources for one in all_in(source.fields)), *origins],
                expires_at=_latest([o.expires_at for o in entries]),
                lifetime=_latest([o.lifetime for o in entries]),
            )
        except InvalidInput as error:
            raise CompactionError(distinct, str(error)) from error
        [draft] = await self._entries.trust.let_in(tenant, [draft], derived=True)
        versions = [f"{s.key.id}@{s.version}" for s in sources]
        said = [draft.content, repr(draft.tags), repr(draft.metadata)]
        said += [] if draft.data is None else [repr(draft.data)]
        identity = named or ids.derived_id(tenant, scope.text, "compact", *versions, *said)
        now = self._placement.now()
        record = record_of(
            draft,
            key=Key(tenant, identity),
            version=version_at(now),
            now=now,
            tier=self._placement.kinds.of(ENTRIES).route(scope.kind).tier,
            sequence=self._placement.next_sequence(),
            compacted_from_ids=list(distinct),
            contributors=[c for origin in entries for c in _contributors(origin)],
        )
        generation = min(
            s.generation or 0 for s in sources
        )  # sources that are erased meanwhile take their summary with them
        record = replace(record, generation=generation, body={**record.body, MADE_OF: oldest_in(sources)})
        record = made_of(record, sources, automatic=False, moved=delete_sources)
        to_delete = sources if delete_sources else []
        try:
            return await self._store(record, sources, to_delete, consistency=consistency, request=request)
        except NotFound as error:
            if error.entry_id not in distinct:
                raise
            gone = (
                f"entry {error.entry_id} was deleted or edited while it was summarised, so nothing was stored"
            )
            raise CompactionError(
                distinct, f"{gone}. Read the entries again, and compact those that are left."
            ) from error

    async def _earlier_compaction(self, key: Key, consistency: Consistency | None) -> Entry | None:
        """Return the entry that an earlier call of a request has made, if any.

        Its pending steps are carried out, such as the deletion of its sources.

        Raises:
            NotFound: The entry may not be shown.
        """
        home = (await self._placement.locate(ENTRIES, key)).home()
        if home is None:
            return None
        record, store = home
        if await self._is_undone(store, record):
            return None
        owed = tuple(one for one in record.owed if one.step != CONFIRM_SOURCES)
        await self._deliveries.deliver(
            [OutboxRecord(ENTRIES, store, replace(record, owed=owed))], consistency
        )
        first = next(iter(await kept_versions(self._placement, record)), record)
        if not await self._entries.writer.is_shown(record, first):
            raise NotFound(key.id)
        return entry_of(replace(first, tier=record.tier))

    async def _invoke_callback(
        self, callback: Callback, sources: Sequence[Record], entry_ids: Sequence[str]
    ) -> str:
        try:
            made = callback([entry_of(s) for s in sources])
            content = await made if inspect.isawaitable(made) else made
        except Exception as error:
            raise CompactionError(entry_ids, error_text(error)) from error
        if not isinstance(content, str):
            raise CompactionError(entry_ids, f"the callback must return text, not {type(content).__name__}")
        return content

    async def _store(
        self,
        record: Record,
        sources: Sequence[Record],
        to_delete: Sequence[Record],
        check: Callable[[Record], None] = lambda there: None,
        *,
        revive: bool = True,
        consistency: Consistency | None = None,
        request: RequestMark | None = None,
    ) -> Entry:
        """Store a derived record under a free id, or over a tombstone.

        If the record exists already and `check` does not raise, the existing one is
        returned. Sources are deleted only if the copy can be read.

        Raises:
            LegalHoldActive: One of the sources to delete is under legal hold.
        """
        await self._erasure.holds.refuse(to_delete)
        less = sum(source.scope == record.scope for source in to_delete)
        async with self._entries.quotas.admit(
            record.key.tenant, [NewEntry.of(record, derived=True)], less
        ) as stay:
            stay.add(record.key)
            return await self._put_record(
                record, sources, to_delete, check, revive=revive, consistency=consistency, request=request
            )

    async def _put_record(
        self,
        record: Record,
        sources: Sequence[Record],
        to_delete: Sequence[Record],
        check: Callable[[Record], None],
        *,
        revive: bool,
        consistency: Consistency | None,
        request: RequestMark | None,
    ) -> Entry:
        record = (await self._embeddings.embed_records([record]))[0]
        store = self._placement.topology.home(record.tier)
        pending = (
            [PendingStep(DELETE, DELETE, {"records": [[s.key.id, s.version] for s in to_delete]})]
            if to_delete
            else []
        )
        patience = RetryDeadline(self._placement, record.key.id)
        while True:
            there = await self._placement.locate(ENTRIES, record.key, born_in=store)
            if there.record is not None:
                if there.store is not None and (await self._is_undone(there.store, there.record, sources)):
                    continue
                check(there.record)
                refuse_gone(request, there)
                return await self._made_before(there.record, to_delete)
            refuse_gone(request, there)
            if there.tombstone is not None and not revive and UNDONE not in there.tombstone.note:
                raise Conflict(
                    "its earlier result was deleted",
                    record.key.id,
                    deleted_at=moment(there.tombstone.version),
                )
            born = await self._id_reuse.prepare(record, store, there)
            if born is None:
                await patience.wait()
                continue
            new = replace(
                born.record,
                owed=(
                    *CONFIRMS,
                    *write_steps(self._placement, ENTRIES, born.record, born.store),
                    *pending,
                ),
            )
            outcome = await self._placement.write_one("derive.home", born.store, Put(ENTRIES, new, born.when))
            raise_if_rejected(born.store, outcome)
            if outcome.status is Status.REJECTED:
                raise NotFound(record.key.id)  # the scope was erased meanwhile
            if outcome.applied:
                stored = replace(new, generation=outcome.generation)
                await self._derivatives.confirm(born.store, stored, sources)
                stored = replace(stored, owed=stored.owed[len(CONFIRMS) :])
                await self._deliveries.deliver([OutboxRecord(ENTRIES, born.store, stored)], consistency)
                return entry_of(stored)
            await patience.wait()

    async def _is_undone(self, store: Store, made: Record, sources: Sequence[Record] = ()) -> bool:
        """Return whether an unconfirmed earlier result is deleted now.

        It is if one of its sources was deleted or edited since.
        """
        try:
            await self._derivatives.confirm(store, made, sources)
        except NotFound:
            return True
        return False

    async def _made_before(self, made: Record, to_delete: Sequence[Record]) -> Entry:
        now = self._placement.now()
        if to_delete and (is_expired(made, now) or not is_current(made, now)):
            raise Conflict(
                "the earlier result of this call is expired or retired, so nothing was deleted",
                made.key.id,
            )
        if not to_delete:
            return entry_of(made)
        originals = {source.key.id for source in to_delete}
        was_moved = as_moved(made, originals, True) is None
        await self._entries.rewrite_at_once(made.key, partial(self._mark_moved, originals, True))
        stay = {
            s.key.id
            for s in to_delete
            if not await self._erasure.delete(ENTRIES, s.key, at=s.version, held="left")
            and not (was_moved and await self._is_deleted(s.key))  # by the call that moved it
        }
        if stay:  # edited meanwhile, or under legal hold
            await self._entries.rewrite_at_once(made.key, partial(self._mark_moved, stay, False))
        return entry_of((await self._placement.locate(ENTRIES, made.key)).record or made)

    async def _is_deleted(self, key: Key) -> bool:
        there = await self._placement.locate(ENTRIES, key)
        return there.record is None and there.tombstone is not None

    async def _keep_sources(self, made: Key, left: Mapping[str, int]) -> None:
        """Mark sources that stay as not moved: they were edited, or are held."""
        located = await self._placement.locate_many(ENTRIES, [Key(made.tenant, one) for one in left])
        stay = {
            there.record.key.id
            for there in located
            if there.record is not None and life_of(there.record) <= left[there.record.key.id]
        }
        if stay:
            mark = partial(self._mark_moved, stay, False)
            await self._entries.rewrite_at_once(made, mark, settles=frozenset({DELETE}))

    async def _mark_moved(self, originals: Collection[str], is_moved: bool, made: Record) -> Record | None:
        """Return a copy that is marked as moved or not; None if it is already.

        The erasure of the original's scope does not affect a moved copy.
        """
        moved = as_moved(made, originals, is_moved)
        return (
            None
            if moved is None
            else apply_changes(moved, {}, version=version_at(self._placement.now(), made.version))
        )


def origin_fields(origin: Entry, more: Sequence[str] = ()) -> dict[str, Any]:
    """Return the origins of an entry as arguments of a draft."""
    return {
        "source": origin.source,
        "agent": origin.agent,
        "run": origin.run,
        "origins": tuple(dict.fromkeys([*(origin.origins or ()), *more])),
    }


def _promoted_key(tenant: str, entry_id: str, target: Scope) -> Key:
    return Key(tenant, ids.derived_id(tenant, target.text, "promote", entry_id))


def _digest(overrides: dict[str, Any]) -> str:
    return blake2b(
        json.dumps(overrides, sort_keys=True, ensure_ascii=False).encode(), digest_size=16
    ).hexdigest()


def _check_overrides(made: Record, asked: str) -> None:
    if made.body.get(OVERRIDES, asked) != asked:
        raise Conflict(
            "it was already promoted to this scope with other overrides. Update that copy",
            made.key.id,
        )


def _united_tags(origins: Sequence[Entry], source_ids: Sequence[str]) -> list[str]:
    """Return the tags of all sources in order, within the limits of an entry.

    Raises:
        CompactionError: There are too many tags.
    """
    union = list(dict.fromkeys(tag for origin in origins for tag in origin.tags))
    if len(union) > validation.MAX_TAGS:
        raise CompactionError(
            source_ids,
            f"the sources have {len(union)} different tags, and an entry takes at most {validation.MAX_TAGS}:"
            " give tags=[…] for the result. The callback was not called",
        )
    return union


def _merged_metadata(
    origins: Sequence[Entry], given: Mapping[str, Any] | None, source_ids: Sequence[str]
) -> dict[str, Any]:
    """Return the metadata of all sources, with the given metadata on top.

    The first source that has a key wins. If the result exceeds the limits of an entry,
    the given metadata alone is used.

    Raises:
        CompactionError: The result exceeds the limits, and no metadata was given.
    """
    merged = {name: value for origin in reversed(origins) for name, value in origin.metadata.items()} | dict(
        given or {}
    )
    try:
        return validation.json_object("metadata", merged)
    except InvalidInput as error:
        if given is not None:
            return dict(given)
        raise CompactionError(
            source_ids,
            f"the merged metadata of the sources is beyond the limits of an entry ({error.problem}): give"
            " metadata={…} for the result. The callback was not called",
        ) from error


def _shared_data(origins: Sequence[Entry], source_ids: Sequence[str]) -> Any:
    """Return the data of the sources, of which those that have data have the same.

    Raises:
        CompactionError: Two sources have different data.
    """
    given = [origin.data for origin in origins if origin.data is not None]
    if any(not equal(one, given[0]) for one in given[1:]):
        raise CompactionError(
            source_ids,
            "the sources have different data: give data={…} for the result, or data=None for none."
            " The callback was not called",
        )
    return given[0] if given else None


def _latest(moments: Sequence[Ends | None]) -> Ends | None:
    """Return the latest expiry, or the longest lifetime; None if one entry has none."""
    known = [m for m in moments if m is not None]
    return max(known) if known and len(known) == len(moments) else None


def _contributors(origin: Entry) -> list[dict[str, Any]]:
    """Return the contributors of a source: itself, or those of a compacted source."""
    if origin.contributors:
        return [c.model_dump() for c in origin.contributors]
    given = origin.metadata
    agent = origin.agent or given.get("agent_id", given.get("agentId"))
    source = origin.source or given.get("source")
    return [
        {"entry_id": origin.id, "agent_id": agent, "source": source, "confidence": given.get("confidence")}
    ]
