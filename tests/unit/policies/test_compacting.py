"""Compacting a plain list: duplicates go, then what matters least, then the older part
becomes a summary, then the oldest go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.policies.list_compaction import (
    CompactionSettings,
    TokenBudget,
    append_message,
    compact_messages,
    context_tokens,
    cost_of,
    format_token_count,
    summary_of,
    token_budget,
)
from memory.policies.message_importance import duplicates, importance, similarity
from memory.policies.window import blocks
from memory.ports.contract.cells import cells
from tests.support.depth import drawn
from tests.unit.policies.talk import COUNTER, answer, asks, said, talks

LONG = (
    "The ferry to the northern islands runs every second Sunday from April until October, weather"
    " permitting. "
)


def different(count: int, role: str = "u") -> list[Message]:
    """Messages of 30 tokens each in a list (24 of text) of which no two share a word."""
    letters = str.maketrans("0123456789", "abcdefghij")  # digits would cost more
    texts = [" ".join(f"w{n}x{i}yyyy" for i in range(40))[:94].translate(letters) for n in range(count)]
    return [said(role, text, id=f"m{n}") for n, text in enumerate(texts)]


def small(**changes: object) -> CompactionSettings:
    """Settings under which ten messages of 30 tokens are at the threshold."""
    return replace(
        CompactionSettings(max_tokens=300, threshold=1.0, target=0.5, keep_recent=2, min_importance=0),
        **changes,  # type: ignore[arg-type]
    )


def never(_: Sequence[Message]) -> Message:
    raise AssertionError("nothing was to be summarised")


@pytest.mark.behaviour("A114")
def test_a_count_that_is_given_wins_over_counting_and_counting_leaves_the_message_alone() -> None:
    message = said("u", "abcd")
    assert cost_of(message, COUNTER) == 5
    assert message == said("u", "abcd")
    assert cost_of(said("u", "abcd", tokens=900), COUNTER) == 900
    assert cost_of(said("u", "abcd", tokens=0), COUNTER) == 0


@pytest.mark.behaviour("A115")
def test_a_list_costs_its_messages_and_two_each() -> None:
    assert context_tokens([], COUNTER) == 0
    assert context_tokens([said("u", "abcd"), said("u", tokens=7)], COUNTER) == 5 + 2 + 7 + 2


@pytest.mark.behaviour("A116")
@cells(
    "message, score",
    [
        (said("a", "a" * 60), 50),
        (said("a", "a" * 49), 40),
        (said("s", "a" * 60), 80),
        (said("a", "we must go " + "a" * 60), 65),
        (said("a", "mustard, tasks: none " + "a" * 60), 50),
        (said("a", "```x```" + "a" * 60), 60),
        (said("u", "why? " + "a" * 60), 60),
        (said("a", "why? " + "a" * 60), 50),
        (said("u", "Ok, " + "a" * 60), 30),
        (said("u", "thanks"), 20),
        (said("u", "Okinawa " + "a" * 60), 50),
        (said("a", "a" * 60, is_summary=True), 75),
        (said("a", "a" * 60, metadata={"importance": 100}), 75),
        (said("a", "a" * 60, metadata={"importance": "high"}), 50),
        (said("s", "we must? ```" + "a" * 60, is_summary=True), 100),
        (said("u", "ok", metadata={"importance": -500}), 0),
    ],
    shared=True,
)
def test_importance_adds_up_and_stays_between_nothing_and_a_hundred(message: Message, score: float) -> None:
    assert importance(message, 0, 10) == score


@pytest.mark.behaviour("A116")
def test_later_messages_matter_more_and_words_of_the_callers_task_count() -> None:
    message = said("a", "a ferry, " + "a" * 60)
    assert [importance(message, index, 10) for index in (0, 5, 10)] == [50, 60, 70]
    assert importance(message, 0, 10, ["Ferry"]) == 65
    assert importance(message, 0, 0) == 50


@pytest.mark.behaviour("A117")
@cells(
    "one, other, alike",
    [
        ("the red boat", "The RED boat", 1),
        ("red boat sails", "red boat sinks", 0.5),
        ("a b of", "a b of", 0),
        ("", "", 0),
        ("red boat", "", 0),
        ("red red red boat", "boat red", 1),
    ],
    shared=True,
)
def test_similarity_is_the_share_of_words_of_more_than_two_letters(
    one: str, other: str, alike: float
) -> None:
    assert similarity(one, other) == alike
    assert similarity(other, one) == alike


@pytest.mark.behaviour("A118")
def test_duplicates_are_named_once_by_the_earliest() -> None:
    messages = [
        said("u", LONG),
        said("u", "something else entirely"),
        said("a", LONG.upper()),
        said("u", LONG + "again"),
        said("u", "else entirely something"),
    ]
    assert duplicates(messages) == {0: (2, 3), 1: (4,)}
    assert duplicates(messages, threshold=1.0) == {0: (2,), 1: (4,)}
    assert duplicates([]) == duplicates([said("u", "ok"), said("u", "ok")]) == {}


@pytest.mark.behaviour("A118")
@settings(max_examples=drawn(150), deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["one", "two", "three", "four", "five", "six"]), max_size=8), max_size=12
    ),
    st.sampled_from([0.1, 0.3, 0.5, 0.85, 1.0]),
)
def test_duplicates_are_those_that_comparing_every_pair_finds(
    texts: list[list[str]], threshold: float
) -> None:
    messages = [said("u", " ".join(words)) for words in texts]
    expected: dict[int, tuple[int, ...]] = {}
    left = list(range(len(messages)))
    while left:
        first, *later = left
        alike = tuple(at for at in later if similarity(messages[first].text, messages[at].text) >= threshold)
        expected |= {first: alike} if alike else {}
        left = [at for at in later if at not in alike]
    assert duplicates(messages, threshold) == expected


@pytest.mark.behaviour("A119")
def test_a_summary_without_a_model_is_the_first_sentence_of_the_first_five() -> None:
    messages = [said("u", f"Point {n} stands. Not this.\nNor this.", id=f"m{n}") for n in range(7)] + [
        said("u", "no id")
    ]
    summary = summary_of(messages)
    assert (summary.role, summary.is_summary) == (Role.SYSTEM, True)
    assert summary.id is not None
    assert summary.id.startswith("summary_")
    assert summary.metadata == {"importance": 70, "summarizes": [f"m{n}" for n in range(7)]}
    assert summary.text.endswith(
        "Point 0 stands. Point 1 stands. Point 2 stands. Point 3 stands. Point 4 stands."
    )
    assert summary_of(messages) == summary
    assert summary_of(messages[1:]).id != summary.id


@pytest.mark.behaviour("A119")
def test_a_sentence_of_a_summary_has_less_than_two_hundred_characters() -> None:
    summary = summary_of([said("u", "a" * 500), said("u", "b" * 199 + ". c"), said("u", "世界。好")])
    _, first = summary.text.split(": ")
    assert [len(sentence) for sentence in first.split(" ")] == [199, 199, 3]


@pytest.mark.behaviour("A120")
def test_the_defaults_are_those_of_the_row() -> None:
    expected = CompactionSettings(
        max_tokens=100_000,
        target=0.7,
        threshold=0.85,
        min_importance=30,
        keep_recent=10,
        summarise=True,
        deduplicate=True,
        similarity=0.85,
    )
    assert CompactionSettings() == expected
    assert CompactionSettings(threshold=0.5).target == 0.5, "a default that nobody gave fits what was given"


@cells(
    "field, value",
    [
        ("max_tokens", 0),
        ("keep_recent", -1),
        ("target", 0.9),
        ("target", -0.1),
        ("target", "0.5"),
        ("threshold", float("nan")),
        ("threshold", None),
        ("min_importance", float("nan")),
        ("min_importance", True),
        ("similarity", 0.0),
        ("similarity", 1.1),
    ],
    shared=True,
)
def test_settings_that_cannot_be_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        CompactionSettings(**{field: value})  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.behaviour("A121")
def test_below_the_threshold_nothing_changes() -> None:
    messages = different(9)
    found = compact_messages(messages, small(), COUNTER, never)
    assert (found.messages, found.strategy, found.removed, found.summary) == (messages, "none", (), None)
    assert found.tokens_before == found.tokens_after == 270
    assert compact_messages([], small(), COUNTER).strategy == "none"


@pytest.mark.behaviour("A121", "A118")
def test_at_the_threshold_duplicates_go_first_and_when_that_is_enough_nothing_else_does() -> None:
    same = different(1)[0]
    messages = [said("s", "x" * 94), *[same] * 6, *different(4)[1:]]
    found = compact_messages(messages, small(), COUNTER, never)
    assert (found.strategy, found.removed) == ("dedupe", (2, 3, 4, 5, 6))
    assert found.tokens_after == 150
    assert compact_messages(messages, small(deduplicate=False), COUNTER).strategy == "summarise"


@pytest.mark.behaviour("A122")
def test_a_recent_message_a_system_message_and_a_summary_are_never_taken_for_duplicates() -> None:
    text = different(1)[0].text
    messages = [
        said("u", text),
        said("s", text),
        said("s", text, is_summary=True),
        *(said("u", text) for _ in range(7)),
    ]
    found = compact_messages(messages, small(keep_recent=5, target=0.8), COUNTER, never)
    assert found.strategy == "dedupe"
    assert found.removed == (3, 4)


@pytest.mark.behaviour("A118")
def test_messages_that_show_an_image_or_ask_a_tool_are_not_taken_for_duplicates() -> None:
    text = different(1)[0].text
    seen = [
        said(
            "u",
            [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": f"https://x/{n}"}}],
        )
        for n in range(3)
    ]
    calls = [asks(f"c{n}", content=text) for n in range(3)]
    found = compact_messages(
        [*seen, *calls, *different(6)], small(target=0.0, summarise=False, keep_recent=11), COUNTER
    )
    assert found.removed == ()


@pytest.mark.behaviour("A121", "A116")
def test_then_the_least_important_go_until_the_target_is_met() -> None:
    messages = different(10)
    for n, given_importance in enumerate((100, 5, 0, 5, 100, 3, 5, 5, 0, 0)):
        messages[n].metadata = {"importance": given_importance}
    found = compact_messages(messages, small(min_importance=40, target=0.8), COUNTER, never)
    assert (found.strategy, found.removed) == ("importance", (1, 2))
    found = compact_messages(messages, small(min_importance=30, target=0.8, summarise=False), COUNTER, never)
    assert found.strategy == "importance"
    assert found.removed == (1, 2)


@pytest.mark.behaviour("A122", "A116")
def test_the_recent_system_and_summary_messages_are_never_dropped_for_their_importance() -> None:
    bored = {"importance": -1000}
    messages = [
        said("s", "a" * 94, metadata=bored),
        said("u", "b" * 94, metadata=bored, is_summary=True),
        *different(8),
    ]
    for message in messages:
        message.metadata = dict(bored)
    found = compact_messages(messages, small(min_importance=30, target=0.0, summarise=False), COUNTER)
    assert found.removed[:1] != (0,)
    assert {0, 8, 9} <= set(range(10)) - set(found.removed)
    kept = compact_messages(messages, small(min_importance=30, target=0.4, summarise=False), COUNTER)
    assert (kept.strategy, kept.removed) == ("importance", (2, 3, 4, 5, 6, 7))


@pytest.mark.behaviour("A121", "A119")
def test_then_one_summary_stands_for_all_that_is_not_protected() -> None:
    messages = [said("s", "system"), *different(10)]
    found = compact_messages(messages, small(), COUNTER, lambda given: " and ".join(str(m.id) for m in given))
    assert found.strategy == "summarise"
    assert [m.id for m in found.messages] == [None, found.messages[1].id, "m8", "m9"]
    assert found.summary is found.messages[1]
    assert found.summary.text == "m0 and m1 and m2 and m3 and m4 and m5 and m6 and m7"
    assert found.summary.metadata["summarizes"] == [f"m{n}" for n in range(8)]
    assert found.removed == tuple(range(1, 9))
    assert found.tokens_after == context_tokens(found.messages, COUNTER)


@pytest.mark.behaviour("A121")
def test_a_summary_needs_three_messages_and_must_cost_less_than_they_do() -> None:
    two = compact_messages(different(10), small(keep_recent=8, target=0.9), COUNTER, never)
    assert (two.strategy, two.removed) == ("trim", (0,))
    longer = compact_messages(different(10), small(keep_recent=7), COUNTER, lambda _: LONG * 9)
    assert (longer.strategy, longer.summary) == ("trim", None)
    empty = compact_messages(different(10), small(), COUNTER, lambda _: " ")
    assert (empty.strategy, empty.summary) == ("trim", None)


def test_a_summariser_may_give_a_message_and_gets_copies() -> None:
    messages = different(10)

    def make(sources: Sequence[Message]) -> Message:
        sources[0].metadata["changed"] = True
        return said("u", "short", id="mine", metadata={"by": "me"})

    found = compact_messages(messages, small(), COUNTER, make)
    assert messages == different(10)
    assert found.summary == said(
        "u",
        "short",
        id="mine",
        is_summary=True,
        metadata={"by": "me", "summarizes": [f"m{n}" for n in range(8)]},
    )
    with pytest.raises(InvalidInput, match="summarise"):
        compact_messages(messages, small(), COUNTER, lambda _: 3)  # type: ignore[arg-type, return-value]


@pytest.mark.behaviour("A123")
@cells("keep_recent, left", [(0, 1), (1, 2), (4, 5), (8, 9), (10, 10)], shared=True)
def test_the_trim_stops_at_one_more_than_the_recent(keep_recent: int, left: int) -> None:
    messages = different(10)
    found = compact_messages(messages, small(keep_recent=keep_recent, target=0.0, summarise=False), COUNTER)
    assert found.messages == messages[10 - left :]
    assert found.over_target == 30 * left


@pytest.mark.behaviour("A123", "A121")
def test_the_trim_takes_the_oldest_and_stops_when_the_target_is_met() -> None:
    found = compact_messages(different(10), small(target=0.8, summarise=False), COUNTER)
    assert (found.strategy, found.removed, found.over_target) == ("trim", (0, 1), 0)


@pytest.mark.behaviour("A124")
def test_to_keep_none_recent_protects_none() -> None:
    messages = [said("s", "system"), *different(10)]
    found = compact_messages(messages, small(keep_recent=0), COUNTER)
    assert [m.is_summary for m in found.messages] == [False, True]


@pytest.mark.behaviour("B46")
def test_the_last_user_message_can_be_protected() -> None:
    messages = [*different(2), *different(12, role="a")[2:]]
    found = compact_messages(messages, small(keep_recent=0, keep_last_user=True), COUNTER, lambda _: "short")
    assert [m.text for m in found.messages] == ["short", messages[1].text]


@pytest.mark.behaviour("A125")
def test_a_message_is_added_and_only_where_that_crosses_the_threshold_is_anything_compacted() -> None:
    messages = different(10)
    found = append_message(messages[:8], messages[8], small(), COUNTER, never)
    assert (found.messages, found.compacted, found.result.strategy) == (messages[:9], False, "none")
    found = append_message(messages[:9], messages[9], small(), COUNTER)
    assert (found.compacted, found.messages) == (True, found.result.messages)
    assert found.messages[-1] == messages[9]
    assert len(messages) == 10


@pytest.mark.behaviour("A126")
def test_a_budget_says_what_is_used_and_what_remains() -> None:
    assert token_budget(different(5), small(), COUNTER) == TokenBudget(150, 150, 50.0)
    assert token_budget(different(20), small(), COUNTER).remaining == -300
    assert token_budget([], small(), COUNTER) == TokenBudget(0, 300, 0.0)


@pytest.mark.behaviour("A126")
@cells(
    "count, shown",
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (1549, "1.5k"),
        (999_949, "999.9k"),
        (999_950, "1.0M"),
        (1_500_000, "1.5M"),
    ],
    shared=True,
)
def test_counts_are_shown_short(count: int, shown: str) -> None:
    assert format_token_count(count) == shown


@settings(max_examples=drawn(150), deadline=None)
@given(talks(), st.integers(0, 5), st.integers(1, 60), st.booleans(), st.booleans(), st.floats(0, 60))
def test_whatever_is_compacted_no_call_is_parted_from_its_results_and_nothing_protected_is_lost(
    messages: list[Message], keep_recent: int, most: int, summarise: bool, last_user: bool, least: float
) -> None:
    before = [m.model_copy(deep=True) for m in messages]
    wanted = CompactionSettings(
        max_tokens=most,
        keep_recent=keep_recent,
        summarise=summarise,
        keep_last_user=last_user,
        min_importance=least,
    )
    found = compact_messages(messages, wanted, COUNTER, lambda _: "s")
    assert messages == before
    assert found.tokens_after == context_tokens(found.messages, COUNTER) <= found.tokens_before
    assert (found.strategy == "none") == (not found.removed)
    gone = set(found.removed)
    assert all(set(block) <= gone or gone.isdisjoint(block) for block in blocks(messages))
    assert gone.isdisjoint(range(max(0, len(messages) - keep_recent), len(messages)))
    assert not any(messages[at].role is Role.SYSTEM and not messages[at].is_summary for at in gone)
    reached = found.tokens_before >= wanted.threshold * most
    assert found.over_target == (max(0, found.tokens_after - int(wanted.target * most)) if reached else 0)
    users = [at for at, m in enumerate(messages) if m.role is Role.USER]
    assert not (last_user and users and users[-1] in gone)


def test_a_result_that_answers_nothing_can_go_like_any_message() -> None:
    found = compact_messages([answer("c9"), *different(10)], small(target=0.99, summarise=False), COUNTER)
    assert found.removed[:1] == (0,)
