"""How a question is read: names leave the text that is embedded, cues fire on word
boundaries, texts show what they show.
"""

from __future__ import annotations

import pytest

from memory.policies import text_features
from memory.policies.cues import expected_marks, intents
from memory.policies.question import MOST_STEMS, OPENING, mentioned_speakers, read
from memory.policies.text_features import marks_of
from memory.ports.contract.cells import cells


@cells(
    "question, embedded",
    [
        ("When did Caroline go to the support group?", "When did go to the support group?"),
        ("What is Caroline's identity?", "What is identity?"),
        ("Caroline paints what?", "Caroline paints what?"),
        ("Is it late? Then Melanie sleeps", "Is it late? Then sleeps"),
        ("what does ada drink", "what does ada drink"),
        ("Does the LGBTQ group meet?", "Does the LGBTQ group meet?"),
        ("Did she see Zoë?", "Did she see"),
        ("Ada", "Ada"),
        ("x Ada", "x"),
    ],
    shared=True,
)
def test_capitalised_words_but_the_first_are_taken_for_names_and_not_embedded(
    question: str, embedded: str
) -> None:
    assert read(question).embedded == embedded


@cells(
    "question",
    [
        "Who is Zoë?",
        "What is Kubernetes?",
        "about Redis",
        "Favorite Coffee Drink Recipes",
        "from Porto to Rome",
    ],
    shared=True,
)
def test_a_question_that_would_lose_more_than_it_keeps_is_embedded_whole(question: str) -> None:
    assert read(question).embedded == question


def test_names_stay_among_the_words_that_are_looked_for() -> None:
    question = read("When did Caroline deploy it?")
    assert question.stems == ("carolin", "deploi")


def test_who_speaks_is_named_by_the_first_word_whatever_its_case() -> None:
    for text in ("what did caroline's friend Bob say?", "Caroline paints what?", "CAROLINE?"):
        assert mentioned_speakers(read(text), ["Caroline Smith", "Melanie", "", "Carol"]) == {
            "Caroline Smith"
        }
    assert mentioned_speakers(read("Did Bob call?"), []) == set()


def test_of_a_question_as_long_as_a_page_the_first_content_words_are_looked_for() -> None:
    page = " ".join(f"the word{n}" for n in range(3 * MOST_STEMS))
    question = read(page)
    assert question.search_text.split() == [f"word{n}" for n in range(MOST_STEMS)]
    assert question.stems == tuple(question.search_text.split())
    assert read("the " * 500).search_text == "the"
    short = " ".join(f"word{n}" for n in range(MOST_STEMS))
    assert read(short).search_text == short


def test_cues_of_a_question_are_recognised_in_its_opening() -> None:
    asked, filling = "How often did we decide that?", "x " * OPENING
    early, late = read(f"{asked} {filling}"), read(f"{filling} {asked}")
    assert early.intents == read(asked).intents != frozenset() == late.intents
    assert early.cues == read(asked).cues != () == late.cues


def test_a_long_text_shows_what_its_beginning_shows_and_how_it_ends() -> None:
    late = "x " * 5_000 + "It was in Lisbon: 40 photo days?"
    assert marks_of(late) == text_features.ASKS | text_features.ENDS_ASKING
    assert (
        marks_of("It was in Lisbon: 40 photo days. " + "x " * 5_000)
        == text_features.HAS_NUMBER
        | text_features.HAS_PICTURE
        | text_features.HAS_PLACE
        | text_features.HAS_TIME
    )


@pytest.mark.parametrize(
    ("question", "types"),
    [
        ("what is my favorite port", {"user", "feedback", "reference"}),
        ("how do I deploy", {"learning"}),
        ("when did it happen", {"project"}),
        ("kubernetes", set()),
    ],
)
def test_intents(question: str, types: set[str]) -> None:
    assert intents(question) == types


def test_a_cue_next_to_a_sign_is_a_cue_and_inside_a_word_is_none() -> None:
    assert intents("which colour do I prefer?") == {"user", "feedback"}
    assert intents("how  to\nbrew tea") == {"learning"}
    assert intents("(prefer)") == {"user", "feedback"}
    assert (
        intents("what\N{RIGHT SINGLE QUOTATION MARK}s her number?")
        == intents("what's her number?")
        == {"reference"}
    )
    assert intents("preferably sinceresupport") == set()


def test_cues_name_what_an_answer_shows() -> None:
    assert dict(expected_marks("When did it end?")) == {text_features.HAS_TIME: 0.5}
    assert dict(expected_marks("how many dogs, and where?")) == {
        text_features.HAS_NUMBER: 0.4,
        text_features.HAS_PLACE: 0.6,
    }
    assert expected_marks("whenever") == ()


@cells(
    "text, shown",
    [
        ("", 0),
        ("plain words", 0),
        ("Really? No.", text_features.ASKS),
        ('"Really?" ', text_features.ASKS | text_features.ENDS_ASKING),
        ("本当？", text_features.ASKS | text_features.ENDS_ASKING),
        ("two of 3", text_features.HAS_NUMBER),
        ("a photo of it", text_features.HAS_PICTURE),
        ("back from Porto", text_features.HAS_PLACE),
        ("back from porto", 0),
        ("see you tomorrow", text_features.HAS_TIME),
        ("I may go", 0),
        ("since May", text_features.HAS_TIME),
    ],
    shared=True,
)
def test_marks(text: str, shown: int) -> None:
    assert marks_of(text) == shown
