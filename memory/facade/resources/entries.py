"""`memory.entries`: list entries, read their versions, and end their validity."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from memory.domain.corrections import explain_guesses
from memory.domain.entry import Entry
from memory.domain.errors import NotFound
from memory.domain.scope import Scope
from memory.domain.session import HistoryItem
from memory.facade.arguments import Moment, consistency_of, expected_version_of, flag, id_of, moment, scope_of
from memory.facade.runtime.access import Access
from memory.orchestrator.storage.deliveries import Consistency


@explain_guesses
class Entries:
    """The entries of a tenant: iteration, versions, and the end of validity.

        async for entry in memory.entries.iterate("user:ada"):
            print(entry.content, len(await memory.entries.history(entry.id)))

    Single entries are written and read with the methods of `Memory`.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def iterate(
        self, scope: Scope | str | None = None, *, include_retired: bool = False
    ) -> AsyncIterator[Entry]:
        """Iterate over every live entry of the tenant or of one scope, as exports do.

        Each entry comes once: tier by tier, oldest first in each. Unlike `browse`, it
        shows entries of blocked sources and asks no recall gate, and it fails when a
        store fails instead of leaving entries out.

        Args:
            scope: A scope or its text, such as `"user:ada"`.
            include_retired: Also yield entries whose validity has ended.

        Raises:
            StoreUnavailable: A store did not answer.
        """
        wanted = None if scope is None else scope_of(scope)
        async for entry in self._access.engine.browser.everything(
            self._access.tenant, wanted, retired=flag("include_retired", include_retired)
        ):
            yield entry

    async def history(
        self,
        entry_id: str | None = None,
        *,
        scope: Scope | str | None = None,
        key: str | None = None,
        superseded: bool = False,
    ) -> list[Entry]:
        """List every version of an entry, oldest first, the current one last.

        Args:
            entry_id: The id of the entry.
            scope: With `key`, names the entry instead of its id.
            key: The key of the entry in `scope`.
            superseded: Put the versions of superseded entries before them: of the
                entries that this one superseded, and of the entries that those
                superseded. The farthest back come first, from at most 100 entries in
                all.

        Raises:
            NotFound: There is no such entry.
        """
        engine, tenant = self._access.engine, self._access.tenant
        wanted = self._access.entry_id(entry_id, scope, key)
        versions = await engine.entries.history(tenant, wanted)
        for one in (await engine.graphs.chain(tenant, wanted))[1:] if flag("superseded", superseded) else ():
            with suppress(NotFound):  # expired
                versions = [*await engine.entries.history(tenant, one), *versions]
        return versions

    async def source_messages(self, entry_id: str) -> list[HistoryItem]:
        """List the messages that an entry was made of, oldest first.

        These are messages that left a session's window (see `on_window_exit` of
        `Memory`). The list is empty for entries that were made otherwise.
        `entry.conversation_id` names the session.

        Raises:
            NotFound: The entry is unknown, expired or retired.
        """
        engine = self._access.engine
        return await engine.conversations.window_exit.derived.messages_of(
            await engine.entries.live_record(self._access.tenant, id_of(entry_id))
        )

    async def invalidate(
        self,
        entry_id: str | None = None,
        when: Moment | None = None,
        *,
        scope: Scope | str | None = None,
        key: str | None = None,
        expected_version: str | None = None,
        consistency: Consistency | None = None,
    ) -> bool:
        """End the validity of an entry. It stays readable with `as_of`.

        Args:
            entry_id: The id of the entry.
            when: The end of the validity; now by default.
            scope: With `key`, names the entry instead of its id.
            key: The key of the entry in `scope`.
            expected_version: End it only if this is still the entry's `version`.
            consistency: As in `write`.

        Returns:
            Whether an active entry was found.

        Raises:
            VersionConflict: The entry has another version than the expected one.
        """
        wanted, ends = self._access.entry_id(entry_id, scope, key), moment("when", when)
        waits, expected = consistency_of(consistency), expected_version_of(expected_version)
        return await self._access.engine.entries.invalidate(
            self._access.tenant, wanted, ends, waits, expected=expected
        )
