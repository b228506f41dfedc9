from __future__ import annotations
import asyncio, collections, time
import pytest
from memory.adapters.mongo import partitions
from memory.adapters.mongo.partitions import Registry
from memory.ports.collections import COLLECTIONS, ENTRIES
from memory.ports.contract.support import HERE, done, id_of, key_of, one, put, record, delete
from memory.ports.query import *
from memory.ports.record import *
from memory.ports.writes import *
from tests.unit.adapters.mongo.conftest import ALONE
pytestmark = [pytest.mark.parametrize("server", [pytest.param("mongo", marks=ALONE)], indirect=True)]

async def test_crowd(store, build, raw, monkeypatch):
    monkeypatch.setattr(partitions, "_CROWDED", 6)
    others = [build() for _ in range(2)]
    for o in others: await o.open(COLLECTIONS)
    calls = collections.Counter()
    orig, oann = Registry.fence, Registry._announce
    async def fence(self, p, **k):
        calls["fence"] += 1
        return await orig(self, p, **k)
    async def ann(self, *a):
        calls["announce"] += 1
        return await oann(self, *a)
    monkeypatch.setattr(Registry, "fence", fence)
    monkeypatch.setattr(Registry, "_announce", ann)
    try:
        t = time.time()
        rs = await asyncio.gather(*[s.apply([put(record(1000*k+n))]) for k, s in enumerate([store, *others]) for n in range(60)], return_exceptions=True)
        bad = [r for r in rs if isinstance(r, BaseException) or not r[0].applied]
        print("\nCROWD", time.time()-t, calls, bad[:3], len(bad), raw["memory_entries"].count_documents({"kind": "record"}), raw["memory_entries"].count_documents({"kind": "fence"}))
    finally:
        for o in others: await o.close()

async def test_herd(store, raw, monkeypatch):
    calls = collections.Counter()
    oann = Registry._announce
    async def ann(self, *a):
        calls["announce"] += 1
        calls["passes"] += a[2]["passes"]
        return await oann(self, *a)
    monkeypatch.setattr(Registry, "_announce", ann)
    async def w(k):
        for n in range(40):
            assert (await one(store, put(record(100*k+n)))).applied
    await asyncio.gather(*[w(k) for k in range(1, 9)])
    print("\nHERD 320 puts by 8:", calls, len(raw["memory_store.partitions"].find_one({})["writers"]))

async def _fences(store, raw, n=50):
    reg = store._desk.registry
    raw["memory_store.partitions"].insert_one({"_id": {"tenant": HERE.tenant, "scope": HERE.scope}, "generation": 0,
        "writers": {f"dead{i}": {"in": "memory_entries", "passes": 16} for i in range(n)}})
    await done(store, RaiseGeneration(HERE))
    assert raw["memory_entries"].count_documents({"kind": "fence"}) == 16*n

async def test_fences_shown(store, raw):
    await _fences(store, raw)
    await done(store, *[put(record(n)) for n in range(30)])
    for where in (Everywhere(), Tenant(HERE.tenant), within(HERE)):
        q = Query(ENTRIES, where, limit=10, kinds=frozenset(Kind) if isinstance(where, Everywhere) else frozenset({Kind.RECORD}))
        raw.command({"profile": 2})
        p = await store.query(q)
        raw.command({"profile": 0})
        prof = list(raw["system.profile"].find({"command.aggregate": "memory_entries"}))
        raw["system.profile"].drop()
        q = Query(ENTRIES, where, limit=10)
        raw.command({"profile": 2})
        p2 = await store.query(q)
        raw.command({"profile": 0})
        prof2 = list(raw["system.profile"].find({"command.aggregate": "memory_entries"}))
        raw["system.profile"].drop()
        print("\nSHOWN", type(where).__name__, len(p.records), p.corrupt, prof[-1]["docsExamined"], prof[-1]["keysExamined"], prof2[-1]["docsExamined"], prof2[-1]["keysExamined"],(await store.count(Query(ENTRIES, where))).records)
    print(await store.delete_matching(Query(ENTRIES, Tenant(HERE.tenant)), 50))

async def test_damaged_fence(store, raw):
    await _fences(store, raw, 1)
    await done(store, put(record(1)))
    raw["memory_entries"].update_one({"kind": "fence"}, {"$set": {"kind": "fencf"}})
    print("DAMAGED", await store.delete_matching(Query(ENTRIES, Tenant(HERE.tenant)), 50))

async def test_damaged_time(store, raw):
    await done(store, *[put(record(n)) for n in range(30)])
    raw["memory_entries"].update_one({"_id.id": id_of(3)}, {"$set": {"created_at": "junk"}})
    p = await store.query(Query(ENTRIES, Everywhere(), order=(Order("created_at"),), limit=29))
    print("DT", len(p.records), p.corrupt)
