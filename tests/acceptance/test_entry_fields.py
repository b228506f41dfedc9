"""What an entry is made of, as written and as read back."""

from __future__ import annotations

import pytest

from memory import Entry, EntryType, InvalidInput, Scope, ScopeKind
from memory.facade.memory import Memory
from tests.acceptance.support import DAY, EVERY_KIND, SESSION, USER, Clock


@pytest.mark.behaviour("A4", "A5", "A6", "A7", "A8", "D10", "AC-A01")
@pytest.mark.parametrize("scope", EVERY_KIND, ids=str)
async def test_a_fresh_entry_has_its_defaults(memory: Memory, scope: Scope) -> None:
    entry = await memory.write("test", scope=scope)
    assert entry.id
    assert entry.scope == scope
    assert entry.content == "test"
    assert entry.created_at == entry.updated_at == entry.valid_from
    assert (entry.tags, entry.metadata) == ([], {})
    assert (entry.type, entry.title, entry.source) == (EntryType.CONTEXT, None, None)
    assert (entry.expires_at, entry.valid_to) == (None, None)
    assert (entry.promoted_from_id, entry.compacted_from_ids, entry.contributors) == (None, None, None)


@pytest.mark.behaviour("A1")
def test_there_are_exactly_five_kinds_of_scope() -> None:
    assert [kind.value for kind in ScopeKind] == ["session", "user", "workspace", "org", "object"]
    for unknown in ("team", "USER", "", "users"):
        with pytest.raises(InvalidInput, match="scope kind"):
            Scope.of(unknown, "x")


@pytest.mark.behaviour("A1")
def test_an_object_scope_has_a_type_and_no_other_scope_has() -> None:
    assert (Scope.object("ticket", "t1").id, Scope.object("ticket", "t1").object_type) == ("t1", "ticket")
    with pytest.raises(InvalidInput, match="object_type"):
        Scope.of("object", "t1")
    with pytest.raises(InvalidInput, match="object_type"):
        Scope.of("user", "u1", "ticket")


@pytest.mark.behaviour("A4")
async def test_every_field_given_is_read_back(memory: Memory, clock: Clock) -> None:
    written = await memory.write(
        "Ada drinks tea",
        scope=USER,
        type="learning",
        title="Drinks",
        source="planning",
        tags=["a", "b"],
        metadata={"deep": {"list": [1, 2.5, None, True, "ü"]}},
        expires_at=clock.moment + DAY,
    )
    read = await memory.get(written.id)
    assert read == written
    assert read is not None
    assert read.type is EntryType.LEARNING
    assert (read.title, read.source, read.tags) == ("Drinks", "planning", ["a", "b"])
    assert read.metadata == {"deep": {"list": [1, 2.5, None, True, "ü"]}}


@pytest.mark.behaviour("A3")
async def test_an_entry_belongs_to_exactly_one_scope(memory: Memory) -> None:
    await memory.write("mine", scope=USER)
    found = [scope for scope in EVERY_KIND if await memory.retrieve(scope)]
    assert found == [USER]


@pytest.mark.behaviour("A5")
async def test_ids_are_ours_and_no_two_are_alike(memory: Memory) -> None:
    written = await memory.write_many([{"content": "same", "scope": USER} for _ in range(50)])
    assert len({entry.id for entry in written}) == 50
    with pytest.raises(TypeError):
        await memory.write("chosen", scope=USER, id="my-own-id")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="id"):
        await memory.write_many([{"content": "chosen", "scope": USER, "id": "my-own-id"}])


@pytest.mark.behaviour("A7", "D5")
@pytest.mark.parametrize(
    ("given", "kept"),
    [(["a", "a", "b"], ["a", "b"]), (["b", "a", "b", "a"], ["b", "a"]), ([], []), (["a", "A", "a "], ["a", "A", "a "]), (("x", "x"), ["x"])],
)
async def test_duplicate_tags_are_removed_in_first_seen_order(memory: Memory, given: list[str], kept: list[str]) -> None:
    entry = await memory.write("tagged", scope=USER, tags=given)
    assert entry.tags == kept
    read = await memory.get(entry.id)
    assert read is not None
    assert read.tags == kept


@pytest.mark.behaviour("A23", "A88", "AC-A03")
async def test_provenance_in_metadata_is_kept_verbatim(memory: Memory) -> None:
    provenance = {"agentId": "agent-1", "source": "conversation", "confidence": 0.95}
    entry = await memory.write("known", scope=SESSION, metadata=provenance)
    read = await memory.get(entry.id)
    assert read is not None
    assert read.metadata == provenance
    assert type(read.metadata["confidence"]) is float


@pytest.mark.behaviour("A21", "A22", "AC-A05")
async def test_metadata_named_like_our_own_fields_changes_none_of_them(memory: Memory) -> None:
    given = {
        "expiresAt": "1999-01-01T00:00:00Z",
        "expires_at": "1999-01-01T00:00:00Z",
        "promotedFromId": "fake",
        "promoted_from_id": "fake",
        "compacted_from_ids": ["fake"],
        "contributors": ["fake"],
        "_scopeKind": "org",
        "userId": "uX",
        "scope": "org:o1",
        "tenant": "other",
        "id": "fake",
        "version": 1,
        "valid_to": "1999-01-01T00:00:00Z",
        "content": "fake",
        "tags": ["fake"],
        "role": "cached",
    }
    entry = await memory.write("true", scope=SESSION, metadata=given)
    read = await memory.get(entry.id)
    assert read is not None
    assert read.scope == SESSION
    assert (read.content, read.tags) == ("true", [])
    assert (read.expires_at, read.promoted_from_id, read.compacted_from_ids, read.valid_to) == (None, None, None, None)
    assert read.metadata == given


@pytest.mark.behaviour("A22")
async def test_promotion_keeps_metadata_named_like_the_new_scope(memory: Memory) -> None:
    entry = await memory.write("mine", scope=SESSION, metadata={"userId": "somebody else", "promoted_from_id": "fake"})
    promoted = await memory.promote(entry.id, to=USER)
    assert promoted.promoted_from_id == entry.id
    assert promoted.metadata["userId"] == "somebody else"
    assert promoted.metadata["promoted_from_id"] == "fake"
    assert promoted.scope == USER


@pytest.mark.behaviour("A20", "A21")
async def test_nothing_of_ours_appears_in_metadata(memory: Memory, clock: Clock) -> None:
    entry = await memory.write("plain", scope=USER, expires_at=clock.moment + DAY, key="k", metadata={"mine": 1})
    await memory.update(entry.id, content="edited")
    assert [e.metadata for e in await memory.retrieve(USER)] == [{"mine": 1}]
    assert [hit.entry.metadata for hit in await memory.search("edited", scope=USER)] == [{"mine": 1}]
    assert [e.metadata async for e in memory.entries.all()] == [{"mine": 1}]


@pytest.mark.behaviour("A21")
async def test_a_promoted_and_a_compacted_entry_show_no_provenance_in_metadata(memory: Memory) -> None:
    sources = [await memory.write(f"part {n}", scope=USER, metadata={"n": n}) for n in (1, 2)]
    compacted = await memory.compact([s.id for s in sources], lambda entries: "whole")
    promoted = await memory.promote(compacted.id, to="org:o1")
    assert compacted.metadata == promoted.metadata == {"n": 1}


@pytest.mark.behaviour("A10", "A4")
async def test_what_is_read_is_an_entry_with_nothing_else_in_it(memory: Memory) -> None:
    entry = await memory.write("typed", scope=USER)
    assert Entry.model_validate(entry.model_dump()) == entry
