"""Large texts of messages count in the tenant's quota: reserved before anything is
stored, returned exactly when they go, whoever dies over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.domain import validation
from memory.domain.errors import (
    Conflict,
    MemoryTiersError,
    NotFound,
    QuotaExceeded,
    StoreUnavailable,
    TooMuchContention,
)
from memory.domain.legal_hold import LegalHold
from memory.domain.time import moment
from memory.orchestrator.conversations import conversation
from memory.orchestrator.conversations.blobs import large_texts, uploads
from memory.orchestrator.conversations.blobs.balances import BalanceEntry, Balances
from memory.orchestrator.conversations.blobs.uploads import UPLOAD
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.streaming import StreamedMessage
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES, RESERVATIONS
from memory.policies.quotas import Quota
from memory.ports.record import Key, PendingStep, Record
from memory.ports.writes import Absent, Put
from tests.support.depth import beyond
from tests.support.reserved import assert_reserved
from tests.unit.orchestrator.conversations.large import unsound
from tests.unit.orchestrator.conversations.talking import assistant, begun, opened, user, window
from tests.unit.orchestrator.world import DURABLE, HOUR, TENANT, World

MOST = 1_000
FILES = Quota(name="files", per="tenant", artifact_bytes=MOST)
CHUNK = 50


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Texts of more than 40 bytes are large, in chunks of 50 characters."""
    with (
        patch.object(validation, "LARGE_TEXT_BYTES", 40),
        patch.object(large_texts, "CHUNK_CHARACTERS", CHUNK),
    ):
        yield


@pytest.fixture(params=[True, False], ids=["atomic", "write-by-write"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with new_world(request.param) as opened:
        yield opened


def new_world(atomic: bool) -> World:
    return World(mid=replace(DURABLE, atomic=atomic), quotas=[FILES])


def text(word: str, size: int) -> str:
    """Of so many bytes, no two chunks alike."""
    return "".join([f"{word}{number} " for number in range(size)])[:size]


async def reserved(world: World) -> int:
    await assert_reserved(world.engine, TENANT)
    assert await unsound(world.mid) == []
    return await world.engine.conversations.reservations.used_bytes(TENANT)


async def test_what_is_said_twice_in_a_message_is_stored_and_counted_once(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user("x" * 500, "u1")])
    assert await reserved(world) == CHUNK


async def test_what_has_no_room_is_refused_by_name_and_nothing_is_touched(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(text("a", 700), "u1")])
    world.mid.steps.clear()
    before = await world.rows(world.mid, RESERVATIONS)
    with pytest.raises(
        QuotaExceeded, match=r"'files': tenant 'acme' holds 700 of at most 1,000 bytes of artifacts"
    ) as refused:
        await session.append([user(text("b", 200), "u2"), user("short", "u3"), user(text("c", 101), "u4")])
    assert (refused.value.quota, refused.value.held, refused.value.asked) == ("files", 700, 301)
    assert {*world.mid.steps} <= {"artifacts.reserved", "log.read", "log.first"}, "nothing was written"
    assert await world.rows(world.mid, RESERVATIONS) == before
    assert await window(session) == ["system", "u1"]
    await session.append([user(text("b", 200), "u2"), user("short", "u3"), user(text("c", 100), "u4")])
    assert await reserved(world) == 1_000
    await session.append([user("short is not counted", "u5")])


async def test_two_that_each_would_have_room_do_not_both_get_it(world: World) -> None:
    session, other = await begun(world.engine), await opened(await world.another_process())
    world.mid.before["artifacts.balance"] = lambda: other.append([user(text("b", 600), "u2")])
    with pytest.raises(QuotaExceeded):
        await session.append([user(text("a", 600), "u1")])
    assert await reserved(world) == 600
    assert await window(await opened(await world.another_process())) == ["system", "u2"]


async def test_what_messages_are_changed_to_counts_and_is_not_refused(world: World) -> None:
    """So nobody is kept from taking something out of a message, nor a stream from its
    end.
    """
    session = await begun(world.engine)
    await session.append([user(text("a", 950), "u1")])
    await session.update("u1", {"content": text("b", 980)})
    assert await reserved(world) == 980
    await session.update("u1", {"content": "short"})
    assert await reserved(world) == 0
    stream = StreamedMessage(session, world.engine.placement, assistant("").role, "a1")
    for at in range(0, 1_200, 30):
        await stream.write(text("c", 1_200)[at : at + 30])
        world.clock.advance()
        said = at + 30
        assert await reserved(world) == (said if said > 40 else 0), "not a byte more than it says"
    await stream.finish({})
    with pytest.raises(QuotaExceeded, match="holds 1,200 of at most 1,000"):
        await session.append([user(text("d", 41), "u2")])


