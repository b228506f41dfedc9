"""The engine: everything the facade calls, put together over one topology."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Any, Literal

from memory.domain.errors import NotFound
from memory.domain.ids import Randomness, is_id
from memory.domain.scope import Scope
from memory.domain.session import DeletedEntry
from memory.orchestrator.accesses import Accesses
from memory.orchestrator.after_writes import AfterWrites
from memory.orchestrator.allowance import UNLIMITED, Allowance
from memory.orchestrator.browsing import Browsing
from memory.orchestrator.cache import Cache
from memory.orchestrator.checking import Checking
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.conversations.conversations import Conversations
from memory.orchestrator.conversations.passages import Where
from memory.orchestrator.conversations.sessions import SHARED
from memory.orchestrator.conversations.taught import SAID_IN
from memory.orchestrator.dangling import Dangling
from memory.orchestrator.deliveries import Deliveries
from memory.orchestrator.derivation import Derivation
from memory.orchestrator.derivatives import Derivatives
from memory.orchestrator.endings import Endings
from memory.orchestrator.enriching import Enriching
from memory.orchestrator.entries import Entries
from memory.orchestrator.erasure import Erasure
from memory.orchestrator.gates import Gates, RecallGate, WriteGate
from memory.orchestrator.generations import Generations
from memory.orchestrator.graph import Graphs
from memory.orchestrator.healing import Healing
from memory.orchestrator.judging import Judging
from memory.orchestrator.kinds import KINDS, Kinds
from memory.orchestrator.lives import Lives
from memory.orchestrator.long_texts import LongTexts
from memory.orchestrator.maintenance import Maintenance, SweepReport
from memory.orchestrator.meaning import Embeddings
from memory.orchestrator.numbers import Numbers
from memory.orchestrator.outbox import Outbox
from memory.orchestrator.placement import Placement
from memory.orchestrator.planned import Plan, Planner, plan_of
from memory.orchestrator.planned_due import PlannedDue
from memory.orchestrator.promotion import Promotion, PromotionReport
from memory.orchestrator.quotas import Quotas
from memory.orchestrator.referrers import Referrers
from memory.orchestrator.reindexing import Reindexing
from memory.orchestrator.relations import Relations
from memory.orchestrator.remaking import Remaking
from memory.orchestrator.retention import Retention
from memory.orchestrator.retrieval.advised import Advised
from memory.orchestrator.retrieval.forms import PartitionIndexes
from memory.orchestrator.retrieval.searching import Searching
from memory.orchestrator.rolling_back import RollingBack
from memory.orchestrator.scratchpads import Scratchpads
from memory.orchestrator.setbacks import Setbacks
from memory.orchestrator.settings import EngineSettings
from memory.orchestrator.store_notes import StoreNotes
from memory.orchestrator.superseding import Superseding
from memory.orchestrator.tenants import Tenants
from memory.orchestrator.tiering import Tiering
from memory.orchestrator.topology import Topology
from memory.orchestrator.transfer import Transfer
from memory.orchestrator.trust import Trust
from memory.orchestrator.turns import Patience, Turns
from memory.orchestrator.word_indexes import WordIndexes
from memory.policies.onward import Onward
from memory.policies.promotion import DEFAULT_RULES, CustomRule, PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.ports.advisor import Advisor, Reranker
from memory.ports.clock import Clock, system_clock
from memory.ports.embedder import Embedder
from memory.ports.record import Key, Partition, Record
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)


class Engine:
    """One engine over one set of stores. Many engines, in many processes, may work on
    the same stores at once.
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
        onward: Onward | Literal["elsewhere"] | None = None,
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
        self.setbacks = Setbacks(self.placement)
        self.word_indexes = WordIndexes(self.placement)
        self.store_notes = StoreNotes(self.placement)
        self.generations = Generations(self.placement, self.setbacks)
        self.cache = Cache(self.placement)
        self.outbox = Outbox(self.placement, self.generations, self.cache)
        self.deliveries = Deliveries(self.placement, self.outbox)
        self.meaning = Embeddings(self.placement, embedder)
        self.erasure = Erasure(self.placement, self.outbox, self.cache, self.generations)
        self.turns = Turns()
        self.forms = PartitionIndexes(self.placement)
        self.quotas = Quotas(self.placement, self.erasure, quotas, retention)
        self.long_texts = LongTexts(
            self.placement, meaning=self.meaning, outbox=self.outbox, forms=self.forms
        )
        self.trust = Trust(self.placement, Gates(self.placement, write_gate, recall_gate))
        lives = Lives(self.placement, outbox=self.outbox, cache=self.cache)
        self.entries = Entries(
            self.placement,
            meaning=self.meaning,
            outbox=self.outbox,
            cache=self.cache,
            erasure=self.erasure,
            generations=self.generations,
            deliveries=self.deliveries,
            lives=lives,
            turns=self.turns,
            quotas=self.quotas,
            trust=self.trust,
        )
        self.derivatives = Derivatives(
            self.placement, entries=self.entries, outbox=self.outbox, erasure=self.erasure
        )
        self.derivation = Derivation(
            self.placement,
            entries=self.entries,
            meaning=self.meaning,
            deliveries=self.deliveries,
            erasure=self.erasure,
            lives=lives,
            derivatives=self.derivatives,
        )
        self.relations = Relations(
            self.placement,
            entries=self.entries,
            erasure=self.erasure,
            generations=self.generations,
            outbox=self.outbox,
        )
        self.superseding = Superseding(
            self.placement,
            entries=self.entries,
            relations=self.relations,
            deliveries=self.deliveries,
            outbox=self.outbox,
            cache=self.cache,
        )
        self.conversations = Conversations(
            self.placement,
            outbox=self.outbox,
            erasure=self.erasure,
            meaning=self.meaning,
            quotas=self.quotas,
            passages=passages,
            counter=counter,
            onward=onward,
            trust=self.trust,
        )
        manifests = self.conversations.manifests
        self.numbers = Numbers(
            self.placement,
            generations=self.generations,
            outbox=self.outbox,
            turns=self.turns,
            manifests=manifests,
        )
        self.derivatives.messages_stand = self.conversations.onward.taught.stands
        self.referrers = Referrers(self.placement, cache=self.cache, outbox=self.outbox, erasure=self.erasure)
        manifests.on_gone = self.referrers.clear
        self.scratchpads = Scratchpads(
            self.placement,
            outbox=self.outbox,
            turns=self.turns,
            erasure=self.erasure,
            generations=self.generations,
        )
        self.tenants = Tenants(
            self.placement, outbox=self.outbox, erasure=self.erasure, sessions=self.conversations.sessions
        )
        self.dangling = Dangling(self.placement, self.erasure)
        self.browsing = Browsing(self.placement, self.trust)
        self.graphs = Graphs(self.placement, entries=self.entries, browsing=self.browsing)
        self.transfer = Transfer(
            self.placement,
            browsing=self.browsing,
            meaning=self.meaning,
            deliveries=self.deliveries,
            erasure=self.erasure,
            quotas=self.quotas,
            trust=self.trust,
        )
        self.rolling_back = RollingBack(
            self.placement,
            browsing=self.browsing,
            entries=self.entries,
            erasure=self.erasure,
            outbox=self.outbox,
            manifests=manifests,
        )
        passages_made = self.conversations.passages
        self.reindexing = Reindexing(
            self.placement,
            meaning=self.meaning,
            outbox=self.outbox,
            passages=passages_made,
            long_texts=self.long_texts,
        )
        self.searching = Searching(
            self.placement,
            self.browsing,
            self.meaning,
            self.conversations.finding,
            long_texts=self.long_texts,
            forms=self.forms,
            deliveries=self.deliveries,
        )
        self.checking = Checking(
            self.placement,
            entries=self.entries,
            superseding=self.superseding,
            searching=self.searching,
            meaning=self.meaning,
        )
        self.enriching = Enriching(
            self.placement,
            entries=self.entries,
            relations=self.relations,
            searching=self.searching,
            deliveries=self.deliveries,
            outbox=self.outbox,
            advisor=advisor,
        )
        self.advised = Advised(self.searching, self.placement, advisor=advisor, reranker=reranker)
        self.tiering = Tiering(self.placement, self.outbox, self.cache, self.generations)
        self.accesses = Accesses(self.placement)
        self.judging = Judging(self.placement, self.conversations.counter, rules, policies)
        self.promotion = Promotion(
            self.placement, self.tiering, self.accesses, self.derivation, self.judging, self._user_of
        )
        self.endings = Endings(
            self.placement, outbox=self.outbox, sessions=self.conversations.sessions, promotion=self.promotion
        )
        self.after_writes = AfterWrites(
            self.promotion, frozenset(rule.source for rule in self.judging.of_tier("") if rule.on == "write")
        )
        self.entries.on_written = self.after_writes.note
        self.retention = Retention(
            self.placement,
            erasure=self.erasure,
            conversations=self.conversations,
            counter=self.conversations.counter,
            promotion=self.promotion,
            rules=retention,
        )
        self.planners: list[Planner] = [self.retention, self.promotion]
        """What acts by rules when maintenance is done, in the order it does."""
        self.maintenance = Maintenance(
            self.placement,
            outbox=self.outbox,
            erasure=self.erasure,
            generations=self.generations,
            tiering=self.tiering,
            promotion=self.promotion,
            retention=self.retention,
            tells=(
                self.deliveries.flush,
                self.meaning.look,
                self.accesses.tell,
                self.conversations.sessions.catch_up,
                passages_made.catch_up,
            ),
            dangling=self.dangling,
            sessions=self.conversations.sessions,
            reindexing=self.reindexing,
            setbacks=self.setbacks,
        )
        self.healing = Healing(
            self.placement,
            setbacks=self.setbacks,
            outbox=self.outbox,
            erasure=self.erasure,
            generations=self.generations,
            tiering=self.tiering,
            remaking=Remaking(
                self.placement,
                meaning=self.meaning,
                outbox=self.outbox,
                long_texts=self.long_texts,
                passages=passages_made,
            ),
            balances=self.conversations.balances,
        )

    async def open(self, *, reindex: bool = False) -> None:
        """Open the stores, check what they can do and whose vectors they hold. With
        `reindex` they note that another's are to be made anew.
        """
        await self.topology.open(self.placement.kinds.collections, on_arrival=self.meaning.check_store)
        try:
            await (self.meaning.begin() if reindex else self.meaning.check())
        except BaseException:
            await self.topology.close()
            raise
        self.deliveries.open()
        self.enriching.open()

    async def close(self) -> None:
        """Wait for advisors, deliver what is queued, tell how often entries were read
        and what sessions have come to, make what messages are found by, as far as the
        stores answer within the deadline, and close the stores.
        """
        try:
            await self.forms.close()
            await self.enriching.close()
            await self.conversations.onward.close()
            async with asyncio.timeout(self.settings.deadline.total_seconds()):
                await self.deliveries.close()
                await self.conversations.sessions.catch_up()
                await self.accesses.tell()
                await self.conversations.passages.catch_up()
        except Exception as error:  # noqa: BLE001 - what is owed, or a count, is no reason not to close
            log.warning("not everything was delivered and counted: %s", error)
        finally:
            await self.topology.close()

    async def maintain(self, allowance: Allowance = UNLIMITED) -> SweepReport:
        """One sweep, and behind it what `onward` and the advisor are asked: in the
        report that is `still_owed`.
        """
        report = await self.maintenance.sweep(allowance)
        await self.conversations.onward.asked()
        await self.enriching.asked()
        return report

    async def end_session(
        self, tenant: str, scope: Scope, owing: Sequence[Record] | None = None
    ) -> PromotionReport:
        """See `Endings.end`. What an advisor is asked about is waited for, up to the
        deadline: such entries do not move.
        """
        await self.enriching.tried_in(
            Partition(tenant, scope.text), self.placement.settings.deadline.total_seconds()
        )
        return await self.endings.end(tenant, scope, owing)

    async def plan(self) -> Plan:
        """What a sweep run now would do. What was written here is delivered and what
        was read here told to the stores, for rules that ask; nothing else is written.
        """
        await self.deliveries.flush()
        await self.accesses.tell()
        due = PlannedDue(
            self.placement,
            due=self.maintenance.due,
            erasure=self.erasure,
            onward=self.conversations.onward,
            endings=self.endings,
            promotion=self.promotion,
        )
        reads_texts = self.judging.reads_texts or self.retention.reads_texts
        return await plan_of(self.placement, [due, *self.planners], self.quotas, reads_texts=reads_texts)

    async def _user_of(self, tenant: str, session_id: str, entry_id: str) -> str | None:
        """Whose an entry of a session is: of one that was learnt in a shared session,
        the user who said what it was made of.
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
        """The scope of an entry, expired and retired ones too. Raises `NotFound` where
        there is none.
        """
        located = await self.placement.locate(ENTRIES, Key(tenant, entry_id)) if is_id(entry_id) else None
        if located is None or located.record is None:
            raise NotFound(entry_id)
        return located.record.scope

    async def delete(self, tenant: str, entry_id: str) -> DeletedEntry:
        """Delete one entry; a false answer where there was none. Raises `LegalHoldActive` where it
        is under legal hold.
        """
        if not is_id(entry_id):
            return DeletedEntry(0)
        key = Key(tenant, entry_id)
        async with self.turns.take(ENTRIES, key, Patience(self.placement, entry_id)):
            return await self.derivatives.delete(key)
