"""Filters on the fields and the JSON of entries and documents, and what they mean.

A filter is true or false for an entry. These rules hold on every store:

- Text compares by code point. Numbers compare by value: 1 equals 1.0. Booleans are not
  numbers, and have no order.
- Null is a value. It equals null only.
- Values of different types are not equal, and neither is less than the other.
- A comparison with a missing value is false. `!=` is the opposite of `==`, so it is
  true for a missing value and for a value of another type.
- A path names keys of objects. It does not enter lists.
- A field of an entry without a value, such as `title`, is missing. So are empty tags.
- Text in ISO 8601 compares as text. With a `Moment` it compares as a moment; text
  without a zone is in UTC, and a date is its midnight.

Stores apply as much of a filter as they can. The engine checks each result with this
module.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias
from uuid import UUID

from memory.domain import validation
from memory.domain.corrections import did_you_mean, explain_guesses
from memory.domain.errors import InvalidInput, WrongArguments
from memory.domain.scope import Scope

if TYPE_CHECKING:
    from memory.domain.entry import Entry

Operator: TypeAlias = Literal["==", "<", "<=", ">", ">=", "in", "contains", "exists"]
ORDERINGS: Mapping[Operator, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Reader: TypeAlias = Callable[[str], Any]
"""Returns the value of a field; for `metadata`, `data` and `value` the whole."""

METADATA: Final = "metadata"
DATA: Final = "data"
VALUE: Final = "value"
JSON = (METADATA, DATA, VALUE)
"""The parts of entries and documents that are JSON. A path leads into them."""
_MOMENTS = ("created_at", "updated_at", "expires_at", "valid_from", "valid_to")
_LISTS = ("tags", "origins")
_NUMBERS = ("number_in_conversation", "confidence")
_TEXTS = (
    "id",
    "key",
    "scope",
    "type",
    "title",
    "content",
    "source",
    "agent",
    "run",
    "speaker",
    "conversation_id",
    "artifact_id",
    "promoted_from_id",
)
FIELDS = (*_TEXTS, *_LISTS, *_NUMBERS, *_MOMENTS)
"""The fields of an entry that a filter can name, besides its metadata and data."""
DOCUMENT_FIELDS = ("key", "created_at", "updated_at", "expires_at")
"""The fields of a document that a filter can name, besides its metadata and value."""

MAX_DEPTH, MAX_PARTS, MAX_VALUES = 16, 256, 1_000
"""The most levels, comparisons and listed values of one filter."""


class Missing(Enum):
    """The value at a path that an entry does not have."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment to compare ISO 8601 text with. Make it with `Filter.moment`."""

    at: datetime


@explain_guesses
class Filter:
    """A condition on entries or documents, for searches, lists, exports and deletion.

        cheap = Filter.metadata("price") < 3
        drinks = Filter.field("tags").contains("drink")
        await memory.search("tea", scope="user:ada", filter=cheap & ~drinks)

    Combine filters with `&` (and), `|` (or) and `~` (not). The same filter as a dict is
    `{"metadata.price": {"$lt": 3}, "$not": {"tags": {"$contains": "drink"}}}`.
    """

    __slots__ = ()

    def __init__(self, *args: object, **names: object) -> None:
        raise WrongArguments(
            "Filter",
            "is not called. Write filter=Filter.metadata('price') < 3, or pass the dict itself as"
            " filter={'metadata.price': {'$lt': 3}}",
        )

    @staticmethod
    def metadata(*path: str) -> FieldPath:
        """Return a path into the metadata; compare it to get a filter.

        Args:
            *path: The keys: `Filter.metadata("address", "city")`.
        """
        return _path_into(METADATA, path)

    @staticmethod
    def data(*path: str) -> FieldPath:
        """Return a path into the data; compare it to get a filter.

        Args:
            *path: The keys: `Filter.data("address", "city")`.
        """
        return _path_into(DATA, path)

    @staticmethod
    def value(*path: str) -> FieldPath:
        """Return a path into the value of a document; compare it to get a filter.

        Args:
            *path: The keys: `Filter.value("state", "step")`.
        """
        return _path_into(VALUE, path)

    @staticmethod
    def field(name: str) -> FieldPath:
        """Return a field of an entry or document; compare it to get a filter.

        See `FIELDS` and `DOCUMENT_FIELDS`.
        """
        return FieldPath((name,))

    @staticmethod
    def moment(value: datetime | str | float) -> Moment:
        """Return a moment to compare ISO 8601 text in metadata or data with.

        Args:
            value: An aware datetime, ISO 8601 text with a zone, or seconds since 1970.
        """
        return Moment(validation.time("moment", value))

    def matches(self, entry: Entry) -> bool:
        """Return whether an entry passes the filter."""
        return self.test(lambda name: entry.scope.text if name == "scope" else getattr(entry, name))

    def test(self, read: Reader) -> bool:
        """Return whether an entry passes the filter; `read` returns its fields."""
        raise NotImplementedError

    def __and__(self, other: Filter) -> Filter:
        return NotImplemented if not isinstance(other, Filter) else AllOf(_parts(AllOf, self, other))

    def __or__(self, other: Filter) -> Filter:
        return NotImplemented if not isinstance(other, Filter) else AnyOf(_parts(AnyOf, self, other))

    def __invert__(self) -> Filter:
        return Negation(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a filter is neither true nor false before it is applied. Combine filters with & | ~ in place of"
            " and, or, not; write (a > 1) & (a < 3) for a range, and .in_([…]) or .contains(…) for `in`"
        )


