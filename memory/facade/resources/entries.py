"""`memory.entries`: list entries, read versions, end validity, delete by a filter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from memory.domain.corrections import explain_guesses
from memory.domain.entry import Entry, leave_out
from memory.domain.errors import InvalidInput, NotFound
from memory.domain.filter_parsing import parse_filter
from memory.domain.filters import check_size, is_empty
from memory.domain.scope import Scope, Subtree
from memory.domain.session import DeletedEntries, HistoryItem
from memory.facade.arguments import Moment, flag, id_of, scope_or_subtree
from memory.facade.runtime.access import Access
from memory.facade.runtime.request_ids import request_of
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.search_options import FilterInput, Include, filter_of, parts_left_out
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.storage.requests import RequestMark, partition_mark


@guard_calls
@explain_guesses
class Entries:
    """The entries of a tenant: iteration, versions, validity, deletion by a filter.

        async for entry in memory.entries.iterate("user:ada"):
            print(entry.content, len(await memory.entries.history(entry.id)))

    Single entries are written and read with the methods of `Memory`.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def iterate(
        self,
        scope: Scope | Subtree | str | None = None,
        *,
        filter: FilterInput | None = None,  # noqa: A002 - the usual word for it
        include_retired: bool = False,
        include: Include | None = None,
    ) -> AsyncIterator[Entry]:
        """Iterate over every live entry of the tenant or a scope, as exports do.

        Each entry comes once: tier by tier, oldest first in each. Unlike `browse`, it
        shows entries of blocked sources and asks no recall gate, and it fails when a
        store fails instead of leaving entries out.

        Args:
            scope: A scope or a subtree, or its text, such as `"user:ada"`.
            filter: Only entries that pass it; see `Filter`.
            include_retired: Also yield entries whose validity has ended.
            include: As in `Memory.search`.

        Raises:
            StoreUnavailable: A store did not answer.
        """
        wanted, left_out = self._scopes_of(scope), parts_left_out(include)
        passing = self._access.check_filter(filter_of(filter))
        async for entry in self._access.engine.browser.everything(
            self._access.tenant, wanted, retired=flag("include_retired", include_retired), passing=passing
        ):
            yield leave_out(entry, left_out)

    def _scopes_of(self, scope: Scope | Subtree | str | None) -> Sequence[Scope | Subtree]:
        """Return the scopes that a call covers; none for the whole tenant."""
        return self._access.readable_scopes(None if scope is None else scope_or_subtree(scope)) or ()

    async def delete_many(
        self,
        filter: FilterInput,  # noqa: A002 - the usual word for it
        *,
        scope: Scope | Subtree | str | None = None,
        include_retired: bool = False,
        request_id: str | None = None,
    ) -> DeletedEntries:
        """Delete the entries that pass a filter now, of the tenant or of a scope.

        Each entry is deleted as by `delete`, but only if it still passes the filter.
        Entries that are written during the call may stay. If a store fails, the entries
        deleted before stay deleted, and the call can be repeated. To delete a whole
        scope, also what others write meanwhile, use `admin.erase`.

        Args:
            filter: A `Filter`, or a dict such as `{"metadata.kind": "draft"}`.
            scope: A scope or a subtree, or its text; the whole tenant by default.
            include_retired: Also delete entries whose validity has ended.
            request_id: As in `write`. A repeat spares entries that were written or
                changed after the request began. If the first call was cut off, it
                reports what it deletes itself.

        Returns:
            The number of deleted entries. `held` has the ids of entries that a legal
            hold keeps.

        Raises:
            InvalidInput: The filter is empty, or wrong.
            StoreUnavailable: A store did not answer.
        """
        passing = parse_filter(filter)
        self._access.check_filter(passing)
        if not check_size(passing) or is_empty(passing):
            raise InvalidInput(
                "filter",
                "is empty, and would delete everything. Name a condition, or use memory.admin.erase(scope)",
            )
        wanted, retired = self._scopes_of(scope), flag("include_retired", include_retired)
        engine, tenant = self._access.engine, self._access.tenant
        texts = sorted(one.text for one in wanted)
        asked = {"filter": str(passing), "scope": texts, "retired": retired}
        about = [partition_mark(tenant, one.text) for one in wanted if isinstance(one, Scope)]
        request = request_of("delete_many", request_id, asked, about)

        async def delete(mark: RequestMark | None) -> DeletedEntries:
            return await engine.deletion.delete_many(tenant, wanted, passing, retired=retired, request=mark)

        async def read(noted: Any) -> DeletedEntries:
            return DeletedEntries(
                noted["deleted"], tuple(noted["held"]), tuple(noted["kept"]), noted["is_complete"]
            )

        return await self._access.once(request, delete, DeletedEntries.to_dict, read)

    async def history(
        self,
        entry_id: str | None = None,
        *,
        scope: Scope | str | None = None,
        key: str | None = None,
        superseded: bool = False,
        include: Include | None = None,
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
            include: As in `Memory.search`.

        Raises:
            NotFound: There is no such entry.
        """
        wanted, chained = self._access.entry_id(entry_id, scope, key), flag("superseded", superseded)
        left_out = parts_left_out(include)
        engine, tenant = self._access.engine, self._access.tenant
        await self._access.require_entries([wanted])
        versions = await engine.entries.history(tenant, wanted)
        for one in (await engine.graphs.chain(tenant, wanted, self._access.inside))[1:] if chained else ():
            with suppress(NotFound):  # expired
                versions = [*await engine.entries.history(tenant, one), *versions]
        return [leave_out(version, left_out) for version in versions]

    async def source_messages(self, entry_id: str) -> list[HistoryItem]:
        """List the messages that an entry was made of, oldest first.

        These are messages that left a session's window (see `on_window_exit` of
        `Memory`). The list is empty for entries that were made otherwise.
        `entry.conversation_id` names the session.

        Raises:
            NotFound: The entry is unknown, expired or retired.
        """
        wanted, engine = id_of(entry_id), self._access.engine
        await self._access.require_entries([wanted])
        entry = await engine.entries.live_record(self._access.tenant, wanted)
        session = entry.fields.get("conversation_id")
        if session is not None and not await self._access.sees_session(str(session)):
            return []
        return await engine.conversations.window_exit.derived.messages_of(entry)

    async def invalidate(
        self,
        entry_id: str | None = None,
        when: Moment | None = None,
        *,
        scope: Scope | str | None = None,
        key: str | None = None,
        expected_version: str | None = None,
        consistency: Consistency | None = None,
        request_id: str | None = None,
    ) -> bool:
        """End the validity of an entry. It stays readable with `as_of`.

        Args:
            entry_id: The id of the entry.
            when: The end of the validity; now by default.
            scope: With `key`, names the entry instead of its id.
            key: The key of the entry in `scope`.
            expected_version: End it only if this is still the entry's `version`.
            consistency: As in `write`.
            request_id: As in `write`.

        Returns:
            Whether an active entry was found.

        Raises:
            VersionConflict: The entry has another version than the expected one.
        """
        wanted = self._access.entry_id(entry_id, scope, key)
        return await self._access.invalidate(wanted, when, consistency, expected_version, request_id)
