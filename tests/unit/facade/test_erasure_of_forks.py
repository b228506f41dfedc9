"""What an erasure reaches of forks: copies of the message, of its summaries, and what
was made of them, however far they were copied.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memory import ExitedMessages, Memory, Session

WORDS = "zebra-5550199"


def learn(leaving: ExitedMessages) -> list[str]:
    return [message.text for message in leaving.messages]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory(f"sqlite:///{tmp_path}/m.db", embedder="none", on_window_exit=learn) as opened:
        yield opened


async def left(memory: Memory) -> list[str]:
    """Where the words are still said."""
    return [str(line) async for line in memory.admin.export() if WORDS in str(line)]


async def forked(memory: Memory, **more: Any) -> tuple[Session, Session, Session]:
    """A session, its fork, in which that goes on, and a fork of the fork, which has
    ended.
    """
    session = memory.session("s", user="carol")
    others = [{"id": f"o{number}", "role": "user", "content": f"other {number}"} for number in range(3)]
    await session.append([others[0], {"id": "m", "role": "user", "content": WORDS, **more}, *others[1:]])
    await session.exclude("o1")
    fork = await session.fork(session_id="f")
    await fork.append({"role": "assistant", "content": "noted"})
    again = await fork.fork(session_id="g")
    await fork.compact(lambda messages: f"short: {messages[1].text}", keep_last=1)
    last = await fork.fork(session_id="h")
    await again.end()
    await last.end()
    return session, fork, again


@pytest.mark.parametrize(
    ("gone", "carried"), [(None, None), ("s", None), ("f", None), (None, "same"), ("f", "elsewhere")]
)
async def test_the_erasure_of_a_message_reaches_its_copies_in_forks(
    memory: Memory, gone: str | None, carried: str | None
) -> None:
    await forked(memory)
    async with Memory(
        "memory://",
        accept_loss=True,
        embedder="none",
        tenant="elsewhere" if carried == "elsewhere" else "default",
    ) as there:
        if carried is not None:
            assert (
                await there.admin.import_(memory.admin.export(), same_ids=carried == "same")
            ).problems == []
            memory = there
        if gone is not None:
            await memory.sessions.delete(gone)
            if gone == "f":  # whose summary "h" has
                await memory.sessions.delete("h")
            assert await left(memory), "a fork stays when the session is deleted that it forked off from"
        erased = "f" if gone == "s" else "s"
        assert await memory.session(erased, create=False).erase("m") is True
        assert await left(memory) == []
        kept = [message.text for message in (await memory.session("g", create=False).context()).messages]
        assert kept == ["other 0", "other 2", "noted"]
        assert await memory.session("g", create=False).erase("m") is False


async def test_the_erasure_of_a_copy_leaves_the_original(memory: Memory) -> None:
    session, fork, again = await forked(memory)
    assert await fork.erase("m") is True
    assert WORDS in [message.text for message in (await session.context()).messages]
    assert [message.text for message in (await again.context()).messages] == ["other 0", "other 2", "noted"]


@pytest.mark.parametrize("gone", [None, "s"])
async def test_the_erasure_of_a_user_reaches_summaries_in_forks(memory: Memory, gone: str | None) -> None:
    await forked(memory, name="ada")
    if gone is not None:
        await memory.sessions.delete(gone)
    foreseen = await memory.admin.erase_user("ada", dry_run=True)
    done = await memory.admin.erase_user("ada")
    assert done.messages == foreseen.messages == (3 if gone is None else 2)
    assert await left(memory) == []


async def test_copies_in_a_fork_under_legal_hold_stay(memory: Memory) -> None:
    session, fork, again = await forked(memory)
    await memory.admin.legal_holds.add("case", scope="session:f", reason="r")
    assert await session.erase("m") is True
    assert WORDS in [item.message.text for item in (await fork.history()).items]
    assert WORDS not in [item.message.text for item in (await again.history()).items]


async def test_a_session_created_again_shares_nothing_with_forks_of_its_former_life(memory: Memory) -> None:
    _, fork, _ = await forked(memory)
    await memory.sessions.delete("s")
    again = memory.session("s", user="carol")
    await again.append(
        [{"id": f"n{number}", "role": "user", "content": f"new {number}"} for number in range(4)]
    )
    for number in range(4):
        assert await again.erase(f"n{number}") is True
    assert WORDS in [item.message.text for item in (await fork.history()).items]
