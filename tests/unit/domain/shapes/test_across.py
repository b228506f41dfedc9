"""From one framework's messages to another's: what they mean goes over; in their own
shape they are equal to what came, whatever they hold.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role, ToolCall
from memory.domain.shapes import FORMATS, export_messages, import_message
from memory.ports.contract.cells import cells
from tests.support.depth import drawn

OWN_PARTS = ("anthropic", "langchain", "openai", "plain")
"""Formats whose parts are stored as they came."""
FEW = settings(max_examples=drawn(60), deadline=None)
DATA_URL = "data:image/jpeg;base64,QUJD"
IMAGES: dict[str, dict[str, Any]] = {
    "openai": {"type": "image_url", "image_url": {"url": DATA_URL}},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"}},
    "langchain": {"type": "image", "source_type": "base64", "data": "QUJD", "mime_type": "image/jpeg"},
    "langchain v1": {"type": "image", "base64": "QUJD", "mime_type": "image/jpeg"},
}


def meaning(messages: list[Message], *, with_errors: bool = True) -> list[Any]:
    """Who says, asks, answers and thinks what."""
    return [
        (
            m.role,
            m.text,
            m.reasoning,
            [(c.id, c.name, json.loads(c.arguments)) for c in m.tool_calls],
            m.tool_call_id,
            m.is_error and with_errors,
        )
        for m in messages
    ]


def back(given: list[dict[str, Any]]) -> list[Message]:
    return [message for one in given for message in import_message(one)]


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
NAMES = st.text("abc_", min_size=1, max_size=6)
MAYBE_WORDS, MAYBE_NAMES = st.none() | WORDS, st.none() | NAMES
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=5,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=3)
OTHERS = st.dictionaries(st.sampled_from(["x_one", "x_two"]), JSON, max_size=2)
TEXTS = st.builds(lambda text, others: {"type": "text", "text": text, **others}, WORDS, OTHERS)


def some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields, or none of them."""
    return st.fixed_dictionaries({}, optional=optional)


def all_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


def merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda found: {name: value for one in found for name, value in one.items()})


def content(parts: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Any]:
    return WORDS | st.lists(parts, max_size=most)


OPENAI_CALLS = st.builds(
    lambda call_id, name, arguments, others: {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **others,
    },
    NAMES,
    NAMES,
    OBJECTS.map(json.dumps) | WORDS,
    OTHERS,
)
OPENAI_ANSWERS = some(
    content=MAYBE_WORDS,
    tool_calls=st.none() | st.lists(OPENAI_CALLS, max_size=3),
    refusal=MAYBE_WORDS,
    reasoning_content=WORDS,
    function_call=st.none(),
).filter(bool)
OPENAI = merged(
    st.one_of(
        all_of(
            role=st.sampled_from(["user", "system", "developer"]),
            content=content(TEXTS | st.just(IMAGES["openai"])),
        ),
        merged(all_of(role=st.just("assistant")), OPENAI_ANSWERS),
        all_of(role=st.just("tool"), tool_call_id=NAMES, content=content(TEXTS)),
    ),
    some(name=NAMES),
    OTHERS,
)
ANTHROPIC_BLOCKS = st.one_of(
    TEXTS,
    st.just(IMAGES["anthropic"]),
    st.builds(
        lambda i, n, a, o: {"type": "tool_use", "id": i, "name": n, "input": a, **o},
        NAMES,
        NAMES,
        OBJECTS,
        OTHERS,
    ),
    all_of(type=st.just("thinking"), thinking=WORDS, signature=WORDS),
    all_of(type=st.just("redacted_thinking"), data=WORDS),
    st.builds(lambda text: {"type": "document", "source": {"type": "text", "data": text}}, WORDS),
)
ANTHROPIC_RESULTS = merged(
    all_of(type=st.just("tool_result"), tool_use_id=NAMES),
    some(content=content(TEXTS), is_error=st.booleans()),
    OTHERS,
)
ANTHROPIC = merged(
    st.one_of(
        all_of(role=st.just("assistant"), content=content(ANTHROPIC_BLOCKS, 5)),
        all_of(role=st.just("user"), content=content(TEXTS | ANTHROPIC_RESULTS, 5)),
    ),
    OTHERS,
)
LANGCHAIN_CALLS = all_of(id=MAYBE_NAMES, name=NAMES, args=OBJECTS, type=st.just("tool_call"))
LANGCHAIN = st.one_of(
    st.tuples(
        st.just("human"),
        merged(
            all_of(content=content(TEXTS | WORDS)),
            some(additional_kwargs=OBJECTS, id=MAYBE_NAMES, name=MAYBE_NAMES),
            OTHERS,
        ),
    ),
    st.tuples(
        st.just("ai"),
        merged(
            some(content=WORDS, tool_calls=st.lists(LANGCHAIN_CALLS, max_size=3)).filter(bool),
            some(response_metadata=OBJECTS, usage_metadata=st.none() | OBJECTS),
        ),
    ),
    st.tuples(
        st.just("tool"),
        merged(
            all_of(content=WORDS, tool_call_id=NAMES),
            some(status=st.sampled_from(["success", "error"]), artifact=JSON),
        ),
    ),
).map(lambda found: {"type": found[0], "data": found[1]})
PLAIN = merged(
    all_of(role=st.sampled_from(["system", "user", "assistant", "tool"]), content=content(TEXTS)),
    some(
        id=NAMES,
        name=NAMES,
        at=st.sampled_from(["2026-01-31T09:30:00Z", "2026-01-31T10:30:00+01:00", 1_769_851_800]),
        metadata=OBJECTS,
        is_error=st.booleans(),
        tokens=st.integers(0, 9),
        tool_calls=st.lists(all_of(id=NAMES, name=NAMES, arguments=WORDS | OBJECTS), max_size=2),
    ),
    OTHERS,
)


