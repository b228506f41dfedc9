"""Promotion: a copy in a broader scope, allowed by the matrix, made once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from memory import Conflict, Entry, InvalidInput, InvalidScopePromotion, NotFound, Scope
from memory.facade.memory import Memory
from tests.acceptance.support import (
    DAY,
    EVERY_KIND,
    HOUR,
    OBJECT,
    ORG,
    SESSION,
    USER,
    WORKSPACE,
    Clock,
    everything_stored,
)

TARGETS = {
    "session": Scope.session("new"),
    "user": Scope.user("new"),
    "workspace": Scope.workspace("new"),
    "org": Scope.org("new"),
    "object": Scope.object("ticket", "new"),
}
ALLOWED = {
    *itertools.product(["session"], ["user", "workspace", "org", "object"]),
    *itertools.product(["user"], ["workspace", "org"]),
    ("workspace", "org"),
    *itertools.product(["object"], ["user", "workspace", "org"]),
}


@pytest.mark.behaviour("A59", "A60", "A61", "A62", "A17", "AC-A33")
@pytest.mark.parametrize("source", EVERY_KIND, ids=lambda s: f"from {s.kind}")
async def test_promotion_follows_the_matrix_and_a_refused_one_changes_nothing(
    memory: Memory, source: Scope
) -> None:
    entry = await memory.write("to be promoted", scope=source)
    for kind, target in TARGETS.items():
        if (source.kind.value, kind) in ALLOWED:
            promoted = await memory.promote(entry.id, to=target)
            assert (promoted.scope, promoted.promoted_from_id) == (target, entry.id)
            continue
        before = await everything_stored(memory)
        message = f"^Cannot promote memory from {source.kind} scope to {kind} scope\\.$"
        with pytest.raises(InvalidScopePromotion, match=message) as caught:
            await memory.promote(entry.id, to=target, delete_original=True)
        assert (caught.value.source, caught.value.target) == (source.kind, kind)
        assert await everything_stored(memory) == before


@pytest.mark.behaviour("A60")
async def test_an_entry_cannot_be_promoted_to_its_own_scope(memory: Memory) -> None:
    for scope in EVERY_KIND:
        entry = await memory.write("mine", scope=scope)
        with pytest.raises(InvalidScopePromotion):
            await memory.promote(entry.id, to=scope)


@pytest.mark.behaviour("A63", "A65", "A66", "A67", "A69")
@pytest.mark.parametrize("scope", [SESSION, USER, OBJECT], ids=str)
async def test_a_promoted_entry_is_a_new_one_with_the_sources_content(
    memory: Memory, clock: Clock, scope: Scope
) -> None:
    source = await memory.write(
        "known",
        scope=scope,
        type="learning",
        title="T",
        source="s",
        tags=["a", "b"],
        metadata={"k": 1},
        expires_at=clock.moment + DAY,
    )
    clock.advance()
    promoted = await memory.promote(source.id, to=ORG)
    assert promoted.id != source.id
    assert promoted.scope == ORG
    for field in ("content", "type", "title", "source", "tags", "expires_at"):
        assert getattr(promoted, field) == getattr(source, field)
    assert promoted.metadata["k"] == 1
    assert promoted.created_at == promoted.updated_at == promoted.valid_from > source.created_at
    assert await memory.get(source.id) == source
    assert await memory.get(promoted.id) == promoted
    assert [h.entry.id for h in await memory.search("known", scope=ORG)] == [promoted.id]


@pytest.mark.behaviour("A65")
async def test_overrides_win(memory: Memory) -> None:
    source = await memory.write("long", scope=USER, tags=["a"], metadata={"a": 1, "b": 1})
    promoted = await memory.promote(source.id, to=ORG, content="short", tags=["b", "b"], metadata={"b": 2})
    assert (promoted.content, promoted.tags, promoted.metadata) == ("short", ["b"], {"a": 1, "b": 2})


@pytest.mark.behaviour("A67", "A88")
async def test_overridden_metadata_never_strips_provenance(memory: Memory) -> None:
    provenance = {"agentId": "agent-x", "source": "conversation", "confidence": 0.9}
    source = await memory.write("known", scope=SESSION, metadata=provenance)
    promoted = await memory.promote(source.id, to=USER, metadata={"reviewed": True})
    assert promoted.metadata == provenance | {"created_in_session_id": "sess-1", "reviewed": True}


@pytest.mark.behaviour("A52", "A65")
async def test_an_entry_edited_to_empty_content_can_be_promoted(memory: Memory) -> None:
    source = await memory.write("once", scope=SESSION)
    await memory.update(source.id, content="")
    assert (await memory.promote(source.id, to=USER)).content == ""


@pytest.mark.behaviour("A67")
async def test_an_entry_with_all_the_metadata_there_may_be_can_be_promoted(memory: Memory) -> None:
    source = await memory.write("full", scope=SESSION, metadata={"a": "x" * 65_500})
    assert len((await memory.promote(source.id, to=USER)).metadata["a"]) == 65_500


@pytest.mark.behaviour("A67", "A68", "AC-A35")
async def test_the_session_an_entry_comes_from_is_noted(memory: Memory) -> None:
    provenance = {"agentId": "agent-x", "source": "conversation", "confidence": 0.9}
    source = await memory.write("learned", scope=Scope.session("sess-orig"), metadata=provenance)
    promoted = await memory.promote(source.id, to=USER)
    assert promoted.metadata == provenance | {"created_in_session_id": "sess-orig"}


@pytest.mark.behaviour("A64", "A68")
async def test_the_first_session_and_only_the_direct_source_survive_several_hops(memory: Memory) -> None:
    first = await memory.write("learned", scope=SESSION)
    second = await memory.promote(first.id, to=USER)
    third = await memory.promote(second.id, to=WORKSPACE)
    fourth = await memory.promote(third.id, to=ORG)
    assert [e.promoted_from_id for e in (second, third, fourth)] == [first.id, second.id, third.id]
    assert fourth.metadata["created_in_session_id"] == "sess-1"


@pytest.mark.behaviour("A68")
async def test_a_session_noted_before_is_kept_and_none_is_made_up(memory: Memory) -> None:
    source = await memory.write("told", scope=SESSION, metadata={"created_in_session_id": "an earlier one"})
    assert (await memory.promote(source.id, to=USER)).metadata == {"created_in_session_id": "an earlier one"}
    plain = await memory.write("told", scope=USER)
    assert (await memory.promote(plain.id, to=ORG)).metadata == {}


@pytest.mark.behaviour("A66")
async def test_where_a_compacted_entry_came_from_is_carried_over(memory: Memory) -> None:
    sources = [await memory.write(f"part {n}", scope=SESSION, metadata={"agentId": n}) for n in (1, 2)]
    compacted = await memory.compact([s.id for s in sources], lambda entries: "whole")
    promoted = await memory.promote(compacted.id, to=USER)
    assert promoted.compacted_from_ids == [s.id for s in sources]
    assert promoted.contributors == compacted.contributors
    assert promoted.promoted_from_id == compacted.id


@pytest.mark.behaviour("A63", "A70", "AC-A37")
@pytest.mark.parametrize("scope", [SESSION, USER], ids=str)
async def test_the_original_goes_where_that_was_asked(memory: Memory, scope: Scope) -> None:
    source = await memory.write("moving out", scope=scope)
    promoted = await memory.promote(source.id, to=ORG, delete_original=True)
    assert await memory.get(source.id) is None
    assert await memory.retrieve(scope) == []
    assert await memory.get(promoted.id) == promoted


@pytest.mark.behaviour("A71")
async def test_a_source_that_is_not_there_is_not_found(memory: Memory, clock: Clock) -> None:
    expired = await memory.write("expired", scope=USER, expires_at=clock.moment - HOUR)
    retired = await memory.write("retired", scope=USER)
    clock.advance()
    await memory.entries.invalidate(retired.id)
    for gone in ("nothing", expired.id, retired.id):
        with pytest.raises(NotFound, match=gone):
            await memory.promote(gone, to=ORG)
    assert await memory.retrieve(ORG) == []


@pytest.mark.behaviour("A72", "B86")
async def test_promoting_again_returns_the_same_entry(memory: Memory, clock: Clock) -> None:
    source = await memory.write("once", scope=SESSION)
    promoted = await memory.promote(source.id, to=USER)
    clock.advance()
    assert await memory.promote(source.id, to=USER) == promoted
    assert await memory.retrieve(USER) == [promoted]
    assert (await memory.promote(source.id, to="user:u2")).id != promoted.id


OVERRIDES: list[dict[str, Any]] = [{"content": "otherwise"}, {"tags": ["other"]}, {"metadata": {"a": 1}}]


@pytest.mark.behaviour("A72")
@pytest.mark.parametrize("overrides", OVERRIDES, ids=str)
async def test_promoting_again_with_other_overrides_is_a_conflict_and_with_the_same_ones_the_same_entry(
    memory: Memory, overrides: dict[str, Any]
) -> None:
    source = await memory.write("once", scope=SESSION)
    promoted = await memory.promote(source.id, to=USER, **overrides)
    assert await memory.promote(source.id, to=USER, **overrides) == promoted
    for others in ({}, *(o for o in OVERRIDES if o != overrides)):
        for away in (False, True):
            with pytest.raises(Conflict) as caught:
                await memory.promote(source.id, to=USER, delete_original=away, **others)
            assert caught.value.existing_id == promoted.id
    assert await memory.get(source.id) == source
    moved = await memory.promote(source.id, to=USER, delete_original=True, **overrides)
    assert (
        moved.model_copy(update={"version": promoted.version, "updated_at": promoted.updated_at}) == promoted
    )
    with pytest.raises(Conflict):
        await memory.promote(source.id, to=USER)
    assert await memory.promote(source.id, to=USER, **overrides) == moved


@pytest.mark.behaviour("A70", "A72")
async def test_an_original_edited_since_it_was_promoted_is_not_deleted(memory: Memory) -> None:
    source = await memory.write("draft", scope=SESSION)
    promoted = await memory.promote(source.id, to=USER)
    edited = await memory.update(source.id, content="final")
    with pytest.raises(Conflict, match="edited after it was promoted") as caught:
        await memory.promote(source.id, to=USER, delete_original=True)
    assert caught.value.existing_id == promoted.id
    assert await memory.get(source.id) == edited
    assert await memory.promote(source.id, to=USER) == promoted
    await memory.delete(promoted.id)
    assert (await memory.promote(source.id, to=USER, delete_original=True)).content == "final"
    assert await memory.get(source.id) is None


@pytest.mark.behaviour("A70", "A72")
@pytest.mark.parametrize("how", ["retired", "expired"])
async def test_an_original_whose_copy_is_hidden_is_not_deleted(
    memory: Memory, clock: Clock, how: str
) -> None:
    source = await memory.write("kept", scope=SESSION)
    promoted = await memory.promote(source.id, to=USER)
    if how == "retired":
        await memory.entries.invalidate(promoted.id)
    else:
        await memory.update(promoted.id, expires_at=clock.moment - HOUR)
    with pytest.raises(Conflict, match="expired or retired") as caught:
        await memory.promote(source.id, to=USER, delete_original=True)
    assert caught.value.existing_id == promoted.id
    assert await memory.get(source.id) == source
    assert [h.entry for h in await memory.search("kept", scope=[SESSION, USER])] == [source]


@pytest.mark.behaviour("A72")
async def test_promoting_again_returns_it_as_it_is_by_now(memory: Memory) -> None:
    source = await memory.write("once", scope=SESSION)
    promoted = await memory.promote(source.id, to=USER)
    edited = await memory.update(promoted.id, content="edited since")
    moved = await memory.promote(source.id, to=USER, delete_original=True)
    assert moved.model_copy(update={"version": edited.version, "updated_at": edited.updated_at}) == edited
    assert await memory.get(source.id) is None


@pytest.mark.behaviour("A72")
@pytest.mark.parametrize("target", [USER, OBJECT], ids=str)
async def test_promoting_after_the_deletion_of_the_promoted_entry_is_a_new_act(
    memory: Memory, clock: Clock, target: Scope
) -> None:
    source = await memory.write("twice", scope=SESSION)
    first = await memory.promote(source.id, to=target)
    for _ in range(2):
        clock.advance()
        assert await memory.delete(first.id)
        again = await memory.promote(source.id, to=target)
        assert (again.content, again.promoted_from_id) == ("twice", source.id)
        assert again.version > first.version
        assert again.created_at > first.created_at
        assert await memory.retrieve(target) == [again]
        assert [h.entry for h in await memory.search("twice", scope=target)] == [again]
        assert await memory.entries.history(again.id) == [again]


@pytest.mark.behaviour("A72")
async def test_promoting_after_the_target_scope_was_erased_is_a_new_act(memory: Memory) -> None:
    source = await memory.write("twice", scope=SESSION)
    await memory.promote(source.id, to=USER)
    assert await memory.admin.erase(USER) == 1
    again = await memory.promote(source.id, to=USER)
    assert await memory.retrieve(USER) == [again]
    assert [h.entry for h in await memory.search("twice", scope=USER)] == [again]


@pytest.mark.behaviour("A62", "A65")
@pytest.mark.parametrize(
    "override",
    [{"content": "\x00"}, {"tags": "x"}, {"metadata": {"a": float("nan")}}, {"content": None}],
    ids=str,
)
async def test_an_override_that_cannot_be_is_refused(memory: Memory, override: dict[str, str]) -> None:
    source = await memory.write("kept", scope=SESSION)
    with pytest.raises(InvalidInput, match=next(iter(override))):
        await memory.promote(source.id, to=USER, **override)  # type: ignore[arg-type]
    assert await memory.retrieve(USER) == []


@pytest.mark.behaviour("A89", "A90")
async def test_confidence_neither_ranks_nor_merges_anything(memory: Memory) -> None:
    entries: list[Entry] = []
    for confidence in (0.1, 0.99, None):
        entries.append(
            await memory.write(
                "tea at five", scope=USER, metadata={"agentId": str(confidence), "confidence": confidence}
            )
        )
    assert [e.id for e in await memory.retrieve(USER)] == [e.id for e in reversed(entries)]
    hits = await memory.search("tea", scope=USER)
    assert [h.entry.id for h in hits] == sorted(e.id for e in entries)
    assert {h.entry.metadata["agentId"] for h in hits} == {"0.1", "0.99", "None"}


@pytest.mark.behaviour("A70", "A72")
async def test_promoting_again_after_the_original_went_with_it_returns_the_same_entry(memory: Memory) -> None:
    source = await memory.write("kept", scope=SESSION)
    first = await memory.promote(source.id, USER, delete_original=True)
    assert await memory.promote(source.id, USER, delete_original=True) == first
    with pytest.raises(NotFound, match=source.id):
        await memory.promote(source.id, ORG)


@pytest.mark.behaviour("A66", "A71", "A72")
@pytest.mark.parametrize("overrides", [{}, {"content": "other words"}], ids=["again", "with other overrides"])
async def test_an_original_that_expired_together_with_its_copy_is_not_found_by_its_own_id(
    memory: Memory, clock: Clock, overrides: dict[str, Any]
) -> None:
    source = await memory.write("for an hour", scope=SESSION, expires_at=clock.moment + HOUR)
    copy = await memory.promote(source.id, USER)
    clock.advance(DAY)
    with pytest.raises(NotFound, match=source.id) as said:
        await memory.promote(source.id, USER, **overrides)
    assert copy.expires_at == source.expires_at
    assert said.value.entry_id == source.id
