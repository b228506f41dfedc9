"""Several processes write to one session at once, over a store whose calls fail before
or after they were carried out: nothing acknowledged is lost or doubled, and everybody
who reads it all agrees.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.domain.errors import StoreUnavailable, TooMuchContention
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.events import FIRST_PLACE, event_of
from memory.orchestrator.conversations.log.folding import State
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.storage.collections import MESSAGES
from memory.ports.query import Order, Query, within
from memory.ports.record import Record
from tests.unit.orchestrator.conversations.talking import SYSTEM, begun, opened, user, window
from tests.unit.orchestrator.world import DURABLE, Flaky, World

WRITERS, EACH = 4, 12


class Shaky(Flaky):
    """Takes its time, and fails now and then, before or after carrying a call out."""

    chance = random.Random(0)  # noqa: S311 - every run says its seed
    failing = 0.0

    async def on_call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        await self._pause()
        if self.chance.random() < self.failing:
            raise StoreUnavailable(self.name, "fails before")
        answer = await getattr(InMemoryStore, method)(self, *args, **kwargs)
        await self._pause()
        if self.chance.random() < self.failing:
            raise StoreUnavailable(self.name, "fails after")
        return answer

    async def _pause(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)


def shaky_world(seed: int, *, atomic: bool) -> tuple[World, Shaky]:
    world = World()
    mid = Shaky("mid", replace(DURABLE, atomic=atomic), world.clock)
    mid.chance = random.Random(seed)  # noqa: S311
    world.mid = mid
    world.engine = world.another_engine()
    return world, mid


async def until_done(call: Callable[[], Awaitable[object]]) -> None:
    """As a caller does that repeats what failed."""
    while True:
        try:
            await call()
        except (StoreUnavailable, TooMuchContention):
            continue
        return


async def _writes(handle: Conversation, name: str, chance: random.Random, acknowledged: list[str]) -> None:
    def one() -> str:
        return chance.choice(acknowledged)

    for number in range(EACH):
        ids = [f"{name}{number}{letter}" for letter in "ab"[: chance.randint(1, 2)]]
        messages = [user(f"says {message_id}", message_id) for message_id in ids]
        await until_done(lambda messages=messages: handle.append(messages))  # type: ignore[misc]
        acknowledged += ids
        match chance.randrange(8):
            case 0:
                await until_done(lambda: handle.exclude(one(), "manual"))
            case 1:
                await until_done(lambda: handle.restore(one()))
            case 2:
                await until_done(lambda: handle.compact(lambda _: "so far", keep_last=3, reason="auto"))
            case 3:
                changed, text = one(), f"changed by {name}{number}"
                await until_done(lambda changed=changed, text=text: handle.update(changed, {"content": text}))  # type: ignore[misc]
            case 4:
                await until_done(handle.clear)
            case 5:
                await until_done(lambda ids=ids: handle.append([user("again", ids[0])]))  # type: ignore[misc]
            case _:
                await until_done(handle.context)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "not atomic"])
async def test_nothing_acknowledged_is_lost_or_doubled_and_all_agree(seed: int, atomic: bool) -> None:
    world, mid = shaky_world(seed, atomic=atomic)
    acknowledged: list[str] = []
    async with world:
        first = await begun(world.engine)
        handles = [
            first,
            await opened(world.engine),
            *[await opened(await world.another_process()) for _ in range(WRITERS - 2)],
        ]
        mid.failing = 0.06
        chances = [random.Random(f"{seed} {n}") for n in range(WRITERS)]  # noqa: S311
        await asyncio.gather(
            *[_writes(handle, f"w{n}-", chances[n], acknowledged) for n, handle in enumerate(handles)]
        )
        mid.failing = 0.0
        reader = await opened(await world.another_process())
        items = (await reader.history(HistoryQuery(limit=1_000))).items
        ids = [str(item.message.id) for item in items if not item.is_summary]
        assert sorted(ids) == sorted(["system", *acknowledged]), (
            "each message once, and none that nobody appended"
        )
        assert [item.number for item in items] == list(range(1, len(items) + 1)), "numbers are dense"
        assert (await reader.info()).message_count == len(items)
        windows = [await window(handle) for handle in (*handles, reader)]
        assert all(seen == windows[0] for seen in windows), "everybody agrees on the window"
        said = [
            [message.text for message in (await handle.context()).messages] for handle in (*handles, reader)
        ]
        assert all(seen == said[-1] for seen in said), "and on what it says: nobody remembers what was edited"
        gone = {str(item.message.id) for item in items if item.excluded or item.archived_by}
        assert set(windows[0]) == {str(item.message.id) for item in items} - gone, (
            "what is not marked as gone is in the window"
        )
        await _is_its_own_fold(mid, reader)


async def _is_its_own_fold(mid: Flaky, reader: Conversation) -> None:
    """Every place is taken, once, and what each event says is true after it is what the
    events up to it come to.
    """
    life = reader._log.life
    query = Query(MESSAGES, within(life.partition), order=(Order("created_at"),), limit=10_000)
    page = await InMemoryStore.query(mid, query)
    events = [event_of(record) for record in page.records if isinstance(record, Record)]
    assert [event.place for event in events] == list(range(FIRST_PLACE, FIRST_PLACE + len(events)))
    state = State.initial(SYSTEM is not None, life.created_at)
    for event in events:
        made = state.next(
            event.draft,
            tenant=life.tenant,
            incarnation=life.incarnation,
            now=event.created_at,
            version=event.version,
        )
        after = replace(
            made.after, tokens=event.after.tokens
        )  # of the messages as they were when they were said: some were changed since
        assert (after, made.window, made.key) == (event.after, event.window, event.key)
        state = state.with_event(event)
