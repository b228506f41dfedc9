"""Nothing is shared: changing an argument or a result changes nothing stored."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import (
    HERE,
    apply_all,
    delete,
    fetch_mark,
    fetch_record,
    fetch_tombstone,
    one,
    put,
    record,
    release,
    search_hits,
)
from memory.ports.query import Query, within
from memory.ports.record import PendingStep, Record, Standing, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Newer


def _change(value: Any) -> None:
    """Change every mutable object that is reachable from here.

    The object may also refuse.
    """
    if isinstance(value, Mapping):
        for inner in list(value.values()):
            _change(inner)
        with contextlib.suppress(TypeError, AttributeError):
            value["changed"] = "by the caller"  # type: ignore[index]
    elif isinstance(value, list | tuple):
        for inner in value:
            _change(inner)
        with contextlib.suppress(TypeError, AttributeError):
            value.append("changed by the caller")  # type: ignore[union-attr]
    elif isinstance(value, PendingStep):
        _change(value.data)


def _change_all(standing: object) -> None:
    for part in ("body", "fields", "texts", "owed", "note"):
        _change(getattr(standing, part, None))


def _mutable_parts() -> dict[str, Any]:
    """Return new mutable parts of a record each time."""
    return {
        "body": {"list": [1, {"k": [2]}], "dict": {"k": {"l": []}}},
        "fields": {"type": "a", "tags": ("x",)},
        "texts": {"content": "lantern"},
        "owed": (PendingStep("k", "k", {"to": ["a"], "deep": {"x": [{}]}}),),
    }


@clause("shared.nothing-out")
@pytest.mark.asyncio
async def test_nothing_that_was_handed_out_leads_back_into_the_store(store: Store) -> None:
    wrote = record(1, generation=0, vector=pack_vector([1.0]), **_mutable_parts())
    await apply_all(store, put(wrote))

    async def handed_out() -> list[object]:
        out: list[object] = [
            await fetch_record(store, 1),
            *(await store.query(Query(SAMPLES, within(HERE)))).records,
        ]
        if store.capabilities.conditional:
            out.append((await one(store, put(record(1, version=2), Absent()))).stored)
        return out

    for _ in range(2):
        for standing in await handed_out():
            assert standing == wrote
            _change_all(standing)
    assert await handed_out() == [wrote] * len(await handed_out())
    if store.capabilities.conditional:
        await apply_all(
            store,
            delete(2, note=_mutable_parts()["body"], owed=_mutable_parts()["owed"]),
            put(record(3)),
            release(3, owed=_mutable_parts()["owed"]),
        )
        for _ in range(2):
            left: list[Standing] = [await fetch_tombstone(store, 2), await fetch_mark(store, 3)]
            assert [s.owed for s in left] == [_mutable_parts()["owed"]] * 2
            assert (await fetch_tombstone(store, 2)).note == _mutable_parts()["body"]
            conflicts = [(await one(store, put(record(n), Absent()))).stored for n in (2, 3)]
            for standing in (*left, *conflicts):
                _change_all(standing)


@clause("shared.nothing-in")
@needs("conditional")
@pytest.mark.asyncio
async def test_nothing_that_was_handed_in_leads_into_the_store(store: Store) -> None:
    """It covers every kind of write; the item of a conflict is not kept either."""
    handed = [_mutable_parts() for _ in range(6)]
    note = _mutable_parts()["body"]
    keys = ["a"]
    await apply_all(
        store,
        put(record(1, **handed[0]), Absent()),
        put(record(1, **handed[1]), Absent(), MORE_SAMPLES),
        put(record(2)),
        release(2, owed=handed[2]["owed"]),
        delete(3, owed=handed[3]["owed"], note=note),
        put(record(4)),
        put(record(4, version=2, **handed[4]), Newer()),
    )
    assert not (await one(store, put(record(1, version=2, **handed[5]), Absent()))).applied
    for parts in (*handed, {"note": note, "keys": keys}):
        for part in parts.values():
            _change(part)

    fresh = _mutable_parts()
    for stored in (
        await fetch_record(store, 1),
        await fetch_record(store, 4),
        await fetch_record(store, 1, collection=MORE_SAMPLES),
    ):
        assert (dict(stored.body), dict(stored.texts), stored.owed) == (
            fresh["body"],
            fresh["texts"],
            fresh["owed"],
        )
        assert {**fresh["fields"], **stored.fields} == dict(stored.fields)
    tombstone = await fetch_tombstone(store, 3)
    assert ((await fetch_mark(store, 2)).owed, tombstone.owed, tombstone.note) == (
        fresh["owed"],
        fresh["owed"],
        fresh["body"],
    )


@clause("shared.nothing-out")
@pytest.mark.asyncio
async def test_a_page_that_was_handed_out_does_not_change_with_later_writes(store: Store) -> None:
    await apply_all(store, *[put(record(n, generation=0, body={"n": [n]})) for n in range(4)])
    page = await store.query(Query(SAMPLES, within(HERE)))
    hits = await search_hits(store, "nothing") if store.capabilities.lexical else []
    await apply_all(store, *[put(record(n, version=2, body={"n": ["changed"]})) for n in range(4)])
    await store.delete_matching(Query(SAMPLES, within(HERE)), 50)
    assert page.records == tuple(record(n, generation=0, body={"n": [n]}) for n in range(4))
    assert hits == []
    assert all(isinstance(r, Record) for r in page.records)
