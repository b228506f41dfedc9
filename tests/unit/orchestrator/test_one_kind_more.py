"""A kind more is a line in the table: its records are erased, deleted with what they
belong to, swept, moved, carried to another tenant.
"""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.ids import new_id
from memory.domain.scope import Scope
from memory.domain.time import micros
from memory.facade.transfer.lines import (
    IdMapping,
    MessageLine,
    RecordLine,
    exported_entry,
    exported_record,
    read,
)
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS, Kind, Kinds
from memory.orchestrator.storage.outbox import replicas
from memory.orchestrator.transfer.records import THERE, WRITTEN
from memory.policies.promotion import PromotionRule
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.cells import cells
from memory.ports.query import SYSTEM_FIELDS, Query, within
from memory.ports.record import Key, Partition, Record, Role, Tombstone
from memory.ports.writes import Always, Put
from tests.unit.orchestrator.world import DAY, SESSION, TENANT, USER, Flaky, World

SKETCHES = Collection(
    "sketches",
    (Field("rank", FieldType.INTEGER, indexed=True), Field("ink", FieldType.BYTES)),
    (TextPart("content", 1.0),),
)
MARGINS = Collection("margins", (Field("about_id", FieldType.TEXT, indexed=True),))
TABLE = Kinds(
    *[
        replace(kind, children=(*kind.children, (MARGINS, "about_id")))
        if kind.collection is ENTRIES
        else kind
        for kind in KINDS
    ],
    Kind(SKETCHES, home=None, replicated=True, movable=True),
    Kind(MARGINS),
)
RULES = (
    PromotionRule(name="all", on="session_end"),
    PromotionRule(name="old", on="sweep", older_than=DAY, source="mid", target="long"),
)


@pytest.fixture
async def drawn() -> AsyncIterator[World]:
    async with World(kinds=TABLE, rules=RULES) as opened:
        yield opened


def _record(world: World, scope: Scope | str, tier: str, **more: Any) -> Record:
    now = world.clock()
    key = Key(TENANT, new_id(TENANT, str(scope), micros(now)))
    return Record(
        key,
        str(scope),
        micros(now),
        now,
        now,
        **{"texts": {"content": "a heron"}, "body": {"secret": "heron"}, **more},
        tier=tier,
    )


async def _put(store: Flaky, collection: Collection, record: Record) -> Record:
    (outcome,) = await store.apply([Put(collection, record, Always())])
    assert outcome.applied
    return record


@cells(
    "collection, scope",
    [
        pytest.param(kind.collection, scope, id=f"{kind.collection.name}-{scope}")
        for kind in TABLE.scoped
        for scope in ([f"{kind.apart}:s1"] if kind.apart else [USER.text, SESSION.text])
    ],
    shared=True,
)
@cells("role", list(Role), shared=True)
async def test_erasing_a_scope_reaches_every_kind_of_it_in_every_store_and_role(
    drawn: World, collection: Collection, role: Role, scope: str
) -> None:
    texts = {"content": "a heron"} if collection.texts else {}
    fields = {  # moments all of them, but the keys of documents
        name: "k" if name in collection.ordered_texts else drawn.clock() for name in collection.required
    }
    record = _record(drawn, scope, "mid", role=role, texts=texts, fields=fields)
    for store in drawn.stores:
        await _put(store, collection, record)
    await drawn.engine.erasure.erase(Partition(TENANT, scope))
    for store in drawn.stores:
        assert (
            await store.count(Query(collection, within(Partition(TENANT, scope)), roles=frozenset(Role)))
        ).records == 0
        assert isinstance(await drawn.standing(store, record.key.id, collection), Tombstone)


async def test_an_erasure_that_waits_for_a_store_erases_the_kind_there_too_when_swept(drawn: World) -> None:
    record = await _put(drawn.long, SKETCHES, _record(drawn, USER, "long"))
    drawn.long.down = True
    with pytest.raises(Exception, match="long"):
        await drawn.engine.erasure.erase_scope(TENANT, USER)
    drawn.heal()
    await drawn.engine.maintenance.sweep()
    assert isinstance(await drawn.standing(drawn.long, record.key.id, SKETCHES), Tombstone)


async def test_what_belongs_to_an_entry_is_deleted_with_it_and_what_is_left_of_an_erased_one_is_swept(
    drawn: World,
) -> None:
    entry, other = await drawn.write(scope=USER), await drawn.write(scope=SESSION)
    own = await _put(drawn.mid, MARGINS, _record(drawn, USER, "mid", fields={"about_id": entry.id}, texts={}))
    left = await _put(
        drawn.mid, MARGINS, _record(drawn, USER, "mid", fields={"about_id": other.id}, texts={})
    )
    await drawn.delete(entry)
    assert [row.key for row in await drawn.rows(drawn.mid, MARGINS)] == [left.key]
    assert isinstance(await drawn.standing(drawn.mid, own.key.id, MARGINS), Tombstone)
    await drawn.engine.erasure.erase_scope(TENANT, SESSION)
    assert (await drawn.engine.maintenance.sweep()).dropped_relations == 1
    assert await drawn.rows(drawn.mid, MARGINS) == []


