"""Guessed names: every error names the right one, and no store is touched."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import pytest

import memory as library
from memory import (
    BlockingMemory,
    BufferProvider,
    Entry,
    EntryDraft,
    FoundEntry,
    InvalidInput,
    Memory,
    MemoryManager,
    Message,
    Scope,
    ScopedMemory,
    Session,
    WrongArguments,
)
from memory.domain import corrections, guesses
from memory.domain.message import CHANGEABLE, Role
from memory.domain.relation import Relation, RelationPage
from memory.domain.results import ResultMixin
from memory.domain.search_results import EntryPage, Results, SearchResult
from memory.domain.session import (
    Compaction,
    Context,
    FoundMessage,
    HistoryItem,
    HistoryPage,
    SessionInfo,
)
from memory.domain.task import Run
from tools.blocking_stub import TWINS

ADA = "user:ada"
HELLO = {"role": "user", "content": "hello"}

# Each call with one wrong argument, and the text that the error must have.
ARGUMENTS: list[tuple[str, str, str]] = [
    ("write", "user_id", "Use scope: memory.write(..., scope=Scope.user("),
    ("write", "user", "scope=Scope.user("),
    ("write", "agent_id", 'agent="planner"'),
    ("write", "run_id", 'run="run-7"'),
    ("write", "session", "scope=Scope.session("),
    ("write", "namespace", "scope=Scope.user("),
    ("write", "ttl", "expires_at=timedelta(hours=1)"),
    ("write", "importance", 'metadata={"importance": 0.8}'),
    ("write", "tier", 'memory.admin.move([entry.id], "long")'),
    ("write", "text", 'memory.write("Ada likes tea")'),
    ("write", "memory", 'memory.write("Ada likes tea")'),
    ("write", "messages", 'memory.session("s1").append('),
    ("write", "infer", "a MemoryManager makes entries from messages"),
    ("write", "memory_type", 'type="user"'),
    ("write", "memory_id", 'key="note-1"'),
    ("write", "embedding", "vector=[0.1, 0.2]"),
    ("write", "labels", 'tags=["home"]'),
    ("write", "tag", 'tags=["home"]'),
    ("write", "confidnce", "Did you mean confidence=?"),
    ("search", "user_id", "Use scope: memory.search(..., scope=Scope.user("),
    ("search", "user", "scope=Scope.user("),
    ("search", "agent_id", 'scope=Scope.object("agent", "planner")'),
    ("search", "k", "limit=5"),
    ("search", "top_k", "limit=5"),
    ("search", "n_results", "limit=5"),
    ("search", "threshold", "min_relevance=0.5"),
    ("search", "score_threshold", "min_relevance=0.5"),
    ("search", "min_score", "min_relevance=0.5"),
    ("search", "query_text", "memory.search("),
    ("search", "text", "Use query"),
    ("search", "min_relevence", "Did you mean min_relevance=?"),
    ("retrieve", "k", "limit=5"),
    ("retrieve", "where", 'filter={"metadata.price": {"$gt": 3}}'),
    ("browse", "user_id", "memory.browse(Scope.user("),
    ("browse", "offset", "cursor=page.cursor"),
    ("update", "text", 'content="Ada likes tea"'),
    ("update", "ttl", "expires_at=timedelta(hours=1)"),
    ("get", "id", "memory.get(entry.id)"),
    ("update", "memory_id", "Use entry_id"),
    ("delete", "user_id", 'memory.admin.erase_user("ada")'),
    ("session", "user_id", 'user="ada"'),
    ("scoped.write", "user_id", "The view has its scope."),
    ("scoped.write", "ttl", "view.write(..., expires_at=timedelta(hours=1))"),
    ("scoped.search", "top_k", "view.search(..., limit=5)"),
    ("append", "role", 'Use message: session.append({"role": "user", "content": "hello"})'),
    ("append", "text", 'session.append({"role": "user", "content": "hello"})'),
    ("append", "user_id", 'memory.session("s1", user="ada")'),
    ("context", "max_tokens", "Use budget: session.context(4_000)"),
    ("context", "k", "last=5"),
    ("history", "user_id", 'memory.session("s1", user="ada")'),
    ("session.update", "text", "Accepted: content, reasoning"),
    ("write_many", "user_id", "scope=Scope.user("),
    ("write_many", "ttl", "expires_at=timedelta(hours=1)"),
    ("write_with_report", "user_id", "scope=Scope.user("),
    ("write_with_report", "ttl", "expires_at=timedelta(hours=1)"),
    ("write_with_report", "text", 'memory.write_with_report("Ada likes tea")'),
    ("draft", "user_id", "EntryDraft(..., scope=Scope.user("),
    ("draft", "text", "EntryDraft("),
]

NEW_ARGUMENTS: list[tuple[str, str, str]] = [
    ("search", "where", 'filter={"metadata.price": {"$gt": 3}}'),
    ("search", "metadata_filter", 'filter={"metadata.price": {"$gt": 3}}'),
    ("search", "filters", 'filter={"metadata.price": {"$gt": 3}}'),
    ("search", "metadata", 'filter={"metadata": {"kind": "recipe"}}'),
    ("search", "types", "boost= takes the same and only prefers"),
    ("search", "tags", "boost= takes the same and only prefers"),
    ("search", "with_payload", 'include=["content", "metadata"]'),
    ("write", "refresh_ttl", "refresh_on_read=True"),
    ("search", "only", 'filter={"types": ["user"], "tags": ["home"]}'),
    ("search", "by", 'mode="hybrid"'),
    ("write", "on_conflict", 'if_exists="replace"'),
    ("write", "check", "detect_conflicts=True"),
    ("write", "decide", "resolve=choose"),
]
"""Guesses whose right names come with the renames of 0.1 (words.md)."""

ATTRIBUTES: list[tuple[str, str, str]] = [
    ("memory", "add", 'memory.write("Ada likes tea", scope=Scope.user("ada"))'),
    ("memory", "put", "memory.write("),
    ("memory", "remember_fact", "memory.write("),
    ("memory", "forget", 'memory.admin.erase_user("ada")'),
    ("memory", "count", "memory.admin.stats()"),
    ("memory", "get_all", 'memory.retrieve(Scope.user("ada"))'),
    ("memory", "list", 'memory.retrieve(Scope.user("ada"))'),
    ("memory", "supersede", "supersedes=old.id"),
    ("memory", "history", "memory.entries.history"),
    ("memory", "relate", "memory.relations.relate"),
    ("memory", "similarity_search", "memory.search("),
    ("memory", "serach", "did you mean search?"),
    ("view", "add", 'view.write("Ada likes tea")'),
    ("view", "serach", "did you mean search?"),
    ("memory.entries", "list", "memory.retrieve("),
    ("memory.admin", "count", "memory.admin.stats()"),
    ("memory.admin", "reindx", "did you mean reindex?"),
    ("memory.admin", "forget_user", 'memory.admin.erase_user("ada")'),
    ("memory.admin", "delete_tenant", "admin.erase_tenant()"),
    ("memory.sessions", "append", 'memory.session("s1").append('),
    ("memory", "get_entry", "memory.get(entry.id)"),
    ("session", "clear_context", "session.clear()"),
    ("session.tasks", "update", "session.tasks.save("),
    ("session.runs", "remove", "session.runs.delete("),
    ("session", "add", 'session.append({"role": "user", "content": "hello"})'),
    ("session", "add_message", "session.append("),
    ("session", "messages", "session.context()"),
    ("session", "write", "session.append("),
    ("session", "close", "session.end()"),
    ("context", "to_openai", 'context.to("openai")'),
    ("context", "token_count", "context.total_tokens"),
    ("entry", "text", "entry.content"),
    ("entry", "memory", "entry.content"),
    ("entry", "relevance", "hit.relevance"),
    ("entry", "contnt", "did you mean content?"),
    ("hit", "text", "hit.content"),
    ("hit", "metadata", "hit.entry.metadata"),
    ("hit", "similarity", "hit.relevance"),
    ("message", "timestamp", "message.at"),
    ("item", "content", "item.message.text"),
    ("links", "relations", "links[0]"),
    ("links", "next_cursor", "links.cursor"),
]


Call = Callable[[dict[str, Any]], Any]


def calls_of(memory: Any) -> dict[str, Call]:
    view, session = memory.scoped(ADA), memory.session("s1", user="ada")
    reporting = memory.write_with_report
    return {
        "write": lambda wrong: memory.write("tea", scope=ADA, **wrong),
        "write_many": lambda wrong: memory.write_many([{"content": "tea", "scope": ADA, **wrong}]),
        "write_with_report": lambda wrong: reporting("tea", scope=ADA, **wrong),
        "draft": lambda wrong: EntryDraft(content="tea", scope=ADA, **wrong),
        "search": lambda wrong: memory.search("tea", scope=ADA, **wrong),
        "retrieve": lambda wrong: memory.retrieve(ADA, **wrong),
        "browse": lambda wrong: memory.browse(**wrong),
        "update": lambda wrong: memory.update("e1", **wrong),
        "get": lambda wrong: memory.get(**wrong),
        "delete": lambda wrong: memory.delete(**wrong),
        "session": lambda wrong: memory.session("s1", **wrong),
        "scoped.write": lambda wrong: view.write("tea", **wrong),
        "scoped.search": lambda wrong: view.search("tea", **wrong),
        "append": lambda wrong: session.append(**wrong),
        "context": lambda wrong: session.context(**wrong),
        "history": lambda wrong: session.history(**wrong),
        "session.update": lambda wrong: session.update("m1", **wrong),
    }


async def done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory(tmp_path / "m.db", embedder="none") as opened:
        yield opened


@pytest.fixture
def blocking(tmp_path: Path) -> Iterator[BlockingMemory]:
    with BlockingMemory(tmp_path / "b.db", embedder="none") as opened:
        yield opened


async def check_arguments(memory: Any, table: list[tuple[str, str, str]]) -> None:
    calls = calls_of(memory)
    for call, wrong, right in table:
        with pytest.raises(WrongArguments) as caught:
            await done(calls[call]({wrong: "x"}))
        named = f"drafts[0].{wrong}" if call == "write_many" else wrong
        assert caught.value.field == named
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, InvalidInput)
        assert str(caught.value).startswith(f"{named}: is not an argument of "), (call, wrong)
        assert right in str(caught.value), (call, wrong, str(caught.value))
        shown = caught.value.__context__ is not None and not caught.value.__suppress_context__
        assert not shown, "another error would be shown above it"


async def test_a_guessed_argument_is_answered_with_the_right_one(memory: Memory) -> None:
    await check_arguments(memory, ARGUMENTS)
    assert await memory.browse() == []
    assert (await memory.sessions.list()).sessions == []


def test_a_guessed_argument_is_answered_by_the_blocking_twin(blocking: BlockingMemory) -> None:
    calls = calls_of(blocking)
    for call, wrong, right in ARGUMENTS:
        with pytest.raises(WrongArguments) as caught:
            calls[call]({wrong: "x"})
        assert right in str(caught.value), (call, wrong, str(caught.value))
    assert blocking.browse() == []
    assert blocking.sessions.list().sessions == []


async def test_a_guessed_argument_is_answered_with_a_renamed_one(memory: Memory) -> None:
    await check_arguments(memory, NEW_ARGUMENTS)


async def test_no_guess_is_accepted_silently_and_no_store_is_written_to(memory: Memory) -> None:
    names = {name for key in guesses.ARGUMENTS for name in key.split()}
    for label, call in calls_of(memory).items():
        method = of_label(label)
        accepted = {*inspect.signature(method).parameters, *(CHANGEABLE if label == "session.update" else ())}
        for name in sorted(names - accepted - {"wait"}):
            with pytest.raises(WrongArguments):
                await done(call({name: "x"}))
    assert await memory.browse() == []
    assert (await memory.sessions.list()).sessions == []


BUILT: list[tuple[Callable[..., Any], str, str]] = [
    (library.Quota, "limit", "Use entries: Quota(..., entries=10_000)."),
    (library.Quota, "entrys", "Did you mean entries=?"),
    (library.RetentionRule, "condition", "Use when: RetentionRule("),
    (library.PromotionRule, "from_tier", 'source="short"'),
    (library.PromotionRule, "tag", 'tags=["home"]'),
    (library.OlderThan, "days", 'Use length: OlderThan("7d")'),
    (library.IdleFor, "days", 'Use length: IdleFor("7d")'),
    (library.HasTag, "tag", "Accepted: *names."),
    (library.AccessCountAtLeast, "count", "Use times: AccessCountAtLeast(5)"),
    (library.ScopeExceeds, "max_entries", "count=200"),
    (library.MessageThreshold, "max_messages", "Use most: MessageThreshold(40)"),
    (library.TokenThreshold, "limit", "Use max_tokens: TokenThreshold(8_000)"),
    (library.CompactionSettings, "summarizer", "Use summarise"),
    (library.DocumentPut, "ttl", "expires_in=timedelta(hours=1)"),
    (library.DocumentPut, "data", "value="),
    (library.DocumentDelete, "id", 'key="note-1"'),
    (library.Provenance, "user_id", "Accepted: source, agent, run"),
    (library.ExtractedFact, "text", "Use content"),
    (library.NamedStore, "description_", "Did you mean description=?"),
    (library.Filter, "metadata", "filter=Filter.metadata('price') < 3"),
    (library.ToolCall, "args", "Use arguments"),
    (Message, "text", "Use content"),
]
"""Each value that callers build with one wrong argument, and the text of the error."""


def test_a_guessed_argument_of_a_value_is_answered_with_the_right_one() -> None:
    for build, wrong, right in BUILT:
        with pytest.raises(WrongArguments) as caught:
            build(**{wrong: "x"})
        assert right in str(caught.value), (build, wrong, str(caught.value))


def _is_built_by_callers(kind: object) -> bool:
    """Whether a public class is a value that callers build, and no result or error."""
    return (
        isinstance(kind, type)
        and not issubclass(kind, BaseException | Enum | dict)
        and not (issubclass(kind, ResultMixin | Results) and kind is not library.Provenance)
        and not getattr(kind, "_is_protocol", False)
        and not inspect.isabstract(kind)
        and kind not in (Entry, library.MemoryStore, library.RecordFacts, library.ExitedMessages)
    )


@pytest.mark.parametrize("name", vars(library)["__all__"])
def test_no_public_class_answers_a_wrong_argument_with_a_plain_type_error(name: str) -> None:
    kind = getattr(library, name)
    if _is_built_by_callers(kind):
        with pytest.raises((InvalidInput, library.ConfigError)):
            kind(unknown_name=1)


async def test_no_store_is_asked() -> None:
    closed = Memory("memory://", accept_loss=True)  # whatever asks a store raises NotOpen
    for label, call in calls_of(closed).items():
        if label != "write_many":  # it asks for the engine first
            with pytest.raises(WrongArguments):
                await done(call({"unknown": "ada"}))


def of_label(label: str) -> Callable[..., Any]:
    if label in ("draft", "write_many", "write_with_report"):
        return EntryDraft if label == "draft" else Memory.write
    kind, _, name = label.rpartition(".")
    if kind == "scoped":
        return getattr(ScopedMemory, name)  # type: ignore[no-any-return]
    on_session = kind == "session" or label in ("append", "context", "history")
    return getattr(Session if on_session else Memory, name)  # type: ignore[no-any-return]


async def objects(memory: Any) -> dict[str, Any]:
    entry = await done(memory.write("Ada likes tea", scope=ADA))
    session = memory.session("s1", user="ada")
    await done(session.append(HELLO))
    context = await done(session.context())
    return {
        "memory": memory,
        "view": memory.scoped(ADA),
        "memory.entries": memory.entries,
        "memory.admin": memory.admin,
        "memory.sessions": memory.sessions,
        "session": session,
        "session.tasks": session.tasks,
        "session.runs": session.runs,
        "entry": entry,
        "hit": (await done(memory.search("tea", scope=ADA)))[0],
        "context": context,
        "message": context.messages[0],
        "item": (await done(session.history())).items[0],
        "links": await done(memory.relations.find()),
    }


async def test_a_guessed_attribute_is_answered_with_the_right_one(memory: Memory) -> None:
    held = await objects(memory)
    for place, wrong, right in ATTRIBUTES:
        assert not hasattr(held[place], wrong)
        with pytest.raises(AttributeError, match=f"has no attribute '{wrong}'") as caught:
            getattr(held[place], wrong)
        assert right in str(caught.value), (place, wrong, str(caught.value))


def test_a_guessed_attribute_is_answered_by_the_blocking_twin(blocking: BlockingMemory) -> None:
    held = {
        "memory": blocking,
        "view": blocking.scoped(ADA),
        "memory.entries": blocking.entries,
        "memory.admin": blocking.admin,
        "memory.sessions": blocking.sessions,
        "session": blocking.session("s1"),
    }
    for place, wrong, right in ATTRIBUTES:
        if place in held:
            with pytest.raises(AttributeError, match=f"has no attribute '{wrong}'") as caught:
                getattr(held[place], wrong)
            assert right in str(caught.value), (place, wrong, str(caught.value))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("MemoryClient", "use Memory"),
        ("given_as", 'use context.to("openai")'),
        ("Entri", "did you mean 'Entry'?"),
    ],
)
def test_a_guessed_export_is_answered_with_the_right_one(wrong: str, right: str) -> None:
    assert not hasattr(library, wrong)
    with pytest.raises(AttributeError, match=f"has no attribute '{wrong}'") as caught:
        getattr(library, wrong)
    assert right in str(caught.value)


def test_every_class_that_users_hold_explains_guesses() -> None:
    assert set(TWINS.values()) <= set(corrections._CLASSES.values())
    unnamed = {kind.__name__ for kind in TWINS.values()} - set(guesses.PLACES)
    assert not unnamed, "errors name these classes in place of the objects that users hold"


async def test_an_owner_that_is_no_id_is_refused_by_the_name_of_its_argument(memory: Memory) -> None:
    for owner in ("user", "agent", "namespace"):
        asked: dict[str, Any] = {owner: ""}
        calls = (
            lambda asked=asked: memory.sessions.list(**asked),
            lambda asked=asked: memory.sessions.create("s1", **asked),
            lambda asked=asked: memory.search_messages("tea", **asked),
        )
        for call in calls:
            with pytest.raises(InvalidInput, match=f"^{owner}: must not be empty"):
                await done(call())


async def test_a_subscript_is_answered_with_the_attribute(memory: Memory) -> None:
    held: dict[str, Any] = await objects(memory)
    hits: Any = await memory.search("tea", scope=ADA)
    for thing, key, right in (
        (held["message"], "content", "use message.content"),
        (held["message"], "timestamp", "use message.at"),
        (held["entry"], "memory", "use entry.content"),
        (held["hit"], "text", "use hit.content"),
        (held["hit"], "relevance", "use hit.relevance"),
        (held["context"], "messages", "use context.messages"),
        (held["context"], 0, "use context.messages"),
        (hits, "results", "use hits[0]"),
    ):
        with pytest.raises(TypeError, match="has no item") as caught:
            thing[key]
        assert right in str(caught.value)
    assert hits[0] is next(iter(hits))
    assert list(hits[:1]) == list(hits)


async def test_a_type_of_one_s_own_is_answered_with_the_types_and_tags(memory: Memory) -> None:
    for call in (
        lambda: memory.write("tea", scope=ADA, type="fact"),
        lambda: memory.write_many([{"content": "tea", "scope": ADA, "type": "fact"}]),
        lambda: memory.retrieve(ADA, types=["fact"]),
    ):
        with pytest.raises(InvalidInput, match=r"choose from user, .*context, the default.*use tags"):
            await call()
    with pytest.raises(InvalidInput, match="did you mean 'newest'"):
        await memory.retrieve(ADA, order="desc")  # type: ignore[arg-type]


async def test_an_object_in_the_place_of_its_id_or_text_is_explained(memory: Any) -> None:
    entry = await memory.write("Ada likes tea", scope=ADA)
    calls: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: memory.get(entry), r"^entry_id: must be text, not Entry; pass its id, such as entry\.id"),
        (
            lambda: memory.delete(Scope.user("ada")),
            r"^entry_id: 'user:ada' is a scope, not an id\. .*admin\.erase",
        ),
        (lambda: memory.delete(scope=ADA), r"^key: is missing\. .*`admin\.erase`"),
        (lambda: memory.write([HELLO], scope=ADA), r"^content: must be text, not list\. Pass messages to "),
        (lambda: memory.session("s1").append("hello"), r"^message: must be a message, such as \{'role'"),
        (lambda: memory.write("x", scope=ADA, supersedes=[entry]), r"^supersedes: .* Entry; pass its id"),
        (lambda: done(memory.session(memory.session("s1"))), r"^session_id: .* Session; pass its id"),
        (lambda: memory.search("x", scope=None), r"^scope: must be a Scope, its text, .* a list of these"),
        (lambda: memory.admin.import_('{"role": "user"}'), r"^source: cannot be read: .* path of a file"),
        (lambda: memory.admin.import_([HELLO]), r"Pass messages_to="),
        (lambda: done(library.BufferProvider(cast("Any", None))), r"^memory: must be a Memory, not NoneType"),
    )
    for call, text in calls:
        with pytest.raises(InvalidInput, match=text):
            await call()


async def test_missing_arguments_and_those_by_position_are_explained(memory: Any) -> None:
    session, manager = memory.session("s1"), cast("Any", MemoryManager)
    calls: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: memory.write("tea"), r"^scope: is missing .* Write memory\.write\(\"Ada"),
        (lambda: memory.search("tea"), r"^scope: is missing .* Write memory\.search\("),
        (lambda: memory.session(), r'^session_id: is missing .* Write memory\.session\("s1"'),
        (lambda: session.compact(), r"^summarise: is missing"),
        (lambda: memory.update("e1", "tea"), r"^memory\.update: got 2 .* takes 1 \(entry_id\)"),
        (lambda: memory.write("tea", ADA), r"^memory\.write: got 2 .* takes 1 \(content\)"),
        (lambda: session.append("user", "hi"), r"^session\.append: got 2 .* takes 1 \(message\)"),
        (lambda: session.end("now"), r"It takes no arguments|takes none"),
        (lambda: memory.write("tea", content="tea", scope=ADA), "multiple values for argument 'content'"),
        (lambda: memory.documents.put(ADA, "k", 1, ttl=9), r"documents\.put\(\.\.\., expires_in=timedelta"),
        (lambda: manager(memories=[]), r"^memories: is not an argument of MemoryManager\(\)"),
    )
    for call, text in calls:
        with pytest.raises(WrongArguments, match=text):
            await done(call())


@pytest.mark.parametrize("name", ["ttl", "user_id", "db_url", "llm", "top_k", "memory"])
def test_a_guessed_setting_is_answered_with_the_right_one(name: str, tmp_path: Path) -> None:
    hint = next(text for names, text in guesses.SETTINGS.items() if name in names.split())
    file = tmp_path / "memory.toml"
    file.write_text(f'{name} = "x"\n')
    unknown: dict[str, Any] = {name: "x"}
    for source, settings in ((None, unknown), (file, {})):
        with pytest.raises(library.ConfigError) as caught:
            Memory(source, **settings)
        assert f"there is no setting '{name}'" in str(caught.value)
        assert hint in str(caught.value)


def test_right_calls_keep_their_signature_their_kind_and_their_own_errors() -> None:
    assert list(inspect.signature(Memory.write).parameters)[:3] == ["self", "content", "scope"]
    assert inspect.iscoroutinefunction(Memory.write)
    assert inspect.iscoroutinefunction(Memory("memory://").write)
    assert not inspect.iscoroutinefunction(Memory.session)
    assert Memory.write.__qualname__ == "Memory.write"
    assert Memory.write.__module__ == "memory.facade.memory"

    @corrections.explain_guesses
    class Thing:
        def fails(self, name: str = "") -> None:
            raise TypeError("mine")

        async def fails_later(self) -> None:
            raise TypeError("mine")

        @property
        def broken(self) -> str:
            raise AttributeError("mine")

    for failing in (Thing().fails, lambda: Thing().broken):
        with pytest.raises((TypeError, AttributeError), match=r"^mine$"):
            failing()
    with pytest.raises(TypeError, match=r"^mine$"):
        Thing().fails_later().send(None)


def test_a_forgotten_await_is_reported_with_the_name_of_the_call() -> None:
    memory = Memory("memory://")
    session, provider = memory.session("s1"), BufferProvider(memory)
    calls: dict[str, Any] = {
        "Memory.search": memory.search("tea", scope=ADA),
        "Entries.history": memory.entries.history("e1"),
        "Session.append": session.append(HELLO),
        "Session.context": session.context(),
        "Session.window": session.window(),
        "Session.replace": session.replace([]),
        "Session.pop": session.pop(),
        "SessionProvider.read": provider.read(),
    }
    for name, call in calls.items():
        assert (call.__name__, call.__qualname__) == (name.partition(".")[2], name)
        call.close()


def test_right_calls_are_not_checked_twice(monkeypatch: pytest.MonkeyPatch, blocking: BlockingMemory) -> None:
    monkeypatch.setattr(corrections, "_binding_error", lambda *_: pytest.fail("a right call was examined"))
    blocking.write("Ada likes tea", scope=ADA)
    session = blocking.session("s1", user="ada")
    session.append(HELLO, in_history=True)
    assert len(session.context(4_000, last=None).messages) == len(blocking.search("tea", scope=ADA)) == 1


async def test_results_can_still_be_copied_pickled_and_asked(memory: Memory) -> None:
    held = await objects(memory)
    for name in ("entry", "hit", "message", "context", "item"):
        thing = held[name]
        assert copy.copy(thing) == copy.deepcopy(thing) == pickle.loads(pickle.dumps(thing)) == thing  # noqa: S301
        assert not hasattr(thing, "_repr_html_")
        assert not hasattr(thing, "nothing")
        assert getattr(thing, "nothing", None) is None
    assert isinstance(held["entry"], Entry)
    assert held["entry"].conflict_report is None
    assert held["message"].model_copy().model_dump() == held["message"].model_dump()
    hits: Any = await memory.search("tea", scope=ADA)
    assert pickle.loads(pickle.dumps(hits)) == copy.deepcopy(hits) == hits  # noqa: S301


# -- the table ----------------------------------------------------------------------------

RESULTS = {
    "entry": Entry,
    "old": Entry,
    "hit": FoundEntry,
    "found": FoundMessage,
    "message": Message,
    "context": Context,
    "item": HistoryItem,
    "page": HistoryPage,
    "hits": SearchResult,
    "entries": EntryPage,
    "links": RelationPage,
    "info": SessionInfo,
    "compaction": Compaction,
    "run": Run,
    "view": ScopedMemory,
    "session": Session,
    "manager": MemoryManager,
}


def examples() -> Iterator[tuple[str, str]]:
    """Every complete example of the table, with where it stands."""
    for key, answers in guesses.ARGUMENTS.items():
        for where, example, *_ in answers:
            if not where.islower():
                yield key, example
    for kind, table in guesses.ATTRIBUTES.items():
        yield from ((f"{kind}: {names}", example) for names, example in table.items())
    yield from guesses.NAMES.items()
    yield from guesses.CALLS.items()


def resolved(node: ast.expr) -> Any:
    """What an expression of an example stands for: a class, a method or a field."""
    if isinstance(node, ast.Name):
        return (
            RESULTS[node.id]
            if node.id in RESULTS
            else {"memory": Memory}.get(node.id) or getattr(library, node.id)
        )
    if isinstance(node, ast.Subscript):
        return {SearchResult: FoundEntry, EntryPage: Entry, RelationPage: Relation}[resolved(node.value)]
    if isinstance(node, ast.Call):
        made = get_type_hints(resolved(node.func)).get("return")
        assert made is not None
        return made
    assert isinstance(node, ast.Attribute)
    owner = resolved(node.value)
    member = inspect.getattr_static(owner, node.attr, None)
    if isinstance(member, property):
        assert member.fget is not None
        return get_type_hints(member.fget)["return"]
    if inspect.isfunction(member) or isinstance(member, classmethod):
        return getattr(owner, node.attr)
    hints = get_type_hints(owner)
    assert member is not None or node.attr in hints, f"{owner.__name__}.{node.attr} does not exist"
    return hints.get(node.attr, member)


def check_example(example: str) -> None:
    tree = ast.parse(example, mode="eval").body
    if isinstance(tree, ast.Name):
        resolved(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            resolved(node)
        if isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id == "timedelta"
        ):
            function = resolved(node.func)
            method = inspect.isfunction(function)
            inspect.signature(function).bind(
                *[None] * (len(node.args) + method), **{str(one.arg): None for one in node.keywords}
            )


def public_parameters() -> dict[str, list[Any]]:
    """The parameters of all public calls, by name, with their types."""
    found: dict[str, list[Any]] = {}
    kinds = [kind for kind in corrections._CLASSES.values() if kind.__module__.startswith("memory.facade")]
    built = [getattr(library, name) for name in vars(library)["__all__"]]
    for kind in [*kinds, *filter(_is_built_by_callers, built)]:
        for parameter in inspect.signature(kind).parameters if kind not in kinds else ():
            found.setdefault(parameter, [])
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") or name == "__init__":
                try:
                    hints = get_type_hints(method)
                except NameError:  # a type that only type checkers import
                    hints = {}
                for options in get_args(hints.get("options")):
                    hints |= get_type_hints(options)
                for parameter in inspect.signature(method).parameters:
                    found.setdefault(parameter, []).append(hints.get(parameter))
    return found


def choices_in(hint: Any) -> Iterator[Any]:
    """The values of the literals in a type."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif not isinstance(hint, str):
        for one in get_args(hint):
            yield from choices_in(one)


