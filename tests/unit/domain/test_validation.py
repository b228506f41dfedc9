"""The door, value by value."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.domain import validation
from memory.domain.entry import check_content
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope
from memory.domain.time import EPOCH, micros, moment
from memory.ports.contract.cells import cells

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "ü"]), JSON, max_size=3))
def test_every_json_object_is_taken_as_a_copy_equal_to_it(value: dict[str, Any]) -> None:
    copied = validation.json_object("metadata", value)
    assert copied == value
    assert copied is not value


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: (v,)], ids=["list", "object", "tuple"]
)
def test_nesting_ends_at_thirty_two_levels(wrap: Any) -> None:
    value: Any = 1
    for _ in range(31):
        value = wrap(value)
    validation.json_object("metadata", {"k": value})
    with pytest.raises(InvalidInput, match="deeper than 32"):
        validation.json_object("metadata", {"k": wrap(value)})


@settings(deadline=None)
@given(st.datetimes(timezones=st.timezones()))
def test_a_moment_given_in_any_zone_is_the_same_moment_in_utc(value: datetime) -> None:
    try:
        taken = validation.time("when", value)
    except InvalidInput:
        assert value.year in (1, 9999)
        return
    assert taken.replace(tzinfo=None) == value.replace(tzinfo=None, fold=0) - (
        value.utcoffset() or timedelta(0)
    )
    assert taken.utcoffset() == timedelta(0)


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_seconds_are_taken_exactly(seconds: int) -> None:
    if seconds > 253_402_300_800 - 86_400:
        seconds %= 10**9
    assert validation.time("when", seconds) == EPOCH + timedelta(seconds=seconds)
    if seconds >= 10**8:
        assert validation.time("when", str(seconds)) == EPOCH + timedelta(seconds=seconds)


@settings(deadline=None)
@given(st.integers(-(10**17), 10**17))
def test_microseconds_and_moments_are_inverse(value: int) -> None:
    value %= 250_000_000_000_000_000
    assert micros(moment(value)) == value


@pytest.mark.parametrize(
    ("number", "is_moment"),
    [
        (10**12 + 1, datetime(2001, 9, 9, 1, 46, 40, 1000, tzinfo=UTC)),
        (5000.5, EPOCH + timedelta(seconds=5000, milliseconds=500)),
    ],
)
def test_numbers_above_ten_to_the_twelfth_are_milliseconds(number: float, is_moment: datetime) -> None:
    assert validation.time("when", number) == is_moment


@cells("number", [3600, 0, -0.0, 0.5, 10**8 - 1, 7 * 86_400.0], shared=True)
def test_a_number_that_was_meant_as_a_length_of_time_is_refused_with_what_to_write(number: float) -> None:
    with pytest.raises(
        InvalidInput, match=r"since 1970.*before 1973; for that long from now write timedelta\(seconds="
    ) as refused:
        validation.time("expires_at", number)
    assert refused.value.field == "expires_at"
    assert validation.time("since", number) == EPOCH + timedelta(seconds=number)
    with pytest.raises(
        InvalidInput, match="before 1970; write a datetime with a zone, or ISO 8601 text such as 2026-"
    ):
        validation.time("since", -number - 1)


@pytest.mark.parametrize("length", [timedelta(microseconds=1), timedelta(days=366_000)])
def test_a_length_of_time_is_taken_as_it_is(length: timedelta) -> None:
    assert validation.length(length) == length


@cells(
    "length",
    [timedelta(0), timedelta(seconds=-1), timedelta(days=366_001), timedelta.max, timedelta.min],
    shared=True,
)
def test_no_length_and_a_thousand_years_are_refused(length: timedelta) -> None:
    with pytest.raises(InvalidInput, match="expires_at"):
        validation.length(length)


def test_a_length_of_time_is_no_moment() -> None:
    with pytest.raises(
        InvalidInput,
        match=r"since: must be a moment in time, not a length of time: write datetime.now\(UTC\) \+",
    ):
        validation.time("since", timedelta(hours=1))


class Counted(list[Any]):
    """A list that counts how many of its items were looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            self.looked_at += 1
            yield item


@pytest.mark.parametrize("item", [None, "", 0, [], {}, "x" * 100, True, 0.5], ids=repr)
@pytest.mark.parametrize("shape", ["flat", "in a list", "in lists of lists"])
def test_a_million_nodes_are_refused_when_the_room_is_used_up(item: Any, shape: str) -> None:
    nodes = Counted([item] * 1_000_000)
    value: Any = {"flat": nodes, "in a list": [1, nodes], "in lists of lists": [[[nodes]]]}[shape]
    with pytest.raises(InvalidInput, match="metadata: exceeds 65536 bytes"):
        validation.json_object("metadata", {"a": value})
    assert nodes.looked_at <= 65_536 // 3


