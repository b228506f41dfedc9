"""Messages in every shape: each is stored with what it says or refused by its path, and
a context is one that providers accept.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict

from memory import BufferProvider, InvalidInput, Memory, SlidingWindowProvider
from memory.domain.validation import MOMENT_FIELDS
from memory.facade.chat_files import export_chat, import_chat, read_messages
from memory.formats import export_messages, system_prompt
from memory.ports.contract.cells import cells


class Kind(Enum):
    DINNER = "dinner"


class Place(StrEnum):
    INSIDE = "inside"


@dataclass(frozen=True)
class Table:
    seats: Decimal
    place: Place


class Booking(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    on: date
    kind: Kind
    table: Any = None


BOOKING = Booking(on=date(2026, 3, 1), kind=Kind.DINNER, table=Table(Decimal("4.50"), Place.INSIDE))
VALUES: dict[str, Any] = {
    "at": datetime(2026, 3, 1, 9, 30, tzinfo=UTC),
    "on": date(2026, 3, 1),
    "id": UUID(int=7),
    "price": Decimal("9.90"),
    "kind": Kind.DINNER,
    "table": Table(Decimal(4), Place.INSIDE),
    "parsed": [BOOKING],
}
STORED: dict[str, Any] = {
    "at": "2026-03-01T09:30:00Z",
    "on": "2026-03-01",
    "id": "00000000-0000-0000-0000-000000000007",
    "price": "9.90",
    "kind": "dinner",
    "table": {"seats": "4", "place": "inside"},
    "parsed": [{"on": "2026-03-01", "kind": "dinner", "table": {"seats": "4.50", "place": "inside"}}],
}

USER = {"role": "user", "content": "Weather in Porto?"}
WITHOUT_TEXT = [
    ("content", {"role": "user"}),
    ("content", {"role": "user", "content": "", "parts": [{"text": "I am Ada"}]}),
    ("content", {"role": "user", "text": "I am Ada"}),
    ("content", {"role": "assistant", "message": "I am Ada"}),
    ("content", {"role": "user", "contents": "I am Ada"}),
    ("content", {"role": "tool", "tool_call_id": "c1", "output": "22"}),
    (
        "content[1].text",
        {"role": "user", "content": [{"type": "text", "text": "I am"}, {"type": "text", "content": "Ada"}]},
    ),
    (
        "content[0].text",
        {"role": "assistant", "content": [{"type": "output_text", "text": {"value": "Ada"}}]},
    ),
    ("role", {"role": ["user"], "content": "I am Ada"}),
    ("role", {"role": {}, "content": "I am Ada"}),
    ("data.content", {"type": "human", "data": {"id": "x"}}),
]
EMPTY = [
    {"role": "tool", "tool_call_id": "c1", "content": ""},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "look", "arguments": {}}]},
    {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "assistant", "content": "", "reasoning": "hm"},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]},
    {"role": "user", "content": ""},
    {
        "type": "ai",
        "data": {
            "additional_kwargs": {
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
            }
        },
    },
]


def asks(*names: str, ids: bool = True) -> dict[str, Any]:
    calls = [
        {"function": {"name": name, "arguments": {"n": n}}} | ({"id": f"call{n}"} if ids else {})
        for n, name in enumerate(names)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def refusals(messages: list[dict[str, Any]]) -> list[str]:
    """What OpenAI and Anthropic refuse of a context in Anthropic's form: ids that come
    twice, calls and results that lack each other.
    """
    problems, ids = [], list[str]()
    for before, message in zip([{"content": ""}, *messages], [*messages, {"content": ""}], strict=True):
        used = [
            part["id"] for part in before["content"] if isinstance(part, dict) and part["type"] == "tool_use"
        ]
        answered = [
            part["tool_use_id"]
            for part in message["content"]
            if isinstance(part, dict) and part["type"] == "tool_result"
        ]
        problems += [f"{used} answered by {answered}"] * (used != answered)
        ids += used
    return problems + [f"twice: {ids}"] * (len(ids) != len(set(ids)))


def openai_refuses(messages: list[dict[str, Any]]) -> list[str]:
    """What OpenAI's API refuses of these messages."""
    problems, waiting, ids = [], set[str](), set[str]()
    for message in messages:
        if message["role"] == "tool":
            problems += [f"answers nothing: {message}"] * (
                message.get("tool_call_id") not in waiting or not isinstance(message["content"], str)
            )
            waiting.discard(message.get("tool_call_id", ""))
            continue
        problems += [f"without results: {waiting}"] * bool(waiting) + [f"old form: {message}"] * (
            message["role"] == "function"
        )
        for call in message.get("tool_calls") or ():
            is_sound = call["type"] == "function" and isinstance(
                json.loads(call["function"]["arguments"]), dict
            )
            problems += [f"bad: {call}"] * (
                not is_sound or not 0 < len(call["id"]) <= 40 or call["id"] in ids
            )
            waiting.add(call["id"])
            ids.add(call["id"])
    return problems + [f"without results: {waiting}"] * bool(waiting)


