"""Safeguards patched out, each by name: a simulation that does not notice is worth nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The library without this safeguard, as long as the block lasts."""
    with MUTANTS[name]():
        yield
