"""The steps that the engine names, read from its source, and what a run must be like for a step to be taken: what focus seeds aim at."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import memory.orchestrator
from memory.domain.scope import Scope
from tests.simulation.faults import RESTARTS, WRITES_ONLY, Fault
from tests.simulation.workload import SCOPES, Kind, Layout

SESSION, USER, WORKSPACE = SCOPES
APART = (Layout.THREE, Layout.THREE, Layout.CACHE)
"""Layouts where mid and long are different stores."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What makes a step likely. `lure` is a fault at another step that leads to it; `share`: how many seeds it gets."""

    kinds: tuple[Kind, ...] = ()
    layouts: tuple[Layout, ...] = ()
    scopes: tuple[Scope, ...] = ()
    lure: tuple[str, Fault] | None = None
    share: int = 1
    rests: bool = False


_K = Kind
_MOVE = Aim((_K.MOVE, _K.UPDATE), APART, (SESSION, USER), share=3)
_AIMS = {
    "move": _MOVE,
    "move.adopt": Aim((_K.MOVE,), APART, (USER, WORKSPACE), share=3),
    "move.relabel": Aim((_K.MOVE,), (Layout.ONE, Layout.SHARED), (SESSION, USER), share=3),
    "move.abort": Aim((_K.MOVE, _K.DELETE), (Layout.THREE,), (SESSION, USER), ("move.release", Fault.DELAY), share=4),
    "browse.marks": Aim((_K.MOVE, _K.RETRIEVE), APART, (SESSION, USER), ("move.arrive", Fault.ERROR_BEFORE), share=4),
    "sweep.source": Aim((_K.MOVE, _K.SWEEP), APART, (SESSION, USER), ("move.release", Fault.ERROR_BEFORE), share=9),
    "sweep.cache": Aim((_K.GET, _K.SWEEP), (Layout.CACHE,), (SESSION,), share=4),
    "sweep.purge": Aim((_K.GET, _K.UPDATE, _K.MOVE, _K.SWEEP), APART, (SESSION,), share=4, rests=True),
    "sweep": Aim((_K.SWEEP,)),
    "owed": Aim((_K.UPDATE, _K.UPDATE), APART, (USER, WORKSPACE), ("replica.deliver", Fault.ERROR_BEFORE), share=3),
    "replica": Aim((_K.UPDATE, _K.UPDATE), APART, (USER, WORKSPACE), share=2),
    "version": Aim((_K.UPDATE, _K.DELETE), share=4),
    "version.read": Aim((_K.UPDATE, _K.KNOWN_AT), share=7),
    "version.owed": Aim((_K.UPDATE, _K.KNOWN_AT), share=3),
    "delete": Aim((_K.DELETE,), (Layout.THREE, Layout.SHARED), share=2),
    "erase": Aim((_K.UPDATE, _K.DELETE_SCOPE), APART, (USER, WORKSPACE), ("replica.deliver", Fault.DELAY), share=3),
    "erase.end": Aim((_K.WRITE, _K.DELETE_SCOPE), share=4),
    "relate": Aim((_K.RELATE,), share=3),
    "relation": Aim((_K.DELETE, _K.SWEEP), share=2),
    "relation.list": Aim((_K.RELATE,), share=4),
    "relation.sweep": Aim((_K.RELATE, _K.SWEEP), share=6),
    "relation.erase": Aim((_K.RELATE, _K.DELETE), share=12),
    "cache": Aim((_K.GET, _K.UPDATE), (Layout.CACHE,), (SESSION,), share=3),
    "cache.fill": Aim((_K.GET, _K.UPDATE, _K.GET), (Layout.CACHE,), (SESSION,), share=8),
    "write": Aim((_K.KEYED, _K.BATCH)),
    "write.recheck": Aim((_K.KEYED,), (Layout.THREE, Layout.SHARED), (SESSION,), ("read.home", Fault.FROZEN), share=12),
    "write.withdraw": Aim((_K.KEYED, _K.MOVE), (Layout.THREE, Layout.SHARED), (SESSION,), share=3, rests=True),
    "update": Aim((_K.UPDATE, _K.MOVE, _K.UPDATE, _K.DELETE)),
    "derive": Aim((_K.PROMOTE, _K.COMPACT), share=4),
    "promotion": Aim((_K.SWEEP,), share=5),
    "lease": Aim((_K.SWEEP,), share=4),
    "search": Aim((_K.SEARCH,), share=2),
    "browse": Aim((_K.RETRIEVE,)),
    "browse.everything": Aim((_K.EXPORT,), share=4),
    "delete.elsewhere": Aim((_K.MOVE, _K.DELETE, _K.RETRIEVE), (Layout.THREE,), (SESSION, USER), ("move.release", Fault.ERROR_BEFORE), share=4),
    "version.keep": Aim((_K.UPDATE, _K.DELETE_SCOPE), (Layout.THREE, Layout.SHARED, Layout.CACHE), (SESSION, USER), share=4),
    "read": Aim((_K.GET, _K.UPDATE)),
}


OUT_OF_REACH = frozenset({"delete.unreadable", "version.find"})
"""Steps that need what this simulation does not do: records that cannot be read."""

_READS = re.compile(r"""(?:\bstep|\b_rows)\(\s*"([a-z_]+(?:\.[a-z_]+)?)\"""")
_WRITES = re.compile(r"""(?:\bwrite|\bwrite_one)\(\s*"([a-z_]+(?:\.[a-z_]+)?)\"""")
_WRITES_TOO = frozenset({"erase.delete", "cache.invalidate"})
_IN_BATCHES = frozenset({"write.home", "replica.deliver", "owed.settle", "sweep.purge"})


@cache
def _named() -> tuple[frozenset[str], frozenset[str]]:
    """The steps that read and those that write, by name."""
    texts = [path.read_text() for path in sorted(Path(memory.orchestrator.__file__).parent.glob("*.py"))]
    reads, writes = (frozenset(name for text in texts for name in pattern.findall(text)) for pattern in (_READS, _WRITES))
    return reads - OUT_OF_REACH, (writes | _WRITES_TOO) - OUT_OF_REACH


@cache
def named_steps() -> tuple[str, ...]:
    """Every step named anywhere in the engine, in order."""
    reads, writes = _named()
    return tuple(sorted(reads | writes))


def can_meet(step: str, fault: Fault) -> bool:
    """Whether this fault is one of this step's: what writes nothing is not delivered twice, and what is no batch is not cut in two."""
    if fault is Fault.PARTIAL:
        return step in _IN_BATCHES
    return fault not in WRITES_ONLY or step in _named()[1]


def aim_at(step: str, fault: str) -> Aim:
    """What makes this step likely, and this fault possible."""
    aim = _AIMS.get(step) or _AIMS.get(step.partition(".")[0]) or Aim()
    if fault in RESTARTS:
        return replace(aim, layouts=(Layout.CACHE,), share=aim.share + (aim.share + 1) // 2)
    if fault == Fault.PARTIAL:
        return Aim((Kind.BATCH, Kind.BATCH), APART, (USER, WORKSPACE), share=12)
    return aim


@cache
def focuses() -> tuple[tuple[str, str], ...]:
    """Every pair of step and fault, as often as its step's share; seeds are spread over this list."""
    pairs = [(step, fault.value) for fault in Fault for step in named_steps() if can_meet(step, fault)]
    return tuple(pair for pair in pairs for _ in range(aim_at(*pair).share))
