"""Every acceptance test runs over each way of placing the three tiers: one store or
several, durable or not.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory.facade.memory import Memory
from tests.acceptance.support import Clock
from tests.support import depth, edge_folders, empty_file
from tests.support.backends import marks_of, run_here
from tests.support.placings import ORDINARY, PLACINGS, STORIES, Placing, forget

SQLITE = pytest.mark.backend("sqlite")
IN_MEMORY = pytest.mark.backend("in_memory")
NIGHTLY = pytest.mark.nightly
ONE_CASE = pytest.mark.one_case
FILES = ("one.db", "mid.db", "long.db")


def _in_memory(folder: Path) -> dict[str, Any]:
    return {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://")}


def _one_file(folder: Path) -> dict[str, Any]:
    return {"tiers": dict.fromkeys(("short", "mid", "long"), f"sqlite:///{folder / 'one.db'}")}


def _behind_a_cache(folder: Path) -> dict[str, Any]:
    return {
        "tiers": {
            "short": "memory://",
            "mid": f"sqlite:///{folder / 'mid.db'}",
            "long": f"sqlite:///{folder / 'long.db'}",
        }
    }


def _on_servers(placing: Placing, *, in_ci: bool = False) -> Any:
    return pytest.param(
        placing.config, id=placing.name, marks=[*marks_of(*placing.backends), ONE_CASE if in_ci else NIGHTLY]
    )


DEFAULT = pytest.param(_one_file, id="one-file", marks=SQLITE)
"""Where every run asks everything."""


def topologies(*, mixed: bool) -> list[Any]:
    """The default, and what `make nightly` asks besides; with `mixed`, CI asks Redis +
    PostgreSQL + Edge too, one case of each test: what else its cases vary is above the
    stores.
    """
    return [
        DEFAULT,
        pytest.param(_in_memory, id="in-memory", marks=(IN_MEMORY, NIGHTLY)),
        pytest.param(_behind_a_cache, id="cache-and-two-files", marks=(SQLITE, IN_MEMORY, NIGHTLY)),
        *(
            _on_servers(placing, in_ci=mixed and placing is PLACINGS[0])
            for placing in PLACINGS
            if run_here(*placing.backends)
        ),
    ]


CASES = [
    _on_servers(placing) for placing in STORIES if placing not in PLACINGS and run_here(*placing.backends)
]
"""Where the cases of sessions and providers run besides, in `make nightly`."""


EVERYWHERE = depth.THOROUGH or sys.gettrace() is not None
"""Also where coverage measures which branches of the engine its tests take."""


def asked(everywhere: list[Any]) -> list[Any]:
    """The topologies that this run asks: the others are not collected, because that
    takes as long for each test as many tests take. Of those that CI does not ask, each
    night asks every sixth one.
    """
    if not EVERYWHERE:
        return [DEFAULT]
    beyond_ci = [
        param for param in everywhere if NIGHTLY.mark in [getattr(mark, "mark", mark) for mark in param.marks]
    ]
    tonight = beyond_ci[depth.FIRST_SEED % 6 :: 6] if depth.NIGHTLY else []
    return [param for param in everywhere if param not in beyond_ci or param in tonight]


def keeping_bytes(*more: str) -> Any:
    """The fixture `config` of a module whose tests keep bytes: on every topology, on
    those whose stores keep them each in its own way, on `more`; in everyone's run on
    the default.
    """
    names = {"redis-mongo-edge", "mariadb-only", "files-only", "split", *more}
    beside = [placing for placing in ORDINARY if placing.name in names and run_here(*placing.backends)]

    everywhere = [*topologies(mixed=True), *map(_on_servers, beside)]

    @pytest.fixture(params=asked(everywhere))
    def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
        with placed(request.param, tmp_path) as tiers:
            yield tiers

    return config


@contextmanager
def placed(place: Callable[[Path], dict[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    """A configuration, with nothing found by meaning and files that have their tables
    already, so that tests are fast. Where CI asks Edge, its shard stays open from test
    to test.
    """
    if place is not PLACINGS[0].config or depth.NIGHTLY:
        tiers = place(folder)
        for name in FILES:
            if f"sqlite:///{folder / name}" in tiers["tiers"].values():
                empty_file.put(folder / name)
        yield tiers | {"embedder": "none"}
    else:
        with edge_folders.kept_open() as edge:
            (folder / "edge").symlink_to(edge)
            yield place(folder) | {"embedder": "none"}
            (folder / "edge").unlink()
    forget(folder)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "config" in metafunc.fixturenames and not hasattr(metafunc.module, "config"):
        numbers = [
            str(number) for marker in metafunc.definition.iter_markers("behaviour") for number in marker.args
        ]
        everywhere = topologies(mixed=any(number.startswith("AC-") for number in numbers))
        everywhere += CASES * any(number.startswith(("AC-B", "AC-C")) for number in numbers)
        metafunc.parametrize("config", asked(everywhere), indirect=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Where the tiers are."""
    with placed(request.param, tmp_path) as tiers:
        yield tiers


@pytest.fixture
def shared_config(config: dict[str, Any]) -> dict[str, Any]:
    """Where a second memory finds what the first has stored."""
    if set(config["tiers"].values()) == {"memory://"}:
        pytest.skip("a store in memory belongs to one memory")
    return config


@pytest.fixture
async def memory(config: dict[str, Any], clock: Clock) -> AsyncIterator[Memory]:
    async with Memory(config, clock=clock) as opened:
        yield opened


@pytest.fixture
async def plain(clock: Clock) -> AsyncIterator[Memory]:
    """For what is refused before any store is touched, and so is the same over all of
    them.
    """
    async with _empty(clock) as opened:
        yield opened


@pytest.fixture
async def other(clock: Clock) -> AsyncIterator[Memory]:
    """An empty memory of its own, of the same tenant."""
    async with _empty(clock) as opened:
        yield opened


def _empty(clock: Clock) -> Memory:
    tiers = dict.fromkeys(("short", "mid", "long"), "memory://")
    return Memory({"tiers": tiers, "embedder": "none"}, clock=clock)
