"""Sessions of the OpenAI Agents SDK, kept in memory-tiers.

session = MemorySession("thread-7", memory, user="ada")
await Runner.run(agent, "Where does Ada live?", session=session)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from agents.memory.session_settings import resolve_session_limit

from memory import InvalidInput, Memory, Session
from memory.formats import export_messages, import_message

FORMAT = "openai_responses"
OPAQUE = "memory-tiers:"
"""The beginning of the id of a reference that holds an item as JSON."""
MOST_AT_ONCE = 500
"""Items of one write of memory-tiers."""

Result = TypeVar("Result")


class MemorySession:
    """A `Session` of the OpenAI Agents SDK over a session of memory-tiers.

    Items are returned equal to what was added. `memory.search_messages` finds their
    text, and `memory.session(session_id)` reads the same conversation.

    An item that is popped or cleared is not sent to a model again. The history of the
    session keeps it. `memory.sessions.delete(session_id)` erases everything.

    The memory may be used from several event loops if it was made with `loop="own"`,
    as `Runner.run_sync` needs. The caller opens and closes the memory.

    Args:
        session_id: The id of the conversation. It is unique in a tenant.
        memory: The memory. `memory.for_tenant("acme")` keeps tenants apart.
        user: The user that the conversation belongs to. Another user cannot open it.
        session_settings: `limit` is the number of newest items that a run reads.
    """

    def __init__(
        self,
        session_id: str,
        memory: Memory,
        *,
        user: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = SessionSettings().resolve(session_settings)
        self._session: Session = memory.session(session_id, user=user)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest items in the order in which they were added.

        Args:
            limit: At most this many items. Without it, the limit of the session's
                settings counts, and all items are returned if there is none.
        """
        most = resolve_session_limit(limit, self.session_settings)
        if most is not None and most <= 0:
            return []
        window = await self._session.window(last=most)
        shown = [message for message in window.messages if message.id != "system"]
        return [_loaded(item) for item in export_messages(shown, FORMAT)]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items behind those that the session has; up to 500 in one step.

        Items that the Responses API does not have, such as those of `EncryptedSession`,
        are kept too. Their text is not found.

        Raises:
            InvalidInput: An item is no dict of JSON values. The error names it.
        """
        for first in range(0, len(items), MOST_AT_ONCE):
            part = items[first : first + MOST_AT_ONCE]
            try:
                await _finish(self._session.append(part, format=FORMAT))
            except InvalidInput:
                part = [_storable(item) for item in part]
                await _finish(self._session.append(part, format=FORMAT))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take out the newest item, and return it; None if there is none."""
        popped = await _finish(self._session.pop())
        return _loaded(popped[0]) if popped else None

    async def clear_session(self) -> None:
        """Take out all items."""
        await _finish(self._session.clear())


def _storable(item: TResponseInputItem) -> TResponseInputItem:
    """Return the item, or a reference that holds it if memory-tiers cannot read it."""
    try:
        import_message(item, FORMAT)
    except InvalidInput as error:
        if not isinstance(item, dict):
            raise
        try:
            return {"type": "item_reference", "id": OPAQUE + json.dumps(item, allow_nan=False)}
        except (TypeError, ValueError):
            raise error from None
    return item


def _loaded(item: dict[str, Any]) -> TResponseInputItem:
    held = str(item.get("id"))
    if item.get("type") == "item_reference" and held.startswith(OPAQUE):
        item = json.loads(held.removeprefix(OPAQUE))
    return cast(TResponseInputItem, item)


async def _finish(change: Coroutine[Any, Any, Result]) -> Result:
    """Finish a change even if the caller is cancelled meanwhile, and then tell it."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            await asyncio.wait([task])
        raise
