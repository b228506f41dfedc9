"""Uses of a conversation store of Pydantic AI, beside the store of the framework."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RunUsage

from memory import Memory
from tests.fitness.pydantic_conversations.adapter import DocumentConversationStore
from tests.fitness.suites import memory, shared_memory

__all__ = ["memory", "shared_memory"]
SCOPE = "user:ada"


@pytest.fixture
def store(memory: Memory) -> DocumentConversationStore:
    return DocumentConversationStore(memory, SCOPE)


def say(text: str) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=datetime(2026, 11, 29, tzinfo=UTC))])


def answer(text: str) -> ModelMessage:
    return ModelResponse(parts=[TextPart(text)], timestamp=datetime(2026, 11, 29, tzinfo=UTC))


async def stored_keys(memory: Memory, prefix: str = "") -> list[str]:
    found: list[str] = []
    cursor, more = None, True
    while more:
        page = await memory.documents.list(SCOPE, prefix=prefix, limit=1_000, cursor=cursor)
        found += [info.key for info in page.documents]
        cursor, more = page.cursor, page.cursor is not None
    return found


# -- beside the store of the framework -------------------------------------------------

Pair = tuple[Any, Any]


class Beside:
    """Two stores that get the same calls. Entries and revisions have names of their own."""

    def __init__(self, ours: ConversationStore) -> None:
        self.ours, self.theirs = ours, InMemoryConversationStore()
        self.open: dict[str, Pair] = {}
        self.entries: dict[str, list[Pair]] = {}

    async def do(self, call: Callable[[ConversationStore, int], Awaitable[Any]]) -> Pair:
        results: list[Any] = []
        for at, store in enumerate((self.ours, self.theirs)):
            try:
                results.append(await call(store, at))
            except (ConversationConflict, UserError) as error:
                results.append(error)
        one, two = results
        assert self.plain(one) == self.plain(two)
        return one, two

    def plain(self, result: Any) -> Any:
        if isinstance(result, Exception):
            return type(result)
        if isinstance(result, Conversation):
            return (result.conversation_id, result.messages, result.usage, result.deferred_tool_requests)
        if isinstance(result, ConversationRecord):
            kept = (result.conversation_id, result.scope, result.usage, result.forked_from)
            return (*kept, len(result.branches), result.head_id is None, result.forked_at is None)
        if isinstance(result, ConversationEntry):
            return result.message, result.parent_id is None
        return [self.plain(one) for one in result] if isinstance(result, list) else result


async def use(draw: random.Random, beside: Beside) -> None:
    name = draw.choice("abcd")
    scope = draw.choice([None, None, "ada", "bob"])
    held = beside.open.get(name)
    kind = draw.choice(["load", "load", "say", "say", "say", "branch", "fork", "delete", "rewrite", "list"])
    if kind == "load":
        limit = draw.choice([None, None, 0, 1, 3])
        found = await beside.do(lambda store, at: store.load(name, scope=scope, limit=limit))
        if isinstance(found[0], Conversation):
            beside.open[name] = found
        entries = await beside.do(lambda store, at: store.load_entries(name))
        if isinstance(entries[0], list):
            beside.entries.setdefault(name, []).extend(zip(*entries, strict=True))
    elif kind in ("say", "rewrite"):
        pair = held or (Conversation(conversation_id=name), Conversation(conversation_id=name))
        beside.open[name] = pair
        more = [say(str(draw.random())), answer("ok")][: draw.randint(0, 2)]
        for conversation in pair:
            if kind == "rewrite" and conversation.messages:
                conversation.messages[-1] = more[0] if more else say("instead")
                conversation.new_message_index = None
            conversation.messages += more
            conversation.usage = RunUsage(requests=len(conversation.messages))
        await beside.do(lambda store, at: store.save(pair[at], scope=scope))
    elif kind == "branch" and held:
        place = draw.randint(0, 5)
        found = await beside.do(
            lambda store, at: store.branch(name, at=place, expected_revision=held[at].revision, scope=scope)
        )
        if isinstance(found[0], Conversation):
            beside.open[name] = found
    elif kind == "fork":
        new, known = draw.choice("abcdef"), beside.entries.get(name)
        point = draw.choice(known) if known and draw.random() < 0.6 else None
        await beside.do(
            lambda store, at: store.fork(
                name, from_entry=point and point[at].id, new_conversation_id=new, scope=scope
            )
        )
    elif kind == "delete":
        await beside.do(lambda store, at: store.delete(name, scope=scope))
    else:
        limit = draw.choice([None, 0, 1, 2])
        await beside.do(lambda store, at: store.list_conversations(scope=scope, limit=limit))


@pytest.mark.parametrize("seed", range(3))
async def test_drawn_uses_come_to_what_the_store_of_the_framework_says(
    store: DocumentConversationStore, seed: int
) -> None:
    draw, beside = random.Random(seed), Beside(store)  # noqa: S311
    for _ in range(120):
        await use(draw, beside)
    for name in "abcdef":
        await beside.do(lambda store, at, name=name: store.load(name))  # type: ignore[misc]


# -- what is stored --------------------------------------------------------------------

MESSAGES: list[ModelMessage] = [
    ModelRequest(
        parts=[UserPromptPart(["look", BinaryContent(b"\x00\xff" * 400_000, media_type="application/pdf")])]
    ),
    ModelResponse(
        parts=[
            ThinkingPart("hm", signature="s"),
            ToolCallPart("look", {"deep": {"a": [1, 2.5, None]}}, "c1"),
        ],
        provider_details={"nested": [[[[["x"] * 3] * 3]]]},
    ),
    ModelRequest(
        parts=[ToolReturnPart("look", {"found": "\U0001f600 \u00fc"}, "c1")], instructions="be brief"
    ),
    ModelResponse(parts=[TextPart("t" * 300_000)], model_name="m", timestamp=datetime.now(UTC)),
]


async def test_messages_and_records_come_back_equal(store: DocumentConversationStore) -> None:
    deep: Any = "x"
    for _ in range(80):
        deep = [deep]
    waiting = DeferredToolRequests(
        calls=[ToolCallPart("ask", {"deep": deep}, "c2")], metadata={"c2": {"by": "ada"}}
    )
    conversation = Conversation(
        conversation_id="odd / id \u00fc" * 90,
        messages=[*MESSAGES, ModelResponse(parts=[ToolCallPart("ask", {"deep": deep}, "c2")])],
        usage=RunUsage(requests=3, input_tokens=2**40, details={"cached": 7}),
        deferred_tool_requests=waiting,
    )
    entries = await store.save(conversation, scope="s / \u00fc")
    loaded = await store.load(conversation.conversation_id, scope="s / \u00fc")
    assert loaded == conversation
    assert [entry.message for entry in entries] == conversation.messages
    assert [await store.read_entry(entry.id) for entry in entries] == entries
    assert await store.load(conversation.conversation_id, scope="other") is None
    with pytest.raises(LookupError):
        await store.read_entry("unknown")


@pytest.mark.parametrize("count", [89, 90, 91, 400])
async def test_long_histories_are_stored_whole_or_not_at_all(
    memory: Memory, store: DocumentConversationStore, count: int
) -> None:
    await store.save(Conversation(conversation_id="taken", messages=[say("mine")]))
    before = await stored_keys(memory)
    messages = [say(str(number)) for number in range(count)]
    with pytest.raises(ConversationConflict):
        await store.save(Conversation(conversation_id="taken", messages=messages))
    entries = [
        ConversationEntry(id=str(n), parent_id=str(n - 1) if n else None, message=messages[n])
        for n in range(count)
    ]
    broken = [replace(entries[0], parent_id="unknown"), *entries[1:]]
    record = ConversationRecord(conversation_id="new", head_id=str(count - 1))
    for wrong, head in ((broken, record), (entries, replace(record, head_id="unknown"))):
        with pytest.raises(ConversationConflict):
            await store.write_record(head, new_entries=wrong, expected_revision=None)
    assert await stored_keys(memory) == before
    await store.write_record(record, new_entries=entries, expected_revision=None)
    assert await store.load_entries("new") == entries
    for limit in (0, 1, 33, count, count + 1):
        assert await store.load_entries("new", limit=limit) == entries[max(0, count - limit) :]


async def test_one_of_several_savers_wins_and_the_others_leave_nothing(
    memory: Memory, store: DocumentConversationStore
) -> None:
    first = Conversation(conversation_id="c", messages=[say("hello")])
    await store.save(first)
    loaded = [await store.load("c") for _ in range(6)]
    for number, one in enumerate(loaded):
        assert one is not None
        one.messages += [say(f"{number} {n}") for n in range(100)]
    saved = await asyncio.gather(*(store.save(one) for one in loaded if one), return_exceptions=True)
    others = [one for one in saved if not isinstance(one, list)]
    assert [type(one) for one in others] == [ConversationConflict] * 5, others
    assert len(await stored_keys(memory, "entry/")) == 101
    assert len(await store.load_entries("c") or []) == 101


async def test_conversations_are_listed_by_time(store: DocumentConversationStore) -> None:
    moment = datetime(2026, 11, 29, tzinfo=UTC)
    for number in (3, 1, 2, 0):
        at = moment + timedelta(microseconds=number)
        record = ConversationRecord(
            conversation_id=f"c{number}", head_id=None, scope="ab"[number % 2], updated_at=at, revision="1"
        )
        await store.write_record(record, expected_revision=None)
    assert [one.conversation_id for one in await store.list_conversations()] == ["c3", "c2", "c1", "c0"]
    assert [one.conversation_id for one in await store.list_conversations(scope="a")] == ["c2", "c0"]
    again = replace(record, updated_at=moment + timedelta(hours=1), revision="2", scope="b")
    await store.write_record(again, expected_revision="1")
    assert [one.conversation_id for one in await store.list_conversations(limit=2)] == ["c0", "c3"]
    assert [one.conversation_id for one in await store.list_conversations(scope="a")] == ["c2"]


async def test_a_deleted_conversation_leaves_what_forks_began_with(
    memory: Memory, store: DocumentConversationStore
) -> None:
    source = Conversation(conversation_id="c", messages=[say(str(n)) for n in range(6)])
    await store.save(source)
    await store.branch("c", at=5, expected_revision=source.revision)
    fork = await store.fork("c", at=3, new_conversation_id="f")
    fork.messages.append(say("on the fork"))
    await store.save(fork)
    await store.delete("c")
    assert await store.load("c") is None
    loaded = await store.load("f")
    assert loaded is not None
    assert loaded.messages == fork.messages
    assert len(await stored_keys(memory, "entry/")) == 4
    await store.delete("f")
    assert await store.list_conversations() == []
    assert len(await stored_keys(memory, "entry/")) == 3, (
        "nobody counts forks: these stay until the scope is erased"
    )
    alone = Conversation(conversation_id="c", messages=[say("again")])
    await store.save(alone)
    await store.delete("c")
    assert len(await stored_keys(memory)) == 3
    await memory.admin.erase(SCOPE)
    assert await stored_keys(memory) == []


async def test_forks_and_deletions_at_once_leave_no_fork_without_its_history(
    store: DocumentConversationStore,
) -> None:
    for turn in range(8):
        await store.save(Conversation(conversation_id="c", messages=[say(str(n)) for n in range(4)]))
        results = await asyncio.gather(
            store.delete("c"),
            *(store.fork("c", at=at, new_conversation_id=f"{turn} {at}") for at in (1, 2, 4)),
            return_exceptions=True,
        )
        for at, made in zip((1, 2, 4), results[1:], strict=True):
            loaded = await store.load(f"{turn} {at}")
            if isinstance(made, Conversation):
                assert loaded is not None
                assert loaded.messages == [say(str(n)) for n in range(at)]
            else:
                assert isinstance(made, ConversationConflict | UserError)
                assert loaded is None


async def test_agents_go_on_after_a_restart_and_tenants_are_apart(config: dict[str, Any]) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f"{len(messages)} messages")])

    agent = Agent(FunctionModel(model))
    for turn in (1, 3, 5):
        async with Memory(config) as memory:
            store = DocumentConversationStore(memory, SCOPE)
            conversation = await store.load("c") or Conversation(conversation_id="c")
            result = await agent.run("more", conversation=conversation)
            assert result.output == f"{turn} messages"
            await store.save(result)
            for other in (
                DocumentConversationStore(memory.for_tenant("other"), SCOPE),
                DocumentConversationStore(memory, "user:bob"),
            ):
                assert (await other.load("c"), await other.list_conversations()) == (None, [])
            with pytest.raises(ConversationConflict):
                await store.save(Conversation(conversation_id="c", messages=[say("x")]))
