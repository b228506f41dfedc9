"""The table of conditions in `memory.ports.writes`, every cell."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    key_of,
    one,
    put,
    record,
    release,
)
from memory.ports.record import Mark, PendingStep, Record, Role, Standing, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    Release,
    Status,
    When,
    Write,
)

V = 10  # the version of the stored item

STORED: dict[str, Callable[[int], list[Write]]] = {
    "nothing": lambda n: [],
    "live": lambda n: [put(record(n, version=V, fields={"type": "old"}))],
    "mark": lambda n: [put(record(n, version=V)), release(n, version=V)],
    "tombstone": lambda n: [delete(n, version=V)],
}

# (the stored item, the condition, the written version) -> whether it is applied
PUTS: list[tuple[str, When, int, bool]] = [
    ("nothing", Absent(), 1, True),
    ("live", Absent(), 11, False),
    ("mark", Absent(), 11, False),
    ("tombstone", Absent(), 11, False),
    ("nothing", AtVersion(V), 11, False),
    ("nothing", AtVersion(0), 11, False),
    ("live", AtVersion(V), 11, True),
    ("live", AtVersion(V - 1), 11, False),
    ("live", AtVersion(V + 1), 11, False),
    ("live", AtVersion(V, Role.HOME), 11, True),
    ("live", AtVersion(V, Role.REPLICA), 11, False),
    ("live", AtVersion(V, Role.ARRIVING), 11, False),
    ("live", AtVersion(V, Role.CACHED), 11, False),
    ("mark", AtVersion(V), 11, False),
    ("mark", AtVersion(V, Role.HOME), 11, False),
    ("tombstone", AtVersion(V), 11, True),
    ("tombstone", AtVersion(V, Role.REPLICA), 11, False),
    ("tombstone", AtVersion(V - 1), 11, False),
    ("nothing", Newer(), 1, True),
    ("live", Newer(), 11, True),
    ("live", Newer(), 10, False),
    ("live", Newer(), 9, False),
    ("mark", Newer(), 11, True),
    ("mark", Newer(), 10, False),
    ("mark", Newer(), 9, False),
    ("tombstone", Newer(), 11, True),
    ("tombstone", Newer(), 10, False),
    ("tombstone", Newer(), 9, False),
    ("nothing", Always(), 1, True),
    ("live", Always(), 9, True),
    ("mark", Always(), 9, True),
    ("tombstone", Always(), 9, True),
]


def _cell_name(cell: tuple[str, When, int, bool]) -> str:
    standing, when, version, applied = cell
    return (
        f"{when}-at-{version}-on-{standing}-{'applies' if applied else 'conflicts'}".replace(" ", "")
        .replace("<", "")
        .replace(">", "")
    )


@clause("write.table")
@needs("conditional")
@pytest.mark.asyncio
@cells("cell", PUTS, ids=_cell_name, shared=True)
async def test_a_put_meets_what_stands_there_as_the_table_says(
    store: Store, cell: tuple[str, When, int, bool]
) -> None:
    n, (standing, when, version, applies) = PUTS.index(cell), cell
    await apply_all(store, *STORED[standing](n))
    before = await fetch_stored(store, n)

    outcome = await one(store, put(record(n, version=version, fields={"type": "new"}), when))

    after = await fetch_stored(store, n)
    if applies:
        assert (outcome.status, outcome.version) == (Status.APPLIED, version)
        assert isinstance(after, Record)
        assert (after.version, after.fields["type"]) == (version, "new")
    else:
        assert outcome.status is Status.CONFLICT
        assert after == before, "a conflict must leave what stands there as it is"
        assert outcome.stored == before, "a conflict says what stands there"
        assert outcome.version == (None if standing == "nothing" else V)


KEPT_AND_SENT = (PendingStep("1", "keep", {"said": "a"}), PendingStep("2", "deliver"))
OWING_BOTH: dict[str, Callable[[int], list[Write]]] = {
    "live": lambda n: [put(record(n, version=V, role=Role.HOME, owed=KEPT_AND_SENT))],
    "cached": lambda n: [put(record(n, version=V, role=Role.CACHED, owed=KEPT_AND_SENT))],
    "mark": lambda n: [put(record(n, version=V)), release(n, version=V, owed=KEPT_AND_SENT)],
    "tombstone": lambda n: [delete(n, version=V, owed=KEPT_AND_SENT)],
}

# The pending steps of the write, the steps it settles, and whether it may replace an
# item with the pending steps KEPT_AND_SENT.
GIVES_WAY: list[tuple[tuple[PendingStep, ...], frozenset[str], bool]] = [
    ((), frozenset(), False),
    (KEPT_AND_SENT, frozenset(), True),
    ((PendingStep("2", "other", {"n": 1}), PendingStep("1", "another")), frozenset(), True),
    (KEPT_AND_SENT[:1], frozenset(), False),
    (KEPT_AND_SENT[1:], frozenset({"deliver"}), False),
    ((PendingStep("3", "keep", {"said": "a"}), PendingStep("4", "deliver")), frozenset(), False),
    ((), frozenset({"keep", "deliver", "never"}), True),
    ((), frozenset({"keep"}), False),
    ((), frozenset({"1", "2"}), False),
    (KEPT_AND_SENT[:1], frozenset({"deliver"}), True),
    ((PendingStep("3", "new"),), frozenset({"keep", "deliver"}), True),
]


def _over(
    standing: str, n: int, owed: tuple[PendingStep, ...], settles: frozenset[str]
) -> list[tuple[Write, Standing | None]]:
    """Return writes whose conditions hold there, and the result of each."""
    new, key, at = record(n, version=V + 1, owed=owed, generation=0), key_of(n), AtVersion(V)
    deleted = Tombstone(key, V + 1, owed)
    writes: list[tuple[Write, Standing | None]] = [(Put(SAMPLES, new, Newer(), settles), new)]
    writes.append((Delete(SAMPLES, key, V + 1, Newer(), owed, settles=settles), deleted))
    if standing != "mark":
        writes.append((Put(SAMPLES, new, at, settles), new))
        writes.append((Delete(SAMPLES, key, V + 1, at, owed, settles=settles), deleted))
    if standing == "live":
        writes.append(
            (Release(SAMPLES, key, V, "long", owed, settles=settles), Mark(key, HERE.scope, V, "long", owed))
        )
    elif not owed:
        writes.append((Purge(SAMPLES, key, V, settles=settles), None))
    return writes


@clause("write.owing", "write.table")
@needs("conditional")
@pytest.mark.asyncio
@cells("batch", [False, True], ids=["alone", "in a batch"], shared=True)
async def test_what_owes_gives_way_only_to_who_carries_it_on_or_settles_it(store: Store, batch: bool) -> None:
    """Each write has an item of its own."""
    before: list[Write] = []
    rows: list[tuple[Write, Standing | None, bool]] = []
    start = 1_000 * batch
    for standing, (owed, settles, gives_way) in itertools.product(OWING_BOTH, GIVES_WAY):
        for kind in range(len(_over(standing, 0, owed, settles))):
            n = start + len(rows)
            before += OWING_BOTH[standing](n)
            rows.append((*_over(standing, n, owed, settles)[kind], gives_way))
    await apply_all(store, *before)
    keys = [key_of(n) for n in range(start, start + len(rows))]
    stood = await store.get(SAMPLES, keys)
    size = store.capabilities.max_batch or len(rows) if batch else 1
    outcomes: list[Outcome] = []
    for at in range(0, len(rows), size):
        outcomes += await store.apply([write for write, *_ in rows[at : at + size]])
    failed: list[object] = []
    after = await store.get(SAMPLES, keys)
    for (write, leaves, gives_way), old, outcome, new in zip(rows, stood, outcomes, after, strict=True):
        told = (outcome.applied, None if gives_way else outcome.stored, new)
        if told != ((True, None, leaves) if gives_way else (False, old, old)):
            failed.append((write, outcome))
    assert failed == []


@clause("write.owing", "write.table")
@needs("conditional")
@pytest.mark.asyncio
@cells("standing", OWING_BOTH, shared=True)
async def test_an_unconditional_put_leaves_no_step_pending(store: Store, standing: str) -> None:
    """Caches owe nobody anything."""
    n = 1 + list(OWING_BOTH).index(standing)
    await apply_all(store, *OWING_BOTH[standing](n), put(record(n), Always()))
    assert (await fetch_record(store, n)).owed == ()


@clause("write.owing")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_was_settled_keeps_nobody_out_and_one_step_left_does(store: Store) -> None:
    await apply_all(
        store, put(record(version=V, owed=KEPT_AND_SENT)), Annotate(SAMPLES, key_of(1), V, settle=("1",))
    )
    assert (await one(store, put(record(version=V + 1), Newer()))).status is Status.CONFLICT
    await apply_all(
        store, Annotate(SAMPLES, key_of(1), V, settle=("2",)), put(record(version=V + 1), Newer())
    )
    assert (await fetch_record(store)).version == V + 1


DELETIONS = [cell for cell in PUTS if isinstance(cell[1], AtVersion | Newer)]


@clause("write.table", "delete.leaves")
@needs("conditional")
@pytest.mark.asyncio
@cells("cell", DELETIONS, ids=_cell_name, shared=True)
async def test_a_delete_meets_what_stands_there_as_the_table_says(
    store: Store, cell: tuple[str, When, int, bool]
) -> None:
    n, (standing, when, version, applies) = DELETIONS.index(cell), cell
    assert isinstance(when, AtVersion | Newer)
    await apply_all(store, *STORED[standing](n))
    before = await fetch_stored(store, n)

    outcome = await one(store, Delete(SAMPLES, key_of(n), version, when, discard_at=T0))

    after = await fetch_stored(store, n)
    if applies:
        assert (outcome.status, outcome.version) == (Status.APPLIED, version)
        assert after == Tombstone(key_of(n), version, discard_at=T0)
    else:
        assert outcome.status is Status.CONFLICT
        assert after == before, "a conflict must leave what stands there as it is"
        assert outcome.stored == before, "a conflict says what stands there"
        assert outcome.version == (None if standing == "nothing" else V)


@clause("write.roles")
@needs("conditional")
@pytest.mark.asyncio
@cells("role", [Role.HOME, Role.REPLICA, Role.ARRIVING, Role.CACHED])
async def test_a_role_in_a_condition_asks_for_exactly_that_role(store: Store, role: Role) -> None:
    for asked in Role:
        await apply_all(store, put(record(version=V, role=role)))
        outcome = await one(store, put(record(version=11), AtVersion(V, asked)))
        assert outcome.applied is (asked is role)


@clause("write.roles")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_tier_in_a_condition_asks_for_exactly_that_tier(store: Store) -> None:
    await apply_all(store, put(record(version=V, tier="mid")))
    for tier in ("short", "", "mid "):
        assert not (await one(store, put(record(version=11), AtVersion(V, tier=tier)))).applied, f"'{tier}'"
    assert (await one(store, put(record(version=11), AtVersion(V, Role.HOME, tier="mid")))).applied
    assert not (await one(store, put(record(version=12), AtVersion(11, tier="mid")))).applied, (
        "it is in the tier without a name now"
    )
    assert (await one(store, put(record(version=12), AtVersion(11, tier="")))).applied


@clause("write.roles")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_tombstone_has_neither_role_nor_tier(store: Store) -> None:
    await apply_all(store, put(record(version=V - 1)), delete(version=V))
    for when in (AtVersion(V, Role.HOME), AtVersion(V, tier="mid")):
        assert not (await one(store, put(record(version=11), when))).applied
    assert (await one(store, put(record(version=11), AtVersion(V)))).applied


@clause("delete.stays")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_stale_copy_under_newer_does_not_bring_a_deleted_record_back(store: Store) -> None:
    await apply_all(store, put(record(version=5)), delete(version=9))

    late = await one(store, put(record(version=5), Newer()))

    assert late.status is Status.CONFLICT
    assert await fetch_stored(store) == Tombstone(key_of(1), 9)


@clause("delete.stays")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_deleted_id_can_be_written_again_above_its_tombstone(store: Store) -> None:
    await apply_all(store, put(record(version=5)), delete(version=6))

    await apply_all(store, put(record(version=7, fields={"type": "again"}), AtVersion(6)))

    after = await fetch_stored(store)
    assert isinstance(after, Record)
    assert after.fields["type"] == "again"


@clause("put.whole")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_put_replaces_the_whole_record(store: Store) -> None:
    """That includes bookkeeping: values that the new record lacks are gone."""
    content: dict[str, Any] = {
        "fields": {"type": "a", "tags": ("x",)},
        "texts": {"title": "one"},
        "body": {"k": 1},
        "vector": pack_vector([1.0]),
    }
    times = dict.fromkeys(("expires_at", "accessed_at", "cached_at"), T0)
    books: dict[str, Any] = {
        "role": Role.REPLICA,
        "tier": "short",
        "owed": (PendingStep("k", "k"),),
        "previous": 3,
        "accesses": 4,
        "epoch": "run 5",
        **times,
    }
    conditions: tuple[When, ...] = (AtVersion(1), Newer(), Always())
    for version, when in zip((1, 3, 5), conditions, strict=True):
        await apply_all(store, put(record(version=version, **content, **books)))
        await apply_all(store, put(record(version=version + 1, fields={"source": "s"}), when, settles={"k"}))
        assert await fetch_stored(store) == record(version=version + 1, fields={"source": "s"}, generation=0)


@clause("annotate.expiry")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_annotation_moves_an_expiry_to_a_later_moment_only(store: Store) -> None:
    await apply_all(store, put(record(1, expires_at=T0)), put(record(2)), put(record(3)), delete(3))
    later, latest = T0 + timedelta(hours=1), T0 + timedelta(hours=2)
    for moment, stands in ((later, later), (T0, later), (latest, latest)):
        outcome = await one(store, Annotate(SAMPLES, key_of(1), 1, expires_at=moment))
        assert (outcome.status, outcome.version) == (Status.APPLIED, 1)
        assert (await fetch_record(store)).expires_at == stands
    await apply_all(store, Annotate(SAMPLES, key_of(2), 1, expires_at=later))
    assert (await fetch_record(store, 2)).expires_at is None
    tombstone = await one(store, Annotate(SAMPLES, key_of(3), 100, expires_at=later))
    assert tombstone.status is Status.CONFLICT
    if store.capabilities.tenant_wide and store.capabilities.filter:
        for now, due in ((later + timedelta(minutes=1), []), (latest + timedelta(minutes=1), [key_of(1)])):
            page = await store.due(now, expired={SAMPLES: now})
            assert [row.key for row in page.rows if row.key in (key_of(1), key_of(2))] == due
