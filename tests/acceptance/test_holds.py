"""Legal holds: what is under one is deleted by nothing and nobody, whoever placed it,
until it is released.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memory import (
    BufferProvider,
    Entry,
    EntryDraft,
    ExitedMessages,
    InvalidInput,
    LegalHoldActive,
    Memory,
    NotFound,
    Scope,
)
from memory.facade.runtime.access import engine_of
from tests.acceptance.support import DAY, HOUR, USER, Clock, elsewhere, left_in
from tests.acceptance.talking import user

Place = Callable[[Memory, Entry], Awaitable[object]]

OVER: dict[str, Place] = {
    "the tenant": lambda memory, entry: memory.admin.legal_holds.add("case", reason="asked for", tenant=True),
    "its scope": lambda memory, entry: memory.admin.legal_holds.add(
        "case", reason="asked for", scope="session:s1"
    ),
    "the user of its session": lambda memory, entry: memory.admin.legal_holds.add(
        "case", reason="asked for", user="ada"
    ),
    "the entry": lambda memory, entry: memory.admin.legal_holds.add(
        "case", reason="asked for", entry_id=entry.id
    ),
}


def texts_of(left: ExitedMessages) -> list[str]:
    return [message.text for message in left.messages]


@pytest.mark.parametrize("over", OVER, ids=lambda name: name.replace(" ", "-"))
async def test_what_is_held_is_deleted_by_nobody_until_it_is_released(
    memory: Memory, config: dict[str, Any], clock: Clock, over: str
) -> None:
    await memory.session("s1", user="ada").append(user("u1", "u1"))
    held = await memory.write("evidence", scope="session:s1", expires_at=clock.moment + HOUR)
    free = await memory.write("of another", scope="user:bob", expires_at=clock.moment + HOUR)
    await memory.update(held.id, content="evidence, edited")
    await OVER[over](memory, held)
    async with elsewhere(memory, config, clock) as other:
        for deletion in (
            lambda: other.delete(held.id),
            lambda: other.admin.erase("session:s1"),
            lambda: other.promote(held.id, "user:ada", delete_original=True),
            lambda: other.compact([held.id], lambda entries: "summary", delete_sources=True),
            lambda: other.session("s1").delete(),
        ):
            with pytest.raises(
                LegalHoldActive,
                match=r"under legal hold 'case', over the .*: nothing was deleted or overwritten",
            ):
                await deletion()
        clock.advance(3 * DAY)
        report = await other.admin.sweep()
        assert (report.expired, report.held) == ((0, 2) if over == "the tenant" else (1, 1))
        assert {held.id} <= {record for _, _, record in await left_in(other)}
        assert sum(name == "entry_versions" for _, name, _ in await left_in(other)) == 1
        assert (free.id in {record for _, _, record in await left_in(other)}) is (over == "the tenant")
        [released] = await other.admin.legal_holds.remove("case")
        assert released.reason == "asked for"
        assert await memory.admin.legal_holds.list() == []
        assert (await other.admin.sweep()).expired == (2 if over == "the tenant" else 1)
        assert not {held.id, free.id} & {record for _, _, record in await left_in(other)}
        assert await other.session("s1").delete() is True
        assert await left_in(other) == []


async def test_a_session_that_is_held_keeps_what_was_said_in_it_also_when_it_has_expired(
    memory: Memory, clock: Clock
) -> None:
    session = memory.session("s1", user="ada", expires_at=HOUR)
    await session.append([user("u1", "u1"), user("u2", "u2")])
    await memory.admin.legal_holds.add("case", reason="r", user="ada")
    with pytest.raises(LegalHoldActive):
        await session.erase("u1")
    clock.advance(2 * DAY)
    assert (await memory.admin.sweep()).held == 1
    with pytest.raises(LegalHoldActive):
        await memory.sessions.create("s1")
    await memory.admin.legal_holds.remove("case")
    assert (await memory.admin.sweep()).expired == 1
    assert await left_in(memory) == []


@pytest.mark.parametrize(
    "over", [{"tenant": True}, {"user": "ada"}, {"scope": "session:s1"}], ids=lambda over: next(iter(over))
)
async def test_all_that_a_held_session_has_stays_its_tasks_runs_messages_and_large_texts(
    memory: Memory, clock: Clock, over: dict[str, Any]
) -> None:
    session = memory.session("s1", user="ada", expires_at=DAY)
    large = "a picture " * 10_000
    await session.append([user("u1", "u1"), user(large, "large")])
    await session.tasks.save("t1", title="evidence")
    await session.runs.save("r1", child_id="s2")
    await memory.admin.legal_holds.add("case", reason="r", **over)
    for deletion in (
        lambda: session.tasks.delete("t1"),
        lambda: session.tasks.replace_all([{"id": "t2"}]),
        lambda: session.runs.delete("r1"),
        lambda: session.erase("large"),
        lambda: memory.sessions.delete("s1"),
        lambda: memory.admin.erase_tenant(),
    ):
        with pytest.raises(LegalHoldActive, match="'case'"):
            await deletion()
    assert await session.tasks.get("t2") is None, "nothing is saved where something else would have to go"
    assert await session.tasks.delete("none") is False
    assert [
        task.id
        for task in await session.tasks.replace_all(
            [{"id": "t1", "title": "evidence", "status": "failed"}, {"id": "t3"}]
        )
    ] == [
        "t1",
        "t3",
    ]
    clock.advance(3 * DAY)
    assert (await memory.admin.sweep()).held == 1
    await memory.admin.legal_holds.remove("case")
    clock.advance(-3 * DAY)
    assert [message.text for message in (await session.context()).messages] == ["u1", large]
    assert (
        await session.tasks.delete("t1")
        is await session.runs.delete("r1")
        is await memory.sessions.delete("s1")
        is True
    )
    assert await left_in(memory) == []


@pytest.mark.parametrize(
    "over", [{"tenant": True}, {"user": "ada"}, {"scope": "session:s1"}], ids=lambda over: next(iter(over))
)
async def test_nothing_that_keeps_no_versions_is_overwritten_under_a_hold(
    memory: Memory, over: dict[str, Any]
) -> None:
    session = memory.session("s1", user="ada", system="be kind", title="evidence", metadata={"a": 1})
    await session.append([user("u1", "u1"), user("window only", "u2")])
    await session.tasks.save("t1", title="evidence", result="found", metadata={"a": 1})
    await session.runs.save("r1", child_id="s2", metadata={"a": 1})
    provider = BufferProvider(memory, user="ada")
    await provider.write([user("u3", "u3")], "s")
    stream = session.stream(message_id="streamed")
    async with stream as out:
        await out.write("it ")
        await memory.admin.legal_holds.add("case", reason="r", **over)
        if over != {"scope": "session:s1"}:
            with pytest.raises(LegalHoldActive):
                await provider.write([user("another", "u3")], "s")
        before = [line async for line in memory.admin.export()]
        for overwriting in (
            lambda: session.update("u1", content="another"),
            lambda: session.update("u1", metadata={"b": 1}),
            lambda: session.append([user("new", "new"), user("another", "u2")]),
            lambda: session.replace([user("another", "u1")]),
            lambda: session.update("streamed", content="another"),
            lambda: session.update("system", content="be rude"),
            lambda: memory.sessions.update("s1", system="be rude"),
            lambda: memory.sessions.update("s1", title="another"),
            lambda: memory.sessions.update("s1", title=None),
            lambda: memory.sessions.update("s1", metadata={}),
            lambda: session.tasks.save("t1", title="another", result="found", metadata={"a": 1}),
            lambda: session.tasks.save("t1", title="evidence", result="found"),
            lambda: session.tasks.save("t1", title="evidence", metadata={"a": 1}),
            lambda: session.tasks.replace_all([{"id": "t2"}, {"id": "t1", "title": "evidence"}]),
            lambda: session.runs.save("r1", child_id="s2"),
        ):
            with pytest.raises(LegalHoldActive, match="'case'"):
                await overwriting()
        assert await session.tasks.get("t2") is None
        known = {str(line) for line in before}
        more = [line async for line in memory.admin.export() if str(line) not in known]
        assert [text for line in more if "another" in (text := str(line)) or "new" in text] == []
        await out.write("goes on")
    await session.append(
        [
            user("more", "more"),
            user("u1", "u1"),
            user("window only, and more of it", "u2"),
        ]
    )
    await session.update("u1", content="u1")
    await session.tasks.save("t1", title="evidence", status="completed", result="found", metadata={"a": 1})
    await session.runs.save("r1", child_id="s2", status="completed", metadata={"a": 1})
    await memory.sessions.update("s1", title="evidence", tags=["kept"], metadata={"a": 1}, system="be kind")
    await session.end()
    assert "it goes on" in [message.text for message in (await session.context()).messages]
    await memory.admin.legal_holds.remove("case")
    assert (await session.update("u1", content="another")).text == "another"


async def test_the_erasure_of_a_user_leaves_what_is_held_and_says_so(memory: Memory) -> None:
    for name in ("s1", "s2"):
        await memory.session(name, user="ada").append(user(f"hello of {name}", f"hello of {name}"))
    await memory.session("s3", user="bob").append(
        {"role": "user", "content": "hers", "name": "ada", "id": "m1"}
    )
    entry = await memory.write("likes tea", scope="user:ada")
    await memory.admin.legal_holds.add("one", reason="r", scope="session:s1")
    await memory.admin.legal_holds.add("two", reason="r", scope="session:s3")
    await memory.admin.legal_holds.add("three", reason="r", entry_id=entry.id)
    erased = await memory.admin.erase_user("ada")
    assert (erased.sessions, erased.messages, erased.entries) == (1, 0, 0)
    assert [said.partition(":")[0] for said in erased.held] == [
        "session s1",
        "messages of ada in sessions of others",
        "scope user",
    ]
    assert sorted(one.id for one in (await memory.sessions.list()).sessions) == ["s1", "s3"]
    assert await memory.get(entry.id) == entry
    await memory.admin.legal_holds.add("four", reason="r", user="ada")
    with pytest.raises(LegalHoldActive, match="'four'"):
        await memory.admin.erase_user("ada")
    for name in ("one", "two", "three", "four"):
        await memory.admin.legal_holds.remove(name)
    erased = await memory.admin.erase_user("ada")
    assert (erased.sessions, erased.messages, erased.entries, erased.held) == (1, 1, 1, [])


@pytest.mark.parametrize("whole", ["scope", "subtree", "user"])
async def test_an_erasure_names_the_held_entries_that_were_made_of_what_it_erased(
    memory: Memory, whole: str
) -> None:
    place = Scope.user("ada") if whole == "user" else Scope.path("teams", "red")
    source = await memory.write("Ada likes tea", scope=place)
    kept = await memory.promote(source.id, "org:o")
    gone = await memory.promote((await memory.write("b", scope=place)).id, "org:o")
    other = await memory.promote((await memory.write("c", scope="workspace:w")).id, "org:o")
    for entry in (kept, other):
        await memory.admin.legal_holds.add("case", reason="a lawsuit", entry_id=entry.id)
    if whole == "user":
        report = await memory.admin.erase_user("ada")
        assert [one.partition(":")[0] for one in report.held] == [f"entry {kept.id}, made of erased data"]
    else:
        target = place.subtree() if whole == "subtree" else place
        erased = await memory.admin.erase(target)
        assert (int(erased), erased.held) == (2, (kept.id,))
        assert erased.to_dict()["held"] == [kept.id]
        assert (await memory.admin.erase(target)).held == (kept.id,)
    assert await memory.get(gone.id) is None
    assert await memory.get(kept.id) == kept


async def test_the_erasure_of_a_user_names_held_facts_of_erased_messages(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config, clock=clock, on_window_exit=texts_of) as memory:
        session = memory.session("s1", user="bob")
        await session.append([user(text, text) | {"name": "ada"} for text in ("I like tea", "And rum")])
        await session.end()
        facts = {one.content: one for one in await memory.retrieve("user:bob")}
        fact = facts["I like tea"]
        await memory.admin.legal_holds.add("case", reason="a lawsuit", entry_id=fact.id)
        report = await memory.admin.erase_user("ada")
        assert report.messages == 2
        assert [one.partition(":")[0] for one in report.held] == [f"entry {fact.id}, made of erased data"]
        assert await memory.retrieve("user:bob") == [fact]


async def test_a_held_entry_may_be_edited_linked_and_moved_onward_and_stays_held(memory: Memory) -> None:
    held, other = (
        await memory.write("text one", scope="session:s1"),
        await memory.write("text two", scope=USER),
    )
    await memory.admin.legal_holds.add("case", reason="r", entry_id=held.id)
    relation = await memory.relations.relate(held.id, "supports", other.id)
    assert (await memory.update(held.id, content="text one, edited")).content == "text one, edited"
    assert [moved.to_tier for moved in (await memory.admin.move([held.id], "long")).moved] == ["long"]
    for deletion in (memory.delete(held.id), memory.relations.unrelate(relation.id)):
        with pytest.raises(LegalHoldActive):
            await deletion
    assert await memory.delete(other.id)
    assert (await memory.get(held.id)) is not None
    assert await memory.relations.find() == []
    assert [version.content for version in await memory.entries.history(held.id)] == [
        "text one",
        "text one, edited",
    ]


async def test_holds_are_told_and_the_same_hold_stands_once(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("text", scope=USER)
    placed = await memory.admin.legal_holds.add("case", reason="first", scope=USER, placed_by="counsel")
    assert (placed.over, placed.of, placed.reason, placed.placed_by) == (
        "scope",
        USER.text,
        "first",
        "counsel",
    )
    assert await memory.admin.legal_holds.add("case", reason="again", scope=USER) == placed
    second = await memory.admin.legal_holds.add("case", reason="r", entry_id=entry.id)
    third = await memory.admin.legal_holds.add("other", reason="r", scope=USER)
    assert await memory.admin.legal_holds.list() == [placed, second, third]
    with pytest.raises(LegalHoldActive, match="'case', 'other', over the scope user:u1, the entry") as raised:
        await memory.delete(entry.id)
    assert raised.value.holds == (placed, third, second)
    assert await memory.admin.legal_holds.remove("case") == [placed, second]
    assert await memory.admin.legal_holds.remove("case") == []
    with pytest.raises(LegalHoldActive, match="'other'"):
        await memory.delete(entry.id)
    await memory.admin.legal_holds.remove("other")
    await memory.admin.legal_holds.add("case", reason="anew", scope=USER)
    with pytest.raises(LegalHoldActive):
        await memory.delete(entry.id)
    await memory.admin.legal_holds.remove("case")
    assert await memory.delete(entry.id)


async def test_a_hold_and_a_block_name_the_key_that_made_them_unless_told(plain: Memory) -> None:
    admin = plain.restrict(role="writer", origin="key:4Yz").admin
    held = await admin.legal_holds.add("case", reason="r", scope=USER)
    told = await admin.legal_holds.add("other", reason="r", scope=USER, placed_by="counsel")
    assert (held.placed_by, told.placed_by) == ("key:4Yz", "counsel")
    [blocked] = await admin.block_source(source="web:x", reason="r")
    assert blocked.blocked_by == "key:4Yz"


async def test_a_hold_holds_nothing_of_another_tenant_scope_or_user(memory: Memory) -> None:
    theirs = await engine_of(memory).entries.write(
        "theirs", EntryDraft(scope=Scope.user("ada"), content="text")
    )
    entry = await memory.write("text", scope="user:ada")
    await memory.admin.legal_holds.add("case", reason="r", user="ad")
    await memory.admin.legal_holds.add("case", reason="r", scope="session:ada")
    assert await memory.delete(entry.id)
    await memory.admin.legal_holds.add("case", reason="r", tenant=True)
    assert await engine_of(memory).deletion.delete("theirs", theirs.id)


async def test_a_hold_that_is_over_nothing_or_over_two_things_is_refused(plain: Memory) -> None:
    for given in ({}, {"scope": USER, "user": "ada"}, {"user": ""}, {"tenant": 1}, {"scope": "u"}):
        with pytest.raises(InvalidInput):
            await plain.admin.legal_holds.add("case", reason="r", **given)
    with pytest.raises(InvalidInput, match="reason"):
        await plain.admin.legal_holds.add("case", reason="", user="ada")
    with pytest.raises(NotFound):
        await plain.admin.legal_holds.add("case", reason="r", entry_id="0")
