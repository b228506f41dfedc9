"""`Memory`: what a user holds. Every argument is checked here, at the door, before any
store is touched.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.enrichment import Enrichment, WriteReport
from memory.domain.entry import Entry, EntryDraft, EntryType, check_patch
from memory.domain.errors import ConfigError, ForkedProcess, InvalidInput
from memory.domain.scope import Scope
from memory.domain.session import DeletedEntry, FoundMessages
from memory.facade.arguments import (
    Metadata,
    Moment,
    consistency_of,
    flag,
    function,
    id_of,
    ids_of,
    length,
    moment,
    real,
    scope_of,
)
from memory.facade.config.settings import MemoryConfig
from memory.facade.resources.admin import Admin
from memory.facade.resources.artifacts import Artifacts
from memory.facade.resources.commands import Commands
from memory.facade.resources.entries import Entries
from memory.facade.resources.relations import Relations
from memory.facade.resources.scratchpads import Scratchpads
from memory.facade.resources.session import Session
from memory.facade.resources.sessions import Sessions
from memory.facade.resources.sessions import draft_of as session_draft
from memory.facade.resources.short_ids import ShortIds
from memory.facade.runtime.access import BROWSE_LIMIT, MAX_QUERY_BYTES, RETRIEVE_LIMIT, SEARCH_LIMIT, Access
from memory.facade.runtime.async_context import AsyncContext
from memory.facade.runtime.build import (
    as_advisor,
    as_counter,
    as_embedder,
    as_gate,
    as_policy,
    as_reranker,
    build_engine,
    check_adapters,
)
from memory.facade.runtime.lifecycle import EngineLifecycle
from memory.facade.runtime.store_paths import on_the_default_file
from memory.facade.scoped import ScopedMemory
from memory.facade.search_options import (
    SearchBoost,
    SearchFilter,
    SearchOptions,
    least_relevance,
    preferences,
    search_mode,
)
from memory.facade.write_options import WriteMode, WriteOptions
from memory.orchestrator.conversations.window.reads import reads_of_caller
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.orchestrator.entries.browsing import EntryPage
from memory.orchestrator.entries.derivation import Callback
from memory.orchestrator.maintenance.sweeps import SweepReport
from memory.orchestrator.retrieval.search import MixedResult, SearchResult
from memory.orchestrator.storage.budgets import Allowance
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.trust.gates import RecallGate, WriteGate
from memory.policies.entry_query import Scalar
from memory.policies.promotion import Policy
from memory.policies.window_exit import ELSEWHERE, WindowExitFunction
from memory.ports.advisor import Advisor, Prompt, Reranker
from memory.ports.clock import Clock, system_clock
from memory.ports.embedder import Embedder
from memory.ports.query import Condition, Eq, Ge, Le, Tenant, all_of
from memory.ports.tokens import TokenCounter

EmbedFunction = Callable[[Sequence[str]], Any]
"""Texts in, one vector of numbers each out; may be async, and runs in a thread if it is
not.
"""

AdviseFunction = Callable[[Prompt], Any]
"""A prompt in, a model's answer out; may be async, and runs in a thread if it is not."""

ScoreFunction = Callable[[str, Sequence[str]], Any]
"""A question and texts in, one score each out; may be async, and runs in a thread if it
is not.
"""

CountFunction = Callable[[str], int]
"""A text in, its tokens out."""

NOUNS = {
    "entries": Entries,
    "relations": Relations,
    "short_ids": ShortIds,
    "sessions": Sessions,
    "scratchpads": Scratchpads,
    "artifacts": Artifacts,
    "commands": Commands,
    "admin": Admin,
}
"""What a memory has its less frequent calls under."""

log = logging.getLogger(__name__)

_UNSET: Any = object()


