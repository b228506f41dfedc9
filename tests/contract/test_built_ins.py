"""The contract on our own adapters (see `conftest.py`): the same tests that anyone runs against theirs."""

from memory.ports.contract.suite import *  # noqa: F403
