"""Getting and retrieving: what is visible, in which order, and how much of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memory import Entry, InvalidInput
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import (
    DAY,
    HOUR,
    MICROSECOND,
    OTHER_USER,
    SESSION,
    USER,
    Clock,
    contents,
    left_in,
)


async def _written(memory: Memory, clock: Clock, *texts: str) -> list[Entry]:
    """Entries a second apart."""
    entries = []
    for text in texts:
        clock.advance(timedelta(seconds=1))
        entries.append(await memory.write(text, scope=USER))
    return entries


@pytest.mark.behaviour("A25", "D13")
@cells(
    "unknown",
    [
        "nothing",
        "",
        "00000000-0000-8000-8000-000000000000",
        "01A20056-6B7D-8232-B913-7CE71815DA7B",
        "x" * 512,
        "%",
        "' or 1=1 --",
    ],
    shared=True,
)
async def test_getting_an_unknown_id_gives_none(memory: Memory, unknown: str) -> None:
    await memory.write("there", scope=USER)
    assert await memory.get(unknown) is None
    assert not await memory.delete(unknown)
    assert await memory.entries.invalidate(unknown) is False


@pytest.mark.behaviour("A24", "A25")
async def test_an_entry_written_already_expired_is_accepted_and_hidden(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("stale milk", scope=USER, expires_at=clock.moment - HOUR)
    assert entry.content == "stale milk"
    assert await memory.get(entry.id) is None
    assert await memory.retrieve(USER) == []
    assert await memory.search("milk", scope=USER) == []
    assert [e async for e in memory.entries.iterate()] == []


@pytest.mark.behaviour("A25", "A34", "AC-A09")
async def test_only_what_has_not_expired_is_retrieved(memory: Memory, clock: Clock) -> None:
    stale = await memory.write("stale", scope=SESSION, expires_at=clock.moment - HOUR)
    await memory.write("fresh", scope=SESSION, expires_at=clock.moment + HOUR)
    assert contents(await memory.retrieve(SESSION)) == ["fresh"]
    assert await memory.get(stale.id) is None


@pytest.mark.behaviour("A34")
async def test_an_entry_is_visible_at_the_moment_it_expires_and_not_a_microsecond_later(
    memory: Memory, clock: Clock
) -> None:
    end = clock.moment + DAY
    entry = await memory.write("brief note", scope=USER, expires_at=end)
    clock.stand_still_at(end)
    assert await memory.get(entry.id) is not None
    assert contents(await memory.retrieve(USER)) == ["brief note"]
    assert len(await memory.search("brief", scope=USER)) == 1
    clock.stand_still_at(end + MICROSECOND)
    assert await memory.get(entry.id) is None
    assert await memory.retrieve(USER) == []
    assert await memory.search("brief", scope=USER) == []


@pytest.mark.behaviour("A36")
async def test_expired_entries_are_hidden_and_go_with_all_that_hangs_on_them_when_their_grace_is_over(
    memory: Memory, clock: Clock
) -> None:
    gone = await memory.write("gone quiet", scope=USER, expires_at=clock.moment + HOUR)
    stays = await memory.write("put off", scope=USER, expires_at=clock.moment + HOUR)
    await memory.update(gone.id, content="gone quiet, edited")
    await memory.relations.relate(gone.id, "supports", stays.id)
    clock.advance(HOUR + MICROSECOND)
    await memory.admin.sweep()
    assert await memory.retrieve(USER) == []
    clock.advance(DAY - HOUR)
    assert (await memory.admin.sweep()).expired == 0
    clock.advance(HOUR)
    assert (await memory.admin.sweep()).expired == 2
    assert await left_in(memory) == []


async def test_expired_entries_are_kept_for_ever_where_no_grace_is_set(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config, clock=clock, durations={"expired_grace": 0, "sweep_every": 0}) as memory:
        await memory.write("gone quiet", scope=USER, expires_at=clock.moment + HOUR)
        clock.advance(400 * DAY)
        await memory.admin.sweep()
        assert await memory.retrieve(USER) == []
        assert await memory.admin.erase(USER) == 1


@pytest.mark.behaviour("A28", "AC-A11")
async def test_an_entry_must_have_all_of_the_tags_asked(memory: Memory) -> None:
    for text, tags in (("both", ["a", "b"]), ("only-a", ["a"]), ("only-b", ["b"]), ("none", [])):
        await memory.write(text, scope=USER, tags=tags)
    assert contents(await memory.retrieve(USER, tags=["a", "b"])) == ["both"]
    assert sorted(contents(await memory.retrieve(USER, tags=["a"]))) == ["both", "only-a"]
    assert len(await memory.retrieve(USER, tags=[])) == 4
    assert [
        h.entry.content for h in await memory.search("both only", scope=USER, filter={"tags": ["a", "b"]})
    ] == ["both"]


@pytest.mark.behaviour("A28", "D53")
async def test_tags_match_whole_and_case_sensitively(memory: Memory) -> None:
    await memory.write("tagged", scope=USER, tags=["a_b", "c"])
    for asked in ("A_B", "axb", "a_", "%", "a%", "a_b ", "a", "A_b", '"a_b"', "a_b,c"):
        assert await memory.retrieve(USER, tags=[asked]) == [], asked
    assert contents(await memory.retrieve(USER, tags=["a_b"])) == ["tagged"]


@pytest.mark.behaviour("A28", "D5")
async def test_one_text_is_no_list_of_tags(memory: Memory) -> None:
    await memory.write("tagged", scope=USER, tags=["x"])
    with pytest.raises(InvalidInput, match="tags"):
        await memory.retrieve(USER, tags="x")
    with pytest.raises(InvalidInput, match="types"):
        await memory.retrieve(USER, types="user")


@pytest.mark.behaviour("A29", "D50")
async def test_since_is_inclusive(memory: Memory, clock: Clock) -> None:
    _, second, third = await _written(memory, clock, "one", "two", "three")
    assert contents(await memory.retrieve(USER, since=second.created_at)) == ["three", "two"]
    assert contents(await memory.retrieve(USER, since=second.created_at + MICROSECOND)) == ["three"]
    assert await memory.retrieve(USER, since=third.created_at + MICROSECOND) == []


@pytest.mark.behaviour("A30")
async def test_twenty_entries_are_returned_unless_told(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock, *(f"n{n}" for n in range(25)))
    assert contents(await memory.retrieve(USER)) == [f"n{n}" for n in range(24, 4, -1)]
    assert contents(await memory.retrieve(USER, limit=None)) == contents(await memory.retrieve(USER))


@pytest.mark.behaviour("A31", "D49", "AC-D07")
@cells("limit", [0, -5, 1001, 2.9, True, "5", 2**63], shared=True)
async def test_a_limit_out_of_range_is_refused(memory: Memory, limit: int) -> None:
    for call in (
        memory.retrieve(USER, limit=limit),
        memory.search("x", scope=USER, limit=limit),
        memory.relations.find(limit=limit),
    ):
        with pytest.raises(InvalidInput, match="limit"):
            await call


@pytest.mark.behaviour("D49", "AC-D07")
async def test_a_limit_up_to_a_thousand_is_honoured_exactly(memory: Memory) -> None:
    await memory.write_many([{"content": f"row {n}", "scope": USER} for n in range(230)])
    for limit in (1, 200, 229, 230, 231, 1000):
        assert len(await memory.retrieve(USER, limit=limit)) == min(limit, 230)
    assert len(await memory.search("row", scope=USER, limit=201)) == 201


@pytest.mark.behaviour("A32")
async def test_order_is_newest_first_or_oldest_first(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock, "one", "two", "three")
    assert contents(await memory.retrieve(USER)) == ["three", "two", "one"]
    assert contents(await memory.retrieve(USER, order="oldest")) == ["one", "two", "three"]


@pytest.mark.behaviour("A32")
@pytest.mark.parametrize("keyed", [False, True])
async def test_ties_follow_the_order_written_in_the_same_direction(
    memory: Memory, clock: Clock, keyed: bool
) -> None:
    born = clock.moment - DAY
    entries = [
        await memory.write(f"tie {n}", scope=USER, created_at=born, key=f"k{n}" if keyed else None)
        for n in range(4)
    ]
    drafts = [
        {"content": f"tie {n}", "scope": USER, "created_at": born} | ({"key": f"k{n}"} if keyed else {})
        for n in range(4, 7)
    ]
    entries += await memory.write_many(drafts)
    await memory.update(entries[3].id, content="tie 3, edited")
    ids = [e.id for e in entries]
    assert [e.id for e in await memory.retrieve(USER, order="oldest")] == ids
    assert [e.id for e in await memory.retrieve(USER)] == ids[::-1]
    assert [e.id for e in await memory.retrieve(USER, limit=3)] == ids[::-1][:3]
    assert [e.id for e in await memory.retrieve(USER, order="oldest", limit=3)] == ids[:3]


@pytest.mark.behaviour("A32")
async def test_entries_of_one_moment_keep_their_order_through_copies_of_a_store(
    memory: Memory, clock: Clock
) -> None:
    born = clock.moment - DAY
    for n in range(12):
        await memory.write(f"tie {n}", scope=USER, created_at=born, key=f"k{n}")
    texts = [f"tie {n}" for n in range(12)]
    other = memory.for_tenant("other")
    await other.admin.import_([line async for line in memory.admin.export()])
    assert contents(await other.retrieve(USER, order="oldest")) == texts
    found, cursor = list[str](), None
    for _ in range(4):
        page = await other.retrieve(USER, limit=3, cursor=cursor)
        found, cursor = found + contents(page), page.cursor
    assert (found, cursor) == (texts[::-1], None)


@pytest.mark.behaviour("A32")
async def test_an_edit_does_not_change_the_order(memory: Memory, clock: Clock) -> None:
    first, _ = await _written(memory, clock, "one", "two")
    clock.advance()
    await memory.update(first.id, content="one, edited")
    assert contents(await memory.retrieve(USER)) == ["two", "one, edited"]


@pytest.mark.behaviour("A14", "A33")
async def test_filters_apply_before_the_limit(memory: Memory, clock: Clock) -> None:
    wanted = await memory.write("wanted", scope=USER, tags=["t"], type="user")
    clock.advance()
    for n in range(30):
        await memory.write(
            f"expired {n}", scope=USER, tags=["t"], type="user", expires_at=clock.moment - HOUR
        )
        await memory.write(f"untagged {n}", scope=USER, type="user")
        await memory.write(f"elsewhere {n}", scope=OTHER_USER, tags=["t"], type="user")
        await memory.write(f"another type {n}", scope=USER, tags=["t"])
    assert await memory.retrieve(USER, tags=["t"], types=["user"], limit=1) == [wanted]
    assert contents(await memory.retrieve(USER, order="oldest", since=wanted.created_at, limit=1)) == [
        "wanted"
    ]


@pytest.mark.behaviour("A45", "AC-A15")
async def test_entries_are_found_however_many_newer_ones_other_scopes_hold(
    memory: Memory, clock: Clock
) -> None:
    await memory.write("mine", scope=USER)
    clock.advance()
    await memory.write_many([{"content": f"noise {n}", "scope": "user:noise"} for n in range(60)])
    assert contents(await memory.retrieve(USER)) == ["mine"]
    assert contents(await memory.retrieve(USER, limit=1)) == ["mine"]
    assert contents(await memory.retrieve(USER, limit=1, order="oldest")) == ["mine"]


@pytest.mark.behaviour("A46")
async def test_oldest_returns_the_oldest_of_all(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock, *(f"n{n}" for n in range(12)))
    assert contents(await memory.retrieve(USER, order="oldest", limit=2)) == ["n0", "n1"]
    assert contents(await memory.retrieve(USER, limit=2)) == ["n11", "n10"]


@pytest.mark.behaviour("A47")
async def test_retrieval_is_structured_and_takes_no_query(memory: Memory) -> None:
    with pytest.raises(TypeError):
        await memory.retrieve(USER, query="tea")  # type: ignore[call-arg]


@pytest.mark.behaviour("D1", "D48")
async def test_retrieval_by_type_takes_any_of_several(memory: Memory, clock: Clock) -> None:
    for kind in ("user", "project", "learning"):
        clock.advance()
        await memory.write(kind, scope=USER, type=kind)
    assert contents(await memory.retrieve(USER, types=["user", "learning"])) == ["learning", "user"]
    with pytest.raises(InvalidInput, match="note"):
        await memory.retrieve(USER, types=["user", "note"])


@pytest.mark.behaviour("D12")
@pytest.mark.parametrize("scope", [USER, SESSION], ids=str)
async def test_what_was_written_is_visible_at_once(memory: Memory, scope: str) -> None:
    for n in range(5):
        entry = await memory.write(f"visible{n}", scope=scope)
        assert await memory.get(entry.id) == entry
        assert entry in await memory.retrieve(scope)
        assert [h.entry for h in await memory.search(f"visible{n}", scope=scope)] == [entry]
