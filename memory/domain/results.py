"""How results look: in a line to people, as JSON to programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel

from memory.domain.corrections import explain_guesses, subscript_problem

T = TypeVar("T")

WIDTH = 60
"""Characters of a text that a repr shows."""
LISTED = 3
"""Things of a list that a repr shows."""


@explain_guesses
class ResultMixin:
    """Gives a dataclass (made with `repr=False`) a repr of one line and a `to_dict`
    that JSON can hold.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        said = ", ".join(f"{field.name}={cut(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({said})"

    def to_dict(self) -> dict[str, Any]:
        """Its fields as JSON: moments in ISO 8601, lengths of time in seconds."""
        return {field.name: as_json(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


@explain_guesses
class Answer(list[T]):
    """What was found, in order. `degraded` names what was left out and why; empty when
    the answer is whole.
    """

    said_as: ClassVar[str] = "hits"
    """What `to_dict` calls them."""

    def __init__(self, found: Sequence[T] = (), degraded: Iterable[str] = ()) -> None:
        super().__init__(found)
        self.degraded = tuple(degraded)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({cut(list(self))}, degraded={cut(self.degraded)})"

    if not TYPE_CHECKING:  # type checkers know the list's own overloads

        def __getitem__(self, index):
            """The result at a position, or a list of those of a slice."""
            if isinstance(index, str):
                raise TypeError(subscript_problem(type(self), index))
            return super().__getitem__(index)

    def to_dict(self) -> dict[str, Any]:
        return {self.said_as: as_json(list(self)), "degraded": list(self.degraded)}


class ShortRepr:
    """Stands for a value in the repr of something larger."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return cut(self._value)


def cut(value: object) -> str:
    """The repr of a value; of a long text its beginning, of a long list the first few
    things and how many more there are.
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
    """The value with nothing in it that JSON does not know."""
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
