"""`Memory`: what a user holds. Every argument is checked here, at the door, before any store is touched."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self

from memory.domain import door
from memory.domain.entry import Entry, EntryDraft, EntryType, check_patch
from memory.domain.errors import Conflict, InvalidInput, NotOpen
from memory.domain.scope import Scope, ScopeKind
from memory.facade import reports
from memory.facade.build import as_embedder, build_engine
from memory.facade.config import MemoryConfig
from memory.facade.explain import RouteReport, explain_route
from memory.facade.life import Life
from memory.facade.reports import Copy, Stats, StoreAudit, StoreReport, Vacuumed
from memory.facade.view import ScopedMemory
from memory.orchestrator.browsing import Retrieved
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.derivation import Callback
from memory.orchestrator.engine import Engine
from memory.orchestrator.generations import SYSTEM_TENANT
from memory.orchestrator.kinds import KINDS
from memory.orchestrator.maintenance import SweepReport
from memory.orchestrator.promotion import PromotionReport
from memory.orchestrator.relations import Relation
from memory.orchestrator.searching import SearchResult
from memory.policies.asked import Asked
from memory.policies.routing import TIERS, Route
from memory.ports.clock import Clock, system_clock
from memory.ports.embedder import Embedder
from memory.ports.pace import paced

EmbedFunction = Callable[[Sequence[str]], Any]
"""Texts in, one vector of numbers each out; may be async, and runs in a thread if it is not."""

Moment = datetime | str | int | float
"""An aware datetime, ISO 8601 text with a zone, or a number of seconds since 1970, not below 10^8."""

_UNSET: Any = object()
RETRIEVE_LIMIT = 20  # A30
SEARCH_LIMIT = 10
MAX_QUERY_BYTES = 64 * 1024


class Memory:
    """One tenant's memory over the configured stores; with no configuration, over one SQLite file.

        async with Memory() as memory:
            await memory.write("Ada prefers tea", scope=Scope.user("ada"))
            hits = await memory.search("what does Ada drink?", scope=Scope.user("ada"))

    `config` is a URL, the path of a SQLite file or of a `.toml` file, a mapping, or a `MemoryConfig`; `settings` override single values.
    `embedder` is a configured name ('wordllama', 'none'), an `Embedder`, or any function from texts to vectors.
    A scope may be given as `Scope` or as its text, such as `"user:ada"`. Open it with `async with`, or with `open` and `close`.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | MemoryConfig | None = None,
        *,
        tenant: str | None = None,
        embedder: Embedder | EmbedFunction | str | None = None,
        clock: Clock = system_clock,
        **settings: Any,
    ) -> None:
        if isinstance(embedder, str):
            settings["embedder"] = embedder
        if tenant is not None:
            settings["tenant"] = tenant
        self.config = MemoryConfig.load(config, **settings)
        self.tenant = _checked_tenant(self.config.tenant)
        embeds = None if embedder is None or isinstance(embedder, str) else as_embedder(embedder)
        self._life = Life(lambda: build_engine(self.config, embedder=embeds, clock=clock), self.config.engine.sweep_every)
        self._owns_life = True
        self._let_go = False

    # -- life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect to the stores and make them ready. Opening twice is a no-op; a failed open may be repeated.

        While open, maintenance runs in the background every `durations.sweep_every`, and the memory belongs to the event loop that opened it: on
        another its calls raise `WrongEventLoop`. For another tenant's view of an open memory this undoes its `close`, and nothing else.
        """
        if self._owns_life:
            await self._life.open()
        elif not self._life.is_open:
            raise NotOpen("the memory that this tenant's was made from")
        self._let_go = False
        return self

    async def close(self) -> None:
        """Let go of the stores. Closing twice is a no-op; it may be opened again and finds what it held. From any event loop, it comes back."""
        self._let_go = True
        if self._owns_life:
            await self._life.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Memory tenant={self.tenant!r} {'open' if self._life.is_open and not self._let_go else 'closed'}>"

    def for_tenant(self, tenant: str) -> Memory:
        """The same stores for another tenant. Close the first; this one closes nothing."""
        if self._let_go or not self._life.is_open:
            raise NotOpen("this memory")
        twin = Memory.__new__(Memory)
        twin.__dict__.update(self.__dict__)
        twin.tenant, twin._owns_life = _checked_tenant(door.identifier("tenant", tenant)), False
        return twin

    def scoped(self, scope: Scope | str) -> ScopedMemory:
        """A view of one scope: the same calls without naming it each time."""
        return ScopedMemory(self, _scope(scope))

    # -- writing ------------------------------------------------------------------------------------------------------

    async def write(
        self,
        content: str = "",
        *,
        scope: Scope | str,
        type: EntryType | str = EntryType.CONTEXT,  # noqa: A002 - the field's own name
        title: str | None = None,
        source: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        created_at: Moment | None = None,
        expires_at: Moment | timedelta | None = None,
        key: str | None = None,
        revive: bool = False,
    ) -> Entry:
        """Remember one thing, and return it as stored.

        `key` makes the write repeatable: the same key in the same scope returns the first result, and `Conflict` for another content.
        Where that entry was deleted since it is a `Conflict` too, which says when, unless `revive` lets the key begin a new life.
        `created_at` sets creation, update and the start of validity together (D9). An entry past `expires_at`, a moment or
        a `timedelta` from the write on, is hidden, not deleted (A36).
        """
        draft = EntryDraft(
            scope=_scope(scope),
            content=content,
            type=type,
            title=title,
            source=source,
            tags=tags,
            metadata=metadata,
            created_at=created_at,
            expires_at=expires_at,
            key=key,
        )
        return await self._engine.entries.write(self.tenant, draft, revive=_flag("revive", revive))

    async def write_many(self, drafts: Iterable[EntryDraft | Mapping[str, Any]], *, revive: bool = False) -> list[Entry]:
        """Remember many things, in order; mappings take the arguments of `write`. All are checked before any is stored.

        They are stored 500 at a time: after a store failed the earlier batches are kept. With keys the whole call can be repeated.
        Drafts whose key is in conflict keep no other from being stored: then `PartialWrite`, a `Conflict`, says which they are, and has the rest.
        `revive` is that of `write`, for all of them.
        """
        checked = [_draft(d) async for d in paced(door.sequence("drafts", drafts))]
        return await self._engine.entries.write_many(self.tenant, checked, revive=_flag("revive", revive))

    async def update(
        self,
        entry_id: str,
        *,
        content: str = _UNSET,
        title: str | None = _UNSET,
        type: EntryType | str = _UNSET,  # noqa: A002 - the field's own name
        source: str | None = _UNSET,
        tags: Sequence[str] = _UNSET,
        metadata: Mapping[str, Any] = _UNSET,
        expires_at: Moment | timedelta | None = _UNSET,
    ) -> Entry:
        """Change an active entry: tags are replaced, metadata merged, `expires_at=None` clears the expiry; what is not given stays.

        The version before it is kept (see `history`). Raises `NotFound` for what is unknown, expired or retired, and `Contended` where others were
        changing it for all of `durations.deadline`.
        """
        given = {
            "content": content,
            "title": title,
            "type": type,
            "source": source,
            "tags": tags,
            "metadata": metadata,
            "expires_at": expires_at,
        }
        changes = check_patch({name: value for name, value in given.items() if value is not _UNSET})
        return await self._engine.entries.update(self.tenant, _id(entry_id), changes)

    async def invalidate(self, entry_id: str, when: Moment | None = None) -> bool:
        """End an entry's validity now, or at `when`; it stays readable with `as_of`. False where nothing active was found."""
        moment = None if when is None else door.time("when", when)
        return await self._engine.entries.invalidate(self.tenant, _id(entry_id), moment)

    async def delete(self, entry_id: str) -> bool:
        """Erase an entry with its kept versions and relations. True when there was one; again is no error (A55)."""
        return await self._engine.delete(self.tenant, _id(entry_id))

    async def delete_scope(self, scope: Scope | str) -> int:
        """Erase every entry of exactly this scope, expired ones too; how many there were. Other scopes of the same user stay (A58)."""
        return await self._engine.erasure.erase_scope(self.tenant, _scope(scope))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, entry_id: str, *, as_of: Moment | None = None, known_at: Moment | None = None) -> Entry | None:
        """The entry, or None where none is visible.

        `as_of` asks what was true then, also for entries retired since; `known_at` asks what was stored then, before later edits:
        an entry is known from its `updated_at` on, or where it was given a `created_at` of its own, from when it was written.
        """
        entry = await self._engine.entries.get(self.tenant, _id(entry_id), as_of=_moment("as_of", as_of), known_at=_moment("known_at", known_at))
        if entry is not None and as_of is None and known_at is None:
            self._engine.accesses.note(self.tenant, [entry.id])
        return entry

    async def retrieve(
        self,
        scope: Scope | str,
        *,
        tags: Sequence[str] | None = None,
        types: Sequence[EntryType | str] | None = None,
        since: Moment | None = None,
        limit: int | None = None,
        order: Literal["newest", "oldest"] = "newest",
        include_narrower: bool = False,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> Retrieved:
        """The entries of a scope by age: those with all of the tags, any of the types, created at or after `since`; 20 unless told.

        With `include_narrower`, a user's entries come with those of the one session named (A38-A41).
        The list's `degraded` names tiers that could not be read.
        """
        asked = self._asked(scope, tags, types, since, door.whole_limit(limit, default=RETRIEVE_LIMIT), include_narrower, session_id, as_of, known_at)
        return await self._engine.browsing.browse(_ordered(asked, order))

    async def search(
        self,
        query: str,
        *,
        scope: Scope | str | Sequence[Scope | str],
        limit: int | None = None,
        tags: Sequence[str] | None = None,
        types: Sequence[EntryType | str] | None = None,
        since: Moment | None = None,
        include_narrower: bool = False,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        explain: bool = False,
    ) -> SearchResult:
        """The entries that answer best, by words and by meaning, of one scope or several; 10 unless told.

        The query is plain text, never syntax (D62). With `explain` every hit says how it was found: rank and score by each way, tier and store.
        The result's `degraded` names tiers that could not be searched.
        """
        text = door.text("query", query, max_bytes=MAX_QUERY_BYTES)
        asked = self._asked(scope, tags, types, since, door.whole_limit(limit, default=SEARCH_LIMIT), include_narrower, session_id, as_of, known_at)
        found = await self._engine.searching.search(asked, text)
        if asked.as_of is None and asked.known_at is None:
            self._engine.accesses.note(self.tenant, [hit.entry.id for hit in found])
        return found if explain else found.unexplained()

    async def history(self, entry_id: str) -> list[Entry]:
        """Every version of an entry, oldest first, the current one last. Raises `NotFound`."""
        return await self._engine.entries.history(self.tenant, _id(entry_id))

    async def entries(self, scope: Scope | str | None = None, *, retired: bool = False) -> AsyncIterator[Entry]:
        """Every live entry of the tenant, or of one scope, oldest first; with `retired` also those no longer valid, as an export has them."""
        wanted = None if scope is None else _scope(scope)
        async for entry in self._engine.browsing.everything(self.tenant, wanted, retired=retired):
            yield entry

    # -- derived ------------------------------------------------------------------------------------------------------

    async def promote(
        self,
        entry_id: str,
        to: Scope | str,
        *,
        content: str = _UNSET,
        tags: Sequence[str] = _UNSET,
        metadata: Mapping[str, Any] = _UNSET,
        delete_original: bool = False,
    ) -> Entry:
        """Copy an entry into a broader scope; again returns the same entry. Raises `InvalidScopePromotion` where that is not allowed.

        Promoting again with other overrides is a `Conflict`. So is `delete_original` where the original was edited since it was copied, or its
        copy is expired or retired: only what can be read elsewhere is deleted.
        """
        given = {"content": content, "tags": tags, "metadata": metadata}
        overrides = check_patch({name: value for name, value in given.items() if value is not _UNSET})
        return await self._engine.derivation.promote(self.tenant, _id(entry_id), _scope(to), overrides=overrides, delete_original=delete_original)

    async def compact(
        self,
        entry_ids: Sequence[str],
        callback: Callback,
        *,
        target_scope: Scope | str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        delete_sources: bool = False,
    ) -> Entry:
        """Make one entry of several of one scope: `callback` gets copies of them and returns (or awaits) the text.

        Tags are united unless given, metadata merged with the first seen winning. Raises `CompactionError`; then nothing has changed.
        """
        patch = check_patch({n: v for n, v in (("tags", tags), ("metadata", metadata)) if v is not None})
        return await self._engine.derivation.compact(
            self.tenant,
            _ids(entry_ids),
            callback,
            target_scope=None if target_scope is None else _scope(target_scope),
            tags=patch.get("tags"),
            metadata=patch.get("metadata"),
            delete_sources=delete_sources,
        )

    async def relate(self, source_id: str, label: str, target_id: str) -> Relation:
        """Link two active entries: relates_to, refines, contradicts, supersedes or supports. The same link again is a `Conflict`."""
        return await self._engine.relations.relate(self.tenant, _id(source_id), label, _id(target_id))

    async def relations(
        self, *, source_id: str | None = None, target_id: str | None = None, label: str | None = None, limit: int | None = None
    ) -> list[Relation]:
        """The relations that match, newest first; 200 unless told."""
        source = None if source_id is None else _id(source_id)
        target = None if target_id is None else _id(target_id)
        return await self._engine.relations.related(self.tenant, source_id=source, target_id=target, label=label, limit=limit)

    async def every_relation(self) -> AsyncIterator[Relation]:
        """Every relation of the tenant, in no order: what an export holds."""
        async for relation in self._engine.relations.everything(self.tenant):
            yield relation

    async def restore_relation(self, source_id: str, label: str, target_id: str, created_at: Moment) -> bool:
        """Link two entries as they were linked where they were exported, also retired ones.

        False, and nothing done, where they are linked so already or one of them is gone: expired since, or deleted after an earlier import.
        """
        made = door.time("created_at", created_at)
        try:
            await self._engine.relations.relate(self.tenant, _id(source_id), label, _id(target_id), restored_from=made)
        except Conflict:
            return False
        except InvalidInput as refused:
            if refused.field != "relation":
                raise
            return False
        return True

    async def unrelate(self, relation_id: str) -> bool:
        """Delete a relation: true once, then false."""
        return await self._engine.relations.unrelate(self.tenant, _id(relation_id))

    # -- tiers --------------------------------------------------------------------------------------------------------

    async def end_session(self, session_id: str) -> PromotionReport:
        """A session is over: the promotion rules for that move its entries onward. Says what moved by which rule, and what stayed."""
        return await self._engine.promotion.end_session(self.tenant, Scope.session(session_id))

    async def move(self, entry_ids: Sequence[str], to: str) -> PromotionReport:
        """Move entries onward to a tier by hand. Moves go onward only."""
        door.one_of("tier", to, TIERS)
        return await self._engine.promotion.by_hand(self.tenant, _ids(entry_ids), to)

    def route(self, scope: Scope | str) -> Route:
        """Where a new entry of this scope would be born, and why."""
        return KINDS.of(ENTRIES).route(_scope(scope).kind)

    def explain_route(self, scope: Scope | str, collection: str = "entries") -> RouteReport:
        """Where a new record of this scope and collection would be born and copied to, on which store, and why."""
        return explain_route(self._life.engine, self.config.promotion, self.tenant, _scope(scope), collection)

    async def where(self, entry_id: str) -> list[Copy]:
        """Where an entry's copies, marks and tombstones stand."""
        return await reports.where(self._engine, self.tenant, _id(entry_id))

    async def sweep(self) -> SweepReport:
        """One round of maintenance: finish what crashes left, forget what has served, apply the sweep rules. For all tenants of the stores."""
        return await self._engine.maintenance.sweep()

    async def stats(self) -> Stats:
        """Counts and sizes of this tenant's entries, tier by tier."""
        return await reports.stats(self._engine, self.tenant, [t.value for t in EntryType])

    async def check(self) -> list[StoreReport]:
        """How each store is."""
        return await reports.check(self._engine)

    async def audit(self, *, repair: bool = False) -> list[StoreAudit]:
        """Compare what each store derives from its records (word indexes, statistics, registries) with the records; `repair` makes it anew.

        It reads everything, of every tenant, and may take long. A store that does not answer is reported, not raised.
        """
        return await reports.audit(self._engine, repair=repair)

    async def vacuum(self) -> list[Vacuumed]:
        """Have each store give back the room that deleted content takes. A store that does not answer is reported, not raised."""
        return await reports.vacuum(self._engine)

    # -- shared -------------------------------------------------------------------------------------------------------

    @property
    def _engine(self) -> Engine:
        if self._let_go:
            raise NotOpen("this memory")
        return self._life.working

    def _asked(
        self,
        scope: Scope | str | Sequence[Scope | str],
        tags: Sequence[str] | None,
        types: Sequence[EntryType | str] | None,
        since: Moment | None,
        limit: int,
        include_narrower: bool,
        session_id: str | None,
        as_of: Moment | None,
        known_at: Moment | None,
    ) -> Asked:
        scopes = [_scope(scope)] if isinstance(scope, Scope | str) else [_scope(s) for s in door.sequence("scope", scope, at_most=door.MAX_SCOPES)]
        if not scopes:
            raise InvalidInput("scope", "name at least one")
        session = None if session_id is None else Scope.session(session_id)
        if include_narrower and self.config.inclusion_rules and session is not None and any(s.kind is ScopeKind.USER for s in scopes):
            scopes.append(session)
        return Asked(
            tenant=self.tenant,
            scopes=tuple(dict.fromkeys(scopes)),
            tags=() if tags is None else tuple(door.tags(door.sequence("tags", tags, at_most=door.MAX_LIMIT))),
            types=() if types is None else tuple(door.one_of("type", t, EntryType) for t in door.sequence("types", types, at_most=door.MAX_LIMIT)),
            since=_moment("since", since),
            as_of=_moment("as_of", as_of),
            known_at=_moment("known_at", known_at),
            limit=limit,
        )


def _ordered(asked: Asked, order: str) -> Asked:
    return replace(asked, order=door.one_of("order", order, ("newest", "oldest")))  # type: ignore[arg-type]


def _scope(value: object) -> Scope:
    if isinstance(value, Scope):
        return value
    if isinstance(value, str):
        return Scope.parse(door.text("scope", value))
    raise InvalidInput("scope", f"must be a Scope or its text, such as 'user:ada', not {type(value).__name__}")


def _draft(given: EntryDraft | Mapping[str, Any]) -> EntryDraft:
    if not isinstance(given, EntryDraft | Mapping):
        raise InvalidInput("draft", f"must be an EntryDraft or the arguments of write, not {type(given).__name__}")
    parts = given if isinstance(given, EntryDraft) else given.items()  # a draft is checked again: its lists may have been changed since
    values = {door.text("draft", name): value for name, value in parts}
    if "scope" not in values:
        raise InvalidInput("scope", "is missing")
    kind = type(given) if isinstance(given, EntryDraft) else EntryDraft
    return kind(**(values | {"scope": _scope(values["scope"])}))


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be True or False, not {type(value).__name__}")
    return value


def _id(value: object) -> str:
    return door.text("id", value, max_bytes=door.MAX_ID_BYTES)


def _ids(values: object) -> list[str]:
    return [_id(value) for value in door.sequence("ids", values)]


def _moment(field: str, value: Moment | None) -> datetime | None:
    return None if value is None else door.time(field, value)


def _checked_tenant(tenant: str) -> str:
    if tenant == SYSTEM_TENANT:
        raise InvalidInput("tenant", f"'{SYSTEM_TENANT}' is the engine's own")
    return tenant
