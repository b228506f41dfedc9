"""`MemoryManager`: several named stores, used by an agent as one memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Self, TypeAlias, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from memory.agents.manager.extraction import Model
from memory.agents.manager.gates import StoreGates, StoreRecallGate, StoreWriteGate
from memory.agents.manager.injection import Injection
from memory.agents.manager.recording import Attachment, Recording
from memory.agents.manager.spans import span
from memory.agents.manager.spool import Buffer, Log, drop_delivered, waiting_sessions
from memory.agents.manager.stores import NamedStore, content_of
from memory.agents.manager.tools import (
    AddTool,
    SearchTool,
    Tool,
    distinct,
    parameters,
    tool_description,
    tool_name,
)
from memory.domain import validation
from memory.domain.agent_results import StoreEntry
from memory.domain.conflicts import ConflictReport
from memory.domain.corrections import explain_guesses
from memory.domain.errors import ForkedProcess, InvalidInput, StoreAddFailure
from memory.domain.provenance import UNSAID, Provenance
from memory.domain.shapes.tools import ToolFormat
from memory.facade.arguments import Metadata, flag
from memory.facade.memory import Memory
from memory.facade.resources.session import Session
from memory.facade.runtime.access import MAX_QUERY_BYTES, access_of
from memory.facade.runtime.async_context import AsyncContext
from memory.facade.runtime.own_loop import LoopBound
from memory.facade.write_options import check_resolver
from memory.orchestrator.enrichment.conflicts import Resolver
from memory.ports.concurrency import each_at_once, outcomes_at_once

log = logging.getLogger(__name__)

T = TypeVar("T")
_Name: TypeAlias = tuple[bool, str]
_CAME_OF: ContextVar[Provenance | None] = ContextVar("came_of", default=None)
"""Provenance of the running `dispatch` call. No tool argument carries it."""

MOST_ENTRIES = 100
"""The maximum number of entries that one call of the add tool accepts."""
NAMESPACE = "extraction"
"""The namespace of sessions that hold messages until every store has them."""
CLOSES_WITHIN = timedelta(seconds=30)
"""How long `close` waits for the stores, unless its caller says otherwise."""
CANCELS_WITHIN = 1.0
"""Seconds in which cancelled work must end. Then nothing waits for it any more."""
KEPT = timedelta(days=7)
"""How long a fully delivered session of a dead process is kept."""


@explain_guesses
class MemoryManager(AsyncContext, LoopBound):
    """Named stores as one memory for an agent.

        ada = NamedStore("ada", memory.scoped("user:ada"), writable=True)
        async with MemoryManager([ada], add_tool=True) as manager:
            messages = await manager.inject(messages)
            answer = await model(messages, tools=manager.schemas("openai"))
            result = await manager.dispatch("search_memory", {"query": "tea"})

    The caller owns the stores: the manager neither opens nor closes them.

    Args:
        stores: At least one store. Names must be distinct.
        search_tool: On by default. False turns it off; a `SearchTool` configures it.
        add_tool: Off by default. True or an `AddTool` turns it on.
        injection: On with its defaults. False turns it off; an `Injection` configures
            it.
        memory: Holds recorded messages until every store with `extraction` has them.
            See `record`.
        model: Reads messages for stores that have no model of their own.
        attributes: Attributes of the agent, set on every span.
        provenance: Says who writes. Everything added by a tool or by extraction carries
            it, and no tool argument changes it.
        write_gate: Like the write gate of a `Memory`, but called with `StoreEntry`s of
            any store. It checks single texts from tools, `add` and extraction. Messages
            that a store takes unchanged are not checked.
        recall_gate: Like the recall gate of a `Memory`, but called with `StoreEntry`s
            of any store.
        detect_conflicts: Whether writes to a scope of a memory look for conflicts, as
            `Memory.write` does.
        resolve: Decides about the conflicting entries. Without it all of them stay.
    """

    _blocking = "BlockingMemoryManager"

    def __init__(
        self,
        stores: Sequence[NamedStore],
        *,
        search_tool: bool | SearchTool = True,
        add_tool: bool | AddTool = False,
        injection: bool | Injection = True,
        memory: Memory | None = None,
        model: Model | None = None,
        attributes: Mapping[str, str] | None = None,
        provenance: Provenance = UNSAID,
        write_gate: StoreWriteGate | None = None,
        recall_gate: StoreRecallGate | None = None,
        detect_conflicts: bool = True,
        resolve: Resolver | None = None,
    ) -> None:
        self._stores = {store.name: store for store in _check_stores(stores)}
        self._attributes = dict(attributes or {})
        self._detect_conflicts, self._resolve = flag("detect_conflicts", detect_conflicts), resolve
        check_resolver(resolve, detects=detect_conflicts)
        self._injection = _setting("injection", injection, Injection)
        self._own_tools = self._make_tools(
            _setting("search_tool", search_tool, SearchTool), _setting("add_tool", add_tool, AddTool)
        )
        self._tools: list[Tool] | None = None
        self._opening = asyncio.Lock()
        self._initialized = set[str]()
        self._behind: set[asyncio.Task[None]] = set()
        if memory is not None and not isinstance(memory, Memory):
            raise InvalidInput("memory", f"must be a Memory, not {type(memory).__name__}")
        self._memory = memory
        self._model = model
        self._provenance = _provenance(provenance)
        self._gates = StoreGates(write_gate, recall_gate)
        self._learning = [store for store in self.stores if store.learns is not None]
        self._recordings: dict[_Name, Recording] = {}
        self._turns: WeakValueDictionary[_Name, asyncio.Lock] = WeakValueDictionary()
        """Locks by recording. While its session is deleted, no recording begins."""
        self._resuming: set[_Name] = set()
        """Recordings that only `resume` asked for. It ends them."""

    def __repr__(self) -> str:
        return f"<MemoryManager of {', '.join(self._stores)}>"

    @property
    def stores(self) -> list[NamedStore]:
        """The stores, in order."""
        return list(self._stores.values())

    @property
    def injection(self) -> Injection | None:
        """How memory is shown to a model; None if injection is off."""
        return self._injection

    async def open(self) -> None:
        """Initialize the stores in their order, each once, and collect their tools.

        An error of a store is raised. Opening again continues with that store.
        """
        self._check_process()
        async with self._opening:
            if self._tools is not None:
                return
            if (least := None if self._injection is None else self._injection.min_relevance) is not None:
                for store in self.stores:
                    await store.check_relevance(least)
            for store in self.stores:
                if store.can("initialize") and store.name not in self._initialized:
                    await store.call("initialize")
                    self._initialized.add(store.name)
            more = [
                tool
                for store in self.stores
                if store.can("get_tools")
                for tool in await store.call("get_tools")
            ]
            self._tools = distinct([*self._own_tools, *more])
        if self._memory is not None:
            self._run_behind(self._try_resume(), "messages of earlier processes")

    async def close(self, *, within: timedelta = CLOSES_WITHIN) -> None:
        """Deliver pending messages to the stores, and wait for background writes.

        The stores stay open: the caller owns them. A store that hangs does not hold up
        the others. Work that has not ended in time is cancelled, and a warning in the
        log names it. Messages that a store did not get then wait in the session, and a
        later manager delivers them. Without a session and a memory they are lost.

        Args:
            within: How long to wait at most.
        """
        self._check_process()
        if not isinstance(within, timedelta) or within < timedelta(0):
            raise InvalidInput("within", f"must be a timedelta of zero or more, not {within!r}")
        loop = asyncio.get_running_loop()
        until = loop.time() + within.total_seconds()
        closing = {loop.create_task(one.close()): one for one in list(self._recordings.values())}
        try:
            if closing:
                await asyncio.wait(closing, timeout=within.total_seconds())
            await self._drain(until)
        finally:
            late = [
                f"run '{one.run_id}' to {_stores_in_words(one._busy_stores)}"
                for task, one in closing.items()
                if not task.done()
            ]
            late += [task.get_name() for task in self._behind]
            left = [task for task in (*closing, *self._behind) if not task.done()]
            for task in left:
                task.cancel()
        if left:
            log.warning(
                "the memory manager was closed, and this had not ended after %g s: %s. Messages that were not"
                " delivered wait in their sessions",
                within.total_seconds(),
                "; ".join(late),
            )
            await asyncio.wait(left, timeout=CANCELS_WITHIN)
        for task in closing:
            if task.done() and not task.cancelled():
                task.result()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- searching and adding ----------------------------------------------------------

    async def search(
        self, query: str, *, stores: Sequence[str] | None = None, limit: int | None = None
    ) -> list[StoreEntry]:
        """Search the named stores, or all of them, at the same time.

        The results of each store follow those of the store before it, in the order of
        `stores`, or else in configured order. They are not ranked across stores, and
        duplicates remain. A store that fails is logged and left out.

        Args:
            query: The text to search for.
            stores: Names of stores. None means all; an empty list finds nothing.
            limit: The maximum number of results per store. Without it the store's own
                limit applies, or 3.

        Returns:
            The results, each with the name of its store.

        Raises:
            InvalidInput: For an unknown name, before any store is searched.
        """
        self._check_process()
        text = validation.text("query", query, max_bytes=MAX_QUERY_BYTES)
        if limit is not None:
            validation.whole_limit(limit, default=1)
        named = self.stores if stores is None else [self._get_store(name) for name in _names(stores)]
        with span("search_memory", self._attributes) as describe:
            found = [
                entry
                for entries in await each_at_once(self._search_store(store, text, limit) for store in named)
                for entry in entries
            ]
            describe("gen_ai.memory.record.count", len(found))
        return found

    async def add(
        self,
        content: str,
        metadata: Metadata | None = None,
        *,
        stores: Sequence[str] | None = None,
        provenance: Provenance | None = None,
    ) -> dict[str, ConflictReport]:
        """Add one text to the named stores, or to all that are writable and have `add`.

        The stores are written at the same time, and every store is tried.

        Args:
            content: The text.
            metadata: JSON values to keep with it.
            stores: Names of stores.
            provenance: Extends the provenance of the manager. Only stores that take it
                receive it.

        Returns:
            The conflicts found and their resolution, by name of the store.

        Raises:
            StoreAddFailure: Names the stores that failed, with the error of each.
            InvalidInput: If a name is unknown, a store is read-only or has no `add`, or
                no store is left.
        """
        self._check_process()
        text = content_of(content)
        about = None if metadata is None else validation.json_object("metadata", metadata)
        named = (
            [store for store in self.stores if store.takes_texts]
            if stores is None
            else [self._get_writable_store(name) for name in _names(stores)]
        )
        if not named:
            raise InvalidInput("stores", "no writable store matched")
        with span("create_memory", self._attributes) as describe:
            found = await self._add_to_stores(
                [(text, about)], named, self._provenance.then(_provenance(provenance))
            )
            describe("gen_ai.memory.record.count", 1)
        return found

    async def flush(self) -> None:
        """Deliver all pending messages to the stores, and wait for background writes.

        Failures are logged.
        """
        self._check_process()
        for recording in list(self._recordings.values()):
            await recording.flush()
        await self._drain()

    async def _drain(self, until: float | None = None) -> None:
        """Wait for background work, at most until this time of the loop."""
        loop = asyncio.get_running_loop()
        while self._behind and (until is None or loop.time() < until):
            await asyncio.wait(self._behind, timeout=None if until is None else until - loop.time())

    # -- learning from messages --------------------------------------------------------

    async def record(
        self,
        session: Session | None = None,
        *,
        run_id: str | None = None,
        user: str | None = None,
        model: Model | None = None,
    ) -> Recording:
        """Return a recording of one run of an agent, for every store with `extraction`.

        The same session, or the same `run_id` without one, returns the same recording.

        Args:
            session: The session whose log is delivered, including messages of other
                writers. Without `session`, the manager stores the messages in a
                temporary session of its `memory` until every store has received them.
                This session belongs to `user`, and an erasure of that user erases it.
                A manager without `memory` holds the messages only in this process.
            run_id: Names the run in keys and contexts. The default is the id of the
                session, or a new id.
            user: The owner of the messages if no `session` is given.
            model: The model of the agent. It reads the messages if neither the store
                nor the manager has one.
        """
        self._check_process()
        if session is not None and not isinstance(session, Session):
            raise InvalidInput("session", f"must be a Session, not {type(session).__name__}")
        named = uuid4().hex if run_id is None else validation.identifier("run_id", run_id)
        if session is not None and run_id is None:
            named = session.id
        temporary = session is None and self._memory is not None and bool(self._learning)
        if temporary and self._memory is not None:
            session = self._memory.session(f"{NAMESPACE}/{named}", namespace=NAMESPACE, user=user)
        name = _name(session, named)
        recording = self._recordings.get(name)
        if recording is not None and not await recording._is_of(session):
            recording._leaves()
        recording = self._recordings.get(name) or await self._begin_recording(session, named)
        self._resuming.discard(name)
        recording._stays = timedelta(0) if temporary else None
        recording.take(model)
        return recording

    async def _begin_recording(self, session: Session | None, run_id: str) -> Recording:
        """Begin a recording after noting that messages may be pending.

        Return the existing one if another call began it in the meantime.
        """
        name, names = _name(session, run_id), [store.name for store in self._learning]
        spool = Buffer(names) if session is None else Log(session, names)
        context = {
            "run_id": run_id,
            "session_id": None if session is None else session.id,
            "model": self._model,
        }

        def leaves() -> None:
            if self._recordings.get(name) is recording:
                del self._recordings[name]

        async def lets_go(kept_for: timedelta) -> bool:
            """Delete or expire the session of the recording.

            Return whether nothing is left to note: it is deleted, or recorded again.
            """
            assert session is not None and self._memory is not None  # noqa: S101, PT018 - of others nothing is the manager's
            async with self._turns.setdefault(name, asyncio.Lock()):
                if name in self._recordings:
                    return True
                if kept_for:
                    await self._memory.sessions.update(session.id, expires_at=kept_for)
                else:
                    await drop_delivered(session)
                return not kept_for

        is_own = session is not None and session.id.startswith(f"{NAMESPACE}/")
        came_of = self._provenance.then(
            Provenance(run=run_id, session=None if session is None or is_own else session.id)
        )
        attachments = [
            Attachment(store, spool, context, self._attributes, came_of, self._gates)
            for store in self._learning
        ]
        recording = Recording(
            context, spool, attachments, behind=self._run_behind, leaves=leaves, lets_go=lets_go
        )
        async with self._turns.setdefault(name, asyncio.Lock()):
            await spool.open()
            return self._recordings.setdefault(name, recording)

    async def resume(self) -> int:
        """Deliver messages that a dead process or a failing store left pending.

        The call covers the sessions of the manager's memory. `open` starts it in the
        background. If a session cannot be read, this is logged, and the next call tries
        the session again.

        Returns:
            The number of sessions with pending messages.
        """
        self._check_process()
        if self._memory is None:
            return 0
        left = dict[str, None]()
        for store in self._learning:
            left |= dict.fromkeys(await waiting_sessions(self._memory, store.name))
        for session_id in left:
            try:
                await self._resume(self._memory, session_id)
            except Exception as error:  # noqa: BLE001 - go on with the other sessions
                log.warning(
                    "pending messages of session '%s' could not be delivered: %s: %s",
                    session_id,
                    type(error).__name__,
                    error,
                )
        return len(left)

    async def _resume(self, memory: Memory, session_id: str) -> None:
        """Deliver the pending messages of one session and end its recording.

        The recording continues if another caller records the session in the meantime.
        """
        session = memory.session(session_id, create=False)
        if (name := _name(session, "")) in self._recordings:
            return
        is_own = (await session.info()).namespace == NAMESPACE
        self._resuming.add(name)
        try:
            recording = await self._begin_recording(session, session_id.removeprefix(f"{NAMESPACE}/"))
            if is_own and name in self._resuming:
                recording._stays = KEPT  # the other process may be slow, not dead
            await recording.flush()
            if name not in self._resuming:
                return
        finally:
            self._resuming.discard(name)
        await recording.close()

    async def _try_resume(self) -> None:
        try:
            await self.resume()
        except Exception as error:  # noqa: BLE001 - the next opening tries again
            log.warning(
                "messages left by an earlier process could not be delivered: %s: %s",
                type(error).__name__,
                error,
            )

    # -- for the model -----------------------------------------------------------------

    @property
    def tools(self) -> list[Tool]:
        """The tools for the model: the manager's own, then those of the stores.

        Tools of stores are included once the manager is open.
        """
        return list(self._own_tools if self._tools is None else self._tools)

    def schemas(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:
        """Return the tools in the format of an API: `"openai"` or `"anthropic"`."""
        return [tool.schema(format) for tool in self.tools]

    async def dispatch(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, provenance: Provenance | None = None
    ) -> Any:
        """Run a tool call of a model and return its result as JSON values.

        Error messages are written for the model to read.

        Args:
            name: The name of the tool.
            arguments: The arguments that the model gave, as a dict.
            provenance: The sources that the model had read, such as
                `Provenance(source="web:example.com", run="r1")`. Entries that the call
                adds carry it.
        """
        self._check_process()
        came_of = _provenance(provenance)
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            raise InvalidInput(
                "name",
                f"there is no tool {str(name)[:40]!r}; there are"
                f" {', '.join(tool.name for tool in self.tools) or 'none'}",
            )
        if isinstance(arguments, str):
            raise InvalidInput(
                "arguments", "must be a dict, not str. Parse the JSON first: json.loads(arguments)"
            )
        told = _CAME_OF.set(came_of)
        try:
            return await tool(**validation.json_object("arguments", arguments or {}))
        finally:
            _CAME_OF.reset(told)

    async def inject(self, messages: Sequence[Any]) -> list[Any]:
        """Return the messages, with facts from memory in the latest user message.

        The messages may have the shape of any framework. The result is for one model
        call and must not be stored; the given messages are not changed. If nothing is
        known, or something fails, the messages are returned as given.
        """
        self._check_process()
        given = validation.sequence("messages", messages)
        if self._injection is None:
            return list(given)
        with span("inject_memory", self._attributes):
            return await self._injection.into(given, lambda query, limit: self.search(query, limit=limit))

    # -- parts -------------------------------------------------------------------------

    def _check_process(self) -> None:
        """Raise `ForkedProcess` if a memory was opened before the process forked."""
        for access in [store.access for store in self.stores] + [
            None if self._memory is None else access_of(self._memory)
        ]:
            if access is not None:
                access.check_process()

    def _get_store(self, name: str) -> NamedStore:
        if name not in self._stores:
            raise InvalidInput(
                "stores", f"memory store '{name[:80]}' not found; there are {', '.join(self._stores)}"
            )
        return self._stores[name]

    def _get_writable_store(self, name: str) -> NamedStore:
        store = self._get_store(name)
        if not store.writable:
            raise InvalidInput("stores", f"memory store '{name}' is read-only")
        if not store.can("add"):
            raise InvalidInput("stores", f"memory store '{name}' has no add method")
        return store

    async def _search_store(self, store: NamedStore, query: str, limit: int | None) -> list[StoreEntry]:
        try:
            found = await store.search(query, limit)
            shown = await self._gates.let_out(found)
            if len(shown) < len(found):
                log.info(
                    "%d of %d found in memory store '%s' were withheld",
                    len(found) - len(shown),
                    len(found),
                    store.name,
                )
            return shown
        except ForkedProcess:
            raise
        except Exception as error:  # noqa: BLE001 - stores may raise anything
            log.warning(
                "memory store '%s' could not be searched: %s: %s", store.name, type(error).__name__, error
            )
            return []

    async def _add_to_stores(
        self,
        entries: Sequence[tuple[str, Mapping[str, Any] | None]],
        stores: Sequence[NamedStore],
        provenance: Provenance,
    ) -> dict[str, ConflictReport]:
        """Add every entry to every store, all at the same time.

        Return the conflicts of the last entry by store.
        """

        async def add_entry(
            entry: tuple[str, Mapping[str, Any] | None], store: NamedStore
        ) -> ConflictReport | None:
            return await self._gates.add(
                store,
                *entry,
                provenance,
                detect_conflicts=self._detect_conflicts,
                resolve=self._resolve,
            )

        each = [
            (number, store, add_entry(entry, store))
            for number, entry in enumerate(entries)
            for store in stores
        ]
        results = await outcomes_at_once(call for _, _, call in each)
        failed = [
            (number, store.name, result)
            for (number, store, _), result in zip(each, results, strict=True)
            if isinstance(result, BaseException)
        ]
        if failed:
            if forked := next((error for _, _, error in failed if isinstance(error, ForkedProcess)), None):
                raise forked
            causes = [(name, leaf) for _, name, error in failed for leaf in _leaves(error)]
            raise StoreAddFailure(len({number for number, _, _ in failed}), len(entries), causes)
        return {
            store.name: result
            for (_, store, _), result in zip(each, results, strict=True)
            if isinstance(result, ConflictReport)
        }

    def _make_tools(self, searching: SearchTool | None, adding: AddTool | None) -> list[Tool]:
        """Return the manager's own tools."""
        made = []
        if searching is not None:
            tool_name("search_tool.name", searching.name)
            validation.text("search_tool.description", searching.description)
            scope = (
                self.stores
                if searching.stores is None
                else self._tool_stores("search_tool.stores", searching.stores)
            )
            made.append(self._search_tool(searching, scope))
        if adding is not None:
            tool_name("add_tool.name", adding.name)
            validation.text("add_tool.description", adding.description)
            flag("wait_for_writes", adding.wait_for_writes)
            scope = [store for store in self.stores if store.takes_texts]
            if not scope:
                raise InvalidInput("add_tool", "no writable stores implement add")
            if adding.stores is not None:
                scope = self._tool_stores("add_tool.stores", adding.stores)
                for store in scope:
                    if not store.takes_texts:
                        problem = "has no add method" if store.writable else "is not writable"
                        raise InvalidInput("add_tool.stores", f"memory store '{store.name}' {problem}")
            made.append(self._add_tool(adding, scope))
        return distinct(made)

    def _tool_stores(self, field: str, given: Sequence[Any]) -> list[NamedStore]:
        """Return the stores given by name or as objects, without duplicates."""
        found: dict[str, NamedStore] = {}
        for one in validation.sequence(field, given):
            same = [store for store in self.stores if one in (store.name, store) or one is store.store]
            if not same:
                raise InvalidInput(
                    field, f"memory store {one if isinstance(one, str) else type(one).__name__!r} not found"
                )
            found[same[0].name] = same[0]
        if not found:
            raise InvalidInput(field, "names no store. Omit it to use all stores")
        return list(found.values())

    def _search_tool(self, settings: SearchTool, scope: list[NamedStore]) -> Tool:
        async def search(
            query: str, limit: int | None = None, stores: Sequence[str] | None = None
        ) -> list[dict[str, Any]]:
            found = await self.search(query, stores=_within(scope, stores), limit=limit)
            return [
                {name: value for name, value in entry.to_dict().items() if value is not None}
                for entry in found
            ]

        asked = {"query": {"type": "string", "description": "What to look for, in plain words."}}
        most = {
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": validation.MAX_LIMIT,
                "description": "At most so many results of each store.",
            }
        }
        return Tool(
            settings.name,
            tool_description(settings.description, scope),
            parameters(asked, most, scope),
            search,
        )

    def _add_tool(self, settings: AddTool, scope: list[NamedStore]) -> Tool:
        async def add(entries: Sequence[str], stores: Sequence[str] | None = None) -> dict[str, int]:
            texts = [
                content_of(one, f"entries[{n}]")
                for n, one in enumerate(validation.sequence("entries", entries, at_most=MOST_ENTRIES))
            ]
            if not texts:
                raise InvalidInput("entries", "must have at least one entry")
            named, came_of = (
                [self._stores[name] for name in _within(scope, stores)],
                self._provenance.then(_CAME_OF.get()),
            )
            if settings.wait_for_writes:
                with span("create_memory", self._attributes) as describe:
                    await self._add_to_stores([(text, None) for text in texts], named, came_of)
                    describe("gen_ai.memory.record.count", len(texts))
                return {"stored": len(texts)}
            self._write_behind(texts, named, came_of)
            return {"accepted": len(texts)}

        items = {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": MOST_ENTRIES,
        }
        kept = {"entries": {**items, "description": "What to keep: one text for each fact."}}
        return Tool(
            settings.name, tool_description(settings.description, scope), parameters(kept, {}, scope), add
        )

    def _write_behind(
        self, texts: Sequence[str], stores: Sequence[NamedStore], provenance: Provenance
    ) -> None:
        async def add_texts() -> None:
            try:
                with span("create_memory", self._attributes):
                    await self._add_to_stores([(text, None) for text in texts], stores, provenance)
            except Exception as error:  # noqa: BLE001 - no caller waits for it
                log.warning("entries that a model added were not stored: %s", error)

        self._run_behind(add_texts(), f"texts to {_stores_in_words([store.name for store in stores])}")

    def _run_behind(self, work: Coroutine[Any, Any, None], what: str = "a delivery") -> None:
        """Run work in the background; `flush` and `close` wait for it.

        `what` names it in a warning.
        """
        try:
            self._check_process()
        except ForkedProcess:
            work.close()
            raise
        task = asyncio.get_running_loop().create_task(work, name=what)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)


