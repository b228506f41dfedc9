"""The checker must reject histories that are wrong, written out by hand, and accept
those that are odd but right.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory.domain.errors import CorruptRecord
from tests.simulation.attempt import Attempts
from tests.simulation.checker import check, check_fresh, check_known_at, check_register
from tests.simulation.faults import FaultPlan, Process
from tests.simulation.history import NEVER, Act, Event, History, KnownAt, Moments, Seen
from tests.simulation.loop import SimulatedClock, SimulatedLoop
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
    "an acknowledged update is lost": (
        "stale",
        [(0, 1, Act.CREATE, "a"), (2, 3, Act.UPDATE, "b"), (4, 5, Act.READ, "a")],
    ),
    "it is missing from one read": (
        "missing",
        [(0, 1, Act.CREATE, "a"), (2, 3, Act.READ, None), (4, 5, Act.READ, "a")],
    ),
    "missing while it is being updated": (
        "missing",
        [(0, 1, Act.CREATE, "a"), (2, 9, Act.UPDATE, "b"), (3, 4, Act.READ, None), (10, 11, Act.READ, "b")],
    ),
    "it comes back after its deletion": (
        "resurrected",
        [(0, 1, Act.CREATE, "a"), (2, 3, Act.DELETE, None), (4, 5, Act.READ, "a")],
    ),
    "an update succeeds after its deletion": (
        "order",
        [(0, 1, Act.CREATE, "a"), (2, 3, Act.DELETE, None), (4, 5, Act.UPDATE, "b")],
    ),
    "reads go back in time": (
        "stale",
        [(0, 1, Act.CREATE, "a"), (2, 9, Act.UPDATE, "b"), (3, 4, Act.READ, "b"), (5, 6, Act.READ, "a")],
    ),
    "a late unknown write undoes a known one": (
        "stale",
        [
            (0, 1, Act.CREATE, "a"),
            (2, Act.UPDATE, "b"),
            (3, 4, Act.READ, "b"),
            (5, 6, Act.UPDATE, "c"),
            (7, 8, Act.READ, "b"),
        ],
    ),
    "two deletions both succeed": (
        "order",
        [(0, 1, Act.CREATE, "a"), (2, 3, Act.DELETE, None), (4, 5, Act.DELETE, None)],
    ),
    "told there is nothing while it lives": ("lost", [(0, 1, Act.CREATE, "a"), (2, 3, Act.REFUSED, None)]),
    "a value nobody wrote": ("stale", [(0, 1, Act.CREATE, "a"), (2, 3, Act.READ, "z")]),
}

RIGHT: dict[str, list[Line]] = {
    "overlapping updates in either order": [
        (0, 1, Act.CREATE, "a"),
        (2, 9, Act.UPDATE, "b"),
        (3, 8, Act.UPDATE, "c"),
        (10, 11, Act.READ, "b"),
    ],
    "a read during an update sees either": [
        (0, 1, Act.CREATE, "a"),
        (2, 9, Act.UPDATE, "b"),
        (3, 4, Act.READ, "a"),
        (5, 6, Act.READ, "b"),
    ],
    "an unknown write takes effect late": [
        (0, 1, Act.CREATE, "a"),
        (2, Act.UPDATE, "b"),
        (3, 4, Act.READ, "a"),
        (50, 51, Act.READ, "b"),
    ],
    "an unknown write never takes effect": [
        (0, 1, Act.CREATE, "a"),
        (2, Act.UPDATE, "b"),
        (3, 4, Act.READ, "a"),
    ],
    "an unknown deletion takes effect": [
        (0, 1, Act.CREATE, "a"),
        (2, Act.DELETE, None),
        (3, 4, Act.READ, None),
    ],
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


def _at(act: Act, value: str | None, start: float, clock: Moments, hides: Moments = NEVER) -> Event:
    return Event("r", act, value, start, start + 0.5, clock=clock, hides=hides)


EXPIRING = _at(Act.CREATE, "a", 0, (0, 0), (50, 50))
RETIRED = (_at(Act.CREATE, "a", 0, (0, 0)), _at(Act.RETIRE, None, 1, (10, 10), (50, 60)))


@pytest.mark.parametrize("begun", [(EXPIRING,), RETIRED], ids=["expiring", "retired"])
def test_what_is_hidden_from_a_moment_on_is_shown_before_it_and_not_after(begun: tuple[Event, ...]) -> None:
    assert check_register("r", [*begun, _at(Act.READ, "a", 2, (49, 49))]) is None
    early = check_register("r", [*begun, _at(Act.READ, None, 2, (49, 49))])
    late = check_register("r", [*begun, _at(Act.READ, "a", 2, (60, 60))])
    assert (early and early.kind, late and late.kind) == ("lost", "shown too long")
    assert check_register("r", [*begun, _at(Act.READ, None, 2, (60, 60))]) is None
    assert (
        check_register("r", [*begun, _at(Act.READ, None, 2, (60, 60)), _at(Act.READ, "a", 3, (49, 49))])
        is None
    )  # by a clock that is behind


def test_an_expiry_is_exact_and_an_unknown_end_is_not() -> None:
    assert check_register("r", [EXPIRING, _at(Act.READ, "a", 2, (50, 50))]) is not None
    for value in ("a", None):
        assert check_register("r", [*RETIRED, _at(Act.READ, value, 2, (55, 55))]) is None
        assert (
            check_register("r", [EXPIRING, _at(Act.READ, value, 2, (49, 51))]) is None
        )  # it looked at the clock before and after


def test_what_is_hidden_is_not_changed_but_can_be_deleted() -> None:
    for begun in ((EXPIRING,), RETIRED):
        assert (
            check_register("r", [*begun, _at(Act.UPDATE, "b", 2, (49, 49)), _at(Act.READ, "b", 3, (49, 49))])
            is None
        )
        assert check_register("r", [*begun, _at(Act.UPDATE, "b", 2, (60, 60))]) is not None
        assert check_register("r", [*begun, _at(Act.RETIRE, None, 2, (60, 60), (70, 70))]) is not None
        assert check_register("r", [*begun, _at(Act.ABSENT, None, 2, (60, 60))]) is not None
        assert check_register("r", [*begun, _at(Act.CLOSED, None, 2, (60, 60))]) is None
        assert (
            check_register(
                "r", [*begun, _at(Act.DELETE, None, 2, (60, 60)), _at(Act.ABSENT, None, 3, (60, 60))]
            )
            is None
        )


def test_a_read_that_the_window_explains_does_not_shut_out_an_erasure_that_ended_before_it() -> None:
    """The reads agree with the retired entry, and only the erasure explains what comes
    after them.
    """
    written = Event("r", Act.CREATE, "a", 0, 1)
    erased = Event("r", Act.WIPE, None, 0, 9, maybe=True)
    retired = Event("r", Act.RETIRE, None, 2, 3, hides=(3.0, 3.0), clock=(2.0, 3.0))
    looks = [Event("r", Act.READ, None, n, n, clock=(n, n), by="get") for n in (10, 11)]
    absent = Event("r", Act.ABSENT, None, 12, 12, clock=(12.0, 12.0))
    assert check_register("r", [written, erased, retired, *looks, absent]) is None
    assert check_register("r", [written, retired, *looks, absent]) is not None


def test_a_window_is_closed_once() -> None:
    again = _at(Act.RETIRE, None, 2, (20, 20), (70, 70))
    assert check_register("r", [*RETIRED, again]) is not None
    assert check_register("r", [*RETIRED, _at(Act.CLOSED, None, 2, (20, 20))]) is None
    assert check_register("r", [EXPIRING, _at(Act.CLOSED, None, 2, (20, 20))]) is not None


def test_a_copy_of_what_was_changed_or_hidden_before_is_stale_where_nothing_failed() -> None:
    read = Event("r", Act.READ, "a", 5, 6, cached=True, clock=(60, 60))
    begun = RETIRED[0]
    assert check_fresh([begun, read]) is None
    assert check_fresh([begun, _at(Act.UPDATE, "b", 1, (10, 10)), read]) is not None
    assert check_fresh([*RETIRED, read]) is not None
    assert check_fresh([*RETIRED, replace(read, clock=(55, 55))]) is None
    assert check_fresh([begun, _at(Act.UPDATE, "b", 5.2, (10, 10)), read]) is None


def test_what_was_known_is_hidden_once_it_has_expired_and_not_before() -> None:
    def told(value: str | None, clock: float) -> str | None:
        violation = check_known_at(
            KnownAt("r", value, 2.0, 0.1, 9.0, (clock, clock)), [EXPIRING], hidden_from=50
        )
        return None if violation is None else violation.kind

    assert (told("a", 49), told(None, 49), told("a", 50), told(None, 50)) == (
        None,
        "missing",
        "shown too long",
        None,
    )


def test_a_damaged_entry_may_be_left_out_and_no_other() -> None:
    history = _history()
    assert _ask(history) == ["lost"]
    history = _history()
    history.registers["r"].damaged = True
    assert _ask(history) == []


async def test_only_what_was_damaged_may_be_refused_as_corrupt() -> None:
    history = _history()
    history.names["id1"] = "r"
    loop = SimulatedLoop(0)
    attempt = Attempts(history, Process("w", loop, SimulatedClock(loop), FaultPlan(0)))

    async def refused() -> None:
        raise CorruptRecord("mid", "id1", "checksum mismatch")

    history.registers["r"].damaged = True
    await attempt("get", refused)
    assert history.violations == []
    history.registers["r"].damaged = False
    await attempt("get", refused)
    assert [v.kind for v in history.violations] == ["slandered"]
    loop.close()


def test_a_keyed_write_repeated_after_deletion_must_not_bring_it_back() -> None:
    first = Event("r", Act.CREATE, "a", 0, 1, keyed=True)
    gone = Event("r", Act.DELETE, None, 2, 3)
    answered = check_register("r", [first, gone, Event("r", Act.CREATE, "a", 4, 5, keyed=True)])
    assert answered is not None, "whoever repeats it is told that it was deleted"
    assert answered.kind == "order"
    again = Event("r", Act.CREATE, "a", 4, keyed=True, maybe=True)
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
