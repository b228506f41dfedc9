"""The filter and the boosts of a search: their types, and the checks on them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from typing import Any, Literal, TypeAlias, TypedDict, cast, get_args

from memory.domain import validation
from memory.domain.entry import ENTRY_PARTS, Entry, EntryPart, EntryType
from memory.domain.errors import InvalidInput
from memory.domain.filter_parsing import SHORT, parse_filter
from memory.domain.filters import JSON, AllOf, AnyOf, Comparison, Filter, Negation, is_empty
from memory.facade.arguments import Moment, Vector, check_names, flag, real
from memory.policies.entry_query import SearchMode
from memory.policies.ranking.preferences import Preferences

DAY = timedelta(days=1)
Scalar: TypeAlias = str | int | float | bool | None
"""A JSON value without nested values."""


class SearchFilter(TypedDict, total=False):
    """The short keys of a filter, as a dict. An entry must match every key.

    The dict may have other keys too: fields of entries, paths in the metadata and the
    data, and `$and`, `$or`, `$nor` and `$not`; see `Filter`.
    """

    types: Sequence[EntryType | str] | None
    """The entry has one of these types."""
    tags: Sequence[str] | None
    """The entry has all of these tags."""
    any_tags: Sequence[str] | None
    """The entry has at least one of these tags."""
    metadata: Mapping[str, Any] | None
    """The entry's metadata has each of these keys with exactly this value.

    In place of a value there may be a dict: operators such as `{"$gt": 3}`, or keys of
    the object under this key.
    """
    data: Mapping[str, Any] | None
    """The entry's data has each of these keys with exactly this value.

    Operators and nested keys work as in `metadata`.
    """
    since: Moment | None
    """The entry was created at or after this moment."""
    before: Moment | None
    """The entry was created before this moment."""


FilterInput: TypeAlias = Filter | SearchFilter | Mapping[str, Any]
"""A `Filter`, or a dict such as `{"types": ["user"], "metadata.price": {"$gt": 3}}`."""


class SearchBoost(TypedDict, total=False):
    """The boosts of a search. They reorder results with nearly equal scores.

    Boosts remove no result, unless the query is blank: then they are filters. If
    several boosts match an entry, their factors are multiplied. A plain `dict` will do.
    """

    types: Sequence[EntryType | str] | None
    """Raise entries of one of these types.

    The search then ignores the types that the question itself seems to ask for.
    """
    tags: Sequence[str] | None
    """Raise entries that have at least one of these tags."""
    conversation_id: str | None
    """Raise entries that were said in this conversation."""


Include: TypeAlias = Sequence[EntryPart]
"""The parts of entries that a result has, of `"content"`, `"metadata"` and `"data"`."""


class SearchOptions(TypedDict, total=False):
    """The arguments of `search` besides `query`, `scope` and `messages`."""

    limit: int | None
    mode: Literal["hybrid", "lexical", "semantic"]
    boost: SearchBoost | None
    filter: FilterInput | None
    min_relevance: float | None
    since: Moment | None
    include_narrower: bool
    session_id: str | None
    as_of: Moment | None
    known_at: Moment | None
    intent: bool
    age_decay: bool
    half_life: timedelta | float | None
    decay_floor: float | None
    explain: bool
    expand: bool
    rerank: bool | Literal["two-stage"]
    vector: Vector | None
    include: Include | None


class RetrieveOptions(TypedDict, total=False):
    """The arguments of `retrieve` besides the scope."""

    tags: Sequence[str] | None
    any_tags: Sequence[str] | None
    types: Sequence[EntryType | str] | None
    metadata: Mapping[str, Scalar] | None
    filter: FilterInput | None
    since: Moment | None
    before: Moment | None
    limit: int | None
    order: Literal["newest", "oldest"]
    include_narrower: bool
    session_id: str | None
    as_of: Moment | None
    known_at: Moment | None
    cursor: str | None
    include: Include | None


class BrowseOptions(TypedDict, total=False):
    """The arguments of `browse` besides the scope."""

    conversation: str | None
    types: Sequence[EntryType | str] | None
    tags: Sequence[str] | None
    filter: FilterInput | None
    since: Moment | None
    updated_before: Moment | None
    as_of: Moment | None
    known_at: Moment | None
    include_retired: bool
    limit: int | None
    cursor: str | None
    include: Include | None


def parts_left_out(include: Include | None) -> frozenset[str]:
    """Return the parts of entries that a result leaves out; none by default.

    Raises:
        InvalidInput: `include` names something else than a part.
    """
    if include is None:
        return frozenset()
    named = validation.sequence("include", include)
    for one in named:
        if isinstance(one, str) and one in Entry.model_fields and one not in ENTRY_PARTS:
            raise InvalidInput(
                "include", f"{one!r} is in every result. Name only parts: {', '.join(ENTRY_PARTS)}"
            )
    return frozenset(ENTRY_PARTS).difference(validation.one_of("include", one, ENTRY_PARTS) for one in named)


def filter_of(given: FilterInput | None) -> Filter | None:
    """Return a checked filter; None if none is given, or an empty one."""
    parsed = None if given is None else parse_filter(given)
    return None if parsed is None or is_empty(parsed) else parsed


def split_filter(given: FilterInput | None) -> tuple[dict[str, Any], Filter | None]:
    """Split the filter of a search into its short keys, unchecked, and all others.

    Some of the short keys filter messages too. A short key whose value is a dict is a
    field: `{"tags": {"$contains": "home"}}`.
    """
    if given is None or isinstance(given, Filter) or not isinstance(given, Mapping):
        return {}, filter_of(given)
    short = {
        name: value
        for name, value in given.items()
        if name in SHORT and name not in JSON and not isinstance(value, Mapping)
    }
    others = {name: value for name, value in given.items() if name not in short}
    return short, filter_of(others) if others else None


def boost_of(given: SearchBoost | None) -> SearchBoost:
    """Return the boost with every key known. Its values are not checked here."""
    if given is None:
        return {}
    check_names("boost", given, SearchBoost.__annotations__, "{'tags': ['home']}")
    return given


def tags_of(field: str, given: Sequence[str] | None) -> tuple[str, ...]:
    return (
        ()
        if given is None
        else tuple(validation.tags(validation.sequence(field, given, at_most=validation.MAX_LIMIT), field))
    )


def types_of(field: str, given: Sequence[EntryType | str] | None) -> tuple[str, ...]:
    return (
        ()
        if given is None
        else tuple(
            str(validation.one_of(field, one, EntryType))
            for one in validation.sequence(field, given, at_most=validation.MAX_LIMIT)
        )
    )


def metadata_of(field: str, given: Mapping[str, Scalar] | None) -> Filter | None:
    checked = {} if given is None else validation.json_object(field, given)
    for name, value in checked.items():
        if isinstance(value, dict | list):
            raise InvalidInput(
                f"{field}.{name}",
                "must be text, a number, a boolean or None. Compare nested values with filter="
                f"{{'metadata.{name}.KEY': value}}",
            )
    return and_all(Filter.metadata(name) == value for name, value in checked.items())


def and_all(parts: Iterable[Filter | None]) -> Filter | None:
    """Return the conjunction of the given filters; None if there are none."""
    kept = [part for part in parts if part is not None]
    return reduce(operator.and_, kept) if kept else None


def comparisons_in(part: Filter) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and the value of each comparison in a filter."""
    match part:
        case Comparison(path, _, value):
            yield path, value
        case AllOf(parts) | AnyOf(parts):
            for one in parts:
                yield from comparisons_in(one)
        case Negation(inner):
            yield from comparisons_in(inner)


