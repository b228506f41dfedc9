"""Relations: directed, labelled, unique; gone with an entry that is deleted, kept with
one that is retired.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from memory import Conflict, Entry, InvalidInput
from memory.domain.relation import Relation
from memory.domain.relation_labels import LABELS
from memory.facade.memory import Memory
from tests.acceptance.support import HOUR, SESSION, USER, Clock


def ends(relations: list[Relation]) -> list[tuple[str, str, str]]:
    return [(r.source_id, r.label, r.target_id) for r in relations]


@pytest.fixture
async def abc(memory: Memory) -> tuple[Entry, Entry, Entry]:
    """Two entries of a user and one of a session."""
    a, b = [await memory.write(name, scope=USER) for name in "ab"]
    return a, b, await memory.write("c", scope=SESSION)


@pytest.mark.behaviour("D40", "D41", "D42", "D43", "D44", "AC-D15")
async def test_a_relation_is_unique_by_source_label_and_target(
    memory: Memory, clock: Clock, abc: tuple[Entry, Entry, Entry]
) -> None:
    a, b, _ = abc
    first = await memory.relations.relate(a.id, "supports", b.id)
    with pytest.raises(Conflict) as caught:
        await memory.relations.relate(a.id, "supports", b.id)
    assert caught.value.existing_id == first.id
    clock.advance()
    second = await memory.relations.relate(a.id, "refines", b.id)
    clock.advance()
    third = await memory.relations.relate(b.id, "supports", a.id)
    assert [r.id for r in await memory.relations.find()] == [third.id, second.id, first.id]
    assert [r.id for r in await memory.relations.find(source_id=a.id)] == [second.id, first.id]
    assert [r.id for r in await memory.relations.find(target_id=a.id)] == [third.id]
    assert [r.id for r in await memory.relations.find(label="supports")] == [third.id, first.id]
    assert [r.id for r in await memory.relations.find(source_id=a.id, target_id=b.id, label="refines")] == [
        second.id
    ]
    assert [r.id for r in await memory.relations.find(limit=1)] == [third.id]
    assert await memory.relations.unrelate(first.id) is True
    assert await memory.relations.unrelate(first.id) is False
    assert [r.id for r in await memory.relations.find()] == [third.id, second.id]


@pytest.mark.behaviour("D40")
async def test_pages_of_relations_lose_and_repeat_none(
    memory: Memory, clock: Clock, abc: tuple[Entry, Entry, Entry]
) -> None:
    a, b, c = abc
    others = [await memory.write(f"other {n}", scope=a.scope) for n in range(4)]
    for other in others:
        await memory.relations.relate(a.id, "supports", other.id)  # all at one moment
    clock.advance()
    await memory.relations.relate(b.id, "refines", c.id)
    await memory.entries.invalidate(others[2].id)
    clock.advance()
    for given in ({}, {"source_id": a.id}, {"active": True}, {"label": "supports"}):
        whole = await memory.relations.find(**given)
        assert whole.cursor is None
        for limit in (1, 2, 3):
            found, cursor = list[Relation](), None
            while True:
                page = await memory.relations.find(**given, limit=limit, cursor=cursor)
                assert len(page) <= limit
                found += page
                if (cursor := page.cursor) is None:
                    break
            assert found == whole, (given, limit)
    for wrong in ("x", "", "é"):
        with pytest.raises(InvalidInput, match="cursor"):
            await memory.relations.find(cursor=wrong)


@pytest.mark.behaviour("D40")
async def test_a_relation_deleted_can_be_made_again(memory: Memory, abc: tuple[Entry, Entry, Entry]) -> None:
    a, b, _ = abc
    for _ in range(3):
        relation = await memory.relations.relate(a.id, "supports", b.id)
        assert len(await memory.relations.find()) == 1
        assert await memory.relations.unrelate(relation.id)


@pytest.mark.behaviour("D40")
async def test_of_many_made_at_once_one_is_made(memory: Memory, abc: tuple[Entry, Entry, Entry]) -> None:
    a, b, _ = abc
    outcomes = await asyncio.gather(
        *(memory.relations.relate(a.id, "supports", b.id) for _ in range(10)), return_exceptions=True
    )
    assert len([o for o in outcomes if isinstance(o, Relation)]) == 1
    assert len([o for o in outcomes if isinstance(o, Conflict)]) == 9
    assert len(await memory.relations.find()) == 1


@pytest.mark.behaviour("D36", "D37", "D46")
async def test_labels_are_five_and_no_entry_is_related_to_itself(
    memory: Memory, abc: tuple[Entry, Entry, Entry]
) -> None:
    a, b, _ = abc
    for label in LABELS:
        assert (await memory.relations.relate(a.id, label, b.id)).label == label
    assert sorted(LABELS) == ["contradicts", "refines", "relates_to", "supersedes", "supports"]
    for unknown in ("likes", "SUPPORTS", "", None, ["supports"]):
        with pytest.raises(InvalidInput, match="invalid relation"):
            await memory.relations.relate(a.id, unknown, b.id)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="invalid relation filter"):
        await memory.relations.find(label="likes")
    with pytest.raises(InvalidInput, match="self-loops not allowed"):
        await memory.relations.relate(a.id, "supports", a.id)
    assert len(await memory.relations.find()) == 5


@pytest.mark.behaviour("D38", "D39")
async def test_a_missing_foreign_or_retired_end_gives_one_and_the_same_error(
    memory: Memory, clock: Clock, abc: tuple[Entry, Entry, Entry]
) -> None:
    a = abc[0]
    foreign = await memory.for_tenant("stranger").write("theirs", scope=USER)
    retired, deleted = [await memory.write(name, scope=USER) for name in ("retired", "deleted")]
    expired = await memory.write("expired", scope=USER, expires_at=clock.moment - HOUR)
    clock.advance()
    await memory.entries.invalidate(retired.id)
    await memory.delete(deleted.id)
    texts = set()
    for bad in (foreign.id, retired.id, deleted.id, expired.id, "nothing", ""):
        for pair in ((a.id, bad), (bad, a.id)):
            with pytest.raises(InvalidInput) as caught:
                await memory.relations.relate(pair[0], "supports", pair[1])
            texts.add(str(caught.value))
    assert len(texts) == 1
    assert await memory.relations.find() == []


@pytest.mark.behaviour("D29", "AC-D17")
async def test_a_deleted_entry_takes_its_relations_with_it(
    memory: Memory, abc: tuple[Entry, Entry, Entry]
) -> None:
    a, b, c = abc
    for source, target in ((a, b), (c, a), (b, c)):
        await memory.relations.relate(source.id, "supports", target.id)
    assert await memory.delete(a.id)
    assert ends(await memory.relations.find()) == [(b.id, "supports", c.id)]
    assert await memory.relations.find(source_id=a.id) == []
    assert await memory.relations.find(target_id=a.id) == []
    assert not await memory.delete(a.id)


@pytest.mark.behaviour("D30", "AC-D17")
async def test_a_retired_entry_keeps_its_relations(
    memory: Memory, clock: Clock, abc: tuple[Entry, Entry, Entry]
) -> None:
    a, b, c = abc
    for source, target in ((a, b), (c, a), (b, c)):
        await memory.relations.relate(source.id, "supports", target.id)
    clock.advance()
    assert await memory.entries.invalidate(a.id) is True
    assert len(await memory.relations.find()) == 3


@pytest.mark.behaviour("D29")
async def test_a_deleted_scope_takes_the_relations_of_its_entries_with_it(
    memory: Memory, abc: tuple[Entry, Entry, Entry]
) -> None:
    a, b, c = abc
    for source, target in ((a, b), (c, a), (b, c)):
        await memory.relations.relate(source.id, "supports", target.id)
    assert await memory.admin.erase(SESSION) == 1
    assert ends(await memory.relations.find()) == [(a.id, "supports", b.id)]


@pytest.mark.behaviour("D31")
async def test_invalidating_removes_no_end_that_is_being_linked_to(
    memory: Memory, abc: tuple[Entry, Entry, Entry]
) -> None:
    a, b, _ = abc
    outcomes = await asyncio.gather(
        memory.relations.relate(a.id, "supports", b.id),
        memory.entries.invalidate(b.id),
        return_exceptions=True,
    )
    assert outcomes[1] is True
    made = [] if isinstance(outcomes[0], InvalidInput) else [(a.id, "supports", b.id)]
    assert ends(await memory.relations.find()) == made
    assert await memory.get(b.id, as_of=b.valid_from) is not None


@pytest.mark.behaviour("D43", "D49")
async def test_two_hundred_relations_are_listed_unless_told(
    memory: Memory, clock: Clock, abc: tuple[Entry, Entry, Entry]
) -> None:
    a = abc[0]
    clock.tick = timedelta(milliseconds=1)
    targets = await memory.write_many([{"content": f"t{n}", "scope": USER} for n in range(205)])
    for target in targets:
        await memory.relations.relate(a.id, "relates_to", target.id)
    listed = await memory.relations.find()
    assert [r.target_id for r in listed] == [t.id for t in reversed(targets)][:200]
    assert len(await memory.relations.find(limit=1000)) == 205


@pytest.mark.behaviour("D43")
@pytest.mark.parametrize("end", [5, "\x00", "\ud800", "x" * 513], ids=["number", "nul", "surrogate", "long"])
async def test_an_end_that_cannot_be_is_refused(memory: Memory, end: str) -> None:
    for call in (
        memory.relations.find(source_id=end),
        memory.relations.find(target_id=end),
        memory.relations.relate(end, "supports", "x"),
        memory.relations.unrelate(end),
    ):
        with pytest.raises(InvalidInput, match="id"):
            await call
