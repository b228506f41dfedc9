"""Runs of artifacts: the facade over the real engine, several processes that put,
replace, stream, list and delete files of two sessions, which are deleted and created
again; entries point to the files; there is room for some only; faults at every call.

The stores are watched: no artifact ever stands before its bytes do, takes another's id,
or goes unless somebody deletes it, and no more is counted or stands than there is room
for. Who reads is told what stood at some moment of the call. Once nothing is owed any
more, chunks and room are of what stands alone, and nothing points to what is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import inf
from random import Random
from typing import Any
from unittest.mock import patch

from memory.adapters.wrappers.retry import Retry
from memory.adapters.wrappers.timeout import Timeout
from memory.domain import ids
from memory.domain.artifact import Artifact
from memory.domain.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    StoreError,
    TooMuchContention,
)
from memory.domain.scope import Scope
from memory.facade.config.settings import MemoryConfig
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.conversations.blobs import manifests
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ARTIFACTS, ENTRIES
from memory.policies.quotas import Quota
from memory.ports.record import Key, Record
from memory.ports.store import Store
from memory.ports.writes import Always, Put
from tests.simulation.faults import AIMED, CLOCK_ERROR, LATEST, Fault, Process, Server
from tests.simulation.lives import at_work, audited, loop_of, memory_over, plan_of, play, servers_of
from tests.simulation.loop import OWNER, seeded
from tests.simulation.setup import SETTINGS
from tests.simulation.uploading import saying
from tests.simulation.uploading.told import (
    MOST,
    TENANT,
    Call,
    Deletion,
    Place,
    Pointing,
    Run,
    Upload,
    Watched,
    labels_of,
)
from tests.simulation.world import HOME

SESSIONS, PATHS = ("s1", "s2"), ("a.txt", "out/b.txt")
SCOPES = (Scope.user("ada"), Scope.session("s2"))
CHUNK_BYTES, PORTION = 5, 2
SIZES = (0, 4, 10, 23, 37)
WORKERS, ACTS_EACH, ROUNDS = 3, 10, 20
BREATH = SETTINGS.mark_life.total_seconds() / 2.5
"""Seconds that a slow stream may take from one portion to the next: a writer that goes
on renews its lease within them.
"""
STEPS = (
    *(
        "artifacts.reserved",
        "artifacts.balance",
        "artifacts.recount",
        "artifacts.reservation",
        "artifacts.return",
        "artifacts.put",
        "artifacts.name",
        "artifacts.shut_out",
    ),
    *(
        "artifacts.delete",
        "artifacts.drop",
        "artifacts.read",
        "artifacts.find",
        "artifacts.list",
        "referrers.find",
        "referrers.clear",
        "owed.settle",
    ),
    *("session.read", "session.create", "erase.begin", "erase.raise", "erase.delete", "erase.end"),
)
"""What faults strike more readily at; and in some runs one of these at one of them."""
WEIGHTS = {
    "put": 9,
    "stream": 5,
    "slow": 2,
    "broken_off": 1,
    "read": 7,
    "list": 3,
    "delete": 4,
    "renew": 1,
    "point": 5,
    "edit": 2,
    "move": 1,
    "look_up": 3,
    "sweep": 3,
    "wait": 1,
}
CONFIG = MemoryConfig.load("memory://", embedder="none", accept_loss=True, tenant=TENANT)
FILES = Quota(name="files", per="tenant", artifact_bytes=MOST)


class BrokenOff(Exception):
    """What is put ends in the middle."""


class World(Run):
    def client(self, server: Server, process: Process) -> Store:
        store = Run.client(self, server, process)
        return (
            Retry(Timeout(store, 8.0), attempts=3, backoff=0.1, clock=process.clock)
            if self.seed % 3 == 0
            else store
        )

    def engine(self, process: Process, **options: Any) -> Engine:
        return Run.engine(self, process, quotas=[FILES], **options)


class Client(saying.Saying[World]):
    """One process."""

    def __init__(self, run: World, process: Process) -> None:
        super().__init__(run, process)
        self.memory = memory_over(self.engine, CONFIG)

    async def open(self) -> None:
        await self.memory.open()

    async def perform(self, act: str, label: str, random: Random) -> None:
        try:
            await getattr(self, f"_{act}")(label, random)
            self.run.acknowledged += 1
        except (StoreError, TooMuchContention) as error:
            if not self.run.plan.struck:
                self._wrong(f"{label} {act} is told {error!r}, and nothing has failed yet")

    @contextmanager
    def _calling(self, call: Call) -> Iterator[None]:
        try:
            yield
            call.outcome = "done"
        finally:
            call.ended = self.run.loop.time()

    def _wrong(self, what: str) -> None:
        self.run.broken.append(what)

    def _place(self, random: Random) -> Place:
        return random.choice(SESSIONS), random.choice(PATHS)

    # -- putting -----------------------------------------------------------------------

    async def _put(self, label: str, random: Random) -> None:
        await self._uploaded(label, self._place(random), random.choice(SIZES))

    async def _stream(self, label: str, random: Random) -> None:
        """Bytes of which nobody says how many there are, in pieces of any size."""
        await self._uploaded(
            label,
            self._place(random),
            random.choice(SIZES[2:]),
            partial(_pieces, random=random, longest=random.choice((0.0, 0.01, 3.0))),
        )

    async def _slow(self, label: str, random: Random) -> None:
        """So slowly that its lease would end if it were not renewed."""

        async def portions(upload: Upload) -> AsyncGenerator[bytes, None]:
            for start in range(0, len(upload.data), PORTION * CHUNK_BYTES):
                yield upload.data[start : start + PORTION * CHUNK_BYTES]
                await asyncio.sleep(BREATH * (0.7 + 0.3 * random.random()))
                with suppress(StoreError):
                    await self.engine.maintenance.sweep()

        await self._uploaded(label, self._place(random), SIZES[-1], portions, known=random.random() < 0.5)

    async def _broken_off(self, label: str, random: Random) -> None:
        async def some(upload: Upload) -> AsyncGenerator[bytes, None]:
            yield upload.data[: 1 + random.randrange(len(upload.data))]
            raise BrokenOff

        with suppress(BrokenOff):
            await self._uploaded(label, self._place(random), random.choice(SIZES[2:]), some)

    async def _meet(self, label: str, random: Random) -> None:
        """All at one moment: in one place, or in several that have no room for all."""
        await self.wait_for_meeting(random)
        if self.run.seed % 2:
            await self._uploaded(
                label, self._place(random), 45, random.choice((None, partial(_pieces, random=random)))
            )
        elif random.random() < 0.3:
            await self._deleted_there(label, ("s1", PATHS[0]), random)
        else:
            await self._uploaded(
                label, ("s1", PATHS[0]), 23, random.choice((None, partial(_pieces, random=random)))
            )

    async def _handed_in(self, upload: Upload, given: Any, known: bool) -> Artifact:
        media_type = f"text/{upload.label}"
        if given is None:
            return await self.memory.artifacts.put(*upload.place, upload.data, media_type=media_type)
        async with (
            aclosing(given(upload)) as given_out,
            aclosing(upload.timed(given_out, self.run.loop.time)) as pieces,
        ):
            if known:  # as of a file
                return await self.engine.conversations.manifests.put(
                    TENANT, *upload.place, media_type, pieces, len(upload.data)
                )
            return await self.memory.artifacts.put(*upload.place, pieces, media_type=media_type)

    async def _uploaded(
        self, label: str, place: Place, size: int, given: Any = None, *, known: bool = False
    ) -> None:
        begun = self.run.loop.time()
        data = (f"{label}=" * size).encode()[:size]
        upload = self.run.uploads[label] = Upload(label, begun, place=place, data=data, since=begun)
        try:
            with self._calling(upload):
                made = await self._handed_in(upload, given, known)
        except BrokenOff:
            upload.outcome = "refused"
            raise
        except QuotaExceeded as error:
            upload.outcome = "refused"
            self._refused(upload, error)
        except NotFound:
            if (
                len(lives := self.run.had_life(place[0], begun)) == 1
                and None not in lives
                and not self.run.is_going(place[0])
            ):
                self._wrong(f"{label} is told that there is no session {place[0]}, and there was")
        except StoreError as error:
            waited = max(upload.pause, upload.ended - upload.since)
            if (
                "Put the artifact again" in str(error)
                and waited < BREATH + LATEST
                and len(self.run.had_life(place[0], begun)) == 1
            ):
                self._wrong(f"{label} is told that it was too slow, and waited {waited:.1f} seconds at most")
            raise
        else:
            self._acknowledged(upload, made)

    def _refused(self, upload: Upload, error: QuotaExceeded) -> None:
        totals = self.run.totals
        first = max(at for at, (since, _) in enumerate(totals) if since <= upload.begun)
        if error.held not in {total for _, total in totals[first:]}:
            self._wrong(f"{upload.label} was refused for {error.held} bytes, which were never held")
        if error.held + error.asked <= MOST:
            self._wrong(f"{upload.label} was refused, though there was room: {error}")
        if upload.came is not None:
            self._wrong(f"{upload.label} was refused, and stood")

    def _acknowledged(self, upload: Upload, made: Artifact) -> None:
        if upload.came is None:
            self._wrong(f"{upload.label} was acknowledged, and never stood")
        if (made.id, made.size, labels_of([made])) != (upload.came, len(upload.data), [upload.label]):
            self._wrong(f"{upload.label} is told of {made}, and stood as {upload.came}")

    # -- reading -----------------------------------------------------------------------

    async def _read(self, label: str, random: Random) -> None:
        """By path or by id, all at once or slowly: the bytes of one upload."""
        place, known, begun = self._place(random), sorted(self.run.ids), self.run.loop.time()
        which: Any = random.choice(known) if known and random.random() < 0.4 else place

        def stood() -> list[str | None]:
            return (
                [one.label for one in self.run.during(place, begun)]
                if which is place
                else self.run.of_artifact(which, begun)
            )

        found, pause = b"", random.choice((0.0, 0.01, 20.0))
        try:
            async for piece in self.memory.artifacts.stream(which):
                found += piece
                await asyncio.sleep(random.random() * pause)
        except NotFound:
            if None not in stood():
                self._wrong(f"{label} found nothing at {which}, and {stood()} stood there")
        except Conflict:
            if len(stood()) < 2:
                self._wrong(f"{label} is told that {which} was replaced, and {stood()} stood there")
        except CorruptRecord as error:
            self._wrong(f"{label} reads of {which}: {error}")
        else:
            if found not in set(self.run.data_of(stood())):
                self._wrong(f"{label} reads {found!r} of {which}, and {stood()} stood there")

    async def _list(self, label: str, random: Random) -> None:
        session, begun, found, cursor = random.choice(SESSIONS), self.run.loop.time(), list[Artifact](), None
        try:
            while True:
                page = await self.memory.artifacts.list(session, limit=1, cursor=cursor)
                found += page.artifacts
                if (cursor := page.cursor) is None:
                    break
                await asyncio.sleep(random.random() * random.choice((0.0, 5.0)))
        except NotFound:
            if None not in self.run.had_life(session, begun):
                self._wrong(f"{label} is told that there is no session {session}, and there was")
            return
        self._is_listed(label, session, begun, found)

    def _is_listed(self, label: str, session: str, begun: float, found: list[Artifact]) -> None:
        for artifact in found:
            stood = {(one.label, one.artifact_id) for one in self.run.during((session, artifact.path), begun)}
            if (labels_of([artifact])[0], artifact.id) not in stood:
                self._wrong(f"{label} is listed {artifact}, and {stood} stood there")
        for place in ((session, path) for path in PATHS):
            stayed = {one.artifact_id for one in self.run.during(place, begun)}
            times = sum(artifact.path == place[1] for artifact in found)
            if len(stayed) == 1 and times != (None not in stayed):
                self._wrong(f"{label} is listed {place} {times} times, and {stayed} stood there")

    # -- deleting ----------------------------------------------------------------------

    async def _delete(self, label: str, random: Random) -> None:
        known = sorted(self.run.ids)
        if known and random.random() < 0.4:
            named = random.choice(known)
            await self._deleted(label, named, named)
        else:
            await self._deleted_there(label, self._place(random), random)

    async def _deleted_there(self, label: str, place: Place, random: Random) -> None:
        begun, there = self.run.loop.time(), await self.memory.artifacts.get(place)
        if there is not None:
            await self._deleted(label, there.id, place if random.random() < 0.5 else there.id)
        elif None not in (stood := [one.label for one in self.run.during(place, begun)]):
            self._wrong(f"{label} found nothing at {place}, and {stood} stood there")

    async def _deleted(self, label: str, artifact_id: str, which: Any) -> None:
        begun = self.run.loop.time()
        deletion = Deletion(label, begun, which=which)
        self.run.deletions.append(deletion)
        with self._calling(deletion):
            done = await self.memory.artifacts.delete(which)
        died = self.run.died.get(artifact_id)
        if which == artifact_id and None not in self.run.of_artifact(artifact_id, begun):
            self._wrong(f"{label} deleted {artifact_id} ({done}), and it is there all the time")
        if which == artifact_id and done and (died is None or died < begun):
            self._wrong(f"{label} is told that it deleted {artifact_id}, and it was gone at {died}")

    async def _renew(self, label: str, random: Random) -> None:
        """A session is deleted, and created again."""
        session, begun = random.choice(SESSIONS), self.run.loop.time()
        there = self.run.had_life(session, begun)
        deletion = Deletion(label, begun, which=session)
        self.run.deletions.append(deletion)
        with self._calling(deletion):
            await self.memory.sessions.delete(session)
        if there & {self.run.lives[session][-1][1]} - {None}:
            self._wrong(f"{label} deleted session {session}, and it is there")
        if any(row.fields["incarnation"] in there for row in self.run.manifests.values()):
            self._wrong(f"{label} deleted session {session}, and an artifact of it is there")
        await asyncio.sleep(random.random() ** 3 * 20)
        with suppress(Conflict):
            await self.memory.sessions.create(session)

    # -- pointing ----------------------------------------------------------------------

    def _any(self, random: Random) -> str | None:
        there = sorted(
            {one for shown in self.run.shown.values() if (one := shown[-1].artifact_id) is not None}
        )
        known = there if there and random.random() < 0.8 else sorted(self.run.ids)
        return random.choice(known) if known else None

    @contextmanager
    def _pointing(self, label: str, entry_id: str, to: str | None = None) -> Iterator[None]:
        pointing = Pointing(label, self.run.loop.time(), entry_id=entry_id)
        self.run.pointings.append(pointing)
        try:
            with self._calling(pointing):
                yield
        except InvalidInput as error:
            if to is None or None not in self.run.of_artifact(to, pointing.begun):
                self._wrong(f"{label} is told {error}, and {to} was there")
            return
        except NotFound:
            return
        if to is not None and {*self.run.of_artifact(to, pointing.begun)} == {None}:
            self._wrong(f"{label} points to {to}, which was not there")

    async def _point(self, label: str, random: Random) -> None:
        scope, to = random.choice(SCOPES), self._any(random)
        if to is not None:
            with self._pointing(label, ids.keyed_id(TENANT, scope.text, label), to):
                await self.memory.write(f"see {label}", scope=scope, key=label, artifact_id=to)

    def _entry(self, random: Random) -> str | None:
        known = sorted({one.entry_id for one in self.run.pointings})
        return random.choice(known) if known else None

    async def _edit(self, label: str, random: Random) -> None:
        entry_id, to = self._entry(random), self._any(random)
        if entry_id is None:
            return
        if random.random() < 0.5:
            with self._pointing(label, entry_id):
                await self.memory.update(entry_id, content=f"rather {label}")
        else:
            with self._pointing(label, entry_id, to):
                await self.memory.update(entry_id, artifact_id=to)

    async def _move(self, label: str, random: Random) -> None:
        entry_id = self._entry(random)
        if entry_id is not None:
            with self._pointing(label, entry_id):
                await self.engine.tier_mover.move(
                    ENTRIES, Key(TENANT, entry_id), random.choice(("mid", "long"))
                )

    async def _look_up(self, label: str, random: Random) -> None:
        """What an entry tells of its artifact is what that is, and nothing of one that
        is gone.
        """
        entry_id, begun, struck = self._entry(random), self.run.loop.time(), len(self.run.plan.struck)
        entry = None if entry_id is None else await self.memory.get(entry_id)
        if entry is None or entry.artifact_id is None:
            return
        stood = self.run.of_artifact(entry.artifact_id, begun)
        if entry.artifact is None:
            if None not in stood and struck == len(self.run.plan.struck) and not self._is_any_down():
                self._wrong(f"{label} is told of no artifact, and {stood} was there")
        elif labels_of([entry.artifact])[0] not in stood:
            self._wrong(f"{label} is told of {entry.artifact}, and {stood} was there")

    def _is_any_down(self) -> bool:
        return any(server.down_until > 0 for server in self.run.servers)

    # -- maintenance -------------------------------------------------------------------

    async def _sweep(self, label: str, random: Random) -> None:
        await asyncio.sleep(random.random() ** 2 * random.choice((0.01, 3.0, 100.0)))
        await self.engine.maintenance.sweep()

    async def _damage(self, label: str, random: Random) -> None:
        """Whoever meets the balance next counts it anew."""
        await asyncio.sleep(random.random() ** 2 * 3)
        self.run.damage()

    async def _wait(self, label: str, random: Random) -> None:
        """Longer than any lease."""
        for _ in range(2):
            await asyncio.sleep(SETTINGS.mark_life.total_seconds() * (0.6 + random.random() / 2))
            await self.engine.maintenance.sweep()


async def _pieces(upload: Upload, random: Random, longest: float = 0.01) -> AsyncGenerator[bytes, None]:
    data = upload.data
    while data:
        size = 1 + random.randrange(3 * CHUNK_BYTES)
        yield data[:size]
        data = data[size:]
        await asyncio.sleep(random.random() * longest)


def is_damaging(seed: int) -> bool:
    """Whether the balance is damaged now and then in a run."""
    return seed % 16 in (6, 15)


@contextmanager
def small() -> Iterator[None]:
    with (
        saying.small(),
        patch.object(manifests, "CHUNK_BYTES", CHUNK_BYTES),
        patch.object(manifests, "PORTION", PORTION),
    ):
        yield


def played(seed: int) -> World:
    """One run, on one, two or three stores; the same seed is the same run."""
    random, loop = seeded(seed, 6), loop_of(seed)
    able = replace(HOME, atomic=random.random() < 0.5)
    servers = servers_of(loop, able, random.choice((1, 2, 3)), Watched)
    steps = (*STEPS, *saying.STEPS) if saying.is_in(seed) else STEPS
    plan = plan_of(seed, random, steps, AIMED, share=0.4)
    if seed % 8 == 5:  # writers sleep until their uploads are given up
        plan.focus = "artifacts.name", Fault.FROZEN.value
    world = World(seed, loop, plan, servers)
    for server in servers:
        server.store.world = world  # type: ignore[attr-defined]
    with small():
        return play(world, _all)


async def _all(world: World) -> None:
    await _begin(world)
    await at_work(
        world,
        lambda process: Client(world, process),
        [_acts(world.seed, number) for number in range(WORKERS)],
    )
    if is_damaging(world.seed):  # nobody may have met it since
        await _repaired(world)
    lapsed = SETTINGS.mark_life.total_seconds() + 4 * CLOCK_ERROR
    engine = await audited(world, world.process("auditor"), lapsed, ROUNDS)
    world.judge()
    memory = memory_over(engine, CONFIG)
    await memory.open()
    await _read_back(world, memory)
    await saying.read_back(world, memory)
    await _altered(world, memory)


async def _begin(world: World) -> None:
    """The sessions are there."""
    world.plan.active = False
    process = world.process("first")
    OWNER.set(process)
    memory = memory_over(world.engine(process), CONFIG)
    await memory.open()
    for session in SESSIONS:
        await memory.sessions.create(session)
    world.plan.active = True


async def _repaired(world: World) -> None:
    """As `doctor --repair` does; and then nothing differs."""
    process = world.process("doctor")
    OWNER.set(process)
    engine = world.engine(process)
    await engine.open()
    for differs in [
        (await engine.repair.compare(repair=True)).error,
        *(await engine.repair.compare()).differs,
    ]:
        if differs:
            world.broken.append(f"once it was repaired {differs}")


def _acts(seed: int, number: int) -> tuple[list[tuple[str, str]], Random]:
    random = seeded(seed, 3, number)
    weights = (
        WEIGHTS
        | (saying.WEIGHTS if saying.is_in(seed) else {})
        | ({"damage": 6} if is_damaging(seed) else {})
    )
    kinds, odds = list(weights), list(weights.values())
    acts = [(f"w{number}.{n}", random.choices(kinds, odds)[0]) for n in range(ACTS_EACH)]
    acts.append((f"w{number}.last", "wait"))
    acts[0], acts[2] = (f"w{number}.0", "put"), (f"w{number}.2", "meet")
    return acts, random


async def _read_back(world: World, memory: Memory) -> None:
    """What stands is what is listed and read; no more, no less."""
    for session in SESSIONS:
        there = {path: world.during((session, path), inf)[-1] for path in PATHS}
        wanted = {path: one for path, one in there.items() if one.label is not None}
        if world.lives[session][-1][1] is None:
            continue
        listed = {one.path: one for one in (await memory.artifacts.list(session)).artifacts}
        if {path: one.id for path, one in listed.items()} != {
            path: one.artifact_id for path, one in wanted.items()
        }:
            world.broken.append(f"in the end {listed} are listed of {session}, and {wanted} stand")
        for path, one in wanted.items():
            if await memory.artifacts.read((session, path)) != world.uploads[str(one.label)].data:
                world.broken.append(f"in the end {one.label} is not what is read of {(session, path)}")


async def _altered(world: World, memory: Memory) -> None:
    """A disk alters a byte: nobody is told that these are the bytes that were put."""
    for session, path in ((session, path) for session in SESSIONS for path in PATHS):
        shown = world.during((session, path), inf)[-1]
        if shown.label is None or not world.uploads[shown.label].data:
            continue
        manifest = next(
            row for row in world.manifests.values() if row.fields["artifact_id"] == shown.artifact_id
        )
        chunk = next(
            row for row in world.standing(ARTIFACTS) if row.fields["upload"] == manifest.fields["upload"]
        )
        await _alter(engine_of(memory), chunk)
        with suppress(CorruptRecord):
            await memory.artifacts.read((session, path))
            world.broken.append(f"altered bytes of {shown.label} are passed off as those that were put")


async def _alter(engine: Engine, chunk: Record) -> None:
    data = chunk.fields["data"]
    assert isinstance(data, bytes)
    altered = replace(chunk, fields={**chunk.fields, "data": bytes([data[0] ^ 1]) + data[1:]})
    await engine.topology.archive.apply([Put(ARTIFACTS, altered, Always())])
