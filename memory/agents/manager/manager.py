"""`MemoryManager`: several named stores as an agent uses them: search and add, tools
for the model, memory shown to it.
"""

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
from memory.agents.manager.spool import Buffer, Log, waiting_sessions
from memory.agents.manager.stores import NamedStore, StoreEntry, content_of
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
from memory.domain.conflicts import ConflictReport
from memory.domain.corrections import explain_guesses
from memory.domain.errors import ForkedProcess, InvalidInput, StoreAddFailure
from memory.domain.provenance import UNSAID, Provenance
from memory.domain.shapes.tools import ToolFormat
from memory.facade.arguments import Metadata, flag
from memory.facade.memory import Memory
from memory.facade.resources.session import Session
from memory.facade.runtime.access import MAX_QUERY_BYTES
from memory.facade.runtime.async_context import AsyncContext
from memory.facade.write_options import check_resolver
from memory.orchestrator.enrichment.conflicts import Resolver

log = logging.getLogger(__name__)

T = TypeVar("T")
_Name: TypeAlias = tuple[bool, str]
_CAME_OF: ContextVar[Provenance | None] = ContextVar("came_of", default=None)
"""What `dispatch` was told of where its arguments come from: no argument of a tool says
so.
"""

MOST_ENTRIES = 100
"""Of one call of the tool that adds."""
NAMESPACE = "extraction"
"""Of the sessions in which what is said waits for stores that have not learnt it."""
KEPT = timedelta(days=7)
"""How long such a session of a run that another process left behind stays once every
store has it.
"""


