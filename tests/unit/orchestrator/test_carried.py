"""What entries say of an artifact or a conversation stays with them: through edits, in kept versions, exported and imported."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from memory.domain.entry import CARRIED, Entry, ImportedDraft
from memory.facade.transfer import Message, exported, read
from memory.orchestrator.collections import ENTRIES, ENTRY_VERSIONS
from memory.ports.record import FieldValue, Record
from memory.ports.writes import AtVersion, Put
from tests.unit.orchestrator.world import TENANT, USER, World

SAID: dict[str, FieldValue] = {"artifact_id": "report.pdf", "number": 42, "conversation_id": "c1", "number_in_conversation": 7, "speaker": "ann"}


async def _entry(world: World) -> Entry:
    """An entry that says something in each of these fields."""
    entry = await world.write("said by ann", USER)
    stored = await world.standing(world.mid, entry.id)
    assert isinstance(stored, Record)
    saying = replace(stored, version=stored.version + 1, fields={**stored.fields, **SAID})
    (outcome,) = await world.mid.apply([Put(ENTRIES, saying, AtVersion(stored.version))])
    assert outcome.applied
    return entry


def _said(entry: Entry) -> dict[str, object]:
    return {name: getattr(entry, name) for name in CARRIED}


async def test_an_edit_keeps_what_an_entry_says_of_its_conversation_and_so_does_the_version_it_replaced(world: World) -> None:
    entry = await _entry(world)
    await world.update(entry, content="said by ann, mended", metadata={"n": 1})
    (kept,) = await world.rows(world.mid, ENTRY_VERSIONS)
    assert {name: kept.fields[name] for name in CARRIED} == SAID
    assert [_said(version) for version in await world.engine.entries.history(TENANT, entry.id)] == [SAID, SAID]


async def test_an_export_carries_it_into_another_store_and_of_other_entries_tells_nothing(world: World) -> None:
    entry = await world.get(await _entry(world))
    assert entry is not None
    line = exported(entry)
    assert {name: line[name] for name in CARRIED} == SAID == {name: entry.to_dict()[name] for name in CARRIED}
    (message,) = read(io.BytesIO(json.dumps(line).encode()), "export")
    assert isinstance(message, Message)
    assert isinstance(message.draft, ImportedDraft)
    async with World() as elsewhere:
        imported = await elsewhere.engine.entries.write(TENANT, message.draft)
        assert _said(imported) == SAID
        assert _said((await elsewhere.engine.entries.history(TENANT, imported.id))[0]) == SAID

    other = await world.write("nobody's", USER)
    assert not set(CARRIED) & set(exported(other))
