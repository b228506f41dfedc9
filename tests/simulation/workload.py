"""What a run does: the stores it has, the workers, and their operations on a few shared
entries. All of it follows from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING

from memory.domain.scope import Scope
from tests.simulation.faults import Fault
from tests.simulation.loop import seeded
from tests.simulation.scenes import LEASE_IS_OVER, RACES, REST, Kind, Turn

if TYPE_CHECKING:
    from tests.simulation.endings import Scene
    from tests.simulation.steps import Aim


class Layout(StrEnum):
    ONE = "one store for all tiers"
    THREE = "durable short, mid, long"
    CACHE = "volatile short as a cache, mid, long"
    SHARED = "short of its own, mid and long in one store"
    TOGETHER = "short and mid in one store, long of its own"
    SPLIT = "short, mid in two stores, long"
    FORGETFUL = "short, mid, long, and what has expired goes"


TENANTS = ("acme", "zeta")
SCOPES = (Scope.session("s1"), Scope.user("ada"), Scope.workspace("w1"))
"""Where entries are written; the ids are the same for both tenants, to tell them apart
by nothing else.
"""
SESSIONS = (*SCOPES, Scope.session("s1"), Scope.session("s1"))
"""The same, mostly of a session: what a cache holds."""
PROMOTED = {
    "session:s1": (Scope.user("ada"), Scope.workspace("w1")),
    "user:ada": (Scope.workspace("w1"), Scope.org("o1")),
    "workspace:w1": (Scope.org("o1"),),
}
SOON = (0.003, 0.05, 1.0, 60.0, 3_000.0)
"""Seconds from a write until its entry expires, or from a retirement until its window
ends.
"""
EXPIRY_EDITED = "x"
"""The names of entries whose expiry is edited begin with this."""
ENDS_WITH_A_SCENE = 0.4
"""How many of the runs end with a scene of their own."""
ALL_SCOPES = (*SCOPES, Scope.org("o1"))

WEIGHTS: dict[Kind, float] = {
    Kind.WRITE: 3,
    Kind.KEYED: 3,
    Kind.BATCH: 2,
    Kind.UPDATE: 9,
    Kind.INVALIDATE: 1.5,
    Kind.DELETE: 3,
    Kind.DELETE_SCOPE: 1,
    Kind.GET: 6,
    Kind.RETRIEVE: 6,
    Kind.SEARCH: 2,
    Kind.PROMOTE: 2,
    Kind.PROMOTE_AWAY: 2,
    Kind.COMPACT: 1,
    Kind.COMPACT_AWAY: 2,
    Kind.MOVE: 9,
    Kind.SWEEP: 4,
    Kind.KNOWN_AT: 1,
    Kind.FOREIGN: 1,
    Kind.PAST: 2,
    Kind.END_SESSION: 0.7,
    Kind.RELATE: 1.5,
    Kind.UNRELATE: 0.5,
    Kind.RELATED: 1,
    Kind.EXPORT: 1,
    Kind.DAMAGE: 0,  # in some runs only, see `scenario`
}


DEADLY = frozenset({Kind.INVALIDATE, Kind.DELETE, Kind.DELETE_SCOPE, Kind.PROMOTE_AWAY, Kind.COMPACT_AWAY})
"""Operations after which an entry is gone, and nothing more happens to it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing a worker does. `register` is the entry it is about, by name; `other` a
    second one or where it goes, by `pick`.
    """

    number: int
    worker: int
    kind: Kind
    register: str
    tenant: str
    scope: Scope
    pick: int
    pause: float
    meeting: int | None = None
    """Operations of one meeting begin at the same moment, each by a worker of its own."""
    lured: bool = False
    """Whether this is the operation that the lure is for, in a scene that has one."""
    lure: tuple[str, Fault] | None = None
    """A fault of its own, at every call of that step."""
    expires: float | None = None
    """In how many seconds what is written expires, where that is edited."""

    def __str__(self) -> str:
        return (
            f"#{self.number} worker {self.worker}: {self.kind} {self.register} ({self.tenant}, {self.scope};"
            f" {self.pick})"
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run, in full."""

    seed: int
    layout: Layout
    atomic: bool
    workers: int
    rate: float
    focus: tuple[str, str]
    """The step and the fault that this run is about."""
    lure: tuple[str, str] | None
    """A step and a fault there that lead to the step in focus."""
    operations: tuple[Operation, ...]
    wrapped: bool = False
    """Whether every store is behind the wrappers that repeat calls and limit their
    time.
    """
    setback: bool = False
    """Whether a durable store is taken back to an earlier moment, or replaced by an
    empty one, after the last operation.
    """
    narrow: bool = False
    """Whether the later stores take few writes at once and no large records, until the
    last operation has been done.
    """
    unfenced: bool = False
    """Whether a record that was sent before an erasure may come to stand after it,
    where whoever sent it cannot look again.
    """
    ending: str = ""
    """The scene that the run ends with, by name; most have none."""


