"""A repeat under a `request_id` spares what others have changed since the first call.

Each test is run twice: the first call has noted its result, or it ended right before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from memory import (
    ABSENT,
    Conflict,
    DocumentDelete,
    DocumentPut,
    Entry,
    InvalidInput,
    Memory,
    NotFound,
    Scope,
    StoreUnavailable,
    VersionConflict,
)
from memory.facade.resources.session import Session
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.redaction import Redaction
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import BegunRequest, Requests

ADA, BOB = Scope.user("ada"), Scope.user("bob")
Call = Callable[[], Awaitable[Any]]


@pytest.fixture(params=["noted", "cut off"], autouse=True)
def ending(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether calls note their result, or end right before."""

    async def finish(self: Requests, begun: BegunRequest, result: Any) -> None:
        return None

    if request.param == "cut off":
        monkeypatch.setattr(Requests, "finish", finish)
    return str(request.param)


@pytest.fixture
async def memory(config: dict[str, Any]) -> AsyncIterator[Memory]:
    """A memory with the clock of the machine, by which later changes are told apart."""
    async with Memory(config | {"embedder": "none"}) as opened:
        yield opened


@pytest.fixture
async def session(memory: Memory) -> Session:
    talk = await memory.sessions.create("talk", system="Be kind.")
    await talk.append([{"role": "user", "content": text, "id": text} for text in "abcd"])
    return talk


async def window(session: Session) -> list[str]:
    return [message.text for message in (await session.context()).messages[1:]]


async def say(session: Session, text: str) -> None:
    await session.append({"role": "user", "content": text, "id": text})


async def test_a_repeated_pop_takes_nothing_more(memory: Memory, session: Session) -> None:
    taken = await session.pop(2, request_id="r1")
    await say(session, "e")
    assert await memory.session("talk").pop(2, request_id="r1") == taken
    assert await window(session) == ["a", "b", "e"]
    assert await session.pop(1, request_id="r2") != taken
    await session.erase("c")
    assert [one["content"] for one in await session.pop(2, request_id="r1")] == ["d"]
    with pytest.raises(Conflict, match="was used for another request"):
        await session.pop(3, request_id="r1")


async def test_pops_at_once_under_one_id_take_the_same(memory: Memory, session: Session) -> None:
    taken = await asyncio.gather(*(memory.session("talk").pop(request_id="r1") for _ in range(5)))
    assert taken == [taken[0]] * 5
    assert await window(session) == ["a", "b", "c"]


async def test_a_repeated_change_of_the_window_undoes_nothing(memory: Memory, session: Session) -> None:
    point = await session.checkpoint()
    assert await session.exclude("a", request_id="r1")
    assert await session.restore("a", request_id="r1")
    assert await session.exclude("a", request_id="r1")
    assert await session.restore("a", request_id="r1")
    assert await window(session) == list("abcd")
    assert await session.clear(request_id="r1") == 4
    await say(session, "e")
    assert await session.clear(request_id="r1") == 4
    assert await window(session) == ["e"]
    assert await session.roll_back(point, request_id="r1") == 1
    await say(session, "f")
    assert await session.roll_back(point, request_id="r1") == 1
    assert await window(session) == [*"abcd", "f"]
    assert await session.checkpoint("named", request_id="r1") == await session.checkpoint(
        "named", request_id="r1"
    )
    with pytest.raises(InvalidInput, match=r"^request_id: needs a name"):
        await session.checkpoint(request_id="r2")


async def test_a_repeated_replacement_changes_nothing(memory: Memory, session: Session) -> None:
    wanted = [{"role": "user", "content": text} for text in ("a", "new", "newer")]
    stored = await session.replace(wanted, request_id="r1")
    await session.update(str(stored[1].id), content="edited")
    await say(session, "e")
    again = await session.replace(wanted, request_id="r1")
    assert [one.text for one in again] == ["a", "edited", "newer"]
    assert await window(session) == ["a", "edited", "newer", "e"]
    await session.erase(str(stored[2].id))
    assert [one.text for one in await session.replace(wanted, request_id="r1")] == ["a", "edited"]
    assert await window(session) == ["a", "edited", "e"]


@pytest.mark.parametrize("message", ["b", "system"])
async def test_a_repeated_edit_overwrites_no_later_one(session: Session, message: str) -> None:
    assert (await session.update(message, content="first", request_id="r1")).text == "first"
    await session.update(message, content="later")
    assert (await session.update(message, content="first", request_id="r1")).text == "later"
    history = await session.history()
    assert "later" in [item.message.text for item in history.items]


