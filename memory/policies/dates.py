"""Find the days that a question names, by date or relative to now.

The tables are data, by language. Dates such as 2023-05-07 and 7.5.2023 work in any
language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
_WEEKDAYS: Mapping[str, tuple[str, ...]] = {
    "en": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
}
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
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
"""The days of each unit, where a number of them is counted back from today."""


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
        return min(self.in_year(year)._away(day) for year in (day.year - 1, day.year, day.year + 1))

    def _away(self, day: date) -> int:
        return max((day - self.last).days, BEFORE * (self.first - day).days, 0)

    def in_year(self, year: int) -> Period:
        """Return the occurrence of the yearly period that begins in `year`."""
        first, last = self.first, self.last
        return (
            _between((year, first.month, first.day), (year + last.year - first.year, last.month, last.day))
            or self
        )

    def latest(self, today: date) -> Period:
        """Return the last period of a yearly one that began until today."""
        if not self.yearly:
            return self
        this = self.in_year(today.year)
        return this if this.first <= today else self.in_year(today.year - 1)


def period_of(text: str, today: date) -> Period | None:
    """Return the first period that a question names; None without a valid one.

    A range ("between May 3 and May 9", "since Monday") wins over single days. Among
    single days, the most exact form wins.
    """
    for opening in _OPENS.finditer(text):
        if period := _range_after(text, opening, today):
            return period
    for pattern, days in _TOLD:
        if found := pattern.search(text):
            period = days(found, today)
            return period and (_join(period, _TO.match(text, found.end()), today) or period)
    return None


def _range_after(text: str, opening: re.Match[str], today: date) -> Period | None:
    """Return the range that begins after "between", "from" or "since"."""
    named, end = _at(text, opening.end(), today)
    if named is None:
        return None
    if opening["word"].lower() == "since":
        first = named.latest(today).first
        return Period(first, today) if first <= today else None
    joins = _AND if opening["word"].lower() == "between" else _TO
    return _join(named, joins.match(text, end), today)


def _at(text: str, start: int, today: date) -> tuple[Period | None, int]:
    """Return the period named at this place, and where its name ends."""
    for pattern, days in (*_TOLD, *_AFTER_OPENING):
        if found := pattern.match(text, start):
            return days(found, today), found.end()
    return None, start


def _join(first: Period, joins: re.Match[str] | None, today: date) -> Period | None:
    """Return the days from a period to the one named after "and" or "to".

    A year that only the second names counts for both.
    """
    if joins is None:
        return None
    last, _ = _at(joins.string, joins.end(), today)
    if last is None:
        return None
    if first.yearly and not last.yearly:
        first = first.latest(last.last)
    elif last.yearly and not first.yearly:
        last = last.in_year(first.first.year)
    elif first.yearly and last.first < first.first:
        last = replace(last.in_year(last.first.year + 1), yearly=True)
    elif last.last < first.first < last.last + DAY * 7:
        first = Period(first.first - DAY * 7, first.last)  # two weekdays, the second of them past
    return Period(first.first, last.last, first.yearly and last.yearly) if first.first <= last.last else None


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
    """Return the period of a month or of its days, with or without a year."""
    said = found.groupdict()
    month = _MONTH_NUMBERS[said["month"].lower()]
    year = int(said.get("year") or LEAP)
    if said.get("day") is None:
        return _of_month(year, month, yearly=said.get("year") is None)
    first, last = int(said["day"]), int(said.get("last") or said["day"])
    return _between((year, month, first), (year, month, last), yearly=said.get("year") is None)


def _month_from_now(found: re.Match[str], today: date) -> Period | None:
    """Return this year's month, or the last one that is over."""
    month = _MONTH_NUMBERS[found["month"].lower()]
    over = found["which"].lower() == "last" and month >= today.month
    return _of_month(today.year - over, month)


def _in_figures(found: re.Match[str], today: date) -> Period | None:
    day = (int(found["year"]), int(found["month"]), int(found["day"]))
    return _between(day, day)


def _with_slashes(found: re.Match[str], today: date) -> Period | None:
    """Return the day of 5/13/2026 or 13/5/2026; none of 5/3/2026, which is either."""
    year, one, other = int(found["year"]), int(found["one"]), int(found["other"])
    if one <= 12 and other <= 12 and one != other:
        return None
    day = (year, min(one, other), max(one, other))
    return _between(day, day)


def _in_a_year(found: re.Match[str], today: date) -> Period | None:
    year = int(found["year"])
    return _between((year, 1, 1), (year, 12, 31))


