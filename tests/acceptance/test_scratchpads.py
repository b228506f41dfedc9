"""Scratchpads: appended to, capped, cleared; told apart by agent; no entries. On every
topology.
"""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from memory import InvalidInput, LegalHoldActive, ScratchpadFull
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.entries import scratchpads
from memory.orchestrator.storage.collections import SCRATCHPADS
from memory.ports.query import Query, within
from memory.ports.record import Partition
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import USER, Clock, watching

config = keeping_bytes()


def lines(content: str) -> list[str]:
    """What was appended, without the headers."""
    return [line for line in content.splitlines() if not line.startswith("## ")]


@pytest.mark.behaviour("D130", "D131", "D132")
async def test_what_is_appended_stands_under_headers_by_agent_and_is_no_entry(
    memory: Memory, clock: Clock
) -> None:
    never = await memory.scratchpads.read("builder")
    assert (never.exists, never.content, never.size, never.updated_at) == (False, "", 0, None)
    clock.moment = clock.moment.replace(microsecond=0)
    first = await memory.scratchpads.append("The build needs Node 20.", agent="builder")
    second = await memory.scratchpads.append("żółć \U0001f41f", agent="builder")
    await memory.scratchpads.append("For all.")
    found = await memory.scratchpads.read("builder")
    assert (
        found.content
        == "## 2126-03-01T12:00:00Z\nThe build needs Node 20.\n## 2126-03-01T12:00:00Z\nżółć \U0001f41f\n"
    )
    assert (found.exists, found.size, found.agent) == (True, second, "builder")
    assert first < second == len(found.content.encode())
    shared, other = await memory.scratchpads.read(), await memory.scratchpads.read("Builder")
    assert (lines(shared.content), shared.agent, other.exists) == (["For all."], None, False)
    assert await memory.retrieve(scope=USER) == []
    async with memory.for_tenant("another") as another:
        assert not (await another.scratchpads.read("builder")).exists


@pytest.mark.behaviour("D130")
async def test_clearing_empties_one_scratchpad_and_it_goes_on(memory: Memory, clock: Clock) -> None:
    assert await memory.scratchpads.clear("a") is False
    for text in ("one", "two"):
        await memory.scratchpads.append(text, agent="a")
    await memory.scratchpads.append("other", agent="b")
    assert await memory.scratchpads.clear("a") is True
    cleared = await memory.scratchpads.read("a")
    assert (cleared.exists, cleared.content, cleared.size) == (True, "", 0)
    assert await memory.scratchpads.clear("a") is False
    await memory.scratchpads.append("three", agent="a")
    assert lines((await memory.scratchpads.read("a")).content) == ["three"]
    assert lines((await memory.scratchpads.read("b")).content) == ["other"]
    archive = engine_of(memory).topology.archive
    there = await archive.query(Query(SCRATCHPADS, within(Partition(memory.tenant, "scratchpad:a"))))
    assert len(there.records) == 2, "what was cleared is deleted: the clearing and what came behind it stand"


@pytest.mark.behaviour("D130")
async def test_an_append_beyond_the_cap_is_rejected_and_leaves_what_stands(memory: Memory) -> None:
    with patch.object(scratchpads, "CAP", 100):
        size = await memory.scratchpads.append("x" * (100 - 25), agent="a")
        assert size == 100, "header and line end included"
        before = await memory.scratchpads.read("a")
        with pytest.raises(ScratchpadFull, match="'a' holds 100 of at most 100 bytes"):
            await memory.scratchpads.append("y", agent="a")
        assert await memory.scratchpads.read("a") == before
        await memory.scratchpads.clear("a")
        assert await memory.scratchpads.append("y", agent="a") == 26
        with pytest.raises(ScratchpadFull, match="shared"):
            await memory.scratchpads.append("z" * 76)
        assert not (await memory.scratchpads.read()).exists


