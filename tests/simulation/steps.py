"""The steps that the engine names, read from its source, and what a run must be like
for a step to be taken: what focus seeds aim at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from pathlib import Path

import memory.orchestrator
from memory.domain.scope import Scope
from memory.orchestrator.storage.outbox import DELIVERIES
from tests.simulation.faults import RESTARTS, WRITES_ONLY, Fault
from tests.simulation.scenes import LONG_REST, PROMOTED_AGAIN, REST, RETIRED, SECOND_LIFE, Kind, Turn
from tests.simulation.workload import SCOPES, Layout

SESSION, USER, WORKSPACE = SCOPES
APART = (Layout.THREE, Layout.THREE, Layout.CACHE)
"""Layouts where mid and long are different stores."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What makes a step likely: a pattern of operations, or a scene.

    `lure` is a fault at another step that leads to it; `share`: how many seeds it gets.
    """

    kinds: tuple[Kind, ...] = ()
    layouts: tuple[Layout, ...] = ()
    scopes: tuple[Scope, ...] = ()
    lure: tuple[str, Fault] | None = None
    share: int = 1
    rests: bool = False
    scene: tuple[Turn, ...] = ()


_K = Kind


def _in_turn(*kinds: Kind) -> tuple[Turn, ...]:
    """One worker, one entry."""
    return tuple(Turn(kind) for kind in kinds)


_MEETING_A_DELETION = (
    Turn(_K.WRITE),
    Turn(_K.MOVE, meets=True, lured=True),
    Turn(_K.DELETE, who=1, meets=True, late=0.006),
)
"""A move is slow to let go of what somebody deletes."""
_MEETING_AN_ERASURE = (
    Turn(_K.WRITE),
    Turn(_K.UPDATE, meets=True, lured=True),
    Turn(_K.DELETE_SCOPE, who=1, meets=True, late=0.006),
)
"""A copy is slow to arrive where somebody erases."""
_MEETING_AN_UPDATE = (
    Turn(_K.WRITE),
    Turn(_K.MOVE, meets=True, lured=True),
    Turn(_K.UPDATE, who=1, meets=True, late=0.006),
    Turn(_K.RETRIEVE),
)
_EDITED_WHILE_ERASED = (
    *(
        Turn(_K.WRITE),
        Turn(_K.DELETE_SCOPE, meets=True),
        Turn(_K.UPDATE, who=1, meets=True, late=0.01),
        Turn(_K.UPDATE, who=1),
    ),
    *(
        Turn(_K.RETRIEVE, who=1),
        Turn(_K.KEYED, entry=1),
        Turn(_K.DELETE_SCOPE),
        Turn(_K.KEYED, entry=1),
        Turn(_K.GET, entry=1),
    ),
)
_TWO_UPDATES = (
    Turn(_K.WRITE),
    Turn(_K.UPDATE, meets=True),
    Turn(_K.UPDATE, who=1, meets=True, lured=True, late=0.006),
)
"""The replica of the second is not delivered, and the first is slow to say that its own
was.
"""
_SUMMED_UP_AND_ERASED = (
    Turn(_K.WRITE),
    Turn(_K.COMPACT_AWAY, meets=True, lured=True),
    Turn(_K.DELETE_SCOPE, who=1, meets=True, late=0.02),
    Turn(_K.RETRIEVE),
)
_SUMMED_UP_AND_EDITED = (
    Turn(_K.WRITE),
    Turn(_K.COMPACT_AWAY, meets=True, lured=True),
    Turn(_K.UPDATE, who=1, meets=True, late=0.04),
    Turn(_K.GET),
)
_PROMOTED_AND_EDITED = (
    Turn(_K.WRITE),
    Turn(_K.PROMOTE),
    Turn(_K.UPDATE, who=1),
    Turn(_K.PROMOTE_AWAY),
    Turn(_K.GET, copy=True),
    Turn(_K.RETRIEVE),
)
_WRITTEN_TWICE = (Turn(_K.WRITE, lured=True), Turn(_K.MOVE), Turn(_K.SWEEP, who=1, rest=2.0), Turn(_K.GET))
_TWO_MOVERS = (
    Turn(_K.WRITE),
    Turn(_K.MOVE, meets=True),
    Turn(_K.MOVE, who=1, meets=True, late=0.006),
    Turn(_K.RETRIEVE),
)
_TWO_MOVERS_AND_A_SLOW_ONE = (
    *(
        Turn(_K.WRITE),
        Turn(_K.MOVE, meets=True, lured=True),
        Turn(_K.MOVE, who=1, meets=True, late=0.006),
        Turn(_K.GET),
        Turn(_K.RETRIEVE),
    ),
)
"""One is slow to let go; the other lets go before it, perhaps towards another tier of
the same store, and does not tell its copy.
"""
_WRITTEN_AFTER_AN_ERASURE = (
    *(
        Turn(_K.WRITE),
        Turn(_K.DELETE_SCOPE, lured=True),
        Turn(_K.WRITE, entry=1),
        Turn(_K.RELATE, entry=1, who=1),
    ),
    *(Turn(_K.UPDATE, entry=1), Turn(_K.MOVE, entry=1), Turn(_K.PAST, entry=1), Turn(_K.GET, entry=1)),
)
_TWO_MOVERS_AND_A_CHANGE = (
    *(
        Turn(_K.WRITE),
        Turn(_K.MOVE, lured=True),
        Turn(_K.MOVE, who=1),
        Turn(_K.UPDATE, who=1),
        Turn(_K.GET),
        Turn(_K.SWEEP, rest=2.0),
    ),
)
"""One of them is cut off, and perhaps was on the way to another tier."""
_ERASED_FROM_A_CACHE = (
    Turn(_K.WRITE),
    Turn(_K.GET),
    Turn(_K.DELETE_SCOPE, who=1),
    Turn(_K.GET),
    Turn(_K.GET, who=1),
)
_HALF_MOVED = (
    Turn(_K.WRITE),
    Turn(_K.MOVE),
    Turn(_K.MOVE, lured=True),
    Turn(_K.SWEEP, who=1, rest=2.0),
    Turn(_K.GET),
)
_THREE_MOVED = tuple(Turn(kind, entry=entry) for entry in range(3) for kind in (_K.WRITE, _K.MOVE))
"""Leaves three marks, or three stamps in a cache."""
_RELATED = (*(Turn(_K.WRITE, entry=entry) for entry in range(3)), *(Turn(_K.RELATE),) * 4, Turn(_K.DELETE))
_EDITED_TWICE = (
    *_in_turn(_K.WRITE, _K.UPDATE, _K.UPDATE, _K.PAST, _K.KNOWN_AT),
    *(Turn(_K.UPDATE, meets=True), Turn(_K.DELETE_SCOPE, who=1, meets=True, late=0.006)),
)
_KEPT_LATE = (
    *_in_turn(_K.WRITE, _K.UPDATE),
    Turn(_K.UPDATE, meets=True, lured=True),
    Turn(_K.DELETE, who=1, meets=True, late=0.01),
)
"""The versions before two edits are slow to be kept, and the entry is deleted
meanwhile.
"""
_ERASED_HALF_MOVED = (*_in_turn(_K.WRITE, _K.MOVE), Turn(_K.DELETE_SCOPE, who=1), Turn(_K.RETRIEVE))
_FILLED_WHILE_DELETED = (
    Turn(_K.WRITE),
    Turn(_K.DELETE, meets=True, lured=True),
    Turn(_K.GET, who=1, meets=True, late=0.02),
    Turn(_K.GET),
)
"""A reader looks, reads home and fills the cache while a deletion is on its way."""
_FOUND_BY_AN_OLD_REPLICA = tuple(
    turn
    for entry, change in enumerate((_K.UPDATE, _K.INVALIDATE))
    for turn in (
        *(Turn(_K.WRITE, entry=entry), Turn(change, entry=entry, lured=True)),
        *(Turn(_K.SEARCH, entry=entry, who=1), Turn(_K.SEARCH, entry=entry)),
    )
)
"""What was edited or retired is searched for before its replica is told."""
_DAMAGED = _in_turn(_K.WRITE, _K.UPDATE, _K.DAMAGE, _K.DELETE)
_FILLED_LATE = (
    Turn(_K.WRITE),
    Turn(_K.GET, meets=True),
    Turn(_K.UPDATE, who=1, meets=True, late=0.006),
    Turn(_K.GET),
)
"""A reader is slow to fill a cache with what somebody updates."""
_FILLED_WITH_WHAT_IS_REPLACED = (
    *(
        Turn(_K.WRITE),
        Turn(_K.UPDATE, meets=True, lured=True),
        Turn(_K.GET, who=1, meets=True, late=0.02),
        Turn(_K.GET),
        Turn(_K.GET, who=1),
    ),
)
"""A reader looks, reads home and fills while the writer's change is on its way."""
_FROZEN_IN_A_KEYED_WRITE = (
    Turn(_K.KEYED, meets=True, lured=True),
    Turn(_K.KEYED, who=1, meets=True, late=0.05),
    Turn(_K.MOVE, who=1),
    Turn(_K.SWEEP, who=1, rest=REST),
)
"""While one worker is frozen between looking and writing, what the other wrote under
the same key moves on, and marks are forgotten.
"""
_FROZEN_IN_A_PROMOTION = (
    Turn(_K.WRITE),
    Turn(_K.PROMOTE, meets=True, lured=True),
    Turn(_K.PROMOTE, who=1, meets=True, late=0.05),
    *(Turn(_K.MOVE, who=1),) * 2,
    Turn(_K.SWEEP, who=1, rest=REST),
)
_DAY = 24 * 3600.0
_KEYED_AFTER_ALL_IS_FORGOTTEN = (
    *(Turn(_K.KEYED, entry=1), Turn(_K.MOVE, entry=1), Turn(_K.DELETE, entry=1, rest=20 * _DAY)),
    *(Turn(_K.SWEEP, rest=11 * _DAY), Turn(_K.KEYED, entry=1), Turn(_K.GET, entry=1)),
    *_in_turn(_K.KEYED, _K.UPDATE, _K.MOVE),
    Turn(_K.SWEEP, rest=LONG_REST),
    *_in_turn(_K.KEYED, _K.GET, _K.DELETE, _K.KEYED, _K.GET),
)
_BORN_AGAIN = _in_turn(_K.KEYED, _K.UPDATE, _K.DELETE, *(_K.KEYED,) * 4, _K.GET)
_THREE = tuple(Turn(_K.WRITE, entry=entry) for entry in range(3))
_ENDED_BY_TWO = (
    *_THREE,
    Turn(_K.END_SESSION, meets=True, lured=True),
    Turn(_K.END_SESSION, who=1, meets=True, late=0.006),
    Turn(_K.RETRIEVE),
)
_ENDED_WHILE_EDITED = (
    *(
        *_THREE,
        Turn(_K.END_SESSION, meets=True, lured=True),
        Turn(_K.UPDATE, who=1, entry=1, meets=True, late=0.006),
    ),
    *(Turn(_K.DELETE, who=1, entry=2), Turn(_K.RETRIEVE), Turn(_K.GET, entry=1)),
)
_ENDED_TWICE = (*_THREE, Turn(_K.END_SESSION), Turn(_K.END_SESSION, who=1, rest=1.0), Turn(_K.RETRIEVE))
"""Several move together: two movers, one and those who change what it moves, and what
finds its replicas in the target.
"""
_KEPT_TOGETHER = (Turn(_K.WRITE), *(Turn(_K.UPDATE, lured=True),) * 2, *(Turn(_K.UPDATE),) * 2, Turn(_K.PAST))
"""The archive has not taken two versions when the next edit comes."""
_DELETED_TOGETHER = (
    *_THREE,
    *(Turn(_K.DELETE, entry=entry, lured=True) for entry in range(3)),
    Turn(_K.SWEEP, rest=60.0),
    Turn(_K.RETRIEVE),
)
_MOVE = Aim((_K.MOVE, _K.UPDATE), APART, (SESSION, USER), share=4)
_AIMS = {
    "move": _MOVE,
    "move.release": Aim((), APART, (SESSION, USER), share=4, scene=_MEETING_AN_UPDATE),
    "move.verify": Aim((), APART, (SESSION, USER), share=4, scene=_MEETING_AN_UPDATE),
    "owed.settle": Aim(
        (), APART, (USER, WORKSPACE), ("replica.deliver", Fault.ERROR_BEFORE), share=4, scene=_TWO_UPDATES
    ),
    "derive.home": Aim(
        (), share=6, scene=(*_SUMMED_UP_AND_ERASED, *(replace(turn, entry=1) for turn in PROMOTED_AGAIN))
    ),
    "update.home": Aim(
        (_K.UPDATE, _K.MOVE, _K.UPDATE, _K.DELETE),
        share=4,
        scene=(*RETIRED, *(replace(turn, entry=1) for turn in _TWO_UPDATES), Turn(_K.PAST, entry=1)),
    ),
    "move.adopt": Aim((_K.MOVE,), APART, (USER, WORKSPACE), share=4),
    "move.arrive": Aim(
        (), APART, (USER, WORKSPACE), share=4, scene=(*_in_turn(_K.WRITE, _K.MOVE), Turn(_K.UPDATE, who=1))
    ),
    "move.relabel": Aim(
        (), (Layout.ONE, Layout.SHARED), (SESSION,), share=5, scene=_in_turn(_K.WRITE, _K.MOVE, _K.MOVE)
    ),
    "move.abort": Aim(
        (),
        (Layout.THREE,),
        (USER, WORKSPACE, SESSION),
        ("move.release", Fault.DELAY),
        share=11,
        scene=_MEETING_A_DELETION,
    ),
    "browse.marks": Aim(
        (_K.MOVE, _K.RETRIEVE), APART, (SESSION, USER), ("move.arrive", Fault.ERROR_BEFORE), share=4
    ),
    "sweep.source": Aim(
        (),
        (Layout.THREE, Layout.SPLIT),
        (SESSION, SESSION, USER),
        ("move.release", Fault.ERROR_BEFORE),
        share=12,
        scene=_HALF_MOVED,
    ),
    "sweep.due": Aim(
        (),
        (Layout.THREE, Layout.SPLIT, Layout.SHARED),
        (SESSION, SESSION, USER),
        ("move.release", Fault.ERROR_BEFORE),
        share=6,
        scene=_TWO_MOVERS_AND_A_CHANGE,
    ),
    "sweep.cache": Aim((_K.GET, _K.SWEEP), (Layout.CACHE,), (SESSION,), share=4),
    "sweep.purge": Aim((), APART, (SESSION,), share=7, scene=(*_THREE_MOVED, Turn(_K.SWEEP, rest=REST))),
    "sweep": Aim((_K.SWEEP,)),
    "owed": Aim(
        (_K.UPDATE, _K.UPDATE), APART, (USER, WORKSPACE), ("replica.deliver", Fault.ERROR_BEFORE), share=3
    ),
    "replica": Aim((_K.UPDATE, _K.UPDATE), APART, (USER, WORKSPACE), share=2),
    "version": Aim((_K.UPDATE, _K.DELETE), share=6),
    "hanging": Aim(share=6, scene=(*_in_turn(_K.WRITE, _K.UPDATE, _K.UPDATE), Turn(_K.DELETE, who=1))),
    "version.read": Aim(
        share=5, scene=(*_in_turn(_K.KEYED, _K.UPDATE, _K.KNOWN_AT), Turn(_K.KEYED, who=1), Turn(_K.KEYED))
    ),
    "version.owed": Aim((_K.UPDATE, _K.KNOWN_AT), share=5),
    "delete.unreadable": Aim(share=9, scene=_DAMAGED),
    "hanging.find": Aim(share=5, scene=_DAMAGED),
    "delete": Aim((_K.DELETE,), (Layout.THREE, Layout.SHARED), share=2),
    "erase": Aim(
        (_K.UPDATE, _K.DELETE_SCOPE), APART, (USER, WORKSPACE), ("replica.deliver", Fault.DELAY), share=4
    ),
    "erase.delete": Aim((), share=5, scene=_EDITED_WHILE_ERASED),
    "erase.raise": Aim(
        (), APART, (USER, WORKSPACE), ("replica.deliver", Fault.DELAY), share=4, scene=_MEETING_AN_ERASURE
    ),
    "erase.count": Aim(
        (), APART, share=6, lure=("move.arrive", Fault.ERROR_BEFORE), scene=_ERASED_HALF_MOVED
    ),
    "erase.end": Aim(share=7, scene=_in_turn(_K.WRITE, _K.DELETE_SCOPE)),
    "generation": Aim(share=3, scene=_WRITTEN_AFTER_AN_ERASURE),
    "relate": Aim((_K.RELATE,), share=3),
    "relation": Aim((_K.DELETE, _K.SWEEP), share=3),
    "relation.list": Aim((_K.RELATE, _K.RELATED), share=4),
    "relation.sweep": Aim((_K.RELATE, _K.SWEEP), share=10),
    "hanging.erase": Aim(share=12, scene=_RELATED),
    "cache.invalidate": Aim((_K.GET, _K.INVALIDATE, _K.GET), (Layout.CACHE,), (SESSION,), share=2),
    "cache.look": Aim((), (Layout.CACHE,), (SESSION,), share=4, scene=_ERASED_FROM_A_CACHE),
    "cache": Aim((_K.GET, _K.UPDATE), (Layout.CACHE,), (SESSION,), share=2),
    "cache.fill": Aim((), (Layout.CACHE,), (SESSION,), share=6, scene=_FILLED_LATE),
    "write": Aim((_K.KEYED, _K.BATCH)),
    "write.revive": Aim(share=6, scene=_BORN_AGAIN),
    "life": Aim(share=6, scene=_BORN_AGAIN),
    "embedder.check": Aim((), (Layout.THREE,), scene=_KEYED_AFTER_ALL_IS_FORGOTTEN),
    "hanging.walk": Aim(share=6, scene=SECOND_LIFE),
    "version.keep": Aim(
        (), (Layout.THREE, Layout.CACHE, Layout.SPLIT), (SESSION, SESSION, USER), share=5, scene=_EDITED_TWICE
    ),
    "delete.home": Aim(
        (),
        share=5,
        scene=(*_SUMMED_UP_AND_EDITED, *(replace(turn, entry=1) for turn in _PROMOTED_AND_EDITED)),
    ),
    "promotion": Aim((_K.SWEEP,), share=5),
    "lease": Aim(
        (_K.UPDATE, _K.SWEEP), APART, (USER, WORKSPACE), ("replica.deliver", Fault.ERROR_BEFORE), share=6
    ),
    "sweep.owed": Aim(
        (_K.UPDATE, _K.SWEEP), APART, (USER, WORKSPACE), ("replica.deliver", Fault.ERROR_BEFORE), share=6
    ),
    "search": Aim(
        (),
        APART,
        (USER, WORKSPACE),
        ("replica.deliver", Fault.ERROR_BEFORE),
        share=4,
        scene=_FOUND_BY_AN_OLD_REPLICA,
    ),
    "browse": Aim((_K.RETRIEVE,)),
    "browse.everything": Aim((_K.EXPORT,), share=3),
    "delete.elsewhere": Aim(
        (_K.MOVE, _K.DELETE, _K.RETRIEVE),
        (Layout.THREE,),
        (SESSION, USER),
        ("move.release", Fault.ERROR_BEFORE),
        share=4,
    ),
    "embedder.note": Aim(share=4),
    "read": Aim((_K.GET, _K.UPDATE)),
}


