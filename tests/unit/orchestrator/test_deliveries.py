"""What is delivered behind writes: that it comes to stand, that a search finds it
before, and that it never holds up who writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import MemoryTiersError
from memory.domain.scope import Scope
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.entry_query import EntryQuery
from memory.ports.embedder import Fingerprint
from memory.ports.record import Partition, Record, pack_vector
from memory.ports.writes import RaiseGeneration
from tests.support.delivered import undelivered
from tests.support.depth import drawn
from tests.unit.orchestrator.world import DURABLE, SESSION, TENANT, USER, Flaky, World

TOPICS = ("tea", "rain", "music")


class Topics:
    """As many numbers as topics: which of them a text or a question names, by a word
    that the text need not hold.
    """

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("topics", len(TOPICS))

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [pack_vector([0.1 + (topic[0] in text.split()) for topic in TOPICS]) for text in texts]


@pytest.fixture
async def by_copies() -> AsyncIterator[World]:
    """What is written to a user is found by meaning in the long store alone; nothing is
    delivered before a test waits for it.
    """
    settings = EngineSettings(linger=timedelta(hours=1))
    async with World(mid=replace(DURABLE, semantic=False), embedder=Topics(), settings=settings) as world:
        yield world


async def found(world: World, question: str, **more: Any) -> set[str]:
    hits = await world.engine.entry_search.search(
        EntryQuery(TENANT, (USER,), mode="semantic", **more), question, explain=True
    )
    return {hit.content for hit in hits if hit.explanation["relevance"]["cosine"] >= 0.2}


# -- delivered -------------------------------------------------------------------------


async def test_a_write_returns_before_its_replica_is_delivered_which_then_is(by_copies: World) -> None:
    entry = await by_copies.write("t one", USER)
    assert "replica.deliver" not in by_copies.long.steps
    assert by_copies.engine.deliveries.behind("long").records == 1
    assert await by_copies.stands(entry) == ["-", "home", "replica"], "who looks into the stores waits for it"
    assert await undelivered(by_copies.engine) == []


async def test_what_lingers_together_is_one_call_each_way(by_copies: World) -> None:
    for n in range(20):
        await by_copies.write(f"t {n}", USER)
    await by_copies.flush()
    assert (by_copies.long.steps.count("replica.deliver"), by_copies.mid.steps.count("owed.settle")) == (1, 1)


async def test_nobody_has_to_wait_for_it() -> None:
    async with World() as world:
        settled = asyncio.Event()

        async def tell() -> None:
            settled.set()

        world.mid.after["owed.settle"] = tell
        await world.write(scope=USER)
        async with asyncio.timeout(60):
            await settled.wait()
        assert await world.engine.maintenance.count_pending() == 0


async def test_of_two_versions_of_one_record_the_newer_is_delivered_once(by_copies: World) -> None:
    entry = await by_copies.write("t one", USER)
    await by_copies.update(entry, content="r two")
    assert by_copies.engine.deliveries.behind("long").records == 1
    await by_copies.flush()
    assert by_copies.long.steps.count("replica.deliver") == 1
    assert await undelivered(by_copies.engine) == []
    replica = await by_copies.standing(by_copies.long, entry.id)
    assert isinstance(replica, Record)
    assert replica.texts["content"] == "r two"


async def test_a_version_that_comes_while_the_one_before_is_delivered_is_delivered_after_it(
    by_copies: World,
) -> None:
    entry = await by_copies.write("t one", USER)

    async def edited() -> None:
        await by_copies.update(entry, content="r two")
        assert await found(by_copies, "r") == {"r two"}

    by_copies.long.before["replica.deliver"] = edited
    await by_copies.flush()
    await by_copies.flush()
    assert await undelivered(by_copies.engine) == []


@pytest.mark.parametrize("asked", ["by the call", "by the settings"])
async def test_who_wants_to_waits_for_the_replica(asked: str) -> None:
    consistency = "replicated" if asked == "by the settings" else "acknowledged"
    async with World(settings=EngineSettings(linger=timedelta(hours=1), consistency=consistency)) as world:  # type: ignore[arg-type]
        mine: Any = {} if asked == "by the settings" else {"consistency": "replicated"}
        entry = await world.engine.entries.write(TENANT, EntryDraft(scope=SESSION, content="one"), **mine)
        wide = await world.engine.derivation.promote(TENANT, entry.id, USER, **mine)
        many = await world.engine.entries.write_many(
            TENANT, [EntryDraft(scope=USER, content=f"{n}") for n in range(3)], **mine
        )
        await world.engine.entries.update(TENANT, many[0].id, {"content": "edited"}, **mine)
        assert await undelivered(world.engine) == []
        assert wide.tier == "mid"


async def test_what_deletes_is_waited_for(by_copies: World) -> None:
    entry = await by_copies.write("t one")
    await by_copies.engine.derivation.promote(TENANT, entry.id, USER, delete_original=True)
    assert await by_copies.engine.maintenance.count_pending() == 0
    assert await undelivered(by_copies.engine) == []


async def test_what_was_moved_or_deleted_or_erased_while_it_was_queued_stays_so(by_copies: World) -> None:
    moved, deleted, erased = [
        await by_copies.write(f"t {n}", scope) for n, scope in enumerate((USER, USER, Scope.org("o1")))
    ]
    await by_copies.move(moved, "long")
    await by_copies.delete(deleted)
    await by_copies.engine.erasure.erase_scope(TENANT, erased.scope)
    assert await by_copies.stands(moved) == ["-", "mark", "home"]
    assert [await by_copies.seen(entry) for entry in (moved, deleted, erased)] == [["t 0"], [], []]
    assert await undelivered(by_copies.engine) == []


# -- found -----------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", ["acknowledged", "replicated"])
async def test_a_replica_is_delivered_to_a_store_that_alone_knows_an_erasure(
    by_copies: World, consistency: Any
) -> None:
    await by_copies.long.apply([RaiseGeneration(Partition(TENANT, USER.text), to=3)])
    entry = await by_copies.write("t one", USER, consistency=consistency)
    await by_copies.engine.deliveries.flush()
    assert await by_copies.stands(entry) == ["-", "home", "replica"]
    assert await found(by_copies, "t") == {"t one"}
    assert await by_copies.engine.maintenance.count_pending() == 0
    assert await undelivered(by_copies.engine) == []


async def test_a_search_by_meaning_finds_what_is_queued_or_under_way(by_copies: World) -> None:
    await by_copies.write("t one", USER)
    assert await found(by_copies, "t") == {"t one"}
    assert await found(by_copies, "r") == set()
    met = list[set[str]]()

    async def searched() -> None:
        met.append(await found(by_copies, "t"))

    by_copies.long.before["replica.deliver"] = searched
    await by_copies.flush()
    assert met == [{"t one"}]
    assert await found(by_copies, "t") == {"t one"}


async def test_a_queued_edit_is_found_by_its_new_meaning_and_by_no_other(by_copies: World) -> None:
    entry = await by_copies.write("t one", USER)
    await by_copies.flush()
    await by_copies.update(entry, content="r two")
    assert await found(by_copies, "r") == {"r two"}
    assert await found(by_copies, "t") == set(), (
        "the replica of before is found by its vector, and measured at home"
    )


async def test_of_what_is_queued_a_search_finds_what_it_asks_for(by_copies: World) -> None:
    await by_copies.write("t of another", Scope.user("bob"))
    await by_copies.engine.entries.write("globex", EntryDraft(scope=USER, content="t of another tenant"))
    gone = await by_copies.write("t gone", USER)
    retired = await by_copies.write("t retired", USER)
    await by_copies.delete(gone)
    await by_copies.engine.entries.invalidate(TENANT, retired.id, None)
    many = [EntryDraft(scope=USER, content=f"t {n}", tags=["old"]) for n in range(400)]
    await by_copies.engine.entries.write_many(TENANT, many)
    await by_copies.write("t r", USER, tags=["new"])
    assert await found(by_copies, "t", tags=("new",)) == {"t r"}, (
        "of those that pass, the nearest, not of all"
    )
    assert await found(by_copies, "t", limit=1_000) == {*(draft.content for draft in many), "t r"}


async def test_another_process_finds_it_by_words_at_once_and_by_meaning_once_it_is_delivered(
    by_copies: World,
) -> None:
    other = await by_copies.another_process()
    entry = await by_copies.write("t one", USER)
    asked = EntryQuery(TENANT, (USER,))
    assert [hit.entry.id for hit in await other.entry_search.search(asked, "one")] == [entry.id]
    await by_copies.flush()
    assert [
        hit.entry.id for hit in await other.entry_search.search(replace(asked, mode="semantic"), "t")
    ] == [entry.id]


@pytest.mark.parametrize("seed", range(4))
async def test_whenever_it_is_asked_a_search_finds_by_meaning_each_thing_written_before_it_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is queued, on its way or delivered just then: stores take turns in
    between.
    """
    drawn = Random(seed)  # noqa: S311
    settings = EngineSettings(batch=3, queued_records=5, linger=timedelta(0))
    async with World(mid=replace(DURABLE, semantic=False), embedder=Topics(), settings=settings) as world:
        for store in (world.mid, world.long):
            monkeypatch.setattr(store, "on_call", slow(store, drawn))
        said, searched = dict[str, str](), 0

        async def write() -> None:
            for n in range(30):
                entry = await world.write(f"t {n}", USER)
                said[entry.id] = entry.content
                if drawn.random() < 0.5:
                    del said[entry.id]  # until the edit is acknowledged it says one or the other
                    said[entry.id] = (await world.update(entry, content=f"t {n} edited")).content

        writing = [asyncio.create_task(write()) for _ in range(3)]
        while not all(task.done() for task in writing):
            before, searched = dict(said), searched + 1
            hits = await world.engine.entry_search.search(
                EntryQuery(TENANT, (USER,), mode="semantic", limit=200), "t"
            )
            shown = [(hit.entry.id, hit.entry.content) for hit in hits]
            assert len(shown) == len({entry_id for entry_id, _ in shown})
            assert before.items() & said.items() <= set(shown)
        await asyncio.gather(*writing)
        assert searched > 5
        await world.flush()
        assert await undelivered(world.engine) == []


