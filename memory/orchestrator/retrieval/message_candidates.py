"""Messages as candidates.

They have the fields of the log and the vector of their nearest passage, in columns that
rank like those of entries.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memory.domain.errors import MemoryTiersError
from memory.domain.scope import Scope, ScopeKind
from memory.orchestrator.conversations.log.passages import OF_MESSAGES, Passages, first_of
from memory.orchestrator.embeddings.passages import FoundPassage, by_record
from memory.orchestrator.storage.collections import MESSAGES, PASSAGES
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.session_keys import message_time, scope_of, sessions_of
from memory.orchestrator.storage.steps import step
from memory.policies.entry_query import EntryQuery, SearchMode
from memory.policies.question import Question
from memory.policies.ranking.constants import CONTENT
from memory.policies.ranking.fields import BESIDE
from memory.policies.visibility import period_bounds
from memory.ports.candidate_scan import stack_vectors
from memory.ports.candidates import CandidateColumns, Candidates, concatenate, take_rows
from memory.ports.query import Condition, Ge, IsNull, Lt, Not, Partitions, Tenant, all_of, within
from memory.ports.record import Partition

log = logging.getLogger(__name__)

MADE_FIRST = 500
"""How many of the newest messages of this process are made searchable by meaning before
a search.
"""
SELECT = frozenset({"conversation_id", "number_in_conversation", "speaker", "marks", "created_at", "at"})
OF_ENTRIES = ("type", "tags")
"""Fields that ranking reads and messages lack."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """A query for messages.

    `where` has the sessions, and `asked` the condition. The condition may only use
    fields that messages and passages both declare.
    """

    where: Partitions | Tenant
    asked: Condition | None
    mode: SearchMode


def heard_in(asked: EntryQuery) -> MessageQuery | None:
    """Return the message query of a search; None if messages cannot match it.

    It covers the requested sessions, and the sessions of the requested users. Messages
    have no types, tags or metadata, and no past versions.
    """
    if (
        asked.as_of
        or asked.known_at
        or asked.types
        or asked.tags
        or asked.any_tags
        or asked.filter is not None
    ):
        return None
    exact = [scope for scope in asked.scopes if isinstance(scope, Scope)]
    users = tuple(scope.id for scope in exact if scope.kind is ScopeKind.USER)
    sessions = tuple(scope_of(scope.id) for scope in exact if scope.kind is ScopeKind.SESSION)
    if asked.sessions is not None:
        users, sessions = (), tuple(map(scope_of, asked.sessions))
    since = message_time(Ge, asked.since) if asked.since else None
    before = message_time(Lt, asked.before) if asked.before else None
    if users:
        return MessageQuery(
            Tenant(asked.tenant),
            all_of(sessions_of(asked.scopes), since, before),
            asked.mode,
        )
    where = [Partition(asked.tenant, session) for session in sessions]
    return MessageQuery(within(*where), all_of(since, before), asked.mode) if where else None


@dataclass(frozen=True, slots=True, eq=False)
class MessagePool:
    """Candidates as columns.

    `said_at` has the version of the text of each vector.
    """

    measured: CandidateColumns
    said_at: Mapping[str, int]
    full: bool
    """Whether a wider query may find more."""


class MessageCandidateCollector:
    """Reads messages from the archive, and passages from the passages' store."""

    def __init__(self, placement: Placement, passages: Passages) -> None:
        self._placement = placement
        self._passages = passages

    async def ready(self) -> None:
        """Make the newest messages of this process searchable by meaning."""
        if self._passages.store is None:
            return
        try:
            await self._passages.catch_up(MADE_FIRST)
        except MemoryTiersError as error:
            log.info("the latest messages are not found by meaning yet: %s", error)

    async def gather(
        self, heard: MessageQuery, question: Question, near: bytes | None, limit: int, lacking: AnswerGaps
    ) -> MessagePool:
        """Return up to `limit` messages of each way of search, with their neighbours.

        As many more are of the period that the question names.

        If the store of passages fails, messages found by words are returned all the
        same.
        """
        by_words = heard.mode != "semantic"
        if near and (lacks := self._passages.lacks) is not None:
            lacking.say(lacks)
        today = self._placement.now().date()
        conditions = [heard.asked]
        if (period := question.period(today)) is not None:
            begin, end = period_bounds(period, today)
            conditions.append(all_of(heard.asked, message_time(Ge, begin), message_time(Lt, end)))
        parts = dict[str, FoundPassage]()
        for condition in conditions if near else ():
            parts |= await self._nearest(replace(heard, asked=condition), near or b"", limit, lacking)
        asked = [
            Candidates(
                MESSAGES,
                heard.where,
                question.search_text if by_words else "",
                limit=limit,
                among=tuple(parts),
                around=BESIDE,
                counted=question.stems if by_words else (),
                filter=all_of(condition, Not(IsNull("number_in_conversation"))),
                select=SELECT,
                statistics=by_words and condition is heard.asked,
            )
            for condition in conditions
        ]
        with step("messages.search"):
            answers = [await self._placement.topology.archive.candidates(one) for one in asked]
        found = _each_once(concatenate(answers))
        others = [i for i in found.ids if i not in parts]
        parts |= await self._firsts(heard, others, near, lacking) if near and others else {}
        return MessagePool(
            _ranked_alike(found, parts, near),
            {i: part.said_at for i, part in parts.items()},
            any(len(answer) >= limit for answer in answers),
        )

    async def _nearest(
        self, heard: MessageQuery, near: bytes, limit: int, lacking: AnswerGaps
    ) -> dict[str, FoundPassage]:
        """Return the nearest passage of each message that is found by meaning."""
        found = await self._search_passages(
            Candidates(PASSAGES, heard.where, near=near, limit=limit, filter=heard.asked), near, lacking
        )
        return {message: part for message, part in found.items() if part.cosine > 0}

    async def _firsts(
        self, heard: MessageQuery, messages: Sequence[str], near: bytes, lacking: AnswerGaps
    ) -> dict[str, FoundPassage]:
        """Return the first passages of the other messages."""
        firsts = Candidates(
            PASSAGES, heard.where, among=tuple(map(first_of, messages)), dimensions=len(near) // 4
        )
        return await self._search_passages(firsts, near, lacking)

    async def _search_passages(
        self, asked: Candidates, near: bytes, lacking: AnswerGaps
    ) -> dict[str, FoundPassage]:
        """Return the nearest found passage of each message."""
        store, named = self._passages.store, OF_MESSAGES.named
        if store is None:
            return {}
        asked = replace(
            asked,
            filter=all_of(asked.filter, self._passages.own),
            select=frozenset({named, "part"}),
            statistics=False,
        )
        with step("passages.search"):
            found = await lacking.try_call(self._placement, store, store.candidates(asked), shows=False)
        return (
            {}
            if found is None
            else {message: parts[0] for message, parts in by_record(near, found, named).items()}
        )


def _each_once(found: CandidateColumns) -> CandidateColumns:
    rows = {record_id: row for row, record_id in enumerate(found.ids)}
    return found if len(rows) == len(found) else take_rows(found, list(rows.values()))


def _ranked_alike(
    found: CandidateColumns, parts: Mapping[str, FoundPassage], near: bytes | None
) -> CandidateColumns:
    """Return the columns as ranking expects them of entries.

    Words weigh as much as in the content of entries. A message is valid from its own
    time, or from the time when it was written.
    """
    fields = dict(found.fields)
    written, own = fields.pop("created_at"), fields.pop("at")
    fields["valid_from"] = [at or created for at, created in zip(own, written, strict=True)]
    fields |= {name: [None] * len(found) for name in OF_ENTRIES}
    vectors = [None if (part := parts.get(i)) is None else part.vector for i in found.ids]
    counts = found.counts * (CONTENT / MESSAGES.weights["content"])
    return replace(found, counts=counts, vectors=stack_vectors(vectors, len(near or b"") // 4), fields=fields)
