"""The SDK's tests of runs with a session, on ours in the place of `SQLiteSession`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.fitness.openai_session.adapter import MemorySession
from tests.fitness.suites import memory, name_tests, shared_memory

name_tests("openai_agents", "openai_agents_tests")

from openai_agents_tests import (  # noqa: E402
    test_native_tool_failure_history,
    test_soft_cancel,
    test_tool_batch_failure_history,
)
from openai_agents_tests.memory import (  # noqa: E402
    test_compaction_model_visibility,
    test_openai_responses_compaction_session,
)
from openai_agents_tests.memory.test_compaction_model_visibility import *  # noqa: E402, F403
from openai_agents_tests.memory.test_openai_responses_compaction_session import *  # noqa: E402, F403
from openai_agents_tests.test_native_tool_failure_history import *  # noqa: E402, F403
from openai_agents_tests.test_soft_cancel import *  # noqa: E402, F403
from openai_agents_tests.test_tool_batch_failure_history import *  # noqa: E402, F403

__all__ = ["memory", "shared_memory"]
pytestmark = pytest.mark.nightly
_SNAPSHOT = "needs _get_compaction_snapshot, a private method that the SDK's own sessions have"
_INNER = "reads the connections of their SQLite file"
NOT_APPLICABLE = {
    "test_backend_read_limit_cannot_hide_retained_history_from_compaction": _SNAPSHOT,
    "test_automatic_compaction_does_not_reload_unbounded_hidden_history": _SNAPSHOT,
    "test_expired_read_overhead_does_not_authorize_hidden_history": _SNAPSHOT,
    "test_automatic_compaction_rollback_budget[*-True]": _SNAPSHOT,
    "test_settled_pop_failure_invalidates_response_chain": _INNER,
    "test_settled_clear_failure_invalidates_response_chain": _INNER,
}
MODULES = (
    test_compaction_model_visibility,
    test_native_tool_failure_history,
    test_openai_responses_compaction_session,
    test_soft_cancel,
    test_tool_batch_failure_history,
)


@pytest.fixture(autouse=True)
def _sessions_of_ours(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sessions of a memory where their tests make one of a SQLite file."""

    class SessionInMemory(MemorySession):
        def __init__(self, session_id: str, db_path: str | Path = ":memory:", **settings: Any) -> None:
            super().__init__(session_id, memory, **settings)

        def close(self) -> None:
            """Leave the memory open, for it is that of all sessions of a test."""

    for module in MODULES:
        monkeypatch.setattr(module, "SQLiteSession", SessionInMemory)