def slow(store: Flaky, drawn: Random) -> Any:
    """The store's calls, each of which gives way to others a few times before and
    after.
    """
    call = store.on_call

    async def called(*args: Any, **options: Any) -> Any:
        for _ in range(drawn.randrange(6)):
            await asyncio.sleep(0)
        answer = await call(*args, **options)
        for _ in range(drawn.randrange(6)):
            await asyncio.sleep(0)
        return answer

    return called


# -- full, failing, ending -------------------------------------------------------------


async def test_however_many_write_at_once_no_more_is_queued_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = EngineSettings(batch=50, queued_records=200)
    async with World(settings=settings) as world:
        most, deliver = 0, world.engine.outbox.finish_all

        async def noted(*args: Any) -> Any:
            nonlocal most
            await asyncio.sleep(0)
            most = max(most, world.engine.deliveries.behind("long").records)
            return await deliver(*args)

        monkeypatch.setattr(world.engine.outbox, "finish_all", noted)
        drafts = [EntryDraft(scope=USER, content=f"text {n}") for n in range(drawn(10_000, 1_000))]
        await asyncio.gather(*[world.engine.entries.write(TENANT, draft) for draft in drafts])
        await world.flush()
        assert most == 200
        assert await undelivered(world.engine) == []


async def test_the_queue_is_bounded_in_bytes_and_takes_what_is_larger_alone() -> None:
    async with World(
        settings=EngineSettings(queued_bytes=1_000, linger=timedelta(hours=1), deadline=timedelta(hours=1))
    ) as world:
        for text in ("small", "small too", "large" * 1_000, "large" * 1_000):
            async with asyncio.timeout(60):
                await world.write(text, USER)
        assert world.engine.deliveries.behind("long").records == 1
        await world.flush()
        assert await undelivered(world.engine) == []


