"""A call that is repeated under its `request_id` changes nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from memory import ABSENT, Conflict, Entry, InvalidInput, NotFound, PartialWrite, RejectedByGate, Scope
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import REQUESTS
from memory.orchestrator.storage.requests import BegunRequest, Requests
from memory.ports.query import Eq, Everywhere, Query
from tests.acceptance.support import BOB, DAY, SCOPES, SESSION, USER, Clock, watching

Call = Callable[[Memory], Awaitable[Any]]


async def entries_of(memory: Memory, *scopes: Scope) -> list[Entry]:
    return [
        entry
        for scope in scopes or (USER, SESSION)
        async for entry in memory.entries.iterate(scope, include_retired=True)
    ]


@pytest.fixture(params=["noted", "cut off"])
def ending(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a call notes its result, or ends right before."""

    async def finish(self: Requests, begun: BegunRequest, result: Any) -> None:
        return None

    if request.param == "cut off":
        monkeypatch.setattr(Requests, "finish", finish)


BOTH = pytest.mark.usefixtures("ending")


async def records(memory: Memory) -> int:
    archive = engine_of(memory).topology.archive
    return (await archive.count(Query(REQUESTS, Everywhere()))).records


@SCOPES
@BOTH
async def test_a_repeated_write_returns_the_first_entry(memory: Memory, scope: Scope) -> None:
    first = await memory.write("Lisbon", scope=scope, tags=["a"], request_id="r1")
    assert first.key is None
    again = await memory.write_with_report("Lisbon", scope=scope, tags=["a"], request_id="r1")
    assert (again.entry, again.replayed) == (first, True)
    assert await entries_of(memory) == [first]
    other = await memory.write("Lisbon", scope=scope, tags=["a"], request_id="r2")
    assert other.id != first.id
    assert len(await entries_of(memory)) == 2


async def test_the_result_is_noted_without_content(memory: Memory) -> None:
    made = await memory.write("Lisbon", scope=USER, metadata={"a": "Porto"}, request_id="r1")
    await memory.update(made.id, content="Faro", expires_at=DAY, request_id="r1")
    await memory.entries.invalidate(made.id, request_id="r1")
    await memory.delete(made.id, request_id="r1")
    archive = engine_of(memory).topology.archive
    page = await archive.query(Query(REQUESTS, Everywhere(), Eq("status", "done")))
    assert len(page.records) == 4
    for word in ("Lisbon", "Porto", "Faro", "u1", "r1"):
        assert word not in repr(page.records)


async def test_a_view_and_a_memory_share_their_requests(memory: Memory) -> None:
    first = await memory.scoped(USER).write("Lisbon", request_id="r1")
    assert await memory.write("Lisbon", scope=USER, request_id="r1") == first
    theirs = await memory.for_tenant("globex").write("Lisbon", scope=USER, request_id="r1")
    assert theirs.id != first.id


@SCOPES
@BOTH
async def test_a_repeat_after_later_edits_returns_the_first_result(memory: Memory, scope: Scope) -> None:
    first = await memory.write("Lisbon", scope=scope, request_id="r1")
    changed = await memory.update(first.id, content="Porto", request_id="r1")
    await memory.update(first.id, content="Faro")
    await memory.entries.invalidate(first.id)
    history = await memory.entries.history(first.id)
    assert await memory.write("Lisbon", scope=scope, request_id="r1") == first
    assert await memory.update(first.id, content="Porto", request_id="r1") == changed
    assert await memory.entries.history(first.id) == history


@BOTH
async def test_a_repeated_conditional_call_does_not_conflict_with_itself(memory: Memory) -> None:
    made = await memory.write("1", scope=USER, key="n", expected_version=ABSENT, request_id="r1")
    assert await memory.write("1", scope=USER, key="n", expected_version=ABSENT, request_id="r1") == made
    for mode in ("replace", "update"):
        before = await memory.get(scope=USER, key="n")
        assert before is not None
        options: dict[str, Any] = {"if_exists": mode, "expected_version": before.version, "request_id": mode}
        new = await memory.write(mode, scope=USER, key="n", **options)
        report = await memory.write_with_report(mode, scope=USER, key="n", **options)
        assert (report.entry, report.replayed) == (new, True)
        assert new.version != before.version
    version = new.version
    assert await memory.entries.invalidate(scope=USER, key="n", expected_version=version, request_id="r1")
    assert await memory.entries.invalidate(scope=USER, key="n", expected_version=version, request_id="r1")
    assert len(await memory.entries.history(scope=USER, key="n")) == 4


