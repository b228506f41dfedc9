"""Numbers where others are first, processes die, and what is numbered goes: none is
given twice, and none is left of what is gone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from memory.adapters.wrappers.retry import Retry
from memory.domain.errors import CorruptRecord, StoreUnavailable
from memory.domain.short_id import NumberedItem
from memory.orchestrator.conversations.blobs import manifests
from memory.orchestrator.engine import Engine
from memory.orchestrator.entries import orphans, short_ids
from memory.orchestrator.storage.collections import COUNTERS, MANIFESTS, NUMBERS
from memory.orchestrator.storage.topology import Topology
from memory.ports.record import Corrupt, Partition, Record
from memory.ports.writes import Always, Put
from tests.support import noticed
from tests.support.depth import drawn
from tests.support.mutations import Mutation
from tests.support.numbered import History, misnumbered
from tests.unit.orchestrator.conversations.test_manifests import delete, put, read, session
from tests.unit.orchestrator.world import ORG, SESSION, TENANT, USER, Flaky, World


async def test_of_two_that_number_an_entry_at_once_one_number_counts(world: World) -> None:
    entry, other = await world.write(), await world.another_process()
    theirs: list[dict[str, int]] = []

    async def numbered() -> None:
        theirs.append(await other.short_ids.of(TENANT, [entry.id]))

    world.mid.before["number.put"] = numbered
    ours = await world.engine.short_ids.of(TENANT, [entry.id])
    assert ours == theirs[0] == {entry.id: 2}
    later = await world.write()
    assert await other.short_ids.of(TENANT, [later.id]) == {later.id: 3}
    assert await misnumbered(world.engine) == []


async def test_who_is_overtaken_at_the_counter_counts_on(world: World) -> None:
    entry, another, other = await world.write(), await world.write(), await world.another_process()
    world.mid.before["number.reserve"] = lambda: other.short_ids.of(TENANT, [another.id])
    assert await world.engine.short_ids.of(TENANT, [entry.id]) == {entry.id: 2}
    assert await other.short_ids.of(TENANT, [another.id]) == {another.id: 1}


async def test_a_counter_that_is_moved_twice_at_one_moment_by_the_same_is_known_for_anothers(
    world: World,
) -> None:
    """The answer to a put is lost; it was made again, and meets that of another
    process: the same version, the same moment, the same count.
    """
    entries = [await world.write() for _ in range(2)]
    await world.flush()
    now = world.clock.advance()
    topology = Topology(short=world.short, mid=Retry(world.mid, backoff=0.0), long=world.long)
    one, other = (
        Engine(topology if retries else world.engine.topology, clock=lambda: now) for retries in (True, False)
    )
    await one.open()
    await other.open()
    theirs: list[dict[str, int]] = []

    async def overtaken() -> None:
        theirs.append(await other.short_ids.of(TENANT, [entries[1].id]))
        raise StoreUnavailable("mid", "never arrived")

    world.mid.before["number.reserve"] = overtaken
    ours = await one.short_ids.of(TENANT, [entries[0].id])
    assert sorted([*ours.values(), *theirs[0].values()]) == [1, 2]
    assert await misnumbered(world.engine) == []


@pytest.mark.parametrize(
    ("lost", "after"),
    [("number.reserve", False), ("number.reserve", True), ("number.put", False), ("number.put", True)],
)
async def test_who_dies_on_the_way_leaves_a_gap_at_most(world: World, lost: str, after: bool) -> None:
    entry = await world.write()
    (world.mid.fails_after if after else world.mid.fails_before).add(lost)
    with pytest.raises(StoreUnavailable):
        await world.engine.short_ids.of(TENANT, [entry.id])
    world.heal()
    expected = {("number.reserve", False): 1, ("number.put", True): 1}.get((lost, after), 2)
    assert await (await world.another_process()).short_ids.of(TENANT, [entry.id]) == {entry.id: expected}
    assert await misnumbered(world.engine) == []


async def test_of_an_entry_that_is_deleted_meanwhile_no_number_stays(world: World) -> None:
    entry, stays, other = await world.write(), await world.write(), await world.another_process()
    world.mid.before["number.put"] = lambda: other.deletion.delete(TENANT, entry.id)
    await world.engine.short_ids.of(TENANT, [entry.id, stays.id])
    assert await world.engine.short_ids.resolve(TENANT, [1, entry.id]) == [None, None]
    assert await misnumbered(world.engine) == [f"#1 is of {entry.id}, which is gone"]
    await world.engine.maintenance.sweep()
    assert await misnumbered(world.engine) == []
    assert await world.engine.short_ids.of(TENANT, [entry.id, stays.id]) == {stays.id: 2}


async def test_of_a_scope_that_is_erased_meanwhile_no_number_comes_to_stand(world: World) -> None:
    entry, stays = await world.write(), await world.write(scope=USER)
    world.mid.before["number.put"] = lambda: world.engine.erasure.erase(Partition(TENANT, SESSION.text))
    assert await world.engine.short_ids.of(TENANT, [entry.id, stays.id]) == {stays.id: 2}
    assert [row.fields["entry_id"] for row in await world.rows(world.mid, NUMBERS)] == [stays.id]


async def test_what_is_born_again_gets_a_number_of_its_own(world: World) -> None:
    entry = await world.write(key="k")
    assert await world.engine.short_ids.of(TENANT, [entry.id]) == {entry.id: 1}
    await world.delete(entry)
    assert await world.rows(world.mid, NUMBERS) == []
    again = await world.write(key="k", revive=True)
    assert again.id == entry.id
    assert await world.engine.short_ids.resolve(TENANT, [1]) == [None]
    assert await world.engine.short_ids.of(TENANT, [entry.id]) == {entry.id: 2}
    assert await misnumbered(world.engine) == []


async def test_an_entry_that_was_numbered_and_deleted_meanwhile_gets_no_second_number(world: World) -> None:
    entry, stays, other = await world.write(), await world.write(), await world.another_process()

    async def ended() -> None:
        assert await other.short_ids.of(TENANT, [entry.id]) == {entry.id: 3}
        await other.deletion.delete(TENANT, entry.id)

    world.mid.before["number.put"] = ended
    assert await world.engine.short_ids.of(TENANT, [entry.id, stays.id]) == {stays.id: 2}
    assert await misnumbered(world.engine) == []


async def test_what_is_born_again_waits_for_the_end_of_a_number_that_was_dropped(world: World) -> None:
    entry, other = await world.write(key="k"), await world.another_process()
    world.mid.before["number.put"] = lambda: other.deletion.delete(TENANT, entry.id)
    assert await world.engine.short_ids.of(TENANT, [entry.id]) == {entry.id: 1}
    world.long.fails_before.add("delete.elsewhere")
    await world.engine.maintenance.sweep()
    await world.write(key="k", revive=True)
    assert await world.engine.short_ids.of(TENANT, [entry.id]) == {}, (
        "what the number's end owes cannot be done just now"
    )
    world.heal()
    assert await world.engine.short_ids.of(TENANT, [entry.id]) == {entry.id: 3}
    assert await misnumbered(world.engine) == []


async def test_a_move_keeps_the_number_and_a_copy_gets_its_own(world: World) -> None:
    entry = await world.write()
    before = await world.engine.short_ids.of(TENANT, [entry.id])
    for tier in ("mid", "long"):
        await world.move(entry, tier)
        assert await world.engine.short_ids.of(TENANT, [entry.id]) == before
    copy = await world.engine.derivation.promote(TENANT, entry.id, ORG, overrides={}, delete_original=False)
    assert await world.engine.short_ids.of(TENANT, [copy.id, entry.id]) == {copy.id: 2, entry.id: 1}


async def test_what_lives_on_in_a_store_that_was_set_back_is_numbered(world: World) -> None:
    """It was restored to before an erasure: what is written there since is of a
    generation that the archive refuses.
    """
    before = world.short.state.snapshot()
    await world.write("old text")
    await world.engine.erasure.erase(Partition(TENANT, SESSION.text))
    await world.flush()
    world.short.state.restore(before)
    entry, other = await world.write(), await world.another_process()
    assert await world.rows(world.mid, NUMBERS) == []
    row = await world.standing(world.short, entry.id)
    assert isinstance(row, Record)
    assert await other.short_ids.of(TENANT, [entry.id]) == {entry.id: 1}


async def test_many_are_numbered_in_a_few_calls_and_known_by_one(world: World) -> None:
    entries = [await world.write(scope=scope) for scope in (SESSION, USER, ORG) * 30]
    await world.flush()
    for store in world.stores:
        store.steps.clear()
    await world.engine.short_ids.of(TENANT, [entry.id for entry in entries])
    assert world.mid.steps == ["number.read", "read.home", "number.count", "number.reserve", "number.put"]
    assert (world.short.steps, world.long.steps) == (["read.home"], [])
    world.mid.steps.clear()
    found = await world.engine.short_ids.of(TENANT, [entry.id for entry in entries])
    assert world.mid.steps == ["number.read"]
    assert [found[entry.id] for entry in entries] == list(range(1, 91)), "the oldest first"


async def test_twenty_at_once_agree(world: World) -> None:
    entries = [await world.write() for _ in range(7)]
    engines = [await world.another_process() for _ in range(4)]
    answers = await asyncio.gather(
        *(engine.short_ids.of(TENANT, [entry.id for entry in entries]) for engine in engines * 5)
    )
    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0].values())) == 7
    assert await misnumbered(world.engine) == []


async def test_of_what_a_store_that_is_away_may_hold_nothing_is_numbered_and_the_rest_is(
    world: World,
) -> None:
    here, there = await world.write(scope=USER), await world.write()
    await world.flush()
    world.short.down = True
    assert await world.engine.short_ids.of(TENANT, [here.id, there.id]) == {here.id: 1}
    world.heal()
    assert await world.engine.short_ids.of(TENANT, [here.id, there.id]) == {here.id: 1, there.id: 2}


async def test_a_damaged_number_is_left_out_and_a_damaged_counter_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [await world.write() for _ in range(3)]
    await world.engine.short_ids.of(TENANT, [entry.id for entry in entries[:2]])
    damaged = short_ids._key(TENANT, entries[0].id)
    get, collections = world.mid.get, {NUMBERS}

    async def damages(collection: Any, keys: Any) -> Any:
        found = await get(collection, keys)
        return [
            Corrupt(key, "torn") if collection in collections and key == damaged else row
            for key, row in zip(keys, found, strict=True)
        ]

    monkeypatch.setattr(world.mid, "get", damages)
    assert await world.engine.short_ids.of(TENANT, [entry.id for entry in entries]) == {
        entries[1].id: 2,
        entries[2].id: 3,
    }
    damaged, later = (await world.rows(world.mid, COUNTERS))[0].key, await world.write()
    collections.add(COUNTERS)
    with pytest.raises(CorruptRecord, match="torn"):
        await world.engine.short_ids.of(TENANT, [later.id])


# -- artifacts -------------------------------------------------------------------------


async def test_of_two_that_number_an_artifact_at_once_one_number_counts(world: World) -> None:
    await session(world.engine)
    artifact, other = await put(world.engine, b"x"), await world.another_process()
    theirs: list[dict[str, int]] = []

    async def numbered() -> None:
        theirs.append(await other.short_ids.of(TENANT, [artifact.id], "artifact"))

    world.mid.before["number.put"] = numbered
    ours = await world.engine.short_ids.of(TENANT, [artifact.id], "artifact")
    assert ours == theirs[0] == {artifact.id: 2}
    entry = await world.write()
    assert await other.short_ids.of(TENANT, [entry.id]) == {entry.id: 3}
    assert await misnumbered(world.engine) == []


async def test_an_artifact_that_is_replaced_meanwhile_keeps_its_number_and_its_bytes(world: World) -> None:
    await session(world.engine)
    artifact, other = await put(world.engine, b"one"), await world.another_process()
    world.mid.before["number.put"] = lambda: put(other, b"two")
    assert await world.engine.short_ids.of(TENANT, [artifact.id], "artifact") == {artifact.id: 1}
    found = await world.engine.conversations.manifests.get(TENANT, artifact.id)
    assert found is not None
    assert (await read(world.engine), found.fields["number"]) == (b"two", 1)
    second = await put(world.engine, b"one", "b")
    world.mid.before["artifacts.name"] = lambda: other.short_ids.of(TENANT, [second.id], "artifact")
    replaced = await put(world.engine, b"two", "b")
    assert (replaced.id, await read(world.engine, "b")) == (second.id, b"two")
    assert await other.short_ids.of(TENANT, [second.id], "artifact") == {second.id: 2}
    assert await misnumbered(world.engine) == []


async def test_numbering_an_artifact_does_not_update_it(world: World) -> None:
    await session(world.engine)
    artifact = await put(world.engine, b"x")
    await world.engine.short_ids.of(TENANT, [artifact.id], "artifact")
    (there,) = (await world.engine.conversations.manifests.list(TENANT, "s1", 10, None)).artifacts
    assert there == artifact


async def test_what_is_put_under_the_path_of_a_deleted_artifact_has_a_number_of_its_own(world: World) -> None:
    await session(world.engine)
    gone, other = await put(world.engine, b"x"), await world.another_process()

    async def replaced() -> None:
        await delete(other)
        await put(other, b"y")

    world.mid.before["number.put"] = replaced
    assert await world.engine.short_ids.of(TENANT, [gone.id], "artifact") == {}
    (there,) = (await world.engine.conversations.manifests.list(TENANT, "s1", 10, None)).artifacts
    assert await world.engine.short_ids.of(TENANT, [gone.id, there.id], "artifact") == {there.id: 2}
    assert await world.engine.short_ids.resolve(TENANT, [1, gone.id]) == [None, None]
    assert await misnumbered(world.engine) == []


async def test_of_a_session_that_is_deleted_meanwhile_nothing_is_numbered_and_no_number_found(
    world: World,
) -> None:
    await session(world.engine)
    await session(world.engine, "s2")
    numbered, artifact, stays = (
        await put(world.engine, b"x"),
        await put(world.engine, b"y", "b"),
        await put(world.engine, b"z", session_id="s2"),
    )
    assert await world.engine.short_ids.of(TENANT, [numbered.id], "artifact") == {numbered.id: 1}
    world.mid.before["number.put"] = lambda: world.engine.conversations.sessions.delete(TENANT, "s1")
    assert await world.engine.short_ids.of(TENANT, [artifact.id, stays.id], "artifact") == {stays.id: 3}
    assert await world.engine.short_ids.resolve(TENANT, [1, 2, 3, artifact.id]) == [
        None,
        None,
        NumberedItem("artifact", stays.id, 3),
        None,
    ]
    assert [row.fields["artifact_id"] for row in await world.rows(world.mid, MANIFESTS)] == [stays.id]


@pytest.mark.parametrize("again", [False, True])
async def test_what_a_deleted_session_has_left_is_not_numbered_nor_found(world: World, again: bool) -> None:
    """The store took the end of the session's own record, and failed before it took
    that of its manifests.
    """
    await session(world.engine)
    numbered, artifact = await put(world.engine, b"x"), await put(world.engine, b"y", "b")
    await world.engine.short_ids.of(TENANT, [numbered.id], "artifact")

    async def failing() -> None:
        world.mid.fails_before.add("erase.delete")

    world.mid.after["erase.delete"] = failing
    with pytest.raises(StoreUnavailable):
        await world.engine.erasure.erase(Partition(TENANT, "conversation:s1"))
    world.heal()
    if again:
        await session(world.engine)
    assert len(await world.rows(world.mid, MANIFESTS)) == 2
    assert await world.engine.short_ids.of(TENANT, [numbered.id, artifact.id], "artifact") == {}
    assert await world.engine.short_ids.resolve(TENANT, [1, numbered.id]) == [None, None]
    await world.settled()
    assert (await world.rows(world.mid, MANIFESTS), await misnumbered(world.engine)) == ([], [])


@pytest.mark.parametrize(
    ("lost", "after"),
    [("number.reserve", False), ("number.reserve", True), ("number.put", False), ("number.put", True)],
)
async def test_who_dies_while_it_numbers_an_artifact_leaves_a_gap_at_most(
    world: World, lost: str, after: bool
) -> None:
    await session(world.engine)
    artifact = await put(world.engine, b"x")
    (world.mid.fails_after if after else world.mid.fails_before).add(lost)
    with pytest.raises(StoreUnavailable):
        await world.engine.short_ids.of(TENANT, [artifact.id], "artifact")
    world.heal()
    expected = {("number.reserve", False): 1, ("number.put", True): 1}.get((lost, after), 2)
    assert await (await world.another_process()).short_ids.of(TENANT, [artifact.id], "artifact") == {
        artifact.id: expected
    }
    assert (await read(world.engine), await misnumbered(world.engine)) == (b"x", [])


async def test_artifacts_are_numbered_in_a_few_calls_and_entries_are_found_without_a_look_at_them(
    world: World,
) -> None:
    entry = await world.write(scope=USER)
    for session_id in ("s1", "s2"):
        await session(world.engine, session_id)
    put_there = [await put(world.engine, b"x", f"{n}", session_id=f"s{1 + n % 2}") for n in range(8)]
    await world.flush()
    asked = [one.id for one in put_there]
    world.mid.steps.clear()
    found = await world.engine.short_ids.of(TENANT, asked[::-1], "artifact")
    assert world.mid.steps == [
        "artifacts.find",
        "session.read",
        "number.count",
        "number.reserve",
        "number.put",
    ]
    assert [found[one] for one in asked] == list(range(1, 9)), "the oldest first"
    world.mid.steps.clear()
    assert await world.engine.short_ids.of(TENANT, asked, "artifact") == found
    assert world.mid.steps == ["artifacts.find", "session.read"]
    await world.engine.short_ids.of(TENANT, [entry.id])
    world.mid.steps.clear()
    assert (
        await world.engine.short_ids.resolve(TENANT, [9, entry.id])
        == [NumberedItem("entry", entry.id, 9)] * 2
    )
    assert world.mid.steps == ["number.find", "number.read", "read.home"]
    world.mid.steps.clear()
    assert await world.engine.short_ids.resolve(TENANT, [1, 2]) == [
        NumberedItem("artifact", asked[n], n + 1) for n in range(2)
    ]
    assert world.mid.steps == ["number.find", "artifacts.find", "session.read"]


async def test_the_judge_knows_what_is_wrong_with_the_numbers_of_artifacts(world: World) -> None:
    await session(world.engine)
    entry, artifact, other = (
        await world.write(),
        await put(world.engine, b"x"),
        await put(world.engine, b"y", "b"),
    )
    await world.engine.short_ids.of(TENANT, [entry.id])
    await world.engine.short_ids.of(TENANT, [artifact.id, other.id], "artifact")
    first, second = sorted(await world.rows(world.mid, MANIFESTS), key=lambda row: str(row.fields["number"]))
    wrong: dict[str, tuple[Record, dict[str, Any]]] = {
        "#1 of acme is given 2 times": (first, {"number": 1}),
        "#9 of acme is none that was counted": (first, {"number": 9}),
        f"{other.id} has 2 numbers": (first, {"artifact_id": other.id}),
        f"#3 is of '{other.id}', whose session is gone": (second, {"incarnation": "of before"}),
    }
    for said, (row, changes) in wrong.items():
        assert await misnumbered(world.engine) == []
        for fields in ({**row.fields, **changes}, row.fields):
            await world.mid.apply([Put(MANIFESTS, replace(row, fields=fields), Always())])
            assert await misnumbered(world.engine) == ([said] if fields is not row.fields else [])


# -- histories -------------------------------------------------------------------------

FAILS = [
    "number.count",
    "number.reserve",
    "number.put",
    "number.read",
    "delete.home",
    "hanging.find",
    "hanging.erase",
    "erase.delete",
    "read.home",
]
FAILS += ["artifacts.find", "artifacts.name", "artifacts.delete", "session.read"]


async def _played(seed: int) -> list[str]:
    """Three processes over three stores, which answer in an order that is drawn, and
    fail now and then.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    async with World() as world:
        history = History(seed, [world.engine, await world.another_process(), await world.another_process()])
        for store in world.stores:
            _drawn_out(store, chance)

        def meanwhile() -> None:
            world.heal()
            if chance.random() < 0.5:
                store = chance.choice(world.stores)
                chance.choice((store.fails_before, store.fails_after)).add(chance.choice(FAILS))

        await history.played(meanwhile)
        world.heal()
        world.clock.advance()
        return await history.ended()


