"""The contract of `pydantic-ai-memory-core` for stores of the harness."""

from __future__ import annotations

import pytest

from memory import Memory
from tests.fitness.pydantic_memory_store.adapter import DocumentMemoryStore
from tests.fitness.suites import memory, shared_memory

pytest.register_assert_rewrite("pydantic_ai_memory_core.contract")

from pydantic_ai_memory_core.contract import *  # noqa: E402, F403

__all__ = ["memory", "shared_memory"]


@pytest.fixture
def store(memory: Memory) -> DocumentMemoryStore:
    return DocumentMemoryStore(memory, "org:acme")
