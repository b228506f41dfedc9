"""Runs of the graph: several processes write entries, supersede, link, unlink, retire,
delete, move and promote them, faults at every call.

No link comes to stand before its ends did. What is told meanwhile never names an end
that is not told of too. Once nothing is under way any more, each question of the graph
is asked of an engine and of a model in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from unittest.mock import patch

from memory.domain import ids
from memory.domain.entry import EntryDraft
from memory.domain.errors import (
    Conflict,
    InvalidInput,
    InvalidScopePromotion,
    NotFound,
    StoreError,
    TooMuchContention,
)
from memory.domain.relation import Relation
from memory.domain.relation_labels import LABELS
from memory.domain.scope import Scope
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.entries import graph
from memory.orchestrator.entries.relations import RelationVisibility
from memory.orchestrator.storage.collections import ENTRIES, RELATIONS
from memory.policies.entry_query import EntryQuery
from memory.ports.query import Partitions
from memory.ports.record import Key, Partition, Record, Role
from tests.simulation.faults import CLOCK_ERROR
from tests.simulation.linking.model import model_of
from tests.simulation.lives import Worker, World, at_work, audited, loop_of, plan_of, play, servers_of
from tests.simulation.loop import START, seeded
from tests.simulation.setup import SETTINGS
from tests.simulation.world import HOME

TENANT, SCOPES = "acme", (Scope.session("s1"), Scope.user("ada"))
WORKERS, ACTS_EACH, ROUNDS = 3, 9, 20
STEPS = (
    "read.home",
    "write.home",
    "relate.home",
    "supersede.home",
    "relation.list",
    "delete.home",
    "owed.settle",
)
"""What faults strike more readily at."""
WEIGHTS = {
    "relate": 11,
    "write": 3,
    "supersede": 3,
    "unrelate": 1,
    "invalidate": 2,
    "delete": 2,
    "move": 2,
    "promote": 2,
    "erase": 0.4,
    "read": 6,
    "sweep": 1,
}


@dataclass(slots=True)
class Run(World):
    """Everything of one run that its workers share, and what was seen in the stores."""

    ids: list[str] = field(default_factory=list)
    """Of every entry that is written sometime: they have keys, so that one can be
    linked to before it is there.
    """
    born: set[str] = field(default_factory=set)
    linked: set[str] = field(default_factory=set)
    wanted: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """By its ends and label, the link that was acknowledged last."""
    cut: set[str] = field(default_factory=set)
    """The links that somebody began to cut."""
    deleted: set[str] = field(default_factory=set)
    """The entries that somebody began to delete."""
    gone: set[str] = field(default_factory=set)
    """Those of which it was acknowledged."""
    ended: set[str] = field(default_factory=set)
    """The entries that somebody began to retire by itself."""
    superseding: dict[str, set[str]] = field(default_factory=dict)
    """By entry, what was to take its place."""
    asked: int = 0

    def look(self) -> None:
        """No link stands before its ends did, and nothing gave way to what is not
        there.
        """
        rows = [row for server in self.servers for row in server.store.state.everything(ENTRIES.name)]
        homes = [row for row in rows if isinstance(row, Record) and row.role is Role.HOME]
        self.born.update(row.key.id for row in homes)
        for row in homes:
            if (
                row.fields.get("valid_to") is not None
                and row.key.id not in self.ended
                and not self.superseding.get(row.key.id, set()) & self.born
            ):
                self.broken.append(f"{row.key.id} has ended, and nothing took its place")
        for link in (row for server in self.servers for row in server.store.state.everything(RELATIONS.name)):
            if isinstance(link, Record) and link.key.id not in self.linked:
                self.linked.add(link.key.id)
                if gone := {str(link.fields["source_id"]), str(link.fields["target_id"])} - self.born:
                    self.broken.append(f"{link.key.id} is a link of {gone}, which was never there")

    def closed(self, entries: Iterable[str], relations: Iterable[Relation], what: str) -> None:
        """Every end that is told of is among the entries."""
        there = set(entries)
        for one in relations:
            if not {one.source_id, one.target_id} <= there:
                self.broken.append(f"{what} tells of the link {one.id}, and not of both its ends")


class Linker(Worker[Run]):
    """One process."""

    may_be_told = (StoreError, NotFound, TooMuchContention, Conflict, InvalidInput, InvalidScopePromotion)

    def _any(self, random: Random) -> str:
        there = sorted(self.run.born)
        return random.choice(there if there and random.random() < 0.8 else self.run.ids)

    async def _write(self, label: str, random: Random) -> None:
        draft = self._draft(label)
        await self.engine.entries.write(TENANT, draft)

    def _draft(self, label: str) -> EntryDraft:
        return EntryDraft(
            scope=SCOPES[seeded(self.run.seed, 9, *label.encode()).randrange(2)],
            content=f"Ada lives in {label}",
            key=label,
        )

    async def _supersede(self, label: str, random: Random) -> None:
        there = sorted(self.run.born)
        if there:
            draft, named = self._draft(label), random.sample(there, min(len(there), 1 + random.randrange(2)))
            for entry_id in named:
                self.run.superseding.setdefault(entry_id, set()).add(
                    ids.keyed_id(TENANT, draft.scope.text, label)
                )
            await self.engine.supersede_writer.write(TENANT, draft, SupersedeRequest(named))

    async def _relate(self, label: str, random: Random) -> None:
        source, target, said = self._any(random), self._any(random), random.choice(LABELS)
        made = await self.engine.relations.relate(TENANT, source, said, target)
        self.run.wanted[source, said, target] = made.id

    async def _unrelate(self, label: str, random: Random) -> None:
        if self.run.linked:
            link = random.choice(sorted(self.run.linked))
            self.run.cut.add(link)
            await self.engine.relations.unrelate(TENANT, link)

    async def _invalidate(self, label: str, random: Random) -> None:
        entry_id = self._any(random)
        self.run.ended.add(entry_id)
        await self.engine.entries.invalidate(TENANT, entry_id, None)

    async def _delete(self, label: str, random: Random) -> None:
        entry_id = self._any(random)
        self.run.deleted.add(entry_id)
        if await self.engine.erasure.delete(ENTRIES, Key(TENANT, entry_id)):
            self.run.gone.add(entry_id)

    async def _erase(self, label: str, random: Random) -> None:
        """Links from other scopes outlive it until a sweep comes round to them."""
        self.run.deleted.update(self.run.ids)
        await self.engine.erasure.erase_scope(TENANT, random.choice(SCOPES))

    async def _move(self, label: str, random: Random) -> None:
        await self.engine.tier_mover.move(
            ENTRIES, Key(TENANT, self._any(random)), random.choice(("mid", "long"))
        )

    async def _promote(self, label: str, random: Random) -> None:
        entry_id, away = self._any(random), random.random() < 0.4
        if away:
            self.run.deleted.add(entry_id)
        await self.engine.derivation.promote(TENANT, entry_id, Scope.user("bo"), delete_original=away)

    async def _read(self, label: str, random: Random) -> None:
        which = random.random()
        if which < 0.3:
            gone = set(self.run.gone)
            for link in await self.engine.relations.find(TENANT):
                if {link.source_id, link.target_id} & gone:
                    self.run.broken.append(
                        f"the link {link.id} is told of, and an end of it was deleted before"
                    )
        elif which < 0.6:
            whole = await self.engine.graphs.graph(EntryQuery(TENANT, (), limit=random.choice((3, 200))))
            self.run.closed([one.id for one in whole.entries], whole.relations, "a graph")
        else:
            around = await self.engine.graphs.expand(
                TENANT, self._any(random), depth=2, superseded=random.random() < 0.5
            )
            self.run.closed([node.entry.id for node in around.nodes], around.relations, "an expansion")
            if any(not {one.source_id, one.target_id} - around.retired for one in around.relations):
                self.run.broken.append("an expansion tells of a link between two that are dimmed")


async def judge(world: Run, engine: Engine, now: datetime, random: Random) -> None:
    """Every question of the graph, to the engine and to the model."""
    model = model_of(world.servers, now)
    if gone := model.dangling():
        world.broken.append(f"{gone[0]} is linked to what is gone")
    there = {link.id for link in model.links}
    for (source, _, target), link in world.wanted.items():
        if link not in there and link not in world.cut and not {source, target} & world.deleted:
            world.broken.append(f"the link {link} was acknowledged, and is not there")
    scope = SCOPES[random.randrange(2)]
    moments = [link.made for link in model.links] + [
        one.since for stood in model.entries.values() for one in stood
    ]
    began = random.choice(sorted(moments) or [START]) + timedelta(seconds=random.random() ** 4)

    def same(what: str, found: object, wanted: object) -> None:
        world.asked += 1
        if found != wanted:
            world.broken.append(f"{what}: {found}, and by the model {wanted}")

    for as_of, known_at in ((None, None), (began, None), (None, began)):
        when = f"as of {as_of}, known at {known_at}"
        shown = RelationVisibility(as_of, known_at, superseded=True) if as_of or known_at else None
        found = {one.id for one in await engine.relations.find(TENANT, shown=shown)}
        same(f"related {when}", found, model.related(as_of=as_of, known_at=known_at))
        for scopes in ((), (scope,)):
            whole = await engine.graphs.graph(
                EntryQuery(TENANT, scopes, limit=200, as_of=as_of, known_at=known_at)
            )
            told = {one.id for one in whole.entries}, set(whole.retired), {one.id for one in whole.relations}
            same(
                f"graph {when} {scopes}",
                told,
                model.graph(scopes=[one.text for one in scopes], as_of=as_of, known_at=known_at),
            )
    same(
        "active",
        {one.id for one in await engine.relations.find(TENANT, shown=RelationVisibility())},
        model.related(active=True),
    )
    for entry_id in sorted(model.entries):
        dimmed = entry_id not in model.visible()
        for depth, superseded, within in (
            (1, False, None),
            (2, False, None),
            (2, True, None),
            (2, False, Partitions((Partition(TENANT, scope.text),))),
        ):
            if dimmed and not superseded:
                continue
            around = await engine.graphs.expand(
                TENANT, entry_id, depth=depth, place=within, superseded=superseded
            )
            reached = (
                {node.entry.id: node.depth for node in around.nodes},
                {one.id for one in around.relations},
            )
            same(
                f"expand {entry_id} {depth} {superseded} {within}",
                reached,
                model.expand(entry_id, depth, superseded=superseded, scopes=(scope.text,) if within else ()),
            )
            same("retired", around.retired, reached[0].keys() - model.visible())
        if not dimmed:
            close = await engine.graphs.density(TENANT, entry_id)
            same(
                f"density {entry_id}",
                (close.outgoing, close.incoming, close.one_step, close.two_steps, close.verdict),
                model.density(entry_id),
            )


def played(seed: int) -> Run:
    """One run; the same seed is the same run."""
    random, loop = seeded(seed, 6), loop_of(seed)
    able = replace(HOME, atomic=random.random() < 0.5)
    servers = servers_of(loop, able, random.choice((1, 2, 3)))
    world = Run(seed, loop, plan_of(seed, random, STEPS), servers)
    with patch.object(graph, "PAGE", 3):
        return play(world, _all)


async def _all(world: Run) -> None:
    todo = [_acts(world.seed, number) for number in range(WORKERS)]
    for label, act in (one for acts in todo for one in acts):
        if act in ("write", "supersede"):
            scope = SCOPES[seeded(world.seed, 9, *label.encode()).randrange(2)]
            world.ids.append(ids.keyed_id(TENANT, scope.text, label))
    lives = [(acts, seeded(world.seed, 4, number)) for number, acts in enumerate(todo)]
    await at_work(world, lambda process: Linker(world, process), lives)
    auditor = world.process("auditor")
    slices = (
        2 + len(world.linked) // SETTINGS.page
    )  # as a sweep goes over the links, from a place in the middle until it has come round
    engine = await audited(world, auditor, 4 * CLOCK_ERROR, ROUNDS, slices)
    await judge(world, engine, auditor.clock(), seeded(world.seed, 10))


def _acts(seed: int, number: int) -> list[tuple[str, str]]:
    random = seeded(seed, 3, number)
    kinds, odds = list(WEIGHTS), list(WEIGHTS.values())
    acts = [(f"w{number}.{n}", random.choices(kinds, odds)[0]) for n in range(ACTS_EACH)]
    return [(f"w{number}.a", "write"), (f"w{number}.b", "write"), *acts]
