"""Sessions in exports and imports: history, marks, window and counts come back as they
were, on every topology.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from memory import (
    Conflict,
    ExitedMessages,
    InvalidInput,
    Memory,
    NotFound,
    SessionOwnerMismatch,
    StoreUnavailable,
)
from memory.domain.import_reports import ImportReport
from memory.orchestrator.storage.steps import current_step
from memory.ports.contract.cells import cells
from tests.acceptance.support import HOUR, Clock, stores_of
from tests.acceptance.talking import SYSTEM, assistant, history, summary, user, window


async def told(memory: Memory) -> None:
    """Two sessions in which everything happened, and what belongs to one of them."""
    session = memory.session(
        "a/b::c é",
        system=SYSTEM,
        user="ada",
        agent="helper",
        namespace="n",
        title="tea",
        tags=["t=1"],
        metadata={"a": [1]},
    )
    await session.append(
        [
            user("m1", "m1"),
            assistant("m2", "m2"),
            {"role": "user", "content": "without an id"},
            user("m4", "m4"),
        ]
    )
    await session.exclude("m2")
    await session.compact(summary("sum1"), keep_last=1)
    await session.append([user(f"long {n}", f"l{n}") for n in range(70)])
    await session.compact(lambda _: "second", keep_last=60)
    await session.append(user("hint", "hint"), in_history=False)
    await session.checkpoint("here")
    await session.append(user("gone", "gone"))
    await session.exclude("gone", "invalid_input")
    await session.update("l69", content="changed")
    await session.append(assistant("", "call", tool_calls=[{"id": "c1", "name": "look", "arguments": "{}"}]))
    await session.tasks.save("t/1 é", title="refit", metadata={"a": [1]})
    await session.tasks.save("t2", title="mast", status="completed", parent_id="t/1 é", result="done")
    await session.tasks.save(
        "t2", title="new mast", status="completed", parent_id="t/1 é", request_id="again"
    )
    await session.runs.save("r1", child_id="s2", mode="background", message_count=3, metadata={"b": 2})
    archived = memory.session("s2")
    await archived.append(user("hello", "u1"))
    await archived.archive()
    await memory.write("a fact", scope="session:s2")


async def exported(memory: Memory, scope: str | None = None) -> list[dict[str, Any]]:
    return [line async for line in memory.admin.export(scope)]


async def seen(memory: Memory) -> list[Any]:
    """All that callers see of the sessions; ids that are the store's own are told by
    what they name.
    """
    found: list[Any] = []
    for info in (await memory.sessions.list(by="created", order="oldest")).sessions:
        session = memory.session(info.id, create=False)
        found += [
            (await session.info()).to_dict(),
            (await session.context(2_000)).to_dict(),
            (await session.history(limit=1_000)).to_dict(),
        ]
        found += [made.to_dict() for made in await session.compactions()]
        found += [(await session.tasks.list()).to_dict(), (await session.runs.list()).to_dict()]
        found += [[(hit.message.id, hit.item.number) for hit in await session.search("long hello tea")]]
    return found


@pytest.mark.parametrize("same_ids", [True, False])
async def test_a_round_trip_brings_everything_back(
    memory: Memory, other: Memory, clock: Clock, same_ids: bool
) -> None:
    await told(memory)
    lines = await exported(memory)
    clock.advance(HOUR)
    report = await other.admin.import_(lines, same_ids=same_ids)
    assert (report.sessions, report.imported, report.other_records, report.refused_lines) == (2, 1, 3, [])
    assert await seen(other) == await seen(memory)
    assert [line for line in await exported(other) if "kind" in line] == [
        without_requests(line) for line in lines if "kind" in line
    ]
    again = await other.admin.import_(lines, same_ids=same_ids)
    assert (again.sessions, again.events, again.other_records, again.refused_lines) == (0, 0, 0, [])


def without_requests(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a task without the marks of requests, which an import drops."""
    body = {name: value for name, value in line["body"].items() if name != "requests"}
    return {**line, "body": body} if line["kind"] in ("tasks", "runs") else line


