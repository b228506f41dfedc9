"""What a summary stands for does not come back into the window, also where the
compaction comes in between.
"""

from __future__ import annotations

import pytest

from tests.unit.orchestrator.conversations.talking import begun, opened, user, window
from tests.unit.orchestrator.world import World


@pytest.mark.parametrize("again", [False, True], ids=["restored", "said again"])
async def test_a_message_that_is_compacted_away_while_it_is_taken_back_stays_away(
    world: World, again: bool
) -> None:
    session = await begun(world.engine)
    await session.append([user("tea", "tea"), user("milk", "milk")])
    await session.exclude("tea", "manual")
    theirs = await opened(await world.another_process())

    async def compacted() -> None:
        await theirs.restore("tea")
        await theirs.compact(
            lambda messages: " ".join(message.text for message in messages), keep_last=0, reason="manual"
        )

    world.mid.after["history.marks"] = compacted  # it has just been told that no summary stands for it
    if again:
        await session.append([user("green tea", "tea")])
    else:
        assert await session.restore("tea") is False
    assert [name for name in await window(session) if name in ("tea", "milk")] == []
    assert len(await window(session)) == 2
