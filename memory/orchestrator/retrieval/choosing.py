"""A ranked pool on its way to hits: the best are read, and what is gone, hidden or no
longer matching makes room for the next.
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
"""Candidates of each way that are asked for, however few are wanted (D82)."""
READ_FOR_TYPOS = 50
"""Of so many of the best the texts are searched for what was meant by words that
nothing holds.
"""
READ_FOR_CLOSENESS = 50
"""Of so many of the best, those that hold every word of the question are read, to see
how close these stand.
"""
OTHER_METADATA = "other_metadata"
NOT_CONFIRMED = "not_confirmed"
"""Why a hit is left out whose store did not answer again."""
WITHHELD = "withheld"
"""Why one is that the recall gate did not let out."""


def initial_width(limit: int) -> int:
    """How many candidates of each way are asked for at first, where so many hits are
    wanted.
    """
    return min(max(3 * limit, AT_LEAST), MAX_LIMIT)


class HitReader(Protocol[T, H_co]):
    """Reads what rows of the pool are of, and makes hits of it."""

    async def read(self, rows: Sequence[int]) -> tuple[Mapping[int, T], Mapping[int, str]]:
        """What may be shown, and of the other rows why they may not."""
        ...

    def texts_of(self, row: int, one: T) -> Sequence[str]:
        """What it says, as far as it is found by that."""
        ...

    def hit(self, row: int, one: T, value: Value, explanation: dict[str, Any]) -> H_co:
        """Return a record as a hit. An explanation that is empty was not asked for."""
        ...


class JoinedReader:
    """Reads the rows of two pools as one: those of the second are behind the first's."""

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
    """What is read is read once: what may be shown, and that whose words may stand
    close together.
    """

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
        """Words of the question that nothing asked holds, and what was probably meant,
        by the texts of what was found otherwise.
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
        """Read the best until all that are to be shown have been."""
        await self._look_closer()
        while unread := [row for row in self._best if row not in self._there]:
            await self._read(unread)

    @property
    def _best(self) -> list[int]:
        return [row for row in self._rows if row not in self._gone][: self._asked.limit]

    @property
    def wants_more(self) -> bool:
        """Whether what was left out after reading left room that a wider question may
        fill. Who cannot be confirmed makes none.
        """
        return (
            self._full
            and len(self._best) < self._asked.limit
            and any(why != NOT_CONFIRMED for why in self._gone.values())
        )

    async def _look_closer(self) -> None:
        """Of the best, those that hold all words of the question: how close together
        they stand (D59, D60).
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
        """The hits, best first."""
        corrected = {"corrected": dict(self._question.corrections)} if self._question.corrections else {}
        async for place, row in iterate_cooperatively(list(enumerate(self._best, start=1))):
            explanation = {"rank": place, **self._ranked.explain(row), **corrected} if explain else {}
            yield self._reading.hit(row, self._there[row], self._ranked.value(row), explanation)

    def left_out(self) -> dict[str, Any]:
        """What was found and is not shown: how many for their relevance, the limit or
        their metadata, and which for what was read of them.
        """
        answering = len(self._ranked.relevant_rows())
        named = {
            why: sorted(self._pool.ids[row] for row, of in self._gone.items() if of == why)
            for why in self._gone.values()
        }
        counted = {
            "below_min_relevance": answering - len(self._rows),
            "beyond_limit": len(self._rows) - len(self._gone) - len(self._best),
            OTHER_METADATA: len(named.pop(OTHER_METADATA, ())),
        }
        return {why: value for why, value in {**counted, **named}.items() if value}


async def choose_hits(
    question: Question, limit: int, choosing: Callable[[Question, int], Awaitable[HitSelection[T, H] | None]]
) -> HitSelection[T, H] | None:
    """What is chosen of the candidates that there are for a question and so many of
    each way: typos are read as what was meant, and more are asked for where there is
    room for them. None where nothing is found.
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
