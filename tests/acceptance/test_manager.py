"""The memory manager over scopes of a memory, and with that memory to keep what is said
until every store has learnt it (section E).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from memory import Memory, MemoryManager, Message, NamedStore
from memory.agents.manager import EveryNTurns, EveryTurn, Extraction
from tests.acceptance.talking import user

SELDOM = Extraction(EveryNTurns(1_000))


class Heard:
    """A store elsewhere that takes messages, and may be down."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []
        self.down = False

    async def search(self, query: str, *, limit: int) -> list[str]:
        return []

    async def add_messages(self, messages: Sequence[Message], context: Mapping[str, Any]) -> None:
        if self.down:
            raise OSError("down")
        self.heard += zip(context["sequence_numbers"], [message.text for message in messages], strict=True)


def model(prompt: Any) -> str:
    """Notes everything that the user says."""
    return json.dumps(
        [
            {"content": line.removeprefix("user: ")}
            for line in prompt.user.splitlines()
            if line.startswith("user: ")
        ]
    )


async def contents(memory: Memory, scope: str) -> list[str]:
    return [entry.content for entry in await memory.retrieve(scope, order="oldest", limit=100)]


@pytest.mark.behaviour("E20", "E27", "E35", "E51")
async def test_scopes_are_searched_added_to_and_shown_under_their_names(memory: Memory) -> None:
    stores = [
        NamedStore("ada", memory.scoped("user:ada"), writable=True),
        NamedStore("team", memory.scoped("workspace:boats")),
    ]
    await memory.write("The boats leave on Sunday", scope="workspace:boats")
    async with MemoryManager(stores, add_tool=True) as manager:
        assert await manager.dispatch("add_memory", {"entries": ["Ada sails on Sunday"]}) == {"stored": 1}
        found = await manager.dispatch("search_memory", {"query": "Sunday"})
        assert [(one["store_name"], one["content"]) for one in found] == [
            ("ada", "Ada sails on Sunday"),
            ("team", "The boats leave on Sunday"),
        ]
        (said,) = await manager.inject([user("what about Sunday?")])
        assert '<entry source="team">The boats leave on Sunday</entry>' in said["content"]
    assert await contents(memory, "workspace:boats") == ["The boats leave on Sunday"]


@pytest.mark.behaviour("E9", "E61", "E68", "E71", "AC-E41")
async def test_facts_of_a_batch_that_is_told_twice_are_kept_once(memory: Memory) -> None:
    store = NamedStore("ada", memory.scoped("user:ada"), writable=True, extraction=Extraction(EveryTurn()))
    for _ in range(2):  # as a process that died before it noted how far it had come, and the next
        manager = MemoryManager([store], model=model)
        recording = await manager.record(run_id="r1")
        await recording.add([user("I like tea"), user("I sail")])
        await recording.turn_ended()
        await manager.flush()
    assert sorted(await contents(memory, "user:ada")) == ["I like tea", "I sail"]
    (tea,) = [entry for entry in await memory.retrieve("user:ada") if entry.content == "I like tea"]
    await memory.delete(tea.id)
    again = MemoryManager([store], model=model)
    await (await again.record(run_id="r1")).add([user("I like tea"), user("I sail")])
    await again.flush()
    assert await contents(memory, "user:ada") == ["I sail"], (
        "what was deleted is not learnt again from the same words"
    )
    later = await again.record(run_id="r1")
    await later.add(user("I sail"))
    await later.flush()
    assert await contents(memory, "user:ada") == ["I sail", "I sail"], "said again later it is another fact"


@pytest.mark.behaviour("E9", "E71", "AC-E41")
async def test_words_of_which_a_model_says_another_thing_when_it_reads_them_again_are_kept_once_and_hold_up_nothing(
    memory: Memory,
) -> None:
    answers: list[list[dict[str, Any]]] = [
        [{"content": "Ada likes tea", "metadata": {"sure": 0.9}}, {"content": "Ada sails"}],
        [
            {"content": "Ada likes tea", "metadata": {"sure": 0.8}},
            {"content": "Ada sails"},
            {"content": "Ada sails", "metadata": {"n": 1}},
        ],
        [{"content": "Ada is well"}],
    ]

    def wavers(prompt: Any) -> str:
        return json.dumps(answers.pop(0) if len(answers) > 1 else answers[0])

    store = NamedStore("ada", memory.scoped("user:ada"), writable=True, extraction=Extraction(EveryTurn()))
    for _ in range(2):  # as a process that died before it noted how far it had come, and the next
        manager = MemoryManager([store], model=wavers)
        recording = await manager.record(run_id="r1")
        await recording.add(user("I like tea, and I sail"))
        await recording.flush()
    assert sorted(await contents(memory, "user:ada")) == ["Ada likes tea", "Ada sails"]
    await recording.add(user("I am well"))
    await recording.flush()
    assert sorted(await contents(memory, "user:ada")) == ["Ada is well", "Ada likes tea", "Ada sails"]
    (tea,) = await memory.retrieve("user:ada", metadata={"sure": 0.9})
    assert tea.content == "Ada likes tea", "as it was learnt first"