async def test_tasks_and_runs_come_back_once_under_keys_of_the_tenant(memory: Memory, other: Memory) -> None:
    await told(memory)
    lines = await exported(memory)
    async with other.for_tenant("another") as theirs:
        await theirs.admin.import_(lines)
        there = theirs.session("a/b::c é", create=False)
        saved = await there.tasks.save("t2", title="changed")
        assert saved.created_at == (await memory.session("a/b::c é").tasks.list()).tasks[1].created_at
        await there.runs.delete("r1")
        again = await theirs.admin.import_(lines)
        assert (again.other_records, again.refused_lines) == (0, [])
        assert [task.title for task in (await there.tasks.list()).tasks] == ["refit", "changed"]
        assert (await there.runs.list()).runs == []
        with pytest.raises(Conflict, match="t2"):
            await theirs.session("s3").tasks.save("t2", title="of another session")
        await there.delete()
        assert (await theirs.admin.import_(lines)).other_records == 0
        assert (await theirs.sessions.runs()).runs == []


async def test_a_task_whose_id_is_taken_here_is_refused_alone(memory: Memory, other: Memory) -> None:
    await told(other)
    await memory.session("mine").tasks.save("t2", title="mine")
    report = await memory.admin.import_(await exported(other))
    assert (report.other_records, len(report.refused_lines)) == (2, 1)
    assert "t2 is a task of session mine" in report.problems[0]
    assert [task.id for task in (await memory.session("a/b::c é").tasks.list()).tasks] == ["t/1 é"]


async def test_a_session_that_has_expired_is_not_carried_nor_what_was_said_in_it(
    memory: Memory, clock: Clock
) -> None:
    session = memory.session("brief", expires_at=HOUR)
    await session.append([user("m1", "m1"), user("a picture " * 10_000, "large")])
    await memory.session("stays").append(user("m1", "m1"))
    clock.advance(2 * HOUR)
    lines = await exported(memory)
    assert {line["scope"] for line in lines} == {"conversation:stays"}
    assert len(lines) == 2


async def test_what_was_imported_goes_on(memory: Memory, other: Memory) -> None:
    await told(other)
    await memory.admin.import_(await exported(other))
    session = memory.session("a/b::c é", create=False)
    before = await session.info()
    (said,) = await session.append(user("more", "more"))
    assert (await session.info()).message_count == before.message_count + 1
    assert (await session.history(ids=["more"])).items[0].number == before.message_count + 1
    await session.compact(summary("third"), keep_last=1)
    assert await window(session) == ["system", "third", said.id]
    assert await memory.sessions.delete("a/b::c é")
    with pytest.raises(NotFound):
        await session.info()


async def test_in_another_tenant_a_session_is_the_same_under_keys_of_its_own(
    memory: Memory, other: Memory
) -> None:
    await told(memory)
    lines = await exported(memory)
    async with other.for_tenant("another") as theirs:
        refused = await theirs.admin.import_(lines, same_ids=True)
        assert len(refused.refused_lines) == len(lines)
        await theirs.admin.import_(lines)
        await theirs.admin.import_(lines)
        here, there = memory.session("a/b::c é"), theirs.session("a/b::c é", create=False)
        assert [m.text for m in (await there.context()).messages] == [
            m.text for m in (await here.context()).messages
        ]
        assert [(i.number, i.message.text, i.excluded) for i in (await there.history()).items] == [
            (i.number, i.message.text, i.excluded) for i in (await here.history()).items
        ]
        made, original = (await there.compactions())[1], (await here.compactions())[1]
        assert (await there.info()).last_compaction_id == made.id != original.id
        assert sorted(await history(there, archived_by=made.id)) == sorted(made.archived_ids)
        assert len(made.archived_ids) == len(original.archived_ids)


async def test_one_sessions_scope_is_exported_with_its_conversation(memory: Memory, other: Memory) -> None:
    await told(memory)
    lines = await exported(memory, "session:s2")
    assert [line.get("kind", "entry") for line in lines] == ["sessions", "entry", "messages", "messages"]
    assert [line for line in await exported(memory, "user:ada") if "kind" in line] == []
    await other.admin.import_(lines)
    assert [info.id for info in (await other.sessions.list()).sessions] == ["s2"]


async def test_a_session_that_stands_or_was_deleted_here_is_left_as_it_is(
    memory: Memory, other: Memory
) -> None:
    await told(other)
    lines = await exported(other)
    await memory.session("a/b::c é").append(user("mine", "mine"))
    report = await memory.admin.import_(lines)
    assert report.sessions == 1
    assert "another session already has this id here" in report.problems[0]
    assert await window(memory.session("a/b::c é")) == ["mine"]
    await memory.sessions.delete("s2")
    again = await memory.admin.import_([line for line in lines if line.get("scope") == "conversation:s2"])
    assert (again.sessions, again.events) == (0, 0)
    assert await memory.sessions.get("s2") is None


