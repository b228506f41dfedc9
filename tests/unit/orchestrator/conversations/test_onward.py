"""What leaves a window goes onward once, whoever dies or is deleted meanwhile: every
step of it failing before and after it was carried out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.entry import EntryDraft
from memory.domain.errors import NotOpen, StoreUnavailable
from memory.orchestrator.conversations import window_exits
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.topology import Topology
from memory.policies.context import ContextRequest
from memory.policies.list_compaction import CompactionSettings
from memory.policies.quotas import Quota
from memory.policies.window_exit import ExitedMessages
from tests.unit.orchestrator.conversations.talking import (
    begun,
    list_derived,
    opened,
    process_of,
    user,
    window,
)
from tests.unit.orchestrator.world import DAY, SESSION, TENANT, USER, World


class Distiller:
    """A model's stand-in that never says the same twice."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, leaving: ExitedMessages) -> list[str]:
        self.calls += 1
        return [f"{message.text} ({self.calls})" for message in leaving.messages]


async def ended(engine: Engine, *texts: str) -> None:
    session = await engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
    await session.append([user(text, text) for text in texts])
    await session.close("ended")


async def cut(engine: Engine, *texts: str, keeps: int = 1) -> Conversation:
    """A session whose window is replaced by the last so many of what was said in it."""
    session = await engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
    await session.append([user(text, text) for text in texts])
    await session.replace([user(text, text) for text in texts[len(texts) - keeps :]])
    return session


async def swept(engine: Engine) -> Any:
    report = await engine.maintenance.sweep()
    await engine.conversations.window_exit.drain()
    return report


async def test_without_the_callback_what_is_owed_waits_for_a_process_that_has_it(world: World) -> None:
    await ended(await process_of(world, "elsewhere"), "tea", "milk")
    report = await swept(world.engine)
    assert (report.pending_steps, report.stays, await list_derived(world)) == (1, (), [])
    assert await world.engine.maintenance.count_pending() == 1
    await swept(await process_of(world, Distiller()))
    assert await list_derived(world) == ["milk (1)", "tea (1)"]
    assert await world.engine.maintenance.count_pending() == 0


@pytest.mark.parametrize("when", ["fails_before", "fails_after"])
@pytest.mark.parametrize(
    "step",
    [
        "log.read",
        "history.marks",
        "session.read",
        "onward.note",
        "onward.home",
        "read.home",
        "owed.settle",
        "replica.deliver",
    ],
)
async def test_of_one_event_the_entries_of_one_answer_exist_each_once(
    world: World, step: str, when: str
) -> None:
    distil = Distiller()
    await ended(await process_of(world, "elsewhere"), "tea", "milk", "honey")
    for store in world.stores:
        getattr(store, when).add(step)
    dying = await process_of(world, distil)
    await swept(dying)
    world.heal()
    for _ in range(2):
        world.clock.advance(DAY)
        await swept(await process_of(world, distil))
    made = await list_derived(world)
    assert [text.split()[0] for text in made] == ["honey", "milk", "tea"]
    assert len({text.split()[1] for text in made}) == 1
    assert await world.engine.maintenance.count_pending() == 0


async def test_two_processes_that_ask_at_once_make_the_entries_of_one_answer(world: World) -> None:
    await ended(await process_of(world, "elsewhere"), "tea", "milk")
    one = await process_of(world, lambda leaving: ["tea and milk", "both", "warm"])
    other = await process_of(world, lambda leaving: ["tea", "milk"])

    async def other_first() -> None:
        session = await opened(other)
        await session.handle_window_exit()

    world.mid.before["onward.note"] = other_first
    left = await (await opened(one)).handle_window_exit()
    assert await list_derived(world) == ["milk", "tea"]
    assert left.entries == []


async def test_a_fact_deleted_before_it_was_known_to_be_made_is_not_made_again(world: World) -> None:
    engine = await process_of(world, Distiller())
    await ended(engine, "tea", "milk")
    world.mid.fails_before.add("owed.settle")
    made = (await (await opened(engine)).handle_window_exit()).entries
    world.heal()
    await engine.deletion.delete(TENANT, made[0])
    await swept(await process_of(world, Distiller()))
    assert await list_derived(world) == ["milk (1)"]
    assert await engine.maintenance.count_pending() == 0


