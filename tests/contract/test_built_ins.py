"""The contract on our own adapters (see `conftest.py`): the same tests that anyone runs
against theirs.
"""

import pytest

from memory.ports.contract.suite import *  # noqa: F403

pytestmark = pytest.mark.behaviour("B61", "B62")
