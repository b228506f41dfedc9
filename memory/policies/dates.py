"""Find the days that a question names, by date or relative to now.

The tables are data, by language. Dates such as 2023-05-07 work in any language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

BEFORE = 3
"""A day before the period counts as this many days after it.

People speak about an event after it happened (retrieval.md).
"""
DAY = timedelta(days=1)

_MONTHS: Mapping[str, tuple[str, ...]] = {
    "en": (
        "january",
        "february",
        "march",
        "april",
        "May",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ),
}
"""Months by name, in any case; "may" in lower case is a word and not included."""
_NUMBERS = {
    "a": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
}


@dataclass(frozen=True, slots=True)
class Period:
    """The days from `first` to `last`; with `yearly` in any year."""

    first: date
    last: date
    yearly: bool = False

    def away(self, day: date) -> int:
        """Return the distance of a day in days; 0 within the period.

        Days before the period count more.
        """
        if not self.yearly:
            return self._away(day)
        return min(
            _in_year(self, year)._away(day)
            for year in (day.year - 1, day.year, day.year + 1)
            if 1 <= year <= 9998
        )

    def _away(self, day: date) -> int:
        return max((day - self.last).days, BEFORE * (self.first - day).days, 0)


def _in_year(period: Period, year: int) -> Period:
    first, last = period.first.timetuple(), period.last.timetuple()
    return _between((year, first.tm_mon, first.tm_mday), (year, last.tm_mon, last.tm_mday)) or period


def period_of(text: str, today: date) -> Period | None:
    """Return the first period that a question names; None without a valid one."""
    for pattern, period in _TOLD:
        if found := pattern.search(text):
            return period(found, today)
    return None


def _between(
    first: tuple[int, int, int], last: tuple[int, int, int], *, yearly: bool = False
) -> Period | None:
    """Keep valid days: the 29th of February is the 28th in common years."""
    try:
        return Period(date(*first), date(*last), yearly)
    except ValueError:
        if (first[1], first[2]) == (2, 29) or (last[1], last[2]) == (2, 29):
            return _between(
                (first[0], first[1], min(first[2], 28)), (last[0], last[1], min(last[2], 28)), yearly=yearly
            )
        return None


def _of_month(year: int, month: int, *, yearly: bool = False) -> Period | None:
    if not 1 <= year <= 9998:
        return None
    last = date(year + month // 12, month % 12 + 1, 1) - DAY
    return Period(date(year, month, 1), last, yearly)


LEAP = 2000
"""The year of dates that are given without a year."""


def _with_month_name(found: re.Match[str], today: date) -> Period | None:
    """Return the period of a day, a month or both, with or without a year."""
    said = found.groupdict()
    month = _MONTH_NUMBERS[said["month"].lower()]
    year = said.get("year")
    if said.get("day") is None:
        return _of_month(int(year or LEAP), month, yearly=year is None)
    day = (int(year or LEAP), month, int(said["day"]))
    return _between(day, day, yearly=year is None)


def _in_figures(found: re.Match[str], today: date) -> Period | None:
    day = (int(found["year"]), int(found["month"]), int(found["day"]))
    return _between(day, day)


def _in_a_year(found: re.Match[str], today: date) -> Period | None:
    year = int(found["year"])
    return _between((year, 1, 1), (year, 12, 31))


def _so_long_ago(found: re.Match[str], today: date) -> Period | None:
    count = _NUMBERS.get(found["count"].lower()) or int(found["count"])
    wide = {"day": 1, "week": 7, "month": 30, "year": 365}[found["unit"].lower()]
    if count * wide >= (today - date.min).days:
        return None
    middle = today - timedelta(days=count * wide)
    return Period(middle - DAY * (wide // 2), middle + DAY * (wide // 2))


def _last(found: re.Match[str], today: date) -> Period | None:
    """Return the week, month or year before this one, or this one until today."""
    unit, this = found["unit"].lower(), found["which"].lower() == "this"
    first = {
        "week": today - DAY * today.weekday(),
        "month": today.replace(day=1),
        "year": today.replace(month=1, day=1),
    }[unit]
    if this:
        return Period(first, today)
    last = first - DAY
    return Period(
        {"week": last - DAY * 6, "month": last.replace(day=1), "year": last.replace(month=1, day=1)}[unit],
        last,
    )


def _near(found: re.Match[str], today: date) -> Period | None:
    day = today if found["day"].lower() == "today" else today - DAY
    return Period(day, day)


_MONTH = (
    rf"(?P<month>(?i:{'|'.join(one for table in _MONTHS.values() for one in table if one.islower())})|May)"
)
_MONTH_NUMBERS = {
    name.lower(): number for table in _MONTHS.values() for number, name in enumerate(table, start=1)
}
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"

_TOLD: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], Period | None]], ...] = (
    (re.compile(rf"\b{_YEAR}-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b"), _in_figures),
    (re.compile(rf"\b{_DAY}(?: of)? {_MONTH}\b(?:,? {_YEAR}\b)?"), _with_month_name),
    (re.compile(rf"\b{_MONTH} {_DAY}\b(?:,? {_YEAR}\b)?"), _with_month_name),
    (re.compile(rf"\b{_MONTH},? (?:of )?{_YEAR}\b"), _with_month_name),
    (re.compile(rf"\b(?i:in|during|since|of|this|last) {_MONTH}\b"), _with_month_name),
    (re.compile(rf"\b(?i:in|of|during) {_YEAR}\b"), _in_a_year),
    (
        re.compile(
            rf"\b(?P<count>\d{{1,3}}|{'|'.join(_NUMBERS)}) (?P<unit>day|week|month|year)s? ago\b",
            re.IGNORECASE,
        ),
        _so_long_ago,
    ),
    (re.compile(r"\b(?P<which>this|last) (?P<unit>week|month|year)\b", re.IGNORECASE), _last),
    (re.compile(r"\b(?P<day>today|yesterday)\b", re.IGNORECASE), _near),
)
"""The patterns of periods, the most exact first."""
