"""The contract of `pydantic-ai-memory-core` for stores of the harness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from memory import BlockingMemory, Memory
from tests.fitness.pydantic_memory_store.adapter import DocumentMemoryStore

pytest.register_assert_rewrite("pydantic_ai_memory_core.contract")

from pydantic_ai_memory_core.contract import *  # noqa: E402, F403


@pytest.fixture
def store(config: dict[str, Any]) -> Iterator[DocumentMemoryStore]:
    memory = Memory(config, loop="own")
    with BlockingMemory(memory):
        yield DocumentMemoryStore(memory, "org:acme")
