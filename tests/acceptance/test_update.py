"""Editing: what may change, what stays, and who is not found."""

from __future__ import annotations

from typing import Any

import pytest

from memory import Entry, InvalidInput, NotFound, Scope
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import DAY, HOUR, SCOPES, SESSION, USER, Clock, watching


async def _full(memory: Memory, clock: Clock, scope: Scope = USER) -> Entry:
    return await memory.write(
        "before",
        scope=scope,
        type="project",
        title="Title",
        source="planning",
        tags=["old"],
        metadata={"keep": 1, "replace": 1},
        expires_at=clock.moment + DAY,
    )


@pytest.mark.behaviour("A48", "A49", "D14")
@pytest.mark.parametrize(
    ("change", "becomes"),
    [
        ({"content": "after"}, {"content": "after"}),
        ({"title": "Another"}, {"title": "Another"}),
        ({"title": None}, {"title": None}),
        ({"type": "learning"}, {"type": "learning"}),
        ({"source": "review"}, {"source": "review", "origins": ["source:planning"]}),
        ({"source": None}, {"source": None, "origins": ["source:planning"]}),
        ({"tags": []}, {"tags": []}),
        ({"metadata": {"replace": 2, "new": 3}}, {"metadata": {"keep": 1, "replace": 2, "new": 3}}),
        ({"metadata": {"keep": None}}, {"metadata": {"keep": None, "replace": 1}}),
        ({"expires_at": None}, {"expires_at": None}),
    ],
    ids=str,
)
async def test_only_what_is_given_changes(
    memory: Memory, clock: Clock, change: dict[str, Any], becomes: dict[str, Any]
) -> None:
    before = await _full(memory, clock)
    clock.advance()
    after = await memory.update(before.id, **change)
    expected = before.model_dump() | becomes | {"updated_at": after.updated_at, "version": after.version}
    assert after.model_dump() == expected
    assert after.updated_at > before.updated_at
    assert after.version > before.version
    assert await memory.get(before.id) == after
    assert await memory.retrieve(USER) == [after]


@pytest.mark.behaviour("A48", "AC-A25")
@SCOPES
async def test_tags_are_replaced_without_duplicates(memory: Memory, clock: Clock, scope: Scope) -> None:
    entry = await _full(memory, clock, scope)
    updated = await memory.update(entry.id, tags=["new", "extra", "new"])
    assert updated.tags == ["new", "extra"]
    assert await memory.retrieve(scope, tags=["old"]) == []
    assert await memory.retrieve(scope, tags=["extra"]) == [updated]


@pytest.mark.behaviour("A48")
async def test_metadata_is_merged_one_level_deep(memory: Memory) -> None:
    entry = await memory.write("deep", scope=USER, metadata={"a": {"x": 1, "y": 1}, "b": 1})
    assert (await memory.update(entry.id, metadata={"a": {"z": 1}})).metadata == {"a": {"z": 1}, "b": 1}


@pytest.mark.behaviour("A48")
async def test_merged_metadata_stays_within_its_limit(memory: Memory) -> None:
    entry = await memory.write("large", scope=USER, metadata={"a": "x" * 40_000})
    with pytest.raises(InvalidInput, match="metadata"):
        await memory.update(entry.id, metadata={"b": "x" * 40_000})
    assert await memory.get(entry.id) == entry
    assert (await memory.update(entry.id, metadata={"a": "", "b": "x" * 40_000})).metadata["a"] == ""


async def test_a_length_of_time_begins_anew_with_each_call_that_names_it(
    memory: Memory, clock: Clock
) -> None:
    entry = await memory.write("same", scope=USER, key="k", expires_at=HOUR)
    assert entry.expires_at is not None
    clock.advance(HOUR / 2)
    changed = await memory.update(entry.id, expires_at=HOUR)
    assert changed.expires_at is not None
    assert changed.expires_at >= entry.expires_at + HOUR / 2
    clock.advance(HOUR / 2)
    for if_exists in ("update", "replace"):
        again = await memory.write("same", scope=USER, key="k", expires_at=HOUR, if_exists=if_exists)
        assert again.expires_at is not None
        assert again.expires_at >= changed.expires_at + HOUR / 2, if_exists


@pytest.mark.behaviour("A50")
async def test_expiry_is_cleared_by_none_and_stays_when_not_given(memory: Memory, clock: Clock) -> None:
    entry = await _full(memory, clock)
    assert (await memory.update(entry.id, content="edited")).expires_at == entry.expires_at
    assert (await memory.update(entry.id, expires_at=None)).expires_at is None
    clock.advance(2 * DAY)
    assert await memory.get(entry.id) is not None
    later = clock.moment + HOUR
    assert (await memory.update(entry.id, expires_at=later)).expires_at == later


