"""The promise of enrichment: once all that was owed has been done, what advisors had
retired is linked to what took its place, which is newer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from typing import Any

from memory.domain.provenance import named_in
from memory.domain.validation import MAX_TAGS
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.enrichment import AUTO_SUPERSEDE, ENRICH
from memory.orchestrator.entries.relations import MADE_BY
from memory.orchestrator.storage.collections import ENTRIES, RELATIONS
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record, Role


async def unenriched(engine: Engine, by_hand: Container[str] = ()) -> list[str]:
    """What is not as it is to be, a sentence each, where nothing but advisors retires
    entries, but for those that may have been `by_hand`. Of each entry the run is
    another: so what gave way says by its origins to whom, also where that was deleted
    since, with the link.
    """
    wrong = list[str]()
    entries = {
        record.key.id: record
        for store in engine.topology.homes
        for record in await _homes(engine, store, ENTRIES)
    }
    links = [
        link for link in await _homes(engine, engine.topology.archive, RELATIONS) if MADE_BY in link.body
    ]
    linked = defaultdict[str, list[str]](list)
    for link in links:
        source, target = (entries.get(str(link.fields[name])) for name in ("source_id", "target_id"))
        if source is None or target is None:
            continue  # a sweep drops the link
        linked[target.key.id].append(source.key.id)
        if (target.created_at, target.key.id) >= (source.created_at, source.key.id):
            wrong.append(
                f"{target.texts['content']} is not older than {source.texts['content']}, which took its place"
            )
        if target.scope != source.scope:
            wrong.append(f"{target.key.id} gave way to an entry of another scope")
        if target.fields["type"] != source.fields["type"] and target.previous is None:
            wrong.append(f"{target.key.id} gave way to an entry of another type")
        if target.fields.get("valid_to") != max(target.fields["valid_from"], link.created_at):  # type: ignore[type-var]
            wrong.append(
                f"{target.texts['content']} is linked to what is to have taken its place, and ended"
                " otherwise, or stands"
            )
    runs = {origin for one in entries.values() for origin in named_in(one.fields)}
    for one in entries.values():
        given: Any = one.fields.get("origins") or ()
        retired, origins = one.fields.get("valid_to") is not None, frozenset[str](given)
        if len(linked[one.key.id]) > 1 or (
            retired and not linked[one.key.id] and one.key.id not in by_hand and origins <= runs
        ):
            wrong.append(
                f"{one.texts['content']} gave way by {sorted(origins)}, and is linked to {linked[one.key.id]}"
            )
        if len(one.fields.get("tags") or ()) > MAX_TAGS:  # type: ignore[arg-type]
            wrong.append(f"{one.key.id} has too many tags")
        if owed := [owed.id for owed in one.owed if owed.step == ENRICH or owed.id == AUTO_SUPERSEDE]:
            wrong.append(f"{one.key.id} owes {owed}")
    return wrong


async def _homes(engine: Engine, store: object, collection: object) -> list[Record]:
    query = Query(collection, Everywhere(), limit=500, roles=frozenset({Role.HOME, Role.ARRIVING}))  # type: ignore[arg-type]
    return [
        row
        async for page in engine.placement.pages("look", store, query)  # type: ignore[arg-type]
        for row in page.records
        if isinstance(row, Record)
    ]