_AIMS_AT_PAIRS = {
    ("write.home", Fault.FROZEN): Aim(
        (), (Layout.THREE,), (), ("write.home", Fault.FROZEN), share=8, scene=_FROZEN_IN_A_KEYED_WRITE
    ),
    ("write.home", Fault.DUPLICATE): Aim(
        (), (Layout.THREE,), (), ("write.home", Fault.DUPLICATE), share=8, scene=_WRITTEN_TWICE
    ),
    ("erase.delete", Fault.DUPLICATE): Aim(
        (), (), (), ("erase.delete", Fault.DUPLICATE), share=8, scene=_WRITTEN_AFTER_AN_ERASURE
    ),
    ("cache.fill", Fault.DELAY): Aim(
        (),
        (Layout.CACHE,),
        (SESSION,),
        ("update.home", Fault.DELAY),
        share=8,
        scene=_FILLED_WITH_WHAT_IS_REPLACED,
    ),
    ("cache.fill", Fault.REORDER): Aim(
        (), (Layout.CACHE,), (SESSION,), ("delete.home", Fault.DELAY), share=8, scene=_FILLED_WHILE_DELETED
    ),
    ("version.keep", Fault.DELAY): Aim(
        (), APART, (USER, WORKSPACE), ("version.keep", Fault.DELAY), share=8, scene=_KEPT_LATE
    ),
    ("move.relabel", Fault.DELAY): Aim(
        (),
        (Layout.ONE, Layout.SHARED),
        (SESSION,),
        ("move.relabel", Fault.DELAY),
        share=8,
        scene=_TWO_MOVERS_AND_A_SLOW_ONE,
    ),
    ("move.arrive", Fault.ERROR_BEFORE): Aim(
        (),
        (Layout.SHARED,),
        (SESSION,),
        ("move.release", Fault.DELAY),
        share=4,
        scene=_TWO_MOVERS_AND_A_SLOW_ONE,
    ),
    ("move.arrive", Fault.DELAY): Aim((), (Layout.SHARED,), (SESSION,), share=8, scene=_TWO_MOVERS),
    ("derive.home", Fault.FROZEN): Aim(
        (),
        (Layout.THREE,),
        (WORKSPACE,),
        ("derive.home", Fault.FROZEN),
        share=8,
        scene=_FROZEN_IN_A_PROMOTION,
    ),
}
"""What is aimed at one fault at the step, and takes a scene of its own; the step's
other faults are aimed at as `_AIMS` says.
"""

