"""By which seed a slip was noticed last: its judge plays that one first, then the others as ever. Nothing rests on it, it only spares a search.

After a change of the engine `make noticed` writes `tests/noticed.json` anew: a slip that its seed still shows keeps it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

NOTED = Path(__file__).parents[1] / "noticed.json"
NOTES = bool(os.environ.get("MEMORY_NOTE"))


def first(slip: str, seeds: Iterable[int]) -> list[int]:
    """These seeds, the one that is noted of the slip before the others. A slip is named with its judge: `simulation/marks-live-a-second`."""
    seeds, noted = list(seeds), by(slip)
    return seeds if noted is None or noted not in seeds else list(dict.fromkeys([noted, *seeds]))


def by(slip: str) -> int | None:
    return _noted().get(slip)


def note(slip: str, seed: int) -> None:
    if NOTES and _noted().get(slip) != seed:
        _noted()[slip] = seed
        NOTED.write_text(json.dumps(dict(sorted(_noted().items())), indent=0) + "\n")


@cache
def _noted() -> dict[str, int]:
    noted: dict[str, int] = json.loads(NOTED.read_text())
    return noted
