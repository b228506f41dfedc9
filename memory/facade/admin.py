"""`memory.admin`: what an operator asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from memory.domain import door
from memory.domain.corrections import explain_guesses
from memory.domain.distrust import BlockedSource, LaterWrites
from memory.domain.entry import EntryType
from memory.domain.hold import LegalHold
from memory.domain.rolled_back import RolledBack
from memory.domain.scope import Scope
from memory.domain.session import ErasedScope, ErasedTenant, ErasedUser
from memory.facade import distrusting, holding, reports
from memory.facade.access import Access
from memory.facade.arguments import Moment, flag, id_of, ids_of, moment, scope_of, user_of
from memory.facade.backups import Backup, back_up
from memory.facade.explain import RouteReport, explain_route
from memory.facade.exporting import lines_of
from memory.facade.forgetting import erase_scope, would_erase_tenant, would_erase_user
from memory.facade.importing import Import, Imported, Source, Told, opened
from memory.facade.reports import Copy, Stats, StoreAudit, StoreReport, Vacuumed
from memory.facade.why import WhyReport, why
from memory.orchestrator.healing import Compared
from memory.orchestrator.maintenance import SweepReport
from memory.orchestrator.planned import Plan
from memory.orchestrator.promotion import PromotionReport
from memory.orchestrator.reindexing import Reindexed
from memory.orchestrator.setbacks import SetBack
from memory.policies.routing import TIERS


@explain_guesses
class Admin:
    """Erasing, exporting and importing, where things stand and why, and the upkeep of
    the stores.

    `erase`, `hold`, `distrust`, `roll_back`, `export`, `import_`, `where`, `why`,
    `move`, `route` and `stats` concern one tenant; `flush`, `sweep`, `plan`, `check`,
    `audit`, `backup`, `reindex` and `vacuum` the stores, and so all of them.

        await memory.admin.erase("user:ada")
        print(await memory.admin.stats())
    """

    def __init__(self, access: Access) -> None:
        self._access = access

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
            Held: The scope, or an entry in it, is under legal hold. Nothing is erased.
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
        not erased when the hold is released. Legal holds and what is distrusted stay.

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

    async def hold(
        self,
        name: str,
        *,
        reason: str,
        scope: Scope | str | None = None,
        user: str | Scope | None = None,
        entry_id: str | None = None,
        tenant: bool = False,
        placed_by: str | None = None,
    ) -> LegalHold:
        """Place a legal hold over a scope, a user (their scope, and the sessions with
        them), an entry, or all of the tenant; see `LegalHold`.

        It stands in the archive, for every process, until `release_hold`: what is under
        it is deleted by nothing and nobody. Deletions and erasures raise `LegalHoldActive`, sweeps
        leave it and count it. Entries may be edited, since they keep their versions,
        and move onward. What keeps no earlier version is not overwritten: an edit of a
        message, of a session's title, metadata or system message, of what a task says
        (title, result, metadata) or of a run's metadata raises `LegalHoldActive`, and so does a
        file put over another. New messages, tasks and runs, a message that is being
        streamed, and the status of tasks and runs are written as ever. The same name
        may be placed over several things. Placing it again changes nothing. What a
        deletion had begun to take when it was placed is not saved by it.
        """
        return await holding.place(
            self._access,
            name,
            reason=reason,
            scope=scope,
            user=user,
            entry_id=entry_id,
            tenant=flag("tenant", tenant),
            placed_by=placed_by,
        )

    async def release_hold(self, name: str) -> list[LegalHold]:
        """Release what is held under a name; what that was. What has expired meanwhile
        goes with the next sweep.
        """
        return await self._access.engine.erasure.holds.release(
            self._access.tenant, door.identifier("name", name)
        )

    async def holds(self) -> list[LegalHold]:
        """The tenant's legal holds, oldest first."""
        return await self._access.engine.erasure.holds.all(self._access.tenant)

    async def distrust(
        self,
        *,
        source: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        since: Moment | None = None,
        later_writes: LaterWrites = "refused",
        reason: str,
        distrusted_by: str | None = None,
    ) -> list[BlockedSource]:
        """Let nothing be found any more that a source, an agent or a run wrote, of each
        that is named, and nothing that was made of it, on any tier: not by a search,
        `retrieve` or `get`, nor by what is recalled into a window or shown to a model.
        With `since`, of what was written or changed from then on.

        It holds at once in this memory, and in every process after two seconds at most,
        until `trust`. What they write later is refused (`RejectedByGate`), or `"kept_back"`:
        stored and not found; where it changes other entries or takes their place it is
        refused all the same. Nothing is changed or deleted: `roll_back` does that.
        `entries.all`, `entries.history` and exports go on showing it. Distrusting again
        says it anew. More than 80 of a tenant are refused.
        """
        return await distrusting.distrust(
            self._access,
            distrusting.origins_of(source, agent, run),
            since=since,
            later_writes=later_writes,
            reason=reason,
            distrusted_by=distrusted_by,
        )

    async def trust(
        self, *, source: str | None = None, agent: str | None = None, run: str | None = None
    ) -> list[BlockedSource]:
        """Trust again what is named; what was distrusted of it. What was kept back is
        found again.
        """
        return await self._access.engine.trust.distrusts.lift(
            self._access.tenant, distrusting.origins_of(source, agent, run)
        )

    async def distrusted(self) -> list[BlockedSource]:
        """What the tenant distrusts, oldest first."""
        return await self._access.engine.trust.distrusts.all(self._access.tenant)

    async def roll_back(
        self,
        *,
        source: str | None = None,
        agent: str | None = None,
        run: str | None = None,
        since: Moment | None = None,
        erase: bool = False,
        derived: bool = False,
        dry_run: bool = False,
    ) -> RolledBack:
        """Take back all that a source, an agent or a run wrote until now, of each that
        is named, or `since` a moment.

        What it created is retired, or with `erase` erased for good. What it changed is
        said again as it would be without these changes: what others changed since
        stays. What was made of its entries (promoted, compacted) is named, and with
        `derived` goes too. What is under legal hold is not erased, but retired. With
        `dry_run` nothing is done: the report is the one of a run now. Where a store
        fails the call does; a sweep does the rest, and the call can be repeated. What
        it writes meanwhile stays: `distrust` it first.
        """
        work = self._access.engine.rolling_back
        do = work.plan if flag("dry_run", dry_run) else work.run
        origins = distrusting.origins_of(source, agent, run)
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
        is still owed what `onward` is to be asked is carried, and nothing else. It is
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
        told: Told | None = None,
    ) -> Imported:
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
        have no id. `told` hears after each batch how many lines are safe, and of how
        many. They are replicated behind that, as what `write` stores; `flush` waits for
        it.
        """
        called = name or (Path(source).name if isinstance(source, str | PathLike) else "import")
        work = Import(
            self._access,
            door.identifier("name", called),
            scope=None if scope is None else scope_of(scope),
            messages_to=None if messages_to is None else scope_of(messages_to),
            same_ids=flag("same_ids", same_ids),
            revive=flag("revive", revive),
            skip_bad=flag("skip_bad", skip_bad),
            told=told,
        )
        async with opened(source) as (stream, unread):
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
        """Move entries onward to a tier by hand. Moves go onward only."""
        door.one_of("tier", to, TIERS)
        return await self._access.engine.promotion.by_hand(self._access.tenant, ids_of(entry_ids), to)

    async def where(self, entry_id: str) -> list[Copy]:
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

        What `onward` is to be asked is asked behind it, and waited for here: in the
        report it is `still_owed`.
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

    async def set_back(self) -> list[SetBack]:
        """The stores that were set back alone: restored to an earlier moment, or
        replaced by an empty one, and not healed since.

        Sweeps note in every store how far the others have come, every five minutes;
        what was set back by less may not be noticed.
        """
        return list((await self._access.engine.setbacks.look()).values())

    async def forget_store(self, name: str) -> int:
        """Note that a store is not used any more, so that its absence is no problem;
        how many stores named it.

        Stores note which others serve beside them. If a configuration omits one that
        holds data, opening warns and `memory doctor` fails until it is back, or is
        forgotten by this.
        """
        return await self._access.engine.store_notes.forget(
            door.text("name", name, min_chars=1, max_bytes=200)
        )

    async def compare(self, *, repair: bool = False, told: Told | None = None) -> Compared:
        """Compare what the stores hold of every tenant's entries with each other; with
        `repair`, heal what a store lost that was set back alone.

        What another store has is put back on the condition of what stands there, what
        was deleted is deleted again, and what no store has is named in `lost`. It may
        run beside writers, and be called again where it was cut off. It reads
        everything, and may take long; `told` hears after each page how many copies were
        looked at, and of how many. What is said to be the room that a tenant's
        artifacts and large texts take is compared with what they take, and counted
        anew.
        """
        return await self._access.engine.healing.compare(repair=flag("repair", repair), told=told)

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

    async def reindex(self, *, told: Told | None = None) -> Reindexed:
        """Make all vectors of every tenant anew with the embedder in use, entries' and
        messages', kept versions' too, while answers are served.

        A memory that is not open is opened for it, with `reindex`. From the beginning
        on memories with this embedder open, and those with the one before; each finds
        by meaning what has a vector of its own, all else by words, and `degraded` of
        its answers says so. Both write. What was cut off goes on when this is called
        again, and two at once do no harm. Once none is left (`ended`) the stores take
        this embedder alone: memories with the one before are to be closed until then,
        since what they write has to be made anew too.

        `told` hears after each page how many vectors are made, and of how many.
        """
        opens = not self._access.is_open
        if opens:
            await self._access.open(reindex=True)
        try:
            return await self._access.engine.reindexing.run(told)
        finally:
            if opens:
                await self._access.close()

    async def vacuum(self) -> list[Vacuumed]:
        """Have each store give back the room that deleted content takes. A store that
        does not answer is reported, not raised.
        """
        return await reports.vacuum(self._access.engine)
