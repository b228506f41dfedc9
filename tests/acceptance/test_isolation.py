"""Scopes and tenants: opaque names, no two alike, nothing shared."""

from __future__ import annotations

import itertools

import pytest

from memory import InvalidInput, NotFound, Scope
from memory.facade.memory import Memory
from memory.ports.contract.cells import cells
from tests.acceptance.support import SESSION, USER, contents

HOSTILE = [
    "u1",
    "U1",
    "u1 ",
    " u1",
    "ú1",
    "u\u03011",
    "u*",
    "u?",
    "u[1]",
    "u%",
    "u_",
    "%",
    "*",
    "u1:x",
    "u1/../u2",
    "'; drop table entries; --",
    '{"$ne": null}',
    "u1\n",
    "u1\t",
    "ﬁ",
    "fi",
    "\u202eu1",
    "user:u1",
    "🦉",
    "x" * 512,
    "x" * 511,
]


@pytest.mark.behaviour("A2", "A26")
async def test_no_two_scope_ids_are_taken_for_one(memory: Memory) -> None:
    written = {name: (await memory.write(f"of {name}", scope=Scope.user(name))).id for name in HOSTILE}
    for name in HOSTILE:
        found = await memory.retrieve(Scope.user(name))
        assert [e.id for e in found] == [written[name]]
        assert found[0].scope.id == name
        assert [h.entry.id for h in await memory.search("of", scope=Scope.user(name))] == [written[name]]
    assert await memory.admin.erase(Scope.user("u*")) == 1
    assert len([e async for e in memory.entries.iterate()]) == len(HOSTILE) - 1


@pytest.mark.behaviour("A2")
async def test_a_scope_need_not_name_anything_that_exists(memory: Memory) -> None:
    assert await memory.retrieve("workspace:never-heard-of") == []
    assert (await memory.write("x", scope="workspace:never-heard-of")).scope.id == "never-heard-of"


@pytest.mark.behaviour("A26")
async def test_kinds_with_the_same_id_are_different_scopes(memory: Memory) -> None:
    for kind in ("session", "user", "workspace", "org"):
        await memory.write(f"of {kind}", scope=f"{kind}:same")
    await memory.write("of object", scope=Scope.object("t", "same"))
    for kind in ("session", "user", "workspace", "org"):
        assert contents(await memory.retrieve(f"{kind}:same")) == [f"of {kind}"]
    assert contents(await memory.retrieve(Scope.object("t", "same"))) == ["of object"]


@pytest.mark.behaviour("A27", "AC-A23")
async def test_an_object_is_matched_by_type_and_id(memory: Memory) -> None:
    await memory.write("the ticket", scope=Scope.object("ticket", "t1"))
    assert await memory.retrieve(Scope.object("doc", "t1")) == []
    assert await memory.retrieve(Scope.object("ticket", "t2")) == []
    assert contents(await memory.retrieve(Scope.object("ticket", "t1"))) == ["the ticket"]


@pytest.mark.behaviour("A27")
async def test_object_types_and_ids_do_not_run_into_each_other(memory: Memory) -> None:
    parts = ["a", "a:b", ":", "b", "a%3Ab", "%3A", "a/b"]
    for kind, name in itertools.product(parts, parts):
        await memory.write(f"{kind} {name}", scope=Scope.object(kind, name))
    for kind, name in itertools.product(parts, parts):
        assert contents(await memory.retrieve(Scope.object(kind, name))) == [f"{kind} {name}"]


@pytest.mark.behaviour("A2", "D13")
async def test_no_two_tenants_are_taken_for_one(memory: Memory) -> None:
    written = {}
    for name in HOSTILE:
        written[name] = await memory.for_tenant(name).write(f"of {name}", scope=USER)
    for name in HOSTILE:
        theirs = memory.for_tenant(name)
        assert [e.id for e in await theirs.retrieve(USER)] == [written[name].id]
        assert [h.entry.id for h in await theirs.search("of", scope=USER)] == [written[name].id]
        assert [e.id async for e in theirs.entries.iterate()] == [written[name].id]
    assert await memory.for_tenant("u%").admin.erase(USER) == 1
    assert len(await memory.for_tenant("u1").retrieve(USER)) == 1


@pytest.mark.behaviour("D13", "D26")
@pytest.mark.parametrize("scope", [USER, SESSION], ids=str)
async def test_a_foreign_id_behaves_as_not_found(memory: Memory, scope: Scope) -> None:
    mine = await memory.write("mine", scope=scope)
    own = await memory.write("also mine", scope=scope)
    edge = await memory.relations.relate(mine.id, "supports", own.id)
    stranger = memory.for_tenant("stranger")
    theirs = await stranger.write("theirs", scope=scope)
    assert await stranger.get(mine.id) is None
    assert not await stranger.delete(mine.id)
    assert await stranger.entries.invalidate(mine.id) is False
    assert await stranger.admin.where(mine.id) == []
    assert await stranger.relations.find() == []
    assert await stranger.relations.unrelate(edge.id) is False
    for refused in (
        stranger.update(mine.id, content="taken"),
        stranger.entries.history(mine.id),
        stranger.promote(mine.id, to="org:o1"),
        stranger.compact([theirs.id, mine.id], lambda entries: "both"),
    ):
        with pytest.raises(NotFound, match=mine.id):
            await refused
    for unknown in (mine.id, "7b26f121-4788-4175-885c-96106e9082b1", "no-id"):
        assert [k.because for k in (await stranger.admin.move([unknown], "long")).kept] == [
            "there is no such entry"
        ]
    assert await memory.get(mine.id) == mine
    assert [r.id for r in await memory.relations.find()] == [edge.id]


@pytest.mark.behaviour("D13")
async def test_the_same_key_and_scope_of_two_tenants_are_two_entries(memory: Memory) -> None:
    mine = await memory.write("mine", scope=USER, key="k")
    theirs = await memory.for_tenant("stranger").write("theirs", scope=USER, key="k")
    assert mine.id != theirs.id
    assert await memory.admin.erase(USER) == 1
    assert contents(await memory.for_tenant("stranger").retrieve(USER)) == ["theirs"]


@pytest.mark.behaviour("D13")
@cells("tenant", ["", "\x00", "\ud800", "t" * 513, "~memory", 5, None], ids=repr, shared=True)
async def test_a_tenant_that_cannot_be_is_refused(memory: Memory, tenant: str) -> None:
    with pytest.raises(InvalidInput, match="tenant"):
        memory.for_tenant(tenant)