@SCOPES
@BOTH
async def test_a_repeated_deletion_spares_a_later_life(memory: Memory, scope: Scope) -> None:
    await memory.write("old", scope=scope, key="n")
    first = await memory.delete(scope=scope, key="n", request_id="r1")
    new = await memory.write("new", scope=scope, key="n", revive=True)
    again = await memory.delete(scope=scope, key="n", request_id="r1")
    assert (first, again) == (1, 1)
    assert await memory.get(scope=scope, key="n") == new


@BOTH
async def test_a_view_repeats_a_deletion(memory: Memory) -> None:
    made, theirs = await memory.write("a", scope=USER), await memory.write("b", scope=BOB)
    view = memory.scoped(USER)
    assert await view.delete(made.id, request_id="r1") == await view.delete(made.id, request_id="r1") == 1
    assert await view.delete(theirs.id, request_id="r2") == await view.delete(theirs.id, request_id="r2") == 0
    assert await memory.get(theirs.id) == theirs


@BOTH
async def test_many_writes_are_repeated_as_one_request(memory: Memory) -> None:
    drafts: list[dict[str, Any]] = [
        {"content": "a", "scope": USER},
        {"content": "a", "scope": USER},
        {"content": "b", "scope": SESSION, "key": "k"},
        {"content": "c", "scope": USER, "key": "k", "if_exists": "replace"},
        {"content": "d", "scope": SESSION},
    ]
    first = await memory.write_many(drafts, request_id="r1")
    assert len({entry.id for entry in first}) == len(drafts)
    await memory.update(first[1].id, content="later")
    await memory.write("later", scope=USER, key="k", if_exists="replace")
    assert await memory.write_many(drafts, request_id="r1") == first
    assert len(await entries_of(memory)) == len(drafts)
    with pytest.raises(Conflict, match="was used for another request"):
        await memory.write_many(drafts[:2], request_id="r1")
    await memory.delete(first[0].id)
    with pytest.raises(PartialWrite) as refused:
        await memory.write_many(drafts, request_id="r1")
    assert refused.value.conflicts.keys() == {0}
    assert [refused.value.written[at] for at in range(1, 5)] == first[1:]


async def test_a_draft_has_a_request_of_its_own(memory: Memory) -> None:
    [one, two] = await memory.write_many(
        [{"content": "a", "scope": USER, "request_id": "r1"}, {"content": "b", "scope": USER}]
    )
    assert await memory.write("a", scope=USER, request_id="r1") == one
    with pytest.raises(
        InvalidInput, match=r"^drafts\[0\]\.request_id: is given for the whole call and for a draft"
    ):
        await memory.write_many([{"content": "a", "scope": USER, "request_id": "r1"}], request_id="r2")
    assert await entries_of(memory) == [one, two]


async def test_another_request_under_the_id_is_refused(memory: Memory) -> None:
    first = await memory.write("Lisbon", scope=USER, request_id="r1")
    await memory.write("Faro", scope=USER, key="f", request_id="r2")
    other: list[Call] = [
        lambda m: m.write("Porto", scope=USER, request_id="r1"),
        lambda m: m.write("Lisbon", scope=BOB, request_id="r1"),
        lambda m: m.write("Lisbon", scope=USER, request_id="r1", key="k"),
        lambda m: m.write("Faro", scope=USER, key="f", request_id="r2", revive=True),
    ]
    for call in other:
        with pytest.raises(Conflict, match=r"request_id 'r[12]' was used for another request"):
            await call(memory)
    await memory.update(first.id, title="a", request_id="r1")  # each operation has its own ids
    with pytest.raises(Conflict, match="was used for another request"):
        await memory.update(first.id, title="b", request_id="r1")
    assert len(await entries_of(memory, USER, BOB)) == 2


@BOTH
async def test_a_repeat_of_a_write_whose_entry_was_deleted_creates_nothing(memory: Memory) -> None:
    made = await memory.write("Lisbon", scope=USER, request_id="r1")
    changed = await memory.update(made.id, content="Porto", request_id="r1")
    await memory.delete(made.id)
    with pytest.raises(Conflict, match=r"with a new request_id|Use a new request_id"):
        await memory.write("Lisbon", scope=USER, request_id="r1")
    with pytest.raises(NotFound):
        await memory.update(made.id, content="Porto", request_id="r1")
    assert changed.id == made.id
    assert await entries_of(memory) == []


