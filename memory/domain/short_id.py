"""The result of resolving a short id, such as `#42`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from memory.domain.results import ResultMixin

NumberedKind: TypeAlias = Literal["entry", "artifact"]


@dataclass(frozen=True, slots=True, repr=False)
class NumberedItem(ResultMixin):
    """An entry or an artifact: its kind, its full id, and its short id as a number.

    `number` is None if it never got a short id.
    """

    kind: NumberedKind
    id: str
    number: int | None
