"""`write(detect_conflicts=True)` and what a manager adds: conflicts are found and offered
to a function that resolves them (D104-D110).
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
from tests.acceptance.support import SCOPES, USER, contents


@pytest.mark.behaviour("D110")
@SCOPES
async def test_unless_somebody_decides_all_of_them_stand_and_the_entry_says_what_was_found(
    memory: Memory, scope: Scope
) -> None:
    old = await memory.write("Ada lives in Lisbon", scope=scope)
    assert old.conflict_report is None
    new = await memory.write("Ada lives in Porto", scope=scope, detect_conflicts=True)
    assert isinstance(new.conflict_report, ConflictReport)
    assert [one.id for one in new.conflict_report.found] == [old.id]
    assert (new.conflict_report.action, new.conflict_report.superseded) == ("keep", ())
    assert new.conflict_report.note is not None
    assert contents(await memory.retrieve(scope, order="oldest")) == [
        "Ada lives in Lisbon",
        "Ada lives in Porto",
    ]
    stored, _ = await memory.retrieve(scope)
    assert stored.conflict_report is None
    assert stored.to_dict() == new.to_dict()
    alone = await memory.write("The boats leave on Sunday", scope=scope, detect_conflicts=True)
    assert alone.conflict_report == ConflictReport()


@pytest.mark.behaviour("D105", "D106")
@SCOPES
async def test_a_function_decides_what_gives_way(memory: Memory, scope: Scope) -> None:
    asked: list[tuple[str, list[str]]] = []

    def resolve(draft: EntryDraft, entries: Sequence[Entry]) -> Resolution:
        time.sleep(0.01)  # it may block: it runs in a thread
        asked.append((draft.content, contents(entries)))
        return Resolution("supersede", [one.id for one in entries if one.content.endswith("Lisbon")])

    old = await memory.write("Ada lives in Lisbon", scope=scope)
    await memory.write("Ada sails in Lisbon", scope=scope, type="user")
    new = await memory.write("Ada lives in Porto", scope=scope, detect_conflicts=True, resolve=resolve)
    assert asked == [("Ada lives in Porto", ["Ada lives in Lisbon"])]
    assert new.conflict_report is not None
    assert new.conflict_report.superseded == (old.id,)
    assert contents(await memory.retrieve(scope, order="oldest")) == [
        "Ada sails in Lisbon",
        "Ada lives in Porto",
    ]
    (link,) = await memory.relations.find(source_id=new.id)
    assert (link.label, link.target_id) == ("supersedes", old.id)


async def test_a_coroutine_merges_in_the_scope_of_a_view(memory: Memory) -> None:
    async def resolve(draft: EntryDraft, entries: Sequence[Entry]) -> Resolution:
        return Resolution("merge", content=f"{entries[0].content}, then in Porto")

    view = memory.scoped(USER)
    await view.write("Ada lives in Lisbon", source="web:a.example", run="r1")
    new = await view.write(
        "Ada lives in Porto", detect_conflicts=True, resolve=resolve, key="home", source="user"
    )
    assert (new.source, new.origins) == ("user", ["source:web:a.example", "run:r1"])
    assert await view.retrieve() == [await memory.get(new.id)]
    assert new.content == "Ada lives in Lisbon, then in Porto"
    again = await view.write(
        "Ada lives in Porto", detect_conflicts=True, resolve=resolve, key="home", source="user"
    )
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
        detect_conflicts=True,
        resolve=lambda draft, entries: "supersede",
    )
    assert new.conflict_report is None
    assert {one.id for one in await memory.retrieve(USER)} == {other.id, new.id}


async def test_what_does_not_go_together_is_refused_by_name(memory: Memory) -> None:
    for named, given in {
        "resolve: needs detect_conflicts=True": {"resolve": lambda draft, entries: "keep"},
        "resolve: must be a function": {"detect_conflicts": True, "resolve": "supersede"},
        "detect_conflicts: must be True or False": {"detect_conflicts": 1},
        "detect_conflicts: cannot be combined with": {
            "detect_conflicts": True,
            "key": "home",
            "if_exists": "replace",
        },
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
    assert await MemoryManager([store], detect_conflicts=False).add("Ada lives in Beja") == {}
    assert len(await memory.retrieve(USER)) == 4
    manager = MemoryManager([store], add_tool=True, resolve=lambda draft, entries: "supersede")
    assert await manager.dispatch("add_memory", {"entries": ["Ada lives in Faro"]}) == {"stored": 1}
    assert contents(await memory.retrieve(USER)) == ["Ada lives in Faro", "The boats leave on Sunday"]
    for wrong in (
        {"resolve": "supersede"},
        {"detect_conflicts": False, "resolve": lambda draft, entries: "keep"},
    ):
        with pytest.raises(InvalidInput, match="resolve"):
            MemoryManager([store], **wrong)


def test_without_an_event_loop_it_is_the_same() -> None:
    with BlockingMemory("memory://", embedder="none", accept_loss=True) as memory:
        view = memory.scoped("user:ada")
        old = view.write("Ada lives in Lisbon")
        asked: list[int] = []

        def resolve(draft: EntryDraft, entries: Sequence[Entry]) -> str:
            asked.append(len(view.retrieve()))  # it may ask the memory itself
            return "supersede"

        new = view.write("Ada lives in Porto", detect_conflicts=True, resolve=resolve)  # type: ignore[arg-type]
        assert asked == [1]
        assert new.conflict_report is not None
        assert new.conflict_report.superseded == (old.id,)
        now = memory.write("Faro", scope="user:ada", key="home", if_exists="replace")
        assert memory.write("Beja", scope="user:ada", key="home", if_exists="replace").id == now.id
        last = view.write("Ada lives in Faro", supersedes=[new.id])
        assert {one.id for one in view.retrieve()} == {last.id, now.id}