def scenario(
    seed: int,
    focus: tuple[str, str] = ("", ""),
    aim: Aim | None = None,
    endings: Mapping[str, Scene] | None = None,
) -> Scenario:
    """The run of this seed: that fault strikes more often at that step, among
    operations and stores that make the step likely.

    Some end with one of the `endings`, drawn by itself: one more of them changes no
    other part of any run.
    """
    random = seeded(seed, 1)
    layout = random.choice((aim.layouts if aim else ()) or tuple(Layout))
    scopes = (aim.scopes if aim else ()) or (SESSIONS if layout is Layout.CACHE else SCOPES)
    weights = (
        {kind: weight * (0.2 if kind in DEADLY else 1.0) for kind, weight in WEIGHTS.items()}
        if random.random() < 0.5
        else dict(WEIGHTS)
    )
    workers = 2 if random.random() < 0.7 else 3
    if random.random() < 0.1:
        weights[Kind.DAMAGE] = 2
    peculiar = seeded(seed, 7).random()
    last = seeded(seed, 8)
    fitting = [
        name for name, ending in (endings or {}).items() if layout in (ending.layouts or tuple(Layout))
    ]
    shares = [endings[name].share for name in fitting] if endings else []
    ending = last.choices(fitting, shares)[0] if fitting and last.random() < ENDS_WITH_A_SCENE else ""
    scene = endings[ending] if endings and ending else None
    return Scenario(
        seed=seed,
        layout=layout,
        atomic=random.random() < 0.5 and focus[1] != "partial batch",
        workers=workers,
        rate=random.choice(
            (0.0, 0.01, 0.03) if aim is not None and aim.scene else (0.0, 0.01, 0.03, 0.06, 0.12, 0.2)
        ),
        focus=focus,
        lure=aim.lure if aim else None,
        operations=tuple(
            _operations(random, workers, weights, scopes, aim, (last, scene) if scene is not None else None)
        ),
        wrapped=random.random() < 0.1,
        setback=random.random() < (0.5 if focus[0].startswith("generation.") else 0.06)
        or (scene is not None and scene.setback),
        narrow=peculiar < 0.12,
        unfenced=peculiar > 0.85,
        ending=ending,
    )


def _operations(
    random: Random,
    workers: int,
    weights: dict[Kind, float],
    scopes: tuple[Scope, ...],
    aim: Aim | None,
    last: tuple[Random, Scene] | None,
) -> list[Operation]:
    """At least 20. The first of each worker writes; most of the others meet on what was
    written first; some are the aim's pattern.
    """
    weights = dict(weights)
    hot = [(f"r{w}", _tenant(random), random.choice(scopes)) for w in range(workers)]
    keyed = f"k-{hot[0][1]}-{hot[0][2].kind}"
    if random.random() < 0.4:  # what was written under a key is moved and deleted like anything else
        hot[0] = (keyed, *hot[0][1:])
        weights[Kind.KEYED] += 4
    drawn = _Drawn(random, workers, pace=random.choice((0.0005, 0.0005, 0.004, 0.02, 20.0)))
    for worker, target in enumerate(hot):
        drawn.add(Kind.KEYED if target[0] == keyed else Kind.WRITE, target, worker)
    if random.random() < 0.5:  # everyone on one entry
        hot = [*hot[:1] * 2, *hot]
    rest = 12 if random.random() < 0.2 or (aim is not None and aim.rests) else None
    kinds, odds = list(weights), list(weights.values())
    rare = aim is not None and aim.share > 2
    most = 20 + int(random.random() * 6) + (14 if rare else 0)
    scene = aim.scene if aim is not None else ()
    while len(drawn.found) < most:
        if rest is not None and len(drawn.found) >= rest:  # everyone rests, and then someone sweeps
            for worker in range(workers):
                drawn.add(Kind.SWEEP, hot[0], worker, rest=REST)
            rest = None
        elif scene and random.random() < 0.95:
            drawn.scene(scene, hot)
        elif random.random() < 0.15:
            drawn.scene(random.choice(RACES), hot)
        elif aim is not None and aim.kinds and random.random() < (0.9 if rare else 0.7):
            drawn.pattern(aim.kinds, hot)
        else:
            drawn.any(random.choices(kinds, odds)[0], hot)
    if last is not None:
        random, ending = last
        end = _Drawn(random, workers, pace=0.0, found=drawn.found)
        end.scene(ending.scene, [("", _tenant(random), random.choice(ending.scopes or SCOPES))])
    return drawn.found