LONG = "look_" * 12


def of_ollama(*names: str) -> list[dict[str, Any]]:
    calls = [{"function": {"name": name, "arguments": {"n": n}}} for n, name in enumerate(names)]
    results = [{"role": "tool", "tool_name": name, "content": f"{name} {n}"} for n, name in enumerate(names)]
    return [
        USER,
        {"role": "assistant", "content": "", "tool_calls": calls},
        *reversed(results),
        {"role": "assistant", "content": "so"},
    ]


OTHER_SERVERS: dict[str, list[dict[str, Any]]] = {
    "ollama": [*of_ollama("f"), *of_ollama("f", "g", "f"), *of_ollama(LONG, LONG), *of_ollama("f")],
    "no arguments": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": None}}],
        },
        {"role": "tool", "name": "f", "content": "1"},
    ],
    "empty and long ids": [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": n, "function": {"name": "f", "arguments": "{}"}} for n in ("", "x" * 99)],
        },
        {"role": "tool", "tool_call_id": "", "name": "f", "content": "1"},
        {"role": "tool", "tool_call_id": "x" * 99, "content": "2"},
    ],
    "functions": [
        one
        for n in range(2)
        for one in (
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": str(n)},
        )
    ],
    "plain": [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "f", "arguments": {"n": 1}}, {"name": "f", "arguments": {"n": 2}}],
        },
        {"role": "tool", "name": "f", "content": "1"},
        {"role": "tool", "name": "f", "content": "2"},
    ],
}


@pytest.mark.behaviour("B53")
@pytest.mark.parametrize("server", OTHER_SERVERS)
async def test_what_came_from_other_servers_leaves_as_openai_takes_it(memory: Memory, server: str) -> None:
    session, given = memory.session("s1"), OTHER_SERVERS[server]
    await session.append(given)
    exported = await export_chat(session, "openai")
    assert openai_refuses(exported) == []
    assert exported == await export_chat(session, "openai"), "the same ids every time"
    assert [one["content"] or "" for one in exported] == [one["content"] or "" for one in given]
    context = await session.context()
    assert openai_refuses(context.to("openai", strict=True)) == []
    parts = [
        part
        for one in await export_chat(session, "anthropic")
        for part in one["content"]
        if isinstance(part, dict)
    ]
    ids = [part["id"] for part in parts if part["type"] == "tool_use"]
    assert len(ids) == len(set(ids)) == len([part for part in parts if part["type"] == "tool_result"])
    assert set(ids) == {part["tool_use_id"] for part in parts if part["type"] == "tool_result"}
    await import_chat(
        memory,
        "copy",
        read_messages(io.BytesIO(json.dumps(exported).encode()), "x.json"),
        lambda done, total: None,
    )
    copy = await memory.session("copy").context()
    assert (copy.invalid, copy.interrupted, len(copy.messages)) == ([], [], len(given))
    if server != "plain":
        shown = export_messages([item.message for item in (await session.history()).items], "openai")
        assert shown == given, "as it came, for the server it came from"


@cells("path, message", WITHOUT_TEXT, shared=True)
async def test_a_message_without_its_text_is_refused_by_its_path_and_none_is_stored(
    memory: Memory, path: str, message: dict[str, Any]
) -> None:
    session = memory.session("s1")
    for given, field in ((message, path), ([USER, message], f"message[1].{path}")):
        with pytest.raises(InvalidInput) as refused:
            await session.append(given)
        assert refused.value.field == field
    assert (await session.context()).messages == []


async def test_a_known_field_may_be_empty(memory: Memory) -> None:
    stored = await memory.session("s1").append(EMPTY)
    assert len(stored) == len(EMPTY)