async def test_a_repeated_erasure_of_a_message_spares_a_later_one(session: Session) -> None:
    assert await session.erase("b", request_id="r1")
    assert await session.erase("b", request_id="r1")
    await say(session, "b")
    assert await session.erase("b", request_id="r1")
    assert await window(session) == [*"acd", "b"]
    assert not await session.erase("unknown", request_id="r2")


REMOVALS: dict[str, Callable[[Memory, Session, str], Awaitable[object]]] = {
    "erase": lambda m, s, r: s.erase("a", request_id=r),
    "exclude": lambda m, s, r: s.exclude("b", request_id=r),
    "delete a task": lambda m, s, r: s.tasks.delete("t", request_id=r),
    "delete a run": lambda m, s, r: s.runs.delete("r", request_id=r),
    "delete a document": lambda m, s, r: m.documents.delete(ADA, "d", request_id=r),
    "delete a file": lambda m, s, r: m.artifacts.delete(("talk", "a.md"), request_id=r),
    "clear a scratchpad": lambda m, s, r: m.scratchpads.clear(request_id=r),
    "release a hold": lambda m, s, r: m.admin.legal_holds.remove("case", request_id=r),
}


@pytest.mark.parametrize("name", REMOVALS)
async def test_one_of_many_requests_at_once_removes_a_thing(
    memory: Memory, session: Session, name: str
) -> None:
    await session.tasks.save("t", title="task")
    await session.runs.save("r", child_id="child")
    await memory.documents.put(ADA, "d", 1)
    await memory.artifacts.put("talk", "a.md", b"text")
    await memory.scratchpads.append("noted")
    await memory.admin.legal_holds.add("case", reason="a lawsuit", user="eve")

    async def remove(request_id: str) -> bool:
        return bool(await REMOVALS[name](memory, memory.session("talk"), request_id))

    removed = await asyncio.gather(*(remove(f"r{n}") for n in range(5)))
    assert removed.count(True) == 1
    assert not any(await asyncio.gather(*(remove("later") for _ in range(5))))


async def test_a_repeated_compaction_asks_for_no_second_summary(session: Session) -> None:
    asked: list[int] = []

    def summarise(messages: list[Any]) -> str:
        asked.append(len(messages))
        return f"summary {len(asked)}"

    first = await session.compact(summarise, keep_last=1, request_id="r1")
    await say(session, "e")
    assert await session.compact(summarise, keep_last=1, request_id="r1") == first
    assert (asked, len(await session.compactions())) == ([3], 1)


async def test_a_repeated_end_leaves_a_resumed_session_active(memory: Memory, session: Session) -> None:
    first = await session.end(request_id="r1")
    assert await memory.sessions.end("talk", request_id="r1") == first
    assert await session.resume(request_id="r1")
    await session.end(request_id="r1")
    assert (await session.info()).status == "active"
    assert await session.archive(request_id="r1")
    assert await session.resume(request_id="r1")
    assert (await session.info()).status == "archived"


async def test_a_repeated_fork_returns_the_first(memory: Memory, session: Session) -> None:
    fork = await session.fork("c", request_id="r1")
    await say(fork, "e")
    again = await session.fork("c", request_id="r1")
    assert again.id == fork.id
    assert await window(again) == [*"abc", "e"]
    assert len((await memory.sessions.list()).sessions) == 2


@pytest.mark.parametrize("by", ["handle", "id"])
async def test_a_repeated_deletion_spares_a_session_created_since(
    memory: Memory, session: Session, by: str
) -> None:
    def delete() -> Awaitable[bool]:
        if by == "id":
            return memory.sessions.delete("talk", request_id="r1")
        return memory.session("talk").delete(request_id="r1")

    await memory.write("old", scope="session:talk")
    assert await delete()
    again = await memory.sessions.create("talk", title="new")
    await say(again, "e")
    new = await memory.write("new", scope="session:talk")
    assert await delete()
    info = await memory.sessions.get("talk")
    assert info is not None
    assert info.title == "new"
    assert [message.text for message in (await again.context()).messages] == ["e"]
    assert await memory.retrieve("session:talk") == [new]