async def test_of_what_a_change_leaves_as_much_counts_as_is_left(world: World) -> None:
    session = await begun(world.engine)
    said = text("a", 320)
    await session.append([user(said, "u1")])
    await session.update("u1", {"content": said[:200] + text("b", 70)})
    assert await reserved(world) == 270
    await session.update("u1", {"content": said[:100]})
    assert await reserved(world) == 100
    await session.update("u1", {"usage": {"total": 3}})
    assert await reserved(world) == 100
    assert await world.engine.conversations.redaction.erase(session.log, "u1")
    assert await reserved(world) == 0


async def test_a_compaction_counts_and_is_not_refused(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(text("a", 990), "u1")])
    await session.compact(lambda _: text("s", 100), keep_last=0, reason="manual")
    assert await reserved(world) == 1_090
    assert await world.engine.conversations.redaction.erase(session.log, "u1")
    assert await reserved(world) == 0, "the summary went with it"


async def test_the_room_of_many_uploads_is_returned_in_portions(world: World) -> None:
    """The end of a session asks of the balance and its reservations as often for nine
    uploads as for two.
    """
    asked = []
    for many in (2, 9):
        session = await world.engine.conversations.create(TENANT, SessionDraft("s1"))
        await session.append([user(text("a", 100), f"u{n}") for n in range(many)])
        assert await reserved(world) == 100 * many
        world.mid.steps.clear()
        await world.engine.conversations.sessions.delete(TENANT, "s1")
        assert await reserved(world) == 0
        asked.append(
            [
                one
                for one in world.mid.steps
                if one in ("artifacts.reserved", "artifacts.balance", "artifacts.return")
            ]
        )
    assert asked[0] == asked[1]
    assert asked[0].count("artifacts.return") == 1


async def test_who_is_refused_for_another_reason_takes_no_room_either(world: World) -> None:
    """The session is ended by another process once the text is stored."""
    session = await begun(world.engine)
    other = await opened(await world.another_process())
    world.mid.before["log.append"] = lambda: other.close("ended")
    with pytest.raises(Conflict, match="ended"):
        await session.append([user(text("a", 300), "u1")])
    assert await reserved(world) == 0
    await session.resume()
    world.mid.before["log.append"] = lambda: world.engine.conversations.sessions.delete(TENANT, "s1")
    with pytest.raises(NotFound):
        await session.append([user(text("a", 300), "u1")])
    assert await reserved(world) == 0


@pytest.mark.parametrize("fails", ["fails_before", "fails_after"])
@pytest.mark.parametrize("step", ["artifacts.reservation", "artifacts.put"])
async def test_an_append_that_fails_returns_its_room_at_once(world: World, step: str, fails: str) -> None:
    """But where its reservation may be on its way still."""
    session = await begun(world.engine)
    getattr(world.mid, fails).add(step)
    with pytest.raises(StoreUnavailable):
        await session.append([user(text("a", 300), "u1")])
    world.heal()
    if (step, fails) == ("artifacts.reservation", "fails_before"):
        await assert_reserved(world.engine, TENANT, settled=False)
        await world.settled(3 * HOUR)
    assert await reserved(world) == 0


async def test_an_append_that_is_repeated_counts_once(world: World) -> None:
    """The store took the row, and never said so."""
    session = await begun(world.engine)
    world.mid.fails_after.add("log.append")
    with pytest.raises(StoreUnavailable):
        await session.append([user(text("a", 600))])
    world.heal()
    await session.append([user(text("a", 600))])
    assert await reserved(world) == 600