async def test_edits_of_what_is_queued_take_room_too() -> None:
    async with World(
        settings=EngineSettings(queued_bytes=1_000, linger=timedelta(hours=1), deadline=timedelta(hours=1))
    ) as world:
        entries = [await world.write("small", USER) for _ in range(5)]
        async with asyncio.timeout(60):
            for entry in entries:
                await world.update(entry, content="large" * 150)
        assert world.engine.deliveries._size <= 1_000
        await world.flush()
        assert await undelivered(world.engine) == []


async def test_what_deliveries_call_belongs_to_no_writer() -> None:
    """As traces tell it, which go by the context: a writer's has ended by then, and
    others' records go with its own.
    """
    writer = ContextVar("writer", default="nobody")
    async with World() as world:
        told = list[str]()

        async def noted() -> None:
            told.append(writer.get())

        world.long.before["replica.deliver"] = noted
        writer.set("somebody")
        await world.write(scope=USER)
        await world.flush()
        assert told == ["nobody"]


async def test_a_store_that_is_away_holds_up_nobody_and_what_it_missed_is_left_to_sweeps() -> None:
    async with World(settings=EngineSettings(batch=2, queued_records=4)) as world:
        world.long.down = True
        for n in range(20):
            await world.write(f"text {n}", USER)
        await world.flush()
        assert world.engine.deliveries.behind("long").records == 0
        assert await world.owed() == 20
        world.heal()
        other = await world.another_process()
        assert (await other.maintenance.sweep()).finished == 20
        assert await undelivered(other) == []


