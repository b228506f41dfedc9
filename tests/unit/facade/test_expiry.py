"""How long something is remembered: given as a moment or as a length of time from the
write on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.domain.entry import EntryDraft
from memory.domain.errors import Conflict, InvalidInput
from memory.domain.scope import Scope
from memory.facade.memory import Memory
from tests.acceptance.support import Clock

pytestmark = pytest.mark.backend("in_memory")
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def memory(clock: Clock) -> AsyncIterator[Memory]:
    async with Memory("memory://", embedder="none", clock=clock) as opened:
        opened.clock = clock  # type: ignore[attr-defined]
        yield opened


async def test_a_length_of_time_counts_from_the_write_on(memory: Memory, clock: Clock) -> None:
    now = clock()
    draft = EntryDraft(scope=Scope.user("ada"), content="four", expires_at=HOUR)
    written = [
        await memory.write("one", scope="user:ada", expires_at=HOUR),
        *await memory.write_many([{"content": "two", "scope": "user:ada", "expires_at": HOUR}, draft]),
        await memory.update((await memory.write("five", scope="user:ada")).id, expires_at=HOUR),
        await memory.write("old", scope="user:ada", created_at=now - timedelta(days=9), expires_at=HOUR),
    ]
    for entry in written:
        assert entry.expires_at is not None
        assert now + HOUR <= entry.expires_at <= now + HOUR + timedelta(seconds=1), entry
    clock.advance(timedelta(minutes=59))
    assert len(await memory.retrieve("user:ada")) == 5
    clock.advance(timedelta(minutes=2))
    assert await memory.retrieve("user:ada") == []


async def test_the_same_keyed_write_with_a_length_of_time_is_a_repetition_later_too(
    memory: Memory, clock: Clock
) -> None:
    first = await memory.write("one", scope="user:ada", key="k", expires_at=HOUR)
    clock.advance(timedelta(minutes=5))
    assert await memory.write("one", scope="user:ada", key="k", expires_at=HOUR) == first
    with pytest.raises(Conflict):
        await memory.write("one", scope="user:ada", key="k", expires_at=2 * HOUR)


@pytest.mark.parametrize(
    "wrong", [3600, 0, timedelta(0), -HOUR, timedelta.max, "PT1H", "1h", b"2026-01-01", True], ids=repr
)
async def test_what_is_neither_is_refused_before_anything_is_stored(memory: Memory, wrong: Any) -> None:
    entry = await memory.write("one", scope="user:ada")
    calls: Any = (
        lambda: memory.write("two", scope="user:ada", expires_at=wrong),
        lambda: memory.write_many([{"content": "two", "scope": "user:ada", "expires_at": wrong}]),
        lambda: memory.update(entry.id, expires_at=wrong),
    )
    for call in calls:
        with pytest.raises(InvalidInput, match="expires_at"):
            await call()
    assert await memory.retrieve("user:ada") == [entry]


async def test_a_small_number_is_a_moment_wherever_one_is_taken_and_a_negative_one_is_refused(
    memory: Memory,
) -> None:
    entry = await memory.write("one", scope="user:ada")
    old = await memory.write("two", scope="user:bob", created_at=3600)
    assert old.created_at == datetime(1970, 1, 1, 1, tzinfo=UTC)
    assert await memory.retrieve("user:ada", since=3600) == [entry]
    assert await memory.get(entry.id, as_of=3600) is None
    assert await memory.search("one", scope="user:ada", known_at=3600) == []
    with pytest.raises(InvalidInput, match="created_at"):
        await memory.write("three", scope="user:ada", created_at=-1)
    with pytest.raises(InvalidInput, match="since"):
        await memory.retrieve("user:ada", since=-1)


@pytest.mark.parametrize("scopes", [1_001, 100_000])
async def test_more_scopes_than_may_be_asked_at_once_are_refused_by_the_limit(
    memory: Memory, scopes: int
) -> None:
    with pytest.raises(InvalidInput, match="scope: takes at most 1000 items"):
        await memory.search("x", scope=[f"user:{n}" for n in range(scopes)])
    assert await memory.search("x", scope=[f"user:{n}" for n in range(1_000)]) == []


async def test_a_session_that_has_expired_is_not_exported(memory: Memory, clock: Clock) -> None:
    for name, expires_at in (("short", HOUR), ("long", 9 * HOUR)):
        session = memory.session(name, expires_at=expires_at)
        await session.append([{"role": "user", "content": f"said in {name}"}])
    clock.advance(2 * HOUR)
    said = str([line async for line in memory.admin.export()])
    assert ("said in long" in said, "said in short" in said, "'short'" in said) == (True, False, False)