_DONE_TOGETHER = {
    "move.adopt": Aim((), APART, (SESSION,), share=12, scene=_ENDED_TWICE),
    "move.relabel": Aim((), (Layout.ONE, Layout.SHARED), (SESSION,), share=12, scene=_ENDED_BY_TWO),
    "cache.invalidate": Aim((), (Layout.CACHE,), (SESSION,), share=12, scene=_ENDED_WHILE_EDITED),
    "version.keep": Aim(
        (), APART, (SESSION,), ("version.keep", Fault.ERROR_BEFORE), share=12, scene=_KEPT_TOGETHER
    ),
    "delete.elsewhere": Aim(
        (),
        APART,
        (SESSION, USER),
        ("delete.elsewhere", Fault.ERROR_BEFORE),
        share=12,
        scene=_DELETED_TOGETHER,
    ),
    "move.copy": Aim((), (Layout.THREE, Layout.SPLIT), (SESSION,), share=12, scene=_ENDED_WHILE_EDITED),
    "move.release": Aim((), (Layout.THREE, Layout.SPLIT), (SESSION,), share=12, scene=_ENDED_BY_TWO),
    "move.arrive": Aim((), (Layout.THREE, Layout.SPLIT), (SESSION,), share=12, scene=_ENDED_BY_TWO),
}
"""What is aimed at a step that is cut in two."""

