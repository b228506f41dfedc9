"""Edits keep what they replace: `as_of` asks what was true, `known_at` what was stored,
`history` tells it all (decision D34).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from memory import Entry, NotFound, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import DAY, HOUR, MICROSECOND, SCOPES, SESSION, USER, Clock, contents


async def _edited(memory: Memory, clock: Clock, scope: Scope) -> tuple[Entry, list[datetime]]:
    """An entry with three versions, and a moment after each."""
    entry = await memory.write("version 0", scope=scope, tags=["v0"], metadata={"n": 0})
    moments = [clock.advance()]
    for n in (1, 2):
        clock.advance()
        await memory.update(entry.id, content=f"version {n}", tags=[f"v{n}"], metadata={"n": n})
        moments.append(clock.advance())
    return entry, moments


@pytest.mark.behaviour("D34")
@SCOPES
async def test_what_was_stored_then_is_what_was_known_then(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry, moments = await _edited(memory, clock, scope)
    for n, moment in enumerate(moments):
        read = await memory.get(entry.id, known_at=moment)
        assert read is not None
        assert (read.id, read.content, read.tags, read.metadata) == (
            entry.id,
            f"version {n}",
            [f"v{n}"],
            {"n": n},
        )
        assert await memory.retrieve(scope, known_at=moment) == [read]
        hits = await memory.search("version", scope=scope, known_at=moment)
        assert [(h.entry.id, h.entry.content) for h in hits] == [(entry.id, f"version {n}")]
        assert contents(await memory.retrieve(scope, known_at=moment, tags=[f"v{n}"])) == [f"version {n}"]
        assert await memory.retrieve(scope, known_at=moment, tags=[f"v{(n + 1) % 3}"]) == []


@pytest.mark.behaviour("D34", "D10", "A6", "A49")
@SCOPES
async def test_every_version_is_known_from_its_own_moment_until_the_next_ones(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry = await memory.write("version 0", scope=scope)
    assert (await memory.get(entry.id, known_at=entry.updated_at)) == entry
    assert entry.created_at == entry.updated_at == entry.valid_from
    for n in range(1, 4):
        edited = await memory.update(
            entry.id, content=f"version {n}"
        )  # a microsecond later, as the clock goes
        assert await memory.get(entry.id, known_at=edited.updated_at) == edited
    versions = await memory.entries.history(entry.id)
    assert contents(versions) == [f"version {n}" for n in range(4)]
    for version, following in zip(versions, [*versions[1:], None], strict=True):
        last = (version.updated_at + DAY) if following is None else following.updated_at - MICROSECOND
        for moment in (version.updated_at, last):
            read = await memory.get(entry.id, known_at=moment)
            assert read is not None
            assert (read.content, read.updated_at, read.version) == (
                version.content,
                version.updated_at,
                version.version,
            )
            assert await memory.retrieve(scope, known_at=moment) == [read]
            assert [h.entry for h in await memory.search("version", scope=scope, known_at=moment)] == [read]


@pytest.mark.behaviour("D34")
@SCOPES
async def test_every_version_is_known_at_its_own_moment_where_the_clock_went_back(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry = await memory.write("version 0", scope=scope)
    for n in range(1, 6):
        if n == 3:
            clock.moment -= HOUR
        await memory.update(entry.id, content=f"version {n}")
    versions = await memory.entries.history(entry.id)
    assert contents(versions) == [f"version {n}" for n in range(6)]
    assert [v.updated_at for v in versions] == sorted({v.updated_at for v in versions})
    for _ in range(2):  # while the versions lie ahead of the clock, and after
        for version in versions:
            read = await memory.get(entry.id, known_at=version.updated_at)
            assert read is not None
            assert (read.content, read.updated_at) == (version.content, version.updated_at)
            assert contents(await memory.retrieve(scope, known_at=version.updated_at)) == [version.content]
            assert [
                h.entry.content
                for h in await memory.search("version", scope=scope, known_at=version.updated_at)
            ] == [version.content]
        clock.advance(DAY)


@pytest.mark.behaviour("D34", "D32")
@SCOPES
async def test_what_a_clock_ahead_of_ours_wrote_is_known_now_and_was_not_known_before(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    early = clock.advance()
    clock.advance()
    edited = await memory.write("one", scope=scope, tags=["edited"])
    clock.advance()
    there, clock.moment = clock.moment, clock.moment + HOUR
    await memory.update(edited.id, content="two")
    fresh = await memory.write("fresh", scope=scope)
    clock.moment = there
    await memory.update(edited.id, content="three")
    asked: list[dict[str, Any]] = [
        {"known_at": clock.moment},
        {"as_of": clock.moment},
        {"known_at": clock.moment + DAY},
        {},
    ]
    for moments in asked:
        assert {e.content for e in await memory.retrieve(scope, **moments)} == {"three", "fresh"}
        assert {h.entry.content for h in await memory.search("three fresh", scope=scope, **moments)} == {
            "three",
            "fresh",
        }
        assert [e and e.content for e in [await memory.get(i, **moments) for i in (edited.id, fresh.id)]] == [
            "three",
            "fresh",
        ]
    before = edited.updated_at + HOUR / 2
    assert contents(await memory.retrieve(scope, known_at=before)) == ["one"]
    assert await memory.retrieve(scope, known_at=early) == []
    assert contents(await memory.retrieve(scope, known_at=edited.updated_at)) == ["one"]


@pytest.mark.behaviour("D34")
@SCOPES
async def test_nothing_was_known_before_the_first_write(memory: Memory, clock: Clock, scope: Scope) -> None:
    before = clock.advance()
    clock.advance()
    entry, _ = await _edited(memory, clock, scope)
    assert await memory.get(entry.id, known_at=before) is None
    assert await memory.retrieve(scope, known_at=before) == []
    assert await memory.search("version", scope=scope, known_at=before) == []


@pytest.mark.behaviour("D34")
async def test_as_of_tells_what_was_true_in_todays_words(memory: Memory, clock: Clock) -> None:
    entry, moments = await _edited(memory, clock, USER)
    for moment in moments:
        read = await memory.get(entry.id, as_of=moment)
        assert read is not None
        assert read.content == "version 2"
        assert contents(await memory.retrieve(USER, as_of=moment)) == ["version 2"]


@pytest.mark.behaviour("D34")
@SCOPES
async def test_what_was_stored_late_about_an_earlier_time_was_not_known_then(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    past = clock.moment - 10 * DAY
    entry = await memory.write("learned late", scope=scope, created_at=past)
    assert await memory.get(entry.id, as_of=past) is not None
    assert await memory.get(entry.id, known_at=past) is None
    assert await memory.retrieve(scope, known_at=past) == []
    clock.advance()
    both = await memory.get(entry.id, as_of=past, known_at=clock.moment)
    assert both is not None
    assert contents(await memory.retrieve(scope, as_of=past, known_at=clock.moment)) == ["learned late"]
    assert await memory.retrieve(scope, as_of=past, known_at=past) == []


@pytest.mark.behaviour("D34", "D24")
@SCOPES
async def test_an_invalidation_was_not_known_before_it_was_made(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry = await memory.write("believed", scope=scope)
    believed = clock.advance()
    clock.advance()
    end = clock.moment - HOUR // 2
    await memory.entries.invalidate(entry.id, end)
    after = clock.advance()
    assert contents(await memory.retrieve(scope, known_at=believed)) == ["believed"]
    assert await memory.retrieve(scope, known_at=after) == []
    assert contents(await memory.retrieve(scope, known_at=after, as_of=believed)) == ["believed"]
    known = await memory.get(entry.id, known_at=believed)
    assert known is not None
    assert known.valid_to is None
    assert await memory.get(entry.id, known_at=after) is None


@pytest.mark.behaviour("D34")
@SCOPES
async def test_history_tells_every_version_oldest_first(memory: Memory, clock: Clock, scope: Scope) -> None:
    entry, _ = await _edited(memory, clock, scope)
    versions = await memory.entries.history(entry.id)
    assert contents(versions) == ["version 0", "version 1", "version 2"]
    assert {v.id for v in versions} == {entry.id}
    assert [v.version for v in versions] == sorted({v.version for v in versions})
    assert {v.created_at for v in versions} == {entry.created_at}
    assert [v.updated_at for v in versions] == sorted({v.updated_at for v in versions})
    assert versions[-1] == await memory.get(entry.id)


@pytest.mark.behaviour("D34")
async def test_a_retired_entry_has_its_history_and_an_expired_or_unknown_one_has_none(
    memory: Memory, clock: Clock
) -> None:
    entry, _ = await _edited(memory, clock, USER)
    await memory.entries.invalidate(entry.id)
    assert len(await memory.entries.history(entry.id)) == 4
    expired = await memory.write("expired", scope=USER, expires_at=clock.moment - HOUR)
    for gone in ("nothing", expired.id):
        with pytest.raises(NotFound):
            await memory.entries.history(gone)


@pytest.mark.behaviour("D34", "A36")
@SCOPES
async def test_the_past_of_an_expired_entry_is_hidden_with_it(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    entry = await memory.write("brief", scope=scope)
    known = clock.advance()
    clock.advance()
    await memory.update(entry.id, expires_at=clock.moment + HOUR)
    assert contents(await memory.retrieve(scope, known_at=known)) == ["brief"]
    clock.advance(DAY)
    assert await memory.get(entry.id, known_at=known) is None
    assert await memory.retrieve(scope, known_at=known) == []
    assert await memory.search("brief", scope=scope, known_at=known) == []


@pytest.mark.behaviour("D34", "A34")
async def test_what_was_expired_then_was_not_known_then(memory: Memory, clock: Clock) -> None:
    end = clock.moment + HOUR
    entry = await memory.write("brief", scope=USER, expires_at=end)
    await memory.update(entry.id, content="brief still")
    clock.stand_still_at(end)
    await memory.update(entry.id, expires_at=None)
    clock.advance(DAY)
    for moment, seen in ((end - HOUR // 2, True), (clock.moment, True)):
        assert (await memory.get(entry.id, known_at=moment) is not None) is seen
        assert bool(await memory.retrieve(USER, known_at=moment)) is seen


@pytest.mark.behaviour("D34", "A33")
async def test_hidden_pasts_do_not_use_up_the_limit(memory: Memory, clock: Clock) -> None:
    await memory.write("still here", scope=USER)
    clock.advance()
    doomed = [await memory.write(f"doomed {n}", scope=USER) for n in range(12)]
    known = clock.advance()
    clock.advance()
    for entry in doomed:
        await memory.update(entry.id, expires_at=clock.moment - HOUR)
    assert contents(await memory.retrieve(USER, known_at=known, limit=3)) == ["still here"]


@pytest.mark.behaviour("D34", "A32", "A44")
async def test_pages_of_the_past_mix_kept_and_current_versions_in_order(memory: Memory, clock: Clock) -> None:
    entries = []
    for n in range(8):
        clock.advance()
        entries.append(await memory.write(f"old {n}", scope=USER))
    known = clock.advance()
    clock.advance()
    for entry in entries[::2]:
        await memory.update(entry.id, content="new")
    assert contents(await memory.retrieve(USER, known_at=known)) == [f"old {n}" for n in range(7, -1, -1)]
    assert contents(await memory.retrieve(USER, known_at=known, order="oldest", limit=3)) == [
        "old 0",
        "old 1",
        "old 2",
    ]
    assert contents(await memory.retrieve(USER, known_at=known, since=entries[5].created_at)) == [
        "old 7",
        "old 6",
        "old 5",
    ]


@pytest.mark.behaviour("D34")
async def test_a_move_onward_changes_no_history(memory: Memory, clock: Clock) -> None:
    entry, moments = await _edited(memory, clock, SESSION)
    before = contents(await memory.entries.history(entry.id))
    await memory.admin.move([entry.id], "mid")
    clock.advance()
    await memory.admin.move([entry.id], "long")
    await memory.update(entry.id, content="version 3")
    assert contents(await memory.entries.history(entry.id)) == [*before, "version 3"]
    for n, moment in enumerate(moments):
        assert contents(await memory.retrieve(SESSION, known_at=moment)) == [f"version {n}"]
        read = await memory.get(entry.id, known_at=moment)
        assert read is not None
        assert read.content == f"version {n}"
