"""Rules of retention, as they are configured, on every way of placing the tiers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from memory import ConfigError, Memory, NotFound
from memory.ports.contract.cells import cells
from tests.acceptance.support import DAY, HOUR, ORG, SESSION, USER, Clock, contents, left_in

RULES: list[dict[str, Any]] = [
    {"name": "pinned", "then": "keep", "when": {"tag": "pinned"}},
    {"name": "old", "when": {"older_than": "90d"}},
    {"name": "idle", "what": "sessions", "then": "end", "when": {"idle_for": "90d"}},
    {"name": "over", "what": "sessions", "statuses": ["ended"], "when": {"idle_for": "30d"}},
    {"name": "past", "what": "versions", "keep_versions": 2, "versions_for": "30d"},
]


@pytest.fixture
async def memory(config: dict[str, Any], clock: Clock) -> AsyncIterator[Memory]:
    async with Memory(config, clock=clock, retention=RULES) as opened:
        yield opened


async def test_what_a_rule_names_is_gone_from_every_store_and_what_is_kept_or_held_is_not(
    memory: Memory, clock: Clock
) -> None:
    pinned = await memory.write("pinned", scope=USER, tags=["pinned"])
    held = await memory.write("held", scope=ORG)
    gone = [await memory.write(f"gone {n}", scope=scope) for n, scope in enumerate((SESSION, USER, ORG))]
    await memory.admin.move([gone[1].id], "long")
    await memory.admin.legal_holds.add("case", reason="r", entry_id=held.id)
    clock.advance(80 * DAY)
    assert (await memory.admin.sweep()).deleted == 0
    await memory.write("fresh", scope=USER)
    for entry in (pinned, held, *gone):
        await memory.update(entry.id, content=f"{entry.content}, edited")
    await memory.relations.relate(gone[0].id, "supports", pinned.id)
    clock.advance(11 * DAY)
    planned = (await memory.admin.plan()).planned
    assert {one.id for one in planned if one.action == "delete"} == {entry.id for entry in gone}
    report = await memory.admin.sweep()
    assert (report.deleted, report.held, report.waiting) == (3, 1, ())
    assert not {entry.id for entry in gone} & {record for _, _, record in await left_in(memory)}
    assert {name for _, name, _ in await left_in(memory)} == {"entries", "entry_versions"}
    assert sum(name == "entry_versions" for _, name, _ in await left_in(memory)) == 2
    assert sorted([entry.content async for entry in memory.entries.iterate()]) == [
        "fresh",
        "held, edited",
        "pinned, edited",
    ]
    why = await memory.admin.why(held.id)
    assert [(rule.rule, rule.action, rule.takes) for rule in why.rules[:2]] == [
        ("pinned", "keep", False),
        ("old", "delete", True),
    ]
    assert any("legal hold 'case'" in said for said in why.held)


async def test_of_an_entrys_past_stays_what_the_rules_leave(memory: Memory, clock: Clock) -> None:
    entry, moments = await memory.write("text 0", scope=USER), list[datetime]()
    for n in range(1, 5):
        moments.append(clock.advance(HOUR))
        await memory.update(entry.id, content=f"text {n}")
    assert (await memory.admin.sweep()).dropped_versions == 2
    assert contents(await memory.entries.history(entry.id)) == ["text 2", "text 3", "text 4"]
    assert [contents(await memory.retrieve(USER, known_at=at - HOUR / 2)) for at in moments] == [
        [],
        [],
        ["text 2"],
        ["text 3"],
    ]
    clock.advance(31 * DAY)
    assert (await memory.admin.sweep()).dropped_versions == 2
    assert contents(await memory.entries.history(entry.id)) == ["text 4"]
    assert await memory.retrieve(USER, known_at=clock.moment - 31 * DAY - 2 * HOUR) == []


async def test_a_session_that_nobody_used_is_ended_and_later_deleted(memory: Memory, clock: Clock) -> None:
    session, busy = await memory.sessions.create("s1"), await memory.sessions.create("s2")
    for one in (session, busy):
        await one.append({"role": "user", "content": "hello"})
    clock.advance(89 * DAY)
    await busy.append({"role": "user", "content": "again"})
    clock.advance(2 * DAY)
    assert (await memory.admin.sweep()).ended == 1
    assert [(await one.info()).status for one in (session, busy)] == ["ended", "active"]
    clock.advance(31 * DAY)
    assert (await memory.admin.sweep()).deleted == 1
    with pytest.raises(NotFound):
        await session.info()
    assert (await busy.info()).message_count == 2


async def test_nothing_is_deleted_by_rule_unless_somebody_asked_for_it(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config, clock=clock) as memory:
        entry = await memory.write("text", scope=USER)
        await memory.update(entry.id, content="text, edited")
        session = await memory.sessions.create("s1")
        await session.append({"role": "user", "content": "hello"})
        clock.advance(4_000 * DAY)
        report = await memory.admin.sweep()
        assert (report.deleted, report.ended, report.dropped_versions, report.expired) == (0, 0, 0, 0)
        assert contents(await memory.entries.history(entry.id)) == ["text", "text, edited"]
        assert (await session.info()).status == "active"


@cells(
    "given, says",
    [
        ([{"name": "r"}], "retention.r.when: is missing"),
        ([{"name": "r", "when": {"older_than": "1d"}}] * 2, "two rules are named 'r'"),
        (
            [{"name": "r", "when": {"older_then": "1d"}}],
            "retention.r.when.older_then: is not a condition; did you mean older_than",
        ),
        ([{"name": "r", "what": "versions", "versions_for": "soon"}], "retention"),
        ([{"name": "r", "whn": {}}], "retention"),
        ({"name": "r"}, "should be a list of rules"),
    ],
    ids=["no-condition", "named-twice", "no-such-condition", "no-duration", "no-such-setting", "no-list"],
    shared=True,
)
def test_a_rule_that_cannot_be_is_refused_by_name(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Memory({"retention": given})
