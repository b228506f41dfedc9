"""The benchmark of relevance: what it counts as an answer and as nonsense, its fit, and
the file that it writes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.locomo import Question, Turn
from bench.placed import opened
from bench.relevance import Corpus, Hit, auc, fitted, gather, left_out, predicted, without_names, written
from memory.adapters.embedders.wordllama import WordLlamaEmbedder
from memory.policies.ranking.calibration import EMBEDDERS, LEXICAL, Calibration, Constants

AT = datetime(2023, 5, 7, tzinfo=UTC)
TURNS = [
    Turn("a/D1:1", "a", 1, 1, "Ines", "The ferry to the island runs on Sundays.", AT),
    Turn("a/D1:2", "a", 1, 2, "Tom", "Ines, my brother keeps bees behind the mill.", AT),
    Turn("b/D1:1", "b", 1, 1, "Mara", "I bake bread with rye on Fridays.", AT),
]
QUESTIONS = [
    Question("a/q0", "a", "When does Ines take the ferry?", 4, ("a/D1:1",)),
    Question("b/q0", "b", "What does Ines do?", 5, ("b/D1:1",)),
]


async def test_answers_are_the_evidence_and_nonsense_is_what_other_conversations_find(tmp_path: Path) -> None:
    turns, questions = without_names(TURNS, QUESTIONS)
    assert [turn.text for turn in turns][1] == ", my brother keeps bees behind the mill."
    assert questions[0].text == "When does take the ferry?"
    embedder = WordLlamaEmbedder()
    async with opened(f"sqlite:///{tmp_path / 'a.db'}") as memory:
        hits = await gather(memory, embedder, Corpus("all", TURNS, QUESTIONS), "hybrid", 4)
        asked = [hit for hit in hits if hit.of is not None]
        first = next(hit for hit in asked if hit.asked == "a")
        assert (first.of, first.place, first.right, first.shares_word) == ("a", 1, True, True)
        assert {(hit.of, hit.asked) for hit in asked} == {("a", "a"), ("a", "b")}, (
            "what no turn answers is not asked"
        )
        assert {hit.asked for hit in hits if hit.of is None} == {"a", "b"}
        assert await memory.search("ferry", scope="workspace:a") == []


def test_the_fit_finds_the_constants_that_drew_the_hits_and_is_judged_without_the_conversation() -> None:
    drawn, true = random.Random(5), Constants(-4.0, 5.0, 6.0)  # noqa: S311 - repeatable, not secret
    hits = list[Hit]()
    for number in range(4_000):
        of = "a" if number % 2 else "b"
        one = Hit(of, "c", 1, False, True, True, drawn.uniform(0, 0.6), drawn.random())
        right = drawn.random() < predicted([true], [one])[0]
        hits.append(replace(one, asked=of, right=True) if right else one)
    found = fitted(hits, "hybrid")
    assert found.lexical == pytest.approx(6.0, rel=0.25)
    assert found.semantic == pytest.approx(5.0, rel=0.25)
    judged = left_out(hits, hits, "lexical")
    assert len(judged) == len(hits)
    right_ones, others = ([value for hit, value in judged if hit.right is right] for right in (True, False))
    assert 0.7 < auc(right_ones, others) < 1.0
    assert auc([1.0, 0.5], [0.5, 0.0]) == 0.875


def test_the_written_file_holds_the_constants_and_those_of_other_embedders() -> None:
    constants = Constants(-1.5, 2.0, 3.25)
    made = dict[str, object]()
    exec(  # noqa: S102
        written(
            {"hybrid": Calibration(constants, constants), "semantic": LEXICAL, "lexical": LEXICAL}, "mine"
        ),
        made,
    )
    assert set(made["EMBEDDERS"]) == {*EMBEDDERS, "mine"}  # type: ignore[call-overload]
    assert made["EMBEDDERS"]["mine"].hybrid.alone.lexical == 3.25  # type: ignore[index]
