"""A window that is cut in steps: what a model is sent begins the same between two cuts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.domain.message import Message
from memory.policies.stepping import stepped
from memory.policies.tokens import DefaultCounter, message_tokens
from memory.policies.window import arranged, blocks, fitted
from tests.unit.policies.talk import answer, asks, said, talks


def costs(messages: list[Message]) -> list[int]:
    return [message_tokens(message, DefaultCounter()) for message in messages]


def shown(messages: list[Message], budget: int, slack: float) -> list[int]:
    found = stepped(messages, costs(messages), budget, slack) if slack else fitted(messages, costs(messages), budget)
    assert found.tokens <= budget
    return list(found.kept)


def talk(turns: int) -> list[list[Message]]:
    """A talk after each of so many turns, some of which ask a tool."""
    after, messages = list[list[Message]](), [said("s", "be kind")]
    for n in range(turns):
        messages = [*messages, said("u", f"question {n} " * (1 + n % 5))]
        if n % 3 == 0:
            messages += [asks(f"c{n}"), answer(f"c{n}", "found " * (n % 7))]
        messages = [*messages, said("a", f"answer {n}")]
        after.append(messages)
    return after


@pytest.mark.parametrize("slack", [0.25, 0.5])
def test_over_two_hundred_turns_a_context_begins_as_the_one_before_it_but_for_a_cut_each_time_the_slack_is_filled(slack: float) -> None:
    turns, budget = talk(200), 500

    def changes(slack: float) -> int:
        contexts = [shown(messages, budget, slack) for messages in turns]
        return sum(1 for before, after in pairwise(contexts) if after[: len(before)] != before)

    assert 0 < changes(slack) <= sum(costs(turns[-1])) / (slack * budget)
    assert changes(0) > 150


@given(talks(), st.integers(0, 60), st.sampled_from([0.1, 0.25, 0.9]))
def test_what_is_shown_fits_and_is_whole_and_ends_as_it_does_without_steps(messages: list[Message], budget: int, slack: float) -> None:
    found, exact = (stepped(messages, costs(messages), budget, s) for s in (slack, 0))
    assert set(found.kept) | set(found.left_out) == set(range(len(messages)))
    assert len(set(found.kept)) == len(found.kept)
    assert set(found.kept) <= set(exact.kept)
    assert arranged([messages[at] for at in found.kept]).invalid_response == ()
    assert found.over_budget == max(0, found.tokens - budget)
    users = [at for at, message in enumerate(messages) if message.role == "user" and not message.is_summary]
    assert not users or users[-1] in found.kept
    if found.over_budget:
        shown = [block for block in blocks(messages) if block[0] in found.kept]
        assert all(users and users[-1] in block for block in shown), "only what must be kept exceeds a budget"


@given(talks(), talks(), st.integers(20, 60))
def test_what_came_behind_moves_no_cut_that_was_made_but_forward(messages: list[Message], more: list[Message], budget: int) -> None:
    plain = [message for message in [*messages, *more] if message.role in ("user", "assistant") and not message.tool_calls]
    some = plain[: len(plain) // 2]
    before, after = stepped(some, costs(some), budget, 0.25).kept, stepped(plain, costs(plain), budget, 0.25).kept
    assert not before or not after or min(after) >= min(before)


def test_the_last_user_message_has_its_room_before_what_was_said_behind_it() -> None:
    messages = [said("u", "x" * 16), said("a", "aaaa"), said("a", "bbbb")]
    found = stepped(messages, costs(messages), 15, 0.25)
    assert (found.kept, found.tokens, found.over_budget) == ((0,), 8, 0)
