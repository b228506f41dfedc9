"""Messages as candidates: what the log has of each, with the vector of its nearest
passage, as columns that rank as those of entries do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memory.domain.errors import MemoryTiersError
from memory.domain.scope import ScopeKind
from memory.orchestrator.conversations.log.passages import OF_MESSAGES, Passages, first_of
from memory.orchestrator.embeddings.passages import FoundPassage, by_record
from memory.orchestrator.storage.collections import MESSAGES, PASSAGES
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.session_keys import scope_of
from memory.orchestrator.storage.steps import step
from memory.policies.entry_query import EntryQuery, SearchMode
from memory.policies.question import Question
from memory.policies.ranking.constants import CONTENT
from memory.policies.ranking.fields import BESIDE
from memory.ports.candidate_scan import stack_vectors
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.query import Condition, Ge, In, IsNull, Lt, Not, Or, Partitions, Tenant, all_of, within
from memory.ports.record import Partition

log = logging.getLogger(__name__)

MADE_FIRST = 500
"""Messages written here, the newest ones, that are made ready to be found by meaning
before a search.
"""
SELECT = frozenset({"conversation_id", "number_in_conversation", "speaker", "marks", "created_at"})
OF_ENTRIES = ("type", "tags")
"""Fields that ranking reads and messages lack."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Of which sessions messages are asked for, what lets them through (`asked` may
    name what messages and passages both declare), and which way.
    """

    where: Partitions | Tenant
    asked: Condition | None
    mode: SearchMode


def heard_in(asked: EntryQuery) -> MessageQuery | None:
    """What was said in the asked sessions and in those with the asked users, where it
    can be what is asked for: messages have neither types nor tags nor metadata, and
    what was true or known at a moment is not told of them.
    """
    if asked.as_of or asked.known_at or asked.types or asked.tags or asked.any_tags or asked.metadata:
        return None
    users = tuple(scope.id for scope in asked.scopes if scope.kind is ScopeKind.USER)
    sessions = tuple(scope_of(scope.id) for scope in asked.scopes if scope.kind is ScopeKind.SESSION)
    since = Ge("created_at", asked.since) if asked.since else None
    before = Lt("created_at", asked.before) if asked.before else None
    if users:
        return MessageQuery(
            Tenant(asked.tenant),
            all_of(Or((In("subject", users), In("scope", sessions))), since, before),
            asked.mode,
        )
    where = [Partition(asked.tenant, session) for session in sessions]
    return MessageQuery(within(*where), all_of(since, before), asked.mode) if where else None


@dataclass(frozen=True, slots=True, eq=False)
class MessagePool:
    """Candidates as columns; of those with a vector, when the message said what that is
    of.
    """

    measured: CandidateColumns
    said_at: Mapping[str, int]
    full: bool
    """Whether there may be more that a wider question would bring."""


class MessageCandidateCollector:
    """Asks the archive for messages, and the store of the passages for what these mean."""

    def __init__(self, placement: Placement, passages: Passages) -> None:
        self._placement = placement
        self._passages = passages

    async def ready(self) -> None:
        """Make what was said here ready to be found by meaning."""
        if self._passages.store is None:
            return
        try:
            await self._passages.catch_up(MADE_FIRST)
        except MemoryTiersError as error:
            log.info("the latest messages are not found by meaning yet: %s", error)

    async def gather(
        self, heard: MessageQuery, question: Question, near: bytes | None, limit: int, lacking: AnswerGaps
    ) -> MessagePool:
        """So many of each way, with what stands beside them. A store of passages that
        fails takes nothing from what is found by words.
        """
        by_words = heard.mode != "semantic"
        if near and (lacks := self._passages.lacks) is not None:
            lacking.say(lacks)
        parts = await self._nearest(heard, near, limit, lacking) if near else {}
        asked = Candidates(
            MESSAGES,
            heard.where,
            question.search_text if by_words else "",
            limit=limit,
            among=tuple(parts),
            around=BESIDE,
            counted=question.stems if by_words else (),
            filter=all_of(heard.asked, Not(IsNull("number_in_conversation"))),
            select=SELECT,
            statistics=by_words,
        )
        with step("messages.search"):
            found = await self._placement.topology.archive.candidates(asked)
        others = [i for i in found.ids if i not in parts]
        parts |= await self._firsts(heard, others, near, lacking) if near and others else {}
        return MessagePool(
            _ranked_alike(found, parts, near),
            {i: part.said_at for i, part in parts.items()},
            len(found) >= limit,
        )

    async def _nearest(
        self, heard: MessageQuery, near: bytes, limit: int, lacking: AnswerGaps
    ) -> dict[str, FoundPassage]:
        """Of the messages found by meaning each one's nearest passage."""
        found = await self._search_passages(
            Candidates(PASSAGES, heard.where, near=near, limit=limit, filter=heard.asked), near, lacking
        )
        return {message: part for message, part in found.items() if part.cosine > 0}

    async def _firsts(
        self, heard: MessageQuery, messages: Sequence[str], near: bytes, lacking: AnswerGaps
    ) -> dict[str, FoundPassage]:
        """The first passages of the others."""
        firsts = Candidates(
            PASSAGES, heard.where, among=tuple(map(first_of, messages)), dimensions=len(near) // 4
        )
        return await self._search_passages(firsts, near, lacking)

    async def _search_passages(
        self, asked: Candidates, near: bytes, lacking: AnswerGaps
    ) -> dict[str, FoundPassage]:
        """Of each message the nearest of what is found."""
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


def _ranked_alike(
    found: CandidateColumns, parts: Mapping[str, FoundPassage], near: bytes | None
) -> CandidateColumns:
    """The columns with what ranking reads of entries, words weighing what those of
    their content do; a message holds from when it was said.
    """
    fields = {name: values for name, values in found.fields.items() if name != "created_at"}
    fields |= {"valid_from": found.fields["created_at"], **{name: [None] * len(found) for name in OF_ENTRIES}}
    vectors = [None if (part := parts.get(i)) is None else part.vector for i in found.ids]
    counts = found.counts * (CONTENT / MESSAGES.weights["content"])
    return replace(found, counts=counts, vectors=stack_vectors(vectors, len(near or b"") // 4), fields=fields)
