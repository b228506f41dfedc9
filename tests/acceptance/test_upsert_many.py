"""`write_many(if_exists=…)`: keyed writes of many drafts, stored together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory import Conflict, InvalidInput, PartialWrite, VersionConflict
from memory.facade.memory import Memory
from tests.acceptance.support import HOUR, SESSION, USER, Clock, contents

MODES = pytest.mark.parametrize("mode", ["replace", "update", "keep"])


def drafts(text: str, numbers: range, **more: Any) -> list[dict[str, Any]]:
    return [{"content": f"{text} {n}", "scope": USER, "key": f"k{n}", **more} for n in numbers]


@MODES
async def test_many_are_written_as_each_alone_would_be(memory: Memory, clock: Clock, mode: Any) -> None:
    first = await memory.write_many(drafts("before", range(0, 40, 2), tags=["old"]), if_exists=mode)
    asked = drafts("after", range(40), metadata={"n": 1})
    asked[6]["content"], asked[6]["metadata"], asked[6]["tags"] = "before 6", {}, ["old"]
    clock.advance()
    second = await memory.write_many(asked, if_exists=mode)
    assert [entry.key for entry in second] == [one["key"] for one in asked]
    assert [entry.id for entry in second[::2]] == [entry.id for entry in first]
    for number, entry in enumerate(second):
        stands = await memory.get(entry.id)
        assert stands == entry
        if number % 2:
            assert (entry.content, entry.metadata) == (asked[number]["content"], {"n": 1})
            assert len(await memory.entries.history(entry.id)) == 1
        elif mode == "keep" or number == 6:
            assert entry == first[number // 2]
        else:
            assert (entry.content, entry.metadata) == (f"after {number}", {"n": 1})
            assert entry.tags == ([] if mode == "replace" else ["old"])
            assert entry.created_at == first[number // 2].created_at
            assert [one.content for one in await memory.entries.history(entry.id)] == [
                f"before {number}",
                f"after {number}",
            ]
    stale = {"before 6"} if mode != "keep" else {f"before {n}" for n in range(0, 40, 2)}
    hits = await memory.search("before", scope=USER, mode="lexical", limit=40)
    assert set(contents(hit.entry for hit in hits)) == stale


@MODES
async def test_what_one_call_cannot_store_is_named_and_the_rest_is_stored(
    memory: Memory, clock: Clock, mode: Any
) -> None:
    made = await memory.write_many(drafts("before", range(6)), if_exists=mode)
    await memory.entries.invalidate(made[1].id)
    await memory.delete(made[2].id)
    await memory.write("soon over", scope=USER, key="over", expires_at=HOUR)
    clock.advance(2 * HOUR)
    asked = [*drafts("after", range(6)), {"content": "anew", "scope": USER, "key": "over"}]
    if mode != "keep":
        asked[3]["expected_version"], asked[4]["expected_version"] = made[0].version, made[4].version
    with pytest.raises(PartialWrite) as refused:
        await memory.write_many(asked, if_exists=mode)
    conflicts = refused.value.conflicts
    assert set(conflicts) == ({1} if mode == "keep" else {1, 3})
    assert mode == "keep" or isinstance(conflicts[3], VersionConflict)
    written = refused.value.written
    assert set(written) == set(range(7)) - set(conflicts)
    kept = "before" if mode == "keep" else "after"
    assert [written[n].content for n in sorted(set(written) - {3})] == [
        f"{kept} 0",
        "after 2",
        f"{kept} 4",
        f"{kept} 5",
        "anew",
    ]


async def test_a_key_given_twice_in_one_call_has_the_last_value(memory: Memory) -> None:
    one, two, three = await memory.write_many(
        [{"content": text, "scope": USER, "key": "k"} for text in ("a", "b", "c")], if_exists="replace"
    )
    assert one.id == two.id == three.id
    assert [entry.content for entry in await memory.entries.history(one.id)] == ["a", "b", "c"]


async def test_modes_of_drafts_keep_the_order_of_the_call(memory: Memory) -> None:
    written = await memory.write_many(
        [
            {"content": "plain", "scope": USER},
            {"content": "first", "scope": USER, "key": "a", "if_exists": "replace"},
            {"content": "second", "scope": USER, "key": "a", "if_exists": "keep"},
            {"content": "third", "scope": SESSION, "key": "a", "if_exists": "replace"},
            {
                "content": "fourth",
                "scope": USER,
                "key": "a",
                "if_exists": "update",
                "consistency": "replicated",
            },
            {"content": "last", "scope": USER, "key": "b"},
        ]
    )
    assert contents(written) == ["plain", "first", "first", "third", "fourth", "last"]


async def test_a_draft_without_content_is_refused_only_if_there_is_no_entry(memory: Memory) -> None:
    await memory.write("text", scope=USER, key="a")
    with pytest.raises(PartialWrite) as refused:
        await memory.write_many(
            [{"scope": USER, "key": key, "tags": ["new"]} for key in ("a", "b")], if_exists="update"
        )
    assert refused.value.written[0].tags == ["new"]
    assert isinstance(refused.value.conflicts[1], Conflict)


async def test_calls_at_once_over_the_same_keys_all_end(memory: Memory) -> None:
    calls = [
        list(reversed(drafts(f"by {n}", range(30)))) if n % 2 else drafts(f"by {n}", range(30))
        for n in range(4)
    ]
    await asyncio.gather(*(memory.write_many(one, if_exists="replace") for one in calls))
    entries = await memory.retrieve(USER, limit=50)
    assert len(entries) == 30
    for entry in entries[:3]:
        assert len(await memory.entries.history(entry.id)) == 4


async def test_a_repeat_of_a_request_changes_nothing(memory: Memory) -> None:
    asked = drafts("said", range(5))
    first = await memory.write_many(asked, if_exists="replace", request_id="r1")
    await memory.write_many(drafts("later", range(5)), if_exists="replace")
    again = await memory.write_many(asked, if_exists="replace", request_id="r1")
    assert [entry.id for entry in again] == [entry.id for entry in first]
    assert contents(await memory.retrieve(USER)) == [f"later {n}" for n in range(4, -1, -1)]


async def test_a_repeat_of_many_keyed_writes_returns_what_the_first_stored(memory: Memory) -> None:
    asked = drafts("said", range(12))
    first = await memory.write_many(asked)
    await memory.update(first[3].id, content="edited")
    assert await memory.write_many(asked) == first
    with pytest.raises(PartialWrite) as refused:
        await memory.write_many(drafts("other", range(2)))
    assert set(refused.value.conflicts) == {0, 1}


async def test_all_are_checked_before_any_is_stored(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match=r"drafts\[1\]"):
        await memory.write_many(
            [*drafts("a", range(1)), {"content": "b", "scope": USER}], if_exists="replace"
        )
    assert await memory.retrieve(USER) == []