@SCOPES
async def test_a_repeat_does_not_return_what_others_wrote_under_a_deleted_key(
    memory: Memory, scope: Scope
) -> None:
    options: dict[str, Any] = {"scope": scope, "key": "home", "request_id": "r1"}
    made = await memory.write("Lisbon", **options)
    await memory.update(made.id, content="Porto", request_id="r1")
    await memory.write_many(
        [{"content": "Faro", "scope": scope, "key": "home"}], if_exists="replace", request_id="r1"
    )
    await memory.delete(made.id)
    later = await memory.write("Coimbra", scope=scope, key="home", if_exists="replace")
    assert later.id == made.id
    with pytest.raises(Conflict, match="was deleted"):
        await memory.write("Lisbon", **options)
    with pytest.raises(NotFound):
        await memory.update(made.id, content="Porto", request_id="r1")
    with pytest.raises(PartialWrite, match="was deleted"):
        await memory.write_many(
            [{"content": "Faro", "scope": scope, "key": "home"}], if_exists="replace", request_id="r1"
        )
    assert await memory.entries.history(later.id) == [later]
    changed = await memory.update(later.id, tags=["city"], request_id="r2")
    await memory.update(later.id, tags=[])
    assert await memory.update(later.id, tags=["city"], request_id="r2") == changed


@pytest.mark.parametrize("hidden", ["blocked", "expired"])
@BOTH
async def test_a_repeat_returns_nothing_that_is_hidden_by_then(
    memory: Memory, clock: Clock, hidden: str
) -> None:
    entries = [await memory.write(text, scope=USER, source="web") for text in ("one", "two")]
    ids, until = [one.id for one in entries], DAY / 2
    said: dict[str, Any] = {"scope": USER, "source": "web", "expires_at": until, "request_id": "r1"}
    calls: list[tuple[Call, type[Exception]]] = [
        (lambda m: m.write("a", **said), Conflict),
        (lambda m: m.write("b", **said | {"request_id": "r2"}, key="b"), Conflict),
        (lambda m: m.write("c", **said | {"request_id": "r3"}, key="c", if_exists="replace"), Conflict),
        (lambda m: m.write("d", **said | {"request_id": "r4"}, key="d", if_exists="update"), Conflict),
        (lambda m: m.update(ids[0], source="web", expires_at=until, request_id="r1"), NotFound),
        (lambda m: m.update(ids[1], source="web", expires_at=until, request_id="r2"), NotFound),
        (lambda m: m.compact(ids, lambda told: "both", request_id="r1"), NotFound),
    ]
    for call, _ in calls:
        await call(memory)
    if hidden == "blocked":
        await memory.admin.block_source(source="web", reason="a bad page")
    else:
        clock.advance(until + timedelta(minutes=1))
    for call, error in calls:
        with pytest.raises((error, RejectedByGate)):
            await call(memory)
    assert len(await entries_of(memory)) == (7 if hidden == "blocked" else 0)


@BOTH
@pytest.mark.parametrize("erased", [[0], [1], [0, 1]], ids=str)
async def test_a_repeated_append_brings_back_no_erased_message(memory: Memory, erased: list[int]) -> None:
    session = await memory.sessions.create("s1")
    said = [{"role": "user", "content": "my secret"}, {"role": "user", "content": "hello"}]
    stored = await session.append(said, state={"turn": 1}, request_id="r1")
    await session.append({"role": "user", "content": "later"}, state={"turn": 2})
    for at in erased:
        await session.erase(stored[at].id or "")
    left = [one for at, one in enumerate(stored) if at not in erased]
    before = await session.history()
    assert await session.append(said, state={"turn": 1}, request_id="r1") == left
    assert await session.history() == before
    assert await session.state() == {"turn": 2}


@BOTH
async def test_a_repeated_compaction_returns_the_version_that_it_made(memory: Memory) -> None:
    source = await memory.write("one", scope=USER)
    made = await memory.compact([source.id], lambda told: "short", request_id="r1")
    await memory.update(made.id, content="edited")
    assert await memory.compact([source.id], lambda told: "short", request_id="r1") == made


@SCOPES
async def test_eight_calls_at_once_have_one_outcome(memory: Memory, scope: Scope) -> None:
    made = await asyncio.gather(*(memory.write("Lisbon", scope=scope, request_id="r1") for _ in range(8)))
    assert len({entry.id for entry in made}) == 1
    changed = await asyncio.gather(
        *(memory.update(made[0].id, content="Porto", request_id="r1") for _ in range(8))
    )
    assert len({entry.version for entry in changed}) == 1
    assert len(await memory.entries.history(made[0].id)) == 2
    kept = await asyncio.gather(
        *(memory.write("x", scope=scope, key="k", if_exists="replace", request_id="r2") for _ in range(8))
    )
    assert len({entry.version for entry in kept}) == 1
    gone = await asyncio.gather(*(memory.delete(made[0].id, request_id="r1") for _ in range(8)))
    assert [bool(one) for one in gone] == [True] * 8
    assert [entry.content for entry in await entries_of(memory)] == ["x"]