@pytest.mark.behaviour("C10")
@FEW
@given(OPENAI)
def test_any_message_of_openai_goes_back_as_it_came(message: dict[str, Any]) -> None:
    assert export_messages(import_message(message), "openai") == [message]


@pytest.mark.behaviour("C10")
@FEW
@given(ANTHROPIC)
def test_any_message_of_anthropic_goes_back_as_it_came(message: dict[str, Any]) -> None:
    assert export_messages(import_message(message), "anthropic") == [message]


@pytest.mark.behaviour("C10")
@FEW
@given(LANGCHAIN)
def test_any_message_of_langchain_goes_back_as_it_came(message: dict[str, Any]) -> None:
    assert export_messages(import_message(message), "langchain") == [message]


@pytest.mark.behaviour("C10")
@FEW
@given(PLAIN)
def test_any_plain_message_goes_back_as_it_came(message: dict[str, Any]) -> None:
    assert export_messages(import_message(message), "plain") == [message]


@FEW
@given(st.one_of(OPENAI, ANTHROPIC, LANGCHAIN, PLAIN))
def test_what_was_stored_in_between_goes_back_as_it_came(message: dict[str, Any]) -> None:
    taken = import_message(message)
    stored = [Message.model_validate_json(one.model_dump_json()) for one in taken]
    assert stored == taken
    for shape in FORMATS:
        assert export_messages(stored, shape) == export_messages(taken, shape)
        json.dumps(export_messages(stored, shape))


@FEW
@given(
    st.sampled_from(FORMATS),
    st.lists(
        st.one_of(
            st.builds(Message, role=st.just(Role.USER), content=WORDS),
            st.builds(
                Message,
                role=st.just(Role.ASSISTANT),
                content=WORDS,
                reasoning=st.none() | NAMES,
                tool_calls=st.lists(
                    st.builds(ToolCall, id=NAMES, name=NAMES, arguments=OBJECTS.map(json.dumps)), max_size=2
                ),
            ),
            st.builds(
                Message, role=st.just(Role.TOOL), content=WORDS, tool_call_id=NAMES, is_error=st.booleans()
            ),
        ),
        max_size=5,
    ),
)
def test_text_calls_results_and_reasoning_go_over_to_any_shape(shape: str, messages: list[Message]) -> None:
    calls = {call.id for m in messages for call in m.tool_calls}
    said = [
        m
        for m in messages
        if (m.text or m.role is not Role.USER or shape == "plain")  # most have no empty text among parts
        and (shape != "vercel" or m.role is not Role.TOOL or m.tool_call_id in calls)  # it needs the call
    ]
    given = export_messages(said, shape)
    assert given.without_equivalent == [
        f"messages[{at}].{field}"
        for at, m in enumerate(said)
        for field, is_lost in (
            ("is_error", m.is_error and shape in ("openai", "ollama")),
            ("reasoning", m.reasoning and shape == "openai_responses"),
        )
        if is_lost
    ]
    found = [message for one in given for message in import_message(one, shape)]
    assert gist(found, shape) == gist(said, shape)


