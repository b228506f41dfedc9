"""`write(check=True)` and what a manager adds: contradictions and duplicates are found
and offered to somebody who decides (D104-D110).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from memory import (
    BlockingMemory,
    ConflictReport,
    Entry,
    EntryDraft,
    InvalidInput,
    MemoryManager,
    NamedStore,
    Resolution,
    Scope,
)
from memory.facade.memory import Memory
from tests.acceptance.support import SESSION, USER, contents

SCOPES = pytest.mark.parametrize("scope", [USER, SESSION], ids=str)


@pytest.mark.behaviour("D110")
@SCOPES
async def test_unless_somebody_decides_all_of_them_stand_and_the_entry_says_what_was_found(
    memory: Memory, scope: Scope
) -> None:
    old = await memory.write("Ada lives in Lisbon", scope=scope)
    assert old.checked is None
    new = await memory.write("Ada lives in Porto", scope=scope, check=True)
    assert isinstance(new.checked, ConflictReport)
    assert [one.id for one in new.checked.found] == [old.id]
    assert (new.checked.action, new.checked.superseded) == ("keep", ())
    assert new.checked.note is not None
    assert contents(await memory.retrieve(scope, order="oldest")) == [
        "Ada lives in Lisbon",
        "Ada lives in Porto",
    ]
    (stored, _) = await memory.retrieve(scope)
    assert stored.checked is None
    assert stored.to_dict() == new.to_dict()
    alone = await memory.write("The boats leave on Sunday", scope=scope, check=True)
    assert alone.checked == ConflictReport()


@pytest.mark.behaviour("D105", "D106")
@SCOPES
async def test_a_function_decides_what_gives_way(memory: Memory, scope: Scope) -> None:
    asked: list[tuple[str, list[str]]] = []

    def decide(draft: EntryDraft, entries: Sequence[Entry]) -> Resolution:
        time.sleep(0.01)  # it may block: it runs in a thread
        asked.append((draft.content, contents(entries)))
        return Resolution("supersede", [one.id for one in entries if one.content.endswith("Lisbon")])

    old = await memory.write("Ada lives in Lisbon", scope=scope)
    await memory.write("Ada sails in Lisbon", scope=scope, type="user")
    new = await memory.write("Ada lives in Porto", scope=scope, check=True, decide=decide)
    assert asked == [("Ada lives in Porto", ["Ada lives in Lisbon"])]
    assert new.checked is not None
    assert new.checked.superseded == (old.id,)
    assert contents(await memory.retrieve(scope, order="oldest")) == [
        "Ada sails in Lisbon",
        "Ada lives in Porto",
    ]
    (link,) = await memory.relations.related(source_id=new.id)
    assert (link.label, link.target_id) == ("supersedes", old.id)


async def test_a_coroutine_merges_in_the_scope_of_a_view(memory: Memory) -> None:
    async def decide(draft: EntryDraft, entries: Sequence[Entry]) -> Resolution:
        return Resolution("merge", content=f"{entries[0].content}, then in Porto")

    view = memory.scoped(USER)
    await view.write("Ada lives in Lisbon", source="web:a.example", run="r1")
    new = await view.write("Ada lives in Porto", check=True, decide=decide, key="home", source="user")
    assert (new.source, new.origins) == ("user", ["source:web:a.example", "run:r1"])
    assert await view.retrieve() == [await memory.get(new.id)]
    assert new.content == "Ada lives in Lisbon, then in Porto"
    again = await view.write("Ada lives in Porto", check=True, decide=decide, key="home", source="user")
    assert (again.id, again.content) == (new.id, new.content)


@pytest.mark.behaviour("D108")
async def test_with_ids_given_nothing_is_looked_for(memory: Memory) -> None:
    old, other = (
        await memory.write("Ada lives in Lisbon", scope=USER),
        await memory.write("Ada lives in Porto", scope=USER),
    )
    new = await memory.write(
        "Ada lives in Faro",
        scope=USER,
        supersedes=[old.id],
        check=True,
        decide=lambda draft, entries: "supersede",
    )
    assert new.checked is None
    assert {one.id for one in await memory.retrieve(USER)} == {other.id, new.id}


async def test_what_does_not_go_together_is_refused_by_name(memory: Memory) -> None:
    for named, given in {
        "decide: is asked where check=True": {"decide": lambda draft, entries: "keep"},
        "decide: must be a function": {"check": True, "decide": "supersede"},
        "check: must be True or False": {"check": 1},
        "check: does not go with": {"check": True, "key": "home", "on_conflict": "update"},
    }.items():
        with pytest.raises(InvalidInput, match=named):
            await memory.write("Ada lives in Porto", scope=USER, **given)  # type: ignore[arg-type]
    assert await memory.retrieve(USER) == []


async def test_what_a_manager_adds_is_checked_too(memory: Memory) -> None:
    store = NamedStore("ada", memory.scoped(USER), writable=True)
    old = await memory.write("Ada lives in Lisbon", scope=USER)
    assert await MemoryManager([store]).add("The boats leave on Sunday") == {}
    found = await MemoryManager([store]).add("Ada lives in Porto")
    assert [one.id for one in found["ada"].found] == [old.id]
    assert await MemoryManager([store], check=False).add("Ada lives in Beja") == {}
    assert len(await memory.retrieve(USER)) == 4
    manager = MemoryManager([store], add_tool=True, decide=lambda draft, entries: "supersede")
    assert await manager.dispatch("add_memory", {"entries": ["Ada lives in Faro"]}) == {"stored": 1}
    assert contents(await memory.retrieve(USER)) == ["Ada lives in Faro", "The boats leave on Sunday"]
    for wrong in ({"decide": "supersede"}, {"check": False, "decide": lambda draft, entries: "keep"}):
        with pytest.raises(InvalidInput, match="decide"):
            MemoryManager([store], **wrong)


def test_without_an_event_loop_it_is_the_same() -> None:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        view = memory.scoped("user:ada")
        old = view.write("Ada lives in Lisbon")
        asked: list[int] = []

        def decide(draft: EntryDraft, entries: Sequence[Entry]) -> str:
            asked.append(len(view.retrieve()))  # it may ask the memory itself
            return "supersede"

        new = view.write("Ada lives in Porto", check=True, decide=decide)  # type: ignore[arg-type]
        assert asked == [1]
        assert new.checked is not None
        assert new.checked.superseded == (old.id,)
        now = memory.write("Faro", scope="user:ada", key="home", on_conflict="update")
        assert memory.write("Beja", scope="user:ada", key="home", on_conflict="update").id == now.id
        last = view.write("Ada lives in Faro", supersedes=[new.id])
        assert {one.id for one in view.retrieve()} == {last.id, now.id}
