"""The clock of a run: it goes on a little at every reading while something is
written, stands still while something is read, and jumps.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2031, 3, 1, tzinfo=UTC)
"""Ahead of every real clock, so that a store which forgets by its own clock forgets
nothing.
"""
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)


class ModelClock:
    """Shared by all workers of this process; a worker in another process is told the
    time with every call and tells it back.
    """

    def __init__(self) -> None:
        self.now = START
        self.ticking = True

    def __call__(self) -> datetime:
        if self.ticking:
            self.now += TICK
        return self.now

    def go_on(self, seconds: float) -> None:
        """To the first whole second after so long: moments that end in a fraction are
        never met by chance.
        """
        self.now = (self.now + timedelta(seconds=seconds)).replace(microsecond=0) + SECOND