def _stores_in_words(names: Sequence[str]) -> str:
    return ", ".join(f"store '{name}'" for name in names) or "the memory"


def _name(session: Session | None, run_id: str) -> _Name:
    """Return the key of a recording: the id of its session, or else its run."""
    return (False, run_id) if session is None else (True, session.id)


def _check_stores(stores: Sequence[NamedStore]) -> list[NamedStore]:
    given = validation.sequence("stores", stores)
    if not given:
        raise InvalidInput("stores", "at least one store is required")
    seen = set[str]()
    for store in given:
        if not isinstance(store, NamedStore):
            raise InvalidInput("stores", f"each must be a NamedStore, not {type(store).__name__}")
        if store.name in seen:
            raise InvalidInput("stores", f"duplicate store name '{store.name}'")
        seen.add(store.name)
        if store.writable and not (store.can("add") or store.can("add_messages")):
            raise InvalidInput(
                "stores", f"store '{store.name}' is writable, but has no add or add_messages method"
            )
    return given


def _setting(name: str, given: bool | T, kind: type[T]) -> T | None:
    if isinstance(given, bool):
        return kind() if given else None
    if not isinstance(given, kind):
        raise InvalidInput(name, f"must be True, False or {kind.__name__}, not {type(given).__name__}")
    return given


