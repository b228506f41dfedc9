"""What an entry is made of, as written and as read back."""

from __future__ import annotations

from typing import Any

import pytest

from memory import Conflict, Entry, EntryType, InvalidInput, Scope, ScopeKind
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import DAY, EVERY_KIND, SESSION, USER, Clock, watching


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
def test_there_are_exactly_five_kinds_of_scope_besides_paths() -> None:
    assert [kind.value for kind in ScopeKind] == ["session", "user", "workspace", "org", "object", "path"]
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
    [
        (["a", "a", "b"], ["a", "b"]),
        (["b", "a", "b", "a"], ["b", "a"]),
        ([], []),
        (["a", "A", "a "], ["a", "A", "a "]),
        (("x", "x"), ["x"]),
    ],
)
async def test_duplicate_tags_are_removed_in_first_seen_order(
    memory: Memory, given: list[str], kept: list[str]
) -> None:
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
    assert (read.expires_at, read.promoted_from_id, read.compacted_from_ids, read.valid_to) == (
        None,
        None,
        None,
        None,
    )
    assert read.metadata == given


@pytest.mark.behaviour("A22")
async def test_promotion_keeps_metadata_named_like_the_new_scope(memory: Memory) -> None:
    entry = await memory.write(
        "mine", scope=SESSION, metadata={"userId": "somebody else", "promoted_from_id": "fake"}
    )
    promoted = await memory.promote(entry.id, to=USER)
    assert promoted.promoted_from_id == entry.id
    assert promoted.metadata["userId"] == "somebody else"
    assert promoted.metadata["promoted_from_id"] == "fake"
    assert promoted.scope == USER


@pytest.mark.behaviour("A20", "A21")
async def test_nothing_of_ours_appears_in_metadata(memory: Memory, clock: Clock) -> None:
    entry = await memory.write(
        "plain", scope=USER, expires_at=clock.moment + DAY, key="k", metadata={"mine": 1}
    )
    await memory.update(entry.id, content="edited")
    assert [e.metadata for e in await memory.retrieve(USER)] == [{"mine": 1}]
    assert [hit.entry.metadata for hit in await memory.search("edited", scope=USER)] == [{"mine": 1}]
    assert [e.metadata async for e in memory.entries.iterate()] == [{"mine": 1}]


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


SAID: dict[str, Any] = {"conversation_id": "trip", "number_in_conversation": 7, "speaker": "Ada"}


def said(entry: Entry | None) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in SAID}


async def test_where_an_entry_was_said_stays_with_it_through_edits_exports_and_imports(
    memory: Memory,
) -> None:
    written = await memory.write("I prefer tea", scope=USER, **SAID)
    assert (
        said(written) == said(await memory.get(written.id)) == said((await memory.retrieve(USER))[0]) == SAID
    )
    assert written.metadata == {}
    await memory.update(written.id, content="I prefer green tea", metadata={"n": 1})
    assert [said(version) for version in await memory.entries.history(written.id)] == [SAID, SAID]

    other = memory.for_tenant("other")
    assert (await other.admin.import_(memory.admin.export())).imported == 1
    (imported,) = await other.retrieve(USER)
    assert (imported.content, said(imported)) == ("I prefer green tea", SAID)
    await memory.delete(written.id)
    nothing = dict.fromkeys(SAID)
    assert said(await memory.write("Ada prefers tea", scope=USER)) == nothing


async def test_every_way_of_writing_takes_where_it_was_said(memory: Memory) -> None:
    written = [
        await memory.scoped(USER).write("one", **SAID),
        *await memory.write_many([{"content": "two", "scope": USER, **SAID}]),
    ]
    assert [said(entry) for entry in written] == [SAID, SAID]
    speaker_alone = await memory.write("three", scope=USER, speaker="Ada")
    assert said(await memory.get(speaker_alone.id)) == dict.fromkeys(SAID) | {"speaker": "Ada"}


@cells(
    "field, given",
    [
        ("conversation_id", {"conversation_id": ""}),
        ("conversation_id", {"conversation_id": "c" * 513}),
        ("conversation_id", {"conversation_id": 5}),
        ("speaker", {"speaker": ""}),
        ("speaker", {"speaker": "A\x00da"}),
        ("number_in_conversation", {"conversation_id": "c", "number_in_conversation": True}),
        ("number_in_conversation", {"conversation_id": "c", "number_in_conversation": 1.0}),
        ("number_in_conversation", {"conversation_id": "c", "number_in_conversation": "1"}),
        ("number_in_conversation", {"conversation_id": "c", "number_in_conversation": 2**63}),
        ("number_in_conversation", {"number_in_conversation": 1}),
    ],
    shared=True,
)
async def test_where_it_was_said_is_refused_by_name_where_it_cannot_be(
    plain: Memory, field: str, given: dict[str, Any]
) -> None:
    with watching(plain) as calls:
        with pytest.raises(InvalidInput) as caught:
            await plain.write("text", scope=USER, **given)
        with pytest.raises(InvalidInput):
            await plain.write_many(
                [{"content": "good", "scope": USER}, {"content": "text", "scope": USER, **given}]
            )
    assert caught.value.field == field
    assert calls == []


async def test_a_number_needs_its_conversation_and_the_refusal_says_so(plain: Memory) -> None:
    with pytest.raises(InvalidInput, match="is a position in a conversation"):
        await plain.write("text", scope=USER, number_in_conversation=1)


async def test_a_key_repeats_what_was_said_in_the_same_place_and_no_other(memory: Memory) -> None:
    first = await memory.write("yes", scope=USER, key="k", **SAID)
    assert await memory.write("yes", scope=USER, key="k", **SAID) == first
    for changed in ({"speaker": "Bob"}, {"number_in_conversation": 8}, {"conversation_id": "other"}):
        with pytest.raises(Conflict):
            await memory.write("yes", scope=USER, key="k", **(SAID | changed))


async def test_a_promotion_keeps_where_it_was_said_and_a_compaction_does_not(memory: Memory) -> None:
    sources = [
        await memory.write(f"part {n}", scope=SESSION, **(SAID | {"number_in_conversation": n}))
        for n in (1, 2)
    ]
    promoted = await memory.promote(sources[1].id, to=USER, content="the second part")
    assert said(promoted) == said(await memory.get(promoted.id)) == SAID | {"number_in_conversation": 2}
    compacted = await memory.compact([source.id for source in sources], lambda entries: "whole")
    assert said(compacted) == dict.fromkeys(SAID)
