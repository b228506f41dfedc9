"""What a question becomes before an adapter is asked it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory.domain.errors import InvalidInput
from memory.orchestrator.storage.collections import ENTRIES
from memory.ports.contract.refusals import nested_filter
from memory.ports.contract.support import record
from memory.ports.query import (
    MANY,
    MAX_FILTER_DEPTH,
    And,
    Condition,
    Eq,
    Ge,
    In,
    Lt,
    Not,
    Or,
    StartsWith,
    Under,
    covers,
    within,
)
from memory.ports.query_evaluation import lets_through
from memory.ports.query_validation import prepare_filter, text_range
from memory.ports.record import Partition
from tests.support.depth import drawn

LAST = "\U0010ffff"
CHARACTERS = st.characters(codec="utf-8") | st.sampled_from(
    ["\ud7ff", "\ue000", "\uffff", "\U00010000", LAST, "a", "b", "\x00"]
)
TEXTS = st.text(CHARACTERS, max_size=4)


@settings(max_examples=drawn(500), deadline=None)
@given(prefix=TEXTS, others=st.lists(TEXTS, max_size=8))
@example(prefix="", others=["", LAST])
@example(prefix="\ud7ff", others=["\ud7ff" + LAST, "\ue000"])
@example(prefix="a" + LAST, others=["a" + LAST * 3, "b", "a"])
@example(prefix=LAST, others=[LAST, LAST + "a", "\U0010fffe"])
def test_a_range_of_texts_holds_those_that_start_with_the_prefix_and_no_others(
    prefix: str, others: list[str]
) -> None:
    part = text_range(StartsWith("type", prefix))
    for text in (*others, prefix, *[prefix + other for other in others]):
        assert lets_through(part, record(1, fields={"type": text})) == text.startswith(prefix)
    assert not lets_through(part, record(1)), "what has no value begins with nothing"


def test_no_prefix_reaches_an_adapter_however_deep_it_stands() -> None:
    asked = And((Not(Or((StartsWith("type", "ab"), Eq("type", "x")))), StartsWith("type", LAST)))
    assert prepare_filter(ENTRIES, asked) == And(
        (Not(Or((And((Ge("type", "ab"), Lt("type", "ac"))), Eq("type", "x")))), Ge("type", LAST))
    )


def test_a_filter_without_a_prefix_is_asked_as_it_is() -> None:
    asked = And((Not(Or((In("type", ("a",)), Eq("type", "x")))), Ge("type", "a")))
    assert prepare_filter(ENTRIES, asked) is asked


@pytest.mark.parametrize("by_not", [False, True])
def test_the_depth_of_a_filter_is_found_without_going_to_its_bottom(by_not: bool) -> None:
    deep: Condition = nested_filter(sys.getrecursionlimit() * 20, by_not=by_not)
    with pytest.raises(InvalidInput, match="nests deeper"):
        prepare_filter(ENTRIES, deep)
    assert prepare_filter(ENTRIES, nested_filter(MAX_FILTER_DEPTH, by_not=by_not)) is not None


@pytest.mark.parametrize("size", [1, MANY - 1, MANY, 5 * MANY])
def test_a_place_covers_what_it_names_and_nothing_else(size: int) -> None:
    named = [Partition("acme", f"user:{number}") for number in range(size)]
    for place in within(*named), Under("acme", ("path:team/",), tuple(one.scope for one in named)):
        assert all(covers(place, one) for one in named)
        assert not covers(place, Partition("acme", f"user:{size}"))
        assert not covers(place, Partition("globex", named[-1].scope))
