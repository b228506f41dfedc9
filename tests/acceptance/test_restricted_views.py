"""Views that `memory.restrict` returns: what they have, refuse and hide."""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from memory import BlockingMemory, Forbidden, InvalidInput, Memory, NotFound, NotOpen, QuotaExceeded, Scope
from memory.facade.memory import NOUNS
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.resources.runs import Runs
from memory.facade.resources.scopes import ScopeListing
from memory.facade.resources.session import Session
from memory.facade.resources.tasks import Tasks
from memory.facade.runtime.view_guard import CALLS, ViewCall, guard_calls
from memory.facade.scoped import ScopedMemory
from tests.acceptance.support import Clock, contents, watching

ADA, BOB, RED = "user:ada", "user:bob", "path:teams/red/**"
GUARDED = (*NOUNS.values(), ScopeListing, Memory, ScopedMemory, Session, Tasks, Runs, LegalHolds)
Call = Callable[[Memory], Any]


async def outcome_of(call: Call, memory: Memory) -> Any:
    result = call(memory)
    if inspect.isasyncgen(result):
        return [item async for item in result]
    return await result if inspect.isawaitable(result) else result


async def test_every_public_call_says_what_a_view_may_do_with_it() -> None:
    public = {
        f"{kind.__name__}.{name}"
        for kind in GUARDED
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    assert public ^ CALLS.keys() == set()


def test_a_class_with_a_call_that_nobody_has_judged_does_not_load() -> None:
    class Novelty:
        async def peek(self) -> None: ...

    with pytest.raises(TypeError, match=r"Novelty\.peek is in no group of .*_KINDS"):
        guard_calls(Novelty)


OUTSIDE: dict[str, Call] = {
    "write": lambda m: m.write("x", scope=BOB),
    "write_many": lambda m: m.write_many([{"content": "x", "scope": ADA}, {"content": "y", "scope": BOB}]),
    "write_with_report": lambda m: m.write_with_report("x", scope=BOB),
    "get": lambda m: m.get(scope=BOB, key="k"),
    "get_many": lambda m: m.get_many(scope=BOB, keys=["k"]),
    "update": lambda m: m.update(scope=BOB, key="k", content="x"),
    "delete": lambda m: m.delete(scope=BOB, key="k"),
    "retrieve": lambda m: m.retrieve(BOB),
    "browse": lambda m: m.browse([ADA, BOB]),
    "search": lambda m: m.search("x", scope=[ADA, BOB]),
    "narrower": lambda m: m.retrieve(ADA, include_narrower=True, session_id="s"),
    "promote": lambda m: m.promote("x" * 36, "org:o1"),
    "compact": lambda m: m.compact(["x" * 36], lambda _: "x", target_scope=BOB),
    "iterate": lambda m: m.entries.iterate(BOB),
    "delete_many": lambda m: m.entries.delete_many({"tags": ["x"]}, scope=BOB),
    "history": lambda m: m.entries.history(scope=BOB, key="k"),
    "expand": lambda m: m.relations.expand("x" * 36, scope=[BOB]),
    "graph": lambda m: m.relations.graph(BOB),
    "documents.put": lambda m: m.documents.put(BOB, "k", 1),
    "documents.edit": lambda m: m.documents.edit(BOB, "k", lambda found: 1),
    "documents.list": lambda m: m.documents.list("path:teams/**"),
    "scopes": lambda m: m.scopes.list("path:teams/"),
    "commands": lambda m: m.commands.run("/mem entries", scope=BOB),
    "commands reads": lambda m: m.commands.run("/mem entries", scope=ADA, reads=[BOB]),
    "commands reads deque": lambda m: m.commands.run("/mem entry x", scope=ADA, reads=deque([BOB])),
    "browse deque": lambda m: m.browse(deque([ADA, BOB])),
    "scoped": lambda m: m.scoped(BOB),
    "erase": lambda m: m.admin.erase(BOB),
    "subtree": lambda m: m.retrieve("path:teams/**"),
    "sibling": lambda m: m.retrieve("path:teams/redder/"),
    "restrict": lambda m: m.restrict([BOB]),
    "session of bob": lambda m: m.sessions.create(user="bob"),
    "session of nobody": lambda m: m.sessions.create(),
    "session by id": lambda m: m.sessions.create("s1", user="ada"),
    "filter": lambda m: m.browse(filter={"conversation_id": "s1"}),
    "for_tenant": lambda m: m.for_tenant("other"),
    "stats": lambda m: m.admin.stats(),
    "export": lambda m: m.admin.export(),
    "import": lambda m: m.admin.import_([]),
    "short_ids": lambda m: m.short_ids.resolve("#1"),
    "scratchpads": lambda m: m.scratchpads.read(),
    "holds": lambda m: m.admin.legal_holds.list(),
    "runs of all": lambda m: m.sessions.runs(),
}


async def test_what_is_outside_is_refused_before_any_store_is_touched(memory: Memory) -> None:
    view = memory.restrict([ADA, RED])
    with watching(memory) as calls:
        for name, call in OUTSIDE.items():
            with pytest.raises(Forbidden) as refused:
                await outcome_of(call, view)
            assert str(refused.value).startswith(f"{refused.value.field}: "), name
    assert calls == []


async def test_every_call_that_changes_something_is_refused_to_a_reader(memory: Memory) -> None:
    view = memory.restrict(role="reader")
    holders: dict[str, Any] = {
        "Memory": view,
        "ScopedMemory": view.scoped(ADA),
        "Session": view.session("s"),
        "Tasks": view.session("s").tasks,
        "Runs": view.session("s").runs,
        "LegalHolds": view.admin.legal_holds,
        **{kind.__name__: getattr(view, noun) for noun, kind in NOUNS.items()},
    }
    changing = [name for name, call in CALLS.items() if call in (ViewCall.WRITE, ViewCall.TENANT_WRITE)]
    with watching(memory) as calls:
        for name in changing:
            kind, _, method = name.partition(".")
            called = getattr(holders[kind], method)
            needed = {
                p.name: None for p in inspect.signature(called).parameters.values() if p.default is p.empty
            }
            with pytest.raises(Forbidden, match="restricted to role 'reader'"):
                await outcome_of(lambda _, called=called, needed=needed: called(**needed), view)  # type: ignore[misc]
    assert calls == []
    with pytest.raises(NotFound):
        await view.session("s", user="ada").context()
    assert await memory.sessions.get("s") is None


async def test_a_reader_of_all_scopes_keeps_short_ids_and_scratchpads(memory: Memory) -> None:
    entry = await memory.write("Ada likes tea", scope=ADA)
    await memory.scratchpads.append("a note")
    view = memory.restrict(role="reader")
    number = (await view.short_ids.of([entry.id]))[entry.id]
    assert (await view.scratchpads.read()).exists
    assert (await view.admin.stats()).to_dict()
    found, added = await view.commands.run(
        f"/mem entry {number}\n/mem add entry context t\nx\n/endmem", scope=ADA
    )
    assert "Ada likes tea" in found.text
    assert added.is_error
    assert "restricted to role 'reader'" in added.text
    assert await view.get(entry.id) == entry


async def test_calls_without_a_scope_cover_the_scopes_of_the_view(memory: Memory) -> None:
    for scope in (ADA, BOB, "path:teams/red/", "path:teams/red/notes/", "path:teams/redder/"):
        await memory.write(f"of {scope}", scope=scope, tags=["t"])
        await memory.documents.put(scope, "k", 1)
    view = memory.restrict([ADA, RED])
    within = {"of user:ada", "of path:teams/red/", "of path:teams/red/notes/"}
    assert {e.content async for e in view.entries.iterate()} == within
    assert set(contents(await view.browse())) == within
    assert {e.content for e in (await view.relations.graph()).entries} == within
    assert [str(one.scope) for one in (await view.scopes.list()).scopes] == [
        "path:teams/red/",
        "path:teams/red/notes/",
        ADA,
    ]
    rolled = (await view.scopes.list(max_depth=1)).scopes
    assert [(str(one.scope), one.entries) for one in rolled] == [("path:teams/red/", 2), (ADA, 1)]
    assert len(await view.search("of", scope=[ADA, RED])) == 3
    assert (await view.entries.delete_many({"tags": ["t"]})).deleted == 3
    assert len(await memory.browse()) == 2


@pytest.mark.parametrize(
    "scopes",
    [
        ["path:a/**", "path:a/b/"],
        ["path:a/", "path:a/b/**"],
        ["path:a/b/**", "path:c/**"],
        ["path:a/", "path:a/b/", "path:a/b/c/"],
        ["path:b/", "path:c/**", "path:c/x/**", ADA],
        ["path:c/**"],
    ],
)
@pytest.mark.parametrize("max_depth", [None, 1, 2, 3])
async def test_pages_of_scopes_name_each_scope_of_the_view_once(
    memory: Memory, scopes: list[str], max_depth: int | None
) -> None:
    below_c = ("path:c/alpha/", "path:c/x/", "path:c/y/", "path:c/y/z/")
    for scope in ("path:a/", "path:a/b/", "path:a/b/c/", "path:b/", *below_c, ADA, BOB):
        await memory.write(f"of {scope}", scope=scope)
    view = memory.restrict(scopes)
    whole = (await view.scopes.list(max_depth=max_depth)).scopes
    assert len({one.scope for one in whole}) == len(whole)
    assert sum(one.entries for one in whole) == len(await view.browse())
    for limit in (1, 2):
        found, cursor = [], None
        for _ in range(len(whole) + 1):
            page = await view.scopes.list(max_depth=max_depth, limit=limit, cursor=cursor)
            found += page.scopes
            if (cursor := page.cursor) is None:
                break
        assert (found, cursor) == (whole, None)


async def test_a_repeat_does_not_depend_on_the_order_of_the_scopes_of_a_view(memory: Memory) -> None:
    await memory.write("Ada likes tea", scope=ADA, tags=["t"])
    asked: dict[str, Any] = {"filter": {"tags": ["t"]}, "request_id": "r1"}
    assert (await memory.restrict([ADA, RED]).entries.delete_many(**asked)).deleted == 1
    await memory.write("Ada likes milk", scope=ADA, tags=["t"])
    assert (await memory.restrict([RED, ADA]).entries.delete_many(**asked)).deleted == 1
    assert contents(await memory.browse(ADA)) == ["Ada likes milk"]


async def test_ids_of_outside_records_are_left_out(memory: Memory) -> None:
    theirs = await memory.write("the ticket", scope="object:ticket:t1")
    await memory.session("s-bob", user="bob").append({"role": "user", "content": "hello"})
    file = await memory.artifacts.put("s-bob", "a.txt", b"x")
    copy = await memory.promote(theirs.id, ADA)
    made = await memory.write(
        "Ada's",
        scope=ADA,
        origins=[f"source:{theirs.id}", "source:web:example.com"],
        conversation_id="s-bob",
        artifact_id=file.id,
    )
    view = memory.restrict(ADA)
    assert (await memory.get(copy.id)).promoted_from_id == theirs.id  # type: ignore[union-attr]
    assert (await view.get(copy.id)).promoted_from_id is None  # type: ignore[union-attr]
    for entry in (
        await view.get(made.id),
        (await view.get_many([made.id]))[0],
        next(e for e in await view.browse() if e.id == made.id),
        (await view.search("Ada's", scope=ADA))[0].entry,
        (await view.entries.history(made.id))[0],
        await view.update(made.id, tags=["seen"]),
    ):
        assert entry is not None
        assert entry.origins == ["source:web:example.com"]
        assert (entry.conversation_id, entry.artifact_id, entry.artifact) == (None, None, None)
    for hidden in ("conversation_id", "artifact_id", "promoted_from_id"):
        with pytest.raises(Forbidden, match=f"filter.{hidden}"):
            await view.browse(filter={"$not": {hidden: "x"}})
    with pytest.raises(Forbidden, match=r"filter\.origins"):
        await view.entries.delete_many({"origins": {"$contains": f"source:{theirs.id}"}})
    guessed, unknown = [await view.browse(conversation=one) for one in ("s-bob", "s-none")]
    assert guessed == unknown
    kept = (await memory.get(made.id)).conversation_id  # type: ignore[union-attr]
    assert kept == "s-bob"
    assert (await view.delete(made.id)).kept == ()


async def test_a_view_has_the_sessions_of_its_users_and_its_sessions(memory: Memory) -> None:
    for name, user in (("s-ada", "ada"), ("s-bob", "bob"), ("s-one", None)):
        await memory.session(name, user=user).append({"role": "user", "content": f"tea of {name}"})
    view = memory.restrict([ADA, "session:s-one"])
    assert {one.id for one in (await view.sessions.list()).sessions} == {"s-ada", "s-one"}
    assert {hit.session_id for hit in await view.search_messages("tea")} == {"s-ada", "s-one"}
    found = await view.search("tea", scope=[ADA, "session:s-one"], messages=True)
    assert {hit.session_id for hit in found} == {"s-ada", "s-one"}  # type: ignore[union-attr]
    assert await view.sessions.get("s-bob") is None
    with pytest.raises(NotFound, match="session not found: s-bob"):
        await view.session("s-bob", create=False).context()
    assert not await view.sessions.delete("s-bob")
    made = await view.sessions.create(user="ada")
    await made.append({"role": "user", "content": "new"})
    await made.tasks.save("t1", title="one")
    await view.session("s-ada").tasks.save("t1", title="the id of a task of another session")
    assert (await memory.sessions.get(made.id)).user == "ada"  # type: ignore[union-attr]
    with pytest.raises(Forbidden, match="session_id"):
        await view.session("s-ada").fork(session_id="s-new")
    with pytest.raises(Forbidden, match="user"):
        await view.session("s-one").fork()
    with pytest.raises(Forbidden, match="user:bob"):
        await view.session("s-one", user="bob", create=False).append({"role": "user", "content": "x"})
    assert (await view.session("s-ada").fork()).id


async def test_views_are_only_restricted_further_and_stay_in_their_tenant(memory: Memory) -> None:
    view = memory.restrict([ADA, RED])
    narrow = view.restrict(["path:teams/red/notes/"], role="reader")
    assert await narrow.retrieve("path:teams/red/notes/") == []
    with pytest.raises(Forbidden, match="scopes"):
        narrow.restrict([ADA])
    with pytest.raises(Forbidden, match="role"):
        narrow.restrict(role="writer")
    with pytest.raises(Forbidden, match="another tenant"):
        memory.restrict(role="reader").for_tenant("other")
    for scopes, role in ((None, None), ([], None), (None, "owner"), ([ADA, "nonsense"], "reader")):
        with pytest.raises(InvalidInput):
            memory.restrict(scopes, role=role)  # type: ignore[arg-type]
    await view.close()
    with pytest.raises(NotOpen):
        await view.browse()
    await memory.browse()


async def test_request_ids_of_a_view_are_its_own(memory: Memory) -> None:
    theirs = await memory.write("one", scope=BOB, request_id="r1")
    view = memory.restrict(ADA)
    mine = await view.write("two", scope=ADA, request_id="r1")
    assert await view.write("two", scope=ADA, request_id="r1") == mine
    assert await memory.write("one", scope=BOB, request_id="r1") == theirs


async def test_commands_of_a_view_show_full_ids_and_no_other_scopes(memory: Memory) -> None:
    mine, theirs = [await memory.write(f"tea of {scope}", scope=scope) for scope in (ADA, BOB)]
    await memory.short_ids.of([mine.id, theirs.id])
    listed, numbered, other, pad = await memory.restrict(ADA).commands.run(
        f"/mem entries\n/mem entry #1\n/mem entry {theirs.id}\n/mem scratchpad", scope=ADA, reads="tenant"
    )
    assert mine.id in listed.text
    assert "bob" not in listed.text
    assert [one.is_error for one in (numbered, other, pad)] == [True] * 3


async def test_a_quota_of_the_tenant_does_not_tell_its_totals(config: dict[str, Any], clock: Clock) -> None:
    quotas = [{"name": "all", "per": "tenant", "entries": 2}, {"name": "each", "per": "scope", "entries": 1}]
    async with Memory({**config, "quotas": quotas}, clock=clock) as memory:
        await memory.write("of Bob", scope=BOB)
        view = memory.restrict([ADA, "user:eve"])
        await view.write("of Ada", scope=ADA)
        with pytest.raises(QuotaExceeded, match=r"'all' has no room for 1 entries") as refused:
            await view.write("of Eve", scope="user:eve")
        assert (refused.value.held, refused.value.most) == (0, 0)
        with pytest.raises(QuotaExceeded):
            await memory.write("of Eve", scope="user:eve")


async def test_views_work_on_any_loop(config: dict[str, Any]) -> None:
    async with Memory(config, loop="own") as memory:
        view = memory.restrict(ADA)
        entry = await view.write("of Ada", scope=ADA)
        assert [e async for e in view.entries.iterate()] == [entry]
        with pytest.raises(Forbidden):
            await view.retrieve(BOB)


def test_the_blocking_twin_has_views() -> None:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        view = memory.restrict([ADA], role="reader")
        assert isinstance(view, BlockingMemory)
        assert list(view.entries.iterate()) == []
        with pytest.raises(Forbidden):
            view.write("x", scope=ADA)
        with pytest.raises(Forbidden):
            list(view.entries.iterate(Scope.user("bob")))


async def test_an_erasure_in_a_view_counts_as_without_one(memory: Memory) -> None:
    view = memory.restrict(["path:teams/red/**", ADA])
    for scope in ("path:teams/red/", "path:teams/red/notes/", ADA):
        await memory.write("tea", scope=scope)
        await memory.documents.put(scope, "key", 1)
    below = (await view.admin.erase("path:teams/red/**")).to_dict()
    assert below == {"entries": 2, "sessions_left": [], "documents": 2, "scopes": 2, "held": []}
    assert (await view.admin.erase(ADA)).to_dict() == {**below, "entries": 1, "documents": 1, "scopes": 1}


async def test_a_call_of_a_view_that_is_never_awaited_leaves_nothing_behind(memory: Memory) -> None:
    session = memory.restrict(role="writer").session("s1")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        session.replace([]).close()
    assert told == []
