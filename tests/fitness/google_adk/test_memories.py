"""The behaviours that ADK asks of a memory service, and what its users do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from memory import InvalidInput, Memory
from tests.fitness.google_adk.adapter import MemorySessionService
from tests.fitness.google_adk.memory_service import EntryMemoryService

ADA: dict[str, Any] = {"app_name": "boats", "user_id": "ada"}


@pytest.fixture
async def memory(config: dict[str, Any]) -> AsyncIterator[Memory]:
    async with Memory(config, loop="own") as opened:
        yield opened


@pytest.fixture
def service(memory: Memory) -> EntryMemoryService:
    return EntryMemoryService(memory)


def content(text: str, role: str = "user") -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def event(text: str | None, *, id: str = "", author: str = "user", **more: Any) -> Event:
    said = None if text is None else content(text)
    return Event(id=id, invocation_id="run", author=author, content=said, **more)


def session(*events: Event, name: str = "s", **owner: Any) -> Session:
    return Session(**(ADA | owner), id=name, events=list(events))


async def find(service: EntryMemoryService, query: str, **owner: Any) -> list[str]:
    found = await service.search_memory(**(ADA | owner), query=query)
    return [one.content.parts[0].text for one in found.memories]


async def test_a_session_is_found_by_its_words(service: EntryMemoryService) -> None:
    toolkit, rocks = (
        event("The ADK is a great toolkit."),
        event("I agree. The kit (ADK) rocks!", author="model"),
    )
    await service.add_session_to_memory(session(toolkit, event(None), rocks))
    await service.add_session_to_memory(session(event("I like to code in Python."), name="t"))
    await service.add_session_to_memory(session(name="empty"))
    (found,) = (await service.search_memory(**ADA, query="python")).memories
    assert found.content == content("I like to code in Python.")
    assert found.author == "user"
    assert set(await find(service, "How about ADK?")) == {
        "The ADK is a great toolkit.",
        "I agree. The kit (ADK) rocks!",
    }
    assert await find(service, "nonexistent") == []
    assert await find(service, "   ") == []


async def test_a_session_may_be_added_again(memory: Memory, service: EntryMemoryService) -> None:
    first = event("Ada likes tea", id="1")
    for _ in range(2):
        await service.add_session_to_memory(session(first))
    both = session(first, event("Ada likes milk", id="2"))
    await asyncio.gather(*(service.add_session_to_memory(both) for _ in range(3)))
    assert sorted(await find(service, "Ada likes")) == ["Ada likes milk", "Ada likes tea"]
    await service.add_session_to_memory(session(event("Ada likes coffee", id="1")))
    assert await find(service, "coffee") == ["Ada likes coffee"]
    assert await find(service, "tea") == []
    await service.add_session_to_memory(session(first))
    assert await find(service, "tea") == ["Ada likes tea"]
    assert len(await memory.browse()) == 2


async def test_events_are_added_to_those_before(service: EntryMemoryService) -> None:
    await service.add_session_to_memory(session(event("Ada likes tea", id="1")))
    new = [event("Ada likes milk", id="2"), event("changed", id="1")]
    await service.add_events_to_memory(**ADA, events=new, session_id="s", custom_metadata={"turn": 2})
    await service.add_events_to_memory(**ADA, events=[event("Ada likes rain", id="3")])
    assert sorted(await find(service, "Ada likes")) == ["Ada likes milk", "Ada likes rain", "Ada likes tea"]
    assert await find(service, "changed") == []
    (milk,) = (await service.search_memory(**ADA, query="milk")).memories
    assert milk.custom_metadata == {"turn": 2}


async def test_users_apps_and_tenants_never_mix(memory: Memory, service: EntryMemoryService) -> None:
    owners = [
        {"app_name": app, "user_id": user}
        for app in ("app", "app/other", "other")
        for user in ("user", "other/user", "app")
    ]
    for owner in owners:
        text = f"a secret of {owner['app_name']} and {owner['user_id']}"
        await service.add_session_to_memory(session(event(text, id="same"), **owner))
    for owner in owners:
        text = f"a secret of {owner['app_name']} and {owner['user_id']}"
        assert await find(service, "secret", **owner) == [text]
    other = EntryMemoryService(memory.for_tenant("globex"))
    assert await find(other, "secret", **owners[0]) == []
    await memory.admin.erase_user("user")
    assert await find(service, "secret", **owners[0]) == []
    assert len(await find(service, "secret", **owners[1])) == 1


async def test_memories_with_and_without_ids(service: EntryMemoryService) -> None:
    given = [
        MemoryEntry(
            content=content("Ada likes tea", "model"),
            author="helper",
            timestamp="a day",
            custom_metadata={"a": 1},
        ),
        MemoryEntry(id="pet", content=content("Ada has a cat")),
    ]
    await service.add_memory(**ADA, memories=given, custom_metadata={"b": 2})
    (tea,) = (await service.search_memory(**ADA, query="tea")).memories
    assert (tea.content, tea.author, tea.timestamp) == (given[0].content, "helper", "a day")
    assert tea.custom_metadata == {"a": 1, "b": 2}
    await service.add_memory(**ADA, memories=[MemoryEntry(id="pet", content=content("Ada has a dog"))])
    assert await find(service, "cat dog") == ["Ada has a dog"]
    without = MemoryEntry(content=types.Content(role="user", parts=[]))
    with pytest.raises(InvalidInput, match=r"memories\[1\]"):
        await service.add_memory(**ADA, memories=[MemoryEntry(content=content("Ada has a bird")), without])
    assert await find(service, "bird") == []


async def test_a_deleted_memory_does_not_come_back(service: EntryMemoryService) -> None:
    events = [event("Ada likes tea", id="1"), event("Ada likes milk", id="2")]
    await service.add_session_to_memory(session(*events))
    (tea,) = (await service.search_memory(**ADA, query="tea")).memories
    for stranger in ({"app_name": "other"}, {"user_id": "bob"}):
        await service.delete_memory(**(ADA | stranger), memory_id=tea.id)
        assert await find(service, "tea") == ["Ada likes tea"]
    await service.delete_memory(**ADA, memory_id=tea.id)
    await service.delete_memory(**ADA, memory_id=tea.id)
    await service.add_session_to_memory(session(*events, event("Ada likes rain", id="3")))
    await service.add_events_to_memory(**ADA, events=events)
    assert sorted(await find(service, "Ada likes")) == ["Ada likes milk", "Ada likes rain"]
    for missing in (None, ""):
        with pytest.raises(ValueError, match="memory_id"):
            await service.delete_memory(**ADA, memory_id=missing)


async def test_long_texts_and_images(memory: Memory, service: EntryMemoryService) -> None:
    """A long text is found at its end; an image comes back only if it is small."""
    long = "word " * 30_000 + "needle"
    await service.add_session_to_memory(session(event(long, id="long")))
    (found,) = (await service.search_memory(**ADA, query="needle")).memories
    assert found.content.parts[0].text.endswith("needle")
    assert sum(len(entry.content) for entry in await memory.browse()) >= len(long) - 10
    for size in (100, 2**20):
        image = types.Part.from_bytes(data=b"\x00\xff" * (size // 2), mime_type="image/png")
        said = types.Content(role="user", parts=[types.Part(text=f"picture of {size}"), image])
        await service.add_session_to_memory(session(Event(invocation_id="run", author="user", content=said)))
        (found,) = (await service.search_memory(**ADA, query=f"picture {size}")).memories[:1]
        assert found.content == (said if size == 100 else content(f"picture of {size}"))


async def test_a_search_returns_ten(memory: Memory, service: EntryMemoryService) -> None:
    notes = [event(f"note {number} about work") for number in range(20)]
    await service.add_session_to_memory(session(*notes, event("the backlog note about work")))
    found = await find(service, "backlog note about work")
    assert len(found) == 10
    assert found[0] == "the backlog note about work"
    assert len(await find(EntryMemoryService(memory, results=3), "note")) == 3


SCRIPTS = [
    ("私の名前は太郎です", "太郎", 1),
    ("私の名前は太郎です", "天気", 0),
    ("我喜欢机器学习", "机器学习", 1),
    ("제 이름은 민수입니다", "민수입니다", 1),
    ("Меня зовут Алексей", "Алексей", 1),
    ("太郎 works at ABC Corp", "ABC", 1),
    ("私はPythonでADKを使っています", "adk", 1),
    ("我用Python写代码", "python", 1),
    ("私はPythonでADKを使っています", "Java", 0),
    ("I like to code in Python.", "thon", 0),
    ("Meet at the Cafe\u0301", "Café", 1),
    ("Meet at the Café", "Cafe\u0301", 1),
]


async def test_other_scripts(memory: Memory) -> None:
    """Each text and question of ADK's own tests, in an app of its own."""
    service = EntryMemoryService(memory)
    for number, (text, query, expected) in enumerate(SCRIPTS):
        owner = {"app_name": f"app {number}"}
        await service.add_session_to_memory(session(event(text), **owner))
        assert len(await find(service, query, **owner)) == expected, (text, query)


async def test_memories_name_their_session(memory: Memory, service: EntryMemoryService) -> None:
    """Deleting the session keeps the memories, and clears where they were said."""
    sessions = MemorySessionService(memory)
    made = await sessions.create_session(**ADA, session_id="s")
    await sessions.append_event(made, event("Ada likes tea"))
    await service.add_session_to_memory(made)
    (entry,) = await memory.browse()
    assert entry.conversation_id is not None
    assert entry.speaker == "user"
    await sessions.delete_session(**ADA, session_id="s")
    assert await find(service, "tea") == ["Ada likes tea"]
