"""What small simulations share: how many runs must show something, and that a judge
sees what comes to stand when nobody looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb
from types import SimpleNamespace
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.domain import ids
from memory.orchestrator.storage.collections import ENTRIES
from memory.ports.record import Key, Record
from memory.ports.writes import Newer, Outcome, Put, RaiseGeneration, Write
from tests.simulation.lives import assert_shown, least
from tests.simulation.loop import START
from tests.simulation.unfenced import unlooked_for


@pytest.mark.parametrize(
    ("runs", "share"),
    [(20, Fraction(1, 2)), (60, Fraction(1, 5)), (60, Fraction(9, 10)), (1_000, Fraction(2, 5))],
)
def test_fewer_runs_than_the_least_show_something_once_in_a_hundred_thousand_times(
    runs: int, share: Fraction
) -> None:
    def fewer_than(shown: int) -> Fraction:
        return sum((comb(runs, n) * share**n * (1 - share) ** (runs - n) for n in range(shown)), Fraction(0))

    wanted = least(runs, float(share))
    assert fewer_than(wanted) <= Fraction(1, 100_000) < fewer_than(wanted + 1)


def test_runs_that_show_too_little_or_are_too_few_to_tell_are_refused() -> None:
    runs: list[Any] = [SimpleNamespace(ends=n < 14) for n in range(60)]
    assert_shown(runs, 0.5, lambda run: run.ends, "an end")
    with pytest.raises(AssertionError, match="of 60 runs 13 show an end, and 14 or more should"):
        assert_shown([SimpleNamespace(ends=False), *runs[1:]], 0.5, lambda run: run.ends, "an end")
    with pytest.raises(AssertionError, match="tell nothing"):
        assert_shown(runs, 0.1, lambda run: run.ends, "an end")


async def test_who_watches_a_store_sees_what_lands_there_when_nobody_looks_after_it() -> None:
    seen: list[Write] = []

    class Watched(InMemoryStore):
        async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
            seen.extend(writes)
            return await super()._apply(writes, together)

    store = Watched("watched")
    await store.open([ENTRIES])
    record = Record(Key("acme", ids.keyed_id("acme", "user:ada", "late")), "user:ada", 1, START, START)
    land = unlooked_for(store, [Put(ENTRIES, record, Newer())], together=False)
    assert land is not None
    await store.apply([RaiseGeneration(record.partition, to=1)])
    assert [outcome.applied for outcome in await land()] == [True]
    stands = store.state.fetch_stored(ENTRIES.name, record.key)
    assert isinstance(stands, Record)
    assert (stands.generation, store.state.generation(record.partition)) == (0, 1)
    assert [type(write) for write in seen] == [RaiseGeneration, Put]