def _provenance(given: object) -> Any:
    if given is not None and not isinstance(given, Provenance):
        raise InvalidInput("provenance", f"must be a Provenance, not {type(given).__name__}")
    return given


def _names(stores: Sequence[str]) -> list[str]:
    """Return the names without duplicates."""
    return list(
        dict.fromkeys(validation.text("stores", name) for name in validation.sequence("stores", stores))
    )


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the single errors inside a group of errors."""
    several = (
        error.exceptions
        if isinstance(error, BaseExceptionGroup)
        else error.causes
        if isinstance(error, StoreAddFailure)
        else ()
    )
    return [leaf for one in several for leaf in _leaves(one)] or [error]


def _within(scope: Sequence[NamedStore], stores: Sequence[str] | None) -> list[str]:
    """Return the requested stores that the tool reaches; all if none is requested.

    Other names are dropped with a warning.
    """
    reached = [store.name for store in scope]
    asked = _names(stores or ())
    if not asked:
        return reached
    there = [name for name in asked if name in reached]
    if not there:
        raise InvalidInput(
            "stores",
            f"none of the requested memory stores are available; available stores: {', '.join(reached)}",
        )
    if len(there) < len(asked):
        log.warning(
            "a model asked for memory stores that are not available: %s",
            ", ".join(n[:80] for n in asked if n not in reached),
        )
    return there
