"""`memory session …`: conversations carried in and out, listed, shown, ended and
erased, on a real database file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from memory import BlockingMemory
from memory.orchestrator.conversations.conversation import Conversation
from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")

OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "Where does Ada live?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"who": "Ada"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Porto"},
    {"role": "assistant", "content": "In Porto."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Where does Ada live?"}]},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"who": "Ada"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Porto"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "In Porto."}]},
]
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "human", "data": {"content": "Where does Ada live?", "additional_kwargs": {}}},
    {"type": "ai", "data": {"content": "In Porto.", "additional_kwargs": {}, "tool_calls": []}},
]
PLAIN: list[dict[str, Any]] = [
    {"role": "user", "content": "hello", "id": "u1", "mood": "good", "at": "2026-01-31T09:30:00Z"},
    {"role": "assistant", "content": "hello"},
]
SHAPES = {"openai": OPENAI, "anthropic": ANTHROPIC, "langchain": LANGCHAIN, "plain": PLAIN}


@pytest.fixture
def chat(memory: CommandLine) -> CommandLine:
    memory.ok("session", "import", memory.write_lines("chat.jsonl", *OPENAI))
    return memory


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def unnoted(told: list[Any], given: list[dict[str, Any]]) -> list[Any]:
    """What was exported, without the moments and ids that these messages did not come
    with.
    """
    for one, came in zip(told, given, strict=False):
        for fields, theirs in ((one, came), (one.get("data", {}), came.get("data", {}))):
            for name in {"at", "id"} - theirs.keys():
                fields.pop(name, None)
    return told


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_carried_in_comes_out_as_it_was(memory: CommandLine, shape: str) -> None:
    memory.ok("session", "import", memory.write_lines("chat.jsonl", *SHAPES[shape]))
    assert (
        unnoted(lines(memory.ok("session", "export", "chat", "--as", shape)), SHAPES[shape]) == SHAPES[shape]
    )
    assert unnoted(memory.json("session", "export", "chat", "--as", shape), SHAPES[shape]) == SHAPES[shape]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_that_came_without_a_moment_has_that_of_its_import(memory: CommandLine, shape: str) -> None:
    memory.ok("session", "import", memory.write_lines("chat.jsonl", *SHAPES[shape]))
    told = [
        one for one in memory.json("session", "export", "chat", "--as", shape) if one.get("role") != "system"
    ]
    noted = [one["created_at"] for one in memory.json("session", "show", "chat")["newest"]]
    assert {datetime.fromisoformat(one["at"]) for one in told} <= {
        datetime.fromisoformat(at) for at in (*noted, "2026-01-31T09:30:00Z")
    }
    if shape in ("plain", "langchain"):  # which have a place for ids
        memory.write_lines("again.jsonl", *told)
        assert memory.json("session", "import", "again.jsonl", "--id", "chat")["new"] == 0


def test_a_session_is_imported_for_its_user_agent_and_namespace(memory: CommandLine) -> None:
    memory.write_lines("chat.jsonl", *OPENAI)
    owner = ("--user", "ada", "--agent", "scout", "--namespace", "work")
    assert memory.json("session", "import", "chat.jsonl", *owner)["new"] == 5
    info = memory.json("session", "show", "chat")
    assert (info["user"], info["agent"], info["namespace"]) == ("ada", "scout", "work")
    assert [one["id"] for one in memory.json("session", "list", "--user", "ada")["sessions"]] == ["chat"]
    assert (
        memory.json("session", "import", "chat.jsonl")["new"]
        == memory.json("session", "import", "chat.jsonl", *owner)["new"]
        == 0
    )
    for option, name in zip(("--user", "--agent", "--namespace"), ("bob", "other", "home"), strict=True):
        memory.write_lines("chat.jsonl", *OPENAI, {"role": "user", "content": "of another"})
        refused = memory("session", "import", "chat.jsonl", option, name)
        assert refused.exit_code not in (0, 1)
        assert option[2:] in refused.stderr
    assert len(memory.json("session", "export", "chat")) == 5


@pytest.mark.parametrize("shape", SHAPES)
def test_what_comes_out_in_any_shape_goes_in_elsewhere(chat: CommandLine, shape: str) -> None:
    chat.ok("session", "export", "chat", "--as", shape, "-o", "out.jsonl")
    told = chat.json("session", "import", "out.jsonl", "-c", "other.db")
    assert (told["session_id"], told["new"]) == ("out", 5)
    spoken = chat.json("session", "context", "out", "-c", "other.db")["messages"]
    assert [(m["role"], m["content"]) for m in spoken if m["role"] in ("system", "user")] == [
        ("system", "You are kind."),
        ("user", "Where does Ada live?"),
    ]
    assert [m["tool_call_id"] for m in spoken if m["role"] == "tool"] == ["c1"]


def test_an_array_and_standard_input_are_read_too(memory: CommandLine) -> None:
    (memory.folder / "chat.json").write_text(json.dumps(OPENAI, indent=1))
    assert memory.json("session", "import", "chat.json") == {
        "session_id": "chat",
        "messages": 5,
        "new": 5,
        "left_out": 0,
        "already_there": 0,
    }
    assert memory.json("session", "import", "-", "--id", "s1", stdin=json.dumps(PLAIN))["new"] == 2
    refused = memory("session", "import", "-", stdin="[]")
    assert refused.exit_code == 2
    assert "--id" in refused.stderr
    assert memory("session", "import", "-", "--id", "s2", stdin="").exit_code == 1
    assert [one["id"] for one in memory.json("session", "list")["sessions"]] == ["s1", "chat"]


def test_the_same_file_again_says_nothing_twice_and_what_it_has_grown_by_once(chat: CommandLine) -> None:
    assert chat.json("session", "import", "chat.jsonl") == {
        "session_id": "chat",
        "messages": 5,
        "new": 0,
        "left_out": 0,
        "already_there": 5,
    }
    chat.write_lines(
        "chat.jsonl", *OPENAI, {"role": "user", "content": "hello"}, {"role": "user", "content": "hello"}
    )
    assert "2 messages added to session chat; 5 already existed" in chat.ok("session", "import", "chat.jsonl")
    assert len(chat.json("session", "export", "chat")) == 7


MIXED: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ],
    },
    {"role": "user", "content": "ok"},
    {"role": "user", "content": "ok"},
    *(
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "look", "arguments": {"n": n}}}],
        }
        for n in (1, 2)
    ),
    {"role": "tool", "tool_name": "look", "content": "ok"},
    {"role": "assistant", "content": "ok"},
]


@pytest.mark.parametrize("given", [OPENAI, ANTHROPIC, MIXED], ids=["openai", "anthropic", "mixed"])
def test_an_export_in_any_shape_adds_to_its_own_session_only_what_is_new(
    memory: CommandLine, given: list[dict[str, Any]]
) -> None:
    with BlockingMemory(f"sqlite:///{memory.folder / 'memory.db'}") as held:
        system = given[0]["content"] if given[0]["role"] == "system" else None
        for message in given if system is None else given[1:]:
            held.session("chat", system=system).append(message)
    for number, shape in enumerate(SHAPES):
        count = memory.json("session", "show", "chat")["message_count"]
        memory.ok("session", "export", "chat", "--as", shape, "-o", f"{shape}.jsonl")
        exported = lines((memory.folder / f"{shape}.jsonl").read_text())
        for _ in range(2):
            told = memory.json("session", "import", f"{shape}.jsonl", "--id", "chat")
            assert (told["new"], told["left_out"]) == (0, 0), shape
        grown = [
            {"role": "user", "content": f"more {number}"},
            {"role": "user", "content": "ok"},
            {"role": "user", "content": "ok"},
        ]
        memory.write_lines("grown.jsonl", *exported, *grown)
        assert [memory.json("session", "import", "grown.jsonl", "--id", "chat")["new"] for _ in range(2)] == [
            3,
            0,
        ]
        assert memory.json("session", "show", "chat")["message_count"] == count + 3


def test_a_file_that_goes_another_way_is_added_from_where_it_differs(chat: CommandLine) -> None:
    chat.write_lines(
        "other.jsonl", *OPENAI[1:2], {"role": "assistant", "content": "Who knows?", "at": 5_000}, OPENAI[4]
    )
    assert [chat.json("session", "import", "other.jsonl", "--id", "chat")["new"] for _ in range(2)] == [2, 0]
    assert [one["content"] for one in chat.json("session", "export", "chat")][4:] == [
        "In Porto.",
        "Who knows?",
        "In Porto.",
    ]


def test_an_export_brings_back_nothing_that_was_erased_or_edited_since_it_was_made(chat: CommandLine) -> None:
    chat.ok("session", "export", "chat", "--as", "openai", "-o", "out.jsonl")
    with BlockingMemory(f"sqlite:///{chat.folder / 'memory.db'}") as held:
        session = held.session("chat")
        where, _, _, answer = (str(item.message.id) for item in session.history().items[1:])
        session.erase(where)
        session.update(answer, content="In Faro.")
    assert chat.json("session", "import", "out.jsonl", "--id", "chat") == {
        "session_id": "chat",
        "messages": 5,
        "new": 0,
        "left_out": 2,
        "already_there": 3,
    }
    assert chat.json("session", "import", "out.jsonl", "--id", "chat", "--revive")["new"] == 2


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"role": "nobody", "content": "x"}, "line 3: role"),
        ("no object", "line 3: holds str where an object"),
        (
            {"role": "user", "content": "x", "id": "u1"},
            "line 3: id: 'u1' is already used above for other content. Change one of the ids",
        ),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(memory: CommandLine, bad: object, said: str) -> None:
    refused = memory("session", "import", memory.write_lines("chat.jsonl", *PLAIN, bad))
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert memory("session", "list").exit_code == 1


def test_an_import_that_ends_early_says_how_much_is_kept_and_goes_on(
    memory: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Conversation.carry_in, iter([None, KeyboardInterrupt()])

    async def failing(self: Conversation, *given: Any, **options: Any) -> Any:
        if (error := next(calls)) is not None:
            raise error
        return await real(self, *given, **options)

    monkeypatch.setattr(Conversation, "carry_in", failing)
    memory.write_lines("chat.jsonl", *({"role": "user", "content": f"n {n}"} for n in range(450)))
    ended = memory("session", "import", "chat.jsonl")
    assert ended.exit_code == 130
    assert (
        "200 of 450 messages are stored; import the same file again for the rest (no message is added twice)"
        in ended.stderr
    )
    monkeypatch.setattr(Conversation, "carry_in", real)
    assert memory.json("session", "import", "chat.jsonl") == {
        "session_id": "chat",
        "messages": 450,
        "new": 250,
        "left_out": 0,
        "already_there": 200,
    }
    told = memory.json("session", "export", "chat")
    assert [message["content"] for message in told] == [f"n {n}" for n in range(450)]


def test_a_file_brings_nothing_back_that_was_erased_edited_or_deleted_since(memory: CommandLine) -> None:
    named = [
        {"role": "user", "content": text, "id": text[:2]} for text in ("m1 zebra", "m2 yellow", "m3 stays")
    ]
    memory.write_lines("chat.jsonl", *named, {"role": "user", "content": "no id"})
    memory.ok("session", "import", "chat.jsonl")
    with BlockingMemory(f"sqlite:///{memory.folder / 'memory.db'}") as held:
        session = held.session("chat")
        session.erase("m1")
        session.erase(str(session.history().items[3].message.id))
        session.update("m2", content="changed")
    for _ in range(2):
        assert memory.json("session", "import", "chat.jsonl") == {
            "session_id": "chat",
            "messages": 4,
            "new": 0,
            "left_out": 3,
            "already_there": 1,
        }
        assert [one["content"] for one in memory.json("session", "export", "chat")] == [
            "",
            "changed",
            "m3 stays",
            "",
        ]
    assert "3 were erased or edited since and were not written (--revive writes them)" in memory.ok(
        "session", "import", "chat.jsonl"
    )
    assert memory.json("session", "import", "chat.jsonl", "--revive")["left_out"] == 0
    told = [one["content"] for one in memory.json("session", "export", "chat")]
    assert told == ["", "m2 yellow", "m3 stays", "", "m1 zebra", "no id"]
    memory.ok("session", "delete", "chat", "--yes")
    assert memory.json("session", "import", "chat.jsonl") == {
        "session_id": "chat",
        "messages": 4,
        "new": 0,
        "left_out": 4,
        "already_there": 0,
    }
    assert memory("session", "show", "chat").exit_code == 1
    assert memory.json("session", "import", "chat.jsonl", "--revive")["new"] == 4


def test_lists_tell_sessions_apart(chat: CommandLine) -> None:
    chat.ok("session", "import", chat.write_lines("other.jsonl", *PLAIN))
    chat.ok("session", "end", "other")
    listed = chat.json("session", "list")["sessions"]
    assert [(one["id"], one["status"], one["message_count"], one["preview"]) for one in listed] == [
        ("other", "ended", 2, "hello"),
        ("chat", "active", 5, "Where does Ada live?"),
    ]
    assert [one["id"] for one in chat.json("session", "list", "--status", "ended")["sessions"]] == ["other"]
    page = chat.json("session", "list", "-n", "1")
    assert [
        one["id"] for one in chat.json("session", "list", "-n", "1", "--cursor", page["cursor"])["sessions"]
    ] == ["chat"]
    shown = chat.ok("session", "list", "-n", "1")
    assert "hello" in shown
    assert f"more: --cursor {page['cursor']}" in shown


def test_context_shows_what_a_model_would_be_sent_and_what_was_left_out(chat: CommandLine) -> None:
    whole = chat.json("session", "context", "chat")
    assert [message["role"] for message in whole["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert whole["total_tokens"] == sum(whole["tokens"])
    budget = whole["tokens"][0] + whole["tokens"][1] + whole["tokens"][4]
    some = chat.json("session", "context", "chat", "--budget", str(budget))
    assert [message["content"] for message in some["messages"]] == [
        "You are kind.",
        "Where does Ada live?",
        "In Porto.",
    ]
    assert (len(some["left_out"]), some["total_tokens"]) == (2, budget)
    shown = chat.ok("session", "context", "chat", "--budget", str(budget))
    for words in (
        f"3 messages, {budget} tokens of {budget}",
        "2 messages left out",
        'look({"who": "Ada"})',
        *some["left_out"],
    ):
        assert words in shown
    assert "1 tokens over the budget" in chat.ok(
        "session", "context", "chat", "--budget", str(whole["tokens"][0] + whole["tokens"][1] - 1)
    )


def test_show_tells_what_became_of_each_message(chat: CommandLine) -> None:
    shown = chat.json("session", "show", "chat", "-n", "2")
    assert (shown["message_count"], [item["number"] for item in shown["newest"]]) == (5, [4, 5])
    assert shown["newest"][1]["message"]["content"] == "In Porto."
    text = chat.ok("session", "show", "chat")
    for words in ("chat: active", "Where does Ada live?", "in window"):
        assert words in text


def test_a_session_is_forked_at_a_message_and_the_first_stays(chat: CommandLine) -> None:
    first = chat.json("session", "show", "chat")
    at = next(item["message"]["id"] for item in first["newest"] if item["message"]["role"] == "user")
    assert chat.json("session", "fork", "chat", "--at", at, "--id", "again") == {
        "session_id": "again",
        "messages": 2,
        "forked_from": "chat",
    }
    assert unnoted(lines(chat.ok("session", "export", "again", "--as", "openai")), OPENAI) == OPENAI[:2]
    assert "starts with 5 messages of chat" in chat.ok("session", "fork", "chat")
    assert chat.json("session", "show", "chat") == first
    refused = chat("session", "fork", "chat", "--at", "nothing")
    assert (refused.exit_code, "message not found: nothing" in refused.stderr) == (1, True)


def test_a_session_that_has_ended_takes_nothing_and_one_that_is_erased_is_gone(chat: CommandLine) -> None:
    chat.ok("write", "Ada lives in Porto", "-s", "session:chat", "-t", "fact")
    assert len(chat.json("session", "end", "chat")["moved"]) == 1
    chat.write_lines("chat.jsonl", *OPENAI, {"role": "user", "content": "hello"})
    refused = chat("session", "import", "chat.jsonl")
    assert refused.exit_code == 6
    assert "resume it first" in refused.stderr
    assert chat("session", "delete", "chat").exit_code == 2
    assert chat.json("session", "delete", "chat", "--yes") == {"session_id": "chat", "deleted": True}
    assert chat("session", "delete", "chat", "--yes").exit_code == 1
    for words in (("show",), ("context",), ("export",), ("end",)):
        gone = chat("session", *words, "chat")
        assert gone.exit_code == 1
        assert "not found: chat" in gone.stderr


def test_every_table_fits_eighty_columns(chat: CommandLine) -> None:
    narrow = replace(chat, environ={**chat.environ, "COLUMNS": "80"})
    for words in (("list",), ("show", "chat"), ("context", "chat", "--budget", "20")):
        assert max(map(len, narrow.ok("session", *words).splitlines())) <= 80
