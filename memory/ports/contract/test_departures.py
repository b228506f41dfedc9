"""Delete, Release, Purge, and Annotate, which changes bookkeeping afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import (
    HERE,
    LATER,
    T0,
    apply_all,
    delete,
    fetch_mark,
    fetch_record,
    fetch_stored,
    fetch_tombstone,
    hit_ids,
    key_of,
    list_rows,
    one,
    put,
    query_ids,
    record,
    release,
    step_ids,
    ways,
)
from memory.ports.query import Query, RowType, Search, within
from memory.ports.record import Mark, PendingStep, Role, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Annotate, AtVersion, Delete, Outcome, Purge, Status, Write

STEPS = (
    PendingStep("deliver:long", "deliver", {"to": "long", "deep": [1, {"x": None}]}),
    PendingStep("erase", "erase", {}),
    PendingStep("deliver:archive", "deliver", {"to": "archive"}),
)
SAID = "the cormorant nests at dawn"


def _annotate(n: int = 1, at: int = 1, **changes: Any) -> Annotate:
    return Annotate(SAMPLES, key_of(n), at, **changes)


async def _refused_without_change(store: Store, write: Write) -> Outcome:
    """Return the outcome of a write that must conflict and change nothing.

    The outcome must have the stored item.
    """
    before = await fetch_stored(store)
    outcome = await one(store, write)
    assert outcome.status is Status.CONFLICT
    assert outcome.stored == before
    assert await fetch_stored(store) == before
    return outcome


# -- delete ----------------------------------------------------------------------------


@clause("delete.leaves")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_delete_leaves_a_tombstone_with_what_it_was_given(store: Store) -> None:
    await apply_all(store, put(record(version=3)))
    await apply_all(
        store,
        Delete(
            SAMPLES,
            key_of(1),
            4,
            AtVersion(3),
            owed=STEPS,
            note={"digest": "abc", "n": [1, None]},
            discard_at=LATER,
        ),
    )
    assert await fetch_stored(store) == Tombstone(
        key_of(1), 4, STEPS, {"digest": "abc", "n": [1, None]}, LATER
    )


@clause("delete.nothing-said")
@needs("conditional")
@pytest.mark.asyncio
async def test_nothing_of_a_deleted_records_content_stays_readable(store: Store) -> None:
    whole = record(
        fields={"source": SAID, "tags": (SAID,)},
        body={"s": SAID},
        texts={"content": SAID, "title": SAID},
        owed=(PendingStep(SAID, SAID),),
    )
    await apply_all(store, put(whole))
    assert SAID in repr(await fetch_stored(store)), (
        "the text must be readable before, or this test proves nothing"
    )

    await apply_all(store, delete(settles=frozenset({SAID})))

    assert await fetch_stored(store) == Tombstone(key_of(1), 100)
    assert await query_ids(store) == []


@clause("delete.nothing-said", "lexical.follows")
@needs("conditional", "lexical")
@pytest.mark.asyncio
@cells("write", [delete(), release()], ids=["deleted", "released"])
async def test_what_left_is_no_longer_found_by_words(store: Store, write: Write) -> None:
    await apply_all(store, put(record(texts={"content": SAID})))
    assert await hit_ids(store, "cormorant") == {key_of(1).id}

    await apply_all(store, write)

    assert await hit_ids(store, "cormorant") == set()


@clause("delete.leaves")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_delete_under_newer_leaves_a_tombstone_where_nothing_stood(store: Store) -> None:
    await apply_all(store, delete(version=7))
    assert await fetch_tombstone(store) == Tombstone(key_of(1), 7)


# -- release ---------------------------------------------------------------------------


@clause("release.mark")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_release_leaves_a_mark_that_says_where_the_record_lives_now(store: Store) -> None:
    await apply_all(store, put(record(version=5, texts={"content": SAID}, body={"s": SAID})))

    outcome = (await apply_all(store, release(version=5, to="long", owed=STEPS, discard_at=LATER)))[0]

    assert outcome.version == 5
    assert await fetch_stored(store) == Mark(key_of(1), HERE.scope, 5, "long", STEPS, LATER)
    assert await query_ids(store) == []


@clause("release.mark", "delete.leaves")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_leaves_owes_what_its_departure_says_and_nothing_of_what_it_owed_before(
    store: Store,
) -> None:
    owing: dict[str, Any] = {"owed": STEPS[:1], "expires_at": LATER}
    leaving = (release(0), release(1, owed=STEPS[1:2]), delete(2), delete(3, owed=STEPS[1:2]))
    await apply_all(store, *[put(record(n, **owing)) for n in range(4)])
    await apply_all(store, *[replace(write, settles=frozenset({"deliver"})) for write in leaving])
    marks = [Mark(key_of(n), HERE.scope, 1, "mid", owed) for n, owed in ((0, ()), (1, STEPS[1:2]))]
    assert await store.get(SAMPLES, [key_of(n) for n in range(4)]) == [
        *marks,
        Tombstone(key_of(2), 100),
        Tombstone(key_of(3), 100, STEPS[1:2]),
    ]


@clause("release.mark", "apply.repeatable")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_release_repeated_on_its_own_mark_is_applied_and_changes_nothing(store: Store) -> None:
    await apply_all(
        store, put(record()), release(owed=STEPS, discard_at=LATER), _annotate(settle=step_ids(STEPS[:1]))
    )
    before = await fetch_mark(store)

    for again in (release(owed=STEPS, discard_at=LATER), release(), release(owed=STEPS[:1], discard_at=T0)):
        await apply_all(store, again)
        assert await fetch_mark(store) == before, "whatever else the repeated one says"


@clause("release.home")
@needs("conditional")
@pytest.mark.asyncio
@cells("role", [Role.REPLICA, Role.ARRIVING, Role.CACHED])
async def test_only_the_home_copy_can_be_released(store: Store, role: Role) -> None:
    await apply_all(store, put(record(role=role)))
    await _refused_without_change(store, release())


@clause("release.home")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_release_at_another_version_or_of_what_is_not_there_conflicts(store: Store) -> None:
    assert (await _refused_without_change(store, release())).version is None
    await apply_all(store, put(record(version=5)))
    assert (await _refused_without_change(store, release(version=4))).version == 5
    await _refused_without_change(store, release(version=6))


@clause("release.home")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_release_meeting_anothers_mark_or_a_tombstone_conflicts(store: Store) -> None:
    await apply_all(store, put(record()), release(to="mid"))
    await _refused_without_change(store, release(to="long"))
    await _refused_without_change(store, release(version=2))
    await apply_all(store, delete(version=9))
    await _refused_without_change(store, release(version=9))


# -- annotate --------------------------------------------------------------------------


@clause("annotate.only")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_annotation_changes_bookkeeping_and_nothing_else(store: Store) -> None:
    whole = record(
        version=3,
        fields={"type": "fact"},
        body={"a": 1},
        texts={"title": "t"},
        vector=pack_vector([1.0, 2.0]),
        owed=STEPS,
        tier="short",
    )
    await apply_all(store, put(whole))
    before = await fetch_record(store)

    outcome = (
        await apply_all(store, _annotate(at=3, role=Role.REPLICA, tier="long", settle=step_ids(STEPS[1:])))
    )[0]

    after = await fetch_record(store)
    assert outcome.version == 3
    assert after.same_content(before)
    assert (after.role, after.tier, after.owed, after.accesses, after.accessed_at) == (
        Role.REPLICA,
        "long",
        STEPS[:1],
        0,
        None,
    )


@clause("annotate.only", "owed.untouched")
@needs("conditional")
@pytest.mark.asyncio
async def test_settling_takes_away_exactly_the_named_steps_and_keeps_the_others_order(store: Store) -> None:
    await apply_all(store, put(record(owed=STEPS)))
    await apply_all(store, _annotate(settle=(STEPS[1].id, "deliver", "never")))
    assert (await fetch_record(store)).owed == (STEPS[0], STEPS[2])
    await apply_all(store, _annotate(settle=step_ids(STEPS)), _annotate(settle=step_ids(STEPS)))
    assert (await fetch_record(store)).owed == ()
    many = tuple(PendingStep(f"step {n}", "deliver", {"n": n}) for n in range(300))
    await apply_all(
        store,
        put(record(version=2, owed=many)),
        _annotate(at=2, settle=("unknown", *step_ids(many[:-1]), "never")),
    )
    assert (await fetch_record(store)).owed == many[-1:]


@clause("annotate.only", "owed.untouched", "apply.repeatable")
@needs("conditional")
@pytest.mark.asyncio
@cells("standing", ["live", "mark", "tombstone"])
async def test_steps_are_told_apart_by_their_ids_alone(store: Store, standing: str) -> None:
    """Steps with equal content or similar ids stay.

    Settling a step again, or twice in one call, changes nothing more.
    """
    owed = tuple(
        PendingStep(name, "n", {"n": 1}) for name in ("n", "N", "n ", "1", "01", "é", "e\u0301", "n:1")
    )
    left: dict[str, list[Write]] = {
        "live": [put(record(owed=owed))],
        "mark": [put(record()), release(owed=owed)],
        "tombstone": [delete(version=1, owed=owed)],
    }
    await apply_all(store, *left[standing])
    first = await fetch_stored(store)
    for settle, remain in ((("n",), owed[1:]), (("1", "1", "é"), (*owed[1:3], owed[4], *owed[6:]))):
        for _ in range(2):
            await apply_all(store, _annotate(settle=settle))
            assert await fetch_stored(store) == replace(first, owed=remain)  # type: ignore[type-var]


@clause("annotate.only")
@needs("conditional")
@pytest.mark.asyncio
async def test_each_recorded_access_counts_one(store: Store) -> None:
    await apply_all(
        store,
        put(record(accesses=2)),
        _annotate(accessed_at=T0),
        _annotate(accessed_at=LATER),
        _annotate(tier="x"),
    )
    after = await fetch_record(store)
    assert (after.accesses, after.accessed_at) == (4, LATER)
    await apply_all(store, _annotate(accessed_at=T0))
    assert ((await fetch_record(store)).accesses, (await fetch_record(store)).accessed_at) == (5, T0), (
        "what was asked for, also where it is earlier"
    )


@clause("annotate.holds")
@needs("conditional")
@pytest.mark.asyncio
async def test_marks_and_tombstones_can_be_settled_and_given_an_end(store: Store) -> None:
    await apply_all(
        store, put(record(1)), release(1, owed=STEPS), delete(2, version=1, owed=STEPS, note={"k": 1})
    )

    await apply_all(
        store,
        _annotate(1, settle=step_ids(STEPS[:2]), discard_at=LATER),
        _annotate(2, settle=step_ids(STEPS), discard_at=LATER),
    )

    assert await fetch_stored(store, 1) == Mark(key_of(1), HERE.scope, 1, "mid", STEPS[2:], LATER)
    assert await fetch_stored(store, 2) == Tombstone(key_of(2), 1, (), {"k": 1}, LATER)
    await apply_all(store, _annotate(1, settle=step_ids(STEPS)))
    assert await fetch_stored(store, 1) == Mark(key_of(1), HERE.scope, 1, "mid", (), LATER)


@clause("annotate.holds")
@needs("conditional")
@pytest.mark.asyncio
@cells(
    "changes",
    [{"role": Role.HOME}, {"tier": "x"}, {"accessed_at": T0}, {"role_is": Role.HOME, "discard_at": T0}],
    ids=str,
)
async def test_what_only_live_copies_have_cannot_be_annotated_on_marks_and_tombstones(
    store: Store, changes: dict[str, Any]
) -> None:
    await apply_all(store, put(record()), release())
    await _refused_without_change(store, _annotate(**changes))
    await apply_all(store, delete(version=2))
    await _refused_without_change(store, _annotate(at=2, **changes))


@clause("annotate.holds")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_annotation_at_another_version_or_role_or_of_nothing_conflicts(store: Store) -> None:
    await _refused_without_change(store, _annotate(tier="x"))
    await apply_all(store, put(record(version=3, role=Role.ARRIVING, owed=STEPS)))
    await _refused_without_change(store, _annotate(at=2, settle=step_ids(STEPS)))
    await _refused_without_change(store, _annotate(at=4, settle=step_ids(STEPS)))
    await _refused_without_change(store, _annotate(at=3, role_is=Role.HOME, settle=step_ids(STEPS)))
    await apply_all(store, _annotate(at=3, role_is=Role.ARRIVING, role=Role.HOME))
    assert (await fetch_record(store)).role is Role.HOME


# -- purge -----------------------------------------------------------------------------


@clause("purge.holds")
@needs("conditional")
@pytest.mark.asyncio
async def test_marks_tombstones_and_cached_copies_can_be_purged(store: Store) -> None:
    await apply_all(
        store, put(record(1)), release(1), delete(2, version=4), put(record(3, version=5, role=Role.CACHED))
    )

    outcomes = await apply_all(
        store, *[Purge(SAMPLES, key_of(n), version) for n, version in ((1, 1), (2, 4), (3, 5))]
    )

    assert [o.version for o in outcomes] == [None] * 3
    assert await store.get(SAMPLES, [key_of(n) for n in (1, 2, 3)]) == [None] * 3


@clause("purge.holds")
@needs("conditional")
@pytest.mark.asyncio
async def test_an_arriving_copy_is_purged_only_when_asked_for_by_its_role(store: Store) -> None:
    await apply_all(
        store,
        put(record(1, role=Role.ARRIVING)),
        put(record(2)),
        put(record(3, role=Role.REPLICA)),
        put(record(4)),
        release(4),
    )

    await apply_all(store, Purge(SAMPLES, key_of(1), 1, role_is=Role.ARRIVING))
    for n in (2, 3, 4):
        assert (
            await one(store, Purge(SAMPLES, key_of(n), 1, role_is=Role.ARRIVING))
        ).status is Status.CONFLICT

    stands = await store.get(SAMPLES, [key_of(n) for n in (1, 2, 3, 4)])
    assert [type(s).__name__ for s in stands] == ["NoneType", "Record", "Record", "Mark"]


@clause("purge.holds", "apply.repeatable")
@needs("conditional")
@pytest.mark.asyncio
async def test_purging_what_is_missing_is_applied(store: Store) -> None:
    assert (await one(store, Purge(SAMPLES, key_of(1), 3))).status is Status.APPLIED


@clause("purge.holds")
@needs("conditional")
@pytest.mark.asyncio
@cells("role", [Role.HOME, Role.REPLICA, Role.ARRIVING])
async def test_a_live_copy_that_is_no_cache_is_never_purged(store: Store, role: Role) -> None:
    await apply_all(store, put(record(role=role)))
    await _refused_without_change(store, Purge(SAMPLES, key_of(1), 1))


@clause("purge.holds")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_purge_at_another_version_conflicts(store: Store) -> None:
    await apply_all(store, delete(version=4))
    await _refused_without_change(store, Purge(SAMPLES, key_of(1), 3))
    await _refused_without_change(store, Purge(SAMPLES, key_of(1), 5))


# -- lists of what left ----------------------------------------------------------------


@clause("query.left")
@needs("conditional", "tenant_wide")
@pytest.mark.asyncio
async def test_marks_and_tombstones_are_listed_apart_from_records(store: Store) -> None:
    await apply_all(
        store, put(record(1)), put(record(2)), release(2, owed=STEPS), delete(3, version=7, note={"k": 1})
    )

    assert list(await list_rows(store, RowType.MARK)) == [await fetch_mark(store, 2)]
    assert list(await list_rows(store, RowType.TOMBSTONE)) == [await fetch_tombstone(store, 3)]
    assert list(await list_rows(store, RowType.RECORD)) == [await fetch_record(store, 1)]


@clause("lexical.follows", "semantic.follows", "delete.nothing-said")
@needs("conditional")
@pytest.mark.asyncio
async def test_what_is_found_follows_every_kind_of_departure_and_change_of_role(store: Store) -> None:
    """Search by words and by meaning sees every change at once.

    The records are purged, released, deleted, erased by matching, or change their role.
    """
    vector = pack_vector([1.0, 2.0])

    async def hits(*roles: Role) -> list[set[str]]:
        wanted = frozenset(roles or Role)
        found_ = [
            await store.search(Search(SAMPLES, within(HERE), by, 50, roles=wanted))
            for by in ways(store, "cormorant", 1.0, 2.0)
        ]
        return [{hit.head.key.id for hit in some} for some in found_]

    def only(*numbers: int) -> list[set[str]]:
        return [{key_of(n).id for n in numbers}] * (store.capabilities.lexical + store.capabilities.semantic)

    roles = {1: Role.CACHED, 2: Role.ARRIVING, 6: Role.ARRIVING}
    await apply_all(
        store,
        *[
            put(record(n, role=roles.get(n, Role.HOME), texts={"content": SAID}, vector=vector))
            for n in range(1, 9)
        ],
    )
    assert await hits() == only(*range(1, 9))
    await apply_all(store, Purge(SAMPLES, key_of(1), 1), Purge(SAMPLES, key_of(2), 1, role_is=Role.ARRIVING))
    assert await hits() == only(*range(3, 9))
    await apply_all(store, release(3), delete(4))
    assert await hits() == only(*range(5, 9))
    await apply_all(
        store,
        Annotate(SAMPLES, key_of(5), 1, role=Role.REPLICA),
        Annotate(SAMPLES, key_of(6), 1, role_is=Role.ARRIVING, role=Role.HOME),
    )
    assert await hits(Role.HOME) == only(6, 7, 8)
    assert await hits(Role.REPLICA) == only(5)
    assert await hits(Role.ARRIVING) == only()
    assert await store.delete_matching(Query(SAMPLES, within(HERE)), 300) == 3
    assert await hits() == only(5)
    await apply_all(
        store, put(record(7, version=400, texts={"content": "another"}, vector=pack_vector([2.0, 1.0])))
    )
    assert [ids - {key_of(7).id} for ids in await hits()] == only(5)
