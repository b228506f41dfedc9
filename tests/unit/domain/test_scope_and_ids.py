"""Scopes have one text each, ids carry their partition, entries know whether they are
active.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.domain import ids
from memory.domain.entry import Entry, EntryDraft, check_patch
from memory.domain.errors import Conflict, EmbedderMismatch, InvalidInput, InvalidScopePromotion, Unsupported
from memory.domain.scope import Scope, ScopeKind, Subtree, ancestors_of, check_promotion
from memory.ports.contract.cells import cells

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=40)
SCOPES = st.one_of(
    st.builds(Scope.of, st.sampled_from(["session", "user", "workspace", "org"]), NAMES),
    st.builds(Scope.object, NAMES, NAMES),
    st.lists(NAMES.filter(lambda name: len(name.encode()) <= 128), min_size=1, max_size=4).map(
        lambda labels: Scope.path(*labels)
    ),
)


@settings(deadline=None)
@given(SCOPES)
def test_a_scopes_text_leads_back_to_it(scope: Scope) -> None:
    assert Scope.parse(scope.text) == scope
    assert str(scope) == scope.text


@settings(deadline=None)
@given(SCOPES, SCOPES)
def test_no_two_scopes_have_one_text(one: Scope, two: Scope) -> None:
    assert (one == two) == (one.text == two.text)


@cells(
    "text",
    [
        "",
        "ada",
        "team:a",
        "user:",
        "object:t",
        "object::x",
        "object:t:",
        "object:a%00b:x",
        "object:caf%E9:x",
        ":x",
        "path:",
        "path:a",
        "path:/",
        "path:a//",
        "path:a%2f/",
        "path:a%/",
        "path:a/**",
        f"path:{'a' * 129}/",
        f"path:{'a/' * 17}",
        f"path:{('a' * 128 + '/') * 8}",
    ],
    shared=True,
)
def test_text_that_names_no_scope_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Scope.parse(text)


LABELS = st.lists(
    st.sampled_from(["a", "A", "a-", "a/", "%", "\uffff", "\U0001f600"]), min_size=1, max_size=5
)


@given(LABELS, LABELS)
def test_a_subtree_contains_exactly_the_paths_that_begin_with_its_labels(
    root: list[str], labels: list[str]
) -> None:
    subtree, path = Scope.path(*root).subtree(), Scope.path(*labels)
    assert path.labels == tuple(labels)
    assert Subtree.parse(subtree.text) == subtree
    assert subtree.contains(path) == subtree.contains(path.subtree()) == (labels[: len(root)] == root)
    assert (path.text in (*ancestors_of(subtree.prefix), subtree.prefix)) == (root[: len(labels)] == labels)


@cells("text", ["path:**", "path:a/", "path:a/*", "user:a/**", "path:a//**", "**"], shared=True)
def test_text_that_names_no_subtree_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Subtree.parse(text)


@cells("kind", list(ScopeKind), shared=True)
def test_nothing_is_promoted_into_a_session_or_into_its_own_kind(kind: ScopeKind) -> None:
    scopes = {
        kind: Scope.path("x")
        if kind is ScopeKind.PATH
        else Scope.of(kind, "x", "t" if kind is ScopeKind.OBJECT else None)
        for kind in ScopeKind
    }
    for target in (scopes[ScopeKind.SESSION], scopes[kind]):
        with pytest.raises(InvalidScopePromotion):
            check_promotion(scopes[kind], target)


@settings(deadline=None)
@given(NAMES, NAMES, st.integers(0, 2**52))
def test_an_id_is_a_uuid_of_version_eight_that_carries_its_partition(
    tenant: str, scope: str, micros: int
) -> None:
    made = ids.new_id(tenant, scope, micros, lambda bits: 0)
    parsed = uuid.UUID(made)
    assert (str(parsed), parsed.version, parsed.variant) == (made, 8, uuid.RFC_4122)
    assert ids.is_id(made)
    assert ids.digest_of(made) == ids.partition_digest(tenant, scope)


@settings(deadline=None)
@given(NAMES, NAMES, st.lists(NAMES, min_size=1, max_size=3))
def test_a_derived_id_is_always_the_same_and_stays_in_its_partition(
    tenant: str, scope: str, source: list[str]
) -> None:
    made = ids.derived_id(tenant, scope, *source)
    assert made == ids.derived_id(tenant, scope, *source)
    assert ids.is_id(made)
    beside = ids.beside(made, "version", "1")
    assert beside != made
    assert ids.digest_of(beside) == ids.digest_of(made) == ids.partition_digest(tenant, scope)


def test_what_an_id_is_derived_from_does_not_run_together() -> None:
    assert ids.derived_id("t", "s", "a", "b") != ids.derived_id("t", "s", "ab")
    assert ids.derived_id("t", "s", "a\x00b") != ids.derived_id("t", "s", "a", "b")


def test_ids_made_later_sort_later() -> None:
    made = [ids.new_id("t", "s", n * 1_000, lambda bits: 0) for n in range(100)]
    assert made == sorted(made)


@cells(
    "text",
    [None, 5, "", "x", "00000000-0000-4000-8000-000000000000", "00000000-0000-8000-8000-00000000000G"],
    shared=True,
)
def test_what_could_not_be_ours_is_no_id(text: object) -> None:
    assert not ids.is_id(text)


def test_an_entry_is_active_from_its_start_until_before_its_end() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    day = timedelta(days=1)
    entry = Entry(
        id="i",
        tenant="t",
        scope=Scope.user("u"),
        content="c",
        created_at=start,
        updated_at=start,
        valid_from=start,
        valid_to=start + day,
        version="0000000000001",
        tier="mid",
    )
    assert [entry.is_active(start + n * day / 2) for n in (-1, 0, 1, 2)] == [False, True, True, False]


def test_a_patch_of_what_cannot_be_changed_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="valid_from: cannot be changed"):
        check_patch({"valid_from": "2026-01-01T00:00:00Z"})
    assert check_patch({}) == {}


def test_a_draft_takes_nothing_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="version"):
        EntryDraft(scope=Scope.user("u"), content="x", version=5)  # type: ignore[call-arg]


def test_errors_say_what_to_do() -> None:
    assert "(existing: e1)" in str(Conflict("taken", "e1"))
    assert str(Conflict("taken")) == "taken"
    assert (
        str(Unsupported(["ttl", "order"], store="s", tier="mid"))
        == "store 's' in tier 'mid' does not support: ttl, order"
    )
    assert Unsupported("ttl", store="s").missing == ("ttl",)
    assert "import an export" in str(EmbedderMismatch("s", "a", "b"))
