"""Where a record is born and what is replicated: decided by what never changes (collection and scope kind)."""

from __future__ import annotations

from dataclasses import dataclass

from memory.domain.scope import ScopeKind

TIERS = ("short", "mid", "long")
"""The tiers, in the direction records move."""


@dataclass(frozen=True, slots=True)
class Route:
    """The tier that is a new record's home, the tiers that get a whole copy for searching, and why."""

    tier: str
    replicas: tuple[str, ...]
    because: str


def route(collection: str, scope_kind: ScopeKind | None = None) -> Route:
    """The default routes: what belongs to one session starts in `short`; everything else in `mid`, found by meaning through `long`."""
    if collection == "entries" and scope_kind is ScopeKind.SESSION:
        return Route("short", (), "entries of one session are short-term until a promotion rule moves them on")
    if collection == "entries":
        return Route("mid", ("long",), f"{scope_kind} entries outlive their session; a replica in 'long' serves search")
    return Route("mid", (), f"{collection.replace('_', ' ')} are kept in the durable middle tier")


def replicas_of(collection: str, tier: str) -> tuple[str, ...]:
    """The tiers that hold replicas of a record of this collection while `tier` is its home."""
    return ("long",) if collection == "entries" and tier == "mid" else ()


def is_onward(source: str, target: str) -> bool:
    """Moves go onward only."""
    return TIERS.index(target) > TIERS.index(source)