async def test_what_is_owed_is_counted_and_done_and_graves_are_forgotten_in_their_time(drawn: World) -> None:
    record = await _put(
        drawn.mid,
        SKETCHES,
        _record(drawn, USER, "mid", owed=replicas(drawn.engine.placement, SKETCHES, drawn.mid, "mid")),
    )
    assert await drawn.owed() == 1
    assert (await drawn.engine.maintenance.sweep()).finished == 1
    replica = await drawn.standing(drawn.long, record.key.id, SKETCHES)
    assert isinstance(replica, Record)
    assert (replica.role, await drawn.owed()) == (Role.REPLICA, 0)
    assert await drawn.engine.erasure.delete(SKETCHES, record.key)
    assert isinstance(await drawn.standing(drawn.long, record.key.id, SKETCHES), Tombstone)
    drawn.clock.advance(drawn.engine.settings.tombstone_life + timedelta(days=1))
    await drawn.engine.maintenance.sweep()
    assert [await drawn.standing(store, record.key.id, SKETCHES) for store in drawn.stores] == [None] * 3


async def test_what_may_move_is_moved_by_rules_and_a_move_that_broke_off_is_ended(drawn: World) -> None:
    record = await _put(drawn.short, SKETCHES, _record(drawn, SESSION, "short"))
    report = await drawn.engine.promotion.end_session(TENANT, SESSION)
    assert [(moved.entry_id, moved.to_tier) for moved in report.moved] == [(record.key.id, "mid")]
    drawn.clock.advance(2 * DAY)
    drawn.long.fails_after.add("move.copy")
    await drawn.engine.maintenance.sweep()
    drawn.heal()
    await drawn.engine.maintenance.sweep()
    there = await drawn.standing(drawn.long, record.key.id, SKETCHES)
    assert isinstance(there, Record)
    assert (there.role, there.tier, there.body) == (Role.HOME, "long", record.body)


async def test_an_export_carries_it_to_another_tenant_with_what_it_belongs_to(
    drawn: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KINDS, "_of", TABLE._of)
    entry = await drawn.write("a river", USER)
    sketch = await _put(
        drawn.mid, SKETCHES, _record(drawn, USER, "mid", fields={"rank": 7, "ink": b"\0\xff"})
    )
    margin = await _put(
        drawn.mid, MARGINS, _record(drawn, USER, "mid", fields={"about_id": entry.id}, texts={})
    )
    lines = [
        exported_entry(entry),
        *[
            exported_record(kind, record)
            async for kind, record in drawn.engine.transfer.records(TENANT, None)
        ],
    ]
    assert [line.get("kind") for line in lines] == [None, "sketches", "margins"]

    items = list(read(io.BytesIO("\n".join(json.dumps(line) for line in lines).encode()), "export"))
    good = [item for item in items if isinstance(item, MessageLine | RecordLine)]
    assert len(good) == 3
    ids = IdMapping("elsewhere", same=False)
    for item in good:
        ids.note(item)
    rows = [ids.row(item) for item in good if isinstance(item, RecordLine)]
    assert [ids.missing_id(item) for item in good] == [None] * 3
    new = await drawn.engine.entries.write(
        "elsewhere", next(item.draft for item in good if isinstance(item, MessageLine))
    )
    for again in (False, True):
        assert [await drawn.engine.transfer.restore("elsewhere", row.kind, row.record) for row in rows] == [
            THERE if again else WRITTEN
        ] * 2
    carried = {
        kind.collection: record async for kind, record in drawn.engine.transfer.records("elsewhere", None)
    }
    drawing, note = carried[SKETCHES], carried[MARGINS]
    assert (drawing.fields, drawing.body, drawing.texts, drawing.created_at) == (
        sketch.fields,
        sketch.body,
        sketch.texts,
        sketch.created_at,
    )
    assert (note.fields, note.body) == ({"about_id": new.id}, margin.body)
    assert drawing.key.id != sketch.key.id
    await drawn.flush()
    assert isinstance((await drawn.long.get(SKETCHES, [drawing.key]))[0], Record), "its replica was delivered"

    lost = IdMapping("elsewhere", same=False)
    assert [lost.missing_id(item) for item in good] == [None, None, entry.id]


async def test_the_stores_have_room_for_it_and_tell_of_its_damage(drawn: World) -> None:
    record = await _put(drawn.mid, SKETCHES, _record(drawn, USER, "mid"))
    drawn.mid.state.damage("sketches", record.key)
    assert await drawn.engine.erasure.delete(SKETCHES, record.key)
    assert isinstance(await drawn.standing(drawn.mid, record.key.id, SKETCHES), Tombstone)


def test_no_kind_declares_a_field_that_every_record_has() -> None:
    """A question for it would be answered by the record's own: `role` is home or
    replica, never who speaks.
    """
    declared = {
        (collection.name, field.name) for collection in KINDS.collections for field in collection.fields
    }
    assert [name for name in sorted(declared) if name[1] in SYSTEM_FIELDS] == []
