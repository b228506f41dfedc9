"""The tests of the SDK's own sessions, run on ours in the place of `SQLiteSession`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.fitness.openai_session.adapter import MemorySession
from tests.fitness.suites import memory, name_tests, shared_memory

name_tests("openai_agents", "openai_agents_tests")

from openai_agents_tests.memory import test_session, test_session_limit  # noqa: E402
from openai_agents_tests.memory.test_session import *  # noqa: E402, F403
from openai_agents_tests.memory.test_session_limit import *  # noqa: E402, F403

__all__ = ["memory", "shared_memory"]
_INNER = "reads the connections or tables of their SQLite file"
NOT_APPLICABLE = {
    "test_sqlite_session_close_closes_worker_thread_connections": _INNER,
    "test_sqlite_session_reaps_connections_from_exited_worker_threads": _INNER,
    "test_sqlite_session_closes_retired_connections_before_the_next_allocation": _INNER,
    "test_sqlite_session_keeps_connections_of_live_worker_threads": _INNER,
    "test_sqlite_session_pop_item_skips_corrupt_most_recent": _INNER,
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": _INNER,
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": _INNER,
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": _INNER,
    "test_sqlite_session_file_lock_is_shared_across_instances": _INNER,
    "test_sqlite_session_failed_add_items_releases_write_lock": _INNER,
    "test_sqlite_session_failed_clear_session_rolls_back": _INNER,
    "test_sqlite_session_failed_pop_item_releases_write_lock": _INNER,
    "test_sqlite_session_rollback_failure_evicts_connection": _INNER,
    "test_sqlite_session_close_retries_quarantined_connection": _INNER,
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome": _INNER,
    "test_sqlite_session_closed_rejects_empty_add_items": "expects the text 'SQLiteSession is closed'",
}


@pytest.fixture(autouse=True)
def _sessions_of_ours(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make sessions of a memory where their tests make one of a SQLite file."""

    class SessionInMemory(MemorySession):
        def __init__(self, session_id: str, db_path: str | Path = ":memory:", **settings: Any) -> None:
            super().__init__(session_id, memory, **settings)

        def close(self) -> None:
            """Leave the memory open, for it is that of all sessions of a test."""

    for module in (test_session, test_session_limit):
        monkeypatch.setattr(module, "SQLiteSession", SessionInMemory)
