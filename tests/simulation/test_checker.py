"""The checker must reject histories that are wrong, written out by hand, and accept those that are odd but right."""

from __future__ import annotations

import pytest

from tests.simulation.checker import check, check_register
from tests.simulation.history import Act, Event, History, Seen
from tests.simulation.toys import HoardingClient, OverwritingClient, ToyClient
from tests.simulation.workload import scenario
from tests.simulation.world import simulate

Line = tuple[float, float, Act, str | None] | tuple[float, Act, str | None]


def _events(*lines: Line) -> list[Event]:
    """`(start, end, act, value)`, or without an end for an outcome that nobody learned."""
    found = []
    for line in lines:
        if len(line) == 4:
            start, end, act, value = line
            found.append(Event("r", act, value, start, end, cached=act is Act.READ, by="get"))
        else:
            start, act, value = line
            found.append(Event("r", act, value, start, maybe=True))
    return found


WRONG: dict[str, tuple[str, list[Line]]] = {
    "an acknowledged write is lost": ("lost", [(0, 1, Act.CREATE, "a"), (2, 3, Act.READ, None)]),
    "an acknowledged update is lost": ("stale", [(0, 1, Act.CREATE, "a"), (2, 3, Act.UPDATE, "b"), (4, 5, Act.READ, "a")]),
    "it is missing from one read": ("missing", [(0, 1, Act.CREATE, "a"), (2, 3, Act.READ, None), (4, 5, Act.READ, "a")]),
    "missing while it is being updated": (
        "missing",
        [(0, 1, Act.CREATE, "a"), (2, 9, Act.UPDATE, "b"), (3, 4, Act.READ, None), (10, 11, Act.READ, "b")],
    ),
    "it comes back after its deletion": ("resurrected", [(0, 1, Act.CREATE, "a"), (2, 3, Act.DELETE, None), (4, 5, Act.READ, "a")]),
    "an update succeeds after its deletion": ("order", [(0, 1, Act.CREATE, "a"), (2, 3, Act.DELETE, None), (4, 5, Act.UPDATE, "b")]),
    "reads go back in time": ("stale", [(0, 1, Act.CREATE, "a"), (2, 9, Act.UPDATE, "b"), (3, 4, Act.READ, "b"), (5, 6, Act.READ, "a")]),
    "a late unknown write undoes a known one": (
        "stale",
        [(0, 1, Act.CREATE, "a"), (2, Act.UPDATE, "b"), (3, 4, Act.READ, "b"), (5, 6, Act.UPDATE, "c"), (7, 8, Act.READ, "b")],
    ),
    "two deletions both succeed": ("order", [(0, 1, Act.CREATE, "a"), (2, 3, Act.DELETE, None), (4, 5, Act.DELETE, None)]),
    "told there is nothing while it lives": ("lost", [(0, 1, Act.CREATE, "a"), (2, 3, Act.REFUSED, None)]),
    "a value nobody wrote": ("stale", [(0, 1, Act.CREATE, "a"), (2, 3, Act.READ, "z")]),
}

RIGHT: dict[str, list[Line]] = {
    "overlapping updates in either order": [(0, 1, Act.CREATE, "a"), (2, 9, Act.UPDATE, "b"), (3, 8, Act.UPDATE, "c"), (10, 11, Act.READ, "b")],
    "a read during an update sees either": [(0, 1, Act.CREATE, "a"), (2, 9, Act.UPDATE, "b"), (3, 4, Act.READ, "a"), (5, 6, Act.READ, "b")],
    "an unknown write takes effect late": [(0, 1, Act.CREATE, "a"), (2, Act.UPDATE, "b"), (3, 4, Act.READ, "a"), (50, 51, Act.READ, "b")],
    "an unknown write never takes effect": [(0, 1, Act.CREATE, "a"), (2, Act.UPDATE, "b"), (3, 4, Act.READ, "a")],
    "an unknown deletion takes effect": [(0, 1, Act.CREATE, "a"), (2, Act.DELETE, None), (3, 4, Act.READ, None)],
    "promoted again after its deletion": [
        (0, 1, Act.PROMOTE, None),
        (2, 3, Act.READ, "a"),
        (4, 5, Act.DELETE, None),
        (6, 7, Act.PROMOTE, None),
        (8, 9, Act.READ, "b"),
    ],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_histories_are_rejected_by_name(name: str) -> None:
    kind, lines = WRONG[name]
    violation = check_register("r", _events(*lines))
    assert violation is not None
    assert violation.kind == kind


@pytest.mark.parametrize("name", RIGHT)
def test_odd_but_right_histories_are_accepted(name: str) -> None:
    assert check_register("r", _events(*RIGHT[name])) is None


def test_a_keyed_write_repeated_after_deletion_must_not_bring_it_back() -> None:
    first = Event("r", Act.CREATE, "a", 0, 1, keyed=True)
    gone = Event("r", Act.DELETE, None, 2, 3)
    again = Event("r", Act.CREATE, "a", 4, 5, keyed=True)
    assert check_register("r", [first, gone, again, Event("r", Act.READ, None, 6, 7)]) is None
    back = check_register("r", [first, gone, again, Event("r", Act.READ, "a", 6, 7)])
    assert back is not None
    assert back.kind == "resurrected"


def test_a_stale_read_is_excused_within_the_bound_and_not_beyond() -> None:
    events = _events((0, 1, Act.CREATE, "a"), (2, 3, Act.UPDATE, "b"), (10, 11, Act.READ, "a"))
    assert check_register("r", events, stale=8) is None
    assert check_register("r", events, stale=5) is not None


def _history() -> History:
    history = History(lambda: 0.0)
    history.register("r", "acme", "user:ada")
    history.marker("r", "a")
    history.note(Event("r", Act.CREATE, "a", history.moment(), history.moment()))
    return history


def _ask(history: History, *found: Seen, tenant: str = "acme", scope: str = "user:ada") -> list[str]:
    history.answered(found, tenant, frozenset({scope}), history.moment(), history.moment(), "retrieve")
    return [v.kind for v in check(history)]


def test_answers_with_doubled_foreign_or_missing_entries_are_rejected() -> None:
    mine = Seen("r", "a", "id1", "acme", "user:ada")
    assert _ask(_history(), mine) == []
    assert _ask(_history(), mine, mine) == ["doubled"]
    assert _ask(_history(), mine, Seen("r", "a", "id2", "acme", "user:ada")) == ["doubled", "doubled"]
    assert _ask(_history()) == ["lost"]
    assert "foreign" in _ask(_history(), mine, tenant="zeta")
    assert "foreign" in _ask(_history(), mine, scope="user:bob")
    assert "foreign" in _ask(_history(), Seen("x", "a", "id3", "acme", "user:ada"))


def test_a_conditional_store_passes_and_careless_ones_are_caught() -> None:
    assert not any(simulate(scenario(seed), ToyClient).violations for seed in range(150))
    assert any(simulate(scenario(seed), OverwritingClient).violations for seed in range(400))
    assert any(simulate(scenario(seed), HoardingClient).violations for seed in range(20))


def test_a_run_is_repeated_to_the_letter() -> None:
    for seed in range(20):
        first, second = (simulate(scenario(seed), ToyClient, traced=True) for _ in range(2))
        assert first.trace == second.trace
        assert first.performed >= 20
