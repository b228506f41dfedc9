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
        ("what was said on 04.04.2026?", _days("2026-04-04", "2026-04-04")),
        ("2026/5/3", _days("2026-05-03", "2026-05-03")),
        ("5/13/2026", _days("2026-05-13", "2026-05-13")),
        ("13/5/2026", _days("2026-05-13", "2026-05-13")),
        ("in Sept. 2023", _days("2023-09-01", "2023-09-30")),
        ("Oct 13, 2023", _days("2023-10-13", "2023-10-13")),
        ("what did I say last Tuesday?", _days("2026-05-05", "2026-05-05")),
        ("last thursday", _days("2026-04-30", "2026-04-30")),
        ("What did I do on Monday?", _days("2026-05-04", "2026-05-04")),
        ("this Friday", _days("2026-05-08", "2026-05-08")),
        ("last weekend", _days("2026-05-02", "2026-05-03")),
        ("this weekend", _days("2026-05-09", "2026-05-10")),
        ("last night", _days("2026-05-06", "2026-05-06")),
        ("the day before yesterday", _days("2026-05-05", "2026-05-05")),
        ("in the last three days", _days("2026-05-04", "2026-05-07")),
        ("last May", _days("2025-05-01", "2025-05-31")),
        ("last April", _days("2026-04-01", "2026-04-30")),
    ],
    shared=True,
)
def test_days_are_named_by_the_calendar_or_from_today(text: str, period: Period) -> None:
    assert period_of(text, TODAY) == period


@cells(
    "text, period",
    [
        ("since Monday", _days("2026-05-04", "2026-05-07")),
        ("since yesterday", _days("2026-05-06", "2026-05-07")),
        ("since 3 December", _days("2025-12-03", "2026-05-07")),
        ("since June", _days("2025-06-01", "2026-05-07")),
        ("since 2024", _days("2024-01-01", "2026-05-07")),
        ("between May 3 and May 9 2026", _days("2026-05-03", "2026-05-09")),
        ("between the 3rd and the 9th of May 2026", _days("2026-05-03", "2026-05-09")),
        ("May 3-9, 2026", _days("2026-05-03", "2026-05-09")),
        ("from 3 May 2026 to 9 June", _days("2026-05-03", "2026-06-09")),
        ("1.5.2026 – 3.5.2026", _days("2026-05-01", "2026-05-03")),
        ("from Monday to Wednesday", _days("2026-05-04", "2026-05-06")),
        ("between Monday and Friday", _days("2026-04-27", "2026-05-01")),
        ("from December 2025 to May 2026", _days("2025-12-01", "2026-05-31")),
        ("between March and June", _days("2000-03-01", "2000-06-30", yearly=True)),
        ("between December 20 and January 5", _days("2000-12-20", "2001-01-05", yearly=True)),
        ("I moved from Berlin to Rome in May 2024", _days("2024-05-01", "2024-05-31")),
    ],
    shared=True,
)
def test_a_range_is_named_by_its_ends(text: str, period: Period) -> None:
    assert period_of(text, TODAY) == period


def test_a_range_over_the_new_year_holds_in_any_year() -> None:
    period = _days("2000-12-20", "2001-01-05", yearly=True)
    days = [date(2023, 12, 19), date(2023, 12, 25), date(2024, 1, 5), date(2024, 1, 6)]
    assert [period.away(day) for day in days] == [3, 0, 0, 1]


@cells(
    "text",
    [
        "",
        "what is on Monday",
        "mail from April",
        "5/3/2026",
        "server 10.1.2000.1",
        "30 decimals, 10 marbles",
        "since 31 February 2023",
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
