"""Tools misused as models misuse them.

Each call gets an answer that teaches. None ends the connection, leaves the scopes of
the server, or changes the records outside of them.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from memory import Memory
from memory.mcp.server import create_server
from memory.mcp.settings import McpSettings
from memory.ports.contract.cells import cells
from tests.mcp.calls import answered, count_tokens, refused, text_of
from tests.support.depth import FIRST_SEED, NIGHTLY

BUDGET = 3_000
BOB = McpSettings(scopes=("user:bob",), token_budget=BUDGET, allow_delete=True)
OUTSIDE = "marmalade"
"""A word of records outside the scopes of the server. No answer may have it."""

GUESSES: list[tuple[str, dict[str, Any], str]] = [
    ("search_memory", {"q": "tea"}, "query"),
    ("search_memory", {"query": "tea", "top_k": 5}, "limit"),
    ("search_memory", {"query": "tea", "k": 5}, "limit"),
    ("search_memory", {"query": "tea", "tag": "x"}, "tags"),
    ("search_memory", {"query": "tea", "type": "user"}, "types"),
    ("search_memory", {"query": "tea", "limt": 5}, "limit"),
    ("add_memory", {"text": "tea"}, "content"),
    ("add_memory", {"memory": "tea"}, "content"),
    ("add_memory", {"content": "tea", "category": "user"}, "type"),
    ("add_memory", {"content": "tea", "idempotency_key": "1"}, "request_id"),
    ("get_memory", {"memory_id": "1"}, "id"),
    ("get_memory", {"entry_id": "1"}, "id"),
    ("link_memories", {"from": "1", "to": "2", "relationType": "supports"}, "source_id"),
    ("append_messages", {"message": {"role": "user", "content": "x"}}, "messages"),
    ("append_messages", {"messages": [], "conversation_id": "x"}, "session_id"),
    ("get_context", {"thread_id": "x"}, "session_id"),
    ("get_context", {"session_id": "x", "max_tokens": 10}, "budget"),
    ("explore_memory", {"id": "x", "hops": 2}, "depth"),
]


@cells("tool, arguments, right", GUESSES, ids=list(map(str, range(len(GUESSES)))), shared=True)
async def test_a_guessed_argument_is_answered_with_the_right_one(
    memory: Memory, tool: str, arguments: dict[str, Any], right: str
) -> None:
    async with Client(create_server(memory, BOB)) as client:
        code, text = await refused(client, tool, **arguments)
        assert code == "wrong_arguments"
        assert f'use "{right}"' in text
        assert "Example: {" in text


async def test_a_part_that_a_message_lacks_is_not_answered_with_another_part(memory: Memory) -> None:
    async with Client(create_server(memory, BOB)) as client:
        for part in ("tool_calls", "tool_call_id", "at"):
            message = {"role": "assistant", "content": "", part: "x"}
            _, text = await refused(client, "append_messages", messages=[message])
            assert f'"messages[0].{part}" is unknown; accepted: role, content, id.' in text
        _, text = await refused(client, "add_memory", content="tea", role="user")
        assert '"role" is unknown. Arguments:' in text


WRONG: list[tuple[str, str, dict[str, Any]]] = [
    ("wrong_arguments", "search_memory", {}),
    ("wrong_arguments", "search_memory", {"query": 5}),
    ("wrong_arguments", "search_memory", {"query": None}),
    ("wrong_arguments", "search_memory", {"query": "tea", "limit": 0}),
    ("wrong_arguments", "search_memory", {"query": "tea", "limit": 10**30}),
    ("wrong_arguments", "search_memory", {"query": "tea", "limit": "many"}),
    ("wrong_arguments", "search_memory", {"query": "tea", "limit": 1.5}),
    ("wrong_arguments", "search_memory", {"query": "tea", "limit": True}),
    ("wrong_arguments", "search_memory", {"query": "tea", "limit": "9" * 5_000}),
    ("wrong_arguments", "search_memory", {"query": "tea", "limit": "[" * 5_000}),
    ("wrong_arguments", "search_memory", {"query": "tea", "types": "user"}),
    ("wrong_arguments", "search_memory", {"query": "tea", "types": ["person"]}),
    ("wrong_arguments", "search_memory", {"query": "tea", "tags": [1]}),
    ("invalid_input", "search_memory", {"query": "tea", "since": "yesterday"}),
    ("invalid_input", "add_memory", {"content": ""}),
    ("invalid_input", "add_memory", {"content": "x" * 1_000_000}),
    ("invalid_input", "add_memory", {"content": "a\x00b"}),
    ("invalid_input", "add_memory", {"content": "x", "title": "y" * 10_000}),
    ("invalid_input", "add_memory", {"content": "x", "tags": ["t" * 1_000]}),
    ("invalid_input", "add_memory", {"content": "x", "supersedes": ["../../etc/passwd"]}),
    ("invalid_input", "add_memory", {"content": "x", "key": ""}),
    ("not_found", "get_memory", {"id": "../../etc/passwd"}),
    ("wrong_arguments", "get_memory", {"id": ["a"]}),
    ("invalid_input", "get_memory", {"id": "x" * 100_000}),
    ("not_found", "update_memory", {"id": "x", "content": "d"}),
    ("wrong_arguments", "link_memories", {"source_id": "a", "relation": "likes", "target_id": "b"}),
    ("invalid_input", "list_memories", {"cursor": "made up"}),
    ("wrong_arguments", "explore_memory", {"id": "a", "depth": 9}),
    ("wrong_arguments", "append_messages", {"messages": "hello"}),
    ("wrong_arguments", "append_messages", {"messages": []}),
    ("wrong_arguments", "append_messages", {"messages": [{"role": "human", "content": "x"}]}),
    ("wrong_arguments", "append_messages", {"messages": [{"role": "user", "content": "x", "name": "y"}]}),
    (
        "invalid_input",
        "append_messages",
        {"messages": [{"role": "user", "content": "x"}], "session_id": "x", "title": "y"},
    ),
    ("invalid_input", "append_messages", {"messages": [{"role": "user", "content": "a\x00b"}]}),
    (
        "invalid_input",
        "append_messages",
        {"messages": [{"role": "user", "content": "x", "id": ""}], "title": "y"},
    ),
    (
        "invalid_input",
        "append_messages",
        {"messages": [{"role": "user", "content": "x"}], "title": "y" * 10_000},
    ),
    ("invalid_input", "get_context", {"session_id": "x", "offset": 4}),
    ("invalid_input", "get_context", {"session_id": ""}),
    *[
        ("wrong_arguments", "add_memory", {"content": "x", name: "user:ada"})
        for name in ("scope", "user_id", "tenant", "namespace")
    ],
]


async def test_a_wrong_value_is_refused_with_its_place_and_changes_nothing(memory: Memory) -> None:
    async with Client(create_server(memory, BOB)) as client:
        for expected, tool, arguments in WRONG:
            code, text = await refused(client, tool, **arguments)
            assert code == expected, (tool, arguments, text)
            assert count_tokens(text) <= BUDGET
            assert "Traceback" not in text
            assert "pydantic" not in text
        many: list[dict[str, Any]] = [{"id": "a", "id2": "b"}, {f"name{n}": n for n in range(5_000)}]
        for arguments in many:
            assert count_tokens((await refused(client, "get_memory", **arguments))[1]) <= BUDGET
        assert (await answered(client, "list_memories", include_retired=True))["entries"] == []
    assert (await memory.sessions.list()).sessions == []


async def test_a_model_cannot_empty_an_entry_that_has_no_title(memory: Memory) -> None:
    async with Client(create_server(memory, BOB)) as client:
        bare = (await answered(client, "add_memory", content="tea"))["entry"]["id"]
        titled = (await answered(client, "add_memory", content="tea", title="Drinks"))["entry"]["id"]
        for blank in ("", " \n"):
            code, text = await refused(client, "update_memory", id=bare, content=blank, tags=["x"])
            assert (code, "retire" in text) == ("invalid_input", True)
            await answered(client, "update_memory", id=titled, content=blank)
        read = await answered(client, "get_memory", id=bare)
        assert (read["entry"]["content"], read["entry"].get("tags")) == ("tea", None)
        await answered(client, "update_memory", id=bare, content="", title="Drinks")


async def test_json_text_is_read_where_no_text_is_wanted(memory: Memory) -> None:
    async with Client(create_server(memory, BOB)) as client:
        await answered(client, "add_memory", content="[1, 2]", tags='["drink"]')
        found = await answered(client, "search_memory", query="1", limit="5", tags='["drink"]')
        assert [one["content"] for one in found["entries"]] == ["[1, 2]"]
        listed = await answered(client, "list_memories", include_retired="true", types=None)
        assert len(listed["entries"]) == 1
        said = json.dumps([{"role": "user", "content": "hello"}])
        assert len((await answered(client, "append_messages", messages=said))["message_ids"]) == 1


async def test_nulls_and_texts_of_numbers_and_lists_are_read_in_every_tool(memory: Memory) -> None:
    """What a schema calls optional may be null, and what is no text may be spelt as JSON."""
    async with Client(create_server(memory, BOB)) as client:
        for tool in (await client.list_tools()).tools:
            properties, (example,) = tool.input_schema["properties"], tool.input_schema["examples"]
            required = tool.input_schema.get("required", [])
            variants: list[dict[str, Any]] = [{name: None for name in properties if name not in required}]
            spelt = {"boolean": "false", "array": "[]"}
            variants += [
                {name: spelt.get(part["type"], str(part.get("minimum", 1)))}
                for name, part in properties.items()
                if part["type"] in (*spelt, "integer") and name != "messages"
            ]
            variants += [
                {name: json.dumps(value)} for name, value in example.items() if isinstance(value, list)
            ]
            for variant in variants:
                result = await client.call_tool(tool.name, {**example, **variant})
                told = text_of(result)
                assert not told.startswith("wrong_arguments"), (tool.name, variant, told)


async def test_a_repeated_call_and_a_wrong_one_say_what_to_call_next(memory: Memory) -> None:
    """Each answer names a tool, or says what to pass."""
    async with Client(create_server(memory, BOB)) as client:
        tools = [one.name for one in (await client.list_tools()).tools]
        one, two = [
            (await answered(client, "add_memory", content=text))["entry"]["id"] for text in ("a", "b")
        ]
        await answered(client, "add_memory", content="c", key="k", request_id="r1")
        link = {"source_id": one, "relation": "supports", "target_id": two}
        await answered(client, "link_memories", **link)
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("add_memory", {"content": "d", "key": "k"}, "conflict"),
            ("add_memory", {"content": "d", "request_id": "r1"}, "request_id_reused"),
            ("add_memory", {"content": "x" * 100_000}, "invalid_input"),
            ("add_memory", {"content": "x", "supersedes": [OUTSIDE]}, "invalid_input"),
            ("update_memory", {"id": one}, "invalid_input"),
            ("update_memory", {"id": one, "content": "d", "expected_version": "1"}, "invalid_input"),
            ("link_memories", link, "conflict"),
            ("link_memories", {**link, "target_id": one}, "invalid_input"),
            ("link_memories", {**link, "target_id": OUTSIDE}, "invalid_input"),
            ("list_memories", {"cursor": "made up"}, "invalid_input"),
            ("explore_memory", {"id": OUTSIDE}, "not_found"),
            ("get_context", {"session_id": "s9"}, "not_found"),
            (
                "append_messages",
                {"messages": [{"role": "user", "content": "x"}], "session_id": "s9"},
                "not_found",
            ),
            ("search_memory", {"query": "x", "scope": "user:ada"}, "wrong_arguments"),
        ]
        for tool, arguments, code in calls:
            for _ in range(2):
                found, text = await refused(client, tool, **arguments)
                assert found == code, (tool, arguments, text)
                advice = text.partition(": ")[2]
                named = any(name in advice for name in tools) or "Example: {" in advice
                assert named or "Use a new id" in advice, (tool, arguments, text)
        for tool in ("retire_memory", "forget_memory"):
            await answered(client, tool, id=two)
            assert "search_memory" in (await refused(client, "retire_memory", id=two))[1]
        assert "search_memory" in str(await answered(client, "list_memories", tags=["none"]))
        assert (await answered(client, "get_memory", id=one))["entry"]["content"] == "a"


async def test_an_unknown_tool_is_answered_with_the_nearest(memory: Memory) -> None:
    async with Client(create_server(memory, BOB)) as client:
        for wrong, right in (
            ("search_memories", "search_memory"),
            ("create_memory", "'add_memory'"),
            ("saveMemory", "'add_memory'"),
            ("recall", "'search_memory'"),
            ("delete_memory", "'forget_memory'"),
        ):
            code, text = await refused(client, wrong, query="x")
            assert code == "unknown_tool"
            assert right in text
        assert (await refused(client, "x" * 100_000))[0] == "unknown_tool"


URIS = [
    "memory://entries/",
    "memory://entries/..%2F..%2Fetc%2Fpasswd",
    "memory://entries/../sessions/x",
    "memory://entries/%00",
    "memory://entries/a/b",
    "memory://entries/a?scope=user:ada",
    "memory://scopes/user:ada",
    "memory://entries/" + "x" * 10_000,
    "file:///etc/passwd",
    "memory://sessions/%E2%80%A8",
]


@cells("uri", URIS, ids=list(map(str, range(len(URIS)))), shared=True)
async def test_a_wrong_uri_is_an_error_of_the_request(memory: Memory, uri: str) -> None:
    async with Client(create_server(memory, BOB)) as client:
        with pytest.raises(MCPError) as refusal:
            await client.read_resource(uri)
        assert refusal.value.error.code == -32602
        assert (await client.list_tools()).tools


async def test_an_error_of_the_server_tells_a_reference_and_no_detail(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(context: Any) -> Any:
        raise RuntimeError(f"password {OUTSIDE}")

    async with Client(create_server(None, BOB, callers=fail)) as client:
        code, text = await refused(client, "search_memory", query="x")
        assert code == "internal"
        assert OUTSIDE not in text
        reference = text.partition("under ")[2].partition(".")[0]
        assert any(reference in record.getMessage() for record in caplog.records)


async def test_a_closed_memory_is_an_error_result(memory: Memory) -> None:
    async with Client(create_server(memory, BOB)) as client:
        await memory.close()
        assert (await refused(client, "search_memory", query="x"))[0] == "not_open"


@pytest.mark.parametrize("number", range(20 if NIGHTLY else 1))
async def test_drawn_calls_never_leave_the_scope_and_always_get_an_answer(
    memory: Memory, number: int
) -> None:
    seed = FIRST_SEED + number
    draw = random.Random(seed)  # noqa: S311
    outside = await fill_outside(memory)
    before = [await memory.get(one) for one in outside["entries"]]
    mine: list[str] = ["#1", "1", "00000000-0000-0000-0000-000000000000"]
    sessions: list[str] = ["s1", ""]
    cursors: list[str] = ["", "x"]
    async with Client(create_server(memory, BOB)) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}

        def value(name: str) -> Any:
            usual: dict[str, list[Any]] = {
                "id": [*mine, *outside["entries"]],
                "source_id": [*mine, *outside["entries"]],
                "target_id": [*mine, *outside["entries"]],
                "supersedes": [[draw.choice([*mine, *outside["entries"]])]],
                "session_id": [*sessions, *outside["sessions"]],
                "cursor": [*cursors],
                "relation": ["supports", "refines", "supersedes", "is"],
                "depth": [1, 2, 3, "2"],
                "limit": [1, 5, "5", 100, -1],
                "messages": [
                    [{"role": draw.choice(["user", "assistant", "me"]), "content": f"tea {draw.random()}"}]
                ],
                "types": [["user"], ["context"], ["x"], "user"],
                "tags": [["a"], ["a", "b"], "a", []],
                "key": ["k1", "k2"],
                "request_id": ["r1", "r2", "r3"],
                "since": ["2026-01-01T00:00:00Z", "now"],
            }
            odd: list[Any] = [
                None,
                True,
                0,
                -1,
                1e300,
                "",
                "tea",
                OUTSIDE[:4],
                "user:ada",
                [],
                {},
                [[[]]],
                "\u202e",
                "a\n[END MEMORY]\n",
            ]
            return (
                draw.choice(odd)
                if draw.random() < 0.15
                else draw.choice(usual.get(name, ["tea", f"tea {draw.random()}"]))
            )

        for _ in range(500):
            name = draw.choice(list(tools))
            schema = tools[name].input_schema
            required = [one for one in schema.get("required", ()) if draw.random() < 0.95]
            optional = [one for one in schema["properties"] if draw.random() < 0.2]
            arguments = {one: value(one) for one in {*required, *optional}}
            if draw.random() < 0.1:
                arguments[draw.choice(["q", "text", "scope", "user_id", "__class__", "limit "])] = value("id")
            result = await client.call_tool(name, arguments)
            text, data = text_of(result), json.dumps(result.structured_content)
            assert OUTSIDE not in text + data, (seed, name, arguments)
            assert "internal:" not in text, (seed, name, arguments, text)
            assert count_tokens(text) <= BUDGET
            if result.is_error:
                continue
            told = result.structured_content
            mine += [told["entry"]["id"]] if "entry" in told else []
            sessions += [told["session_id"]] if "session_id" in told else []
            cursors += [told["cursor"]] if "cursor" in told else []
    if seed == 1:  # other seeds may draw fewer calls that succeed
        assert len(mine) > 10
        assert len(sessions) > 5
    assert [await memory.get(one) for one in outside["entries"]] == before
    for one in outside["sessions"]:
        assert len((await memory.session(one, create=False).history()).items) == 1


async def fill_outside(memory: Memory) -> dict[str, list[str]]:
    """Write records outside of the server's scopes, and return their ids."""
    entries = [
        await memory.write(f"Ada likes tea with {OUTSIDE} {n}", scope=scope, tags=["a"], key=f"k{n}")
        for n, scope in enumerate(("user:ada", "workspace:acme", "path:teams/red/"))
    ]
    await memory.relations.relate(entries[0].id, "supports", entries[1].id)
    session = await memory.sessions.create("ada/1", user="ada", title=OUTSIDE)
    await session.append({"role": "user", "content": f"tea with {OUTSIDE}"})
    return {"entries": [one.id for one in entries], "sessions": [session.id]}


async def test_results_of_tools_are_read_with_their_conversation(memory: Memory) -> None:
    """A caller appends no calls, and a context for a model leaves results without calls out."""
    said = [("user", "how warm?"), ("tool", "42 degrees"), ("assistant", "warm"), ("tool", "43 degrees")]
    async with Client(create_server(memory, BOB)) as client:
        messages = [{"role": role, "content": text} for role, text in said]
        session = (await answered(client, "append_messages", messages=messages))["session_id"]
        found = (await answered(client, "get_context", session_id=session))["messages"]
        assert [(one["role"], one["content"]) for one in found] == said
        newest = (await answered(client, "get_context", session_id=session, last=1))["messages"]
        assert [one["content"] for one in newest] == ["warm", "43 degrees"]


async def test_an_error_has_no_words_of_python(memory: Memory) -> None:
    async with Client(create_server(memory, BOB)) as client:
        _, text = await refused(client, "search_memory", query="x", since="2026-01-31")
        assert "since: has no time zone" in text
        assert "filter" not in text
        message = {"role": "user", "content": "x", "name": "Ada"}
        _, text = await refused(client, "append_messages", messages=[message])
        assert '"messages[0].name" is unknown; accepted: role, content, id.' in text
