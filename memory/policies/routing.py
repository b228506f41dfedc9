"""Routes of new records, decided by the kind of a record and of its scope.

The kind of a record and of its scope never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope, ScopeKind, is_subtree_text

TIERS = ("short", "mid", "long")
"""The tiers, in the direction in which records move."""


@dataclass(frozen=True, slots=True)
class Route:
    """The tier of a new record's primary store, the tiers with copies, and the reason.

    Copies (`replicas`) serve searches.
    """

    tier: str
    replicas: tuple[str, ...]
    because: str


def route(
    collection: str, home: str | None, scope_kind: ScopeKind | None = None, *, replicated: bool = False
) -> Route:
    """Return the default route.

    `home` is the tier in which all records of a kind start. Without it, a record starts
    in `short` if it belongs to one session, else in `mid`.
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
    """Return the tiers with replicas of a replicated record whose tier is `tier`."""
    return ("long",) if tier == "mid" else ()


def is_later_tier(source: str, target: str) -> bool:
    """Return whether `target` comes after `source`. Entries only move that way."""
    return TIERS.index(target) > TIERS.index(source)


def document_prefixes(scopes: Sequence[str]) -> tuple[str, ...]:
    """Return the texts with which the scopes of a setting begin.

    A path such as `path:cache/` stands for itself and all below it. A kind such as
    `session` stands for all scopes of the kind.

    Raises:
        InvalidInput: A text is neither, or is covered by another one.
    """
    found: dict[str, str] = {}
    for scope in scopes:
        prefix = f"{scope}:" if scope in tuple(ScopeKind) else _path_prefix(scope)
        for earlier, known in found.items():
            if prefix.startswith(earlier) or earlier.startswith(prefix):
                inner, outer = (scope, known) if prefix.startswith(earlier) else (known, scope)
                raise InvalidInput("documents.short", f"{inner[:80]!r} is in {outer[:80]!r} already. Omit it")
        found[prefix] = scope
    return tuple(found)


def _path_prefix(text: str) -> str:
    advice = f"Use a path such as path:cache/, or a kind of scope: {', '.join(ScopeKind)}"
    if is_subtree_text(text):
        advice = f"Omit the **: a path stands for all below it. {advice}"
    try:
        scope = Scope.parse(text)
    except InvalidInput as error:
        raise InvalidInput("documents.short", f"{error.problem}. {advice}") from None
    if scope.kind is not ScopeKind.PATH:
        raise InvalidInput("documents.short", f"{text[:80]!r} is one scope. {advice}")
    return scope.text
