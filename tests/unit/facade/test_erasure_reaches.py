"""What an erasure reaches of what was made of the erased: copies, summaries, learnt
facts, notes, forks; also what was about to be stored.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from memory import (
    CompactionError,
    Entry,
    EveryTurn,
    ExitedMessages,
    Extraction,
    Memory,
    MemoryManager,
    NamedStore,
    NotFound,
    StoreUnavailable,
)
from memory.facade.runtime.access import engine_of
from memory.orchestrator.entries import derivatives
from memory.ports.advisor import Prompt
from tests.acceptance.support import HOUR, Clock

WORDS = "secretword 555-0199"
RULES = [{"name": "known", "on": "session_end", "to_scope": "user", "when": {"tag": "fact"}}]
Act = Callable[[Memory], Awaitable[object]]


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db"


def learn(leaving: ExitedMessages) -> list[dict[str, Any]]:
    return [
        {"content": m.text, "scope": f"session:{leaving.session_id}", "tags": ["fact"]}
        for m in leaving.messages
        if m.role == "user"
    ]


async def entries_in(memory: Memory) -> set[str]:
    return {entry.scope.text async for entry in memory.entries.iterate() if WORDS in entry.content}


async def everything_made(memory: Memory) -> str:
    """A message, and made of it: a fact, its copies by rule and by a caller, a copy of
    a copy, a compacted entry, a manager's fact. The fact's id.
    """
    session = memory.session("s1", user="ada")
    store = NamedStore(
        "work", memory.scoped("workspace:w"), writable=True, extraction=Extraction(EveryTurn())
    )
    async with MemoryManager(
        [store], memory=memory, model=lambda _: json.dumps([{"content": f"Learnt: {WORDS}"}])
    ) as manager:
        recording = await manager.record(session)
        await session.append(
            [{"id": "m1", "role": "user", "content": WORDS}, {"role": "assistant", "content": "ok"}]
        )
        await recording.turn_ended()
    await session.end()
    [fact] = await memory.retrieve("session:s1")
    copy = await memory.promote(fact.id, "workspace:x")
    await memory.promote(copy.id, "org:o")
    await memory.compact([fact.id], lambda entries: f"summary: {entries[0].content}")
    assert await entries_in(memory) == {"session:s1", "user:ada", "workspace:w", "workspace:x", "org:o"}
    return fact.id


async def erase_everything(memory: Memory) -> object:
    return await memory.admin.erase_tenant()


@pytest.mark.parametrize(
    ("act", "left"),
    [
        (lambda memory: memory.session("s1").erase("m1"), set()),
        (lambda memory: memory.sessions.delete("s1"), set()),
        (lambda memory: memory.admin.erase_user("ada"), set()),
        (erase_everything, set()),
        (lambda memory: memory.admin.erase("session:s1"), {"workspace:w"}),  # which is made of the message
    ],
    ids=["message", "session", "user", "tenant", "scope"],
)
@pytest.mark.parametrize("carried", [None, "same ids", "new ids"])
async def test_an_erasure_takes_all_that_was_made_of_the_erased_in_any_scope(
    tmp_path: Path, act: Act, left: set[str], carried: str | None
) -> None:
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(
            Memory(url(tmp_path), embedder="none", on_window_exit=learn, promotion=RULES)
        )
        await everything_made(memory)
        if carried is not None:
            tenant = memory.tenant if carried == "same ids" else "elsewhere"
            there = await stack.enter_async_context(
                Memory(f"sqlite:///{tmp_path}/there.db", tenant=tenant, embedder="none")
            )
            assert (
                await there.admin.import_(memory.admin.export(), same_ids=carried == "same ids")
            ).problems == []
            assert await entries_in(there) == await entries_in(memory)
            memory = there
        other = await memory.write("something else", scope="user:bob")
        await act(memory)
        assert await entries_in(memory) == left
        assert (await memory.get(other.id) == other) is (act.__name__ != "erase_everything")


async def test_deleting_an_entry_takes_what_rules_made_of_it_and_leaves_what_callers_made(
    tmp_path: Path,
) -> None:
    async with Memory(url(tmp_path), embedder="none", on_window_exit=learn, promotion=RULES) as memory:
        fact = await everything_made(memory)
        deleted = await memory.delete(fact)
        assert await entries_in(memory) == {
            "session:s1",
            "workspace:w",
            "workspace:x",
            "org:o",
        }  # the compacted entry, and what is no copy by a rule
        kept = [await memory.get(one) for one in deleted.kept]
        assert deleted
        assert deleted.is_complete
        assert {entry.scope.text for entry in kept if entry is not None} == {
            "session:s1",
            "workspace:x",
            "org:o",
        }
        assert not await memory.delete(fact)


async def test_a_deletion_names_a_copy_that_is_held_and_says_whether_every_store_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Memory(url(tmp_path), embedder="none", promotion=RULES) as memory:
        await memory.session("s1", user="ada").append({"role": "user", "content": "hello"})
        entry = await memory.write(WORDS, scope="session:s1", tags=["fact"])
        other = await memory.write(WORDS, scope="session:s1")
        await memory.session("s1").end()
        [copy] = [one for one in await memory.retrieve("user:ada") if one.promoted_from_id == entry.id]
        await memory.admin.legal_holds.add("case", reason="a case", scope=copy.scope)
        assert (await memory.delete(entry.id)).kept == (copy.id,)

        async def away(*_: Any) -> Any:
            raise StoreUnavailable("default", "is away")
            yield

        monkeypatch.setattr(derivatives, "find_derived", away)
        assert not (deleted := await memory.delete(other.id)).is_complete
        assert deleted.to_dict() == {"deleted": True, "kept": [], "is_complete": False}
        monkeypatch.undo()


@pytest.mark.parametrize("copied_before", [False, True])
async def test_an_entry_that_took_the_place_of_its_source_outlives_the_sources_scope(
    tmp_path: Path, copied_before: bool
) -> None:
    async with Memory(url(tmp_path), embedder="none") as memory:
        entry = await memory.write(WORDS, scope="session:s1")
        if copied_before:
            await memory.promote(entry.id, "user:ada")
        await memory.promote(entry.id, "user:ada", delete_original=True)
        await memory.sessions.delete("s1")
        assert await entries_in(memory) == {"user:ada"}


async def test_a_session_that_expires_leaves_the_copies_of_what_was_learnt_in_it(tmp_path: Path) -> None:
    async with Memory(url(tmp_path), embedder="none", on_window_exit=learn, promotion=RULES) as memory:
        await everything_made(memory)
        sessions = engine_of(memory).conversations.sessions
        await sessions.erase_expired(await sessions.record(memory.tenant, "s1"))
        assert "user:ada" in await entries_in(memory)
        assert "session:s1" in await entries_in(
            memory
        )  # the compacted entry; the fact itself goes with its session
        assert WORDS not in [
            entry.content async for entry in memory.entries.iterate() if entry.scope.text == "session:s1"
        ]


@pytest.mark.parametrize("how", ["promote", "rule"])
@pytest.mark.parametrize(
    "act",
    [
        lambda m, _: m.admin.erase_user("ada"),
        lambda m, _: m.sessions.delete("s1"),
        lambda m, e: m.delete(e.id),
    ],
    ids=["user", "session", "entry"],
)
async def test_a_copy_that_is_about_to_be_stored_does_not_outlive_its_source(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    act: Callable[[Memory, Entry], Awaitable[object]],
) -> None:
    async with (
        Memory(url(tmp_path), embedder="none", promotion=RULES) as ours,
        Memory(url(tmp_path), embedder="none") as other,
    ):
        session = ours.session("s1", user="ada")
        await session.append({"role": "user", "content": "hello"})
        entry = await ours.write(WORDS, scope="session:s1", tags=["fact"])
        derivation = engine_of(ours).derivation
        store = derivation._store

        async def erased_before(*args: Any, **kwargs: Any) -> Entry:
            monkeypatch.undo()
            await act(other, entry)
            return await store(*args, **kwargs)

        monkeypatch.setattr(derivation, "_store", erased_before)
        if how == "promote":
            with pytest.raises(NotFound):
                await ours.promote(entry.id, "user:ada")
        else:
            await session.end()
        assert await entries_in(other) == set()


async def test_a_copy_of_an_entry_that_is_edited_meanwhile_says_what_the_entry_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Memory(url(tmp_path), embedder="none") as memory:
        entry = await memory.write(WORDS, scope="session:s1")
        derivation = engine_of(memory).derivation
        store = derivation._store

        async def edited_before(*args: Any, **kwargs: Any) -> Entry:
            monkeypatch.undo()
            await memory.update(entry.id, content="(removed)")
            return await store(*args, **kwargs)

        monkeypatch.setattr(derivation, "_store", edited_before)
        assert (await memory.promote(entry.id, "user:ada")).content == "(removed)"
        assert await entries_in(memory) == set()


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize(
    "act",
    [
        lambda m, e: m.delete(e.id),
        lambda m, _: m.admin.erase("user:ada"),
        lambda m, e: m.update(e.id, content="(removed)"),
    ],
    ids=["delete", "scope", "edit"],
)
async def test_a_summary_of_what_is_erased_meanwhile_is_not_stored_and_takes_no_source_with_it(
    tmp_path: Path, act: Callable[[Memory, Entry], Awaitable[object]], deletes: bool
) -> None:
    async with Memory(url(tmp_path), embedder="none") as memory:
        one, two = await memory.write(WORDS, scope="user:ada"), await memory.write("tea", scope="user:ada")

        async def summarise(entries: list[Entry]) -> str:
            await act(memory, one)
            return " and ".join(entry.content for entry in entries)

        with pytest.raises((CompactionError, NotFound)):
            await memory.compact([one.id, two.id], summarise, delete_sources=deletes)
        await memory.admin.sweep()
        left = {entry.content async for entry in memory.entries.iterate()}
        assert left in ({"tea"}, set(), {"tea", "(removed)"})
        assert left or "erase" in str(act.__code__.co_names)


@pytest.mark.parametrize("when", ["after", "while the advisor answers"])
async def test_an_advisors_note_does_not_outlive_the_entry_that_it_speaks_of(
    tmp_path: Path, when: str
) -> None:
    async def advise(prompt: Prompt) -> str:
        if "tags" in prompt.system:
            return "home"
        if when != "after":
            await memory.delete(old.id)
        return "1\nMoved away from secretstreet 5."

    async with Memory(url(tmp_path), embedder="none", advisor=advise) as memory:
        old = await memory.write("Bob lives in secretstreet 5", scope="user:bob")
        new = await memory.write_with_report("Bob lives in Porto", scope="user:bob", auto_supersede=True)
        await memory.update(new.entry.id, title="Home")  # a version is kept that had the note
        if when == "after":
            await memory.delete(old.id)
        await engine_of(memory).enricher.drain()
        told = await memory.enrichment(new.entry.id)
        assert told.supersede is not None
        assert "secretstreet" not in str(told.supersede.note)
        assert not [line async for line in memory.admin.export() if "secretstreet" in str(line)]


async def test_an_imported_note_goes_with_the_entry_that_it_speaks_of(tmp_path: Path) -> None:
    def advise(prompt: Prompt) -> str:
        return "home" if "tags" in prompt.system else "1\nMoved away from secretstreet 5."

    async with (
        Memory(url(tmp_path), embedder="none", advisor=advise) as memory,
        Memory(f"sqlite:///{tmp_path}/there.db", embedder="none") as there,
    ):
        old = await memory.write("Bob lives in secretstreet 5", scope="user:bob")
        await memory.write("Bob lives in Porto", scope="user:bob", auto_supersede=True)
        await engine_of(memory).enricher.drain()
        await there.admin.import_(memory.admin.export(), same_ids=True)
        await there.delete(old.id)
        assert not [line async for line in there.admin.export() if "secretstreet" in str(line)]


@pytest.mark.parametrize(("act", "stands"), [("user", False), ("session", False), ("message", True)])
async def test_a_fork_that_is_about_to_be_stored_has_nothing_that_was_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, stands: bool
) -> None:
    async with (
        Memory(url(tmp_path), embedder="none") as ours,
        Memory(url(tmp_path), embedder="none") as other,
    ):
        session = ours.session("s", user="ada")
        await session.append(
            [
                {"id": "m1", "role": "user", "content": WORDS},
                {"id": "m2", "role": "assistant", "content": "ok"},
            ]
        )
        conversations = engine_of(ours).conversations
        fork = conversations.fork

        async def erased_before(*args: Any) -> Any:
            monkeypatch.undo()
            if act == "user":
                await other.admin.erase_user("ada")
            elif act == "session":
                await other.sessions.delete("s")
            else:
                await other.session("s").erase("m1")
            return await fork(*args)

        monkeypatch.setattr(conversations, "fork", erased_before)
        if stands:
            forked = await session.fork(session_id="f")
            assert [message.text for message in (await forked.context()).messages] == ["ok"]
        else:
            with pytest.raises(NotFound):
                await session.fork(session_id="f")
            assert (await ours.sessions.list()).sessions == []
        assert await other.search_messages("secretword") == []


@pytest.mark.parametrize("created_again", [False, True])
async def test_the_erasure_of_a_user_reaches_sessions_that_have_expired_and_are_still_stored(
    tmp_path: Path, created_again: bool
) -> None:
    clock = Clock()
    async with Memory(url(tmp_path), embedder="none", clock=clock) as memory:
        for kept in ("kept", "s"):
            session = memory.session(kept, user="ada", expires_at=HOUR)
            await session.append({"role": "user", "content": WORDS})
            await memory.write(WORDS, scope=f"session:{kept}")
        clock.advance(2 * HOUR)
        if created_again:
            await memory.session("s", user="bob").append({"role": "user", "content": "hello"})
        expected = 1 if created_again else 2
        assert (await memory.admin.erase_user("ada", dry_run=True)).sessions == expected
        assert (await memory.admin.erase_user("ada")).sessions == expected
        assert (await memory.admin.erase_user("ada")).sessions == 0
        assert await memory.retrieve("session:kept") == []
        if created_again:
            assert [message.text for message in (await memory.session("s").context()).messages] == ["hello"]
        else:
            lines = [line async for line in memory.admin.export()]
            assert WORDS not in str(lines)


@pytest.mark.parametrize("gone", ["deleted", "expired"])
async def test_a_fork_outlives_the_session_that_it_forked_off_from(tmp_path: Path, gone: str) -> None:
    clock = Clock()
    async with (
        Memory(url(tmp_path), embedder="none", clock=clock) as memory,
        Memory(url(tmp_path), embedder="none", clock=clock) as other,
    ):
        session = memory.session("s", user="ada", expires_at=HOUR)
        await session.append({"role": "user", "content": WORDS})
        fork = await session.fork(session_id="f")
        await other.sessions.list()
        clock.advance(2 * HOUR)
        if gone == "deleted":
            await other.sessions.delete("s")
        for each in (memory, other):
            await each.sessions.list()
            await each.admin.sweep()
        assert [message.text for message in (await fork.context()).messages] == [WORDS]


async def test_a_fork_whose_writer_died_outlives_the_expiry_of_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with Memory(url(tmp_path), embedder="none", clock=clock) as memory:
        session = memory.session("s", user="ada", expires_at=HOUR)
        await session.append({"role": "user", "content": WORDS})

        async def dies(*_: Any) -> None:
            raise StoreUnavailable("default", "is dead")

        monkeypatch.setattr(engine_of(memory).conversations.redaction, "confirm_fork", dies)
        with pytest.raises(StoreUnavailable):
            await session.fork(session_id="f")
        monkeypatch.undo()
        clock.advance(2 * HOUR)
        await memory.admin.sweep()
        assert [message.text for message in (await memory.session("f").context()).messages] == [WORDS]
