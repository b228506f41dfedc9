"""LangGraph's filters of values, as filters of the data of entries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

from memory import Filter

COMPARISONS = {
    "$eq": "__eq__",
    "$ne": "__ne__",
    "$gt": "__gt__",
    "$gte": "__ge__",
    "$lt": "__lt__",
    "$lte": "__le__",
}


def data_filter(asked: Mapping[str, Any], *path: str) -> Filter | None:
    """Return LangGraph's filter of values as one of the data."""
    conditions = []
    for name, wanted in asked.items():
        field = Filter.data(*path, name)
        if not isinstance(wanted, Mapping):
            conditions.append(field == wanted)
        elif not any(key.startswith("$") for key in wanted):
            within = data_filter(wanted, *path, name)
            conditions.append(field.exists() if within is None else within)
        else:
            if unknown := wanted.keys() - COMPARISONS:
                raise ValueError(f"Unsupported operator: {', '.join(unknown)}. Use {', '.join(COMPARISONS)}")
            conditions += [getattr(field, COMPARISONS[key])(value) for key, value in wanted.items()]
    return reduce(and_, conditions) if conditions else None
