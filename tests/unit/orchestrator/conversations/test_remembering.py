"""What a process remembers of a session is what stands there, whoever changes it; and
little is read to know so.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from memory.domain.errors import CompactionError, MemoryTiersError
from memory.domain.message import Message, Role
from memory.domain.session import Context
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.log import LOOKED_AT
from memory.orchestrator.conversations.log.seen import REMEMBERED, REMEMBERED_FOR, REMEMBERED_SIZE
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.conversations.window.reading import MARGIN
from memory.orchestrator.storage.collections import MESSAGES
from memory.policies.context import ContextRequest
from memory.policies.window import fit_to_budget, is_pinned, newest
from memory.ports.collections import Collection
from memory.ports.query import Query
from memory.ports.record import Key
from tests.support.depth import drawn
from tests.unit.orchestrator.conversations.talking import (
    answer,
    assistant,
    begun,
    calling,
    hits_of,
    opened,
    user,
)
from tests.unit.orchestrator.world import World

ROLES = (Role.USER, Role.USER, Role.ASSISTANT, Role.SYSTEM)


_ALL = HistoryQuery()


def _counted(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each call to the store was about."""
    counted: list[int] = []
    get, query = world.mid.get, world.mid.query

    async def getting(collection: Collection, keys: Sequence[Key]) -> Any:
        counted.append(len(keys) if collection is MESSAGES else 0)
        return await get(collection, keys)

    async def querying(query_: Query) -> Any:
        page = await query(query_)
        counted.append(len(page.records) if query_.collection is MESSAGES else 0)
        return page

    monkeypatch.setattr(world.mid, "get", getting)
    monkeypatch.setattr(world.mid, "query", querying)
    return counted


async def texts(session: Conversation, **asked: Any) -> list[str]:
    return [
        f"{message.id}: {message.text}"
        for message in (await session.context(ContextRequest(**asked))).messages
    ]


@pytest.mark.parametrize("again", [False, True], ids=["updated", "said again"])
async def test_an_edit_of_another_process_is_seen_at_once(world: World, again: bool) -> None:
    session = await begun(world.engine)
    await session.append([user(f"m{n}", f"m{n}") for n in range(10)])
    assert "m4: m4" in await texts(session)
    other = await opened(await world.another_process())
    if again:
        await other.append([user("changed", "m4")])
    else:
        await other.update("m4", {"content": "changed"})
    assert "m4: changed" in await texts(session)
    assert "m4: changed" in await texts(session, last=8)


@pytest.mark.parametrize("repeated", [True, False], ids=["repeated", "never told"])
async def test_an_edit_whose_writer_failed_before_it_was_told_is_seen_once_it_is_repeated_or_within_a_minute(
    world: World, repeated: bool
) -> None:
    session = await begun(world.engine)
    await session.append([user("first", "m1"), user("second", "m2")])
    other = await opened(await world.another_process())
    world.mid.fails_before.add("log.append")
    with pytest.raises(MemoryTiersError):
        await other.update("m1", {"content": "changed"})
    world.heal()
    assert "m1: first" in await texts(session), "nobody was told that it was changed"
    if repeated:
        await other.update("m1", {"content": "changed"})
    else:
        world.clock.advance(REMEMBERED_FOR)
    assert "m1: changed" in await texts(session)


@pytest.mark.parametrize("message", ["m1", "system"])
async def test_an_edit_that_is_made_again_adds_no_event(world: World, message: str) -> None:
    session = await begun(world.engine)
    await session.append([user("first", "m1"), user("second", "m2")])
    await session.update(message, {"content": "changed"})
    last = (await session.log.load()).state.place
    for handle in (session, session, await opened(await world.another_process())):
        assert (await handle.update(message, {"content": "changed"})).text == "changed"
        assert (await handle.log.load()).state.place == last


