"""The engine that the facade calls: all services over one topology of stores.

The file is long because it names every service once, in the order in which they are
built. The package of a service decides its work.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Literal

from memory.domain.ids import Randomness
from memory.domain.maintenance_reports import SweepReport
from memory.domain.plan import Plan
from memory.domain.promotion_report import PromotionReport
from memory.domain.scope import Scope
from memory.orchestrator.conversations.artifact_references import ArtifactReferences
from memory.orchestrator.conversations.conversations import Conversations
from memory.orchestrator.conversations.log.passages import Where
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
from memory.orchestrator.entries.kept_by_reads import ExpiryRefresher
from memory.orchestrator.entries.orphans import OrphanCollector
from memory.orchestrator.entries.relations import Relations
from memory.orchestrator.entries.scopes import EntryScopes
from memory.orchestrator.entries.scratchpads import Scratchpads
from memory.orchestrator.entries.short_ids import ShortIds
from memory.orchestrator.entries.upserts import Upserts
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.maintenance.reindexing import Reindexer
from memory.orchestrator.maintenance.repair import StoreRepair
from memory.orchestrator.maintenance.reverting import TAKE_BACK, SourceReverter
from memory.orchestrator.maintenance.sweeps import Maintenance
from memory.orchestrator.maintenance.tenant_erasure import ERASE_SUBTREE, ERASE_TENANT, TenantErasure
from memory.orchestrator.maintenance.vector_rebuild import VectorRebuild
from memory.orchestrator.retrieval.advisors import AdvisedSearch
from memory.orchestrator.retrieval.long_texts import LongTexts
from memory.orchestrator.retrieval.message_search import MessageSearch
from memory.orchestrator.retrieval.scope_listing import ScopeDirectory
from memory.orchestrator.retrieval.search import EntrySearch
from memory.orchestrator.storage.budgets import UNLIMITED, Allowance
from memory.orchestrator.storage.cache import Cache
from memory.orchestrator.storage.deliveries import Deliveries
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.id_reuse import IdReuse
from memory.orchestrator.storage.key_locks import KeyLocks
from memory.orchestrator.storage.kinds import KINDS, Kinds
from memory.orchestrator.storage.outbox import Outbox
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import Requests
from memory.orchestrator.storage.rollback_detection import RollbackDetector
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.store_notes import StoreNotes
from memory.orchestrator.storage.topology import Topology
from memory.orchestrator.storage.word_indexes import WordIndexes
from memory.orchestrator.tiering.after_writes import AfterWrites
from memory.orchestrator.tiering.dry_run_due import DryRunDueWork
from memory.orchestrator.tiering.moves import TierMover
from memory.orchestrator.tiering.plan import ForecastProvider, plan_of
from memory.orchestrator.tiering.promotion import Promotion
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
from memory.ports.record import Partition, Record
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
        self.placement = placement = Placement(
            topology, clock=clock, settings=self.settings, random_bits=random_bits, kinds=kinds
        )
        self.rollback_detector = RollbackDetector(placement)
        self.word_indexes = WordIndexes(placement)
        self.store_notes = StoreNotes(placement)
        self.generations = generations = Generations(placement, self.rollback_detector)
        self.cache = cache = Cache(placement)
        self.outbox = outbox = Outbox(placement, generations, cache)
        self.deliveries = deliveries = Deliveries(placement, outbox)
        self.embeddings = embeddings = Embeddings(placement, embedder)
        self.erasure = erasure = Erasure(placement, outbox, cache, generations)
        self.requests = Requests(placement)
        erasure.also.append(self.requests.forget)
        self.key_locks = KeyLocks()
        self.partition_indexes = PartitionIndexes(placement)
        self.quotas = Quotas(placement, erasure, quotas, retention)
        self.long_texts = LongTexts(
            placement, embeddings=embeddings, outbox=outbox, partition_indexes=self.partition_indexes
        )
        self.trust = Trust(placement, Gates(placement, write_gate, recall_gate))
        id_reuse = IdReuse(placement, outbox=outbox, cache=cache)
        self.entries = entries = Entries(
            placement,
            embeddings=embeddings,
            outbox=outbox,
            cache=cache,
            erasure=erasure,
            generations=generations,
            deliveries=deliveries,
            id_reuse=id_reuse,
            key_locks=self.key_locks,
            quotas=self.quotas,
            trust=self.trust,
            on_written=lambda tenant, written: self.after_writes.note(tenant, written),
        )
        self.upserts = Upserts(placement, entries=entries, embeddings=embeddings, key_locks=self.key_locks)
        self.artifact_references = ArtifactReferences(placement, cache=cache, outbox=outbox, erasure=erasure)
        self.conversations = conversations = Conversations(
            placement,
            outbox=outbox,
            erasure=erasure,
            embeddings=embeddings,
            quotas=self.quotas,
            artifact_quotas=self.quotas.of_artifacts,
            passages=passages,
            counter=counter,
            on_window_exit=on_window_exit,
            trust=self.trust,
            on_artifact_gone=self.artifact_references.clear,
        )
        self.derivatives = Derivatives(
            placement,
            entries=entries,
            outbox=outbox,
            erasure=erasure,
            messages_stand=conversations.window_exit.derived.stands,
        )
        self.derivation = Derivation(
            placement,
            entries=entries,
            embeddings=embeddings,
            deliveries=deliveries,
            erasure=erasure,
            id_reuse=id_reuse,
            derivatives=self.derivatives,
        )
        self.relations = Relations(
            placement, entries=entries, erasure=erasure, generations=generations, outbox=outbox
        )
        self.supersede_writer = SupersedeWriter(
            placement,
            entries=entries,
            relations=self.relations,
            deliveries=deliveries,
            outbox=outbox,
            cache=cache,
        )
        self.message_search = MessageSearch(placement, conversations.sessions)
        self.session_restorer = SessionRestorer(
            placement, conversations.sessions.uploads, conversations.passages, conversations.tasks
        )
        self.short_ids = ShortIds(
            placement,
            generations=generations,
            outbox=outbox,
            key_locks=self.key_locks,
            manifests=conversations.manifests,
        )
        self.scratchpads = Scratchpads(
            placement, outbox=outbox, key_locks=self.key_locks, erasure=erasure, generations=generations
        )
        self.documents = Documents(
            placement,
            outbox=outbox,
            erasure=erasure,
            key_locks=self.key_locks,
            quotas=Quotas(placement, erasure, quotas, (), of_documents=True),
        )
        self.tenants = TenantErasure(
            placement, outbox=outbox, erasure=erasure, sessions=conversations.sessions
        )
        self.scopes = ScopeDirectory(placement, conversations.sessions)
        self.orphans = OrphanCollector(placement, erasure)
        self.browser = browser = EntryBrowser(placement, self.trust)
        self.entry_scopes = EntryScopes(placement)
        self.deletion = EntryDeletion(
            placement, browser=browser, derivatives=self.derivatives, key_locks=self.key_locks
        )
        self.graphs = Graphs(placement, entries=entries, browser=browser)
        self.transfer = Transfer(
            placement,
            browser=browser,
            embeddings=embeddings,
            deliveries=deliveries,
            erasure=erasure,
            quotas=self.quotas,
            trust=self.trust,
        )
        self.source_reverter = SourceReverter(
            placement,
            browser=browser,
            entries=entries,
            erasure=erasure,
            outbox=outbox,
            manifests=conversations.manifests,
        )
        self.reindexing = Reindexer(
            placement,
            embeddings=embeddings,
            outbox=outbox,
            passages=conversations.passages,
            long_texts=self.long_texts,
        )
        self.entry_search = EntrySearch(
            placement,
            browser,
            embeddings,
            self.message_search,
            long_texts=self.long_texts,
            partition_indexes=self.partition_indexes,
            deliveries=deliveries,
        )
        self.conflict_detector = ConflictDetector(
            placement,
            entries=entries,
            supersede_writer=self.supersede_writer,
            entry_search=self.entry_search,
            embeddings=embeddings,
        )
        self.enricher = Enricher(
            placement,
            entries=entries,
            relations=self.relations,
            entry_search=self.entry_search,
            deliveries=deliveries,
            outbox=outbox,
            advisor=advisor,
        )
        self.advised_search = AdvisedSearch(self.entry_search, placement, advisor=advisor, reranker=reranker)
        self.tier_mover = TierMover(placement, outbox, cache, generations)
        self.accesses = Accesses(placement)
        self.expiry_refresher = ExpiryRefresher(placement, cache)
        self.rule_evaluator = RuleEvaluator(placement, conversations.counter, rules, policies)
        self.promotion = promotion = Promotion(
            placement,
            self.tier_mover,
            self.accesses,
            self.derivation,
            self.rule_evaluator,
            conversations.user_of_entry,
        )
        self.session_closing = SessionClosing(
            placement, outbox=outbox, sessions=conversations.sessions, promotion=promotion
        )
        self.after_writes = AfterWrites(
            promotion,
            frozenset(rule.source for rule in self.rule_evaluator.of_tier("") if rule.on == "write"),
        )
        self.retention = Retention(
            placement,
            erasure=erasure,
            conversations=conversations,
            counter=conversations.counter,
            promotion=promotion,
            rules=retention,
        )
        self.planners: list[ForecastProvider] = [self.retention, promotion]
        """The services that act by rules during maintenance, in the order in which they
        run.
        """
        self.maintenance = Maintenance(
            placement,
            outbox=outbox,
            erasure=erasure,
            generations=generations,
            tier_mover=self.tier_mover,
            promotion=promotion,
            retention=self.retention,
            tells=(
                deliveries.flush,
                embeddings.look,
                self.accesses.tell,
                conversations.sessions.catch_up,
                conversations.passages.catch_up,
            ),
            orphans=self.orphans,
            sessions=conversations.sessions,
            reindexing=self.reindexing,
            rollback_detector=self.rollback_detector,
        )
        self.repair = StoreRepair(
            placement,
            rollback_detector=self.rollback_detector,
            outbox=outbox,
            erasure=erasure,
            generations=generations,
            tier_mover=self.tier_mover,
            vector_rebuild=VectorRebuild(
                placement,
                embeddings=embeddings,
                outbox=outbox,
                long_texts=self.long_texts,
                passages=conversations.passages,
            ),
            balances=conversations.balances,
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

        The report counts those calls as `pending_steps`.
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
