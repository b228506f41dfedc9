"""What belongs together runs on one worker: fixtures of a module, and servers, are made
once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.backends import BACKENDS
from tests.support.depth import LEFT_TO_NIGHTLY, SLOW

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("number", range(2))
def test_a_worker_takes_a_file_as_a_whole(request: pytest.FixtureRequest, number: int) -> None:
    """The plugin that hands the tests out reads the group from the end of a test's id;
    where it stands in none, it goes unseen.
    """
    if not hasattr(request.config, "workerinput"):
        pytest.skip("the tests run in one process")
    assert request.node.nodeid.endswith("]@meta/test_groups.py")


def test_a_worker_takes_the_tests_on_a_server_as_a_whole(request: pytest.FixtureRequest) -> None:
    """Of every test that was collected: its group names the servers it needs."""
    if not hasattr(request.config, "workerinput"):
        pytest.skip("the tests run in one process")
    for item in request.session.items:
        marked = {name for mark in item.iter_markers("backend") for name in mark.args}
        for server in (name for name in marked if BACKENDS[name].needs_server):
            assert server in item.nodeid.rpartition("@")[2]


@pytest.mark.parametrize("listed", [SLOW, LEFT_TO_NIGHTLY], ids=["slow.txt", "nightly.txt"])
def test_the_tests_that_a_list_names_exist(listed: frozenset[str]) -> None:
    """A test that is renamed is renamed in the list too."""
    clauses = "".join(file.read_text() for file in sorted((ROOT / "memory/ports/contract").glob("test_*.py")))
    named = [line.partition("[")[0].partition("::") for line in sorted(listed)]
    assert [
        f"{path}::{name}"
        for path, _, name in named
        if f"def {name}(" not in (clauses if "built_ins" in path else (ROOT / path).read_text())
    ] == []
