"""The wheel, built from this checkout and installed once for all tests of a worker that
judge it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import wheel as wheels


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment in which the wheel is installed."""
    return wheels.install(wheel, tmp_path_factory.mktemp("env"))
