"""The graph: what is linked to an entry, how densely, and a whole; told by the links
and the entries as they are.
"""

from __future__ import annotations

import random
from collections import deque

import pytest

from memory import Entry, InvalidInput, NotFound
from memory.domain.relation import Expansion
from memory.facade.memory import Memory
from tests.acceptance.support import DAY, HOUR, OBJECT, OTHER_USER, SESSION, USER, Clock


async def written(memory: Memory, *names: str, scope: object = USER) -> dict[str, Entry]:
    return {name: await memory.write(name, scope=scope, title=name) for name in names}  # type: ignore[arg-type]


async def link(memory: Memory, of: dict[str, Entry], *links: str, label: str = "supports") -> None:
    """Links as in `ab`: from a to b."""
    for ends in links:
        await memory.relations.relate(of[ends[0]].id, label, of[ends[1]].id)


def reached(found: Expansion) -> dict[str, int]:
    return {node.entry.content: node.depth for node in found.nodes}


def edges(found: Expansion, of: dict[str, Entry]) -> list[str]:
    names = {entry.id: name for name, entry in of.items()}
    return sorted(names[one.source_id] + names[one.target_id] for one in found.relations)


@pytest.mark.behaviour("D117")
async def test_an_entry_expands_in_both_directions_one_step_or_two(memory: Memory) -> None:
    of = await written(memory, *"abcde") | await written(memory, "f", scope=SESSION)
    await link(memory, of, "ab", "ca", "bd", "de", "fc", "cb")
    one = await memory.relations.expand(of["a"].id)
    assert reached(one) == {"a": 0, "b": 1, "c": 1}
    assert edges(one, of) == ["ab", "ca"]
    two = await memory.relations.expand(of["a"].id, depth=2)
    assert reached(two) == {"a": 0, "b": 1, "c": 1, "d": 2, "f": 2}
    assert edges(two, of) == [
        "ab",
        "bd",
        "ca",
        "cb",
        "fc",
    ], "each link once, though both its ends were gone along"
    assert two.notices == ()
    assert await memory.relations.expand(of["a"].id, depth=7) == two, "two steps at most"
    assert await memory.relations.expand(of["a"].id, depth=-3) == one
    alone = await memory.write("alone", scope=USER)
    assert reached(await memory.relations.expand(alone.id)) == {"alone": 0}


@pytest.mark.behaviour("D117")
async def test_an_expansion_passes_over_what_is_retired_expired_or_of_another_scope(
    memory: Memory, clock: Clock
) -> None:
    of = await written(memory, *"abcd") | await written(memory, "o", scope=OTHER_USER)
    of["x"] = await memory.write("x", scope=USER, expires_at=HOUR)
    await link(memory, of, "ab", "bc", "ad", "dc", "ao", "xa")
    await memory.entries.invalidate(of["b"].id)
    assert reached(await memory.relations.expand(of["a"].id, depth=2)) == {
        "a": 0,
        "d": 1,
        "o": 1,
        "x": 1,
        "c": 2,
    }
    clock.advance(DAY)
    assert reached(await memory.relations.expand(of["a"].id, depth=2, scope=[USER, SESSION])) == {
        "a": 0,
        "d": 1,
        "c": 2,
    }
    await memory.delete(of["d"].id)
    found = await memory.relations.expand(of["a"].id, depth=2, scope=USER)
    assert (reached(found), found.relations) == ({"a": 0}, ())
    for gone in (of["b"].id, of["d"].id, of["x"].id, "unknown"):
        with pytest.raises(NotFound):
            await memory.relations.expand(gone)
        with pytest.raises(NotFound):
            await memory.relations.density(gone)
    with pytest.raises(InvalidInput, match="depth"):
        await memory.relations.expand(of["a"].id, depth=1.5)  # type: ignore[arg-type]


@pytest.mark.behaviour("D118", "AC-D45")
async def test_density_counts_links_and_what_is_within_two_steps(memory: Memory) -> None:
    of = await written(memory, *"abcd")
    await link(memory, of, "ab", "bc", "cd")
    chain = await memory.relations.density(of["b"].id)
    assert (chain.outgoing, chain.incoming, chain.one_step, chain.two_steps, chain.verdict) == (
        1,
        1,
        2,
        1,
        "sparse",
    )
    assert chain.labels == ("supports",)
    alone = await memory.write("alone", scope=USER)
    assert (await memory.relations.density(alone.id)).verdict == "isolated"
    more = await written(memory, "e")
    await link(memory, of | more, "be", label="refines")
    dense = await memory.relations.density(of["b"].id)
    assert (dense.outgoing, dense.incoming, dense.one_step, dense.two_steps, dense.verdict) == (
        2,
        1,
        3,
        1,
        "dense",
    )
    assert dense.labels == ("refines", "supports")
    await link(memory, of, "ba")
    assert (await memory.relations.density(of["b"].id)).one_step == 3, "an entry linked both ways is one"


