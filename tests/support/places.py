"""Configurations as parameters of tests, each with the marks of its backends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.backends import marks_of
from tests.support.placings import Placing

ONE_FILE = pytest.param(
    lambda folder: f"sqlite:///{folder / 'one.db'}", id="one-file", marks=pytest.mark.backend("sqlite")
)


def on(placing: Placing, *marks: Any) -> Any:
    return pytest.param(placing.config, id=placing.name, marks=[*marks_of(*placing.backends), *marks])
