"""A view of one scope: `Memory`'s calls without naming the scope each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.domain.entry import Entry
from memory.domain.scope import Scope
from memory.orchestrator.browsing import Retrieved
from memory.orchestrator.searching import SearchResult

if TYPE_CHECKING:
    from memory.facade.memory import Memory


class ScopedMemory:
    """`memory.scoped(Scope.user("ada"))`. Arguments are those of the `Memory` call of the same name."""

    def __init__(self, memory: Memory, scope: Scope) -> None:
        self._memory = memory
        self.scope = scope

    async def write(self, content: str = "", **arguments: Any) -> Entry:
        return await self._memory.write(content, scope=self.scope, **arguments)

    async def retrieve(self, **arguments: Any) -> Retrieved:
        return await self._memory.retrieve(self.scope, **arguments)

    async def search(self, query: str, **arguments: Any) -> SearchResult:
        return await self._memory.search(query, scope=self.scope, **arguments)

    async def delete_all(self) -> int:
        """Erase every entry of the scope."""
        return await self._memory.delete_scope(self.scope)
