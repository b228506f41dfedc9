"""The clock that every component gets by injection."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Returns the current moment, in UTC."""


def system_clock() -> datetime:
    return datetime.now(UTC)
