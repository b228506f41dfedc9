"""The tests that a framework's own source archive has, and a memory for many tests.

`tools/fitness.py` unpacks the archives that a `sources.txt` pins. Their package `tests`
gets another name, because `tests` is ours. Nothing of them is in this repository.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from memory import BlockingMemory, Memory
from tests.fitness.conftest import SETTINGS, TOPOLOGIES
from tests.support.backends import marks_of
from tests.support.placings import Placing, forget

SOURCES = Path(sys.prefix) / "sources"


def name_tests(distribution: str, package: str) -> None:
    """Make the tests of an unpacked source archive importable as a package.

    Args:
        distribution: The name of the archive without its version.
        package: The name that replaces `tests`.
    """
    made = SOURCES / package
    if not made.exists():
        (tests,) = SOURCES.glob(f"{distribution}-*/tests")
        copy = Path(shutil.copytree(tests, SOURCES / f"{package}.new", dirs_exist_ok=True))
        for module in copy.rglob("*.py"):
            module.write_text(module.read_text().replace("from tests", f"from {package}"))
        copy.rename(made)
    pytest.register_assert_rewrite(package)
    sys.path.insert(0, str(SOURCES))


@pytest.fixture(
    scope="module",
    params=[pytest.param(one, id=one.name, marks=marks_of(*one.backends)) for one in TOPOLOGIES],
)
def shared_memory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Memory]:
    """An open memory that the tests of a module share, on each topology in turn."""
    placing: Placing = request.param
    folder = tmp_path_factory.mktemp("shared")
    memory = Memory(placing.config(folder) | SETTINGS, loop="own")
    with BlockingMemory(memory):
        yield memory
    forget(folder)


@pytest.fixture
def memory(shared_memory: Memory) -> Memory:
    """The memory of a tenant that nothing is stored for yet."""
    return shared_memory.for_tenant(uuid4().hex)
