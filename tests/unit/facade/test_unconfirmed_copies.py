"""A copy is stored before its sources are read again. Whoever meets it in between, or
after its maker died there, may build on it: nothing of that is lost by edits of the
source. Tried at every store call of the maker, and of the sweep behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from memory import Entry, Memory, MemoryTiersError
from memory.domain.errors import NotFound
from tests.support.cut_off import acts_at, cut_off_at

CALLS = ("get", "query", "count", "apply", "search", "candidates", "due", "delete_matching")
MOST_CALLS = 200
COPIES = "user:ada"
OLD, NEW, MINE = "Ada lives in Paris", "Ada lives in Rome", "Ada lives in Oslo"
TIERS = {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "durations": {"sweep_every": "0s"}}


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory(TIERS, embedder="none") as memory:
        yield memory


async def copy_of(memory: Memory, source: Entry) -> Entry | None:
    """The copy as others see it; there is none before it is stored."""
    there = await memory.retrieve(COPIES)
    return next((one for one in there if one.promoted_from_id == source.id), None)


Holds = Callable[[], Awaitable[bool]]
"""Whether what was acknowledged is there."""


async def edit(memory: Memory, copy: Entry) -> Holds:
    await memory.update(copy.id, content=MINE)

    async def holds() -> bool:
        there = await memory.get(copy.id)
        return there is not None and there.content == MINE

    return holds


async def edit_to_the_same(memory: Memory, copy: Entry) -> Holds:
    await memory.update(copy.id, content=copy.content)

    async def holds() -> bool:
        there = await memory.get(copy.id)
        return there is not None and there.content == copy.content

    return holds


async def link(memory: Memory, copy: Entry, *, turned: bool = False) -> Holds:
    other = await memory.write("Bob lives in Lyon", scope=COPIES)
    ends = (other.id, copy.id) if turned else (copy.id, other.id)
    made = await memory.relations.relate(ends[0], "supports", ends[1])

    async def holds() -> bool:
        return made.id in {one.id for one in await memory.relations.find(source_id=ends[0])}

    return holds


async def link_from_elsewhere(memory: Memory, copy: Entry) -> Holds:
    return await link(memory, copy, turned=True)


async def promote_further(memory: Memory, copy: Entry) -> Holds:
    made = await memory.promote(copy.id, "org:o")

    async def holds() -> bool:
        return await memory.get(made.id) is not None

    return holds


async def compact(memory: Memory, copy: Entry) -> Holds:
    made = await memory.compact([copy.id], lambda entries: f"compacted {entries[0].content}")

    async def holds() -> bool:
        return await memory.get(made.id) is not None

    return holds


async def supersede(memory: Memory, copy: Entry) -> Holds:
    made = await memory.write("Ada moved to Oslo", scope=COPIES, supersedes=copy.id)

    async def holds() -> bool:
        return copy.id in {one.target_id for one in await memory.relations.find(source_id=made.id)}

    return holds


ACTS = (edit, edit_to_the_same, link, link_from_elsewhere, promote_further, compact, supersede)
Act = Callable[[Memory, Entry], Awaitable[Holds]]
acts = pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)


async def acknowledged(memory: Memory, source: Entry, act: Act) -> Holds | None:
    """The source is edited, and somebody builds on the copy that stands."""
    await memory.update(source.id, content=NEW)
    copy = await copy_of(memory, source)
    return None if copy is None else await act(memory, copy)


@acts
async def test_a_promotion_that_died_takes_nothing_along(
    memory: Memory, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut off at each of its calls, and a sweep does the rest."""
    lost: list[int] = []
    met = 0
    for number in range(1, MOST_CALLS):
        source = await memory.write(OLD, scope="session:s")
        with cut_off_at(number, CALLS, monkeypatch) as seen, suppress(MemoryTiersError):
            await memory.promote(source.id, COPIES)
        holds = await acknowledged(memory, source, act)
        met += holds is not None
        await memory.admin.sweep()
        if holds is not None and not await holds():
            lost.append(number)
        if len(seen) < number:
            break
    assert met > 2
    assert lost == []