async def test_what_is_handed_out_may_be_changed_and_so_may_what_was_handed_in(world: World) -> None:
    """C12: by whichever call a message leaves, it shares nothing with what others read."""
    session = await begun(world.engine)
    kinds: list[dict[str, Any]] = [
        {},
        {"last": 9},
        {"budget": 900},
        {"budget": 900, "slack": 0.25},
        {"layered": True},
    ]
    given = Message(
        role=Role.USER,
        content=[{"type": "text", "text": "first"}],
        metadata={"a": [1]},
        extra={"b": {}},
        usage={"c": {}},
    )
    named = given.model_copy(update={"id": "m1"}, deep=True)
    handed = [given, named, *await session.append([user("archived", "m0"), given, named])]
    with pytest.raises(CompactionError):
        await session.compact(lambda messages: handed.extend(messages) or "", keep_last=0, reason="manual")  # type: ignore[func-returns-value]
    made = await session.compact(lambda _: "so it began", keep_last=2, reason="manual")
    handed += [made.summary, *await session.replace([*(await session.context()).messages[2:], user("new")])]
    handed += [
        await session.update("m1", {"metadata": {"a": [1]}}),
        await session.update("system", {"extra": {"b": {}}}),
        *(await session.as_of(None))[1],
    ]

    async def read() -> list[Message]:
        shown = [
            message for kind in kinds for message in (await session.context(ContextRequest(**kind))).messages
        ]
        told = [item.message for item in (await session.history(_ALL)).items]
        found = [hit.message for hit in await hits_of(session, "first archived new", 10)]
        return [*shown, *told, *found, *[made.summary for made in await session.compactions()]]

    before = [message.model_dump() for message in await read()]
    for mine in [*handed, *await read()]:
        mine.name, mine.role = "changed", Role.ASSISTANT
        for part in mine.content if isinstance(mine.content, list) else ():
            part["text"] = "changed"
        for each in (mine.metadata, mine.extra, mine.usage or {}):
            for inner in each.values():
                inner.clear()
            each["d"] = 1
        mine.tool_calls.append(calling("c1").tool_calls[0])
    assert [message.model_dump() for message in await read()] == before


