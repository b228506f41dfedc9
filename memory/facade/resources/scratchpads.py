"""`memory.scratchpads`: plain-text notes of agents."""

from __future__ import annotations

from typing import Any

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput
from memory.domain.scratchpad import Scratchpad
from memory.facade.arguments import agent_of
from memory.facade.runtime.access import Access
from memory.facade.runtime.request_ids import noted_flag, read_flag, request_of
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.entries.scratchpads import CAP, scope_of
from memory.orchestrator.storage.requests import RequestMark, partition_mark


@guard_calls
@explain_guesses
class Scratchpads:
    """Plain-text notes: one scratchpad for each agent, and one that all agents share.

        await memory.scratchpads.append("The build needs Node 20.", agent="builder")
        print((await memory.scratchpads.read("builder")).content)

    A scratchpad is appended to, read as a whole, and cleared. Searches do not find its
    text.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def append(self, text: str, agent: str | None = None, *, request_id: str | None = None) -> int:
        """Append a text to a scratchpad, under a header with the moment.

        Args:
            agent: The agent's name: 1 to 64 of A-Z, a-z, 0-9, _ and -. By default the
                text goes to the shared scratchpad.
            request_id: As in `Memory.write`. A repeat returns the size after the first
                call.

        Returns:
            The new size of the scratchpad in bytes of UTF-8.

        Raises:
            ScratchpadFull: The scratchpad would exceed 4 MiB, headers included. Nothing
                changes.
        """
        said = validation.text("text", text, max_bytes=CAP)
        if not said.strip():
            raise InvalidInput("text", "must not be blank. Pass the text to append")
        whose, tenant, engine = agent_of(agent), self._access.tenant, self._access.engine
        request = request_of(
            "scratchpads.append",
            request_id,
            {"text": said, "agent": whose},
            [partition_mark(tenant, scope_of(whose))],
        )

        async def read(noted: Any) -> int:
            return int(noted["size"])

        return await self._access.once(
            request,
            lambda mark: engine.scratchpads.append(tenant, whose, said, mark, self._access.writer),
            lambda size: {"size": size},
            read,
        )

    async def read(self, agent: str | None = None) -> Scratchpad:
        """Return the whole text of a scratchpad, oldest first.

        A scratchpad that was never written is empty, and its `exists` is False.
        """
        whose = agent_of(agent)
        return await self._access.engine.scratchpads.read(self._access.tenant, whose)

    async def clear(self, agent: str | None = None, *, request_id: str | None = None) -> bool:
        """Delete the text of a scratchpad. Text that others append meanwhile stays.

        Args:
            agent: The agent's name; by default the shared scratchpad.
            request_id: As in `Memory.write`. A repeat spares text that was appended
                after the request began.

        Returns:
            False if the scratchpad was empty, or another call has cleared it.
        """
        whose, tenant, engine = agent_of(agent), self._access.tenant, self._access.engine
        request = request_of(
            "scratchpads.clear", request_id, {"agent": whose}, [partition_mark(tenant, scope_of(whose))]
        )

        async def clear(mark: RequestMark | None) -> bool:
            return await engine.scratchpads.clear(tenant, whose, mark)

        return await self._access.once(request, clear, noted_flag, read_flag)
