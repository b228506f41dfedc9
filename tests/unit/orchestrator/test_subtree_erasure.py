"""The erasure of a subtree by a process that dies at any call: a sweep ends it, what is
beside the subtree stays, and so does what is written to it afterwards.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from memory.domain.document import check_value
from memory.domain.entry import EntryDraft
from memory.domain.scope import Scope
from memory.orchestrator.documents.documents import PutRequest
from memory.orchestrator.engine import Engine
from memory.orchestrator.maintenance.tenant_erasure import ERASE_SUBTREE
from memory.orchestrator.storage.collections import RELATIONS
from tests.support.depth import NIGHTLY, PROVING
from tests.support.erased_tenants import AtCalls, Lengths, fill, standing, under_way
from tests.unit.orchestrator.test_tenants import swept
from tests.unit.orchestrator.world import DURABLE, TENANT, VOLATILE, Died, World, dies

ROOT = Scope.path("acme")
INSIDE = (ROOT, Scope.path("acme", "notes"))
BESIDE = (Scope.path("acme-corp"), Scope.path("acme%", "notes"))
EACH = 1 if PROVING else 5 if NIGHTLY else 23
"""Which calls are played: each, or some of them."""
WORLDS: dict[str, dict[str, Any]] = {
    "a cache": {"short": VOLATILE},
    "not fenced": {"long": replace(DURABLE, fenced=False)},
}


async def fill_paths(engine: Engine, scopes: tuple[Scope, ...], word: str) -> list[str]:
    entries = []
    for scope in scopes:
        entry = await engine.entries.write(TENANT, EntryDraft(scope=scope, content=word, key=word))
        await engine.entries.update(TENANT, entry.id, {"content": f"{word} said anew"})
        entries.append(entry.id)
        for value in ({"said": word}, word.encode() * 60_000):
            asked = PutRequest(scope.text, f"{word} {type(value).__name__}", check_value(value), {})
            await engine.documents.put(TENANT, asked)
    await engine.relations.relate(TENANT, entries[0], "refines", entries[1])
    return entries


async def dying_at(number: int, name: str) -> list[str] | None:
    """What is wrong after an eraser that died at its call of this number; None where it
    makes fewer calls.
    """
    world = World(embedder=Lengths(), **WORLDS[name])
    await world.engine.open()
    await fill(world.engine, TENANT, "zirconium", "chat")
    inside, beside = [await fill_paths(world.engine, some, "feldspar") for some in (INSIDE, BESIDE)]
    await world.engine.relations.relate(TENANT, inside[0], "refines", beside[0])
    copy = await world.engine.derivation.promote(TENANT, inside[0], Scope.org("acme"))
    before = await standing(world.engine, TENANT)
    with AtCalls(world.stores, {number: dies}) as died, suppress(Died):
        await world.engine.tenants.erase_subtree(TENANT, ROOT.subtree())
    if not died.happened:
        return None
    other = await world.another_process()
    begun = await under_way(other, ERASE_SUBTREE)
    later = (
        await other.entries.write(TENANT, EntryDraft(scope=INSIDE[1], content="written since"))
        if begun is not False
        else None
    )
    engine = await swept(world)
    after = await standing(engine, TENANT)
    wrong = [] if not await under_way(engine, ERASE_SUBTREE) else ["its operation is left"]
    if later is not None and await engine.entries.get(TENANT, later.id) is None:
        wrong.append("an entry that was written since is lost")
    for (store, kind, key), row in before.items():
        is_inside = row.scope.startswith(ROOT.text) or row.key.id == copy.id
        there = (store, kind, key) in after
        if kind == RELATIONS.name:
            is_inside = bool({row.fields["source_id"], row.fields["target_id"]} & set(inside))
        if is_inside and there and begun is not False:
            wrong.append(f"{row.role} of {kind} in {store} is left: {row!r:.200}")
        if not there and (not is_inside or begun is False):
            wrong.append(f"{row.role} of {kind} in {store} is gone: {row!r:.200}")
    return wrong


@pytest.mark.parametrize("name", WORLDS)
async def test_an_eraser_that_dies_at_any_call_is_followed_by_a_sweep(name: str) -> None:
    number, played = 0, 0
    while (wrong := await dying_at(number, name)) is not None:
        assert wrong == [], number
        number, played = number + EACH, played + 1
    assert played >= 5