@pytest.mark.behaviour("B53")
@pytest.mark.parametrize("field", ["tool_name", "name"])
@pytest.mark.parametrize("ids", [True, False])
async def test_results_without_an_id_answer_calls_by_name_and_in_order(
    memory: Memory, field: str, ids: bool
) -> None:
    session = memory.session("s1")
    for turn, names in enumerate((("f", "g", "f"), ("f",))):
        results = [{"role": "tool", field: name, "content": f"{name} {turn}"} for name in sorted(names)]
        await session.append([USER, asks(*names, ids=ids), *results, {"role": "assistant", "content": "so"}])
    context = await session.context()
    assert (context.invalid, context.interrupted) == ([], [])
    assert [message.text for message in context.messages if message.role == "tool"] == [
        "f 0",
        "f 0",
        "g 0",
        "f 1",
    ]
    calls = [call.id for message in context.messages for call in message.tool_calls][:3]
    assert [message.tool_call_id for message in context.messages if message.role == "tool"][:3] == [
        calls[0],
        calls[2],
        calls[1],
    ]
    if not ids:
        shown = context.to("anthropic")
        assert (
            len(
                {
                    part["id"]
                    for one in shown
                    for part in one["content"]
                    if isinstance(part, dict) and part["type"] == "tool_use"
                }
            )
            == 4
        )
        assert context.to("openai")[2] == {
            "role": "tool",
            field: "f",
            "content": "f 0",
        }  # as it came
    else:
        assert context.to("openai")[2]["tool_call_id"] == "call0"


@pytest.mark.behaviour("B53")
async def test_a_result_by_name_leaves_the_call_that_a_later_result_names_by_its_id(memory: Memory) -> None:
    session = memory.session("s1")
    await session.append([USER, asks("f", "f", "f"), {"role": "tool", "name": "f", "content": "of another"}])
    assert (await session.context()).interrupted == ["call1", "call2"]
    await session.append({"role": "tool", "tool_call_id": "call0", "content": "of call0"})
    context = await session.context()
    assert (context.invalid, context.interrupted) == ([], ["call2"])
    (mended,) = await session.repair_tool_calls()
    assert mended.tool_call_id == "call2"
    await session.append({"role": "tool", "name": "f", "content": "late"})
    context = await memory.session("s1").context()
    shown = {
        str(message.tool_call_id): message.text for message in context.messages if message.role == "tool"
    }
    assert shown == {"call0": "of call0", "call1": "of another", "call2": "late"}
    for provider in (SlidingWindowProvider(memory), BufferProvider(memory, max_tokens=1_000)):
        results = [
            {"role": "tool", "name": "f", "content": "1"},
            {"role": "tool", "tool_call_id": "call0", "content": "0"},
        ]
        await provider.write([USER, asks("f", "f"), *results, {"role": "assistant", "content": "so"}])
        read = await provider.read()
        assert [(message.text, message.tool_call_id) for message in read if message.role == "tool"] == [
            ("1", "call1"),
            ("0", "call0"),
        ]
        await provider.write([*read, USER])
        (entry,) = await provider.entries()
        assert [message.text for message in entry.messages] == [
            *[message.text for message in read],
            USER["content"],
        ]


@pytest.mark.behaviour("B53")
@pytest.mark.parametrize("ids", [True, False])
async def test_a_call_without_a_result_is_answered_in_a_context_and_stored_by_mending_only(
    memory: Memory, ids: bool
) -> None:
    session = memory.session("s1", system="Be kind.")
    await session.append(
        [
            USER,
            asks("f", "f", ids=ids),
            {"role": "tool", "name": "f", "content": "1"},
            USER,
            asks("f", ids=False),
            USER,
        ]
    )
    whole = await session.context()
    for budget in range(whole.total_tokens + 1):
        context = await session.context(budget)
        assert refusals(context.to("anthropic")) == []
        assert context.total_tokens - context.over_budget <= budget
    assert len(whole.interrupted) == 2
    assert whole.left_out == 0
    stored = [item.message.text for item in (await session.history()).items]
    await session.replace(whole.messages)
    assert [item.message.text for item in (await session.history()).items] == stored
    assert len(await session.repair_tool_calls()) == 2
    after = await session.context()
    assert after.interrupted == []
    assert [(m.role, m.text, m.tool_call_id) for m in after.messages] == [
        (m.role, m.text, m.tool_call_id) for m in whole.messages
    ]
    await session.append({"role": "tool", "name": "f", "content": "late"})
    late = await session.context()
    assert [m.text for m in late.messages if m.role == "tool"] == ["1", "TOOL_CALL_INTERRUPTED", "late"]
    assert refusals(late.to("anthropic")) == []