def gist(messages: list[Message], shape: str) -> list[Any]:
    """Who says, asks, answers and thinks what, as far as the format has a place for it.

    Some formats join what one speaker says, and some give no ids to calls.
    """
    told: list[Any] = []
    for m in messages:
        role = m.role.value
        if m.text and m.role is not Role.TOOL:
            told.append((role, "says", m.text))
        if m.reasoning and shape != "openai_responses":
            told.append((role, "thinks", m.reasoning))
        for call in m.tool_calls:
            told.append(("asks", call.name, json.loads(call.arguments)))
        if m.role is Role.TOOL:
            told.append(("answers", m.text, m.is_error and shape not in ("openai", "ollama")))
        if shape != "ollama":
            told += [("ids", [call.id for call in m.tool_calls], m.tool_call_id)] if m.tool_calls else []
    return told


@cells("source", IMAGES, shared=True)
@cells("shape", OWN_PARTS, shared=True)
def test_an_image_of_a_user_goes_over_to_any_shape(source: str, shape: str) -> None:
    parts = [{"type": "text", "text": "see"}, IMAGES[source]]
    given = (
        {"type": "human", "data": {"content": parts}}
        if "langchain" in source
        else {"role": "user", "content": parts}
    )
    (found,) = export_messages(import_message(given), shape)
    shown = found["data"]["content"] if shape == "langchain" else found["content"]
    own = source.split()[0] == shape
    assert shown == [
        parts[0],
        IMAGES[source] if own else IMAGES["anthropic" if shape == "anthropic" else "openai"],
    ]


def test_an_image_by_its_address_goes_over() -> None:
    (taken,) = import_message(
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}}],
        }
    )
    assert export_messages([taken], "anthropic")[0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}
    ]
    (taken,) = import_message(
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}]}
    )
    assert export_messages([taken], "openai")[0]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
    ]


def test_what_a_shape_does_not_know_becomes_a_text_that_names_it() -> None:
    file = {"type": "image", "source": {"type": "file", "file_id": "f1"}}
    paper = {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
    }
    note = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a note"}}
    (taken,) = import_message({"role": "user", "content": [file, paper, note]})
    assert [part["text"] for part in export_messages([taken], "openai")[0]["content"]] == [
        "[image]",
        "[document]",
        "a note",
    ]
    (result,) = import_message(
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [IMAGES["anthropic"]]}],
        }
    )
    assert export_messages([result], "openai")[0]["content"] == [{"type": "text", "text": "[image]"}]
    assert export_messages([result], "langchain")[0]["data"]["content"] == [IMAGES["openai"]]


def test_reasoning_of_another_framework_can_be_left_behind() -> None:
    foreign = Message(role=Role.ASSISTANT, content="so", reasoning="hm")
    for shape in ("openai", "anthropic", "langchain"):
        assert "hm" in json.dumps(export_messages([foreign], shape))
        assert "hm" not in json.dumps(export_messages([foreign], shape, foreign_reasoning=False))
    own = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "so"}],
    }
    assert export_messages(import_message(own), "anthropic", foreign_reasoning=False) == [own]


@pytest.mark.behaviour("C12")
@FEW
@given(st.one_of(OPENAI, ANTHROPIC, LANGCHAIN, PLAIN), st.sampled_from(FORMATS))
def test_what_is_given_shares_nothing_with_the_messages(message: dict[str, Any], shape: str) -> None:
    taken = import_message(message)
    before = [one.model_copy(deep=True) for one in taken]
    _spoil(export_messages(taken, shape))
    assert taken == before
    _spoil([message])
    assert taken == before


def _spoil(value: Any) -> None:
    """Everything in it that can be changed is."""
    if isinstance(value, dict):
        for inner in value.values():
            _spoil(inner)
        value["spoiled"] = True
    elif isinstance(value, list):
        for inner in value:
            _spoil(inner)
        value.append("spoiled")


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(InvalidInput, match="format"):
        export_messages([], "morse")


def test_objects_of_the_makers_own_libraries_are_taken() -> None:
    class Block:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {"type": "text", "text": "see", "citations": None}

    class Answer:
        role, content = "assistant", "so"

        def model_dump(self, **_: Any) -> dict[str, Any]:
            return {"role": "assistant", "content": "so", "refusal": None, "tool_calls": None}

    assert export_messages(import_message(Answer()), "openai") == [Answer().model_dump()]
    (found,) = export_messages(import_message({"role": "assistant", "content": [Block()]}), "anthropic")
    assert found == {"role": "assistant", "content": [Block().model_dump()]}
