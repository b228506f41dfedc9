"""One tenant's access to the open engine, shared by a memory and its views."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, cast, get_args

from memory.domain import validation
from memory.domain.conflicts import ConflictReport
from memory.domain.enrichment import PASSES, Enrichment, ManuallySuperseded, Pass, WriteReport
from memory.domain.entry import (
    Draft,
    Entry,
    EntryDraft,
    EntryType,
    check_key,
    check_patch,
    check_vector,
    leave_out,
)
from memory.domain.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    NotOpen,
    PartialWrite,
    QuotaExceeded,
    StoreError,
)
from memory.domain.filters import Filter
from memory.domain.ids import digest_of, is_id, keyed_id, partition_digest
from memory.domain.message import Message, signed_message
from memory.domain.provenance import (
    WRITTEN_BY,
    check_name,
    parts_of,
    refuse_server_sources,
    signed_metadata,
    writers_in,
)
from memory.domain.provenance import origin as origin_text
from memory.domain.scope import Scope, ScopeKind, Subtree
from memory.domain.search_results import EntryPage, FoundEntry, SearchResult
from memory.domain.session import DeletedEntry, FoundMessages
from memory.domain.versions import stored_version, version_conflict, version_text
from memory.domain.view import View, ViewRole
from memory.facade.arguments import (
    UNSET,
    Moment,
    Vector,
    consistency_of,
    expected_version_of,
    flag,
    id_of,
    ids_of,
    length,
    moment,
    scope_of,
    scope_or_subtree,
    stages_of,
)
from memory.facade.config.settings import MemoryConfig
from memory.facade.config.values import tenant_name
from memory.facade.runtime.lifecycle import EngineLifecycle
from memory.facade.runtime.request_ids import (
    check_request_id,
    noted_flag,
    read_flag,
    request_about,
    request_of_writes,
)
from memory.facade.search_options import (
    FilterInput,
    Include,
    Scalar,
    and_all,
    comparisons_in,
    filter_of,
    least_relevance,
    metadata_of,
    parts_left_out,
    search_mode,
    split_filter,
    tags_of,
    types_of,
)
from memory.facade.write_options import (
    EntryPatch,
    IfExists,
    WriteMode,
    WriteOptions,
    check_resolver,
    split_draft,
    split_options,
)
from memory.orchestrator.conversations.blobs.manifests import artifact_of
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.entries.upserts import UpsertCall, UpsertMode
from memory.orchestrator.entries.writing import gone_error
from memory.orchestrator.storage.callbacks import invoke
from memory.orchestrator.storage.entry_records import entry_of
from memory.orchestrator.storage.requests import Request, RequestMark
from memory.orchestrator.storage.session_keys import scope_of as conversation_scope
from memory.orchestrator.storage.session_keys import sessions_of
from memory.policies.browse_cursor import cursor_behind, place_of
from memory.policies.entry_query import EntryQuery, SearchMode, where_of
from memory.policies.ranking.preferences import Preferences
from memory.ports.advisor import Advisor
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Condition, Tenant, Where, within
from memory.ports.record import JsonValue, Key, Partition

log = logging.getLogger(__name__)

_NAMES_ENTRY = "Pass the id of an entry, or its scope= and key="
_NAMES_ENTRIES = "Pass the ids of entries, or their scope= and keys="
RETRIEVE_LIMIT = 20
BROWSE_LIMIT = 50
SEARCH_LIMIT = 10
MAX_QUERY_BYTES = 64 * 1024
MAX_CURSOR_BYTES = 512
T = TypeVar("T")
_HIDDEN_FIELDS = ("conversation_id", "number_in_conversation", "artifact_id", "promoted_from_id")
"""Fields of entries that a restricted view hides if they name an outside record."""
_NO_CONVERSATION = "no conversation of this view 0196f9d2-7e5c-8a41-9c1e-5b7d3f20a6e8"
"""The id of no conversation."""

Scopes = Scope | Subtree | str | Sequence[Scope | Subtree | str]
INDIFFERENT = Preferences()


@dataclass(frozen=True, slots=True)
class _Written:
    """A written entry, and what else its write did."""

    entry: Entry
    replayed: bool = False
    """Whether the call found the entry as it is, and stored nothing."""
    requested: tuple[str, ...] = ()
    """The ids of the entries to supersede."""
    superseded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _WritePlan:
    """A checked write."""

    write: Callable[[RequestMark | None], Awaitable[_Written]]
    """Makes the write, alone."""
    upsert: UpsertCall | None
    """The same write, if it may be made together with others."""

    def upsert_for(self, mark: RequestMark | None) -> UpsertCall:
        """Return the write for a batch, with the mark of its request."""
        assert self.upsert is not None  # noqa: S101 - `_kind_of_write` says so
        return replace(self.upsert, request=mark)


class HasAccess(Protocol):
    """A memory, a view of it, a session or a resource."""

    _access: Access


def access_of(owner: HasAccess) -> Access:
    """Return the access behind a memory, a view of it, a session or a resource."""
    return owner._access


def engine_of(owner: HasAccess) -> Engine:
    """Return the open engine behind a memory, a view of it, a session or a resource.

    Only on the event loop that opened it.
    """
    return owner._access.engine


def _kind_of_write(plan: _WritePlan | None, own: WriteMode) -> Literal["plain", "upserts", "alone"]:
    """Return the kind of a draft. Neighbours of one kind are written together."""
    if plan is None:
        return "plain"
    return "alone" if plan.upsert is None or own.get("request_id") is not None else "upserts"


def _as_conflict(refused: Exception) -> Conflict:
    return refused if isinstance(refused, Conflict) else Conflict(str(refused))


def scopes_of(scope: Scopes | None) -> list[Scope | Subtree]:
    """Validate the scopes and subtrees; there must be at least one."""
    if isinstance(scope, Scope | Subtree | str):
        return [scope_or_subtree(scope)]
    if not isinstance(scope, Iterable) or isinstance(scope, Mapping | bytes):
        raise InvalidInput(
            "scope",
            f"must be a Scope, its text, such as 'user:ada', or a list of these, not {type(scope).__name__}",
        )
    given = validation.sequence("scope", scope, at_most=validation.MAX_SCOPES)
    if not given:
        raise InvalidInput("scope", "needs at least one scope, such as Scope.user('ada')")
    return [scope_or_subtree(one) for one in given]


class Access:
    """One tenant's access to the engine.

    The first one owns the engine's life. Those that it makes for other tenants and for
    restricted views only open and close themselves.
    """

    def __init__(
        self,
        config: MemoryConfig,
        life: EngineLifecycle,
        tenant: str,
        *,
        owns_life: bool = True,
        view: View | None = None,
    ) -> None:
        self.config = config
        self.tenant = tenant
        self.view = view
        """The restrictions of a view; None for a memory without any."""
        self._life = life
        self._owns_life = owns_life
        self._let_go = False

    def for_tenant(self, tenant: str) -> Access:
        """Return the access of another tenant to the same engine."""
        self._check_open()
        named = tenant_name(tenant)
        return Access(self.config, self._life, named, owns_life=False, view=self.view)

    def restrict(self, scopes: Scopes | None, role: ViewRole | None, origin: str | None = None) -> Access:
        """Return the access of a view, restricted further than this one."""
        named = None if scopes is None else scopes_of(scopes)
        acts = None if role is None else validation.one_of("role", role, get_args(ViewRole))
        signed = None if origin is None else check_name("source", origin)
        if signed is not None and not signed.strip():
            raise InvalidInput("origin", "is blank. Pass a source such as 'key:3kTMd9Xq', or leave it out")
        if named is None and acts is None and signed is None:
            raise InvalidInput("scopes", "is missing. Pass the scopes of the view, role='reader', or both")
        self._check_open()
        narrowed = (self.view or View(is_restricted=False)).narrow(named, acts, signed)
        return Access(self.config, self._life, self.tenant, owns_life=False, view=narrowed)

    def _check_open(self) -> None:
        self.check_process()
        if not self.is_open:
            raise NotOpen("this memory")

    @property
    def is_open(self) -> bool:
        """Whether the engine is open and this access is not closed."""
        return self._life.is_open and not self._let_go

    @property
    def is_opening(self) -> bool:
        """Whether the engine is being opened."""
        return self._life.is_opening

    def open_on_use(self, opening: Callable[[], Awaitable[object]]) -> None:
        """Open the memory for the first call that needs a store, by this function.

        Calls with wrong arguments are refused without it.
        """
        self._life.open_on_use = opening

    @property
    def opening(self) -> Callable[[], Awaitable[object]] | None:
        """The function that opens the memory for a call; None if none is needed."""
        return None if self._life.is_open else self._life.open_on_use

    async def wait_for_opening(self) -> None:
        """Return once the opening of the engine that is under way has ended."""
        await self._life.wait_for_opening()

    @property
    def engine(self) -> Engine:
        """The open engine; only on the event loop that opened it."""
        return self._open_life.working_engine

    @property
    def engine_anywhere(self) -> Engine:
        """The open engine on any event loop, for questions that need no store."""
        return self._open_life.engine

    @property
    def _open_life(self) -> EngineLifecycle:
        if self._let_go:
            raise NotOpen("this memory")
        return self._life

    async def open(self, *, reindex: bool = False) -> None:
        """Open the engine, or only this access if another owns the engine."""
        self.check_process()
        if self._owns_life:
            await self._life.open(reindex=reindex)
        elif not self._life.is_open:
            raise NotOpen("the memory that this tenant's was made from")
        self._let_go = False

    def check_process(self) -> None:
        """Raise `ForkedProcess` in a forked child of the process that opened it."""
        self._life.check_process()

    async def close(self) -> None:
        """Close this access, and the engine if it owns it."""
        self.check_process()
        self._let_go = True
        if self._owns_life:
            await self._life.close()

    # -- shared by memories and views --------------------------------------------------

    def entry_id(self, entry_id: object, scope: object, key: object) -> str:
        """Return the id of the entry that a call names, by id or by scope and key.

        Raises:
            InvalidInput: The call names none, or names it in both ways.
        """
        if key is None and scope is None:
            if entry_id is None:
                raise InvalidInput("entry_id", f"is missing. {_NAMES_ENTRY}")
            return id_of(entry_id)
        if entry_id is not None:
            named = "key" if key is not None else "scope"
            raise InvalidInput(
                named, f"cannot be combined with an id, which names the entry alone. {_NAMES_ENTRY}"
            )
        if scope is None:
            raise InvalidInput("scope", f"is missing. {_NAMES_ENTRY}")
        if key is None:
            raise InvalidInput(
                "key",
                f"is missing. {_NAMES_ENTRY}. Read all entries of a scope with `retrieve`, and erase them"
                " with `admin.erase`",
            )
        return keyed_id(self.tenant, self.scope_in_view(scope).text, check_key(key))

    def entry_ids(self, entry_ids: object, scope: object, keys: object) -> list[str]:
        """Return the ids of the entries that a call names; see `entry_id`."""
        if keys is None:
            if scope is not None:
                raise InvalidInput("keys", f"is missing. {_NAMES_ENTRIES}")
            if entry_ids is None:
                raise InvalidInput("entry_ids", f"is missing. {_NAMES_ENTRIES}")
            return ids_of(entry_ids, at_most=validation.MAX_LIMIT)
        if entry_ids is not None:
            raise InvalidInput("keys", f"cannot be combined with ids. An id needs no key. {_NAMES_ENTRIES}")
        return [
            self.entry_id(None, scope, key)
            for key in validation.sequence("keys", keys, at_most=validation.MAX_LIMIT)
        ]

    async def note_reads(self, entries: Collection[Entry]) -> None:
        """Count a read of each entry, and restart the expiry that reads refresh."""
        self.engine.accesses.note(self.tenant, [entry.id for entry in entries])
        await self.engine.expiry_refresher.refresh(self.tenant, entries)

    async def get_many(
        self,
        entry_ids: Sequence[str],
        scope: Scope | str | None = None,
        *,
        include: Include | None = None,
        within: Scope | None = None,
    ) -> list[Entry | None]:
        """Return the visible entries with these ids, in order; None for the others.

        `scope` is their scope, if the caller named it. Those of another scope than
        `within` are left out.
        """
        left_out = parts_left_out(include)
        hidden = await self.outside(entry_ids)
        asked = [one for one in entry_ids if one not in hidden]
        found = await self.engine.entries.get_many(self.tenant, asked, kind=_kind_of(scope))
        if within is not None:
            found = {name: entry for name, entry in found.items() if entry.scope == within}
        await self.note_reads(found.values())
        for entry in found.values():
            leave_out(entry, left_out)
        return [found.get(one) for one in entry_ids]

    async def get(
        self,
        entry_id: str,
        scope: Scope | str | None = None,
        *,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        include: Include | None = None,
        within: Scope | None = None,
    ) -> Entry | None:
        """Return the entry with its artifact's description, or None.

        `scope` and `within` are those of `get_many`.
        """
        valid_at, stored_at = moment("as_of", as_of), moment("known_at", known_at)
        left_out = parts_left_out(include)
        if await self.outside([entry_id]):
            return None
        entry = await self.engine.entries.get(
            self.tenant, entry_id, as_of=valid_at, known_at=stored_at, kind=_kind_of(scope)
        )
        if entry is None or (within is not None and entry.scope != within):
            return None
        if as_of is None and known_at is None:
            await self.note_reads([entry])
        return leave_out(await self.with_artifact(entry), left_out)

    async def update(self, entry_id: str, patch: EntryPatch) -> Entry:
        """Change the given fields of an active entry."""
        given: dict[str, Any] = dict(patch)
        expected = expected_version_of(given.pop("expected_version", None))
        waits = consistency_of(given.pop("consistency", None))
        request_id = given.pop("request_id", None)
        changes = self.sign_changes(check_patch(given))
        await self.engine.embeddings.check_vector(changes.get("vector"))
        asked = {"changes": changes, "expected": expected}
        request = request_about("update", request_id, asked, entry_id)

        async def change(mark: RequestMark | None) -> Entry:
            await self.refuse_unknown_artifacts([changes.get("artifact_id")])
            await self.require_entries([entry_id])
            return await self.engine.entries.update(
                self.tenant, entry_id, changes, waits, expected=expected, request=mark
            )

        return await self.once_for_entry(request, change)

    async def once_for_entry(
        self, request: Request | None, work: Callable[[RequestMark | None], Awaitable[Entry]]
    ) -> Entry:
        """Do a call that returns an entry; a repeat returns the version it made."""

        async def read(noted: Any) -> Entry:
            [entry] = await self._entries_of(noted)
            if entry is None:
                raise NotFound(noted["entries"][0][0])
            return entry

        return await self.once(request, work, lambda entry: _entry_notes([entry]), read)

    async def once(
        self,
        request: Request | None,
        work: Callable[[RequestMark | None], Awaitable[T]],
        note: Callable[[T], Mapping[str, Any]],
        read: Callable[[Any], Awaitable[T]],
        check: Callable[[RequestMark], Awaitable[object]] | None = None,
    ) -> T:
        """Do a call that changes something; see `Requests.once`.

        Raises:
            Forbidden: This is a view of a reader.
        """
        self.require_writer()
        await self.wait_for_opening()
        asked = self.own_request(request)
        return await self.engine.requests.once(self.tenant, asked, work, note, read, check)

    async def once_marked(
        self, request: Request | None, work: Callable[[RequestMark | None], Awaitable[T]], unchanged: T
    ) -> T:
        """Do a call that leaves its mark; see `Requests.once_marked`.

        Raises:
            Forbidden: This is a view of a reader.
        """
        self.require_writer()
        return await self.engine.requests.once_marked(self.tenant, self.own_request(request), work, unchanged)

    def own_request(self, request: Request | None) -> Request | None:
        """Return the request of this caller: a view has request ids of its own."""
        return request if request is None or self.view is None else replace(request, caller=self.view.caller)

    async def delete(
        self,
        entry_id: str,
        expected_version: object,
        request_id: object,
        is_within: Callable[[str], Awaitable[bool]] | None = None,
    ) -> DeletedEntry:
        """Delete an entry, if it has the expected version.

        `is_within` returns whether the call may delete the entry.
        """
        expected = expected_version_of(expected_version)
        request = request_about("delete", request_id, {"expected": expected}, entry_id)

        async def delete(mark: RequestMark | None) -> DeletedEntry:
            if (is_within is not None and not await is_within(entry_id)) or await self.outside([entry_id]):
                if mark is not None and await self.engine.deletion.was_deleted_by(
                    self.tenant, entry_id, mark
                ):
                    return DeletedEntry(1, is_complete=False)
                if expected is not None:
                    raise version_conflict(f"entry {entry_id}", expected, None)
                return DeletedEntry(0)
            return await self.engine.deletion.delete(self.tenant, entry_id, expected=expected, request=mark)

        async def read(noted: Any) -> DeletedEntry:
            return DeletedEntry(noted["deleted"], noted["kept"], noted["is_complete"])

        return await self.once(request, delete, DeletedEntry.to_dict, read)

    async def invalidate(
        self,
        entry_id: str,
        when: Moment | None,
        consistency: object,
        expected_version: object,
        request_id: object,
    ) -> bool:
        """End the validity of an entry, if it has the expected version."""
        ends, waits = moment("when", when), consistency_of(consistency)
        expected = expected_version_of(expected_version)
        asked = {"when": ends, "expected": expected}
        request = request_about("invalidate", request_id, asked, entry_id)

        async def end(mark: RequestMark | None) -> bool:
            await self.refuse_blocked()  # a command comes here without a guard
            if await self.outside([entry_id]):
                return False
            return await self.engine.entries.invalidate(
                self.tenant,
                entry_id,
                ends,
                waits,
                expected=expected,
                request=mark,
                origins=self.signature,
            )

        return await self.once(request, end, noted_flag, read_flag)

    async def _entries_of(self, noted: Any) -> list[Entry | None]:
        """Return the entries of a request's noted result, as the request left them."""
        wanted = [(entry_id, stored_version(version)) for entry_id, version in noted["entries"]]
        return await self.engine.entries.versions_of(self.tenant, wanted)

    async def write(self, draft: EntryDraft, mode: WriteMode, within: Scope | None = None) -> Entry:
        """Write one entry. `within` is the scope of the entries that it supersedes."""
        return (await self._write(draft, mode, within)).entry

    async def write_with_report(
        self,
        content: str,
        scope: Scope,
        options: WriteOptions,
        wait: timedelta | float | str | None,
        within: Scope | None = None,
    ) -> WriteReport:
        """Write one entry, and report on its enrichment within `wait`."""
        patience = self.config.durations.deadline if wait is None else length("wait", wait)
        written = await self._write(*split_options(scope, content, options), within)
        entry, superseded = written.entry, written.requested
        enriching, key = self.engine.enricher, Key(self.tenant, entry.id)
        await enriching.wait_until_tried(key, patience.total_seconds())
        manual = ManuallySuperseded(superseded, written.superseded or superseded) if superseded else None
        try:
            record, enriched = await enriching.load_enrichment(self.tenant, entry.id)
        except NotFound:  # deleted since
            return WriteReport(entry, manual, replayed=written.replayed)
        except StoreError as error:
            log.warning("entry %s was written, but its enrichment report cannot be read: %s", entry.id, error)
            return WriteReport(entry, manual, replayed=written.replayed)
        before = None if record.previous is None else version_text(record.previous)
        if entry.version == before and enriched != Enrichment():
            entry = entry_of(record)
        return WriteReport(
            entry, manual, enriched.supersede, enriched.auto_tag, enriched.costs, written.replayed
        )

    async def write_many(
        self, given: Iterable[EntryDraft | Mapping[str, Any]], mode: WriteMode
    ) -> list[Entry]:
        """Write many entries, in order.

        Neighbours that can be written together are; see `_kind_of_write`.
        """
        drafts = validation.sequence("drafts", given)
        flag("revive", mode.get("revive", False))
        consistency_of(mode.get("consistency"))
        if_exists = validation.one_of("if_exists", mode.get("if_exists", "error"), get_args(IfExists))
        parts: list[tuple[EntryDraft, WriteMode]] = []
        plans: dict[int, _WritePlan] = {}
        async for at, one in iterate_cooperatively(list(enumerate(drafts))):
            with validation.item("drafts", at):
                draft, own = self._split_signed(one, mode)
                self.scope_in_view(draft.scope)
                await self.engine.embeddings.check_vector(draft.vector)
                if own.get("request_id") is not None and mode.get("request_id") is not None:
                    raise InvalidInput(
                        "request_id", "is given for the whole call and for a draft. Leave one of the two out"
                    )
                check_request_id(own.get("request_id"))
                _check_revive(draft, own)
                if own or if_exists != "error":
                    plans[at] = self._plan_write(draft, {**mode, **own}, None)
                parts.append((draft, own))
        asked = [(draft, cast("WriteMode", {**mode, **own})) for draft, own in parts]
        request = request_of_writes("write_many", self.tenant, mode.get("request_id"), asked)

        async def write(mark: RequestMark | None) -> list[Entry]:
            return await self._write_parts(parts, plans, mode, mark)

        async def read(noted: Any) -> list[Entry]:
            found = await self._entries_of(noted)
            written = {at: entry for at, entry in enumerate(found) if entry is not None}
            if len(written) < len(found):
                gone = {
                    at: gone_error(noted["entries"][at][0]) for at in range(len(found)) if at not in written
                }
                raise PartialWrite(written, gone)
            return list(written.values())

        return await self.once(request, write, _entry_notes, read)

    def _split_signed(
        self, given: EntryDraft | Mapping[str, Any], mode: WriteMode
    ) -> tuple[EntryDraft, WriteMode]:
        draft, own = split_draft(given, mode)
        return self.sign_draft(draft), own

    async def _write_parts(
        self,
        parts: Sequence[tuple[EntryDraft, WriteMode]],
        plans: Mapping[int, _WritePlan],
        mode: WriteMode,
        mark: RequestMark | None,
    ) -> list[Entry]:
        """Write checked drafts in order, as many together as can be.

        `plans` has the writes of those with a mode of their own.
        """
        drafts = [draft for draft, _ in parts]
        revived, waits = mode.get("revive", False), consistency_of(mode.get("consistency"))
        marks = [None if mark is None else mark.part(at) for at in range(len(drafts))]
        await self.refuse_unknown(drafts)
        kinds = [_kind_of_write(plans.get(at), own) for at, (_, own) in enumerate(parts)]
        written, conflicts = dict[int, Entry](), dict[int, Conflict]()
        at = 0
        while at < len(drafts):
            kind = kinds[at]
            others = (n for n in range(at + 1, len(drafts)) if kind == "alone" or kinds[n] != kind)
            end = next(others, len(drafts))
            try:
                if kind == "alone":
                    draft, own = parts[at]
                    one = self._write_once(draft, {**mode, **own}, plans[at].write, marks[at])
                    written[at] = (await one).entry
                elif kind == "upserts":
                    calls = [plans[n].upsert_for(marks[n]) for n in range(at, end)]
                    for n, outcome in enumerate(
                        await self.engine.upserts.upsert_many(self.tenant, calls), start=at
                    ):
                        if isinstance(outcome, Exception):
                            conflicts[n] = _as_conflict(outcome)
                        else:
                            written[n] = outcome[0]
                else:
                    done = await self.engine.entries.write_many(
                        self.tenant,
                        drafts[at:end],
                        revive=revived,
                        consistency=waits,
                        requests=marks[at:end],
                    )
                    written |= dict(enumerate(done, start=at))
            except PartialWrite as partial_write:
                written |= {at + n: entry for n, entry in partial_write.written.items()}
                conflicts |= {at + n: conflict for n, conflict in partial_write.conflicts.items()}
            except QuotaExceeded as full:
                stored = written | {at + n: entry for n, entry in full.written.items()}
                raise full.with_written(stored) from None
            except (Conflict, InvalidInput) as refused:  # an entry to supersede is missing or already retired
                if kind != "alone":
                    raise
                conflicts[at] = _as_conflict(refused)
            at = end
        if conflicts:
            raise PartialWrite(written, conflicts)
        return [written[at] for at in range(len(drafts))]

    async def _write(self, draft: EntryDraft, mode: WriteMode, within: Scope | None) -> _Written:
        draft = self.sign_draft(draft)
        planned = self._plan_write(draft, mode, within)
        _check_revive(draft, mode)
        check_request_id(mode.get("request_id"))
        await self.engine.embeddings.check_vector(draft.vector)

        async def write(mark: RequestMark | None) -> _Written:
            await self.refuse_unknown([draft])
            return await planned.write(mark)

        return await self._write_once(draft, mode, write)

    async def _write_once(
        self,
        draft: EntryDraft,
        mode: WriteMode,
        write: Callable[[RequestMark | None], Awaitable[_Written]],
        mark: RequestMark | None = None,
    ) -> _Written:
        """Make a planned write, once for its own request id.

        `mark` is that of the request of which this write is a part.
        """
        if mark is not None:
            return await write(mark)
        request = request_of_writes("write", self.tenant, mode.get("request_id"), [(draft, mode)])

        async def read(noted: Any) -> _Written:
            [entry] = await self._entries_of(noted)
            if entry is None:
                raise gone_error(noted["entries"][0][0])
            if mode.get("detect_conflicts"):
                entry = entry.with_conflict_report(ConflictReport())
            return _Written(entry, True, tuple(noted["requested"]), tuple(noted["superseded"]))

        def note(written: _Written) -> dict[str, Any]:
            others = {"requested": written.requested, "superseded": written.superseded}
            return {**_entry_notes([written.entry]), **others}

        return await self.once(request, write, note, read)

    def _plan_write(self, draft: EntryDraft, mode: WriteMode, within: Scope | None) -> _WritePlan:
        """Check a write, and return how to make it; see `_write`."""
        self.scope_in_view(draft.scope)
        superseded = SupersedeRequest.parse(mode.get("supersedes", ()), self._place_of(within))
        detects = flag("detect_conflicts", mode.get("detect_conflicts", False))
        resolve = mode.get("resolve")
        check_resolver(resolve, detects=detects)
        revived, waits = flag("revive", mode.get("revive", False)), consistency_of(mode.get("consistency"))
        if_exists = validation.one_of("if_exists", mode.get("if_exists", "error"), get_args(IfExists))
        expected = expected_version_of(mode.get("expected_version"), absent=True)
        upserts = if_exists != "error" or expected is not None
        wanted = self._enrichment(mode, if_exists=if_exists, superseding=bool(superseded.ids) or detects)
        if upserts:
            _check_upsert(draft, if_exists, expected, superseded, detects)
        upsert_mode: UpsertMode = "create" if if_exists == "error" else if_exists
        upsert = UpsertCall(
            draft, upsert_mode, expected, revive=revived or if_exists != "error", consistency=waits
        )

        async def write(mark: RequestMark | None) -> _Written:
            steps = self.engine.enricher.pending_steps(wanted)
            replays: set[str] = set()
            if upserts:
                call = replace(upsert, steps=steps, request=mark)
                return _Written(*await self.engine.upserts.upsert(self.tenant, call))
            if superseded.ids:
                engine = self.engine.supersede_writer
                entry, gave_way = await engine.write(
                    self.tenant,
                    draft,
                    superseded,
                    revive=revived,
                    consistency=waits,
                    steps=steps,
                    replays=replays,
                    request=mark,
                )
                return _Written(entry, bool(replays), tuple(superseded.ids), tuple(gave_way))
            if detects:
                asks = None if resolve is None else partial(invoke, resolve)
                entry, report = await self.engine.conflict_detector.write(
                    self.tenant,
                    draft,
                    asks,
                    revive=revived,
                    consistency=waits,
                    steps=steps,
                    replays=replays,
                    request=mark,
                )
                return _Written(entry.with_conflict_report(report), bool(replays))
            entry = await self.engine.entries.write(
                self.tenant,
                draft,
                revive=revived,
                consistency=waits,
                steps=steps,
                replays=replays,
                request=mark,
            )
            return _Written(entry, bool(replays))

        return _WritePlan(write, upsert if upsert_mode != "create" else None)

    def _enrichment(self, mode: WriteMode, *, if_exists: str, superseding: bool) -> list[Pass]:
        """Return the enrichment passes to run, as the call or the configuration says.

        An entry that already supersedes others is not checked for that again.
        """
        wanted: list[Pass] = []
        replaces = if_exists != "error"
        for of in PASSES:
            asked: object = mode.get(of)
            if asked is not None and flag(of, asked) and replaces:
                raise InvalidInput(
                    of,
                    f"cannot be combined with if_exists={if_exists!r}. Enrichment is for new entries; leave"
                    " one of the two out",
                )
            if (
                (getattr(self.config.enrichment, of) if asked is None else asked)
                and not replaces
                and not (superseding and of == "auto_supersede")
            ):
                wanted.append(of)
        return wanted

    async def refuse_unknown(self, drafts: Sequence[EntryDraft]) -> None:
        """Raise `InvalidInput` if a draft names a session or artifact that is missing.

        A draft with a `conversation_id` is checked against its session.
        """
        pinned = list(
            dict.fromkeys(
                one.conversation_id
                for one in drafts
                if one.conversation_id is not None and one.is_pinned_alone
            )
        )
        there = set[str]()
        if pinned:
            there = set(await self.engine.conversations.sessions.lives(self.tenant, pinned))
            there &= await self.visible_sessions(pinned)
        for session_id in pinned:
            if session_id not in there:
                problem = f"there is no session {session_id[:64]}: nothing was written"
                raise InvalidInput(
                    "conversation_id",
                    f"{problem}. For a message from outside of this memory, pass number_in_conversation= or"
                    " speaker= too",
                )
        await self.refuse_unknown_artifacts([draft.artifact_id for draft in drafts])

    async def refuse_unknown_artifacts(self, artifact_ids: Sequence[str | None]) -> None:
        """Raise `InvalidInput` if one of these is no artifact of the tenant."""
        named = list(dict.fromkeys(one for one in artifact_ids if one is not None))
        known = set[str]()
        if named:
            known = await self.engine.conversations.manifests.existing_ids(self.tenant, named)
            known = await self.visible_artifacts(known)
        for one in named:
            if one not in known:
                raise InvalidInput("artifact_id", f"there is no artifact {one[:64]}: nothing was written")

    async def with_artifact(self, entry: Entry) -> Entry:
        """Return the entry with its artifact's description.

        It stays without if the artifact is gone or cannot be read.
        """
        if entry.artifact_id is None or not await self.visible_artifacts([entry.artifact_id]):
            return entry
        try:
            found = await self.engine.conversations.manifests.get(self.tenant, entry.artifact_id)
        except StoreError as error:
            log.info("entry %s is shown without its artifact: %s", entry.id, error)
            return entry
        return entry if found is None else entry.with_artifact(artifact_of(found))

    # -- restricted views --------------------------------------------------------------

    @property
    def hides(self) -> bool:
        """Whether this is a view of some scopes, which hides all others."""
        return self.view is not None and self.view.scopes is not None

    @property
    def signature(self) -> tuple[str, ...]:
        """The origins that this view adds to its writes: one, or none."""
        if self.view is None or self.view.origin is None:
            return ()
        return (origin_text("source", self.view.origin),)

    async def refuse_blocked(self) -> None:
        """Refuse a call that makes changes, if the origin of this view is blocked.

        Raises:
            RejectedByGate: It is blocked.
        """
        if self.signature:
            await self.wait_for_opening()
            await self.engine.trust.refuse_blocked(self.tenant, self.signature)

    def sign_import(self, draft: Draft) -> Draft:
        """Return an imported draft with the origin of this view.

        The draft's own origins are claims, and stay.
        """
        if not self.signature:
            return draft
        return draft.model_copy(update={"origins": _with(self.signature, draft.origins)})

    def sign_draft(self, draft: EntryDraft) -> EntryDraft:
        """Return a draft with the origin of this view.

        Raises:
            InvalidInput: The draft claims an origin that only a server notes.
        """
        if not self.signature:
            return draft
        refuse_server_sources(draft.source, draft.origins)
        return self.sign_import(draft)

    def sign_changes(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return changes of an entry with the origin of this view; see `sign_draft`."""
        if not self.signature:
            return changes
        refuse_server_sources(changes.get("source"), changes.get("origins") or ())
        return {**changes, "origins": list(_with(self.signature, changes.get("origins")))}

    async def sign_messages(self, conversation: Conversation, messages: Sequence[Message]) -> list[Message]:
        """Return messages with the origin of this view; those stored alike stay.

        A message that replaces another keeps the callers that wrote the other one.
        """
        if self.writer is None:
            return list(messages)
        named = [one.id for one in messages if one.id is not None]
        stored = await conversation.messages_by_id(named) if named else {}
        return [self._sign_message(one, stored.get(one.id or "")) for one in messages]

    def sign_change(self, there: Message, changes: Mapping[str, Any]) -> Message:
        """Return a changed message, with the origin of this view; see `sign_draft`."""
        return self._sign_message(there.model_copy(update=dict(changes)), there)

    def sign_session(self, draft: SessionDraft) -> SessionDraft:
        """Return a new session whose system message has the origin of this view."""
        if draft.system is None or self.writer is None:
            return draft
        return replace(draft, system=self._sign_message(draft.system, None))

    def _sign_message(self, message: Message, there: Message | None) -> Message:
        """Return a message with the origin of this view, in place of a stored one.

        Raises:
            InvalidInput: It has a new source that only a server notes.
        """
        if self.writer is None:
            return message
        if there is None or message.metadata.get("source") != there.metadata.get("source"):
            refuse_server_sources(message.metadata.get("source"), ())
        return signed_message(message, there, self.writer)

    def check_claims(self, changes: Mapping[str, Any]) -> None:
        """Refuse changes of a message that name another caller as its source."""
        if self.signature:
            refuse_server_sources((changes.get("metadata") or {}).get("source"), ())

    @property
    def writer(self) -> str | None:
        """The origin that this view notes on what it writes, besides entries."""
        return None if self.view is None else self.view.origin

    def sign_metadata(self, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the metadata of a new record, with the origin of this view."""
        return dict(metadata or {}) if self.writer is None else signed_metadata(metadata, [self.writer])

    def sign_link(self, said: Mapping[str, JsonValue] | None) -> Mapping[str, JsonValue] | None:
        """Return the body of a relation, with the origin of this view."""
        return said if self.writer is None else {**(said or {}), WRITTEN_BY: self.writer}

    def sign_imported_metadata(self, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the metadata of an imported record, with the origin of this view.

        The writers that the file names are claims, and stay.
        """
        given = dict(metadata or {})
        if self.writer is None:
            return given
        return signed_metadata(given, dict.fromkeys([*writers_in(given), self.writer]))

    def require_writer(self) -> None:
        """Raise `Forbidden` if this is a view of a reader."""
        if self.view is not None and self.view.role == "reader":
            raise Forbidden(
                "role",
                "this view is restricted to role 'reader', and the call makes changes. Use a writer's",
            )

    def scope_in_view(self, scope: object) -> Scope:
        """Validate a scope. Raise `Forbidden` if it is outside of the view."""
        checked = scope_of(scope)
        if self.view is not None:
            self.view.require("scope", [checked])
        return checked

    def readable_scopes(self, scope: Scopes | None) -> list[Scope | Subtree] | None:
        """Validate the scopes that a call reads; without any, those of the view.

        Returns:
            The scopes; None for all of the tenant's.
        """
        if scope is not None:
            return self.named_scopes(scope)
        return None if self.view is None or self.view.scopes is None else list(self.view.scopes)

    def named_scopes(self, scope: Scopes | None) -> list[Scope | Subtree]:
        """Validate the scopes that a call names. At least one is needed."""
        named = scopes_of(scope)
        if self.view is not None:
            self.view.require("scope", named)
        return named

    def place(self, scope: Scopes | None = None) -> Where | None:
        """Return the place of the scopes that a call reads; None for the tenant."""
        named = self.readable_scopes(scope)
        return None if named is None else where_of(self.tenant, named)

    def _place_of(self, within: Scope | None) -> Where | None:
        return self.place() if within is None else where_of(self.tenant, (within,))

    async def outside(self, entry_ids: Collection[str]) -> set[str]:
        """Return the ids of entries outside of the view. Unknown ids are not outside.

        An id contains a digest of its scope, so most need no store.
        """
        if self.view is None or self.view.scopes is None or not entry_ids:
            return set()
        known = [one for one in entry_ids if is_id(one)]
        hidden = set() if self.view.subtrees else {one for one in known if not self._has_digest_of(one)}
        found = await self.engine.entry_scopes.of_entries(self.tenant, [o for o in known if o not in hidden])
        return hidden | {one for one, scope in found.items() if not self.view.contains_text(scope)}

    async def inside(self, entry_ids: Collection[str]) -> set[str]:
        """Return the ids of the entries that are in the view."""
        if self.view is None or self.view.scopes is None:
            return set(entry_ids)
        known = {one for one in entry_ids if is_id(one)}
        if not self.view.subtrees or not known:
            return {one for one in known if self._has_digest_of(one)}
        found = await self.engine.entry_scopes.of_entries(self.tenant, known)
        return {one for one, scope in found.items() if self.view.contains_text(scope)}

    def _has_digest_of(self, entry_id: str) -> bool:
        """Return whether an id has the digest of a scope of the view."""
        digests = {partition_digest(self.tenant, text) for text in (self.view or View()).exact}
        return digest_of(entry_id) in digests

    async def known_ids(self, entry_ids: Sequence[str]) -> list[str]:
        """Return the ids, with new ids of nothing in place of those outside."""
        hidden = await self.outside(entry_ids)
        return [
            self.engine.placement.new_id(self.tenant, "nobody") if one in hidden else one for one in entry_ids
        ]

    async def require_entries(self, entry_ids: Sequence[str]) -> None:
        """Raise `NotFound` if an entry is outside of the view.

        The entries before it in the list must exist, as without a view.
        """
        hidden = await self.outside(entry_ids)
        if not hidden:
            return
        for one in entry_ids:
            if one in hidden:
                raise NotFound(one)
            await self.engine.entries.live_record(self.tenant, one)

    async def visible_sessions(self, session_ids: Collection[str]) -> set[str]:
        """Return those of the session ids that the view may use.

        These are sessions of its users, and sessions whose scope is in the view,
        whether they exist or not.
        """
        if self.view is None or self.view.scopes is None:
            return set(session_ids)
        visible = {one for one in session_ids if one in self.view.sessions}
        others = set(session_ids) - visible
        if others and self.view.users:
            owners = await self.engine.conversations.sessions.owners(self.tenant, others)
            visible |= {one for one, user in owners.items() if user in self.view.users}
        return visible

    @property
    def of_visible_sessions(self) -> Condition | None:
        """The condition of sessions that the view may use; None for all."""
        return None if self.view is None or self.view.scopes is None else sessions_of(self.view.scopes)

    async def _list_sessions(self, scopes: Sequence[Scope | Subtree]) -> tuple[tuple[str, ...], list[str]]:
        """Return the sessions of scopes, those last used first, and notes about others.

        A view searches the messages of these alone. So words of other messages change
        neither what is found nor the scores.
        """
        found = await self.engine.conversations.sessions.list(
            self.tenant, asked={}, limit=validation.MAX_SCOPES, within=sessions_of(scopes)
        )
        notes = [
            f"only the messages of the {validation.MAX_SCOPES:,} sessions last used were searched, and the"
            " view has more"
        ] * (found.cursor is not None)
        return tuple(one.id for one in found.sessions), notes

    async def search_messages(
        self, asked: Condition | None, text: str, limit: int, mode: SearchMode, least: float | None
    ) -> FoundMessages:
        """Search the messages of all sessions."""
        search = self.engine.message_search
        if self.view is None or self.view.scopes is None:
            return await search.find(Tenant(self.tenant), asked, text, limit, mode, least)
        sessions, notes = await self._list_sessions(self.view.scopes)
        where = within(*(Partition(self.tenant, conversation_scope(one)) for one in sessions or ("",)))
        found = await search.find(where, asked, text, limit, mode, least)
        found.degraded = (*found.degraded, *notes)
        return found

    async def sees_session(self, session_id: str) -> bool:
        """Return whether the view may use a session; see `visible_sessions`."""
        return bool(await self.visible_sessions([session_id]))

    async def require_session(self, session_id: str) -> None:
        """Raise `NotFound` if a session is outside of the view."""
        if not await self.sees_session(session_id):
            raise NotFound(session_id, "session")

    def check_new_session(self, draft: SessionDraft) -> None:
        """Raise `Forbidden` if the view may not create a session like this.

        The new session must be visible in the view. Its id must be new, or named by the
        view's scopes: otherwise the call would tell whether others use the id.
        """
        self.require_writer()
        if not self.hides or self.view is None:
            return
        if draft.user is not None:
            self.view.require("user", [Scope.user(draft.user)])
        elif draft.id not in self.view.sessions:
            raise Forbidden(
                "user", f"is missing. Pass a user of this view, which has {self.view.description}"
            )
        if draft.id is not None and draft.id not in self.view.sessions:
            raise Forbidden(
                "session_id",
                "cannot be chosen for a new session of this view, because others may use it. Call"
                " sessions.create without session_id=, or restrict the view to the session's scope too",
            )

    async def open_session(
        self, draft: SessionDraft, *, create: bool, request: RequestMark | None = None
    ) -> Conversation:
        """Open the session of this id, or create it if `create` is set.

        Raises:
            Forbidden: The view may not create it, or does not have the draft's user.
            NotFound: It does not exist, or is outside of the view.
        """
        if self.view is not None and draft.user is not None:
            self.view.require("user", [Scope.user(draft.user)])  # new messages would be this user's
        creates = create and (self.view is None or self.view.role == "writer")
        if creates and self.signature:  # a read by a blocked caller creates no session
            creates = not await self.engine.trust.is_blocked(self.tenant, self.signature)
        if not await self.sees_session(str(draft.id)):
            if creates:
                self.check_new_session(draft)
            raise NotFound(str(draft.id), "session")
        signed = self.sign_session(draft)
        return await self.engine.conversations.open(self.tenant, signed, create=creates, request=request)

    async def visible_artifacts(self, artifact_ids: Collection[str]) -> set[str]:
        """Return those of the artifact ids whose session the view may use."""
        if not self.hides or not artifact_ids:
            return set(artifact_ids)
        named = [one for one in artifact_ids if is_id(one)]
        rows = await self.engine.conversations.manifests.find_manifests(self.tenant, "artifact_id", named)
        found = [artifact_of(row) for row in rows]
        visible = await self.visible_sessions({one.session_id for one in found})
        return {one.id for one in found if one.session_id in visible}

    async def conversation_in_view(self, conversation: str | None) -> str | None:
        """Return a conversation to filter or to boost by, if the view may use it.

        Otherwise the result names no conversation, as if none had the given id.
        """
        if conversation is None or not self.hides or await self.sees_session(conversation):
            return conversation
        return _NO_CONVERSATION

    def check_filter(self, part: Filter | None) -> Filter | None:
        """Return a filter. Raise `Forbidden` if it uses fields that the view hides."""
        if part is None or not self.hides:
            return part
        for path, value in comparisons_in(part):
            named = parts_of(value)[1] if path[0] == "origins" and isinstance(value, str) else None
            if path[0] in _HIDDEN_FIELDS or (named is not None and is_id(named)):
                raise Forbidden(
                    f"filter.{path[0]}",
                    "may name a record outside of this view, so no filter can use it here",
                )
        return part

    # -- queries -----------------------------------------------------------------------

    async def browse(self, asked: EntryQuery) -> EntryPage:
        """List the entries of a query."""
        conversation = await self.conversation_in_view(asked.conversation)
        within = asked if conversation == asked.conversation else replace(asked, conversation=conversation)
        page = await self.engine.browser.browse(within)
        if page.cursor is not None and within is not asked:  # it must fit the query as the caller knows it
            page.cursor = cursor_behind(asked, *place_of(page.cursor, within))
        for entry in page:
            leave_out(entry, asked.left_out)
        return page

    def entry_query(
        self,
        scope: Scopes | None,
        *,
        unless_told: int,
        limit: int | None = None,
        tags: Sequence[str] | None = None,
        types: Sequence[EntryType | str] | None = None,
        since: Moment | None = None,
        include_narrower: bool = UNSET,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        order: Literal["newest", "oldest"] = "newest",
        within: str = "",
        any_tags: Sequence[str] | None = None,
        metadata: Mapping[str, Scalar] | None = None,
        filter: FilterInput | None = None,  # noqa: A002 - the usual word for it
        before: Moment | None = None,
        cursor: str | None = None,
        anywhere: bool = False,
        along: Literal["created_at", "updated_at"] = "created_at",
        updated_before: Moment | None = None,
        conversation: str | None = None,
        include_retired: bool = False,
        include: Include | None = None,
    ) -> EntryQuery:
        """Validate the arguments of a query for entries.

        `unless_told` is the default limit. Errors name a filter with the prefix
        `within`. With `anywhere` the query has no scope and covers the whole tenant.
        """
        if flag("include_retired", include_retired) and (as_of is not None or known_at is not None):
            raise InvalidInput(
                "include_retired",
                "cannot be combined with as_of or known_at, which select the entries that were valid then;"
                " leave one out",
            )
        scopes = (self.readable_scopes(None) or []) if anywhere else self.named_scopes(scope)
        session = None if session_id is None else Scope.session(session_id)
        if session is not None and include_narrower is UNSET:
            raise InvalidInput(
                "session_id", "needs include_narrower=True. Pass include_narrower= too, or omit session_id="
            )
        if (
            flag("include_narrower", include_narrower is not UNSET and include_narrower)
            and self.config.inclusion_rules
            and session is not None
            and any(s.kind is ScopeKind.USER for s in scopes)
        ):
            if self.view is not None:
                self.view.require("session_id", [session])
            scopes.append(session)
        passing = self.check_filter(and_all((metadata_of("metadata", metadata), filter_of(filter))))
        asked = EntryQuery(
            tenant=self.tenant,
            scopes=tuple(dict.fromkeys(scopes)),
            tags=tags_of(f"{within}tags", tags),
            types=types_of(f"{within}types", types),
            since=moment(f"{within}since", since),
            as_of=moment("as_of", as_of),
            known_at=moment("known_at", known_at),
            order=validation.one_of("order", order, ("newest", "oldest")),
            limit=validation.whole_limit(limit, default=unless_told),
            any_tags=tags_of(f"{within}any_tags", any_tags),
            filter=passing,
            before=moment(f"{within}before", before),
            along=along,
            updated_before=moment("updated_before", updated_before),
            conversation=(
                None if conversation is None else validation.identifier("conversation", conversation)
            ),
            include_retired=include_retired,
            left_out=parts_left_out(include),
        )
        return (
            asked
            if cursor is None
            else replace(
                asked, after=place_of(validation.text("cursor", cursor, max_bytes=MAX_CURSOR_BYTES), asked)
            )
        )

    async def search(
        self,
        query: str,
        scope: Scopes,
        *,
        preferred: Preferences = INDIFFERENT,
        limit: int | None = None,
        mode: SearchMode = "hybrid",
        filter: FilterInput | None = None,  # noqa: A002 - the usual word for it
        min_relevance: float | None = None,
        since: Moment | None = None,
        include_narrower: bool = UNSET,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        explain: bool = False,
        expand: bool = False,
        rerank: bool | Literal["two-stage"] = False,
        messages: bool = False,
        vector: Vector | None = None,
        include: Include | None = None,
        advisor: Advisor | None = None,
    ) -> SearchResult:
        """Search for the best answers.

        A blank query lists entries by time. In such a search, the boosts are filters.
        `advisor` replaces the advisor of the memory.
        """
        text = validation.text("query", query, max_bytes=MAX_QUERY_BYTES)
        short, others = split_filter(filter)
        asked = self.entry_query(
            scope,
            **short,
            filter=others,
            within="filter.",
            limit=limit,
            unless_told=SEARCH_LIMIT,
            include_narrower=include_narrower,
            session_id=session_id,
            as_of=as_of,
            known_at=known_at,
            include=include,
        )
        asked = replace(
            asked,
            since=max((at for at in (asked.since, moment("since", since)) if at is not None), default=None),
            mode=search_mode(mode),
            min_relevance=least_relevance(min_relevance),
            preferred=preferred,
            messages=flag("messages", messages),
            vector=check_vector(vector),
        )
        if asked.mode == "semantic" and not self.engine.embeddings.on:
            raise InvalidInput(
                "mode", "'semantic' needs an embedder, and none is configured. Use 'lexical' or 'hybrid'"
            )
        notes = list[str]()
        expanding, stages = flag("expand", expand), stages_of(rerank)
        if asked.vector is not None:
            _check_vector_search(asked, text, expanding=expanding, stages=stages)
            await self.engine.embeddings.check_vector(asked.vector)
        elif not text.strip():
            if asked.min_relevance is not None:
                raise InvalidInput(
                    "min_relevance",
                    "cannot be combined with a blank query, which lists entries by time. Pass a query, or"
                    " omit min_relevance=",
                )
            tags = tuple(dict.fromkeys(asked.tags + preferred.tags))
            asked = replace(
                asked,
                types=asked.types or preferred.types,
                tags=tags,
                conversation=preferred.conversation_id,
                along="updated_at",
            )
        if self.hides:
            boosted = await self.conversation_in_view(asked.preferred.conversation_id)
            if asked.messages:
                sessions, notes = await self._list_sessions(asked.scopes)
                asked = replace(asked, sessions=sessions)
            asked = replace(
                asked,
                preferred=replace(asked.preferred, conversation_id=boosted),
                conversation=None if asked.conversation is None else boosted,
            )
        advised = self.engine.advised_search if advisor is None else self.engine.advised_search.by(advisor)
        found = await advised.search(
            asked, text, explain=flag("explain", explain), expand=expanding, stages=stages
        )
        found.degraded = (*found.degraded, *notes)
        entries = [hit.entry for hit in found if isinstance(hit, FoundEntry)]
        if asked.as_of is None and asked.known_at is None:
            await self.note_reads(entries)
        for entry in entries:
            leave_out(entry, asked.left_out)
        return found


def _check_vector_search(asked: EntryQuery, text: str, *, expanding: bool, stages: int) -> None:
    """Refuse the options of a search that its vector leaves without an effect."""
    if asked.mode == "lexical":
        raise InvalidInput("vector", "is not used with mode='lexical'. Leave one of the two out")
    if expanding:
        raise InvalidInput(
            "expand", "searches other wordings, and a vector has none. Leave one of the two out"
        )
    if stages and not text.strip():
        raise InvalidInput("rerank", "needs a query to compare with. Pass the text of the question too")


def _with(signature: Sequence[str], origins: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(origins or ()), *signature]))


def _entry_notes(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what is noted about entries that a request has stored."""
    return {"entries": [(entry.id, entry.version) for entry in entries]}


def _kind_of(scope: Scope | str | None) -> ScopeKind | None:
    return None if scope is None else scope_of(scope).kind


def _check_revive(draft: EntryDraft, own: WriteMode) -> None:
    """Raise `InvalidInput` if a write revives, and no key says which entry."""
    if own.get("revive") and draft.key is None:
        raise InvalidInput("revive", "needs a key. Pass the key= of the deleted entry, or omit revive=")


def _check_upsert(
    draft: EntryDraft, if_exists: str, expected: int | None, superseded: SupersedeRequest, detects: bool
) -> None:
    """Raise `InvalidInput` for arguments that a keyed change of an entry ignores."""
    used = f"if_exists={if_exists!r}" if if_exists != "error" else "expected_version"
    if draft.key is None and if_exists != "error":
        raise InvalidInput("if_exists", f"{if_exists!r} needs a key. Pass the key= of the entry")
    if draft.key is None:
        raise InvalidInput("expected_version", "needs a key in a write. Pass the key= of the entry")
    if expected is not None and if_exists == "keep":
        raise InvalidInput(
            "expected_version", "cannot be combined with if_exists='keep', which changes no entry that exists"
        )
    if expected and if_exists == "error":
        raise InvalidInput(
            "expected_version",
            "is a version, and if_exists='error' changes no entry. Pass if_exists='replace' or 'update' too,"
            " or expected_version=ABSENT for a new entry",
        )
    if draft.created_at is not None and if_exists in ("replace", "update"):
        raise InvalidInput(
            "created_at", f"cannot be combined with {used}: an entry that exists keeps its own created_at"
        )
    if detects:
        raise InvalidInput("detect_conflicts", f"cannot be combined with {used}: the key alone is looked at")
    if superseded.ids:
        raise InvalidInput(
            "supersedes", f"cannot be combined with {used}: only a plain new entry supersedes others"
        )