def test_a_million_keys_are_refused_when_the_room_is_used_up() -> None:
    names = Counted(str(n) for n in range(1_000_000))

    class Named(dict[str, Any]):
        def items(self) -> Any:
            return ((name, None) for name in names)

    with pytest.raises(InvalidInput, match="metadata: exceeds 65536 bytes"):
        validation.json_object("metadata", Named(a=1))
    assert names.looked_at < 20_000


@pytest.mark.parametrize(
    "tags",  # made when it is asked for: every worker reads this table
    [lambda: ["x"] * 1_000_000, lambda: [str(n) for n in range(1_000_000)], lambda: [b"x"] * 1_001],
    ids=["same", "different", "bytes"],
)
def test_a_million_tags_are_refused_before_one_is_looked_at(tags: Callable[[], list[Any]]) -> None:
    given = Counted(tags())
    with pytest.raises(InvalidInput, match="tags: at most 32 entries"):
        validation.tags(given)
    assert given.looked_at == 0


def test_a_sequence_without_end_is_refused_at_its_limit() -> None:
    taken = itertools.count()
    with pytest.raises(InvalidInput, match="scope: takes at most 1000 items"):
        validation.sequence("scope", taken, at_most=1_000)
    assert next(taken) == 1_001


@pytest.mark.parametrize("character", ["x", "é"])
def test_a_text_far_too_long_is_refused_by_its_length(character: str) -> None:
    with pytest.raises(InvalidInput, match="content: exceeds 65536 bytes"):
        validation.text("content", character * 10_000_000 + "\ud800", max_bytes=65_536)


@pytest.mark.parametrize("character", ["x", "é"])
def test_a_content_that_is_too_long_is_refused_with_what_to_do(character: str) -> None:
    with pytest.raises(InvalidInput, match=r"content: exceeds 65536 bytes \(.*\)\. Split it into several"):
        check_content(character * 65_537)


@pytest.mark.parametrize(
    "scope",
    [{"kind": "user", "id": b"ada"}, {"kind": "object", "id": "1", "object_type": b"ticket"}],
    ids=repr,
)
def test_bytes_are_no_text_in_a_scope(scope: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be text"):
        Scope(**scope)


def test_text_with_a_zone_is_a_moment() -> None:
    assert validation.time("when", "2026-01-31T09:30:00+05:30") == datetime(
        2026, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))
    )


@pytest.mark.parametrize(("value", "default", "limit"), [(None, 20, 20), (1, 20, 1), (1000, 20, 1000)])
def test_a_limit_within_its_range_is_taken(value: int | None, default: int, limit: int) -> None:
    assert validation.whole_limit(value, default=default) == limit


@cells(
    "value",
    [0, -1, 1001, 10**5000, True, 2.0, "2", float("nan")],
    ids=["0", "-1", "1001", "huge", "true", "2.0", "text", "nan"],
    shared=True,
)
def test_any_other_limit_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        validation.whole_limit(value, default=20)


@cells(
    "value",
    [10**5000, object(), [], "other", "x" * 1000],
    ids=["huge", "object", "list", "other", "long"],
    shared=True,
)
def test_what_is_none_of_the_choices_is_refused_with_the_choices(value: object) -> None:
    with pytest.raises(InvalidInput, match="choose from a, b") as caught:
        validation.one_of("field", value, ("a", "b"))
    assert len(str(caught.value)) < 120


@cells("value", ["text", b"bytes", {"a": 1}, 5, None], ids=repr, shared=True)
def test_one_thing_is_not_several(value: object) -> None:
    with pytest.raises(InvalidInput, match="must be a list"):
        validation.sequence("things", value)


def test_several_things_may_come_as_any_iterable() -> None:
    assert validation.sequence("things", (n for n in range(3))) == [0, 1, 2]
    assert validation.sequence("things", ()) == []


def test_an_error_of_the_model_names_the_field_and_shows_no_value() -> None:
    class Model(validation.ValidatedModel):
        number: int

    with pytest.raises(InvalidInput) as caught:
        Model(number="hunter2")
    assert caught.value.field == "number"
    assert "hunter2" not in str(caught.value)
    assert Model(number=1).number == 1


def test_tags_count_after_duplicates_are_gone() -> None:
    assert validation.tags(["a"] * 40) == ["a"]
    with pytest.raises(InvalidInput, match="at most 32"):
        validation.tags([str(n) for n in range(33)])


WRONG_SCOPES = [
    {"kind": "user", "id": ""},
    {"kind": "planet", "id": "x"},
    {"kind": "user", "id": "a", "object_type": "t"},
]


@pytest.mark.parametrize("wrong", WRONG_SCOPES, ids=repr)
def test_a_scope_built_by_hand_passes_the_same_door(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        Scope(**wrong)
