"""`Memory`, the entry point. It checks every argument before it calls a store."""

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
from memory.domain.entry import Entry, EntryDraft, check_patch
from memory.domain.errors import ConfigError, ForkedProcess, InvalidInput
from memory.domain.maintenance_reports import SweepReport
from memory.domain.scope import Scope, Subtree
from memory.domain.search_results import EntryPage, MixedResult, SearchResult
from memory.domain.session import DeletedEntry, FoundMessages
from memory.facade.arguments import (
    UNSET,
    EntryData,
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
from memory.facade.resources.documents import Documents
from memory.facade.resources.entries import Entries
from memory.facade.resources.relations import Relations
from memory.facade.resources.scopes import ScopeListing
from memory.facade.resources.scratchpads import Scratchpads
from memory.facade.resources.session import Session
from memory.facade.resources.sessions import Sessions
from memory.facade.resources.short_ids import ShortIds
from memory.facade.runtime.access import (
    BROWSE_LIMIT,
    MAX_QUERY_BYTES,
    RETRIEVE_LIMIT,
    SEARCH_LIMIT,
    Access,
    Scopes,
)
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
from memory.facade.runtime.own_loop import OWN, LoopBound
from memory.facade.runtime.request_ids import request_about
from memory.facade.runtime.store_paths import check_stores_used, on_the_default_file
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.scoped import ScopedMemory
from memory.facade.search_options import (
    BrowseOptions,
    Include,
    RetrieveOptions,
    SearchOptions,
    least_relevance,
    search_mode,
    split_search,
)
from memory.facade.session_options import SessionOptions
from memory.facade.session_options import draft_of as session_draft
from memory.facade.write_options import EntryPatch, IfExists, WriteMode, WriteOptions, split_options
from memory.orchestrator.conversations.sessions import OWNER
from memory.orchestrator.conversations.window.reads import reads_of_caller
from memory.orchestrator.engine import Engine
from memory.orchestrator.entries.derivation import SHARED, Callback
from memory.orchestrator.storage.budgets import Allowance
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.session_keys import message_time
from memory.orchestrator.trust.gates import RecallGate, WriteGate
from memory.policies.promotion import Policy
from memory.policies.window_exit import ELSEWHERE, WindowExitFunction
from memory.ports.advisor import Advisor, Prompt, Reranker
from memory.ports.clock import Clock, system_clock
from memory.ports.embedder import Embedder
from memory.ports.query import Condition, Eq, Ge, Le, all_of
from memory.ports.tokens import TokenCounter

EmbedFunction = Callable[[Sequence[str]], Any]
"""Map texts to vectors: one sequence of numbers for each text.

It may be async. A function that is not async runs in a thread.
"""

AdviseFunction = Callable[[Prompt], Any]
"""Map a prompt to the answer of a model.

It may be async. A function that is not async runs in a thread.
"""

ScoreFunction = Callable[[str, Sequence[str]], Any]
"""Map a question and texts to scores: one number for each text.

It may be async. A function that is not async runs in a thread.
"""

CountFunction = Callable[[str], int]
"""Map a text to its number of tokens."""

NOUNS = {
    "entries": Entries,
    "relations": Relations,
    "short_ids": ShortIds,
    "sessions": Sessions,
    "scratchpads": Scratchpads,
    "scopes": ScopeListing,
    "documents": Documents,
    "artifacts": Artifacts,
    "commands": Commands,
    "admin": Admin,
}
"""The resources of a memory, by property. They hold the less frequent calls."""

log = logging.getLogger(__name__)


@guard_calls
@explain_guesses
class Memory(AsyncContext, LoopBound):
    """One tenant's memory over the configured stores; by default, one SQLite file.

        async with Memory() as memory:
            await memory.write("Ada prefers tea", scope=Scope.user("ada"))
            hits = await memory.search("what does Ada drink?", scope=Scope.user("ada"))

    Open it with `async with`, or with `open` and `close`. A scope may be passed as a
    `Scope` or as its text, such as `"user:ada"`. Less frequent calls are methods of
    `memory.entries`, `memory.relations`, `memory.short_ids`, `memory.sessions`,
    `memory.scratchpads`, `memory.documents`, `memory.artifacts`, `memory.commands` and
    `memory.admin`.

    Messages leave a window by a compaction, because `replace` or a provider drops them,
    or because the session ends. Messages that you exclude, clear, roll back or erase
    leave the window too, but `on_window_exit` does not receive them. The session's end
    and maintenance call the function; an append never does. If the function fails, it
    is called again. The entries of one answer are stored once, as soon as quotas have
    room for all of them. With `on_window_exit="elsewhere"` the messages wait for
    another process that has the function. Without `on_window_exit` no messages wait,
    and no entries are made.

    The advisor and the reranker receive questions and the results found for them. With
    `auto_tag` or `auto_supersede` they also receive the written entry and its nearest
    neighbours. The advisor and the reranker receive nothing else.

    Gates may be async, or block. If the write gate fails, or does not answer within
    `durations.deadline`, the entry is not written (`RejectedByGate`). If the recall
    gate fails or is late, the entry is not shown, and the result counts it in
    `withheld`.

    Args:
        config: A URL, the path of a SQLite file or of a `.toml` file, a mapping, or a
            `MemoryConfig`.
        tenant: The tenant; the configured one by default.
        embedder: A setting (`"wordllama"`, `"none"`, or
            `{"use": "folder", "path": ...}` for your own sentence encoder), an
            `Embedder`, or a function from texts to vectors.
        token_counter: Counts the tokens that messages cost a model: a configured name,
            a `TokenCounter`, or a function from a text to its tokens.
        on_window_exit: A function that derives entries from messages that leave the
            window of a session. It gets an `ExitedMessages`, may be async, and returns
            texts, drafts or arguments of `write`. The entries go to the session's user
            unless they name a scope. See above.
        advisor: A language model: an `Advisor`, or a function from a `Prompt` to text.
            Searches use it for `expand` and `rerank`, and writes for `auto_tag` and
            `auto_supersede`.
        reranker: Scores texts against a question: a `Reranker`, a function from both to
            numbers, or a separate `Advisor`.
        policies: Rules in Python. Each is an object with a `name` and
            `decide(record, facts, now)`, or the name of an installed policy; see
            `Policy`.
        write_gate: Checks every entry before it is written. It gets the draft and its
            `Provenance`, and returns True, a reason to refuse the draft, or changes to
            it. Gates do not check messages, documents and scratchpads.
        recall_gate: Checks every `Entry` before it is shown, and returns whether it may
            be.
        loop: `"own"` makes a memory that any event loop and any thread may call, also
            at once. Its calls run on a private loop in a thread, and so do the
            functions above. They must not call the memory: that raises
            `WrongEventLoop`. By default the memory belongs to the loop that opens it.
        **settings: Single values that override those of `config`.
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
        loop: Literal["own"] | None = None,
        **settings: Any,
    ) -> None:
        if loop is not None:  # `LoopBound` has taken loop="own" away
            raise ConfigError(
                "loop: must be passed to the class itself, not by the constructor of a subclass"
                if loop == OWN
                else f"loop: must be {OWN!r}, or omitted, not {str(loop)[:40]!r}"
            )
        if isinstance(embedder, str | Mapping):
            settings["embedder"] = embedder
        if isinstance(token_counter, str):
            settings["token_counter"] = token_counter
        if isinstance(policies, str) or not isinstance(policies, Sequence):
            raise ConfigError(
                f"policies: must be a list of policies, not {type(policies).__name__}. Pass policies=[…]"
            )
        if named := [one for one in policies if isinstance(one, str)]:
            settings["policies"] = named
        if tenant is not None:
            settings["tenant"] = tenant
        given = MemoryConfig.load(config, **settings)
        check_adapters(given)
        check_stores_used(given)
        embeds = None if embedder is None or isinstance(embedder, str | Mapping) else as_embedder(embedder)
        counts = (
            None if token_counter is None or isinstance(token_counter, str) else as_counter(token_counter)
        )
        if on_window_exit is not None and on_window_exit != ELSEWHERE and not callable(on_window_exit):
            raise ConfigError(
                f"on_window_exit: got {type(on_window_exit).__name__}. Pass a function that takes"
                f" `ExitedMessages` and returns entries, or '{ELSEWHERE}' if another process has the function"
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

        life = EngineLifecycle(build, given.engine.sweep_every, is_part=given.is_part)
        self._access = Access(given, life, given.tenant)

    @property
    def config(self) -> MemoryConfig:
        """The configuration of this memory."""
        return self._access.config

    @property
    def tenant(self) -> str:
        """The tenant that this memory belongs to."""
        return self._access.tenant

    @property
    def entries(self) -> Entries:
        """List all entries, read their versions, and end their validity."""
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
        """Create, find, list, end and delete sessions."""
        return Sessions(self._access)

    @property
    def scratchpads(self) -> Scratchpads:
        """Plain-text notes of agents."""
        return Scratchpads(self._access)

    @property
    def documents(self) -> Documents:
        """Documents: JSON or bytes under a key of a scope."""
        return Documents(self._access)

    @property
    def scopes(self) -> ScopeListing:
        """List the scopes that hold something."""
        return ScopeListing(self._access)

    @property
    def commands(self) -> Commands:
        """The `/mem` command language, for agents and chats."""
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
        **options: Unpack[SessionOptions],
    ) -> Session:
        """Return a handle to the conversation of one session. It calls no store.

        The first call on the handle creates the session with these arguments if there
        is none yet. Session ids are unique per tenant: use ids that cannot collide,
        such as `f"{user}/{name}"`.

        If the session exists with another `user`, `agent`, `namespace`, `system`,
        `title`, `tags`, `metadata` or `expires_at`, the first call raises
        `SessionOwnerMismatch`. An omitted argument accepts the stored value.
        `sessions.update` changes stored values.

        A session that was created with `shared=True` accepts every user, agent and
        namespace. Each handle recalls only entries that its own user may see. Facts
        learnt from a message belong to the user whose handle wrote the message, and
        `erase_user` of that user erases the message.

        Args:
            create: Create the session if there is none. Otherwise the first call raises
                `NotFound`.
            system: The text of the system message.
            expires_at: A moment, or a `timedelta` from the creation on.
            shared: Let callers that name another user, agent or namespace open the
                session.
        """
        draft = session_draft(validation.identifier("session_id", session_id), options)
        reads_of_caller()  # so that reads by the caller's child tasks count as its own
        return Session(self._access, draft, create=flag("create", create))

    @property
    def admin(self) -> Admin:
        """Erase, export, import, inspect, and maintain the stores."""
        return Admin(self._access)

    # -- life --------------------------------------------------------------------------

    async def open(self, *, reindex: bool = False) -> Self:
        """Connect to the stores and prepare them.

        Opening twice has no effect, and a failed open can be repeated. Calls that begin
        while `open` is under way wait for its end. While the memory is open,
        maintenance runs in the background every `durations.sweep_every`.

        The memory belongs to the event loop that opened it: on another loop its calls
        raise `WrongEventLoop`, unless it was made with `loop="own"`. On a memory that
        `for_tenant` returned, `open` only undoes its `close`.

        Args:
            reindex: Open stores that hold vectors of another embedder, and mark these
                vectors for `memory.admin.reindex`, which computes them anew with this
                embedder. Later opens do not need the argument.

        Raises:
            EmbedderMismatch: A store holds vectors of another embedder, and `reindex`
                is False.
        """
        await self._access.open(reindex=flag("reindex", reindex))
        return self

    async def close(self) -> None:
        """Release the stores.

        Closing twice has no effect. A closed memory can be opened again, and finds what
        it stored. The call works from any event loop.
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
                # A forked child that leaves the block by an error, such as SystemExit,
                # must end with that error.
                raise

    def __repr__(self) -> str:
        return f"<Memory tenant={self.tenant!r} {'open' if self._access.is_open else 'closed'}>"

    def for_tenant(self, tenant: str) -> Memory:
        """Return a memory over the same stores for another tenant.

        To close the stores, close the memory on which you called `for_tenant`. Closing
        the returned memory does not close them.
        """
        return Memory._over(self._access.for_tenant(tenant))

    def scoped(self, scope: Scope | str) -> ScopedMemory:
        """Return a view of one scope: the same calls without the `scope` argument."""
        return ScopedMemory(self._access, scope_of(scope))

    def restrict(
        self,
        scopes: Scope | Subtree | str | Sequence[Scope | Subtree | str] | None = None,
        *,
        role: Literal["reader", "writer"] | None = None,
        origin: str | None = None,
    ) -> Memory:
        """Return a view of this memory that has only some scopes, or only reads.

            ada = memory.restrict(["user:ada", "path:teams/red/**"], role="reader")

        Calls that name no scope cover the scopes of the view. A record outside of the
        view looks exactly like one that does not exist. Sessions are in the view if
        their user or their scope is, relations if both of their entries are. Ids of
        outside records are left out of entries.

        A view with `scopes` has no short ids, scratchpads, statistics and other calls
        for all of the tenant; a view with `role` alone keeps them. No view has calls
        for the stores, such as `admin.backup`, or reaches another tenant. A new session
        of a view with `scopes` needs a user of the view, and gets a new id.

        Views can be restricted further. To close the stores, close the memory; closing
        a view does not close them.

        Args:
            scopes: One scope or subtree, or several. All of the tenant's by default.
            role: `"reader"` refuses every call that changes something.
            origin: A source such as `"key:3kTMd9Xq"`, for servers. Every entry and
                message that the view writes or changes has it among its origins, and so
                have entries derived from these messages. Callers of the view can
                neither remove it nor name a source that begins with `key:` or `mcp:`.
                A view with an origin alone has all calls. The view of `key:ID` can be
                restricted to `mcp:ID`: that key, used over MCP.

        Raises:
            Forbidden: This is a view, and it has not all of `scopes`, or not the role,
                or another origin. Calls of the returned view raise it before any store
                is touched.
        """
        return Memory._over(self._access.restrict(scopes, role, origin))

    # -- writing -----------------------------------------------------------------------

    async def write(self, content: str = "", *, scope: Scope | str, **options: Unpack[WriteOptions]) -> Entry:
        """Store one entry, and return it as stored.

        The call returns once the entry's primary store has it. From then on, a search
        of this memory finds it. Searches of other processes find it lexically at once,
        and semantically some tens of milliseconds later, when its replica is delivered.

        A `key` names the entry within its scope, for `get`, `update` and `delete` too,
        and makes the write repeatable. The same key and content in the same scope
        return the first entry; other content raises `Conflict`. If the entry was
        deleted since, the write raises `Conflict` too, and the error says when it was
        deleted. An expired entry counts as absent.

        `if_exists` says what to do if the key has an active entry with other values.
        With `"replace"` the entry takes all values of this call, and fields that the
        call leaves out are cleared. With `"update"` only the given values change, and
        metadata are merged; the content may be left out. With `"keep"` the entry is
        returned as it is. In these modes a write that changes nothing makes no version,
        and a write under a deleted key creates a new entry. If the entry is retired,
        the write raises `Conflict`. `entries.history` lists the earlier versions. A
        late repeat of an old call overwrites newer values, unless you pass
        `expected_version` or `request_id`.

        A conversation's text goes into `content` as the speaker's own words, without
        the name. `conversation_id`, `number_in_conversation` and `speaker` say where it
        was said and by whom. The messages just before and after it help to find it.
        With a number or a speaker, `conversation_id` may name a conversation outside
        this memory. Without them, it must name an existing session.
        `browse(conversation=…)` lists the entries of a conversation. Deleting a session
        clears the id and the number of its entries (decision 066).

        `supersedes` links the new entry to the old ones (`supersedes`), and ends their
        validity when its own begins. All of them must be active; otherwise nothing is
        written. If one is retired meanwhile, the write raises `Conflict`. All of it is
        one transaction if one store that has transactions holds all of these entries.
        Otherwise the entry is written first, and the rest follows, at the latest by a
        sweep.

        `detect_conflicts=True` looks for active entries of the same scope and type that
        may repeat or contradict the text. `resolve(draft, entries)` decides about them:
        it returns `"keep"`, `"supersede"` or a `Resolution`. A `Resolution` can name
        some of the entries (`ids`), and its `"merge"` has a `content`. All entries stay
        active without `resolve`, and if it fails, takes longer than `durations.advice`,
        or returns anything else. Only entries that `resolve` was shown are retired, at
        the version shown. `entry.conflict_report` says what was found and done. With
        `supersedes` the write does not look for conflicts.

        With `auto_tag` the advisor adds up to four tags after the entry's own. With
        `auto_supersede` the advisor says which older entries the new one replaces. The
        advisor sees five entries of the same scope and type, found by the title. Only
        these entries are retired, at the version shown. This enrichment runs after the
        write and never delays it. A failed enrichment is tried again; if it fails for
        good, `enrichment` says why. Nothing is done without an advisor. With
        `supersedes` or `detect_conflicts`, the advisor supersedes nothing.

        Args:
            content: The text; it may be empty if there is a title or `data`.
            scope: Whom or what the entry belongs to, such as `"user:ada"`.
            type: The kind of knowledge, `"context"` by default; see `EntryType`.
            title: A short name, which weighs more in a search than the text.
            tags: Labels to filter and boost by.
            metadata: JSON of your own about the entry, to filter by.
            data: Structured content: an object or a list, up to 64 KiB of JSON. Filters
                compare it (`data.price`); searches do not find its words. Values that
                JSON lacks, such as dates, UUIDs, decimals, enums, dataclasses and
                pydantic models, are stored as JSON, as in `metadata`.
            vector: Your own embedding of the entry, in place of the embedder's. It has
                as many numbers as the embedder's vectors, and is scaled to length 1.
                It stays until you change the text without giving a vector. A reindex
                keeps it if its length fits the new embedder.
            searchable: False keeps the entry out of searches, by words and by vectors.
                It is read, listed and exported like others. A search with a blank
                query lists it.
            source: Where the content comes from.
            confidence: A number from 0 to 1, for promotion rules with
                `confidence_at_least`. It is stored in `metadata["confidence"]`, and
                `entry.confidence` returns it.
            created_at: Sets the moments of creation and update and the start of
                validity.
            expires_at: A moment, or a `timedelta` from the write on. The entry is
                hidden from then on. A sweep deletes it 24 hours later
                (`durations.expired_grace`; zero keeps it for ever).
            refresh_on_read: Begin the time of `expires_at`, a `timedelta`, anew
                whenever `get`, `get_many` or `search` returns the entry, and when it is
                changed. A read keeps the version. Lists and reads of the past do not
                count.
            artifact_id: A file of a session (`memory.artifacts`). If it does not exist,
                nothing is written. Deleting the artifact clears the field.
            agent: The agent that writes the entry.
            run: The run that writes the entry.
            origins: What else the entry was made of (`"source:web:example.com"`).
                `memory.admin.block_source` finds entries by origins, `source`, `agent`
                and `run`.
            key: Makes the write repeatable within its scope; see above.
            if_exists: What to do if the key has an entry: `"error"`, the default,
                `"update"`, `"replace"` or `"keep"`; see above.
            expected_version: Write only if the entry under the key still has this
                `version`; this needs `if_exists` `"update"` or `"replace"`. With
                `ABSENT`, write only if there is no entry.
            revive: Let the key of a deleted entry start afresh. It needs a key.
            consistency: `"replicated"` returns once the replica is stored too, unless
                its store does not answer. By default as configured.
            supersedes: The id of an active entry that this one replaces, or up to 32
                ids.
            auto_tag: As configured in `[enrichment]` by default; `auto_supersede` too.
            request_id: Your id for this request, 1 to 255 bytes. If the call is cut
                off, make it again with the same id within 24 hours. It stores nothing
                twice, and returns the first result.

        Raises:
            Conflict: The key holds other content or a deleted entry, or an entry that
                would be superseded was retired meanwhile. Or `request_id` was used for
                another request, or the entry that this request stored is gone.
            VersionConflict: The entry under the key has another version than
                `expected_version`, or there is none. Nothing was written.
            RejectedByGate: The write gate or a blocked source refused the entry.
        """
        draft, mode = split_options(scope_of(scope), content, options)
        return await self._access.write(draft, mode)

    async def write_with_report(
        self,
        content: str = "",
        *,
        scope: Scope | str,
        wait: timedelta | float | str | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Write one entry as `write` does, and report what was done for it.

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
        """Return the result of an entry's enrichment; retired entries have one too.

        The advisor may have retired an older entry wrongly. To bring it back, delete it
        and write it again: `(await entries.history(id))[-1]` returns its content,
        `delete(id)` removes it with its link, and `write` stores it anew.

        Returns:
            The enrichment. It is empty if none was requested.

        Raises:
            NotFound: There is no such entry.
        """
        wanted = id_of(entry_id)
        await self._access.require_entries([wanted])
        return (await self._access.engine.enricher.load_enrichment(self.tenant, wanted))[1]

    async def write_many(
        self,
        drafts: Iterable[EntryDraft | Mapping[str, Any]],
        *,
        revive: bool = False,
        if_exists: IfExists = "error",
        consistency: Consistency | None = None,
        request_id: str | None = None,
    ) -> list[Entry]:
        """Store many entries, in order. All drafts are checked before any is stored.

        Drafts are stored 500 at a time, those with another `if_exists` too. A mapping
        with other arguments about how to write, such as `supersedes`, is stored alone,
        in its place. If a store fails, the earlier batches are kept. If all drafts have
        keys, the whole call can be repeated.

        Args:
            drafts: Drafts, or mappings with the arguments of `write`.
            revive: As in `write`, for all drafts with a key that do not say otherwise.
            if_exists: As in `write`, for all drafts that do not say otherwise.
            consistency: As in `write`, for all drafts that do not say otherwise.
            request_id: As in `write`, for the whole call. A mapping may have one of its
                own instead.

        Returns:
            The entries as stored, in the order of the drafts.

        Raises:
            PartialWrite: Drafts conflict under their keys. All others are stored. The
                error, a `Conflict`, names the conflicting drafts and holds the stored
                entries.
            QuotaExceeded: Entries would exceed a quota. New ones that are stored
                together are counted before. The error has in `written` what is stored.
        """
        mode: WriteMode = {
            "revive": revive,
            "if_exists": if_exists,
            "consistency": consistency,
            "request_id": request_id,
        }
        return await self._access.write_many(drafts, mode)

    async def update(
        self,
        entry_id: str | None = None,
        *,
        scope: Scope | str | None = None,
        key: str | None = None,
        **options: Unpack[EntryPatch],
    ) -> Entry:
        """Change an active entry. Arguments that are left out change nothing.

        `entries.history` keeps the version before. If the entry has all given values
        already, its version stays.

        Args:
            entry_id: The id of the entry.
            scope: With `key`, names the entry instead of its id.
            key: The key of the entry in `scope`.
            source: Where the change comes from. The source, agent and run that are
                replaced stay among the entry's origins.
            agent: Who makes the change.
            run: The run that makes the change.
            origins: What else the change was made of.
            tags: Replace the entry's tags.
            metadata: Merged into the entry's metadata.
            data: Replaces the entry's data as a whole. None clears it.
            vector: Replaces the entry's vector. None, or a new text without a vector,
                brings back the embedder's.
            searchable: Whether searches find the entry. False drops a vector of yours.
            artifact_id: None clears it.
            expires_at: None clears it. Reads do not move a new expiry unless
                `refresh_on_read=True` is passed with it.
            refresh_on_read: As in `write`. False leaves the expiry where it is now.
            expected_version: Change the entry only if this is still its `version`.
            request_id: As in `write`. A repeat returns the version that the first call
                made.
            consistency: As in `write`.

        Raises:
            Conflict: `request_id` was used for another request.
            NotFound: The entry is unknown, expired or retired. Or the version that an
                earlier call of this request made is gone.
            VersionConflict: The entry has another version than the expected one.
            TooMuchContention: Other writers kept changing the entry for all of
                `durations.deadline`.
        """
        return await self._access.update(self._access.entry_id(entry_id, scope, key), options)

    async def delete(
        self,
        entry_id: str | None = None,
        *,
        scope: Scope | str | None = None,
        key: str | None = None,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> DeletedEntry:
        """Delete an entry with its kept versions and relations.

        Entries that were derived from it automatically are deleted too: copies by
        promotion rules, and notes of an advisor about it. Copies by `promote` and
        results of `compact` stay.

        Args:
            entry_id: The id of the entry.
            scope: With `key`, names the entry instead of its id.
            key: The key of the entry in `scope`.
            expected_version: Delete the entry only if this is still its `version`.
            request_id: As in `write`.

        Returns:
            A true value if there was an entry; deleting again is no error. Its `kept`
            lists the ids of the entries that were made of this one and stay.

        Raises:
            Conflict: `request_id` was used for another request.
            LegalHoldActive: The entry is under legal hold.
            VersionConflict: The entry has another version than the expected one, or
                there is no entry.
        """
        deleted = self._access.entry_id(entry_id, scope, key)
        return await self._access.delete(deleted, expected_version, request_id)

    # -- reading -----------------------------------------------------------------------

    async def get(
        self,
        entry_id: str | None = None,
        *,
        scope: Scope | str | None = None,
        key: str | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
        include: Include | None = None,
    ) -> Entry | None:
        """Return one entry, or None if none is visible.

        Args:
            entry_id: The id of the entry.
            scope: With `key`, names the entry instead of its id.
            key: The key of the entry in `scope`.
            as_of: Return the entry as it was true at this moment, even if it was
                retired since.
            known_at: Return the version that was stored at this moment, before later
                edits. An entry is known from its `updated_at` on. If it was given a
                `created_at`, it is known from the moment of the write on.
            include: As in `search`.

        Returns:
            The entry. Its `artifact` describes the artifact that it points to, as it is
            now.
        """
        wanted = self._access.entry_id(entry_id, scope, key)
        return await self._access.get(wanted, scope, as_of=as_of, known_at=known_at, include=include)

    async def get_many(
        self,
        entry_ids: Sequence[str] | None = None,
        *,
        scope: Scope | str | None = None,
        keys: Sequence[str] | None = None,
        include: Include | None = None,
    ) -> list[Entry | None]:
        """Return several entries, by their ids or by their keys in one scope.

        Args:
            entry_ids: At most 1,000 ids.
            scope: With `keys`, names the entries instead of their ids.
            keys: At most 1,000 keys of entries in `scope`.
            include: As in `search`.

        Returns:
            The entries in the order of the ids or keys; None for each that is not
            visible. Their `artifact` is None, as in lists.
        """
        wanted = self._access.entry_ids(entry_ids, scope, keys)
        return await self._access.get_many(wanted, scope, include=include)

    async def retrieve(self, scope: Scopes, **options: Unpack[RetrieveOptions]) -> EntryPage:
        """List the entries of a scope by age; 20 by default.

        The list's `cursor` asks for the next page of the same question; it is None at
        the end. No entry is missing or repeated, even if others write between the
        pages. With a filter that a store does not apply as a whole, a page may end
        early: it then has fewer entries, a cursor, and a note in `degraded`.

        Args:
            tags: The entry has all of these tags.
            any_tags: The entry has at least one of these tags.
            types: The entry has one of these types.
            metadata: The entry's metadata has each of these keys with exactly this
                value.
            filter: Any other condition, as a `Filter` or a dict such as
                `{"metadata.price": {"$gt": 3}}`.
            since: The entry was created at or after this moment.
            before: The entry was created before this moment.
            include_narrower: With a user's scope, list the entries of the session
                `session_id` too.
            session_id: A session of the user; it needs `include_narrower`. With
                `include_narrower=False` its entries are left out.
            as_of: List the entries that were valid at this moment.
            known_at: List the versions that were stored at this moment.
            cursor: The cursor that the previous page returned.
            include: As in `search`.

        Returns:
            The entries. `degraded` names tiers that could not be read. Their entries
            are on no later page either, so ask for this page again.

        Raises:
            StoreUnavailable: No store that was asked answered.
        """
        asked = self._access.entry_query(scope, unless_told=RETRIEVE_LIMIT, **options)
        return await self._access.browse(asked)

    async def browse(self, scope: Scopes | None = None, **options: Unpack[BrowseOptions]) -> EntryPage:
        """List the active entries of the tenant, or of scopes, by their last change.

        The newest come first, ties by id. All tiers are listed, and each entry comes
        once.

        The list's `cursor` asks for the next page of the same question, with any limit;
        it is None at the end. An entry that nobody edits or deletes meanwhile is shown
        exactly once, even if others are written or many entries changed at one moment.
        An entry that is edited meanwhile moves to the beginning of the list. It may be
        missing from the later pages, but is never shown twice. Moving to another tier
        and being read do not count as changes.

        Args:
            scope: One scope or several; all of the tenant by default.
            conversation: Only entries with this `conversation_id`, and entries without
                a `conversation_id`.
            types: The entry has one of these types.
            tags: The entry has all of these tags. They are compared as a whole and
                exactly.
            filter: As in `retrieve`.
            since: The entry was created at or after this moment.
            updated_before: The entry was last changed before this moment.
            as_of: As in `retrieve`.
            known_at: As in `retrieve`.
            include_retired: List entries whose validity has ended too. It cannot be
                combined with `as_of` or `known_at`.
            limit: At most 1,000; 50 by default.
            cursor: The cursor that the previous page returned.
            include: As in `search`.

        Returns:
            The entries. `degraded` names tiers that could not be read. Their entries
            are on no later page either, so ask for this page again.

        Raises:
            InvalidInput: The cursor is damaged or belongs to another question.
            StoreUnavailable: No store that was asked answered.
        """
        asked = self._access.entry_query(
            scope, unless_told=BROWSE_LIMIT, along="updated_at", anywhere=scope is None, **options
        )
        return await self._access.browse(asked)

    @overload
    async def search(
        self,
        query: str,
        *,
        scope: Scopes,
        messages: Literal[False] = False,
        **options: Unpack[SearchOptions],
    ) -> SearchResult: ...

    @overload
    async def search(
        self,
        query: str,
        *,
        scope: Scopes,
        messages: Literal[True],
        **options: Unpack[SearchOptions],
    ) -> MixedResult: ...

    @overload
    async def search(
        self,
        query: str,
        *,
        scope: Scopes,
        messages: bool,
        **options: Unpack[SearchOptions],
    ) -> SearchResult | MixedResult: ...

    async def search(
        self,
        query: str,
        *,
        scope: Scopes,
        messages: bool = False,
        **options: Unpack[SearchOptions],
    ) -> SearchResult | MixedResult:
        """Return the entries that answer best, of one scope or several.

        `mode` says how entries are found: by shared words (`"lexical"`), by embeddings
        (`"semantic"`) or by both (`"hybrid"`). The query is plain text, never syntax.

        `boost` raises matching entries among results with nearly equal scores. It
        removes no entry, unless the query is blank (see below).
        `boost={"types": ["user"], "tags": ["home"]}` raises entries of the type, and
        entries with the tag. `boost["conversation_id"]` raises entries of that
        conversation. `filter` removes entries that do not match.
        `filter={"types": ["user"], "tags": ["home"]}` finds only entries of the type
        that have the tag. `filter={"metadata.price": {"$gt": 3}}`, or a `Filter`,
        compares metadata, data and fields of entries.

        Without `boost["types"]` the search raises the types that the question itself
        seems to ask for, unless `intent` is False. Other boosts and filters do not
        change this. Older entries count less, unless `age_decay` is False.

        A hit's `score` is the sort key of one search and does not compare across
        searches. Its `relevance`, from 0 to 1, does.

        A blank query lists entries by their last change, without scores. In such a
        search, and in no other, `boost` is a filter. It leaves out entries without its
        types and tags, and entries with another conversation than
        `boost["conversation_id"]`.

        Args:
            limit: At most this many hits; 10 by default.
            min_relevance: Leave out hits below this relevance. It needs a query.
            half_life: A `timedelta` or days; 90 days by default. The score of an entry
                older than 30 days is multiplied by 0.9. If it is older than one, two or
                four half-lives, the factor is 0.75, 0.6 or `decay_floor`.
            decay_floor: The smallest factor for age; 0.5 by default.
            explain: Fill `hit.explanation` and the result's `left_out`.
            expand: Search two paraphrases by the advisor too.
            rerank: Let the reranker, or else the advisor, order the best 25 or more.
                With `"two-stage"` the advisor then looks closer at the best eight. A
                failing or late advisor changes nothing and is named in `degraded`.
            vector: Find the entries nearest to this vector, in place of the query's own
                embedding. With a blank query, or with `mode="semantic"`, the search is
                by this vector alone: it finds every entry with a vector, ordered by the
                cosine. It cannot be combined with `expand` or `mode="lexical"`.
            messages: Find messages too (`FoundMessage`): with a scope `session:ID`,
                those of that session; with a scope `user:ID`, those of all sessions
                with that user. Messages and entries share one order and one limit.
                Filters other than `since` and `before` leave messages out, and so do
                `as_of`, `known_at` and a blank query.
            include: The parts that the entries have: any of `"content"`, `"metadata"`
                and `"data"`; all by default, and none of them with `[]`. All other
                fields are there always. `entry.left_out` names the missing parts, and
                reading one raises `AttributeError`. Filters, gates and advisors see
                whole entries, and messages are whole.

        Returns:
            The hits, best first. `degraded` names tiers that could not be searched. It
            also says if the search stopped after its best 10,000 candidates, because
            fewer than `limit` of them passed the filter.

        Raises:
            InvalidInput: `mode="semantic"` or a vector without an embedder; a vector of
                another length than the embedder's; `min_relevance` in a
                mode other than `"lexical"` with an embedder that has no calibration
                (`relevance` is None there).
            StoreUnavailable: No store that was asked answered.
        """
        preferred, others = split_search(options)
        return await self._access.search(query, scope, preferred=preferred, messages=messages, **others)

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
        """Return the messages that answer best, from all sessions of the tenant.

        At most 10 are returned by default. Compacted messages are found; excluded
        messages and results of tools are not. Messages are ranked as entries are. The
        messages beside them, the speaker and the time count too.

        The query is plain text, never syntax. `mode` says how messages are found: by
        shared words (`"lexical"`), by embeddings (`"semantic"`) or by both
        (`"hybrid"`). Messages of another process are found lexically at once, and
        semantically a few seconds later.

        Args:
            user: Search only sessions of this user.
            agent: Search only sessions of this agent.
            namespace: Search only sessions of this namespace.
            since: The message was said at or after this moment.
            until: The message was said at or before this moment.
            min_relevance: Leave out messages below this relevance, from 0 to 1.

        Raises:
            InvalidInput: `mode="semantic"`, and messages have no vectors
                (`conversations.meaning`). Without vectors, `"hybrid"` is lexical.
        """
        given = {"user": user, "agent": agent, "namespace": namespace}
        asked: list[Condition | None] = [
            Eq(OWNER[name], validation.identifier(name, value))
            for name, value in given.items()
            if value is not None
        ]
        asked += [None if (at := moment("since", since)) is None else message_time(Ge, at)]
        asked += [None if (at := moment("until", until)) is None else message_time(Le, at)]
        text, most = (
            validation.text("query", query, max_bytes=MAX_QUERY_BYTES),
            validation.whole_limit(limit, default=SEARCH_LIMIT),
        )
        checked, least = search_mode(mode), least_relevance(min_relevance)
        return await self._access.search_messages(all_of(*asked), text, most, checked, least)

    # -- derived -----------------------------------------------------------------------

    async def promote(
        self,
        entry_id: str,
        to: Scope | str,
        *,
        content: str = UNSET,
        tags: Sequence[str] = UNSET,
        metadata: Metadata = UNSET,
        data: EntryData | None = UNSET,
        delete_original: bool = False,
        consistency: Consistency | None = None,
        request_id: str | None = None,
    ) -> Entry:
        """Copy an entry into a broader scope. Repeating the call returns the same copy.

        Args:
            to: The scope of the copy.
            content: Replaces the content in the copy. `tags` and `data` work alike. The
                copy has the data of the entry otherwise.
            metadata: Merged over the metadata of the entry.
            delete_original: Delete the entry once the copy can be read.
            consistency: As in `write`. With `delete_original` the call waits for
                everything.
            request_id: As in `write`.

        Raises:
            InvalidScopePromotion: An entry of this scope cannot be promoted to `to`.
            Conflict: The entry was promoted before with other overrides. Or
                `delete_original` is set, and the entry was edited since it was copied,
                or its copy is expired or retired.
        """
        given = {"content": content, "tags": tags, "metadata": metadata, "data": data}
        overrides = check_patch({name: value for name, value in given.items() if value is not UNSET})
        source, target, waits = id_of(entry_id), scope_of(to), consistency_of(consistency)
        deletes = flag("delete_original", delete_original)
        asked = {"to": target.text, "changes": overrides, "delete_original": deletes}
        request = request_about("promote", request_id, asked, source)

        async def promote(mark: RequestMark | None) -> Entry:
            await self._access.require_entries([source])
            return await self._access.engine.derivation.promote(
                self.tenant,
                source,
                target,
                overrides=overrides,
                delete_original=deletes,
                consistency=waits,
                request=mark,
                origins=self._access.signature,
            )

        return await self._access.once_for_entry(request, promote)

    async def compact(
        self,
        entry_ids: Sequence[str],
        callback: Callback,
        *,
        target_scope: Scope | str | None = None,
        tags: Sequence[str] | None = None,
        metadata: Metadata | None = None,
        data: EntryData | None = UNSET,
        delete_sources: bool = False,
        consistency: Consistency | None = None,
        request_id: str | None = None,
    ) -> Entry:
        """Make one entry from several entries of one scope.

        Searches find it if they find all of its sources.

        Args:
            callback: Gets copies of the entries and returns the text, or awaits it.
            target_scope: The scope of the sources; no other is accepted.
            tags: The tags of the new entry. By default the tags of the sources are
                united.
            metadata: Merged over the metadata of the sources. Of these the first value
                of a key wins. If the merged metadata exceed the limits of an entry,
                this argument is taken alone.
            data: The data of the new entry, or None for none. By default it has the
                data that its sources share.
            delete_sources: Delete the entries afterwards.
            consistency: As in `write`. With `delete_sources` the call waits for
                everything.
            request_id: As in `write`. A repeat does not call the callback again once
                the entry is stored.

        Raises:
            CompactionError: The callback failed, or the entries cannot be compacted.
                Nothing has changed. The callback is not called if the united tags or
                merged metadata exceed the limits of an entry (32 tags, 64 KiB). Nor is
                it if the sources have different data. Pass `tags`, `metadata` or
                `data`.
        """
        patch = check_patch({n: v for n, v in (("tags", tags), ("metadata", metadata)) if v is not None})
        patch |= {} if data is UNSET else check_patch({"data": data})
        sources, calls = ids_of(entry_ids), function("callback", callback)
        within = None if target_scope is None else scope_of(target_scope)
        deletes, waits = flag("delete_sources", delete_sources), consistency_of(consistency)
        asked = {"to": None if within is None else within.text, "changes": patch, "delete_sources": deletes}
        request = request_about("compact", request_id, asked, *sources)

        async def compact(mark: RequestMark | None) -> Entry:
            await self._access.require_entries(sources)
            return await self._access.engine.derivation.compact(
                self.tenant,
                sources,
                calls,
                target_scope=within,
                tags=patch.get("tags"),
                metadata=patch.get("metadata"),
                data=patch.get("data", SHARED),
                delete_sources=deletes,
                consistency=waits,
                request=mark,
                origins=self._access.signature,
            )

        return await self._access.once_for_entry(request, compact)

    # -- upkeep ------------------------------------------------------------------------

    async def maintain(
        self, *, budget: timedelta | str | float = "30s", rate: float | None = None
    ) -> SweepReport:
        """Run one round of maintenance, for all tenants of the stores.

        Call it from time to time, from cron or from a job queue. `memory worker` is a
        process that does only maintenance.

        Args:
            budget: Begin nothing new after this time: a `timedelta`, seconds, or text
                such as "30s".
            rate: Change at most this many records a second.

        Returns:
            The report. `more` says that work is left; the next call of this memory goes
            on with that work. Only one caller at a time runs maintenance, in all
            processes; `ran` says whether this call did.
        """
        if rate is not None and real("rate", rate) <= 0:
            raise InvalidInput("rate", f"must be greater than 0, not {rate}. Omit it to set no limit")
        allowance = Allowance(length("budget", budget), rate)
        return await self._access.engine.maintain(allowance)

    # -- shared ------------------------------------------------------------------------

    @classmethod
    def _over(cls, access: Access) -> Self:
        memory = cls.__new__(cls)
        memory._access = access
        return memory

    @property
    def _engine(self) -> Engine:
        """The engine, for scripts that look beneath the facade."""
        return self._access.engine