@pytest.mark.behaviour("A51", "D17")
@cells(
    "field",
    [
        "promoted_from_id",
        "compacted_from_ids",
        "valid_from",
        "valid_to",
        "created_at",
        "id",
        "tenant",
    ],
    shared=True,
)
async def test_nothing_else_can_be_changed(memory: Memory, field: str) -> None:
    entry = await memory.write("fixed", scope=USER)
    with pytest.raises(TypeError):
        await memory.update(entry.id, **{field: "x"})  # type: ignore[arg-type]
    assert await memory.get(entry.id) == entry


@pytest.mark.behaviour("A51", "A66")
async def test_an_edit_keeps_provenance(memory: Memory) -> None:
    source = await memory.write("from", scope=SESSION)
    compacted = await memory.compact([source.id], lambda entries: "whole")
    promoted = await memory.promote(compacted.id, to=USER)
    edited = await memory.update(promoted.id, content="edited", metadata={"promoted_from_id": "fake"})
    assert edited.promoted_from_id == compacted.id
    assert edited.compacted_from_ids == [source.id]
    assert edited.contributors == promoted.contributors


@pytest.mark.behaviour("A52", "AC-A27")
@SCOPES
async def test_empty_content_is_a_value(memory: Memory, scope: Scope) -> None:
    entry = await memory.write("c", scope=scope)
    assert (await memory.update(entry.id, content="")).content == ""
    read = await memory.get(entry.id)
    assert read is not None
    assert read.content == ""
    assert [e.content for e in await memory.entries.history(entry.id)] == ["c", ""]
    assert (await memory.update(entry.id, tags=["x"])).content == ""


@pytest.mark.behaviour("A53", "A16")
async def test_updating_what_is_not_there_says_so_by_id(memory: Memory, clock: Clock) -> None:
    expired = await memory.write("expired", scope=USER, expires_at=clock.moment - HOUR)
    deleted = await memory.write("deleted", scope=USER)
    await memory.delete(deleted.id)
    for gone in (expired.id, deleted.id, "nothing", ""):
        changes: list[dict[str, Any]] = [{"content": "x"}, {"expires_at": None}, {}]
        for change in changes:
            with pytest.raises(NotFound, match=f"Memory entry not found: {gone}") as caught:
                await memory.update(gone, **change)
            assert caught.value.entry_id == gone


@pytest.mark.behaviour("D28", "AC-D11")
async def test_a_retired_entry_cannot_be_edited(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("retired", scope=USER)
    clock.advance()
    await memory.entries.invalidate(entry.id)
    with pytest.raises(NotFound):
        await memory.update(entry.id, content="edited")
    read = await memory.get(entry.id, as_of=entry.valid_from)
    assert read is not None
    assert read.content == "retired"


@pytest.mark.behaviour("A54", "AC-A29")
@SCOPES
async def test_an_update_to_a_past_expiry_succeeds_and_hides_the_entry(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry = await memory.write("short lived", scope=scope)
    past = clock.moment - HOUR
    updated = await memory.update(entry.id, content="last words", expires_at=past)
    assert (updated.content, updated.expires_at) == ("last words", past)
    assert await memory.get(entry.id) is None
    assert await memory.retrieve(scope) == []
    assert await memory.search("words", scope=scope) == []
    with pytest.raises(NotFound):
        await memory.update(entry.id, expires_at=None)


@pytest.mark.behaviour("D16")
async def test_an_update_without_changes_succeeds_and_changes_nothing(memory: Memory, clock: Clock) -> None:
    entry = await _full(memory, clock)
    clock.advance()
    assert await memory.update(entry.id) == entry
    assert await memory.entries.history(entry.id) == [entry]


@pytest.mark.behaviour("D64", "AC-D25")
async def test_search_follows_an_edit_and_a_deletion(memory: Memory) -> None:
    entry = await memory.write("about alpacas", scope=USER, title="zebra")
    assert [h.entry.title for h in await memory.search("zebra", scope=USER)] == ["zebra"]
    await memory.update(entry.id, title="walrus")
    assert await memory.search("zebra", scope=USER) == []
    assert [h.entry.title for h in await memory.search("walrus", scope=USER)] == ["walrus"]
    assert [h.entry.title for h in await memory.search("alpacas", scope=USER)] == ["walrus"]
    await memory.delete(entry.id)
    assert await memory.search("walrus alpacas", scope=USER) == []


@pytest.mark.behaviour("A48")
@cells(
    "change",
    [{"content": None}, {"tags": None}, {"metadata": None}, {"type": None}, {"type": "note"}, {"tags": "x"}],
    ids=str,
    shared=True,
)
async def test_a_change_that_cannot_be_is_refused_before_any_store_is_touched(
    memory: Memory, change: dict[str, Any]
) -> None:
    entry = await memory.write("kept", scope=USER)
    with watching(memory) as calls, pytest.raises(InvalidInput, match=next(iter(change))):
        await memory.update(entry.id, **change)
    assert calls == []
    assert await memory.get(entry.id) == entry
