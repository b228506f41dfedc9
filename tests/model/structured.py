"""Entries with data, filters on metadata and data, and what these mean; and what
somebody might break.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memory import Memory
from memory.orchestrator.entries.derivation import Derivation
from tests.model.mutants import Method, mutant
from tests.model.words import own_word

if TYPE_CHECKING:
    from tests.model.generate import Generator

Condition = Sequence[Any]
"""A path, an operator as in the dict of a filter, and a value. Operations are JSON: it
is a list there.
"""
MISSING = object()
CREW = ("Ada", "Ben", "ünï")
PRICES: tuple[Any, ...] = (900, 48_000, 48_000.0, -0.5, "900", True, None)
CONDITIONS: tuple[Condition, ...] = (
    (["data", "kind"], "$eq", "sloop"),
    (["data", "kind"], "$ne", "sloop"),
    (["data", "kind"], "$gt", "Sloop"),
    (["data", "kind"], "$in", ["ketch", "Sloop", 3]),
    (["data", "kind"], "$nin", ["ketch", "sloop"]),
    (["data", "price"], "$eq", 48_000),
    (["data", "price"], "$eq", True),
    (["data", "price"], "$eq", None),
    (["data", "price"], "$lt", 1_000),
    (["data", "price"], "$gte", "900"),
    (["data", "crew"], "$contains", "Ada"),
    (["data", "hull", "length"], "$gte", 7),
    (["data", "hull", "length"], "$exists", True),
    (["data", "hull"], "$exists", False),
    (["metadata", "number"], "$lte", 0),
    (["metadata", "source"], "$eq", "conversation"),
    (["metadata", "nested", "quote"], "$exists", True),
)
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "$lt": operator.lt,
    "$lte": operator.le,
    "$gt": operator.gt,
    "$gte": operator.ge,
}


# -- what is drawn ---------------------------------------------------------------------


def drawn_data(g: Generator, part: str) -> Any:
    """Mostly an object, with a word of its own that no search finds."""
    if g.chance.random() < 0.1:
        return [1, {"kind": "sloop", "note": own_word(g.number, part + "l")}]
    data: dict[str, Any] = {
        "kind": g.chance.choice(("sloop", "ketch", "Sloop", "sloop\n")),
        "price": g.chance.choice(PRICES),
        "crew": g.chance.sample(CREW, g.chance.randrange(3)),
        "hull": {"length": g.chance.choice((6, 7, 7.0, 12.5)), "a.b": {"deep": [None, 1.0]}},
        "note": f"the note {own_word(g.number, part + 'd')}",
    }
    return {name: data[name] for name in g.chance.sample(sorted(data), g.chance.choice((2, 4, 5)))}


def drawn_where(g: Generator) -> list[Condition]:
    return [list(one) for one in g.chance.sample(CONDITIONS, g.chance.choice((1, 1, 2)))]


# -- and what it means -----------------------------------------------------------------


def filter_of(where: Iterable[Condition]) -> dict[str, Any]:
    """The filter with these conditions, as a caller writes it; empty for none."""
    parts = [{".".join(path): {how: value}} for path, how, value in where]
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else {}


def passes(condition: Condition, fields: Any) -> bool:
    """Whether an entry or a document with these fields meets a condition."""
    path, how, wanted = condition
    found = fields
    for name in path:
        found = found.get(name, MISSING) if isinstance(found, dict) else MISSING
    if how == "$exists":
        return (found is not MISSING) is wanted
    if how in ("$ne", "$nin"):
        return not passes((path, {"$ne": "$eq", "$nin": "$in"}[how], wanted), fields)
    if how in ("$eq", "$in"):
        return any(_equal(found, one) for one in (wanted if how == "$in" else [wanted]))
    if how == "$contains":
        return isinstance(found, list) and any(_equal(one, wanted) for one in found)
    kind = _kind(found)
    return kind in ("text", "number") and kind == _kind(wanted) and COMPARED[how](found, wanted)


def _equal(one: object, other: object) -> bool:
    return _kind(one) == _kind(other) and one == other


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "truth"
    return (
        "number" if isinstance(value, int | float) else "text" if isinstance(value, str) else str(type(value))
    )


def merged_data(of: Sequence[Any]) -> tuple[Any, bool]:
    """The data of a compaction; and whether its sources have different data, which it
    refuses.
    """
    some = [one for one in of if one is not None]
    return (some[0] if some else None), any(repr(one) != repr(some[0]) for one in some)


# -- what somebody might break ---------------------------------------------------------


@mutant("update")
async def data_are_merged(whole: Method, memory: Memory, entry_id: str, **changes: Any) -> Any:
    before = await memory.get(entry_id)
    if before is not None and isinstance(before.data, dict) and isinstance(changes.get("data"), dict):
        changes["data"] = before.data | changes["data"]
    return await whole(memory, entry_id, **changes)


@mutant("write")
async def what_no_search_is_to_find_is_found(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    made = await whole(memory, *args, **(kwargs | {"searchable": True}))
    return made.model_copy(update={"searchable": kwargs.get("searchable", True)})


@mutant("Derivation.promote")
async def a_copy_loses_its_data(whole: Method, derivation: Derivation, *args: Any, **kwargs: Any) -> Any:
    made = await whole(derivation, *args, **kwargs)
    return made.model_copy(update={"data": None})


@mutant("search")
async def a_search_knows_no_filter_on_data(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    given = kwargs.get("filter", {})
    return await whole(
        memory, *args, **(kwargs | {"filter": {name: given[name] for name in given if "." not in name}})
    )