@acts
async def test_a_promotion_that_goes_on_takes_nothing_along(
    memory: Memory, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others edit the source and build on the copy at each of its calls."""
    lost: list[int] = []
    for number in range(1, MOST_CALLS):
        source, found = await memory.write(OLD, scope="session:s"), list[Holds | None]()

        async def others(source: Entry = source, found: list[Holds | None] = found) -> None:
            found.append(await acknowledged(memory, source, act))

        with acts_at(number, CALLS, others, monkeypatch) as seen:
            made = await memory.promote(source.id, COPIES)
        await memory.admin.sweep()
        if found and found[0] is not None and not await found[0]():
            lost.append(number)
        assert await memory.get(made.id) is not None or act is supersede
        if len(seen) < number:
            break
    assert lost == []


@acts
async def test_a_sweep_that_undoes_a_copy_takes_nothing_along(
    memory: Memory, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others build on the copy at each call of the sweep that undoes it."""
    lost, refused = list[int](), list[Exception]()
    met = 0
    for number in range(1, MOST_CALLS):
        source, found = await left_unconfirmed(memory, monkeypatch), list[Holds]()

        async def others(source: Entry = source, found: list[Holds] = found) -> None:
            if (copy := await copy_of(memory, source)) is not None:
                try:
                    found.append(await act(memory, copy))
                except Exception as error:  # noqa: BLE001 - a sweep would go on without it
                    refused.append(error)

        with acts_at(number, CALLS, others, monkeypatch) as seen:
            await memory.admin.sweep()
        await memory.admin.sweep()
        met += len(found)
        lost += [number for holds in found if not await holds()]
        if len(seen) < number:
            break
    assert met > 2
    assert (lost, refused) == ([], [])


async def left_unconfirmed(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """The source of a copy whose maker died before it read the source again. The source
    says something else since.
    """
    for number in range(1, MOST_CALLS):
        source = await memory.write(OLD, scope="session:s")
        with cut_off_at(number, CALLS, monkeypatch), suppress(MemoryTiersError):
            await memory.promote(source.id, COPIES)
        if await copy_of(memory, source) is not None:
            await memory.update(source.id, content=NEW)
            return source
    raise AssertionError("no promotion stores a copy")


async def test_a_repeated_promotion_shows_what_its_source_says_by_then(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its last call makes a promotion whole: then its repeat returns what it made."""
    shown: list[str] = []
    for number in range(1, MOST_CALLS):
        source = await memory.write(OLD, scope="session:s")
        with cut_off_at(number, CALLS, monkeypatch) as seen, suppress(MemoryTiersError):
            await memory.promote(source.id, COPIES)
        await memory.update(source.id, content=NEW)
        made = await memory.promote(source.id, COPIES)
        shown.append(made.content)
        await memory.admin.sweep()
        there = await memory.get(made.id)
        assert there is not None
        assert there.content == made.content
        if len(seen) < number:
            break
    assert shown == [NEW] * (len(shown) - 2) + [OLD] * 2


async def test_a_repeated_move_to_another_scope_takes_the_edit_along(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await left_unconfirmed(memory, monkeypatch)
    made = await memory.promote(source.id, COPIES, delete_original=True)
    await memory.admin.sweep()
    assert [one.content for one in await memory.retrieve(COPIES)] == [made.content] == [NEW]
    assert await memory.get(source.id) is None


async def test_nobody_builds_on_a_copy_whose_source_was_deleted(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await left_unconfirmed(memory, monkeypatch)
    copy = await copy_of(memory, source)
    assert copy is not None
    await memory.delete(source.id)
    for act in ACTS:
        with suppress(MemoryTiersError):
            holds = await act(memory, copy)
            assert act is supersede, "the copy is about to go: nothing may be acknowledged of it"
            assert holds is not None
    with pytest.raises(NotFound):
        await memory.update(copy.id, content=MINE)
    await memory.admin.sweep()
    assert await copy_of(memory, source) is None
