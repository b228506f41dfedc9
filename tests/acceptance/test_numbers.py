"""Running numbers: given when first shown, once, never again; found by; gone with what
had them. On every topology.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from memory import InvalidInput
from memory.domain.short_id import NumberedItem
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from tests.acceptance.support import USER, Clock, stores_of, watching
from tests.support.depth import drawn
from tests.support.numbered import History, misnumbered


@pytest.mark.behaviour("D114")
async def test_entries_have_numbers_once_shown_by_them_the_oldest_first(memory: Memory, clock: Clock) -> None:
    first = await memory.write("one", scope=USER)
    clock.advance()
    second, third = [
        await memory.write(text, scope=scope) for text, scope in (("two", "session:s"), ("three", "org:o"))
    ]
    shown = await memory.short_ids.of([second.id, first.id, second.id])
    assert shown == {second.id: 2, first.id: 1}
    assert list(shown) == [second.id, first.id]
    assert await memory.short_ids.of([third.id, first.id]) == {third.id: 3, first.id: 1}
    for text in ("#2", "2", " # 2 ", "# 02", second.id, f"#{second.id}", second.id.upper()):
        assert await memory.short_ids.resolve(text) == NumberedItem("entry", second.id, 2)
    assert await memory.short_ids.resolve_many(["#3", "7", first.id]) == [
        NumberedItem("entry", third.id, 3),
        None,
        NumberedItem("entry", first.id, 1),
    ]


async def test_what_was_never_shown_by_a_number_is_found_by_its_id_alone(memory: Memory) -> None:
    entry = await memory.write("one", scope=USER)
    assert await memory.short_ids.resolve(entry.id) == NumberedItem("entry", entry.id, None)
    for text in ("#1", "1", "0", str(uuid.uuid4()), "#999999999999999999"):
        assert await memory.short_ids.resolve(text) is None


async def test_of_what_is_not_there_no_number_is_given(memory: Memory) -> None:
    entry = await memory.write("one", scope=USER)
    assert await memory.short_ids.of([]) == {}
    assert await memory.short_ids.of([str(uuid.uuid4()), "no id", ""]) == {}
    async with memory.for_tenant("another") as another:
        assert await another.short_ids.of([entry.id]) == {}
    assert await memory.short_ids.of([entry.id]) == {entry.id: 1}


@pytest.mark.behaviour("D114")
async def test_what_is_neither_a_number_nor_an_id_is_refused(plain: Memory) -> None:
    with watching(plain) as touched:
        for text in ("", "#", "forty-two", "#-1", "4 2", "##4", "1.0", "٤٢", "4" * 19, "1\n2", None, 42):
            with pytest.raises(InvalidInput, match="id"):
                await plain.short_ids.resolve(text)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="kind"):
            await plain.short_ids.of([], kind="message")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="ids: takes at most 1000"):
            await plain.short_ids.of(["#1"] * 1001)
    assert touched == []


async def test_a_number_ends_with_its_entry_and_is_given_to_no_other(memory: Memory) -> None:
    first, second = [await memory.write(text, scope=USER) for text in ("one", "two")]
    assert await memory.short_ids.of([first.id, second.id]) == {first.id: 1, second.id: 2}
    await memory.update(first.id, content="one, edited")
    await memory.entries.invalidate(second.id)
    assert await memory.short_ids.of([first.id, second.id]) == {first.id: 1, second.id: 2}
    await memory.delete(second.id)
    assert await memory.short_ids.resolve("#2") is None
    third = await memory.write("three", scope=USER)
    assert await memory.short_ids.of([third.id]) == {third.id: 3}
    await memory.admin.erase(USER)
    assert await memory.short_ids.resolve_many(["#1", "#3"]) == [None, None]
    fourth = await memory.write("four", scope=USER)
    assert await memory.short_ids.of([first.id, fourth.id]) == {fourth.id: 4}
    await memory.admin.erase_tenant()
    fifth = await memory.write("five", scope=USER)
    assert await memory.short_ids.of([fifth.id, fourth.id]) == {fifth.id: 5}, "a tenant's end keeps the count"
    assert await misnumbered(engine_of(memory)) == []


@pytest.mark.behaviour("D114")
async def test_artifacts_have_numbers_of_the_same_sequence(memory: Memory) -> None:
    await memory.sessions.create("talk")
    entry = await memory.write("one", scope=USER)
    first, second = [await memory.artifacts.put("talk", path, b"x") for path in ("a", "b")]
    assert await memory.short_ids.of([second.id, first.id, entry.id], kind="artifact") == {
        second.id: 2,
        first.id: 1,
    }
    assert await memory.short_ids.of([entry.id, first.id]) == {entry.id: 3}, "an artifact is no entry"
    assert await memory.short_ids.of([first.id, second.id], kind="artifact") == {first.id: 1, second.id: 2}
    third = await memory.artifacts.put("talk", "c", b"x")
    named = ["#1", second.id, "3", third.id, "#4"]
    found = [
        NumberedItem("artifact", first.id, 1),
        NumberedItem("artifact", second.id, 2),
        NumberedItem("entry", entry.id, 3),
        NumberedItem("artifact", third.id, None),
    ]
    assert await memory.short_ids.resolve_many(named) == [*found, None]
    async with memory.for_tenant("another") as another:
        assert await another.short_ids.of([first.id], kind="artifact") == {}
        assert await another.short_ids.resolve_many(["1", first.id]) == [None, None]


async def test_a_number_ends_with_its_artifact_and_is_given_to_no_other(memory: Memory) -> None:
    await memory.sessions.create("talk")
    ids = [(await memory.artifacts.put("talk", path, b"one")).id for path in ("a", "b")]
    assert await memory.short_ids.of(ids, kind="artifact") == {ids[0]: 1, ids[1]: 2}
    known = await memory.artifacts.get(ids[0])
    assert (await memory.artifacts.put("talk", "a", b"two")).id == ids[0]
    assert await memory.short_ids.of(ids, kind="artifact") == {ids[0]: 1, ids[1]: 2}, (
        "what is replaced keeps id and number"
    )
    assert known is not None
    assert known.updated_at < (await memory.artifacts.list("talk")).artifacts[0].updated_at
    await memory.artifacts.delete(ids[1])
    ids.append((await memory.artifacts.put("talk", "b", b"new")).id)
    assert await memory.short_ids.of(ids, kind="artifact") == {ids[0]: 1, ids[2]: 3}
    await memory.sessions.delete("talk")
    await memory.sessions.create("talk")
    ids.append((await memory.artifacts.put("talk", "a", b"two")).id)
    assert await memory.short_ids.of(ids, kind="artifact") == {ids[3]: 4}
    assert await memory.short_ids.resolve_many(["1", "2", "3", *ids[:3]]) == [None] * 6
    await memory.admin.erase_tenant()
    await memory.sessions.create("talk")
    ids.append((await memory.artifacts.put("talk", "a", b"two")).id)
    assert await memory.short_ids.of(ids, kind="artifact") == {ids[4]: 5}, "a tenant's end keeps the count"
    assert await misnumbered(engine_of(memory)) == []


async def test_an_artifact_that_is_imported_gets_a_new_number(memory: Memory) -> None:
    await memory.sessions.create("talk")
    artifact = await memory.artifacts.put("talk", "a", b"x")
    await memory.short_ids.of([(await memory.write("one", scope=USER)).id])
    await memory.short_ids.of([artifact.id], kind="artifact")
    lines = [line async for line in memory.admin.export()]
    async with memory.for_tenant("another") as another:
        await another.admin.import_(lines)
        (imported,) = (await another.artifacts.list("talk")).artifacts
        assert await another.short_ids.resolve(imported.id) == NumberedItem("artifact", imported.id, None)
        assert await another.short_ids.of([imported.id], kind="artifact") == {imported.id: 1}


async def test_what_is_imported_gets_new_numbers_and_says_what_it_said(memory: Memory) -> None:
    entries = [await memory.write(text, scope=USER) for text in ("see #2", "two")]
    await memory.short_ids.of([entries[1].id])
    lines = [line async for line in memory.admin.export()]
    assert len(lines) == 2, "the entries, and no number"
    async with memory.for_tenant("another") as another:
        await another.short_ids.of([(await another.write("its own", scope=USER)).id])
        await another.admin.import_(lines)
        (imported,) = [entry for entry in await another.retrieve(USER) if entry.content == "see #2"]
        assert await another.short_ids.of([imported.id]) == {imported.id: 2}


@pytest.mark.parametrize("seed", range(drawn(10, quick=2)))
async def test_numbers_are_right_after_processes_drew_deleted_and_erased_at_once(
    config: dict[str, Any], seed: int
) -> None:
    """Two processes, but where the stores are the process' own."""
    async with Memory(config) as memory, Memory(config) as other:
        shared = all(store.capabilities.shared or store.capabilities.durable for store in stores_of(memory))
        history = History(seed, [engine_of(memory), engine_of(other if shared else memory)])
        await history.played()
        assert await history.ended() == []
