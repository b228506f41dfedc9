"""Runs of entries that take the place of others: the real engine on in-memory stores,
several workers on a few entries, faults at every call.

Every entry that supersedes others is written under a key, so that its id is known
whatever becomes of the call. What stands in the stores is looked at after each of their
calls: nothing is linked from, nor retired for, what is not there yet. Once nothing is
owed any more, what was acknowledged has happened as a whole, and what was refused has
not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from memory.domain import ids
from memory.domain.conflicts import Resolution
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, InvalidInput, NotFound, StoreError, TooMuchContention
from memory.domain.scope import Scope
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.entries.upserts import UpsertCall
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.ports.record import Key, Record, Role
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

TENANT, SCOPES = "acme", (Scope.session("s1"), Scope.user("ada"))
WORKERS, ACTS_EACH, ROUNDS = 3, 7, 12
MISSING = "0195d3b0-7e2a-7cc0-8000-000000000000"
STEPS = (
    "read.home",
    "write.home",
    "supersede.home",
    "relate.home",
    "update.home",
    "version.keep",
    "owed.settle",
    "replica.deliver",
)
"""What faults strike more readily at."""
WEIGHTS = {
    "supersede": 8,
    "missing": 1,
    "check": 3,
    "upsert": 5,
    "update": 2,
    "invalidate": 1,
    "delete": 1,
    "move": 2,
    "sweep": 2,
    "again": 1,
}


@dataclass(slots=True)
class Write:
    """One entry that was asked to take the place of others; `named` of None: of
    whatever is near it.
    """

    entry_id: str
    named: tuple[str, ...] | None
    outcome: str = "unknown"
    shown: tuple[str, ...] = ()
    begun: float = 0.0


@dataclass(slots=True)
class Run(World):
    """Everything of one run that its workers share, and what was seen in the stores."""

    writes: list[Write] = field(default_factory=list)
    drafts: list[tuple[EntryDraft, tuple[str, ...]]] = field(default_factory=list)
    upserts: dict[str, list[str]] = field(default_factory=dict)
    """By key, what those said that were acknowledged."""
    ended: set[str] = field(default_factory=set)
    """The entries that some call was begun to retire or delete by itself."""
    deleted: set[str] = field(default_factory=set)
    born: dict[str, datetime] = field(default_factory=dict)
    """Every entry that ever stood, and when it began to be true."""
    linked: set[tuple[str, str]] = field(default_factory=set)
    ends: dict[str, tuple[int, datetime | None]] = field(default_factory=dict)
    """By entry, its latest version and when that one's validity ends."""

    @property
    def at_once(self) -> bool:
        """Whether everything is in one atomic store."""
        return len(self.servers) == 1 and self.servers[0].store.capabilities.atomic

    # -- what holds at every moment ----------------------------------------------------

    def look(self) -> None:
        homes = [row for row in self.standing(ENTRIES) if row.role is Role.HOME]
        for row in homes:
            self.born.setdefault(row.key.id, _begins(row))
        for row in self.standing(RELATIONS):
            link = (str(row.fields["source_id"]), str(row.fields["target_id"]))
            if link not in self.linked and link[0] not in self.born:
                self.broken.append(f"{link} is a link of what is not there yet")
            if link not in self.linked and row.created_at != self.born.get(link[0]):
                self.broken.append(
                    f"{link} was made at {row.created_at}, and its entry is true from"
                    f" {self.born.get(link[0])} on"
                )
            self.linked.add(link)
        for row in homes:
            self._ends(row)

    def _ends(self, row: Record) -> None:
        end: Any = row.fields.get("valid_to")
        version, before = self.ends.get(row.key.id, (0, None))
        if row.version <= version:
            return
        self.ends[row.key.id] = row.version, end
        if before is not None and (end is None or end > before) and row.key.id not in self.deleted:
            self.broken.append(f"{row.key.id} ended at {before}, and by now at {end}")
        if end is None or end == before or row.key.id in self.ended:
            return
        by = [
            write
            for write in self.writes
            if row.key.id in (write.shown if write.named is None else write.named)
        ]
        start = _begins(row)
        moments = {write.entry_id: self.born[write.entry_id] for write in by if write.entry_id in self.born}
        # A start may lie in the future of a clock that is behind: then the end is before it.
        by = [write for write in by if (at := moments.get(write.entry_id)) and end in (at, max(start, at))]
        if not by:
            self.broken.append(f"{row.key.id} ended at {end}, which is the moment of nothing that stands")
        elif not any(
            (write.entry_id, row.key.id) in self.linked or write.entry_id in self.deleted for write in by
        ):
            self.broken.append(f"{row.key.id} ended before anything was linked to it")

    # -- what holds in the end ---------------------------------------------------------

    def judge(self) -> None:
        self.look()
        homes = {row.key.id: row for row in self.standing(ENTRIES) if row.role is Role.HOME}
        for write in self.writes:
            stood = write.entry_id in self.born
            if (
                write.outcome == "refused"
                and stood
                and not any(other is not write and other.entry_id == write.entry_id for other in self.writes)
            ):
                self.broken.append(f"{write.entry_id} was refused, and it was there")
            if write.outcome == "done" and not stood:
                self.broken.append(f"{write.entry_id} was acknowledged, and never was there")
            if not stood or write.outcome == "refused":
                continue
            for entry_id in write.named or ():
                self._gave_way(write, entry_id, homes)
        if self.at_once:
            self._each_ended(homes)
        self._upserted(homes)

    def _each_ended(self, homes: dict[str, Record]) -> None:
        """In one batch who is linked to an entry has ended it, too."""
        linked = Counter(str(row.fields["target_id"]) for row in self.standing(RELATIONS))
        versions = [(str(row.fields["entry_id"]), row) for row in self.standing(ENTRY_VERSIONS)] + list(
            homes.items()
        )
        ended = Counter(entry_id for entry_id, row in versions if row.fields.get("valid_to") is not None)
        for entry_id in linked.keys() - self.deleted:
            if linked[entry_id] > ended[entry_id]:
                self.broken.append(
                    f"{entry_id} has {linked[entry_id]} in its place, and was ended {ended[entry_id]} times"
                )

    def _gave_way(self, write: Write, entry_id: str, homes: dict[str, Record]) -> None:
        row, link = homes.get(entry_id), (write.entry_id, entry_id)
        if entry_id == MISSING:
            self.broken.append(f"{write.entry_id} was written in the place of what is not there")
        elif row is None or {write.entry_id, entry_id} & self.deleted:
            return
        elif row.fields.get("valid_to") is None:
            self.broken.append(
                f"{entry_id} is still true, in whose place {write.entry_id} was written ({write.outcome})"
            )
        elif link not in self.linked and (self.at_once or self._alone(write, entry_id)):
            self.broken.append(f"{link} is missing")

    def _alone(self, write: Write, entry_id: str) -> bool:
        """Whether nobody else was begun to end it."""
        others = [
            one
            for one in self.writes
            if one.entry_id != write.entry_id and entry_id in (one.shown if one.named is None else one.named)
        ]
        return not others and entry_id not in self.ended

    def _upserted(self, homes: dict[str, Record]) -> None:
        for key, said in self.upserts.items():
            entry_id = ids.keyed_id(TENANT, SCOPES[0].text, key)
            if entry_id in self.ended or entry_id not in homes:
                continue
            kept = [
                row.texts.get("content")
                for row in self.standing(ENTRY_VERSIONS)
                if row.fields["entry_id"] == entry_id
            ]
            if lost := set(said) - {*kept, homes[entry_id].texts.get("content")}:
                self.broken.append(f"of {key} the versions {sorted(lost)} are lost")


