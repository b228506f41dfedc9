"""Show results: in one line for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from pydantic import BaseModel

from memory.domain.corrections import explain_guesses, subscript_problem

T = TypeVar("T")

WIDTH = 60
"""The maximum number of characters of a text in a repr."""
LISTED = 3
"""The maximum number of items of a list in a repr."""


@explain_guesses
class ResultMixin:
    """A base class that adds a one-line repr and a JSON-compatible `to_dict`.

    It is for dataclasses that are made with `repr=False`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        said = ", ".join(f"{field.name}={cut(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({said})"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON: times in ISO 8601, durations in seconds."""
        return {field.name: as_json(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


class Page(ResultMixin, Generic[T]):
    """A page of a listing: a result whose first field is the list of its items.

    Iterate over it, take its length, or take an item by its position.
    """

    __slots__ = ()

    @property
    def _items(self) -> list[T]:
        items: list[T] = getattr(self, fields(self)[0].name)  # type: ignore[arg-type]
        return items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        """Return the item at a position, or a list for a slice."""
        if isinstance(index, str):
            raise TypeError(subscript_problem(type(self), index))
        return self._items[index]


@explain_guesses
class Answer(list[T]):
    """The results of a search or a listing, in order.

    `degraded` says what is missing and why; it is empty for a complete answer.
    """

    said_as: ClassVar[str] = "hits"
    """The name of the results in `to_dict`."""

    def __init__(self, found: Sequence[T] = (), degraded: Iterable[str] = ()) -> None:
        super().__init__(found)
        self.degraded = tuple(degraded)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({cut(list(self))}, degraded={cut(self.degraded)})"

    if not TYPE_CHECKING:  # type checkers know the list's own overloads

        def __getitem__(self, index):
            """Return the result at a position, or a list for a slice."""
            if isinstance(index, str):
                raise TypeError(subscript_problem(type(self), index))
            return super().__getitem__(index)

    def to_dict(self) -> dict[str, Any]:
        return {self.said_as: as_json(list(self)), "degraded": list(self.degraded)}


class ShortRepr:
    """Shortens a value in the repr of a larger object."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return cut(self._value)


def cut(value: object) -> str:
    """Return a short repr of a value.

    A long text is cut, and a long list shows its first items and the number of others.
    """
    if isinstance(value, str):
        return repr(value if len(value) <= WIDTH else value[: WIDTH - 1] + "…")
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, Mapping):
        return (
            "{"
            + _few([f"{cut(name)}: {cut(inner)}" for name, inner in list(value.items())[:LISTED]], len(value))
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + _few([cut(inner) for inner in value[:LISTED]], len(value)) + "]"
    return repr(value)


def _few(shown: Sequence[str], count: int) -> str:
    return ", ".join([*shown, *([f"… {count - LISTED} more"] if count > LISTED else [])])


def as_json(value: Any) -> Any:
    """Return the value converted to types of JSON."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    return [as_json(inner) for inner in value] if isinstance(value, list | tuple | set | frozenset) else value