async def test_a_provider_reads_what_a_model_accepts_and_keeps_no_stand_in(memory: Memory) -> None:
    for provider in (SlidingWindowProvider(memory), BufferProvider(memory, max_tokens=100)):
        await provider.write([USER, asks("f")], "s")
        read = await provider.read("s")
        assert [message.text for message in read] == [USER["content"], "", "TOOL_CALL_INTERRUPTED"]
        await provider.write([*read, USER], "s")
        (entry,) = await provider.entries("s")
        assert [message.text for message in entry.messages] == [USER["content"], "", USER["content"]]


@pytest.mark.parametrize("more", [{}, {"by": "turns"}, {"slack": 0.3}, {"layered": True}])
async def test_a_context_within_a_budget_starts_at_a_message_of_the_user(
    memory: Memory, more: dict[str, Any]
) -> None:
    session = memory.session("s1", system="Be kind.")
    for n in range(6):
        result = {"role": "tool", "tool_call_id": "call0", "content": f"sunny {n}"}
        await session.append(
            [USER, asks("f"), result, {"role": "assistant", "content": f"It is sunny, answer {n}."}]
        )
    await session.compact(lambda _: "so far", keep_last=9)
    whole = await session.context()
    assert [m.role.value for m in whole.messages][:3] == ["system", "system", "assistant"]
    starts = set[str]()
    for budget in [*range(0, whole.total_tokens, 3), whole.total_tokens]:
        context = await session.context(budget, **more)
        assert next(m for m in context.messages if m.role != "system").role == "user"
        assert context.total_tokens - context.over_budget <= budget
        cut = await session.context(budget, start="any", **more)
        starts.add(next(m for m in cut.messages if m.role != "system").role.value)
    assert starts == {"user", "assistant"}
    assert next(m for m in (await session.context(last=3)).messages if m.role != "system").role == "assistant"
    assert (
        next(m for m in (await session.context(start="user")).messages if m.role != "system").role == "user"
    )
    alone = memory.session("s2")
    await alone.append([asks("f"), {"role": "tool", "tool_call_id": "call0", "content": "sunny"}])
    assert [m.role.value for m in (await alone.context(100)).messages] == ["assistant", "tool"]
    with pytest.raises(InvalidInput, match="start"):
        await alone.context(100, start="tool")  # type: ignore[arg-type]


def langchain(kind: str, content: str, **more: Any) -> Any:
    """A message as LangChain's objects are known: by their attributes."""
    return SimpleNamespace(type=kind, content=content, **more)


async def test_what_no_model_sees_is_stored_as_json_and_never_refuses_a_turn(memory: Memory) -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    odd = {
        "raw": b"x",
        "set": {1},
        "low": float("-inf"),
        "big": 2**70,
        "bad": "\ud800",
        "none": object(),
        7: "seven",
        "loop": loop,
    }
    broken = Booking(on=date(2026, 3, 1), kind=Kind.DINNER, table=object())
    session = memory.session("s1")
    given = [
        {
            "role": "user",
            "content": "book",
            "metadata": VALUES,
            "usage": {"cost": Decimal("0.1")},
            "parsed": BOOKING,
        },
        langchain(
            "ai",
            "booked",
            additional_kwargs={"parsed": BOOKING, "broken": broken},
            response_metadata={"logprobs": odd},
        ),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "name": "book", "arguments": {"on": date(2026, 3, 1)}}],
        },
        langchain("tool", "done", tool_call_id="c1", artifact=object(), status="success"),
    ]
    stored = await session.append(given)
    names = [name if isinstance(name, str) else str(name) for name in odd if name != 7]
    lost = sorted(f"response_metadata.logprobs.{name}" for name in names if name != "loop")
    assert sorted(stored[1].placeholders) == sorted(
        [*lost, "response_metadata.logprobs.loop.loop", "additional_kwargs.broken.table"]
    )
    assert [one.placeholders for one in (stored[0], stored[2], stored[3])] == [[], [], ["artifact"]]
    (first, second, third, fourth) = (await session.context()).messages
    assert (first.metadata, first.usage) == (STORED, {"cost": "0.1"})
    assert export_messages([first], "plain")[0]["parsed"] == STORED["parsed"][0]
    data = export_messages([second], "langchain")[0]["data"]
    assert data["additional_kwargs"]["parsed"] == STORED["parsed"][0]
    assert data["response_metadata"]["logprobs"]["low"] == {"$unserializable": "float -inf"}
    assert data["response_metadata"]["logprobs"]["7"] == "seven"
    assert export_messages([fourth], "langchain")[0]["data"]["artifact"] == {"$unserializable": "object"}
    assert json.loads(third.tool_calls[0].arguments) == {"on": "2026-03-01"}
    with pytest.raises(InvalidInput) as refused:
        await session.append(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c2", "name": "book", "arguments": {"on": object()}}],
            }
        )
    assert refused.value.field == "tool_calls[0].arguments.on"
    notes = await SlidingWindowProvider(memory).write(
        [{"role": "user", "content": "x", "artifact": object()}], "s2"
    )
    assert notes == ["messages[0].artifact is not JSON: a placeholder is stored"]