def _so_long_ago(found: re.Match[str], today: date) -> Period | None:
    wide = _UNITS[found["unit"].lower()]
    days = _days(found)
    if days >= (today - date.min).days:
        return None
    middle = today - DAY * days
    return Period(middle - DAY * (wide // 2), middle + DAY * (wide // 2))


def _so_long_until_now(found: re.Match[str], today: date) -> Period | None:
    days = _days(found)
    return Period(today - DAY * days, today) if days < (today - date.min).days else None


def _days(found: re.Match[str]) -> int:
    count = _NUMBERS.get(found["count"].lower()) or int(found["count"])
    return count * _UNITS[found["unit"].lower()]


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


def _weekend(found: re.Match[str], today: date) -> Period | None:
    """Return this week's weekend, or the last one that is over."""
    sunday = today + DAY * (6 - today.weekday())
    if found["which"].lower() == "last":
        sunday -= DAY * 7
    return Period(sunday - DAY, sunday)


def _last_weekday(found: re.Match[str], today: date) -> Period | None:
    """Return the last such day before today."""
    day = today - DAY * ((today.weekday() - _WEEKDAY_NUMBERS[found["weekday"].lower()] - 1) % 7 + 1)
    return Period(day, day)


def _this_weekday(found: re.Match[str], today: date) -> Period | None:
    day = today + DAY * (_WEEKDAY_NUMBERS[found["weekday"].lower()] - today.weekday())
    return Period(day, day)


def _near(found: re.Match[str], today: date) -> Period | None:
    day = today - DAY * _NEAR[found["day"].lower()]
    return Period(day, day)


def _any_of(names: Iterable[str]) -> str:
    return "|".join(names)


_NEAR = {"the day before yesterday": 2, "yesterday": 1, "last night": 1, "today": 0, "this morning": 0}
_MONTH_NUMBERS = {
    name.lower(): number for table in _MONTHS.values() for number, name in enumerate(table, start=1)
}
_MONTH_NUMBERS |= {name[:3]: number for name, number in _MONTH_NUMBERS.items()} | {"sept": 9}
_WEEKDAY_NUMBERS = {name: number for table in _WEEKDAYS.values() for number, name in enumerate(table)}
_NAMES = [name for table in _MONTHS.values() for name in table if name != "May"]
_SHORT = ("sept", *(name[:3] for name in _NAMES))
_WHOLE_MONTH = rf"(?P<month>(?i:{_any_of(_NAMES)})|May)\b"
_MONTH = rf"(?P<month>(?i:{_any_of(_NAMES)}|{_any_of(_SHORT)})|May)\b\.?"
_YEAR = r"(?P<year>(?:19|20|21)\d\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_DAYS = rf"{_DAY}(?: ?(?:-|–|to|until|and) ?(?:the )?(?P<last>[0-3]?\d)(?:st|nd|rd|th)?)?"
_COUNT = rf"(?P<count>\d{{1,3}}|{_any_of(_NUMBERS)}) (?P<unit>day|week|month|year)s?"
_WEEKDAY = rf"(?P<weekday>{_any_of(_WEEKDAY_NUMBERS)})"

_Days = Callable[[re.Match[str], date], Period | None]


def _any_case(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_TOLD: tuple[tuple[re.Pattern[str], _Days], ...] = (
    (re.compile(rf"\b{_YEAR}([-/.])(?P<month>[01]?\d)\2(?P<day>[0-3]?\d)\b"), _in_figures),
    (re.compile(rf"(?<![\d.])(?P<day>[0-3]?\d)\.(?P<month>[01]?\d)\.{_YEAR}\b(?!\.\d)"), _in_figures),
    (re.compile(rf"(?<![\d/])(?P<one>[0-3]?\d)/(?P<other>[0-3]?\d)/{_YEAR}\b(?!/)"), _with_slashes),
    (re.compile(rf"\b{_DAYS}(?: of)? {_MONTH}(?:,? {_YEAR}\b)?"), _with_month_name),
    (re.compile(rf"\b{_MONTH} {_DAYS}\b(?:,? {_YEAR}\b)?"), _with_month_name),
    (re.compile(rf"\b{_MONTH},? (?:of )?{_YEAR}\b"), _with_month_name),
    (re.compile(rf"\b(?i:(?P<which>this|last)) {_WHOLE_MONTH}"), _month_from_now),
    (re.compile(rf"\b(?i:in|during|of) {_WHOLE_MONTH}"), _with_month_name),
    (re.compile(rf"\b(?i:in|of|during) {_YEAR}\b"), _in_a_year),
    (_any_case(rf"\b{_COUNT} ago\b"), _so_long_ago),
    (_any_case(rf"\b(?:last|past) {_COUNT}\b"), _so_long_until_now),
    (_any_case(r"\b(?P<which>this|last) (?P<unit>week|month|year)\b"), _last),
    (_any_case(r"\b(?P<which>this|last) weekend\b"), _weekend),
    (_any_case(rf"\blast {_WEEKDAY}\b"), _last_weekday),
    (_any_case(rf"\bthis {_WEEKDAY}\b"), _this_weekday),
    (_any_case(rf"\b(?:did|was|were|had|happened)\b[^.?!]{{0,100}} on {_WEEKDAY}\b"), _last_weekday),
    (_any_case(rf"\b(?P<day>{_any_of(_NEAR)})\b"), _near),
)
"""The patterns of periods, the most exact first."""
_AFTER_OPENING: tuple[tuple[re.Pattern[str], _Days], ...] = (
    (re.compile(rf"{_WHOLE_MONTH}"), _with_month_name),
    (re.compile(rf"{_YEAR}\b"), _in_a_year),
    (_any_case(rf"{_WEEKDAY}\b"), _last_weekday),
)
"""Patterns that name a period only after "since", "between", "from" or "to"."""
_OPENS = _any_case(r"\b(?P<word>between|from|since) (?:the )?")
_TO = _any_case(r"(?: (?:to|until|till|through) (?:the )?| ?[-–] ?)")
_AND = _any_case(r" (?:and|to) (?:the )?")
