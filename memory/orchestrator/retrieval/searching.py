"""Searching by words and by meaning, over every tier, each entry once.

Stores answer with columns that are ranked (see `policies.ranking`); what is shown is read from its home, so that a stale copy never shows what was
edited, retired or erased. A store that fails is left out and named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memory.domain.entry import Entry
from memory.domain.shown import Answer, Shown, as_json
from memory.orchestrator.browsing import Browsing, Lacking
from memory.orchestrator.collections import ENTRIES
from memory.orchestrator.entry_records import entry_of, said_by
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.past import locate_each
from memory.orchestrator.placement import Placement
from memory.orchestrator.retrieval.past import Past
from memory.orchestrator.retrieval.pool import Gathering, Pool
from memory.orchestrator.steps import step
from memory.policies.asked import Asked
from memory.policies.asking import Question, read, read_as
from memory.policies.expansion import Expansion
from memory.policies.ranking import closeness
from memory.policies.rerank import Rerank
from memory.policies.typos import corrections, unheard
from memory.policies.visibility import accepts, notes
from memory.ports.pace import paced
from memory.ports.query import MAX_LIMIT
from memory.ports.record import Key, Record, Role, Stored
from memory.ports.store import Store

if TYPE_CHECKING:
    from memory.policies.ranking.order import Ranked

OTHER_METADATA = "other_metadata"
AT_LEAST = 50
"""Candidates of each way that are asked for, however few are wanted (D82)."""
READ_FOR_TYPOS = 50
"""Of so many of the best the texts are searched for what was meant by words that nothing holds."""
READ_FOR_CLOSENESS = 50
"""Of so many of the best, those that hold every word of the question are read, to see how close these stand."""


@dataclass(frozen=True, slots=True, repr=False)
class FoundEntry(Shown):
    """One search hit. `score` says how well it answers, from 0 to 1, and compares across questions: the larger of its likeness in meaning above what
    texts with nothing in common have, and of the part of the question's words that it holds, rare ones counting more. The order of hits is another
    matter: `explanation` tells what it was made of, the ranks on the way, and where the entry lives.
    """

    entry: Entry
    score: float
    explanation: dict[str, Any] = field(default_factory=dict)


class SearchResult(Answer[FoundEntry]):
    """Hits, best first. `degraded` names stores, and advisors that failed. `left_out` tells, of a search that explains, what was found and is not
    shown, by why. `expansion` and `rerank` tell what became of these where they were asked for."""

    def __init__(
        self,
        found: Sequence[FoundEntry] = (),
        degraded: Iterable[str] = (),
        left_out: Mapping[str, Any] | None = None,
        *,
        expansion: Expansion | None = None,
        rerank: Rerank | None = None,
    ) -> None:
        super().__init__(found, degraded)
        self.left_out = dict(left_out or {})
        self.expansion = expansion
        self.rerank = rerank

    def to_dict(self) -> dict[str, Any]:
        told = {"left_out": self.left_out, "expansion": self.expansion, "rerank": self.rerank}
        return super().to_dict() | {name: as_json(value) for name, value in told.items() if value}


class Searching:
    """Search."""

    def __init__(self, placement: Placement, browsing: Browsing, meaning: Meaning) -> None:
        self._placement = placement
        self._browsing = browsing
        self._meaning = meaning
        self._gathering = Gathering(placement, browsing, meaning)
        self._past = Past(placement, browsing, self._gathering, meaning)

    async def search(self, asked: Asked, text: str, *, explain: bool = False) -> SearchResult:
        """The best entries by words and by meaning (see `policies.ranking`). A blank text browses (D54)."""
        if not text.strip():
            browsed = await self._browsing.browse(asked)
            return SearchResult([FoundEntry(e, 0.0, {"tier": e.tier} if explain else {}) for e in browsed], browsed.degraded)
        question, lacking = read(text), Lacking()
        if asked.by != "words" and (lacks := self._meaning.lacks) is not None:
            lacking.say(lacks)
        limit = min(max(3 * asked.limit, AT_LEAST), MAX_LIMIT)
        while True:
            answering = await self._answering(asked, question, limit, lacking)
            if answering is None:
                return SearchResult([], lacking.notes)
            if not question.corrections and (meant := await answering.typos()):
                question = read_as(question, meant)
                continue
            await answering.choose()
            if not answering.wants_more or limit == MAX_LIMIT:
                left_out = answering.left_out() if explain else None
                return SearchResult([hit async for hit in answering.shown(explain)], lacking.notes, left_out)
            limit = min(4 * limit, MAX_LIMIT)

    async def _answering(self, asked: Asked, question: Question, limit: int, lacking: Lacking) -> _Answering | None:
        """The ranked pool; None where there is none."""
        from memory.policies.ranking.order import rank  # calculates with numpy: for who searches

        near = None if asked.by == "words" else await self._meaning.of_query(question.embedded)
        records: dict[int, Record] = {}
        if asked.known_at is None:
            pool = await self._gathering.gather(asked, question, near, limit, lacking)
        elif (past := await self._past.gather(asked, question, near, limit, lacking)) is not None:
            pool, records = past
        else:
            pool = None
        if pool is None or not len(pool.measured):
            return None
        ranked = rank(question, pool.measured, near, asked, self._placement.now())
        return _Answering(self._placement, self._browsing, asked, question, pool, ranked, records, lacking)


class _Answering:
    """A ranked pool on its way to hits. Records are read once, those that may be shown and those whose words may stand close together."""

    def __init__(
        self,
        placement: Placement,
        browsing: Browsing,
        asked: Asked,
        question: Question,
        pool: Pool,
        ranked: Ranked,
        records: dict[int, Record],
        lacking: Lacking,
    ) -> None:
        self._placement, self._browsing = placement, browsing
        self._asked, self._question, self._pool, self._ranked = asked, question, pool, ranked
        self._records, self._lacking = records, lacking
        self._rows = ranked.best_first(ranked.answering(asked.min_score))
        self._gone = {row: OTHER_METADATA for row in self._rows if row in records and not notes(records[row], asked.metadata)}

    async def typos(self) -> dict[str, str]:
        """Words of the question that no asked entry holds, and what was probably meant, by the texts of what was found otherwise."""
        known = self._pool.measured.statistics.containing
        words = unheard(self._question.text, {stem for stem in known if not known[stem]})
        if not words:
            return {}
        best = self._rows[:READ_FOR_TYPOS]
        await self._read([row for row in best if row not in self._records])
        return corrections(words, [said for row in best if row in self._records for said in said_by(self._records[row])])

    async def choose(self) -> None:
        """Read the best until all that are to be shown have been. Who is gone, hidden or no longer matching makes room for the next."""
        await self._look_closer()
        while unread := [row for row in self._best if row not in self._records]:
            await self._read(unread)

    @property
    def _best(self) -> list[int]:
        return [row for row in self._rows if row not in self._gone][: self._asked.limit]

    @property
    def wants_more(self) -> bool:
        """Whether what was left out after reading left room that a wider question may fill."""
        return bool(self._gone) and self._pool.full and len(self._best) < self._asked.limit

    async def _look_closer(self) -> None:
        """Of the best, those that hold all words of the question: how close together they stand (D59, D60)."""
        if self._asked.by == "meaning" or len(self._question.stems) < 2:
            return
        holding = self._ranked.holding(self._rows[:READ_FOR_CLOSENESS], self._pool.measured)
        await self._read([row for row in holding if row not in self._records])
        close = {row: closeness(self._question, said_by(self._records[row])) async for row in paced(holding) if row in self._records}
        self._ranked.multiply("closeness", close)
        self._rows = self._ranked.best_first(self._rows)

    async def _read(self, rows: Sequence[int]) -> None:
        """The homes of these rows; which of them are not to be shown."""
        homes, unknown = await self._homes(rows)
        now = self._placement.now()
        for row in rows:
            record = homes.get(self._pool.measured.ids[row])
            if record is not None and accepts(record, self._asked, ENTRIES, now):
                self._records[row] = record
            elif record is not None and not notes(record, self._asked.metadata):
                self._gone[row] = OTHER_METADATA
            else:
                self._gone[row] = "not_confirmed" if self._pool.measured.ids[row] in unknown else "changed_since"

    async def _homes(self, rows: Sequence[int]) -> tuple[dict[str, Record], set[str]]:
        """The home of each. A hit on a home is read where it was found; where that has moved meanwhile, and for what arrives, homes are located."""
        measured, tenant = self._pool.measured, self._asked.tenant
        homes: dict[str, Record] = {}
        failed = set[str]()
        there: dict[Store, list[str]] = {}
        for row in rows:
            if measured.roles[row] is Role.HOME:
                there.setdefault(self._pool.stores[row], []).append(measured.ids[row])
        for store, ids in there.items():
            stored = await self._browsing.guarded(store, self._lacking, _get(store, [Key(tenant, i) for i in ids]))
            homes |= {r.key.id: r for r in stored or () if isinstance(r, Record) and r.role is Role.HOME}
            failed.update(ids if stored is None else ())
        elsewhere = [Key(tenant, measured.ids[row]) for row in rows if measured.ids[row] not in homes and measured.ids[row] not in failed]
        located, errors = await locate_each(self._placement, elsewhere)
        for error in errors:
            self._lacking.say(f"{error}; hits that could not be confirmed were left out")
        homes |= {at.key.id: at.record for at in located if at.record is not None}
        return homes, failed | ({key.id for key in elsewhere} - {at.key.id for at in located})

    async def shown(self, explain: bool) -> AsyncIterator[FoundEntry]:
        """The hits, best first."""
        best = self._best
        corrected = {"corrected": dict(self._question.corrections)} if self._question.corrections else {}
        async for place, row in paced(list(enumerate(best, start=1))):
            explanation: dict[str, Any] = {}
            if explain:
                record, store = self._records[row], self._pool.stores[row]
                explanation = {"rank": place, **self._ranked.explained(row), **corrected, "tier": record.tier, "store": store.name}
            yield FoundEntry(entry_of(self._records[row]), float(self._ranked.scored.absolute[row]), explanation)

    def left_out(self) -> dict[str, Any]:
        """What was found and is not shown: how many for their score, the limit or their metadata, and which for what their homes say now."""
        answering = len(self._ranked.answering(0.0))
        named = {why: sorted(self._pool.measured.ids[row] for row, of in self._gone.items() if of == why) for why in self._gone.values()}
        counted = {
            "below_min_score": answering - len(self._rows),
            "beyond_limit": len(self._rows) - len(self._gone) - len(self._best),
            OTHER_METADATA: len(named.pop(OTHER_METADATA, ())),
        }
        return {why: value for why, value in {**counted, **named}.items() if value}


async def _get(store: Store, keys: Sequence[Key]) -> list[Stored | None]:
    with step("read.home"):
        return await store.get(ENTRIES, keys)
