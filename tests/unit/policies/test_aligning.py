"""Which messages of a list are stored already (C22, C33), and what several lists come
to together (C48, C49).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.domain.message import Message
from memory.policies.message_alignment import align_messages, begins_at, behind, merge_messages
from memory.ports.contract.cells import cells
from tests.unit.policies.talk import said

WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def talk(words: str) -> list[Message]:
    """`talk("a b")`: two messages of the user without ids."""
    return [said("u", word) for word in words.split()]


def named(words: str) -> list[Message]:
    """`named("a b")`: two messages whose ids are what they say."""
    return [said("u", word, id=word) for word in words.split()]


@pytest.mark.behaviour("C22", "C33")
@cells(
    "written, known, found",
    [
        ("a b c", "a b", [0, 1, None]),
        ("b c", "a b", [1, None]),
        ("c d", "a b", [None, None]),
        ("ok", "ok ok ok", [2]),
        ("ok ok", "ok", [0, None]),
        ("a ok b ok c", "a ok b ok", [0, 1, 2, 3, None]),
        ("a c", "a b c", [0, 2]),
        ("x a b", "a b", [None, None, None]),
    ],
    shared=True,
)
def test_without_ids_a_message_is_known_by_what_it_says_and_where(
    written: str, known: str, found: list[int | None]
) -> None:
    assert align_messages(talk(written), named(known)) == found


@pytest.mark.behaviour("C22")
def test_an_id_says_which_message_it_is_whatever_it_says_now() -> None:
    changed = [said("u", "other", id="a"), said("u", "b", id="x"), said("u", "c")]
    assert align_messages(changed, named("a b c")) == [0, None, 2]


@pytest.mark.behaviour("C33")
@given(WORDS, WORDS)
def test_a_talk_that_is_written_back_with_more_behind_it_is_known_as_far_as_it_is_stored(
    stored: list[str], new: list[str]
) -> None:
    known = [said("u", word, id=str(at)) for at, word in enumerate(stored)]
    found = align_messages([said("u", word) for word in [*stored, *new]], known)
    assert sorted(at for at in found if at is not None) == list(range(len(stored)))
    assert found.count(None) == len(new)


@given(WORDS, WORDS)
def test_what_is_known_stands_in_the_order_of_the_log_and_says_the_same(
    written: list[str], stored: list[str]
) -> None:
    found = align_messages(
        [said("u", word) for word in written], [said("u", word, id=str(at)) for at, word in enumerate(stored)]
    )
    known = [at for at in found if at is not None]
    assert known == sorted(set(known))
    assert all(at is None or stored[at] == word for word, at in zip(written, found, strict=True))


@pytest.mark.behaviour("C33")
def test_a_list_is_the_whole_talk_where_it_begins_as_the_talk_does() -> None:
    assert begins_at(talk("a b c"), named("a b"))
    assert not begins_at(talk("b c"), named("a b"))
    assert not begins_at([said("u", "a", id="other")], named("a"))
    assert not begins_at([], named("a"))


@pytest.mark.behaviour("C33")
def test_only_a_list_that_begins_as_the_talk_does_or_has_its_ids_is_taken_for_it() -> None:
    shown = named("a b c")
    assert [m.text for m in behind(talk("a b c d"), shown)] == ["d"]
    assert [m.text for m in behind(talk("b c"), shown)] == ["b", "c"]
    assert [m.text for m in behind([*named("b c"), *talk("c")], shown)] == ["c"]
    assert [m.text for m in behind([said("u", "older", id="0"), *named("a"), *talk("e")], shown)] == ["e"]
    assert behind(talk("a b"), shown) == []


@pytest.mark.behaviour("C48", "C49")
def test_merged_lists_have_a_message_as_often_as_the_list_that_has_it_most() -> None:
    assert [m.text for m in merge_messages([talk("ok a ok"), talk("ok b"), talk("ok ok ok")])] == [
        "ok",
        "a",
        "ok",
        "b",
        "ok",
    ]
    long = "x" * 100
    assert len(merge_messages([talk(long + "1"), talk(long + "2")])) == 2
    assert [m.id for m in merge_messages([named("a b"), named("b c"), talk("c")])] == ["a", "b", "c"]
    assert [m.role.value for m in merge_messages([[said("u", "ok")], [said("a", "ok")]])] == [
        "user",
        "assistant",
    ]


@pytest.mark.behaviour("C48", "C49")
def test_lists_that_gave_one_message_different_ids_show_it_once() -> None:
    def of(part: str, words: str) -> list[Message]:
        return [said("u", word, id=f"{part}{at}") for at, word in enumerate(words.split())]

    one, other = of("one", "hi yo"), of("other", "hi yo ok a ok")
    assert [m.text for m in merge_messages([one, other])] == ["hi", "yo", "ok", "a", "ok"]
    assert [m.id for m in merge_messages([one, other, other, talk("ok ok")])] == [
        "one0", "one1", "other2", "other3", "other4",
    ]  # fmt: skip
    shared = [said("u", "ok", id="1"), said("u", "a", id="2"), said("u", "ok", id="3")]
    assert [m.id for m in merge_messages([shared[2:], shared])] == ["3", "1", "2"], (
        "an id decides before a content"
    )
