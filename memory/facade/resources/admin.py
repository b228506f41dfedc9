"""`memory.admin`: what an operator asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from memory.domain import validation
from memory.domain.blocked_source import BlockedSource, LaterWrites
from memory.domain.corrections import explain_guesses
from memory.domain.entry import EntryType
from memory.domain.revert_report import RevertReport
from memory.domain.scope import Scope
from memory.domain.session import ErasedScope, ErasedTenant, ErasedUser
from memory.facade import reports
from memory.facade.arguments import Moment, flag, id_of, ids_of, moment, scope_of, user_of
from memory.facade.erasure import erase_scope, would_erase_tenant, would_erase_user
from memory.facade.reports import CopyLocation, Stats, StoreAudit, StoreReport, VacuumReport
from memory.facade.resources import source_blocking
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.route_report import RouteReport, explain_route
from memory.facade.runtime.access import Access
from memory.facade.transfer.backups import Backup, back_up
from memory.facade.transfer.exporter import lines_of
from memory.facade.transfer.importer import Import, ImportReport, Progress, Source, open_source
from memory.facade.why_report import WhyReport, why
from memory.orchestrator.maintenance.reindexing import ReindexReport
from memory.orchestrator.maintenance.repair import StoreComparison
from memory.orchestrator.maintenance.sweeps import SweepReport
from memory.orchestrator.storage.rollback_detection import RolledBackStore
from memory.orchestrator.tiering.plan import Plan
from memory.orchestrator.tiering.promotion import PromotionReport
from memory.policies.routing import TIERS


@explain_guesses
class Admin:
    """Erasing, exporting and importing, where things stand and why, and the upkeep of
    the stores.

    `erase`, `legal_holds`, `block_source`, `revert_source`, `export`, `import_`, `where`, `why`,
    `move`, `route` and `stats` concern one tenant; `flush`, `sweep`, `plan`, `check`,
    `audit`, `backup`, `reindex` and `vacuum` the stores, and so all of them.

        await memory.admin.erase("user:ada")
        print(await memory.admin.stats())
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def legal_holds(self) -> LegalHolds:
        """What may not be deleted until its hold is removed."""
        return LegalHolds(self._access)

    # -- one tenant --------------------------------------------------------------------

    async def erase(self, scope: Scope | str, *, dry_run: bool = False) -> ErasedScope:
        """Erase every entry of exactly this scope, expired ones too. Other scopes of
        the same user stay (A58).

        The conversations of sessions stay as well: `erase("user:ada")` erases what is
        remembered of Ada, not the sessions with her. `erase_user("ada")` erases both.

        Args:
            scope: A scope or its text, such as `"user:ada"`.
            dry_run: Count what would be erased, and erase nothing.

        Returns:
            The number of entries. Its `sessions_left` names the sessions that stay.

        Raises:
            LegalHoldActive: The scope, or an entry in it, is under legal hold. Nothing is erased.
        """
        return await erase_scope(
            self._access.engine, self._access.tenant, scope_of(scope), dry_run=flag("dry_run", dry_run)
        )

    async def erase_tenant(self, *, dry_run: bool = False) -> ErasedTenant:
        """Erase all that this tenant has: every scope, expired and retired entries too,
        their versions and relations, scratchpads, and every session with its artifacts.
        How many scopes and conversations there were, and how many records of each kind
        in each store (D35). How far the tenant has counted stays, so that no number is
        given twice.

        The moment is that of the call. An entry that is edited meanwhile goes, and so
        does a session with what is said in it meanwhile, and what is promoted,
        compacted or forked meanwhile of such; what is written, or created, since then
        stands. It looks again until nothing of before is found. Where a store fails the
        others are erased and the call fails; a sweep does the rest, and the call can be
        repeated. Raises `LegalHoldActive` where something is under legal hold: that stays, and is
        not erased when the hold is removed. Legal holds and blocked sources stay.

        With `dry_run` nothing is erased: the answer counts the scopes and records that
        there are.
        """
        if flag("dry_run", dry_run):
            return await would_erase_tenant(self._access.engine, self._access.tenant)
        return await self._access.engine.tenants.erase(self._access.tenant)

    async def erase_user(self, user: str | Scope, *, dry_run: bool = False) -> ErasedUser:
        """Erase what a user said and what is remembered of them: the sessions with that
        user as a whole; the messages of others' sessions that name the user as who
        speaks (`name`), or were written or edited through a handle of that user
        (`memory.session(…, user=)`), each with the summaries made of it and its copies
        in forks; tasks and runs that such a handle saved; and the entries of the scope
        `user:<id>`. How much there was: copies in forks count as messages, tasks and
        runs are not counted.

        Where a store fails the call does, and a sweep does what is left of it. What
        others say of the user stays, and so do entries of other scopes. Raises `LegalHoldActive`
        where the user is under legal hold, and nothing is erased; what is held
        otherwise stays, and `held` of the answer says so.

        `user` is the user's id, `"ada"`, or `Scope.user("ada")`. The text of a scope,
        `"user:ada"`, is refused: no user has that id. With `dry_run` nothing is erased,
        and the answer says how much would be.
        """
        engine, tenant, named = self._access.engine, self._access.tenant, user_of(user)
        if flag("dry_run", dry_run):
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
    ) -> list[BlockedSource]:
        """Hide all that a source, an agent or a run wrote, and what was derived from it.

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
            blocked_by: Who blocks it.

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
        )

    async def unblock_source(
        self, *, source: str | None = None, agent: str | None = None, run: str | None = None
    ) -> list[BlockedSource]:
        """Unblock a source, an agent or a run; its entries are found again.

        Returns those that were blocked. Entries that were kept back are found too.
        """
        return await self._access.engine.trust.blocked_sources.unblock(
            self._access.tenant, source_blocking.origins_of(source, agent, run)
        )

    async def blocked_sources(self) -> list[BlockedSource]:
        """The blocked sources of the tenant, oldest first."""
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
    ) -> RevertReport:
        """Revert all that a source, an agent or a run wrote until now.

        Entries that it created are retired. Entries that it changed are stored again as
        they would be without its changes; what others changed since stays. The report
        lists the entries derived from its own (promoted, compacted). Entries under
        legal hold are retired, never erased. What the source writes meanwhile stays, so
        block it first. If a store fails, the call fails; a sweep finishes the work, and
        the call can be repeated.

        Args:
            source: The source to revert.
            agent: The agent to revert.
            run: The run to revert. Name at least one of the three; each is reverted.
            since: Revert only what was written from then on.
            erase: Erase the entries that it created, instead of retiring them.
            derived: Retire or erase the derived entries too.
            dry_run: Change nothing; report what a call would do now.
        """
        work = self._access.engine.source_reverter
        do = work.plan if flag("dry_run", dry_run) else work.run
        origins = source_blocking.origins_of(source, agent, run)
        return await do(
            self._access.tenant,
            origins,
            since=moment("since", since),
            erase=flag("erase", erase),
            derived=flag("derived", derived),
        )

    async def export(self, scope: Scope | str | None = None) -> AsyncIterator[dict[str, Any]]:
        """The lines of an export of the tenant, or of one scope, as JSON objects, which
        `import_` reads.

        First the sessions, each artifact of theirs with its bytes behind it, in chunks
        of at most 1 MiB; then every live entry, oldest first, retired ones too, each
        with its kept versions after it; then the relations between them, the events of
        the sessions' logs, and what else belongs to them; of a session's scope its
        conversation and artifacts too; of the tenant its scratchpads come last. Of what
        is pending, only the messages for `on_window_exit` are exported. It is
        read page by page; of what was written only the ids are remembered.
        """
        wanted = None if scope is None else scope_of(scope)
        async for line in lines_of(self._access.engine, self._access.tenant, wanted):
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
        """Import what `export` wrote, or a conversation as objects {role, content,
        time?, id?, name?, session_id?}: a path, an open file, or lines.

        Lines are text, dicts, dataclasses or models; values may be dates, UUIDs,
        decimals and enums.

        Every line is checked before the first is written, as a write would check it; a
        bad one is a `BadLine`, unless bad lines are to be left out (`skip_bad`): then a
        message whose id another one has here is refused alone too. Without, such a
        message is a `Conflict`, and a file beyond a quota of entries `QuotaExceeded`,
        before anything is written. Where another writer, a write gate or a quota of
        artifacts stops an import in the middle, the error says how many lines are
        imported. An import that was cut off can be repeated: nothing is written twice,
        and nothing again that was deleted here since it was exported or imported, but
        for entries with `revive`.

        Exported entries go to their scope and messages to `messages_to`, or all to
        `scope`. Entries get new ids, and what names them in the file follows; their
        kept versions are left out. With `same_ids` they keep their ids, versions and
        moments, and their kept versions come along: for a store that has none of them.
        Sessions keep their ids in any case. A line whose id is taken by something else,
        or belongs to another tenant or scope, is refused alone. A session of another
        owner than that of the same id here raises `SessionOwnerMismatch` before
        anything is written, or with `skip_bad` is refused alone.

        Artifacts are put under their paths, within quotas and limits, and get new ids
        in any case; `artifact_id` of entries follows. What stands under a path stays.
        An artifact whose bytes are torn or damaged in the file is a bad line, and
        nothing of it is stored; an entry whose artifact did not come along points to
        none, and the report names it (`unlinked_lines`).

        A message becomes an entry that says where it was said: by whom (`name`), in
        which conversation (`session_id`, or else the session it goes to, or the file),
        and its number there, as they stand in the file.

        `name` stands for the file in what is reported, and in the keys of messages that
        have no id. `progress` is called after each batch with the number of lines stored
        and their total. Replication follows behind, as for `write`; `flush` waits for it.
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
        """Make all messages of the tenant ready to be found by meaning; how many were
        gone through. For those that were said before they could be: with
        `conversations.meaning` set otherwise, or without an embedder.

        Raises `ConfigError` where messages are not found by meaning. What was cut off
        can be repeated.
        """
        return await self._access.engine.conversations.passages.make_all(self._access.tenant)

    async def move(self, entry_ids: Sequence[str], to: str) -> PromotionReport:
        """Move entries to a later tier by hand. They never move back."""
        validation.one_of("tier", to, TIERS)
        return await self._access.engine.promotion.by_hand(self._access.tenant, ids_of(entry_ids), to)

    async def where(self, entry_id: str) -> list[CopyLocation]:
        """Where an entry's copies, marks and tombstones stand."""
        return await reports.where(self._access.engine, self._access.tenant, id_of(entry_id))

    def route(self, scope: Scope | str, collection: str = "entries") -> RouteReport:
        """Where a new record of this scope and collection would be born and copied to,
        on which store, and why.
        """
        return explain_route(
            self._access.engine_anywhere,
            self._access.config.promotion,
            self._access.tenant,
            scope_of(scope),
            collection,
        )

    async def why(self, entry_id: str) -> WhyReport:
        """Which rules will act on an entry, when, and why the others do not; what keeps
        it where it is. Raises `NotFound` where there is none.

        A moment is told where it follows from the entry as it is: from its age, or from
        when it was last changed.
        """
        return await why(self._access.engine, self._access.tenant, id_of(entry_id))

    async def stats(self) -> Stats:
        """Counts and sizes of the tenant's entries, tier by tier."""
        return await reports.stats(self._access.engine, self._access.tenant, [t.value for t in EntryType])

    # -- the stores --------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until what was written here by now is replicated or, where a store does
        not answer, is left to a sweep. Closing does so too.
        """
        await self._access.engine.deliveries.flush()

    async def sweep(self) -> SweepReport:
        """One round of maintenance: finish what crashes left, forget what has served,
        apply the sweep rules. For all tenants of the stores.

        `on_window_exit` is called after it, and this call waits for it. The report
        counts those calls as `still_owed`.
        """
        return await self._access.engine.maintain()

    async def plan(self) -> Plan:
        """What a sweep run now would do, record by record, each with its rule and why:
        by rules, and what expires, goes for a quota or is made of messages on the way.
        `stays` has what it would leave, and why. For all tenants of the stores.

        What was written here is delivered and how often entries were read here told to
        the stores, as by a sweep; nothing else is written.
        """
        return await self._access.engine.plan()

    async def check(self) -> list[StoreReport]:
        """How each store is."""
        return await reports.check(self._access.engine)

    async def audit(self, *, repair: bool = False) -> list[StoreAudit]:
        """Compare what each store derives from its records (word indexes, statistics,
        registries) with the records; `repair` makes it anew.

        It reads everything, of every tenant, and may take long. A store that does not
        answer is reported, not raised.
        """
        return await reports.audit(self._access.engine, repair=repair)

    async def rolled_back_stores(self) -> list[RolledBackStore]:
        """List the stores that were rolled back alone and not repaired since.

        Such a store was restored to an earlier moment, or replaced by an empty one,
        while the others went on. Sweeps note every five minutes in every store how far
        the others have come. A rollback by less may go unnoticed.
        """
        return list((await self._access.engine.rollback_detector.look()).values())

    async def forget_store(self, name: str) -> int:
        """Note that a store is not used any more, so that its absence is no problem;
        how many stores named it.

        Stores note which others serve beside them. If a configuration omits one that
        holds data, opening warns and `memory doctor` fails until it is back, or is
        forgotten by this.
        """
        return await self._access.engine.store_notes.forget(
            validation.text("name", name, min_chars=1, max_bytes=200)
        )

    async def compare(self, *, repair: bool = False, progress: Progress | None = None) -> StoreComparison:
        """Compare what the stores hold of every tenant's entries with each other; with
        `repair`, heal what a store lost that was set back alone.

        What another store has is put back on the condition of what stands there, what
        was deleted is deleted again, and what no store has is named in `lost`. It may
        run beside writers, and be called again where it was cut off. It reads
        everything, and may take long. `progress` is called after each page with the
        number of copies compared and their total. What is said to be the room that a tenant's
        artifacts and large texts take is compared with what they take, and counted
        anew.
        """
        return await self._access.engine.repair.compare(repair=flag("repair", repair), progress=progress)

    async def backup(self, file: str | PathLike[str]) -> Backup:
        """Copy the memory's SQLite file, of every tenant, to a new file.

        It may run beside writers, of other processes too. The backup holds every write
        that was acknowledged before the call. `memory restore` puts a backup in place.

        Args:
            file: The path of the backup. It must not exist.

        Raises:
            ConfigError: The memory is not one SQLite file; other backends have tools of their own.
            InvalidInput: `file` exists, or its folder does not.
        """
        return await back_up(self._access.config, file)

    async def reindex(self, *, progress: Progress | None = None) -> ReindexReport:
        """Make all vectors of every tenant anew with the embedder in use, entries' and
        messages', kept versions' too, while answers are served.

        A memory that is not open is opened for it, with `reindex`. From the beginning
        on memories with this embedder open, and those with the one before; each finds
        by meaning what has a vector of its own, all else by words, and `degraded` of
        its answers says so. Both write. What was cut off goes on when this is called
        again, and two at once do no harm. Once none is left (`ended`) the stores take
        this embedder alone: memories with the one before are to be closed until then,
        since what they write has to be made anew too.

        `progress` is called after each page with the number of vectors made and their
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
        """Have each store give back the room that deleted content takes. A store that
        does not answer is reported, not raised.
        """
        return await reports.vacuum(self._access.engine)
