"""`memory.admin`: calls for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from memory.domain import validation
from memory.domain.blocked_source import BlockedSource, LaterWrites
from memory.domain.corrections import explain_guesses
from memory.domain.entry import EntryType
from memory.domain.import_reports import ImportReport
from memory.domain.maintenance_reports import ReindexReport, RolledBackStore, StoreComparison, SweepReport
from memory.domain.plan import Plan, RouteReport, WhyReport
from memory.domain.promotion_report import PromotionReport
from memory.domain.revert_report import RevertReport
from memory.domain.scope import Scope, Subtree
from memory.domain.session import ErasedScope, ErasedTenant, ErasedUser
from memory.domain.store_reports import Backup, CopyLocation, Stats, StoreAudit, StoreReport, VacuumReport
from memory.facade import reports
from memory.facade.arguments import Moment, flag, id_of, ids_of, moment, scope_of, scope_or_subtree, user_of
from memory.facade.erasure import erase_scope, would_erase_tenant, would_erase_user
from memory.facade.resources import source_blocking
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.route_report import explain_route
from memory.facade.runtime.access import Access
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.search_options import FilterInput, filter_of
from memory.facade.transfer.backups import back_up
from memory.facade.transfer.exporter import lines_of
from memory.facade.transfer.importer import Import, Progress, Source, open_source
from memory.facade.why_report import why
from memory.policies.routing import TIERS


@guard_calls
@explain_guesses
class Admin:
    """Erase, export, import, inspect, and maintain the stores.

        await memory.admin.erase("user:ada")
        print(await memory.admin.stats())

    These calls concern one tenant: the erasures, `legal_holds`, `block_source`,
    `revert_source`, `export`, `import_`, `embed_messages`, `where`, `why`, `move`,
    `route` and `stats`. All others concern the stores, and so all tenants: `flush`,
    `sweep`, `plan`, `check`, `audit`, `compare`, `rolled_back_stores`, `forget_store`,
    `backup`, `reindex` and `vacuum`.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def legal_holds(self) -> LegalHolds:
        """Legal holds, which protect data from deletion."""
        return LegalHolds(self._access)

    # -- one tenant --------------------------------------------------------------------

    async def erase(self, scope: Scope | Subtree | str, *, dry_run: bool = False) -> ErasedScope:
        """Erase every entry and document of a scope or a subtree, expired ones too.

        A scope is erased alone. Other scopes of the same user stay, and so do the
        conversations of sessions.
        `erase("user:ada")` erases the memories of Ada, not the sessions with her.
        `erase_user("ada")` erases both.

        Of a subtree, all data that exist when the call begins are erased, scope by
        scope. Later writes stay. If a store fails, a sweep completes the erasure.

        Args:
            scope: A scope such as `"user:ada"`, or a subtree such as
                `"path:teams/red/**"`.
            dry_run: Count what would be erased, and erase nothing.

        Returns:
            The number of entries. Its `sessions_left` names the sessions that stay, and
            its `scopes` counts the erased scopes of a subtree. Its `held` has the ids
            of derived entries in other scopes that stay under legal hold.

        Raises:
            LegalHoldActive: The scope, or an entry in it, is under legal hold. Nothing
                of the scope is erased; other scopes of a subtree are.
        """
        erased, only_count = scope_or_subtree(scope), flag("dry_run", dry_run)
        return await erase_scope(self._access.engine, self._access.tenant, erased, dry_run=only_count)

    async def erase_tenant(self, *, dry_run: bool = False) -> ErasedTenant:
        """Erase all data of this tenant.

        This covers every scope, with expired and retired entries, their versions and
        relations; the documents; the scratchpads; and every session with its artifacts.
        Legal holds and blocked sources stay. The counters of the tenant stay too, so
        that no number is assigned twice.

        The erasure covers everything that exists at the moment of the call. Entries
        that are edited meanwhile are erased. So are sessions with the messages appended
        meanwhile, and everything promoted, compacted or forked meanwhile from erased
        data. Data that is newly written or created since the call stays. The call
        searches again until it finds no older data.

        If a store fails, the others are erased and the call fails. A sweep completes
        the erasure, and the call can be repeated.

        Args:
            dry_run: Count the scopes and records, and erase nothing.

        Returns:
            How many scopes and conversations there were, and how many records of each
            kind in each store.

        Raises:
            LegalHoldActive: Data is under legal hold. It stays, and is not erased when
                the hold is removed.
        """
        if flag("dry_run", dry_run):
            return await would_erase_tenant(self._access.engine, self._access.tenant)
        return await self._access.engine.tenants.erase(self._access.tenant)

    async def erase_user(self, user: str | Scope, *, dry_run: bool = False) -> ErasedUser:
        """Erase a user: sessions, messages, and the entries and documents of the user.

        These are erased:

        - the sessions with the user, as a whole
        - in sessions of others, messages that name the user as the speaker (`name`)
        - in sessions of others, messages that were written or edited through a handle
          of the user (`memory.session(…, user=)`)
        - the summaries and the copies in forks of each such message
        - tasks and runs that such a handle saved
        - the entries and documents of the scope `user:<id>`

        Messages of others about the user stay, and so do entries of other scopes. If a
        store fails, the call fails, and a sweep completes the erasure.

        Args:
            user: The user's id, `"ada"`, or `Scope.user("ada")`. The text of a scope,
                `"user:ada"`, is refused, because no user has that id.
            dry_run: Count what would be erased, and erase nothing.

        Returns:
            How many sessions, messages and entries there were. Copies in forks count as
            messages; tasks and runs are not counted. `held` names data that stays under
            other legal holds.

        Raises:
            LegalHoldActive: The user is under legal hold. Nothing is erased.
        """
        named, only_count = user_of(user), flag("dry_run", dry_run)
        engine, tenant = self._access.engine, self._access.tenant
        if only_count:
            return await would_erase_user(engine, tenant, named)
        return await engine.conversations.redaction.erase_user(tenant, named)

    async def block_source(
        self,
        *,
        source: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        since: Moment | None = None,
        later_writes: LaterWrites = "refused",
        reason: str,
        blocked_by: str | None = None,
        request_id: str | None = None,
    ) -> list[BlockedSource]:
        """Hide everything that a source, an agent or a run wrote, and its derivatives.

        Searches, `retrieve`, `get`, and what is recalled into a window or shown to a
        model leave these entries out, on every tier. It takes effect at once in this
        memory, and in every other process within two seconds, until `unblock_source`.
        Nothing is changed or deleted: `revert_source` does that. `entries.iterate`,
        `entries.history` and exports still show the entries. Blocking a source again
        replaces the terms. A tenant can block at most 80 sources.

        Args:
            source: The source to block.
            agent: The agent to block.
            run: The run to block. Name at least one of the three; each is blocked.
            since: Hide only what was written or changed from then on.
            later_writes: `"refused"` raises `RejectedByGate` for later writes.
                `"kept_back"` stores them hidden, except writes that change or supersede
                other entries: these are refused too.
            reason: Why; shown by `blocked_sources`.
            blocked_by: Who blocks it; in a view with an origin, that origin by default.
            request_id: As in `Memory.write`. A repeat of a complete call blocks nothing
                again that was unblocked since.

        Returns:
            One `BlockedSource` for each origin.
        """
        return await source_blocking.block_source(
            self._access,
            source_blocking.origins_of(source, agent, run),
            since=since,
            later_writes=later_writes,
            reason=reason,
            blocked_by=blocked_by,
            request_id=request_id,
        )

    async def unblock_source(
        self,
        *,
        source: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        request_id: str | None = None,
    ) -> list[BlockedSource]:
        """Unblock a source, an agent or a run. Its entries are found again.

        Entries that were stored hidden are found too.

        Args:
            source: The source to unblock.
            agent: The agent to unblock.
            run: The run to unblock. Name at least one of the three.
            request_id: As in `Memory.write`. A repeat spares a source that was blocked
                after the request began. It returns what it unblocks itself.

        Returns:
            The origins that were blocked.
        """
        return await source_blocking.unblock_source(
            self._access, source_blocking.origins_of(source, agent, run), request_id
        )

    async def blocked_sources(self) -> list[BlockedSource]:
        """List the blocked sources of the tenant, oldest first."""
        return await self._access.engine.trust.blocked_sources.all(self._access.tenant)

    async def revert_source(
        self,
        *,
        source: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        since: Moment | None = None,
        erase: bool = False,
        derived: bool = False,
        dry_run: bool = False,
        request_id: str | None = None,
    ) -> RevertReport:
        """Revert all that a source, an agent or a run wrote until now.

        Entries that it created are retired. Entries that it changed are stored again as
        they would be without its changes; later changes of others stay. The report
        lists the entries derived from its own (promoted, compacted). Entries under
        legal hold are retired, never erased. Entries that the source writes meanwhile
        stay, so block it first. If a store fails, the call fails; a sweep finishes the
        work, and the call can be repeated.

        Args:
            source: The source to revert.
            agent: The agent to revert.
            run: The run to revert. Name at least one of the three; each is reverted.
            since: Revert only what was written from then on.
            erase: Erase the entries that it created, instead of retiring them.
            derived: Retire or erase the derived entries too.
            dry_run: Change nothing; report what a call would do now.
            request_id: As in `Memory.write`. A repeat reverts nothing that was written
                after the request began. It reports what it reverts itself.
        """
        return await source_blocking.revert_source(
            self._access,
            source_blocking.origins_of(source, agent, run),
            since=moment("since", since),
            erase=flag("erase", erase),
            derived=flag("derived", derived),
            dry_run=flag("dry_run", dry_run),
            request_id=request_id,
        )

    async def export(
        self,
        scope: Scope | Subtree | str | None = None,
        *,
        filter: FilterInput | None = None,  # noqa: A002 - the usual word for it
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the lines of an export, as JSON objects that `import_` reads.

        The lines come in this order:

        - the sessions, each artifact followed by its bytes in chunks of at most 1 MiB
        - every live entry, oldest first, retired ones too, each followed by its kept
          versions
        - the relations between these entries
        - the events of the sessions' logs, with their tasks and runs
        - the documents with their values
        - the scratchpads, if the whole tenant is exported

        The export of a session's scope includes its conversation and artifacts. Of
        pending work only the messages for `on_window_exit` are exported. The export is
        read page by page; only the ids of exported data stay in memory.

        Args:
            scope: A scope or a subtree; the whole tenant by default.
            filter: Only entries that pass it, with their kept versions and the
                relations between them; see `Filter`. Sessions, artifacts, documents and
                scratchpads are left out then.
        """
        wanted = None if scope is None else scope_or_subtree(scope)
        passing = filter_of(filter)
        async for line in lines_of(self._access.engine, self._access.tenant, wanted, passing):
            yield line

    async def import_(
        self,
        source: Source,
        *,
        name: str | None = None,
        scope: Scope | str | None = None,
        messages_to: Scope | str | None = None,
        same_ids: bool = False,
        revive: bool = False,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Import the lines of an `export`, or a conversation.

        Every line is checked before the first is written, as a write would check it. An
        import that was cut off can be repeated. Nothing is written twice, and nothing
        that was deleted here since it was exported or imported is written again; see
        `revive`. If another writer, a write gate or a quota of artifacts stops an
        import in the middle, the error says how many lines are imported.

        Entries of an export go to their own scope, or to `scope`. They get new ids,
        which references in the file follow, and their kept versions are left out; see
        `same_ids`. Sessions always keep their ids.

        Artifacts are put under their paths, within quotas and limits. They always get
        new ids, which `artifact_id` of entries follows. An artifact that exists under a
        path stays. If the bytes of an artifact are incomplete or damaged in the file,
        it is a bad line, and nothing of it is stored. An entry whose artifact was not
        imported points to none, and the report names it (`unlinked_lines`).

        A message of a conversation becomes an entry that says where it was said, as in
        the file: the speaker (`name`), the conversation (`session_id`, or else the
        session that it goes to, or the file), and its number there.

        Replication follows later, as for `write`; `flush` waits for it.

        Args:
            source: A path, an open file, or lines. Lines are text, dicts, dataclasses
                or models. A conversation has objects {role, content, time?, id?, name?,
                session_id?}. Values may be dates, UUIDs, decimals and enums.
            name: The name of the file in reports, and in the keys of messages without
                an id.
            scope: The scope into which all entries and messages are imported.
            messages_to: The scope into which messages are imported without `scope`.
            same_ids: Entries keep their ids, versions and moments, and their kept
                versions are imported. Meant for a store that has none of these entries.
                A line is refused if other data here has its id, or if the id belongs to
                another tenant or scope. All other lines are imported.
            revive: Write entries again that were deleted here.
            skip_bad: Leave out bad lines, messages whose id another message has here,
                and sessions whose id has another owner here.
            progress: Called after each batch with the number of lines stored and their
                total.

        Raises:
            BadLine: A line is bad. Nothing is written.
            Conflict: Another message has the id of a message here. Nothing is written.
            SessionOwnerMismatch: A session exists here with another owner. Nothing is
                written.
            QuotaExceeded: The file exceeds a quota of entries. Nothing is written.
        """
        called = name or (Path(source).name if isinstance(source, str | PathLike) else "import")
        work = Import(
            self._access,
            validation.identifier("name", called),
            scope=None if scope is None else scope_of(scope),
            messages_to=None if messages_to is None else scope_of(messages_to),
            same_ids=flag("same_ids", same_ids),
            revive=flag("revive", revive),
            skip_bad=flag("skip_bad", skip_bad),
            progress=progress,
        )
        async with open_source(source) as (stream, unread):
            return await work.run(stream, unread)

    async def embed_messages(self) -> int:
        """Compute the missing vectors of all messages of the tenant.

        Use it for messages that were appended without an embedder, or with another
        `conversations.meaning`. A call that was cut off can be repeated.

        Returns:
            How many messages were checked.

        Raises:
            ConfigError: Messages have no vectors in this configuration.
        """
        return await self._access.engine.conversations.passages.make_all(self._access.tenant)

    async def move(self, entry_ids: Sequence[str], to: str) -> PromotionReport:
        """Move entries to a later tier by hand. They never move back."""
        validation.one_of("to", to, TIERS)
        return await self._access.engine.promotion.by_hand(self._access.tenant, ids_of(entry_ids), to)

    async def where(self, entry_id: str) -> list[CopyLocation]:
        """List the stores that hold copies, marks and tombstones of an entry."""
        named = id_of(entry_id)
        return await reports.where(self._access.engine, self._access.tenant, named)

    def route(self, scope: Scope | str, collection: str = "entries") -> RouteReport:
        """Explain where a new record of this scope and collection would be stored.

        The report names the tiers and stores of the record and of its copies, and says
        why.
        """
        return explain_route(
            self._access.engine_anywhere,
            self._access.config.promotion,
            self._access.tenant,
            scope_of(scope),
            collection,
        )

    async def why(self, entry_id: str) -> WhyReport:
        """Explain which rules will act on an entry and when, and why others will not.

        The report also says why the entry stays in its tier. A moment is given where it
        follows from the entry as it is: from its age, or from its last change.

        Raises:
            NotFound: There is no such entry.
        """
        named = id_of(entry_id)
        return await why(self._access.engine, self._access.tenant, named)

    async def stats(self) -> Stats:
        """Return counts and sizes of the tenant's entries, tier by tier."""
        return await reports.stats(self._access.engine, self._access.tenant, [t.value for t in EntryType])

    # -- the stores --------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until all writes of this memory so far are replicated.

        If a store does not answer, its replicas are left to a sweep. Closing waits too.
        """
        await self._access.engine.deliveries.flush()

    async def sweep(self) -> SweepReport:
        """Run one round of maintenance, for all tenants of the stores.

        It completes work that crashes cut off, deletes expired data,
        and applies the sweep rules. `on_window_exit` is called after it, and this call
        waits for it. The report counts those calls as `pending_steps`.
        """
        return await self._access.engine.maintain()

    async def plan(self) -> Plan:
        """Return what a sweep would do now, record by record.

        Each action names its rule and the reason. The plan covers rules, expiry,
        evictions by quotas, and entries made of messages. Its `stays` lists the records
        that a sweep would leave, and why. It covers all tenants of the stores.

        Like a sweep, the call delivers pending replicas and read counts of this memory
        to the stores. It writes nothing else.
        """
        return await self._access.engine.plan()

    async def check(self) -> list[StoreReport]:
        """Return the health of each store."""
        return await reports.check(self._access.engine)

    async def audit(self, *, repair: bool = False) -> list[StoreAudit]:
        """Compare the indexes of each store with its records, and report differences.

        Indexes are all that a store derives from its records: word indexes, statistics
        and registries. Damaged records are named too, and documents that lost a chunk.
        The call reads every record of every tenant, and may take long. A store
        that does not answer is reported, and raises nothing.

        Args:
            repair: Rebuild indexes that differ.
        """
        return await reports.audit(self._access.engine, repair=flag("repair", repair))

    async def rolled_back_stores(self) -> list[RolledBackStore]:
        """List the stores that were rolled back alone and not repaired since.

        Such a store was restored to an earlier moment, or replaced by an empty one,
        while the others went on. Sweeps note every five minutes in every store how far
        the others have come. A rollback by less may go unnoticed.
        """
        return list((await self._access.engine.rollback_detector.look()).values())

    async def forget_store(self, name: str) -> int:
        """Note that a store is no longer used, so that its absence is no problem.

        Stores note which other stores are used with them. If a configuration omits one
        that holds data, opening warns and `memory doctor` fails. Both stop once the
        store is back, or this call forgets it.

        Returns:
            How many stores had noted it.
        """
        named = validation.identifier("name", name)
        return await self._access.engine.store_notes.forget(named)

    async def compare(self, *, repair: bool = False, progress: Progress | None = None) -> StoreComparison:
        """Compare the copies of all entries, of every tenant, between the stores.

        The call also compares the recorded and the real size of each tenant's artifacts
        and large texts, and counts it again. It reads every record, and may take long.
        It may run beside writers, and can be repeated if it was cut off.

        Args:
            repair: Restore writes that a store lost because it alone was rolled back. A
                copy is written from another store, unless the record changed meanwhile.
                Deleted records are deleted again. `lost` names those that no store has.
            progress: Called after each page with the number of copies compared and
                their total.
        """
        return await self._access.engine.repair.compare(repair=flag("repair", repair), progress=progress)

    async def backup(self, file: str | PathLike[str]) -> Backup:
        """Copy the memory's SQLite file, of every tenant, to a new file.

        It may run beside writers, of other processes too. The backup holds every write
        that was acknowledged before the call. `memory restore` puts a backup in place.

        Args:
            file: The path of the backup. It must not exist.

        Raises:
            ConfigError: The memory is not one SQLite file; other backends have tools of
            their own.
            InvalidInput: `file` exists, or its folder does not.
        """
        return await back_up(self._access.config, file)

    async def reindex(self, *, progress: Progress | None = None) -> ReindexReport:
        """Compute all vectors of every tenant anew with the current embedder.

        The call covers entries, kept versions and messages. A memory that is not open
        is opened for it, with `reindex`. A call that was cut off can be repeated and
        goes on; two calls at once do no harm.

        Searches are answered meanwhile. Memories with this embedder and with the
        earlier one may be open, and both may write. Each finds semantically the records
        that have a vector of its own embedder, and all others lexically; `degraded` of
        its results says so.

        Once no vector is left (`ended`), the stores accept only this embedder. Close
        memories with the earlier embedder before that, because their writes need new
        vectors too.

        Args:
            progress: Called after each page with the number of vectors made and their
                total.
        """
        opens = not self._access.is_open
        if opens:
            await self._access.open(reindex=True)
        try:
            return await self._access.engine.reindexing.run(progress)
        finally:
            if opens:
                await self._access.close()

    async def vacuum(self) -> list[VacuumReport]:
        """Let each store release the space of deleted content.

        A store that does not answer is reported, and raises nothing.
        """
        return await reports.vacuum(self._access.engine)