async def test_a_fork_counts_what_it_copies_and_is_refused_where_there_is_no_room(world: World) -> None:
    conversations = world.engine.conversations
    session = await begun(world.engine)
    await session.append([user(text("a", 400), "u1")])
    draft, messages = await session.as_of(None)
    fork = await conversations.fork(TENANT, replace(draft, id="s2"), messages)
    assert await reserved(world) == 800
    for away in (False, True):
        world.short.down = world.long.down = away
        with pytest.raises(QuotaExceeded, match="'files'"):
            await conversations.fork(TENANT, replace(draft, id="s3"), messages)
        world.heal()
        assert await conversations.find(TENANT, "s3") is None
    await world.settled(3 * HOUR)
    assert await reserved(world) == 800
    await conversations.sessions.delete(TENANT, "s1")
    assert await window(fork) == ["system", "u1"]
    draft, messages = await fork.as_of(None)
    await conversations.fork(TENANT, replace(draft, id="s3"), messages)
    assert await reserved(world) == 800


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_fork_that_is_refused_leaves_nothing_also_under_legal_hold(
    world: World, meanwhile: bool
) -> None:
    """But for what others have said in it meanwhile: that was acknowledged."""
    conversations, other = world.engine.conversations, await world.another_process()
    session = await conversations.create(TENANT, SessionDraft("s1", user="ada"))
    await session.append([user("short", "u0"), user(text("a", 600), "u1")])
    draft, messages = await session.as_of(None)
    await world.engine.erasure.holds.place(
        TENANT, LegalHold("suit", "user", "ada", "they asked", None, world.clock())
    )

    async def said() -> None:
        if meanwhile:
            await (await other.conversations.open(TENANT, replace(draft, id="s2"), create=False)).append(
                [user("and this", "u9")]
            )

    world.mid.before["erase.begin" if not meanwhile else "artifacts.reserved"] = said
    with patch.object(conversation, "AT_ONCE", 1), pytest.raises(QuotaExceeded, match="'files'"):
        await conversations.fork(TENANT, replace(draft, id="s2"), messages)
    there = await conversations.find(TENANT, "s2")
    assert (there is not None) is meanwhile
    assert {str(row.fields["conversation_id"]) for row in await world.rows(world.mid, MESSAGES)} == (
        {"s1", "s2"} if meanwhile else {"s1"}
    )
    await world.settled(3 * HOUR)
    assert await reserved(world) == 600


async def test_a_fork_of_many_messages_leaves_none_of_them_where_it_is_refused(world: World) -> None:
    session = await begun(world.engine)
    for start in range(0, 120, 60):
        await session.append(
            [
                user(text(f"{number}", 41) if number % 30 == 29 else "short")
                for number in range(start, start + 60)
            ]
        )
    await session.append([user(text("z", 500))])
    draft, messages = await session.as_of(None)
    with patch.object(conversation, "AT_ONCE", 100), pytest.raises(QuotaExceeded, match="holds 787 of"):
        await world.engine.conversations.fork(TENANT, replace(draft, id="s2"), messages)
    assert await world.engine.conversations.find(TENANT, "s2") is None
    assert {str(row.fields["conversation_id"]) for row in await world.rows(world.mid, MESSAGES)} == {"s1"}
    assert await reserved(world) == 664


async def test_an_upload_of_before_returns_nothing(world: World) -> None:
    """A message whose texts were stored by an earlier version, and were never counted:
    it is read, erased, and the balance stays.
    """
    session = await begun(world.engine)
    await session.append([user(text("a", 300), "u1"), user(text("b", 200), "u2")])
    with as_before(world):
        await session.append([user(text("c", 120), "u3")])
    assert await reserved(world) == 500
    assert (await session.context()).messages[-1].text == text("c", 120)
    world.mid.steps.clear()
    await session.update("u3", {"content": text("c", 120)[:100]})
    assert "artifacts.reserved" not in world.mid.steps, "nobody asks what it took"
    assert await reserved(world) == 500
    assert await world.engine.conversations.redaction.erase(session.log, "u3")
    assert await reserved(world) == 500


def as_before(world: World) -> ExitStack:
    """Nothing is reserved, and no upload has a name that says so."""

    async def nothing(*_: object, **__: object) -> bool:
        return True

    stack, rooms = ExitStack(), type(world.engine.conversations.reservations)
    for method in ("reserve_parts", "hold_parts"):
        stack.enter_context(patch.object(rooms, method, nothing))
    stack.enter_context(patch.object(uploads, "COUNTED", ""))
    return stack


@pytest.mark.parametrize("named", [True, False])
async def test_a_sweep_ends_what_an_earlier_version_had_under_way(world: World, named: bool) -> None:
    """Its upload had a record of its own, which owed the look."""
    session = await begun(world.engine)
    with as_before(world):
        if named:
            await session.append([user(text("c", 120), "u3")])
        else:
            await world.engine.conversations.sessions.uploads.lay(
                session.log.life, [(user(text("c", 120)), ())]
            )
    chunks = await world.rows(world.mid, ARTIFACTS)
    upload, life, now = str(chunks[0].fields["upload"]), session.log.life, world.clock()
    key = Key(TENANT, world.engine.placement.new_id(TENANT, life.scope))
    owed = PendingStep(UPLOAD, UPLOAD, {"ids": [chunk.key.id for chunk in chunks]})
    fields = {"conversation_id": life.session_id, "upload": upload}
    record = Record(
        key, life.scope, 1, now, now, fields=fields, generation=life.generation, tier="mid", owed=(owed,)
    )
    await world.mid.apply([Put(ARTIFACTS, record, Absent())])
    engine = await world.another_process()
    await engine.maintenance.sweep()
    assert len(await world.rows(world.mid, ARTIFACTS)) == len(chunks) + (not named)
    await world.settled(3 * HOUR)
    assert {row.key for row in await world.rows(world.mid, ARTIFACTS)} == (
        {chunk.key for chunk in chunks} if named else set()
    )
    assert await reserved(world) == 0