async def test_nothing_is_stored_again_in_a_session_that_was_deleted(
    memory: Memory, session: Session
) -> None:
    created = await memory.sessions.create("named", request_id="r1")
    await memory.session("auto").append({"role": "user", "content": "hello"}, request_id="r1")
    await session.pop(request_id="r1")
    for name in ("named", "auto", "talk"):
        await memory.sessions.delete(name)
    with pytest.raises(Conflict, match="was deleted after this request began"):
        await memory.sessions.create("named", request_id="r1")
    with pytest.raises(Conflict, match="was deleted after this request began"):
        await memory.session("auto").append({"role": "user", "content": "hello"}, request_id="r1")
    assert created.id == "named"
    assert (await memory.sessions.list()).sessions == []
    again = await memory.sessions.create("talk")
    await say(again, "e")
    with pytest.raises(Conflict, match="was deleted after this request began"):
        await again.pop(request_id="r1")
    assert [message.text for message in (await again.context()).messages] == ["e"]


IN_A_SESSION: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "append": lambda session: session.append({"role": "user", "content": "x"}, request_id="r"),
    "update": lambda session: session.update("a", content="x", request_id="r"),
    "update-system": lambda session: session.update("system", content="x", request_id="r"),
    "replace": lambda session: session.replace([{"role": "user", "content": "x"}], request_id="r"),
    "compact": lambda session: session.compact(lambda _: "sum", keep_last=1, request_id="r"),
    "pop": lambda session: session.pop(request_id="r"),
    "exclude": lambda session: session.exclude("a", request_id="r"),
    "task": lambda session: session.tasks.save("t", title="x", request_id="r"),
    "tasks": lambda session: session.tasks.replace_all([{"id": "t", "title": "x"}], request_id="r"),
    "run": lambda session: session.runs.save("r", child_id="c", request_id="r"),
}


@pytest.mark.parametrize("name", IN_A_SESSION)
async def test_a_repeat_creates_no_session_again_that_has_expired(
    memory: Memory, session: Session, name: str
) -> None:
    call = IN_A_SESSION[name]
    await call(session)
    await memory.sessions.update("talk", expires_at=timedelta(milliseconds=1))
    await asyncio.sleep(0.01)
    with pytest.raises(Conflict, match="was deleted after this request began"):
        await call(memory.session("talk"))
    assert await memory.sessions.get("talk") is None
    await memory.session("talk").append({"role": "user", "content": "a later life", "id": "a"})
    with pytest.raises(Conflict, match="was deleted after this request began"):
        await call(memory.session("talk"))
    later = await memory.session("talk").window()
    assert [message.text for message in later.messages] == ["a later life"]


@pytest.mark.parametrize("message", ["a", "system"])
async def test_a_repeat_of_a_noted_edit_adds_nothing_to_the_log(
    session: Session, message: str, ending: str
) -> None:
    made = await session.update(message, content="changed", request_id="r")
    before = (await session.checkpoint()).place
    assert await session.update(message, content="changed", request_id="r") == made
    assert (await session.checkpoint()).place == before or ending == "cut off"


async def cut_off(*_: Any, **__: Any) -> Any:
    raise ConnectionError("cut off")


