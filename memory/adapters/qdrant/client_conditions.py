"""Conditions in the types of qdrant-client."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from memory.adapters.qdrant.engine import Condition


class ClientConditions:
    def equals(self, path: str, value: str | int) -> Condition:
        return models.FieldCondition(key=path, match=models.MatchValue(value=value))

    def among(self, path: str, values: Sequence[str] | Sequence[int]) -> Condition:
        return models.FieldCondition(key=path, match=models.MatchAny(any=list(values)))

    def between(
        self, path: str, *, gt: float | None = None, gte: float | None = None, lt: float | None = None, lte: float | None = None
    ) -> Condition:
        return models.FieldCondition(key=path, range=models.Range(gt=gt, gte=gte, lt=lt, lte=lte))

    def points(self, points: Sequence[str]) -> Condition:
        return models.HasIdCondition(has_id=list(points))

    def missing(self, path: str) -> Condition:
        return models.IsEmptyCondition(is_empty=models.PayloadField(key=path))

    def every(self, parts: Sequence[Condition]) -> Condition:
        return models.Filter(must=list(parts))

    def some(self, parts: Sequence[Condition]) -> Condition:
        return models.Filter(should=list(parts))

    def none(self, parts: Sequence[Condition]) -> Condition:
        return models.Filter(must_not=list(parts))