# -- two at a time ---------------------------------------------------------------------


@pytest.mark.parametrize("step", ["artifacts.balance", "artifacts.return", "artifacts.drop"])
@pytest.mark.parametrize("what", ["cut", "erase"])
async def test_of_two_that_return_room_of_one_upload_each_returns_its_own(
    world: World, step: str, what: str
) -> None:
    """Another process changes the message once more while this one returns what its
    change took out.
    """
    session, said = await begun(world.engine), text("a", 320)
    await session.append([user(said, "u1")])
    other = await opened(await world.another_process())

    async def meanwhile() -> None:
        if what == "cut":
            await other.update("u1", {"content": said[:100]})
        else:
            assert await world.engine.conversations.redaction.erase(other.log, "u1")

    (world.mid.before if step != "artifacts.drop" else world.mid.after)[step] = meanwhile
    await session.update("u1", {"content": said[:250]})
    await assert_reserved(world.engine, TENANT, settled=False)
    await world.settled(3 * HOUR)
    assert await reserved(world) == (100 if what == "cut" else 0)


async def test_a_change_that_comes_before_the_writer_holds_its_upload_is_counted_right(world: World) -> None:
    session, said = await begun(world.engine), text("a", 320)
    other = await opened(await world.another_process())
    for change, left in (({"content": said[:200]}, 200), ({"content": "short"}, 0)):
        world.mid.after["log.append"] = lambda change=change: other.update("u1", change)  # type: ignore[misc]
        await session.append([user(said, "u1")])
        assert await reserved(world) == left
        assert (await session.context()).messages[-1].text == change["content"]
        assert await world.engine.conversations.redaction.erase(session.log, "u1")


async def _while_another_leaves(
    world: World, step: str, upload: str, act: Coroutine[Any, Any, object]
) -> None:
    """The act; once it has carried out this step, another process has said that it
    returns some of the upload, and does so when the act has ended.
    """
    rooms = (await world.another_process()).conversations.reservations
    said, ended = asyncio.Event(), asyncio.Event()
    others: list[asyncio.Task[None]] = []

    async def waits() -> None:
        said.set()
        await ended.wait()

    async def begins() -> None:
        world.mid.before["artifacts.return"] = waits
        others.append(asyncio.create_task(rooms.leave(TENANT, upload, 100)))
        await said.wait()

    world.mid.after[step] = begins
    await act
    ended.set()
    await others[0]


async def test_who_returns_some_leaves_what_another_said_since(world: World) -> None:
    session = await begun(world.engine)
    await session.append([user(text("a", 320), "u1")])
    upload = str((await world.rows(world.mid, ARTIFACTS))[0].fields["upload"])
    rooms = world.engine.conversations.reservations
    await _while_another_leaves(world, "artifacts.return", upload, rooms.leave(TENANT, upload, 200))
    await assert_reserved(world.engine, TENANT, settled=False)
    assert await rooms.used_bytes(TENANT) == 100


async def test_who_holds_an_upload_leaves_what_another_said_of_it_meanwhile(world: World) -> None:
    session, rooms = await begun(world.engine), world.engine.conversations.reservations
    await rooms.reserve_parts(session.log.life, {"1-a-counted": (320, [])}, refuses=True)
    await _while_another_leaves(
        world, "artifacts.hold", "1-a-counted", rooms.hold_parts(TENANT, ["1-a-counted"])
    )
    await assert_reserved(world.engine, TENANT, settled=False)
    assert await rooms.used_bytes(TENANT) == 100


def test_no_two_say_alike_that_they_return_some() -> None:
    entry = BalanceEntry(300, 1_000_000)
    first = entry.as_leaving(moment(999_999))
    assert first != first.as_leaving(moment(1_000_001))
    assert first != first.as_leaving(moment(first.since))


# -- deaths ----------------------------------------------------------------------------

