"""How much a run draws: as much as CI, or as much as somebody waits for. What is asked is the same."""

from __future__ import annotations

import os
from collections.abc import Container
from zlib import crc32

import pytest

THOROUGH = any(os.environ.get(name) for name in ("MEMORY_REQUIRE", "MEMORY_THOROUGH"))
"""Whether it is drawn as much as CI draws, and what takes long runs too: it does in CI, which names the backends it wants."""
PROVING = bool(os.environ.get("MEMORY_PROVE"))
"""Whether it is `make prove`, which runs what takes too long for CI."""


TURN = os.environ.get("MEMORY_TURN", "")
"""Which part runs of what takes turns, "0/4" for the first quarter and "4/4" again. All of it where nothing is said."""


def has_its_turn(name: str) -> bool:
    """Whether a test of this name is in the part that runs."""
    part, _, parts = TURN.partition("/")
    return not TURN or crc32(name.encode()) % int(parts) == int(part) % int(parts)


def drawn(in_full: int, quick: int = 20, proof: int | None = None) -> int:
    """So many examples, histories or processes as this run takes: as CI, as everyone's run, or as `make prove` where that takes more than CI."""
    if proof is not None and PROVING:
        return proof
    return in_full if THOROUGH else min(in_full, quick)


def beyond(chosen: object, everyones: Container[object]) -> list[pytest.MarkDecorator]:
    """The marks of one case of many: of those that everyone's run has, none; of the others, that they take long."""
    return [] if chosen in everyones else [pytest.mark.thorough]
