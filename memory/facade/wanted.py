"""What a search may find, and what it prefers: as callers say it, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypedDict, get_args

from memory.domain import door
from memory.domain.entry import EntryType
from memory.domain.errors import InvalidInput
from memory.facade.arguments import Moment, check_names, flag, real
from memory.policies.asked import Scalar, SearchMode
from memory.policies.ranking.preferences import Preferences

DAY = timedelta(days=1)


class Only(TypedDict, total=False):
    """What a search may find at all: entries that everything named here lets through. A
    plain `dict` will do.
    """

    types: Sequence[EntryType | str] | None
    """Of any of these types."""
    tags: Sequence[str] | None
    """With all of these tags."""
    any_tags: Sequence[str] | None
    """With any of these tags."""
    metadata: Mapping[str, Scalar] | None
    """Whose metadata have each of these keys with exactly its value. Stores have no
    index of them: what answers is read until enough is found.
    """
    since: Moment | None
    """Created at or after this moment."""
    before: Moment | None
    """Created before this moment."""


class SearchOptions(TypedDict, total=False):
    """What `search` takes besides the question, the scope and whether messages are
    asked for.
    """

    limit: int | None
    mode: Literal["hybrid", "lexical", "semantic"]
    types: Sequence[EntryType | str] | None
    tags: Sequence[str] | None
    only: Only | None
    min_relevance: float | None
    since: Moment | None
    include_narrower: bool
    session_id: str | None
    as_of: Moment | None
    known_at: Moment | None
    conversation_id: str | None
    intent: bool
    age_decay: bool
    half_life: timedelta | float | None
    decay_floor: float | None
    explain: bool
    expand: bool
    rerank: bool | Literal["two-stage"]


def only_of(given: Only | None) -> Only:
    """What was given, of which every name is known; the values are still to be checked."""
    if given is None:
        return {}
    check_names("only", given, Only.__annotations__, "{'types': ['user']}")
    return given


def tags_of(field: str, given: Sequence[str] | None) -> tuple[str, ...]:
    return (
        () if given is None else tuple(door.tags(door.sequence(field, given, at_most=door.MAX_LIMIT), field))
    )


def types_of(field: str, given: Sequence[EntryType | str] | None) -> tuple[str, ...]:
    return (
        ()
        if given is None
        else tuple(
            door.one_of(field, one, EntryType) for one in door.sequence(field, given, at_most=door.MAX_LIMIT)
        )
    )


def metadata_of(field: str, given: Mapping[str, Scalar] | None) -> tuple[tuple[str, Scalar], ...]:
    checked = {} if given is None else door.json_object(field, given)
    for name, value in checked.items():
        if isinstance(value, dict | list):
            raise InvalidInput(
                f"{field}.{name}",
                "must be text, a number, a truth value or None: what is nested is not compared",
            )
    return tuple(checked.items())


def preferences(
    *,
    types: Sequence[EntryType | str] | None,
    tags: Sequence[str] | None,
    conversation_id: str | None,
    intent: bool,
    age_decay: bool,
    half_life: timedelta | float | None,
    decay_floor: float | None,
) -> Preferences:
    """What is to come first. How a memory ages is told only where age counts."""
    ages = flag("age_decay", age_decay)
    for name, given in (("half_life", half_life), ("decay_floor", decay_floor)):
        if given is not None and not ages:
            raise InvalidInput(name, "means nothing without age_decay")
    usual = Preferences()
    return Preferences(
        types=types_of("types", types),
        tags=tags_of("tags", tags),
        conversation_id=None
        if conversation_id is None
        else door.identifier("conversation_id", conversation_id),
        intent=flag("intent", intent),
        age_decay=ages,
        half_life=usual.half_life if half_life is None else _days("half_life", half_life),
        floor=usual.floor if decay_floor is None else _floor("decay_floor", decay_floor),
    )


def search_mode(value: object) -> SearchMode:
    """Return a checked `mode`."""
    return door.one_of("mode", value, get_args(SearchMode))  # type: ignore[return-value]


def least_relevance(value: object) -> float | None:
    """Return a checked `min_relevance`. None means that no threshold is set."""
    if value is None:
        return None
    least = real("min_relevance", value)
    if not 0 <= least <= 1:
        raise InvalidInput("min_relevance", f"must be 0..1, not {least:g}")
    return least


def _days(field: str, value: timedelta | float) -> float:
    days = value / DAY if isinstance(value, timedelta) else real(field, value)
    if days <= 0:
        raise InvalidInput(field, "must be longer than nothing")
    return days


def _floor(field: str, value: object) -> float:
    left = real(field, value)
    if not 0 < left < 1:
        raise InvalidInput(field, f"must lie between 0 and 1, not {left:g}")
    return left
