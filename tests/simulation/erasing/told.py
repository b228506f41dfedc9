"""What stood in the stores of a run of erasures, moment by moment: which lives of
records there were, what became of each, and which texts each said.

The judge knows a record by its key and by the version with which it came to stand where
nothing had stood, whatever became of it since. What a conversation has is of its
session, what says another's text is of whoever said it first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeAlias

from memory.adapters.in_memory import InMemoryStore
from memory.domain.time import micros
from memory.orchestrator.conversations.sessions import CONFIRM_FORK
from memory.orchestrator.maintenance.tenant_erasure import ERASE_TENANT
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, OPERATIONS, SCRATCHPADS, SESSIONS
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.sources import CONFIRM_SOURCES, SOURCES
from memory.orchestrator.storage.split import CONVERSATION
from memory.orchestrator.storage.steps import current_step
from memory.ports.collections import Collection
from memory.ports.record import Key, Record, Role
from tests.simulation.faults import LATEST
from tests.simulation.lives import World
from tests.simulation.loop import OWNER

ERASED, OTHER = "acme", "zeta"
"""The tenant that is erased, and one that is not."""
COPY = "copy"
"""What says nothing of its own."""
LABEL = re.compile(r"\[(\w+\.\w+)\]")
NONCE = re.compile(r"'nonce': '(\w+)'")
SCOPED = {kind.collection.name for kind in KINDS.scoped}
At: TypeAlias = tuple[str, Key]
"""A record: the name of its collection, and its key."""


class Watched(InMemoryStore):
    """Has everything looked at that comes to stand in it, or goes."""

    world: Run

    async def _apply(self, writes: Any, together: bool) -> Any:
        about = {(write.collection, write.key) for write in writes if hasattr(write, "key")}
        about |= {(write.collection, write.record.key) for write in writes if hasattr(write, "record")}
        before = self._roles(about)
        outcomes = await super()._apply(writes, together)
        self._looked(about, before)
        return outcomes

    async def _delete_matching(self, query: Any, *asked: Any) -> int:
        about = {
            (query.collection, row.key)
            for row in self.state.everything(query.collection.name)
            if isinstance(row, Record)
        }
        before = self._roles(about)
        deleted = await super()._delete_matching(query, *asked)
        self._looked(about, before)
        return deleted

    def _roles(self, about: set[tuple[Collection, Key]]) -> dict[tuple[Collection, Key], Role]:
        there = {(of, key): self.state.fetch_stored(of.name, key) for of, key in about}
        return {at: row.role for at, row in there.items() if isinstance(row, Record)}

    def _looked(self, about: set[tuple[Collection, Key]], before: dict[tuple[Collection, Key], Role]) -> None:
        took = current_step.get() == "erase.delete"
        for collection, key in sorted(about, key=lambda at: (at[0].name, at[1])):
            row = self.state.fetch_stored(collection.name, key)
            if (
                (collection, key) in before
                and not isinstance(row, Record)
                and (took or (current_step.get() == "delete.home" and collection is ENTRIES))
            ):
                self.world.taken(key.tenant, collection.name, self.name, before[collection, key])
            self.world.look_at(collection, key, row)


@dataclass(slots=True, eq=False)
class Life:
    """One record from when it came to stand anywhere until it stands nowhere."""

    of: str
    key: Key
    scope: str
    born: int
    """The version with which it came; of a session the moment at which it was created."""
    at: float
    text: str = ""
    ever: set[str] = field(default_factory=set)
    """The labels of all it ever said."""
    versions: dict[int, float] = field(default_factory=dict)
    """When each of its versions came to stand."""
    ended: float = inf
    owes: set[str] = field(default_factory=set)
    """The names of its pending steps."""
    made_of: dict[str, int] = field(default_factory=dict)
    """The versions of the entries from which it was derived directly, by their ids."""
    is_undone: bool = False
    root: Life | None = None
    """What it goes with: the session of what a conversation has, the entry of what it
    said before.
    """


@dataclass(slots=True)
class Moment:
    """An erasure of the tenant, as its operation stood."""

    version: int
    at: float
    over: float = inf


@dataclass(slots=True)
class Act:
    """What somebody asked for."""

    label: str
    tenant: str
    begun: float
    kind: str
    done: bool = False
    ended: float = inf


@dataclass(slots=True)
class Run(World):
    """Everything of one run that its workers share, and what was seen in the stores."""

    acts: dict[str, Act] = field(default_factory=dict)
    lives: dict[At, list[Life]] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    said: dict[str, Life] = field(default_factory=dict)
    """By label, what said it first."""
    deleted: set[Key] = field(default_factory=set)
    """What somebody began to delete by itself."""
    forked: dict[Key, Life] = field(default_factory=dict)
    """By a session that forked off, the one from which it did."""
    counted: dict[object, tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]] = field(
        default_factory=dict
    )
    """By process, what was seen to go since its erasure began: of homes, and of copies
    that were arriving.
    """
    receipts: int = 0

    # -- what holds at every moment ----------------------------------------------------

    def look_at(self, collection: Collection, key: Key, row: object) -> None:
        if collection is OPERATIONS:
            self._look_at_moment(row)
        elif collection.name in SCOPED:
            self._look_at_life(collection.name, key)

    def _look_at_moment(self, row: object) -> None:
        if isinstance(row, Record):
            if row.fields["kind"] == ERASE_TENANT and row.version not in [
                one.version for one in self.moments
            ]:
                self.moments.append(Moment(row.version, self.loop.time()))
        elif not any(self._operations()):
            for one in self.moments:
                one.over = min(one.over, self.loop.time())

    def _operations(self) -> Iterator[Record]:
        for server in self.servers:
            for row in server.store.state.everything(OPERATIONS.name):
                if isinstance(row, Record) and row.fields["kind"] == ERASE_TENANT:
                    yield row

    def _look_at_life(self, of: str, key: Key) -> None:
        lives = self.lives.setdefault((of, key), [])
        rows = [
            row
            for server in self.servers
            if isinstance(row := server.store.state.fetch_stored(of, key), Record)
        ]
        there = lives[-1] if lives and lives[-1].ended == inf else None
        if not rows:
            if there is not None:
                there.ended = self.loop.time()
                self._went(there)
            return
        if there is None:
            row = min(rows, key=lambda row: row.version)
            born = micros(row.created_at) if of == SESSIONS.name else row.version
            there = Life(of, key, row.scope, born, self.loop.time(), root=self._owner_of(of, row))
            lives.append(there)
        if of == SCRATCHPADS.name and "place" not in rows[0].fields:
            there.born = max(row.version for row in rows)  # a part is as old as the note that it is of
        there.text = " ".join(map(repr, rows))
        there.owes = {owed.step for row in rows for owed in row.owed}
        there.made_of = _direct_sources(rows)
        there.ever |= set(LABEL.findall(there.text))
        for row in rows:
            there.versions.setdefault(row.version, self.loop.time())
        for label in LABEL.findall(there.text):
            if label in self.acts and self.acts[label].tenant == key.tenant:
                if of == SCRATCHPADS.name:
                    self.said[label] = there  # of a note that is put in parts each may come twice
                self.said.setdefault(label, there.root or there)

    def _owner_of(self, of: str, row: Record) -> Life | None:
        """The session of what a conversation has, the entry of what it said before."""
        if of == ENTRY_VERSIONS.name:
            there = self.lives.get((ENTRIES.name, Key(row.key.tenant, str(row.fields["entry_id"]))), [])
        elif of != SESSIONS.name and row.scope.startswith(f"{CONVERSATION}:"):
            session = [
                lives
                for lives in self.lives.values()
                if lives and (lives[-1].of, lives[-1].scope) == (SESSIONS.name, row.scope)
            ]
            there = next((lives for lives in session if lives[-1].key.tenant == row.key.tenant), [])
        else:
            return None
        return there[-1] if there and there[-1].ended == inf else None

    def standing_lives(self, tenant: str | None = None) -> list[Life]:
        last = [lives[-1] for lives in self.lives.values() if lives]
        return [life for life in last if life.ended == inf and tenant in (None, life.key.tenant)]

    def is_of_before(self, life: Life) -> bool:
        """Of before an erasure, and there when that began; what came since, by an
        earlier call or a slow clock, may go and may stand.
        """
        return any(self._precedes(life, one) for one in self.moments)

    def _precedes(self, life: Life, one: Moment) -> bool:
        return (
            life.key.tenant == ERASED
            and life.born < one.version
            and (life.at <= one.at or not self._comes_late(life))
        )

    def _comes_late(self, life: Life) -> bool:
        """Whether it may have come by a call that had not been over for long."""
        acts = [self.acts[label] for label in life.ever if label in self.acts]
        acts += [
            act
            for act in self.acts.values()
            if act.kind == COPY and act.begun <= life.at and life.of == ENTRIES.name
        ]
        return not acts or any(life.at <= act.ended + LATEST + 1 for act in acts)

    def _went(self, life: Life) -> None:
        """An entry or a session goes where somebody deletes it, with the tenant, or
        where its derivation is undone.
        """
        if life.of not in (ENTRIES.name, SESSIONS.name) or life.key in self.deleted:
            return
        life.is_undone = self._may_be_undone(life)
        if not self.may_go(life) and not life.is_undone:
            self.broken.append(
                f"{life.of} {life.key.id} of {life.key.tenant} is there no more, and is of after:"
                f" {life.text:.300}"
            )

    def of_before_in(self, life: Life) -> list[Life]:
        """What is of before and said first what this says, or what this forked off
        from.
        """
        source = self.forked.get(life.key)
        sources = [self.said[label] for label in LABEL.findall(life.text) if label in self.said] + (
            [] if source is None else [source]
        )
        return [one for one in sources if self.is_of_before(one)] + (
            [] if source is None else self.of_before_in(source)
        )

    def _may_be_undone(self, life: Life) -> bool:
        """Whether it was derived, nobody was told so yet, and a source of it is gone or
        was edited since it was read; or it was made of what was undone so (070).
        """
        if CONFIRM_FORK in life.owes:
            return self.forked[life.key].ended < inf
        sources = [
            (version, self.lives.get((ENTRIES.name, Key(life.key.tenant, entry_id)), [])[-1:])
            for entry_id, version in life.made_of.items()
        ]
        if CONFIRM_SOURCES in life.owes and any(
            not last or last[0].ended < inf or max(last[0].versions) != version for version, last in sources
        ):
            return True
        return any(last and last[0].is_undone for _, last in sources)

    def may_go(self, life: Life) -> bool:
        """Whether it is of before an erasure, or by a slow clock and written while
        others than who ended it may have been at it, or made of such.
        """
        return any(map(self._is_older, self._line_of(life)))

    def _line_of(self, life: Life) -> list[Life]:
        """It, what it was copied or forked off from, and what that was: a copy of a
        copy is as old as the first, whatever that was edited to say.
        """
        line = [life]
        for one in line:
            source = self.forked.get(one.key)
            sources = [self.said[label] for label in sorted(one.ever) if label in self.said] + (
                [] if source is None else [source]
            )
            line += [source for source in dict.fromkeys(sources) if source not in line]
        return line

    def _is_older(self, life: Life) -> bool:
        near = any(life.born < one.version and life.at < one.over + LATEST for one in self.moments)
        return self.is_of_before(life) or (near and life.key.tenant == ERASED)

    def of_note(self, part: Life) -> list[Life]:
        """The row and the parts of a note."""
        nonce = NONCE.findall(part.text)[0]
        return [
            life
            for lives in self.lives.values()
            for life in lives
            if life.of == SCRATCHPADS.name and nonce in life.text
        ]

    # -- the receipt -------------------------------------------------------------------

    def taken(self, tenant: str, collection: str, store: str, role: Role) -> None:
        counted = self.counted.get(OWNER.get())
        if (
            counted is not None
            and tenant == ERASED
            and collection in SCOPED
            and role in (Role.HOME, Role.ARRIVING)
        ):
            counted[role is Role.ARRIVING][collection, store] += 1

    # -- what holds in the end ---------------------------------------------------------

    def erased(self, label: str, begun: float) -> None:
        """Who is told that the tenant is erased is told the truth: nothing is there of
        what stood when that was asked.
        """
        for life in self.standing_lives(ERASED):
            if life.at < begun:
                self.broken.append(
                    f"{label} is told that all is erased, and {life.of} {life.key.id} stood there before:"
                    f" {life.text:.300}"
                )

    def judge(self) -> None:
        if any(self._operations()):
            self.broken.append("an erasure is still under way")
        for life in self.standing_lives():
            if life.root is not None and life.root.ended < inf:
                self.broken.append(f"{life.of} {life.key.id} is left of what is gone")
            elif life.root is None and self.is_of_before(life):
                self.broken.append(f"{life.of} {life.key.id} is of before: {life.text:.400}")
            elif any(
                not self._comes_too_late(life.root or life, source) for source in self.of_before_in(life)
            ):
                self.broken.append(f"{life.of} {life.key.id} says what is of before: {life.text:.400}")
        for act in self.acts.values():
            if act.done and act.label not in self.said and act.kind != COPY:
                self.broken.append(f"{act.label} {act.kind} was acknowledged, and never stood")

    def _comes_too_late(self, copy: Life, source: Life) -> bool:
        """Whether it was copied by a call that ended behind each erasure that the
        source is of before, or once the source had been edited twice since its moment:
        nobody can tell by the copy then that it is of before (068).
        """
        for one in self.moments:
            edits = sum(version >= one.version and at <= copy.at for version, at in source.versions.items())
            if self._precedes(source, one) and copy.at <= one.over and edits < 2:
                return False
        return True

    def stands(self, act: Act) -> Life | None:
        """What an act that was acknowledged let stand, and nobody deleted; None where
        that is of before, or gone with what is.
        """
        life = self.said[act.label]
        return life if act.done and life.key not in self.deleted and not self.may_go(life) else None


def _direct_sources(rows: list[Record]) -> dict[str, int]:
    told: list[Any] = [one for row in rows for one in row.body.get(SOURCES, ())]
    return {one["entry"]: one["version"] for one in told if one.get("direct") and "entry" in one}
