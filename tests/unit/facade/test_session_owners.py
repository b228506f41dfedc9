"""Whose a session is: every call of a handle that names another owner is refused, and
what is said in a shared one is its speaker's.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MessageThreshold, NotFound, Session, SessionOwnerMismatch
from memory.agents.providers.provider import SessionProvider
from memory.facade.resources.runs import Runs
from memory.facade.resources.tasks import Tasks

WORDS = "secretword 555-0199"
Call = Callable[[Any], Awaitable[object]]


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


async def streamed(session: Session) -> None:
    async with session.stream() as out:
        await out.write("mine")


async def summary(messages: list[Any]) -> str:
    return "short"


async def taken_turn(provider: SessionProvider) -> None:
    async with provider.turn("mine", "s"):
        pass


CALLS: dict[type, dict[str, Call]] = {
    Session: {
        "append": lambda s: s.append(user("mine")),
        "archive": lambda s: s.archive(),
        "checkpoint": lambda s: s.checkpoint(),
        "clear": lambda s: s.clear(),
        "compact": lambda s: s.compact(summary, keep_last=0),
        "compact_if_needed": lambda s: s.compact_if_needed(MessageThreshold(2, keep_last=1), summary),
        "compactions": lambda s: s.compactions(),
        "context": lambda s: s.context(),
        "delete": lambda s: s.delete(),
        "end": lambda s: s.end(),
        "erase": lambda s: s.erase("m1"),
        "exclude": lambda s: s.exclude("m1"),
        "fork": lambda s: s.fork(session_id="f"),
        "history": lambda s: s.history(),
        "info": lambda s: s.info(),
        "pop": lambda s: s.pop(),
        "repair_tool_calls": lambda s: s.repair_tool_calls(),
        "replace": lambda s: s.replace([]),
        "restore": lambda s: s.restore("m1"),
        "resume": lambda s: s.resume(),
        "roll_back": lambda s: s.roll_back(s.at),
        "search": lambda s: s.search("secretword"),
        "state": lambda s: s.state(),
        "stream": streamed,
        "update": lambda s: s.update("m1", content="mine"),
        "window": lambda s: s.window(),
    },
    Tasks: {
        "delete": lambda s: s.tasks.delete("t1"),
        "get": lambda s: s.tasks.get("t1"),
        "list": lambda s: s.tasks.list(),
        "replace_all": lambda s: s.tasks.replace_all([]),
        "save": lambda s: s.tasks.save("t1", title="mine"),
    },
    Runs: {
        "delete": lambda s: s.runs.delete("r1"),
        "get": lambda s: s.runs.get("r1"),
        "list": lambda s: s.runs.list(),
        "save": lambda s: s.runs.save("r1", child_id="other"),
    },
    SessionProvider: {
        "clear": lambda p: p.clear("s"),
        "entries": lambda p: p.entries("s"),
        "read": lambda p: p.read("s"),
        "turn": taken_turn,
        "write": lambda p: p.write(user("mine"), "s"),
    },
}
"""A call of every public method."""
NOUNS = {"id": None, "tasks": Tasks, "runs": Runs}
"""Every public property of a session, with the methods that it leads to."""
OWN: dict[str, Call] = {"stats": lambda p: p.stats("s"), "summary": lambda p: p.summary("s")}
"""Methods that some providers have besides."""
COUNTS = {"session_count"}
"""Of some providers: of the user's sessions alone."""


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory(f"sqlite:///{tmp_path}/m.db", embedder="none") as opened:
        yield opened


def test_every_public_method_of_a_session_and_of_a_provider_is_called_here() -> None:
    for kind, calls in CALLS.items():
        found = public(kind)
        assert {name for name, member in found.items() if inspect.isfunction(member)} == set(calls), kind
        if kind is Session:
            assert {name for name, member in found.items() if isinstance(member, property)} == set(NOUNS)
    for provider in subclasses(SessionProvider):
        own = {
            name
            for name in vars(provider)
            if not name.startswith("_") and inspect.isfunction(vars(provider)[name])
        }
        assert own - COUNTS <= {*CALLS[SessionProvider], *OWN}, provider


async def everything(memory: Memory) -> list[Any]:
    return [line async for line in memory.admin.export()]


@pytest.mark.behaviour("A1", "B12")
async def test_no_call_of_another_owner_reads_or_changes_a_session(memory: Memory) -> None:
    ada = memory.session("x", user="ada", agent="a", namespace="n")
    await ada.append(user(WORDS, id="m1"))
    await ada.tasks.save("t1", title="hers")
    await ada.runs.save("r1", child_id="child")
    await memory.write("an entry of the session", scope="session:x")
    at = await ada.checkpoint()
    before = await everything(memory)
    for field, value in {"user": "bob", "agent": "b", "namespace": "m"}.items():
        other: Any = memory.session("x", create=False, **{field: value})  # type: ignore[arg-type]
        other.at = at
        for kind, calls in CALLS.items():
            for name, call in calls.items() if kind is not SessionProvider else ():
                with pytest.raises(SessionOwnerMismatch, match=field) as raised:
                    await call(other)
                assert "ada" not in str(raised.value), name
    assert await everything(memory) == before


@pytest.mark.behaviour("A1", "B12", "C2")
@pytest.mark.parametrize(
    "provider",
    [
        pytest.param(each, id=each.__name__)
        for each in sorted(subclasses(SessionProvider), key=lambda k: k.__name__)
    ],
)
async def test_no_call_of_a_provider_for_another_user_or_namespace_reaches_a_session(
    memory: Memory, provider: Any
) -> None:
    more = {"summarise": summary} if "summarise" in inspect.signature(provider).parameters else {}
    ada, bob = provider(memory, user="ada", **more), provider(memory, user="bob", **more)
    await ada.write(user(WORDS), "s")
    await memory.session(f"{ada.namespace}/other", namespace="another").append(user(WORDS))
    before = await everything(memory)
    own = [call for name, call in OWN.items() if hasattr(provider, name)]
    for call in [*CALLS[SessionProvider].values(), *own]:
        with pytest.raises(SessionOwnerMismatch):
            await call(bob)
    with pytest.raises(SessionOwnerMismatch):
        await provider(memory, **more).clear("other")
    for name in COUNTS & set(public(provider)):
        assert (await getattr(ada, name)(), await getattr(bob, name)()) == (1, 0)
    await bob.clear()
    assert await everything(memory) == before
    await ada.clear("s")
    assert await ada.entries() == []


@pytest.mark.behaviour("A1", "B12")
async def test_a_handle_that_was_handed_out_is_of_its_owner_also_where_the_id_is_anothers_since(
    memory: Memory,
) -> None:
    bobs = await memory.sessions.create("x", user="bob")
    forked = await bobs.fork(session_id="f")
    for handle, name in ((bobs, "x"), (forked, "f")):
        await memory.sessions.delete(name)
        await memory.session(name, user="ada").append(user(WORDS))
        with pytest.raises(SessionOwnerMismatch, match="user"):
            await handle.delete()
        assert [m.text for m in (await memory.session(name).context()).messages] == [WORDS]


async def test_a_session_is_deleted_by_its_owner_and_by_who_names_none_once(memory: Memory) -> None:
    for names in ({"user": "ada"}, {}, {"user": "ada", "agent": "a"}):
        session = memory.session("x", user="ada", agent="a")
        await session.append(user(WORDS))
        other = memory.session("x", **names)  # type: ignore[arg-type]
        assert await other.delete() is True
        assert await other.delete() is False
        with pytest.raises(NotFound):
            await memory.session("x", create=False).context()