def test_every_right_name_of_the_table_exists() -> None:
    wrong, parameters = [], public_parameters()
    for key, answers in guesses.ARGUMENTS.items():
        for where, value, *_ in answers:
            if where.islower():
                ast.parse(value, mode="eval")
                if where not in parameters:
                    wrong.append(f"{key}: no public call has the argument {where}")
    for at, example in examples():
        try:
            check_example(textwrap.dedent(example))
        except (AssertionError, AttributeError, KeyError, TypeError) as error:
            wrong.append(f"{at}: {example}: {error!r}")
    for argument, values in guesses.VALUES.items():
        choices = {choice for hint in parameters.get(argument, ()) for choice in choices_in(hint)} | (
            {*Role} if argument == "role" else set()
        )
        wrong += [f"{argument}={right}: is no choice" for right in values.values() if right not in choices]
    assert wrong == []


def test_no_guess_stands_twice() -> None:
    tables: list[dict[str, Any]] = [
        guesses.ARGUMENTS,
        guesses.NAMES,
        guesses.SETTINGS,
        *guesses.ATTRIBUTES.values(),
        *guesses.VALUES.values(),
    ]
    for table in tables:
        names = [name for key in table for name in key.split()]
        assert len(names) == len(set(names)), [name for name in names if names.count(name) > 1]
    assert set(guesses.ATTRIBUTES) <= set(guesses.PLACES)


def test_no_guess_is_a_real_name() -> None:
    for kind, guessed in guesses.ATTRIBUTES.items():
        known = RESULTS | {place: kind for kind in corrections._CLASSES.values() for place in [kind.__name__]}
        owner = next(one for one in known.values() if one.__name__ == kind)
        real = [n for key in guessed for n in key.split() if hasattr(owner, n) or n in get_type_hints(owner)]
        assert real == [], kind
