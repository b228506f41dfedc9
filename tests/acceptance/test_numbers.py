"""Running numbers: given when first shown, once, never again; found by; gone with what had them. On every topology."""

from __future__ import annotations

import uuid

import pytest

from memory import InvalidInput
from memory.facade.memory import Memory
from memory.orchestrator.numbers import Referent
from tests.acceptance.support import USER, Clock, watching


@pytest.mark.behaviour("D114")
async def test_entries_have_numbers_once_shown_by_them_the_oldest_first(memory: Memory, clock: Clock) -> None:
    first = await memory.write("one", scope=USER)
    clock.advance()
    second, third = [await memory.write(text, scope=scope) for text, scope in (("two", "session:s"), ("three", "org:o"))]
    shown = await memory.numbers.of([second.id, first.id, second.id])
    assert shown == {second.id: 2, first.id: 1}
    assert list(shown) == [second.id, first.id]
    assert await memory.numbers.of([third.id, first.id]) == {third.id: 3, first.id: 1}
    for text in ("#2", "2", " # 2 ", "# 02", second.id, f"#{second.id}", second.id.upper()):
        assert await memory.numbers.resolve(text) == Referent("entry", second.id, 2)
    assert await memory.numbers.resolve_many(["#3", "7", first.id]) == [Referent("entry", third.id, 3), None, Referent("entry", first.id, 1)]


async def test_what_was_never_shown_by_a_number_is_found_by_its_id_alone(memory: Memory) -> None:
    entry = await memory.write("one", scope=USER)
    assert await memory.numbers.resolve(entry.id) == Referent("entry", entry.id, None)
    for text in ("#1", "1", "0", str(uuid.uuid4()), "#999999999999999999"):
        assert await memory.numbers.resolve(text) is None


async def test_of_what_is_not_there_no_number_is_given(memory: Memory) -> None:
    entry = await memory.write("one", scope=USER)
    assert await memory.numbers.of([]) == {}
    assert await memory.numbers.of([str(uuid.uuid4()), "no id", ""]) == {}
    async with memory.for_tenant("another") as another:
        assert await another.numbers.of([entry.id]) == {}
    assert await memory.numbers.of([entry.id]) == {entry.id: 1}


@pytest.mark.behaviour("D114")
async def test_what_is_neither_a_number_nor_an_id_is_refused(plain: Memory) -> None:
    with watching(plain) as touched:
        for text in ("", "#", "forty-two", "#-1", "4 2", "##4", "1.0", "٤٢", "4" * 19, "1\n2", None, 42):
            with pytest.raises(InvalidInput, match="id"):
                await plain.numbers.resolve(text)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="kind"):
            await plain.numbers.of([], kind="artifact")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="ids: at most 1000"):
            await plain.numbers.of(["#1"] * 1001)
    assert touched == []