@pytest.mark.behaviour("D129", "AC-D47")
async def test_a_graph_has_only_relations_with_both_ends_in_it(memory: Memory) -> None:
    one, two, other = [
        await memory.write(name, scope=scope, type=kind)
        for name, scope, kind in (
            ("one", USER, "project"),
            ("two", SESSION, "project"),
            ("other", USER, "reference"),
        )
    ]
    await memory.relations.relate(one.id, "supports", two.id)
    await memory.relations.relate(two.id, "refines", other.id)
    whole = await memory.relations.graph()
    assert {entry.id for entry in whole.entries} == {one.id, two.id, other.id}
    assert [relation.label for relation in whole.relations] == ["refines", "supports"]
    projects = await memory.relations.graph(types=["project"])
    assert (
        {entry.id for entry in projects.entries},
        [relation.label for relation in projects.relations],
    ) == ({one.id, two.id}, ["supports"])
    of_user = await memory.relations.graph(USER)
    assert ({entry.id for entry in of_user.entries}, of_user.relations) == ({one.id, other.id}, ())
    newest = await memory.relations.graph(limit=1)
    assert ([entry.id for entry in newest.entries], newest.notices) == (
        [other.id],
        ("more than 1 entries are there; the newest are shown",),
    )
    assert (await memory.relations.graph(OBJECT)).entries == ()
    with pytest.raises(InvalidInput, match="scope"):
        await memory.relations.graph([])


@pytest.mark.behaviour("D45", "D129")
async def test_what_was_superseded_is_dimmed_and_relations_at_a_moment_are_those_of_visible_ends(
    memory: Memory, clock: Clock
) -> None:
    old, friend = await memory.write("lives in Bonn", scope=USER), await memory.write("a friend", scope=USER)
    first = await memory.relations.relate(old.id, "supports", friend.id)
    before = clock.advance()
    clock.advance()
    new = await memory.write("lives in Berlin", scope=USER, supersedes=[old.id])
    clock.advance()
    assert [r.label for r in await memory.relations.find()] == ["supersedes", "supports"]
    assert await memory.relations.find(active=True) == [], "each has an end that is retired"
    now = clock.advance()
    assert [r.label for r in await memory.relations.find(as_of=now)] == ["supersedes"], (
        "what hides the other is seen"
    )
    assert await memory.relations.find(as_of=now, active=True) == []
    assert [r.id for r in await memory.relations.find(as_of=before, active=True)] == [first.id]
    assert [r.id for r in await memory.relations.find(known_at=before)] == [first.id], (
        "the other was made later"
    )
    graph = await memory.relations.graph()
    assert ({entry.id for entry in graph.entries}, set(graph.retired)) == (
        {old.id, friend.id, new.id},
        {old.id},
    )
    assert [r.label for r in graph.relations] == ["supersedes"]
    then = await memory.relations.graph(known_at=before)
    assert ({entry.id for entry in then.entries}, then.retired, [r.id for r in then.relations]) == (
        {old.id, friend.id},
        frozenset(),
        [first.id],
    )


@pytest.mark.behaviour("D129")
async def test_a_graph_dims_what_is_of_its_scopes_and_types_only_and_shows_no_link_between_dimmed_ones(
    memory: Memory, clock: Clock
) -> None:
    first = await memory.write("lives in Ulm", scope=USER, type="user")
    second = await memory.write("lives in Bonn", scope=USER, type="user", supersedes=[first.id])
    elsewhere = await memory.write("a note", scope=SESSION, type="user")
    of_another_type = await memory.write("a plan", scope=USER, type="project")
    clock.advance()
    third = await memory.write(
        "lives in Berlin", scope=USER, type="user", supersedes=[second.id, elsewhere.id, of_another_type.id]
    )
    clock.advance()
    whole = await memory.relations.graph()
    assert ({entry.id for entry in whole.entries}, set(whole.retired)) == (
        {third.id, second.id, elsewhere.id, of_another_type.id},
        {second.id, elsewhere.id, of_another_type.id},
    ), "what the superseded one had superseded is not dimmed: no end of that link is visible"
    assert len(whole.relations) == 3
    of_user = await memory.relations.graph(USER, types=["user"])
    assert (set(of_user.retired), [r.target_id for r in of_user.relations]) == ({second.id}, [second.id])
    later = await memory.write("not among them", scope=USER)
    newest = await memory.relations.graph(USER, limit=1)
    assert ([entry.id for entry in newest.entries], newest.retired) == ([later.id], frozenset())
    await memory.relations.relate(third.id, "supersedes", later.id)
    cut = await memory.relations.graph(USER, limit=1)
    assert cut.retired == frozenset(), "what is only beyond the limit is not retired"


