"""`memory.sessions`: what concerns sessions as a whole."""

from __future__ import annotations

from memory.domain.scope import Scope
from memory.facade.access import Access
from memory.orchestrator.promotion import PromotionReport


class Sessions:
    """The sessions of a tenant. What belongs to one is written with the scope `session:<id>`.

    report = await memory.sessions.end("s1")
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def end(self, session_id: str) -> PromotionReport:
        """A session is over: the promotion rules for that move its entries onward. Says what moved by which rule, and what stayed."""
        return await self._access.engine.promotion.end_session(self._access.tenant, Scope.session(session_id))
