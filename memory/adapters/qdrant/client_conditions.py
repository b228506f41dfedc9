"""Conditions as the JSON of Qdrant's REST interface.

Whole numbers are sent as whole numbers. The server reads `9007199254740993.0` one step off for
about one number in seven beyond 2**53, and `9007199254740993` exactly. Real numbers have slack
for that (see `rounding`).
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.adapters.qdrant.engine import Condition


def whole_if_possible(number: float) -> float:
    """The number without a fraction, if it has none and fits into 64 bits."""
    return int(number) if -(2**63) <= number < 2**63 and number == int(number) else number


class ClientConditions:
    def equals(self, path: str, value: str | int) -> Condition:
        return {"key": path, "match": {"value": value}}

    def among(self, path: str, values: Sequence[str] | Sequence[int]) -> Condition:
        return {"key": path, "match": {"any": list(values)}}

    def between(
        self,
        path: str,
        *,
        gt: float | None = None,
        gte: float | None = None,
        lt: float | None = None,
        lte: float | None = None,
    ) -> Condition:
        bounds = {"gt": gt, "gte": gte, "lt": lt, "lte": lte}
        sent = {side: whole_if_possible(bound) for side, bound in bounds.items() if bound is not None}
        return {"key": path, "range": sent}

    def points(self, points: Sequence[str]) -> Condition:
        return {"has_id": list(points)}

    def missing(self, path: str) -> Condition:
        return {"is_empty": {"key": path}}

    def every(self, parts: Sequence[Condition]) -> Condition:
        return {"must": list(parts)}

    def some(self, parts: Sequence[Condition]) -> Condition:
        return {"should": list(parts)}

    def none(self, parts: Sequence[Condition]) -> Condition:
        return {"must_not": list(parts)}