@pytest.mark.behaviour("D129")
async def test_a_visible_entry_shows_what_superseded_it_though_that_is_retired(
    memory: Memory, clock: Clock
) -> None:
    old, new = await memory.write("one", scope=USER), await memory.write("two", scope=USER)
    await memory.relations.relate(new.id, "supersedes", old.id)
    await memory.relations.relate(new.id, "supports", old.id)
    friend = await memory.write("three", scope=USER)
    await memory.relations.relate(friend.id, "supports", new.id)
    await memory.entries.invalidate(new.id)
    clock.advance()
    found = await memory.relations.graph()
    assert (set(found.retired), [r.label for r in found.relations]) == ({new.id}, ["supersedes"])


@pytest.mark.behaviour("D117", "D118")
@pytest.mark.parametrize("seed", range(2))
async def test_expansions_of_drawn_graphs_are_what_a_walk_finds(memory: Memory, seed: int) -> None:
    """Against a walk in plain Python over the links as they were made."""
    draw = random.Random(seed)  # noqa: S311
    entries = await memory.write_many(
        [{"content": str(n), "scope": draw.choice([USER, SESSION])} for n in range(24)]
    )
    links = {tuple(draw.sample(range(24), 2)) for _ in range(40)}
    for source, target in sorted(links):
        await memory.relations.relate(
            entries[source].id, draw.choice(["supports", "refines"]), entries[target].id
        )
    retired = draw.sample(range(24), 5)
    for number in retired:
        assert await memory.entries.invalidate(entries[number].id)
    standing = {(a, b) for a, b in links if a not in retired and b not in retired}
    for begin in sorted(set(range(24)) - set(retired)):
        far = {begin: 0}
        queue = deque([begin])
        while queue:
            here = queue.popleft()
            for other in {b for a, b in standing if a == here} | {a for a, b in standing if b == here}:
                if other not in far and far[here] < 2:
                    far[other] = far[here] + 1
                    queue.append(other)
        found = await memory.relations.expand(entries[begin].id, depth=2)
        assert {int(node.entry.content): node.depth for node in found.nodes} == far
        number_of = {entry.id: number for number, entry in enumerate(entries)}
        shown = [(number_of[r.source_id], number_of[r.target_id]) for r in found.relations]
        assert sorted(shown) == sorted((a, b) for a, b in standing if min(far.get(a, 9), far.get(b, 9)) < 2)
        density = await memory.relations.density(entries[begin].id)
        assert (density.one_step, density.two_steps) == (
            list(far.values()).count(1),
            list(far.values()).count(2),
        )


@pytest.mark.behaviour("D117")
async def test_an_expansion_shows_what_was_superseded_where_that_is_asked_for(
    memory: Memory, clock: Clock
) -> None:
    of = await written(memory, "first", "friend", "ended")
    of["second"] = await memory.write("second", scope=USER, supersedes=[of["first"].id])
    await memory.relations.relate(of["second"].id, "supports", of["friend"].id)
    await memory.relations.relate(of["second"].id, "refines", of["ended"].id)
    of["third"] = await memory.write("third", scope=USER, supersedes=[of["second"].id])
    await memory.relations.relate(of["third"].id, "supports", of["friend"].id)
    await memory.entries.invalidate(of["ended"].id)
    clock.advance()
    third = of["third"].id
    assert reached(await memory.relations.expand(third, depth=2)) == {"third": 0, "friend": 1}
    whole = await memory.relations.expand(third, depth=2, superseded=True)
    assert reached(whole) == {
        "third": 0,
        "friend": 1,
        "second": 1,
    }, "not what second superseded: neither end of that is visible"
    assert whole.retired == {of["second"].id}
    assert sorted(one.label for one in whole.relations) == [
        "supersedes",
        "supports",
    ], "of a dimmed one no other link shows"
    from_friend = await memory.relations.expand(of["friend"].id, superseded=True)
    assert (reached(from_friend), from_friend.retired) == ({"friend": 0, "third": 1}, frozenset())
    from_the_dimmed = await memory.relations.expand(of["second"].id, depth=2, superseded=True)
    assert reached(from_the_dimmed) == {
        "second": 0,
        "third": 1,
        "friend": 2,
    }, "what superseded it, and on from there"
    assert from_the_dimmed.retired == {of["second"].id}
    also = await memory.write("also third", scope=USER)
    await memory.relations.relate(also.id, "supports", of["friend"].id)
    await memory.relations.relate(also.id, "supersedes", third)
    assert (await memory.relations.expand(third, superseded=True)).retired == {of["second"].id}, (
        "what is only superseded is not retired"
    )
    elsewhere = await memory.relations.expand(third, scope=OTHER_USER, superseded=True)
    assert reached(elsewhere) == {"third": 0}
    await memory.delete(of["second"].id)
    assert reached(await memory.relations.expand(third, superseded=True)) == {
        "third": 0,
        "friend": 1,
        "also third": 1,
    }
    with pytest.raises(NotFound):
        await memory.relations.expand(of["second"].id, superseded=True)
    with pytest.raises(InvalidInput, match="superseded"):
        await memory.relations.expand(third, superseded="yes")  # type: ignore[arg-type]
