"""A user's entries together with those of one session, and nothing else by itself."""

from __future__ import annotations

from typing import Any

import pytest

from memory import InvalidInput, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import EVERY_KIND, OBJECT, OTHER_SESSION, SESSION, USER, Clock, contents


@pytest.fixture
async def filled(memory: Memory, clock: Clock) -> Memory:
    """One entry in every scope, a second apart."""
    for scope in (*EVERY_KIND, OTHER_SESSION):
        clock.advance()
        await memory.write(f"{scope} entry", scope=scope)
    return memory


@pytest.mark.behaviour("A37", "AC-A17")
async def test_narrower_scopes_are_left_out_unless_asked(filled: Memory) -> None:
    assert contents(await filled.retrieve(USER)) == ["user:u1 entry"]
    assert contents(await filled.retrieve(USER, include_narrower=False, session_id="sess-1")) == [
        "user:u1 entry"
    ]


@pytest.mark.behaviour("A38", "A40")
async def test_a_users_entries_come_with_those_of_the_session_named_and_no_other(filled: Memory) -> None:
    found = await filled.retrieve(USER, include_narrower=True, session_id="sess-1")
    assert contents(found) == ["user:u1 entry", "session:sess-1 entry"]
    hits = await filled.search("entry", scope=USER, include_narrower=True, session_id="sess-1")
    assert sorted(h.entry.content for h in hits) == ["session:sess-1 entry", "user:u1 entry"]


@pytest.mark.behaviour("A39", "AC-A19")
async def test_no_session_is_discovered_by_itself(filled: Memory) -> None:
    assert contents(await filled.retrieve(USER, include_narrower=True)) == ["user:u1 entry"]


@pytest.mark.behaviour("A41", "A42", "AC-A21")
@pytest.mark.parametrize("scope", [s for s in EVERY_KIND if s != USER], ids=str)
async def test_only_a_users_scope_has_narrower_ones(filled: Memory, scope: Scope) -> None:
    assert contents(await filled.retrieve(scope, include_narrower=True, session_id="sess-2")) == [
        f"{scope} entry"
    ]


@pytest.mark.behaviour("A42", "AC-A21")
async def test_a_users_query_never_returns_an_objects_entries(filled: Memory) -> None:
    found = await filled.retrieve(USER, include_narrower=True, session_id="sess-1")
    assert OBJECT not in {entry.scope for entry in found}


@pytest.mark.behaviour("A44")
async def test_what_several_scopes_hold_is_sorted_together_and_then_cut(memory: Memory, clock: Clock) -> None:
    for n in range(6):
        clock.advance()
        await memory.write(f"n{n}", scope=USER if n % 2 else SESSION)
    both = {"include_narrower": True, "session_id": "sess-1"}
    assert contents(await memory.retrieve(USER, limit=3, **both)) == ["n5", "n4", "n3"]  # type: ignore[arg-type]
    assert contents(await memory.retrieve(USER, limit=3, order="oldest", **both)) == ["n0", "n1", "n2"]  # type: ignore[arg-type]
    assert len(await memory.retrieve(USER, **both)) == 6  # type: ignore[arg-type]


@pytest.mark.behaviour("A44")
async def test_an_entry_that_two_scopes_lead_to_comes_once(memory: Memory) -> None:
    entry = await memory.write("once", scope=SESSION)
    hits = await memory.search("once", scope=[SESSION, "session:sess-1", SESSION])
    assert [h.entry.id for h in hits] == [entry.id]


@pytest.mark.behaviour("A38", "A41")
@pytest.mark.parametrize(
    "session_id", ["", "\x00", "\ud800", "x" * 513, 5], ids=["empty", "nul", "surrogate", "long", "number"]
)
async def test_a_session_that_cannot_be_is_refused(memory: Memory, session_id: str) -> None:
    for narrower in (True, False):
        with pytest.raises(InvalidInput, match=r"session|id"):
            await memory.retrieve(USER, include_narrower=narrower, session_id=session_id)


@pytest.mark.behaviour("A43", "A15")
async def test_inclusion_can_be_switched_off_for_good(config: dict[str, Any], clock: Clock) -> None:
    async with Memory({**config, "inclusion_rules": False}, clock=clock) as memory:
        await memory.write("of the user", scope=USER)
        await memory.write("of the session", scope=SESSION)
        assert contents(await memory.retrieve(USER, include_narrower=True, session_id=SESSION.id)) == [
            "of the user"
        ]
