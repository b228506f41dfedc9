"""Candidates: the question to a store before ranking, and its answer as columns.

One call asks for the best records by words and by meaning, and for their neighbours.
The answer has everything that ranking needs of each: its head, the counts of the
question's words, its length and its vector. No text is split into words at query time.
No row is read twice before the ranking has chosen.

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
    """The neighbours of a candidate in its group.

    They have the same `group` (a text field), and their `number` (an integer field) is
    at most `reach` away. Records that share one place of one group should not exist. If
    they do, the answer may hold all of them, or only the one that was found.
    """

    group: str
    number: str
    reach: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best records by words and by meaning, the named ones, and their neighbours.

    `text` asks for the best `limit` by words, `near` (packed float32) for the best
    `limit` by meaning. `among` names records, and `around` asks for the neighbours of
    all of these. A blank `text` or a `near` of None asks for nothing that way. Each way
    finds and ranks the same records as `Store.search`. A store without an index for a
    way scans all its records.

    All records of the answer lie in `where`, are in one of these roles and pass the
    filter. That includes the named ones and the neighbours. Each record comes once.

    `counted` are the stems to count (see `memory.ports.text.words`). `select` names
    declared and system fields. Vectors have the dimensions of `near`, or `dimensions`
    if that is None.
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
    """Whether to compute the statistics.

    Without it they are zero, for a caller that has them from another store.
    """

    @property
    def width(self) -> int:
        """The dimensions of the answer's vectors."""
        return self.dimensions if self.near is None else len(self.near) // 4


@dataclass(frozen=True, slots=True)
class Statistics:
    """Word statistics of the asked partitions and roles, before the filter.

    They are the number of records, their total of words (unweighted), and the number of
    records that hold each counted stem. Every counted stem is named. Statistics of
    several stores can be added.
    """

    documents: int = 0
    words: int = 0
    containing: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Statistics) -> Statistics:
        stems = dict.fromkeys([*self.containing, *other.containing])
        containing = {stem: self.containing.get(stem, 0) + other.containing.get(stem, 0) for stem in stems}
        return Statistics(self.documents + other.documents, self.words + other.words, containing)


def none_of(asked: Candidates) -> Statistics:
    """Return the statistics of no records."""
    return Statistics(containing=dict.fromkeys(asked.counted, 0))


@dataclass(frozen=True, slots=True, eq=False)
class CandidateColumns:
    """Candidates as columns, one row for each record, in no order.

    `counts` has a column for each counted stem. The counts are summed under the weights
    of the text parts, as in `memory.ports.lexical`. `lengths` are unweighted numbers of
    words. `vectors` are not normalised and have the requested dimensions; a record
    without such a vector has zeros. `fields` has a list for each selected name, with
    None for a missing value.
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
    """Join the columns of several answers to one question.

    If several stores may have the same record, the caller removes duplicates.
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
    """Return only these rows, in this order."""
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
    """Return the columns with other vectors in these rows."""
    import numpy as np

    if not vectors:
        return of
    changed = of.vectors.copy()
    changed[list(vectors)] = [np.frombuffer(vector, "<f4") for vector in vectors.values()]
    return replace(of, vectors=changed)
