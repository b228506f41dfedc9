"""What users of Strands do beyond its own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from strands.memory import AddMessagesContext, MemoryManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException, StorageError
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from memory import BlockingMemory, Memory
from tests.fitness.strands.adapter import MemorySessionRepository
from tests.fitness.strands.stores import ConversationMemoryStore, MemoryStorage, ScopeMemoryStore

ODD_IDS = ("a/b", "a%2Fb", "..", "ünïcode ☃", " padded ", "new\nline", "*", "_%")


@pytest.fixture
def memory(config: dict[str, Any]) -> Iterator[Memory]:
    opened = Memory(config, loop="own")
    with BlockingMemory(opened):
        yield opened


@pytest.fixture
def sessions(memory: Memory) -> MemorySessionRepository:
    made = MemorySessionRepository(memory, "user:ada")
    made.create_session(Session("chat", SessionType.AGENT))
    made.create_agent("chat", SessionAgent("helper", {}, {}))
    return made


def message(number: int, text: str = "hello", **more: Any) -> SessionMessage:
    return SessionMessage({"role": "user", "content": [{"text": text, **more}]}, number)


def texts(found: list[SessionMessage]) -> list[str]:
    return [one.message["content"][0]["text"] for one in found]


class TestSessions:
    def test_everything_comes_back_equal_after_reopening(self, config: dict[str, Any]) -> None:
        """Bytes, NaN, deep and odd values of state and messages survive."""
        deep: Any = "end"
        for _ in range(100):
            deep = {"inner": [deep]}
        agent = SessionAgent("helper", {"deep": deep, "big": 2**80, "bytes": b"\xff"}, {"removed": 0})
        said = message(0, image={"source": {"bytes": b"\x00\x01" * 200_000}}, weight=float("inf"))
        opened = Memory(config, loop="own")
        with BlockingMemory(opened):
            sessions = MemorySessionRepository(opened, "user:ada")
            session = sessions.create_session(Session("chat", SessionType.AGENT))
            sessions.create_agent("chat", agent)
            sessions.create_message("chat", "helper", said)
        again = Memory(config, loop="own")
        with BlockingMemory(again):
            sessions = MemorySessionRepository(again, "user:ada")
            assert sessions.read_session("chat") == session
            assert sessions.read_agent("chat", "helper") == agent
            assert sessions.list_messages("chat", "helper") == [said]

    def test_create_never_overwrites(self, sessions: MemorySessionRepository) -> None:
        sessions.create_message("chat", "helper", message(0, "first"))
        with pytest.raises(SessionException, match="Session chat already exists"):
            sessions.create_session(Session("chat", SessionType.AGENT))
        with pytest.raises(SessionException, match="Agent helper already exists"):
            sessions.create_agent("chat", SessionAgent("helper", {"other": 1}, {}))
        with pytest.raises(SessionException, match="Message 0 already exists"):
            sessions.create_message("chat", "helper", message(0, "second"))
        assert texts(sessions.list_messages("chat", "helper")) == ["first"]

    def test_what_is_missing(self, sessions: MemorySessionRepository) -> None:
        assert sessions.read_session("none") is None
        assert sessions.read_agent("chat", "none") is None
        assert sessions.read_message("chat", "helper", 7) is None
        assert sessions.list_messages("chat", "helper") == []
        calls: list[Callable[[], object]] = [
            lambda: sessions.create_agent("none", SessionAgent("helper", {}, {})),
            lambda: sessions.update_agent("chat", SessionAgent("none", {}, {})),
            lambda: sessions.create_message("chat", "none", message(0)),
            lambda: sessions.update_message("chat", "helper", message(7)),
            lambda: sessions.list_messages("chat", "none"),
            lambda: sessions.delete_session("none"),
        ]
        for call in calls:
            with pytest.raises(SessionException, match="does not exist"):
                call()
        number: Any = "../0"
        with pytest.raises(ValueError, match="must be an integer"):
            sessions.read_message("chat", "helper", number)

    def test_an_update_keeps_the_creation(self, sessions: MemorySessionRepository) -> None:
        sessions.create_message("chat", "helper", message(0))
        first = sessions.read_message("chat", "helper", 0)
        assert first is not None
        changed = message(0, "changed")
        changed.created_at = "later"
        sessions.update_message("chat", "helper", changed)
        found = sessions.read_message("chat", "helper", 0)
        assert found is not None
        assert texts([found]) == ["changed"]
        assert found.created_at == first.created_at

    def test_pages_follow_the_numbers(self, sessions: MemorySessionRepository) -> None:
        """Numbers may have gaps; 10 comes after 9; offsets count messages."""
        numbers = [0, 1, 2, 5, 8, 9, 10, 11, 100]
        for number in reversed(numbers):
            sessions.create_message("chat", "helper", message(number, str(number)))
        everything = [str(number) for number in numbers]
        for offset in range(len(numbers) + 2):
            for limit in (None, 0, 1, 3, 50):
                found = sessions.list_messages("chat", "helper", limit=limit, offset=offset)
                assert texts(found) == everything[offset:][:limit], (offset, limit)

    def test_large_messages_are_listed_whole(self, sessions: MemorySessionRepository) -> None:
        """A page of documents ends after 8 MiB; the list does not."""
        for number in range(3):
            sessions.create_message("chat", "helper", message(number, str(number) * 4_000_000))
        found = sessions.list_messages("chat", "helper")
        assert [len(text) for text in texts(found)] == [4_000_000] * 3

    def test_odd_ids_never_meet(self, sessions: MemorySessionRepository) -> None:
        for name in ODD_IDS:
            sessions.create_session(Session(name, SessionType.AGENT))
            for agent in ODD_IDS:
                sessions.create_agent(name, SessionAgent(agent, {"of": [name, agent]}, {}))
                sessions.create_message(name, agent, message(0, f"{name}|{agent}"))
        sessions.delete_session("a/b")
        for name in ODD_IDS[1:]:
            for agent in ODD_IDS:
                found = sessions.read_agent(name, agent)
                assert found is not None
                assert found.state == {"of": [name, agent]}
                assert texts(sessions.list_messages(name, agent)) == [f"{name}|{agent}"]

    def test_a_deleted_session_begins_anew(self, sessions: MemorySessionRepository) -> None:
        sessions.create_message("chat", "helper", message(0, "old"))
        sessions.delete_session("chat")
        assert sessions.read_session("chat") is None
        assert sessions.read_agent("chat", "helper") is None
        sessions.create_session(Session("chat", SessionType.AGENT))
        sessions.create_agent("chat", SessionAgent("helper", {}, {}))
        assert sessions.list_messages("chat", "helper") == []

    def test_users_and_tenants_never_mix(self, memory: Memory, sessions: MemorySessionRepository) -> None:
        others = [
            MemorySessionRepository(memory, "user:bob"),
            MemorySessionRepository(memory.for_tenant("globex"), "user:ada"),
        ]
        for other in others:
            assert other.read_session("chat") is None
            other.create_session(Session("chat", SessionType.AGENT))
            assert other.read_agent("chat", "helper") is None
        blocking = BlockingMemory(memory)
        blocking.admin.erase_user("ada")
        assert sessions.read_session("chat") is None
        assert [other.read_session("chat") is not None for other in others] == [True, True]

    def test_one_of_two_processes_wins_a_number(self, config: dict[str, Any]) -> None:
        """Two memories, eight threads: each number is stored once and whole."""
        memories = [Memory(config, loop="own") for _ in range(2)]
        with BlockingMemory(memories[0]), BlockingMemory(memories[1]):
            both = [MemorySessionRepository(one, "user:ada") for one in memories]
            both[0].create_session(Session("chat", SessionType.AGENT))
            both[0].create_agent("chat", SessionAgent("helper", {}, {}))

            def create(caller: int) -> list[int]:
                won = []
                for number in range(10):
                    try:
                        both[caller % 2].create_message("chat", "helper", message(number, str(caller)))
                        won.append(number)
                    except SessionException:
                        pass
                return won

            with ThreadPoolExecutor(8) as pool:
                wins = list(pool.map(create, range(8)))
            assert sorted(number for won in wins for number in won) == list(range(10))
            stored = texts(both[1].list_messages("chat", "helper"))
            assert stored == [str(next(c for c in range(8) if n in wins[c])) for n in range(10)]

    def test_managers_of_one_session_find_it(self, sessions: MemorySessionRepository) -> None:
        first = RepositorySessionManager("new", sessions)
        second = RepositorySessionManager("new", sessions)
        assert first.session == second.session


class TestStorage:
    async def test_keys_are_listed_in_order_beyond_a_page(self, memory: Memory) -> None:
        storage = MemoryStorage(memory, "workspace:snapshots")
        keys = [f"s/{number:04}" for number in range(1_100)]
        await asyncio.gather(*(storage.write(key, key.encode()) for key in [*keys, "t/1"]))
        assert await storage.list("s/") == keys
        assert await storage.list("") == [*keys, "t/1"]
        assert await storage.read("s/1099") == b"s/1099"
        assert (await storage.search("1099"))[0].key == "s/1099"

    async def test_errors_are_those_of_storages(self, memory: Memory) -> None:
        storage = MemoryStorage(memory, "workspace:snapshots")
        for key in ("", "k" * 513, "nul\x00"):
            with pytest.raises(StorageError):
                await storage.write(key, b"")
        assert await storage.read("missing") is None
        await storage.delete("missing")


class TestMemoryStore:
    async def test_a_manager_searches_and_adds(self, memory: Memory) -> None:
        facts = ScopeMemoryStore(memory, "user:ada", name="ada")
        team = ScopeMemoryStore(memory, "workspace:boats", name="team", writable=False)
        manager = MemoryManager([facts, team], add_tool_config=True)
        await memory.write("The sloop is sold", scope="workspace:boats", title="Sloop")
        await manager.add("Ada sails a sloop", {"metadata": {"page": 1}})
        found = await manager.search("sloop")
        assert [(one.store_name, one.content) for one in found] == [
            ("ada", "Ada sails a sloop"),
            ("team", "Sloop: The sloop is sold"),
        ]
        assert found[0].metadata is not None
        assert found[0].metadata["page"] == 1
        with pytest.raises(ValueError, match="not writable"):
            await team.add("no")

    async def test_a_repeated_text_is_stored_once(self, memory: Memory) -> None:
        facts = ScopeMemoryStore(memory, "user:ada", name="ada")
        ids = await asyncio.gather(*(facts.add("Ada likes tea", {"take": n}) for n in range(8)))
        assert len(set(ids)) == 1
        assert await facts.add(" Ada likes tea\n") == ids[0]
        assert len(await memory.browse()) == 1

    async def test_a_retired_or_deleted_fact_may_be_true_again(self, memory: Memory) -> None:
        facts = ScopeMemoryStore(memory, "user:ada", name="ada")
        first = await facts.add("Ada lives in Lisbon")
        await memory.entries.invalidate(first)
        second = await facts.add("Ada lives in Lisbon")
        assert second != first
        await memory.delete(second)
        assert [one.content for one in await facts.search("Lisbon")] == []
        third = await facts.add("Ada lives in Porto")
        await memory.delete(third)
        await facts.add("Ada lives in Porto")
        assert [one.content for one in await facts.search("Porto")] == ["Ada lives in Porto"]

    async def test_limits_and_blank_queries(self, memory: Memory) -> None:
        facts = ScopeMemoryStore(memory, "user:ada", name="ada", max_search_results=2)
        for number in range(5):
            await facts.add(f"Ada likes tea number {number}")
        assert len(await facts.search("tea")) == 2
        assert len(await facts.search("tea", {"max_search_results": 4})) == 4
        assert await facts.search("  ") == []

    async def test_messages_of_a_repeated_batch_are_stored_once(self, memory: Memory) -> None:
        """Numbers begin anew with each run of the agent."""
        store = ConversationMemoryStore(memory, "ada", "chat", name="chat", extraction=True)
        MemoryManager([store])
        batch = [
            {"role": "user", "content": [{"text": "the sloop leaks"}]},
            {"role": "assistant", "content": [{"text": "ok"}]},
        ]
        for _ in range(2):
            await store.add_messages(batch, AddMessagesContext(sequence_numbers=[0, 1]))
        await store.initialize()
        await store.add_messages(batch, AddMessagesContext(sequence_numbers=[0, 1]))
        history = await memory.session("chat").history()
        assert [item.message.text for item in history.items] == ["the sloop leaks", "ok"] * 2
        assert [item.message.raw for item in history.items] == batch * 2
        assert (await store.search("sloop"))[0].content == "the sloop leaks"

    def test_any_event_loop(self, memory: Memory) -> None:
        """A blocking agent runs each call on a loop of its own."""
        facts = ScopeMemoryStore(memory, "user:ada", name="ada")
        for number in range(3):
            asyncio.run(facts.add(f"Ada likes tea number {number}"))
        assert len(asyncio.run(facts.search("tea"))) == 3