@pytest.mark.parametrize("asked", [{"last": 20}, {"budget": 300}], ids=str)
async def test_no_more_is_read_than_is_shown_and_nothing_that_is_remembered(
    world: World, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await begun(world.engine)
    for start in range(0, 1_200, 300):
        await session.append([user(f"message number {n}", f"m{n}") for n in range(start, start + 300)])
    read = _counted(world, monkeypatch)
    other = await opened(await world.another_process())
    for handle, most in (
        (other, 80 + MARGIN + 100),
        (other, LOOKED_AT + 100),
        (session, LOOKED_AT),
        (session, LOOKED_AT),
    ):
        read.clear()
        shown = (await handle.context(ContextRequest(**asked))).messages
        assert shown[-1].id == "m1199"
        assert sum(read) <= most
    assert len((await session.context()).messages) == 1_201


async def test_large_messages_are_not_remembered_and_of_the_others_no_more_than_so_many(world: World) -> None:
    session = await begun(world.engine)
    for start in range(0, 900, 300):
        await session.append(
            [
                assistant("x" * (REMEMBERED_SIZE + 1) if n % 100 == 0 else "small", f"m{n}")
                for n in range(start, start + 300)
            ]
        )
    await session.context()
    seen = session._log.snapshot
    assert seen is not None
    assert len(seen.events) <= REMEMBERED + 200
    assert all(
        len(event.draft.message.text) <= REMEMBERED_SIZE
        for event in seen.events.values()
        if event.draft.message is not None
    )
    assert len((await session.context()).messages) == 901


async def test_the_id_of_a_large_message_is_known_though_the_message_is_not_remembered(world: World) -> None:
    """B20: given again at once by two, it is one message."""
    session = await begun(world.engine)
    other = await opened(await world.another_process())
    await session.append([user("first", "u1")])

    async def meanwhile() -> None:
        await other.append([user("x" * (REMEMBERED_SIZE + 1), "large")])

    world.mid.before["log.append"] = meanwhile
    await session.append([user("small", "large")])
    assert await texts(session) == ["system: You are kind.", "u1: first", "large: small"]


@pytest.mark.parametrize("seed", range(drawn(6, 2)))
@pytest.mark.thorough
async def test_what_is_remembered_is_what_stands_there_after_any_history(world: World, seed: int) -> None:
    """Two processes that stay, and after every few steps one that has just begun: all
    are shown the same, however much of it is asked for.
    """
    chance = random.Random(seed)  # noqa: S311 - the same histories in every run
    first = await begun(world.engine)
    second = await opened(await world.another_process())
    said = 0
    for number in range(120):
        session = chance.choice((first, second))
        await _step(session, chance, said)
        said += 3
        if number % 4 == 0:
            fresh = await opened(await world.another_process())
            for asked in (
                {"last": chance.randint(0, 12)},
                {"budget": chance.randint(0, 200)},
                {"budget": 60, "by": "turns"},
                {},
            ):
                shown = [await texts(handle, **asked) for handle in (fresh, first, second)]
                assert shown[0] == shown[1] == shown[2] == _shown(await fresh.context(), **asked), (
                    number,
                    asked,
                )


def _shown(
    whole: Context, *, last: int | None = None, budget: int | None = None, by: Any = "blocks"
) -> list[str]:
    """What is shown of a window that was read as a whole."""
    messages, at = whole.messages, list(range(len(whole.messages)))
    if last is not None:
        within = newest(messages, last)
        at = [one for one in at if one in within or is_pinned(messages[one])]
    if budget is not None:
        at = list(fit_to_budget(messages, whole.tokens, budget, by=by).kept)
    return [f"{messages[one].id}: {messages[one].text}" for one in at]


async def _step(session: Conversation, chance: random.Random, said: int) -> None:
    known = [
        str(message.id)
        for message in (await session.context(ContextRequest(last=30))).messages
        if message.id != "system"
    ]
    some = chance.choice(known) if known else None
    match chance.randrange(12):
        case 0 | 1 | 2 | 3:
            await session.append(
                [
                    Message(role=chance.choice(ROLES), content=f"said {said}")
                    for _ in range(chance.randint(1, 3))
                ]
            )
        case 4:
            await session.append(
                [
                    calling(f"c{said}", message_id=f"a{said}"),
                    answer(f"c{said}", message_id=f"t{said}"),
                    answer("nobody's"),
                ]
            )
        case 5 | 6 if some is not None:
            await session.update(some, {"content": f"changed {said}"})
        case 7 if some is not None and some.startswith("a"):
            await session.append([assistant(f"again {said}", some)])
        case 8 if some is not None:
            await session.exclude(some, "manual")
        case 9:
            items = [item for item in (await session.history(_ALL)).items if item.excluded]
            if items:
                await session.restore(str(chance.choice(items).message.id))
        case 10 if said % 9 == 0:
            await session.compact(
                lambda messages: f"{len(messages)} before {said}",
                keep_last=chance.randint(0, 9),
                reason="manual",
            )
        case 11 if said % 17 == 0:
            await session.clear()
        case _:
            await session.append([user(f"said {said}", f"u{said}")])


async def test_what_was_read_before_an_edit_that_was_seen_since_is_not_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await begun(world.engine)
    await session.append([user(f"m{n}", f"m{n}") for n in range(10)])
    world.clock.advance(REMEMBERED_FOR)
    other = await opened(await world.another_process())
    get, calls = world.mid.get, 0

    async def getting(collection: Collection, keys: Sequence[Key]) -> Any:
        nonlocal calls
        rows = await get(collection, keys)
        calls += collection is MESSAGES
        if (
            collection is MESSAGES and calls == 1
        ):  # a slow answer: meanwhile it is edited, and this process learns of that
            await other.update("m4", {"content": "changed"})
            await session.context(ContextRequest(last=1))
        return rows

    monkeypatch.setattr(world.mid, "get", getting)
    await session.context()
    assert "m4: changed" in await texts(session)
