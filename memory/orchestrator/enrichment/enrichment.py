"""Enrichment: an advisor adds tags to an entry, and names older entries to supersede.

It runs after the write, and never delays it.

The write adds a pending step to the entry's own record. The writing process calls the
advisor at once, in the background. If that fails or the process dies, sweeps try again
at growing intervals. In the end the entry's notes say why there is no enrichment.

The answer is applied to the entry in one write, on condition that the entry still has
the version for which it was made. The new tags follow the existing ones, and the body
records the result. A step links and retires the named entries (see `SupersedeWriter`),
each only at the version that was shown. `updated_at` stays, because nobody has edited
the entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from memory.domain import ids
from memory.domain.enrichment import (
    NOTES,
    STILL_PENDING,
    AdviceCost,
    AutoSupersede,
    AutoTag,
    Enrichment,
    Pass,
)
from memory.domain.entry import Entry
from memory.domain.errors import MemoryTiersError, RejectedByGate, StoreError, error_text
from memory.domain.relation_labels import SUPERSEDES
from memory.domain.scope import Scope
from memory.domain.time import micros, moment
from memory.domain.validation import MAX_LIMIT
from memory.domain.versions import stored_version
from memory.orchestrator.enrichment.superseding import SUPERSEDE
from memory.orchestrator.entries.derivatives import CONFIRM_NOTES
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.relations import MADE_BY, NOTE, Relations
from memory.orchestrator.retrieval.search import EntrySearch
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.deliveries import Deliveries
from memory.orchestrator.storage.entry_records import apply_changes, entry_of, said_by
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord, StepLifetime
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.sources import with_notes
from memory.orchestrator.storage.versions import version_at
from memory.policies import enrichment as policy
from memory.policies.advisor_prompts import read_reply
from memory.policies.entry_query import EntryQuery
from memory.policies.visibility import is_current, is_expired
from memory.ports.advisor import Advisor, Prompt
from memory.ports.concurrency import each_at_once
from memory.ports.record import Key, Partition, PendingStep, Record

log = logging.getLogger(__name__)

ENRICH = "enrich"
"""The pending step of an entry: its enrichment."""
AUTO_SUPERSEDE = "supersede:auto"
"""The id of the step that supersedes the entries which an advisor named."""

AGAIN_AFTER, AT_MOST = timedelta(minutes=1), timedelta(hours=1)
"""The wait after an advisor failed on an entry, and its maximum. It doubles after each
failure.
"""
MOST_ATTEMPTS = 5
"""How often one process calls the advisor about an entry."""
GIVES_UP_AFTER = timedelta(days=1)
"""How long after a write the advisor is called, by all processes together."""
AT_ONCE = 4
"""The number of entries that are enriched at once."""
MOST_WAITING = 10_000
"""The maximum number of waiting entries. Further ones are left to sweeps."""


class Watcher(Protocol):
    """Receives the calls of advisors. See `Telemetry`."""

    def on_advice(
        self, of: Pass, model: str, seconds: float, tokens: Mapping[str, int | None] | None
    ) -> None:
        """Called after one call of an advisor.

        `tokens` has the used tokens ("input", "output") if the advisor reports them. It
        is None if the advisor did not answer.
        """
        ...


@dataclass(slots=True)
class _AdvisorAnswers:
    """The advisor's answers about an entry in this process so far.

    `again` is the time from which the advisor may be called again.
    """

    tags: str | None = None
    candidates: tuple[tuple[str, int], ...] = ()
    """The entries that it was shown, by id, with their versions."""
    said: policy.SupersedeReply | None = None
    stands: str | None = None
    """Why the advisor was not asked which entries to supersede."""
    why: str = "no process with an advisor was available"
    costs: list[AdviceCost] = field(default_factory=list)
    times: int = 0
    again: datetime | None = None
    text: str | None = None
    """The text for which the tags were requested; None if they were not."""

    def lacks(self, wanted: Sequence[Pass]) -> bool:
        return ("auto_tag" in wanted and self.tags is None) or (
            "auto_supersede" in wanted and self.said is None and self.stands is None
        )


class Enricher:
    """Adds an advisor's tags to entries and supersedes older entries."""

    def __init__(
        self,
        placement: Placement,
        *,
        entries: Entries,
        relations: Relations,
        entry_search: EntrySearch,
        deliveries: Deliveries,
        outbox: Outbox,
        advisor: Advisor | None,
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._relations = relations
        self._entry_search = entry_search
        self._advisor = advisor
        self._taking = False
        self._context = Context()
        self._waiting: dict[Key, asyncio.Event] = {}
        self._under_way: dict[Key, asyncio.Event] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._asked: OrderedDict[Key, _AdvisorAnswers] = OrderedDict()
        self.watcher: Watcher | None = None
        outbox.register(ENRICH, self._found_owing, StepLifetime.DELETED)
        deliveries.beside[ENRICH] = self.hear

    def pending_steps(self, wanted: Sequence[Pass]) -> tuple[PendingStep, ...]:
        """Return the pending steps of a write that wants these passes.

        Empty if there is no advisor.
        """
        if self._advisor is None or not wanted:
            return ()
        until = self._placement.now() + GIVES_UP_AFTER
        return (PendingStep(ENRICH, ENRICH, {"wanted": list(wanted), "until": micros(until)}),)

    # -- life --------------------------------------------------------------------------

    def open(self) -> None:
        """Accept entries, on the running event loop.

        Spans of enrichment belong to the context that called `open`, and to no write.
        """
        self._waiting, self._under_way, self._tasks = {}, {}, set()
        self._taking, self._context = True, copy_context()

    async def close(self) -> None:
        """Wait for running calls, as long as an advisor may take.

        Enrichment that is not done then stays pending.
        """
        self._taking = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._placement.settings.advice.total_seconds()):
                    await self.drain()
        finally:
            for task in (tasks := set(self._tasks)):
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            for event in self._waiting.values():
                event.set()
            self._waiting = {}

    async def drain(self) -> None:
        """Wait until all entries that writes and sweeps have found here were tried."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def wait_until_tried(self, key: Key, seconds: float) -> None:
        """Wait until a pending entry was tried, for at most this many seconds."""
        if (event := self._waiting.get(key) or self._under_way.get(key)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()

    async def wait_until_tried_in(self, partition: Partition, seconds: float) -> None:
        """Wait until all pending entries of this partition were tried.

        Wait at most this many seconds.
        """
        digest = ids.partition_digest(partition.tenant, partition.scope)
        there = [
            key
            for key in (*self._waiting, *self._under_way)
            if key.tenant == partition.tenant and ids.digest_of(key.id) == digest
        ]
        await each_at_once(self.wait_until_tried(key, seconds) for key in there)

    # -- what is to be done ------------------------------------------------------------

    async def _found_owing(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Queue an entry that a sweep, or another caller of the outbox, has found.

        The caller continues without the answer.
        """
        if not isinstance(pending.owner, Record):
            return True
        self.hear(pending)
        return False

    def hear(self, pending: OutboxRecord) -> None:
        """Queue an entry whose enrichment is pending."""
        key, owner = pending.owner.key, pending.owner
        if (
            not self._taking
            or not isinstance(owner, Record)
            or key in self._waiting
            or key in self._under_way
            or len(self._waiting) >= MOST_WAITING
        ):
            return
        asked, now = self._asked.get(key), self._placement.now()
        left_alone = asked is not None and asked.again is not None and now < asked.again
        if (left_alone or self._advisor is None) and not _is_over(owner, now):
            return
        self._waiting[key] = asyncio.Event()
        if len(self._tasks) < AT_ONCE:
            task = asyncio.get_running_loop().create_task(
                self._run(), name="memory-enrichment", context=self._context
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            self._under_way[key] = event = self._waiting.pop(key)
            try:
                await self._enrich(key)
            except MemoryTiersError as error:
                log.info("entry %s is not enriched yet: %s", key.id, error)  # a sweep finds it again
            except Exception:
                log.exception("entry %s is not enriched yet", key.id)
            finally:
                del self._under_way[key]
                event.set()

    async def _enrich(self, key: Key) -> None:
        home = (await self._placement.locate(ENTRIES, key)).home()
        wanted = () if home is None else wanted_by(home[0])
        if home is None or not wanted:
            self._asked.pop(key, None)
            return
        record, asked = home[0], self._asked.pop(key, None) or _AdvisorAnswers()
        if self._stands(record) and self._advisor is not None:
            self._asked[key] = asked
            await self._ask(self._advisor, record, wanted, asked)
            if asked.lacks(wanted):
                asked.again = self._placement.now() + min(AGAIN_AFTER * 2**asked.times, AT_MOST)
                asked.times += 1
                if asked.times < MOST_ATTEMPTS and not _is_over(record, self._placement.now()):
                    while len(self._asked) > MOST_WAITING:
                        self._asked.popitem(last=False)
                    return
        await self._entries.rewrite(key, partial(self._apply_answer, asked), settles=frozenset({ENRICH}))
        self._asked.pop(key, None)

    # -- asking ------------------------------------------------------------------------

    async def _ask(
        self, advisor: Advisor, record: Record, wanted: Sequence[Pass], asked: _AdvisorAnswers
    ) -> None:
        """Ask for the missing answers, at once."""
        calls = []
        if "auto_tag" in wanted and asked.tags is None:
            calls.append(self._ask_for_tags(advisor, record, asked))
        if "auto_supersede" in wanted and asked.said is None:
            calls.append(self._ask_what_to_supersede(advisor, record, asked))
        await each_at_once(calls)

    async def _ask_for_tags(self, advisor: Advisor, record: Record, asked: _AdvisorAnswers) -> None:
        asked.text = "\n".join(said_by(record))
        asked.tags = await self._advice(advisor, "auto_tag", policy.tag_prompt(entry_of(record)), asked)

    async def _ask_what_to_supersede(self, advisor: Advisor, record: Record, asked: _AdvisorAnswers) -> None:
        asked.stands = None
        if record.previous is not None:
            asked.stands = policy.EDITED
        elif not await self._entries.trust.may_end_others(record.key.tenant, record):
            asked.stands = policy.FROM_BLOCKED_SOURCE
        else:
            try:
                candidates = await self._candidates(record)
            except StoreError as error:
                asked.why = str(error)
                return
            if not candidates:
                asked.stands = policy.NO_CANDIDATES
                return
            asking = policy.supersede_prompt(entry_of(record), candidates, self._placement.now())
            reply = await self._advice(advisor, "auto_supersede", asking, asked)
            asked.candidates = tuple((one.id, stored_version(one.version)) for one in candidates)
            asked.said = None if reply is None else policy.parse_supersede_reply(reply, len(candidates))

    async def _candidates(self, record: Record) -> list[Entry]:
        """Return older entries of the same scope and type that match its title.

        They are sorted best first, in the current state of their primary store.
        """
        entry = entry_of(record)
        asked = EntryQuery(
            entry.tenant, (Scope.parse(record.scope),), types=(entry.type.value,), limit=policy.LOOKED_AT
        )
        found = [
            hit.entry.id
            for hit in await self._entry_search.search(asked, policy.near_text(entry))
            if hit.entry.id != entry.id
        ]
        located = await self._placement.locate_many(
            ENTRIES, [Key(entry.tenant, one) for one in found], partial=True
        )
        homes = await self._entries.trust.visible(
            entry.tenant, [home[0] for at in located if (home := at.home()) is not None]
        )
        return [entry_of(one) for one in homes if self._may_be_superseded(one, record)][: policy.CANDIDATES]

    def _may_be_superseded(self, one: Record, to: Record) -> bool:
        alike = one.scope == to.scope and one.fields["type"] == to.fields["type"]
        return (
            alike
            and self._stands(one)
            and policy.is_older((one.created_at, one.key.id), (to.created_at, to.key.id))
        )

    async def _advice(self, advisor: Advisor, of: Pass, prompt: Prompt, asked: _AdvisorAnswers) -> str | None:
        """Return an advisor's answer; None if it fails or is late."""
        time = asyncio.get_running_loop().time
        begun, reply, cost = time(), None, None
        try:
            async with asyncio.timeout(self._placement.settings.advice.total_seconds()):
                answer = await advisor.advise(prompt)
        except Exception as error:  # noqa: BLE001 - the code is foreign, and no write fails for it
            asked.why = "it was late" if isinstance(error, TimeoutError) else error_text(error)
            log.warning("advisor %s gave no answer: %s", advisor.model, asked.why)
        else:
            cost = AdviceCost(
                of, advisor.model, _count(answer, "input_tokens"), _count(answer, "output_tokens")
            )
            asked.costs.append(cost)
            if (reply := read_reply(answer)) is None:
                asked.why = "it answered with an error"
        if self.watcher is not None:
            tokens = None if cost is None else {"input": cost.input_tokens, "output": cost.output_tokens}
            self.watcher.on_advice(of, advisor.model, time() - begun, tokens)
        return reply

    # -- what becomes of it ------------------------------------------------------------

    def _stands(self, record: Record) -> bool:
        now = self._placement.now()
        return is_current(record, now) and not is_expired(record, now)

    async def _apply_answer(self, asked: _AdvisorAnswers, record: Record) -> Record | None:
        """Return the current entry with the answer applied.

        None if the enrichment is not pending any more.
        """
        if not (wanted := wanted_by(record)):
            return None
        now, notes = self._placement.now(), dict[str, Any]()
        model = None if self._advisor is None else self._advisor.model
        tags: list[str] | None = None
        steps: tuple[PendingStep, ...] = ()
        if "auto_tag" in wanted:
            tags, added, note = await self._choose_tags(asked, record)
            notes["auto_tag"] = {"model": model, "added": added, "note": note}
        if "auto_supersede" in wanted:
            named, note = self._entries_to_supersede(asked, record)
            shown = [one for one, _ in asked.candidates]
            notes["auto_supersede"] = {
                "model": model,
                "candidates": shown,
                "named": list(named),
                "note": note,
            }
            data: dict[str, Any] = {
                "ids": list(named),
                "at": micros(now),
                "versions": named,
                "said": {MADE_BY: model, NOTE: note},
            }
            steps = (
                (
                    PendingStep(AUTO_SUPERSEDE, SUPERSEDE, data),
                    PendingStep(CONFIRM_NOTES, CONFIRM_NOTES, {"shown": shown}),
                )
                if named
                else ()
            )
            record = with_notes(record, shown if named else ())
        notes["costs"] = [cost.to_dict() for cost in asked.costs]
        new = apply_changes(
            record, {} if tags is None else {"tags": tags}, version=version_at(now, record.version)
        )
        return replace(new, updated_at=record.updated_at, body={**new.body, NOTES: notes}, owed=steps)

    async def _choose_tags(
        self, asked: _AdvisorAnswers, record: Record
    ) -> tuple[list[str] | None, list[str], str | None]:
        """Return all tags of the entry if they change, the added ones, and a note.

        The note says why no tags are added.
        """
        if not self._stands(record):
            return None, [], policy.RETIRED
        if asked.tags is not None and asked.text != "\n".join(said_by(record)):
            return None, [], policy.EDITED_TAGS
        if asked.tags is None:
            return None, [], policy.unavailable("auto_tag", asked.why)
        given = entry_of(record).tags
        if not (added := policy.tags(asked.tags, given)):
            return None, [], policy.NO_TAGS
        if (tags := policy.merge_tags(given, added)) is None:
            return None, [], policy.TOO_MANY_TAGS
        trust, changes = self._entries.trust, {"tags": tags}
        try:
            changes = (
                await trust.let_change(record.key.tenant, record, changes)
                if trust.asks_of(changes)
                else changes
            )
        except RejectedByGate:
            return None, [], policy.REFUSED_TAGS
        return changes["tags"], [tag for tag in changes["tags"] if tag not in given], None

    def _entries_to_supersede(
        self, asked: _AdvisorAnswers, record: Record
    ) -> tuple[dict[str, int], str | None]:
        """Return the entries to supersede, with the shown versions, and a note."""
        if not self._stands(record):
            return {}, policy.RETIRED
        if record.previous is not None:
            return {}, policy.EDITED
        if asked.stands is not None:
            return {}, asked.stands
        if asked.said is None:
            return {}, policy.unavailable("auto_supersede", asked.why)
        named = dict(asked.candidates[place] for place in asked.said.places)
        return named, asked.said.note if named else policy.NONE_NAMED

    # -- told --------------------------------------------------------------------------

    async def load_enrichment(self, tenant: str, entry_id: str) -> tuple[Record, Enrichment]:
        """Return an entry, retired or not, with the state of its enrichment.

        Raises:
            NotFound: There is no such entry.
        """
        record = await self._entries.live_record(tenant, entry_id, active=False)
        model = None if self._advisor is None else self._advisor.model
        if wanted := wanted_by(record):
            asked = self._asked.get(record.key)
            notes = {of: _still_pending(of, asked) for of in wanted}
            return record, Enrichment(
                AutoTag(model, note=notes["auto_tag"]) if "auto_tag" in notes else None,
                AutoSupersede(model, note=notes["auto_supersede"]) if "auto_supersede" in notes else None,
                () if asked is None else tuple(asked.costs),
                pending=True,
            )
        told: Any = record.body.get(NOTES) or {}
        tagged, owed = told.get("auto_tag"), any(owed.id == AUTO_SUPERSEDE for owed in record.owed)
        return record, Enrichment(
            None
            if tagged is None
            else AutoTag(tagged["model"], bool(tagged["added"]), tuple(tagged["added"]), tagged["note"]),
            await self._supersede_report(record, told.get("auto_supersede"), owed),
            tuple(AdviceCost(**cost) for cost in told.get("costs", ())),
            owed,
        )

    async def _supersede_report(self, record: Record, told: Any, owed: bool) -> AutoSupersede | None:
        """Return the report on superseded entries.

        These are the entries that the advisor named and that are linked to the entry.
        """
        if told is None or not told["named"]:
            return (
                None
                if told is None
                else AutoSupersede(told["model"], False, tuple(told["candidates"]), (), told["note"])
            )
        links = await self._relations.find(
            record.key.tenant, source_id=record.key.id, label=SUPERSEDES, limit=MAX_LIMIT
        )
        linked = {link.target_id for link in links if link.made_by is not None}
        gone = tuple(one for one in told["named"] if one in linked)
        stands = [one for one in told["named"] if one not in linked]
        if told["note"] == policy.ERASED_NOTE:
            return AutoSupersede(
                told["model"], bool(gone), tuple(told["candidates"]), gone, policy.ERASED_NOTE
            )
        note = (
            STILL_PENDING
            if owed
            else f"(changed since it was shown, so it stays active: {', '.join(stands)})"
            if stands
            else told["note"]
        )
        return AutoSupersede(told["model"], bool(gone), tuple(told["candidates"]), gone, note)


def wanted_by(record: Record) -> tuple[Pass, ...]:
    """Return the passes whose enrichment is pending for an entry."""
    return next((tuple(owed.data["wanted"]) for owed in record.owed if owed.step == ENRICH), ())


def _still_pending(of: Pass, asked: _AdvisorAnswers | None) -> str:
    if asked is None or not asked.times or not asked.lacks((of,)):
        return STILL_PENDING
    return f"{policy.unavailable(of, asked.why)} {STILL_PENDING}"


def _is_over(record: Record, now: datetime) -> bool:
    return any(owed.step == ENRICH and moment(owed.data["until"]) <= now for owed in record.owed)


def _count(answer: object, name: str) -> int | None:
    """Return the number of tokens that an answer reports."""
    count = getattr(answer, name, None)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None
