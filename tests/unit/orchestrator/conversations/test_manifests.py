"""Artifacts where stores fail, writers die and others are first: what is read is one
upload, and room is counted once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from memory.adapters.wrappers.retry import Retry
from memory.domain.artifact import Artifact
from memory.domain.errors import (
    Conflict,
    CorruptRecord,
    NotFound,
    QuotaExceeded,
    StoreError,
    StoreUnavailable,
    TooMuchContention,
)
from memory.orchestrator.conversations.blobs import manifests
from memory.orchestrator.conversations.blobs.manifests import artifact_of
from memory.orchestrator.conversations.blobs.reservations import Reservations
from memory.orchestrator.conversations.blobs.uploads import delete_chunks
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ARTIFACTS, ENTRIES, MANIFESTS
from memory.orchestrator.storage.topology import Topology
from memory.policies.quotas import Quota
from memory.ports.record import Record
from memory.ports.writes import Always, Put
from tests.support import noticed
from tests.support.reserved import assert_reserved
from tests.unit.orchestrator.conversations.artifact_mutations import MUTATIONS
from tests.unit.orchestrator.world import DURABLE, TENANT, USER, Died, World, dies

MOST = 100
FILES = Quota(name="files", per="tenant", artifact_bytes=MOST)
LAPSED = timedelta(hours=3)
STEPS = (
    "artifacts.reserved",
    "artifacts.balance",
    "artifacts.reservation",
    "artifacts.return",
    "artifacts.put",
    "artifacts.name",
    "artifacts.shut_out",
    "artifacts.delete",
    "artifacts.drop",
    "artifacts.read",
    "artifacts.find",
    "owed.settle",
)
NUMBERING = ("number.reserve", "number.put")
FAILS = ("fails_after", pytest.param("fails_before", marks=pytest.mark.nightly))
"""Who fails before a write leaves what the write before left (docs/decisions/029). The
simulation of uploads plays both on every run.
"""


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Chunks of ten bytes, put and read two at a time."""
    with patch.object(manifests, "CHUNK_BYTES", 10), patch.object(manifests, "PORTION", 2):
        yield