@dataclass(frozen=True, slots=True)
class Comparison(Filter):
    """A filter that compares the value at a path.

    Make it with `Filter.field`, `Filter.metadata`, `Filter.data` or `Filter.value`.
    """

    path: tuple[str, ...]
    operator: Operator
    value: Any = None
    """The other value. It is a tuple of values for `in`, and None for `exists`."""

    def test(self, read: Reader) -> bool:
        value = read(self.path[0])
        if self.path[0] in JSON:
            value = value_at(value, self.path[1:])
        elif value is None or value in ((), []):
            value = MISSING
        return holds(value, self.operator, self.value)


@dataclass(frozen=True, slots=True)
class AllOf(Filter):
    """A filter that passes if every part passes, and without parts."""

    parts: tuple[Filter, ...]

    def test(self, read: Reader) -> bool:
        return all(part.test(read) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf(Filter):
    """A filter that passes if a part passes, and not without parts."""

    parts: tuple[Filter, ...]

    def test(self, read: Reader) -> bool:
        return any(part.test(read) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Negation(Filter):
    """A filter that passes if its part does not."""

    part: Filter

    def test(self, read: Reader) -> bool:
        return not self.part.test(read)


@explain_guesses
class FieldPath:
    """A field of an entry, or a path into its JSON, which is not yet a filter.

    Compare it with `==`, `!=`, `<`, `<=`, `>`, `>=`, `in_`, `contains` or `exists`.
    """

    __slots__ = ("path",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = check_path(path)

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]
        return comparison(self.path, "==", other)

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]
        return Negation(comparison(self.path, "==", other))

    def __lt__(self, other: object) -> Filter:
        return comparison(self.path, "<", other)

    def __le__(self, other: object) -> Filter:
        return comparison(self.path, "<=", other)

    def __gt__(self, other: object) -> Filter:
        return comparison(self.path, ">", other)

    def __ge__(self, other: object) -> Filter:
        return comparison(self.path, ">=", other)

    def in_(self, values: Iterable[object]) -> Filter:
        """Return a filter that passes if the value equals one of these."""
        return comparison(self.path, "in", values)

    def contains(self, value: object) -> Filter:
        """Return a filter that passes if the value is a list with this element."""
        return comparison(self.path, "contains", value)

    def exists(self) -> Filter:
        """Return a filter that passes if there is a value, also null in JSON."""
        return Comparison(self.path, "exists")

    def __and__(self, other: object) -> NoReturn:
        raise TypeError("put each comparison in brackets: (Filter.field('type') == 'user') & (…)")

    __or__ = __rand__ = __ror__ = __and__

    def __contains__(self, value: object) -> NoReturn:
        raise TypeError("`in` cannot make a filter. Write .contains(value) for a list, or .in_([…])")

    def __iter__(self) -> NoReturn:
        raise TypeError("a path of a filter has no elements. Compare it: Filter.metadata('price') > 3")

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a path is no filter yet. Compare it, such as Filter.metadata('price') > 3, or write .exists()"
        )

    def __repr__(self) -> str:
        return ".".join(self.path)


