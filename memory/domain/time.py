"""Moments: UTC, microseconds, never naive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def moment(microseconds: int) -> datetime:
    """The UTC datetime of that many microseconds since 1970, exactly."""
    return EPOCH + timedelta(microseconds=microseconds)
