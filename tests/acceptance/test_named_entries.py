"""Entries that a caller names: read and changed by scope and key, and only while they
have the version that the caller expects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memory import (
    ABSENT,
    Conflict,
    Entry,
    InvalidInput,
    LegalHoldActive,
    MemoryTiersError,
    NotFound,
    Scope,
    VersionConflict,
)
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import BOB, DAY, HOUR, SCOPES, USER, Clock


async def versions_of(memory: Memory, entry: Entry) -> list[str]:
    return [one.version for one in await memory.entries.history(entry.id)]


@SCOPES
async def test_scope_and_key_name_the_entry_in_every_call(memory: Memory, scope: Scope) -> None:
    made = await memory.write("Lisbon", scope=scope, key="home")
    assert made.key == "home"
    assert await memory.get(scope=scope, key="home") == made
    changed = await memory.update(scope=scope, key="home", content="Porto")
    assert (changed.id, changed.key, changed.content) == (made.id, "home", "Porto")
    history = await memory.entries.history(scope=scope, key="home")
    assert [(one.content, one.key) for one in history] == [("Lisbon", "home"), ("Porto", "home")]
    assert await memory.get(scope=BOB, key="home") is None
    assert await memory.entries.invalidate(scope=scope, key="home")
    assert await memory.get(scope=scope, key="home") is None
    assert await memory.delete(scope=scope, key="home")
    assert not await memory.delete(scope=scope, key="home")
    for call in (
        memory.update(scope=scope, key="home", content="Faro"),
        memory.entries.history(scope=scope, key="home"),
    ):
        with pytest.raises(NotFound):
            await call


async def test_another_tenant_s_key_names_nothing(memory: Memory) -> None:
    await memory.write("mine", scope=USER, key="home")
    theirs = memory.for_tenant("globex")
    assert await theirs.get(scope=USER, key="home") is None
    assert not await theirs.delete(scope=USER, key="home")
    await theirs.write("theirs", scope=USER, key="home", if_exists="replace")
    mine = await memory.get(scope=USER, key="home")
    assert mine is not None
    assert mine.content == "mine"


async def test_several_entries_come_in_the_order_asked_for(memory: Memory) -> None:
    made = {key: await memory.write(key, scope=USER, key=key) for key in ("a", "b", "c")}
    assert await memory.get_many(scope=USER, keys=["c", "missing", "a", "c"]) == [
        made["c"],
        None,
        made["a"],
        made["c"],
    ]
    assert await memory.get_many([made["b"].id, "no id", made["a"].id]) == [made["b"], None, made["a"]]


async def test_a_view_reads_and_changes_entries_of_its_scope_only(memory: Memory) -> None:
    ada, bob = memory.scoped(USER), memory.scoped(BOB)
    mine = await ada.write("Lisbon", key="home")
    theirs = await bob.write("Beja", key="home")
    assert await ada.get(key="home") == mine == await ada.get(mine.id)
    assert await ada.get(theirs.id) is None
    assert await ada.get_many([mine.id, theirs.id]) == [mine, None]
    assert await ada.get_many(keys=["home", "work"]) == [mine, None]
    with pytest.raises(NotFound):
        await ada.update(theirs.id, content="Porto")
    with pytest.raises(VersionConflict):
        await ada.delete(theirs.id, expected_version=theirs.version)
    assert not await ada.delete(theirs.id)
    assert await bob.get(key="home") == theirs
    assert (await ada.update(key="home", content="Porto")).content == "Porto"
    assert await ada.delete(key="home")


@cells(
    "given, problem",
    [
        ({}, "entry_id: is missing"),
        ({"entry_id": "x", "key": "home"}, "key: cannot be combined with an id"),
        ({"entry_id": "x", "scope": USER}, "scope: cannot be combined with an id"),
        ({"key": "home"}, "scope: is missing"),
        ({"scope": USER}, "key: is missing"),
        ({"scope": USER, "key": "é" * 257}, r"key: exceeds 512 bytes.*hash"),
        ({"scope": USER, "key": ""}, "key: must not be empty"),
        ({"scope": USER, "key": 5}, "key: must be text"),
    ],
    ids=str,
    shared=True,
)
async def test_an_entry_named_by_halves_is_refused_by_every_call(
    memory: Memory, given: dict[str, Any], problem: str
) -> None:
    calls: list[Callable[..., Awaitable[object]]] = [
        memory.get,
        memory.update,
        memory.delete,
        memory.entries.history,
        memory.entries.invalidate,
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match=problem):
            await call(**given)


# -- if_exists -------------------------------------------------------------------------


@SCOPES
async def test_update_changes_what_is_given_and_creates_what_is_missing(memory: Memory, scope: Scope) -> None:
    first = await memory.write(
        "Lisbon", scope=scope, key="home", if_exists="update", tags=["place"], metadata={"sure": True, "n": 1}
    )
    second = await memory.write(
        scope=scope, key="home", if_exists="update", title="Home", metadata={"n": 2}, confidence=0.5
    )
    assert (second.id, second.content, second.title, second.tags) == (first.id, "Lisbon", "Home", ["place"])
    assert second.metadata == {"sure": True, "n": 2, "confidence": 0.5}
    assert (second.created_at, second.version > first.version) == (first.created_at, True)
    assert await versions_of(memory, first) == [first.version, second.version]
    same = await memory.write(scope=scope, key="home", if_exists="update", title="Home", metadata={"n": 2})
    assert same == second
    assert [hit.entry.id for hit in await memory.search("Home", scope=scope, mode="lexical")] == [first.id]


@SCOPES
async def test_keep_returns_what_is_there_and_creates_what_is_missing(memory: Memory, scope: Scope) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home", if_exists="keep")
    assert await memory.write("Porto", scope=scope, key="home", if_exists="keep") == first
    await memory.update(first.id, content="Faro")
    kept = await memory.write("Lisbon", scope=scope, key="home", if_exists="keep")
    assert kept.content == "Faro"


@SCOPES
async def test_keep_does_not_show_what_a_blocked_source_wrote(memory: Memory, scope: Scope) -> None:
    false = await memory.write("Faro", scope=scope, key="home", source="web")
    await memory.admin.block_source(source="web", reason="a bad page")
    assert await memory.get(scope=scope, key="home") is None
    with pytest.raises(Conflict, match="'home' is hidden") as caught:
        await memory.write("Lisbon", scope=scope, key="home", if_exists="keep")
    assert caught.value.existing_id == false.id
    await memory.admin.unblock_source(source="web")
    assert await memory.write("Lisbon", scope=scope, key="home", if_exists="keep") == false


@SCOPES
@pytest.mark.parametrize("if_exists", ["update", "replace", "keep"])
async def test_a_deleted_or_expired_key_starts_afresh_and_a_retired_one_is_a_conflict(
    memory: Memory, clock: Clock, scope: Scope, if_exists: Any
) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home", tags=["a"], expires_at=HOUR)
    await memory.delete(first.id)
    second = await memory.write("Porto", scope=scope, key="home", if_exists=if_exists, expires_at=HOUR)
    assert (second.id, second.content, second.tags) == (first.id, "Porto", [])
    clock.advance(DAY)
    third = await memory.write("Faro", scope=scope, key="home", if_exists=if_exists)
    assert (third.content, third.expires_at) == ("Faro", None)
    await memory.entries.invalidate(third.id)
    with pytest.raises(Conflict, match="was retired"):
        await memory.write("Beja", scope=scope, key="home", if_exists=if_exists)


async def test_an_update_without_text_needs_an_entry(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="content: is missing, and no entry exists under key 'home'"):
        await memory.write(scope=USER, key="home", if_exists="update", tags=["a"])
    assert await memory.retrieve(USER) == []


async def test_the_report_tells_a_replay_from_a_write(memory: Memory) -> None:
    async def replayed(content: str, **how: Any) -> bool:
        return (await memory.write_with_report(content, scope=USER, key="home", **how)).replayed

    assert [await replayed("Lisbon"), await replayed("Lisbon")] == [False, True]
    assert [await replayed("Porto", if_exists="replace") for _ in range(2)] == [False, True]
    assert [await replayed("Faro", if_exists="update") for _ in range(2)] == [False, True]
    assert await replayed("Beja", if_exists="keep")
    assert await replayed("Lisbon")
    assert not (await memory.write_with_report("no key", scope=USER)).replayed
    old = await memory.write("old", scope=USER)
    reports = [
        await memory.write_with_report("new", scope=USER, key="next", supersedes=old.id) for _ in range(2)
    ]
    assert [report.replayed for report in reports] == [False, True]


async def test_many_drafts_are_written_as_the_call_says_and_as_each_says(memory: Memory) -> None:
    await memory.write("Lisbon", scope=USER, key="home", tags=["place"])
    drafts: list[dict[str, Any]] = [
        {"content": "Porto", "scope": USER, "key": "home"},
        {"content": "Faro", "scope": USER, "key": "work"},
        {"content": "Beja", "scope": USER, "key": "home", "if_exists": "keep"},
    ]
    written = await memory.write_many(drafts, if_exists="update")
    assert [(one.content, one.tags) for one in written] == [
        ("Porto", ["place"]),
        ("Faro", []),
        ("Porto", ["place"]),
    ]
    with pytest.raises(InvalidInput, match="needs a key"):
        await memory.write_many([{"content": "Evora", "scope": USER}], if_exists="replace")


# -- expected versions -----------------------------------------------------------------


@SCOPES
async def test_a_change_of_another_version_is_refused_and_changes_nothing(
    memory: Memory, scope: Scope
) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home")
    second = await memory.update(first.id, content="Porto", expected_version=first.version)
    stale: Any = {"expected_version": first.version}
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "update": lambda: memory.update(first.id, content="Faro", **stale),
        "update by key": lambda: memory.update(scope=scope, key="home", content="Faro", **stale),
        "empty update": lambda: memory.update(first.id, **stale),
        "delete": lambda: memory.delete(first.id, **stale),
        "invalidate": lambda: memory.entries.invalidate(first.id, **stale),
        "replace": lambda: memory.write("Faro", scope=scope, key="home", if_exists="replace", **stale),
        "partial": lambda: memory.write("Faro", scope=scope, key="home", if_exists="update", **stale),
        "create": lambda: memory.write("Faro", scope=scope, key="home", expected_version=ABSENT),
        "same": lambda: memory.write("Porto", scope=scope, key="home", expected_version=ABSENT),
    }
    for name, call in calls.items():
        with pytest.raises(VersionConflict, match=second.version) as caught:
            await call()
        assert caught.value.current_version == second.version, name
        assert caught.value.existing_id == first.id, name
    assert await versions_of(memory, first) == [first.version, second.version]
    fresh: Any = {"expected_version": second.version}
    third = await memory.write("Faro", scope=scope, key="home", if_exists="replace", **fresh)
    assert await memory.entries.invalidate(first.id, expected_version=third.version)


@SCOPES
async def test_a_retired_entry_of_another_version_is_a_conflict(memory: Memory, scope: Scope) -> None:
    first = await memory.write("Lisbon", scope=scope, key="home")
    await memory.entries.invalidate(first.id)
    retired = (await memory.entries.history(first.id))[-1]
    for call in (
        memory.entries.invalidate(first.id, expected_version=first.version),
        memory.update(first.id, content="Porto", expected_version=first.version),
        memory.update(first.id, expected_version=first.version),
    ):
        with pytest.raises(VersionConflict) as caught:
            await call
        assert caught.value.current_version == retired.version
    assert not await memory.entries.invalidate(first.id, expected_version=retired.version)
    with pytest.raises(NotFound):
        await memory.update(first.id, content="Porto", expected_version=retired.version)


async def test_an_expired_entry_under_legal_hold_is_a_conflict_in_every_mode(
    memory: Memory, clock: Clock
) -> None:
    old = await memory.write("old", scope=USER, key="k", expires_at=HOUR)
    gone = await memory.write("gone", scope=USER)
    await memory.admin.legal_holds.add("case", reason="a lawsuit", user=USER.id)
    clock.advance(2 * HOUR)
    options: list[dict[str, Any]] = [
        *({"if_exists": mode} for mode in ("error", "replace", "update", "keep")),
        {"expected_version": ABSENT},
        {"detect_conflicts": True},
        {"supersedes": gone.id},
    ]
    for one in options:
        with pytest.raises(Conflict, match="has an expired entry") as caught:
            await memory.write("new", scope=USER, key="k", **one)
        assert caught.value.existing_id == old.id, one


async def test_a_keyed_write_can_be_repeated_after_an_import(memory: Memory, clock: Clock) -> None:
    options: dict[str, Any] = {"scope": USER, "key": "home", "tags": ["a"], "expires_at": 2 * DAY}
    written = await memory.write("Lisbon", **options)
    await memory.update(written.id, content="Porto")
    other, third = memory.for_tenant("other"), memory.for_tenant("third")
    await other.admin.import_([line async for line in memory.admin.export()])
    await third.admin.import_([line async for line in other.admin.export()])
    clock.advance(HOUR)
    for here in (other, third):
        await here.write("Lisbon", **options)
        found = await here.get(scope=USER, key="home")
        assert found is not None
        assert found.content == "Porto"
        with pytest.raises(Conflict):
            await here.write("Faro", **options)


async def test_a_file_cannot_say_which_write_made_an_entry(memory: Memory) -> None:
    [line] = [{"format": "memory-entry/3", "scope": "user:u1", "id": "a", "content": "x"}]
    for name in ("named", "written_as"):
        with pytest.raises(InvalidInput, match=f"{name}: is not a field of an exported entry"):
            await memory.admin.import_([{**line, name: "y"}])


@SCOPES
async def test_absent_creates_once_and_only_where_nothing_is(memory: Memory, scope: Scope) -> None:
    made = await memory.write("Lisbon", scope=scope, key="home", expected_version=ABSENT)
    with pytest.raises(VersionConflict, match="was expected to be absent"):
        await memory.write("Lisbon", scope=scope, key="home", expected_version=ABSENT, if_exists="replace")
    await memory.delete(made.id)
    with pytest.raises(Conflict, match="was deleted"):
        await memory.write("Lisbon", scope=scope, key="home", expected_version=ABSENT)
    again = await memory.write(
        "Lisbon", scope=scope, key="home", expected_version=ABSENT, if_exists="replace"
    )
    assert again.id == made.id


@SCOPES
async def test_what_is_gone_has_no_version(memory: Memory, scope: Scope) -> None:
    made = await memory.write("Lisbon", scope=scope, key="home")
    await memory.delete(made.id)
    with pytest.raises(VersionConflict, match="does not exist") as caught:
        await memory.delete(made.id, expected_version=made.version)
    assert caught.value.current_version is None
    with pytest.raises(VersionConflict, match="does not exist"):
        await memory.write(
            "Porto", scope=scope, key="home", if_exists="replace", expected_version=made.version
        )
    with pytest.raises(NotFound):
        await memory.update(made.id, content="Porto", expected_version=made.version)


@SCOPES
@pytest.mark.parametrize("how", ["update", "replace", "create", "delete"])
async def test_of_many_at_once_one_wins_and_the_others_see_the_conflict(
    memory: Memory, scope: Scope, how: str
) -> None:
    key = f"race {how}"
    made = None if how == "create" else await memory.write("0", scope=scope, key=key)

    async def race(n: int) -> object:
        if made is None:
            return await memory.write("same", scope=scope, key=key, expected_version=ABSENT)
        if how == "replace":
            return await memory.write(
                f"{n}", scope=scope, key=key, if_exists="replace", expected_version=made.version
            )
        if how == "delete":
            return await memory.delete(made.id, expected_version=made.version)
        return await memory.update(made.id, content=f"{n}", expected_version=made.version)

    outcomes = await asyncio.gather(*(race(n) for n in range(1, 13)), return_exceptions=True)
    winners = [one for one in outcomes if not isinstance(one, BaseException)]
    losers = [one for one in outcomes if isinstance(one, VersionConflict)]
    assert (len(winners), len(losers)) == (1, 11)
    if how != "delete":
        assert await memory.retrieve(scope) == winners
        assert isinstance(winners[0], Entry)
        assert {one.current_version for one in losers} == {winners[0].version}


@cells(
    "given, problem",
    [
        ({"expected_version": 7, "if_exists": "replace", "key": "k"}, "must be the version of an entry"),
        ({"expected_version": "7", "if_exists": "replace", "key": "k"}, "'7' is no version"),
        ({"expected_version": ABSENT}, "expected_version: needs a key"),
        (
            {"expected_version": ABSENT, "key": "k", "if_exists": "keep"},
            "cannot be combined with if_exists='keep'",
        ),
        ({"expected_version": "0" * 13, "key": "k"}, "is no version"),
        ({"expected_version": "6" * 13, "key": "k"}, "if_exists='error' changes no entry"),
        (
            {"expected_version": ABSENT, "key": "k", "detect_conflicts": True},
            "detect_conflicts: cannot be combined",
        ),
        ({"if_exists": "keep"}, "'keep' needs a key"),
    ],
    ids=str,
    shared=True,
)
async def test_an_expectation_that_a_write_cannot_keep_is_refused(
    memory: Memory, given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        await memory.write("Lisbon", scope=USER, **given)
    with pytest.raises(InvalidInput, match="cannot be ABSENT"):
        await memory.update("x", expected_version=ABSENT)  # type: ignore[arg-type]
    assert await memory.retrieve(USER) == []


async def test_a_named_entry_keeps_its_key_in_an_export_and_comes_back_under_it(memory: Memory) -> None:
    made = await memory.write("Lisbon", scope=USER, key="home", tags=["place"])
    other = await memory.write("unnamed", scope=USER)
    lines = [line async for line in memory.admin.export(USER)]
    assert {line["id"]: line.get("key") for line in lines} == {made.id: "home", other.id: None}
    there = memory.for_tenant("globex")
    await there.admin.import_(lines)
    moved = await there.get(scope=USER, key="home")
    assert moved is not None
    assert (moved.key, moved.content, moved.tags) == ("home", "Lisbon", ["place"])
    again = await there.admin.import_(lines)
    assert (again.imported, again.already_there) == (0, 2)
    back = await memory.admin.import_(lines)
    assert (back.imported, back.already_there) == (1, 1)  # the unnamed one is another entry
    assert await memory.get(scope=USER, key="home") == made


async def test_attributes_of_a_session_change_at_the_version_that_was_read(memory: Memory) -> None:
    await memory.sessions.create("talk", user="ada", system="Be kind.", title="first")
    session = memory.session("talk")
    before = (await session.info()).attributes_version
    await session.append({"role": "user", "content": "hello"})
    assert (await session.info()).attributes_version == before
    changed = await memory.sessions.update("talk", title="second", expected_version=before)
    assert changed.attributes_version > before
    for given in ({"title": "third"}, {"tags": ["a"]}, {"system": "Be short."}, {}):
        with pytest.raises(VersionConflict, match="session talk has version") as caught:
            await memory.sessions.update("talk", **given, expected_version=before)
        assert caught.value.current_version == changed.attributes_version
    assert await session.info() == changed
    context = await session.context()
    assert context.messages[0].content == "Be kind."
    calls = [
        memory.sessions.update("talk", title=f"{n}", expected_version=changed.attributes_version)
        for n in range(8)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, VersionConflict) for one in outcomes) == 7
    now = (await session.info()).attributes_version
    told = await memory.sessions.update("talk", system="Be short.", expected_version=now)
    assert told.attributes_version > now


@pytest.mark.parametrize("named", ["entry_ids", "keys"])
async def test_at_most_a_thousand_entries_are_asked_for_at_once(memory: Memory, named: str) -> None:
    given: dict[str, Any] = {"scope": USER} if named == "keys" else {}
    with pytest.raises(InvalidInput, match=f"{named}: .*1,?000"):
        await memory.get_many(**given | {named: ["x"] * 1_001})


async def test_an_update_of_a_session_that_is_refused_leaves_its_version(memory: Memory) -> None:
    await memory.sessions.create("plain", title="first")
    await memory.sessions.create("talk", title="first", system="Be kind.")
    await memory.admin.legal_holds.add("case", scope="session:talk", reason="a lawsuit")
    for session, system, error in (
        ("plain", "Be short.", NotFound),
        ("talk", "Be short.", LegalHoldActive),
        ("talk", "x" * 100_000, MemoryTiersError),
    ):
        before = await memory.session(session).info()
        change: dict[str, Any] = {"system": system, "tags": ["a"], "request_id": f"{session} {len(system)}"}
        with pytest.raises(error):
            await memory.sessions.update(session, **change, expected_version=before.attributes_version)
        assert await memory.session(session).info() == before
    await memory.admin.legal_holds.remove("case")
    with pytest.raises(InvalidInput, match="exceeds"):
        await memory.sessions.update("talk", **change, expected_version=before.attributes_version)
    change = {"system": "Be short.", "tags": ["a"], "request_id": "talk 9"}
    changed = await memory.sessions.update("talk", **change, expected_version=before.attributes_version)
    again = await memory.sessions.update("talk", **change, expected_version=before.attributes_version)
    assert (again, changed.tags) == (changed, ["a"])
    assert (await memory.session("talk").context()).messages[0].content == "Be short."