@pytest.mark.behaviour("E65", "E70", "E81")
async def test_the_log_of_a_session_is_told_to_each_store_from_its_mark_by_whichever_process(
    memory: Memory,
) -> None:
    ready, down = Heard(), Heard()
    down.down = True
    stores = [
        NamedStore(name, store, writable=True, extraction=SELDOM)
        for name, store in (("ready", ready), ("down", down))
    ]
    session = memory.session("s1", user="ada", system="Be kind.")
    manager = MemoryManager(stores, memory=memory)
    recording = await manager.record(session)
    await session.append([user("one"), {"role": "assistant", "content": "yes"}])
    await recording.add(user("two"))
    assert await manager.record(session) is recording
    await recording.flush()
    assert ready.heard == [(1, "one"), (2, "yes"), (3, "two")]
    await session.append(user("three"))
    await session.clear()
    # the process dies here: nothing is closed
    down.down = False
    other = MemoryManager(stores, memory=memory)
    assert await other.resume() == 1
    assert down.heard == ready.heard == [(1, "one"), (2, "yes"), (3, "two"), (4, "three")]
    assert await other.resume() == 0, "nothing waits any more"
    assert [run.status for run in (await session.runs.list()).runs] == ["completed", "completed"]
    await session.append(user("four"))
    async with MemoryManager(stores, memory=memory) as third:
        await third.record(session)
    assert ready.heard[-1] == down.heard[-1] == (5, "four")


@pytest.mark.behaviour("E78", "E81")
async def test_what_is_said_outside_of_sessions_waits_in_the_memory_until_every_store_has_it(
    memory: Memory,
) -> None:
    store = Heard()
    stores = [NamedStore("elsewhere", store, writable=True, extraction=SELDOM)]
    died = await MemoryManager(stores, memory=memory).record(run_id="r1", user="ada")
    await died.add([user("one"), user("two")])
    store.down = True
    assert await MemoryManager(stores, memory=memory).resume() == 1
    store.down = False
    async with MemoryManager(stores, memory=memory) as manager:  # opening looks for it
        await manager.flush()
    assert store.heard == [(0, "one"), (1, "two")]
    ended = await (other := MemoryManager(stores, memory=memory)).record(run_id="r2", user="ada")
    await ended.add(user("three"))
    assert await memory.sessions.get("extraction/r2") is not None
    await other.close()
    assert store.heard[-1] == (0, "three")
    assert await memory.sessions.get("extraction/r2") is None, "every store has it"


@pytest.mark.behaviour("E71", "E81")
async def test_facts_outlive_the_temporary_session_of_their_messages(memory: Memory) -> None:
    boats = memory.scoped("workspace:boats")
    stores = [NamedStore("boats", boats, writable=True, extraction=Extraction(EveryTurn()))]
    for words in ("I like tea", "I sail"):  # the second run has the name of the first
        async with MemoryManager(stores, memory=memory, model=model) as manager:
            recording = await manager.record(run_id="r1", user="ada")
            await recording.add(user(words))
            await recording.turn_ended()
        assert await memory.sessions.get("extraction/r1") is None
        await memory.admin.sweep()
    assert sorted(await contents(memory, "workspace:boats")) == ["I like tea", "I sail"]
    (tea,) = [one for one in await boats.retrieve() if one.content == "I like tea"]
    await memory.update(tea.id, tags=["drink"])
    await memory.promote(tea.id, "org:club")
    assert await contents(memory, "org:club") == ["I like tea"]
    async with MemoryManager(stores, memory=memory, model=model) as manager:
        recording = await manager.record(run_id="r2", user="ada")
        await recording.add(user("I race"))
        await recording.flush()
        assert "I race" in await contents(memory, "workspace:boats")
        await memory.admin.erase_user("ada")
    assert sorted(await contents(memory, "workspace:boats")) == ["I like tea", "I sail"]


@pytest.mark.behaviour("E81")
async def test_what_was_erased_is_told_to_nobody(memory: Memory) -> None:
    store = Heard()
    stores = [NamedStore("elsewhere", store, writable=True, extraction=SELDOM)]
    manager = MemoryManager(stores, memory=memory)
    waiting, session = await manager.record(run_id="r1", user="ada"), memory.session("s1", user="bob")
    await waiting.add(user("Ada's secret"))
    await manager.record(session)
    secret, _ = await session.append([user("Bob's secret"), user("hello")])
    await session.erase(str(secret.id))
    await memory.admin.erase_user("ada")
    await MemoryManager(stores, memory=memory).resume()
    assert [text for _, text in store.heard] == ["hello"]


@pytest.mark.behaviour("E52")
async def test_what_is_shown_to_a_model_stands_in_no_history_and_is_learnt_by_no_store(
    memory: Memory,
) -> None:
    """The agent appends what was said; what it was shown besides was for one call of
    the model.
    """
    await memory.write("Ada sails on Sunday", scope="user:ada")
    heard = Heard()
    stores = [
        NamedStore("ada", memory.scoped("user:ada")),
        NamedStore("heard", heard, writable=True, extraction=Extraction(EveryTurn())),
    ]
    session = memory.session("talk")
    async with MemoryManager(stores) as manager:
        recording = await manager.record(session=session)
        said = [user("when does Ada sail?")]
        await recording.add(said)
        shown = await manager.inject(said)
        assert "Ada sails on Sunday" in shown[-1]["content"]
        await recording.add([{"role": "assistant", "content": "on Sunday"}])
        await recording.turn_ended()
        await manager.flush()
    assert said == [user("when does Ada sail?")]
    assert [text for _, text in heard.heard] == ["when does Ada sail?", "on Sunday"]
    assert [item.message.text for item in (await session.history()).items] == [
        "when does Ada sail?",
        "on Sunday",
    ]