async def test_an_import_that_was_cut_off_is_repeated(memory: Memory, other: Memory) -> None:
    await told(other)
    lines = await exported(other)
    first: ImportReport = await memory.admin.import_(lines[: len(lines) // 2])
    second = await memory.admin.import_(lines)
    assert first.events + second.events == sum(line.get("kind") == "messages" for line in lines)
    assert (await memory.session("a/b::c é").info()).version == (
        await other.session("a/b::c é").info()
    ).version


@cells(
    "kind, part, wrong",
    [
        ("sessions", "scope", "conversation:other"),
        ("sessions", "scope", "user:ada"),
        ("sessions", "body", {"incarnation": "x"}),
        ("sessions", "body", {}),
        ("sessions", "fields", {"session_id": "s2"}),
        ("messages", "scope", "conversation:s1"),
        ("messages", "body", {}),
        ("messages", "fields", {"conversation_id": "s2", "place": "two", "event": "message"}),
        ("messages", "fields", {"conversation_id": "s2", "place": 2, "event": "unheard of"}),
        ("tasks", "scope", "conversation:other"),
        ("tasks", "scope", "user:ada"),
        ("tasks", "fields", {"task_id": "t1", "status": "done"}),
        ("tasks", "body", {"title": 5}),
        ("runs", "fields", {"run_id": "r1", "child_id": "", "status": "queued", "mode": "foreground"}),
        ("runs", "fields", {"run_id": "r1", "task_id": "t1", "status": "queued"}),
        ("runs", "body", {"metadata": [1]}),
    ],
    shared=True,
)
async def test_a_line_that_is_no_session_or_event_is_refused_before_any_store_is_touched(
    plain: Memory, other: Memory, kind: str, part: str, wrong: Any
) -> None:
    session = other.session("s2")
    await session.append(user("hello", "u1"))
    await session.tasks.save("t1", title="refit")
    await session.runs.save("r1", child_id="s3")
    lines = [line | {part: wrong} if line.get("kind") == kind else line for line in await exported(other)]
    with pytest.raises(InvalidInput, match="nothing was imported"):
        await plain.admin.import_(lines)
    assert (await plain.sessions.list()).sessions == []


async def test_an_event_that_is_of_no_place_of_its_session_is_refused_alone(
    plain: Memory, other: Memory
) -> None:
    await other.session("s2").append([user("hello", "u1"), user("again", "u2")])
    lines = await exported(other)
    lines[-1] = lines[-1] | {"id": lines[0]["id"]}
    report = await plain.admin.import_(lines)
    assert (report.sessions, report.events, report.refused_lines) == (1, 1, [3])
    assert await window(plain.session("s2")) == ["u1"]


@contextmanager
def failing_at(memory: Memory, name: str) -> Iterator[None]:
    """No store answers at this step of the engine."""
    (store,) = stores_of(memory)
    apply = store.apply

    async def failing(*args: Any, **kwargs: Any) -> Any:
        if current_step.get() == name:
            raise StoreUnavailable(store.name, f"fails at {name}")
        return await apply(*args, **kwargs)

    with patch.object(store, "apply", failing):
        yield


@pytest.mark.parametrize("same_ids", [True, False])
@pytest.mark.parametrize("tenant", ["default", "elsewhere"])
async def test_what_is_to_go_onward_goes_onward_where_it_is_imported_and_nothing_twice(
    clock: Clock, same_ids: bool, tenant: str
) -> None:
    """Of three sessions one has taught already, of one the answer is known and not
    stored, and one is still to be asked about.
    """
    placed = {
        "tiers": dict.fromkeys(("short", "mid", "long"), "memory://"),
        "embedder": "none",
        "durations": {"sweep_every": "0s"},
    }
    asked: list[str] = []

    def distil(leaving: ExitedMessages) -> list[str]:
        asked.append(leaving.session_id)
        if leaving.session_id == "waiting" and len(asked) < 4:
            raise ValueError("the model is away")
        return [message.text for message in leaving.messages]

    async with (
        Memory(placed, clock=clock, on_window_exit=distil) as memory,
        Memory(placed, clock=clock, tenant=tenant, on_window_exit=distil) as other,
    ):
        for name in ("taught", "noted", "waiting"):
            session = memory.session(name, user="ada")
            await session.append(user(f"tea of {name}", "m1"))
            with failing_at(memory, "onward.home" if name == "noted" else "nothing"):
                await session.end()
        assert asked == ["taught", "noted", "waiting"]
        lines = await exported(memory)
        assert [line["owes"] for line in lines if "owes" in line] == [["leave"]]
        for _ in range(2):
            await other.admin.import_(lines, same_ids=same_ids and tenant == "default")
            await other.admin.sweep()
        assert sorted(entry.content for entry in await other.retrieve("user:ada")) == [
            "tea of noted",
            "tea of taught",
            "tea of waiting",
        ]
        assert asked == ["taught", "noted", "waiting", "waiting"]
        (debt,) = [line for line in lines if "owes" in line]
        for wrong in (
            {**debt, "owes": ["redact"]},
            {**next(line for line in lines if line.get("kind") == "sessions"), "owes": ["leave"]},
        ):
            with pytest.raises(InvalidInput, match="owes: is not in the form that an export writes"):
                await other.admin.import_([wrong])


@pytest.mark.parametrize("same_ids", [True, False])
@pytest.mark.parametrize("gone", ["delete", "erase", "erase_user", "erase_message"])
async def test_an_export_brings_back_nothing_that_was_erased_since_unless_told_to(
    config: dict[str, Any], clock: Clock, gone: str, same_ids: bool
) -> None:
    async with Memory(
        config, clock=clock, on_window_exit=lambda leaving: [m.text for m in leaving.messages]
    ) as memory:
        session = memory.session("s", user="ada")
        await session.append([user("zebra", "m1")])
        await session.end()
        own = await memory.write("zebra of ada", scope="user:ada")
        exported = [line async for line in memory.admin.export()]
        await session.erase("m1")
        if gone == "delete":
            await memory.delete(own.id)
        elif gone != "erase_message":
            await getattr(memory.admin, gone)("user:ada" if gone == "erase" else "ada")
        left = ["zebra of ada"] if gone == "erase_message" else []
        for _ in range(2):
            report = await memory.admin.import_(exported, same_ids=same_ids)
            assert report.deleted_earlier == (1 if left else 2)
            texts = [entry.content for entry in await memory.retrieve("user:ada")]
            assert set(texts) == set(left)
            assert not list(await memory.search_messages("zebra"))
        if not same_ids:
            await memory.admin.import_(exported, revive=True)
            assert {"zebra", "zebra of ada"} <= {entry.content for entry in await memory.retrieve("user:ada")}


async def test_exports_keep_whose_a_session_is_and_that_it_is_shared(memory: Memory, other: Memory) -> None:
    await memory.session("ada's", user="ada", agent="a", namespace="n").append(user("secret", "m1"))
    await memory.session("both", user="ada", shared=True).append(user("hello", "m1"))
    exported = [line async for line in memory.admin.export()]
    report = await other.admin.import_(exported)
    assert (report.sessions, report.refused_lines) == (2, [])
    info = await other.session("ada's", user="ada", agent="a", namespace="n").info()
    assert (info.user, info.agent, info.namespace) == ("ada", "a", "n")
    with pytest.raises(SessionOwnerMismatch):
        await other.session("ada's", user="bob").info()
    assert [m.text for m in (await other.session("both", user="bob").context()).messages] == ["hello"]
    assert (await other.session("both").info()).user == "ada"


@pytest.mark.parametrize("field", ["user", "agent", "namespace"])
async def test_an_export_is_not_imported_into_a_session_of_another_owner(
    memory: Memory, other: Memory, field: str
) -> None:
    await memory.session("s", **{field: "ada"}).append(user("secret", "m1"))  # type: ignore[arg-type]
    exported = [line async for line in memory.admin.export()]
    there = await other.sessions.create("s", **{field: "bob"})  # type: ignore[arg-type]
    await there.append(user("mine", "x"))
    with pytest.raises(SessionOwnerMismatch, match=field) as raised:
        await other.admin.import_([*exported, user("also", "a")], messages_to="user:ada")
    assert "bob" not in str(raised.value)
    assert await other.retrieve("user:ada") == []
    report = await other.admin.import_(exported, skip_bad=True)
    assert (report.sessions, report.events, len(report.refused_lines)) == (0, 0, 2)
    assert [m.text for m in (await there.context()).messages] == ["mine"]
    assert not await other.search_messages("secret")