async def test_metadata_of_entries_take_the_same_types_and_refuse_others_by_path(memory: Memory) -> None:
    entry = await memory.write("x", scope="user:ada", metadata=VALUES)
    assert entry.metadata == STORED
    entry = await memory.update(entry.id, metadata={"id": UUID(int=8), "kind": Kind.DINNER})
    assert entry.metadata == STORED | {"id": str(UUID(int=8))}
    wanted: Any = {"id": UUID(int=8)}
    found = await memory.retrieve("user:ada", metadata=wanted)
    assert [one.id for one in found] == [entry.id]
    for metadata, path in (
        ({"conn": {"pool": [1, object()]}}, "metadata.conn.pool[1]"),
        ({"parsed": Booking(on=date(2026, 3, 1), kind=Kind.DINNER, table=object())}, "metadata.parsed.table"),
        ({"a": {1: "x"}}, "metadata.a"),
    ):
        with pytest.raises(InvalidInput) as refused:
            await memory.write("x", scope="user:ada", metadata=metadata)
        assert refused.value.field == path


def _unnamed(message: dict[str, Any]) -> dict[str, Any]:
    """Without the id that a session gave it, which a file may keep."""
    return {
        name: _unnamed(value) if name == "data" else value for name, value in message.items() if name != "id"
    }


NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


@pytest.mark.behaviour("A9")
@pytest.mark.parametrize("given", [BOOKING, VALUES["table"]], ids=["model", "dataclass"])
async def test_a_model_or_a_dataclass_is_a_mapping_wherever_one_is_wanted(memory: Memory, given: Any) -> None:
    stored = STORED["parsed"][0] | {"table": None} if given is BOOKING else STORED["table"]
    if given is BOOKING:
        given = Booking(on=date(2026, 3, 1), kind=Kind.DINNER)
    session = memory.session("s1", metadata=given)
    (message,) = await session.append(
        {"role": "assistant", "content": "x", "metadata": given, "usage": given, "parsed": given}
    )
    assert (message.metadata, message.usage, message.extra["fields"]["parsed"]) == (stored, stored, stored)
    assert (await session.info()).metadata == stored
    await memory.sessions.update("s1", metadata=given)
    assert (await session.tasks.save("t1", title="do", metadata=given)).metadata == stored
    assert (await session.runs.save("r1", child_id="s2", metadata=given)).metadata == stored
    entry = await memory.write("a table", scope="user:ada", metadata=given)
    (other,) = await memory.write_many([{"content": "another", "scope": "user:ada", "metadata": given}])
    edited = await memory.update((await memory.write("plain", scope="user:ada")).id, metadata=given)
    copied = await memory.promote(entry.id, to="org:acme", metadata=given)
    made = await memory.compact([other.id], lambda _: "one", metadata=given)
    for each in (entry, other, edited, copied, made):
        assert (found := await memory.get(each.id)) is not None
        assert stored.items() <= found.metadata.items()
    for wrong in ([given], "text", 7, type(given)):
        with pytest.raises(
            InvalidInput, match="metadata: must be a dict, a dataclass or a pydantic model, not "
        ):
            await memory.write("x", scope="user:ada", metadata=wrong)  # type: ignore[arg-type]