_MAKES_BATCHES = frozenset({"hanging.erase", "sweep.purge"})
"""Steps whose own aim has several records in one write; others have batches of entries."""

RARE = frozenset(
    """
    browse.everything browse.marks cache.fill cache.look delete.elsewhere delete.home delete.unreadable derive.home
    erase.begin erase.count erase.end erase.raise erase.read lease.read lease.return lease.take life.tombstones
    move.abort move.adopt move.arrive move.copy move.relabel move.release move.verify promotion.scan
    hanging.erase hanging.find hanging.walk relate.home relation.list relation.sweep search sweep.cache sweep.owed sweep.source
    version.keep version.owed version.read write.revive
    """.split()
)
"""Steps that few operations take, so that faults strike there more readily in every
run.
"""

_READS = re.compile(
    r"""(?:\bstep|\bread(?:_one|_by_key)?|\bevents_where|\bpages?|\bpartitions|\bslice)\(\s*"([a-z_]+(?:\.[a-z_]+)?)\""""
)
_WRITES = re.compile(r"""(?:\bwrite|\bwrite_one|\bend_operation)\(\s*"([a-z_]+(?:\.[a-z_]+)?)\"""")
_WRITES_TOO = frozenset({"erase.delete", "cache.invalidate", "partition.forget", *DELIVERIES.values()})
_IN_BATCHES = re.compile(r"""\bwrite\(\s*"([a-z_]+(?:\.[a-z_]+)?)",[^()]*,\s*\*[^=]*?\)$""", re.MULTILINE)
"""Several writes in one call. Those made `together` are not cut in two: the store
promises all or none.
"""


