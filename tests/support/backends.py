"""The backends that tests run on: which there are, and why one cannot run on this machine.

A test says what it runs on with `@pytest.mark.backend("sqlite")`, or takes a parameter from `every_backend()`, which carries the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


def _always() -> str | None:
    return None


@dataclass(frozen=True)
class Backend:
    """One backend. `missing()` says in a few words why it cannot run here, or None; `url(folder)` opens one that is the test's own."""

    name: str
    url: Callable[[Path], str]
    missing: Callable[[], str | None] = _always
    needs_server: bool = False


BACKENDS: dict[str, Backend] = {
    b.name: b
    for b in (
        Backend("in_memory", url=lambda _folder: "memory://"),
        Backend("sqlite", url=lambda folder: f"sqlite:///{folder / 'memory.db'}"),
    )
}


def every_backend() -> Iterable[Any]:
    """Parameters, one a backend, each marked with its name; a backend that this machine lacks is skipped and says why."""
    for backend in BACKENDS.values():
        marks = [pytest.mark.backend(backend.name)]
        if backend.needs_server:
            marks.append(pytest.mark.server)
        if reason := backend.missing():
            marks.append(pytest.mark.skip(reason=reason))
        yield pytest.param(backend, id=backend.name, marks=marks)
