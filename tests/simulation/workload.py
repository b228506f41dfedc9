"""What a run does: the stores it has, the workers, and their operations on a few shared entries. All of it follows from the seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from memory.domain.scope import Scope
from tests.simulation.loop import seeded


class Kind(StrEnum):
    WRITE = "write"
    KEYED = "keyed write"
    BATCH = "write batch"
    UPDATE = "update"
    DELETE = "delete"
    DELETE_SCOPE = "delete scope"
    GET = "get"
    RETRIEVE = "retrieve"
    SEARCH = "search"
    PROMOTE = "promote"
    PROMOTE_AWAY = "promote, original deleted"
    COMPACT = "compact"
    COMPACT_AWAY = "compact, sources deleted"
    MOVE = "move"
    SWEEP = "sweep"
    KNOWN_AT = "known at"
    FOREIGN = "foreign get"
    RELATE = "relate"


class Layout(StrEnum):
    ONE = "one store for all tiers"
    THREE = "durable short, mid, long"
    CACHE = "volatile short as a cache, mid, long"
    SHARED = "short of its own, mid and long in one store"


TENANTS = ("acme", "zeta")
SCOPES = (Scope.session("s1"), Scope.user("ada"), Scope.workspace("w1"))
"""Where entries are written; the ids are the same for both tenants, to tell them apart by nothing else."""
SESSIONS = (*SCOPES, Scope.session("s1"), Scope.session("s1"))
"""The same, mostly of a session: what a cache holds."""
PROMOTED = {
    "session:s1": (Scope.user("ada"), Scope.workspace("w1")),
    "user:ada": (Scope.workspace("w1"), Scope.org("o1")),
    "workspace:w1": (Scope.org("o1"),),
}
REST = 4_000.0
"""Seconds for which everyone rests in some runs: longer than marks live."""
ALL_SCOPES = (*SCOPES, Scope.org("o1"))

WEIGHTS = {
    Kind.WRITE: 3,
    Kind.KEYED: 3,
    Kind.BATCH: 2,
    Kind.UPDATE: 9,
    Kind.DELETE: 3,
    Kind.DELETE_SCOPE: 1,
    Kind.GET: 6,
    Kind.RETRIEVE: 6,
    Kind.SEARCH: 2,
    Kind.PROMOTE: 2,
    Kind.PROMOTE_AWAY: 2,
    Kind.COMPACT: 1,
    Kind.COMPACT_AWAY: 2,
    Kind.MOVE: 7,
    Kind.SWEEP: 4,
    Kind.KNOWN_AT: 1,
    Kind.FOREIGN: 1,
    Kind.RELATE: 1,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing a worker does. `register` is the entry it is about, by name; `other` a second one or where it goes, by `pick`."""

    number: int
    worker: int
    kind: Kind
    register: str
    tenant: str
    scope: Scope
    pick: int
    pause: float

    def __str__(self) -> str:
        return f"#{self.number} worker {self.worker}: {self.kind} {self.register} ({self.tenant}, {self.scope}; {self.pick})"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run, in full."""

    seed: int
    layout: Layout
    atomic: bool
    workers: int
    rate: float
    focus_step: str
    focus_fault: str
    operations: tuple[Operation, ...]


def scenario(
    seed: int, steps: tuple[str, ...] = (), faults: tuple[str, ...] = (), favoured: Callable[[str], tuple[Kind, ...]] | None = None
) -> Scenario:
    """The run of this seed. Seeds go round all pairs of step and fault: that fault strikes there more often, among operations that take the step."""
    random = seeded(seed, 1)
    pair = seed % (len(steps) * len(faults)) if steps and faults else 0
    focus_step, focus_fault = (steps[pair % len(steps)], faults[pair // len(steps)]) if steps and faults else ("", "")
    layout = _layout(random, focus_step, focus_fault)
    workers = 2 if random.random() < 0.7 else 3
    weights = dict(WEIGHTS)
    for kind in favoured(focus_step) if favoured is not None else ():
        weights[kind] += 12
    return Scenario(
        seed=seed,
        layout=layout,
        atomic=random.random() < 0.5,
        workers=workers,
        rate=random.choice((0.0, 0.01, 0.03, 0.06, 0.12, 0.2)),
        focus_step=focus_step,
        focus_fault=focus_fault,
        operations=tuple(_operations(random, workers, weights, SESSIONS if layout is Layout.CACHE else SCOPES)),
    )


def _layout(random: Random, focus_step: str, focus_fault: str) -> Layout:
    if focus_step.startswith("cache") or focus_fault in ("restart empty", "rolled back"):
        return Layout.CACHE
    return random.choice(tuple(Layout))


def _operations(random: Random, workers: int, weights: dict[Kind, int], scopes: tuple[Scope, ...]) -> list[Operation]:
    """At least 20. The first of each worker writes; most of the others meet on what was written first."""
    hot = [(f"r{w}", _tenant(random), random.choice(scopes)) for w in range(workers)]
    keyed = f"k-{hot[0][1]}-{hot[0][2].kind}"
    if random.random() < 0.4:  # what was written under a key is moved and deleted like anything else
        hot[0] = (keyed, *hot[0][1:])
        weights[Kind.KEYED] += 4
    if random.random() < 0.5:  # everyone on one entry
        hot = [*hot[:1] * 2, *hot]
    kinds, odds = list(weights), list(weights.values())
    pace = random.choice((0.0005, 0.0005, 0.004, 0.02, 20.0))
    rest = 12 if random.random() < 0.2 else None
    found: list[Operation] = []
    for number in range(20 + int(random.random() * 6)):
        worker = number % workers
        pause = random.random() ** 2 * pace
        pick = int(random.random() * 1000)
        if rest is not None and rest <= number < rest + workers:  # everyone rests, and then someone sweeps
            pause += REST
            found.append(Operation(number, worker, Kind.SWEEP, hot[0][0], hot[0][1], hot[0][2], pick, pause))
            continue
        if number < workers:
            name, tenant, scope = hot[-workers + number]
            found.append(Operation(number, worker, Kind.KEYED if name == keyed else Kind.WRITE, name, tenant, scope, pick, 0.0))
            continue
        kind = random.choices(kinds, odds)[0]
        name, tenant, scope = random.choice(hot)
        if kind in (Kind.WRITE, Kind.BATCH):
            name = f"n{number}"
        elif kind is Kind.KEYED:
            name = f"k{'1' if pick % 4 == 0 else ''}-{tenant}-{scope.kind}"
        elif kind in (Kind.RETRIEVE, Kind.SEARCH) and random.random() < 0.2:
            tenant = random.choice(TENANTS)
        found.append(Operation(number, worker, kind, name, tenant, scope, pick, pause))
    return found


def _tenant(random: Random) -> str:
    return TENANTS[0] if random.random() < 0.75 else TENANTS[1]
