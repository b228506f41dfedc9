"""Compaction by tokens: every message is in the summary, or fits what a model takes."""

from __future__ import annotations

import random

import pytest

from memory.domain.message import Message, Role
from memory.policies.compaction_thresholds import archived_by
from memory.policies.window import TokenThreshold, arrange, fit_to_budget, from_user, split_by_tokens
from memory.ports.contract.cells import cells
from tests.support.depth import FIRST_SEED, drawn
from tests.unit.policies.talk import answer, asks, costs, said

LIMIT = 1_000


def text(tokens: float) -> str:
    return "x" * int(4 * tokens)


def conversation(chance: random.Random) -> list[list[Message]]:
    """What is appended between two calls of a model: questions, answers, calls with
    results, some longer than the limit.
    """
    size = chance.choice((10, 60, 300))
    steps = [[said("u", "Hello", id="first")]]
    for n in range(chance.randint(5, 40)):
        kind, tokens = chance.random(), min(chance.expovariate(1 / size), 2 * LIMIT)
        if kind < 0.5:
            steps.append([said("u", text(tokens), id=f"u{n}")])
        elif kind < 0.7:
            steps.append([said("a", text(tokens), id=f"a{n}")])
        else:
            calls = [f"c{n}.{m}" for m in range(chance.randint(1, 3))]
            steps.append([asks(*calls), *(answer(call, text(tokens)) for call in calls)])
    return steps


def compacted(policy: TokenThreshold, window: list[Message], of_tools: int, summary: str) -> list[Message]:
    """The window as a session has it behind a compaction: system, summary, what was
    kept.
    """
    while archived := archived_by(policy, window, costs(window), of_tools):
        kept = [message for at, message in enumerate(window) if at not in archived]
        place = sum(message.role is Role.SYSTEM for message in kept)
        window = [*kept[:place], said("s", summary, is_summary=True), *kept[place:]]
        if sum(costs(window)) + of_tools <= policy.usable:
            break
    return window


@pytest.mark.behaviour("B43", "B46", "B47")
@cells("seed", range(FIRST_SEED, FIRST_SEED + 10), shared=True)
@pytest.mark.drawn
def test_what_the_summary_does_not_cover_fits_the_limit(seed: int) -> None:
    for number in range(drawn(50, quick=10)):
        chance = random.Random(f"{seed} {number}")  # noqa: S311 - repeatable, not secret
        policy = TokenThreshold(
            LIMIT, share=chance.choice((0.7, 0.9, 1.0)), target=chance.choice((0.2, 0.5, 0.7))
        )
        window = [said("s", text(chance.choice((0, 50, 400))))] if chance.random() < 0.7 else []
        of_tools = chance.choice((0, 0, 200))
        for step in conversation(chance):
            window = compacted(policy, [*window, *step], of_tools, text(chance.choice((1, 100, 450))))
            found, it = fit_to_budget(window, costs(window), LIMIT - of_tools), arrange(window)
            assert not it.invalid_response
            assert sorted(found.kept) == list(range(len(window))), (seed, number)
            assert sorted(from_user(it, found.kept)) == sorted(found.kept), (seed, number)


def test_the_newest_that_fit_are_kept_and_the_last_question_where_it_does_not_fit() -> None:
    messages = [
        said("s", "system"),
        said("s", "earlier", is_summary=True),
        *(said("ua"[n % 2], text(96)) for n in range(6)),
    ]
    assert split_by_tokens(messages, costs(messages), 400).kept == (4, 5, 6, 7)
    assert split_by_tokens(messages, costs(messages), 399).kept == (6, 7), (
        "a context begins with a message of the user"
    )
    assert split_by_tokens(messages, costs(messages), 299).kept == (6, 7)
    assert split_by_tokens(messages, costs(messages), 0).kept == (6,)
    assert split_by_tokens(messages, costs(messages), 299).archived == (1, 2, 3, 4, 5)


def test_a_long_run_of_calls_behind_one_question_is_compacted_but_a_call_that_waits() -> None:
    run = [
        said("u", "Do it all"),
        *(one for n in range(20) for one in (asks(f"c{n}"), answer(f"c{n}", text(90)))),
        asks("waits"),
    ]
    archived = archived_by(TokenThreshold(LIMIT), run, costs(run))
    kept = [at for at in range(len(run)) if at not in archived]
    assert kept[0] == 0
    assert kept[-1] == len(run) - 1
    assert kept[1:] == list(range(kept[1], len(run)))
    assert 300 < sum(costs(run)[at] for at in kept) <= LIMIT / 2