async def test_a_request_is_known_for_a_day(memory: Memory, clock: Clock) -> None:
    first = await memory.write("Lisbon", scope=USER, request_id="r1")
    changed = await memory.update(first.id, content="1", request_id="r1")
    clock.advance(DAY - timedelta(minutes=1))
    assert await memory.update(first.id, content="1", request_id="r1") == changed
    clock.advance(timedelta(minutes=2))
    other = await memory.write("Porto", scope=USER, request_id="r1")
    assert other.id != first.id
    assert (await memory.update(first.id, content="2", request_id="r1")).content == "2"
    clock.advance(3 * DAY)
    assert await records(memory) == 2
    await memory.admin.sweep()
    assert await records(memory) == 0


async def test_an_erasure_forgets_the_requests_about_its_data(memory: Memory) -> None:
    made = await memory.write("Lisbon", scope=USER, request_id="r1")
    await memory.update(made.id, content="Porto", request_id="r1")
    kept = await memory.write("Porto", scope=BOB, request_id="r2")
    assert await records(memory) == 3
    await memory.admin.erase(USER)
    assert await records(memory) == 1
    await memory.write("Lisbon", scope=USER, request_id="r3")
    await memory.admin.erase_user(USER.id)
    assert await records(memory) == 1
    assert await memory.write("Porto", scope=BOB, request_id="r2") == kept
    theirs = memory.for_tenant("globex")
    await theirs.write("x", scope=USER, request_id="r1")
    await memory.admin.erase_tenant()
    assert await records(memory) == 1
    again = await memory.write("Faro", scope=USER, request_id="r4")
    assert await memory.write("Faro", scope=USER, request_id="r4") == again


@BOTH
async def test_a_repeat_stores_nothing_again_that_was_erased(memory: Memory) -> None:
    async def make() -> None:
        await memory.write("Lisbon", scope=USER, request_id="r1")

    async def talk() -> None:
        await memory.sessions.create("named", request_id="r1")

    for call, erase in (
        (make, lambda: memory.admin.erase(USER)),
        (talk, lambda: memory.sessions.delete("named")),
    ):
        await call()
        await erase()
        with pytest.raises(Conflict, match=r"was deleted after this request began\. Use a new request_id"):
            await call()
    assert await entries_of(memory) == []
    assert (await memory.sessions.list()).sessions == []


@BOTH
async def test_a_write_that_supersedes_is_repeated_whole(memory: Memory) -> None:
    old = await memory.write("old", scope=USER)
    options: dict[str, Any] = {"scope": USER, "supersedes": old.id, "request_id": "r1"}
    first = await memory.write_with_report("new", **options)
    again = await memory.write_with_report("new", **options)
    assert again.entry == first.entry
    assert again.supersede == first.supersede
    assert len(await entries_of(memory)) == 2
    checked: dict[str, Any] = {"scope": USER, "detect_conflicts": True, "request_id": "r2"}
    assert await memory.write("newer", **checked) == await memory.write("newer", **checked)
    assert len(await entries_of(memory)) == 3


@BOTH
async def test_sessions_messages_and_notes_are_made_once(memory: Memory) -> None:
    first = await memory.sessions.create(title="old", user="ada", request_id="r1")
    again = await memory.sessions.create(title="old", user="ada", request_id="r1")
    assert first.id == again.id
    await memory.sessions.create("named", request_id="r2")
    assert (await memory.sessions.create("named", request_id="r2")).id == "named"
    with pytest.raises(Conflict, match="Session already exists"):
        await memory.sessions.create("named", request_id="r3")
    said = [{"role": "user", "content": "x"}, {"role": "user", "content": "y", "id": "mine"}]
    stored = await first.append(said, request_id="r1")
    assert await first.append(said, request_id="r1") == stored
    assert stored[0].id is not None
    await first.update(stored[0].id, content="changed")
    await first.exclude(stored[0].id)
    assert [one.content for one in await again.append(said, request_id="r1")] == ["changed", "y"]
    assert [one.content for one in (await first.context()).messages] == ["y"]
    assert len((await first.history()).items) == 2
    version = (await first.info()).attributes_version
    options: dict[str, Any] = {"title": "new", "expected_version": version, "request_id": "r1"}
    await memory.sessions.update(first.id, **options)
    await memory.sessions.update(first.id, title="newer")
    assert (await memory.sessions.update(first.id, **options)).title == "newer"
    size = await memory.scratchpads.append("note", request_id="r1")
    await memory.scratchpads.append("later")
    assert await memory.scratchpads.append("note", request_id="r1") == size
    assert (await memory.scratchpads.read()).content.count("note") == 1
    await memory.sessions.delete(first.id)
    with pytest.raises(Conflict, match="was deleted"):
        await memory.sessions.create(title="old", user="ada", request_id="r1")


