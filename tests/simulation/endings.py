"""Scenes that runs end with: what no drawn operations come to, as several things have
to go wrong in their order.

Each turn brings its own faults. They are played after everything else, in four runs of
ten (`ENDS_WITH_A_SCENE`), in layouts where they can show something.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from memory.domain.scope import Scope
from tests.simulation.faults import Fault
from tests.simulation.scenes import LONG_REST, Kind, Turn
from tests.simulation.workload import SCOPES, Layout

SESSION, USER, WORKSPACE = SCOPES
_K = Kind
_AGES = 300.0
"""Seconds: longer than clocks are apart."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The turns of an ending, the layouts it is for, and the scopes of its entries;
    empty ones are all.
    """

    scene: tuple[Turn, ...]
    layouts: tuple[Layout, ...] = ()
    scopes: tuple[Scope, ...] = ()
    share: int = 1
    """How often it is drawn, of those that fit."""
    setback: bool = False
    """Whether a durable store is set back after it."""


ENDINGS: dict[str, Scene] = {
    # moves
    "relabelled while it is edited": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.UPDATE, meets=True, lure=("update.home", Fault.DELAY))),
            *(
                Turn(_K.MOVE, who=1, meets=True, late=0.006, pick=0),
                Turn(_K.RETRIEVE, pick=4),
                Turn(_K.GET, who=1),
            ),
        ),
        (Layout.ONE, Layout.TOGETHER),
        (SESSION,),
    ),
    "read by way of the cache while it moves": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.MOVE, meets=True, pick=0, lure=("move.relabel", Fault.DELAY))),
            *(Turn(_K.GET, who=1, meets=True, late=0.02), Turn(_K.GET), Turn(_K.GET, who=1)),
            *(
                Turn(_K.WRITE, entry=1),
                Turn(_K.MOVE, entry=1, meets=True, pick=1, lure=("move.release", Fault.DELAY)),
            ),
            *(
                Turn(_K.GET, entry=1, who=1, meets=True, late=0.02),
                Turn(_K.GET, entry=1),
                Turn(_K.GET, entry=1, who=1),
            ),
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    "moved while it is searched for": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.SEARCH, meets=True, pick=4, lure=("read.home", Fault.DELAY)),
                Turn(_K.MOVE, who=1, meets=True, late=0.01),
            ),
            *(Turn(_K.GET), Turn(_K.SEARCH, meets=True, pick=4, lure=("read.home", Fault.DELAY))),
            Turn(_K.MOVE, who=1, meets=True, late=0.01, pick=1),
        ),
        (Layout.THREE, Layout.SHARED, Layout.SPLIT, Layout.FORGETFUL),
        (SESSION,),
    ),
    "moved between two answers to a search": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.SEARCH, meets=True, pick=4, lure=("search", Fault.DELAY))),
            *(Turn(_K.MOVE, who=1, meets=True, late=0.01, pick=0), Turn(_K.GET)),
            *(
                Turn(_K.SEARCH, meets=True, pick=4, lure=("search", Fault.DELAY)),
                Turn(_K.MOVE, who=1, meets=True, late=0.01, pick=1),
            ),
        ),
        (Layout.THREE, Layout.SHARED, Layout.SPLIT, Layout.FORGETFUL),
        (SESSION,),
    ),
    "moved while everything is read": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.EXPORT, meets=True, lure=("browse.everything", Fault.DELAY))),
            *(Turn(_K.MOVE, who=1, meets=True, late=0.01, pick=0), Turn(_K.GET)),
            *(
                Turn(_K.EXPORT, meets=True, lure=("browse.everything", Fault.DELAY)),
                Turn(_K.MOVE, who=1, meets=True, late=0.01, pick=1),
            ),
        ),
        (Layout.THREE, Layout.SHARED, Layout.SPLIT, Layout.FORGETFUL),
        (SESSION,),
    ),
    "few are asked for beside a copy that does not count": Scene(
        (
            *(Turn(kind, entry=entry, pick=2) for entry in range(2) for kind in (_K.WRITE, _K.MOVE)),
            *(
                turn
                for entry in (2, 3)
                for turn in (
                    *(
                        Turn(_K.WRITE, entry=entry),
                        Turn(_K.MOVE, entry=entry, pick=2, lure=("move.release", Fault.ERROR_BEFORE)),
                    ),
                    Turn(_K.DELETE, entry=entry, lure=("delete.elsewhere", Fault.ERROR_BEFORE)),
                )
            ),
            *(Turn(_K.RETRIEVE, pick=2), Turn(_K.RETRIEVE, pick=2, who=1)),
        ),
        (Layout.THREE, Layout.FORGETFUL),
        (SESSION,),
    ),
    "slow to let go of what another has let go of": Scene(
        tuple(
            turn
            for entry in range(3)
            for turn in (
                *(
                    Turn(_K.WRITE, entry=entry),
                    Turn(_K.MOVE, entry=entry, meets=True, pick=0, lure=("move.release", Fault.DELAY)),
                ),
                Turn(
                    _K.MOVE,
                    entry=entry,
                    who=1,
                    meets=True,
                    late=0.003,
                    pick=1,
                    lure=("move.arrive", Fault.ERROR_BEFORE),
                ),
                Turn(_K.GET, entry=entry),
            )
        ),
        (Layout.SHARED,),  # towards another tier of the same store
        (SESSION,),
        share=6,
    ),
    "a write comes once more when it has moved": Scene(
        (
            *(Turn(_K.WRITE, entry=entry, lure=("write.home", Fault.DUPLICATE)) for entry in range(4)),
            *(Turn(_K.MOVE, entry=entry, pick=0) for entry in range(4)),
            *(Turn(_K.SWEEP, rest=1.5), *(Turn(_K.GET, entry=entry) for entry in range(4))),
        ),
        (Layout.THREE, Layout.SHARED, Layout.SPLIT, Layout.FORGETFUL),
        (SESSION,),
    ),
    # expiries
    "an expiry is put off": Scene(
        (
            *(
                Turn(_K.WRITE, expires=60.0),
                Turn(_K.UPDATE, expires=inf),
                Turn(_K.UPDATE, expires=3_000_000.0),
                Turn(_K.PAST, rest=_AGES),
            ),
            *(Turn(_K.KNOWN_AT, who=1), Turn(_K.GET)),
        )
    ),
    "an expiry is brought forward": Scene(
        (
            *(
                Turn(_K.WRITE, expires=inf),
                Turn(_K.UPDATE, expires=30.0),
                Turn(_K.GET),
                Turn(_K.GET, rest=_AGES),
                Turn(_K.RETRIEVE, who=1, pick=4),
            ),
            *(Turn(_K.SEARCH, who=1, pick=4), Turn(_K.UPDATE, who=1), Turn(_K.RELATE), Turn(_K.PAST)),
        )
    ),
    "a copy expires before its original": Scene(
        (
            *(
                Turn(_K.WRITE, expires=inf),
                Turn(_K.PROMOTE),
                Turn(_K.UPDATE, copy=True, expires=20.0, pick=3),
                Turn(_K.PROMOTE_AWAY, rest=_AGES),
            ),
            *(Turn(_K.GET, who=1), Turn(_K.RETRIEVE, who=1, pick=4)),
        ),
        (),
        (SESSION, USER),
    ),
    # derivations
    "promoted again once the copy is retired": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.PROMOTE, pick=1),
                Turn(_K.INVALIDATE, copy=True, pick=0),
                Turn(_K.DELETE, pick=1),
            ),
            *(Turn(_K.PROMOTE, rest=_AGES, pick=1), Turn(_K.PROMOTE, who=1, pick=1)),
        ),
        (),
        (SESSION, USER),
    ),
    "summed up, edited, and its sources still to be deleted": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.COMPACT_AWAY, lure=("delete.home", Fault.ERROR_BEFORE)),
                Turn(_K.UPDATE, made=True),
            ),
            *(
                Turn(_K.GET),
                Turn(_K.WRITE, entry=1),
                Turn(_K.COMPACT_AWAY, entry=1, lure=("delete.home", Fault.ERROR_BEFORE)),
            ),
            Turn(_K.DELETE, made=True),
        )
    ),
    "summed up while its scope is erased": Scene(
        tuple(
            turn
            for entry in range(3)
            for turn in (
                *(
                    Turn(_K.WRITE, entry=entry),
                    Turn(_K.COMPACT, entry=entry, meets=True, lure=("derive.home", Fault.DELAY)),
                ),
                *(
                    Turn(_K.DELETE_SCOPE, entry=entry, who=1, meets=True, late=0.02),
                    Turn(_K.RETRIEVE, entry=entry, pick=4),
                ),
            )
        )
    ),
    # the past
    "the past is asked for while it is owed": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.UPDATE, lure=("version.keep", Fault.ERROR_BEFORE)), Turn(_K.GET)),
            *(Turn(_K.PAST, pick=6), Turn(_K.GET, who=1), Turn(_K.PAST, who=1, pick=6)),
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    "edited while its past is read": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.UPDATE), Turn(_K.PAST, meets=True, lure=("version.read", Fault.DELAY))),
            *(Turn(_K.UPDATE, who=1, meets=True, late=0.006), Turn(_K.GET)),
            *(
                Turn(_K.PAST, meets=True, lure=("version.read", Fault.DELAY)),
                Turn(_K.UPDATE, who=1, meets=True, late=0.006),
            ),
        )
    ),
    # the cache
    "slow to look into the cache": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.GET, meets=True, lure=("cache.look", Fault.DELAY))),
            *(Turn(_K.UPDATE, who=1, meets=True, late=0.006), Turn(_K.GET), Turn(_K.GET, who=1, rest=31.0)),
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    "slow to fill the cache": Scene(
        tuple(
            turn
            for entry in range(3)
            for turn in (
                *(
                    Turn(_K.WRITE, entry=entry),
                    Turn(_K.GET, entry=entry, meets=True, lure=("cache.fill", Fault.DELAY)),
                ),
                *(
                    Turn(_K.UPDATE, entry=entry, who=1, meets=True, late=0.002),
                    Turn(_K.GET, entry=entry),
                    Turn(_K.GET, entry=entry, who=1),
                ),
            )
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    "slow to edit what fills the cache": Scene(
        tuple(
            turn
            for entry in range(3)
            for turn in (
                *(
                    Turn(_K.WRITE, entry=entry),
                    Turn(_K.UPDATE, entry=entry, meets=True, lure=("update.home", Fault.DELAY)),
                ),
                *(
                    Turn(_K.GET, entry=entry, who=1, meets=True, late=0.02),
                    Turn(_K.GET, entry=entry),
                    Turn(_K.GET, entry=entry, who=1),
                ),
            )
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    "edited while the cache is silent": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.GET),
                Turn(_K.UPDATE, who=1, meets=True, lure=("cache.invalidate", Fault.ERROR_BEFORE)),
            ),
            *(Turn(_K.GET, meets=True), Turn(_K.GET, rest=_AGES + 60.0)),
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    "the cache is rolled back to before an edit": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.GET),
                Turn(_K.GET, lure=("cache.look", Fault.ROLLED_BACK)),
                Turn(_K.UPDATE, pick=1),
            ),
            *(
                Turn(_K.GET, lure=("cache.look", Fault.ROLLED_BACK)),
                Turn(_K.GET, lure=("cache.look", Fault.ROLLED_BACK)),
                Turn(_K.GET),
            ),
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    "deleted while the cache is silent": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.GET),
                Turn(_K.DELETE, who=1, pick=1, lure=("cache.invalidate", Fault.ERROR_BEFORE)),
                Turn(_K.GET),
            ),
            *(
                Turn(_K.WRITE, entry=1),
                Turn(_K.GET, entry=1),
                Turn(_K.DELETE, entry=1, pick=1, lure=("cache.invalidate", Fault.TIMEOUT)),
            ),
        ),
        (Layout.CACHE,),
        (SESSION,),
        share=3,
    ),
    # setbacks
    "erased, and a store is set back": Scene(
        (Turn(_K.WRITE), Turn(_K.DELETE_SCOPE), Turn(_K.WRITE, entry=1), Turn(_K.UPDATE, entry=1)),
        (Layout.THREE, Layout.CACHE, Layout.TOGETHER, Layout.SPLIT, Layout.FORGETFUL),
        (USER, WORKSPACE),
        setback=True,
    ),
    # keys
    "revived while a sweeper is frozen": Scene(
        (
            *(Turn(_K.KEYED, pick=1), Turn(_K.DELETE, pick=1, lure=("owed.settle", Fault.ERROR_BEFORE))),
            *(
                Turn(_K.SWEEP, meets=True, rest=40.0, lure=("cache.invalidate", Fault.FROZEN)),
                Turn(_K.KEYED, who=1, meets=True, rest=60.0, pick=1),
            ),
            *(Turn(_K.UPDATE, who=1, pick=1), Turn(_K.GET, who=1)),
        ),
        (Layout.CACHE,),
        (USER, WORKSPACE),
        share=3,
    ),
    "revived where a tier is split": Scene(
        (
            *(
                Turn(_K.KEYED, pick=1),
                Turn(_K.DELETE, pick=1),
                Turn(_K.KEYED, pick=1),
                Turn(_K.KEYED, pick=1),
                Turn(_K.MOVE, pick=2, rest=_AGES),
            ),
            *(
                Turn(_K.MOVE, pick=2, rest=_AGES),
                Turn(_K.GET),
                Turn(_K.RETRIEVE, pick=4),
                Turn(_K.UPDATE, pick=1),
                Turn(_K.MOVE, pick=1),
            ),
            *(Turn(_K.GET), Turn(_K.RETRIEVE, pick=4)),
            Turn(_K.DELETE, pick=1),
        ),
        (Layout.SPLIT,),
        (SESSION,),
        share=6,
    ),
    # sweeps
    "linked, and swept while a store is silent": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.WRITE, entry=1),
                Turn(_K.RELATE, pick=-1),
                Turn(_K.RELATE, entry=1, pick=-2),
            ),
            *(
                Turn(_K.SWEEP, rest=70.0, lure=("read.home of short", Fault.ERROR_BEFORE)),
                Turn(_K.RELATED, pick=4),
            ),
        ),
        (Layout.THREE, Layout.SHARED, Layout.SPLIT, Layout.FORGETFUL),
        (SESSION,),
    ),
    "an arrival is told of once its tombstone is forgotten": Scene(
        (
            *(
                Turn(_K.WRITE),
                Turn(_K.MOVE, pick=1, lure=("move.arrive", Fault.ERROR_BEFORE)),
                Turn(_K.DELETE, pick=1),
            ),
            Turn(_K.SWEEP, rest=LONG_REST, lure=("owed.settle", Fault.ERROR_BEFORE)),
        ),
        (Layout.THREE, Layout.CACHE, Layout.FORGETFUL),
        (USER, WORKSPACE),
    ),
    "a deletion is owed for longer than tombstones live": Scene(
        (
            *(Turn(_K.WRITE), Turn(_K.DELETE, pick=1, lure=("delete.elsewhere", Fault.ERROR_BEFORE))),
            Turn(_K.SWEEP, rest=LONG_REST, lure=("delete.elsewhere", Fault.ERROR_BEFORE)),
        ),
        (Layout.THREE, Layout.CACHE, Layout.SPLIT, Layout.FORGETFUL),
        (USER, WORKSPACE),
    ),
}
"""By name. Mutations name those near which they show."""