@pytest.mark.parametrize("at", ["before", "after"])
@pytest.mark.parametrize("step", ["onward.note", "onward.home"])
async def test_a_session_deleted_meanwhile_teaches_nothing(world: World, step: str, at: str) -> None:
    engine = await process_of(world, Distiller())
    await ended(engine, "secret")
    deleting = await process_of(world, None)
    getattr(world.mid, at)[step] = lambda: deleting.conversations.sessions.delete(TENANT, "s1")
    await (await opened(engine)).handle_window_exit()
    world.clock.advance(timedelta(minutes=5))
    await swept(deleting)
    assert await list_derived(world) == []
    assert await deleting.maintenance.count_pending() == 0


@pytest.mark.parametrize("at", ["before", "after"])
async def test_who_dies_between_an_entry_and_its_confirmation_leaves_it_to_a_sweep(
    world: World, at: str
) -> None:
    """The session is deleted by another while the entry is on its way, and the process
    that sent it is gone.
    """
    engine, deleting = await process_of(world, Distiller()), await process_of(world, None)
    await ended(engine, "secret")

    async def deleted_and_dead() -> None:
        await deleting.conversations.sessions.delete(TENANT, "s1")
        world.mid.fails_before |= {"session.read", "owed.settle"}

    getattr(world.mid, at)["onward.home"] = deleted_and_dead
    await (await opened(engine)).handle_window_exit()
    world.heal()
    world.clock.advance(timedelta(minutes=5))
    await swept(deleting)
    assert await list_derived(world) == []


@pytest.mark.parametrize("step", ["derived.find", "delete.home", "erase.end"])
async def test_a_deletion_that_was_cut_off_is_ended_by_a_sweep_and_spares_the_next_life(
    world: World, step: str
) -> None:
    """It has erased the entries of the session's scope when it dies over its
    conversation, or over what that list_derived.
    """
    engine = await process_of(world, Distiller())
    await ended(engine, "old")
    await (await opened(engine)).handle_window_exit()

    async def dies() -> None:
        world.mid.fails_after.add(step)

    async def begun_once() -> None:
        world.mid.before["erase.begin"] = dies

    world.mid.before["erase.begin"] = begun_once
    with suppress(StoreUnavailable):
        await engine.conversations.sessions.delete(TENANT, "s1")
    world.heal()
    await ended(engine, "new")
    await (await opened(engine)).handle_window_exit()
    await swept(await process_of(world, None))
    assert await list_derived(world) == ["new (2)"]
    assert await engine.maintenance.count_pending() == 0


async def test_a_callback_that_never_answers_holds_nobody_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: ExitedMessages) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(window_exits, "ANSWERS_WITHIN", timedelta(0))
    engine = await process_of(world, silent)
    await ended(engine, "tea")
    left = await (await opened(engine)).handle_window_exit()
    assert left.waiting == [
        "session s1: messages that left its window are not handled yet: the callback did not answer in time"
    ]
    assert await engine.maintenance.count_pending() == 1


async def test_a_slow_callback_holds_up_neither_a_sweep_nor_another_event_for_ever(world: World) -> None:
    """It is asked beside the sweep, one event after the other, and a process that
    closes waits for its answers.
    """
    answers, asked = asyncio.Event(), list[str]()

    async def slow(leaving: ExitedMessages) -> list[str]:
        asked.append(leaving.session_id)
        await answers.wait()
        return [message.text for message in leaving.messages]

    engine = await process_of(world, slow)
    for name in ("s1", "s2"):
        session = await engine.conversations.create(TENANT, SessionDraft(name, user="ada"))
        await session.append([user(f"tea of {name}")])
        await session.close("ended")
    await engine.conversations.create(TENANT, SessionDraft("passing", expires_at=timedelta(minutes=1)))
    world.clock.advance(2 * DAY)
    report = await engine.maintenance.sweep()
    assert (report.expired, report.pending_steps) == (1, 2)
    await asyncio.sleep(0)
    assert (await engine.maintenance.sweep()).pending_steps == 2
    assert (len(asked), await list_derived(world)) == (1, [])
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    answers.set()
    await closing
    await world.engine.open()
    assert (sorted(asked), await list_derived(world)) == (["s1", "s2"], ["tea of s1", "tea of s2"])
    assert await world.engine.maintenance.count_pending() == 0


