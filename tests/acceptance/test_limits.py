"""What an entry may hold: the validation table, at each limit and one over it; nothing
is stored after a refusal.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory import InvalidInput
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import USER, watching

ACCEPTED: list[Any] = [
    pytest.param({"title": "x"}, id="title of 1"),
    pytest.param({"title": "é" * 200}, id="title of 200 chars"),
    pytest.param({"content": "x" * 65_536}, id="content of 65536 bytes"),
    pytest.param({"content": "é" * 32_768}, id="content of 65536 bytes in 32768 chars"),
    pytest.param({"content": "", "title": "carries it"}, id="no content under a title"),
    pytest.param({"content": " \n", "title": "carries it"}, id="blank content under a title"),
    pytest.param({"source": "s" * 200}, id="source of 200"),
    pytest.param({"source": ""}, id="empty source"),
    pytest.param({"tags": [f"t{n}" for n in range(32)]}, id="32 tags"),
    pytest.param({"tags": [f"t{n % 32}" for n in range(64)]}, id="32 different tags among 64"),
    pytest.param({"tags": ["x", "é" * 64]}, id="tags of 1 and 64"),
    pytest.param({"content": "\u0001\u001f\x7f\u2028\ufffe\U0010ffff"}, id="strange but legal characters"),
    pytest.param({"metadata": {"a": 2**63 - 1, "b": -(2**63)}}, id="the widest integers"),
    pytest.param({"metadata": {"a": 1.7976931348623157e308, "b": 5e-324}}, id="the widest numbers"),
    pytest.param({"metadata": {"": "", " ": None, "é": [[]], "a.b": {"$ne": None}}}, id="odd keys"),
]
REFUSED: list[Any] = [
    pytest.param("type", {"type": "note"}, id="type note"),
    pytest.param("type", {"type": "USER"}, id="type in capitals"),
    pytest.param("type", {"type": ""}, id="no type"),
    pytest.param("type", {"type": ["user"]}, id="type a list"),
    pytest.param("title", {"title": ""}, id="title of 0"),
    pytest.param("title", {"title": "x" * 201}, id="title of 201"),
    pytest.param("title", {"title": 5}, id="title a number"),
    pytest.param("content", {"content": ""}, id="no content and no title"),
    pytest.param("content", {"content": " \n\t "}, id="blank content and no title"),
    pytest.param("content", {"content": "", "title": " \n"}, id="no content under a blank title"),
    pytest.param("content", {"content": "x" * 65_537}, id="content of 65537 bytes"),
    pytest.param("content", {"content": "é" * 32_768 + "x"}, id="content of 65537 bytes in 32769 chars"),
    pytest.param("content", {"content": 5}, id="content a number"),
    pytest.param("content", {"content": b"x"}, id="content bytes"),
    pytest.param("content", {"content": None}, id="content none"),
    pytest.param("source", {"source": "s" * 201}, id="source of 201"),
    pytest.param("tags", {"tags": [f"t{n}" for n in range(33)]}, id="33 tags"),
    pytest.param("tags", {"tags": [""]}, id="tag of 0"),
    pytest.param("tags", {"tags": ["x" * 65]}, id="tag of 65"),
    pytest.param("tags", {"tags": "x"}, id="tags a text"),
    pytest.param("tags", {"tags": [1]}, id="tag a number"),
    pytest.param("tags", {"tags": {"a": 1}}, id="tags an object"),
    pytest.param("metadata", {"metadata": []}, id="metadata a list"),
    pytest.param("metadata", {"metadata": {"a": "x" * 65_537}}, id="metadata over 64 KiB"),
]
EMPTY = ("no content and no title", "blank content and no title", "no content under a blank title")
"""What an update may set: decision 007."""


@pytest.mark.behaviour("D1", "D2", "D3", "D4", "D5", "D8", "AC-D03")
@cells("given", ACCEPTED, shared=True)
async def test_what_is_within_the_limits_is_stored_to_the_letter(
    memory: Memory, given: dict[str, Any]
) -> None:
    body = {"content": "text"} | given
    entry = await memory.write(scope=USER, **body)
    read = await memory.get(entry.id)
    assert read is not None
    body = body if "tags" not in body else body | {"tags": list(dict.fromkeys(body["tags"]))}
    assert {name: getattr(read, name) for name in body} == body
    assert await memory.retrieve(USER, limit=1) == [read]


@pytest.mark.behaviour("D1", "D2", "D3", "D4", "D5", "D8", "D11", "A92", "AC-D03")
@cells("field, given", REFUSED, shared=True)
async def test_what_is_not_is_refused_by_name_and_nothing_is_stored(
    memory: Memory, field: str, given: dict[str, Any]
) -> None:
    body = {"content": "text"} | given
    with watching(memory) as calls:
        with pytest.raises(InvalidInput, match=field) as caught:
            await memory.write(scope=USER, **body)
        with pytest.raises(InvalidInput, match=field):
            await memory.write_many([{"content": "good", "scope": USER}, {"scope": USER, **body}])
    assert caught.value.field.startswith(field)
    assert calls == []
    assert await memory.retrieve(USER) == []


@pytest.mark.behaviour("D1")
@cells("kind", ["user", "feedback", "project", "reference", "learning", "context"], shared=True)
async def test_there_are_six_types(memory: Memory, kind: str) -> None:
    entry = await memory.write("typed", scope=USER, type=kind)
    assert entry.type == kind
    assert await memory.retrieve(USER, types=[kind]) == [entry]


@pytest.mark.behaviour("D14", "D11")
@cells("field, given", [p for p in REFUSED if p.id not in EMPTY], shared=True)
async def test_an_update_has_the_same_limits(memory: Memory, field: str, given: dict[str, Any]) -> None:
    entry = await memory.write("text", scope=USER)
    with watching(memory) as calls, pytest.raises(InvalidInput, match=field):
        await memory.update(entry.id, **given)
    assert calls == []
    assert await memory.get(entry.id) == entry


@pytest.mark.behaviour("D11")
async def test_a_late_mistake_in_a_long_batch_stores_nothing_of_it(memory: Memory) -> None:
    drafts: list[dict[str, Any]] = [{"content": f"row {n}", "scope": USER} for n in range(600)]
    for mistake in ({"tags": "x"}, {"created_at": "2999-01-01T00:00:00Z"}, {"unknown": 1}):
        with watching(memory) as calls, pytest.raises(InvalidInput, match=next(iter(mistake))):
            await memory.write_many([*drafts, {"content": "bad", "scope": USER, **mistake}])
        assert calls == []


async def test_a_message_that_is_too_large_is_refused_by_name(plain: Memory) -> None:
    session = plain.session("s1")
    with pytest.raises(
        InvalidInput, match=r"message\[1\]: exceeds 33554432 bytes\. Store larger data elsewhere"
    ):
        await session.append(
            [{"role": "user", "content": "fine"}, {"role": "user", "content": "é" * 2**24 + "x"}]
        )
    with pytest.raises(
        InvalidInput, match="message: exceeds 1048576 bytes, not counting texts of more than 65536 bytes"
    ):
        await session.append({"role": "user", "content": [{"type": "text", "text": "x" * 60_000}] * 18})
    with pytest.raises(InvalidInput, match="tool_call_id: exceeds 65536 bytes"):
        await session.append({"role": "tool", "content": "x", "tool_call_id": "c" * 70_000})
    with pytest.raises(InvalidInput, match="content: of the system message exceeds 65536 bytes"):
        await plain.session("s2", system="kind").update("system", content="kind" * 20_000)
    await session.append({"role": "user", "content": "x" * 2**25})
    assert (await session.context()).messages[0].text == "x" * 2**25


@pytest.mark.behaviour("D7", "AC-D03")
async def test_a_pin_alone_names_a_session_of_the_tenant_and_nothing_is_stored_where_there_is_none(
    memory: Memory,
) -> None:
    async with memory.for_tenant("another") as another:
        await another.sessions.create("c1")
    pinned: dict[str, Any] = {"content": "text", "scope": USER, "conversation_id": "c1"}
    for write in (
        lambda: memory.write(**pinned),
        lambda: memory.write_with_report(**pinned),
        lambda: memory.write(**pinned, key="k", if_exists="replace"),
        lambda: memory.write_many([{"content": "good", "scope": USER}, pinned]),
    ):
        with pytest.raises(InvalidInput, match="there is no session c1: nothing was written"):
            await write()
    assert await memory.retrieve(USER) == []
    elsewhere = [
        await memory.write(**pinned, number_in_conversation=1),
        await memory.write(**pinned, speaker="Ada"),
    ]
    await memory.sessions.create("c1")
    here = [await memory.write(**pinned), *await memory.write_many([pinned])]
    assert {one.id for one in await memory.browse(conversation="c1")} == {
        one.id for one in (*elsewhere, *here)
    }
    await memory.sessions.delete("c1")
    with pytest.raises(InvalidInput, match="there is no session c1"):
        await memory.write(**pinned)


async def test_all_pins_of_a_call_are_looked_up_at_once(memory: Memory) -> None:
    sessions = [f"c{n}" for n in range(20)]
    for session in sessions:
        await memory.sessions.create(session)
    with watching(memory) as calls:
        await memory.write_many(
            [{"content": "text", "scope": USER, "conversation_id": session} for session in sessions]
        )
    assert sum(call.endswith(".get") for call in calls) < 10, "and not one for each session"
