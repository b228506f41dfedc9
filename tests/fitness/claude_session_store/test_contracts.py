"""The fourteen contracts of the Claude Agent SDK."""

from __future__ import annotations

import uuid
from typing import Any

from claude_agent_sdk.testing import run_session_store_conformance

from memory import Memory
from tests.fitness.claude_session_store.adapter import MemorySessionStore


async def test_the_fourteen_contracts(config: dict[str, Any]) -> None:
    async with Memory(config) as memory:
        await run_session_store_conformance(
            lambda: MemorySessionStore(memory.for_tenant(uuid.uuid4().hex)), skip_optional=frozenset()
        )
