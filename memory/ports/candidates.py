"""Candidates: what a store is asked before ranking, and what it answers, as columns.

One call asks for the best by words and by meaning, and for what stands beside these;
the answer has for each what ranking needs: its head, the counts of the question's
words, its length, its vector. No text is cut at query time, and no row is read twice
before the ranking has chosen.

Clauses (`memory.ports.contract.clauses`): candidates.*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from memory.ports.collections import Collection
from memory.ports.query import HOMES, Condition, Where
from memory.ports.record import FieldValue, Role

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats: TypeAlias = npt.NDArray[np.float32]
    Scores: TypeAlias = npt.NDArray[np.float64]
    Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """What stands beside a candidate: records of the same `group` (a text field) whose
    `number` (an integer field) is at most `reach` away.

    Of records in one place of one group, which ought to be one, all may come or the one
    that was found.
    """

    group: str
    number: str
    reach: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best `limit` by the words of `text`, the best `limit` by meaning, those that
    `among` names, and what stands `around` any of them.

    Each way finds what `Store.search` finds by it, ranked the same; a blank `text` and
    a `near` of None (packed float32) ask for nothing that way. A store without an index
    for a way looks through all there is. All that is answered lies in `where`, is in
    one of these roles and passes the filter, also what `among` names and what stands
    around; each record comes once. `counted` are the stems (see
    `memory.ports.text.words`) whose counts the answer has. `select` names declared and
    system fields. Vectors come of the dimensions of `near`; where that is None, of
    `dimensions`.
    """

    collection: Collection
    where: Where
    text: str = ""
    near: bytes | None = None
    limit: int = 50
    among: tuple[str, ...] = ()
    around: Neighbourhood | None = None
    counted: tuple[str, ...] = ()
    filter: Condition | None = None
    roles: frozenset[Role] = HOMES
    select: frozenset[str] = frozenset()
    dimensions: int = 0
    statistics: bool = True
    """Whether the answer's are asked for. They are nought otherwise, for who has them
    from another store.
    """

    @property
    def width(self) -> int:
        """The dimensions of the answer's vectors."""
        return self.dimensions if self.near is None else len(self.near) // 4


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the records of the asked partitions and roles, whatever the filter: how many
    there are, how many words they have in all (unweighted), and how many of them hold
    each counted stem, all of which are named. Those of several stores add up.
    """

    documents: int = 0
    words: int = 0
    containing: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Statistics) -> Statistics:
        stems = dict.fromkeys([*self.containing, *other.containing])
        containing = {stem: self.containing.get(stem, 0) + other.containing.get(stem, 0) for stem in stems}
        return Statistics(self.documents + other.documents, self.words + other.words, containing)


def none_of(asked: Candidates) -> Statistics:
    """The statistics of no records."""
    return Statistics(containing=dict.fromkeys(asked.counted, 0))


@dataclass(frozen=True, slots=True, eq=False)
class CandidateColumns:
    """Candidates as columns, one place a record, in no order.

    `counts` has a row a record and a column a counted stem, summed under the weights of
    the text parts as `memory.ports.lexical` has them; `lengths` are unweighted numbers
    of words. `vectors` has a row a record, not normalised, of the dimensions asked for:
    zeros where a record has no vector of these. `fields` has a list for each selected
    name, None where a record has no value.
    """

    ids: Sequence[str]
    scopes: Sequence[str]
    versions: Sequence[int]
    roles: Sequence[Role]
    tiers: Sequence[str]
    lengths: Ints
    counts: Scores
    vectors: Floats
    fields: Mapping[str, Sequence[FieldValue]]
    statistics: Statistics = Statistics()

    def __len__(self) -> int:
        return len(self.ids)


def concatenate(parts: Sequence[CandidateColumns]) -> CandidateColumns:
    """The columns of several answers to one question, one behind the other. Who asks
    stores that may have the same record takes each once.
    """
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return CandidateColumns(
        [i for part in parts for i in part.ids],
        [s for part in parts for s in part.scopes],
        [v for part in parts for v in part.versions],
        [r for part in parts for r in part.roles],
        [t for part in parts for t in part.tiers],
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.vectors for part in parts]),
        {name: [value for part in parts for value in part.fields[name]] for name in parts[0].fields},
        sum((part.statistics for part in parts), Statistics()),
    )


def take_rows(of: CandidateColumns, rows: Sequence[int]) -> CandidateColumns:
    """These rows alone, in this order."""
    return CandidateColumns(
        [of.ids[row] for row in rows],
        [of.scopes[row] for row in rows],
        [of.versions[row] for row in rows],
        [of.roles[row] for row in rows],
        [of.tiers[row] for row in rows],
        of.lengths[list(rows)],
        of.counts[list(rows)],
        of.vectors[list(rows)],
        {name: [values[row] for row in rows] for name, values in of.fields.items()},
        of.statistics,
    )


def with_vectors(of: CandidateColumns, vectors: Mapping[int, bytes]) -> CandidateColumns:
    """The columns with other vectors in these rows."""
    import numpy as np

    if not vectors:
        return of
    changed = of.vectors.copy()
    changed[list(vectors)] = [np.frombuffer(vector, "<f4") for vector in vectors.values()]
    return replace(of, vectors=changed)