@explain_guesses
class MemoryManager(AsyncContext):
    """Named stores as one memory for an agent.

        manager = MemoryManager([NamedStore("ada", memory.scoped("user:ada"), description="What Ada likes", writable=True)], add_tool=True)
        async with manager:
            messages = await manager.inject(messages)
            answer = await model(messages, tools=manager.schemas("openai"))
            result = await manager.dispatch("search_memory", {"query": "tea"})

    The stores stay their owner's: they are neither opened nor closed here.
    `search_tool` is on unless it is False, `add_tool` off unless it is True or an
    `AddTool`; `injection` is on with its defaults unless it is False or says otherwise
    (E19, E41). In `memory` what is said waits, until every store has it that learns
    from it (`record`); `model` reads it for stores that have no model of their own.
    `attributes` (of the agent) stand on every span. `provenance` says who writes: what
    is added, by a model's tool or by what is learnt, carries it, and no argument of a
    tool changes it. `write_gate` and `recall_gate` are those of a `Memory`, asked of
    `StoreEntry`s, whatever the store: of single texts, by tools, `add` and what is
    learnt; a store that takes messages as they are is not asked about. Writes to a scope
    of a memory look for conflicts (`Memory.write`) unless `detect_conflicts` is False.
    `resolve` says what becomes of the entries found; without it all of them stay.
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
        """None is begun while its session is let go."""
        self._resuming: set[_Name] = set()
        """Those that nobody asked for but `resume`, which ends them."""

    def __repr__(self) -> str:
        return f"<MemoryManager of {', '.join(self._stores)}>"

    @property
    def stores(self) -> list[NamedStore]:
        return list(self._stores.values())

    @property
    def injection(self) -> Injection | None:
        """How memory is shown to a model; None where it is not."""
        return self._injection

    async def open(self) -> None:
        """Initialize the stores that ask for it, each once, in their order, and take
        their tools; what one raises is raised, and opening again goes on with that one
        (E6, E7).
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
            self._run_behind(self._try_resume())

    async def close(self) -> None:
        """Tell the stores what they have not, and wait for what is written behind. The
        stores stay open: they are their owner's.
        """
        self._check_process()
        for recording in list(self._recordings.values()):
            await recording.close()
        await self._drain()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- searching and adding ----------------------------------------------------------

    async def search(
        self, query: str, *, stores: Sequence[str] | None = None, limit: int | None = None
    ) -> list[StoreEntry]:
        """What the stores find, those named or all, asked at once: one store's behind
        the other's in their order, each stamped with its name.

        Of each store `limit` at most, or what is configured for it, or 3. They are not
        ranked among each other, and what two have comes twice (E25). A store that fails
        is logged and left out; an unknown name is refused before any is asked. No
        names, `[]`, find nothing (E20 to E24).
        """
        self._check_process()
        text = validation.text("query", query, max_bytes=MAX_QUERY_BYTES)
        if limit is not None:
            validation.whole_limit(limit, default=1)
        named = self.stores if stores is None else [self._get_store(name) for name in _names(stores)]
        with span("search_memory", self._attributes) as describe:
            found = [
                entry
                for entries in await asyncio.gather(
                    *(self._search_store(store, text, limit) for store in named)
                )
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
        """Keep one text in the stores named, or in all that are writable and take
        single texts, at once (E27). `provenance` says more than the manager's own of
        where it comes from, to stores that take it.

        What is returned tells, by the name of the store, where something near it was
        found, and what came of that. Every store is tried; `StoreAddFailure` names those that
        failed and has what each raised (E30). `InvalidInput` where a name is unknown, a
        store read-only or without `add`, or none is left (E28, E29).
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
        """Tell the stores that learn everything that was said, and wait for what is
        written behind; what fails is logged (E78).
        """
        self._check_process()
        for recording in list(self._recordings.values()):
            await recording.flush()
        await self._drain()

    async def _drain(self) -> None:
        while self._behind:
            await asyncio.wait(self._behind)

    # -- learning from what is said ----------------------------------------------------

    async def record(
        self,
        session: Session | None = None,
        *,
        run_id: str | None = None,
        user: str | None = None,
        model: Model | None = None,
    ) -> Recording:
        """A recording of one run of an agent: what is said in it is told to every store
        with `extraction`.

        Of a `session` its log is what is told: whatever is appended there, by anybody.
        Without one the manager's `memory` keeps what is said until every store has it,
        as a session of `user` that is erased with that user; without a memory this
        process does. `run_id` names the run in keys and contexts, one's own or a new
        one; by the session's id the same is given again. `model` is the agent's: it
        reads what was said where neither the store nor the manager has another (E86).
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
        """A recording, once it is noted that something may wait; or the one that was
        begun meanwhile.
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
            """Whether nothing is left to be noted of the session: it is gone, or
            somebody has begun to record it again.
            """
            assert session is not None and self._memory is not None  # noqa: S101, PT018 - of others nothing is the manager's
            async with self._turns.setdefault(name, asyncio.Lock()):
                if name in self._recordings:
                    return True
                if kept_for:
                    await self._memory.sessions.update(session.id, expires_at=kept_for)
                else:
                    await session.delete()
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
        """Tell the stores what a process that died, or a store that failed, left untold
        in the sessions of the manager's memory; in how many sessions there was
        something. `open` does so, behind. A session that cannot be read is logged, and
        looked at again the next time.
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
            except Exception as error:  # noqa: BLE001 - there may be others
                log.warning(
                    "pending messages of session '%s' could not be delivered: %s: %s",
                    session_id,
                    type(error).__name__,
                    error,
                )
        return len(left)

    async def _resume(self, memory: Memory, session_id: str) -> None:
        """Tell what is left in one session, and end that, unless somebody goes on with
        it meanwhile.
        """
        session = memory.session(session_id, create=False)
        if (name := _name(session, "")) in self._recordings:
            return
        is_own = (await session.info()).namespace == NAMESPACE
        self._resuming.add(name)
        try:
            recording = await self._begin_recording(session, session_id.removeprefix(f"{NAMESPACE}/"))
            if is_own and name in self._resuming:
                recording._stays = KEPT  # whoever died may yet turn out to be slow
            await recording.flush()
            if name not in self._resuming:
                return
        finally:
            self._resuming.discard(name)
        await recording.close()

    async def _try_resume(self) -> None:
        try:
            await self.resume()
        except Exception as error:  # noqa: BLE001 - it is tried again at the next opening
            log.warning(
                "messages left by an earlier process could not be delivered: %s: %s",
                type(error).__name__,
                error,
            )

    # -- for the model -----------------------------------------------------------------

    @property
    def tools(self) -> list[Tool]:
        """The tools for the model: those that search and add, as configured, then those
        of the stores once the manager is open (E40).
        """
        return list(self._own_tools if self._tools is None else self._tools)

    def schemas(self, format: ToolFormat = "openai") -> list[dict[str, Any]]:
        """The tools as an API takes them: `"openai"` or `"anthropic"`."""
        return [tool.schema(format) for tool in self.tools]

    async def dispatch(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, provenance: Provenance | None = None
    ) -> Any:
        """Do what a model asks of a tool, and return what it answers, as JSON can hold
        it. An error's text is for the model to read.

        `provenance` says what the model had before it when it asked
        (`Provenance(source="web:example.com", run="r1")`): what it adds carries that.
        """
        self._check_process()
        came_of = _provenance(provenance)
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            raise InvalidInput(
                "name",
                f"there is no tool {str(name)[:40]!r}; there are {', '.join(tool.name for tool in self.tools) or 'none'}",
            )
        told = _CAME_OF.set(came_of)
        try:
            return await tool(**validation.json_object("arguments", arguments or {}))
        finally:
            _CAME_OF.reset(told)

    async def inject(self, messages: Sequence[Any]) -> list[Any]:
        """The messages, of any framework's shape, with what memory knows in the latest
        one of the user. They are for one call of the model: what was given is not
        changed, and what is returned is not to be stored (E51, E52). Where nothing is
        known, or something fails, they are as given.
        """
        self._check_process()
        if self._injection is None:
            return list(messages)
        with span("inject_memory", self._attributes):
            return await self._injection.into(messages, self._for_injection)

    async def _for_injection(self, query: str, limit: int) -> list[StoreEntry]:
        return await self.search(query, limit=limit)

    # -- parts -------------------------------------------------------------------------

    def _check_process(self) -> None:
        """Raise `ForkedProcess` if a memory of the manager's was opened before this
        process was forked.
        """
        for access in [store.access for store in self.stores] + [
            None if self._memory is None else self._memory._access
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
        except Exception as error:  # noqa: BLE001 - a store is anybody's
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
        """Keep every entry in every store, at once. What was found near the last of
        them, by store.
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
        results = await asyncio.gather(*(call for _, _, call in each), return_exceptions=True)
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
        """The manager's own tools."""
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
        """Stores by name or as they are, each once."""
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
            except Exception as error:  # noqa: BLE001 - nobody waits for it
                log.warning("entries that a model added were not stored: %s", error)

        self._run_behind(add_texts())

    def _run_behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it behind the caller's back; `flush` and `close` wait for it."""
        try:
            self._check_process()
        except ForkedProcess:
            work.close()
            raise
        task = asyncio.get_running_loop().create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)


def _name(session: Session | None, run_id: str) -> _Name:
    """By what a recording is known: its session, or the run of one that has none."""
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
    """The names, each once."""
    return list(
        dict.fromkeys(validation.text("stores", name) for name in validation.sequence("stores", stores))
    )


def _leaves(error: BaseException) -> list[BaseException]:
    """What an error is made of, where it stands for several."""
    several = (
        error.exceptions
        if isinstance(error, BaseExceptionGroup)
        else error.causes
        if isinstance(error, StoreAddFailure)
        else ()
    )
    return [leaf for one in several for leaf in _leaves(one)] or [error]


def _within(scope: Sequence[NamedStore], stores: Sequence[str] | None) -> list[str]:
    """Of the names a model gives those that its tool reaches; all where it gives none.
    Others are dropped with a warning (E33, E34).
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
