"""Where a record is born and what is replicated: decided by what never changes (its
kind and the kind of its scope).
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.domain.scope import ScopeKind

TIERS = ("short", "mid", "long")
"""The tiers, in the direction records move."""


@dataclass(frozen=True, slots=True)
class Route:
    """The tier that is a new record's home, the tiers that get a whole copy for
    searching, and why.
    """

    tier: str
    replicas: tuple[str, ...]
    because: str


def route(
    collection: str, home: str | None, scope_kind: ScopeKind | None = None, *, replicated: bool = False
) -> Route:
    """The default routes: what has no `home` tier of its own starts in `short` where it
    belongs to one session, everything else in `mid`.
    """
    records = collection.replace("_", " ")
    tier = home or ("short" if scope_kind is ScopeKind.SESSION else "mid")
    copies = replicas_of(tier) if replicated else ()
    if home is not None:
        because = f"{records} are kept in " + (
            "the durable middle tier" if home == "mid" else f"tier '{home}'"
        )
    elif tier == "short":
        because = f"{records} of one session are short-term until a promotion rule moves them on"
    else:
        because = f"{scope_kind} {records} outlive their session"
    return Route(tier, copies, because + "".join(f"; a replica in '{copy}' serves search" for copy in copies))


def replicas_of(tier: str) -> tuple[str, ...]:
    """The tiers that hold replicas of a record that is replicated, while `tier` is its
    home.
    """
    return ("long",) if tier == "mid" else ()


def is_later_tier(source: str, target: str) -> bool:
    """Whether `target` comes after `source`: entries move to later tiers only."""
    return TIERS.index(target) > TIERS.index(source)
