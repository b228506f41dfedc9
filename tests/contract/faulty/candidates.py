"""Lying stores: candidates that are too many, too few, or measured by something else
than they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from memory.adapters.in_memory import InMemoryStore
from memory.ports.candidates import CandidateColumns, Candidates, take_rows
from memory.ports.contract.support import ELSEWHERE, HERE
from memory.ports.query import within
from memory.ports.record import Record, Role
from memory.ports.writes import Outcome, Put, Write
from tests.contract.faulty.registry import PerWrite, faulty_adapter

MEASURED = "test_candidates_are_what_was_asked_for_measured_by_what_they_say"
FOLLOWING = "test_candidates_follow_every_write_at_once"
MANY = "test_candidates_bring_no_more_than_the_question_lets_through_however_many_match"
REFUSED = "test_a_question_that_cannot_be_asked_is_refused"


class _Asks(InMemoryStore):
    """Answers another question than it was asked."""

    def instead(self, asked: Candidates) -> Candidates:
        raise NotImplementedError

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return await super()._candidates(self.instead(asked))


class _Tells(InMemoryStore):
    """Tells something else than it has found."""

    def told(self, found: CandidateColumns) -> CandidateColumns:
        raise NotImplementedError

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        return self.told(await super()._candidates(asked))


@faulty_adapter(MEASURED)
class BringsNoNeighbours(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, around=None)


@faulty_adapter(MEASURED)
class ReachesTooShort(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, around=asked.around and replace(asked.around, reach=1))


@faulty_adapter(MEASURED)
class ForgetsWhoIsNamed(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, among=())


@faulty_adapter(MEASURED)
class AsksByWordsAlone(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, near=None, dimensions=asked.width)


@faulty_adapter(MEASURED)
class AsksByMeaningAlone(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, text="")


@faulty_adapter(MEASURED)
class ForgetsTheFilter(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, filter=None)


@faulty_adapter(MEASURED)
class CountsWithoutWeights(_Tells):
    def told(self, found: CandidateColumns) -> CandidateColumns:
        return replace(found, counts=(found.counts > 0).astype("float64"))


@faulty_adapter(MEASURED)
class TellsLengthsOfTheCounted(_Tells):
    def told(self, found: CandidateColumns) -> CandidateColumns:
        return replace(found, lengths=found.counts.sum(axis=1).astype("int64"))


@faulty_adapter(MEASURED)
class NormalisesVectors(_Tells):
    def told(self, found: CandidateColumns) -> CandidateColumns:
        return replace(found, vectors=(found.vectors / 2).astype("float32"))


@faulty_adapter(MEASURED)
class CountsWhatTheFilterLetsThrough(_Tells):
    def told(self, found: CandidateColumns) -> CandidateColumns:
        return replace(found, statistics=replace(found.statistics, documents=len(found)))


@faulty_adapter(MEASURED)
class LeavesOutStemsThatNobodyHas(_Tells):
    def told(self, found: CandidateColumns) -> CandidateColumns:
        containing = {stem: number for stem, number in found.statistics.containing.items() if number}
        return replace(found, statistics=replace(found.statistics, containing=containing))


@faulty_adapter(MEASURED)
class BringsSomeTwice(_Tells):
    def told(self, found: CandidateColumns) -> CandidateColumns:
        return take_rows(found, [*range(len(found)), *range(min(1, len(found)))])


@faulty_adapter(MEASURED)
class LooksIntoOtherScopes(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, where=within(HERE, ELSEWHERE))


@faulty_adapter(MEASURED)
class BringsEveryRole(_Asks):
    def instead(self, asked: Candidates) -> Candidates:
        return replace(asked, roles=asked.roles | {Role.REPLICA})


@faulty_adapter(FOLLOWING)
class AnswersAsBefore(InMemoryStore):
    _kept: CandidateColumns | None = None

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        self._kept = self._kept or await super()._candidates(asked)
        return self._kept


@faulty_adapter("test_candidates_are_measured_by_the_vector_that_a_version_has_by_now")
class RemembersVectorsByVersion(InMemoryStore):
    _remembered: Mapping[tuple[str, int, int], Any] = {}

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        found = await super()._candidates(asked)
        keys = [
            (record_id, version, asked.width)
            for record_id, version in zip(found.ids, found.versions, strict=True)
        ]
        self._remembered = dict(zip(keys, found.vectors, strict=True)) | dict(self._remembered)
        vectors = [self._remembered[key] for key in keys]
        return replace(found, vectors=np.array(vectors, np.float32).reshape(found.vectors.shape))


@faulty_adapter("test_a_version_may_get_another_vector_also_of_other_dimensions_and_is_found_by_that_alone")
class KeepsTheVectorOfAVersion(PerWrite):
    def lie(self, write: Write) -> Outcome:
        stands = self.state.fetch_stored(write.collection.name, write.key) if isinstance(write, Put) else None
        if isinstance(write, Put) and isinstance(stands, Record) and stands.version == write.record.version:
            write = replace(write, record=replace(write.record, vector=stands.vector))
        return super().lie(write)


@faulty_adapter(MANY)
class FiltersBehindTheLimit(InMemoryStore):
    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        there = await super()._candidates(replace(asked, limit=max(1, asked.limit // 10), filter=None))
        passing = set((await super()._candidates(asked)).ids)
        return take_rows(there, [row for row, one in enumerate(there.ids) if one in passing])


@faulty_adapter(REFUSED)
class RefusesNothing(InMemoryStore):
    async def candidates(self, asked: Candidates) -> CandidateColumns:
        try:
            return await super().candidates(asked)
        except Exception:  # noqa: BLE001
            return await self._candidates(
                replace(asked, text="", near=None, among=(), around=None, filter=None, select=frozenset())
            )
