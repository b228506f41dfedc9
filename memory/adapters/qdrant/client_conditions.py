"""Conditions as JSON of Qdrant's REST interface.

Integers are sent as integers. The server reads `9007199254740993.0` off by one for
about one number in seven beyond 2**53, but `9007199254740993` exactly. Real numbers
have a tolerance for that (see `rounding`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memory.adapters.qdrant.engine import QdrantCondition


def whole_if_possible(number: float) -> float:
    """Convert to an integer if the number has no fraction and fits into 64 bits."""
    return int(number) if -(2**63) <= number < 2**63 and number == int(number) else number


class ClientConditions:
    """Conditions within a server's limits.

    Args:
        most_values: Most values per condition; None for no limit.
        most_conditions: Most conditions per filter; None for no limit.
    """

    def __init__(self, most_values: int | None = None, most_conditions: int | None = None) -> None:
        self._most_values, self._most_conditions = most_values, most_conditions

    def equals(self, path: str, value: str | int) -> QdrantCondition:
        return {"key": path, "match": {"value": value}}

    def among(self, path: str, values: Sequence[str] | Sequence[int]) -> QdrantCondition:
        return self._split(values, lambda some: {"key": path, "match": {"any": some}})

    def between(
        self,
        path: str,
        *,
        gt: float | None = None,
        gte: float | None = None,
        lt: float | None = None,
        lte: float | None = None,
    ) -> QdrantCondition:
        bounds = {"gt": gt, "gte": gte, "lt": lt, "lte": lte}
        sent = {side: whole_if_possible(bound) for side, bound in bounds.items() if bound is not None}
        return {"key": path, "range": sent}

    def points(self, points: Sequence[str]) -> QdrantCondition:
        return self._split(points, lambda some: {"has_id": some})

    def missing(self, path: str) -> QdrantCondition:
        return {"is_empty": {"key": path}}

    def every(self, parts: Sequence[QdrantCondition]) -> QdrantCondition:
        return {"must": list(parts)}

    def some(self, parts: Sequence[QdrantCondition]) -> QdrantCondition:
        return {"should": list(parts)}

    def none(self, parts: Sequence[QdrantCondition]) -> QdrantCondition:
        return {"must_not": list(parts)}

    def fits(self, condition: QdrantCondition) -> bool:
        """Return whether the condition takes at most half of the server's limit.

        The other half is for the conditions of the queried place, such as the tenant.
        """
        return self._most_conditions is None or count(condition) <= self._most_conditions // 2

    def _split(self, values: Sequence[Any], make: Callable[[list[Any]], QdrantCondition]) -> QdrantCondition:
        """Split a condition with too many values into several."""
        most = self._most_values or len(values)
        if len(values) <= most:
            return make(list(values))
        return self.some([make(list(values[at : at + most])) for at in range(0, len(values), most)])


def count(condition: QdrantCondition) -> int:
    """Return the number of conditions in a filter, as the server counts them."""
    inner = [part for clause in ("must", "should", "must_not") for part in condition.get(clause, ())]
    return sum(map(count, inner)) if inner else 1
