"""Recordings of sessions: what a process, a store or a stream that is slow or gone does
to them (E65, E72, E78, E81).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from memory import InvalidInput, Memory, MemoryManager, Message, NamedStore, Session
from memory.agents.manager import EveryNTurns, Extraction
from memory.agents.manager.manager import KEPT
from memory.agents.manager.recording import Recording
from memory.agents.manager.spool import STREAMS, Log, Position
from memory.domain.errors import Conflict, StoreUnavailable
from memory.domain.session import SessionInfo
from memory.orchestrator.conversations.sessions import SessionRecords
from memory.orchestrator.conversations.tasks.runs import Runs
from tests.acceptance.support import Clock
from tests.simulation.loop import SimulatedLoop, run

pytestmark = pytest.mark.backend("in_memory")
SELDOM = Extraction(EveryNTurns(1_000))


class Heard:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.down = False
        self.asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.may_go_on.set()

    async def search(self, query: str, *, limit: int) -> list[str]:
        return []

    async def add_messages(self, messages: Sequence[Message], context: Mapping[str, Any]) -> None:
        self.asked.set()
        await self.may_go_on.wait()
        if self.down:
            raise OSError("down")
        self.heard += [message.text for message in messages]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def memory(clock: Clock) -> AsyncIterator[Memory]:
    async with Memory(
        "memory://", embedder="none", accept_loss=True, clock=clock, durations={"sweep_every": 0}
    ) as opened:
        yield opened


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def managing(memory: Memory, *stores: Heard) -> MemoryManager:
    return MemoryManager(
        [NamedStore(f"s{n}", store, writable=True, extraction=SELDOM) for n, store in enumerate(stores)],
        memory=memory,
    )


async def test_where_no_store_learns_a_recording_ends_as_any_other(memory: Memory) -> None:
    manager = MemoryManager([NamedStore("s", Heard())], memory=memory)
    session = memory.session("s1")
    recording, apart = await manager.record(session), await manager.record(run_id="r1")
    for one in (recording, apart):
        await one.add(user("hello"))
        await one.turn_ended()
        assert await one.close()
    assert [message.text for message in (await session.context()).messages] == ["hello"]
    assert await memory.sessions.get("extraction/r1") is None, "nothing waits, so nothing is kept"


async def test_a_run_and_a_session_of_one_name_are_two(memory: Memory) -> None:
    store = Heard()
    manager = managing(memory, store)
    of_session, of_run = await manager.record(memory.session("r1")), await manager.record(run_id="r1")
    assert of_session is not of_run
    await of_session.add(user("in the session"))
    await of_run.add(user("in the run"))
    await manager.close()
    assert sorted(store.heard) == ["in the run", "in the session"]


async def test_what_is_still_being_said_is_told_once_it_is_said(memory: Memory, clock: Clock) -> None:
    store, session = Heard(), memory.session("s1")
    recording = await managing(memory, store).record(session)
    await session.append(user("one"))
    async with session.stream() as out:
        await out.write("two, ")
        clock.moment += timedelta(seconds=1)
        await out.write("not all of it yet")
        await recording.flush()
        assert store.heard == ["one"]
    await session.append(user("three"))
    await recording.flush()
    assert store.heard == ["one", "two, not all of it yet", "three"]


async def test_what_was_never_said_to_its_end_keeps_nothing_behind_it(memory: Memory, clock: Clock) -> None:
    store, session = Heard(), memory.session("s1")
    recording = await managing(memory, store).record(session)
    stream = session.stream()
    await stream.__aenter__()
    await stream.write("cut ")
    clock.moment += timedelta(seconds=1)
    await stream.write("off")
    await session.append(user("later"))
    assert await recording.close() is False
    assert store.heard == []
    clock.moment += STREAMS + timedelta(seconds=1)
    assert await managing(memory, store).resume() == 1
    assert store.heard == ["cut off", "later"]


async def test_a_session_that_cannot_be_read_keeps_no_other_from_being_told(
    memory: Memory, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Heard()
    died = managing(memory, store)
    for name, expires_at in (("a", clock.moment + timedelta(hours=1)), ("b", None)):
        await memory.sessions.create(name, expires_at=expires_at)
        await (await died.record(memory.session(name))).add(user(f"in {name}"))
    clock.moment += timedelta(hours=2)
    await managing(memory, store).resume()
    assert store.heard == ["in b"]
    assert "messages of session 'a' could not be delivered: NotFound" in caplog.text


async def test_a_memory_that_is_away_keeps_neither_a_run_nor_a_manager_from_ending(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Heard()
    manager = managing(memory, store)
    first, second = await manager.record(memory.session("a")), await manager.record(memory.session("b"))
    await first.add(user("in a"))
    await second.add(user("in b"))
    await second.flush()

    async def away(*_: object, **__: object) -> Any:
        raise StoreUnavailable("mid", "away")

    with monkeypatch.context() as patched:
        patched.setattr(Runs, "change", away)
        assert await first.close() is False
        await manager.close()
        with pytest.raises(StoreUnavailable):
            await manager.record(memory.session("c"))
    assert sorted(store.heard) == ["in a", "in b"]
    assert "the delivery positions of run 'b' could not be noted" in caplog.text
    again = await manager.record(memory.session("c"))
    assert [run.status for run in (await memory.session("c").runs.list()).runs] == ["queued"], (
        "it is noted before anything is said"
    )
    await again.add(user("in c"))
    assert await again.close()
    assert store.heard[-1] == "in c"


async def test_who_goes_on_with_a_session_while_it_is_being_resumed_has_it_told_to_the_end(
    memory: Memory,
) -> None:
    store, session = Heard(), memory.session("s1")
    await (await managing(memory, store).record(session)).add(user("left"))
    store.may_go_on.clear()
    async with managing(memory, store) as manager:
        await store.asked.wait()
        recording = await manager.record(session)
        store.may_go_on.set()
        await manager._drain()
        await recording.add(user("said since"))
    assert store.heard == ["left", "said since"]


async def test_what_the_manager_keeps_of_a_run_stays_until_every_store_has_it_and_a_week_where_it_was_left(
    memory: Memory,
) -> None:
    store = Heard()
    store.down = True
    manager = managing(memory, store)
    recording = await manager.record(run_id="r1")
    await recording.add(user("hello"))
    assert await recording.close() is False
    store.down = False
    assert await manager.resume() == 1
    assert store.heard == ["hello"]
    left = await memory.sessions.get("extraction/r1")
    assert left is not None
    assert left.expires_at is not None
    assert timedelta(days=6) < left.expires_at - left.updated_at <= KEPT


async def test_what_is_being_recorded_is_nobody_s_to_resume(memory: Memory) -> None:
    store = Heard()
    manager, session = managing(memory, store), memory.session("s1")
    recording = await manager.record(session)
    await recording.add(user("hello"))
    await manager.resume()
    assert store.heard == []
    assert await manager.record(session) is recording


async def test_who_records_while_the_same_is_being_ended_is_told_to_the_end(memory: Memory) -> None:
    store, session = Heard(), memory.session("s1")
    manager = managing(memory, store)
    ending = await manager.record(session)
    await ending.add(user("one"))
    store.may_go_on.clear()
    closing = asyncio.create_task(ending.close())
    await store.asked.wait()
    recording = await manager.record(session)
    assert recording is not ending
    store.may_go_on.set()
    await closing
    await recording.add(user("two"))
    await manager.close()
    assert store.heard[-1] == "two"


async def test_neither_summaries_nor_what_was_erased_is_told_whatever_the_filter_lets_through(
    memory: Memory,
) -> None:
    store, session = Heard(), memory.session("s1")
    learns = Extraction(EveryNTurns(1_000), filter=lambda message: message)
    recording = await MemoryManager(
        [NamedStore("s", store, writable=True, extraction=learns)], memory=memory
    ).record(session)
    said = await session.append([user(text) for text in ("one", "two", "three")])
    await session.compact(lambda _: {"role": "assistant", "content": "a summary"}, keep_last=1)
    await session.append(user("four"))
    await session.erase(str(said[2].id))
    assert await recording.close()
    assert store.heard == ["one", "two", "four"]


async def test_a_conflict_of_which_nothing_was_deleted_is_a_failure_like_any_other() -> None:
    class Refuses(Heard):
        add_messages = None  # type: ignore[assignment]
        refusing = True

        async def add(self, content: str, metadata: Any = None, *, key: str) -> None:
            if self.refusing:
                raise Conflict("another text under this key", "e1")
            self.heard.append(content)

    store = Refuses()
    learns = Extraction(
        EveryNTurns(1), extractor=lambda messages, context: [message.text for message in messages]
    )
    recording = await MemoryManager([NamedStore("s", store, writable=True, extraction=learns)]).record()
    await recording.add(user("hello"))
    await recording.flush()
    assert store.heard == []
    store.refusing = False
    assert await recording.close()
    assert store.heard == ["hello"]


# -- nothing is lost, whoever dies in between ------------------------------------------


async def test_what_is_said_in_a_run_that_another_process_took_for_dead_is_found_when_it_dies(
    memory: Memory,
) -> None:
    store, session = Heard(), memory.session("s1")
    slow, direct = await managing(memory, store).record(session), memory.session("s2")
    appending = managing(memory, store)
    recorded = await appending.record(direct)
    await slow.add(user("one"))
    assert await managing(memory, store).resume() == 2
    await slow.add(user("two"))
    await direct.append(user("past the recording"))
    await recorded.turn_ended()
    await appending._drain()
    assert await managing(memory, store).resume() == 2
    assert store.heard == ["one", "two", "past the recording"]


async def test_that_nothing_waits_is_noted_by_nobody_while_somebody_adds(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, session = Heard(), memory.session("s1")
    ending, looked = await managing(memory, store).record(session), Session.info
    await ending.add(user("one"))

    async def then_another_process_adds(asked: Session) -> SessionInfo:
        there = await looked(asked)
        monkeypatch.setattr(Session, "info", looked)
        await (await managing(memory, store).record(memory.session("s1"))).add(user("two"))
        return there

    monkeypatch.setattr(Session, "info", then_another_process_adds)
    assert await ending.close() is False
    assert await managing(memory, store).resume() == 1
    assert store.heard == ["one", "two"]


async def test_who_dies_before_the_session_of_a_run_is_gone_leaves_it_to_be_resumed(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Heard()
    recording = await managing(memory, store).record(run_id="r1")
    await recording.add(user("hello"))

    async def away(*_: object) -> Any:
        raise StoreUnavailable("mid", "away")

    with monkeypatch.context() as patched:
        patched.setattr(SessionRecords, "expire", away)
        assert await recording.close() is False
    assert await managing(memory, store).resume() == 1
    left = await memory.sessions.get("extraction/r1")
    assert left is not None
    assert left.expires_at is not None
    assert store.heard == ["hello"]


async def test_a_mark_that_could_not_be_noted_is_noted_the_next_time(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, session = Heard(), memory.session("s1")
    recording = await managing(memory, store).record(session)
    await recording.add(user("hello"))

    async def away(*_: object) -> Any:
        raise StoreUnavailable("mid", "away")

    with monkeypatch.context() as patched:
        patched.setattr(Runs, "change", away)
        await recording.flush()
    assert store.heard == ["hello"]
    assert await recording.close()
    assert store.heard == ["hello"]


async def test_a_mark_goes_on_only(memory: Memory) -> None:
    fast, slow = (Log(memory.session("s1"), ["s0"]) for _ in range(2))
    await fast.commit("s0", 3)
    await slow.commit("s0", 2)
    await slow.open()
    assert await fast.position("s0") == Position(3)


async def test_the_mark_of_a_session_that_was_deleted_is_not_that_of_another_of_its_id(
    memory: Memory,
) -> None:
    store, session = Heard(), memory.session("s1")
    await session.runs.save(
        "extraction:s0", child_id="s0", message_count=10, metadata={"of": "a life before"}
    )
    recording = await managing(memory, store).record(session)
    await recording.add(user("hello"))
    assert await recording.close()
    assert store.heard == ["hello"]


class Notes(Heard):
    """Takes facts under keys, and fails at the second of a batch while it is down."""

    add_messages = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, str] = {}

    async def add(self, content: str, metadata: Any = None, *, key: str) -> None:
        if self.down and self.kept:
            raise OSError("down")
        self.kept[key] = content

    def manager(self, memory: Memory | None) -> MemoryManager:
        def extractor(messages: Sequence[Message], context: Any) -> list[str]:
            return [message.text for message in messages]

        return MemoryManager(
            [
                NamedStore(
                    "s0", self, writable=True, extraction=Extraction(EveryNTurns(1), extractor=extractor)
                )
            ],
            memory=memory,
        )


@pytest.mark.parametrize(
    "keeps", ["in the process", "in a session", "in a session that another process goes on with"]
)
async def test_a_range_that_was_told_in_part_is_told_again_as_it_was(memory: Memory, keeps: str) -> None:
    store = Notes()
    store.down = True
    manager = store.manager(None if keeps == "in the process" else memory)
    recording = await manager.record(run_id="r1")
    await recording.add([user("one"), user("two")])
    await recording.flush()
    assert list(store.kept.values()) == ["one"]
    await recording.add(user("three"))
    store.down = False
    if keeps.endswith("goes on with"):
        assert await store.manager(memory).resume() == 1
    else:
        assert await recording.close()
    assert list(store.kept.values()) == ["one", "two", "three"]


async def test_who_begins_to_tell_what_another_process_has_told_meanwhile_goes_on_behind_it(
    memory: Memory,
) -> None:
    store, session = Notes(), memory.session("s1")
    first, second = (
        await store.manager(memory).record(session),
        await store.manager(memory).record(memory.session("s1")),
    )
    await first.flush()
    await second.flush()  # both have read how far the store has come
    await first.add([user("one"), user("two")])
    await first.flush()
    await second.add(user("three"))
    await second.flush()
    assert list(store.kept.values()) == ["one", "two", "three"]
    assert await first.close()
    assert list(store.kept.values()) == ["one", "two", "three"]


async def test_two_who_record_a_session_at_once_have_one_recording_which_ends_no_other(
    memory: Memory,
) -> None:
    store, session = Heard(), memory.session("s1")
    manager = managing(memory, store)
    first, second = await asyncio.gather(manager.record(session), manager.record(session))
    assert first is second
    assert await first.close()
    again = await manager.record(session)
    assert await first.close()
    await again.add(user("hello"))
    await manager.close()
    assert store.heard == ["hello"]


async def test_a_run_whose_resuming_was_given_up_is_ended_with_its_manager(memory: Memory) -> None:
    store = Heard()
    await (await managing(memory, store).record(run_id="r1")).add(user("hello"))
    store.may_go_on.clear()
    manager = managing(memory, store)
    resuming = asyncio.create_task(manager.resume())
    await store.asked.wait()
    resuming.cancel()
    await asyncio.wait([resuming])
    store.may_go_on.set()
    await manager.close()
    left = await memory.sessions.get("extraction/r1")
    assert left is not None
    assert left.expires_at is not None
    assert store.heard == ["hello"]


async def test_that_something_waits_is_said_again_the_next_turn_where_the_memory_is_away(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, session = Heard(), memory.session("s1")
    manager = managing(memory, store)
    recording = await manager.record(session)
    assert await managing(memory, store).resume() == 1
    await session.append(user("hello"))

    async def away(*_: object) -> Any:
        raise StoreUnavailable("mid", "away")

    with monkeypatch.context() as patched:
        patched.setattr(Runs, "change", away)
        await recording.turn_ended()
        await manager._drain()
    assert "pending messages of run 's1' could not be noted: StoreUnavailable" in caplog.text
    await recording.turn_ended()
    await manager._drain()
    assert await managing(memory, store).resume() == 1
    assert store.heard == ["hello"]


async def test_a_session_that_is_recorded_again_while_it_ends_is_not_let_go(memory: Memory) -> None:
    store = Heard()
    manager = managing(memory, store)
    ending = await manager.record(run_id="r1")
    await ending.add(user("one"))
    store.may_go_on.clear()
    closing = asyncio.create_task(ending.close())
    await store.asked.wait()
    again = await manager.record(run_id="r1")
    store.may_go_on.set()
    assert await closing
    await again.add(user("two"))
    assert await again.close()
    assert store.heard[-1] == "two"
    assert await memory.sessions.get("extraction/r1") is None


async def test_a_run_that_is_recorded_again_while_its_session_goes_has_another(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, goes, may_go = Heard(), asyncio.Event(), asyncio.Event()
    expire = SessionRecords.expire

    async def slow(sessions: SessionRecords, tenant: str, session_id: str) -> None:
        goes.set()
        await may_go.wait()
        await expire(sessions, tenant, session_id)

    monkeypatch.setattr(SessionRecords, "expire", slow)
    manager = managing(memory, store)
    ending = await manager.record(run_id="r1")
    await ending.add(user("one"))
    closing = asyncio.create_task(ending.close())
    await goes.wait()
    beginning = asyncio.create_task(manager.record(run_id="r1"))
    for _ in range(20):
        await asyncio.sleep(0)
    may_go.set()
    assert await closing
    again = await beginning
    await again.add(user("two"))
    assert await again.close()
    assert store.heard == ["one", "two"]


@pytest.mark.parametrize("run_id", [None, "r1"], ids=["a caller's", "the manager's own"])
async def test_a_session_that_was_deleted_and_is_there_again_is_recorded_anew(
    memory: Memory, run_id: str | None
) -> None:
    store = Heard()
    manager, session_id = managing(memory, store), "s1" if run_id is None else f"extraction/{run_id}"

    async def record() -> Recording:
        return (
            await manager.record(run_id=run_id)
            if run_id
            else await manager.record(memory.session(session_id))
        )

    ended = await record()
    await ended.add(user("one"))
    assert await record() is ended
    await memory.session(session_id).delete()
    recording = await record()
    await recording.add(user("two"))
    assert await record() is recording
    assert await recording.close()
    assert store.heard == ["two"]


async def test_a_recording_that_ends_while_it_is_asked_for_is_not_given_out(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, is_of = managing(memory, Heard()), Log.is_of
    ended = await manager.record(memory.session("s1"))

    async def ends(log: Log, session: Session | None) -> bool:
        await ended.close()
        return await is_of(log, session)

    monkeypatch.setattr(Log, "is_of", ends)
    recording = await manager.record(memory.session("s1"))
    assert list(manager._recordings.values()) == [recording]


async def test_what_was_said_and_could_not_be_noted_is_given_again_and_said_once(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Heard()
    recording = await managing(memory, store).record(memory.session("s1"))

    async def away(*_: object) -> Any:
        raise StoreUnavailable("mid", "away")

    with monkeypatch.context() as patched:
        patched.setattr(Runs, "get", away)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await recording.add([user("one"), user("two")])
    for said in (["one", "two"], ["two"], ["two"]):
        await recording.add([user(text) for text in said])
    assert await recording.close()
    assert store.heard == ["one", "two", "two", "two"]


def test_a_close_does_not_wait_for_ever_for_a_store_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the store and the run. The others are served, and a later
    manager delivers what the store did not get.
    """

    async def scenario() -> tuple[list[str], list[str], list[str]]:
        hangs, well = Heard(), Heard()
        options: dict[str, Any] = {"embedder": "none", "accept_loss": True, "durations": {"sweep_every": 0}}
        async with Memory("memory://", **options) as memory:
            manager = managing(memory, hangs, well)
            for name in ("s1", "s2"):
                await (await manager.record(memory.session(name))).add(user(f"hello from {name}"))
            hangs.may_go_on.clear()
            await manager.close()
            before = list(hangs.heard)
            hangs.may_go_on.set()
            async with managing(memory, hangs, well) as later:
                await later.resume()
        return before, sorted(hangs.heard), sorted(well.heard)

    with caplog.at_level(logging.WARNING):
        before, late, in_time = run(SimulatedLoop(1), scenario())
    for said in ("run 's1'", "run 's2'", "store 's0'", "after 30 s"):
        assert said in caplog.text
    assert "store 's1'" not in caplog.text
    assert before == []
    assert late == in_time == ["hello from s1", "hello from s2"], "each once"


async def test_a_close_refuses_what_is_no_length_of_time(memory: Memory) -> None:
    for wrong in (5, timedelta(seconds=-1)):
        with pytest.raises(InvalidInput, match="within"):
            await managing(memory, Heard()).close(within=wrong)  # type: ignore[arg-type]