# -- meaning ---------------------------------------------------------------------------


def value_at(value: Any, path: Iterable[str]) -> Any:
    """Return the value at a path inside a value; MISSING if there is none."""
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return MISSING
        value = value[key]
    return value


def holds(value: Any, operator: Operator, other: Any) -> bool:
    """Return whether a comparison of a value, which may be MISSING, is true."""
    if value is MISSING:
        return False
    match operator:
        case "==":
            return equal(value, other)
        case "in":
            return any(equal(value, one) for one in other)
        case "contains":
            return isinstance(value, list | tuple) and any(equal(one, other) for one in value)
        case "exists":
            return True
        case _:
            return _is_ordered(value, ORDERINGS[operator], other)


def equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal and of one type."""
    if isinstance(other, Moment):
        return _moment_in(one) == other.at
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float):
        return isinstance(other, int | float) and one == other
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping)
            and one.keys() == other.keys()
            and all(equal(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, str):
        return isinstance(other, str) and one == other
    return one is None and other is None


def _is_ordered(one: Any, compare: Callable[[Any, Any], bool], other: Any) -> bool:
    if isinstance(other, Moment):
        at = _moment_in(one)
        return at is not None and compare(at, other.at)
    if isinstance(one, str):
        return isinstance(other, str) and compare(one, other)
    return _is_number(one) and _is_number(other) and compare(one, other)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _moment_in(value: object) -> datetime | None:
    """Return the moment that a value of an entry says; None if it says none."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.utcoffset() is not None else value.replace(tzinfo=UTC)


# -- checks ----------------------------------------------------------------------------


def _parts(kind: type[AllOf] | type[AnyOf], *given: Filter) -> tuple[Filter, ...]:
    """Return the parts of a combination; those of the same kind stay on one level."""
    return tuple(part for one in given for part in (one.parts if isinstance(one, kind) else (one,)))


def _path_into(root: str, path: tuple[str, ...]) -> FieldPath:
    if not path:
        raise InvalidInput("path", f'is empty. Name a key, such as Filter.{root}("price")')
    return FieldPath((root, *path))


