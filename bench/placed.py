"""A measurement on several topologies, each on a clean place of its own, and a clean
place in any store.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from bench.measure import Figure
from memory import Memory
from tests.support.backends import BACKENDS
from tests.support.placings import Placing, forget


async def on_each(
    placings: Iterable[Placing],
    folder: Path,
    what: str,
    measured: Callable[[Placing, Path], Awaitable[list[Figure]]],
) -> list[Figure]:
    """The figures of each; where a backend of it cannot be had, that `what` was not
    measured, and why.
    """
    figures: list[Figure] = []
    for placing in placings:
        missing = next(
            (reason for backend in placing.backends if (reason := BACKENDS[backend].missing())), None
        )
        if missing is not None:
            figures.append(Figure(f"{placing.name}: {what}", None, "ms", note=missing))
            continue
        place = folder / placing.name
        place.mkdir()
        try:
            figures += await measured(placing, place)
        finally:
            forget(place)
    return figures


def opened(config: str | dict[str, Any], embedder: str | None = None) -> Memory:
    """A memory of a tenant that nothing was kept of yet, with no maintenance beside
    what is measured. `embedder`: a name, or an encoder's folder.
    """
    embeds = {"use": "folder", "path": embedder} if embedder and Path(embedder).is_dir() else embedder
    return Memory(config, tenant=f"bench-{uuid.uuid4().hex}", embedder=embeds, durations={"sweep_every": 0})
