"""The store in memory with one capability taken away at a time: a store that claims
less passes what it is asked.

A test that uses a capability without `@needs` fails here. Little is drawn: what is
looked for shows in any run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.ports.capabilities import FLAGS
from memory.ports.contract.capability_tests import fits
from memory.ports.contract.depth import Depth
from memory.ports.contract.harness import Harness
from memory.ports.store import Store
from memory.ports.writes import Put
from tests.contract.harnesses import InMemory, InMemoryPlain, InMemoryServer, Split
from tests.support.depth import NIGHTLY
from tests.support.gathering import Gathering

_LITTLE = Depth(seeds=1, examples=5, many=200, rounds=1)
_EVERY_FLAG = replace(
    InMemoryServer.claims, ttl=False, max_record_bytes=None, max_batch=None, max_vector_dims=None
)
"""All but `ttl`, whose tests wait for the clock; the harness `in_memory` goes without
it, and without limits.
"""


class _Less(InMemory):
    primary = "in_memory"
    lacks: ClassVar[tuple[str, ...]] = ()
    store_type: ClassVar[type[InMemoryStore]] = Gathering
    many = _LITTLE.many

    @property
    def depth(self) -> Depth:
        return _LITTLE

    @depth.setter
    def depth(self, _given: Depth) -> None:
        """It draws as little, whatever the run draws."""

    async def cut_short(self, store: Store, write: Put, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """As a store would have it that looks at the generation in one step and writes
        in another.
        """
        assert isinstance(store, InMemoryStore)
        await meanwhile()
        store.state.place(write.collection.name, write.record.key, write.record)


_GROUPS = (
    ("durable", "filter", "tenant_wide", "semantic"),
    ("shared", "order", "tenant_statistics", "fenced", "atomic", "grouped"),
    ("conditional", "lexical"),
)
"""Capabilities that few tests need together: one run without all of a group judges most
tests for each of them.
"""


def _without(*flags: str) -> type[_Less]:
    fewer: dict[str, Any] = dict.fromkeys(flags, False)
    claims = replace(_EVERY_FLAG, **fewer)
    return type(
        "Without",
        (_Less,),
        {"name": f"in_memory_without_{'_'.join(flags)}", "claims": claims, "lacks": flags},
    )


WITHOUT: tuple[type[_Less], ...] = (
    *[_without(*group) for group in _GROUPS],
    *[_without(flag) for flag in FLAGS if getattr(_EVERY_FLAG, flag)],
)
_ASKED_BEFORE: tuple[type[Harness], ...] = (InMemory, InMemoryPlain, Split)
"""They lack capabilities too. The first is asked whatever it claims; the others, its
variants, in `make nightly` alone what it is asked.
"""


def is_asked_of_another(marks: Sequence[pytest.Mark], harness: type[Harness]) -> bool:
    """Whether, for each capability that this harness lacks, one before it that lacks it
    as well is asked this test.
    """
    if not issubclass(harness, _Less):
        return False
    asked = _ASKED_BEFORE if NIGHTLY or not all(fits(mark, InMemory) for mark in marks) else _ASKED_BEFORE[:1]
    before = [
        one for one in (*asked, *WITHOUT[: WITHOUT.index(harness)]) if all(fits(mark, one) for mark in marks)
    ]
    return all(any(not getattr(one.claims, flag) for one in before) for flag in harness.lacks)
