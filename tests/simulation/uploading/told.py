"""What stood in the stores of a run of artifacts, moment by moment, and what its
clients were told: nobody may be told what never stood.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeAlias

from memory.adapters.in_memory import InMemoryStore
from memory.domain.artifact import Artifact
from memory.orchestrator.conversations.blobs.balances import balance_key
from memory.orchestrator.conversations.blobs.large_texts import uploads_of
from memory.orchestrator.conversations.blobs.manifests import _chunk_id, artifact_of
from memory.orchestrator.conversations.log.events import artifacts_of
from memory.orchestrator.storage.collections import (
    ARTIFACTS,
    ENTRIES,
    MANIFESTS,
    MESSAGES,
    RESERVATIONS,
    SESSIONS,
)
from memory.orchestrator.storage.session_keys import scope_of
from memory.ports.record import Key, Record
from tests.simulation.faults import CLOCK_ERROR, LATEST
from tests.simulation.lives import World, bytes_of
from tests.simulation.setup import SETTINGS
from tests.support.reserved import miscounted, total_of, unsettled

TENANT, MOST = "acme", 100
PART_LEASE = SETTINGS.mark_life.total_seconds() - 4 * CLOCK_ERROR
"""Seconds for which large texts of a message are surely not given up."""
Place: TypeAlias = tuple[str, str]
"""A session and a path."""


class Watched(InMemoryStore):
    """Has everything looked at that comes to stand in it."""

    world: Run

    async def _apply(self, writes: Any, together: bool) -> Any:
        outcomes = await super()._apply(writes, together)
        self.world.look()
        return outcomes

    async def _delete_matching(self, *asked: Any) -> int:
        deleted = await super()._delete_matching(*asked)
        self.world.look()
        return deleted


@dataclass(slots=True)
class Call:
    """Something that was asked for. It has `ended` where it came back, failed, was
    given up, or its process died.
    """

    label: str
    begun: float
    ended: float = inf
    outcome: str = "unknown"

    def may_act(self, now: float) -> bool:
        """Whether a request of it may still arrive."""
        return now <= self.ended + LATEST + 1


@dataclass(slots=True)
class Upload(Call):
    place: Place = ("", "")
    data: bytes = b""
    came: str | None = None
    """The id under which it stood."""
    since: float = 0.0
    """When its writer was last handed something to put, or began."""
    pause: float = 0.0
    """The longest from one such moment to the next."""

    async def timed(
        self, pieces: AsyncIterator[bytes], now: Callable[[], float]
    ) -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            self.pause, self.since = max(self.pause, now() - self.since), now()
            yield piece


@dataclass(slots=True)
class Said(Call):
    """A message, by its label; `erased` and `refused` are outcomes of it too."""

    session: str = ""
    texts: set[str] = field(default_factory=set)
    """What it may say."""
    size: int = 0
    unsaid: bool = False
    """Somebody began to erase it."""


@dataclass(slots=True)
class Deletion(Call):
    """Of an artifact, or of a session with all that it has."""

    which: str | Place = ""
    """An artifact's id, or its place; or a session."""

    def is_of(self, artifact: Artifact) -> bool:
        return self.which in (artifact.id, (artifact.session_id, artifact.path))


