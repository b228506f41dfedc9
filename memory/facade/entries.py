"""`memory.entries`: what is asked of entries beside reading and writing them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from memory.domain.corrections import explain_guesses
from memory.domain.entry import Entry
from memory.domain.errors import NotFound
from memory.domain.scope import Scope
from memory.domain.session import HistoryItem
from memory.facade.access import Access
from memory.facade.arguments import Moment, consistency_of, flag, id_of, moment, scope_of
from memory.orchestrator.deliveries import Consistency


@explain_guesses
class Entries:
    """The entries of a tenant: all of them, their versions, the end of their validity.

    async for entry in memory.entries.all("user:ada"):
        print(entry.content, len(await memory.entries.history(entry.id)))
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def all(self, scope: Scope | str | None = None, *, retired: bool = False) -> AsyncIterator[Entry]:
        """Every live entry of the tenant, or of one scope, oldest first; with `retired`
        also those no longer valid, as an export has them.
        """
        wanted = None if scope is None else scope_of(scope)
        async for entry in self._access.engine.browsing.everything(
            self._access.tenant, wanted, retired=retired
        ):
            yield entry

    async def history(self, entry_id: str, *, superseded: bool = False) -> list[Entry]:
        """Every version of an entry, oldest first, the current one last.

        With `superseded` those of what it took the place of stand before them, and of
        what that did, the farthest back first: of at most 100 entries in all (D23,
        D107). Raises `NotFound`.
        """
        engine, tenant, wanted = self._access.engine, self._access.tenant, id_of(entry_id)
        versions = await engine.entries.history(tenant, wanted)
        for one in (await engine.graphs.chain(tenant, wanted))[1:] if flag("superseded", superseded) else ():
            with suppress(NotFound):  # expired
                versions = [*await engine.entries.history(tenant, one), *versions]
        return versions

    async def said_in(self, entry_id: str) -> list[HistoryItem]:
        """The messages of a session that the entry was made of (see `Memory`,
        `onward`), oldest first; none where it was made otherwise.

        `entry.conversation_id` names the session. Raises `NotFound` for an entry that
        is unknown, expired or retired.
        """
        engine = self._access.engine
        return await engine.conversations.onward.taught.messages_of(
            await engine.entries.live_record(self._access.tenant, id_of(entry_id))
        )

    async def invalidate(
        self, entry_id: str, when: Moment | None = None, *, consistency: Consistency | None = None
    ) -> bool:
        """End an entry's validity now, or at `when`; it stays readable with `as_of`.
        False where nothing active was found.

        `consistency` is that of `write`.
        """
        ends = moment("when", when)
        return await self._access.engine.entries.invalidate(
            self._access.tenant, id_of(entry_id), ends, consistency_of(consistency)
        )
