"""How much a run draws: as much as CI, or as much as somebody waits for. What is asked is the same."""

from __future__ import annotations

import os
import time
from collections.abc import Container
from zlib import crc32

import pytest

THOROUGH = any(os.environ.get(name) for name in ("MEMORY_REQUIRE", "MEMORY_THOROUGH"))
"""Whether it is drawn as much as CI draws, and what takes long runs too: it does in CI, which names the backends it wants."""
PROVING = bool(os.environ.get("MEMORY_PROVE"))
"""Whether it is `make prove`, which runs what takes too long for CI."""


TURN = os.environ.get("MEMORY_TURN", "")
"""Which part runs of what takes turns, "0/4" for the first quarter and "4/4" again. All of it where nothing is said, but in everyone's run."""
OF_THE_DAY = f"{time.localtime().tm_yday % 4}/4"


def is_whole(config: pytest.Config) -> bool:
    """Whether nobody chose some of the tests, by their names or places."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword


def turn_of(config: pytest.Config) -> str:
    """What is said, and the day's quarter in everyone's run: there four days run all, and who names tests has them."""
    return TURN or (OF_THE_DAY if is_whole(config) and not THOROUGH else "")


def has_its_turn(name: str, turn: str) -> bool:
    """Whether a test of this name is in the part that runs."""
    part, _, parts = turn.partition("/")
    return not turn or crc32(name.encode()) % int(parts) == int(part) % int(parts)


def drawn(in_full: int, quick: int = 20, proof: int | None = None) -> int:
    """So many examples, histories or processes as this run takes: as CI, as everyone's run, or as `make prove` where that takes more than CI."""
    if proof is not None and PROVING:
        return proof
    return in_full if THOROUGH else min(in_full, quick)


def beyond(chosen: object, everyones: Container[object]) -> list[pytest.MarkDecorator]:
    """The marks of one case of many: of those that everyone's run has, none; of the others, that they take long."""
    return [] if chosen in everyones else [pytest.mark.thorough]