SAID = text("a", 320)
Act = Callable[[World, Conversation], Awaitable[object]]


async def _appends(world: World, session: Conversation) -> None:
    await session.append([user(text("b", 130), "u3"), user("short", "u4"), user(text("c", 70), "u5")])


async def _is_refused(world: World, session: Conversation) -> None:
    with suppress(QuotaExceeded):
        await session.append([user(text("b", 400), "u3"), user(text("c", 400), "u4")])


async def _cuts(world: World, session: Conversation) -> None:
    await session.update("u1", {"content": SAID[:200]})


async def _grows(world: World, session: Conversation) -> None:
    await session.update("u1", {"content": SAID + text("b", 130)})


async def _erases(world: World, session: Conversation) -> None:
    await world.engine.conversations.redaction.erase(session.log, "u1")


async def _compacts(world: World, session: Conversation) -> None:
    await session.compact(lambda _: text("s", 90), keep_last=0, reason="manual")


async def _forks(world: World, session: Conversation) -> None:
    draft, messages = await session.as_of(None)
    await world.engine.conversations.fork(TENANT, replace(draft, id="s2"), messages)


async def _is_refused_a_fork(world: World, session: Conversation) -> None:
    draft, messages = await session.as_of(None)
    source = draft.forked_from
    assert source is not None
    longer = replace(source, said_by=(*source.said_by, source.said_by[-1]))
    with suppress(QuotaExceeded):
        await world.engine.conversations.fork(
            TENANT, replace(draft, id="s2", forked_from=longer), [*messages, user(text("z", 900))]
        )


async def _deletes(world: World, session: Conversation) -> None:
    await world.engine.conversations.sessions.delete(TENANT, "s1")


ACTS = (_appends, _is_refused, _cuts, _grows, _erases, _compacts, _forks, _is_refused_a_fork, _deletes)


@pytest.mark.parametrize("act", [pytest.param(act, marks=beyond(act, [], [_cuts])) for act in ACTS])
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "write-by-write"])
@pytest.mark.thorough
async def test_whoever_dies_at_whichever_call_no_byte_is_lost_or_counted_twice(
    atomic: bool, act: Act
) -> None:
    """Its process dies before a call reaches the store, or when it has been carried
    out; sweeps of another do the rest.
    """
    at, ended = 0, False
    while not ended:
        for carried_out in (False, True):
            async with new_world(atomic) as world:
                session = await begun(world.engine)
                await session.append([user(SAID, "u1"), user("short", "u2")])
                with dying(world, at, carried_out=carried_out) as calls, suppress(MemoryTiersError):
                    await act(world, session)
                ended = calls[0] <= at
                world.heal()
                where = f"{act.__name__} dies at call {at}{' once it is carried out' * carried_out}"
                await assert_reserved(world.engine, TENANT, settled=False)
                assert act is _deletes or await unsound(world.mid, settled=False) == [], (
                    where
                )  # of what nobody finds any more, chunks go first
                engine = await world.settled(3 * HOUR)
                await assert_reserved(engine, TENANT)
                assert await unsound(world.mid) == [], where
        at += 1
    assert at > 1


async def test_what_stands_is_acknowledged_though_others_keep_changing_the_balance() -> None:
    async with new_world(True) as world:
        session = await begun(world.engine)
        change, calls = Balances.change, [0]

        async def contended(self: Balances, *said: Any) -> None:
            calls[0] += 1
            if calls[0] == 2:
                raise TooMuchContention("the balance", world.engine.placement.settings.deadline)
            await change(self, *said)

        with patch.object(Balances, "change", contended):
            await session.append([user(text("a", 120))])
        assert calls[0] >= 2
        assert [m.role for m in (await session.context()).messages] == ["system", "user"]
        await world.settled(3 * HOUR)
        await assert_reserved(world.engine, TENANT)


def dying(world: World, at: int, *, carried_out: bool) -> Any:
    """The stores answer so many calls, and then no more."""
    calls, call = [0], type(world.mid).on_call

    async def counted(store: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        number, calls[0] = calls[0], calls[0] + 1
        if number == at and carried_out:
            await getattr(InMemoryStore, method)(store, *args, **kwargs)
        if number >= at:
            raise StoreUnavailable(store.name, "the process is dead")
        return await call(store, method, *args, **kwargs)

    class _Dying:
        def __enter__(self) -> list[int]:
            self.patched = patch.object(type(world.mid), "on_call", counted)
            self.patched.start()
            return calls

        def __exit__(self, *_: object) -> None:
            self.patched.stop()

    return _Dying()
