"""Tables as one test: every cell runs on a new store, and all failures are named.

A parametrised test costs a collected item for each cell and harness, and a store.
`@cells` replaces `pytest.mark.parametrize` for a table. Several of them make one table
of all their combinations.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exception
from typing import Any, Self, TypeVar, cast

import pytest
from _pytest.mark import ParameterSet

from memory.ports.contract import store_reuse
from memory.ports.contract.harness import Harness

Test = TypeVar("Test", bound=Callable[..., Any])
_TABLE = "memory_cells"


@dataclass(frozen=True, slots=True)
class _Axis:
    """The parameters of one decorator, and their values by label."""

    names: tuple[str, ...]
    values: tuple[tuple[str, tuple[Any, ...]], ...]
    shared: bool


def cells(
    name: str,
    values: Iterable[Any],
    ids: Callable[[Any], object] | Sequence[str] = str,
    *,
    shared: bool = False,
) -> Callable[[Test], Test]:
    """Run the test once for each value of the parameter, even after failures.

    Several parameters are named with commas between. Each cell has a fresh `store` and
    `harness`. With `shared`, all cells have the same ones, and may use any fixture.
    That is for tests that do not depend on data of other cells.
    """
    names = tuple(part.strip() for part in name.split(","))
    listed = list(values)
    called = [ids] * len(listed) if callable(ids) else [_always(one) for one in ids]
    axis = _Axis(
        names,
        tuple(
            _name_and_values(value, name_of, len(names))
            for value, name_of in zip(listed, called, strict=True)
        ),
        shared,
    )
    if not listed:
        raise ValueError(f"a table of no '{name}' would prove nothing")

    def table(test: Test) -> Test:
        plain, axes = getattr(test, _TABLE, (test, ()))
        return _as_one(plain, (*axes, axis), like=test)

    return table


def _always(called: str) -> Callable[[Any], object]:
    return lambda value: called


def _name_and_values(
    value: Any, called: Callable[[Any], object], parameters: int
) -> tuple[str, tuple[Any, ...]]:
    """Return the label and the values; a `pytest.param` may have its own label."""
    if isinstance(value, ParameterSet):
        return str(value.id), tuple(value.values)
    return str(called(value)), tuple(value) if parameters > 1 else (value,)


def _as_one(test: Test, axes: tuple[_Axis, ...], like: Test) -> Test:
    given = inspect.signature(test).parameters
    wanted = [p for p in given if not any(p in axis.names for axis in axes)]
    fresh = not all(axis.shared for axis in axes)
    if fresh:  # fixtures that are neither a cell's own nor parameters of an outer decorator are passed on
        wanted = ["harness", "tmp_path", *(p for p in wanted if p not in ("harness", "store"))]

    def table() -> Iterator[tuple[str, dict[str, Any]]]:
        for cell in itertools.product(*(axis.values for axis in axes)):
            pairs = [
                zip(axis.names, values, strict=True) for axis, (_, values) in zip(axes, cell, strict=True)
            ]
            yield "-".join(called for called, _ in cell), dict(itertools.chain.from_iterable(pairs))

    @functools.wraps(like)
    async def every_cell(**fixtures: Any) -> None:
        places = _Places(fixtures.pop("harness"), fixtures.pop("tmp_path"), given) if fresh else None
        with _Failures() as failures:
            for called, values in table():
                with failures.of(called):
                    if places is None:
                        await test(**fixtures, **values)
                        continue
                    async with places.next() as own:
                        await test(**own, **fixtures, **values)

    @functools.wraps(like)
    def every_plain_cell(**fixtures: Any) -> None:
        with _Failures() as failures:
            for called, values in table():
                with failures.of(called):
                    test(**fixtures, **values)

    whole: Any = every_cell if inspect.iscoroutinefunction(test) else every_plain_cell
    whole.__signature__ = inspect.Signature(
        [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY) for one in wanted]
    )  # the fixtures that pytest passes
    setattr(whole, _TABLE, (test, axes))
    return cast(Test, whole)


class CellsFailed(AssertionError):
    """Its first line names the failed cells; the rest describes each failure."""


class _Failures:
    """Collects failures until every cell has run, and raises them together."""

    def __init__(self) -> None:
        self._failed: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        return self

    @contextmanager
    def of(self, called: str) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised with the others
            self._failed.setdefault(called, []).extend(
                [f"-- in the cell '{called}':\n", *format_exception(error)]
            )

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._failed and error is None:
            told = "\n".join("".join(lines) for lines in self._failed.values())
            raise CellsFailed(f"cells failed: {'; '.join(self._failed)}\n\n{told}")


class _Places:
    """Provides a harness and a store for each cell, if the test takes them."""

    def __init__(self, harness: Harness, folder: Path, given: Collection[str]) -> None:
        self._harness, self._folder, self._given = harness, folder, given
        self._numbers = itertools.count()

    @asynccontextmanager
    async def next(self) -> AsyncIterator[Mapping[str, Any]]:
        folder = self._folder / f"cell-{next(self._numbers)}"
        folder.mkdir()
        harness = self._harness.another(folder)
        own = {"harness": harness} if "harness" in self._given else {}
        if "store" not in self._given:
            yield own
            return
        async with store_reuse.store(harness, lent=not own) as store:
            yield {**own, "store": store}
