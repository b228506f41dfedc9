"""The score of a pool: what each term adds, what is absent takes nothing, and what
multiplies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from memory.policies.entry_query import EntryQuery
from memory.policies.question import Question, read
from memory.policies.ranking import closeness
from memory.policies.ranking.boosts import boost_multipliers, decay
from memory.policies.ranking.calibration import Calibration, Constants, EmbedderCalibration
from memory.policies.ranking.fields import SELECT
from memory.policies.ranking.order import rank
from memory.policies.ranking.preferences import Preferences
from memory.policies.ranking.relevance import EmbedderScale
from memory.policies.ranking.score import score
from memory.policies.text_features import marks_of
from memory.ports.candidates import CandidateColumns, Statistics
from memory.ports.contract.cells import cells
from memory.ports.record import Role, pack_vector
from memory.ports.text import words

NOW = datetime(2026, 5, 7, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def _pool(
    question: Question, texts: Sequence[str], vectors: Sequence[Sequence[float]] = (), **fields: Sequence[Any]
) -> CandidateColumns:
    """A pool of these texts, in a corpus of a hundred where each word of the question
    is in ten.
    """
    said = [words(text) for text in texts]
    counts = np.array([[4.0 * one.count(stem) for stem in question.stems] for one in said]).reshape(
        len(texts), len(question.stems)
    )
    given: dict[str, Sequence[Any]] = {
        "marks": [marks_of(text) for text in texts],
        "valid_from": [NOW] * len(texts),
        **fields,
    }
    return CandidateColumns(
        [str(n) for n in range(len(texts))],
        ["user:ann"] * len(texts),
        [1] * len(texts),
        [Role.HOME] * len(texts),
        ["mid"] * len(texts),
        np.array([len(one) for one in said]),
        counts,
        np.array(vectors, np.float32) if len(vectors) else np.zeros((len(texts), 0), np.float32),
        {name: given.get(name, [None] * len(texts)) for name in SELECT},
        Statistics(100, 1_000, dict.fromkeys(question.stems, 10)),
    )


def _order(question: Question, pool: CandidateColumns, near: bytes | None = None) -> list[int]:
    return [int(row) for row in np.argsort(-score(question, pool, near, NOW).score, kind="stable")]


def test_more_of_the_questions_words_come_first() -> None:
    question = read("alpaca wool price")
    assert _order(
        question, _pool(question, ["nothing at all here", "alpaca in a field", "price of alpaca wool"])
    ) == [2, 1, 0]


def test_two_texts_that_are_nearly_alike_have_nearly_the_same_score() -> None:
    question = read("alpaca wool")
    pool = _pool(question, ["alpaca wool one two", "alpaca wool one two three", "zebra"])
    first, second, _ = score(question, pool, None, NOW).score.tolist()
    assert abs(first - second) / max(first, second) < 0.05


def test_an_answer_beside_the_words_of_the_question_is_found_by_them() -> None:
    question = read("which wool do you use")
    texts = ["which wool do you use?", "Mostly alpaca.", "Nice weather."]
    beside: dict[str, Any] = {"conversation_id": ["c", "c", "d"], "number_in_conversation": [1, 2, 1]}
    pool = _pool(question, texts, **beside)
    assert score(question, pool, None, NOW).score[1] > score(question, pool, None, NOW).score[2]
    apart = _pool(question, texts)
    assert score(question, apart, None, NOW).terms["lexical"][1] == 0


def test_neighbours_are_those_of_the_same_scope_and_conversation() -> None:
    question = read("wool")
    pool = _pool(question, ["wool", "yes"], conversation_id=["c", "c"], number_in_conversation=[1, 2])
    assert score(question, pool, None, NOW).terms["lexical"][1] > 0
    elsewhere = replace(pool, scopes=["user:ann", "user:bob"])
    assert score(question, elsewhere, None, NOW).terms["lexical"][1] == 0


def test_a_number_without_a_conversation_has_no_neighbours() -> None:
    question = read("wool")
    pool = _pool(question, ["wool", "yes"], number_in_conversation=[1, 2])
    assert score(question, pool, None, NOW).terms["lexical"][1] == 0


def test_the_speaker_who_is_named_is_preferred_and_of_two_neither() -> None:
    texts, speakers = ["I like tea", "I like tea"], ["Caroline", "Melanie"]
    one = read("What does Melanie like?")
    assert _order(one, _pool(one, texts, speaker=speakers)) == [1, 0]
    both = read("What do Melanie and Caroline like?")
    assert not score(both, _pool(both, texts, speaker=speakers), None, NOW).terms["speaker"].any()


def test_what_asks_comes_behind_what_tells() -> None:
    question = read("tea")
    assert _order(question, _pool(question, ["do you like tea?", "you do like tea"])) == [1, 0]


def test_a_question_of_when_prefers_what_tells_a_time() -> None:
    question = read("when was the tea party")
    assert _order(question, _pool(question, ["the tea party was fun", "the tea party was yesterday"])) == [
        1,
        0,
    ]


def test_the_day_of_a_turn_is_among_its_words() -> None:
    question = read("what happened on 7 May 2026")
    days: dict[str, Any] = {
        "valid_from": [NOW - 40 * DAY, NOW],
        "conversation_id": ["a", "b"],
        "number_in_conversation": [1, 1],
    }
    assert _order(question, _pool(question, ["we met", "we met"], **days)) == [1, 0]


def test_meaning_orders_where_words_say_nothing() -> None:
    question = read("feline")
    pool = _pool(question, ["a cat", "a car"], [[1, 0.1], [0, 1]])
    assert _order(question, pool, pack_vector([1, 0])) == [0, 1]
    assert _order(question, pool, pack_vector([0, 1])) == [1, 0]


def test_a_record_without_a_vector_is_measured_by_its_words_alone() -> None:
    question = read("cat")
    scored = score(question, _pool(question, ["a cat", "a car"], [[0, 0], [1, 0]]), pack_vector([1, 0]), NOW)
    assert np.isfinite(scored.score).all()
    assert scored.terms["own_semantic"][0] == 0


def _relevance(
    question: Question, pool: CandidateColumns, near: bytes | None = None, **asked: Any
) -> list[float] | None:
    found = rank(question, pool, near, EntryQuery("t", (), **asked), NOW, scale=SCALE).relevance
    return None if found is None else found.values.tolist()


SCALE = EmbedderScale(
    EmbedderCalibration(
        hybrid=Calibration(Constants(-4.0, 6.0, 5.0), Constants(-4.0, 3.0, 8.0)),
        semantic=Calibration(Constants(-5.0, 9.0, 0.0), Constants(-5.0, 9.0, 0.0)),
    ),
    np.array([0.0, 0.1], np.float32),
)


def test_relevance_does_not_depend_on_the_rest_of_the_pool() -> None:
    question = read("alpaca wool price")
    [alone] = _relevance(question, _pool(question, ["alpaca wool"])) or []
    two, three, none = (
        _relevance(question, _pool(question, ["alpaca wool", "alpaca wool price", "zebra"])) or []
    )
    assert two == alone
    assert none < 0.05 < two < three


def test_relevance_grows_with_the_cosine_and_with_the_words_and_the_best_evidence_counts() -> None:
    question = read("zebra crossing")
    vectors: list[list[float]] = [[0.2, 1], [0.6, 1], [1, 0], [0.6, 1], [0.6, 1]]
    far, near, same, one_word, both_words = (
        _relevance(
            question,
            _pool(question, ["a", "a", "a", "zebra", "zebra crossing"], vectors),
            pack_vector([1, 0]),
        )
        or []
    )
    assert far < near < same
    assert near < one_word < both_words
    by_meaning = _relevance(
        question,
        _pool(replace(question, text=""), ["a", "a", "a"], vectors[:3]),
        pack_vector([1, 0]),
        mode="semantic",
    )
    assert by_meaning == pytest.approx([far, near, same]), (
        "where no word was found the cosine alone is calibrated"
    )


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_stopwords_alone_make_nothing_relevant(mode: str) -> None:
    """Every text has them. A text that means the same is relevant by that."""
    texts, near = ["what the fox did", "the"], pack_vector([1, 0]) if mode == "hybrid" else None
    for asked in ("the", "What did the"):
        question = read(asked)
        pool = _pool(question, texts, [[1, 0], [0, 1]] if near else ())
        first, second = _relevance(question, pool, near, mode=mode) or []
        assert second < 0.05
        assert (first > 0.9) == (mode == "hybrid")


def test_relevance_counts_neither_preferences_nor_age() -> None:
    question = read("alpaca")
    pool = _pool(question, ["alpaca", "alpaca"], valid_from=[NOW, NOW - 900 * DAY], type=["user", "context"])
    found = rank(question, pool, None, EntryQuery("t", (), preferred=Preferences(types=("user",))), NOW)
    assert found.order[0] > found.order[1]
    assert found.relevance is not None
    assert found.relevance.values[0] == found.relevance.values[1]


def test_relevance_is_unknown_where_cosines_count_that_nobody_has_calibrated() -> None:
    question = read("alpaca")
    pool, near = _pool(question, ["alpaca", "zebra"], [[1, 0], [0, 1]]), pack_vector([1, 0])
    unknown = rank(question, pool, near, EntryQuery("t", ()), NOW)
    assert unknown.relevance is None
    assert unknown.value(0).relevance is None
    assert unknown.explain(0)["relevance"] == {
        "lexical_share": 1.0,
        "cosine": 1.0,
        "cosine_with_neighbours": 1.0,
    }
    by_words = rank(question, pool, None, EntryQuery("t", (), mode="lexical"), NOW).relevance
    assert by_words is not None


def test_a_candidate_without_a_vector_is_as_relevant_as_by_its_words_alone() -> None:
    question = read("alpaca")
    pool = _pool(question, ["alpaca", "alpaca"], [[0, 0], [1, 0]])
    without, with_one = _relevance(question, pool, pack_vector([1, 0])) or []
    assert without == (_relevance(question, pool) or [])[0] != with_one


def test_what_is_said_of_relevance_adds_up_to_it() -> None:
    question = read("alpaca wool")
    found = rank(
        question,
        _pool(question, ["alpaca", "zebra"], [[1, 1], [0, 1]]),
        pack_vector([1, 0]),
        EntryQuery("t", ()),
        NOW,
        scale=SCALE,
    )
    told = found.explain(0)["relevance"]
    assert told["value"] == pytest.approx(1 / (1 + np.exp(-sum(told["parts"].values()))), abs=1e-3)
    assert told["in_words"].startswith(
        f"relevance {100 * told['value']:.0f} %: cosine 0.71 over 0.00 of unrelated texts"
    )
    assert "50% of the question's words (by rarity)" in told["in_words"]


def test_an_empty_pool_has_no_scores() -> None:
    question = read("alpaca")
    assert len(score(question, _pool(question, []), None, NOW).score) == 0


def test_a_score_stays_above_nought() -> None:
    question = read("zebra")
    assert (score(question, _pool(question, ["?", ""]), None, NOW).score > 0).all()


def test_what_was_said_near_the_days_that_a_question_names_comes_first() -> None:
    question = read("Which alpaca did Ada feed on 3 May, 2023?")
    moments = [datetime(2023, 5, day, tzinfo=UTC) for day in (20, 3, 2, 5)] + [None]
    scored = score(question, _pool(question, ["alpaca"] * 5, valid_from=moments), None, NOW)
    assert np.argsort(-scored.terms["date"]).tolist() == [1, 3, 2, 0, 4]
    assert scored.terms["date"][4] == 0
    plain = read("Which alpaca did Ada feed?")
    assert not score(plain, _pool(plain, ["alpaca"] * 5, valid_from=moments), None, NOW).terms["date"].any()


def test_from_thirty_words_on_a_length_says_no_more() -> None:
    question = read("alpaca")
    terms = (
        score(question, _pool(question, [" ".join(["x"] * n) for n in (10, 29, 30, 31, 3_000)]), None, NOW)
        .terms["length"]
        .tolist()
    )
    assert terms[0] < terms[1] < terms[2] == terms[3] == terms[4]


# -- who answers -----------------------------------------------------------------------


def _answering(
    mode: str, texts: Sequence[str], vectors: Sequence[Sequence[float]], **asked: Any
) -> list[int]:
    """The rows that answer a question of two words, each beside the next in a
    conversation.
    """
    question = read("alpaca wool")
    pool = _pool(
        question,
        texts,
        vectors,
        conversation_id=["c"] * len(texts),
        number_in_conversation=list(range(len(texts))),
    )
    if mode == "semantic":
        pool = replace(pool, counts=np.zeros((len(texts), 0)))
    query = EntryQuery("t", (), mode=mode)  # type: ignore[arg-type]
    return rank(question, pool, pack_vector([1.0, 0.0]), query, NOW, **asked).relevant_rows(0.0)


@pytest.mark.parametrize(
    ("mode", "rows"),
    [("lexical", [0]), ("semantic", [2]), ("hybrid", [0, 1, 2, 3])],
    ids=["lexical", "semantic", "hybrid"],
)
def test_by_one_way_who_is_found_that_way_answers_and_by_both_who_stands_beside_too(
    mode: str, rows: list[int]
) -> None:
    assert (
        _answering(
            mode, ["alpaca", "x", "x", "x", "x", "x"], [[0, 1], [0, 1], [1, 0], [0, 1], [0, 1], [-1, 0]]
        )
        == rows
    )


def test_what_is_alone_answers_by_what_it_says_itself() -> None:
    texts, vectors = ["alpaca", "x", "x", "x", "x", "x"], [[0, 1], [0, 1], [1, 0], [0, 1], [0, 1], [-1, 0]]
    assert _answering("hybrid", texts, vectors, alone=True) == [0, 2]
    assert _answering("hybrid", texts, vectors, alone=[True, True, True, False, True, False]) == [0, 2, 3]


def test_ties_are_told_by_id() -> None:
    question = read("alpaca")
    pool = replace(_pool(question, ["alpaca"] * 4), ids=["d", "a", "c", "b"])
    ranked = rank(question, pool, None, EntryQuery("t", ()), NOW)
    assert ranked.best_first(range(4)) == [1, 3, 2, 0]
    assert ranked.best_first([2, 0, 3]) == [3, 2, 0]


# -- multipliers


def _boosts(
    preferred: Preferences, question: str = "alpaca", **fields: Sequence[Any]
) -> dict[str, list[float]]:
    asked = read(question)
    wide = len(next(iter(fields.values())))
    return {
        name: by.tolist()
        for name, by in boost_multipliers(
            asked, _pool(asked, ["alpaca"] * wide, **fields), preferred, NOW
        ).items()
    }


def test_types_and_tags_multiply_and_the_callers_type_wins_over_the_intent() -> None:
    kinds: dict[str, Any] = {"type": ["user", "learning"], "tags": [("a", "b"), None]}
    assert _boosts(Preferences(types=("learning",), tags=("b", "x")), "how to prefer", **kinds)["type"] == [
        1.0,
        1.3,
    ]
    assert _boosts(Preferences(tags=("b", "x")), **kinds)["tag"] == [1.2, 1.0]
    assert _boosts(Preferences(), "which do I prefer?", **kinds)["type"] == [1.3, 1.0]
    assert _boosts(Preferences(intent=False), "which do I prefer?", **kinds)["type"] == [1.0, 1.0]
    assert _boosts(Preferences(), "alpaca", **kinds)["type"] == [1.0, 1.0]


def test_age_takes_a_part_and_never_all() -> None:
    ages = [0, 30, 31, 90, 91, 180, 181, 360, 361, 100_000]
    assert [decay(age, Preferences()) for age in ages] == [1.0, 1.0, 0.9, 0.9, 0.75, 0.75, 0.6, 0.6, 0.5, 0.5]
    assert [decay(age, Preferences(half_life=10)) for age in (30, 31, 40, 41)] == [1.0, 0.6, 0.6, 0.5]
    assert decay(1_000, Preferences(floor=0.2)) == 0.2


def test_age_can_be_left_out_and_what_has_no_moment_has_no_age() -> None:
    old: dict[str, Any] = {"valid_from": [NOW - 1_000 * DAY, None]}
    assert _boosts(Preferences(), **old)["age"] == [0.5, 1.0]
    assert _boosts(Preferences(age_decay=False), **old)["age"] == [1.0, 1.0]
    assert _boosts(Preferences(), "which alpaca in March 2024?", **old)["age"] == [1.0, 1.0]


def test_the_callers_conversation_wins_close_calls_and_no_others() -> None:
    local = _boosts(Preferences(conversation_id="c"), conversation_id=["c", "d", None])["local"]
    assert local[0] > 1 == local[1] == local[2]
    assert local[0] < 1.5
    assert _boosts(Preferences(), conversation_id=["c", "d", None])["local"] == [1.0, 1.0, 1.0]


def _boosted(question: Question, pool: CandidateColumns, preferred: Preferences) -> list[float]:
    multiplied = score(question, pool, None, NOW).score
    for by in boost_multipliers(question, pool, preferred, NOW).values():
        multiplied = multiplied * by
    return [float(one) for one in multiplied]


def test_of_equal_texts_those_of_the_callers_conversation_come_first() -> None:
    """AC-D27, without the store."""
    question = read("raptor")
    pool = _pool(question, ["the raptor flew"] * 4, conversation_id=["d", "c", "d", "c"])
    elsewhere, own, other, second = _boosted(question, pool, Preferences(conversation_id="c"))
    assert own == second > elsewhere == other
    assert len(set(_boosted(question, pool, Preferences()))) == 1


def test_a_much_better_text_of_another_conversation_is_not_pushed_out_by_ten_weak_ones_of_the_callers_own() -> (
    None
):
    """AC-D29, without the store."""
    question = read("raptor nest cliff")
    texts = ["a raptor, a car, a house and a tree by the road"] * 10 + ["raptor nest on the cliff"]
    scores = _boosted(
        question, _pool(question, texts, conversation_id=["c"] * 10 + ["d"]), Preferences(conversation_id="c")
    )
    assert scores[-1] > max(scores[:-1])


def test_a_word_of_the_title_counts_for_more_than_one_of_the_content() -> None:
    """AC-D19, without the store: counts come weighted, ten for a title and four for
    content.
    """
    question = read("kubernetes")
    pool = _pool(question, ["kubernetes deployment runbook", "kubernetes in generic notes"])
    titled = replace(pool, counts=np.array([[10.0], [4.0]]), lengths=np.array([4, 4]))
    first, second = score(question, titled, None, NOW).score.tolist()
    assert first > second


@cells("kind", ["user", "feedback", "reference", "learning", "project", None], shared=True)
def test_without_a_cue_no_type_is_preferred(kind: str | None) -> None:
    assert _boosts(Preferences(), "kubernetes cluster", type=[kind])["type"] == [1.0]


@cells("kind", ["user", "feedback", "reference", "learning", "project", None], shared=True)
def test_a_cue_takes_nothing_from_any_type(kind: str | None) -> None:
    assert _boosts(Preferences(), "how to prefer what is recent", type=[kind])["type"][0] >= 1.0


def test_a_day_and_a_speaker_that_many_rows_share_are_told_of_each() -> None:
    question = read("what did Caroline say on 7 May 2026")
    fields: dict[str, Any] = {
        "conversation_id": ["c"] * 5,
        "number_in_conversation": [1, 10, 20, 30, None],
        "speaker": ["Caroline", "Caroline", "Caroline", "Bob", None],
        "valid_from": [NOW, NOW, NOW - 40 * DAY, NOW - 40 * DAY, NOW],
    }
    told = score(question, _pool(question, ["x"] * 5, **fields), None, NOW).terms["lexical"]
    assert told[0] == told[1] > told[2] > told[3] > told[4] == 0


# -- closeness


@pytest.mark.parametrize("asked", ["alpha beta", "what about the alpha beta"])
def test_a_phrase_comes_before_words_near_each_other_before_words_apart_before_one(asked: str) -> None:
    texts = ["alpha beta", "alpha one two three beta", "alpha " + "word " * 11 + "beta", "alpha only"]
    close = [closeness(read(asked), [text]) for text in texts]
    assert close == sorted(close, reverse=True)
    assert len(set(close)) == 4


def test_of_one_word_or_of_many_only_a_phrase_counts() -> None:
    many = "one two three four five six seven eight nine".replace("one", "lantern")
    assert closeness(read("alpha"), ["alpha"]) == 1.0
    assert closeness(read(many), [f"so {many} then"]) > 1.0
    assert closeness(read(many), [" ".join(reversed(many.split()))]) == 1.0


def test_words_in_two_parts_of_a_text_are_not_close() -> None:
    assert closeness(read("alpha beta"), ["alpha", "beta"]) == 1.0
