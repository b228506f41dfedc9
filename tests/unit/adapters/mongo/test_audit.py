"""What is derived from records is compared with them, and made anew from them."""

from __future__ import annotations

from typing import Any

import pytest

from memory.adapters.mongo.store import MongoStore
from memory.ports.contract.support import id_of
from tests.unit.adapters import auditing
from tests.unit.adapters.mongo.conftest import ALONE, Raw

pytestmark = ALONE

DAMAGE: dict[str, tuple[dict[str, Any], Any]] = {
    "records lost their words": ({"type": "record"}, {"$unset": {"words": "", "stems": ""}}),
    "a record has a word twice": (
        {"id": id_of(1)},
        [{"$set": {"stems": {"$concatArrays": ["$stems", "$stems"]}}}],
    ),
    "a record has another's words": (
        {"id": id_of(1)},
        {"$set": {"stems": ["banana"], "words": b"1;1 banana"}},
    ),
    "counts are wrong": ({"id": id_of(1)}, {"$set": {"words": b'[40,{"appl":40}]'}}),
    "lengths are wrong": ({"type": "record"}, {"$inc": {"length": 100}}),
    "dead documents have words": ({"type": "tombstone"}, {"$set": {"stems": ["appl"], "length": 1}}),
}


async def test_nothing_is_found_where_nothing_is_wrong(store: MongoStore) -> None:
    await auditing.nothing_is_found_where_nothing_is_wrong(store)


@pytest.mark.parametrize("what", list(DAMAGE))
async def test_damage_is_named_and_mended_beside_running_writers(
    store: MongoStore, raw: Raw, what: str
) -> None:
    async def damage() -> None:
        assert raw["memory_samples"].update_many(*DAMAGE[what]).modified_count > 0

    await auditing.damage_is_named_and_mended(store, damage)


async def test_a_copy_whose_record_is_gone_is_named_and_taken_away(store: MongoStore, raw: Raw) -> None:
    async def damage() -> None:
        place = {"collection": "samples", "tenant": "acme", "id": "gone"}
        raw["memory_store.quarantine"].insert_one({"_id": place, **place})

    await auditing.damage_is_named_and_mended(store, damage)
    assert raw["memory_store.quarantine"].count_documents({}) == 0


async def test_ten_thousand_records_are_audited_page_by_page(store: MongoStore) -> None:
    await auditing.many_records_are_audited_page_by_page(store)
