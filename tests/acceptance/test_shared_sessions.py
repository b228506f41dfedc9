"""Sessions of several users: what each handle recalls, what is learnt of whom, and what
an erasure of one of them reaches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import ExitedMessages, Memory, Message, Session
from tests.acceptance.conftest import asked, topologies
from tests.acceptance.support import Clock
from tests.acceptance.talking import assistant, user
from tests.support.placings import forget

WORDS = "zebra-5550199"
"""In everything that Ada says."""
RULES = [{"name": "known", "on": "session_end", "to_scope": "user", "when": {"tag": "fact"}}]


@pytest.fixture(params=asked(topologies(mixed=True)))
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param(tmp_path) | {"embedder": "none"}
    forget(tmp_path)


class Told:
    """An `on_window_exit` that makes an entry of each message, and remembers what it was told."""

    def __init__(self, **more: Any) -> None:
        self.calls: list[ExitedMessages] = []
        self._more = more

    def __call__(self, leaving: ExitedMessages) -> list[dict[str, Any]]:
        self.calls.append(leaving)
        scope = {"scope": f"session:{leaving.session_id}"} if self._more else {}
        summaries = (
            []
            if leaving.summary is None
            else [{"content": f"summary {leaving.summary.text}", **scope, **self._more}]
        )
        return [
            *({"content": message.text, **scope, **self._more} for message in leaving.messages),
            *summaries,
        ]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def memory(config: dict[str, Any], clock: Clock, told: Told) -> AsyncIterator[Memory]:
    async with Memory(config, clock=clock, on_window_exit=told, promotion=RULES) as opened:
        yield opened


async def known(memory: Memory, name: str) -> list[str]:
    return sorted(entry.content for entry in await memory.retrieve(f"user:{name}", limit=100))


async def everything(memory: Memory) -> list[str]:
    return [str(line) async for line in memory.admin.export()]


async def room(memory: Memory, owner: str | None, name: str = "room") -> tuple[Session, Session]:
    """A shared session of this owner, as Ada and Bob have it."""
    await memory.sessions.create(name, user=owner, shared=True)
    return memory.session(name, user="ada"), memory.session(name, user="bob")


async def test_a_handle_recalls_what_its_own_user_may_see(memory: Memory) -> None:
    for name in ("ada", "bob", "carol"):
        await memory.write(f"the code of {name} is {name}-code", scope=f"user:{name}")
    for owner in ("ada", "carol", None):
        ada, bob = await room(memory, owner, f"room of {owner}")
        await memory.write("the code of the room is room-code", scope=f"session:{ada.id}")
        await ada.append(user("hello"))
        forked = await bob.fork()
        for session, who in ((ada, "ada"), (bob, "bob"), (forked, "bob"), (memory.session(ada.id), owner)):
            told = "\n".join(
                message.text
                for message in (await session.context(4_000, recall="what is the code?")).messages
            )
            seen = {one for one in ("ada", "bob", "carol", "room") if f"{one}-code" in told}
            assert seen - {"room"} == {who} - {None}
            assert ("room" in seen) == (session is not forked)


async def leave(how: str, sessions: Sequence[Session]) -> None:
    if how == "compaction":
        await sessions[0].compact(lambda messages: " and ".join(m.text for m in messages), keep_last=0)
    elif how == "replacement":
        await sessions[0].context()
        await sessions[0].replace([])
    await sessions[1].end()


@pytest.mark.parametrize(
    ("owner", "how"), [("ada", "compaction"), ("bob", "replacement"), ("carol", "end"), (None, "compaction")]
)
async def test_what_is_learnt_of_a_message_is_of_the_user_who_said_it(
    memory: Memory, told: Told, owner: str | None, how: str
) -> None:
    ada, bob = await room(memory, owner)
    await ada.append([user("ada's street"), assistant("ada's answer")])
    async with bob.stream(role="user") as out:
        await out.write("bob's street")
    await memory.session("room").append(user("anybody's street"))
    await leave(how, (ada, bob))
    of: dict[str | None, list[str]] = {
        "ada": ["ada's answer", "ada's street"],
        "bob": ["bob's street"],
        "carol": [],
        None: [],
    }
    of[owner].append("anybody's street")
    assert {name: await known(memory, name) for name in of if name} == {
        name: sorted(said) for name, said in of.items() if name
    }
    assert [entry.content for entry in await memory.retrieve("session:room")] == of[None]
    assert all(leaving.summary is None for leaving in told.calls), "it says what others said"
    for entry in await memory.retrieve("user:bob", limit=1):
        assert {item.message.text for item in await memory.entries.source_messages(entry.id)} == set(
            of["bob"]
        )


async def test_a_summary_of_what_one_user_said_is_told_of_that_user(memory: Memory) -> None:
    ada, bob = await room(memory, "bob")
    await ada.append(user("ada's street"))
    await bob.compact(lambda messages: f"short {messages[0].text}", keep_last=0)
    await bob.end()
    assert (await known(memory, "ada"), await known(memory, "bob")) == (
        ["ada's street", "summary short ada's street"],
        [],
    )


async def test_a_rule_copies_a_fact_of_a_session_to_the_user_who_said_it(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config, clock=clock, on_window_exit=Told(tags=["fact"]), promotion=RULES) as memory:
        ada, bob = await room(memory, "ada")
        await ada.append(user("ada's street"))
        await bob.append(user("bob's street"))
        await ada.end()
        assert (await known(memory, "ada"), await known(memory, "bob")) == (
            ["ada's street"],
            ["bob's street"],
        )


@pytest.mark.parametrize(("owner", "carried"), [("bob", None), (None, "same"), ("bob", "elsewhere")])
async def test_an_erasure_of_a_user_reaches_what_was_said_through_their_own_handle(
    memory: Memory, clock: Clock, owner: str | None, carried: str | None
) -> None:
    ada, bob = await room(memory, owner)
    await bob.append([user("bob's street", "b1"), user("bob's other street", "b2")])
    await ada.append([user(f"{WORDS} 1", "a1"), assistant(f"{WORDS} answered")])
    async with ada.stream() as out:
        await out.write(f"{WORDS} streamed")
    await ada.update("b2", content=f"{WORDS} in place of bob's")
    await ada.tasks.save("t1", title=WORDS)
    await ada.runs.save("r1", child_id="child", metadata={"asked": WORDS})
    await bob.tasks.save("t2", title="bob's task")
    await bob.tasks.save("t3", title="bob's title")
    await ada.tasks.save("t3", title=WORDS)
    await bob.compact(lambda messages: f"short: {messages[2].text}", keep_last=1)
    fork = await bob.fork(session_id="fork")
    await fork.append(user("bob's question", "b3"))
    await bob.end()
    if carried is not None:
        tenant = memory.tenant if carried == "same" else carried
        async with Memory(
            "memory://", accept_loss=True, embedder="none", clock=clock, tenant=tenant
        ) as there:
            assert (
                await there.admin.import_(memory.admin.export(), same_ids=carried == "same")
            ).problems == []
            await erased(there)
    else:
        await erased(memory)


async def erased(memory: Memory) -> None:
    """Ada is erased, and Bob is not."""
    foreseen = await memory.admin.erase_user("ada", dry_run=True)
    assert any(WORDS in line for line in await everything(memory))
    done = await memory.admin.erase_user("ada")
    assert (done.sessions, done.messages) == (foreseen.sessions, foreseen.messages)
    assert done.messages >= 4
    assert [line for line in await everything(memory) if WORDS in line] == []
    assert await memory.search_messages(WORDS) == []
    room = memory.session("room", create=False)
    assert [task.title for task in (await room.tasks.list()).tasks] == ["bob's task"]
    assert (await room.runs.list()).runs == []
    said = [item.message.text for item in (await room.history()).items]
    assert [text for text in said if text] == ["bob's street"]
    assert [m.text for m in (await memory.session("fork", create=False).context()).messages] == [
        "bob's question"
    ]
    assert (await memory.admin.erase_user("ada")).messages == 0


async def test_ending_a_session_says_nothing_in_the_name_of_who_ends_it(memory: Memory) -> None:
    ada, bob = await room(memory, "carol")
    out = ada.stream()
    async with out:
        await out.write("ada's street")
        await bob.end()
    assert (await memory.admin.erase_user("bob")).messages == 0
    assert [message.text for message in (await ada.context()).messages] == ["ada's street"]
    assert await known(memory, "ada") == ["ada's street"]


async def test_messages_of_one_owner_note_nobody(memory: Memory) -> None:
    session = memory.session("s", user="ada")
    await session.append([user("one"), Message(**assistant("two"))])
    await session.tasks.save("t", title="task")
    assert not any("said_by" in line for line in await everything(memory))
