"""Names for the steps of the protocols, so that traces, and the simulation's faults,
can tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

current_step: ContextVar[str] = ContextVar("current_step", default="other")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Everything inside belongs to this step."""
    token = current_step.set(name)
    try:
        yield
    finally:
        current_step.reset(token)
