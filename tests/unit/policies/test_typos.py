"""Words that nothing holds, and what was meant."""

from __future__ import annotations

import random

from memory.policies.question import read, read_as
from memory.policies.typos import (
    LONG,
    MOST_WORDS,
    SHORTEST,
    apply_corrections,
    corrections,
    distance,
    unknown_words,
)
from memory.ports.contract.cells import cells
from memory.ports.text import stem


@cells(
    "one, other, away",
    [
        ("", "", 0),
        ("", "abc", 3),
        ("walrus", "walrus", 0),
        ("walrsu", "walrus", 1),
        ("wlarus", "walrus", 1),
        ("walru", "walrus", 1),
        ("ca", "abc", 3),
    ],
    shared=True,
)
def test_a_distance_counts_swapped_neighbours_once(one: str, other: str, away: int) -> None:
    assert distance(one, other) == distance(other, one) == away


@cells(
    "word, text, meant",
    [
        ("tournamnet", "the tournament in May", "tournament"),
        ("educaton", "her education", "education"),
        ("kubernets", "a Kubernetes cluster", None),  # the end of it alone
        ("walks", "a walk", None),
        ("deployed", "we deploy", None),
        ("deployment", "we deploy it", None),
        ("paint", "a saint", None),  # another first letter
        ("coding", "coming", "coming"),
        ("walrus", "a walnut", None),  # two slips in a short word
        ("photogrpahy", "photograhpy", "photograhpy"),  # two slips in a long one
    ],
    shared=True,
)
def test_what_was_meant_is_a_slip_away_and_never_another_ending(
    word: str, text: str, meant: str | None
) -> None:
    assert corrections([word], [text]).get(word) == meant


def test_the_nearest_is_meant_and_of_these_what_is_said_most() -> None:
    assert corrections(["tornament"], ["an ornament", "tournament", "tournament torment"]) == {
        "tornament": "tournament"
    }
    assert corrections(["coding"], ["coming home", "coming", "conding"]) == {"coding": "coming"}


def test_only_words_that_nothing_holds_and_that_are_long_enough_are_looked_at() -> None:
    assert unknown_words(
        "Which torunament did the cat Mimi wni?",
        {stem(word) for word in ("torunament", "cat", "wni", "mimi")},
    ) == ("torunament",)
    assert unknown_words("Which torunament", set()) == ()
    many = [f"word{'abcdefghijkl'[n]}" for n in range(12)]
    assert unknown_words(" ".join(many), {stem(word) for word in many}) == tuple(many[:MOST_WORDS])


def test_a_question_is_read_with_what_was_meant_and_says_so() -> None:
    question = read_as(read("Which Torunament did Nate win?"), {"torunament": "tournament"})
    assert question.text == "Which tournament did Nate win?"
    assert dict(zip(question.stems, question.correction_mask, strict=True)) == {
        stem("tournament"): True,
        "nate": False,
        "win": False,
    }
    assert question.embedded == "Which tournament did win?"
    assert apply_corrections("", {"a": "b"}) == ""


def test_what_was_meant_is_the_nearest_by_the_distance_itself() -> None:
    chance = random.Random(13)  # noqa: S311 - repeatable, not secret
    for _ in range(400):
        word = "".join(chance.choices("abc", k=chance.choice((5, 6, 9, 10))))
        others = ["".join(chance.choices("abc", k=len(word) + chance.randint(-2, 2))) for _ in range(8)]
        others += [_slipped(chance, _slipped(chance, word)), _slipped(chance, word)]
        near = [(away, other) for other in others if (away := _told_by_distance(word, other)) is not None]
        best = min((away for away, _ in near), default=None)
        meant = corrections([word], others).get(word)
        assert (meant is None) == (best is None)
        assert meant is None or (best, meant) in near


def _slipped(chance: random.Random, word: str) -> str:
    at = chance.randrange(1, len(word) - 1)
    return chance.choice(
        (
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + "c" + word[at:],
            word[:at] + word[at + 1 :],
        )
    )


def _told_by_distance(word: str, other: str) -> int | None:
    """As the decision says it: a slip, or two in a long word, with the same first
    letter, and not another ending or one more.
    """
    alike = next(at for at in range(len(word) + 1) if word[: at + 1] != other[: at + 1] or at == len(word))
    another_ending = len(word) != len(other) and alike >= max(len(word), len(other)) - 2
    if word == other or len(other) < SHORTEST - 1 or word[0] != other[0] or another_ending:
        return None
    away = distance(word, other)
    return away if away <= (2 if len(word) >= LONG else 1) else None
