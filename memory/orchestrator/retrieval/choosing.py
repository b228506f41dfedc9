"""From a ranked pool to hits.

The best candidates are read. A candidate that is gone, hidden or does not match any
more makes room for the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from memory.policies.entry_query import EntryQuery
from memory.policies.question import Question, read_as
from memory.policies.ranking import closeness
from memory.policies.typos import corrections, unknown_words
from memory.ports.candidates import CandidateColumns
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import MAX_LIMIT

if TYPE_CHECKING:
    from memory.policies.ranking.order import RankedPool, Value

T = TypeVar("T")
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)

AT_LEAST = 50
"""The minimum number of candidates that each way of search is asked for."""
READ_FOR_TYPOS = 50
"""The number of best candidates whose texts are read to correct unknown words of the
question.
"""
READ_FOR_CLOSENESS = 50
"""Among this many best candidates, those with every word of the question are read, to
measure how close together the words are.
"""
FILTERED_OUT = "filtered_out"
"""The reason of candidates that a store returned and that do not pass the filter."""
NOT_CONFIRMED = "not_confirmed"
"""The reason of a missing hit whose store did not answer again."""
NOT_SEARCHABLE = "not_searchable"
"""The reason of entries that no search finds, such as neighbours of found ones."""
WITHHELD = "withheld"
"""The reason of a missing hit that the recall gate withheld."""


def initial_width(limit: int) -> int:
    """Return how many candidates each way of search is asked for at first.

    `limit` is the number of wanted hits.
    """
    return min(max(3 * limit, AT_LEAST), MAX_LIMIT)


class HitReader(Protocol[T, H_co]):
    """Reads the records of a pool's rows, and makes hits of them."""

    async def read(self, rows: Sequence[int]) -> tuple[Mapping[int, T], Mapping[int, str]]:
        """Return the visible records, and for the other rows the reason."""
        ...

    def texts_of(self, row: int, one: T) -> Sequence[str]:
        """Return the texts of a record by which it can be found."""
        ...

    def hit(self, row: int, one: T, value: Value, explanation: dict[str, Any]) -> H_co:
        """Return a record as a hit. An empty explanation was not requested."""
        ...


class JoinedReader:
    """Reads the rows of two pools as one. The rows of the second follow the first."""

    def __init__(self, first: HitReader[Any, Any], count: int, second: HitReader[Any, Any]) -> None:
        self._first, self._count, self._second = first, count, second

    async def read(self, rows: Sequence[int]) -> tuple[Mapping[int, Any], Mapping[int, str]]:
        there, gone = dict[int, Any](), dict[int, str]()
        for start, of in (
            (0, [row for row in rows if row < self._count]),
            (self._count, [row for row in rows if row >= self._count]),
        ):
            if of:
                said, left = await self._of(of[0])[0].read([row - start for row in of])
                there |= {row + start: one for row, one in said.items()}
                gone |= {row + start: why for row, why in left.items()}
        return there, gone

    def texts_of(self, row: int, one: Any) -> Sequence[str]:
        reading, its = self._of(row)
        return reading.texts_of(its, one)

    def hit(self, row: int, one: Any, value: Value, explanation: dict[str, Any]) -> Any:
        reading, its = self._of(row)
        return reading.hit(its, one, value, explanation)

    def _of(self, row: int) -> tuple[HitReader[Any, Any], int]:
        return (self._first, row) if row < self._count else (self._second, row - self._count)


