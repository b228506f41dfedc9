"""Ranges of places do what sets of places do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.orchestrator.storage.places import Places

places = st.sets(st.integers(2, 40))


@given(places, places, st.integers(2, 60), st.integers(2, 60))
def test_ranges_do_what_sets_do(some: set[int], others: set[int], one: int, another: int) -> None:
    ranges = Places.of(some)
    assert list(ranges) == sorted(some)
    assert len(ranges) == len(some)
    assert set(ranges.without(Places.of(others))) == some - others
    assert set(ranges.with_one(one)) == some | {one}
    assert set(ranges.between(one, another)) == {place for place in some if one <= place <= another}
    assert set(ranges.both(Places.of(others))) == some & others
    assert list(ranges.newest(one - 20)) == (sorted(some)[-(one - 20) :] if one > 20 else [])
    assert (one in ranges) == (one in some)
    assert ranges.last == max(some, default=0)


@given(places, st.integers(2, 60))
def test_the_same_places_are_the_same_ranges(some: set[int], one: int) -> None:
    assert Places.of(some).with_one(one) == Places.of(some | {one})
    assert Places.from_json(Places.of(some).to_json()) == Places.of(some)
    assert Places.of(some | {one}).without(Places.of({one})) == Places.of(some - {one})
