"""`memory.scratchpads`: what agents note for themselves."""

from __future__ import annotations

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput
from memory.facade.arguments import agent_of
from memory.facade.runtime.access import Access
from memory.orchestrator.entries.scratchpads import CAP, Scratchpad


@explain_guesses
class Scratchpads:
    """Plain text of an agent's own, and one that all agents of the tenant share:
    appended to, read whole, cleared. No entries: nothing searches them.

    await memory.scratchpads.append("The build needs Node 20.", agent="builder")
    print((await memory.scratchpads.read("builder")).content)
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def append(self, text: str, agent: str | None = None) -> int:
        """Append a text under a header with the moment; how many bytes of UTF-8 stand
        there then. Without an agent to the shared one.

        Raises `ScratchpadFull` beyond 4 MiB, headers included: then nothing changes
        (D130). An agent's name has 1 to 64 of A-Z, a-z, 0-9, _ and -.
        """
        said = validation.text("text", text, max_bytes=CAP)
        if not said.strip():
            raise InvalidInput("text", "says nothing")
        return await self._access.engine.scratchpads.append(self._access.tenant, agent_of(agent), said)

    async def read(self, agent: str | None = None) -> Scratchpad:
        """All that stands there, oldest first. One that was never written is empty, and
        `exists` is false (D132).
        """
        return await self._access.engine.scratchpads.read(self._access.tenant, agent_of(agent))

    async def clear(self, agent: str | None = None) -> bool:
        """Take away what stands there; what others append meanwhile stays. False where
        it was empty.
        """
        return await self._access.engine.scratchpads.clear(self._access.tenant, agent_of(agent))
