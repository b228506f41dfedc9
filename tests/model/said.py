"""What a call of the facade came to, and how the judge speaks when it is not what was
promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from memory.domain.entry import Entry


class Wrong(AssertionError):
    """Something is not as promised. `label` names the kind, so that a shrunk run is
    known to fail in the same way.
    """

    def __init__(self, label: str, details: str) -> None:
        super().__init__(f"{label}: {details}")
        self.label = label


@dataclass(frozen=True, slots=True)
class Failure:
    """An error by its name and text, as it comes from another process too. `written` is
    what a batch wrote all the same, by position.
    """

    name: str
    text: str
    written: dict[int, Entry] | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """One call, when it began and ended, and its value or its failure."""

    call: str
    begun: datetime
    ended: datetime
    value: Any = None
    failure: Failure | None = None

    def given(self) -> Any:
        """The value of a call that must succeed."""
        if self.failure is not None:
            raise Wrong(f"fails with {self.failure.name}", f"{self.call}: {self.failure.text}")
        return self.value

    def refused(self, *names: str) -> str:
        """The text of an error that must have been raised, one of those named."""
        if self.failure is None:
            self.wrong(f"should be {' or '.join(names)}", f"returned {self.value!r}")
        if self.failure.name not in names:
            self.wrong(f"should be {' or '.join(names)}, not {self.failure.name}", self.failure.text)
        return self.failure.text

    def equals(self, wanted: object) -> None:
        if self.given() != wanted:
            self.wrong("answers otherwise", f"{self.value!r}, wanted {wanted!r}")

    def wrong(self, what: str, details: str) -> NoReturn:
        raise Wrong(f"{self.call} {what}", details)


def plain(entry: Entry) -> dict[str, Any]:
    """An entry as the model writes it down."""
    values = dict(entry.__dict__)
    values["scope"] = entry.scope.text
    values["type"] = entry.type.value
    if entry.contributors is not None:
        values["contributors"] = [contributor.model_dump() for contributor in entry.contributors]
    return values


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The fields in which two entries differ; empty where they are the same."""
    return "; ".join(
        f"{name} is {found.get(name)!r}, wanted {value!r}"
        for name, value in wanted.items()
        if not same(found.get(name), value)
    )


def same(one: object, other: object) -> bool:
    """Equal, and of the same type: 1 is not 1.0 and not True."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and type(one) is type(other)
