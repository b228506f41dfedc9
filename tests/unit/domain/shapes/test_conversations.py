"""Conversations as each framework stores them come back equal.

Their text is where a search and a count find it.
"""

from __future__ import annotations

import copy
import json
import random
import re
from typing import Any

import pytest

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.shapes import FORMATS, export_messages, export_originals, import_messages
from memory.policies.tokens import DefaultCounter, message_tokens
from memory.ports.contract.cells import cells
from tests.support.conversations import drawn
from tests.support.depth import drawn as draws

SEEDS = range(draws(200))


def stored(messages: list[Message]) -> list[Message]:
    """Return them as a store returns them: as JSON, with ids of their records."""
    found = [Message.model_validate_json(one.model_dump_json(exclude_defaults=True)) for one in messages]
    return [one.model_copy(update={"id": one.id or f"record-{n}"}) for n, one in enumerate(found)]


@cells("format", FORMATS, shared=True)
def test_conversations_of_every_format_come_back_equal(format: str) -> None:
    for seed in SEEDS:
        given = drawn(format, seed)
        before = copy.deepcopy(given.items)
        messages = import_messages(given.items, format=format)
        assert given.items == before
        back = export_messages(stored(messages), format)
        if format == "plain":  # it is ours, and shows the ids that it got
            assert [one.pop("id") for one in back] == [f"record-{n}" for n in range(len(back))]
        assert back == before
        assert export_originals(stored(messages)) == before
        if not (format == "plain" or (format == "openai" and before[0]["role"] == "system")):
            assert back.without_equivalent == []


@cells("format", FORMATS, shared=True)
def test_the_text_of_every_format_is_where_it_is_searched_and_counted(format: str) -> None:
    counter = DefaultCounter()
    for seed in SEEDS:
        given = drawn(format, seed)
        messages = stored(import_messages(given.items, format=format))
        spoken = [one.text for one in messages if one.role in (Role.USER, Role.ASSISTANT)]
        for text in given.texts:
            assert any(text in one for one in spoken), (format, seed, text)
        answered = "\n".join(one.text for one in messages if one.role is Role.TOOL)
        for text in given.results:
            assert text in answered, (format, seed, text)
        said = "".join(given.texts) + "".join(given.results)
        assert sum(message_tokens(one, counter) for one in messages) >= counter.count(said)


@cells("format", FORMATS, shared=True)
def test_the_format_of_a_conversation_is_recognised(format: str) -> None:
    for seed in SEEDS:
        given = drawn(format, seed)
        messages = stored(import_messages(given.items))
        assert export_originals(messages) == given.items
        if format not in ("openai", "anthropic", "ollama"):  # some of their messages are plain
            assert {one.shape for one in messages} == {format}


@cells("format", FORMATS, shared=True)
def test_a_conversation_goes_over_to_another_format(format: str) -> None:
    for seed in range(draws(30, quick=10)):
        given = drawn(format, seed)
        messages = stored(import_messages(given.items, format=format))
        told = _told(messages)
        for other in ("openai", "anthropic", "bedrock", "gemini", "openai_responses", "langchain"):
            over = import_messages(export_messages(messages, other), format=other)
            assert _told(over) == told, (format, other, seed)


def _told(messages: list[Message]) -> Any:
    """Who says what in which order, and the calls with their results."""
    said = [
        (one.role, text)
        for one in messages
        for text in one.text.split("\n")
        if one.role in (Role.USER, Role.ASSISTANT) and text and not re.fullmatch(r"\[[\w -]+( \S+)?\]", text)
    ]
    calls = [(call.name, json.loads(call.arguments or "{}")) for one in messages for call in one.tool_calls]
    return said, calls, sum(one.role is Role.TOOL for one in messages)


@cells(
    "kept",
    [
        7,
        {},
        {"raw": {}},
        {"raw": {"role": "user"}, "texts": [[["a", "b"], ["content"]]]},
        {"raw": {"role": "user"}, "cuts": [[["a"], 3, 0]]},
        {"raw": {"role": "user"}, "of": ["g", "x"]},
        {"share": [], "of": ["g", 1, 2]},
        {"raw": {"role": "user"}, "kinds": [[["role"], "bytes"]], "of": ["g", 0, 1]},
    ],
    shared=True,
)
def test_a_damaged_original_is_made_anew_from_the_message(kept: Any) -> None:
    (message,) = import_messages([{"role": "user", "parts": [{"text": "hi"}]}])
    known = message.extra["original"]["digest"]
    message.extra["original"] = {**kept, "digest": known} if isinstance(kept, dict) else kept
    (shown,) = export_messages([message], "gemini")
    assert shown["role"] == "user" if "raw" not in kept_of(message) else isinstance(shown, dict)
    assert export_messages([message], "openai") == [{"role": "user", "content": "hi"}]


def kept_of(message: Message) -> dict[str, Any]:
    kept = message.extra["original"]
    return kept if isinstance(kept, dict) else {}


def test_a_message_of_an_unknown_shape_is_shown_as_a_plain_one() -> None:
    message = Message(role=Role.USER, content="hi", shape="morse")
    assert message.raw == {"role": "user", "content": "hi"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_message_with_any_change_comes_back_equal_or_is_refused(format: str) -> None:
    refused = kept = 0
    for seed in range(draws(60, quick=20)):
        chance = random.Random(f"change {format} {seed}")  # noqa: S311 - not for secrets
        for item in drawn(format, seed).items:
            _change(item, chance)
            given = copy.deepcopy(item)
            for name in (format, "auto"):
                try:
                    messages = stored(import_messages([item], format=name))
                except InvalidInput:
                    refused += 1
                    continue
                kept += 1
                assert item == given
                assert export_originals(messages) == [given], (seed, name)
                for other in FORMATS:
                    export_messages(messages, other)
    assert refused
    assert kept


def _change(value: Any, chance: random.Random) -> None:
    """Change one value somewhere in a message."""
    while isinstance(value, dict | list) and value:
        name: Any = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[name], dict | list) or not value[name] or chance.random() < 0.3:
            if chance.random() < 0.2 and isinstance(value, dict):
                del value[name]
            else:
                value[name] = chance.choice(
                    [None, "", "x", 7, -1.5, True, [], {}, ["y"], {"type": "x"}, [{}]]
                )
            return
        value = value[name]


def test_a_message_that_was_changed_in_memory_loses_its_original() -> None:
    (message,) = import_messages(
        [{"role": "user", "parts": [{"text": "the old text, which is a secret of ours"}]}]
    )
    message.content = "new"
    assert message.raw == {"role": "user", "parts": [{"text": "new"}]}
    (again,) = import_messages([message])
    assert "secret" not in again.model_dump_json()
    assert again.raw == message.raw
