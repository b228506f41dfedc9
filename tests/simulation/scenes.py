"""Scenes: what may happen to a few entries one turn after the other, above all where
two workers meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.simulation.faults import Fault


class Kind(StrEnum):
    WRITE = "write"
    KEYED = "keyed write"
    BATCH = "write batch"
    UPDATE = "update"
    INVALIDATE = "invalidate"
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
    PAST = "history"
    END_SESSION = "end session"
    RELATE = "relate"
    UNRELATE = "unrelate"
    RELATED = "related"
    EXPORT = "read everything"
    DAMAGE = "damage on disk"


LEASE_IS_OVER = 35.0
"""Seconds after which a sweep may begin though the last one never ended."""
REST = 4_000.0
"""Seconds for which everyone rests in some runs: longer than marks live."""
LONG_REST = 32 * 24 * 3600.0
"""The same, longer than tombstones live."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One line of a scene: the worker `who`, of those in it, does something with its
    `entry`, up to `late` seconds after the turn has come.
    """

    kind: Kind
    who: int = 0
    entry: int = 0
    copy: bool = False
    """Is about what was promoted from the entry."""
    meets: bool = False
    """Begins together with the turns beside it that meet."""
    lured: bool = False
    rest: float = 0.0
    late: float = 0.0
    lure: tuple[str, Fault] | None = None
    """A fault of its own, at every call of this step; `lured` is for the one that the
    whole run has.
    """
    pick: int | None = None
    """What the operation draws its details from, where they matter."""
    expires: float | None = None
    """In so many seconds, or never for `inf`: of a write or an update, whose entry's
    expiry is edited.
    """
    made: bool = False
    """Is about what the compaction of the scene made."""


def _met(
    first: Kind, second: Kind, *before: Kind, after: tuple[Kind, ...] = (), late: float = 0.006
) -> tuple[Turn, ...]:
    """Two workers at the same entry at the same moment."""
    start = tuple(
        Turn(kind, entry=max(0, len(before) - n - 1) if kind is Kind.WRITE else 0)
        for n, kind in enumerate(before or (Kind.WRITE,))
    )
    return (
        *start,
        Turn(first, meets=True),
        Turn(second, who=1, meets=True, late=late),
        *(Turn(kind, who=1) for kind in after),
    )


PROMOTED_AGAIN = (
    *(
        Turn(Kind.WRITE),
        Turn(Kind.PROMOTE),
        Turn(Kind.RELATE, copy=True),
        Turn(Kind.PROMOTE),
        Turn(Kind.DELETE, copy=True),
    ),
    *(Turn(Kind.PROMOTE, who=1), Turn(Kind.RELATED, copy=True), Turn(Kind.RETRIEVE)),
)
RETIRED = (
    Turn(Kind.WRITE),
    Turn(Kind.INVALIDATE),
    Turn(Kind.UPDATE, who=1, rest=70.0),
    Turn(Kind.INVALIDATE),
    Turn(Kind.RELATE),
    Turn(Kind.GET),
)
SECOND_LIFE = (
    *(
        Turn(Kind.WRITE),
        Turn(Kind.PROMOTE),
        Turn(Kind.UPDATE, copy=True),
        Turn(Kind.DELETE, copy=True),
        Turn(Kind.PROMOTE, who=1),
    ),
    *(
        Turn(Kind.PAST, copy=True),
        Turn(Kind.KNOWN_AT, copy=True),
        Turn(Kind.UPDATE, copy=True),
        Turn(Kind.DELETE, copy=True, who=1),
    ),
)
"""What was promoted, edited and deleted is promoted once more."""


def races() -> tuple[tuple[Turn, ...], ...]:
    """Every scene in which two workers' writes are decided by what they read before:
    the second must see, or lose to, the first.
    """
    k = Kind
    pairs = [
        (k.UPDATE, k.UPDATE),
        (k.UPDATE, k.DELETE),
        (k.UPDATE, k.MOVE),
        (k.UPDATE, k.INVALIDATE),
        (k.UPDATE, k.PROMOTE_AWAY),
        (k.UPDATE, k.COMPACT_AWAY),
        (k.UPDATE, k.DELETE_SCOPE),
        (k.UPDATE, k.SWEEP),
        (k.MOVE, k.MOVE),
        (k.MOVE, k.DELETE),
        (k.MOVE, k.SWEEP),
        (k.MOVE, k.DELETE_SCOPE),
        (k.PROMOTE, k.PROMOTE),
        (k.PROMOTE, k.DELETE),
        (k.PROMOTE_AWAY, k.PROMOTE_AWAY),
        (k.DELETE_SCOPE, k.PROMOTE_AWAY),
        (k.COMPACT_AWAY, k.DELETE),
        (k.COMPACT_AWAY, k.DELETE_SCOPE),
        (k.COMPACT_AWAY, k.COMPACT_AWAY),
        (k.DELETE_SCOPE, k.BATCH),
        (k.DELETE_SCOPE, k.DELETE_SCOPE),
        (k.DELETE, k.DELETE),
        (k.RELATE, k.DELETE),
        (k.RELATE, k.DELETE_SCOPE),
        (k.RELATE, k.RELATE),
        (k.GET, k.UPDATE),
        (k.GET, k.DELETE),
        (k.SEARCH, k.MOVE),
        (k.RETRIEVE, k.MOVE),
        (k.EXPORT, k.MOVE),
        (k.GET, k.DELETE_SCOPE),
    ]
    ends = {k.UPDATE: (k.PAST, k.GET), k.RELATE: (k.RELATED,), k.COMPACT_AWAY: (k.RETRIEVE,), k.GET: (k.GET,)}
    met = [
        _met(a, b, *((k.WRITE, k.WRITE) if k.RELATE in (a, b) else ()), after=ends.get(a, (k.RETRIEVE,)))
        for a, b in pairs
    ]
    keyed = [
        _met(k.KEYED, other, *before)
        for other in (k.KEYED, k.DELETE, k.DELETE_SCOPE, k.MOVE, k.UPDATE)
        for before in ((k.KEYED,), (k.KEYED, k.MOVE))
    ]
    late = [
        PROMOTED_AGAIN,
        RETIRED,
        (
            Turn(k.WRITE),
            Turn(k.UPDATE),
            Turn(k.DELETE, who=1),
            Turn(k.UPDATE, meets=True),
            Turn(k.RETRIEVE, who=1, meets=True),
        ),
        (
            Turn(k.KEYED, meets=True),
            Turn(k.KEYED, who=1, meets=True, late=0.006),
            Turn(k.DELETE, who=1),
            Turn(k.KEYED),
        ),
        (Turn(k.KEYED), Turn(k.DELETE_SCOPE, who=1), Turn(k.KEYED), Turn(k.KEYED, who=1)),
        (Turn(k.WRITE), Turn(k.PROMOTE), Turn(k.UPDATE), Turn(k.PROMOTE_AWAY), Turn(k.RETRIEVE, who=1)),
        SECOND_LIFE,
        (Turn(k.WRITE), Turn(k.GET), Turn(k.MOVE, who=1), Turn(k.GET)),
        (
            Turn(k.WRITE),
            Turn(k.PROMOTE_AWAY),
            Turn(k.DELETE, copy=True),
            Turn(k.RETRIEVE, who=1),
            Turn(k.RETRIEVE),
        ),
        (
            Turn(k.WRITE),
            Turn(k.PROMOTE_AWAY),
            Turn(k.UPDATE, copy=True, who=1),
            Turn(k.DELETE, copy=True),
            Turn(k.RETRIEVE),
        ),
    ]
    away = [
        _met(k.COMPACT_AWAY, k.UPDATE, after=(k.RETRIEVE,), late=0.04),
        _met(k.PROMOTE_AWAY, k.UPDATE, after=(k.RETRIEVE,), late=0.01),
        _met(k.COMPACT, k.DELETE_SCOPE, after=(k.RETRIEVE,), late=0.02),
        _met(k.MOVE, k.UPDATE, after=(k.PAST,)),
        _met(k.DELETE, k.UPDATE, k.WRITE, k.UPDATE, after=(k.PAST,)),
        _met(k.DELETE, k.RELATE, k.WRITE, k.WRITE, after=(k.RELATED,)),
        _met(k.DELETE, k.MOVE),
    ]
    return tuple(met + keyed + late + away)


RACES = races()
