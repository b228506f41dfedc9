"""The tests of the SDK's `InMemorySessionStore`, run on our store in its place."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from memory import Memory
from tests.fitness.claude_session_store.adapter import MemorySessionStore
from tests.fitness.suites import memory, name_tests, shared_memory

name_tests("claude_agent_sdk", "claude_sdk_tests")

from claude_sdk_tests import (  # noqa: E402
    test_session_helpers_store,
    test_session_import,
    test_session_resume,
    test_session_store_conformance,
    test_session_summary,
)
from claude_sdk_tests.test_session_helpers_store import *  # noqa: E402, F403
from claude_sdk_tests.test_session_import import *  # noqa: E402, F403
from claude_sdk_tests.test_session_resume import *  # noqa: E402, F403
from claude_sdk_tests.test_session_store_conformance import *  # noqa: E402, F403
from claude_sdk_tests.test_session_summary import *  # noqa: E402, F403

__all__ = ["memory", "shared_memory"]
MODULES = (
    test_session_helpers_store,
    test_session_import,
    test_session_resume,
    test_session_store_conformance,
    test_session_summary,
)

_TURNS = "expects an answer of the store within a few turns of the event loop"
_INNER = "changes the times inside of their store"
NOT_APPLICABLE = {
    "test_load_concurrency_is_bounded": _TURNS,
    "test_gap_fill_bounded_concurrency": _TURNS,
    "test_cancelled_after_mkdtemp_cleans_temp_dir": _TURNS,
    "test_continue_picks_most_recent": _INNER,
    "test_continue_skips_sidechain_sessions": _INNER,
    "test_continue_tie_break_is_deterministic": _INNER,
    "test_clear_helper": "empties their store by a helper that is no part of the protocol",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _stores_of_ours(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a store of a memory where their tests make one in the process's memory."""

    class StoreInMemory(MemorySessionStore):
        def __init__(self) -> None:
            super().__init__(memory.for_tenant(uuid.uuid4().hex))
            self.keys: list[Any] = []

        async def append(self, key: Any, entries: Any) -> None:
            await super().append(key, entries)
            self.keys.append(key)

        def get_entries(self, key: Any) -> list[Any]:
            """Load a transcript; their tests do not await this."""
            with ThreadPoolExecutor(1) as thread:
                return list(thread.submit(lambda: asyncio.run(self.load(key))).result() or [])

        @property
        def size(self) -> int:
            """How many main transcripts there are."""
            main = {str(key): key for key in self.keys if not key.get("subpath")}
            return sum(bool(self.get_entries(key)) for key in main.values())

    for module in MODULES:
        monkeypatch.setattr(module, "InMemorySessionStore", StoreInMemory)
