"""Search by meaning, with the embedder everyone gets, wherever the tiers are."""

from __future__ import annotations

from typing import Any

import pytest

from memory.facade.memory import Memory
from tests.acceptance.support import OTHER_USER, SESSION, USER, Clock


async def test_an_entry_is_found_by_meaning_without_a_word_in_common(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config | {"embedder": "wordllama"}, clock=clock) as memory:
        tea = await memory.write("Ada prefers tea with milk", scope=USER)
        await memory.write("The deployment failed on Friday", scope=USER)
        await memory.write("Hot drinks are what Bob likes", scope=OTHER_USER)
        hits = await memory.search("favourite hot beverage", scope=USER, explain=True)
        assert hits[0].entry == tea
        ranks = hits[0].explanation["ranks"]
        assert ranks["semantic"] == 1
        assert ranks["lexical"] is None
        assert {h.entry.scope for h in hits} == {USER}


async def test_an_edited_entry_is_found_by_its_new_meaning_and_a_deleted_one_by_none(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config | {"embedder": "wordllama"}, clock=clock) as memory:
        entry = await memory.write("Ada prefers tea with milk", scope=SESSION)
        other = await memory.write("A long walk in the hills", scope=SESSION)
        await memory.update(entry.id, content="The server crashed during the night")
        assert (await memory.search("database outage", scope=SESSION))[0].entry.id == entry.id
        known = clock.moment
        await memory.admin.move([entry.id], "long")
        assert (await memory.search("database outage", scope=SESSION))[0].entry.id == entry.id
        assert (await memory.search("hiking in the mountains", scope=SESSION))[0].entry.id == other.id
        await memory.delete(entry.id)
        for moment in (None, known):
            found = [
                h.entry.id for h in await memory.search("the server crashed", scope=SESSION, known_at=moment)
            ]
            assert entry.id not in found
            assert found in ([], [other.id])


async def test_an_invalidated_entry_is_found_by_meaning_only_as_of_its_time(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config | {"embedder": "wordllama"}, clock=clock) as memory:
        entry = await memory.write("Ada prefers tea with milk", scope=USER)
        then = clock.advance()
        clock.advance()
        await memory.entries.invalidate(entry.id)
        assert await memory.search("hot beverage", scope=USER) == []
        assert [h.entry.id for h in await memory.search("hot beverage", scope=USER, as_of=then)] == [entry.id]


async def test_explanations_come_only_when_asked_for(memory: Memory) -> None:
    await memory.write("Ada prefers tea", scope=USER)
    assert [hit.explanation for hit in await memory.search("tea", scope=USER)] == [{}]
    assert (await memory.search("tea", scope=USER, explain=True))[0].explanation["ranks"]["lexical"] == 1


@pytest.mark.behaviour("D116")
async def test_a_command_shows_nothing_where_nothing_answers_and_what_is_said_beside_an_answer(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config | {"embedder": "wordllama"}, clock=clock) as memory:
        ada = memory.scoped(USER)
        for text in ("Ada drinks tea", "The deploy failed on Friday", "Bob sails to Porto"):
            await ada.write(text)
        for query in ("zzzqqq", "xylophone"):
            [nothing] = await memory.commands.run(f"/mem search {query}", scope=USER)
            assert f"(no entries match '{query}')" in nothing.text
        [tea] = await memory.commands.run("/mem search tea", scope=USER)
        assert "1 match(es) for 'tea'" in tea.text
        await ada.write(
            "Where did you learn to sail?", conversation_id="lunch", number_in_conversation=1, speaker="Bo"
        )
        await ada.write(
            "In Peniche, from my grandfather",
            conversation_id="lunch",
            number_in_conversation=2,
            speaker="Ada",
        )
        [sail] = await memory.commands.run("/mem search where did Ada learn to sail?", scope=USER)
        assert "In Peniche" in sail.text, "its own words share nothing with the question"
