"""How much a run draws: everyone's run, CI and `make nightly`. Only `make nightly`
draws fresh seeds.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Container
from pathlib import Path

import pytest

PROVING = bool(os.environ.get("MEMORY_PROVE"))
"""Whether this is `make prove`, which runs what takes hours."""
NIGHTLY = PROVING or bool(os.environ.get("MEMORY_NIGHTLY"))
"""Whether this is `make nightly`: fresh seeds, long runs, and what another test asks at
less length.
"""
THOROUGH = NIGHTLY or any(os.environ.get(name) for name in ("MEMORY_REQUIRE", "MEMORY_THOROUGH"))
"""Whether this run asks all that CI asks; CI names the backends that it requires."""


def _listed(file: str) -> frozenset[str]:
    return frozenset(
        line
        for line in (Path(__file__).parents[1] / file).read_text().splitlines()
        if not line.startswith("#")
    )


SLOW = _listed("slow.txt")
"""The test functions that everyone's run leaves to CI, so that `make test` takes three
minutes with its installation.
"""
LEFT_TO_NIGHTLY = _listed("nightly.txt")
"""The test functions, and cases of them, that CI leaves to `make nightly`."""
FIRST_SEED = int(os.environ.get("SIMULATION_FIRST") or (secrets.randbelow(10**9) if NIGHTLY else 1))
"""Where drawn seeds begin: at the same place on every run, and at a fresh one each
night.
"""


def is_asked_tonight(test: str) -> bool:
    """Whether `make nightly` asks a test that CI does not: every second one, as
    SIMULATION_FIRST is even or odd. `make prove` asks all.
    """
    return PROVING or zlib.crc32(test.encode()) % 2 == FIRST_SEED % 2


def drawn(in_full: int, quick: int = 20, proof: int | None = None) -> int:
    """The number of examples, histories or processes for this run. CI takes as many as
    everyone's run: the same seeds show the same each day.
    """
    if PROVING and proof is not None:
        return proof
    return in_full if NIGHTLY else min(in_full, quick)


def seeds(quick: int, nightly: int) -> range:
    """The seeds of a simulation for this run."""
    return range(FIRST_SEED, FIRST_SEED + (nightly if NIGHTLY else quick))


def beyond(
    chosen: object, everyones: Container[object], in_ci: Container[object] | None = None
) -> list[pytest.MarkDecorator]:
    """The marks of one case of many: none for the cases of everyone's run, `thorough`
    for those of CI, which has all unless told, else `nightly`.
    """
    if chosen in everyones:
        return []
    return [pytest.mark.thorough if in_ci is None or chosen in in_ci else pytest.mark.nightly]
