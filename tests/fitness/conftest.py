"""Where adapters of frameworks run, and the tests that do not apply to them.

A module of tests may have a dict `NOT_APPLICABLE`: the name of a test and why it cannot
pass, as in `{"test_x": "reason", "test_y[*-redis]": "reason"}`. Each of these tests must
fail, so that the dict is exactly the list of what cannot pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.backends import marks_of
from tests.support.placings import ORDINARY, PLACINGS, Placing, forget

DEFAULT_FILE = next(placing for placing in ORDINARY if placing.name == "default")
REDIS_POSTGRES_EDGE = next(placing for placing in PLACINGS if placing.name == "redis-postgres-edge")
TOPOLOGIES = (DEFAULT_FILE, REDIS_POSTGRES_EDGE)
SETTINGS: dict[str, Any] = {"embedder": "none", "durations": {"deadline": "2m"}}
"""The deadline is long: on a busy machine, concurrent writers take longer than ten
seconds, and then raise another error than a conflict.
"""


@pytest.fixture(params=[pytest.param(one, id=one.name, marks=marks_of(*one.backends)) for one in TOPOLOGIES])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """An empty memory's configuration without an embedder, on each topology in turn."""
    placing: Placing = request.param
    yield placing.config(tmp_path) | SETTINGS
    forget(tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect the failure of each test that does not apply; refuse unknown names."""
    unused: set[tuple[str, str]] = set()
    used: set[tuple[str, str]] = set()
    for item in items:
        module = getattr(item, "module", None)
        for name, reason in getattr(module, "NOT_APPLICABLE", {}).items():
            place = (item.path.name, name)
            unused.add(place)
            if _is_named(item, name):
                used.add(place)
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    chosen = any("::" in argument for argument in config.args) or config.option.keyword
    if (unknown := unused - used) and not chosen:
        names = ", ".join(f"{file}: {name}" for file, name in sorted(unknown))
        raise pytest.UsageError(f"NOT_APPLICABLE names tests that do not exist: {names}")


def _is_named(item: pytest.Item, name: str) -> bool:
    """Return whether a name is that of the test, or of the test with its parameters."""
    pattern = re.escape(name).replace(r"\*", ".*")
    return re.fullmatch(pattern, item.name) is not None or item.name.partition("[")[0] == name
