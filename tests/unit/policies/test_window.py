"""What of a conversation a model is shown: results behind their calls, whole blocks
under a budget, what a compaction keeps.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.domain.message import Message, Role
from memory.policies.window import (
    TokenThreshold,
    arrange,
    blocks,
    fit_in_steps,
    fit_to_budget,
    is_pinned,
    layered_view,
    newest,
    reaches_back,
    split_by_policy,
    split_for_compaction,
    turns,
)
from memory.ports.contract.cells import cells
from tests.support.depth import drawn
from tests.unit.policies.talk import answer, asks, contents, costs, said, talks

SIMPLE = [said("s", "sys prompt"), said("u", "aaaa"), said("a", "bbbb"), said("u", "cccc"), said("a", "dddd")]
TOOLS = [said("u", "q"), asks("c1"), answer("c1"), said("a", "done"), said("u", "tail")]


def shown(messages: list[Message], budget: int, *, by: Literal["blocks", "turns"] = "blocks") -> list[str]:
    return contents(
        messages, fit_to_budget(messages, costs(messages), budget, by=by, keep_last_user=False).kept
    )


@pytest.mark.behaviour("B53", "B22")
def test_a_result_stands_behind_the_call_it_answers_whoever_wrote_in_between() -> None:
    messages = [
        said("u", "q"),
        asks("c1", "c2"),
        said("u", "also"),
        answer("c2", "two"),
        asks("c3"),
        answer("c1", "one"),
        answer("c3", "three"),
    ]
    found = arrange(messages)
    assert found.order == (0, 1, 3, 5, 2, 4, 6)
    assert (found.invalid_response, found.interrupted) == ((), ())


@pytest.mark.behaviour("B53")
def test_a_second_result_and_one_that_nothing_asked_for_are_left_out_and_named() -> None:
    messages = [
        answer("c1", "too early"),
        asks("c1"),
        answer("c1", "one"),
        answer("c1", "again"),
        answer("c9"),
        said("t", "of nobody"),
    ]
    found = arrange(messages)
    assert found.order == (1, 2)
    assert found.invalid_response == (0, 3, 4, 5)


@pytest.mark.behaviour("B53")
def test_calls_without_a_result_are_named_in_order() -> None:
    messages = [asks("c2", "c1"), answer("c1"), said("u", "go on"), asks("c0")]
    assert [(one.position, one.call.id) for one in arrange(messages).interrupted] == [(0, "c2"), (3, "c0")]


@pytest.mark.behaviour("B53")
def test_a_result_belongs_to_the_nearest_earlier_call_of_its_id_that_has_none() -> None:
    messages = [
        asks("c1", content="first"),
        asks("c1", content="second"),
        answer("c1", "r1"),
        answer("c1", "r2"),
        answer("c1", "r3"),
    ]
    found = arrange(messages)
    assert found.order == (0, 3, 1, 2)
    assert found.invalid_response == (4,)


@pytest.mark.behaviour("B53")
def test_results_that_name_their_call_have_it_before_those_that_name_the_tool_whichever_came_first() -> None:
    by_name = [said("t", f"by name {n}", name="t") for n in range(2)]
    for named in ("c1", "c2", "c3"):
        others = iter([call for call in ("c1", "c2", "c3") if call != named])
        wanted = {1: next(others), 2: next(others)}
        for at in range(3):
            results = [*by_name[:at], answer(named), *by_name[at:]]
            found = arrange([asks("c1", "c2", "c3"), *results, said("u", "go on")])
            assert (found.order, found.invalid_response, found.interrupted) == ((0, 1, 2, 3, 4), (), ())
            names = [position for position in (1, 2, 3) if position != at + 1]
            assert found.answers == dict(zip(names, wanted.values(), strict=True))


@pytest.mark.behaviour("B53")
def test_a_result_by_name_is_left_over_where_ids_name_every_call() -> None:
    messages = [
        asks("c1", "c2"),
        said("t", "by name", name="t"),
        said("u", "go on"),
        answer("c2"),
        answer("c1"),
    ]
    found = arrange(messages)
    assert (found.order, found.invalid_response, found.answers) == ((0, 3, 4, 2), (1,), {})


@pytest.mark.behaviour("C27", "C45", "B47")
def test_a_call_and_its_results_are_one_block_and_an_orphan_is_in_none() -> None:
    messages = [
        said("s", "sys"),
        said("u"),
        asks("c1", "c2"),
        answer("c1"),
        said("u"),
        answer("c2"),
        answer("c3"),
        said("s", is_summary=True),
    ]
    assert blocks(messages) == [(1,), (2, 3, 5), (4,)]


@pytest.mark.behaviour("C29", "AC-C15")
def test_a_turn_ends_at_an_assistants_message_without_calls_and_what_follows_is_an_incomplete_one() -> None:
    assert turns(TOOLS) == [(0, 1, 2, 3), (4,)]
    assert sum(costs(TOOLS)) == 25
    assert turns(TOOLS[:4]) == [(0, 1, 2, 3)]
    assert turns([]) == []


@pytest.mark.behaviour("C29")
def test_system_messages_and_summaries_are_in_no_turn() -> None:
    assert turns(
        [said("s"), said("s", is_summary=True), said("u"), said("a"), said("a", is_summary=True)]
    ) == [(2, 3)]


@pytest.mark.behaviour("C17", "C18", "C16")
@cells(
    "budget, count",
    [(0, 0), (11, 0), (12, 1), (16, 1), (17, 2), (22, 3), (26, 3), (27, 4), (1000, 4)],
    shared=True,
)
def test_system_messages_come_first_and_then_the_newest_that_fit(budget: int, count: int) -> None:
    assert shown(SIMPLE, budget) == ["sys prompt", *["aaaa", "bbbb", "cccc", "dddd"][4 - count :]]


@pytest.mark.behaviour("C19", "AC-C13")
def test_a_message_that_does_not_fit_stops_the_walk() -> None:
    messages = [said("u", "a"), said("a", "x" * 400), said("u", "b")]
    found = fit_to_budget(messages, costs(messages), 20, keep_last_user=False)
    assert (contents(messages, found.kept), found.tokens, found.over_budget) == (["b"], 5, 0)


@pytest.mark.behaviour("C20")
def test_system_messages_are_kept_even_where_they_alone_exceed_the_budget() -> None:
    messages = [said("u", "q"), said("s", "x" * 400), said("s", "y")]
    found = fit_to_budget(messages, costs(messages), 20, keep_last_user=False)
    assert (found.kept, found.tokens, found.over_budget) == ((1, 2), 109, 89)


@pytest.mark.behaviour("B35", "C17")
def test_summaries_stand_behind_system_messages_and_are_kept() -> None:
    messages = [said("u", "old"), said("a", "sum", is_summary=True), said("s", "sys"), said("u", "new")]
    assert shown(messages, 13) == ["sys", "sum"]
    assert shown(messages, 1000) == ["sys", "sum", "old", "new"]


@pytest.mark.behaviour("C34", "AC-C17")
def test_a_turn_is_shown_whole_or_not_at_all() -> None:
    turn = [said("u", "q"), asks("c1"), answer("c1"), said("a", "done")]
    assert shown(turn, 16, by="turns") == []
    assert shown(turn, 20, by="turns") == ["q", "", "r", "done"]
    kept = fit_to_budget(turn, costs(turn), 16, by="turns")
    assert (kept.kept, kept.over_budget) == ((0, 1, 2, 3), 4)


@pytest.mark.behaviour("C34", "C27")
def test_a_call_is_shown_with_its_results_or_not_at_all() -> None:
    messages = [said("u", "q"), asks("c1"), answer("c1", "a" * 40), said("a", "done")]
    assert shown(messages, 5 + 13) == ["done"]  # the result alone would fit
    assert shown(messages, 5 + 14 + 5) == ["", "a" * 40, "done"]


@pytest.mark.behaviour("B46")
def test_the_last_user_message_is_kept_whatever_the_budget_and_by_how_much_it_is_exceeded_is_said() -> None:
    messages = [
        said("s", "sys"),
        said("u", "old"),
        said("u", "u" * 40),
        asks("c1"),
        answer("c1"),
        asks("c2"),
        answer("c2"),
    ]
    found = fit_to_budget(messages, costs(messages), 0)
    assert (found.kept, found.tokens, found.over_budget) == ((0, 2), 19, 19)
    found = fit_to_budget(messages, costs(messages), 30)
    assert (found.kept, found.over_budget) == ((0, 2, 5, 6), 0)
    assert fit_to_budget(messages, costs(messages), 30, keep_last_user=False).kept == (0, 3, 4, 5, 6)


@pytest.mark.behaviour("C26")
@cells(
    "most, kept",
    [
        (-1, ()),
        (0, ()),
        (1, (4,)),
        (2, (3, 4)),
        (3, (3, 4)),
        (4, (1, 2, 3, 4)),
        (5, (0, 1, 2, 3, 4)),
        (99, (0, 1, 2, 3, 4)),
    ],
    shared=True,
)
def test_the_newest_so_many_are_never_more_and_hold_no_orphan(most: int, kept: tuple[int, ...]) -> None:
    assert newest(TOOLS, most) == kept


@pytest.mark.behaviour("B51", "AC-B43")
def test_the_layers_are_system_all_summaries_and_the_newest_others() -> None:
    summary = said("s", "summary-1", id="s1", is_summary=True)
    messages = [said("s", "system"), summary, *(said(name[0], name) for name in ("u1", "a1", "u2", "a2"))]
    assert [m.text for m in layered_view(messages, most=2)] == ["system", "summary-1", "u2", "a2"]
    archived = said("s", "summary-0", id="s0", is_summary=True)
    found = layered_view(messages, [archived, summary.model_copy()], most=0)
    assert [m.text for m in found] == ["system", "summary-0", "summary-1"]


@pytest.mark.behaviour("B51")
def test_eighty_others_are_shown_unless_more_or_fewer_are_asked_for() -> None:
    messages = [said("s", "system"), *(said("u", str(n)) for n in range(100))]
    assert [m.text for m in layered_view(messages)] == ["system", *(str(n) for n in range(20, 100))]


@pytest.mark.behaviour("B34", "B35", "B41")
@cells(
    "keep_last, kept",
    [(-5, ()), (0, ()), (2, (5, 6)), (6, (1, 2, 3, 4, 5, 6)), (100, (1, 2, 3, 4, 5, 6))],
    shared=True,
)
def test_a_compaction_keeps_system_and_the_last_so_many(keep_last: int, kept: tuple[int, ...]) -> None:
    messages = [said("s", "system"), *(said("u", f"m{n}") for n in range(1, 7))]
    found = split_for_compaction(messages, keep_last)
    assert (found.system, found.kept) == ((0,), kept)
    assert found.archived == tuple(at for at in range(1, 7) if at not in kept)


@pytest.mark.behaviour("B40", "B41")
def test_an_earlier_summary_is_archived_and_never_counts_towards_what_is_kept() -> None:
    messages = [
        said("s", "system"),
        said("s", "sum1", is_summary=True),
        said("u", "m1"),
        said("a", "m2"),
        said("u", "m3"),
    ]
    assert split_for_compaction(messages, 2).archived == (1, 2)
    assert split_for_compaction(messages, 100).archived == (1,)


@pytest.mark.behaviour("B47")
@pytest.mark.parametrize("keep_last", [1, 2, 3])
def test_a_kept_result_keeps_its_call_and_the_other_results_of_it(keep_last: int) -> None:
    messages = [said("u", "q"), asks("c1", "c2"), answer("c1"), answer("c2")]
    assert split_for_compaction(messages, keep_last).kept == (1, 2, 3)


@pytest.mark.behaviour("B46", "B34")
def test_a_policy_moves_the_cut_back_to_the_last_user_message_and_an_explicit_compaction_does_not() -> None:
    messages = [
        said("u", "old"),
        said("a", "old"),
        said("u", "q"),
        asks("c1"),
        answer("c1"),
        said("a", "done"),
    ]
    assert split_for_compaction(messages, 1).kept == (5,)
    assert split_by_policy(messages, 1).kept == (2, 3, 4, 5)
    assert split_by_policy(messages, 5).kept == (1, 2, 3, 4, 5)
    assert split_by_policy([said("a", "alone"), said("a", "too")], 1).kept == (1,)
    assert split_by_policy(messages, 0).archived == (0, 1)


@pytest.mark.behaviour("B43", "B44", "AC-B39")
def test_compaction_is_due_at_nine_tenths_of_what_the_model_takes_and_with_more_than_is_kept() -> None:
    messages = [said("s", "system"), said("u", "x" * 1200), said("u", "y" * 1200)]
    assert TokenThreshold(120, 60, keep_last=1).is_reached(messages, sum(costs(messages)))
    assert not TokenThreshold(120, 60, keep_last=2).is_reached(messages, sum(costs(messages)))
    assert TokenThreshold(120, 60, keep_last=1).is_reached(messages, 54)
    assert not TokenThreshold(120, 60, keep_last=1).is_reached(messages, 53)
    assert TokenThreshold(10, 60).usable == 1
    assert (TokenThreshold(10).keep_last, TokenThreshold(10).share) == (None, 0.9)


@settings(max_examples=drawn(150), deadline=None)
@given(talks())
def test_whatever_was_written_every_message_is_shown_once_or_named_and_results_follow_their_call(
    messages: list[Message],
) -> None:
    found = arrange(messages)
    assert sorted((*found.order, *found.invalid_response)) == list(range(len(messages)))
    _takes(messages, found.order)
    asked = sum(len(m.tool_calls) for m in messages)
    results = sum(m.role is Role.TOOL for m in messages)
    assert asked - len(found.interrupted) == results - len(found.invalid_response)
    again = [messages[at] for at in found.order]
    assert arrange(again).order == tuple(range(len(again)))


@settings(max_examples=drawn(150), deadline=None)
@given(talks(), st.integers(0, 80), st.sampled_from(["blocks", "turns"]), st.booleans())
def test_whatever_the_budget_it_is_kept_or_said_and_no_block_is_parted(
    messages: list[Message], budget: int, by: Literal["blocks", "turns"], keep_last_user: bool
) -> None:
    found = fit_to_budget(messages, costs(messages), budget, by=by, keep_last_user=keep_last_user)
    assert found.tokens == sum(costs(messages)[at] for at in found.kept)
    assert len(set(found.kept)) == len(found.kept)
    assert found.over_budget == max(0, found.tokens - budget)
    _takes(messages, found.kept)
    if keep_last_user and (users := [at for at, m in enumerate(messages) if m.role is Role.USER]):
        assert users[-1] in found.kept
    elif not keep_last_user and found.over_budget:
        assert all(messages[at].role is Role.SYSTEM for at in found.kept)


@settings(max_examples=drawn(150), deadline=None)
@given(talks(), st.integers(-1, 10))
def test_whatever_is_kept_by_a_compaction_holds_whole_blocks_and_nothing_is_lost(
    messages: list[Message], keep_last: int
) -> None:
    for found in (split_for_compaction(messages, keep_last), split_by_policy(messages, keep_last)):
        assert sorted((*found.system, *found.archived, *found.kept)) == list(range(len(messages)))
        _takes(messages, found.kept)
    assert len(newest(messages, keep_last)) <= max(0, keep_last)
    _takes(messages, newest(messages, keep_last))


@settings(max_examples=drawn(300), deadline=None)
@given(talks(), st.integers(0, 80), st.integers(0, 8), st.sampled_from(["blocks", "turns"]))
def test_where_the_end_of_a_window_is_enough_it_shows_what_all_of_it_shows(
    messages: list[Message], budget: int, last: int, by: Literal["blocks", "turns"]
) -> None:
    for start in range(len(messages) + 1):
        end = [m for at, m in enumerate(messages) if at >= start or is_pinned(m)]
        if reaches_back(end, costs(end), last=None, budget=budget, by=by):
            whole = fit_to_budget(messages, costs(messages), budget, by=by)
            found = fit_to_budget(end, costs(end), budget, by=by)
            assert ([id(end[at]) for at in found.kept], found.over_budget) == (
                [id(messages[at]) for at in whole.kept],
                whole.over_budget,
            )
        if reaches_back(end, costs(end), last=last, budget=None):
            assert [id(end[at]) for at in newest(end, last)] == [
                id(messages[at]) for at in newest(messages, last)
            ]


def test_the_end_of_a_window_is_enough_once_something_has_no_room() -> None:
    messages = [said("s", "system"), *[said("ua"[n % 2], f"{n:04}") for n in range(40)]]
    enough = [
        n for n in range(1, 41) if reaches_back(messages[-n:], costs(messages[-n:]), last=None, budget=30)
    ]
    assert enough == list(range(enough[0], 41))
    assert enough[0] <= 10
    assert [
        n for n in range(1, 41) if reaches_back(messages[-n:], costs(messages[-n:]), last=6, budget=None)
    ] == list(range(6, 41))
    assert not any(
        reaches_back(messages[-n:], costs(messages[-n:]), last=None, budget=None) for n in range(1, 41)
    )


@pytest.mark.parametrize("by", ["blocks", "turns"])
def test_in_steps_what_is_shown_begins_the_same_until_a_step_is_full(by: Literal["blocks", "turns"]) -> None:
    """Over 200 turns the beginning changes once a step, not once a turn; and never more
    is shown than there is room for.
    """
    messages, prefixes, changes = [said("s", "system")], [-1], {"plain": 0, "steps": 0}
    for turn in range(200):
        messages += [said("u", f"question {turn:04}"), said("a", f"answer {turn:04}")]
        each = costs(messages)
        upto = [sum(each[: at + 1]) for at in range(len(messages))]
        found = fit_in_steps(messages, each, upto, 400, 100, by=by)
        plain = fit_to_budget(messages, each, 400, by=by)
        assert found.tokens <= 400
        assert set(found.kept) <= set(plain.kept)
        assert plain.tokens - found.tokens <= 100 + 2 * each[-1]
        assert found.kept[-1] == len(messages) - 1
        changes["steps"] += found.kept[1] != prefixes[-1]
        prefixes.append(found.kept[1])
    said_in_all = sum(costs(messages))
    assert changes["steps"] <= 2 + (said_in_all - 400) // 100
    assert len(set(prefixes)) > 10


@settings(max_examples=drawn(200), deadline=None)
@given(talks(), st.integers(0, 80), st.integers(1, 40), st.sampled_from(["blocks", "turns"]))
def test_steps_part_no_block_keep_the_last_user_message_and_are_told_by_the_end_alone(
    messages: list[Message], budget: int, step: int, by: Literal["blocks", "turns"]
) -> None:
    each = costs(messages)
    upto = [sum(each[: at + 1]) for at in range(len(messages))]
    found = fit_in_steps(messages, each, upto, budget, step, by=by)
    _takes(messages, found.kept)
    assert (found.over_budget, found.tokens) == (
        max(0, found.tokens - budget),
        sum(each[at] for at in found.kept),
    )
    if users := [at for at, m in enumerate(messages) if m.role is Role.USER]:
        assert users[-1] in found.kept
    for start in range(len(messages) + 1):
        at = [one for one, m in enumerate(messages) if one >= start or is_pinned(m)]
        end = [messages[one] for one in at]
        if reaches_back(end, costs(end), last=None, budget=budget, by=by):
            again = fit_in_steps(end, costs(end), [upto[one] for one in at], budget, step, by=by)
            assert [at[one] for one in again.kept] == list(found.kept)


def _takes(messages: list[Message], positions: tuple[int, ...]) -> None:
    """A model takes them: no result without its call before it, none twice; and no call
    without a result that it has.
    """
    waiting, answers = Counter[str](), arrange(messages).answers
    for at in positions:
        if messages[at].role is Role.TOOL:
            call = messages[at].tool_call_id or answers[at]
            assert waiting[call] > 0
            waiting[call] -= 1
        else:
            waiting.update(call.id for call in messages[at].tool_calls)
    whole = blocks(messages)
    assert all(set(block) <= set(positions) or set(block).isdisjoint(positions) for block in whole)