@BOTH
async def test_links_and_derived_entries_are_made_once(memory: Memory) -> None:
    one, two = [await memory.write(text, scope=USER) for text in ("one", "two")]
    link = await memory.relations.relate(one.id, "refines", two.id, request_id="r1")
    assert await memory.relations.relate(one.id, "refines", two.id, request_id="r1") == link
    with pytest.raises(Conflict):
        await memory.relations.relate(one.id, "refines", two.id, request_id="r2")
    assert await memory.relations.unrelate(link.id, request_id="r1")
    assert await memory.relations.unrelate(link.id, request_id="r1")
    assert not await memory.relations.unrelate(link.id, request_id="r2")
    copy = await memory.promote(one.id, "org:o", request_id="r1")
    assert await memory.promote(one.id, "org:o", request_id="r1") == copy
    calls: list[int] = []

    def summarise(entries: list[Entry]) -> str:
        calls.append(len(entries))
        return f"summary {len(calls)}"

    options: dict[str, Any] = {"delete_sources": True, "request_id": "r1"}
    made = await memory.compact([one.id, two.id], summarise, **options)
    assert await memory.compact([one.id, two.id], summarise, **options) == made
    assert calls == [2]
    assert await entries_of(memory) == [made]


async def test_eight_sessions_links_and_notes_at_once_are_one(memory: Memory) -> None:
    one, two = [await memory.write(text, scope=USER) for text in ("one", "two")]
    links = await asyncio.gather(
        *(memory.relations.relate(one.id, "refines", two.id, request_id="r1") for _ in range(8))
    )
    assert len({link.id for link in links}) == 1
    sessions = await asyncio.gather(*(memory.sessions.create(request_id="r1") for _ in range(8)))
    assert len({session.id for session in sessions}) == 1
    message = {"role": "user", "content": "x"}
    await asyncio.gather(*(session.append(message, request_id="r1") for session in sessions))
    assert len((await sessions[0].history()).items) == 1
    sizes = await asyncio.gather(*(memory.scratchpads.append("note", request_id="r1") for _ in range(8)))
    assert len(set(sizes)) == 1
    made = await asyncio.gather(
        *(
            memory.compact([one.id, two.id], lambda e: "s", delete_sources=True, request_id="r1")
            for _ in range(8)
        )
    )
    assert len({entry.id for entry in made}) == 1


BAD: dict[str, Any] = {"empty": "", "long": "x" * 256, "wide": "é" * 128, "nul": "a\0b", "number": 7}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
async def test_a_bad_id_is_refused_before_any_store_is_touched(memory: Memory, bad: Any) -> None:
    made = await memory.write("a", scope=USER)
    calls: list[Call] = [
        lambda m: m.write("b", scope=USER, request_id=bad),
        lambda m: m.write_many([{"content": "b", "scope": USER}], request_id=bad),
        lambda m: m.write_many([{"content": "b", "scope": USER, "request_id": bad}]),
        lambda m: m.update(made.id, content="b", request_id=bad),
        lambda m: m.delete(made.id, request_id=bad),
        lambda m: m.entries.invalidate(made.id, request_id=bad),
        lambda m: m.promote(made.id, "org:o", request_id=bad),
        lambda m: m.compact([made.id], lambda entries: "", request_id=bad),
        lambda m: m.relations.relate(made.id, "refines", made.id, request_id=bad),
        lambda m: m.relations.unrelate(made.id, request_id=bad),
        lambda m: m.sessions.create(request_id=bad),
        lambda m: m.sessions.update("s", title="t", request_id=bad),
        lambda m: m.session("s").append({"role": "user", "content": "x"}, request_id=bad),
        lambda m: m.scratchpads.append("x", request_id=bad),
    ]
    with watching(memory) as seen:
        for call in calls:
            with pytest.raises(InvalidInput, match=r"^(drafts\[0\]\.)?request_id: "):
                await call(memory)
    assert seen == []
