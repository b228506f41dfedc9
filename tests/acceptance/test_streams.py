"""A model's answer is stored as it arrives, and is one message (B20 to B23)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from memory import BlockingMemory, Conflict, InvalidInput, Memory, NotFound
from tests.acceptance.support import Clock

PIECES = ("In", " Porto", ", I", " believe.")


async def answer() -> AsyncIterator[str]:
    for piece in PIECES:
        yield piece


@pytest.mark.behaviour("B20", "B21", "B22", "B23")
async def test_a_streamed_answer_is_one_message_from_its_first_piece_on(memory: Memory, clock: Clock) -> None:
    session = memory.session("s1", system="You are kind.")
    await session.append({"role": "user", "content": "Where does Ada live?", "id": "u1"})
    async with session.stream(message_id="a1") as out:
        async for piece in answer():
            await out.write(piece)
            if piece == PIECES[1]:
                said = (await session.context()).messages[-1]
                assert (said.id, said.text, said.is_final) == ("a1", "In", False)
                await session.append({"role": "user", "content": "Are you sure?", "id": "u2"})
                clock.advance(timedelta(seconds=1))
        await out.finish(usage={"total": 9}, finish_reason="stop")
    items = (await session.history()).items
    assert [(item.message.id, item.number) for item in items] == [
        ("system", 1),
        ("u1", 2),
        ("a1", 3),
        ("u2", 4),
    ]
    (done,) = [item.message for item in items if item.message.id == "a1"]
    assert (done.text, done.is_final, done.usage, done.finish_reason) == (
        "".join(PIECES),
        True,
        {"total": 9},
        "stop",
    )
    assert done in (await session.context()).messages


async def test_a_stream_without_an_id_has_one_of_its_own_that_is_known_from_the_start(memory: Memory) -> None:
    session = memory.session("s1")
    async with session.stream(role="user") as out, session.stream() as silent:
        await out.write("hello")
    (message,) = (await session.context()).messages
    assert (message.id, message.role, message.text, message.is_final) == (out.id, "user", "hello", True)
    assert silent.id != out.id


async def test_an_answer_that_breaks_off_stays_as_far_as_it_came(memory: Memory) -> None:
    session = memory.session("s1")

    async def breaks_off(*pieces: str) -> None:
        async with session.stream() as out:
            for piece in pieces:
                await out.write(piece)
            raise ZeroDivisionError

    for pieces in (("one", " two"), ()):
        with pytest.raises(ZeroDivisionError):
            await breaks_off(*pieces)
    (message,) = (await session.context()).messages
    assert (message.text, message.is_final, message.finish_reason) == ("one two", True, "interrupted")


async def test_the_end_of_the_session_ends_its_streams(memory: Memory) -> None:
    session = memory.session("s1")
    async with session.stream(message_id="a1") as out:
        await out.write("half")
        await session.end()
        with pytest.raises(Conflict, match="finished meanwhile"):
            await out.finish(finish_reason="stop")
        await out.finish()
    (message,) = (await session.context()).messages
    assert (message.text, message.is_final, message.finish_reason) == ("half", True, None)


async def test_what_makes_no_sense_is_refused(plain: Memory) -> None:
    session = plain.session("s1")
    with pytest.raises(InvalidInput, match="role"):
        session.stream(role="tool")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="async with"):
        await session.stream().write("x")
    with pytest.raises(NotFound, match="nobody"):
        await plain.session("nobody", create=False).stream().__aenter__()
    async with session.stream(message_id="a1") as out:
        for text in (7, "a\0b", "x" * (2**25 + 1)):
            with pytest.raises(InvalidInput, match="text"):
                await out.write(text)  # type: ignore[arg-type]
        await out.write("well")
        for changes in ({"content": "x"}, {"role": "user"}, {"usage": 7}):
            with pytest.raises(InvalidInput, match=next(iter(changes))):
                await out.finish(**changes)
        await out.finish()
        with pytest.raises(InvalidInput, match="after the end"):
            await out.write("more")
    assert [message.text for message in (await session.context()).messages] == ["well"]


def test_the_blocking_twin_streams_too() -> None:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        session = memory.session("s1")
        with session.stream(message_id="a1") as out:
            for piece in PIECES:
                out.write(piece)
        with contextlib.suppress(ZeroDivisionError), session.stream(message_id="a2") as broken:
            broken.write("half")
            raise ZeroDivisionError
        told = [(message.id, message.text, message.finish_reason) for message in session.context().messages]
        assert told == [("a1", "".join(PIECES), None), ("a2", "half", "interrupted")]
