"""Names on disk: none meets another, none leads out of its folder, and any text can be
one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.file.names import decode_name, encode_name, is_cut, is_name
from memory.adapters.file.store import FileStore
from memory.domain.ids import new_id
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.support import T0, apply_all, id_of, put
from memory.ports.query import MAX_LIMIT, Everywhere, Query, Tenant, within
from memory.ports.record import Key, Partition, Record, Tombstone
from memory.ports.writes import Delete, Newer, RaiseGeneration, Status
from tests.unit.adapters.file.helping import files_below, opened

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)
HOSTILE = [
    "..", ".", "", "/", "//etc/passwd", "../../etc/passwd", "a/b::c é", "a\\b", "C:\\x", "con", "CON", "nul", "NUL.json", "com1", "lpt9", "aux.json",
    "\x00", "a\x00b", "~", "~0", "%", "%2e%2e", "a%41", "A", "a", "ACME", "acme", "é", "e\u0301", "trailing.", "trailing ",
    "-rf", "x.json", "x.json.bak", "staging.d", "unseen.d", "partition.json", "store.lock", "\u202e",
    "東" * 90, "東" * 91, "x" * 5000, "x" * 4999, "X" * 160,
]  # fmt: skip


@given(ANY_TEXT)
def test_a_name_is_safe_wherever_folders_are_kept(text: str) -> None:
    name = encode_name(text)
    assert re.fullmatch(r"[a-z0-9_%~-]+", name), "one case, no dot, no slash"
    assert len(name + ".json.corrupt-20240101t000000.000000z") <= 255
    assert not re.fullmatch(r"con|prn|aux|nul|com\d|lpt\d", name)
    assert is_name(name)
    assert decode_name(name) == (None if is_cut(name) else text)


@given(ANY_TEXT, ANY_TEXT)
def test_different_texts_have_different_names(one: str, other: str) -> None:
    assert (encode_name(one) == encode_name(other)) == (one == other)


@cells("name", ["", "A", "a.b", "..", "%4", "%2E", "%61", "con", "é", "a~1", "x" * 161], shared=True)
def test_what_is_no_name_of_ours_is_no_name(name: str) -> None:
    assert not is_name(name)


@pytest.mark.backend("file")
@pytest.mark.behaviour("B64", "B65", "AC-B29")
async def test_hostile_tenants_and_scopes_come_back_and_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    store = await opened(folder)
    partitions = dict.fromkeys(
        Partition(tenant, scope) for name in HOSTILE for tenant, scope in ((name, "s"), ("t", name))
    )
    made = [
        Record(Key(p.tenant, new_id(p.tenant, p.scope, n)), p.scope, 1, T0, T0)
        for n, p in enumerate(partitions)
    ]
    await apply_all(store, *[put(r) for r in made])
    await apply_all(store, *[RaiseGeneration(Partition("t", scope), 3) for scope in HOSTILE])
    await store.close()
    await store.open(DECLARED)

    got = await store.get(SAMPLES, [r.key for r in made])
    assert [(r.key, r.scope) if isinstance(r, Record) else r for r in got] == [(r.key, r.scope) for r in made]
    for tenant in HOSTILE:
        assert {r.key for r in (await store.query(Query(SAMPLES, Tenant(tenant)))).records} == {
            r.key for r in made if r.key.tenant == tenant
        }
    everywhere = await store.query(Query(SAMPLES, Everywhere(), limit=MAX_LIMIT))
    assert (len(everywhere.records), everywhere.corrupt) == (len(made), ())
    outcomes = await store.apply([RaiseGeneration(Partition("t", scope), 0) for scope in HOSTILE])
    assert [o.number for o in outcomes] == [3] * len(HOSTILE)
    assert [path for path in files_below(tmp_path) if not path.is_relative_to(folder)] == []
    await apply_all(store, *[Delete(SAMPLES, r.key, 5, Newer()) for r in made])
    assert all(isinstance(s, Tombstone) for s in await store.get(SAMPLES, [r.key for r in made]))
    await store.close()


@pytest.mark.backend("file")
@pytest.mark.parametrize("half", ["\ud800", "\udfff x"])
async def test_what_holds_half_of_a_surrogate_pair_is_refused_and_leaves_nothing(
    tmp_path: Path, half: str
) -> None:
    store = await opened(tmp_path)
    before = files_below(tmp_path)
    names = [
        Record(Key(tenant, record_id), scope, 1, T0, T0)
        for tenant, scope, record_id in ((half, "s", id_of(1)), ("t", half, id_of(1)), ("t", "s", half))
    ]
    assert [outcome.status for outcome in await store.apply([put(r) for r in names])] == [Status.REJECTED] * 3
    assert files_below(tmp_path) == before
    await store.close()


@pytest.mark.backend("file")
async def test_partitions_of_long_names_keep_apart_and_are_found_again(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    partitions = [Partition("T" * 400, "x" * 5000 + end) for end in ("", "y", "z")]
    made = [
        Record(Key(p.tenant, new_id(p.tenant, p.scope, n)), p.scope, 1, T0, T0)
        for n, p in enumerate(partitions)
    ]
    await apply_all(store, *[put(r) for r in made])
    again: FileStore = await opened(tmp_path)
    for r in made:
        assert [f.key for f in (await again.query(Query(SAMPLES, within(r.partition)))).records] == [r.key]
    assert [s.key if s else None for s in await again.get(SAMPLES, [r.key for r in made])] == [
        r.key for r in made
    ]
    assert not any("unseen.d" in path.parts for path in files_below(tmp_path))
    for opened_one in (store, again):
        await opened_one.close()
