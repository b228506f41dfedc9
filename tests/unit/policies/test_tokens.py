"""What messages and tools cost: 4 a message, and what their text comes to by classes of
characters.

`token_counts.json` has texts of each kind, with their number of tokens as cl100k counts
them.
"""

from __future__ import annotations

import json
import time
import timeit
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.domain.message import ToolCall
from memory.policies.tokens import PART_TOKENS, message_tokens, tools_tokens
from memory.ports.contract.cells import cells
from memory.ports.tokens import TokenCounter
from tests.support.depth import drawn
from tests.unit.policies.talk import COUNTER, said

SAMPLES = Path(__file__).with_name("token_counts.json")
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Weather of a city", "parameters": {"type": "object"}},
    }
]


@dataclass(frozen=True)
class Words:
    """Another counter: a token a word."""

    name: str = "words"

    def count(self, text: str) -> int:
        return len(text.split())


@pytest.mark.behaviour("C16", "AC-C11", "A111")
@cells(
    "text, tokens",
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("a" * 1000, 250),
        ("word " * 400, 500),
        ("Hello world", 3),
    ],
    shared=True,
)
def test_four_characters_are_a_token_and_a_part_of_one_is_one(text: str, tokens: int) -> None:
    assert COUNTER.count(text) == tokens


@pytest.mark.behaviour("A111", "B45", "AC-B41")
@cells("sample", json.loads(SAMPLES.read_text()), ids=lambda sample: sample["kind"], shared=True)
def test_the_estimate_is_at_most_a_tenth_below_and_a_third_above_the_true_count(
    sample: dict[str, Any],
) -> None:
    assert 0.9 <= COUNTER.count(sample["text"]) / sample["tokens"] <= 1.35


@pytest.mark.behaviour("B45", "AC-B41")
def test_characters_of_several_classes_are_summed_before_they_are_rounded() -> None:
    assert COUNTER.count("世界世界世界世界") == 12  # 8 of 1.45
    assert COUNTER.count("世") == 2
    assert COUNTER.count("Hello世界") == 5  # 1.25 + 2.9, rounded up once
    assert COUNTER.count("{}") == COUNTER.count("f()") == 1


@pytest.mark.behaviour("A113")
@settings(max_examples=drawn(200), deadline=None)
@given(st.text(), st.text(), st.text())
def test_a_longer_text_never_costs_less(before: str, text: str, behind: str) -> None:
    assert COUNTER.count(text) <= COUNTER.count(before + text + behind)


@pytest.mark.behaviour("A113")
@settings(max_examples=drawn(200), deadline=None)
@given(st.text("aB1 ,({})\n世é", max_size=40))
def test_every_character_more_costs_no_less(text: str) -> None:
    prefixes = [COUNTER.count(text[:length]) for length in range(len(text) + 1)]
    suffixes = [COUNTER.count(text[len(text) - length :]) for length in range(len(text) + 1)]
    assert prefixes == sorted(prefixes)
    assert suffixes == sorted(suffixes)


@pytest.mark.behaviour("A113", "A112")
def test_the_step_at_a_hundred_characters_that_the_published_estimate_has_is_not_there() -> None:
    counts = [COUNTER.count("a" * length) for length in range(300)]
    assert counts == sorted(counts)


@pytest.mark.behaviour("C16", "AC-C11", "AC-B41")
def test_a_message_costs_four_and_its_text() -> None:
    assert [message_tokens(said(*one), COUNTER) for one in (("u", "abcd"), ("a", "abcde"), ("s",))] == [
        5,
        6,
        4,
    ]


@pytest.mark.behaviour("B45")
def test_reasoning_and_calls_count_with_the_text_before_anything_is_rounded_and_their_json_around_them_does_not() -> (
    None
):
    message = said(
        "a",
        "ab",
        reasoning="c",
        tool_calls=[ToolCall(id="a-very-long-id" * 9, name="d", arguments='{"e":1}')],
    )
    assert message_tokens(message, COUNTER) == 4 + COUNTER.count('abcd{"e":1}') == 10
    assert (
        message_tokens(
            said("t", "abcd", tool_call_id="a-very-long-id" * 9, name="n" * 90, metadata={"m": "m" * 90}),
            COUNTER,
        )
        == 5
    )


@pytest.mark.behaviour("B45")
def test_parts_of_text_count_as_text_and_an_image_costs_the_same_whatever_its_bytes() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}}
    assert (
        message_tokens(said("u", [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]), COUNTER)
        == 5
    )
    assert message_tokens(said("u", [{"type": "text", "text": "abcd"}, image]), COUNTER) == 5 + PART_TOKENS


def test_a_document_that_is_text_and_a_refusal_count_as_text() -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a" * 40}}
    assert message_tokens(said("u", [document]), COUNTER) == 14
    assert message_tokens(said("a", [{"type": "refusal", "refusal": "abcd"}]), COUNTER) == 5


@pytest.mark.behaviour("B45", "AC-B41")
def test_schemas_of_tools_cost_at_least_a_quarter_of_their_json() -> None:
    assert tools_tokens(TOOLS, COUNTER) >= 0.25 * len(json.dumps(TOOLS))
    assert tools_tokens([], COUNTER) == tools_tokens((), COUNTER) == 0


def test_another_counter_counts_in_its_own_way() -> None:
    counter: TokenCounter = Words()
    assert isinstance(counter, TokenCounter)
    assert isinstance(COUNTER, TokenCounter)
    assert message_tokens(said("u", "three words here"), counter) == 7
    assert (COUNTER.name, counter.name) == ("estimate", "words")


@pytest.mark.behaviour("A127")
def test_counting_a_page_of_text_is_quick() -> None:
    """The row says 50 µs. The limit is of the processor's time, and forty times that,
    since a busy machine is slow.
    """
    page = "Café: the ferry runs on Sundays 世界. " * 25
    assert (
        min(timeit.repeat(lambda: COUNTER.count(page), timer=time.process_time, number=100, repeat=5)) / 100
        < 0.002
    )