CONVERSATIONS = "conversations"
"""The folder of the engine whose steps are those of sessions: runs of their own take
them (`tests.simulation.sessions`).
"""
NOT_PLAYED = frozenset(
    {
        "artifacts",
        "claims",
        "copies",
        "messages",
        "passages",
        "log.first",
        "log.made",
        "log.restore",
        "session.restore",
    }
)
"""Of their steps: large texts, tasks, copies of windows (which have runs of their own),
what is found by words and by meaning, what is read of a session's beginning once in its
life, imports.
"""
BESIDE = frozenset(
    """
    forms.read forms.written supersede.home distrust.read distrust.put take_back.begin take_back.end take_back.find
    number.read number.find number.count number.reserve number.put referrers.find referrers.clear
    tenant.begin tenant.scopes tenant.changed tenant.end end.owed end.settle end.note end.over end.answers
    document.apply document.confirm document.count document.delete document.list document.put document.read
    document.drop document.refresh entry.refresh request.begin request.end request.find request.forget scopes.count scopes.list
    """.split()
)
"""Steps of the engine that no run is aimed at: histories of their own are,
`tests/unit/orchestrator/test_forms.py`, `test_trust.py`, `test_numbers.py`,
`test_tenants.py` and `test_endings.py` there, and `test_manifests.py` of conversations;
or runs of their own, `tests.simulation.superseding`, `uploading`, `erasing`, `keeping`
and `rules`. Calls with request ids are cut off in `acceptance/test_cut_off_requests.py`.
"""
_ERASES = ("erase.begin", "erase.raise", "erase.delete", "erase.end", "owed.settle")
"""Steps of the engine's that end a session, or what it owes."""