def _begins(row: Record) -> datetime:
    found: Any = row.fields["valid_from"]
    return found  # type: ignore[no-any-return]


class Writer(Worker[Run]):
    """One process."""

    may_be_told = (StoreError, NotFound, TooMuchContention)

    def _known(self, random: Random, most: int = 1) -> list[str]:
        there = sorted(self.run.born)
        return random.sample(there, min(len(there), 1 + random.randrange(most))) if there else []

    async def _supersede(self, label: str, random: Random) -> None:
        named = self._known(random, 2)
        draft = EntryDraft(scope=random.choice(SCOPES), content=f"Ada lives in {label}", key=label)
        self.run.drafts.append((draft, tuple(named)))
        await self._write(draft, named)

    async def _meet(self, label: str, random: Random) -> None:
        """All workers at one moment: on one key, or in the place of one entry."""
        await self.wait_for_meeting(random)
        if self.run.seed % 2:
            await self._upsert(label, random)
        elif self.run.born:
            await self._write(
                EntryDraft(scope=SCOPES[self.run.seed // 2 % 2], content=f"Ada lives in {label}", key=label),
                [min(self.run.born)],
            )

    async def _missing(self, label: str, random: Random) -> None:
        await self._write(
            EntryDraft(scope=random.choice(SCOPES), content=f"Ada lives in {label}", key=label),
            [*self._known(random), MISSING],
        )

    async def _again(self, label: str, random: Random) -> None:
        """The same call once more, by anybody."""
        if self.run.drafts:
            draft, named = random.choice(self.run.drafts)
            await self._write(draft, named)

    async def _write(self, draft: EntryDraft, named: Sequence[str]) -> None:
        write = Write(
            ids.keyed_id(TENANT, draft.scope.text, draft.key or ""), tuple(named), begun=self.run.loop.time()
        )
        ended = set(self.run.ended)
        others = {
            one for other in self.run.writes for one in (other.shown if other.named is None else other.named)
        }
        self.run.writes.append(write)
        try:
            if named:
                await self.engine.supersede_writer.write(TENANT, draft, SupersedeRequest(named))
            else:
                await self.engine.entries.write(TENANT, draft)
            write.outcome = "done"
        except (Conflict, InvalidInput) as error:
            write.outcome = "refused"
            since = {
                one
                for other in self.run.writes
                if other is not write
                for one in (other.shown if other.named is None else other.named)
            }
            if (
                not {*named} & (ended | self.run.ended | others | since | {MISSING})
                and write.entry_id not in self.run.deleted
            ):
                self.run.broken.append(f"{write.entry_id} was refused, though all of {named} stand: {error}")

    async def _check(self, label: str, random: Random) -> None:
        scope, past = random.choice(SCOPES), random.choice((None, 5.0, 200.0))
        created_at = None if past is None else self.process.clock() - timedelta(seconds=past)
        draft = EntryDraft(scope=scope, content=f"Ada lives in {label}", key=label, created_at=created_at)
        write = Write(ids.keyed_id(TENANT, scope.text, label), None, begun=self.run.loop.time())
        self.run.writes.append(write)

        async def decide(asked: EntryDraft, entries: list[Entry]) -> object:
            write.shown = tuple(one.id for one in entries)
            self.run.broken += [
                f"{one.id} is newer than what was checked"
                for one in entries
                if created_at is not None and one.created_at >= created_at
            ]
            self.run.broken += [
                f"{one.id} is of {one.scope}, asked for {scope}" for one in entries if one.scope != scope
            ]
            await asyncio.sleep(random.random() ** 4 * 2)
            return random.choice(
                (
                    "keep",
                    "supersede",
                    Resolution("merge", content=f"merged {label}"),
                    Resolution("supersede", ids=[MISSING]),
                    None,
                )
            )

        try:
            _, checked = await self.engine.conflict_detector.write(TENANT, draft, decide)
            write.outcome = "done"
            if not set(checked.superseded) <= set(write.shown):
                self.run.broken.append(f"{checked.superseded} gave way, and {write.shown} were shown")
        except (Conflict, InvalidInput) as error:
            if write.entry_id not in self.run.deleted:
                self.run.broken.append(f"a checked write was refused: {error}")

    async def _upsert(self, label: str, random: Random) -> None:
        key = "current"
        entry_id = ids.keyed_id(TENANT, SCOPES[0].text, key)
        try:
            await self.engine.upserts.upsert(
                TENANT, UpsertCall(EntryDraft(scope=SCOPES[0], content=f"value {label}", key=key))
            )
            self.run.upserts.setdefault(key, []).append(f"value {label}")
        except Conflict:
            if entry_id not in self.run.ended and not any(
                entry_id in (one.named or one.shown) for one in self.run.writes
            ):
                self.run.broken.append(f"{key} was said to be retired")

    async def _update(self, label: str, random: Random) -> None:
        for entry_id in self._known(random):
            await self.engine.entries.update(TENANT, entry_id, {"content": f"Ada lives in {label}"})

    async def _invalidate(self, label: str, random: Random) -> None:
        for entry_id in self._known(random):
            self.run.ended.add(entry_id)
            when = (
                self.process.clock() + timedelta(seconds=random.random() * 500)
                if random.random() < 0.5
                else None
            )
            with suppress(InvalidInput):  # it may begin later, by another clock
                await self.engine.entries.invalidate(TENANT, entry_id, when)

    async def _delete(self, label: str, random: Random) -> None:
        for entry_id in self._known(random):
            self.run.ended.add(entry_id)
            self.run.deleted.add(entry_id)
            await self.engine.erasure.delete(ENTRIES, Key(TENANT, entry_id))

    async def _move(self, label: str, random: Random) -> None:
        for entry_id in self._known(random):
            await self.engine.tier_mover.move(ENTRIES, Key(TENANT, entry_id), random.choice(("mid", "long")))


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
        [
            drawn_acts(world.seed, number, WEIGHTS, ACTS_EACH, {0: "supersede", 2: "meet"})
            for number in range(WORKERS)
        ],
    )
    await audited(world, world.process("auditor"), 0, ROUNDS)
    world.judge()
