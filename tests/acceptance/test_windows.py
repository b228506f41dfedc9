"""Validity windows: half-open, ended by invalidation, asked about with `as_of`."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from memory import Entry, InvalidInput, Scope
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import DAY, HOUR, MICROSECOND, SCOPES, USER, Clock, contents


async def _visible(memory: Memory, entry: Entry, as_of: datetime | None = None) -> bool:
    """Whether it is seen; every way of reading must agree."""
    ways = {
        "get": await memory.get(entry.id, as_of=as_of) is not None,
        "list": entry.id in [e.id for e in await memory.retrieve(entry.scope, as_of=as_of)],
        "search": entry.id
        in [h.entry.id for h in await memory.search("window", scope=entry.scope, as_of=as_of)],
    }
    if as_of is None:
        ways["export"] = entry.id in [e.id async for e in memory.entries.iterate()]
    assert len(set(ways.values())) == 1, ways
    return ways["get"]


@pytest.mark.behaviour("D20", "D21", "D22", "D24", "AC-D09")
@SCOPES
async def test_a_window_contains_its_start_and_not_its_end(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry = await memory.write("through the window", scope=scope)
    end = clock.advance()
    assert await memory.entries.invalidate(entry.id, end) is True
    clock.advance()
    assert not await _visible(memory, entry)
    assert await _visible(memory, entry, entry.valid_from)
    assert await _visible(memory, entry, end - MICROSECOND)
    assert not await _visible(memory, entry, end)
    assert not await _visible(memory, entry, end + DAY)
    assert not await _visible(memory, entry, entry.valid_from - MICROSECOND)


@pytest.mark.behaviour("D22", "D23", "D24")
@SCOPES
async def test_an_entry_invalidated_now_is_hidden_now(memory: Memory, clock: Clock, scope: Scope) -> None:
    entry = await memory.write("window", scope=scope)
    between = clock.advance()
    clock.advance()
    assert await memory.entries.invalidate(entry.id) is True
    assert not await _visible(memory, entry)
    assert await _visible(memory, entry, between)
    past = await memory.get(entry.id, as_of=between)
    assert past is not None
    assert past.valid_to is not None
    assert between < past.valid_to <= clock.moment


@pytest.mark.behaviour("D22", "D24")
@SCOPES
async def test_what_a_clock_ahead_of_ours_wrote_is_hidden_as_soon_as_it_is_retired(
    memory: Memory, clock: Clock, scope: Scope, tmp_path: Path
) -> None:
    there, clock.moment = clock.moment, clock.moment + HOUR
    old = [await memory.write(f"window {n}", scope=scope) for n in range(2)]
    clock.moment = there
    assert await memory.entries.invalidate(old[0].id) is True
    new = await memory.write("door", scope=scope, supersedes=old[1].id)
    for _ in range(3):
        assert await memory.get_many([entry.id for entry in old]) == [None] * 2
        assert [entry.id for entry in await memory.retrieve(scope)] == [new.id]
        assert [hit.id for hit in await memory.search("window door", scope=scope)] == [new.id]
        clock.moment += HOUR
    exported = [line async for line in memory.admin.export()]
    async with Memory(tmp_path / "other.db", clock=clock, embedder="none") as other:
        await other.admin.import_(exported, same_ids=True)
        assert len(await other.browse(include_retired=True)) == 3
        assert [entry.id for entry in await other.retrieve(scope)] == [new.id]


@pytest.mark.behaviour("D22", "D24")
async def test_an_entry_is_hidden_at_once_however_fast_it_is_invalidated(
    memory: Memory, clock: Clock
) -> None:
    clock.stand_still_at(clock.moment)
    entry = await memory.write("window", scope=USER)
    assert await memory.entries.invalidate(entry.id) is True
    assert not await _visible(memory, entry)


@pytest.mark.behaviour("D24")
async def test_invalidating_by_a_clock_that_is_behind_the_writers_succeeds(
    memory: Memory, clock: Clock
) -> None:
    entry = await memory.write("window", scope=USER)
    clock.advance(-timedelta(seconds=2))
    assert await memory.entries.invalidate(entry.id) is True
    clock.advance(timedelta(seconds=2))
    assert not await _visible(memory, entry)


@pytest.mark.behaviour("D25", "D27")
async def test_a_second_invalidation_finds_nothing_and_changes_nothing(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("window", scope=USER)
    end = clock.advance()
    await memory.entries.invalidate(entry.id, end)
    for _ in range(2):
        clock.advance()
        assert await memory.entries.invalidate(entry.id) is False
        assert await memory.entries.invalidate(entry.id, clock.moment + DAY) is False
    read = await memory.get(entry.id, as_of=entry.valid_from)
    assert read is not None
    assert read.valid_to == end


@pytest.mark.behaviour("D26")
async def test_there_is_nothing_to_invalidate_under_an_unknown_id(memory: Memory, clock: Clock) -> None:
    expired = await memory.write("expired", scope=USER, expires_at=clock.moment - HOUR)
    for gone in ("nothing", "", "00000000-0000-8000-8000-000000000000", expired.id):
        assert await memory.entries.invalidate(gone) is False


@pytest.mark.behaviour("D32")
@SCOPES
async def test_an_end_in_the_future_hides_nothing_before_it(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry = await memory.write("window", scope=scope)
    end = clock.moment + DAY
    assert await memory.entries.invalidate(entry.id, end) is True
    assert await memory.entries.invalidate(entry.id) is False
    clock.stand_still_at(end - MICROSECOND)
    assert await _visible(memory, entry)
    assert await _visible(memory, entry, clock.moment)
    assert (await memory.update(entry.id, content="window, edited")).valid_to == end
    clock.stand_still_at(end)
    assert not await _visible(memory, entry)
    assert not await _visible(memory, entry, clock.moment)


@pytest.mark.behaviour("D32")
@pytest.mark.parametrize("ahead", [timedelta(0), MICROSECOND, timedelta(minutes=4)], ids=str)
async def test_default_reads_and_reads_as_of_now_agree(
    memory: Memory, clock: Clock, ahead: timedelta
) -> None:
    clock.stand_still_at(clock.moment)
    entry = await memory.write("window", scope=USER, created_at=clock.moment + ahead)
    assert await _visible(memory, entry) is await _visible(memory, entry, clock.moment) is True
    assert entry.created_at == entry.updated_at == entry.valid_from


@pytest.mark.behaviour("D33", "AC-D13")
async def test_an_end_that_leaves_no_window_is_refused(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("window", scope=USER)
    clock.advance()
    for when in (entry.valid_from - DAY, entry.valid_from - MICROSECOND, entry.valid_from, 0):
        with pytest.raises(InvalidInput, match="when"):
            await memory.entries.invalidate(entry.id, when)
        assert await _visible(memory, entry)
    assert await memory.entries.invalidate(entry.id, entry.valid_from + MICROSECOND) is True
    assert await _visible(memory, entry, entry.valid_from)


@pytest.mark.behaviour("D24")
@pytest.mark.parametrize("when", [-1, "yesterday", datetime(2126, 1, 1), float("nan")], ids=str)
async def test_an_end_that_is_no_moment_is_refused(memory: Memory, when: float) -> None:
    entry = await memory.write("window", scope=USER)
    with pytest.raises(InvalidInput, match="when"):
        await memory.entries.invalidate(entry.id, when)
    assert await _visible(memory, entry)


@pytest.mark.behaviour("D9", "D10")
@pytest.mark.parametrize(
    ("given", "is_moment"),
    [
        (5000, "1970-01-01T01:23:20+00:00"),
        ("1740821400.0002", "2025-03-01T09:30:00.000200+00:00"),
        (1_700_000_000, "2023-11-14T22:13:20+00:00"),
        (1_700_000_000.5, "2023-11-14T22:13:20.500000+00:00"),
        (1_700_000_000_000, "2023-11-14T22:13:20+00:00"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123000+00:00"),
        ("2023-11-14T23:13:20.000001+01:00", "2023-11-14T22:13:20.000001+00:00"),
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20+00:00"),
    ],
    ids=str,
)
async def test_a_time_of_creation_given_sets_update_and_window_too(
    memory: Memory, given: float, is_moment: str
) -> None:
    entry = await memory.write("window", scope=USER, created_at=given)
    read = await memory.get(entry.id)
    assert read == entry
    assert entry.created_at == entry.updated_at == entry.valid_from == datetime.fromisoformat(is_moment)
    assert entry.created_at.utcoffset() == timedelta(0)
    assert await _visible(memory, entry, entry.created_at)
    assert not await _visible(memory, entry, entry.created_at - MICROSECOND)


@pytest.mark.behaviour("D9", "D11")
@cells(
    "given", [-1, -0.001, 10**12, 10**18, "2126-01-01", "2999-01-01T00:00:00Z", True], ids=str, shared=True
)
async def test_a_time_of_creation_that_cannot_be_is_refused(memory: Memory, given: float) -> None:
    with pytest.raises(InvalidInput, match="created_at"):
        await memory.write("window", scope=USER, created_at=given)
    assert await memory.retrieve(USER) == []


@pytest.mark.behaviour("A32", "D9")
async def test_entries_given_an_earlier_creation_are_ordered_by_it(memory: Memory, clock: Clock) -> None:
    for days in (2, 3, 1):
        await memory.write(f"{days} days ago", scope=USER, created_at=clock.moment - days * DAY)
    assert contents(await memory.retrieve(USER)) == ["1 days ago", "2 days ago", "3 days ago"]
    assert contents(await memory.retrieve(USER, since=clock.moment - 2 * DAY - HOUR)) == [
        "1 days ago",
        "2 days ago",
    ]
    assert contents(await memory.retrieve(USER, as_of=clock.moment - 2 * DAY)) == ["2 days ago", "3 days ago"]
