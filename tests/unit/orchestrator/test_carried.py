"""What entries say of an artifact or a conversation stays with them: through edits, in
kept versions, exported and imported. What their texts show at a glance is made with
them.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from memory.domain.entry import CARRIED, Entry, EntryDraft, ImportedDraft, MessageDraft
from memory.facade.transfer.lines import ImportOptions, MessageLine, exported_entry, read
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.orchestrator.storage.entry_records import request_digest
from memory.policies.text_features import ASKS, ENDS_ASKING, HAS_PLACE
from memory.ports.record import FieldValue, Record
from memory.ports.writes import AtVersion, Put
from tests.unit.orchestrator.world import TENANT, USER, World

SAID: dict[str, FieldValue] = {
    "artifact_id": "report.pdf",
    "conversation_id": "c1",
    "number_in_conversation": 7,
    "speaker": "ann",
}


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


async def test_an_edit_keeps_what_an_entry_says_of_its_conversation_and_so_does_the_version_it_replaced(
    world: World,
) -> None:
    entry = await _entry(world)
    await world.update(entry, content="said by ann, mended", metadata={"n": 1})
    (kept,) = await world.rows(world.mid, ENTRY_VERSIONS)
    assert {name: kept.fields[name] for name in CARRIED} == SAID
    assert [_said(version) for version in await world.engine.entries.history(TENANT, entry.id)] == [
        SAID,
        SAID,
    ]


async def test_an_export_carries_it_into_another_store_and_of_other_entries_tells_nothing(
    world: World,
) -> None:
    entry = await world.get(await _entry(world))
    assert entry is not None
    line = exported_entry(entry)
    assert {name: line[name] for name in CARRIED} == SAID == {name: entry.to_dict()[name] for name in CARRIED}
    (message,) = read(io.BytesIO(json.dumps(line).encode()), "export")
    assert isinstance(message, MessageLine)
    assert isinstance(message.draft, ImportedDraft)
    async with World() as elsewhere:
        imported = await elsewhere.engine.entries.write(TENANT, message.draft)
        assert _said(imported) == SAID
        assert _said((await elsewhere.engine.entries.history(TENANT, imported.id))[0]) == SAID

    other = await world.write("nobody's", USER)
    assert not set(CARRIED) & set(exported_entry(other))


async def _marks(world: World, entry: Entry) -> FieldValue:
    stored = await world.standing(world.mid, entry.id)
    assert isinstance(stored, Record)
    return stored.fields["marks"]


async def test_marks_are_made_of_title_and_content_and_again_when_these_change(world: World) -> None:
    entry = await world.write("Really? He is in Porto.", USER)
    assert await _marks(world, entry) == ASKS | HAS_PLACE
    await world.update(entry, metadata={"n": 1}, tags=["really?"])
    assert await _marks(world, entry) == ASKS | HAS_PLACE
    await world.update(entry, content="Really?")
    assert await _marks(world, entry) == ASKS | ENDS_ASKING
    await world.update(entry, title="Back from Porto")
    assert await _marks(world, entry) == ASKS | ENDS_ASKING | HAS_PLACE
    kept = [
        row.fields["marks"]
        for row in sorted(await world.rows(world.mid, ENTRY_VERSIONS), key=lambda row: row.version)
    ]
    assert kept == [ASKS | HAS_PLACE, ASKS | HAS_PLACE, ASKS | ENDS_ASKING]


@pytest.mark.parametrize("same_ids", [False, True])
async def test_what_is_imported_gets_the_marks_of_its_text(world: World, same_ids: bool) -> None:
    entry = await world.write("Really? He is in Porto.", USER)
    data = io.BytesIO(json.dumps(exported_entry(entry)).encode())
    (message,) = read(data, "export", ImportOptions(same_ids_of=TENANT if same_ids else None))
    assert isinstance(message, MessageLine)
    async with World() as elsewhere:
        if message.as_it_was is not None:
            await elsewhere.engine.transfer.restore_entries(TENANT, [message.as_it_was])
        else:
            entry = await elsewhere.engine.entries.write(TENANT, message.draft)
        assert await _marks(elsewhere, entry) == ASKS | HAS_PLACE


def test_a_keyed_write_of_before_is_the_same_request_still() -> None:
    """As they were before a caller could say where something was said."""
    asked: dict[str, object] = {"scope": USER, "content": "Ada drinks tea", "tags": ["fact"], "key": "k"}
    said = {"conversation_id": "c1", "number_in_conversation": 3, "speaker": "ada"}
    assert request_digest(EntryDraft(**asked)) == "e941507fae1beb060ae67890097fcc6d"
    assert request_digest(ImportedDraft(**asked)) == "d2dad25c547c1c80f58a4df82af2b11a"
    assert request_digest(ImportedDraft(**asked, **said)) == "711a1c39532fbdda0b715283159d9188"
    assert request_digest(MessageDraft(**asked, **said)) == "e941507fae1beb060ae67890097fcc6d"
    alone = [
        request_digest(EntryDraft(**asked, **given))
        for given in ({}, {"speaker": "ada"}, {"conversation_id": "c1"}, said)
    ]
    assert len(set(alone)) == 4
