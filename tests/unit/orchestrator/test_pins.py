"""What is pinned to a session stays when the session is deleted, and is pinned no more:
not to the next session of the id either (decision 066).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, StoreUnavailable
from memory.domain.scope import Scope
from memory.orchestrator.conversations import artifact_references
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.entries.upserts import UpsertCall
from memory.orchestrator.erasure import erasure
from memory.orchestrator.storage import entry_records
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.entry_query import EntryQuery
from tests.support.mutations import Mutation
from tests.unit.orchestrator.world import DAY, TENANT, USER, Died, World, dies


async def created(engine: Engine, session_id: str = "s1") -> None:
    await engine.conversations.create(TENANT, SessionDraft(session_id))


async def pinned(world: World, content: str = "text", **more: Any) -> Entry:
    return await world.write(
        content, USER, conversation_id="s1", number_in_conversation=3, speaker="Ada", **more
    )


async def shown(engine: Engine) -> list[str]:
    """What the session shows as its own."""
    return sorted(e.content for e in await engine.browser.browse(EntryQuery(TENANT, (), pinned_to="s1")))


async def still_pinned(world: World) -> list[str]:
    """In whatever copy."""
    rows = [row for store in world.stores for row in await world.rows(store, ENTRIES)]
    return sorted({row.texts["content"] for row in rows if "conversation_id" in row.fields})


async def test_a_deletion_unpins_in_every_copy_what_stays_and_nothing_else_of_it_changes(
    world: World,
) -> None:
    await created(world.engine)
    first, retired, moved = [await pinned(world, text) for text in ("first", "retired", "moved")]
    first = await world.update(first, content="first, edited")
    await world.engine.entries.invalidate(TENANT, retired.id, None)
    for to in ("mid", "long"):
        await world.move(moved, to)
    before = {row.key: row for row in await world.rows(world.short, ENTRIES)}
    other = await world.engine.entries.write(
        "other", EntryDraft(scope=USER, content="other", conversation_id="s1")
    )
    elsewhere = await world.write("elsewhere", USER, conversation_id="s2")
    assert len(await still_pinned(world)) == 5
    kept = await world.rows(world.mid, ENTRY_VERSIONS)
    world.clock.advance(DAY)
    assert await world.engine.conversations.sessions.delete(TENANT, "s1")
    assert await still_pinned(world) == ["elsewhere", "other"]
    now = await world.get(first)
    assert now == first.model_copy(update={"conversation_id": None, "number_in_conversation": None})
    assert now.speaker == "Ada"
    for row in await world.rows(world.short, ENTRIES):
        assert row.key not in before or (row.version, row.updated_at) == (
            before[row.key].version,
            before[row.key].updated_at,
        )
    assert await world.rows(world.mid, ENTRY_VERSIONS) == kept, (
        "no version is kept of it, and those that are say what they said"
    )
    assert (await world.engine.entries.get("other", other.id)) == other
    assert await world.get(elsewhere) == elsewhere
    assert await world.owed() == 0


_CALL = "await lets_go(partition, operation.created_at)"
LETS_GO = f"{_CALL}\n        except"
DEATHS = ("erase.begin", "referrers.find", "referrers.clear", "erase.raise", "erase.delete", "erase.end")


def dying_at(world: World, step: str, when: str) -> Callable[[], Awaitable[None]]:
    """What has whoever comes there die at that step, from now on: a session's entries
    are erased before.
    """

    async def armed() -> None:
        for store in world.stores:
            (store.before if when == "before" else store.after)[step] = dies
        if step in ("erase.begin", "referrers.find") and when == "before":
            await dies()

    return armed


async def broken_off(world: World, step: str, when: str) -> None:
    """A deletion that dies there, and a new session of the id at once, or once a sweep
    has been; an entry is pinned to that.
    """
    await created(world.engine)
    await pinned(world, "old")
    await pinned(world, "old, of an earlier moment", created_at=world.clock() - DAY)
    world.clock.advance()
    for store in world.stores:
        store.before["referrers.find" if step != "erase.begin" else step] = dying_at(world, step, when)
    with pytest.raises(Died):
        await world.engine.conversations.sessions.delete(TENANT, "s1")
    for store in world.stores:
        store.before.clear()
        store.after.clear()
    engine = await world.another_process()
    try:
        await created(engine)
    except Conflict:
        assert step != "erase.end", "it has been erased"
        await world.settled()  # it stood still
        await engine.conversations.sessions.delete(TENANT, "s1")
        await created(engine)
    assert await shown(engine) == [], "a new session shows none of it, at once"
    await pinned(world, "new")
    await pinned(world, "new, of an earlier moment", created_at=world.clock() - 2 * DAY)
    for _ in range(2):
        await world.settled()
        assert await shown(engine) == ["new", "new, of an earlier moment"]
        assert sorted(await still_pinned(world)) == ["new", "new, of an earlier moment"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", DEATHS)
async def test_a_new_session_of_the_id_shows_none_of_what_was_pinned_to_the_former_and_keeps_its_own(
    world: World, step: str, when: str
) -> None:
    await broken_off(world, step, when)


@pytest.mark.parametrize("late", ["at last", "before a sweep goes on", "behind another deletion"])
@pytest.mark.parametrize("died", [None, "before", "after"])
@pytest.mark.parametrize("gone", ["session", "artifact"])
async def test_a_replica_that_another_process_has_yet_to_deliver_does_not_bring_it_back(
    gone: str, died: str | None, late: str
) -> None:
    """Whether who clears the home dies just before, or behind that (found by the
    simulation of uploads).
    """
    async with World(settings=EngineSettings(linger=DAY)) as world:
        other = await world.another_process()
        await created(other)
        artifact = await other.conversations.manifests.put(TENANT, "s1", "a", "text/plain", _nothing(), 0)
        await pinned(world, artifact_id=artifact.id if gone == "artifact" else None)
        assert world.engine.deliveries.behind("long").records == 1, "it waits to be delivered"
        world.clock.advance()
        if died is not None:
            for store in world.stores:
                (store.before if died == "before" else store.after)["referrers.clear"] = dies
        with pytest.raises(Died) if died else nullcontext():
            await (
                other.conversations.sessions.delete(TENANT, "s1")
                if gone == "session"
                else other.conversations.manifests.delete(TENANT, artifact.id)
            )
        for store in world.stores:
            store.before.clear()
            store.after.clear()
        if late == "behind another deletion":
            await other.conversations.sessions.delete(TENANT, "s1")
        if late != "at last":
            await world.engine.deliveries.flush()
        await world.settled()
        await world.engine.deliveries.flush()
        copies = [row for store in world.stores for row in await world.rows(store, ENTRIES)]
        assert len(copies) == 2
        assert not [row for row in copies if row.fields.get("artifact_id") is not None]
        assert gone == "artifact" or await still_pinned(world) == []


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


async def test_an_edit_that_was_under_way_and_brings_the_pin_back_is_unpinned_behind_the_erasure(
    world: World,
) -> None:
    await created(world.engine)
    entry, other = await pinned(world), await world.another_process()
    deleting: list[asyncio.Task[bool]] = []
    begun, stored = asyncio.Event(), asyncio.Event()

    async def is_stored() -> None:
        begun.set()
        await stored.wait()

    async def meanwhile() -> None:
        deleting.append(asyncio.create_task(other.conversations.sessions.delete(TENANT, "s1")))
        await begun.wait()

    world.clock.advance()

    async def erases() -> None:
        world.mid.before["erase.raise"] = is_stored

    world.mid.before["referrers.find"] = erases
    for store in {world.short, world.mid}:
        store.before["update.home"] = meanwhile
    assert (await world.update(entry, content="edited")).conversation_id == "s1"
    stored.set()
    assert await deleting[0]
    assert await shown(other) == []


async def test_a_store_that_failed_is_unpinned_when_it_is_back_and_what_is_the_next_sessions_stays(
    world: World,
) -> None:
    await created(world.engine)
    there = Scope.session("another")
    await world.write("old", there, conversation_id="s1")
    world.clock.advance()
    world.short.fails_before.add("referrers.find")
    with pytest.raises(StoreUnavailable):
        await world.engine.conversations.sessions.delete(TENANT, "s1")
    world.heal()
    await created(world.engine)
    await world.write("new", there, conversation_id="s1")
    engine = await world.settled()
    assert await shown(engine) == ["new"]
    assert await world.browse(there) == ["new", "old"]


async def test_a_roll_back_and_an_edit_bring_no_pin_back_and_an_upsert_pins_anew(world: World) -> None:
    await created(world.engine)
    entry = await pinned(world, key="k")
    await world.engine.entries.update(TENANT, entry.id, {"content": "poisoned", "source": "bad"})
    rolled = EntryDraft(
        scope=USER,
        content="poisoned too",
        agent="bad",
        key="k",
        conversation_id="s1",
        number_in_conversation=3,
        speaker="Ada",
    )
    await world.engine.upserts.upsert(TENANT, UpsertCall(rolled))
    world.clock.advance()
    await world.engine.conversations.sessions.delete(TENANT, "s1")
    done = await world.engine.source_reverter.run(
        TENANT, ["agent:bad"], since=None, erase=False, derived=False
    )
    assert [one.done for one in done.entries] == ["restored"]
    now = await world.get(entry)
    assert now is not None
    assert (now.content, now.conversation_id, now.number_in_conversation, now.speaker) == (
        "poisoned",
        None,
        None,
        "Ada",
    )
    await created(world.engine)
    await world.update(entry, content="edited")
    assert await shown(world.engine) == []
    await world.engine.upserts.upsert(TENANT, UpsertCall(rolled))
    assert await shown(world.engine) == ["poisoned too"]


async def test_a_session_that_expired_is_unpinned_as_well(world: World) -> None:
    session = SessionDraft("s1", expires_at=timedelta(hours=1))
    await world.engine.conversations.create(TENANT, session)
    await pinned(world)
    world.clock.advance(2 * DAY)
    await created(world.engine)
    assert await shown(world.engine) == []
    assert await still_pinned(world) == []


MUTATIONS = {
    "what the next session has is unpinned too": (
        Mutation(artifact_references, "ArtifactReferences._unpin", "pinned_at(row) <= until and ", ""),
        "erase.end",
        "before",
    ),
    "the moment counts that it is written for": (
        Mutation(entry_records, "record_of", "body[PINNED] = version", "pass"),
        "erase.end",
        "before",
    ),
    "all is unpinned behind the erasure": (
        Mutation(erasure, "Erasure._carry_out", LETS_GO, LETS_GO.replace(_CALL, "pass")),
        "erase.delete",
        "after",
    ),
    "nothing is unpinned": (
        Mutation(artifact_references, "ArtifactReferences._unpin", "kind == CONVERSATION", "kind == ''"),
        "erase.end",
        "before",
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
async def test_a_mutation_shows(mutation: str) -> None:
    made, step, when = MUTATIONS[mutation]
    with made.applied():
        async with World() as world:
            with pytest.raises((AssertionError, pytest.fail.Exception)):
                await broken_off(world, step, when)
