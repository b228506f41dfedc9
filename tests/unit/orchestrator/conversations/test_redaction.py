"""Erasing a message, and a user: nothing of the text is left anywhere, whatever fails
and whoever comes in between.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory.domain.errors import NotFound, StoreUnavailable
from memory.domain.message import Message
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import MESSAGES, OPERATIONS, SESSIONS
from memory.policies.context import ContextRequest
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record
from tests.unit.orchestrator.conversations.talking import (
    answer,
    begun,
    calling,
    hits_of,
    opened,
    told,
    user,
    window,
)
from tests.unit.orchestrator.world import TENANT, USER, World

NEST = "the heron's nest"


async def erase(engine: Engine, session: Conversation, message_id: str) -> bool:
    return await engine.conversations.redaction.erase(session.log, message_id)


def summary(message_id: str) -> Any:
    """A summary that says all that it was given."""
    return lambda messages: Message(
        id=message_id, role="system", content=" / ".join(message.text for message in messages)
    )


async def stored(world: World) -> str:
    """All that stands in the store about messages."""
    rows = (await world.mid.query(Query(MESSAGES, Everywhere(), limit=1_000))).records
    return str(
        [(dict(row.fields), dict(row.body), dict(row.texts)) for row in rows if isinstance(row, Record)]
    )


async def redacted(session: Conversation) -> list[int]:
    return [item.number for item in (await session.history(HistoryQuery())).items if item.is_redacted]


async def said(world: World) -> Conversation:
    session = await begun(world.engine)
    await session.append(
        [user("hello", "u1"), user(NEST, "named-by-a-caller", name="lovelace"), user("well", "u3")]
    )
    return session


async def test_of_an_erased_message_its_place_is_left(world: World) -> None:
    session = await said(world)
    before = await session.info()
    assert await erase(world.engine, session, "named-by-a-caller") is True
    for handle in (session, await opened(await world.another_process())):
        assert await window(handle) == ["system", "u1", "u3"]
        info = await handle.info()
        assert (info.message_count, info.version) == (before.message_count, (before.version or 0) + 1)
        items = (await handle.history(HistoryQuery())).items
        assert [item.number for item in items] == [1, 2, 3, 4]
        assert (items[2].message.text, items[2].message.name, items[2].message.role) == ("", None, "user")
        assert (items[2].is_redacted, items[2].excluded) == (True, "erased")
        assert await hits_of(handle, NEST, 10) == []
        with pytest.raises(NotFound):
            await handle.update("named-by-a-caller", {"content": "again"})
        assert await handle.restore(str(items[2].message.id)) is False
        assert await erase(world.engine, handle, str(items[2].message.id)) is False
    assert NEST not in (there := await stored(world))
    assert "named-by-a-caller" not in there
    assert "lovelace" not in there


async def test_an_erased_id_is_free_again_also_for_a_handle_that_does_not_know_of_it(world: World) -> None:
    session = await said(world)
    theirs = await opened(await world.another_process())
    assert await erase(world.engine, theirs, "named-by-a-caller")
    (again,) = await session.append([user("another", "named-by-a-caller")])
    assert again.text == "another"
    assert await window(session) == ["system", "u1", "u3", "named-by-a-caller"] == await window(theirs)
    assert len(await told(session)) == 5


async def test_what_was_erased_is_not_shown_beside_what_its_id_says_now_though_nobody_was_told_that_it_was(
    world: World,
) -> None:
    """A process that remembers the message learns of the erasure when it looks up the
    id, and nothing else tells it: the eraser died.
    """
    session = await said(world)
    dying = await world.another_process()
    world.mid.fails_before.add("log.append")
    with pytest.raises(StoreUnavailable):
        await erase(dying, await opened(dying), "named-by-a-caller")
    world.heal()
    assert NEST in [message.text for message in (await session.context()).messages], (
        "remembered, and not said to be erased yet"
    )
    await session.append([user("another", "named-by-a-caller")])
    shown = (await session.context()).messages
    assert [message.id for message in shown] == ["system", "u1", "u3", "named-by-a-caller"]
    assert NEST not in [message.text for message in shown]


async def test_summaries_of_it_and_their_summaries_go_with_it(world: World) -> None:
    session = await said(world)
    await session.compact(summary("sum1"), keep_last=1, reason="manual")
    await session.append([user("u4", "u4")])
    second = await session.compact(summary("sum2"), keep_last=1, reason="manual")
    assert NEST in second.summary.text
    await session.append([user("u5", "u5")])
    assert await erase(world.engine, session, "named-by-a-caller")
    assert await window(session) == ["system", "u4", "u5"]
    assert NEST not in (there := await stored(world))
    assert "named-by-a-caller" not in there
    compactions = await session.compactions()
    assert [(one.summary.text, one.archived_ids, one.messages_before) for one in compactions] == [
        ("", [], 4),
        ("", [], 4),
    ]
    assert len(await told(session, archived_by=compactions[0].id)) == 2
    assert len(await told(session)) == 8


async def test_summaries_of_other_messages_stay(world: World) -> None:
    session = await said(world)
    await session.compact(summary("sum1"), keep_last=0, reason="manual")
    await session.append([user("later", "u4")])
    assert await erase(world.engine, session, "u4")
    assert await window(session) == ["system", "sum1"]


@pytest.mark.parametrize("step", ["log.append", "redact.find", "log.change"])
async def test_what_a_crash_cut_off_a_sweep_ends(world: World, step: str) -> None:
    """The text of the message itself is gone with the first write; before that nothing
    has happened.
    """
    session = await said(world)
    await session.compact(summary("sum1"), keep_last=1, reason="manual")
    await session.append([user("u4", "u4")])
    if step == "log.change":  # the second change is the summary's

        async def then_fail() -> None:
            world.mid.fails_before.add(step)

        world.mid.after[step] = then_fail
    elif (
        step == "log.append"
    ):  # it is not in the window any more: its summary is, and is what fails to leave it

        async def fail_at_the_summary() -> None:
            world.mid.fails_before.add(step)

        world.mid.before["redact.find"] = fail_at_the_summary
    else:
        world.mid.fails_before.add(step)
    with pytest.raises(StoreUnavailable, match=r"[Aa] sweep will"):
        await erase(world.engine, session, "named-by-a-caller")
    world.heal()
    engine = await world.another_process()
    await engine.maintenance.sweep()
    await engine.maintenance.sweep()
    assert await engine.maintenance.count_pending() == 0
    assert NEST not in await stored(world)
    assert await window(session) == ["system", "u3", "u4"]
    assert await redacted(session) == [3, 5]


async def test_a_compaction_that_has_read_it_summarises_again(world: World) -> None:
    session = await said(world)
    theirs, given = await opened(await world.another_process()), list[str]()

    async def summarise(messages: list[Message]) -> str:
        given.append(" / ".join(message.text for message in messages))
        if len(given) == 1:
            assert await erase(world.engine, theirs, "named-by-a-caller")
        return given[-1]

    made = await session.compact(summarise, keep_last=1, reason="manual")
    assert [NEST in text for text in given] == [True, False]
    assert (NEST in made.summary.text, NEST in await stored(world)) == (False, False)


async def test_a_compaction_that_was_first_is_found(world: World) -> None:
    session = await said(world)
    theirs = await opened(await world.another_process())

    async def compact() -> None:
        await theirs.compact(summary("sum1"), keep_last=1, reason="manual")

    world.mid.before["log.change"] = compact
    assert await erase(world.engine, session, "named-by-a-caller")
    (made,) = await theirs.compactions()
    assert made.summary.text == ""
    assert NEST not in await stored(world)


async def test_an_edit_that_comes_in_between_is_erased_too(world: World) -> None:
    session = await said(world)
    theirs = await opened(await world.another_process())

    async def edit() -> None:
        await theirs.update("named-by-a-caller", {"content": NEST + " again"})

    world.mid.before["log.change"] = edit
    assert await erase(world.engine, session, "named-by-a-caller")
    assert NEST not in await stored(world)


async def test_an_erased_call_leaves_no_result_without_it_in_the_window(world: World) -> None:
    session = await begun(world.engine)
    await session.append(
        [user("go", "u1"), calling("c1", message_id="a1"), answer("c1", message_id="t1"), user("on", "u2")]
    )
    assert await erase(world.engine, session, "a1")
    assert await window(session) == ["system", "u1", "u2"]


async def test_a_session_that_has_ended_can_be_erased_from(world: World) -> None:
    session = await said(world)
    await session.close("ended")
    assert await erase(world.engine, session, "named-by-a-caller")
    assert (await session.info()).status == "ended"
    assert NEST not in await stored(world)


@pytest.mark.parametrize("step", [None, "user.messages", "log.change", "user.end"])
async def test_a_user_is_erased_from_every_session_also_after_a_crash(world: World, step: str | None) -> None:
    engine = world.engine
    theirs = await engine.conversations.create(TENANT, SessionDraft("of-ada", user="ada"))
    others = await engine.conversations.create(TENANT, SessionDraft("of-bob", user="bob"))
    await theirs.append([user(NEST, "m1")])
    await others.append(
        [user(NEST, "m1", name="ada"), user("mine", "m2", name="bob"), user("nobody's", "m3")]
    )
    await world.write(NEST, USER)
    if step is not None:
        world.mid.fails_before.add(step)
        with pytest.raises(StoreUnavailable):
            await engine.conversations.redaction.erase_user(TENANT, "ada")
        world.heal()
        await (await world.another_process()).maintenance.sweep()
    else:
        erased = await engine.conversations.redaction.erase_user(TENANT, "ada")
        assert (erased.sessions, erased.messages, erased.entries) == (1, 1, 1)
    assert NEST not in await stored(world)
    assert await engine.conversations.find(TENANT, "of-ada") is None
    assert await window(others) == ["m2", "m3"]
    assert await world.browse(USER) == []
    operations = (await world.mid.query(Query(OPERATIONS, Everywhere(), limit=100))).records
    assert [row for row in operations if isinstance(row, Record) and row.fields["kind"] == "user"] == []
    again = await engine.conversations.redaction.erase_user(TENANT, "ada")
    assert (again.sessions, again.messages, again.entries) == (0, 0, 0)


async def test_sweeps_forget_scopes_beside_a_user_s_erasure(world: World) -> None:
    """The operation of a user's erasure is none of a scope's, wherever these are read."""
    world.mid.fails_before.add("user.messages")
    with pytest.raises(StoreUnavailable):
        await world.engine.conversations.redaction.erase_user(TENANT, "ada")
    report = await world.engine.maintenance.sweep()
    assert not any("KeyError" in said for said in report.stays)
    assert report.pending_steps == 1


async def test_how_a_session_begins_is_no_longer_told_once_that_was_erased(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1"), user("well", "u2")])
    sessions = world.engine.conversations.sessions
    assert [info.preview for info in (await sessions.list(TENANT, asked={}, limit=10)).sessions] == [NEST]
    await erase(world.engine, session, "u1")
    (record,) = (await world.mid.query(Query(SESSIONS, Everywhere(), limit=10))).records
    assert isinstance(record, Record)
    assert NEST not in str(record)


async def test_an_erased_summary_is_no_layer(world: World) -> None:
    session = await said(world)
    await session.compact(summary("c1"), keep_last=0, reason="manual")
    assert await erase(world.engine, session, "named-by-a-caller")
    assert [message.id for message in (await session.context(ContextRequest(layered=True))).messages] == [
        "system"
    ]


async def test_what_is_erased_while_a_roll_back_is_under_way_does_not_come_back_into_the_window(
    world: World,
) -> None:
    session = await begun(world.engine)
    await session.append([user("u1", "u1"), user(NEST, "u2")])
    here = await session.checkpoint()
    await session.compact(summary("sum"), keep_last=0, reason="manual")
    theirs = await opened(engine := await world.another_process())
    world.mid.before["log.append"] = lambda: erase(engine, theirs, "u2")
    assert await session.roll_back(here, "manual") == 0, "the summary is erased with what it says"
    assert await window(session) == ["system", "u1"]
    there = (await session.log.load()).state.window
    assert [
        event.draft.message.id
        for event in (await session.log.at(list(there))).values()
        if event.draft.message is not None
    ] == ["u1"]
    assert await redacted(session) == [3, 4]
