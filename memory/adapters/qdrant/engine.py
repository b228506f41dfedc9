"""Interface to a Qdrant engine: Edge in this process (`edge`) or a client (`client`).

The client connects to a server, or uses its local mode. Both engines have the same data
layout, so data can be moved from Edge to a server point by point. One Qdrant collection
holds all collections of records. Payloads are those of `codec`. There is one sparse
vector `words`, and one dense vector per number of dimensions (`dense_256`). Dense
vectors have length 1 and use the dot product, so scores are cosines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from memory.adapters.qdrant.codec import Payload
from memory.adapters.qdrant.thresholds import Thresholds

WORDS = "words"
MOST_VALUES = 1_000_000
"""Most distinct numbers that `tally` counts."""

QdrantCondition: TypeAlias = Any
"""A condition or filter in the driver's own type, built by its `Conditions`."""


class Conditions(Protocol):
    """Builds a driver's conditions. Values are data: no text becomes syntax.

    `every`, `some` and `none` take at least one part.
    """

    def equals(self, path: str, value: str | int) -> QdrantCondition: ...

    def among(self, path: str, values: Sequence[str] | Sequence[int]) -> QdrantCondition: ...

    def between(
        self,
        path: str,
        *,
        gt: float | None = None,
        gte: float | None = None,
        lt: float | None = None,
        lte: float | None = None,
    ) -> QdrantCondition: ...

    def points(self, points: Sequence[str]) -> QdrantCondition:
        """Return a condition that is true of these points."""
        ...

    def missing(self, path: str) -> QdrantCondition:
        """Return a condition that is true if the value is missing or an empty list."""
        ...

    def every(self, parts: Sequence[QdrantCondition]) -> QdrantCondition: ...

    def some(self, parts: Sequence[QdrantCondition]) -> QdrantCondition: ...

    def none(self, parts: Sequence[QdrantCondition]) -> QdrantCondition: ...

    def fits(self, condition: QdrantCondition) -> bool:
        """Return whether a request to the server may contain this condition.

        The request also contains conditions for the place that is queried, such as the
        tenant. If the condition does not fit, the store filters the results itself.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sparse:
    indices: list[int]
    values: list[float]


@dataclass(frozen=True, slots=True)
class Vectors:
    """Search data of a point: words and a unit vector; None for a missing one."""

    words: Sparse | None = None
    dense: list[float] | None = None


@dataclass(frozen=True, slots=True)
class FoundPoint:
    """A point of an answer.

    `value` is its score in a search, its sort value in an ordered scroll, otherwise its
    id.
    """

    payload: Payload
    value: Any
    words: Sparse | None = None


@dataclass(frozen=True, slots=True)
class PointQuery:
    """One query of a request: the best points by `near` or by `words`, best first.

    Without both, it returns the first points by id.

    Args:
        keys: Payload keys to read; None for all.
        corpus: Condition of the points over which the rarity of words is counted. The
            score by words is the sum, over the words, of rarity times weight in the
            point.
        with_words: Also return the words of the points.
    """

    where: QdrantCondition
    limit: int
    keys: Sequence[str] | None = None
    near: list[float] | None = None
    words: Sparse | None = None
    corpus: QdrantCondition | None = None
    with_words: bool = False


@dataclass(frozen=True, slots=True)
class FullPoint:
    """A point with its vectors by name; sparse ones are `Sparse`."""

    point: str
    payload: Payload
    vectors: dict[str, Sparse | list[float]]


@dataclass(frozen=True, slots=True)
class PointChange:
    """New content of a point.

    `payload` of None removes the point, and `vectors` of None keeps its vectors.
    `before` is the payload on which the change was decided, None for an empty point.
    Engines with other writers apply the change only to that payload.
    """

    point: str
    before: Payload | None
    payload: Payload | None
    vectors: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """A payload index; `kind` is keyword, tenant, integer or float.

    `optional` indexes make no frequent query faster. They are created only if the
    server refuses filters without them.
    """

    path: str
    kind: str
    optional: bool = False


class Engine(Protocol):
    """One Qdrant collection.

    Methods raise the driver's errors, which the engine's `translate` converts.
    """

    @property
    def conditions(self) -> Conditions: ...

    @property
    def thresholds(self) -> Thresholds: ...

    @property
    def alone(self) -> bool:
        """Whether nobody else writes.

        Then data that the store reads while it holds `turn` stays unchanged until the
        store changes it.
        """
        ...

    @property
    def turn(self) -> AbstractAsyncContextManager[None]:
        """Lock held from reading to committing.

        If the engine is alone, one task at a time holds it. Otherwise commits are
        conditional, and all tasks may hold it.
        """
        ...

    @property
    def exact_statistics(self) -> bool:
        """Whether word rarity is counted over all points.

        The value is known once the engine is open.
        """
        ...

    @property
    def epoch(self) -> str:
        """An id of this run, if the data end with the run; empty for other engines."""
        ...

    async def open(self, indexes: Sequence[Index], look: Callable[[], Awaitable[None]]) -> None:
        """Connect and create what is missing.

        `look` is called once the collection is readable, before existing data changes.
        """
        ...

    async def close(self) -> None: ...

    async def version(self) -> str:
        """Return the version of the engine, and check that it answers."""
        ...

    async def retrieve(self, points: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, Payload]:
        """Return the payloads of these points, complete or only with these keys."""
        ...

    async def scroll(
        self, where: QdrantCondition, limit: int, after: Any = None, keys: Sequence[str] | None = None
    ) -> tuple[list[FoundPoint], Any]:
        """Return the next points by id, and where to continue; None at the end."""
        ...

    async def whole(self, limit: int, after: Any = None) -> tuple[list[FullPoint], Any]:
        """Return the next points by id with their vectors, and where to continue.

        All points are returned. The second value is None at the end.
        """
        ...

    async def scroll_ordered(
        self, where: QdrantCondition, path: str, descending: bool, start: float | None, limit: int
    ) -> list[FoundPoint]:
        """Return the first points with an indexed number, in its order from `start`.

        Points without the number are left out.
        """
        ...

    async def count(self, where: QdrantCondition) -> int: ...

    async def tally(self, path: str, where: QdrantCondition) -> dict[int, int]:
        """Count the points per integer value of an indexed path, exactly.

        Points without a value are left out.
        """
        ...

    async def values(self, path: str, where: QdrantCondition) -> list[str]:
        """Return the different texts at an indexed path of these points."""
        ...

    async def ask(self, questions: Sequence[PointQuery]) -> list[list[FoundPoint]]:
        """Return the answers to these queries, in one request."""
        ...

    async def commit(
        self, changes: Sequence[PointChange], afterwards: dict[str, Payload | None] | None = None
    ) -> set[str]:
        """Apply the changes; return the points that another client had changed before.

        The returned points are left as they are. If the engine is not alone, it sets
        the values of `afterwards` after all changes. These values are the points'
        payloads with their numbers, or None for missing points.
        """
        ...

    def translate(self, error: Exception) -> Exception | None:
        """Return our error for a driver's error; None for any other error."""
        ...


def dense_name(dimensions: int) -> str:
    return f"dense_{dimensions}"
