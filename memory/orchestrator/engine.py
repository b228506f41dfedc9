"""The engine that the facade calls: all services over one topology of stores."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Literal

from memory.domain.errors import CorruptRecord, NotFound
from memory.domain.ids import Randomness, is_id
from memory.domain.scope import Scope
from memory.domain.session import DeletedEntry
from memory.domain.versions import version_conflict
from memory.orchestrator.conversations.artifact_references import ArtifactReferences
from memory.orchestrator.conversations.conversations import Conversations
from memory.orchestrator.conversations.derived_entries import SAID_IN
from memory.orchestrator.conversations.log.passages import Where
from memory.orchestrator.conversations.sessions import SHARED
from memory.orchestrator.documents.documents import Documents
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.embeddings.partition_indexes import PartitionIndexes
from memory.orchestrator.enrichment.conflicts import ConflictDetector
from memory.orchestrator.enrichment.enrichment import Enricher
from memory.orchestrator.enrichment.superseding import SupersedeWriter
from memory.orchestrator.entries.accesses import Accesses
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.entries.deletion import EntryDeletion
from memory.orchestrator.entries.derivation import Derivation
from memory.orchestrator.entries.derivatives import Derivatives
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.graph import Graphs
from memory.orchestrator.entries.orphans import OrphanCollector
from memory.orchestrator.entries.relations import Relations
from memory.orchestrator.entries.scratchpads import Scratchpads
from memory.orchestrator.entries.short_ids import ShortIds
from memory.orchestrator.entries.upserts import Upserts
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.maintenance.reindexing import Reindexer
from memory.orchestrator.maintenance.repair import StoreRepair
from memory.orchestrator.maintenance.reverting import TAKE_BACK, SourceReverter
from memory.orchestrator.maintenance.sweeps import Maintenance, SweepReport
from memory.orchestrator.maintenance.tenant_erasure import ERASE_SUBTREE, ERASE_TENANT, TenantErasure
from memory.orchestrator.maintenance.vector_rebuild import VectorRebuild
from memory.orchestrator.retrieval.advisors import AdvisedSearch
from memory.orchestrator.retrieval.long_texts import LongTexts
from memory.orchestrator.retrieval.message_search import MessageSearch
from memory.orchestrator.retrieval.scope_listing import ScopeDirectory
from memory.orchestrator.retrieval.search import EntrySearch
from memory.orchestrator.storage.budgets import UNLIMITED, Allowance
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.deliveries import Deliveries
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.id_reuse import IdReuse
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.kinds import KINDS, Kinds
from memory.orchestrator.storage.outbox import Outbox
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import RequestMark, Requests
from memory.orchestrator.storage.rollback_detection import RollbackDetector
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.store_notes import StoreNotes
from memory.orchestrator.storage.topology import Topology
from memory.orchestrator.storage.word_indexes import WordIndexes
from memory.orchestrator.tiering.after_writes import AfterWrites
from memory.orchestrator.tiering.dry_run_due import DryRunDueWork
from memory.orchestrator.tiering.moves import TierMover
from memory.orchestrator.tiering.plan import ForecastProvider, Plan, plan_of
from memory.orchestrator.tiering.promotion import Promotion, PromotionReport
from memory.orchestrator.tiering.quotas import Quotas
from memory.orchestrator.tiering.retention import Retention
from memory.orchestrator.tiering.rules import RuleEvaluator
from memory.orchestrator.tiering.session_ends import SessionClosing
from memory.orchestrator.transfer.records import Transfer
from memory.orchestrator.transfer.session_import import SessionRestorer
from memory.orchestrator.trust.gates import Gates, RecallGate, WriteGate
from memory.orchestrator.trust.trust import Trust
from memory.policies.promotion import DEFAULT_RULES, CustomRule, PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.policies.window_exit import WindowExitFunction
from memory.ports.advisor import Advisor, Reranker
from memory.ports.clock import Clock, system_clock
from memory.ports.embedder import Embedder
from memory.ports.record import Key, Partition, Record
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)


class Engine:
    """One engine over one set of stores.

    Many engines, in many processes, may work on the same stores at once.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        embedder: Embedder | None = None,
        counter: TokenCounter | None = None,
        clock: Clock = system_clock,
        settings: EngineSettings | None = None,
        rules: Sequence[PromotionRule] = DEFAULT_RULES,
        retention: Sequence[RetentionRule] = (),
        quotas: Sequence[Quota] = (),
        policies: Sequence[CustomRule] = (),
        random_bits: Randomness = secrets.randbits,
        kinds: Kinds = KINDS,
        on_window_exit: WindowExitFunction | Literal["elsewhere"] | None = None,
        passages: Where = "home",
        advisor: Advisor | None = None,
        reranker: Advisor | Reranker | None = None,
        write_gate: WriteGate | None = None,
        recall_gate: RecallGate | None = None,
    ) -> None:
        self.topology = topology
        self.settings = settings or EngineSettings()
        self.placement = Placement(
            topology, clock=clock, settings=self.settings, random_bits=random_bits, kinds=kinds
        )
        self.rollback_detector = RollbackDetector(self.placement)
        self.word_indexes = WordIndexes(self.placement)
        self.store_notes = StoreNotes(self.placement)
        self.generations = Generations(self.placement, self.rollback_detector)
        self.cache = Cache(self.placement)
        self.outbox = Outbox(self.placement, self.generations, self.cache)
        self.deliveries = Deliveries(self.placement, self.outbox)
        self.embeddings = Embeddings(self.placement, embedder)
        self.erasure = Erasure(self.placement, self.outbox, self.cache, self.generations)
        self.requests = Requests(self.placement)
        self.erasure.also.append(self.requests.forget)
        self.key_locks = KeyLocks()
        self.partition_indexes = PartitionIndexes(self.placement)
        self.quotas = Quotas(self.placement, self.erasure, quotas, retention)
        self.long_texts = LongTexts(
            self.placement,
            embeddings=self.embeddings,
            outbox=self.outbox,
            partition_indexes=self.partition_indexes,
        )
        self.trust = Trust(self.placement, Gates(self.placement, write_gate, recall_gate))
        id_reuse = IdReuse(self.placement, outbox=self.outbox, cache=self.cache)
        self.entries = Entries(
            self.placement,
            embeddings=self.embeddings,
            outbox=self.outbox,
            cache=self.cache,
            erasure=self.erasure,
            generations=self.generations,
            deliveries=self.deliveries,
            id_reuse=id_reuse,
            key_locks=self.key_locks,
            quotas=self.quotas,
            trust=self.trust,
            on_written=lambda tenant, written: self.after_writes.note(tenant, written),
        )
        self.upserts = Upserts(
            self.placement, entries=self.entries, embeddings=self.embeddings, key_locks=self.key_locks
        )
        self.artifact_references = ArtifactReferences(
            self.placement, cache=self.cache, outbox=self.outbox, erasure=self.erasure
        )
        self.conversations = Conversations(
            self.placement,
            outbox=self.outbox,
            erasure=self.erasure,
            embeddings=self.embeddings,
            quotas=self.quotas,
            artifact_quotas=self.quotas.of_artifacts,
            passages=passages,
            counter=counter,
            on_window_exit=on_window_exit,
            trust=self.trust,
            on_artifact_gone=self.artifact_references.clear,
        )
        self.derivatives = Derivatives(
            self.placement,
            entries=self.entries,
            outbox=self.outbox,
            erasure=self.erasure,
            messages_stand=self.conversations.window_exit.derived.stands,
        )
        self.derivation = Derivation(
            self.placement,
            entries=self.entries,
            embeddings=self.embeddings,
            deliveries=self.deliveries,
            erasure=self.erasure,
            id_reuse=id_reuse,
            derivatives=self.derivatives,
        )
        self.relations = Relations(
            self.placement,
            entries=self.entries,
            erasure=self.erasure,
            generations=self.generations,
            outbox=self.outbox,
        )
        self.supersede_writer = SupersedeWriter(
            self.placement,
            entries=self.entries,
            relations=self.relations,
            deliveries=self.deliveries,
            outbox=self.outbox,
            cache=self.cache,
        )
        sessions = self.conversations.sessions
        self.message_search = MessageSearch(self.placement, sessions)
        self.session_restorer = SessionRestorer(self.placement, sessions.uploads, self.conversations.passages)
        manifests = self.conversations.manifests
        self.short_ids = ShortIds(
            self.placement,
            generations=self.generations,
            outbox=self.outbox,
            key_locks=self.key_locks,
            manifests=manifests,
        )
        self.scratchpads = Scratchpads(
            self.placement,
            outbox=self.outbox,
            key_locks=self.key_locks,
            erasure=self.erasure,
            generations=self.generations,
        )
        self.documents = Documents(
            self.placement,
            outbox=self.outbox,
            erasure=self.erasure,
            key_locks=self.key_locks,
            quotas=Quotas(self.placement, self.erasure, quotas, (), of_documents=True),
        )
        self.tenants = TenantErasure(
            self.placement, outbox=self.outbox, erasure=self.erasure, sessions=self.conversations.sessions
        )
        self.scopes = ScopeDirectory(self.placement, self.conversations.sessions)
        self.orphans = OrphanCollector(self.placement, self.erasure)
        self.browser = EntryBrowser(self.placement, self.trust)
        self.deletion = EntryDeletion(
            self.placement, browser=self.browser, derivatives=self.derivatives, key_locks=self.key_locks
        )
        self.graphs = Graphs(self.placement, entries=self.entries, browser=self.browser)
        self.transfer = Transfer(
            self.placement,
            browser=self.browser,
            embeddings=self.embeddings,
            deliveries=self.deliveries,
            erasure=self.erasure,
            quotas=self.quotas,
            trust=self.trust,
        )
        self.source_reverter = SourceReverter(
            self.placement,
            browser=self.browser,
            entries=self.entries,
            erasure=self.erasure,
            outbox=self.outbox,
            manifests=manifests,
        )
        passages_made = self.conversations.passages
        self.reindexing = Reindexer(
            self.placement,
            embeddings=self.embeddings,
            outbox=self.outbox,
            passages=passages_made,
            long_texts=self.long_texts,
        )
        self.entry_search = EntrySearch(
            self.placement,
            self.browser,
            self.embeddings,
            self.message_search,
            long_texts=self.long_texts,
            partition_indexes=self.partition_indexes,
            deliveries=self.deliveries,
        )
        self.conflict_detector = ConflictDetector(
            self.placement,
            entries=self.entries,
            supersede_writer=self.supersede_writer,
            entry_search=self.entry_search,
            embeddings=self.embeddings,
        )
        self.enricher = Enricher(
            self.placement,
            entries=self.entries,
            relations=self.relations,
            entry_search=self.entry_search,
            deliveries=self.deliveries,
            outbox=self.outbox,
            advisor=advisor,
        )
        self.advised_search = AdvisedSearch(
            self.entry_search, self.placement, advisor=advisor, reranker=reranker
        )
        self.tier_mover = TierMover(self.placement, self.outbox, self.cache, self.generations)
        self.accesses = Accesses(self.placement)
        self.rule_evaluator = RuleEvaluator(self.placement, self.conversations.counter, rules, policies)
        self.promotion = Promotion(
            self.placement,
            self.tier_mover,
            self.accesses,
            self.derivation,
            self.rule_evaluator,
            self._user_of,
        )
        self.session_closing = SessionClosing(
            self.placement, outbox=self.outbox, sessions=self.conversations.sessions, promotion=self.promotion
        )
        self.after_writes = AfterWrites(
            self.promotion,
            frozenset(rule.source for rule in self.rule_evaluator.of_tier("") if rule.on == "write"),
        )
        self.retention = Retention(
            self.placement,
            erasure=self.erasure,
            conversations=self.conversations,
            counter=self.conversations.counter,
            promotion=self.promotion,
            rules=retention,
        )
        self.planners: list[ForecastProvider] = [self.retention, self.promotion]
        """The services that act by rules during maintenance, in the order in which they
        run.
        """
        self.maintenance = Maintenance(
            self.placement,
            outbox=self.outbox,
            erasure=self.erasure,
            generations=self.generations,
            tier_mover=self.tier_mover,
            promotion=self.promotion,
            retention=self.retention,
            tells=(
                self.deliveries.flush,
                self.embeddings.look,
                self.accesses.tell,
                self.conversations.sessions.catch_up,
                passages_made.catch_up,
            ),
            orphans=self.orphans,
            sessions=self.conversations.sessions,
            reindexing=self.reindexing,
            rollback_detector=self.rollback_detector,
        )
        self.repair = StoreRepair(
            self.placement,
            rollback_detector=self.rollback_detector,
            outbox=self.outbox,
            erasure=self.erasure,
            generations=self.generations,
            tier_mover=self.tier_mover,
            vector_rebuild=VectorRebuild(
                self.placement,
                embeddings=self.embeddings,
                outbox=self.outbox,
                long_texts=self.long_texts,
                passages=passages_made,
            ),
            balances=self.conversations.balances,
        )

    async def open(self, *, reindex: bool = False) -> None:
        """Open the stores, and check what they can do and which embedder they noted.

        With `reindex`, note in the stores that a reindex to the current embedder
        begins.
        """
        await self.topology.open(self.placement.kinds.collections, on_arrival=self.embeddings.check_store)
        try:
            await (self.embeddings.begin() if reindex else self.embeddings.check())
        except BaseException:
            await self.topology.close()
            raise
        self.deliveries.open()
        self.enricher.open()

    async def close(self) -> None:
        """Wait for advisors, complete pending work, and close the stores.

        The pending work is: queued deliveries, access counts, session totals, the
        passages of messages and copies of windows. It gets as much time as the deadline
        allows. The rest stays pending.
        """
        try:
            await self.partition_indexes.close()
            await self.enricher.close()
            await self.conversations.window_exit.close()
            async with asyncio.timeout(self.settings.deadline.total_seconds()):
                await self.deliveries.close()
                await self.conversations.sessions.catch_up()
                await self.accesses.tell()
                await self.conversations.passages.catch_up()
                await self.conversations.sessions.copies.close()
        except Exception as error:  # noqa: BLE001 - pending work or a lost count is no reason to stay open
            log.warning("some deliveries or access counts were not completed: %s", error)
        finally:
            self.conversations.sessions.copies.cancel()
            await self.topology.close()

    async def maintain(self, allowance: Allowance = UNLIMITED) -> SweepReport:
        """Run one sweep, then call `on_window_exit` and the advisor for what it found.

        The report counts those calls as `still_owed`.
        """
        report = await self.maintenance.sweep(allowance)
        await self.conversations.window_exit.drain()
        await self.enricher.drain()
        return report

    async def end_session(
        self, tenant: str, scope: Scope, owing: Sequence[Record] | None = None
    ) -> PromotionReport:
        """End a session. See `SessionClosing.end`.

        Wait, up to the deadline, for the advisor calls of the session's entries:
        entries with a pending advisor call do not move.
        """
        await self.enricher.wait_until_tried_in(
            Partition(tenant, scope.text), self.placement.settings.deadline.total_seconds()
        )
        return await self.session_closing.end(tenant, scope, owing)

    async def plan(self) -> Plan:
        """Return what a sweep would do if it ran now.

        Queued deliveries and access counts are written to the stores first, because
        rules read them. Nothing else is written.
        """
        await self.deliveries.flush()
        await self.accesses.tell()
        due = DryRunDueWork(
            self.placement,
            due=self.maintenance.due_pages,
            erasure=self.erasure,
            window_exit=self.conversations.window_exit,
            session_closing=self.session_closing,
            promotion=self.promotion,
            not_foreseen=frozenset({ERASE_TENANT, ERASE_SUBTREE, TAKE_BACK}),
        )
        reads_texts = self.rule_evaluator.reads_texts or self.retention.reads_texts
        return await plan_of(self.placement, [due, *self.planners], self.quotas, reads_texts=reads_texts)

    async def _user_of(self, tenant: str, session_id: str, entry_id: str) -> str | None:
        """Return the user to whom an entry of a session belongs.

        For an entry that was learnt in a shared session, return the user who wrote the
        messages from which it was made.
        """
        session = await self.conversations.find(tenant, session_id)
        if session is not None and session.body.get(SHARED):
            entry = (await self.placement.locate(ENTRIES, Key(tenant, entry_id))).record
            said_in: Any = {} if entry is None else entry.body.get(SAID_IN, {})
            if "user" in said_in:
                return str(said_in["user"])
        user = None if session is None else session.fields.get("subject")
        return user if isinstance(user, str) else None

    async def scope_of_entry(self, tenant: str, entry_id: str) -> str:
        """Return the scope of an entry, also of an expired or retired one.

        Raises:
            NotFound: There is no such entry.
        """
        located = await self.placement.locate(ENTRIES, Key(tenant, entry_id)) if is_id(entry_id) else None
        if located is None or located.record is None:
            raise NotFound(entry_id)
        return located.record.scope

    async def scopes_of_entries(self, tenant: str, entry_ids: Collection[str]) -> dict[str, str]:
        """Return the scope of each entry, also of an expired or retired one.

        Every store is asked, whether there are such entries or not, so that the time of
        the call does not tell. Entries that cannot be read are left out.
        """
        keys = [Key(tenant, one) for one in entry_ids if is_id(one)]
        nobody = Key(tenant, self.placement.new_id(tenant, "nobody"))
        try:
            located = await self.placement.locate_many(ENTRIES, [*keys, nobody])
        except CorruptRecord:
            located = []
            for key in keys:
                with suppress(CorruptRecord):
                    located += await self.placement.locate_many(ENTRIES, [key, nobody])
        return {at.record.key.id: at.record.scope for at in located if at.record is not None}

    async def was_deleted_by(self, tenant: str, entry_id: str, request: RequestMark) -> bool:
        """Return whether an earlier call of the request has deleted the entry."""
        return is_id(entry_id) and await self.derivatives.was_deleted_by(Key(tenant, entry_id), request)

    async def delete(
        self, tenant: str, entry_id: str, *, expected: int | None = None, request: RequestMark | None = None
    ) -> DeletedEntry:
        """Delete one entry. The result is false if there was none.

        Raises:
            LegalHoldActive: The entry is under legal hold.
            VersionConflict: Another version than the expected one is stored, or none.
        """
        if not is_id(entry_id):
            if expected is not None:
                raise version_conflict(f"entry {entry_id[:64]}", expected, None)
            return DeletedEntry(0)
        key = Key(tenant, entry_id)
        async with self.key_locks.take(ENTRIES, key, RetryDeadline(self.placement, entry_id)):
            return await self.derivatives.delete(key, expected, request)