_OF_SESSIONS = frozenset({"message_search", "message_candidates", "session_import", "artifact_import"})
"""Modules that read and write sessions from other packages."""
_OF_ENTRIES = frozenset({"artifact_references"})
"""Modules of conversations that change entries."""


@cache
def _sources(folder: str) -> tuple[str, ...]:
    engine = Path(memory.orchestrator.__file__).parent
    return tuple(
        path.read_text()
        for path in sorted(engine.rglob("*.py"))
        if _is_of_sessions(path.relative_to(engine)) == (folder == CONVERSATIONS)
    )


def _is_of_sessions(path: Path) -> bool:
    """Whether runs of sessions are aimed at the steps of this module."""
    return (CONVERSATIONS in path.parts or path.stem in _OF_SESSIONS) and path.stem not in _OF_ENTRIES


@cache
def _named(folder: str) -> tuple[frozenset[str], frozenset[str]]:
    """The steps that read and those that write, by name."""
    reads, writes = (
        frozenset(name for text in _sources(folder) for name in pattern.findall(text))
        for pattern in (_READS, _WRITES)
    )
    return reads, writes


@cache
def _writes() -> frozenset[str]:
    return _named("")[1] | _named(CONVERSATIONS)[1] | _WRITES_TOO


@cache
def _in_batches() -> frozenset[str]:
    return frozenset(name for text in _sources("") for name in _IN_BATCHES.findall(text)) | {
        "cache.invalidate",
        *DELIVERIES.values(),
    }