@explain_guesses
class Memory(AsyncContext):
    """One tenant's memory over the configured stores; with no configuration, over one
    SQLite file.

        async with Memory() as memory:
            await memory.write("Ada prefers tea", scope=Scope.user("ada"))
            hits = await memory.search("what does Ada drink?", scope=Scope.user("ada"))

    `config` is a URL, the path of a SQLite file or of a `.toml` file, a mapping, or a
    `MemoryConfig`; `settings` override single values. `embedder` is what may be
    configured ('wordllama', 'none', or `{"use": "folder", "path": ...}` for a sentence
    encoder of one's own), an `Embedder`, or any function from texts to vectors.
    `token_counter` counts what messages cost a model: a configured name, a
    `TokenCounter`, or any function from a text to its tokens. `on_window_exit` is a
    function that makes entries of messages which leave the window of a session. They
    leave by a compaction, by what `replace` or a provider drops, or by the session's
    end; messages that are excluded, cleared, rolled back or erased are not passed to
    it. It gets an `ExitedMessages`, may be async, and returns texts, drafts or
    arguments of `write`. They go to the session's user unless they name a scope. The
    session's end and maintenance call it, never an append; where it failed, they call
    it again. The entries of one answer are made once, as soon as quotas have room for
    all of them. With `"elsewhere"` the messages wait for another process that has the
    function. Without `on_window_exit` they do not wait. `advisor` is a
    language model for searches that ask for advice (`search(expand=…, rerank=…)`) and
    for what is written (`write(auto_tag=…, auto_supersede=…)`): an `Advisor`, or any
    function from a `Prompt` to text. `reranker` scores texts against a question: a
    `Reranker`, or any function from both to numbers; or it is an `Advisor` of its own.
    They are sent questions and what was found for them; with such an `auto_…` what is
    written and what is near it; and nothing else. `policies` are rules in Python: each
    an object with a `name` and `decide(record, facts, now)`, or the name of an
    installed one; see `Policy`. `write_gate` is asked of everything that is to be
    written, a draft and its `Provenance`, and answers True, a reason for refusing it,
    or changes of it; `recall_gate` of every `Entry` that is to be shown, and answers
    whether it may be. They may be async, or block; what they do not answer within
    `durations.deadline`, or fail over, is not written (`RejectedByGate`), and not shown
    (`withheld` of what is found). A scope may be given as `Scope` or as its text, such
    as `"user:ada"`. Open it with `async with`, or with `open` and `close`. What is
    asked less often stands under a noun: `memory.entries`, `memory.relations`,
    `memory.short_ids`, `memory.sessions`, `memory.scratchpads`, `memory.artifacts`,
    `memory.commands`, `memory.admin`.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | MemoryConfig | None = None,
        *,
        tenant: str | None = None,
        embedder: Embedder | EmbedFunction | Mapping[str, str] | str | None = None,
        token_counter: TokenCounter | CountFunction | str | None = None,
        clock: Clock = system_clock,
        on_window_exit: WindowExitFunction | Literal["elsewhere"] | None = None,
        advisor: Advisor | AdviseFunction | None = None,
        reranker: Reranker | Advisor | ScoreFunction | None = None,
        policies: Sequence[Policy | str] = (),
        write_gate: WriteGate | None = None,
        recall_gate: RecallGate | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(embedder, str | Mapping):
            settings["embedder"] = embedder
        if isinstance(token_counter, str):
            settings["token_counter"] = token_counter
        if isinstance(policies, str) or not isinstance(policies, Sequence):
            raise ConfigError(f"policies: must be a list of policies, not {type(policies).__name__}")
        if named := [one for one in policies if isinstance(one, str)]:
            settings["policies"] = named
        if tenant is not None:
            settings["tenant"] = tenant
        given = MemoryConfig.load(config, **settings)
        check_adapters(given)
        embeds = None if embedder is None or isinstance(embedder, str | Mapping) else as_embedder(embedder)
        counts = (
            None if token_counter is None or isinstance(token_counter, str) else as_counter(token_counter)
        )
        if on_window_exit is not None and on_window_exit != ELSEWHERE and not callable(on_window_exit):
            raise ConfigError(
                f"on_window_exit: got {type(on_window_exit).__name__}. Pass a function from `ExitedMessages` to "
                f"entries, or '{ELSEWHERE}' where another process has the function"
            )
        advises = None if advisor is None else as_advisor(advisor)
        reranks = None if reranker is None else as_reranker(reranker)
        writes, recalls = as_gate("write_gate", write_gate), as_gate("recall_gate", recall_gate)
        decides = [as_policy(one) for one in policies if not isinstance(one, str)]

        def build() -> Engine:
            if said := on_the_default_file(given):
                log.log(
                    logging.WARNING if given.stores or len(given.stores_in_use()) > 1 else logging.INFO,
                    "%s",
                    said,
                )
            return build_engine(
                given,
                embedder=embeds,
                counter=counts,
                clock=clock,
                on_window_exit=on_window_exit,
                advisor=advises,
                reranker=reranks,
                policies=decides,
                write_gate=writes,
                recall_gate=recalls,
            )

        life = EngineLifecycle(build, given.engine.sweep_every)
        self._access = Access(given, life, given.tenant)

    @property
    def config(self) -> MemoryConfig:
        return self._access.config

    @property
    def tenant(self) -> str:
        return self._access.tenant

    @property
    def entries(self) -> Entries:
        """All entries, their versions, the end of their validity."""
        return Entries(self._access)

    @property
    def relations(self) -> Relations:
        """Links between entries."""
        return Relations(self._access)

    @property
    def short_ids(self) -> ShortIds:
        """Short ids of entries and artifacts, such as `#42`."""
        return ShortIds(self._access)

    @property
    def sessions(self) -> Sessions:
        """Sessions as a whole."""
        return Sessions(self._access)

    @property
    def scratchpads(self) -> Scratchpads:
        """What agents note for themselves."""
        return Scratchpads(self._access)

    @property
    def commands(self) -> Commands:
        """The `/mem` language, for agents and chats."""
        return Commands(self._access)

    @property
    def artifacts(self) -> Artifacts:
        """Files of sessions."""
        return Artifacts(self._access)

    def session(
        self,
        session_id: str,
        *,
        create: bool = True,
        system: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        namespace: str | None = None,
        title: str | None = None,
        tags: Sequence[str] = (),
        metadata: Metadata | None = None,
        expires_at: Moment | timedelta | None = None,
        shared: bool = False,
    ) -> Session:
        """One session's conversation, without a call to any store. Its first call
        creates it as told here where there is none, if `create`.

        Session ids are unique per tenant: use ids that cannot collide, such as
        `f"{user}/{name}"`. The first call raises `SessionOwnerMismatch` where the
        session exists with another `user`, `agent`, `namespace`, `system`, `title`,
        `tags`, `metadata` or `expires_at` (a length counts from the creation); an
        omitted one accepts the stored value, and `sessions.update` changes it. Sessions
        created with `shared=True` accept every user, agent and namespace: what is
        recalled through a handle is what its user may see, what is learnt of a message
        is that of the user whose handle wrote it, and `erase_user` of that user reaches
        it.
        """
        draft = session_draft(
            validation.identifier("session_id", session_id),
            system=system,
            user=user,
            agent=agent,
            namespace=namespace,
            title=title,
            tags=tags,
            metadata=metadata,
            expires_at=expires_at,
            shared=shared,
        )
        reads_of_caller()  # child tasks of the caller let it know what they read
        return Session(self._access, draft, create=flag("create", create))

    @property
    def admin(self) -> Admin:
        """Erasing, exporting and importing, where things stand and why, and the upkeep
        of the stores.
        """
        return Admin(self._access)

    # -- life --------------------------------------------------------------------------

    async def open(self, *, reindex: bool = False) -> Self:
        """Connect to the stores and make them ready. Opening twice is a no-op; a failed
        open may be repeated.

        Stores with vectors of another embedder refuse it (`EmbedderMismatch`). With
        `reindex` they note instead that these are to be made anew with this one, which
        `memory.admin.reindex` does; from then on it opens without.

        While open, maintenance runs in the background every `durations.sweep_every`,
        and the memory belongs to the event loop that opened it: on another its calls
        raise `WrongEventLoop`. For another tenant's view of an open memory this undoes
        its `close`, and nothing else.
        """
        await self._access.open(reindex=flag("reindex", reindex))
        return self

    async def close(self) -> None:
        """Let go of the stores. Closing twice is a no-op; it may be opened again and
        finds what it held. From any event loop, it comes back.
        """
        await self._access.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ForkedProcess:
            if error is None:
                # otherwise a child that leaves the block by an error, such as
                # SystemExit, ends by that error
                raise

    def __repr__(self) -> str:
        return f"<Memory tenant={self.tenant!r} {'open' if self._access.is_open else 'closed'}>"

    def for_tenant(self, tenant: str) -> Memory:
        """The same stores for another tenant. Close the first; this one closes nothing."""
        return Memory._over(self._access.for_tenant(tenant))

    def scoped(self, scope: Scope | str) -> ScopedMemory:
        """A view of one scope: the same calls without naming it each time."""
        return ScopedMemory(self._access, scope_of(scope))

    # -- writing -----------------------------------------------------------------------

    async def write(
        self,
        content: str = "",
        *,
        scope: Scope | str,
        type: EntryType | str = EntryType.CONTEXT,  # noqa: A002 - the field's own name
        title: str | None = None,
        source: str | None = None,
        tags: Sequence[str] = (),
        metadata: Metadata | None = None,
        confidence: float | None = None,
        created_at: Moment | None = None,
        expires_at: Moment | timedelta | None = None,
        conversation_id: str | None = None,
        number_in_conversation: int | None = None,
        speaker: str | None = None,
        artifact_id: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        origins: Sequence[str] = (),
        key: str | None = None,
        revive: bool = False,
        consistency: Consistency | None = None,
        supersedes: str | Sequence[str] = (),
        if_exists: Literal["error", "replace"] = "error",
        detect_conflicts: bool = False,
        resolve: Resolver | None = None,
        auto_tag: bool | None = None,
        auto_supersede: bool | None = None,
    ) -> Entry:
        """Remember one thing, and return it as stored.

        `key` makes the write repeatable: the same key in the same scope returns the
        first result, and `Conflict` for another content. Where that entry was deleted
        since it is a `Conflict` too, which says when, unless `revive` lets the key
        begin a new life. `if_exists="replace"` replaces the entry under the key with
        all that this call says; fields that the call leaves out are cleared. One call
        thus keeps a current value, whether the key exists or not. `entries.history`
        keeps the version before. Concurrent writers make one version each; a write that
        changes nothing makes none. A key whose entry was deleted or has expired begins
        a new life; a retired entry is a `Conflict`. A late repeat overwrites newer
        values. `confidence` is
        a number from 0 to 1, for promotion rules with `confidence_at_least`.
        `entry.confidence` has it, and it is stored in `metadata["confidence"]`.
        `supersedes` names an entry, or up to 32, in whose place this one stands: they
        are linked to it (`supersedes`), and their validity ends when this one's begins.
        All must be active, else nothing is written; one that is retired meanwhile is a
        `Conflict`. It is one transaction where a store has those and holds them all;
        else the entry is written first, and the rest follows, by a sweep if not at once
        (D107, D111). `detect_conflicts=True` looks for active entries of the scope and
        type that may repeat or contradict the text. `resolve(draft, entries)` gets them
        and returns `"keep"`, `"supersede"` or a `Resolution` (`ids` names some of them,
        "merge" has a `content`). All of them stay active without `resolve`, and when it
        fails, takes longer than `durations.advice` or returns anything else.
        `entry.conflict_report` says what was found and done. Only entries that were
        shown are retired, at the version shown. With `supersedes` the write looks for
        no conflicts. With `auto_tag` the advisor gives the
        entry up to four tags behind its own, and with `auto_supersede` it says of which
        of five older entries of the same scope and type, found for the title, the new
        one takes the place; only what was shown gives way, at that version (D102-D106).
        Unless told, both are as configured (`[enrichment]`). It is done behind the
        write and never in its way: what fails is tried again, and in the end
        `enrichment` says why not. Without an advisor nothing is done (D101); with
        `supersedes` or `detect_conflicts` nothing is superseded besides (D108). `created_at` sets
        creation, update and the start of validity together (D9). An entry past
        `expires_at`, a moment or a `timedelta` from the write on, is hidden at once. A
        sweep deletes it 24 hours later (`durations.expired_grace`; zero keeps it for
        ever). Of what was said in a conversation `conversation_id`,
        `number_in_conversation` and `speaker` say where and by whom; `content` is the
        speaker's own words, without the name. What was said just before and after helps
        to find them. What says its number, or its speaker, may have been said
        elsewhere; a `conversation_id` alone pins the entry to a session, which must be
        there, else nothing is written (D7). `browse(conversation=…)` shows what is
        pinned to a session, and its deletion clears id and number (decision 066).
        `artifact_id` points to a file of a session (`memory.artifacts`), which must be
        there, else nothing is written (D6); it is cleared when that is deleted (D19).
        `source`, `agent` and `run` say where it comes from and who writes it, `origins`
        what else went into it (`"source:web:example.com"`): by these it is found again
        when one of them turns out not to be trusted (`memory.admin.block_source`).

        It returns once its home has it: a search of this memory finds it then, one of
        another process at once by words, and by meaning some tens of milliseconds
        later, when its replica is delivered. With `consistency="replicated"` it returns
        once that stands too, unless its store does not answer. Unless told,
        `consistency` is that of the configuration.
        """
        draft = EntryDraft(
            scope=scope_of(scope),
            content=content,
            type=type,
            title=title,
            source=source,
            tags=tags,
            metadata=metadata,
            confidence=confidence,
            created_at=created_at,
            expires_at=expires_at,
            conversation_id=conversation_id,
            number_in_conversation=number_in_conversation,
            speaker=speaker,
            artifact_id=artifact_id,
            agent=agent,
            run=run,
            origins=origins,
            key=key,
        )
        mode: WriteMode = {
            "revive": revive,
            "consistency": consistency,
            "supersedes": supersedes,
            "if_exists": if_exists,
            "detect_conflicts": detect_conflicts,
            "resolve": resolve,
            "auto_tag": auto_tag,
            "auto_supersede": auto_supersede,
        }
        return await self._access.write(draft, mode)

    async def write_with_report(
        self,
        content: str = "",
        *,
        scope: Scope | str,
        wait: timedelta | float | str | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Write one entry as `write` does, and report what was done for it (D109).

        Args:
            content: The text, as in `write`.
            scope: The scope, as in `write`.
            wait: How long to wait for the enrichment at most: a `timedelta`, seconds,
                or text such as "30s". `durations.deadline` is the default.
            **options: The other arguments of `write`.

        Returns:
            The entry, with the tags that it was given, and the enrichment. Enrichment
            that is not done in time has the note "still pending"; `enrichment` returns
            its result later. When a store fails after the write, the report holds the
            entry alone.
        """
        return await self._access.write_with_report(content, scope_of(scope), options, wait)

    async def enrichment(self, entry_id: str) -> Enrichment:
        """What became of the enrichment of an entry, retired or not; empty where none
        was asked for. Raises `NotFound`.

        An older entry that was retired wrongly is brought back by deleting and writing
        it again (D27): `(await entries.history(id))[-1]` says what it said,
        `delete(id)` takes it away with its link, and `write` begins it anew.
        """
        return (await self._engine.enricher.load_enrichment(self.tenant, id_of(entry_id)))[1]

    async def write_many(
        self,
        drafts: Iterable[EntryDraft | Mapping[str, Any]],
        *,
        revive: bool = False,
        consistency: Consistency | None = None,
    ) -> list[Entry]:
        """Remember many things, in order; mappings take the arguments of `write`. All
        are checked before any is stored.

        They are stored 500 at a time; a mapping that says how it is written, as by
        `supersedes`, is stored alone, in its place. After a store failed the earlier
        batches are kept. With keys the whole call can be repeated. Drafts whose key is
        in conflict keep no other from being stored: then `PartialWrite`, a `Conflict`,
        says which they are, and has the rest. `revive` and `consistency` are those of
        `write`, for all that do not say otherwise.
        """
        return await self._access.write_many(drafts, {"revive": revive, "consistency": consistency})

    async def update(
        self,
        entry_id: str,
        *,
        content: str = _UNSET,
        title: str | None = _UNSET,
        type: EntryType | str = _UNSET,  # noqa: A002 - the field's own name
        source: str | None = _UNSET,
        agent: str | None = _UNSET,
        run: str | None = _UNSET,
        origins: Sequence[str] = _UNSET,
        tags: Sequence[str] = _UNSET,
        metadata: Metadata = _UNSET,
        confidence: float = _UNSET,
        artifact_id: str | None = _UNSET,
        expires_at: Moment | timedelta | None = _UNSET,
        consistency: Consistency | None = None,
    ) -> Entry:
        """Change an active entry: tags are replaced, metadata merged; None clears the
        expiry and `artifact_id` (D15); what is not given stays.

        `source`, `agent`, `run` and `origins` say who changes it and what that comes
        of; whom they take the place of stays among its origins.

        The version before it is kept (see `entries.history`). Raises `NotFound` for
        what is unknown, expired or retired, and `TooMuchContention` where others were changing
        it for all of `durations.deadline`. `consistency` is that of `write`.
        """
        given = {
            "content": content,
            "title": title,
            "type": type,
            "source": source,
            "agent": agent,
            "run": run,
            "origins": origins,
            "tags": tags,
            "metadata": metadata,
            "confidence": confidence,
            "artifact_id": artifact_id,
            "expires_at": expires_at,
        }
        changes = check_patch({name: value for name, value in given.items() if value is not _UNSET})
        changed, waits = id_of(entry_id), consistency_of(consistency)
        await self._access.refuse_unknown_artifacts([changes.get("artifact_id")])
        return await self._engine.entries.update(self.tenant, changed, changes, waits)

    async def delete(self, entry_id: str) -> DeletedEntry:
        """Delete an entry with its kept versions and relations.

        What was made of it automatically goes too: copies by promotion rules, and notes
        of an advisor about it. Copies by `promote` and results of `compact` stay.

        Returns:
            A true value if there was an entry; deleting again is no error. Its `kept` has the
            ids of entries that were made of this one and stay.
        """
        return await self._engine.delete(self.tenant, id_of(entry_id))

    # -- reading -----------------------------------------------------------------------

    async def get(
        self, entry_id: str, *, as_of: Moment | None = None, known_at: Moment | None = None
    ) -> Entry | None:
        """The entry, or None where none is visible. `entry.artifact` is what is known
        of the artifact it points to, as that is now (D18).

        `as_of` asks what was true then, also for entries retired since; `known_at` asks
        what was stored then, before later edits: an entry is known from its
        `updated_at` on, or where it was given a `created_at` of its own, from when it
        was written.
        """
        entry = await self._engine.entries.get(
            self.tenant, id_of(entry_id), as_of=moment("as_of", as_of), known_at=moment("known_at", known_at)
        )
        if entry is not None and as_of is None and known_at is None:
            self._engine.accesses.note(self.tenant, [entry.id])
        return None if entry is None else await self._access.with_artifact(entry)

    async def retrieve(
        self,
        scope: Scope | str,
        *,
        tags: Sequence[str] | None = None,
        any_tags: Sequence[str] | None = None,
        types: Sequence[EntryType | str] | None = None,
        metadata: Mapping[str, Scalar] | None = None,
        since: Moment | None = None,
        before: Moment | None = None,
        limit: int | None = None,
        order: Literal["newest", "oldest"] = "newest",
        include_narrower: bool = False,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        cursor: str | None = None,
    ) -> EntryPage:
        """The entries of a scope by age: with all of the `tags` and any of `any_tags`,
        of any of the types, created at or after `since` and before `before`, whose
        metadata have each key of `metadata` with exactly its value; 20 unless told.

        With `include_narrower`, a user's entries come with those of the one session
        named (A38-A41); `session_id` counts only with it. The list's `cursor`, None at
        the end, asks the same question for what follows: whatever is written meanwhile,
        no entry is lost or comes twice (D52). Its `degraded` names tiers that could not
        be read: what they hold is on no later page either, so ask for the page again.
        Raises `StoreUnavailable` if no store that was asked answered. Stores have no
        index of metadata: entries are read until enough are found.
        """
        asked = self._access.entry_query(
            scope,
            tags=tags,
            any_tags=any_tags,
            types=types,
            metadata=metadata,
            since=since,
            before=before,
            limit=limit,
            unless_told=RETRIEVE_LIMIT,
            order=order,
            include_narrower=include_narrower,
            session_id=session_id,
            as_of=as_of,
            known_at=known_at,
            cursor=cursor,
        )
        return await self._engine.browser.browse(asked)

    async def browse(
        self,
        scope: Scope | str | Sequence[Scope | str] | None = None,
        *,
        conversation: str | None = None,
        types: Sequence[EntryType | str] | None = None,
        tags: Sequence[str] | None = None,
        since: Moment | None = None,
        updated_before: Moment | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        include_retired: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> EntryPage:
        """The active entries of the whole tenant, or of these scopes, by their last
        change, newest first, ties by id: over all tiers, each once; 50 unless told, at
        most 1,000 (D47-D54).

        Of any of the `types`, with all of the `tags`, each whole and to the letter
        (D53), created at or after `since`, changed last before `updated_before`; with
        `conversation`, pinned to it or to none (D51). `as_of` and `known_at` are as in
        `retrieve`. With `include_retired`, entries whose validity has ended are listed
        too; it cannot be combined with these two. The list's `cursor`, None at the end, asks the same question for
        what follows, with any limit; a damaged one, or one of another question, is
        refused as `InvalidInput`. What nobody edits or deletes while one pages is shown
        exactly once, whatever is written meanwhile and however many entries changed at
        one moment (D52). What is edited meanwhile comes to stand at the beginning: it
        is shown once at most. To move to another tier is no change, and neither is to
        be read. `degraded` names tiers that could not be read: what they hold is on no
        later page either, so ask for the page again. Raises `StoreUnavailable` if no
        store that was asked answered.
        """
        asked = self._access.entry_query(
            scope,
            limit=limit,
            unless_told=BROWSE_LIMIT,
            along="updated_at",
            conversation=conversation,
            types=types,
            tags=tags,
            since=since,
            updated_before=updated_before,
            as_of=as_of,
            known_at=known_at,
            include_retired=include_retired,
            cursor=cursor,
            anywhere=scope is None,
        )
        return await self._engine.browser.browse(asked)

    @overload
    async def search(
        self,
        query: str,
        *,
        scope: Scope | str | Sequence[Scope | str],
        messages: Literal[False] = False,
        **options: Unpack[SearchOptions],
    ) -> SearchResult: ...

    @overload
    async def search(
        self,
        query: str,
        *,
        scope: Scope | str | Sequence[Scope | str],
        messages: bool,
        **options: Unpack[SearchOptions],
    ) -> SearchResult | MixedResult: ...

    async def search(
        self,
        query: str,
        *,
        scope: Scope | str | Sequence[Scope | str],
        limit: int | None = None,
        mode: Literal["hybrid", "lexical", "semantic"] = "hybrid",
        boost: SearchBoost | None = None,
        filter: SearchFilter | None = None,  # noqa: A002 - the usual word for it
        min_relevance: float | None = None,
        since: Moment | None = None,
        include_narrower: bool = False,
        session_id: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        intent: bool = True,
        age_decay: bool = True,
        half_life: timedelta | float | None = None,
        decay_floor: float | None = None,
        explain: bool = False,
        expand: bool = False,
        rerank: bool | Literal["two-stage"] = False,
        messages: bool = False,
    ) -> SearchResult | MixedResult:
        """Return the entries that answer best, of one scope or several.

        `mode` says how entries are found: by shared words (`"lexical"`), by embeddings
        (`"semantic"`) or by both (`"hybrid"`). The query is plain text, never syntax.

        `boost` raises matching entries in close calls and removes none.
        `boost={"types": ["user"], "tags": ["home"]}` raises entries of the type, and
        entries with the tag. `boost["conversation_id"]` raises what was said there.
        `filter` removes what does not match. `filter={"types": ["user"], "tags":
        ["home"]}` finds only entries of the type that have the tag.

        Without `boost["types"]` the search raises the types that the question itself
        seems to ask for, unless `intent` is False. Other boosts and filters do not
        change this. Older entries count less, unless `age_decay` is False.

        A hit's `score` is the sort key of one search and does not compare across
        searches. Its `relevance`, from 0 to 1, does.

        A blank query browses by the last change and scores nothing. `boost` filters
        there: by types and tags, and by what is pinned to `conversation_id` or to no
        conversation.

        Args:
            limit: At most this many hits; 10 by default.
            min_relevance: Leave out hits below this relevance. It needs a query.
            half_life: The age, a `timedelta` or days, in steps of which older entries
                count less; 90 days by default.
            decay_floor: The least factor that age applies; 0.5 by default.
            explain: Fill `hit.explanation` and the result's `left_out`.
            expand: Search two paraphrases by the advisor too.
            rerank: Let the reranker, or else the advisor, order the best 25 or more.
                With `"two-stage"` the advisor then looks closer at the best eight. A
                failing or late advisor changes nothing and is named in `degraded`.
            messages: Find messages too (`FoundMessage`), in the sessions asked for and
                in those of a user asked for. They share one order and one limit with
                the entries. Filters by types, tags and metadata leave messages out, and
                so do `as_of`, `known_at` and a blank query.

        Returns:
            The hits, best first. `degraded` names tiers that could not be searched.

        Raises:
            InvalidInput: `mode="semantic"` without an embedder; `min_relevance` in a
                mode other than `"lexical"` with an embedder that has no calibration
                (`relevance` is None there).
            StoreUnavailable: No store that was asked answered.
        """
        return await self._access.search(
            query,
            scope,
            limit=limit,
            mode=mode,
            filter=filter,
            min_relevance=min_relevance,
            preferred=preferences(
                boost,
                intent=intent,
                age_decay=age_decay,
                half_life=half_life,
                decay_floor=decay_floor,
            ),
            since=since,
            include_narrower=include_narrower,
            session_id=session_id,
            as_of=as_of,
            known_at=known_at,
            explain=explain,
            expand=expand,
            rerank=rerank,
            messages=messages,
        )

    async def search_messages(
        self,
        query: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        namespace: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        mode: Literal["hybrid", "lexical", "semantic"] = "hybrid",
        limit: int | None = None,
        min_relevance: float | None = None,
    ) -> FoundMessages:
        """What was said that answers best, by words and by meaning, over all sessions
        or those of one user, agent or namespace, from `since` to `until`, both
        included; 10 unless told. Compacted messages are found, excluded ones are not.
        They are ranked as entries are, what was said beside them, by whom and when
        among what counts.

        `mode` says how messages are found: by shared words (`"lexical"`), by embeddings
        (`"semantic"`) or by both (`"hybrid"`). Messages of another process are found
        lexically at once and semantically a few seconds later. Results of tools are not
        found. The query is plain text, never syntax.

        Raises:
            InvalidInput: `mode="semantic"` where messages have no vectors
                (`conversations.meaning`). `"hybrid"` is lexical there.
        """
        given = {"subject": ("user", user), "agent": ("agent", agent), "namespace": ("namespace", namespace)}
        asked: list[Condition | None] = [
            Eq(field, validation.identifier(name, value))
            for field, (name, value) in given.items()
            if value is not None
        ]
        asked += [None if (at := moment("since", since)) is None else Ge("created_at", at)]
        asked += [None if (at := moment("until", until)) is None else Le("created_at", at)]
        text, most = (
            validation.text("query", query, max_bytes=MAX_QUERY_BYTES),
            validation.whole_limit(limit, default=SEARCH_LIMIT),
        )
        checked, least = search_mode(mode), least_relevance(min_relevance)
        return await self._engine.message_search.find(
            Tenant(self.tenant), all_of(*asked), text, most, checked, least
        )

    # -- derived -----------------------------------------------------------------------

    async def promote(
        self,
        entry_id: str,
        to: Scope | str,
        *,
        content: str = _UNSET,
        tags: Sequence[str] = _UNSET,
        metadata: Metadata = _UNSET,
        delete_original: bool = False,
        consistency: Consistency | None = None,
    ) -> Entry:
        """Copy an entry into a broader scope; again returns the same entry. Raises
        `InvalidScopePromotion` where that is not allowed.

        Promoting again with other overrides is a `Conflict`. So is `delete_original`
        where the original was edited since it was copied, or its copy is expired or
        retired: only what can be read elsewhere is deleted. `consistency` is that of
        `write`, but that with `delete_original` all is waited for.
        """
        given = {"content": content, "tags": tags, "metadata": metadata}
        overrides = check_patch({name: value for name, value in given.items() if value is not _UNSET})
        return await self._engine.derivation.promote(
            self.tenant,
            id_of(entry_id),
            scope_of(to),
            overrides=overrides,
            delete_original=flag("delete_original", delete_original),
            consistency=consistency_of(consistency),
        )

    async def compact(
        self,
        entry_ids: Sequence[str],
        callback: Callback,
        *,
        target_scope: Scope | str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Metadata | None = None,
        delete_sources: bool = False,
        consistency: Consistency | None = None,
    ) -> Entry:
        """Make one entry of several of one scope: `callback` gets copies of them and
        returns (or awaits) the text.

        Tags are united unless given, metadata merged with the first seen winning. If
        these are beyond the limits of an entry (32 tags, 64 KiB), `CompactionError` is
        raised before the callback is called, unless `tags` or `metadata` is given: such
        `metadata` is then taken alone. Raises `CompactionError`; then nothing has
        changed. `consistency` is that of `write`, but that with `delete_sources` all is
        waited for.
        """
        patch = check_patch({n: v for n, v in (("tags", tags), ("metadata", metadata)) if v is not None})
        return await self._engine.derivation.compact(
            self.tenant,
            ids_of(entry_ids),
            function("callback", callback),
            target_scope=None if target_scope is None else scope_of(target_scope),
            tags=patch.get("tags"),
            metadata=patch.get("metadata"),
            delete_sources=flag("delete_sources", delete_sources),
            consistency=consistency_of(consistency),
        )

    # -- upkeep ------------------------------------------------------------------------

    async def maintain(
        self, *, budget: timedelta | str | float = "30s", rate: float | None = None
    ) -> SweepReport:
        """One round of maintenance for whoever calls it from time to time: a job of
        cron or of a queue. For all tenants of the stores.

        It begins nothing new once `budget` is over (a `timedelta`, seconds, or text
        such as "30s"), and changes at most `rate` records a second. In the report
        `more` says that something is left, with which the next call of this memory goes
        on. Of several at once, anywhere, one does it: `ran` tells. A process that lives
        for maintenance alone is `memory worker`.
        """
        if rate is not None and real("rate", rate) <= 0:
            raise InvalidInput("rate", "must be greater than 0")
        return await self._engine.maintain(Allowance(length("budget", budget), rate))

    # -- shared ------------------------------------------------------------------------

    @classmethod
    def _over(cls, access: Access) -> Self:
        memory = cls.__new__(cls)
        memory._access = access
        return memory

    @property
    def _engine(self) -> Engine:
        return self._access.engine