def check_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a path whose first part is a known field."""
    for part in path:
        validation.text("filter", part, max_bytes=validation.MAX_METADATA_BYTES)
    if path[0] in JSON and len(path) > 1:
        if len(path) > validation.MAX_DEPTH + 1:
            raise InvalidInput("filter", f"a path has more than {validation.MAX_DEPTH} keys; no entry has it")
        return path
    if path[0] in JSON:
        raise InvalidInput(f"filter.{path[0]}", whole_of(path[0]))
    if path[0] not in FIELDS or len(path) > 1:
        name = ".".join(path)[:80]
        raise InvalidInput(
            f"filter.{name}",
            f"is not a field of an entry{did_you_mean(path[0], FIELDS) if len(path) == 1 else ''}."
            f" For a key of your own write 'metadata.{name}' or Filter.metadata({name!r})."
            f" Fields: {', '.join(FIELDS)}",
        )
    return path


def whole_of(root: str) -> str:
    """Return why JSON as a whole is not compared, and what to write."""
    return (
        f"A filter compares a key of the {root}, not the whole. Name the key: Filter.{root}('price') > 3 or"
        f" {{'{root}.price': {{'$gt': 3}}}}."
    )


def comparison(path: tuple[str, ...], operator: Operator, value: object) -> Comparison:
    """Return a comparison with its value checked.

    Raises:
        InvalidInput: The field cannot be compared so, or not with this value.
    """
    field = "filter." + ".".join(path)[:80]
    if isinstance(value, FieldPath | Filter):
        raise InvalidInput(field, "cannot be compared with another field or filter. Pass a value")
    if path[0] in _LISTS and operator != "contains":
        raise InvalidInput(
            field,
            f"is a list: write Filter.field('{path[0]}').contains('home') or"
            f" {{'{path[0]}': {{'$contains': 'home'}}}}, and exists for any",
        )
    if path[0] in (*_TEXTS, *_NUMBERS, *_MOMENTS) and operator == "contains":
        raise InvalidInput(
            field,
            "is not a list, and contains is for lists. Search finds words in a text; `in` takes several",
        )
    if operator == "in":
        values = validation.sequence(field, value, at_most=MAX_VALUES)
        return Comparison(path, operator, tuple(_value(path, field, one) for one in values))
    checked = _value(path, field, value)
    if operator in ORDERINGS and not (isinstance(checked, str | Moment) or _is_number(checked)):
        kind = "null" if checked is None else type(checked).__name__
        raise InvalidInput(field, f"{kind} has no order. Numbers, texts and moments have one")
    if operator in ORDERINGS and isinstance(value, Decimal):
        raise InvalidInput(
            field, "decimals are stored as text, which sorts in another order. Store and compare a float"
        )
    return Comparison(path, operator, checked)


def _value(path: tuple[str, ...], field: str, value: object) -> Any:
    """Return a value as it is stored, or as a moment."""
    name = path[0]
    if name in JSON:
        return _json_value(field, value)
    if value is None:
        raise InvalidInput(
            field,
            f"an entry without {name} has no value. Write ~Filter.field('{name}').exists() or"
            f" {{'{name}': {{'$exists': False}}}}",
        )
    if name in _MOMENTS:
        return value if isinstance(value, Moment) else Moment(validation.time(field, value))
    if name in _NUMBERS:
        return validation.number(field, value)
    if name == "scope":
        return (value if isinstance(value, Scope) else Scope.parse(validation.text(field, value))).text
    if name == "type":
        from memory.domain.entry import EntryType

        return str(validation.one_of("type", value, EntryType))
    return validation.text(field, value, max_bytes=validation.MAX_CONTENT_BYTES)


def _json_value(field: str, value: object) -> Any:
    if isinstance(value, Moment):
        return value
    if isinstance(value, datetime):
        return Moment(validation.time(field, value))
    if isinstance(value, date | UUID | Decimal):
        return str(value)
    return validation.json_object(field, {"value": value})["value"]


def names(part: Filter, root: str) -> bool:
    """Return whether a filter compares this field, or a path into it."""
    match part:
        case Comparison(path):
            return path[0] == root
        case Negation(inner):
            return names(inner, root)
        case AllOf(parts) | AnyOf(parts):
            return any(names(one, root) for one in parts)
        case _:
            return False


def check_kind(part: Filter, kind: Literal["entry", "document"]) -> None:
    """Raise `InvalidInput` if entries, or documents, have no field that it compares."""
    if kind == "entry":
        if names(part, VALUE):
            raise InvalidInput(
                "filter.value", "is not a field of an entry. Documents have values; write data"
            )
        return
    for name in (DATA, *FIELDS):
        if name not in DOCUMENT_FIELDS and names(part, name):
            known = ", ".join((METADATA, VALUE, *DOCUMENT_FIELDS))
            raise InvalidInput(f"filter.{name}", f"is not a field of a document. Accepted: {known}")


def is_empty(part: Filter) -> bool:
    """Return whether everything passes a filter, because a part has no condition."""
    if isinstance(part, AnyOf):
        return any(map(is_empty, part.parts))
    return isinstance(part, AllOf) and all(map(is_empty, part.parts))


def check_size(part: Filter, room: int = MAX_DEPTH) -> int:
    """Return the number of comparisons of a filter that is not too large or deep."""
    if not room:
        raise InvalidInput("filter", f"nests deeper than {MAX_DEPTH} levels")
    inner = (part.part,) if isinstance(part, Negation) else getattr(part, "parts", None)
    count = 1 if inner is None else sum(check_size(one, room - 1) for one in inner)
    if count > MAX_PARTS:
        raise InvalidInput("filter", f"has more than {MAX_PARTS} comparisons. Use `in` for many values")
    return count
