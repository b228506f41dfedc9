"""Entries that reads keep: `refresh_on_read` moves their expiry at each read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from memory import Conflict, Entry, EntryDraft, InvalidInput, Memory, StoreUnavailable
from memory.ports.writes import Annotate
from tests.acceptance.support import HOUR, OTHER_USER, SESSION, USER, WORKSPACE, Clock, stores_of, watching

Read = Callable[[Memory, Entry], Awaitable[object]]
KEPT: dict[str, Any] = {"expires_at": 2 * HOUR, "refresh_on_read": True}


async def _found(memory: Memory, entry: Entry) -> Entry | None:
    hits = await memory.search(entry.content, scope=entry.scope)
    return next((hit.entry for hit in hits if hit.id == entry.id), None)


READS: dict[str, Read] = {
    "get": lambda memory, entry: memory.get(entry.id),
    "get by key": lambda memory, entry: memory.get(scope=entry.scope, key=entry.key),
    "get_many": lambda memory, entry: memory.get_many([entry.id]),
    "a view of its scope": lambda memory, entry: memory.scoped(entry.scope).get_many(keys=[str(entry.key)]),
    "a reader's view": lambda memory, entry: memory.restrict([entry.scope], role="reader").get(entry.id),
    "search": _found,
    "search of all": lambda memory, entry: memory.search(" ", scope=entry.scope),
}
OTHERS: dict[str, Read] = {
    "retrieve": lambda memory, entry: memory.retrieve(entry.scope),
    "browse": lambda memory, entry: memory.browse(),
    "history": lambda memory, entry: memory.entries.history(entry.id),
    "as_of": lambda memory, entry: memory.get(entry.id, as_of=entry.created_at),
    "known_at": lambda memory, entry: memory.search("tea", scope=entry.scope, known_at=entry.created_at),
}


async def test_each_read_keeps_an_entry_and_changes_nothing_else(memory: Memory, clock: Clock) -> None:
    kept = [
        await memory.write(f"tea {how}", scope=scope, key=how, data={"a": 1}, **KEPT)
        for how in READS
        for scope in (USER, SESSION)
    ]
    for _ in range(3):
        clock.advance(HOUR)
        for entry in kept:
            await READS[str(entry.key)](memory, entry)
    clock.advance(HOUR)
    for entry in kept:
        now = await _found(memory, entry)
        assert now is not None, entry.key
        assert now.expires_at is not None
        assert now.expires_at - clock.moment > HOUR
        assert now.lifetime == 2 * HOUR
        assert now.model_copy(update={"expires_at": entry.expires_at}) == entry
        assert len(await memory.entries.history(entry.id)) == 1
        assert await memory.update(entry.id, tags=["t"], expected_version=entry.version)
    clock.advance(3 * HOUR)
    assert await memory.browse() == []


async def test_lists_and_reads_of_the_past_keep_nothing(memory: Memory, clock: Clock) -> None:
    for how, read in OTHERS.items():
        entry = await memory.write("tea", scope=USER, key=how, **KEPT)
        clock.advance(HOUR)
        await read(memory, entry)
        clock.advance(HOUR + timedelta(seconds=1))
        assert await memory.get(entry.id) is None, how


async def test_a_read_moves_no_other_expiry_and_never_to_an_earlier_moment(
    memory: Memory, clock: Clock
) -> None:
    plain = await memory.write("tea", scope=USER, expires_at=2 * HOUR)
    kept = await memory.write("coffee", scope=USER, **KEPT)
    assert (plain.lifetime, kept.lifetime) == (None, 2 * HOUR)
    later = await memory.update(kept.id, expires_at=5 * HOUR, refresh_on_read=True)
    clock.advance(timedelta(seconds=100))
    for entry in (plain, later):
        assert await memory.get(entry.id) == entry, "too little to move it"
    clock.advance(HOUR)
    assert await memory.get(plain.id) == plain
    with patch.object(clock, "moment", clock.moment - timedelta(days=1)):
        assert (await memory.get(later.id) or plain).expires_at == later.expires_at


async def test_a_read_calls_no_store_more_unless_an_expiry_moves(memory: Memory, clock: Clock) -> None:
    plain = await memory.write("tea", scope=USER, expires_at=2 * HOUR)
    kept = [await memory.write(f"coffee {n}", scope=USER, **KEPT) for n in range(3)]
    await memory.admin.flush()
    with watching(memory) as calls:
        await memory.get_many([plain.id])
        usual = list(calls)
        await memory.get_many([plain.id, *(entry.id for entry in kept)])
    assert calls == 2 * usual
    clock.advance(HOUR)
    with watching(memory) as calls:
        await memory.get_many([plain.id, *(entry.id for entry in kept)])
    writes = [call for call in calls[len(usual) :] if call.endswith(".apply")]
    assert 1 <= len(set(writes)) == len(writes) <= len(stores_of(memory))


async def test_changes_say_what_reads_keep(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, **KEPT)
    clock.advance(HOUR)
    changed = await memory.update(entry.id, content="green tea")
    assert changed.lifetime == 2 * HOUR
    assert changed.expires_at is not None
    assert changed.expires_at - clock.moment > HOUR, "a change keeps it as a read does"
    for given, lifetime in (
        ({"refresh_on_read": False}, None),
        ({"expires_at": 3 * HOUR, "refresh_on_read": True}, 3 * HOUR),
        ({"tags": ["t"]}, 3 * HOUR),
        ({"expires_at": 4 * HOUR}, None),
        ({"expires_at": 3 * HOUR, "refresh_on_read": True}, 3 * HOUR),
        ({"expires_at": None}, None),
    ):
        changed = await memory.update(entry.id, **given)
        assert changed.lifetime == lifetime, given
    assert changed.expires_at is None


async def test_keyed_writes_say_what_reads_keep(memory: Memory) -> None:
    async def write(if_exists: Any = "error", **given: Any) -> Entry:
        return await memory.write("tea", scope=USER, key="k", if_exists=if_exists, **given)

    first = await write(**KEPT)
    assert await write(**KEPT) == first
    with pytest.raises(Conflict):
        await write(expires_at=2 * HOUR)
    assert (await write("update", tags=["t"])).lifetime == 2 * HOUR
    assert (await write("update", refresh_on_read=False)).lifetime is None
    assert (await write("update", expires_at=HOUR, refresh_on_read=True)).lifetime == HOUR
    assert (await write("update", expires_at=3 * HOUR)).lifetime is None
    assert (await write("replace", **KEPT)).lifetime == 2 * HOUR
    assert (await write("keep")).lifetime == 2 * HOUR
    assert (await write("replace")).lifetime is None
    [drafted] = await memory.write_many([EntryDraft(content="a", scope=USER, **KEPT)])
    [mapped] = await memory.write_many([{"content": "b", "scope": USER, **KEPT}])
    assert (drafted.lifetime, mapped.lifetime) == (2 * HOUR, 2 * HOUR)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"refresh_on_read": True},
            r"refresh_on_read: needs a length of time .*expires_at=timedelta\(hours=1\)",
        ),
        (
            {"refresh_on_read": True, "expires_at": "2127-01-01T00:00:00Z"},
            "refresh_on_read: needs a length of time",
        ),
        ({"refresh_on_read": 1, "expires_at": HOUR}, "refresh_on_read: must be True or False, not int"),
        ({"lifetime": HOUR}, "lifetime"),
    ],
)
async def test_a_refresh_needs_a_time_that_begins_anew(
    plain: Memory, given: dict[str, Any], problem: str
) -> None:
    entry = await plain.write("tea", scope=USER)
    for refused in (
        lambda: plain.write("tea", scope=USER, **given),
        lambda: plain.update(entry.id, **given),
        lambda: plain.write_many([{"content": "tea", "scope": USER, **given}]),
    ):
        with pytest.raises(InvalidInput, match=problem):
            await refused()
    assert len(await plain.browse()) == 1


async def test_copies_are_kept_by_reads_too(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, **KEPT)
    other = await memory.write("more tea", scope=USER, expires_at=3 * HOUR, refresh_on_read=True)
    copy = await memory.promote(entry.id, WORKSPACE)
    merged = await memory.compact([entry.id, other.id], lambda entries: "tea, more of it")
    assert (copy.lifetime, merged.lifetime) == (2 * HOUR, 3 * HOUR)
    fixed = await memory.write("coffee", scope=USER, expires_at=HOUR)
    assert (await memory.compact([entry.id, fixed.id], lambda entries: "both")).lifetime is None
    for _ in range(3):
        clock.advance(HOUR)
        assert None not in await memory.get_many([copy.id, merged.id])
    assert await memory.get(entry.id) is None


async def test_exports_and_imports_keep_them(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, key="drink", **KEPT)
    lines = [line async for line in memory.admin.export()]
    clock.advance(HOUR)
    moved = await memory.get(entry.id)
    later = [line async for line in memory.admin.export()]
    again = await memory.admin.import_(lines)
    same = await memory.admin.import_(lines, same_ids=True)
    assert (again.already_there, again.problems, same.already_there, same.problems) == (1, [], 1, [])
    assert await memory.get(entry.id) == moved, "an import moves no expiry back"
    async with memory.for_tenant("another") as another:
        await another.admin.import_(lines)
        report = await another.admin.import_(later)
        assert (report.already_there, report.problems) == (1, [])
        clock.advance(timedelta(minutes=30))
        found = await another.get(scope=USER, key="drink")
        assert found is not None
        assert found.lifetime == 2 * HOUR
        clock.advance(HOUR)
        assert await another.get(found.id) is not None


async def test_a_reverted_change_moves_no_expiry_back(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, source="web", **KEPT)
    clock.advance(HOUR)
    changed = await memory.update(entry.id, content="green tea", source="mail")
    clock.advance(1.5 * HOUR)
    await memory.admin.revert_source(source="mail")
    now = await memory.get(entry.id)
    assert now is not None
    assert (now.content, now.lifetime) == ("tea", 2 * HOUR)
    assert changed.expires_at is not None
    assert now.expires_at is not None
    assert now.expires_at >= changed.expires_at


@pytest.mark.parametrize("tier", ["mid", "long"])
async def test_a_moved_entry_is_kept_by_reads(memory: Memory, clock: Clock, tier: str) -> None:
    entry = await memory.write("tea", scope=SESSION, **KEPT)
    clock.advance(HOUR)
    before = await memory.get(entry.id)
    await memory.admin.move([entry.id], tier)
    moved = await memory.get(entry.id)
    assert moved is not None
    assert before is not None
    assert (moved.tier, moved.expires_at) == (tier, before.expires_at)
    for _ in range(3):
        clock.advance(HOUR)
        assert await _found(memory, entry) is not None


async def test_a_read_answers_where_the_expiry_cannot_be_moved(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, **KEPT)
    await memory.admin.flush()
    clock.advance(HOUR)

    def refusing(store: Any) -> Any:
        original = store.apply

        async def apply(writes: Any, *args: Any, **kwargs: Any) -> Any:
            if any(isinstance(write, Annotate) and write.expires_at is not None for write in writes):
                raise StoreUnavailable(store.name, "it is away")
            return await original(writes, *args, **kwargs)

        return apply

    patches = [patch.object(store, "apply", refusing(store)) for store in stores_of(memory)]
    for one in patches:
        one.start()
    try:
        assert await memory.get(entry.id) == entry
        assert await _found(memory, entry) == entry
    finally:
        for one in patches:
            one.stop()


@pytest.mark.backend("sqlite")
async def test_a_memory_that_is_opened_only_for_reading_answers_and_moves_nothing(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with Memory(url, embedder="none", clock=clock) as memory:
        entry = await memory.write("tea", scope=USER, **KEPT)
    clock.advance(HOUR)
    async with Memory(f"{url}?mode=ro", embedder="none", clock=clock) as memory:
        assert await memory.get(entry.id) == entry
        assert await _found(memory, entry) == entry
    assert [one.getMessage() for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


async def test_nobody_keeps_entries_that_are_not_shown(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("tea", scope=USER, **KEPT)
    clock.advance(HOUR)
    async with memory.for_tenant("another") as another:
        assert await another.get(entry.id) is None
    assert await memory.restrict([OTHER_USER]).get(entry.id) is None
    other = memory.scoped(OTHER_USER)
    assert (await other.get(entry.id), await other.get_many([entry.id])) == (None, [None])
    clock.advance(HOUR + timedelta(seconds=1))
    assert await memory.get(entry.id) is None
