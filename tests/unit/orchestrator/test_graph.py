"""Expansions: asked in rounds, not entry by entry; an entry with very many links
starves nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from unittest.mock import patch

import pytest

from memory.domain.entry import Entry
from memory.domain.relation import Expansion
from memory.orchestrator.entries import graph
from memory.orchestrator.entries.graph import LINKS_A_SIDE, MOST_NODES
from memory.orchestrator.storage.collections import RELATIONS
from memory.ports.record import Key, Record
from memory.ports.writes import Absent, Put
from tests.unit.orchestrator.world import TENANT, USER, World


async def link(world: World, pairs: Iterable[tuple[Entry, Entry]]) -> None:
    """Links made as the engine makes them, without looking at the ends of each."""
    for source, target in pairs:
        home = await world.engine.entries.live_record(TENANT, source.id, active=False)
        record = world.engine.relations.link(home, "supports", target.id)
        (outcome,) = await world.mid.apply([Put(RELATIONS, record, Absent())])
        assert outcome.applied


def found(expansion: Expansion) -> list[str]:
    return [node.entry.content for node in expansion.nodes]


@pytest.mark.behaviour("D117")
async def test_two_steps_over_fifty_entries_are_three_rounds(world: World) -> None:
    hub = await world.write("hub", USER)
    near = [await world.write(f"near {n}", USER) for n in range(7)]
    far = [await world.write(f"far {n}", USER) for n in range(42)]
    await link(world, [(hub, one) for one in near])
    await link(world, [(near[n % 7], one) for n, one in enumerate(far)])
    await world.engine.deliveries.flush()
    for store in world.stores:
        store.steps.clear()
    whole = await world.engine.graphs.expand(TENANT, hub.id, depth=2)
    assert (len(whole.nodes), len(whole.relations), whole.notices) == (50, 49, ())
    asked = {store.name: Counter(store.steps) for store in world.stores}
    assert asked["mid"] == {"read.home": 3, "relation.list": 4}, (
        "the entry, those near, those far; links of the first and of the second, both ways"
    )
    assert all(
        steps.keys() <= {"read.home"} and steps.total() <= 3 for name, steps in asked.items() if name != "mid"
    ), asked


@pytest.mark.behaviour("D117")
async def test_more_than_fifty_are_cut_and_said(world: World) -> None:
    hub = await world.write("hub", USER)
    others = [await world.write(f"{n:02}", USER) for n in range(60)]
    await link(world, [(hub, one) for one in others[:30]])
    await link(world, [(one, hub) for one in others[30:]])
    whole = await world.engine.graphs.expand(TENANT, hub.id)
    assert len(whole.nodes) == MOST_NODES
    assert whole.notices == (f"more than {MOST_NODES} entries are linked; the others are left out",)
    assert {end for relation in whole.relations for end in (relation.source_id, relation.target_id)} == {
        node.entry.id for node in whole.nodes
    }
    density = await world.engine.graphs.density(TENANT, hub.id)
    assert (density.outgoing, density.incoming, density.one_step) == (30, 30, 60)


@pytest.mark.behaviour("D117")
async def test_of_one_entry_the_newest_fifty_links_count(world: World) -> None:
    hub, beside = await world.write("hub", USER), await world.write("beside", USER)
    others = [await world.write(f"{n:02}", USER) for n in range(LINKS_A_SIDE + 5)]
    await link(world, [(beside, hub)])
    await link(world, [(hub, one) for one in others])
    density = await world.engine.graphs.density(TENANT, hub.id)
    assert (density.outgoing, density.incoming, density.one_step) == (50, 1, 51)
    cut = f"more than 50 links lead from entry {hub.id}; only the newest 50 count"
    assert density.notices == (
        "more than 50 entries are linked; only links of the first 50 were followed",
        cut,
    )
    assert found(await world.engine.graphs.expand(TENANT, hub.id)) == [
        "hub",
        *[one.content for one in reversed(others)][:49],
    ]


@pytest.mark.behaviour("D117")
async def test_a_hub_with_very_many_links_to_retired_entries_starves_nobody(world: World) -> None:
    begin, hub, beside, behind = [
        await world.write(name, USER) for name in ("begin", "hub", "beside", "behind")
    ]
    living, retired = await world.write("living", USER), await world.write("retired", USER)
    await link(world, [(begin, hub), (begin, beside), (beside, behind), (hub, living)])
    await world.engine.entries.invalidate(TENANT, retired.id, None)
    template = world.engine.relations.link(
        await world.engine.entries.live_record(TENANT, hub.id), "supports", retired.id
    )
    await world.mid.apply([Put(RELATIONS, _another(template, n), Absent()) for n in range(9_950)])
    two = await world.engine.graphs.expand(TENANT, begin.id, depth=2)
    assert (sorted(found(two)), two.notices) == (["begin", "behind", "beside", "hub", "living"], ()), (
        "its oldest link, which counts, is reached too"
    )
    with patch.object(graph, "MOST_READ", 3_000):
        cut = await world.engine.graphs.expand(TENANT, begin.id, depth=2)
    assert sorted(found(cut)) == ["begin", "behind", "beside", "hub"]
    assert cut.notices == (f"entry {hub.id} has more links than were read",)


@pytest.mark.behaviour("D118")
async def test_density_looks_behind_fifty_neighbours(world: World) -> None:
    hub = await world.write("hub", USER)
    near = [await world.write(f"near {n}", USER) for n in range(60)]
    far = [await world.write(f"far {n}", USER) for n in range(60)]
    await link(world, [(hub, one) for one in near[:30]])
    await link(world, [(one, hub) for one in near[30:]])
    await link(world, zip(near, far, strict=True))
    density = await world.engine.graphs.density(TENANT, hub.id)
    assert (density.one_step, density.two_steps) == (60, 50)
    assert density.notices == ("more than 50 entries are linked; only links of the first 50 were followed",)


def _another(link: Record, number: int) -> Record:
    """Another link between the same ends."""
    return replace(link, key=Key(TENANT, f"{link.key.id[:-5]}{number:05}"))
