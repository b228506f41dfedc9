"""Which seed shows which mutant. CI plays that seed alone; a note that shows nothing
fails. `make noticed` looks for others.

A mutant is named with its judge: `simulation/marks-live-a-second`. A change of the
engine moves what a seed draws, so some notes have to be renewed with it; `make noticed`
keeps every note that still shows its mutant.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support import depth
from tests.support.depth import beyond

NOTED = Path(__file__).parents[1] / "noticed.json"
RENEWING = bool(os.environ.get("MEMORY_NOTE"))
_sound: set[tuple[str, int]] = set()
"""Judges and seeds that break nothing without a mutant."""
RENEW = "If the mutant still breaks something, renew its note: make noticed"


def seeds(mutant: str, search: Iterable[int]) -> list[int]:
    """The seed noted for a mutant. Where nothing is noted, and while notes are renewed:
    that seed, then all others of the search.
    """
    noted = by(mutant)
    if RENEWING or noted is None:
        return list(dict.fromkeys([*([] if noted is None else [noted]), *search]))
    return [noted]


def cases(judge: str, mutants: Iterable[str]) -> list[Any]:
    """The mutants of a judge as cases of a test. CI plays those with a note; `make
    nightly` searches for the others.
    """
    return [
        pytest.param(name, marks=beyond(name, (), None if by(f"{judge}{name}") is not None else ()))
        for name in mutants
    ]


def assert_shows(
    mutant: str,
    applied: Callable[[], AbstractContextManager[object]],
    breaks: Callable[[int], bool],
    search: Iterable[int],
    *,
    sound_elsewhere: bool = False,
) -> None:
    """The noted seed breaks something with the mutant applied, and nothing without it.
    `sound_elsewhere`: another test plays it without. What a judge plays without a
    mutant is the same for all of its mutants, so it plays a seed once.
    """
    judge = mutant.partition("/")[0]
    for seed in seeds(mutant, search):
        with applied():
            shown = breaks(seed)
        if not shown:
            continue
        if (sound_elsewhere and not RENEWING) or (judge, seed) in _sound or not breaks(seed):
            _sound.add((judge, seed))
            note(mutant, seed)
            return
        assert RENEWING or by(mutant) is None, f"seed {seed} breaks something without {mutant!r} too"
    raise AssertionError(f"{mutant!r} is not noticed. {RENEW}")


def are_sound(judge: str, seeds: Iterable[int]) -> None:
    """A test has just seen that these seeds break nothing without a mutant."""
    _sound.update((judge, seed) for seed in seeds)


def by(mutant: str) -> Any:
    """What is noted for a mutant: a seed, or a list of operations. None where nothing
    is.
    """
    return _noted().get(mutant)


def noted_seeds(judge: str) -> list[int]:
    """All seeds noted for the mutants of a judge, in order."""
    return sorted(
        {
            seed
            for mutant, seed in _noted().items()
            if mutant.startswith(f"{judge}/") and isinstance(seed, int)
        }
    )


def sound_seeds(judge: str, quick: int, nightly: int) -> Sequence[int]:
    """The seeds that a judge plays without a mutant: in CI those noted for its mutants,
    so that `assert_shows` need not play them again, and others until there are `quick`.
    """
    seeds = depth.seeds(quick, nightly)
    if depth.NIGHTLY or not depth.THOROUGH:
        return seeds
    noted = noted_seeds(judge)
    return [*noted, *[seed for seed in seeds if seed not in noted][: max(quick - len(noted), 0)]]


def note(mutant: str, shown_by: Any) -> None:
    """Write the note while notes are renewed; several processes may do so at once."""
    if not RENEWING or _noted().get(mutant) == shown_by:
        return
    _noted()[mutant] = shown_by
    with NOTED.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        noted = json.load(file) | {mutant: shown_by}
        file.seek(0)
        file.write(
            "{\n"
            + ",\n".join(f"{json.dumps(name)}: {json.dumps(noted[name])}" for name in sorted(noted))
            + "\n}\n"
        )
        file.truncate()


@cache
def _noted() -> dict[str, Any]:
    noted: dict[str, Any] = json.loads(NOTED.read_text())
    return noted
