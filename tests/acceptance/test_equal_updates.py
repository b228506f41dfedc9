"""An update with the values that are there makes no version."""

from __future__ import annotations

from typing import Any

import pytest

from memory import DocumentPut, LegalHoldActive, Memory, VersionConflict
from tests.acceptance.support import USER, Clock

EQUAL: list[dict[str, Any]] = [
    {"content": "text"},
    {"title": "Title"},
    {"tags": ["a", "b"]},
    {"metadata": {"n": 1}},
    {"metadata": {}},
    {"data": {"deep": [1, None]}},
    {"source": "import"},
    {"type": "user"},
    {"searchable": True},
    {"content": "text", "title": "Title", "metadata": {"n": 1, "of": "ada"}},
]
OTHER: list[dict[str, Any]] = [
    {"content": "Text"},
    {"title": None},
    {"tags": ["b", "a"]},
    {"metadata": {"n": 1.0}},
    {"metadata": {"n": True}},
    {"metadata": {"m": 1}},
    {"data": {"deep": [True, None]}},
    {"source": "another"},
    {"searchable": False},
]


async def test_an_update_of_an_entry_with_its_values_makes_no_version(memory: Memory, clock: Clock) -> None:
    entry = await memory.write(
        "text",
        scope=USER,
        title="Title",
        tags=["a", "b"],
        metadata={"n": 1, "of": "ada"},
        data={"deep": [1, None]},
        source="import",
        type="user",
    )
    clock.advance()
    for values in EQUAL:
        assert await memory.update(entry.id, **values) == entry, values
    assert await memory.update(entry.id, content="text", expected_version=entry.version) == entry
    assert await memory.update(entry.id, content="text", request_id="r1") == entry
    assert await memory.update(entry.id, content="text", request_id="r1") == entry
    assert len(await memory.entries.history(entry.id)) == 1
    for number, values in enumerate(OTHER, start=2):
        await memory.update(entry.id, **values)
        assert len(await memory.entries.history(entry.id)) == number, values
    with pytest.raises(VersionConflict):
        await memory.update(entry.id, content="Text", expected_version=entry.version)


async def test_an_update_of_a_session_with_its_values_makes_no_version(memory: Memory, clock: Clock) -> None:
    until = clock.advance().replace(year=2200)
    await memory.sessions.create(
        "s1", title="Talk", tags=["a"], metadata={"n": 1}, system="Be kind.", expires_at=until
    )
    first = await memory.session("s1").info()
    clock.advance()
    equal: list[dict[str, Any]] = [
        {"title": "Talk"},
        {"metadata": {"n": 1}},
        {"tags": ["a"]},
        {"system": "Be kind."},
        {"expires_at": first.expires_at},
        {"title": "Talk", "metadata": {"n": 1}, "expected_version": first.attributes_version},
    ]
    for values in equal:
        info = await memory.sessions.update("s1", **values)
        assert info.attributes_version == first.attributes_version, values
        assert info.updated_at == first.updated_at
    other: list[dict[str, Any]] = [
        {"title": "Talk 2"},
        {"title": None},
        {"metadata": {"n": True}},
        {"metadata": {}},
        {"tags": []},
        {"system": "Be brief."},
        {"expires_at": None},
    ]
    seen = {first.attributes_version}
    for values in other:
        info = await memory.sessions.update("s1", **values)
        assert info.attributes_version not in seen, values
        seen.add(info.attributes_version)
    with pytest.raises(VersionConflict):
        await memory.sessions.update("s1", tags=[], expected_version=first.attributes_version)


STORED: dict[str, Any] = {"a": 1, "b": {"c": [1, None], "d": "x"}}
SAME: dict[str, Any] = {"b": {"d": "x", "c": [1, None]}, "a": 1}
CHANGED: list[dict[str, Any]] = [
    {**STORED, "a": 1.0},
    {**STORED, "a": True},
    {**STORED, "a": "1"},
    {"a": 1, "b": {"c": [None, 1], "d": "x"}},
]


async def test_the_order_of_keys_changes_no_entry_and_the_type_of_a_value_does(memory: Memory) -> None:
    entry = await memory.write("text", scope=USER, key="k", metadata=STORED, data=STORED)
    assert await memory.update(entry.id, metadata=SAME, data=SAME) == entry
    for policy in ("update", "replace"):
        written = await memory.write("text", scope=USER, key="k", metadata=SAME, data=SAME, if_exists=policy)
        assert written.version == entry.version, policy
    for value in CHANGED:
        changed = await memory.update(entry.id, data=value)
        assert changed.version != entry.version, value
        entry = changed


async def test_the_order_of_keys_changes_no_session_and_the_type_of_a_value_does(memory: Memory) -> None:
    await memory.sessions.create("s1", metadata=STORED)
    before = await memory.session("s1").info()
    for value in (SAME, *CHANGED):
        info = await memory.sessions.update("s1", metadata=value)
        assert (info.attributes_version == before.attributes_version) is (value is SAME), value
        before = info


async def test_the_order_of_keys_changes_no_document_and_the_type_of_a_value_does(memory: Memory) -> None:
    documents = memory.documents
    before = await documents.put(USER, "k", STORED, metadata=STORED)
    assert await documents.put(USER, "k", SAME, metadata=SAME) == before
    assert await documents.put_many([DocumentPut(USER, "k", SAME, SAME)]) == [before]
    for value in CHANGED:
        for given in ((value, STORED), (value, value)):
            after = await documents.put(USER, "k", given[0], metadata=given[1])
            assert after.version != before.version, given
            before = after


async def test_a_held_task_is_saved_again_with_its_values_alone(memory: Memory) -> None:
    await memory.sessions.create("s1")
    tasks = memory.session("s1").tasks
    await tasks.save("t1", title="Tea", metadata=STORED)
    await memory.admin.legal_holds.add("lawsuit", scope="session:s1", reason="a lawsuit")
    assert (await tasks.save("t1", title="Tea", metadata=SAME)).metadata == STORED
    for value in CHANGED:
        with pytest.raises(LegalHoldActive):
            await tasks.save("t1", title="Tea", metadata=value)