@cache
def named_steps() -> tuple[str, ...]:
    """Every step named anywhere in the engine beside conversations, in order; but for
    those of searches behind them.
    """
    return tuple(sorted(frozenset.union(*_named(""), _WRITES_TOO) - BESIDE))


@cache
def session_steps() -> tuple[str, ...]:
    """Every step that a run of sessions is aimed at, in order."""
    named = frozenset.union(*_named(CONVERSATIONS))
    return tuple(
        sorted([*(step for step in named if not {step, step.partition(".")[0]} & NOT_PLAYED), *_ERASES])
    )


@cache
def session_pairs() -> tuple[tuple[str, Fault], ...]:
    """Every step of sessions and fault that can meet."""
    return tuple((step, fault) for step in session_steps() for fault in Fault if can_meet(step, fault))


def can_meet(step: str, fault: Fault) -> bool:
    """Whether this fault is one of this step's: what writes nothing is not delivered
    twice, and what is no batch is not cut in two.
    """
    if fault is Fault.PARTIAL:
        return step in _in_batches()
    return fault not in WRITES_ONLY or step in _writes()


def aim_at(step: str, fault: str) -> Aim:
    """What makes this step likely, and this fault possible."""
    aim = (
        _AIMS_AT_PAIRS.get((step, Fault(fault)))
        or _AIMS.get(step)
        or _AIMS.get(step.partition(".")[0])
        or Aim()
    )
    if fault in RESTARTS:
        return replace(aim, layouts=(Layout.CACHE,), share=aim.share + (aim.share + 1) // 2)
    if fault == Fault.PARTIAL and step in _DONE_TOGETHER:
        return _DONE_TOGETHER[step]
    if fault == Fault.PARTIAL and step in _MAKES_BATCHES:
        return replace(aim, share=3 * aim.share)
    if fault == Fault.PARTIAL:
        return Aim((Kind.BATCH, Kind.BATCH), APART, (USER, WORKSPACE), share=12)
    return aim


@cache
def declared_pairs() -> frozenset[tuple[str, Fault]]:
    """Every step and fault that can meet: what a full run must have hit often enough."""
    return frozenset((step, fault) for fault in Fault for step in named_steps() if can_meet(step, fault))


@cache
def focuses() -> tuple[tuple[str, str], ...]:
    """Every pair of step and fault, as often as its step's share; seeds are spread over
    this list.
    """
    pairs = [
        (step, fault.value) for fault in Fault for step in named_steps() if (step, fault) in declared_pairs()
    ]
    return tuple(pair for pair in pairs for _ in range(aim_at(*pair).share))


def focus_of(seed: int) -> tuple[str, str]:
    """What this seed is about: seeds in a row are about all there is, each as often as
    its share, in mixed order.
    """
    every = focuses()
    return every[seed * stride(len(every)) % len(every)]


@cache
def stride(length: int) -> int:
    """The steps in which to go round so many things that any stretch of them is come by
    as regularly as can be.

    That is told by the quotients of Euclid's algorithm: a large one means that all of a
    stretch is met in one go, and then for long nothing of it.
    """
    return min(
        (n for n in range(length // 2 + 1, length) if gcd(n, length) == 1),
        key=lambda n: max(_quotients(length, n)),
    )


def _quotients(a: int, b: int) -> Iterator[int]:
    while b:
        yield a // b
        a, b = b, a % b
