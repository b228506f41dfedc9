"""Registers our adapters with the contract."""

from __future__ import annotations

import pytest

from memory.ports.contract.fixtures import harness, store
from memory.ports.contract.plugin import add_harnesses
from tests.contract.harnesses import HARNESSES

__all__ = ["harness", "store"]


def pytest_configure(config: pytest.Config) -> None:
    add_harnesses(config, *HARNESSES)
