"""Nobody outside can change what is stored by changing what they handed in or were
handed.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory import Entry
from memory.facade.memory import Memory
from tests.acceptance.support import USER


async def _stored(memory: Memory, entry: Entry) -> Entry:
    read = await memory.get(entry.id)
    assert read is not None
    return read


def _spoil(entry: Entry) -> None:
    entry.tags.append("damaged")
    entry.metadata["deep"]["list"].append("damaged")
    entry.metadata["damaged"] = True
    entry.content = "damaged"


@pytest.mark.behaviour("A9", "AC-A07")
async def test_changing_what_was_handed_in_does_not_change_the_entry(memory: Memory) -> None:
    metadata: dict[str, Any] = {"deep": {"list": [1]}}
    tags = ["a"]
    entry = await memory.write("kept", scope=USER, tags=tags, metadata=metadata)
    metadata["deep"]["list"].append(2)
    metadata["late"] = True
    tags.append("late")
    assert entry.metadata == (await _stored(memory, entry)).metadata == {"deep": {"list": [1]}}
    assert entry.tags == (await _stored(memory, entry)).tags == ["a"]


@pytest.mark.behaviour("A9")
async def test_changing_what_was_handed_to_update_does_not_change_the_entry(memory: Memory) -> None:
    entry = await memory.write("kept", scope=USER)
    metadata: dict[str, Any] = {"deep": {"list": [1]}}
    tags = ["a"]
    await memory.update(entry.id, metadata=metadata, tags=tags)
    metadata["deep"]["list"].append(2)
    tags.append("late")
    read = await _stored(memory, entry)
    assert (read.metadata, read.tags) == ({"deep": {"list": [1]}}, ["a"])


@pytest.mark.behaviour("A9")
async def test_drafts_that_share_an_object_are_stored_apart(memory: Memory) -> None:
    shared: dict[str, Any] = {"deep": {"list": []}}
    one, two = await memory.write_many(
        [{"content": c, "scope": USER, "metadata": shared} for c in ("one", "two")]
    )
    shared["deep"]["list"].append("late")
    one.metadata["deep"]["list"].append("damaged")
    assert (
        (await _stored(memory, one)).metadata
        == (await _stored(memory, two)).metadata
        == {"deep": {"list": []}}
    )


@pytest.mark.behaviour("A10", "AC-A07")
async def test_changing_what_was_read_does_not_change_the_store(memory: Memory) -> None:
    written = await memory.write("kept", scope=USER, tags=["a"], metadata={"deep": {"list": [1]}})
    updated = await memory.update(written.id, metadata={"more": 1})
    handed_out = [written, updated, await _stored(memory, written)]
    handed_out += await memory.retrieve(USER)
    handed_out += [hit.entry for hit in await memory.search("kept", scope=USER)]
    handed_out += await memory.entries.history(written.id)
    handed_out += [entry async for entry in memory.entries.iterate()]
    for entry in handed_out:
        _spoil(entry)
    read = await _stored(memory, written)
    assert (read.content, read.tags, read.metadata) == ("kept", ["a"], {"deep": {"list": [1]}, "more": 1})
    first = (await memory.entries.history(written.id))[0]
    assert (first.tags, first.metadata) == (["a"], {"deep": {"list": [1]}})


@pytest.mark.behaviour("A10", "A77")
async def test_a_compaction_callback_cannot_change_its_sources(memory: Memory) -> None:
    source = await memory.write("kept", scope=USER, tags=["a"], metadata={"deep": {"list": [1]}})

    def callback(entries: list[Entry]) -> str:
        _spoil(entries[0])
        entries.clear()
        return "whole"

    compacted = await memory.compact([source.id], callback)
    read = await _stored(memory, source)
    assert (read.content, read.tags, read.metadata) == ("kept", ["a"], {"deep": {"list": [1]}})
    assert (compacted.tags, compacted.metadata) == (["a"], {"deep": {"list": [1]}})


@pytest.mark.behaviour("A10", "A82")
async def test_a_compacted_entrys_contributors_are_copies_too(memory: Memory) -> None:
    source = await memory.write("part", scope=USER, metadata={"agentId": {"name": ["ada"]}})
    compacted = await memory.compact([source.id], lambda entries: "whole")
    for entry in (compacted, await _stored(memory, compacted)):
        assert entry.contributors is not None
        assert entry.compacted_from_ids is not None
        entry.contributors[0].agent_id["name"].append("damaged")
        entry.compacted_from_ids.append("damaged")
    read = await _stored(memory, compacted)
    assert read.contributors is not None
    assert read.contributors[0].agent_id == {"name": ["ada"]}
    assert read.compacted_from_ids == [source.id]


@pytest.mark.behaviour("A10")
async def test_a_promoted_entry_is_independent_of_its_source(memory: Memory) -> None:
    source = await memory.write("kept", scope=USER, tags=["a"], metadata={"deep": {"list": [1]}})
    promoted = await memory.promote(source.id, to="org:o1")
    _spoil(promoted)
    await memory.update(promoted.id, metadata={"deep": 2}, tags=["b"])
    read = await _stored(memory, source)
    assert (read.tags, read.metadata) == (["a"], {"deep": {"list": [1]}})
