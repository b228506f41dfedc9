"""The large texts of messages: read as they were said, each there as long as its
message says it, and gone with it, whatever fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from memory.domain.errors import CorruptRecord, NotFound, StoreUnavailable
from memory.domain.message import Message
from memory.orchestrator.conversations.blobs import large_texts
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.events import found_by
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.conversations.window.streaming import StreamedMessage
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES
from memory.orchestrator.storage.steps import current_step
from memory.policies.context import ContextRequest
from memory.ports.query import Everywhere, Query
from memory.ports.record import Key, Record
from memory.ports.writes import AtVersion, Put
from tests.support.depth import beyond, seeds
from tests.support.reserved import assert_reserved
from tests.unit.orchestrator.conversations.large import everything, large, unsound
from tests.unit.orchestrator.conversations.talking import (
    assistant,
    begun,
    hits_of,
    opened,
    told,
    user,
    window,
)
from tests.unit.orchestrator.world import DAY, DURABLE, HOUR, TENANT, World

NEST, REED = large("nest"), large("reed")


@pytest.fixture(params=[True, False], ids=["atomic", "write-by-write"])
def world(request: pytest.FixtureRequest) -> World:
    can = replace(DURABLE, atomic=request.param)
    return World(short=can, mid=can, long=can)


@pytest.fixture(autouse=True)
async def _open(world: World) -> Any:
    async with world:
        yield


async def texts(session: Conversation) -> list[str]:
    return [message.text for message in (await session.context()).messages if message.id != "system"]


async def _is_sound(world: World, where: object = "", *, settled: bool = True) -> None:
    """The chunks are those that are named, and the room that is reserved is what they
    take.
    """
    assert await unsound(world.mid, settled=settled) == [], where
    await assert_reserved(world.engine, TENANT, settled=settled)


async def sweep(world: World) -> None:
    """As another process does it, once what was under way has been for too long."""
    world.heal()
    world.clock.advance(2 * HOUR)
    engine = await world.another_process()
    await engine.maintenance.sweep()
    await engine.maintenance.sweep()


async def test_a_large_text_is_no_part_of_the_row_and_is_given_back_whole(world: World) -> None:
    session = await begun(world.engine)
    said = Message(
        id="a1",
        role="assistant",
        content=[
            {"type": "text", "text": NEST},
            {"type": "image", "source": {"type": "base64", "data": large("é", 90_000)}},
        ],
        reasoning=large("😀", 40_000),
        tool_calls=[{"id": "c1", "name": "write", "arguments": f'{{"text": "{REED}"}}'}],
        metadata={"a": {"b": [1, large("m")]}},
        extra={"fields": {"kept": large("x", 600_000)}},
    )
    (stored,) = await session.append([said])
    assert stored == said
    rows = (await world.mid.query(Query(MESSAGES, Everywhere(), limit=10))).records
    assert max(len(str(row)) for row in rows) < 20_000
    for handle in (session, await opened(await world.another_process())):
        assert (await handle.context()).messages[-1] == said
        assert (await handle.history(HistoryQuery())).items[-1].message == said
        assert [hit.message for hit in await hits_of(handle, "nest", 10)] == [said]
    await _is_sound(world)


@pytest.mark.parametrize(
    "content",
    [
        NEST,
        [{"type": "text", "text": "first"}, {"type": "text", "text": NEST}, {"type": "text", "text": REED}],
        [{"type": "image", "data": REED}, {"type": "text", "text": NEST}, {"type": "text", "text": "last"}],
        [{"type": "text", "text": "x" * 60_000}, {"type": "text", "text": NEST}],
        [{"type": "image", "text": 7, "data": REED}, {"type": "text", "text": "last"}],
    ],
)
async def test_an_outline_tells_all_that_the_message_is_found_by(world: World, content: Any) -> None:
    session = await begun(world.engine)
    said = Message(id="u1", role="user", content=content)
    await session.append([said])
    event = await session.log.find("u1")
    assert event is not None
    assert not event.draft.is_whole
    assert event.draft.message is not None
    assert found_by(event.draft.message) == found_by(said)


async def test_a_row_is_small_however_many_texts_its_message_has(world: World) -> None:
    session = await begun(world.engine)
    await session.append(
        [
            Message(
                id="u1",
                role="user",
                content=[{"type": "text", "text": large("é", 45_000) + str(n)} for n in range(500)],
            )
        ]
    )
    (row,) = (await world.mid.query(Query(MESSAGES, Everywhere(), limit=10))).records
    assert len(str(row)) < 200_000


async def test_what_is_not_shown_is_not_read(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1"), user("short", "u2")])
    fresh = await opened(await world.another_process())
    world.mid.steps.clear()
    context = await fresh.context(ContextRequest(budget=100))
    assert [message.id for message in context.messages] == ["system", "u2"]
    await session.info()
    assert (await fresh.history(HistoryQuery(offset=2))).items[0].message.id == "u2"
    assert "artifacts.read" not in world.mid.steps
    (item,) = (await fresh.history(HistoryQuery(offset=1, limit=1))).items
    assert item.message.text == NEST
    assert world.mid.steps.count("artifacts.read") == 1


async def test_while_the_store_does_not_answer_no_outline_is_shown(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1"), user("short", "u2")])
    await session.context()
    world.mid.down = True
    context = await session.context(ContextRequest(last=1))
    assert [message.text for message in context.messages] == ["You are kind.", "short"]
    assert context.degraded != []
    with pytest.raises(StoreUnavailable):
        await session.context()


async def test_several_are_read_together(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(large(f"word{n}"), f"u{n}") for n in range(10)])
    world.mid.steps.clear()
    assert len(await texts(await opened(await world.another_process()))) == 10
    assert world.mid.steps.count("artifacts.read") == 1


async def test_another_counter_counts_the_whole_text(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1")])

    class Characters:
        name = "characters"

        def count(self, text: str) -> int:
            return len(text)

    world.engine.conversations.counter = Characters()
    context = await (await opened(world.engine)).context()
    assert context.tokens[-1] == len(NEST) + 4


@pytest.mark.parametrize("change", ["another", "short", "grown", "only its usage"])
async def test_a_change_leaves_what_the_message_says_and_nothing_else(world: World, change: str) -> None:
    session = await begun(world.engine)
    before = large("nest", 300_000)
    await session.append([user(before, "u1"), user(REED, "u2")])
    new: dict[str, Any] = {
        "another": {"content": large("heron")},
        "short": {"content": "heron"},
        "grown": {"content": before + large("heron")},
    }.get(change, {"usage": {"total": 3}})
    chunks = await _chunks(world)
    await session.update("u1", new)
    assert (
        await texts(session)
        == [new.get("content", before), REED]
        == await texts(await opened(await world.another_process()))
    )
    await _is_sound(world)
    kept = {"another": 1, "short": 1, "grown": 2, "only its usage": 3}[change]
    assert len(chunks & await _chunks(world)) == kept


async def _chunks(world: World) -> set[Key]:
    rows = (await world.mid.query(Query(ARTIFACTS, Everywhere(), limit=1_000))).records
    return {row.key for row in rows if isinstance(row, Record)}


async def test_a_stream_that_grows_large_does_not_store_again_what_is_stored(world: World) -> None:
    session = await begun(world.engine)
    stream, said, put = StreamedMessage(session, world.engine.placement, assistant("").role, "a1"), "", 0
    piece = large("nest", 100_000)
    for _ in range(20):
        before = await _chunks(world)
        await stream.write(piece)
        said += piece
        world.clock.advance()
        put += len(await _chunks(world) - before)
        assert await texts(await opened(await world.another_process())) == [said]
        await _is_sound(world)
    assert await stream.finish({}) is not None
    assert await texts(session) == [said]
    assert put <= 20 + len(said) // large_texts.CHUNK_CHARACTERS + 1
    await _is_sound(world)


async def test_of_an_erased_message_nothing_is_left(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1"), user(REED, "u2")])
    await session.compact(lambda messages: messages[0].text, keep_last=1, reason="manual")
    assert await world.engine.conversations.redaction.erase(session.log, "u1")
    assert "nest" not in await everything(*world.stores)
    await _is_sound(world)
    assert await texts(session) == [REED]
    assert (await session.history(HistoryQuery())).items[1].is_redacted


async def test_with_its_session_all_goes(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1")])
    await world.engine.conversations.sessions.delete(TENANT, "s1")
    assert "nest" not in await everything(*world.stores)
    again = await begun(world.engine)
    await again.append([user(REED, "u1")])
    assert await texts(again) == [REED]
    with pytest.raises(NotFound):
        await session.append([user(NEST, "u2")])
    assert "nest" not in await everything(*world.stores)


async def test_what_is_handed_back_stays(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST), user(REED)])
    before = await _chunks(world)
    await session.replace([user(NEST), user("new"), user(REED)])
    assert await texts(session) == [NEST, REED, "new"] or await texts(session) == [NEST, "new", REED]
    assert before <= await _chunks(world)
    await _is_sound(world)


# -- damage ----------------------------------------------------------------------------


async def _damage(world: World) -> None:
    for row in (await world.mid.query(Query(ARTIFACTS, Everywhere(), limit=1_000))).records:
        assert isinstance(row, Record)
        other = replace(row, version=row.version + 1, fields={**row.fields, "data": b"another text"})
        await world.mid.apply([Put(ARTIFACTS, other, AtVersion(row.version))])


async def test_what_is_damaged_is_said_and_never_another_text(world: World) -> None:
    session = await begun(world.engine)
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": NEST}}]
    call = {"id": "c1", "name": "write", "arguments": f'{{"a": "{REED}"}}'}
    await session.append(
        [
            user(NEST, "u1"),
            Message(id="u2", role="user", content=parts),
            Message(id="a1", role="assistant", tool_calls=[call]),
        ]
    )
    await _damage(world)
    one, two, three = (await session.context()).messages[1:]
    assert one.text == "[70000 bytes that cannot be read: their stored data is damaged or missing]"
    assert two.content == [parts[0], {"type": "text", "text": one.text}]
    assert three.tool_calls[0].arguments.startswith('{"unreadable": "[')
    with pytest.raises(CorruptRecord, match="Erase the message"):
        await session.update("u1", {"usage": {"a": 1}})
    with pytest.raises(CorruptRecord, match="Erase the message"):
        await session.as_of(None)
    assert await world.engine.conversations.redaction.erase(session.log, "u1")
    assert await window(session) == ["system", "u2", "a1"]


# -- whoever comes in between ----------------------------------------------------------


async def test_who_reads_a_message_while_it_is_changed_reads_one_of_both(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1")])
    reader, other = await opened(await world.another_process()), await opened(await world.another_process())
    world.mid.before["artifacts.read"] = lambda: other.update("u1", {"content": REED})
    assert await texts(reader) == [REED]
    world.mid.before["artifacts.read"] = lambda: world.engine.conversations.redaction.erase(other.log, "u1")
    assert await texts(reader) == []
    await _is_sound(world)


async def test_of_two_that_change_a_message_the_one_that_is_late_leaves_nothing_behind(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1")])
    other = await opened(await world.another_process())
    world.mid.before["log.change"] = lambda: other.update("u1", {"content": large("heron", 300_000)})
    await session.update("u1", {"content": REED})
    assert await texts(session) == [REED] == await texts(other)
    await _is_sound(world)


async def test_an_erasure_that_comes_before_a_change_leaves_nothing_of_either(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(NEST, "u1")])
    other = await opened(await world.another_process())
    world.mid.before["log.change"] = lambda: world.engine.conversations.redaction.erase(other.log, "u1")
    with pytest.raises(NotFound):
        await session.update("u1", {"content": REED})
    there = await everything(*world.stores)
    assert "nest" not in there
    assert "reed" not in there
    await _is_sound(world)


async def test_a_lost_place_costs_no_second_upload(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("first")])
    other = await opened(await world.another_process())
    world.mid.before["log.append"] = lambda: other.append([user("theirs")])
    await session.append([user(NEST)])
    assert world.mid.steps.count("artifacts.put") == 1
    assert await texts(session) == ["first", "theirs", NEST]
    await _is_sound(world)


@pytest.mark.parametrize("kind", ["append", "update"])
async def test_a_writer_that_slept_until_its_upload_was_given_up_stores_it_again(
    world: World, kind: str
) -> None:
    """It is certain of that before it acknowledges anything."""
    session = await begun(world.engine)
    await session.append([user(REED, "u1"), user("before", "u2")])

    async def sleeps() -> None:
        await sweep(world)
        assert "nest" not in await everything(*world.stores)

    if kind == "append":
        world.mid.before["log.append"] = sleeps
        await session.append([user(NEST, "u3"), user(large("heron"), "u4")])
        expected = [REED, "before", NEST, large("heron")]
    else:
        world.mid.before["log.change"] = sleeps
        await session.update("u2", {"content": NEST})
        expected = [REED, NEST]
    assert await texts(session) == expected == await texts(await opened(await world.another_process()))
    await _is_sound(world)


async def test_a_sweep_that_finds_the_row_holds_the_upload_and_leaves_one_that_is_young(world: World) -> None:
    session = await begun(world.engine)

    async def swept() -> None:
        await (await world.another_process()).maintenance.sweep()

    world.mid.before["log.append"] = swept
    world.mid.before["artifacts.hold"] = swept
    await session.append([user(NEST, "u1")])
    assert "artifacts.return" not in world.mid.steps
    assert await texts(session) == [NEST]
    await _is_sound(world)


async def test_a_row_that_a_driver_sends_twice_keeps_its_texts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await begun(world.engine)
    await session.append([user("before", "u1")])
    once = world.mid.apply

    async def twice(*args: Any, **kwargs: Any) -> Any:
        if current_step.get() == "log.change":
            await once(*args, **kwargs)
        return await once(*args, **kwargs)

    monkeypatch.setattr(world.mid, "apply", twice)
    await session.update("u1", {"content": NEST})
    assert await texts(session) == [NEST]
    await _is_sound(world, settled=False)
    await sweep(world)
    assert await texts(session) == [NEST]
    await _is_sound(world)


async def test_who_cannot_tell_whether_it_was_too_late_acknowledges_nothing(world: World) -> None:
    session = await begun(world.engine)

    async def sleeps() -> None:
        world.clock.advance(HOUR)
        world.mid.fails_before.add("artifacts.hold")

    world.mid.before["log.append"] = sleeps
    with pytest.raises(StoreUnavailable):
        await session.append([user(NEST, "u1")])
    await sweep(world)
    assert await texts(await opened(await world.another_process())) == [NEST]
    await _is_sound(world)


# -- faults at every step --------------------------------------------------------------

Call = Callable[[World, Conversation], Coroutine[Any, Any, object]]


async def _appends(world: World, session: Conversation) -> None:
    await session.append([user(large("heron", 600_000), "u3"), user(large("owl"), "u4")])


async def _changes(world: World, session: Conversation) -> None:
    await session.update("u1", {"content": NEST + large("heron", 600_000)})


async def _shortens(world: World, session: Conversation) -> None:
    await session.update("u1", {"content": "heron"})


async def _erases(world: World, session: Conversation) -> None:
    await world.engine.conversations.redaction.erase(session.log, "u1")


async def _compacts(world: World, session: Conversation) -> None:
    await session.compact(lambda messages: large("heron"), keep_last=0, reason="manual")


async def _deletes(world: World, session: Conversation) -> None:
    await world.engine.conversations.sessions.delete(TENANT, "s1")


STEPS = (
    "artifacts.reserved",
    "artifacts.balance",
    "artifacts.reservation",
    "artifacts.put",
    "artifacts.hold",
    "artifacts.drop",
    "artifacts.return",
    "artifacts.find",
    "log.append",
    "log.change",
    "log.read",
    "owed.settle",
)


CALLS = (_appends, _changes, _shortens, _erases, _compacts, _deletes)


@pytest.mark.parametrize("call", [pytest.param(call, marks=beyond(call, [], [_erases])) for call in CALLS])
@pytest.mark.thorough
async def test_whatever_fails_what_is_named_is_there_and_what_is_not_goes(world: World, call: Call) -> None:
    """Each step failing before and after it is carried out; then the caller tries
    again, or does not.
    """
    for failing in STEPS:
        for when in ("fails_before", "fails_after"):
            for again in (True, False):
                where = f"{failing} {when}{' and is tried again' * again}"
                session = await begun(world.engine)
                await session.append([user(NEST, "u1"), user(REED, "u2")])
                getattr(world.mid, when).add(failing)
                acknowledged = await _succeeds(call(world, session))
                await _is_sound(world, where, settled=False)
                if again:
                    world.heal()
                    acknowledged |= await _succeeds(call(world, session))
                    assert acknowledged, where
                    await _is_sound(world, where, settled=False)
                await sweep(world)
                await _is_sound(world, where)
                if acknowledged:
                    await _said(world, call, where)
                await world.engine.conversations.sessions.delete(TENANT, "s1")


async def _succeeds(call: Coroutine[Any, Any, object]) -> bool:
    try:
        await call
    except (StoreUnavailable, NotFound):
        return False
    return True


async def _said(world: World, call: Call, where: str) -> None:
    """What was acknowledged is there, whole, as another process reads it."""
    if call is _deletes:
        assert await world.engine.conversations.find(TENANT, "s1") is None, where
        assert await everything(world.mid) == "", where
        return
    expected: dict[Call, list[str]] = {
        _appends: [NEST, REED, large("heron", 600_000), large("owl")],
        _changes: [NEST + large("heron", 600_000), REED],
        _shortens: ["heron", REED],
        _erases: [REED],
        _compacts: [large("heron")],
    }
    assert await texts(await opened(await world.another_process())) == expected[call], where
    if call in (_erases, _shortens):
        assert "nest" not in await everything(*world.stores), where


# -- drawn histories -------------------------------------------------------------------


@pytest.mark.drawn
@pytest.mark.parametrize("seed", seeds(quick=2, nightly=4))
@pytest.mark.thorough
async def test_drawn_histories_leave_what_the_messages_say(world: World, seed: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 - the same histories in every run
    handles = [await begun(world.engine), await opened(await world.another_process())]
    model: dict[str, str] = {}
    unsure: dict[str, set[str]] = {}

    def text() -> str:
        return drawn.choice(["short", large(drawn.choice("abc"), drawn.choice([66_000, 270_000, 600_000]))])

    for number in range(60):
        session, name = drawn.choice(handles), f"m{drawn.randrange(6)}"
        if drawn.random() < 0.3:
            getattr(world.mid, drawn.choice(["fails_before", "fails_after"])).add(drawn.choice(STEPS))
        says = text()
        what = drawn.choice(["append", "append", "grow", "erase", "sweep"])
        if what == "grow" and name in model:
            says = model[name] + large("d", 70_000)
        try:
            if what == "sweep":
                world.clock.advance(drawn.choice([HOUR, DAY]))
                await (await world.another_process()).maintenance.sweep()
            elif what == "erase":
                says = ""
                await world.engine.conversations.redaction.erase(session.log, name)
                model.pop(name, None)
                unsure.pop(name, None)
            else:
                await session.append([user(says, name)])
                model[name] = says
                unsure.pop(name, None)
        except StoreUnavailable:
            if what != "sweep":
                unsure.setdefault(name, {model.pop(name, "")}).add(says)
        world.heal()
        await _is_sound(world, (number, what), settled=False)
    await sweep(world)
    await _is_sound(world)
    read = {
        str(m.id): m.text
        for m in (await (await opened(await world.another_process())).context()).messages
        if m.id != "system"
    }
    assert {name: said for name, said in read.items() if name not in unsure} == model
    for name, may in unsure.items():
        assert read.get(name, "") in may, name
    assert len(await told(handles[0])) >= len(read)