@dataclass(slots=True)
class Pointing(Call):
    """A write, an edit or a move of an entry."""

    entry_id: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a session has under a path from a moment on: the label of an upload and the
    id of the artifact; nothing where both are None.
    """

    since: float
    label: str | None = None
    artifact_id: str | None = None


@dataclass(slots=True)
class Run(World):
    """Everything of one run that its workers share, and what was seen in the stores."""

    uploads: dict[str, Upload] = field(default_factory=dict)
    deletions: list[Deletion] = field(default_factory=list)
    said: dict[str, Said] = field(default_factory=dict)
    unrefused: int = 0
    """How many bytes came into messages that are there: they count, and are not
    refused.
    """
    torn: set[str] = field(default_factory=set)
    """Uploads that messages came to name when they had perhaps been given up."""
    reserved_at: dict[str, float] = field(default_factory=dict)
    """By the name of an upload, when room was first reserved for it."""
    named_by_messages: set[str] = field(default_factory=set)
    pointings: list[Pointing] = field(default_factory=list)
    manifests: dict[Key, Record] = field(default_factory=dict)
    shown: dict[Place, list[Shown]] = field(default_factory=dict)
    lives: dict[str, list[tuple[float, str | None]]] = field(default_factory=dict)
    """By session, which incarnation of it stood from when on."""
    ids: dict[str, Place] = field(default_factory=dict)
    """Every artifact that ever stood."""
    died: dict[str, float] = field(default_factory=dict)
    reserved: dict[Key, Record] = field(default_factory=dict)
    totals: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    """What the balance said from when on."""
    damaged: int = 0
    """How often the balance was damaged."""
    missed: int = 0
    """How many bytes were about to be reserved then: they are counted once they are
    met.
    """
    pointed: set[tuple[str, str]] = field(default_factory=set)
    """Every entry that ever pointed to an artifact."""
    trace: list[str] = field(default_factory=list)

    def traced(self, name: str) -> Any:
        return lambda what: self.trace.append(f"{self.loop.time():.4f} {name} {what}")

    def damage(self) -> None:
        """A disk damages the balance."""
        key = balance_key(TENANT)
        for server in self.servers:
            if isinstance(server.store.state.fetch_stored(RESERVATIONS.name, key), Record):
                server.store.state.damage(RESERVATIONS.name, key)
                self.damaged += 1
                sizes = [(one, one.size) for one in self.said.values()] + [
                    (one, len(one.data)) for one in self.uploads.values()
                ]
                self.missed += sum(size for one, size in sizes if one.may_act(self.loop.time()))

    # -- what holds at every moment ----------------------------------------------------

    def look(self) -> None:
        self._look_at_room()
        self._look_at_parts()
        self._look_at_sessions()
        now, stood = self.loop.time(), {row.key: row for row in self.standing(MANIFESTS)}
        before, self.manifests = self.manifests, stood
        for key in before.keys() | stood.keys():
            if key not in stood:
                self._went(before[key], now)
            elif key not in before or before[key].fields["upload"] != stood[key].fields["upload"]:
                self._came(before.get(key), stood[key], now)
        self._look_at_places(now)
        if (size := sum(int(str(row.fields["size"])) for row in self.manifests.values())) > MOST:
            self.broken.append(f"artifacts of {size} bytes stand, of at most {MOST}")
        self.pointed |= {
            (row.key.id, str(row.fields["artifact_id"]))
            for row in self.standing(ENTRIES)
            if row.fields.get("artifact_id") is not None
        }

    def _look_at_room(self) -> None:
        rows, now = self.standing(RESERVATIONS), self.loop.time()
        self.broken += miscounted(rows, damaged=bool(self.damaged))
        if (total := total_of(rows)) != self.totals[-1][1]:
            self.totals.append((now, total))
        anew = sum(said.size for said in self.said.values() if min(now, said.ended) - said.begun > PART_LEASE)
        if total > MOST + self.unrefused + anew + self.missed:
            self.broken.append(f"{total} bytes are reserved, of at most {MOST}")
        reserved = {row.key: row for row in rows if row.fields.get("upload") is not None}
        self.reserved = reserved

    def _look_at_parts(self) -> None:
        """No large text of a message stands before its room is reserved; and whose row
        came so late that it was perhaps given up.
        """
        now = self.loop.time()
        for row in self.reserved.values():
            self.reserved_at.setdefault(str(row.fields["upload"]), now)
        for row in self.standing(ARTIFACTS):
            name = str(row.fields["upload"])
            if row.fields.get("digest") is not None and name not in self.reserved_at:
                self.broken.append(f"of upload {name} chunks stand, and no room is reserved")
        named = {name for row in self.standing(MESSAGES) for name in uploads_of(artifacts_of(row))}
        self.torn |= {
            name
            for name in named - self.named_by_messages
            if now - self.reserved_at.get(name, 0.0) > PART_LEASE
        }
        self.named_by_messages |= named

    def _look_at_sessions(self) -> None:
        stood = {
            str(row.fields["session_id"]): str(row.body["incarnation"]) for row in self.standing(SESSIONS)
        }
        for session in stood.keys() | self.lives.keys():
            lives = self.lives.setdefault(session, [(0.0, None)])
            if lives[-1][1] != stood.get(session):
                lives.append((self.loop.time(), stood.get(session)))

    def _look_at_places(self, now: float) -> None:
        live = {session: lives[-1][1] for session, lives in self.lives.items()}
        there: dict[Place, tuple[str, str]] = {}
        for row in self.manifests.values():
            artifact = artifact_of(row)
            if row.fields["incarnation"] == live.get(artifact.session_id):
                there[artifact.session_id, artifact.path] = _label(artifact), artifact.id
        for place in there.keys() | self.shown.keys():
            shown = self.shown.setdefault(place, [Shown(0.0)])
            label, artifact_id = there.get(place, (None, None))
            if (shown[-1].label, shown[-1].artifact_id) != (label, artifact_id):
                shown.append(Shown(now, label, artifact_id))

    def _came(self, before: Record | None, row: Record, now: float) -> None:
        artifact, upload = artifact_of(row), self.uploads[_label(artifact_of(row))]
        name, what = str(row.fields["upload"]), f"{upload.label}, put as {upload.place},"
        if upload.outcome == "refused":
            self.broken.append(f"{what} was refused, and stands")
        if not upload.may_act(now):
            self.broken.append(f"{what} came long after its call had ended")
        if upload.came is not None:
            self.broken.append(f"{what} came twice")
        self._is_said_to_be(upload, artifact, what)
        if before is not None and (before.fields["artifact_id"], before.created_at) != (
            artifact.id,
            artifact.created_at,
        ):
            self.broken.append(f"{what} is another artifact than the one in whose place it is")
        if before is None and artifact.id in self.ids:
            self.broken.append(f"{what} has the id of one that was deleted")
        upload.came = artifact.id
        self.ids[artifact.id] = upload.place
        if self._bytes_of(row) != upload.data or int(str(self._reserved_for(name))) < artifact.size:
            self.broken.append(f"{what} stands before its bytes are there and reserved")

    def _is_said_to_be(self, upload: Upload, artifact: Artifact, what: str) -> None:
        wanted = (*upload.place, len(upload.data), hashlib.sha256(upload.data).hexdigest())
        if (told := (artifact.session_id, artifact.path, artifact.size, artifact.sha256)) != wanted:
            self.broken.append(f"{what} is said to be {told}")

    def _bytes_of(self, manifest: Record) -> bytes:
        name, chunks = str(manifest.fields["upload"]), {row.key.id: row for row in self.standing(ARTIFACTS)}
        ids = [
            _chunk_id(TENANT, manifest.scope, name, number)
            for number in range(int(str(manifest.body["chunks"])))
        ]
        return b"".join(bytes_of(chunks[one]) for one in ids if one in chunks)

    def _reserved_for(self, name: str) -> object:
        return next(
            (row.fields["bytes"] for row in self.reserved.values() if row.fields["upload"] == name), -1
        )

    def _went(self, row: Record, now: float) -> None:
        artifact, upload = artifact_of(row), self.uploads[_label(artifact_of(row))]
        self.died[artifact.id] = now
        incarnation = row.fields["incarnation"]
        born = next(since for since, life in self.lives[artifact.session_id] if life == incarnation)
        for deletion in self.deletions:
            if deletion.which == artifact.session_id:
                if deletion.ended + LATEST >= born and (deletion.outcome != "done" or deletion.may_act(now)):
                    return
            elif deletion.may_act(now) and deletion.is_of(artifact):
                return
        self.broken.append(f"{upload.label} is there no more, and nobody deleted it")

    # -- what somebody may be told -----------------------------------------------------

    def during(self, place: Place, begun: float) -> list[Shown]:
        """What the session had under the path at some moment since then."""
        shown = self.shown.get(place, [Shown(0.0)])
        first = max(at for at, one in enumerate(shown) if one.since <= begun)
        return shown[first:]

    def is_going(self, session: str) -> bool:
        """Whether somebody began to delete the session who was not told that it is."""
        return any(one.which == session and one.outcome != "done" for one in self.deletions)

    def had_life(self, session: str, begun: float) -> set[str | None]:
        lives = self.lives.get(session, [(0.0, None)])
        first = max(at for at, (since, _) in enumerate(lives) if since <= begun)
        return {life for _, life in lives[first:]}

    def of_artifact(self, artifact_id: str, begun: float) -> list[str | None]:
        """The uploads that the artifact was since then, one after the other; None where
        it was not there.
        """
        shown = self.during(self.ids[artifact_id], begun)
        return [one.label if one.artifact_id == artifact_id else None for one in shown]

    def data_of(self, labels: Iterable[str | None]) -> Iterator[bytes]:
        return (self.uploads[label].data for label in labels if label is not None)

    # -- what holds in the end ---------------------------------------------------------

    def judge(self) -> None:
        self.look()
        manifests = [*self.manifests.values()]
        self.broken += unsettled(
            self.standing(RESERVATIONS),
            manifests,
            self.standing(ARTIFACTS),
            self.standing(MESSAGES),
            self.torn,
        )
        for row in (
            row
            for row in self.manifests.values()
            if row.fields["incarnation"] != self.lives[artifact_of(row).session_id][-1][1]
        ):
            self.broken.append(f"{artifact_of(row).path} is left of a session that was deleted")
        self._judge_sessions()
        there = {str(row.fields["artifact_id"]) for row in self.manifests.values()}
        for row in self.standing(ENTRIES):
            to = row.fields.get("artifact_id")
            if to is not None and to not in there and not self._came_late(row.key.id, self.died[str(to)]):
                self.broken.append(f"entry {row.key.id} ({row.role}) points to {to!s}, which was deleted")

    def _judge_sessions(self) -> None:
        live = {scope_of(session) for session, lives in self.lives.items() if lives[-1][1] is not None}
        left = [
            row.key.id
            for kind in (MANIFESTS, ARTIFACTS)
            for row in self.standing(kind)
            if row.scope not in live
        ]
        if left:
            self.broken.append(f"{left} are left of sessions that were deleted")

    def _came_late(self, entry_id: str, died: float) -> bool:
        """Whether a write, an edit or a move of the entry was under way when the
        artifact was deleted, or later.
        """
        return any(one.entry_id == entry_id and one.may_act(died) for one in self.pointings)

    def let_go(self) -> int:
        """How many entries point no more to what is gone."""
        pointing = {
            (row.key.id, str(row.fields["artifact_id"]))
            for row in self.standing(ENTRIES)
            if row.fields.get("artifact_id") is not None
        }
        there = {row.key.id for row in self.standing(ENTRIES)}
        return sum(to in self.died and entry_id in there for entry_id, to in self.pointed - pointing)


def _label(artifact: Artifact) -> str:
    return artifact.media_type.partition("/")[2]


def labels_of(artifacts: Sequence[Artifact]) -> list[str]:
    return [_label(artifact) for artifact in artifacts]
