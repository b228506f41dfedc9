"""What the store in memory offers tests beyond the port: a state that is shared, rolled
back, restarted and damaged.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore, State, adapter
from memory.domain.errors import ConfigError
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    fetch_tombstone,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    release,
)
from memory.ports.query import Eq, Query, within
from memory.ports.record import Corrupt
from memory.ports.writes import Absent, AtVersion, Newer, RaiseGeneration


async def _open(**options: Any) -> InMemoryStore:
    store = InMemoryStore(**options)
    await store.open(DECLARED)
    return store


async def test_two_stores_on_one_state_are_two_clients_of_one_server() -> None:
    first = await _open()
    second = await _open(state=first.state)
    await apply_all(first, put(record()))
    assert await fetch_record(second) == await fetch_record(first)


async def test_a_snapshot_brings_back_exactly_what_was_held() -> None:
    store = await _open()
    await apply_all(store, put(record(1)), put(record(2)), release(2), delete(3), RaiseGeneration(HERE, 3))
    held = store.state.snapshot()
    before = await store.get(SAMPLES, [key_of(n) for n in (1, 2, 3, 5)])

    for _ in range(2):
        await apply_all(store, put(record(5)), delete(1), RaiseGeneration(HERE))
        store.state.restore(held)
        assert await store.get(SAMPLES, [key_of(n) for n in (1, 2, 3, 5)]) == before
        assert await query_ids(store) == [id_of(1)]
        assert (await one(store, RaiseGeneration(HERE, 0))).number == 3


@pytest.mark.parametrize("keep", [True, False])
async def test_a_restart_changes_the_epoch_and_keeps_or_loses_what_was_held(keep: bool) -> None:
    store = await _open()
    await apply_all(store, put(record()))
    epoch = store.epoch

    store.restart(keep)

    assert store.epoch != epoch
    assert (await fetch_stored(store) is not None) is keep


async def test_closing_keeps_what_the_state_holds() -> None:
    store = await _open()
    await apply_all(store, put(record()))
    await store.close()
    await store.open(DECLARED)
    assert await query_ids(store) == [id_of(1)]


async def test_a_spoiled_record_is_corrupt_and_its_neighbours_are_served() -> None:
    store = await _open()
    await apply_all(
        store, *[put(record(n, fields={"type": "x"}, texts={"content": "lantern"})) for n in (1, 2)]
    )
    store.state.damage("samples", key_of(1))

    page = await store.query(Query(SAMPLES, within(HERE)))

    assert await fetch_stored(store) == Corrupt(key_of(1), "checksum mismatch")
    assert ([r.key for r in page.records], page.corrupt) == ([key_of(2)], (key_of(1),))
    assert await hit_ids(store, "lantern") == {id_of(2)}
    assert (await store.count(Query(SAMPLES, within(HERE)))).records == 1


async def test_erasure_reaches_a_spoiled_record_whatever_the_filter() -> None:
    store = await _open()
    await apply_all(store, put(record(1, version=9)), put(record(2)))
    store.state.damage("samples", key_of(1))

    assert await store.delete_matching(Query(SAMPLES, within(HERE), Eq("type", "nothing")), 5) == 1

    assert (await fetch_tombstone(store)).version == 10
    await fetch_record(store, 2)


async def test_a_spoiled_record_can_be_overwritten() -> None:
    store = await _open()
    await apply_all(store, put(record(1)))
    store.state.damage("samples", key_of(1))
    for when in (Absent(), AtVersion(1)):
        conflict = await one(store, put(record(version=2), when))
        assert conflict.stored == Corrupt(key_of(1), "checksum mismatch")
    await apply_all(store, put(record(1, version=2), Newer()))
    assert (await fetch_record(store)).version == 2


async def test_nothing_but_a_live_record_can_be_spoiled() -> None:
    with pytest.raises(LookupError):
        State().damage("samples", key_of(1))


async def test_what_is_handed_out_cannot_be_changed_but_copied_and_written_as_json() -> None:
    store = await _open()
    body = {"list": [1, {"k": [2]}]}
    await apply_all(store, put(record(body=body)))
    out: Any = (await fetch_record(store)).body

    changes: list[Callable[[], Any]] = [
        lambda: out.update(a=1),
        lambda: out["list"].append(3),
        lambda: out["list"][1].pop("k"),
        lambda: out["list"][1]["k"].clear(),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="change a copy"):
            change()
    assert out == body
    assert json.loads(json.dumps(out)) == body
    for plain in (copy.deepcopy(out), pickle.loads(pickle.dumps(out))):  # noqa: S301
        plain["list"][1]["k"].append(3)
        assert plain == {"list": [1, {"k": [2, 3]}]}
    assert out == body


def test_the_adapter_builds_a_store_of_its_own_each_time() -> None:
    first, second = adapter.build("a", "memory://", {}), adapter.build("b", "memory://", {})
    assert isinstance(first, InMemoryStore)
    assert isinstance(second, InMemoryStore)
    assert first.state is not second.state
    assert (first.name, adapter.schemes, adapter.claims) == ("a", ("memory",), InMemoryStore.claims)


@pytest.mark.parametrize(
    ("url", "options"), [("memory://somewhere", {}), ("redis://", {}), ("memory://", {"size": 3})]
)
def test_the_adapter_refuses_what_it_does_not_know(url: str, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="store 'a'"):
        adapter.build("a", url, options)
