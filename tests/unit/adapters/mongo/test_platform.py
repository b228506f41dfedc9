"""MongoDB as platform teams run it: databases shared with other programs, URLs of
theirs, replica sets named wrongly.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from bson import ObjectId

from memory import Memory
from memory.adapters.mongo.config import parse
from memory.adapters.mongo.store import MongoStore
from memory.domain.errors import ConfigError
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED
from tests.support.mongo_servers import Mongo
from tests.unit.adapters.mongo.conftest import BOTH, REPLICA_SET, Raw

FOREIGN: list[dict[str, Any]] = [
    {"tenant": "default", "scope": "user:ada", "type": "record", "role": "home", "title": "not ours"},
    {"tenant": "default", "version": "three", "stems": ["tea"], "vector": b"1234"},
    {"_id": "a name", "tenant": "default", "scope": 5, "type": "corrupt"},
    {"_id": {"id": 7}, "tenant": "default", "text": "tea"},
]


@pytest.mark.parametrize("server", BOTH, indirect=True)
async def test_documents_of_another_program_are_skipped_named_and_left(
    server: Mongo, raw: Raw, database: str
) -> None:
    async with Memory(server.url(database)) as memory:
        entry = await memory.write("Ada likes tea", scope="user:ada")
        await memory.session("s", user="ada").append({"role": "user", "content": "tea"})
        for name in ("memory_entries", "memory_messages", "memory_sessions"):
            raw[name].insert_many([{"_id": ObjectId(), **document} for document in FOREIGN])

        assert [e.id for e in await memory.retrieve("user:ada")] == [entry.id]
        assert [hit.entry.id for hit in await memory.search("tea", scope="user:ada")] == [entry.id]
        assert [e.id async for e in memory.entries.iterate()] == [entry.id]
        assert sum(tier.entries for tier in (await memory.admin.stats()).tiers) == 1
        (audit,) = await memory.admin.audit(repair=True)
        assert [
            problem
            for problem in audit.problems
            if "4 documents in 'memory_entries' are not of this program" in problem
        ]
        assert (await memory.admin.sweep()).ran

        await memory.admin.erase("user:ada")
        await memory.admin.erase_tenant()
        assert [e.id async for e in memory.entries.iterate()] == []
        assert raw["memory_entries"].count_documents({"_id.tenant": {"$exists": False}}) == len(FOREIGN)


@pytest.mark.parametrize("server", [pytest.param("mongo_replica_set", marks=REPLICA_SET)], indirect=True)
@pytest.mark.parametrize("name", ["rs1", "production"])
async def test_a_replica_set_named_wrongly_is_told_at_once(server: Mongo, database: str, name: str) -> None:
    store = MongoStore(f"mongodb://127.0.0.1:{server.port}/{database}?replicaSet={name}", timeout=120)
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=f"replicaSet={name}.* belongs to 'rs0'; correct replicaSet"):
        await store.open(DECLARED)
    assert time.monotonic() - begun < 60, "before the time limit"


@pytest.mark.parametrize(
    "said", ["w=majority", "w=majority&journal=true", "readPreference=primary&retryWrites=true"]
)
def test_a_url_may_say_what_the_store_does_anyway(said: str) -> None:
    assert "majority" not in parse("m", f"mongodb://host/db?{said}", {}).uri


@cells(
    "said", ["w=1", "w=0", "journal=false", "readPreference=secondary", "readConcernLevel=local"], shared=True
)
def test_a_url_may_not_say_otherwise(said: str) -> None:
    with pytest.raises(ConfigError, match=said.partition("=")[0]):
        parse("m", f"mongodb://host/db?{said}", {})
