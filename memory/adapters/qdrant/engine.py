"""What the store asks of a Qdrant engine. Two answer: Edge in this process (`edge`),
and a server or the client's local mode (`client`).

One design of the data serves both, so that what was gathered in Edge can be moved to a
server point by point: one Qdrant collection for all collections of records, payloads as
`codec` makes them, one sparse vector `words`, and one dense vector for each number of
dimensions met (`dense_256`), unit vectors under the dot product, whose scores are
cosines.
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
"""Distinct numbers that are tallied."""

QdrantCondition: TypeAlias = Any
"""A condition or filter in the driver's own type, made by its `Conditions`."""


class Conditions(Protocol):
    """Makes a driver's conditions. Values are data: no text becomes syntax. `every`,
    `some` and `none` take at least one part.
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
        """It is one of these points."""
        ...

    def missing(self, path: str) -> QdrantCondition:
        """Nothing is there, or an empty list."""
        ...

    def every(self, parts: Sequence[QdrantCondition]) -> QdrantCondition: ...

    def some(self, parts: Sequence[QdrantCondition]) -> QdrantCondition: ...

    def none(self, parts: Sequence[QdrantCondition]) -> QdrantCondition: ...

    def fits(self, condition: QdrantCondition) -> bool:
        """Whether a filter may hold all this beside where it looks. What does not is
        applied to what comes back.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sparse:
    indices: list[int]
    values: list[float]


@dataclass(frozen=True, slots=True)
class Vectors:
    """What a point is found by: words, and a unit vector; None for what it has not."""

    words: Sparse | None = None
    dense: list[float] | None = None


@dataclass(frozen=True, slots=True)
class FoundPoint:
    """A point as the engine has it. `value` is its score in a search, what it was
    ordered by in an ordered scroll, its id in another.
    """

    payload: Payload
    value: Any
    words: Sparse | None = None


@dataclass(frozen=True, slots=True)
class PointQuery:
    """One of the questions of a request: the best by `near` or by `words`, best first.

    Without both it asks for the first points by their ids. Words are ranked by the sum
    of their rarity in the `corpus` times their weight in the point. `keys` are the
    parts of the payload that are read, None for all of it. `with_words` asks for the
    words of the points as well.
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
    """A point with all that it is found by: vectors by their names, sparse ones as
    `Sparse`.
    """

    point: str
    payload: Payload
    vectors: dict[str, Sparse | list[float]]


@dataclass(frozen=True, slots=True)
class PointChange:
    """What is to stand at a point: `payload` of None takes the point away, `vectors` of
    None leaves them as they are.

    `before` is the payload it was decided on, None where nothing stood there. Engines
    that are not alone make the change only on that.
    """

    point: str
    before: Payload | None
    payload: Payload | None
    vectors: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """A payload index: `kind` is keyword, tenant, integer or float.

    `optional` ones make nothing faster that is asked often. They are made if the server
    refuses to filter without them.
    """

    path: str
    kind: str
    optional: bool = False


class Engine(Protocol):
    """One Qdrant collection. Failures are raised as the driver's own and translated by
    the engine's `translate`.
    """

    @property
    def conditions(self) -> Conditions: ...

    @property
    def thresholds(self) -> Thresholds: ...

    @property
    def alone(self) -> bool:
        """Nobody else writes: what was read within a turn stands until it is changed
        there.
        """
        ...

    @property
    def turn(self) -> AbstractAsyncContextManager[None]:
        """Held from reading to committing. Where the engine is alone one task at a time
        has it; elsewhere commits are conditional, and all have.
        """
        ...

    @property
    def exact_statistics(self) -> bool:
        """Whether the rarity of words is counted over all points. Open engines know."""
        ...

    @property
    def epoch(self) -> str:
        """The run of what forgets; empty where nothing is forgotten."""
        ...

    async def open(self, indexes: Sequence[Index], look: Callable[[], Awaitable[None]]) -> None:
        """Connect, and make what is missing. `look` is called once the collection can
        be read, and before anything of one that is there changes.
        """
        ...

    async def close(self) -> None: ...

    async def version(self) -> str:
        """What answers, and that it does."""
        ...

    async def retrieve(self, points: Sequence[str], keys: Sequence[str] | None = None) -> dict[str, Payload]:
        """The payloads that stand at these points, whole or only these keys of them."""
        ...

    async def scroll(
        self, where: QdrantCondition, limit: int, after: Any = None, keys: Sequence[str] | None = None
    ) -> tuple[list[FoundPoint], Any]:
        """The next points by their ids, and where to go on; None at the end."""
        ...

    async def whole(self, limit: int, after: Any = None) -> tuple[list[FullPoint], Any]:
        """The next points by their ids, whatever they hold, with their vectors, and
        where to go on; None at the end.
        """
        ...

    async def scroll_ordered(
        self, where: QdrantCondition, path: str, descending: bool, start: float | None, limit: int
    ) -> list[FoundPoint]:
        """The first points with an indexed number there, in its order, from `start` on;
        those without are left out.
        """
        ...

    async def count(self, where: QdrantCondition) -> int: ...

    async def tally(self, path: str, where: QdrantCondition) -> dict[int, int]:
        """How many points have each of the whole numbers there, exactly; those without
        one are left out. Of an indexed path.
        """
        ...

    async def ask(self, questions: Sequence[PointQuery]) -> list[list[FoundPoint]]:
        """The answers to these questions, in one request."""
        ...

    async def commit(
        self, changes: Sequence[PointChange], afterwards: dict[str, Payload | None] | None = None
    ) -> set[str]:
        """Make the changes and return the points where something else stood by then:
        there nothing was changed.

        An engine that is not alone fills in how the points of `afterwards` are once all
        changes are made: their numbers, None where nothing stands.
        """
        ...

    def translate(self, error: Exception) -> Exception | None:
        """Our error for the driver's; None for what is not the driver's."""
        ...


def dense_name(dimensions: int) -> str:
    return f"dense_{dimensions}"