_PREFERENCES = frozenset({"boost", "intent", "age_decay", "half_life", "decay_floor"})


def split_search(options: SearchOptions) -> tuple[Preferences, dict[str, Any]]:
    """Split the options of a search into checked preferences and all others."""
    preferred = {name: value for name, value in options.items() if name in _PREFERENCES}
    others = {name: value for name, value in options.items() if name not in _PREFERENCES}
    return preferences(**cast("Any", preferred)), others


def preferences(
    boost: SearchBoost | None = None,
    *,
    intent: bool = True,
    age_decay: bool = True,
    half_life: timedelta | float | None = None,
    decay_floor: float | None = None,
) -> Preferences:
    """Check the boosts and the ageing of a search, and return them.

    Raises:
        InvalidInput: `boost` has an unknown key or a wrong value, or `half_life` or
            `decay_floor` is given without `age_decay`.
    """
    boosts = boost_of(boost)
    conversation_id = boosts.get("conversation_id")
    ages = flag("age_decay", age_decay)
    for name, given in (("half_life", half_life), ("decay_floor", decay_floor)):
        if given is not None and not ages:
            raise InvalidInput(name, "needs age_decay=True. Pass both, or omit it")
    usual = Preferences()
    return Preferences(
        types=types_of("boost.types", boosts.get("types")),
        tags=tags_of("boost.tags", boosts.get("tags")),
        conversation_id=None
        if conversation_id is None
        else validation.identifier("boost.conversation_id", conversation_id),
        intent=flag("intent", intent),
        age_decay=ages,
        half_life=usual.half_life if half_life is None else _days("half_life", half_life),
        floor=usual.floor if decay_floor is None else _floor("decay_floor", decay_floor),
    )


def search_mode(value: object) -> SearchMode:
    """Return a checked `mode`."""
    return validation.one_of("mode", value, get_args(SearchMode))


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
        raise InvalidInput(field, f"must be greater than zero, not {days:g} days. Pass a timedelta or days")
    return days


def _floor(field: str, value: object) -> float:
    left = real(field, value)
    if not 0 < left < 1:
        raise InvalidInput(field, f"must lie between 0 and 1, not {left:g}")
    return left
