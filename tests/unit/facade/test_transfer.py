"""What an import reads, where it says an error stands, and that an export can be read
again.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from memory.domain.entry import Contributor, Entry, EntryType, ImportedDraft
from memory.domain.ids import keyed_id, new_id
from memory.domain.relation import Relation
from memory.domain.scope import Scope
from memory.domain.versions import version_text
from memory.facade.transfer.lines import (
    FORMAT,
    BadLine,
    IdMapping,
    ImportOptions,
    Item,
    MessageLine,
    RelationLine,
    exported_entry,
    exported_relation,
    read,
)
from memory.ports.contract.cells import cells

SESSION = Scope.session("s1")


def parse(data: str | bytes, scope: Scope | None = SESSION) -> list[Item | BadLine]:
    return list(
        read(io.BytesIO(data.encode() if isinstance(data, str) else data), "chat.jsonl", ImportOptions(scope))
    )


def messages(data: str | bytes, scope: Scope | None = SESSION) -> list[MessageLine]:
    found = parse(data, scope)
    assert all(isinstance(item, MessageLine) for item in found), found
    return [item for item in found if isinstance(item, MessageLine)]


def the_bad_line(data: str | bytes, scope: Scope | None = SESSION) -> BadLine:
    (bad,) = [item for item in parse(data, scope) if isinstance(item, BadLine)]
    return bad


def lines(*objects: dict[str, Any]) -> str:
    return "".join(json.dumps(item) + "\n" for item in objects)


def test_a_message_becomes_an_entry_with_its_role_time_and_key() -> None:
    (message,) = messages(
        lines(
            {"role": "user", "content": "hello", "time": "2026-01-31T09:30:00Z", "id": "m1", "tags": ["fact"]}
        )
    )
    draft = message.draft
    assert (draft.scope, draft.content, draft.key, draft.tags) == (SESSION, "hello", "m1", ["fact"])
    assert draft.created_at == datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    assert draft.metadata == {"role": "user"}
    assert draft.type is EntryType.CONTEXT


def test_without_an_id_the_key_is_the_files_name_and_the_position() -> None:
    found = messages(
        "\n" + lines({"role": "user", "content": "a"}) + "\n" + lines({"role": "user", "content": "b"})
    )
    assert [(m.line, m.draft.key) for m in found] == [(2, "chat.jsonl:1"), (4, "chat.jsonl:2")]


def said(data: str, scope: Scope | None = SESSION) -> list[tuple[str | None, int | None, str | None]]:
    drafts = [message.draft for message in messages(data, scope) if not message.again]
    return [(draft.conversation_id, draft.number_in_conversation, draft.speaker) for draft in drafts]


def test_a_message_says_where_it_stands_in_its_conversation_and_who_spoke() -> None:
    data = lines(
        {"role": "user", "name": "Ada", "content": "hi", "id": 1},
        {"role": "user", "name": "Ada", "content": "hi", "id": 1},
        {"role": "user", "speaker": "Bob", "name": "b", "content": "Bob: hi"},
        {"role": "assistant", "name": "", "content": "yes"},
    )
    assert said(data) == [("s1", 1, "Ada"), ("s1", 2, "Bob"), ("s1", 3, None)]
    assert said(data, Scope.user("ada")) == [
        ("chat.jsonl", 1, "Ada"),
        ("chat.jsonl", 2, "Bob"),
        ("chat.jsonl", 3, None),
    ]
    assert [message.draft.content for message in messages(data)] == ["hi", "hi", "Bob: hi", "yes"]
    assert messages(data)[2].draft.metadata == {"role": "user", "speaker": "Bob", "name": "b"}


def test_conversations_that_a_file_names_are_counted_each_by_itself() -> None:
    data = lines(
        {**GOOD, "session_id": "a"},
        {**GOOD, "session_id": 2},
        {**GOOD, "session_id": "a", "number_in_conversation": 40},
        {**GOOD, "session_id": "a"},
        {**GOOD, "session_id": "a", "conversation_id": "c"},
    )
    assert [(conversation, number) for conversation, number, _ in said(data)] == [
        ("a", 1),
        ("2", 1),
        ("a", 40),
        ("a", 3),
        ("c", 1),
    ]


def test_fields_it_does_not_know_are_kept_in_the_metadata() -> None:
    (message,) = messages(
        lines({"role": "tool", "content": "42", "model": "m", "metadata": {"confidence": 0.9}})
    )
    assert message.draft.metadata == {"role": "tool", "model": "m", "confidence": 0.9}


def test_an_array_reads_like_lines_and_each_item_knows_its_line() -> None:
    data = (
        ' \n[\n  {"role": "user",\n   "content": "a"},\n\n  {"role": "user", "content": "b"}, {"role":'
        ' "user", "content": "c"}\n]\n'
    )
    assert [(m.line, m.draft.content) for m in messages(data)] == [(3, "a"), (6, "b"), (6, "c")]
    assert messages("[]") == []
    assert messages("") == []


def test_a_byte_order_mark_is_no_error() -> None:
    assert len(messages(b"\xef\xbb\xbf" + lines({"role": "user", "content": "a"}).encode())) == 1


GOOD = {"role": "user", "content": "fine"}


@cells(
    "bad, problem",
    [
        ("{", "not JSON"),
        ('"text"', "holds str where an object"),
        (
            '{"content": "x"}',
            "role: is missing. A line is a message with role and content, or a line of an export",
        ),
        ('{"role": 3, "content": "x"}', "role: must be text"),
        ('{"role": "user"}', "content: is missing"),
        ('{"role": "user", "content": [1]}', "content: must be text, not list"),
        ('{"role": "user", "content": ""}', "content: is empty"),
        (
            '{"role": "user", "content": "x", "time": "yesterday"}',
            "time: <the value> is not an ISO 8601 moment",
        ),
        ('{"role": "user", "content": "x", "time": "2026-01-31T09:30:00"}', "time: has no time zone"),
        (
            '{"role": "user", "content": "x", "timestamp": "noon", "date": 1}',
            "timestamp: <the value> is not an ISO 8601 moment",
        ),
        ('{"role": "user", "content": "x", "id": 1.5}', "id: must be text or a whole number"),
        (
            '{"role": "user", "content": "x", "session_id": ["s"]}',
            "session_id: must be text or a whole number",
        ),
        (
            '{"role": "user", "content": "x", "name": {"first": "Ada"}}',
            "name: must be text or a whole number",
        ),
        ('{"role": "user", "content": "x", "speaker": "\\u0000"}', "speaker: must not hold a NUL character"),
        (
            '{"role": "user", "content": "x", "number_in_conversation": "7"}',
            "number_in_conversation: must be a whole number",
        ),
        ('{"role": "user", "content": "x", "tags": "fact"}', "tags: must be a list"),
        ('{"role": "user", "content": "x", "type": "story"}', "type: "),
        (
            '{"role": "user", "content": "x", "metadata": {"role": "assistant"}}',
            "role: has one value in the message and another in its metadata",
        ),
        ('{"role": "user", "content": "x", "metadata": {"n": NaN}}', "must be a finite number"),
        ('{"role": "user", "content": "\\ud800"}', "content: must not hold a lone surrogate"),
        ('{"role": "user", "content": "x", "n": ' + "9" * 5000 + "}", "a number too long"),
        ("[" * 100_000, "not JSON"),
        (
            '{"format": "memory-entry/9", "id": "x"}',
            "format: is not known; this version reads memory-entry/3, memory-entry/2",
        ),
    ],
    shared=True,
)
def test_a_bad_line_is_named_by_its_number_and_its_neighbours_are_read(bad: str, problem: str) -> None:
    found = parse(lines(GOOD) + bad + "\n" + lines(GOOD))
    assert [type(item) for item in found] == [MessageLine, BadLine, MessageLine]
    assert str(found[1]).startswith("chat.jsonl line 2: ")
    assert problem in str(found[1])


def test_bytes_that_are_not_utf8_are_a_bad_line() -> None:
    assert "line 1: not UTF-8 at byte 3" in str(the_bad_line(b'{"\xff": 1}\n'))
    with pytest.raises(BadLine, match="line 2: not UTF-8"):
        parse(b'[{"role": "user", "content": "x"},\n"\xff"]')


@cells(
    "data, line, problem",
    [
        ('[\n{"role": "user", "content": "a"}\n{"role": "user"}]', 3, "the array is incomplete here"),
        ('[\n{"role": "user", "content": "a"},\n{"role": ', 3, "not JSON"),
        ('[{"role": "user", "content": "a"}', 1, "the array is incomplete here"),
        ('[{"role": "user", "content": "a"}]\nmore', 2, "there is text after the end"),
        ("[\n" + "[" * 100_000, 2, "nested too deeply"),
    ],
    shared=True,
)
def test_an_array_that_cannot_be_read_on_names_the_line(data: str, line: int, problem: str) -> None:
    with pytest.raises(BadLine) as refused:
        parse(data)
    assert refused.value.line == line
    assert problem in str(refused.value)


def test_an_item_of_an_array_that_is_no_object_is_a_bad_line() -> None:
    assert the_bad_line('[{"role": "user", "content": "a"},\n 7]').line == 2


def test_the_same_id_twice_is_read_once_and_refused_when_it_says_something_else() -> None:
    first, again = messages(lines({**GOOD, "id": "m"}, {**GOOD, "id": "m"}))
    assert (first.again, again.again) == (False, True)
    bad = the_bad_line(lines({**GOOD, "id": "m"}, {**GOOD, "id": "m", "content": "other"}))
    assert "line 2: id: 'm' is already used on line 1 for other content" in str(bad)


def test_a_message_without_a_place_to_go_is_refused() -> None:
    assert "scope: a message needs a session" in str(the_bad_line(lines(GOOD), scope=None))


def entry(**changes: Any) -> Entry:
    when = datetime(2026, 1, 31, 9, 30, 0, 1, tzinfo=UTC)
    fields: dict[str, Any] = {
        "id": "0198-x",
        "tenant": "secret tenant",
        "scope": Scope.object("a:b", "t1"),
        "type": "learning",
        "content": "c",
        "tags": ["t"],
        "metadata": {"n": 1},
        "created_at": when,
        "updated_at": when,
        "valid_from": when,
        "version": version_text(7),
        "tier": "mid",
    }
    return Entry(**{**fields, **changes})


def test_the_export_format_is_pinned() -> None:
    assert exported_entry(entry(title="t", expires_at=datetime(2027, 1, 1, tzinfo=UTC))) == {
        "format": "memory-entry/3",
        "scope": "object:a%3Ab:t1",
        "id": "0198-x",
        "type": "learning",
        "title": "t",
        "content": "c",
        "tags": ["t"],
        "metadata": {"n": 1},
        "created_at": "2026-01-31T09:30:00.000001Z",
        "updated_at": "2026-01-31T09:30:00.000001Z",
        "expires_at": "2027-01-01T00:00:00Z",
        "valid_from": "2026-01-31T09:30:00.000001Z",
        "version": version_text(7),
        "tier": "mid",
    }


def test_an_exported_entry_reads_back_with_its_old_id_as_key() -> None:
    original = entry(title="t", source="s")
    (message,) = messages(json.dumps(exported_entry(original)), scope=None)
    draft = message.draft
    assert draft.key == original.id
    for name in (
        "scope",
        "type",
        "title",
        "content",
        "source",
        "tags",
        "metadata",
        "created_at",
        "expires_at",
    ):
        assert getattr(draft, name) == getattr(original, name), name
    (elsewhere,) = messages(json.dumps(exported_entry(original)), scope=SESSION)
    assert elsewhere.draft.scope == SESSION


@pytest.mark.parametrize(
    ("scope", "kept"), [(Scope.session("s"), "short"), (Scope.user("u"), "mid"), (Scope.org("o"), "mid")]
)
def test_an_entry_comes_into_no_tier_before_the_one_where_those_of_its_scope_are_born(
    scope: Scope, kept: str
) -> None:
    line = exported_entry(entry(id=new_id("acme", scope.text, 1), scope=scope, tier="short"))
    (item,) = read(io.BytesIO(json.dumps(line).encode()), "x", ImportOptions(same_ids_of="acme"))
    assert isinstance(item, MessageLine)
    assert item.as_it_was is not None
    assert item.as_it_was.tier == kept


def test_a_place_for_messages_does_not_move_exported_entries() -> None:
    data = io.BytesIO((json.dumps(exported_entry(entry())) + "\n" + lines(GOOD)).encode())
    scopes = [
        item.draft.scope.text
        for item in read(data, "x", ImportOptions(messages_to=SESSION))
        if isinstance(item, MessageLine)
    ]
    assert scopes == ["object:a%3Ab:t1", "session:s1"]


def test_what_names_an_exported_entry_names_its_new_id_and_what_names_others_stays() -> None:
    first, second = new_id("old", "session:s1", 1), new_id("old", "session:s1", 2)
    whole = [
        exported_entry(entry(id=first, scope=SESSION)),
        exported_entry(
            entry(
                id=second,
                scope=SESSION,
                promoted_from_id=first,
                compacted_from_ids=[first, "gone"],
                contributors=[Contributor(entry_id=first, source="x")],
            )
        ),
        exported_relation(Relation("r", second, first, "refines", datetime(2027, 1, 1, tzinfo=UTC))),
    ]
    items = [item for item in parse(lines(*whole), scope=None) if not isinstance(item, BadLine)]
    ids = IdMapping("acme", same=False)
    for item in items:
        ids.note(item)
    found = [ids.message(item) for item in items if isinstance(item, MessageLine)]
    links = [ids.link(item) for item in items if isinstance(item, RelationLine)]

    new = [keyed_id("acme", "session:s1", old) for old in (first, second)]
    draft = found[1].draft
    assert isinstance(draft, ImportedDraft)
    assert (draft.key, draft.promoted_from_id, draft.compacted_from_ids) == (second, new[0], (new[0], "gone"))
    assert draft.contributors == (Contributor(entry_id=new[0], source="x"),)
    assert [(link.source_id, link.label, link.target_id) for link in links] == [(new[1], "refines", new[0])]
    assert [ids.missing_id(item) for item in items] == [None] * 3


@cells(
    "changes, problem",
    [
        ({"label": "likes"}, "label"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"weight": 1}, "weight: is not a field of a relation"),
        ({"source_id": None}, "source_id"),
        ({"source_id": "b"}, "target_id: self-loops not allowed"),
    ],
    shared=True,
)
def test_a_bad_relation_is_refused_by_name(changes: dict[str, Any], problem: str) -> None:
    relation = exported_relation(Relation("r", "a", "b", "refines", datetime(2027, 1, 1, tzinfo=UTC)))
    bad = the_bad_line(
        lines(exported_entry(entry(id="a")), exported_entry(entry(id="b")), relation | changes), scope=None
    )
    assert bad.line == 3
    assert problem in str(bad)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": None}, "id: is missing"),
        ({"scope": "nobody"}, "scope: <the value> should look like"),
        ({"mood": 1}, "mood: "),
        ({"scope": 3}, "scope"),
    ],
)
def test_a_mangled_export_is_a_bad_line(changes: dict[str, Any], problem: str) -> None:
    data = {**exported_entry(entry()), **changes}
    assert problem in str(the_bad_line(json.dumps(data), scope=None))
    assert data["format"] == FORMAT


def test_an_entry_edited_to_empty_content_is_exported_and_reads_back() -> None:
    original = entry(title=None, content="")
    (message,) = messages(json.dumps(exported_entry(original)), scope=None)
    assert message.draft.content == ""
    assert isinstance(message.draft, ImportedDraft)