def _drawn_out(store: Flaky, chance: random.Random) -> None:
    original: Callable[..., Awaitable[Any]] = store.on_call

    async def call(method: str, *args: Any, **kwargs: Any) -> Any:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        answer = await original(method, *args, **kwargs)
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        return answer

    store.on_call = call  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(drawn(300, 8)))
@pytest.mark.thorough
async def test_numbers_are_right_after_a_drawn_history(seed: int) -> None:
    assert await _played(seed) == []


_WHATEVER = "__import__('memory.ports.writes').ports.writes.Newer()"
MUTATIONS = {
    "the counter is moved without looking": Mutation(
        short_ids, "ShortIds._reserve", "AtVersion(stands) if stands else Absent()", _WHATEVER
    ),
    "the counter is moved on by one": Mutation(short_ids, "ShortIds._reserve", "last + count", "last + 1"),
    "the first of the numbers is the last before": Mutation(
        short_ids, "ShortIds._reserve", "return last + 1", "return max(last, 1)"
    ),
    "a number is put over another": Mutation(
        short_ids,
        "ShortIds._number_put",
        "return Put(NUMBERS, record, Absent())",
        f"return Put(NUMBERS, record, {_WHATEVER})",
    ),
    "who comes second says its own number": Mutation(
        short_ids, "ShortIds._give", "put.record if outcome.applied else outcome.stored", "put.record"
    ),
    "who is born again gets none": Mutation(
        short_ids, "ShortIds._give", "AtVersion(there.version)), *now", "Absent()), *now"
    ),
    "a replaced artifact has no number any more": Mutation(
        manifests, "Manifests._manifest", 'None if before is None else before.fields.get("number")', "None"
    ),
    "the number of an artifact is put over what stands there": Mutation(
        short_ids, "ShortIds._manifest_put", "AtVersion(manifest.version))", f"{_WHATEVER})"
    ),
    "who comes second says its own number of an artifact": Mutation(
        short_ids,
        "ShortIds._give_artifacts",
        "put.record if outcome.applied else outcome.stored",
        "put.record",
    ),
    "what was numbered late stays": Mutation(
        orphans, "OrphanCollector._drop", "if not named[head.key] <= there:", "if not named[head.key]:"
    ),
}


@pytest.mark.parametrize("name", noticed.cases("numbers/", MUTATIONS))
def test_a_mutation_shows(name: str) -> None:
    assert MUTATIONS[name].seen_in(_played, 200, f"numbers/{name}")
