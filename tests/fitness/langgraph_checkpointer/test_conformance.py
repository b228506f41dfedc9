"""LangGraph's conformance suite for checkpointers, whole: 81 tests on each topology."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from memory import Memory
from tests.fitness.langgraph_checkpointer.adapter import DocumentSaver

TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


@pytest.mark.parametrize("capability", TESTS)
async def test_every_conformance_test_passes(config: dict[str, Any], capability: str) -> None:
    async with Memory(config) as memory:

        @checkpointer_test(name="memory-tiers")
        async def saver() -> AsyncIterator[DocumentSaver]:
            yield DocumentSaver(memory)

        report = await validate(saver, capabilities={capability})
    result = report.results[capability]
    assert result.failures == []
    assert (result.tests_passed, result.tests_failed) == (TESTS[capability], 0)
