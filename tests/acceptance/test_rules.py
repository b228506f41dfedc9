"""Rules, on every placing of the tiers: facts go short → mid → long and into their
user's scope, once; the plan is what a sweep does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory import HasTag, IdleFor, Memory, OlderThan, PromotionRule, ScopeExceeds
from tests.acceptance.support import DAY, HOUR, OTHER_SESSION, SESSION, Clock, contents

ADA = "user:ada"
RULES = (
    PromotionRule(name="known", on="session_end", to_scope="user", when=HasTag("fact")),
    PromotionRule(name="crowded", on="sweep", when=ScopeExceeds(count=3) & ~HasTag("pinned")),
    PromotionRule(name="wordy", on="sweep", when=ScopeExceeds(tokens=40)),
    PromotionRule(name="quiet", on="sweep", when=IdleFor(7 * DAY)),
    PromotionRule(
        name="settled", on="sweep", source="mid", target="long", when=OlderThan(20 * DAY) & HasTag("fact")
    ),
)


@pytest.fixture
async def memory(config: dict[str, Any], clock: Clock) -> AsyncIterator[Memory]:
    async with Memory(config | {"durations": {"sweep_every": "0s"}}, clock=clock, promotion=RULES) as opened:
        yield opened


async def tiers(memory: Memory) -> dict[str, str]:
    """The tier of each entry, by what it says."""
    return {entry.content: entry.tier async for entry in memory.entries.iterate()}


@pytest.mark.behaviour("B83", "B86", "D34")
async def test_a_fact_goes_short_mid_long_by_rule_and_keeps_its_past(memory: Memory, clock: Clock) -> None:
    fact = await memory.write("Ada lives in Lisbon", scope=SESSION, tags=["fact"])
    before = clock.advance()
    await memory.update(fact.id, content="Ada lives in Porto")
    assert await tiers(memory) == {"Ada lives in Porto": "short"}
    for passed, tier in ((8 * DAY, "mid"), (5 * DAY, "mid"), (9 * DAY, "long"), (9 * DAY, "long")):
        clock.advance(passed)
        planned = [(one.id, one.tier, one.to) for one in (await memory.admin.plan()).planned]
        stood = (await tiers(memory))["Ada lives in Porto"]
        assert planned == ([] if stood == tier else [(fact.id, stood, tier)])
        assert (await memory.admin.sweep()).moved == len(planned)
        assert await tiers(memory) == {"Ada lives in Porto": tier}
        assert [hit.entry.content for hit in await memory.search("Porto", scope=SESSION)] == [
            "Ada lives in Porto"
        ]
        assert contents(await memory.entries.history(fact.id)) == [
            "Ada lives in Lisbon",
            "Ada lives in Porto",
        ]
        then = await memory.get(fact.id, known_at=before)
        assert then is not None
        assert then.content == "Ada lives in Lisbon"


@pytest.mark.behaviour("B83", "A72")
async def test_facts_of_a_session_reach_their_user_once(memory: Memory) -> None:
    session = memory.session("sess-1", user="ada")
    await session.append({"role": "user", "content": "hello"})
    fact = await memory.write("Ada sails", scope=SESSION, tags=["fact"])
    await memory.write("it rains", scope=SESSION)
    for copies in (1, 0):
        report = await session.end()
        assert [one.entry_id for one in report.copied] == [fact.id] * copies
        [known] = await memory.retrieve(ADA)
        assert (known.content, known.promoted_from_id, known.metadata["created_in_session_id"]) == (
            "Ada sails",
            fact.id,
            "sess-1",
        )
    await memory.delete(known.id)
    report = await session.end()
    assert report.copied == []
    assert any("earlier result was deleted" in kept.because for kept in report.kept)
    assert await memory.retrieve(ADA) == []


async def test_the_newest_of_a_scope_stay_where_they_are(memory: Memory, clock: Clock) -> None:
    for number in range(6):
        clock.advance(HOUR)
        await memory.write(f"step {number}", scope=SESSION, tags=["pinned"] if number == 1 else [])
    await memory.write("elsewhere", scope=OTHER_SESSION)
    planned = (await memory.admin.plan()).planned
    assert {(one.action, one.tenant, one.scope, one.rule, one.because) for one in planned} == {
        (
            "move",
            "default",
            SESSION.text,
            "crowded",
            "beyond the newest 3 of its scope and not tagged 'pinned'",
        )
    }
    assert (await memory.admin.sweep()).moved == len(planned) == 2
    assert await tiers(memory) == {f"step {n}": "mid" if n in (0, 2) else "short" for n in range(6)} | {
        "elsewhere": "short"
    }
    await memory.write("word " * 40, scope=OTHER_SESSION)
    assert [(one.rule, one.because) for one in (await memory.admin.plan()).planned] == [
        ("wordy", "beyond the newest 40 tokens of its scope")
    ] * 2
    assert (await memory.admin.sweep()).moved == 2
    assert (await memory.admin.plan()).planned == []