async def test_a_store_that_never_answers_holds_up_writers_no_longer_than_the_deadline() -> None:
    async with World(
        settings=EngineSettings(batch=2, queued_records=4, deadline=timedelta(milliseconds=100))
    ) as world:
        world.long.silent = True
        async with asyncio.timeout(60):
            for n in range(20):
                await world.write(f"text {n}", USER)
            await world.flush()
        assert world.long.steps.count("replica.deliver") < 10, "one call finds out for all that is queued"
        world.heal()
        assert (await world.engine.maintenance.sweep()).waiting == ()
        assert await undelivered(world.engine) == []


async def test_closing_delivers_what_is_queued(by_copies: World) -> None:
    await by_copies.write("t one", USER)
    await by_copies.engine.close()
    other = await by_copies.another_process()
    assert await undelivered(other) == []


async def test_closing_does_not_wait_for_a_store_that_never_answers() -> None:
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=100))) as world:
        world.long.silent = True
        await world.write(scope=USER)
        async with asyncio.timeout(60):
            await world.engine.close()
        world.heal()
        await world.engine.open()
        assert await world.owed() == 1


async def test_who_waits_for_room_while_it_is_closed_is_let_go() -> None:
    async with World(
        settings=EngineSettings(queued_records=1, deadline=timedelta(milliseconds=100))
    ) as world:
        world.long.silent = True
        writers = [asyncio.create_task(world.write(f"text {n}", USER)) for n in range(5)]
        await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            await world.engine.close()
            written = await asyncio.gather(*writers)
        world.heal()
        other = await world.another_process()
        await other.maintenance.sweep()
        assert await undelivered(other) == []
        assert len(written) == 5


async def test_a_process_that_dies_after_it_acknowledged_leaves_the_rest_to_others(by_copies: World) -> None:
    entry = await by_copies.write("t one", USER)
    other = await by_copies.another_process()
    assert (await other.maintenance.sweep()).finished == 1
    assert await undelivered(other) == []
    assert await other.entries.get(TENANT, entry.id) == entry


async def test_nothing_runs_while_nothing_is_queued() -> None:
    async with World() as world:
        before = asyncio.all_tasks()
        await world.write(scope=USER)
        await world.flush()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before


# -- long histories --------------------------------------------------------------------

ACTS = (
    "write",
    "write",
    "update",
    "update",
    "move",
    "delete",
    "erase",
    "cancelled",
    "away",
    "back",
    "search",
    "later",
)


@pytest.mark.parametrize("seed", range(12))
async def test_after_a_long_history_everything_is_delivered(seed: int) -> None:
    drawn = Random(seed)  # noqa: S311
    able = replace(DURABLE, semantic=drawn.random() < 0.5)
    settings = EngineSettings(
        batch=drawn.choice((2, 500)),
        queued_records=drawn.choice((3, 2_000)),
        linger=timedelta(milliseconds=drawn.choice((0, 2))),
    )
    async with World(mid=able, embedder=Topics(), settings=settings) as world:
        there, missed = list[Entry](), False
        for n in range(150):
            with suppress(MemoryTiersError):
                missed |= await _acted(world, drawn, n, there)
        world.heal()
        await world.flush()
        if missed:
            await world.engine.maintenance.sweep()
            await world.engine.maintenance.sweep()
        assert await undelivered(world.engine) == []


async def _acted(world: World, drawn: Random, n: int, there: list[Entry]) -> bool:
    """One of what callers and stores do; whether a sweep may have to do something after
    it.
    """
    act, one = drawn.choice(ACTS), drawn.choice(there) if there else None
    match act:
        case "write":
            there.append(await world.write(f"t {n}", drawn.choice((SESSION, USER, Scope.org("o1")))))
        case "update" if one is not None:
            await world.update(one, content=f"r {n}")
        case "move" if one is not None:
            await world.move(one, drawn.choice(("mid", "long")))
        case "delete" if one is not None:
            await world.delete(one)
        case "erase" if drawn.random() < 0.3:
            await world.engine.erasure.erase_scope(TENANT, drawn.choice((SESSION, USER)))
        case "cancelled":
            return await _cancelled(world, f"m {n}", drawn.randrange(12))
        case "away":
            drawn.choice((world.mid, world.long)).down = True
            return True
        case "back":
            world.heal()
        case "search":
            await world.search("t")
        case "later":
            await asyncio.sleep(drawn.random() * 0.005)
    return False


async def _cancelled(world: World, content: str, turns: int) -> bool:
    """A write that its caller gives up after so many turns of the loop; whether it did
    not come to its end.
    """
    writing = asyncio.create_task(world.write(content, USER))
    for _ in range(turns):
        await asyncio.sleep(0)
    writing.cancel()
    with suppress(asyncio.CancelledError, MemoryTiersError):
        await writing
    return writing.cancelled()
