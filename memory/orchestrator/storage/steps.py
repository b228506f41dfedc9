"""Names of the steps of protocols, for traces and for the simulation's faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

current_step: ContextVar[str] = ContextVar("current_step", default="other")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Name the step of all calls in this context."""
    token = current_step.set(name)
    try:
        yield
    finally:
        current_step.reset(token)