@pytest.mark.behaviour("D9")
@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), b"now", timedelta(1), {"year": 2026}, 10**400],
    ids=str,
)
async def test_what_is_no_moment_is_named_with_what_is_accepted(memory: Memory, value: Any) -> None:
    given = str(value) if isinstance(value, float) else type(value).__name__
    at = {"at": value}
    for said in (
        USER | at,
        {"type": "human", "data": {"content": "hello"} | at},
        {"type": "human", "data": {"content": "hello"}} | at,
    ):
        with pytest.raises(InvalidInput) as refused:
            await memory.session("s1").append(said)
        assert refused.value.field.endswith("at")
        assert given in refused.value.problem
        assert "write a datetime with a zone, ISO 8601 text such as" in refused.value.problem
    for field in ("created_at", "expires_at"):
        if not isinstance(value, timedelta | int):
            with pytest.raises(InvalidInput, match=rf"{field}: .*{given}.*: write a datetime with a zone"):
                await memory.write("x", scope="user:ada", **{field: value})


@pytest.mark.behaviour("D9")
@pytest.mark.parametrize(
    "value", ["2025-03-01T12:00:00Z", 1740830400, 1740830400000, "1740830400.000000", NOON]
)
async def test_a_moment_is_kept_under_each_of_its_names_and_the_first_listed_wins(
    memory: Memory, value: Any
) -> None:
    other = "2024-01-01T00:00:00Z"
    for number, name in enumerate(MOMENT_FIELDS):
        said = {"role": "user", "content": f"the {name}", name: value} | dict.fromkeys(
            MOMENT_FIELDS[number + 1 :], other
        )
        session = memory.session(f"s-{name}")
        await session.append(said)
        (item,) = (await session.history()).items
        assert item.message.at == NOON
        (shown,) = export_messages([item.message], "plain")
        assert _unnamed(shown) == said
        if not isinstance(value, datetime):
            await memory.admin.import_([said], scope=f"user:{name}")
            (entry,) = await memory.retrieve(f"user:{name}")
            assert entry.created_at == NOON
            assert entry.metadata == {"role": "user"} | dict.fromkeys(MOMENT_FIELDS[number + 1 :], other)


@pytest.mark.parametrize("shape", ["anthropic", "openai", "langchain", "plain"])
async def test_an_export_keeps_every_moment_and_comes_back_the_same(memory: Memory, shape: str) -> None:
    session = memory.session("live")
    calls = [{"id": f"c{n}", "name": "look", "arguments": {}} for n in range(2)]
    await session.append(
        [
            USER | {"at": NOON},
            {"role": "assistant", "content": "", "tool_calls": calls, "timestamp": 1740830405},
        ]
    )
    await session.append({"role": "tool", "tool_call_id": "c0", "content": "22"})
    await session.append(
        [
            {"role": "tool", "tool_call_id": "c1", "content": "25", "ts": "1740830410.5"},
            USER | {"date": "2025-03-02T12:00:00Z"},
        ]
    )
    await session.append({"type": "ai", "data": {"content": "So."}})
    items = (await session.history()).items
    moments = [item.message.at or item.created_at for item in items]
    file = json.dumps(await export_chat(session, shape)).encode()
    await import_chat(memory, "copy", read_messages(io.BytesIO(file), "chat.json"), lambda done, total: None)
    again = memory.session("copy")
    found = (await again.history()).items
    assert [(item.message.role, item.message.text) for item in found] == [
        (item.message.role, item.message.text) for item in items
    ]
    assert [item.message.at for item in found] == moments
    assert [_unnamed(one) for one in await export_chat(again, shape)] == [
        _unnamed(one) for one in json.loads(file)
    ]
    written = await memory.admin.import_(io.BytesIO(file), scope="user:ada", skip_bad=True)
    entries = await memory.retrieve("user:ada", order="oldest", limit=50)
    assert {entry.created_at for entry in entries} <= set(moments)
    assert written.imported or shape == "langchain"


async def test_results_with_messages_give_them_in_a_format_of_a_library(memory: Memory) -> None:
    session = memory.session("s1", system="be kind")
    await session.append([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])
    wanted = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
    ]
    context, history = await session.context(), await session.history()
    assert context.to("openai") == export_messages(context.messages, "openai") == wanted
    assert history.to("openai") == wanted
    assert context.to("anthropic") == wanted[1:]
    assert system_prompt(context.messages) == "be kind"
    with pytest.raises(InvalidInput, match="choose from openai, openai_responses, anthropic, langchain"):
        context.to("morse")
