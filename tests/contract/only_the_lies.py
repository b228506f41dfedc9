"""A pytest plugin (`-p tests.contract.only_the_lies`): runs for each liar the test made for its lie, for the honest store all of those."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from memory.ports.contract.plugin import FIXTURE
    from tests.contract.liars import LIARS, Honest

    wanted = {(name, expected.partition("[")[0]) for name, (_, expected) in LIARS.items()}
    wanted |= {(Honest.name, expected) for _, expected in wanted}
    kept = [
        item
        for item in items
        if isinstance(item, pytest.Function) and (getattr(item.callspec.params[FIXTURE], "name", ""), item.originalname) in wanted
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept
