"""The days a question names."""

from __future__ import annotations

from datetime import date, timedelta

from memory.policies.dates import Period, period_of
from memory.ports.contract.cells import cells

TODAY = date(2026, 5, 7)  # a Thursday


def _days(first: str, last: str, *, yearly: bool = False) -> Period:
    return Period(date.fromisoformat(first), date.fromisoformat(last), yearly)


@cells(
    "text, period",
    [
        ("What did Ada bake on 13 October, 2023?", _days("2023-10-13", "2023-10-13")),
        ("What did Ada bake on October 13, 2023?", _days("2023-10-13", "2023-10-13")),
        ("the 1st of May 2022", _days("2022-05-01", "2022-05-01")),
        ("what happened on 2023-05-07", _days("2023-05-07", "2023-05-07")),
        ("the party in december 2023", _days("2023-12-01", "2023-12-31")),
        ("who came in February 2024?", _days("2024-02-01", "2024-02-29")),
        ("the spring of 2023", _days("2023-01-01", "2023-12-31")),
        ("When did Ada go camping in June?", _days("2000-06-01", "2000-06-30", yearly=True)),
        ("her birthday on 3 March", _days("2000-03-03", "2000-03-03", yearly=True)),
        ("two weeks ago", _days("2026-04-20", "2026-04-26")),
        ("3 days ago", _days("2026-05-04", "2026-05-04")),
        ("what did we decide last week?", _days("2026-04-27", "2026-05-03")),
        ("this month", _days("2026-05-01", "2026-05-07")),
        ("last year", _days("2025-01-01", "2025-12-31")),
        ("what did I eat yesterday", _days("2026-05-06", "2026-05-06")),
        ("the week before 3 August, 2023, not last week", _days("2023-08-03", "2023-08-03")),
    ],
    shared=True,
)
def test_days_are_named_by_the_calendar_or_from_today(text: str, period: Period) -> None:
    assert period_of(text, TODAY) == period


@cells(
    "text",
    [
        "",
        "what may 10 people do",
        "in may be",
        "the march to the sea",
        "31 February 2023",
        "2023-13-01",
        "room 2023",
        "version 5.7",
    ],
    shared=True,
)
def test_what_names_no_day_names_none(text: str) -> None:
    assert period_of(text, TODAY) is None


def test_what_was_before_all_days_names_none() -> None:
    assert period_of("999 years ago", date(900, 1, 1)) is None


def test_days_before_count_more_than_days_after() -> None:
    week = _days("2023-05-08", "2023-05-14")
    assert [week.away(week.first + timedelta(days=n)) for n in (-2, -1, 0, 6, 7, 9)] == [6, 3, 0, 0, 1, 3]


def test_a_day_of_any_year_is_nearest_in_the_year_that_is() -> None:
    day = _days("2000-12-31", "2000-12-31", yearly=True)
    assert day.away(date(2024, 1, 2)) == 2
    assert day.away(date(2024, 12, 30)) == 3
    leap = _days("2000-02-29", "2000-02-29", yearly=True)
    assert leap.away(date(2023, 2, 28)) == 0
    assert leap.away(date(2024, 2, 29)) == 0
