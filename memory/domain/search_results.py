"""Results of searches and listings of entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

from memory.domain.corrections import explain_subscripts
from memory.domain.entry import Entry
from memory.domain.results import Answer, ResultMixin, as_json
from memory.domain.session import FoundMessage

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Expansion(ResultMixin):
    """The result of expanding a query: its paraphrases, or why there are none."""

    model: str | None
    applied: bool = False
    queries: tuple[str, ...] = ()
    note: str | None = None

    @property
    def summary_line(self) -> str:
        """The same as one line before the hits, for an agent."""
        queries = " | ".join(f"'{query}'" for query in self.queries)
        return f"(also searched: {queries})" if self.applied else self.note or ""


@dataclass(frozen=True, slots=True, repr=False)
class Rerank(ResultMixin):
    """The result of reranking.

    `stages` is the number of requested stages. A second one only runs if the first was
    applied.
    """

    model: str | None
    applied: bool = False
    note: str | None = None
    fine_model: str | None = None
    fine_applied: bool = False
    stages: int = 1


@explain_subscripts
@dataclass(frozen=True, slots=True, repr=False)
class FoundEntry(ResultMixin):
    """One search hit.

    `explanation` is filled by `explain=True`. It has the parts of `score` and
    `relevance`, and the ranks by words and by meaning. It also names the location of
    the entry and the nearest part of a long text. For a store without a vector index it
    also has the age in seconds of the vectors that selected the candidates
    (`vectors_age`).
    """

    entry: Entry
    score: float | None
    """The final sort key. It does not increase within one result, and cannot be
    compared across queries. None when browsing.
    """
    explanation: dict[str, Any] = field(default_factory=dict)
    relevance: float | None = None
    """How well the entry answers, from 0 to 1, comparable across queries. Preferences
    and age do not count. None when browsing, or if the embedder has no calibration.
    """

    @property
    def content(self) -> str:
        """The text of the entry."""
        return self.entry.content

    @property
    def id(self) -> str:
        """The id of the entry."""
        return self.entry.id


Found: TypeAlias = FoundEntry | FoundMessage


class Results(Answer[T]):
    """Hits, best first.

    `degraded` names stores and advisors that failed. If the search explains, `left_out`
    has the candidates that are not shown, by reason. `withheld` is the number of
    entries that the recall gate withheld. `expansion` and `rerank` report on these
    steps if they were requested.
    """

    def __init__(
        self,
        found: Sequence[T] = (),
        degraded: Iterable[str] = (),
        left_out: Mapping[str, Any] | None = None,
        *,
        expansion: Expansion | None = None,
        rerank: Rerank | None = None,
        withheld: int = 0,
    ) -> None:
        super().__init__(found, degraded)
        self.withheld = withheld
        self.left_out = dict(left_out or {})
        self.expansion = expansion
        self.rerank = rerank

    def to_dict(self) -> dict[str, Any]:
        told = {
            "left_out": self.left_out,
            "expansion": self.expansion,
            "rerank": self.rerank,
            "withheld": self.withheld,
        }
        return super().to_dict() | {name: as_json(value) for name, value in told.items() if value}


class SearchResult(Results[FoundEntry]):
    """Entries that a search found. See `Results`."""


class MixedResult(Results[Found]):
    """Entries and messages that a search found, in one order. See `Results`."""


class EntryPage(Answer[Entry]):
    """Entries found, in order.

    `degraded` names stores that failed. `cursor` continues after the last entry, and is
    None at the end. `withheld` is the number of entries that the recall gate withheld
    on the way.
    """

    said_as: ClassVar[str] = "entries"
    cursor: str | None

    def __init__(
        self,
        found: Sequence[Entry] = (),
        degraded: Iterable[str] = (),
        cursor: str | None = None,
        withheld: int = 0,
    ) -> None:
        super().__init__(found, degraded)
        self.cursor = cursor
        self.withheld = withheld

    def to_dict(self) -> dict[str, Any]:
        return {
            **super().to_dict(),
            "cursor": self.cursor,
            **({"withheld": self.withheld} if self.withheld else {}),
        }
