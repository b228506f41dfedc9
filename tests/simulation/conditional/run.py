"""Runs of changes that expect a version: the real engine on in-memory stores, several
workers on two keys, faults at every call.

An acknowledged change was made on top of the version that it expected, and no other
change was. A change that was answered with `VersionConflict` is stored nowhere, and the
version that it expected was not the one that was stored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from memory.domain import ids
from memory.domain.entry import EntryDraft, PartialDraft
from memory.domain.errors import Conflict, NotFound, StoreError, TooMuchContention, VersionConflict
from memory.domain.scope import Scope
from memory.domain.versions import stored_version
from memory.orchestrator.entries.upserts import UpsertCall
from memory.orchestrator.storage.collections import ENTRIES
from memory.ports.record import Key, Record, Role, Tombstone
from tests.simulation.lives import (
    Worker,
    World,
    at_work,
    audited,
    drawn_acts,
    loop_of,
    plan_of,
    play,
    servers_of,
)
from tests.simulation.loop import seeded
from tests.simulation.world import HOME

TENANT, SCOPES, KEY = "acme", (Scope.session("s1"), Scope.user("ada")), "current"
WORKERS, ACTS_EACH, ROUNDS = 3, 8, 12
STEPS = ("read.home", "write.home", "update.home", "version.keep", "delete.home", "replica.deliver")
"""What faults strike more readily at."""
WEIGHTS = {
    "create": 3,
    "replace": 5,
    "merge": 3,
    "update": 5,
    "delete": 2,
    "expire": 1,
    "stale": 3,
    "move": 2,
    "sweep": 1,
}


@dataclass(slots=True)
class Call:
    """One conditional change. `expected` of 0: nothing exists."""

    kind: str
    entry_id: str
    label: str
    expected: int
    outcome: str = "unknown"
    conflict: VersionConflict | None = None


@dataclass(slots=True)
class Run(World):
    """Everything of one run that its workers share, and what was seen in the stores."""

    calls: list[Call] = field(default_factory=list)
    seen: dict[tuple[str, int], tuple[str, int | None]] = field(default_factory=dict)
    """By entry and version: its text, and the version before."""
    last: dict[str, int] = field(default_factory=dict)
    """By entry that is there, its version."""
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    """The entries and versions over which a deletion was stored."""

    def look(self) -> None:
        rows = [row for one in self.servers for row in one.store.state.everything(ENTRIES.name)]
        homes = {row.key.id: row for row in rows if isinstance(row, Record) and row.role is Role.HOME}
        for entry_id, row in homes.items():
            self.seen.setdefault((entry_id, row.version), (row.texts.get("content", ""), row.previous))
            self.last[entry_id] = row.version
        gone = {row.key.id for row in rows if isinstance(row, Tombstone)} - homes.keys()
        for entry_id in gone & self.last.keys():
            self.ended[entry_id, self.last.pop(entry_id)] += 1

    def judge(self) -> None:
        self.look()
        for call in self.calls:
            where = f"{call.kind} {call.label} of {call.entry_id} at {call.expected}"
            made = [before for (entry_id, _), (text, before) in self.seen.items() if text == call.label]
            if call.outcome == "lost":
                self._judge_lost(call, where, made)
            if call.outcome != "won" or call.kind == "create":
                continue
            if call.kind == "delete" and not self.ended[call.entry_id, call.expected]:
                self.broken.append(f"{where} was acknowledged, and that version was not deleted")
            if call.kind != "delete" and made != [call.expected or None]:
                self.broken.append(f"{where} was acknowledged, and was made on {made}")
        for entry_id in {call.entry_id for call in self.calls}:
            born = sum(before is None for (one, _), (_, before) in self.seen.items() if one == entry_id)
            creations = [call for call in self.calls if call.entry_id == entry_id and not call.expected]
            if (won := sum(call.outcome == "won" for call in creations)) > born:
                self.broken.append(f"{entry_id} was created {born} times, and {won} were acknowledged")

    def _judge_lost(self, call: Call, where: str, made: list[int | None]) -> None:
        if made and call.kind != "create":
            self.broken.append(f"{where} was refused, and is stored on {made}")
        assert call.conflict is not None
        told = call.conflict.current_version
        current = 0 if told is None else stored_version(told)
        if current == call.expected:
            self.broken.append(f"{where} was refused, and {current} is the version that it expected")
        if current and (call.entry_id, current) not in self.seen:
            self.broken.append(f"{where} was told version {current}, which never was")


class Writer(Worker[Run]):
    """One process."""

    may_be_told = (StoreError, NotFound, TooMuchContention, Conflict)

    async def _current(self, random: Random) -> tuple[Scope, str, int]:
        """One of the entries, and the version that it has now; 0 where there is none."""
        scope = random.choice(SCOPES)
        entry_id = ids.keyed_id(TENANT, scope.text, KEY)
        entry = await self.engine.entries.get(TENANT, entry_id)
        return scope, entry_id, 0 if entry is None else stored_version(entry.version)

    async def _create(self, label: str, random: Random) -> None:
        scope, entry_id, _ = await self._current(random)
        await self._write("create", scope, Call("create", entry_id, label, 0), "created")

    async def _replace(self, label: str, random: Random) -> None:
        await self._meet(random)
        scope, entry_id, version = await self._current(random)
        await self._write("replace", scope, Call("replace", entry_id, label, version), label)

    async def _merge(self, label: str, random: Random) -> None:
        await self._meet(random)
        scope, entry_id, version = await self._current(random)
        await self._write("update", scope, Call("merge", entry_id, label, version), label)

    async def _expire(self, label: str, random: Random) -> None:
        scope, entry_id, version = await self._current(random)
        await self._write("replace", scope, Call("replace", entry_id, label, version), label, soon=True)

    async def _stale(self, label: str, random: Random) -> None:
        """Expect a version that was read some time ago."""
        scope, entry_id, version = await self._current(random)
        await asyncio.sleep(random.random() * 90)
        await self._write("replace", scope, Call("replace", entry_id, label, version), label)

    async def _update(self, label: str, random: Random) -> None:
        await self._meet(random)
        _, entry_id, version = await self._current(random)
        if version:
            call = Call("update", entry_id, label, version)
            async with self._told(call):
                await self.engine.entries.update(TENANT, entry_id, {"content": label}, expected=version)
                call.outcome = "won"

    async def _delete(self, label: str, random: Random) -> None:
        await self._meet(random)
        _, entry_id, version = await self._current(random)
        if version:
            call = Call("delete", entry_id, label, version)
            async with self._told(call):
                await self.engine.deletion.delete(TENANT, entry_id, expected=version)
                call.outcome = "won"

    async def _move(self, label: str, random: Random) -> None:
        _, entry_id, _ = await self._current(random)
        await self.engine.tier_mover.move(ENTRIES, Key(TENANT, entry_id), random.choice(("mid", "long")))

    async def _meet(self, random: Random) -> None:
        """Often wait until the others call, too."""
        if random.random() < 0.6:
            await self.wait_for_meeting(random)

    async def _write(self, mode: Any, scope: Scope, call: Call, text: str, *, soon: bool = False) -> None:
        kind = PartialDraft if mode == "update" else EntryDraft
        expires = {"expires_at": self.process.clock() + timedelta(seconds=20)} if soon else {}
        draft = kind(scope=scope, content=text, key=KEY, **expires)
        async with self._told(call):
            await self.engine.upserts.upsert(
                TENANT, UpsertCall(draft, mode, call.expected, revive=mode != "create")
            )
            call.outcome = "won"

    @asynccontextmanager
    async def _told(self, call: Call) -> AsyncIterator[None]:
        """Note the call, and what it came to if that is a conflict of versions."""
        self.run.calls.append(call)
        try:
            yield
        except VersionConflict as conflict:
            call.outcome, call.conflict = "lost", conflict
            raise


def played(seed: int) -> Run:
    """One run, on one, two or three stores; the same seed is the same run."""
    random, loop = seeded(seed, 6), loop_of(seed)
    able = replace(HOME, atomic=random.random() < 0.7)
    servers = servers_of(loop, able, random.choice((1, 2, 3)))
    return play(Run(seed, loop, plan_of(seed, random, STEPS), servers), _all)


async def _all(world: Run) -> None:
    await at_work(
        world,
        lambda process: Writer(world, process),
        [drawn_acts(world.seed, number, WEIGHTS, ACTS_EACH, {0: "create"}) for number in range(WORKERS)],
    )
    await audited(world, world.process("auditor"), 0, ROUNDS)
    world.judge()
