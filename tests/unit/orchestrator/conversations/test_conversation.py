"""What one session does with its messages (B12 to B53)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.errors import CompactionError, Conflict, MemoryTiersError, NotFound
from memory.domain.message import Message, Role
from memory.domain.session import Compaction
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.seen import REMEMBERED_FOR
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import MESSAGES, SESSIONS
from memory.orchestrator.storage.session_keys import session_key
from memory.policies.context import ContextRequest
from memory.policies.list_compaction import summary_of
from memory.policies.window import INTERRUPTED
from memory.ports.query import Everywhere, Query, Tenant
from memory.ports.record import Key, Record
from memory.ports.writes import Always, Put, RaiseGeneration
from tests.unit.orchestrator.conversations.talking import (
    SYSTEM,
    answer,
    assistant,
    begun,
    calling,
    hits_of,
    opened,
    told,
    user,
    window,
)
from tests.unit.orchestrator.world import DURABLE, TENANT, World


async def test_messages_are_read_as_they_were_said_by_this_handle_and_by_others(world: World) -> None:
    session = await begun(world.engine)
    for text in ("u1", "u2"):
        await session.append([user(text, text)])
    await session.append([assistant("a1", "a1"), user("u3", "u3")])
    for handle in (session, await opened(await world.another_process())):
        assert await window(handle) == ["system", "u1", "u2", "a1", "u3"] == await told(handle)
        assert [item.number for item in (await handle.history(HistoryQuery())).items] == [1, 2, 3, 4, 5]
        info = await handle.info()
        assert (info.message_count, info.version) == (5, 5)


async def test_messages_without_ids_are_given_one_and_are_found_by_it(world: World) -> None:
    session = await begun(world.engine)
    (first,) = await session.append([user("hello")])
    assert first.id is not None
    assert (await session.update(first.id, {"content": "hello there"})).text == "hello there"
    assert await told(session) == ["system", first.id]
    other = await opened(await world.another_process())
    assert await other.exclude(first.id, "manual")


async def test_an_update_that_comes_after_another_message_doubles_nothing(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("u1", "u1"), calling("c1", message_id="a1"), answer("c1", message_id="t1")])
    await session.append([calling("c1", message_id="a1").model_copy(update={"content": "looking"})])
    assert await window(session) == ["system", "u1", "a1", "t1"]
    other = await opened(await world.another_process())
    await other.append([assistant("late", "u1")])
    assert await told(session) == ["system", "u1", "a1", "t1"]


@pytest.mark.parametrize("before", [0, 40, 200])
async def test_an_id_that_two_give_at_once_is_one_message(world: World, before: int) -> None:
    """However much the other says meanwhile, before and behind it: more than is read of
    the end of a log, too.
    """
    session = await begun(world.engine)
    await session.append([user("u1", "u1")])
    other = await opened(await world.another_process())

    async def meanwhile() -> None:
        await other.append([user("f0", "f0"), user("f1", "f1"), user("theirs", "x")])
        await other.append([user(f"m{n}", f"m{n}") for n in range(before)])

    world.mid.before["log.append"] = meanwhile
    (stored,) = await session.append([user("ours", "x")])
    assert stored.text == "ours"
    for handle in (session, other):
        assert await told(handle, limit=1_000) == [
            "system",
            "u1",
            "f0",
            "f1",
            "x",
            *[f"m{n}" for n in range(before)],
        ]
        assert (await handle.context()).messages[4].text == "ours"


async def test_what_comes_while_the_window_is_cleared_stays(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("u1", "u1")])
    other = await opened(await world.another_process())
    world.mid.before["log.append"] = lambda: other.append([user("u2", "u2")])
    await session.clear()
    assert await window(session) == ["system", "u2"]


async def test_calls_that_were_cut_off_are_answered_once_and_the_real_answer_wins(world: World) -> None:
    session = await begun(world.engine)
    await session.append(
        [calling("c1", "c2", message_id="a1"), answer("c1", message_id="t1"), user("go on", "u1")]
    )
    (made,) = await session.repair_tool_calls()
    assert (made.text, made.tool_call_id) == (INTERRUPTED, "c2")
    assert await session.repair_tool_calls() == []
    other = await opened(await world.another_process())
    assert await other.repair_tool_calls() == []
    assert await window(other) == ["system", "a1", "t1", made.id, "u1"]
    await other.append([answer("c2", "late, but here", "t2")])
    assert await window(session) == ["system", "a1", "t1", "t2", "u1"]
    assert (await session.context()).invalid == []


async def test_a_budget_keeps_the_newest_that_fits_and_the_last_user_message(world: World) -> None:
    session = await begun(world.engine, system=None)
    await session.append(
        [
            user("x" * 400, "u1"),
            calling("c1", message_id="a1"),
            answer("c1", "y" * 40, "t1"),
            assistant("done", "a2"),
        ]
    )
    context = await session.context(ContextRequest(30))
    assert [m.id for m in context.messages] == ["u1"], "the last user message is kept whatever it takes"
    assert context.over_budget == context.total_tokens - 30 > 0
    assert context.left_out == 3
    assert [m.id for m in (await session.context(ContextRequest(112))).messages] == [
        "u1",
        "a2",
    ], "a call is not shown without its result"
    whole = await session.context(ContextRequest(1_000))
    assert (whole.over_budget, whole.left_out) == (0, 0)
    assert [m.id for m in (await session.context(ContextRequest(last=1))).messages] == ["a2"]
    assert [m.id for m in (await session.context(ContextRequest(last=2))).messages] == ["a2"], (
        "half of a call is not shown"
    )
    assert (await session.context(ContextRequest(1_000), tools=[{"name": "look"}])).tools_tokens > 0


async def test_a_compaction_that_loses_to_another_writes_nothing_and_returns_that(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(f"m{n}", f"m{n}") for n in range(4)])
    other = await opened(await world.another_process())
    theirs = asyncio.Event()

    async def slow(_: list[Message]) -> str:
        await other.compact(lambda _: "theirs", keep_last=1, reason="auto")
        theirs.set()
        return "ours"

    made = await session.compact(slow, keep_last=1, reason="manual")
    assert theirs.is_set()
    assert made.summary.text == "theirs"
    assert len(await session.compactions()) == 1


async def test_what_is_said_while_a_summary_is_made_stays_behind_it(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(f"m{n}", f"m{n}") for n in range(3)])
    other = await opened(await world.another_process())

    async def slow(_: list[Message]) -> str:
        await other.append([user("meanwhile", "m9")])
        return "so far"

    made = await session.compact(slow, keep_last=1, reason="manual")
    assert await window(session) == ["system", made.summary.id, "m2", "m9"]


async def test_a_summary_is_made_again_where_a_message_of_it_was_excluded_meanwhile(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(f"m{n}", f"m{n}") for n in range(3)])
    other, asked = await opened(await world.another_process()), list[list[str]]()

    async def slow(messages: list[Message]) -> str:
        asked.append([str(message.id) for message in messages])
        if len(asked) == 1:
            await other.exclude("m0", "manual")
        return "so far"

    made = await session.compact(slow, keep_last=1, reason="manual")
    assert asked == [["m0", "m1"], ["m1"]]
    assert made.archived_ids == ["m1"]


SAID = [
    {"id": "sum1", "role": "system", "content": "so far"},
    {"role": "assistant", "content": [{"type": "text", "text": "so far"}]},
]


@pytest.mark.parametrize("said", SAID)
async def test_a_summary_may_be_a_message_in_any_shape(world: World, said: dict[str, object]) -> None:
    session = await begun(world.engine)
    await session.append([user("m1", "m1"), user("m2", "m2")])
    made = await session.compact(lambda _: said, keep_last=1, reason="manual")
    assert (made.summary.text, made.summary.id == "sum1", made.summary.is_summary) == (
        "so far",
        "id" in said,
        True,
    )
    assert await window(session) == ["system", made.summary.id, "m2"]


@pytest.mark.parametrize("at", ["before", "meanwhile"])
@pytest.mark.parametrize("taken", ["m1", "m3", "sum1", "system"])
async def test_a_summary_never_stands_under_the_id_of_another_message(
    world: World, taken: str, at: str
) -> None:
    """B21: also where the id came into the session while the summary was made, by
    another process.
    """
    session, other = await begun(world.engine), await opened(await world.another_process())
    await session.append([user(name, name) for name in ("m1", "m2", "m3", "m4")])
    await session.compact(
        lambda _: {"id": "sum1", "role": "system", "content": "first"}, keep_last=2, reason="manual"
    )

    async def summary(messages: list[Message]) -> Message:
        if at == "meanwhile":
            await other.append([user("late", "late")])
        return Message(id="late" if at == "meanwhile" else taken, role="system", content="second")

    made = await session.compact(summary, keep_last=0, reason="manual")
    names = [item.message.id for item in (await session.history(HistoryQuery())).items]
    assert len(names) == len(set(names))
    assert made.summary.id in names
    assert (await session.history(HistoryQuery(ids=[str(made.summary.id)]))).items[0].message.text == "second"
    assert (await window(session))[:2] == ["system", made.summary.id]


@pytest.mark.behaviour("B48")
@pytest.mark.parametrize(
    "said",
    [
        "",
        " \n",
        {"role": "system", "content": ""},
        {"role": "assistant", "content": "see", "tool_calls": [{"id": "c1", "name": "look"}]},
    ],
    ids=["nothing", "blanks", "an empty message", "a call"],
)
async def test_a_summary_that_says_nothing_archives_nothing_though_there_is_an_earlier_one(
    world: World, said: Any
) -> None:
    session, given = await begun(world.engine), list[list[str]]()
    await session.append([user(name, name) for name in ("m1", "m2", "m3")])
    first = await session.compact(lambda _: "so far", keep_last=1, reason="manual")
    before = await window(session)

    def silent(messages: list[Message]) -> Any:
        given.append([message.text for message in messages])
        return said

    with pytest.raises(CompactionError, match="is empty, or calls a tool"):
        await session.compact(silent, keep_last=0, reason="manual")
    assert given == [["so far", "m3"]], "the summariser is given the earlier summary"
    assert await window(session) == before == ["system", first.summary.id, "m3"]
    assert [one.id for one in await session.compactions()] == [first.id]


@pytest.mark.behaviour("B49")
async def test_what_was_only_thought_is_among_what_a_summary_is_made_of(world: World) -> None:
    session, given = await begun(world.engine), list[Message]()
    await session.append(
        [
            user("m1", "m1"),
            Message(id="thought", role=Role.ASSISTANT, reasoning="She means tea."),
            user("m2", "m2"),
        ]
    )

    def summarise(messages: list[Message]) -> str:
        given.extend(messages)
        return summary_of(messages).text

    made = await session.compact(summarise, keep_last=1, reason="manual")
    assert [(message.id, message.reasoning) for message in given] == [
        ("m1", None),
        ("thought", "She means tea."),
    ]
    assert made.summary.text == "Summary of the conversation so far: m1 She means tea."
    assert made.archived_ids == ["m1", "thought"]


@pytest.mark.behaviour("B48")
@pytest.mark.parametrize(
    "said", ["", "  ", None, 7, {"role": "system"}, [{"role": "system", "content": "so far"}]]
)
async def test_a_summary_that_cannot_be_had_changes_nothing(world: World, said: object) -> None:
    session = await begun(world.engine)
    await session.append([user("m1", "m1"), user("m2", "m2")])
    with pytest.raises(CompactionError, match=r"^Compaction failed for messages \[m1, m2\]: "):
        await session.compact(lambda _: said, keep_last=0, reason="manual")  # type: ignore[arg-type, return-value]
    assert await window(session) == ["system", "m1", "m2"]
    assert (await session.info()).compaction_count == 0


async def test_a_list_knows_of_an_end_though_the_process_died_over_it(world: World) -> None:
    session = await begun(world.engine)
    world.mid.fails_before.add("session.follow")
    await session.close("archived")
    world.heal()
    sessions = world.engine.conversations.sessions
    assert [info.status for info in (await sessions.list(TENANT, asked={}, limit=10)).sessions] == ["active"]
    await world.engine.maintenance.sweep()
    assert [
        info.id for info in (await sessions.list(TENANT, asked={"status": "archived"}, limit=10)).sessions
    ] == ["s1"]
    assert await world.owed() == 0


async def test_a_search_finds_as_many_as_are_asked_for(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(f"heron {n}", f"u{n}") for n in range(320)])
    assert len(await hits_of(session, "heron", 300)) == 300


async def test_what_was_said_is_found_where_the_store_has_no_index_of_words() -> None:
    async with World(mid=replace(DURABLE, lexical=False)) as world:
        session = await begun(world.engine)
        await session.append([user("the heron stands", "u1"), user("the harbour is quiet", "u2")])
        assert [hit.message.id for hit in await hits_of(session, "herons", 10)] == ["u1"]


async def test_a_handle_goes_on_where_only_the_generation_was_raised(world: World) -> None:
    """As it is brought up where a store had been set back: the session lives on under
    the higher one.
    """
    session = await begun(world.engine)
    await session.append([user("u1", "u1")])
    key = session_key(TENANT, "s1")
    (record,) = await world.mid.get(SESSIONS, [key])
    assert isinstance(record, Record)
    await world.mid.apply(
        [RaiseGeneration(record.partition, to=3), Put(SESSIONS, replace(record, generation=3), Always())]
    )
    await session.append([user("u2", "u2")])
    await session.update("u1", {"content": "changed"})
    assert [m.text for m in (await session.context()).messages] == [SYSTEM.text, "changed", "u2"]


async def test_that_a_list_is_not_told_is_no_reason_to_say_that_nothing_was_stored(world: World) -> None:
    session = await begun(world.engine)
    world.clock.advance(timedelta(minutes=1))
    world.mid.fails_before.add("session.follow")
    await session.append([user("u1", "u1")])
    world.heal()
    assert await told(session) == ["system", "u1"]


async def test_a_list_tells_what_this_process_has_just_written_and_another_s_after_its_sweep(
    world: World,
) -> None:

    async def listed(engine: Engine) -> list[int]:
        return [
            info.message_count
            for info in (await engine.conversations.sessions.list(TENANT, asked={}, limit=10)).sessions
        ]

    session, another = await begun(world.engine), await world.another_process()
    await session.append([user("u1", "u1"), user("u2", "u2")])
    assert await listed(another) == [1]
    assert await listed(world.engine) == [3]
    await session.append([user("u3", "u3")])
    await world.engine.maintenance.sweep()
    assert await listed(another) == [4]
    await session.append([user("u4", "u4")])
    await world.engine.conversations.sessions.delete(TENANT, "s1")
    assert await listed(world.engine) == [], "what was deleted meanwhile is not told"


@pytest.mark.parametrize("lost", [2, 64, 128, 140, 150, 151])
async def test_one_damaged_event_costs_no_other(world: World, lost: int) -> None:
    session = await begun(world.engine)
    for n in range(2, 151):
        await session.append([user(f"m{n}", f"m{n}")])
    await session.exclude("m5", "manual")
    world.mid.state.damage(MESSAGES.name, Key(TENANT, session._log.key(lost)))
    world.clock.advance(REMEMBERED_FOR)
    others = [f"m{n}" for n in range(2, 151) if n not in (5, lost)]
    another = await opened(await world.another_process())
    for handle in (session, another):  # that m5 was excluded, only who has seen it knows where that was lost
        excluded = handle is session or lost != 151
        assert await window(handle) == [
            "system",
            *(others if excluded else sorted([*others, "m5"], key=lambda name: int(name[1:]))),
        ]
        assert await told(handle, limit=1_000) == ["system", *[f"m{n}" for n in range(2, 151) if n != lost]]
    before = (await another.info()).message_count
    await another.append([user("more", "more")])
    assert (await window(session))[-1] == "more"
    assert (await session.history(HistoryQuery(ids=["more"]))).items[0].number == before + 1, (
        "no number is given twice"
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_no_page_of_a_history_loses_what_stands_beside_the_log(
    world: World, limit: int, descending: bool
) -> None:
    """The system message stands in no log: wherever a page ends, it and all others are
    shown, once each (B33).
    """
    session = await begun(world.engine)
    await session.append([user(f"m{n}", f"m{n}") for n in range(3)])
    seen, page = list[str](), await session.history(HistoryQuery(limit=limit, descending=descending))
    while True:
        assert 0 < len(page.items) <= limit
        seen += [str(item.message.id) for item in page.items]
        if page.cursor is None:
            break
        page = await session.history(HistoryQuery(limit=limit, descending=descending, cursor=page.cursor))
    whole = ["system", "m0", "m1", "m2"]
    assert seen == (whole[::-1] if descending else whole)


async def test_a_page_of_one_of_a_session_in_which_nothing_was_said_is_the_last(world: World) -> None:
    page = await (await begun(world.engine)).history(HistoryQuery(limit=1))
    assert ([item.message.id for item in page.items], page.cursor) == (["system"], None)


async def test_what_was_said_in_a_session_that_has_expired_is_not_found(world: World) -> None:
    """Before a sweep has erased it, as after."""
    draft = SessionDraft("s1", expires_at=timedelta(hours=1))
    await (await world.engine.conversations.create(TENANT, draft)).append([user("the heron stands", "u1")])
    assert [
        hit.message.id for hit in await world.engine.message_search.find(Tenant(TENANT), None, "heron", 10)
    ] == ["u1"]
    world.clock.advance(timedelta(hours=2))
    assert await world.engine.message_search.find(Tenant(TENANT), None, "heron", 10) == []


async def test_an_expired_session_that_was_created_again_is_not_erased_by_who_comes_late(
    world: World,
) -> None:
    """Both found the former life expired; the second comes when the first has a session
    of the id again.
    """
    draft = SessionDraft("s1", SYSTEM, expires_at=timedelta(hours=1))
    await (await world.engine.conversations.create(TENANT, draft)).append([user("u1", "u1")])
    world.clock.advance(timedelta(hours=2))
    theirs, again = await world.another_process(), list[Conversation]()

    async def created_first() -> None:
        again.append(await theirs.conversations.create(TENANT, SessionDraft("s1", SYSTEM)))
        await again[0].append([user("u2", "u2")])

    world.mid.before["erase.begin"] = created_first
    with pytest.raises(Conflict, match="Session already exists: s1"):
        await world.engine.conversations.create(TENANT, SessionDraft("s1", SYSTEM))
    await world.engine.maintenance.sweep()
    assert await window(again[0]) == ["system", "u2"] == await told(again[0])


async def test_an_erasure_of_an_expired_session_that_was_cut_off_is_ended_by_a_sweep(world: World) -> None:
    draft = SessionDraft("s1", SYSTEM, expires_at=timedelta(hours=1))
    await (await world.engine.conversations.create(TENANT, draft)).append([user("u1", "u1")])
    world.clock.advance(timedelta(days=2))
    world.mid.fails_before.add("erase.delete")
    assert (await world.engine.maintenance.sweep()).expired == 0
    world.heal()
    await world.engine.maintenance.sweep()
    assert (await world.mid.count(Query(MESSAGES, Everywhere()))).records == 0
    assert (await world.mid.count(Query(SESSIONS, Everywhere()))).records == 0


async def test_a_compaction_that_lost_to_another_tells_of_a_session_that_was_deleted_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await begun(world.engine)
    await conversation.append([Message(role=Role.USER, content=f"m{n}") for n in range(4)])
    other, asked = await opened(world.engine), conversation.compactions

    async def slow(_: list[Message]) -> str:
        await other.compact(lambda _: "first", keep_last=1, reason="manual")
        return "second"

    async def after_a_deletion() -> list[Compaction]:
        await world.engine.conversations.sessions.delete(conversation._log.life.tenant, conversation.id)
        return await asked()

    monkeypatch.setattr(conversation, "compactions", after_a_deletion)
    with pytest.raises(NotFound):
        await conversation.compact(slow, keep_last=1, reason="manual")


@pytest.mark.parametrize("when", ["fails_before", "fails_after"])
async def test_a_replacement_that_was_cut_off_is_ended_by_the_same_list(world: World, when: str) -> None:
    """C22: cut off between its writes it leaves what is new behind what was there;
    nothing is doubled by the repetition.
    """
    session = await begun(world.engine)
    await session.append([user(name, name) for name in ("m1", "m2", "m3")])

    async def dies() -> None:
        getattr(world.mid, when).add("log.append")

    world.mid.after["log.append"] = dies
    given = [user("m1", "m1"), user("new")]
    with pytest.raises(MemoryTiersError):
        await session.replace(given)
    world.heal()
    other = await opened(await world.another_process())
    if when == "fails_before":
        assert [message.text for message in (await other.context()).messages] == [
            SYSTEM.text,
            "m1",
            "m2",
            "m3",
            "new",
        ]
    for handle in (other, session):
        await handle.replace(given)
        assert [message.text for message in (await handle.context()).messages] == [SYSTEM.text, "m1", "new"]
    assert [item.message.text for item in (await other.history(HistoryQuery())).items] == [
        SYSTEM.text,
        "m1",
        "m2",
        "m3",
        "new",
    ]
