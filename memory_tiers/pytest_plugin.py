"""Loads the contract suite's plugin into a pytest run that asks for the contract, and
into no other.

pytest imports this wherever the library is installed, also in projects whose own tests
have a `memory` of theirs: it must not import ours unasked.
"""

from __future__ import annotations

import pytest

from memory_tiers import explain, shadowing

CONTRACT = "memory.ports.contract"


def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    if not any(CONTRACT in a or a.startswith("--memory-harness") for a in args):
        return
    found = shadowing()
    if found is not None:
        raise pytest.UsageError(explain(found))
    early_config.pluginmanager.import_plugin(f"{CONTRACT}.plugin")
