"""Runs of documents: the real engine on an in-memory store, several processes that put,
delete, read and erase, faults at every call.

Every version that ever stood is remembered as soon as it does. An acknowledged change
stood exactly once, under the version that it was told; a refused one never did. A
change on condition of a version replaced exactly that version. Two documents that are
only changed in one group are the same at every moment. An acknowledged large document
is whole. Once nothing is pending any more, no chunk is left without its document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from unittest.mock import patch

from memory.domain.document import CheckedValue, Document, DocumentInfo, check_value
from memory.domain.errors import Conflict, CorruptRecord, MemoryTiersError
from memory.domain.scope import Scope
from memory.domain.versions import check_version, version_text
from memory.orchestrator.documents import chunks, documents
from memory.orchestrator.documents.documents import ChangeRequest, DeleteRequest, KeyRange, PutRequest
from memory.orchestrator.storage.collections import DOCUMENT_CHUNKS, DOCUMENTS
from memory.ports.record import Record
from tests.simulation.faults import CLOCK_ERROR, LATEST, UNANSWERED
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
from tests.simulation.setup import SETTINGS
from tests.simulation.world import HOME

TENANT, SCOPE = "acme", Scope.user("ada")
KEYS, PAIR = ("a", "b"), ("x", "y")
INLINE, CHUNK = 24, 16
"""So small that longer values stand in several chunks."""
WORKERS, ACTS_EACH, ROUNDS = 3, 9, 14
STEPS = (
    "document.put",
    "document.chunk",
    "document.confirm",
    "document.apply",
    "document.delete",
    "document.drop",
    "document.read",
    "document.list",
)
WEIGHTS = {
    "put": 6,
    "long": 6,
    "swap": 5,
    "create": 3,
    "delete": 3,
    "group": 5,
    "read": 4,
    "erase": 1,
    "sweep": 2,
}


@dataclass(slots=True)
class Act:
    """One put, or one group."""

    label: str
    keys: tuple[str, ...]
    outcome: str = "unknown"
    begun: float = 0.0
    ended: float = 0.0
    expected: str | None = None
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stood:
    """A version of a document as it came; the label is None where it was deleted."""

    version: str
    label: str | None


def label_of(record: Record) -> str:
    """The label that the value begins with: in its chunks or in the record."""
    return str(record.body["metadata"]["label"])


@dataclass(slots=True)
class Run(World):
    """Everything of one run that its workers share, and what was seen in the store."""

    acts: dict[str, Act] = field(default_factory=dict)
    seen: dict[str, list[Stood]] = field(default_factory=dict)
    """The versions of each key, in the order in which they came."""

    # -- what holds at every moment ----------------------------------------------------

    def look(self) -> None:
        standing = {str(row.fields["key"]): row for row in self.standing(DOCUMENTS)}
        for key in (*KEYS, *PAIR):
            row, stood = standing.get(key), self.seen.setdefault(key, [])
            now = Stood(
                "" if row is None else version_text(row.version), None if row is None else label_of(row)
            )
            before = stood[-1] if stood else Stood("", None)
            if now != before:
                if now.label is not None and any(one.label == now.label for one in stood):
                    self.broken.append(f"{now.label} stands a second time under {key}")
                if now.label is not None and now.version <= max((one.version for one in stood), default=""):
                    self.broken.append(f"{now.label} stands under {key} with an earlier version")
                stood.append(now)
        labels = {standing[key].body["metadata"]["label"] if key in standing else None for key in PAIR}
        if len(labels) > 1:
            self.broken.append(f"a group stands in part: {labels}")
        for key, row in standing.items():
            act = self.acts.get(label_of(row))
            if act is not None and act.outcome == "done" and (missing := self.missing(row)):
                self.broken.append(f"{act.label} was acknowledged, and {missing} chunks of {key} are missing")

    def missing(self, row: Record) -> int:
        if row.fields.get("upload") is None:
            return 0
        there = [
            one for one in self.standing(DOCUMENT_CHUNKS) if one.fields["upload"] == row.fields["upload"]
        ]
        return int(str(row.fields["chunks"])) - len(there)

    # -- what holds in the end ---------------------------------------------------------

    def judge(self, found: dict[str, Document]) -> None:
        self.look()
        for act in self.acts.values():
            for key in act.keys:
                self._judge_act(act, key, self.seen[key])
        rows = self.standing(DOCUMENTS)
        for row in rows:
            if missing := self.missing(row):
                self.broken.append(f"in the end {missing} chunks of {label_of(row)} are missing")
        uploads = {row.fields["upload"] for row in rows if row.fields.get("upload") is not None}
        if {row.fields["upload"] for row in self.standing(DOCUMENT_CHUNKS)} - uploads:
            self.broken.append("chunks are left of which no document stands")
        standing = {str(row.fields["key"]): label_of(row) for row in rows}
        if standing != {key: one.metadata["label"] for key, one in found.items()}:
            self.broken.append(f"in the end {sorted(found)} are read, and {sorted(standing)} stand")
        for key, one in found.items():
            if one.value != value_of(one.metadata["label"], one.size > INLINE).value:
                self.broken.append(f"{key} is read as {one.value!r}")

    def _judge_act(self, act: Act, key: str, stood: list[Stood]) -> None:
        places = [n for n, one in enumerate(stood) if one.label == act.label]
        if act.outcome == "done" and len(places) != 1:
            self.broken.append(f"{act.label} was acknowledged, and stood {len(places)} times")
        if act.outcome == "refused" and places:
            self.broken.append(f"{act.label} was refused, and stood")
        if act.outcome != "done" or len(places) != 1:
            return
        if stood[places[0]].version != act.versions[key]:
            self.broken.append(f"{act.label} was told version {act.versions[key]}")
        before = stood[places[0] - 1] if places[0] else Stood("", None)
        if act.expected is not None and before.version != act.expected:
            self.broken.append(f"{act.label} expected {act.expected} and replaced {before.version}")


def value_of(label: str, long: bool) -> CheckedValue:
    return check_value({"of": label + "." * 40} if long else label)


class Writer(Worker[Run]):
    """One process."""

    may_be_told = (MemoryTiersError,)

    @property
    def _documents(self) -> Any:
        return self.engine.documents

    def _request(self, key: str, label: str, *, long: bool = False, **more: Any) -> PutRequest:
        return PutRequest(SCOPE.text, key, value_of(label, long), {"label": label}, **more)

    async def _keeps(self, act: Act, changes: list[ChangeRequest]) -> None:
        self.run.acts[act.label] = act
        act.begun = self.run.loop.time()
        try:
            if len(act.keys) == 1 and isinstance(put := changes[0], PutRequest):
                made: list[DocumentInfo | None] = [await self._documents.put(TENANT, put)]
            else:
                made = await self._documents.apply(TENANT, changes)
        except Conflict:
            act.outcome = "refused"
        else:
            act.versions = {one.key: one.version for one in made if one is not None}
            act.outcome, act.ended = "done", self.run.loop.time()

    async def _put(self, label: str, random: Random, *, long: bool = False) -> None:
        key = random.choice(KEYS)
        await self._keeps(Act(label, (key,)), [self._request(key, label, long=long)])

    async def _long(self, label: str, random: Random) -> None:
        await self._put(label, random, long=True)

    async def _swap(self, label: str, random: Random) -> None:
        """Replace the version that was read, and no other."""
        key, long = random.choice(KEYS), random.random() < 0.5
        (found,) = await self._documents.get(TENANT, SCOPE.text, [key])
        if found is None:
            return
        asked = self._request(key, label, long=long, expected=check_version("version", found.version))
        await self._keeps(Act(label, (key,), expected=found.version), [asked])

    async def _create(self, label: str, random: Random) -> None:
        key, long = random.choice(KEYS), random.random() < 0.5
        asked = self._request(key, label, long=long, expected=0)
        await self._keeps(Act(label, (key,), expected=""), [asked])

    async def _group(self, label: str, random: Random) -> None:
        long = random.random() < 0.4
        if random.random() < 0.2:
            deletes: list[ChangeRequest] = [DeleteRequest(SCOPE.text, key) for key in PAIR]
            await self._documents.apply(TENANT, deletes)
            return
        puts: list[ChangeRequest] = [self._request(key, label, long=long) for key in PAIR]
        await self._keeps(Act(label, PAIR), puts)

    async def _delete(self, label: str, random: Random) -> None:
        await self._documents.delete(TENANT, DeleteRequest(SCOPE.text, random.choice(KEYS)))

    async def _read(self, label: str, random: Random) -> None:
        """What is read stood there at some moment of the reading."""
        key = random.choice((*KEYS, *PAIR))
        first = max(len(self.run.seen.get(key, [])) - 1, 0)
        try:
            if random.random() < 0.5:
                (found,) = await self._documents.get(TENANT, SCOPE.text, [key])
            else:
                page = await self._documents.page(TENANT, SCOPE.text, KeyRange(key), limit=2, values=True)
                found = next((one for one in page.documents if one.key == key), None)
        except CorruptRecord as error:
            stood = self.run.seen[key][-1]
            act = self.run.acts.get(stood.label or "")
            if act is not None and act.outcome == "done":
                self.run.broken.append(f"{stood.label} was acknowledged, and cannot be read: {error}")
            return
        could = {one.label for one in self.run.seen.get(key, [])[first:]} or {None}
        told = None if found is None else found.metadata["label"]
        if told not in could and not (told is None and first == 0):
            self.run.broken.append(f"{told} is read under {key}, and {could} stood there")
        if found is not None and found.value != value_of(str(told), found.size > INLINE).value:
            self.run.broken.append(f"{told} is read as {found.value!r}")

    async def _erase(self, label: str, random: Random) -> None:
        """What was acknowledged before the erasure began is gone behind it."""
        begun = self.run.loop.time()
        await self.engine.erasure.erase_scope(TENANT, SCOPE)
        for row in self.run.standing(DOCUMENTS):
            act = self.run.acts.get(label_of(row))
            if act is not None and act.outcome == "done" and act.ended < begun:
                self.run.broken.append(f"{act.label} stands behind an erasure")

    async def _meet(self, label: str, random: Random) -> None:
        """All workers at one moment."""
        await self.wait_for_meeting(random)
        acts = ("_put", "_long", "_long", "_swap", "_create", "_group", "_group", "_delete", "_swept")
        await getattr(self, random.choice(acts))(label, random)

    async def _sweep(self, label: str, random: Random, within: float = 100.0) -> None:
        await asyncio.sleep(random.random() * within)
        await self.engine.maintenance.sweep()

    async def _swept(self, label: str, random: Random) -> None:
        """While others are in the middle of a put."""
        await self._sweep(label, random, within=random.choice((0.01, 1.0, LATEST)))


@contextmanager
def small() -> Iterator[None]:
    with patch.object(documents, "INLINE_BYTES", INLINE), patch.object(chunks, "CHUNK_BYTES", CHUNK):
        yield


def played(seed: int) -> Run:
    """One run; the same seed is the same run."""
    loop = loop_of(seed)
    random = seeded(seed, 6)
    plan = plan_of(seed, random, STEPS, UNANSWERED, share=0.3)
    world = Run(seed, loop, plan, servers_of(loop, replace(HOME, grouped=True)))
    with small():
        return play(world, _all)


async def _all(world: Run) -> None:
    await at_work(
        world,
        lambda process: Writer(world, process),
        [
            drawn_acts(world.seed, number, WEIGHTS, ACTS_EACH, {2: "meet", 5: "meet"})
            for number in range(WORKERS)
        ],
    )
    comes_no_more = SETTINGS.mark_life.total_seconds() + 4 * CLOCK_ERROR  # chunks of which no document came
    engine = await audited(world, world.process("auditor"), comes_no_more, ROUNDS)
    found: dict[str, Document] = {}
    for key in (*KEYS, *PAIR):
        try:
            (one,) = await engine.documents.get(TENANT, SCOPE.text, [key])
        except CorruptRecord:
            continue
        if one is not None:
            found[key] = one
    world.judge(found)
