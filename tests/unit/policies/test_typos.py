"""Words that nothing holds, and what was meant."""

from __future__ import annotations

import pytest

from memory.policies.asking import read, read_as
from memory.policies.typos import MOST_WORDS, corrected, corrections, distance, unheard
from memory.ports.text import stem


@pytest.mark.parametrize(
    ("one", "other", "away"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("walrus", "walrus", 0),
        ("walrsu", "walrus", 1),
        ("wlarus", "walrus", 1),
        ("walru", "walrus", 1),
        ("ca", "abc", 3),
    ],
)
def test_a_distance_counts_swapped_neighbours_once(one: str, other: str, away: int) -> None:
    assert distance(one, other) == distance(other, one) == away


@pytest.mark.parametrize(
    ("word", "text", "meant"),
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
)
def test_what_was_meant_is_a_slip_away_and_never_another_ending(word: str, text: str, meant: str | None) -> None:
    assert corrections([word], [text]).get(word) == meant


def test_the_nearest_is_meant_and_of_these_what_is_said_most() -> None:
    assert corrections(["tornament"], ["an ornament", "tournament", "tournament torment"]) == {"tornament": "tournament"}
    assert corrections(["coding"], ["coming home", "coming", "conding"]) == {"coding": "coming"}


def test_only_words_that_nothing_holds_and_that_are_long_enough_are_looked_at() -> None:
    assert unheard("Which torunament did the cat Mimi wni?", {stem(word) for word in ("torunament", "cat", "wni", "mimi")}) == ("torunament",)
    assert unheard("Which torunament", set()) == ()
    many = [f"word{'abcdefghijkl'[n]}" for n in range(12)]
    assert unheard(" ".join(many), {stem(word) for word in many}) == tuple(many[:MOST_WORDS])


def test_a_question_is_read_with_what_was_meant_and_says_so() -> None:
    question = read_as(read("Which Torunament did Nate win?"), {"torunament": "tournament"})
    assert question.text == "Which tournament did Nate win?"
    assert dict(zip(question.stems, question.supposed, strict=True)) == {stem("tournament"): True, "nate": False, "win": False}
    assert question.embedded == "Which tournament did win?"
    assert corrected("", {"a": "b"}) == ""