async def test_a_repeat_tells_others_of_an_edit_that_was_cut_off(
    shared_config: dict[str, Any], session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Memory(shared_config | {"embedder": "none"}) as elsewhere:
        assert await window(elsewhere.session("talk")) == ["a", "b", "c", "d"]
        with monkeypatch.context() as patched:
            patched.setattr(Log, "tell_edit", cut_off)
            with pytest.raises(ConnectionError):
                await session.update("b", content="new", request_id="r")
        assert (await session.update("b", content="new", request_id="r")).text == "new"
        assert await window(session) == ["a", "new", "c", "d"]
        assert await window(elsewhere.session("talk")) == ["a", "new", "c", "d"]


async def test_a_repeat_completes_an_erasure_that_was_cut_off(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = await session.fork()
    await session.compact(lambda said: " ".join(one.text for one in said), keep_last=1)
    with monkeypatch.context() as patched:
        patched.setattr(Redaction, "_finish", cut_off)
        with pytest.raises(ConnectionError):
            await session.erase("b", request_id="r")
    assert await session.erase("b", request_id="r")
    assert await window(fork) == ["a", "c", "d"]
    assert await window(session) == ["d"]


async def test_forks_at_once_complete_one_that_was_cut_off(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Conversation, "begin", cut_off)
        with pytest.raises(ConnectionError):
            await session.fork(request_id="r")
    forks = await asyncio.gather(*(memory.session("talk").fork(request_id="r") for _ in range(8)))
    assert len({fork.id for fork in forks}) == 1
    assert await window(forks[0]) == ["a", "b", "c", "d"]
    assert len((await forks[0].history()).items) == 5


async def test_tasks_and_runs_that_were_saved_since_stay(session: Session) -> None:
    tasks, runs = session.tasks, session.runs
    await tasks.save("t", title="first", request_id="r1")
    await tasks.save("t", title="later")
    assert (await tasks.save("t", title="first", request_id="r1")).title == "later"
    await runs.save("r", child_id="c", status="queued", request_id="r1")
    await runs.save("r", child_id="c", status="completed")
    assert (await runs.save("r", child_id="c", status="queued", request_id="r1")).status == "completed"
    for one in (tasks, runs):
        name = "t" if one is tasks else "r"
        assert await one.delete(name, request_id="r1")
        assert await one.delete(name, request_id="r1")
    await tasks.save("t", title="newer")
    await runs.save("r", child_id="c")
    assert await tasks.delete("t", request_id="r1")
    assert await runs.delete("r", request_id="r1")
    assert (await tasks.get("t")) is not None
    assert (await runs.get("r")) is not None
    await tasks.replace_all([{"id": "a"}, {"id": "b"}], request_id="r1")
    await tasks.save("c")
    await tasks.delete("a")
    await tasks.save("b", title="later")
    kept = await tasks.replace_all([{"id": "a"}, {"id": "b"}], request_id="r1")
    assert [(one.id, one.title) for one in kept] == [("b", "later")]
    assert {one.id for one in (await tasks.list()).tasks} == {"b", "c"}


async def test_a_task_that_was_deleted_is_not_saved_again(session: Session) -> None:
    await session.tasks.save("t", title="first", request_id="r1")
    await session.tasks.delete("t")
    with pytest.raises((NotFound, Conflict)):
        await session.tasks.save("t", title="first", request_id="r1")
    assert await session.tasks.get("t") is None


async def test_a_repeated_put_returns_the_first_version(memory: Memory) -> None:
    documents = memory.documents
    first = await documents.put(ADA, "k", {"n": 1}, expected_version=ABSENT, request_id="r1")
    assert await documents.put(ADA, "k", {"n": 1}, expected_version=ABSENT, request_id="r1") == first
    later = await documents.put(ADA, "k", "much longer", expected_version=first.version, request_id="r2")
    assert await documents.put(ADA, "k", {"n": 1}, expected_version=ABSENT, request_id="r1") == first
    found = await documents.get(ADA, "k")
    assert found is not None
    assert (found.value, found.version) == ("much longer", later.version)
    with pytest.raises(VersionConflict):
        await documents.put(ADA, "k", 2, expected_version=first.version, request_id="r3")
    with pytest.raises(Conflict, match="was used for another request"):
        await documents.put(ADA, "k", {"n": 2}, expected_version=ABSENT, request_id="r1")
    with pytest.raises(Conflict, match="exists already"):
        await documents.put(ADA, "k", 2, if_exists="error", request_id="r4")


@pytest.mark.parametrize("value", [{"n": 1}, b"." * 300_000], ids=["inline", "in chunks"])
async def test_a_repeat_puts_no_document_again_that_was_deleted(
    memory: Memory, ending: str, value: Any
) -> None:
    documents = memory.documents
    first = await documents.put(ADA, "k", value, request_id="r1")
    await documents.delete(ADA, "k")
    for others in (None, "of others"):
        if others is not None:
            await documents.put(ADA, "k", others)
        if ending == "noted":
            assert await documents.put(ADA, "k", value, request_id="r1") == first
        else:
            with pytest.raises(Conflict, match="was deleted after this request began"):
                await documents.put(ADA, "k", value, request_id="r1")
        found = await documents.get(ADA, "k")
        assert (None if found is None else found.value) == others


async def test_a_repeated_deletion_of_documents_spares_later_ones(memory: Memory) -> None:
    documents = memory.documents
    for key in ("a", "b", "c"):
        await documents.put(ADA, key, 1)
    assert await documents.delete(ADA, "a", request_id="r1")
    await documents.put(ADA, "a", 2)
    assert await documents.delete(ADA, "a", request_id="r1")
    assert not await documents.delete(ADA, "unknown", request_id="r2")
    assert await documents.delete_many(ADA, start="b", request_id="r1") == 2
    await documents.put(ADA, "b", 2)
    await documents.delete_many(ADA, start="b", request_id="r1")
    assert [one.key for one in (await documents.list(ADA)).documents] == ["a", "b"]


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_repeated_group_changes_nothing(memory: Memory, atomic: bool) -> None:
    documents = memory.documents
    await documents.put(ADA, "gone", 1)
    group: list[Any] = [DocumentPut(ADA, "a", 1), DocumentPut(ADA, "b", b"2"), DocumentDelete(ADA, "gone")]
    first = await documents.apply(group, atomic=atomic, request_id="r1")
    await documents.put(ADA, "a", "later")
    await documents.put(ADA, "gone", "later")
    assert await documents.apply(group, atomic=atomic, request_id="r1") == first
    page = await documents.list(ADA, values=True)
    assert [getattr(one, "value", None) for one in page.documents] == ["later", b"2", "later"]


async def test_a_group_of_deletions_is_repeated(memory: Memory) -> None:
    await memory.documents.put(ADA, "a", 1)
    group = [DocumentDelete(ADA, "a")]
    assert await memory.documents.apply(group, request_id="r1") == [None]
    await memory.documents.put(ADA, "a", 2)
    assert await memory.documents.apply(group, request_id="r1") == [None]
    assert await memory.documents.get(ADA, "a") is not None


async def test_a_repeated_put_of_a_file_stores_nothing(memory: Memory, session: Session) -> None:
    files = memory.artifacts
    first = await files.put("talk", "f", b"first", request_id="r1")
    assert await files.put("talk", "f", b"first", request_id="r1") == first
    later = await files.put("talk", "f", b"later")
    assert await files.put("talk", "f", b"first", request_id="r1") == later
    assert await files.read(("talk", "f")) == b"later"
    with pytest.raises(Conflict, match="was used for another request"):
        await files.put("talk", "f", b"other", request_id="r1")
    assert await files.delete(("talk", "f"), request_id="r1")
    assert await files.delete(("talk", "f"), request_id="r1")
    with pytest.raises((NotFound, Conflict)):
        await files.put("talk", "f", b"first", request_id="r1")
    newer = await files.put("talk", "f", b"newer")
    assert await files.delete(("talk", "f"), request_id="r1")
    assert await files.get(newer.id) == newer
    assert await files.delete(newer.id, request_id="r2")
    assert await files.delete(newer.id, request_id="r2")


async def test_a_repeated_clearing_spares_later_notes(memory: Memory) -> None:
    pads = memory.scratchpads
    await pads.append("first")
    assert await pads.clear(request_id="r1")
    await pads.append("later")
    assert await pads.clear(request_id="r1")
    assert "later" in (await pads.read()).content
    assert await pads.clear(request_id="r2")
    await pads.append("newest")
    assert await pads.clear(request_id="r1") in (True, False)
    assert "newest" in (await pads.read()).content


async def test_a_repeated_deletion_by_a_filter_spares_later_entries(memory: Memory) -> None:
    drafts: list[dict[str, Any]] = [
        {"content": text, "scope": ADA, "metadata": {"kind": "draft"}} for text in "ab"
    ]
    await memory.write_many(drafts)
    passing = {"metadata.kind": "draft"}
    assert (await memory.entries.delete_many(passing, request_id="r1")).deleted == 2
    later = await memory.write_many(drafts)
    await memory.entries.delete_many(passing, request_id="r1")
    assert await memory.get_many([one.id for one in later]) == later
    with pytest.raises(Conflict, match="was used for another request"):
        await memory.entries.delete_many(passing, scope=ADA, request_id="r1")


async def test_a_repeated_release_spares_a_later_hold(memory: Memory) -> None:
    holds, admin = memory.admin.legal_holds, memory.admin
    first = await holds.add("case", reason="a lawsuit", user="ada", request_id="r1")
    assert await holds.add("case", reason="a lawsuit", user="ada", request_id="r1") == first
    assert [one.name for one in await holds.remove("case", request_id="r1")] == ["case"]
    await holds.add("case", reason="another", user="ada")
    assert await holds.remove("case", request_id="r1") == []
    assert len(await holds.list()) == 1
    await admin.block_source(source="web", reason="wrong", request_id="r1")
    assert len(await admin.unblock_source(source="web", request_id="r1")) == 1
    await admin.block_source(source="web", reason="wrong again")
    assert await admin.unblock_source(source="web", request_id="r1") == []
    assert len(await admin.blocked_sources()) == 1


async def test_a_repeated_reversion_spares_later_writes(memory: Memory) -> None:
    old = await memory.write("old", scope=ADA, source="web")
    report = await memory.admin.revert_source(source="web", request_id="r1")
    assert report.of("retired") == [old.id]
    new = await memory.write("new", scope=ADA, source="web")
    again = await memory.admin.revert_source(source="web", request_id="r1")
    assert again.of("retired") == []
    assert await memory.retrieve(ADA) == [new]
    with pytest.raises(InvalidInput, match=r"^request_id: cannot be combined with dry_run"):
        await memory.admin.revert_source(source="web", dry_run=True, request_id="r2")


async def test_a_repeat_writes_nothing_again_under_a_key_that_was_deleted(memory: Memory) -> None:
    for mode in ("replace", "update", "keep", "error"):
        options: dict[str, Any] = {"scope": ADA, "key": mode, "if_exists": mode, "request_id": mode}
        if mode == "error":
            await memory.write("before", scope=ADA, key=mode)
            await memory.delete(scope=ADA, key=mode)
            options["revive"] = True
        await memory.write("first", **options)
        await memory.delete(scope=ADA, key=mode)
        with pytest.raises(Conflict, match="deleted"):
            await memory.write("first", **options)
        assert await memory.get(scope=ADA, key=mode) is None
        theirs = await memory.write("theirs", scope=ADA, key=mode, if_exists="replace")
        with pytest.raises(Conflict):
            await memory.write("first", **options)
        assert await memory.get(scope=ADA, key=mode) == theirs


async def test_a_failed_write_over_a_deleted_key_can_be_repeated(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.write("before", scope=ADA, key="k")
    await memory.delete(scope=ADA, key="k")
    put = Placement.write_one

    async def fail(self: Placement, name: str, *args: Any, **options: Any) -> Any:
        if name == "write.revive":
            raise StoreUnavailable("main", "is away")
        return await put(self, name, *args, **options)

    with monkeypatch.context() as context:
        context.setattr(Placement, "write_one", fail)
        with pytest.raises(StoreUnavailable):
            await memory.write("new", scope=ADA, key="k", if_exists="replace", request_id="r1")
    made = await memory.write("new", scope=ADA, key="k", if_exists="replace", request_id="r1")
    assert await memory.get(scope=ADA, key="k") == made


@pytest.mark.parametrize("request_id", ["r", None])
async def test_moves_at_once_leave_one_entry_that_outlives_the_original_scope(
    memory: Memory, request_id: str | None
) -> None:
    original = await memory.write("Ada moved to Porto", scope="session:talk")
    moves = await asyncio.gather(
        *(memory.promote(original.id, ADA, delete_original=True, request_id=request_id) for _ in range(4)),
        return_exceptions=True,
    )
    [copy] = await memory.retrieve(ADA)
    assert [one for one in moves if not isinstance(one, NotFound)]
    assert {one.version for one in moves if isinstance(one, Entry)} == {copy.version}
    assert len(await memory.entries.history(copy.id)) == 1
    await memory.admin.erase("session:talk")
    assert await memory.get(copy.id) is not None


async def test_a_repeat_derives_nothing_again_that_was_deleted(memory: Memory) -> None:
    one, two = [await memory.write(text, scope=ADA) for text in ("one", "two")]
    copy = await memory.promote(one.id, "org:o", request_id="r1")
    whole = await memory.compact([one.id, two.id], lambda entries: "both", request_id="r1")
    link = await memory.relations.relate(one.id, "refines", two.id, request_id="r1")
    await memory.delete(copy.id)
    await memory.delete(whole.id)
    await memory.relations.unrelate(link.id)
    for call in (
        lambda: memory.promote(one.id, "org:o", request_id="r1"),
        lambda: memory.compact([one.id, two.id], lambda entries: "both", request_id="r1"),
        lambda: memory.relations.relate(one.id, "refines", two.id, request_id="r1"),
    ):
        with pytest.raises((Conflict, NotFound)):
            await call()
    assert await memory.retrieve("org:o") == []
    assert len(await memory.retrieve(ADA)) == 2
    assert await memory.relations.find(source_id=one.id) == []
    assert await memory.promote(one.id, "org:o", request_id="r2") == await memory.get(copy.id)
