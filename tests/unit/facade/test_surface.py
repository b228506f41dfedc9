"""The facade's public surface: what stands on `Memory`, what under each noun, what a
view repeats.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, get_type_hints

import pytest

from memory import Memory
from memory.facade.memory import NOUNS
from memory.facade.resources.admin import Admin
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.scoped import ScopedMemory

SURFACE = {
    "Memory": (
        "browse close compact delete enrichment for_tenant get get_many maintain open promote restrict retrieve scoped search"
        " search_messages session update write write_many write_with_report"
    ),
    "entries": "delete_many history invalidate iterate source_messages",
    "relations": "all density expand find graph relate unrelate",
    "short_ids": "of resolve resolve_many",
    "sessions": "create delegation delete end get list runs update",
    "scratchpads": "append clear read",
    "documents": "apply delete delete_many edit find get get_many iterate list put put_many",
    "scopes": "list",
    "artifacts": "delete get list put read stream",
    "commands": "run schema",
    "admin": (
        "audit backup block_source blocked_sources check compare embed_messages erase erase_tenant erase_user"
        " export flush forget_store import_ move plan reindex revert_source rolled_back_stores route stats"
        " sweep unblock_source vacuum where why"
    ),
    "admin.legal_holds": "add list remove",
}
"""Every public method. What comes to stand here is promised: give it a noun before
`Memory` itself.
"""


def methods_of(kind: type) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def unscoped(method: Callable[..., Any]) -> list[tuple[str, Any, Any, Any]]:
    """The parameters but the scope: name, kind, default and type."""
    hints = get_type_hints(method)
    return [
        (p.name, p.kind, p.default, hints.get(p.name))
        for p in inspect.signature(method).parameters.values()
        if p.name != "scope"
    ]


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory("memory://", embedder="none", accept_loss=True) as opened:
        yield opened


def test_memory_and_its_nouns_have_these_methods_and_no_others() -> None:
    kinds = {"Memory": Memory, **NOUNS, "admin.legal_holds": LegalHolds}
    found = {name: " ".join(methods_of(kind)) for name, kind in kinds.items()}
    assert found == SURFACE


async def test_every_noun_is_a_property_that_says_what_it_is_for(memory: Memory) -> None:
    properties = {
        name: get_type_hints(member.fget)["return"]
        for name, member in inspect.getmembers(Memory, lambda m: isinstance(m, property))
    }
    assert {name: kind for name, kind in properties.items() if not name.startswith("_")} == {
        "config": type(memory.config),
        "tenant": str,
        **NOUNS,
    }
    for name, kind in NOUNS.items():
        assert type(getattr(memory, name)) is kind
        assert inspect.getdoc(kind)
        assert all(inspect.getdoc(method) for method in methods_of(kind).values())


def test_a_view_has_every_call_that_takes_a_scope_with_the_same_signature_but_it() -> None:
    taking = {
        name: method
        for name, method in methods_of(Memory).items()
        if name != "scoped" and "scope" in inspect.signature(method).parameters
    }
    assert set(taking) == set(
        "write write_with_report get get_many update delete retrieve browse search".split()
    )
    taking["erase"] = Admin.erase
    views = methods_of(ScopedMemory)
    assert set(views) == set(taking)
    for name, method in taking.items():
        assert unscoped(views[name]) == unscoped(method), name
        assert get_type_hints(views[name])["return"] == get_type_hints(method)["return"]


async def test_a_view_writes_finds_and_erases_in_its_scope_only(memory: Memory) -> None:
    ada, bob = memory.scoped("user:ada"), memory.scoped("user:bob")
    made = await ada.write("Ada prefers tea", key="drink", tags=["drink"])
    other = await bob.write("Bob prefers tea")
    assert (
        await ada.write("Ada prefers tea", key="drink", tags=["drink"]) == made == await memory.get(made.id)
    )
    assert [e.id for e in await ada.retrieve(tags=["drink"], limit=5)] == [made.id]
    assert [hit.entry.id for hit in await ada.search("tea", filter={"types": ["context"]})] == [made.id]
    assert str(ada.scope) == str(made.scope)
    assert await ada.erase() == 1
    assert [e.id async for e in memory.entries.iterate()] == [other.id]


async def test_the_nouns_of_another_tenant_s_memory_are_that_tenant_s(memory: Memory) -> None:
    mine, theirs = await memory.write("mine", scope="user:ada"), memory.for_tenant("globex")
    assert [e async for e in theirs.entries.iterate()] == []
    assert await theirs.entries.invalidate(mine.id) is False
    assert await theirs.scoped("user:ada").erase() == 0
    assert [e.id async for e in memory.entries.iterate()] == [mine.id]


async def test_an_export_is_the_entries_their_versions_and_the_relations_between_them(memory: Memory) -> None:
    ada = [await memory.write(text, scope="user:ada") for text in ("older", "newer")]
    bob = await memory.write("elsewhere", scope="user:bob")
    await memory.relations.relate(ada[1].id, "supersedes", ada[0].id)
    await memory.relations.relate(ada[1].id, "supports", bob.id)
    await memory.entries.invalidate(ada[0].id)
    formats = [line["format"] async for line in memory.admin.export()]
    assert formats == [
        "memory-entry/3",
        "memory-version/2",
        *["memory-entry/3"] * 2,
        *["memory-relation/1"] * 2,
    ]
    lines = [line async for line in memory.admin.export("user:ada")]
    assert [line.get("content", line.get("label")) for line in lines] == [
        "older",
        "older",
        "newer",
        "supersedes",
    ]
    assert len([relation async for relation in memory.relations.all()]) == 2


@pytest.mark.parametrize(
    ("called", "meant"),
    [
        ("relate", "memory.relations.relate"),
        ("stats", "memory.admin.stats"),
        ("history", "memory.entries.history"),
    ],
)
def test_a_call_that_a_noun_has_is_named_with_its_noun(called: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{called}'; did you mean {meant}"):
        getattr(Memory("memory://"), called)


def test_a_call_that_nothing_has_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'Memory' object has no attribute 'memorise'$"):
        _ = Memory("memory://").memorise  # type: ignore[attr-defined]
