"""Compares derived data with the records.

A document's words must be those of its texts. A copy of a damaged document needs a
document that refers to it. Statistics are counted by every search, and the server
maintains the indexes, so neither is audited.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory.adapters.mongo.codec import DERIVED, QUARANTINED, Document, held_in, key_in, words_of
from memory.adapters.mongo.filters import OURS
from memory.adapters.mongo.paths import PATHS, copies_of
from memory.adapters.mongo.quarantine import Quarantine
from memory.adapters.mongo.table import Table, as_it_was
from memory.ports import lexical
from memory.ports.rows import RECORD, Row


async def audit_words(table: Table, problems: list[str], *, repair: bool) -> int:
    """Compare the words of every document with its texts; return how many were checked.

    A document that changed since it was read is skipped, because its writer set its
    words.
    """
    checked = 0
    async for document in table.documents.find(OURS, batch_size=table.thresholds.audited_at_once):
        checked += 1
        row = held_in(document).row
        if row is None and QUARANTINED not in document:
            continue  # a read reports it
        indexed = row is not None and row.type == RECORD and bool(table.collection.texts)
        if row is not None and row.type == RECORD and table.labels:
            await _audit_copies(table, document, row, problems, repair=repair)
        wanted = words_of(lexical.index(table.collection, row.texts)) if indexed and row is not None else {}
        if {name: document[name] for name in DERIVED if name in document} == wanted:
            continue
        same = table.at(key_in(document)) | as_it_was(document)
        if repair:
            lacking = dict.fromkeys([name for name in DERIVED if name not in wanted], "")
            change: Document = {
                sign: parts for sign, parts in (("$unset", lacking), ("$set", wanted)) if parts
            }
            differs = (await table.documents.update_one(same, change)).matched_count
        else:
            differs = await table.documents.count_documents(same, limit=1)
        if differs:
            problems.append(
                f"{table.collection.name}: the words of {key_in(document).id} are not those of its texts"
            )
    return checked


async def _audit_copies(
    table: Table, document: Document, row: Row, problems: list[str], *, repair: bool
) -> None:
    """Compare the copies of values in the body, and add those that are missing.

    A copy that is missing is no problem: its writer did not know the path.
    """
    found, wanted = document.get(PATHS, {}), copies_of(row.body, table.labels)
    wrong = [label for label in table.labels.values() if label in found and found[label] != wanted.get(label)]
    problems += (
        [f"{table.collection.name}: a copy of a value of {row.id} is not that in its body"] if wrong else []
    )
    if repair and any(found.get(label) != copy for label, copy in wanted.items()):
        same = table.at(key_in(document)) | as_it_was(document)
        await table.documents.update_one(same, {"$set": {f"{PATHS}.{n}": copy for n, copy in wanted.items()}})


async def audit_foreign(table: Table, problems: list[str]) -> None:
    """Report documents of other programs. No query or erasure includes them."""
    if foreign := await table.documents.count_documents({"$nor": [OURS]}):
        problems.append(
            f"{table.collection.name}: {foreign} documents in '{table.name}' are not of this program and were"
            " skipped; move them elsewhere, or choose another prefix"
        )


async def audit_copies(
    quarantine: Quarantine, tables: Mapping[str, Table], problems: list[str], page: int, *, repair: bool
) -> None:
    """Check that every copy of a damaged document has a document that refers to it."""
    async for copy in quarantine.copies.find({}, {"_id": 1}, batch_size=page):
        key = copy["_id"]
        table = tables.get(key["collection"])
        if table is None or await table.documents.find_one(
            {"_id": {"tenant": key["tenant"], "id": key["id"]}, QUARANTINED: True}, {"_id": 1}
        ):
            continue
        problems.append(
            f"{key['collection']}: a copy of the damaged record {key['id']} is kept though the record is gone"
        )
        if repair:
            await quarantine.copies.delete_one({"_id": key})