class HitSelection(Generic[T, H]):
    """Selects hits from a ranked pool. Every record is read only once."""

    def __init__(
        self,
        asked: EntryQuery,
        question: Question,
        pool: CandidateColumns,
        ranked: RankedPool,
        reading: HitReader[T, H],
        *,
        full: bool,
        there: Mapping[int, T] | None = None,
        gone: Mapping[int, str] | None = None,
    ) -> None:
        self._asked, self._question, self._pool, self._ranked, self._reading = (
            asked,
            question,
            pool,
            ranked,
            reading,
        )
        self._full = full
        self._there = dict(there or {})
        self._rows = ranked.best_first(ranked.relevant_rows(asked.min_relevance))
        self._gone = {row: gone[row] for row in self._rows if row in gone} if gone else dict[int, str]()

    async def typos(self) -> dict[str, str]:
        """Return the corrections of words of the question that no candidate contains.

        The corrections are words in the texts of the best candidates.
        """
        known = self._pool.statistics.containing
        words = unknown_words(self._question.text, {stem for stem in known if not known[stem]})
        if not words:
            return {}
        best = self._rows[:READ_FOR_TYPOS]
        await self._read([row for row in best if row not in self._there])
        return corrections(
            words,
            [
                said
                for row in best
                if row in self._there
                for said in self._reading.texts_of(row, self._there[row])
            ],
        )

    async def choose(self) -> None:
        """Read the best candidates until all hits have been read.

        Each round reads twice as many as the one before, because a filter may discard
        nearly all of them.
        """
        await self._look_closer()
        ahead = self._asked.limit
        while any(row not in self._there for row in self._best):
            next_best = [row for row in self._rows if row not in self._gone][:ahead]
            await self._read([row for row in next_best if row not in self._there])
            ahead *= 2

    @property
    def _best(self) -> list[int]:
        return [row for row in self._rows if row not in self._gone][: self._asked.limit]

    @property
    def wants_more(self) -> bool:
        """Whether a wider search may fill the gaps of discarded candidates.

        Those are candidates that were left out after reading. Candidates that could not
        be confirmed do not count.
        """
        return (
            self._full
            and len(self._best) < self._asked.limit
            and any(why != NOT_CONFIRMED for why in self._gone.values())
        )

    async def _look_closer(self) -> None:
        """Measure how close together the words of the question are.

        Only the best candidates that have all words are measured.
        """
        if self._asked.mode == "semantic" or len(self._question.stems) < 2:
            return
        holding = self._ranked.rows_with_all_words(self._rows[:READ_FOR_CLOSENESS], self._pool)
        await self._read([row for row in holding if row not in self._there])
        close = {
            row: closeness(self._question, self._reading.texts_of(row, self._there[row]))
            async for row in iterate_cooperatively(holding)
            if row in self._there
        }
        self._ranked.multiply("closeness", close)
        self._rows = self._ranked.best_first(self._rows)

    async def _read(self, rows: Sequence[int]) -> None:
        there, gone = await self._reading.read(rows) if rows else ({}, {})
        self._there |= there
        self._gone |= gone

    async def hits(self, explain: bool) -> AsyncIterator[H]:
        """Yield the hits, best first."""
        corrected = {"corrected": dict(self._question.corrections)} if self._question.corrections else {}
        async for place, row in iterate_cooperatively(list(enumerate(self._best, start=1))):
            explanation = {"rank": place, **self._ranked.explain(row), **corrected} if explain else {}
            yield self._reading.hit(row, self._there[row], self._ranked.value(row), explanation)

    def left_out(self) -> dict[str, Any]:
        """Return the candidates that are not hits, by reason.

        Those below the minimum relevance, beyond the limit or filtered out are counted.
        The others are named by id.
        """
        answering = len(self._ranked.relevant_rows())
        named = {
            why: sorted(self._pool.ids[row] for row, of in self._gone.items() if of == why)
            for why in self._gone.values()
        }
        counted = {
            "below_min_relevance": answering - len(self._rows),
            "beyond_limit": len(self._rows) - len(self._gone) - len(self._best),
            FILTERED_OUT: len(named.pop(FILTERED_OUT, ())),
        }
        return {why: value for why, value in {**counted, **named}.items() if value}


async def choose_hits(
    question: Question, limit: int, choosing: Callable[[Question, int], Awaitable[HitSelection[T, H] | None]]
) -> HitSelection[T, H] | None:
    """Choose the hits among the candidates of a question.

    Unknown words are corrected, and more candidates are requested while there is room
    for hits. None if there are no candidates.
    """
    width = initial_width(limit)
    while (one := await choosing(question, width)) is not None:
        if not question.corrections and (meant := await one.typos()):
            question = read_as(question, meant)
            continue
        await one.choose()
        if not one.wants_more or width == MAX_LIMIT:
            break
        width = min(4 * width, MAX_LIMIT)
    return one
