"""What is derived from records, compared with them: each document's words, counts and length are those of its texts, and nothing else has any.

Statistics are counted by every search, and indexes are the server's own. A copy of a damaged document stands beside a document that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from memory.adapters.mongo.codec import ASIDE, key_in
from memory.adapters.mongo.schema import Names
from memory.adapters.mongo.shelf import Shelf
from memory.adapters.mongo.values import Document
from memory.ports.record import Corrupt, Record

_DERIVED = ("length", "words", "counts")


async def audit_words(shelf: Shelf, problems: list[str], *, repair: bool) -> int:
    """How many documents were looked at. What changed since it was read is as its writer left it: only the same checksum is judged."""
    checked = 0
    async for document in shelf.documents.find({}, batch_size=shelf.thresholds.audited_at_once):
        checked += 1
        stored = shelf.layout.read(document)
        if isinstance(stored, Corrupt) and ASIDE not in document:
            continue  # its reader's business
        wanted = _derived(shelf, stored) if isinstance(stored, Record) else {}
        if {name: document[name] for name in _DERIVED if name in document} == wanted:
            continue
        same = shelf.at(key_in(document)) | {"checksum": {"$eq": document["checksum"]}}
        if repair:
            change: Document = {"$unset": dict.fromkeys([name for name in _DERIVED if name not in wanted], "")} if len(wanted) < len(_DERIVED) else {}
            differs = (await shelf.documents.update_one(same, change | ({"$set": dict(wanted)} if wanted else {}))).matched_count
        else:
            differs = await shelf.documents.count_documents(same, limit=1)
        if differs:
            problems.append(f"{shelf.collection.name}: the words of {key_in(document).id} are not those of its texts")
    return checked


def _derived(shelf: Shelf, record: Record) -> Mapping[str, Any]:
    if not shelf.collection.texts:
        return {}
    length, counts = shelf.layout.parts.index(record.texts)
    return {"length": length, "words": list(counts), "counts": counts} if counts else {"length": length}


async def audit_copies(
    database: AsyncDatabase[Document], names: Names, shelves: Mapping[str, Shelf], problems: list[str], page: int, *, repair: bool
) -> None:
    """Every copy of a damaged document has one that says so."""
    copies = database[names.aside]
    async for copy in copies.find({}, {"_id": 1}, batch_size=page):
        place = copy["_id"]
        shelf = shelves.get(place["collection"])
        if shelf is None or await shelf.documents.find_one({"_id": {"tenant": place["tenant"], "id": place["id"]}, ASIDE: True}, {"_id": 1}):
            continue
        problems.append(f"{place['collection']}: a copy of the damaged record {place['id']} is kept though the record is gone")
        if repair:
            await copies.delete_one({"_id": place})
