"""Entries of one moment, some of them without a sequence, as earlier releases stored
them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.orchestrator.storage.collections import ENTRIES, SEQUENCE
from memory.policies.browse_cursor import place_of
from memory.policies.entry_query import EntryQuery
from memory.ports.query import Everywhere, Query
from memory.ports.record import Record
from memory.ports.writes import AtVersion, Put
from tests.unit.orchestrator.world import DAY, TENANT, USER, World


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_entries_without_a_sequence_come_before_the_others_by_id(
    world: World, limit: int, order: str
) -> None:
    born = world.clock() - DAY
    entries = [await world.write(f"n{n}", scope=USER, created_at=born, key=f"k{n}") for n in range(7)]
    older = {entry.id for entry in entries[4:]}
    for row in (await world.mid.query(Query(ENTRIES, Everywhere(), limit=100))).records:
        assert isinstance(row, Record)
        if row.key.id in older:
            fields = {name: value for name, value in row.fields.items() if name != SEQUENCE}
            await world.mid.apply([Put(ENTRIES, replace(row, fields=fields), AtVersion(row.version))])
    wanted = [*sorted(older), *(entry.id for entry in entries[:4])]
    asked = EntryQuery(TENANT, (USER,), order=order, limit=limit)  # type: ignore[arg-type]
    found: list[str] = []
    while True:
        page = await world.engine.browser.browse(asked)
        found += [entry.id for entry in page]
        if page.cursor is None:
            break
        asked = replace(asked, after=place_of(page.cursor, asked))
    assert found == (wanted if order == "oldest" else wanted[::-1])
