"""Origins of views: what a server's caller writes says who wrote it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from memory import (
    DocumentPut,
    Entry,
    Forbidden,
    InvalidInput,
    LegalHoldActive,
    Memory,
    Message,
    NotFound,
    RejectedByGate,
)
from tests.acceptance.support import Clock, watching

FIRST, SECOND = "source:key:first", "source:key:second"
ADA, ORG = "user:ada", "org:acme"


async def _entry(memory: Memory, view: Memory) -> Entry:
    return await memory.write("Ada drinks tea", scope=ADA, source="user")


async def _imported(view: Memory, one: Entry) -> Entry:
    lines = [line async for line in view.admin.export()]
    await view.admin.import_(lines, scope=ORG)
    [found] = await view.retrieve(ORG)
    return found


async def _by_command(view: Memory, one: Entry) -> Entry:
    [result] = await view.commands.run("/mem add entry user Tea\ngreen\n/endmem", scope=ADA)
    assert not result.is_error, result.text
    return (await view.retrieve(ADA))[0]


async def _retired(view: Memory, one: Entry) -> Entry:
    assert await view.entries.invalidate(one.id)
    [found] = [e async for e in view.entries.iterate(include_retired=True)]
    return found


async def _superseded(view: Memory, one: Entry) -> Entry:
    await view.write("Ada drinks coffee", scope=ADA, supersedes=[one.id])
    [found] = [e async for e in view.entries.iterate(include_retired=True) if e.id == one.id]
    return found


CALLS: dict[str, Callable[[Memory, Entry], Awaitable[Any]]] = {
    "write": lambda m, one: m.write("x", scope=ADA),
    "write with provenance": lambda m, one: m.write("x", scope=ADA, source="web:a", origins=["run:r"]),
    "keyed": lambda m, one: m.write("x", scope=ADA, key="k"),
    "replace": lambda m, one: m.write("x", scope=ADA, key="k", if_exists="replace"),
    "update by key": lambda m, one: m.write("x", scope=ADA, key="k", if_exists="update"),
    "supersede": lambda m, one: m.write("x", scope=ADA, supersedes=[one.id]),
    "detect": lambda m, one: m.write("Ada drinks tea", scope=ADA, detect_conflicts=True),
    "report": lambda m, one: m.write_with_report("x", scope=ADA),
    "many": lambda m, one: m.write_many([{"content": "x", "scope": ADA}]),
    "many keyed": lambda m, one: m.write_many([{"content": "x", "scope": ADA, "key": "z"}], if_exists="keep"),
    "scoped": lambda m, one: m.scoped(ADA).write("x"),
    "update": lambda m, one: m.update(one.id, content="x"),
    "update named": lambda m, one: m.update(one.id, content="x", source="web:a", origins=[]),
    "promote": lambda m, one: m.promote(one.id, ORG),
    "move": lambda m, one: m.promote(one.id, ORG, delete_original=True),
    "compact": lambda m, one: m.compact([one.id], lambda _: "x"),
    "invalidate": _retired,
    "superseded": _superseded,
    "command": _by_command,
    "import": _imported,
}


def _entry_in(result: Any) -> Entry:
    if isinstance(result, list):
        [result] = result
    return result if isinstance(result, Entry) else result.entry


@pytest.mark.parametrize("name", CALLS)
async def test_whatever_a_view_writes_has_its_origin(memory: Memory, name: str) -> None:
    one = await _entry(memory, memory)
    view = memory.restrict(origin="key:first")
    changed = _entry_in(await CALLS[name](view, one))
    assert FIRST in (changed.origins or ())
    if changed.id == one.id or changed.promoted_from_id == one.id:
        assert changed.source == "user" or "source:user" in (changed.origins or ())


async def test_an_import_of_exact_copies_has_the_origin_too(memory: Memory, clock: Clock) -> None:
    one = await memory.restrict(origin="key:second").write("tea", scope=ADA)
    lines = [line async for line in memory.admin.export()]
    async with Memory("memory://", embedder="none", clock=clock) as other:
        assert (await other.restrict(origin="key:first").admin.import_(lines, same_ids=True)).imported == 1
        [found] = await other.retrieve(ADA)
    assert (found.id, found.origins) == (one.id, [SECOND, FIRST])


async def test_an_editor_is_added_and_the_writer_stays(memory: Memory) -> None:
    first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
    one = await first.write("tea", scope=ADA, key="k")
    edited = await second.restrict(ADA).update(one.id, content="coffee", origins=["run:r"])
    assert edited.origins == [FIRST, "run:r", SECOND]
    replaced = await second.write("milk", scope=ADA, key="k", if_exists="replace")
    assert {FIRST, SECOND} <= set(replaced.origins or ())


CLAIMS: dict[str, Callable[[Memory, Entry], Awaitable[Any]]] = {
    "source": lambda m, one: m.write("x", scope=ADA, source="key:second"),
    "mcp": lambda m, one: m.write("x", scope=ADA, source="mcp:stdio"),
    "origins": lambda m, one: m.write("x", scope=ADA, origins=["source:key:second"]),
    "blank": lambda m, one: m.write("x", scope=ADA, source=" key:second"),
    "many": lambda m, one: m.write_many([{"content": "x", "scope": ADA, "source": "key:second"}]),
    "report": lambda m, one: m.write_with_report("x", scope=ADA, source="key:second"),
    "update": lambda m, one: m.update(one.id, source="key:second"),
    "update origins": lambda m, one: m.update(one.id, origins=["source:mcp:x"]),
    "message": lambda m, one: m.session("s", user="ada").append(
        {"role": "user", "content": "x", "metadata": {"source": "key:second"}}
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
async def test_a_caller_cannot_name_another_caller_of_the_server(memory: Memory, name: str) -> None:
    one = await _entry(memory, memory)
    with pytest.raises(InvalidInput, match="only the server notes"):
        await CLAIMS[name](memory.restrict(origin="key:first"), one)
    assert [entry.content for entry in await memory.retrieve(ADA)] == ["Ada drinks tea"]


async def test_a_view_keeps_the_origin_of_the_view_that_made_it(memory: Memory) -> None:
    view = memory.restrict(origin="key:first")
    with pytest.raises(Forbidden, match="origin"):
        view.restrict(ADA, origin="key:second")
    assert (await view.restrict(ADA, origin="key:first").write("x", scope=ADA)).origins == [FIRST]
    with pytest.raises(InvalidInput, match="origin"):
        memory.restrict(origin=" ")


async def test_request_ids_of_two_callers_are_apart(memory: Memory) -> None:
    first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
    made = [await one.write("x", scope=ADA, request_id="r1") for one in (first, second, first)]
    assert made[0].id == made[2].id != made[1].id


async def test_a_blocked_caller_writes_nothing_and_is_hidden(memory: Memory) -> None:
    first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
    hidden, shown = await first.write("tea", scope=ADA), await second.write("coffee", scope=ADA)
    await memory.admin.block_source(source="key:first", reason="a stolen key")
    assert await memory.retrieve(ADA) == [shown]
    assert await memory.get(hidden.id) is None
    for call in ("write", "update", "promote", "compact", "keyed"):
        with pytest.raises(RejectedByGate):
            await CALLS[call](first, shown)
    assert await memory.retrieve(ADA) == [shown]


def _writers(messages: list[Message]) -> list[Any]:
    return [one.metadata.get("written_by") for one in messages]


async def test_messages_say_who_wrote_them_and_what_is_derived_says_so_too(
    config: dict[str, Any],
) -> None:
    async with Memory(config, on_window_exit=lambda left: "Ada drinks tea") as memory:
        first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
        mine, theirs = (view.session("s", user="ada") for view in (first, second))
        forged = {"role": "user", "content": "tea", "metadata": {"written_by": ["key:other"], "n": 1}}
        [one] = await mine.append(forged)
        [two] = await theirs.append({"role": "assistant", "content": "noted"}, id="m2")
        assert _writers([one, two]) == [["key:first"], ["key:second"]]
        assert one.metadata["n"] == 1
        assert one.raw is not None
        assert one.raw["content"] == "tea"
        edited = await mine.update("m2", content="noted, tea")
        again = await mine.append({"role": "assistant", "content": "noted, tea!"}, id="m2")
        assert _writers([edited, *again]) == [["key:second", "key:first"]] * 2
        kept = await mine.update("m2", metadata={"written_by": []})
        assert _writers([kept]) == [["key:second", "key:first"]]
        async with theirs.stream(message_id="m3") as out:
            await out.write("and")
            await out.finish(metadata={"written_by": ["key:x"], "a": 1})
        window = (await theirs.window()).messages
        assert _writers(window)[-1] == ["key:second"]
        await mine.replace([*window, {"role": "user", "content": "more"}])
        assert _writers((await mine.window()).messages) == [
            ["key:first"],
            ["key:second", "key:first"],
            ["key:second"],
            ["key:first"],
        ]
        await theirs.end()
        await memory.maintain(budget=timedelta(seconds=5))
        [derived] = await memory.retrieve(ADA)
        assert {FIRST, SECOND} <= set(derived.origins or ())


@pytest.mark.parametrize("name", ["key:second", "mcp:second", " key:second"])
async def test_a_changed_message_names_no_other_caller(memory: Memory, name: str) -> None:
    """Entries derived from it would be hidden, or blamed, with the other caller."""
    view = memory.restrict(origin="key:first")
    session = view.session("s", user="ada", system="You are helpful.")
    (one,) = await session.append({"role": "user", "content": "I drink tea"})
    with pytest.raises(InvalidInput, match="only the server notes"):
        await session.update(str(one.id), metadata={"source": name})
    with pytest.raises(InvalidInput, match="only the server notes"):
        await session.replace([one.model_copy(update={"metadata": {"source": name}})])
    with pytest.raises(InvalidInput, match="only the server notes"):
        await session.update("system", metadata={"source": name})
    async with session.stream() as out:
        await out.write("an answer")
        with pytest.raises(InvalidInput, match="only the server notes"):
            await out.finish(metadata={"source": name})
    changed = await session.update(str(one.id), metadata={"source": "web:example.com"})
    assert changed.metadata == {"source": "web:example.com", "written_by": ["key:first"]}


# -- everything else that a view writes ------------------------------------------------


async def test_records_other_than_entries_name_their_writer(memory: Memory) -> None:
    first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
    one, two = [await memory.write(text, scope=ADA) for text in ("tea", "milk")]
    made = await first.relations.relate(one.id, "supports", two.id)
    assert [made.written_by, *[link.written_by async for link in memory.relations.all()]] == ["key:first"] * 2
    forged = {"written_by": ["key:other"], "n": 1}
    for view, name in ((first, "key:first"), (second, "key:second")):
        await view.documents.put(ADA, "settings", {"a": 1}, metadata=forged)
        found = await memory.documents.get(ADA, "settings")
        assert found is not None
        assert found.metadata == {"n": 1, "written_by": [name]}
    await first.documents.apply([DocumentPut(ADA, "other", b"x")])
    mine = await memory.documents.list(ADA, filter={"metadata.written_by": {"$contains": "key:first"}})
    assert [one.key for one in mine.documents] == ["other"]
    session = first.session("s", user="ada", system="You are helpful.")
    task = await session.tasks.save("t1", title="Book", metadata=forged)
    assert task.metadata == {"n": 1, "written_by": ["key:first"]}
    [replaced] = await second.session("s", user="ada").tasks.replace_all([{"id": "t1", "title": "Pay"}])
    assert replaced.metadata == {"written_by": ["key:first", "key:second"]}
    assert (await session.runs.save("r1", child_id="s2")).metadata == {"written_by": ["key:first"]}
    file = await first.artifacts.put("s", "a.txt", b"x")
    assert file.written_by == "key:first"
    assert (await second.artifacts.put("s", "a.txt", b"y")).written_by == "key:second"
    assert (await memory.artifacts.put("s", "a.txt", b"z")).written_by is None
    for view in (first, second, memory, first):
        await view.scratchpads.append("note", "builder")
    assert (await memory.scratchpads.read("builder")).written_by == ("key:first", "key:second")


async def test_a_hold_lets_another_caller_change_the_status_of_a_task(memory: Memory) -> None:
    first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
    one, other = (view.session("s", user="ada").tasks for view in (first, second))
    await memory.sessions.create("s", user="ada")
    await one.save("t1", title="Book", metadata={"n": 1})
    await memory.admin.legal_holds.add("case 7", reason="litigation", user="ada")
    done = await other.save("t1", title="Book", metadata={"n": 1}, status="completed")
    assert (done.status, done.metadata) == ("completed", {"n": 1, "written_by": ["key:first", "key:second"]})
    [again] = await one.replace_all([{"id": "t1", "title": "Book", "metadata": {"n": 1}}])
    assert again.metadata == done.metadata
    for metadata in ({"n": 2}, {}):
        with pytest.raises(LegalHoldActive):
            await other.save("t1", title="Book", metadata=metadata)
        with pytest.raises(LegalHoldActive):
            await other.replace_all([{"id": "t1", "title": "Book", "metadata": metadata}])


async def test_a_system_message_names_its_writers(memory: Memory) -> None:
    first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
    await first.sessions.create("made", user="ada", system="Be short.")
    for session_id in ("made", "opened"):
        session = first.session(session_id, user="ada", system="Be short.")
        assert _writers((await session.window()).messages) == [["key:first"]]
        same = await second.session(session_id, user="ada").update("system", content="Be short.")
        assert same.metadata == {"written_by": ["key:first"]}
        await second.sessions.update(session_id, system="Be long.")
        assert _writers((await session.window()).messages) == [["key:first", "key:second"]]
        changed = await memory.session(session_id).update("system", content="Be kind.")
        assert changed.metadata == {"written_by": ["key:first", "key:second"]}


async def test_an_import_names_the_importer_beside_those_whom_the_file_names(
    memory: Memory, clock: Clock
) -> None:
    first = memory.restrict(origin="key:first")
    one, two = [await first.write(text, scope=ADA) for text in ("tea", "milk")]
    await first.relations.relate(one.id, "supports", two.id)
    await first.documents.put(ADA, "settings", {"a": 1})
    session = first.session("s", user="ada", system="Be short.")
    await session.append([{"role": "user", "content": "tea"}, {"role": "assistant", "content": "noted"}])
    await first.artifacts.put("s", "a.txt", b"x")
    await first.scratchpads.append("note")
    lines = [line async for line in memory.admin.export()]
    async with Memory("memory://", embedder="none", clock=clock) as other:
        view = other.restrict(origin="key:second")
        for again in (False, True):
            report = await view.admin.import_(lines, same_ids=True)
            assert (report.refused_lines, report.skipped_lines, report.sessions) == ([], [], int(not again))
        assert [link.written_by async for link in other.relations.all()] == ["key:second"]
        document = await other.documents.get(ADA, "settings")
        assert document is not None
        assert document.metadata == {"written_by": ["key:first", "key:second"]}
        messages = (await other.session("s").window()).messages
        assert _writers(messages) == [["key:first", "key:second"]] * 3
        assert (await other.scratchpads.read()).written_by == ("key:second",)
        [file] = (await other.artifacts.list("s")).artifacts
        assert file.written_by == "key:second"
        for importer in (other, other.restrict(origin="key:third")):
            report = await importer.admin.import_(lines, same_ids=True)
            assert (report.refused_lines, report.imported) == ([], 0)
        for entry in await other.retrieve(ADA):
            assert set(entry.origins or ()) == {FIRST, SECOND}
    async with Memory("memory://", embedder="none", clock=clock) as other:
        await other.admin.import_(lines, same_ids=True)
        assert [link.written_by async for link in other.relations.all()] == ["key:first"]
        assert _writers((await other.session("s").window()).messages) == [["key:first"]] * 3
        [file] = (await other.artifacts.list("s")).artifacts
        assert file.written_by == "key:first"


BLOCKED: dict[str, Callable[[Memory, Entry], Awaitable[Any]]] = {
    "append": lambda m, one: m.session("s", user="ada").append({"role": "user", "content": "x"}),
    "append with state": lambda m, one: m.session("s", user="ada").append([], state={"a": 1}),
    "update": lambda m, one: m.session("s", user="ada").update("system", content="x"),
    "stream": lambda m, one: m.session("s", user="ada").stream().__aenter__(),
    "replace": lambda m, one: m.session("s", user="ada").replace([{"role": "user", "content": "x"}]),
    "erase": lambda m, one: m.session("s", user="ada").erase("m1"),
    "fork": lambda m, one: m.session("s", user="ada").fork("s9"),
    "new session": lambda m, one: m.sessions.create("s8", user="ada"),
    "session": lambda m, one: m.sessions.update("s", title="x"),
    "end": lambda m, one: m.sessions.end("s"),
    "task": lambda m, one: m.session("s", user="ada").tasks.save("t", title="x"),
    "run": lambda m, one: m.session("s", user="ada").runs.save("r", child_id="c"),
    "relate": lambda m, one: m.relations.relate(one.id, "supports", one.id),
    "document": lambda m, one: m.documents.put(ADA, "k", 1),
    "documents": lambda m, one: m.documents.delete_many(ADA),
    "artifact": lambda m, one: m.artifacts.put("s", "a.txt", b"x"),
    "scratchpad": lambda m, one: m.scratchpads.append("x"),
    "entry": lambda m, one: m.write("x", scope=ADA),
    "delete": lambda m, one: m.delete(one.id),
    "delete many": lambda m, one: m.entries.delete_many({"content": "tea"}),
    "retire": lambda m, one: m.entries.invalidate(one.id),
    "erasure": lambda m, one: m.admin.erase(ADA),
    "import": lambda m, one: m.admin.import_([]),
    "itself": lambda m, one: m.admin.unblock_source(source="key:first"),
    "revert": lambda m, one: m.admin.revert_source(source="key:second"),
}


@pytest.mark.parametrize("later_writes", ["refused", "kept_back"])
async def test_a_blocked_caller_changes_nothing_but_reads(memory: Memory, later_writes: Any) -> None:
    one = await memory.write("tea", scope=ADA)
    await memory.session("s", user="ada", system="Be short.").append(
        {"role": "user", "content": "x"}, id="m1"
    )
    blocked = await memory.admin.block_source(
        source="key:first", reason="a stolen key", later_writes=later_writes
    )
    assert [one.origin for one in blocked] == [FIRST, "source:mcp:first"]
    before = [line async for line in memory.admin.export()]
    views = [memory.restrict(origin=f"{kind}:first") for kind in ("key", "mcp")]
    calls = {name: call for name, call in BLOCKED.items() if later_writes == "refused" or name != "entry"}
    for view in views:
        for call in calls.values():
            with pytest.raises(RejectedByGate, match=r"'source:\w+:first' is a blocked source"):
                await call(view, one)
        with pytest.raises(NotFound):
            await view.session("nobody", user="ada").context()
        assert await view.get(one.id) == one
        assert len((await view.session("s", user="ada").context()).messages) == 2
    assert [line async for line in memory.admin.export()] == before
    assert len(await memory.admin.unblock_source(source="key:first")) == 2
    assert [await call(views[0], one) for name, call in calls.items() if name == "append"]


async def test_a_blocked_caller_changes_nothing_by_commands(memory: Memory) -> None:
    one, two = [await memory.write(text, scope=ADA) for text in ("tea", "milk")]
    await memory.admin.block_source(source="key:first", reason="a stolen key")
    numbers = await memory.short_ids.of([one.id, two.id])
    view = memory.restrict(origin="key:first")
    for command in (
        f"/mem invalidate {one.id}",
        f"/mem add link {numbers[one.id]} supports {numbers[two.id]}",
        "/mem add entry user Tea\ngreen\n/endmem",
    ):
        [result] = await view.commands.run(command, scope=ADA)
        assert result.is_error
        assert "'source:key:first' is a blocked source" in result.text
    assert {entry.id for entry in await memory.retrieve(ADA)} == {one.id, two.id}
    assert [link async for link in memory.relations.all()] == []


async def test_a_stream_ends_where_its_caller_is_blocked(memory: Memory) -> None:
    session = memory.restrict(origin="key:first").session("s", user="ada")
    async with session.stream() as out:
        await out.write("an ")
        await memory.admin.block_source(source="key:first", reason="a stolen key")
        for call in (out.write("answer"), out.finish()):
            with pytest.raises(RejectedByGate):
                await call
        await memory.admin.unblock_source(source="key:first")
    assert [one.text for one in (await memory.session("s").window()).messages] == ["an "]


async def test_many_messages_are_signed_with_one_read_more(memory: Memory) -> None:
    first, second = (memory.restrict(origin=f"key:{name}") for name in ("first", "second"))
    said: list[Any] = [{"role": "user", "content": f"{number}"} for number in range(40)]
    given = {"metadata": {"source": "key:web"}}
    await memory.session("s", user="ada").append(
        [one | given for one in said], id=[f"m{n}" for n in range(40)]
    )
    calls = []
    for view in (memory, first, second):
        session = view.session("s", user="ada")
        window = (await session.window()).messages
        with watching(memory) as touched:
            await session.replace([*window, {"role": "user", "content": "more"}])
        calls.append(len(touched))
    assert calls[1] - calls[0] <= 3
    assert calls[2] - calls[0] <= 3
    assert [one.metadata.get("written_by") for one in (await memory.session("s").window()).messages][39:] == [
        None,
        None,
        ["key:first"],
        ["key:second"],
    ]
