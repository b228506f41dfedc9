"""Moments: UTC, microseconds, never naive. Lengths of time as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=36_500)
"""How long a length of time may be that is given, so that a moment lies so far from
now.
"""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)\s*")


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def moment(microseconds: int) -> datetime:
    """The UTC datetime of that many microseconds since 1970, exactly."""
    return EPOCH + timedelta(microseconds=microseconds)


def parse_duration(value: object) -> object:
    """A timedelta of '30d', '1h 30m', '500ms' or a number of seconds; what is none of
    these is left for pydantic to judge.
    """
    if isinstance(value, bool):
        raise ValueError("should be a duration such as '30d', '5m' or '1h30m', not a truth value")
    if isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if parts and not _PART.sub("", text):
            try:
                return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
            except OverflowError:
                raise ValueError("should be at most 100 years") from None
        if not text.startswith("p"):  # an ISO 8601 duration such as PT5M is pydantic's to read
            raise ValueError("should be a duration such as '30d', '5m' or '1h30m'")
    return value


def show_duration(length: timedelta) -> str:
    """The shortest of the forms that `parse_duration` reads."""
    left = round(length.total_seconds() * 1_000_000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        size = round(_UNITS[unit] * 1_000_000)
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def in_words(length: timedelta) -> str:
    """A length of time for people: in the largest unit that divides it."""
    seconds = int(length.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds and seconds % size == 0:
            count = seconds // size
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return f"{length.total_seconds():g} seconds"