async def test_a_process_that_closes_waits_no_longer_than_a_callback_may_take(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def silent(_: ExitedMessages) -> None:
        begun.set()
        await asyncio.Event().wait()

    engine = await process_of(world, silent)
    await ended(engine, "tea")
    await engine.maintenance.sweep()
    await begun.wait()
    monkeypatch.setattr(window_exits, "ANSWERS_WITHIN", timedelta(0))
    await engine.close()
    await world.engine.open()
    assert await world.engine.maintenance.count_pending() == 1


async def test_a_close_that_is_cut_off_while_a_callback_answers_lets_go_of_the_stores_and_of_the_callback(
    world: World,
) -> None:
    begun, ended_so = asyncio.Event(), list[str]()

    async def silent(_: ExitedMessages) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended_so.append("cancelled")

    engine = await process_of(world, silent)
    await ended(engine, "tea")
    await engine.maintenance.sweep()
    await begun.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await engine.close()
    assert ended_so == ["cancelled"]
    for store in world.stores:
        with pytest.raises(NotOpen):
            await store.check()


@pytest.mark.parametrize("stored", [0, 1, 2])
@pytest.mark.parametrize("at", ["before", "after"])
async def test_an_entry_that_is_on_its_way_while_its_message_is_erased_does_not_stay(
    world: World, at: str, stored: int
) -> None:
    """Another process erases it when so many of the three entries stand: those go,
    those that come late too, and what is left is told anew.
    """
    erasing, answers = await process_of(world, None), 0

    async def erase() -> None:
        session = await opened(erasing)
        assert await erasing.conversations.redaction.erase(session.log, "secret")

    async def counted(left: int) -> None:
        if left:
            getattr(world.mid, at)["onward.home"] = lambda: counted(left - 1)
        else:
            await erase()

    async def distil(leaving: ExitedMessages) -> list[str]:
        nonlocal answers
        answers += 1
        return [f"{message.text} {answers}" for message in leaving.messages]

    engine = await process_of(world, distil)
    await ended(engine, "harmless", "secret", "well")
    getattr(world.mid, at)["onward.home"] = lambda: counted(stored)
    await (await opened(engine)).handle_window_exit()
    assert "secret 1" not in await list_derived(world)
    await swept(engine)
    assert await list_derived(world) == ["harmless 2", "well 2"]
    assert await engine.maintenance.count_pending() == 0


@pytest.mark.parametrize("at", ["before", "after"])
async def test_who_dies_while_the_message_of_an_entry_is_erased_leaves_it_to_a_sweep(
    world: World, at: str
) -> None:
    engine, erasing = await process_of(world, Distiller()), await process_of(world, None)
    await ended(engine, "secret")

    async def erased_and_dead() -> None:
        await erasing.conversations.redaction.erase((await opened(erasing)).log, "secret")
        world.mid.fails_before |= {"log.read", "session.read", "owed.settle"}

    getattr(world.mid, at)["onward.home"] = erased_and_dead
    await (await opened(engine)).handle_window_exit()
    world.heal()
    world.clock.advance(timedelta(minutes=5))
    await swept(erasing)
    assert await list_derived(world) == []


async def test_an_entry_names_the_messages_that_it_was_made_of_and_no_erased_one_beside_them(
    world: World,
) -> None:
    """So one that is confirmed late stays, though another message that left by the same
    event had been erased before it was made.
    """
    engine = await process_of(world, Distiller())
    await ended(engine, "secret", "harmless")
    session = await opened(engine)
    await engine.conversations.redaction.erase(session.log, "secret")

    async def dies() -> None:
        world.mid.fails_before |= {"log.read", "owed.settle"}

    world.mid.after["onward.home"] = dies
    await session.handle_window_exit()
    world.heal()
    world.clock.advance(timedelta(minutes=5))
    await swept(await process_of(world, None))
    assert await list_derived(world) == ["harmless (1)"]
    assert await engine.maintenance.count_pending() == 0


async def test_an_edited_entry_and_an_edited_message_are_left_as_they_are(world: World) -> None:
    engine = await process_of(world, Distiller())
    await ended(engine, "tea")
    session = await opened(engine)
    (made,) = (await session.handle_window_exit()).entries
    await engine.entries.update(TENANT, made, {"content": "green tea"})
    await session.update("tea", {"content": "coffee"})
    await session.resume()
    await session.close("ended")
    assert (await session.handle_window_exit()).entries == []
    assert await list_derived(world) == ["green tea"]


@pytest.mark.parametrize("when", ["made", "noted", "being asked", "not asked yet"])
async def test_erasing_a_message_takes_what_was_made_of_it_and_no_callback_is_told_of_it_again(
    world: World, when: str
) -> None:
    """Whether its entries stand, are written down to be made, or the callback has read
    the text already and has not answered.
    """
    told: list[list[str]] = []
    engine = await process_of(world, None)

    async def erase() -> None:
        session = await opened(engine)
        assert await engine.conversations.redaction.erase(session.log, "secret")

    async def distil(leaving: ExitedMessages) -> list[str]:
        told.append([message.text for message in leaving.messages])
        if when == "being asked" and len(told) == 1:
            await erase()
        return [message.text for message in leaving.messages]

    other = await process_of(world, "elsewhere" if when == "not asked yet" else distil)
    await ended(other, "secret", "harmless")
    if when == "noted":
        world.mid.fails_before.add("onward.home")
    await swept(other)
    world.heal()
    if when == "made":
        assert await list_derived(world) == ["harmless", "secret"]
    if when != "being asked":
        await erase()
    last = await process_of(world, distil)
    world.clock.advance(DAY)
    await swept(last)
    assert "secret" not in await list_derived(world)
    assert told[1:] == [["harmless"]] * len(told[1:]) if when != "not asked yet" else told == [["harmless"]]
    if when != "made":
        assert await list_derived(world) == ["harmless"]


@pytest.mark.parametrize("erased", ["secret", "summary"])
async def test_an_erased_summary_keeps_nothing_that_it_stood_for_from_going_onward(
    world: World, erased: str
) -> None:
    """It goes with a message that it is of: what else left by it is still told, and
    nobody waits for the callback in an erasure.
    """
    told: list[list[str]] = []
    engine = await process_of(
        world, lambda leaving: told.append([message.text for message in leaving.messages])
    )
    session = await engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
    await session.append([user("secret", "secret"), user("harmless", "u2")])
    made = await session.compact(lambda _: "so far", keep_last=0, reason="manual")
    message_id = str(made.summary.id) if erased == "summary" else erased
    assert await engine.conversations.redaction.erase(session.log, message_id)
    assert told == []
    await swept(engine)
    assert told == [["harmless"] if erased == "secret" else ["secret", "harmless"]]


# -- what a cut or a replacement drops -------------------------------------------------


@pytest.mark.parametrize("when", ["fails_before", "fails_after"])
@pytest.mark.parametrize(
    "step",
    ["log.append", "log.read", "history.marks", "session.read", "onward.note", "onward.home", "owed.settle"],
)
async def test_what_a_replacement_drops_goes_onward_once_whatever_fails_on_the_way(
    world: World, step: str, when: str
) -> None:
    """The caller repeats what failed, and sweeps of other processes do the rest."""
    distil, wanted = Distiller(), [user("honey", "honey"), user("salt", "salt")]
    engine = await process_of(world, distil)
    session = await engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
    await session.append([user(text, text) for text in ("tea", "milk", "honey")])
    getattr(world.mid, when).add(step)
    with suppress(StoreUnavailable):
        await session.replace(wanted)
    await swept(engine)
    world.heal()
    await (await opened(await process_of(world, distil))).replace(wanted)
    for _ in range(2):
        world.clock.advance(DAY)
        await swept(await process_of(world, distil))
    made = await list_derived(world)
    assert [text.split()[0] for text in made] == ["milk", "tea"]
    assert len({text.split()[1] for text in made}) == 1
    assert await window(await opened(engine)) == ["honey", "salt"]
    assert await world.engine.maintenance.count_pending() == 0


async def test_a_replacement_that_is_repeated_or_changes_nothing_owes_nothing_more(world: World) -> None:
    distil = Distiller()
    session = await cut(await process_of(world, distil), "tea", "milk")
    for _ in range(2):
        await session.replace([user("milk", "milk")])
        await session.replace([user("milk, hot", "milk")])
    await swept(await process_of(world, distil))
    assert (distil.calls, await list_derived(world)) == (1, ["tea (1)"])
    assert await window(session) == ["milk"]


async def test_what_a_policy_drops_without_a_summary_goes_onward(world: World) -> None:
    session = await begun(await process_of(world, Distiller()), "s1", None)
    await session.append(
        [
            user("tea is drunk at four", "m1"),
            user("tea is drunk at four", "m2"),
            user("milk goes in first", "m3"),
        ]
    )
    assert (
        await session.compact_if_needed(
            CompactionSettings(max_tokens=30, keep_recent=1, summarise=False), lambda _: "no"
        )
        is None
    )
    assert await window(session) == ["m1", "m3"]
    await swept(await process_of(world, Distiller()))
    assert await list_derived(world, SESSION) == ["tea is drunk at four (1)"]


@pytest.mark.parametrize("first", ["told", "comes back"])
@pytest.mark.parametrize("again", ["compacted", "ended", "cut again"])
async def test_what_was_cut_off_and_came_back_does_not_go_twice(world: World, again: str, first: str) -> None:
    """Whether the callback is asked before it comes back, or after all."""
    engine, told = await process_of(world, "elsewhere"), list[list[str]]()
    telling = await process_of(
        world, lambda leaving: told.append([message.text for message in leaving.messages])
    )
    session = await cut(engine, "tea", "milk")
    if first == "told":
        await swept(telling)
        assert told == [["tea"]]
    await session.append([user("tea", "tea")])
    assert await window(session) == ["tea", "milk"]
    if again == "compacted":
        await session.compact(lambda _: "so far", keep_last=0, reason="manual")
    elif again == "ended":
        await session.close("ended")
    else:
        await session.replace([])
    await swept(telling)
    assert sorted(told) == [["milk"], ["tea"]]
    assert await engine.maintenance.count_pending() == 0


async def test_what_an_end_has_let_go_is_told_though_it_is_cut_off_since_and_not_by_the_cut(
    world: World,
) -> None:
    engine, told = await process_of(world, "elsewhere"), list[list[str]]()
    await ended(engine, "tea", "milk")
    session = await opened(engine)
    await session.resume()
    await session.append([user("honey", "honey")])
    await session.replace([user("milk", "milk")])
    await swept(
        await process_of(world, lambda leaving: told.append([message.text for message in leaving.messages]))
    )
    assert sorted(told) == [["honey"], ["tea", "milk"]]


async def test_what_somebody_takes_out_by_hand_goes_nowhere(world: World) -> None:
    """Excluded, rolled back and cleared; and what was cut off, came back and was
    excluded before the callback was asked.
    """
    engine = await process_of(world, Distiller())
    session = await cut(engine, "cut", "cut and excluded", "excluded", "cleared", keeps=2)
    await session.append([user("cut and excluded", "cut and excluded")])
    for name in ("excluded", "cut and excluded"):
        assert await session.exclude(name, "manual")
    checkpoint = await session.checkpoint()
    await session.append([user("rolled back", "rolled back")])
    assert (await session.roll_back(checkpoint, "undone"), await session.clear()) == (1, 1)
    await swept(engine)
    assert await list_derived(world) == ["cut (1)"]
    assert await engine.maintenance.count_pending() == 0


async def test_reading_a_part_of_a_window_owes_nothing(world: World) -> None:
    session = await begun(await process_of(world, Distiller()), "s1", None)
    await session.append([user(f"tea {n}", f"m{n}") for n in range(5)])
    assert [m.id for m in (await session.context(ContextRequest(last=2))).messages] == ["m3", "m4"]
    assert len((await session.context(ContextRequest(budget=10))).messages) < 5
    assert await world.engine.maintenance.count_pending() == 0


@pytest.mark.parametrize(
    ("when", "left"), [("not asked yet", ["harmless (1)"]), ("noted", ["harmless (2)"]), ("made", [])]
)
async def test_an_erased_message_that_was_cut_off_goes_nowhere_and_takes_what_was_made_of_it(
    world: World, when: str, left: list[str]
) -> None:
    distil, engine = Distiller(), await process_of(world, "elsewhere")
    await cut(engine, "secret", "harmless", "kept")
    if when != "not asked yet":
        if when == "noted":
            world.mid.fails_before.add("onward.home")
        await swept(await process_of(world, distil))
        world.heal()
        assert ("secret (1)" in await list_derived(world)) is (when == "made")
    assert await engine.conversations.redaction.erase((await opened(engine)).log, "secret")
    world.clock.advance(DAY)
    await swept(await process_of(world, distil))
    assert await list_derived(world) == left
    assert await engine.maintenance.count_pending() == 0


async def test_a_session_deleted_before_its_cut_was_told_teaches_nothing(world: World) -> None:
    engine = await process_of(world, "elsewhere")
    await cut(engine, "secret", "kept")
    assert await engine.conversations.sessions.delete(TENANT, "s1")
    await swept(await process_of(world, Distiller()))
    assert await list_derived(world) == []
    assert await engine.maintenance.count_pending() == 0


# -- within quotas ---------------------------------------------------------------------


async def test_what_is_beyond_a_quota_waits_for_room_and_is_made_once_without_asking_again(
    world: World,
) -> None:
    topology, distil = Topology(short=world.short, mid=world.mid, long=world.long), Distiller()
    engine = Engine(topology, clock=world.clock, on_window_exit=distil, quotas=[Quota(name="q", entries=3)])
    await engine.open()
    entries = [
        await engine.entries.write(TENANT, EntryDraft(scope=USER, content=f"entry {n}")) for n in range(2)
    ]
    await ended(engine, "tea", "milk")
    left = await (await opened(engine)).handle_window_exit()
    assert left.entries == []
    assert [said.partition("; ")[0] for said in left.waiting] == [
        "session s1: messages that left its window are not handled yet: "
        "quota 'q': scope 'user:ada' holds 2 of at most 3 entries, and this would add 2"
    ]
    assert (await swept(engine)).pending_steps == 1
    assert await list_derived(world) == ["entry 0", "entry 1"]
    await engine.deletion.delete(TENANT, entries[0].id)
    await swept(engine)
    assert (distil.calls, await list_derived(world)) == (1, ["entry 1", "milk (1)", "tea (1)"])
    assert await engine.maintenance.count_pending() == 0


async def test_what_goes_onward_has_others_go_where_a_quota_evicts(world: World) -> None:
    topology = Topology(short=world.short, mid=world.mid, long=world.long)
    engine = Engine(
        topology,
        clock=world.clock,
        on_window_exit=Distiller(),
        quotas=[Quota(name="q", entries=3, then="evict", evict="least_confident")],
    )
    await engine.open()
    for n in range(3):
        await engine.entries.write(
            TENANT, EntryDraft(scope=USER, content=f"entry {n}", metadata={"confidence": 0.1 + n / 10})
        )
    await ended(engine, "tea", "milk")
    assert len((await (await opened(engine)).handle_window_exit()).entries) == 2
    assert await list_derived(world) == ["entry 2", "milk (1)", "tea (1)"]
    assert engine.quotas.evicted == {(TENANT, "q"): 2}
