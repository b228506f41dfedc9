"""A store that is set back under a process that remembers more than it holds: what
holds, and what cannot (docs/known-limits.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from memory.domain.message import Message, Role
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.seen import REMEMBERED_FOR
from memory.orchestrator.conversations.sessions import SessionDraft
from tests.simulation.faults import FaultPlan
from tests.simulation.loop import run
from tests.simulation.runner import silence
from tests.simulation.sessions.acts import SESSION, SYSTEM, TENANT, Worker, everything
from tests.simulation.sessions.run import Run, world_of
from tests.support.repeatable import repeatable


@dataclass
class Shown:
    """What the process that remembers and one that has just begun show in the end:
    texts by number, and the window.
    """

    remembers: tuple[list[tuple[int, str]], list[str]]
    begins: tuple[list[tuple[int, str]], list[str]]
    at_once: list[str]
    """The window of the process that remembers, right after the setback."""


async def _shown(session: Conversation) -> tuple[list[tuple[int, str]], list[str]]:
    items = await everything(session)
    return [(item.number, item.message.text) for item in items[1:]], [
        m.text for m in (await session.context()).messages[1:]
    ]


async def _opened(world: Run, name: str) -> Conversation:
    engine = Worker(world, world.process(name)).engine
    await engine.open()
    return await engine.conversations.open(TENANT, SessionDraft(SESSION, SYSTEM), create=True)


async def _scene(world: Run, lost: int, others: int) -> Shown:
    """One process says five messages, which are backed up, and then some more, which
    are lost; a new one says some, and then the first again.
    """
    one = await _opened(world, "one")
    await one.append([Message(role=Role.USER, content=f"kept {n}") for n in range(5)])
    backup = world.servers[-1].store.state.snapshot()
    await one.append([Message(role=Role.USER, content=f"lost {n}") for n in range(lost)])
    world.servers[-1].store.state.restore(backup)
    at_once = [message.text for message in (await one.context()).messages[1:]]
    two = await _opened(world, "two")
    for number in range(others):
        await two.append([Message(role=Role.USER, content=f"two {number}")])
    await one.append([Message(role=Role.USER, content="one again")])
    await two.append([Message(role=Role.USER, content="two again")])
    world.loop._now += 2 * REMEMBERED_FOR.total_seconds()
    await one.context()
    return Shown(await _shown(one), await _shown(await _opened(world, "three")), at_once)


@pytest.mark.parametrize(("lost", "others"), [(1, 0), (3, 1), (3, 5), (20, 2), (100, 3)])
def test_after_a_setback_every_message_that_is_acknowledged_is_there_once(lost: int, others: int) -> None:
    with silence(), repeatable(1):
        world = world_of(1, FaultPlan(1, rate=0.0), atomic=True, servers=1, cache=False)
        shown = run(world.loop, _scene(world, lost, others))
    kept = [f"kept {n}" for n in range(5)]
    assert shown.at_once[:5] == kept
    assert set(shown.at_once[5:]) <= {f"lost {n}" for n in range(lost)}, (
        "what was lost may be shown for a minute by who remembers it"
    )
    for history, window in (shown.remembers, shown.begins):
        said = [text for _, text in history]
        assert said[:5] == kept
        assert sorted(said[5:]) == sorted([*(f"two {n}" for n in range(others)), "one again", "two again"])
        assert set(window) <= set(said), "a minute later nobody shows what was lost"
        assert set(kept) <= set(window)
        numbers = [number for number, _ in history]
        assert numbers[:5] == [2, 3, 4, 5, 6]
        assert set(range(2, 7)) <= set(numbers), (
            "behind them numbers may have a hole, or be told twice: nobody can tell that the log was set back"
        )
