"""An update with the values that are there makes no version."""

from __future__ import annotations

from typing import Any

import pytest

from memory import Memory, VersionConflict
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
