"""Values at declared paths in bodies, which MongoDB can index.

A body is text. So a document has a copy of the value at each path that the
configuration names, under `paths` and a digest of the path. No checksum covers the
copies, which are derived from the body.

A document lacks a copy if its writer did not know the path, and if the value has no
exact copy. Conditions treat such a value as unknown: the query returns the record, and
the caller checks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from pymongo import IndexModel, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection

from memory.domain.filters import MISSING as NO_VALUE
from memory.domain.filters import value_at
from memory.ports.query import JsonPath
from memory.ports.rows import RECORD

Labels: TypeAlias = Mapping[tuple[str, ...], str]
"""The name of the copy of each path."""
Document: TypeAlias = dict[str, Any]

PATHS = "paths"
MISSING: Document = {"missing": True}
NULL: Document = {"null": True}
OTHER: Document = {"other": True}
"""The copies of no value, of null, and of an object or a list."""

LONGEST = 1_024
"""The most characters of a text that is copied."""
_UNKNOWN: Final = object()
_INT64 = 2**63
_FILLED_AT_ONCE = 500


def labels_of(paths: Iterable[tuple[str, ...]]) -> Labels:
    return {path: blake2b(repr(path).encode(), digest_size=8).hexdigest() for path in sorted(paths)}


def copies_of(body: str | None, labels: Labels) -> Document:
    """Return the copies of the values at these paths of a body."""
    try:
        whole = json.loads(body) if body else {}
    except ValueError:
        return {}
    found = ((label, copy_of(value_at(whole, path))) for path, label in labels.items())
    return {label: copy for label, copy in found if copy is not _UNKNOWN}


def copy_of(value: Any) -> Any:
    """Return the copy of a JSON value, or `_UNKNOWN` if it has no exact one."""
    if value is NO_VALUE:
        return MISSING
    if value is None:
        return NULL
    if isinstance(value, dict | list):
        return OTHER
    if isinstance(value, str):
        return value if len(value) <= LONGEST else _UNKNOWN
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        return _UNKNOWN
    return value


def is_comparable(part: JsonPath) -> bool:
    """Return whether a comparison with a copy is exact."""
    wanted = part.value if part.operator == "in" else (part.value,)
    return all(copy_of(one) is not _UNKNOWN for one in wanted)


_SIGNS = {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}


def path_condition(label: str, part: JsonPath, *, wide: bool) -> Document:
    """Return the condition on a copy.

    An unknown value meets it if it is `wide`.
    """
    path = f"{PATHS}.{label}"
    unknown: list[Any] = [None] if wide else []
    if part.operator == "exists":
        return {path: {"$nin": [MISSING] if wide else [None, MISSING]}}
    if part.operator in ("==", "in"):
        wanted = part.value if part.operator == "in" else (part.value,)
        return {path: {"$in": [*map(copy_of, wanted), *unknown]}}
    if part.value is None or isinstance(part.value, bool):  # they have no order
        return {path: {"$in": unknown}}
    compared: Document = {path: {_SIGNS[part.operator]: part.value}}
    return {"$or": [compared, {path: {"$eq": None}}]} if wide else compared


def path_indexes(labels: Labels) -> list[IndexModel]:
    return [
        IndexModel(
            [("tenant", 1), (f"{PATHS}.{label}", 1), ("scope", 1)],
            name=f"body_{label}",
            partialFilterExpression={"type": RECORD},
        )
        for label in labels.values()
    ]


async def fill_copies(
    documents: AsyncCollection[Document], schema: AsyncCollection[Document], labels: Labels
) -> None:
    """Add the copies of paths that were declared since the documents were written.

    It is done once for each path, and safe beside writers.
    """
    note = {"_id": f"{PATHS}.{documents.name}"}
    known = await schema.find_one(note) or {}
    new = {path: label for path, label in labels.items() if label not in known.get("filled", ())}
    if not new:
        return
    lacking = {"type": RECORD, "$or": [{f"{PATHS}.{label}": None} for label in new.values()]}
    changes: list[UpdateOne] = []
    async for document in documents.find(lacking, {"body": 1, "token": 1}):
        copies = {f"{PATHS}.{label}": copy for label, copy in copies_of(document.get("body"), new).items()}
        if copies:
            same = {"_id": document["_id"], "token": document.get("token")}
            changes.append(UpdateOne(same, {"$set": copies}))
        if len(changes) == _FILLED_AT_ONCE:
            await documents.bulk_write(changes, ordered=False)
            changes = []
    if changes:
        await documents.bulk_write(changes, ordered=False)
    await schema.update_one(note, {"$addToSet": {"filled": {"$each": list(new.values())}}}, upsert=True)