@pytest.fixture(params=[True, False], ids=["atomic", "not-atomic"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with World(mid=replace(DURABLE, atomic=request.param), quotas=[FILES]) as opened:
        await session(opened.engine)
        yield opened


async def session(engine: Engine, session_id: str = "s1") -> None:
    await engine.conversations.create(TENANT, SessionDraft(session_id))


async def pieces_of(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def put(
    engine: Engine, data: bytes, path: str = "a", *, known: bool = True, session_id: str = "s1"
) -> Artifact:
    return await engine.conversations.manifests.put(
        TENANT, session_id, path, "text/plain", pieces_of(data), len(data) if known else None
    )


async def read(engine: Engine, path: str = "a", session_id: str = "s1") -> bytes | None:
    found = await engine.conversations.manifests.at(TENANT, session_id, path)
    return (
        None
        if found is None
        else b"".join([data async for data in engine.conversations.manifests.stream(found)])
    )


async def delete(engine: Engine, path: str = "a", session_id: str = "s1") -> bool:
    found = await engine.conversations.manifests.at(TENANT, session_id, path)
    return found is not None and await engine.conversations.manifests.delete(TENANT, artifact_of(found).id)


async def test_of_a_part_only_its_chunks_are_read(world: World) -> None:
    data = bytes(range(95))
    await put(world.engine, data)
    files = world.engine.conversations.manifests
    found = await files.at(TENANT, "s1", "a")
    assert found is not None
    for start, end in ((0, 1), (0, 95), (9, 11), (10, 20), (37, 74), (94, 95), (40, 40)):
        part = b"".join([piece async for piece in files.stream_part(found, start, end)])
        assert part == data[start:end], (start, end)
    with patch.object(files._store, "get", wraps=files._store.get) as get:
        _ = [piece async for piece in files.stream_part(found, 31, 39)]
    assert [len(call.args[1]) for call in get.call_args_list] == [1]


@pytest.mark.parametrize("fails", FAILS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.thorough
async def test_an_upload_that_fails_leaves_the_old_or_the_new_and_no_room_is_lost(
    world: World, fails: str, step: str, known: bool
) -> None:
    old, new = b"old" * 11, b"new" * 12
    await put(world.engine, old)
    getattr(world.mid, fails).add(step)
    said = None
    try:
        await put(world.engine, new, known=known)
    except StoreError as error:
        said = error
    world.heal()
    reader = await world.another_process()
    there = await read(reader)
    assert there == new if said is None else there in (old, new)
    await assert_reserved(reader, TENANT, settled=False)
    engine = await world.settled(LAPSED)
    assert await read(engine) == there
    await assert_reserved(engine, TENANT)


@pytest.mark.parametrize("fails", FAILS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.thorough
async def test_a_deletion_that_fails_leaves_all_of_it_or_nothing(world: World, fails: str, step: str) -> None:
    await put(world.engine, b"x" * 33)
    getattr(world.mid, fails).add(step)
    with suppress(StoreError):
        await delete(world.engine)
    world.heal()
    there = await read(await world.another_process())
    assert there in (None, b"x" * 33)
    engine = await world.settled(LAPSED)
    assert await read(engine) == there
    await assert_reserved(engine, TENANT)


async def test_of_two_uploads_that_each_would_have_room_one_is_refused(world: World) -> None:
    """Another process reserves between the look at the balance and its change."""
    other = await world.another_process()
    world.mid.before["artifacts.balance"] = lambda: put(other, b"y" * 60, "b")
    with pytest.raises(QuotaExceeded):
        await put(world.engine, b"x" * 60)
    assert (await read(other), await read(other, "b")) == (None, b"y" * 60)
    await assert_reserved(other, TENANT)
    assert await delete(other, "b")
    await put(world.engine, b"x" * 100)
    await assert_reserved(await world.settled(LAPSED), TENANT)


async def test_a_stream_of_unknown_size_is_given_room_ahead_where_there_is_some_and_takes_what_it_has(
    world: World,
) -> None:
    asked, genuine = list[int](), Reservations.grow

    async def grow(self: Reservations, reservation: Record, more: int) -> Record:
        asked.append(more)
        return await genuine(self, reservation, more)

    with patch.object(Reservations, "grow", grow):
        await put(world.engine, b"x" * 50, known=False)
        assert asked == [20, 20, 40], "as much again as has come"
        assert await world.engine.conversations.manifests._reservations.used_bytes(TENANT) == 50
        asked.clear()
        await put(world.engine, b"y" * 50, "b", known=False)
        assert asked == [20, 20, 40, 10], "there was room for just so many"
        with pytest.raises(QuotaExceeded):
            await put(world.engine, b"z", "c", known=False)
    await assert_reserved(await world.settled(LAPSED), TENANT)


@pytest.mark.parametrize("over", ["nothing", "what stands", "what was deleted"])
@pytest.mark.parametrize("step", ["artifacts.put", "artifacts.name"])
@pytest.mark.parametrize("then", ["goes on", "dies"])
@pytest.mark.thorough
async def test_a_writer_that_slept_until_a_sweep_gave_its_upload_up_puts_nothing(
    world: World, over: str, step: str, then: str
) -> None:
    """It is told, if it lives; there is never a manifest without bytes (decision 061)."""
    if over != "nothing":
        await put(world.engine, b"old" * 10)
    if over == "what was deleted":
        await delete(world.engine)
    stood = await read(world.engine)

    async def sleeps() -> None:
        world.clock.advance(LAPSED)
        await (await world.another_process()).maintenance.sweep()
        if then == "dies":
            world.mid.after["artifacts.name"] = dies

    world.mid.before[step] = sleeps
    if then == "dies" and step == "artifacts.name":
        with pytest.raises(Died):
            await put(world.engine, b"new" * 10, known=False)
    else:
        with pytest.raises(StoreUnavailable, match="Put the artifact again"):
            await put(world.engine, b"new" * 10, known=False)
    world.mid.after.clear()
    assert await read(await world.another_process()) == stood, (
        "what stands there is whole, and what stood before"
    )
    engine = await world.settled(LAPSED)
    assert await read(engine) == stood
    await assert_reserved(engine, TENANT)
    await put(engine, b"new" * 10)
    assert await read(engine) == b"new" * 10


async def test_what_is_put_just_when_a_sweep_shuts_a_sleeping_writer_out_stands(world: World) -> None:
    """By that writer, or by another whose clock is slow."""
    other = await world.another_process()

    async def comes() -> None:
        now = world.clock.moment
        world.clock.moment -= 2 * LAPSED
        await put(other, b"other" * 4)
        world.clock.moment = now

    async def sleeps() -> None:
        world.clock.advance(LAPSED)
        world.mid.before["artifacts.shut_out"] = comes
        await (await world.another_process()).maintenance.sweep()
        assert await read(other) == b"other" * 4

    for _ in range(2):
        world.mid.before["artifacts.name"] = sleeps
        artifact = await put(world.engine, b"new" * 10)
        assert await read(world.engine) == b"new" * 10
        assert await world.engine.conversations.manifests.get(TENANT, artifact.id) is not None
        await assert_reserved(await world.settled(LAPSED), TENANT)


async def test_what_was_shut_out_before_anything_stood_counts_as_never_put(world: World) -> None:
    """For an import, which brings nothing back that was deleted: the one before died
    over it.
    """

    async def imported(artifact_id: str) -> Artifact:
        return await world.engine.conversations.manifests.put(
            TENANT, "s1", "a", "text/plain", pieces_of(b"x" * 30), 30, artifact_id=artifact_id
        )

    here, later = [world.engine.placement.new_id(TENANT, "conversation:s1") for _ in range(2)]
    for _ in range(3):  # each meets what the one before has left
        world.mid.before["artifacts.name"] = dies
        with pytest.raises(Died):
            await imported(here)
        await world.settled(LAPSED)
    assert (await imported(here)).id == here
    await delete(world.engine)
    with pytest.raises(manifests.PathOccupied):
        await imported(later)
    await assert_reserved(await world.settled(LAPSED), TENANT)


@pytest.mark.parametrize("replaces", [False, True])
async def test_entries_let_go_of_what_went_with_its_session_though_its_writer_died(
    world: World, replaces: bool
) -> None:
    """Before it held what it had named (found by the simulation of uploads)."""
    if replaces:
        await put(world.engine, b"old" * 10)
    world.mid.after["artifacts.name"] = dies
    with pytest.raises(Died):
        await put(world.engine, b"new" * 10)
    engine = await world.another_process()
    found = await engine.conversations.manifests.at(TENANT, "s1", "a")
    assert found is not None
    await world.write("see there", USER, artifact_id=artifact_of(found).id)
    await engine.conversations.sessions.delete(TENANT, "s1")
    assert {
        row.fields.get("artifact_id") for store in world.stores for row in await world.rows(store, ENTRIES)
    } == {None}
    await assert_reserved(engine, TENANT)


async def test_a_slow_upload_that_goes_on_is_not_given_up(world: World) -> None:
    sweeper = await world.another_process()

    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * 20
            world.clock.advance(timedelta(minutes=50))
            await sweeper.maintenance.sweep()

    await world.engine.conversations.manifests.put(TENANT, "s1", "a", "text/plain", slowly(), 80)
    assert await read(world.engine) == b"x" * 80
    await assert_reserved(await world.settled(LAPSED), TENANT)


async def test_an_upload_that_a_sweep_holds_before_its_writer_does_stands(world: World) -> None:
    """Whether the writer was slow or not (found by the simulation of uploads)."""

    async def named() -> None:
        world.mid.before["artifacts.reservation"] = (await world.another_process()).maintenance.sweep

    for late in (timedelta(0), LAPSED):
        world.mid.after["artifacts.name"] = named
        artifact = await put(world.engine, b"new" * 10)
        world.clock.advance(late)
        assert await read(world.engine) == b"new" * 10
        assert await world.engine.conversations.manifests.get(TENANT, artifact.id) is not None
        await assert_reserved(await world.settled(LAPSED), TENANT)


@pytest.mark.parametrize("known", [True, False])
async def test_room_is_made_once_where_the_answer_was_lost_and_another_was_next(
    world: World, known: bool
) -> None:
    """Its second attempt meets a balance that has been changed since (found by the
    simulation of uploads).
    """
    topology = Topology(short=world.short, mid=Retry(world.mid, attempts=2, backoff=0), long=world.long)
    engine = Engine(topology, clock=world.clock, quotas=[FILES])
    await engine.open()

    async def lost() -> None:
        await put(world.engine, b"y" * 10, "b")
        raise StoreUnavailable("mid", "the answer is lost")

    async def reserved() -> None:
        world.mid.after["artifacts.balance"] = lost

    if known:
        await reserved()
    else:
        world.mid.after["artifacts.reservation"] = reserved
    await put(engine, b"x" * 90, known=known)
    await assert_reserved(engine, TENANT)
    assert await engine.conversations.reservations.used_bytes(TENANT) == MOST


async def test_room_is_returned_of_what_is_deleted_while_its_writer_tells_the_balance(world: World) -> None:
    """And whoever deleted it dies over that (found by the simulation of uploads)."""
    other = await world.another_process()

    async def deleted() -> None:
        world.mid.fails_after.add("artifacts.return")
        await delete(other)
        world.heal()

    async def named() -> None:
        world.mid.after["artifacts.reservation"] = deleted

    world.mid.after["artifacts.name"] = named
    await put(world.engine, b"x" * 30)
    await assert_reserved(other, TENANT, settled=False)
    engine = await world.settled(LAPSED)
    await assert_reserved(engine, TENANT)
    assert await engine.conversations.reservations.used_bytes(TENANT) == 0


async def test_an_upload_that_is_replaced_before_its_writer_holds_it_was_put(world: World) -> None:
    """And a writer is not told that it was too slow (found by the simulation of
    uploads).
    """
    other = await world.another_process()

    async def named() -> None:
        await put(other, b"other" * 4)
        await assert_reserved(other, TENANT, settled=False)

    world.mid.after["artifacts.name"] = named
    artifact = await put(world.engine, b"x" * 30)
    assert await read(world.engine) == b"other" * 4
    assert await world.engine.conversations.manifests.get(TENANT, artifact.id) is not None
    await assert_reserved(await world.settled(LAPSED), TENANT)


@pytest.mark.parametrize("how", ["drops", "is yet to drop"])
async def test_an_upload_whose_answer_was_lost_is_not_put_again_over_what_replaced_it(
    world: World, how: str
) -> None:
    """Its bytes go with the replacement (found by the simulation of uploads)."""
    other = await world.another_process()

    async def replaced() -> None:
        if how == "is yet to drop":
            world.mid.fails_before.add("artifacts.drop")
        await put(other, b"other" * 4)
        world.heal()
        raise StoreUnavailable("mid", "the answer is lost")

    world.mid.after["artifacts.name"] = replaced
    assert (await put(world.engine, b"x" * 30)).size == 30, "it was put, and is not told that it was too slow"
    engine = await world.settled(LAPSED)
    assert await read(engine) == b"other" * 4
    await assert_reserved(engine, TENANT)


async def test_who_reads_gets_one_upload_whole_or_is_told(world: World) -> None:
    await put(world.engine, b"old" * 10)
    found = await world.engine.conversations.manifests.at(TENANT, "s1", "a")
    assert found is not None
    reading = world.engine.conversations.manifests.stream(found)
    first = await anext(reading)
    world.mid.fails_before.add("artifacts.drop")
    await put(world.engine, b"new" * 10)
    world.heal()
    assert first + b"".join([data async for data in reading]) == b"old" * 10, "its chunks are there still"
    await world.settled(LAPSED)
    with pytest.raises(Conflict, match="Read it again"):
        _ = [data async for data in world.engine.conversations.manifests.stream(found)]
    await delete(world.engine)
    with pytest.raises(NotFound):
        _ = [data async for data in world.engine.conversations.manifests.stream(found)]


@pytest.mark.parametrize("how", ["altered", "lost", "unreadable"])
async def test_bytes_that_are_not_what_was_put_are_not_passed_off_as_that(world: World, how: str) -> None:
    await put(world.engine, b"x" * 40)
    chunk = (await world.rows(world.mid, ARTIFACTS))[2]
    if how == "altered":
        await world.mid.apply(
            [Put(ARTIFACTS, replace(chunk, fields={**chunk.fields, "data": b"y" * 10}), Always())]
        )
    elif how == "lost":
        await delete_chunks(world.engine.placement, world.mid, [chunk.key])
    else:
        world.mid.state.damage("artifacts", chunk.key)
    with pytest.raises(CorruptRecord):
        await read(world.engine)


async def test_of_a_session_that_ends_meanwhile_nothing_is_left(world: World) -> None:
    other = await world.another_process()

    async def ended() -> None:
        await other.conversations.sessions.delete(TENANT, "s1")
        await session(other)

    for step in ("artifacts.balance", "artifacts.reservation", "artifacts.put", "artifacts.name"):
        world.mid.before[step] = ended
        with pytest.raises((NotFound, StoreUnavailable)):
            await put(world.engine, b"x" * 30)
        assert await read(world.engine) is None
        await assert_reserved(await world.settled(LAPSED), TENANT)
    await put(world.engine, b"y" * 100)
    assert await read(world.engine) == b"y" * 100


async def test_a_manifest_of_a_former_life_that_comes_late_is_not_shown(world: World) -> None:
    """As where a store that is not fenced lets it in after all."""
    artifact = await put(world.engine, b"x")
    (manifest,) = await world.rows(world.mid, MANIFESTS)
    await world.engine.conversations.sessions.delete(TENANT, "s1")
    await session(world.engine)
    await world.mid.apply([Put(MANIFESTS, replace(manifest, generation=None), Always())])
    assert await world.rows(world.mid, MANIFESTS) != []
    assert await world.engine.conversations.manifests.get(TENANT, artifact.id) is None
    assert await world.engine.conversations.manifests.existing_ids(TENANT, [artifact.id]) == set()
    assert (await world.engine.conversations.manifests.list(TENANT, "s1", 10, None)).artifacts == []
    assert await read(world.engine) is None


# -- a drawn history -------------------------------------------------------------------


@dataclass
class Told:
    """What callers know: of each path, what may stand there."""

    may_be: dict[tuple[str, str], set[bytes | None]] = field(default_factory=dict)

    def of(self, place: tuple[str, str]) -> set[bytes | None]:
        return self.may_be.setdefault(place, {None})


FAILED = (StoreError, TooMuchContention)


async def act(engine: Engine, drawn: random.Random, told: Told, number: int) -> None:
    """One act of one process; afterwards what may be known of it."""
    place = (drawn.choice(["s1", "s2"]), drawn.choice("ab"))
    before, data = set(told.of(place)), f"{number}-".encode() * drawn.randint(0, 14)
    kind = drawn.choice(
        ["put", "put", "put", "stream", "dies", "delete", "read", "read", "end", "number", "number"]
    )
    if kind == "end":
        if drawn.random() < 0.2:
            await end(engine, place[0], told)
    elif kind == "dies":
        with suppress(asyncio.CancelledError, QuotaExceeded, *FAILED):
            await engine.conversations.manifests.put(
                TENANT, place[0], place[1], "text/plain", broken_off(), None
            )
    elif kind == "read":
        with suppress(StoreUnavailable):
            assert await whole(engine, place) in before, (
                "what was never there, or not acknowledged to be gone"
            )
    elif kind == "number":
        with suppress(*FAILED):
            await number_at(engine, place)
    elif kind == "delete":
        try:
            await delete(engine, place[1], place[0])
            told.may_be[place] = {None}
        except FAILED:
            told.of(place).add(None)
    else:
        try:
            await put(engine, data, place[1], known=kind == "put", session_id=place[0])
            told.may_be[place] = {data}
        except FAILED:
            told.of(place).add(data)
        except QuotaExceeded:
            pass


async def number_at(engine: Engine, place: tuple[str, str]) -> None:
    """Number what stands there."""
    found = await engine.conversations.manifests.at(TENANT, *place)
    if found is not None:
        await engine.short_ids.of(TENANT, [artifact_of(found).id], "artifact")


async def whole(engine: Engine, place: tuple[str, str]) -> bytes | None:
    """What stands there, which nobody has damaged."""
    try:
        return await read(engine, place[1], place[0])
    except CorruptRecord as error:
        raise AssertionError("what was acknowledged cannot be read") from error


async def broken_off() -> AsyncIterator[bytes]:
    """What a process hands out that dies."""
    yield b"d" * 25
    raise asyncio.CancelledError


async def end(engine: Engine, session_id: str, told: Told) -> None:
    """Delete a session, and have one of its id again."""
    for path in "ab":
        told.of((session_id, path)).add(None)
    with suppress(*FAILED):
        await engine.conversations.sessions.delete(TENANT, session_id)
        told.may_be |= {(session_id, path): {None} for path in "ab"}
    with suppress(StoreError, Conflict):
        await session(engine, session_id)


async def history(seed: int) -> None:
    """Acts of two processes on stores that fail now and then, each at one of its calls;
    in the end all is judged.
    """
    drawn, told = random.Random(seed), Told()  # noqa: S311 - a history that can be drawn again
    async with World(mid=replace(DURABLE, atomic=bool(seed % 2)), quotas=[FILES]) as world:
        engines = [world.engine, await world.another_process()]
        for name in ("s1", "s2"):
            await session(world.engine, name)
        for number in range(40):
            step, fails = drawn.choice((*STEPS, *NUMBERING)), drawn.choice(["fails_before", "fails_after"])
            if drawn.random() < 0.4:
                getattr(world.mid, fails).add(step)
                if drawn.random() < 0.5:
                    _ends_after_one(world, step, fails)
            engine = drawn.choice(engines)
            if drawn.random() < 0.3:
                world.mid.before["artifacts.balance"] = partial(
                    meanwhile, world, engines[engine is engines[0]], drawn.randint(1, 60)
                )
            if drawn.random() < 0.3:
                world.mid.before["artifacts.name"] = partial(
                    numbered_meanwhile, world, engines[engine is engines[0]]
                )
            try:
                await act(engine, drawn, told, number)
            finally:
                world.heal()
                world.mid.before.clear()
            if drawn.random() < 0.1:
                world.clock.advance(LAPSED * drawn.random())
                await engine.maintenance.sweep()
            await assert_reserved(engine, TENANT, settled=False)
            assert await engine.conversations.reservations.used_bytes(TENANT) <= MOST
        engine = await world.settled(LAPSED)
        for place, may_be in told.may_be.items():
            assert await whole(engine, place) in may_be
        await assert_reserved(engine, TENANT)
        await altered_bytes_are_noticed(world)


async def meanwhile(world: World, other: Engine, size: int) -> None:
    """Another process puts something, which no failure meets, just when somebody is
    about to change the balance.
    """
    failing = world.mid.fails_before, world.mid.fails_after
    world.mid.fails_before, world.mid.fails_after = set(), set()
    with suppress(QuotaExceeded, NotFound, *FAILED):
        await put(other, b"m" * size, "meanwhile")
    world.mid.fails_before, world.mid.fails_after = failing


async def numbered_meanwhile(world: World, other: Engine) -> None:
    """Another process numbers all that stands, just when somebody is about to put a
    manifest.
    """
    failing = world.mid.fails_before, world.mid.fails_after
    world.mid.fails_before, world.mid.fails_after = set(), set()
    with suppress(*FAILED):
        for session_id in ("s1", "s2"):
            for path in "ab":
                await number_at(other, (session_id, path))
    world.mid.fails_before, world.mid.fails_after = failing


async def altered_bytes_are_noticed(world: World) -> None:
    await put(world.engine, b"", "meanwhile")
    await delete(world.engine, "a")
    await put(world.engine, b"x" * 15)
    for chunk in await world.rows(world.mid, ARTIFACTS):
        data: Any = chunk.fields["data"]
        await world.mid.apply(
            [Put(ARTIFACTS, replace(chunk, fields={**chunk.fields, "data": b"y" * len(data)}), Always())]
        )
    with suppress(CorruptRecord):
        await read(world.engine)
        raise AssertionError("what was altered is passed off as what was put")


def _ends_after_one(world: World, step: str, fails: str) -> None:
    """The store fails once, and answers what comes next."""

    async def second() -> None:
        getattr(world.mid, fails).discard(step)

    async def first() -> None:
        world.mid.before[step] = second

    world.mid.before[step] = first


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.thorough
async def test_a_drawn_history_loses_nothing_and_counts_each_upload_once(seed: int) -> None:
    await history(seed)


@pytest.mark.parametrize("name", noticed.cases("artifacts: ", MUTATIONS))
def test_a_mutation_shows_in_a_drawn_history(name: str) -> None:
    async def played(seed: int) -> list[object]:
        await history(seed)
        return []

    assert MUTATIONS[name].seen_in(played, 30, f"artifacts: {name}"), "nobody noticed"