_Target = tuple[str, str, Scope]
"""An entry by name, and the tenant and scope it is written in."""


class _Drawn:
    """Operations drawn so far."""

    def __init__(
        self, random: Random, workers: int, pace: float, found: list[Operation] | None = None
    ) -> None:
        self.found: list[Operation] = [] if found is None else found
        self._random = random
        self._workers = workers
        self._pace = pace

    def add(self, kind: Kind, target: _Target, worker: int | None = None, rest: float = 0.0) -> None:
        number = len(self.found)
        who = number % self._workers if worker is None else worker
        pause = rest + (self._random.random() ** 2 * self._pace if number >= self._workers else 0.0)
        self.found.append(Operation(number, who, kind, *target, self._pick(), pause))

    def _pick(self) -> int:
        return int(self._random.random() * 1000)

    def any(self, kind: Kind, hot: list[_Target]) -> None:
        name, tenant, scope = self._random.choice(hot)
        if kind in (Kind.WRITE, Kind.BATCH):
            name = f"n{len(self.found)}"
            if kind is Kind.WRITE and self._random.random() < 0.5:
                hot.append((name, tenant, scope))
        elif kind is Kind.KEYED:
            name = f"k{'1' if self._random.random() < 0.25 else ''}-{tenant}-{scope.kind}"
        elif kind in (Kind.RETRIEVE, Kind.SEARCH, Kind.EXPORT) and self._random.random() < 0.2:
            tenant = self._random.choice(TENANTS)
        self.add(kind, (name, tenant, scope))

    def pattern(self, kinds: tuple[Kind, ...], hot: list[_Target]) -> None:
        """On a fresh entry or a shared one, by one worker or by several at once."""
        shared = self._random.choice(hot)
        fresh, alone = self._random.random() < 0.7, self._random.random() < 0.4
        worker = int(self._random.random() * self._workers)
        target = (f"p{len(self.found)}", *shared[1:]) if fresh else shared
        if Kind.KEYED in kinds:
            target = self._fitting(Kind.KEYED, shared)
        elif fresh:
            self.add(Kind.WRITE, target, worker)
        for kind in kinds:
            rest = LEASE_IS_OVER if kind is Kind.SWEEP and self._random.random() < 0.4 else 0.0
            self.add(
                kind,
                self._fitting(kind, target),
                worker if alone else int(self._random.random() * self._workers),
                rest,
            )

    def scene(self, turns: tuple[Turn, ...], hot: list[_Target]) -> None:
        """The turns in order, on fresh entries, by workers drawn for them."""
        random, first = self._random, len(self.found)
        workers = random.sample(range(self._workers), self._workers)
        _, tenant, scope = random.choice(hot)
        keyed = {turn.entry for turn in turns if turn.kind is Kind.KEYED}
        meeting: int | None = None
        same = self._pick()
        edited = any(turn.expires is not None for turn in turns)
        made = ""
        for turn in turns:
            number = len(self.found)
            meeting = (number if meeting is None else meeting) if turn.meets else None
            name = (
                f"k{first * 10 + turn.entry}-{tenant}-{scope.kind}"
                if turn.entry in keyed
                else f"{EXPIRY_EDITED if edited else 'p'}{first}.{turn.entry}"
            )
            made = f"c{number}" if turn.kind in (Kind.COMPACT, Kind.COMPACT_AWAY) else made
            name = made if turn.made else name
            pause = turn.rest + random.random() * turn.late
            target = (workers[turn.who], turn.kind, name, tenant, scope)
            promotes = turn.kind in (Kind.PROMOTE, Kind.PROMOTE_AWAY)  # all of a scene to the same scope
            pick = 3 * (same if promotes else self._pick()) + (
                0 if turn.copy else 1 if promotes else 1 + int(random.random() * 2)
            )
            pick = pick if turn.pick is None else turn.pick
            self.found.append(
                Operation(number, *target, pick, pause, meeting, turn.lured, turn.lure, turn.expires)
            )

    def _fitting(self, kind: Kind, target: _Target) -> _Target:
        """The target, but for what is written anew or under a key."""
        _, tenant, scope = target
        if kind is Kind.KEYED:
            return f"k-{tenant}-{scope.kind}", tenant, scope
        return (f"n{len(self.found)}", tenant, scope) if kind in (Kind.WRITE, Kind.BATCH) else target


def _tenant(random: Random) -> str:
    return TENANTS[0] if random.random() < 0.75 else TENANTS[1]
