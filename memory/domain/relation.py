"""Links between entries, and the results of reading their graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memory.domain.corrections import explain_guesses
from memory.domain.entry import Entry
from memory.domain.results import ResultMixin

DensityVerdict = Literal["isolated", "sparse", "dense"]


@dataclass(frozen=True, slots=True, repr=False)
class Relation(ResultMixin):
    """A link as stored: `source` `label` `target`.

    It is directed even if the label is symmetric. `made_by` names the advisor's model
    that made it, and `note` is the model's explanation. Both are None for a link that a
    caller made. `written_by` is the caller of a server that made it.
    """

    id: str
    source_id: str
    target_id: str
    label: str
    created_at: datetime
    made_by: str | None = None
    note: str | None = None
    written_by: str | None = None


@explain_guesses
class RelationPage(list[Relation]):
    """Relations, newest first. `cursor` continues after the last; None at the end."""

    cursor: str | None

    def __init__(self, found: Iterable[Relation] = (), cursor: str | None = None) -> None:
        super().__init__(found)
        self.cursor = cursor


@dataclass(frozen=True, slots=True, repr=False)
class Node(ResultMixin):
    """An entry of a graph, and the number of steps in which it was reached."""

    entry: Entry
    depth: int


@dataclass(frozen=True, slots=True, repr=False)
class Expansion(ResultMixin):
    """The neighbourhood of an entry.

    `nodes` are sorted by distance, the entry itself first. `relations` are the links
    between them, each once. `notices` say what was cut. `retired` names the nodes that
    are only included because they superseded a visible one, or were superseded by it.
    """

    nodes: tuple[Node, ...]
    relations: tuple[Relation, ...]
    notices: tuple[str, ...] = ()
    retired: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, repr=False)
class Density(ResultMixin):
    """How closely an entry is linked.

    It counts the links from the entry and to it, and the entries one step and two steps
    away. `labels` are the labels of its links.
    """

    outgoing: int
    incoming: int
    labels: tuple[str, ...]
    one_step: int
    two_steps: int
    verdict: DensityVerdict
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Graph(ResultMixin):
    """Entries, and the relations between them.

    `retired` has the ids of the entries that a visible entry superseded.
    """

    entries: tuple[Entry, ...]
    relations: tuple[Relation, ...]
    retired: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()
