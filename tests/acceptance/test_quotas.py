"""Quotas, as they are configured, on every way of placing the tiers, with two writers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from memory import ConfigError, Conflict, DocumentPut, ExitedMessages, Memory, QuotaExceeded
from tests.acceptance.support import ORG, USER, Clock, contents


def _quota(**given: Any) -> dict[str, Any]:
    return {"quotas": [{"name": "personal", "scope_kinds": ["user"], "entries": 12, **given}]}


@pytest.mark.parametrize("then", ["refuse", "evict"])
async def test_two_writers_stay_within_a_quota_but_for_what_is_under_way(
    config: dict[str, Any], clock: Clock, then: str
) -> None:
    apart = not any(kind in str(config) for kind in ("memory://", "edge"))
    async with AsyncExitStack() as opened:
        first = await opened.enter_async_context(Memory(config, clock=clock, **_quota(then=then)))
        second = (
            await opened.enter_async_context(Memory(config, clock=clock, **_quota(then=then)))
            if apart
            else first
        )
        refused: list[QuotaExceeded] = []

        async def writes(memory: Memory, name: str) -> None:
            for n in range(12):
                try:
                    await memory.write(f"{name} {n}", scope=USER)
                except QuotaExceeded as error:
                    refused.append(error)

        await asyncio.gather(writes(first, "a"), writes(second, "b"))
        await first.write("of the org", scope=ORG)
        left = await first.retrieve(USER, limit=100)
        assert 12 <= len(left) <= 13
        if then == "refuse":
            assert len(refused) == 24 - len(left)
            assert {(error.quota, error.most, error.measure) for error in refused} == {
                ("personal", 12, "entries")
            }
        else:
            assert not refused
            evicted = [(await memory.admin.stats()).evicted.get("personal", 0) for memory in {first, second}]
            assert sum(evicted) == 24 - len(left)
            assert {f"{name} 11" for name in "ab"} <= set(contents(left)), "the newest stay"


async def test_an_edit_that_enlarges_an_entry_needs_room(config: dict[str, Any], clock: Clock) -> None:
    quota: dict[str, Any] = {"quotas": [{"name": "personal", "scope_kinds": ["user"], "bytes": 20_000}]}
    async with Memory(config, clock=clock, embedder="none", **quota) as memory:
        made = await memory.write("x" * 9_000, scope=USER, key="k")
        with pytest.raises(QuotaExceeded, match=r"personal.*bytes"):
            await memory.update(made.id, content="y" * 25_000)
        modes: list[Any] = ["replace", "update"]
        for mode in modes:
            with pytest.raises(QuotaExceeded, match=r"personal.*bytes"):
                await memory.write("y" * 25_000, scope=USER, key="k", if_exists=mode)
        assert await memory.get(made.id) == made
        assert (await memory.update(made.id, content="z" * 8_000)).content == "z" * 8_000
    entries: dict[str, Any] = {"quotas": [{"name": "personal", "scope_kinds": ["user"], "entries": 1}]}
    async with Memory("memory://", clock=clock, embedder="none", **entries) as memory:
        made = await memory.write("x", scope=USER)
        assert (await memory.update(made.id, content="longer")).content == "longer"


async def test_many_that_do_not_all_fit_say_what_is_stored(
    shared_config: dict[str, Any], clock: Clock
) -> None:
    def drafts(*numbers: int, **more: Any) -> list[dict[str, Any]]:
        return [{"content": f"tea {n}", "scope": USER, "key": f"k{n}", **more} for n in numbers]

    async def refuse(memory: Memory, given: list[dict[str, Any]]) -> tuple[QuotaExceeded, list[str]]:
        with pytest.raises(QuotaExceeded) as refused:
            await memory.write_many(given)
        return refused.value, [entry.key or "" for entry in refused.value.written.values()]

    replacing = {"if_exists": "replace"}
    async with Memory(shared_config, clock=clock, embedder="none", **_quota()) as memory:
        for given in (drafts(*range(13)), drafts(*range(13), **replacing)):
            error, stored = await refuse(memory, given)
            assert stored == []
            assert not await memory.retrieve(USER)
            assert "; nothing was written" in str(error)
        mixed = [*drafts(*range(8)), *drafts(*range(8, 13), **replacing), *drafts(13)]
        error, stored = await refuse(memory, mixed)
        assert stored == [f"k{n}" for n in range(8)]
        assert "; 8 of this call are stored, at the positions in `written`" in str(error)
        # a key that comes again begins another part
        error, stored = await refuse(memory, drafts(8, 9, 8, *range(10, 13), **replacing))
        assert stored == ["k8", "k9", "k8"]
        assert sorted(e.key or "" for e in await memory.retrieve(USER)) == [f"k{n}" for n in range(10)]
        view = memory.restrict(role="writer")
        error, stored = await refuse(view, drafts(10, 10, 11, 12, **replacing))
        assert stored == ["k10", "k10"]
        assert "; 2 of this call are stored" in str(error)
    quota: dict[str, Any] = {"quotas": [{"name": "personal", "scope_kinds": ["user"], "bytes": 1_000}]}
    async with Memory(shared_config, clock=clock, embedder="none", **quota) as memory:
        await memory.delete(scope=USER, key="k0")
        _, stored = await refuse(
            memory, [*drafts(1, content="x" * 2_000, **replacing), *drafts(20, **replacing)]
        )
        entries = {entry.key: entry.content for entry in await memory.retrieve(USER)}
        assert entries["k1"] == "tea 1"
        assert [key for key in stored if key not in entries] == []
        assert ("k20" in entries) is ("k20" in stored)


async def test_documents_of_several_scopes_say_what_is_stored(config: dict[str, Any], clock: Clock) -> None:
    quota = {"name": "state", "scope_kinds": ["user"], "document_bytes": 1_000}
    async with Memory(config, clock=clock, embedder="none", quotas=[quota]) as memory:
        puts = [
            DocumentPut(USER, "a", "x"),
            DocumentPut(ORG, "b", "x" * 2_000),
            DocumentPut(USER, "c", "x" * 2_000),
        ]
        with pytest.raises(QuotaExceeded, match="; nothing was written"):
            await memory.documents.put_many(puts)
        with pytest.raises(QuotaExceeded, match="; 2 of this call are stored") as refused:
            await memory.documents.apply(puts, atomic=False)
        assert {at: info.key for at, info in refused.value.written.items()} == {0: "a", 1: "b"}
        assert [info.key for info in (await memory.documents.list(ORG)).documents] == ["b"]


@pytest.mark.parametrize("then", ["refuse", "evict"])
async def test_an_import_with_its_ids_keeps_to_a_quota(
    config: dict[str, Any], clock: Clock, then: str
) -> None:
    async with Memory("memory://", clock=clock) as other:
        for n in range(14):
            await other.write(f"text {n:02}", scope=USER)
        lines = [line async for line in other.admin.export()][::-1]
    async with Memory(config, clock=clock, **_quota(then=then)) as memory:
        first = await memory.write("first", scope=USER)
        if then == "refuse":
            with pytest.raises(
                QuotaExceeded,
                match="'personal': scope 'user:u1' holds 1 of at most 12 entries, and this would add 14",
            ):
                await memory.admin.import_(lines, same_ids=True)
            assert contents(await memory.retrieve(USER, limit=100)) == ["first"]
        assert (await memory.admin.import_(lines[:11], same_ids=True)).imported == 11
        assert (await memory.admin.import_(lines[:11], same_ids=True)).already_there == 11, (
            "what is there takes no room"
        )
        if then == "refuse":
            await memory.delete(first.id)
        assert (await memory.admin.import_(lines[10:12], same_ids=True)).imported == 1
        assert len(await memory.retrieve(USER, limit=100)) == 12
        if then == "evict":
            await memory.admin.import_(lines[12:], same_ids=True)
            assert {"text 00", "text 01"} < set(contents(await memory.retrieve(USER, limit=100))), (
                "what came just now stays, however old it is"
            )
            assert len(await memory.retrieve(USER, limit=100)) == 12


async def test_an_import_beyond_a_quota_or_over_other_entries_writes_nothing(
    config: dict[str, Any], clock: Clock
) -> None:
    chat = [{"role": "user", "content": f"text {n}", "id": f"m{n}"} for n in range(210)]
    async with Memory(config, clock=clock, **_quota(then="refuse", entries=209)) as memory:
        with pytest.raises(
            QuotaExceeded,
            match=r"holds 0 of at most 209 entries, and this would add 210; nothing was written",
        ):
            await memory.admin.import_(chat, scope=USER)
        assert await memory.retrieve(USER) == []
        assert (await memory.admin.import_(chat[:209], scope=USER)).imported == 209
        assert (await memory.admin.import_(chat[:209], scope=USER)).already_there == 209, (
            "what is there takes no room"
        )
        await memory.delete((await memory.retrieve(USER, limit=1))[0].id)
        other = [*chat[209:], *({**chat[n], "content": "another"} for n in (7, 107))]
        with pytest.raises(
            Conflict,
            match=(
                r"line 2: .*; 1 more such lines; nothing was imported; it was stored earlier with another"
                r" text"
            ),
        ):
            await memory.admin.import_(other, scope=USER)
        assert "text 209" not in contents(await memory.retrieve(USER, limit=1_000))
        report = await memory.admin.import_(other, scope=USER, skip_bad=True)
        assert (report.imported, report.refused_lines) == (1, [2, 3])


async def test_what_is_made_of_messages_keeps_to_a_quota_and_waits_for_room(
    config: dict[str, Any], clock: Clock
) -> None:
    def distil(leaving: ExitedMessages) -> list[str]:
        return [message.text for message in leaving.messages]

    async with Memory(config, clock=clock, on_window_exit=distil, **_quota(then="refuse")) as memory:
        entries = [await memory.write(f"text {n}", scope=USER) for n in range(11)]
        session = memory.session("s1", user="u1")
        await session.append([{"role": "user", "content": "tea"}, {"role": "user", "content": "milk"}])
        report = await session.end()
        assert report.derived == []
        assert (
            "quota 'personal': scope 'user:u1' holds 11 of at most 12 entries, and this would add 2"
            in report.waiting[0]
        )
        assert len(await memory.retrieve(USER, limit=100)) == 11
        await memory.delete(entries[0].id)
        assert len((await session.end()).derived) == 2
        assert {"tea", "milk"} < set(contents(await memory.retrieve(USER, limit=100)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"entries": 0}, "quotas.1.entries"),
        ({"bytes": 5}, "quotas.personal.entries: exactly one of"),
        ({"thn": "evict"}, "quotas.1.thn: there is no setting 'thn'"),
    ],
    ids=["none", "both", "no-such-setting"],
)
def test_a_quota_that_cannot_be_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Memory(_quota(**given))
