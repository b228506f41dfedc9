"""Moments (UTC, microseconds, never naive), and durations in text form."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=36_500)
"""The longest duration that can be given, so that dates stay within range."""
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)\s*")


def micros(moment: datetime) -> int:
    """Return the exact number of microseconds since 1970."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def moment(microseconds: int) -> datetime:
    """Return the exact UTC datetime of this many microseconds since 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def micros_or_none(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def moment_or_none(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else moment(microseconds)


def parse_duration(value: object) -> object:
    """Parse a duration: '30d', '1h 30m', '500ms' or a number of seconds.

    Other values are returned unchanged for pydantic to check.
    """
    if isinstance(value, bool):
        raise ValueError("should be a duration such as '30d', '5m' or '1h30m', not a boolean")
    if isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if parts and not _PART.sub("", text):
            try:
                return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
            except OverflowError:
                raise ValueError("should be at most 100 years") from None
        if not text.startswith("p"):  # pydantic parses ISO 8601 durations such as PT5M
            raise ValueError("should be a duration such as '30d', '5m' or '1h30m'")
    return value


def show_duration(length: timedelta) -> str:
    """Return the shortest text that `parse_duration` reads as this duration."""
    left = round(length.total_seconds() * 1_000_000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        size = round(_UNITS[unit] * 1_000_000)
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def in_words(length: timedelta) -> str:
    """Return a duration for people, in the largest unit that divides it."""
    seconds = int(length.total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds and seconds % size == 0:
            count = seconds // size
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return f"{length.total_seconds():g} seconds"