@pytest.mark.behaviour("D130")
async def test_many_appending_at_once_lose_nothing_and_keep_to_the_cap(memory: Memory) -> None:
    """Each of 40 bytes with its header, so that of 30 the first 20 have room."""
    texts = [f"note number {n:02}" for n in range(30)]
    with patch.object(scratchpads, "CAP", 20 * 39):
        outcomes = await asyncio.gather(
            *(memory.scratchpads.append(text) for text in texts), return_exceptions=True
        )
    accepted = [text for text, outcome in zip(texts, outcomes, strict=True) if isinstance(outcome, int)]
    assert len(accepted) == 20
    assert sum(isinstance(outcome, ScratchpadFull) for outcome in outcomes) == 10
    found = await memory.scratchpads.read()
    assert (sorted(lines(found.content)), found.size) == (accepted, 20 * 39)


@pytest.mark.behaviour("D130")
async def test_four_mebibytes_come_back_whole(memory: Memory) -> None:
    text = '\x01"\\é\u2028' * (scratchpads.CAP // 9)
    text += "." * (scratchpads.CAP - 25 - len(text.encode()))
    assert await memory.scratchpads.append(text) == scratchpads.CAP
    found = await memory.scratchpads.read()
    assert found.content.partition("\n")[2] == text + "\n"


@pytest.mark.behaviour("D132")
async def test_what_is_no_agents_name_or_says_nothing_is_refused(plain: Memory) -> None:
    with watching(plain) as touched:
        for name in ("", "a b", "../etc", "a/b", "ä", "x" * 65, "a\n", ".", 7):
            for call in (plain.scratchpads.read, plain.scratchpads.clear):
                with pytest.raises(InvalidInput, match="agent"):
                    await call(name)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput, match="agent"):
                await plain.scratchpads.append("text", name)  # type: ignore[arg-type]
        for text in ("", " \n", "x" * (scratchpads.CAP + 1), "\ud800", None):
            with pytest.raises(InvalidInput, match="text"):
                await plain.scratchpads.append(text)  # type: ignore[arg-type]
    assert touched == []
    assert await plain.scratchpads.append("text", "x" * 64) > 0


@pytest.mark.behaviour("D35")
async def test_scratchpads_end_with_their_tenant_and_begin_anew(memory: Memory) -> None:
    for agent in ("a", None):
        await memory.scratchpads.append("secret", agent)
    await memory.admin.erase_tenant()
    for agent in ("a", None):
        assert not (await memory.scratchpads.read(agent)).exists
        await memory.scratchpads.append("anew", agent)
        assert lines((await memory.scratchpads.read(agent)).content) == ["anew"]


async def test_a_hold_over_the_tenant_keeps_them(memory: Memory) -> None:
    await memory.scratchpads.append("kept")
    await memory.admin.legal_holds.add("case", reason="a lawsuit", tenant=True)
    with pytest.raises(LegalHoldActive):
        await memory.scratchpads.clear()
    assert lines((await memory.scratchpads.read()).content) == ["kept"]
    await memory.admin.legal_holds.remove("case")
    assert await memory.scratchpads.clear() is True


async def test_an_export_carries_them_and_an_import_writes_none_over_another(memory: Memory) -> None:
    await memory.scratchpads.append("mine", "a")
    await memory.scratchpads.append("x" * (2 * scratchpads.PART_BYTES))
    await memory.scratchpads.append("gone", "b")
    await memory.scratchpads.clear("b")
    written = [line async for line in memory.admin.export()]
    before = [await memory.scratchpads.read(agent) for agent in ("a", None)]
    other = memory.for_tenant("other")
    report = await other.admin.import_(written)
    assert (report.other_records, report.problems) == (2, [])
    for one in before:
        there = await other.scratchpads.read(one.agent)
        assert (there.content, there.size, there.exists) == (one.content, one.size, True)
    assert not (await other.scratchpads.read("b")).exists
    await other.scratchpads.append("more", "a")
    again = await other.admin.import_(written)
    assert (again.other_records, again.problems) == (0, [])
    third = memory.for_tenant("third")
    await third.scratchpads.append("another", "a")
    report = await third.admin.import_(written)
    assert (report.other_records, len(report.problems)) == (1, 1)
    assert "has other content" in report.problems[0]
    assert lines((await third.scratchpads.read("a")).content) == ["another"]
    assert [line async for line in memory.admin.export(USER)] == []
