"""A text is cut into parts that are found by meaning each on its own: at sentences
where there are some, and nothing of it is lost.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.policies.passage_splitting import PART, parts_of
from memory.ports.contract.cells import cells

SENTENCE = "The ferry leaves from the third pier at nine and is never late. "


def test_a_short_text_is_one_part_and_white_space_none() -> None:
    assert parts_of("  tea with milk\n") == ["tea with milk"]
    assert parts_of("x" * PART) == ["x" * PART]
    assert parts_of("") == parts_of(" \n\t ") == []


@cells("end", [". ", "! ", "?\n", "\u3002 ", '." ', "\n"], shared=True)
def test_parts_end_with_a_sentence_where_there_is_one(end: str) -> None:
    text = (SENTENCE.removesuffix(". ") + end) * 40
    parts = parts_of(text)
    assert len(parts) == 3
    assert all(part.endswith(f"never late{end.strip()}") for part in parts)
    assert max(map(len, parts)) < 1.5 * min(map(len, parts)), "about equal"


def test_without_a_sentence_parts_end_with_a_word_and_without_a_word_anywhere() -> None:
    words = parts_of("heron " * 400)
    assert {word for part in words for word in part.split()} == {"heron"}
    assert [len(part) for part in parts_of("x" * (2 * PART + 2))] == [668, 667, 667]


@given(st.text(alphabet="ab .!?\n\u3002\u00e9\U0001f600", max_size=6_000), st.integers(1, 4))
def test_nothing_is_lost_and_no_part_is_too_long(text: str, times: int) -> None:
    parts = parts_of(text * times)
    assert "".join("".join(parts).split()) == "".join((text * times).split())
    assert all(0 < len(part) <= PART and part == part.strip() for part in parts)
    assert parts_of(text * times) == parts
