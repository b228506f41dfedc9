"""What belongs together runs on one worker: fixtures of a module, and servers, are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.backends import BACKENDS
from tests.support.depth import SLOW

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("number", range(2))
def test_a_worker_takes_a_file_as_a_whole(request: pytest.FixtureRequest, number: int) -> None:
    """The plugin that hands the tests out reads the group from the end of a test's id; where it stands in none, it goes unseen."""
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


@pytest.mark.parametrize("line", sorted(SLOW))
def test_a_test_that_everyones_run_leaves_to_ci_exists(line: str) -> None:
    """Of a test that was renamed, the line is to be renamed too."""
    path, _, function = line.partition("::")
    assert f"def {function}(" in (ROOT / path).read_text()
