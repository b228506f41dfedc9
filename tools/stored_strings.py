"""The strings that are stored: names of collections, fields, steps, kinds, keys, tables
and files, as the code has them now.

    python -m tools.stored_strings          # write tests/fixtures/stored/strings.json anew

`tests/unit/stored/test_stored_strings.py` compares that file with the code. They come
from the declarations, and from what a memory over SQLite and one over a folder hold
once `tools.stored_fixtures` has filled them.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tools import stored_fixtures

GOLDEN = stored_fixtures.FIXTURES / "strings.json"
_A_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)*")
_FREE = ("metadata", "arguments", "input", "schema")
"""Keys whose content is a caller's own."""


def strings() -> dict[str, Any]:
    """All of them, as JSON. The same each time."""
    with tempfile.TemporaryDirectory() as name:
        found = {**_declared(), **_adapters(), **asyncio.run(_written(Path(name)))}
    return dict(json.loads(json.dumps(found)))


def _declared() -> dict[str, Any]:
    from memory.domain import validation
    from memory.domain.entry import EntryType
    from memory.domain.message import Role as MessageRole
    from memory.domain.scope import ScopeKind
    from memory.orchestrator.conversations.log.events import EventType
    from memory.orchestrator.storage import collections
    from memory.orchestrator.storage.outbox import StepLifetime
    from memory.ports.collections import Collection
    from memory.ports.query import RowType
    from memory.ports.record import Role

    def said(one: Collection) -> dict[str, Any]:
        fields = [[f.name, f.type.value, f.indexed, f.required] for f in one.fields]
        return {
            "fields": fields,
            "texts": [p.name for p in one.texts],
            "vector": one.vector,
            "indexes": one.indexes,
            "orders": one.orders,
        }

    made = [one for one in vars(collections).values() if isinstance(one, Collection)]
    enums = {
        "entry types": EntryType,
        "scope kinds": ScopeKind,
        "message roles": MessageRole,
        "events": EventType,
        "row types": RowType,
        "roles": Role,
    }
    return {
        "collections": {one.name: said(one) for one in made},
        "system tenant": validation.SYSTEM_TENANT,
        **{name: sorted(str(one.value) for one in kind) for name, kind in enums.items()},
        "lifetimes of steps": {one.name.lower(): int(one) for one in StepLifetime},
        "names in the engine": sorted(set(_constants())),
    }


def _constants() -> Iterator[str]:
    """Texts that modules of the engine give a name in capitals: steps, notes, keys of
    bodies, scopes of the engine's own records.
    """
    import memory.orchestrator as engine

    for module in pkgutil.walk_packages(engine.__path__, f"{engine.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.isupper() and type(value) is str and _A_NAME.fullmatch(value):
                yield value


def _adapters() -> dict[str, Any]:
    from memory.adapters.file import library
    from memory.adapters.mongo import schema as mongo
    from memory.adapters.qdrant import codec, engine
    from memory.adapters.qdrant import keys as points
    from memory.adapters.redis import keys
    from memory.adapters.sql.codec import SYSTEM
    from memory.adapters.sql.naming import BARE_FORM, FORM, TableNames
    from memory.orchestrator.storage.collections import ENTRIES
    from memory.ports.record import Key, Partition
    from memory.ports.rows import Row

    key, here = Key("acme", "01a2267e-157e-8aa4-8bc5-15af4f1f3047"), Partition("acme", "user:ada")
    names, plain = TableNames(), ("partitions", "quarantine", "version", "registry", "numbers")
    own = mongo.CollectionNames("memory_")
    return {
        "rows": Row._fields,
        "sql": {
            "layouts": [BARE_FORM, FORM],
            "columns": [name for name, _, _ in SYSTEM],
            "tables": [
                *[getattr(names, one) for one in plain],
                names.table("entries"),
                names.words("entries"),
                names.index("ix", "entries", "tags"),
            ],
        },
        "redis": {
            "layout": keys.SCHEMA,
            "patterns": re.findall(r"^    (\{prefix\S+)", keys.__doc__ or "", re.M),
            "a record": keys.record_key("memory", keys.address_of("entries", key)),
            "a partition": [keys.home_bucket(here), keys.partition_token(here)],
        },
        "mongodb": {
            "layout": mongo.SCHEMA,
            "collections": [own.partitions, own.quarantine, own.schema, own.of(ENTRIES)],
            "indexes": {one.document["name"]: list(one.document["key"]) for one in mongo.indexes(ENTRIES)},
        },
        "qdrant": {
            "layout": codec.SCHEMA,
            "payload": [
                *codec._SEALED,
                codec.REALS,
                codec.UNTAGGED,
                codec.LENGTH,
                codec.QUARANTINED,
                codec.GENERATION,
            ],
            "vectors": [engine.WORDS, engine.dense_name(256)],
            "points": [
                points.FORMAT_POINT,
                points.record_point("entries", key),
                points.generation_point(here),
                points.partition_word("entries", here),
            ],
        },
        "files": {"layout": library.SCHEMA},
    }


async def _written(folder: Path) -> dict[str, Any]:
    """What a memory writes: the tables of SQLite with the keys inside their JSON, and
    the files of a folder with theirs.
    """
    (folder / "sqlite").mkdir()
    (folder / "file").mkdir()
    await stored_fixtures.fill(stored_fixtures.embedded("sqlite", folder / "sqlite").url, pending=False)
    async with stored_fixtures.memory_over(stored_fixtures.embedded("file", folder / "file").url) as memory:
        await memory.write("A lamp", scope="user:ada", key="lamp")
        await memory.session("one").append({"role": "user", "content": "A boat"})
        await memory.admin.embed_messages()
    with closing(sqlite3.connect(folder / "sqlite" / "memory.db")) as connection:
        tables = _tables(connection)
    files = {
        re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", str(one.relative_to(folder / "file" / "data"))): one
        for one in (folder / "file" / "data").rglob("*")
    }
    return {
        "sqlite": tables,
        "folder": {
            name: sorted(json.loads(one.read_text())) if one.suffix == ".json" else None
            for name, one in files.items()
        },
    }


def _tables(connection: sqlite3.Connection) -> dict[str, Any]:
    found: dict[str, Any] = {}
    masters = connection.execute(
        "SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()
    found["indexes"] = [name for name, kind in masters if kind == "index"]
    for name in [
        name
        for name, kind in masters
        if kind == "table" and not re.search("_(config|content|data|docsize|idx)$", name)
    ]:
        columns = [column[1] for column in connection.execute(f"PRAGMA table_info({name})")]
        found[name] = {"columns": columns}
        for column in {"body", "note"} & set(columns):
            texts = connection.execute(f"SELECT {column} FROM {name} WHERE {column} IS NOT NULL")  # noqa: S608
            found[name][column] = sorted({path for (text,) in texts for path in _paths(json.loads(text))})
    own = connection.execute(
        "SELECT DISTINCT scope, lower(hex(id)) FROM settings WHERE tenant = '~memory' ORDER BY 1, 2"
    )
    found["settings"]["the engine's own"] = [list(row) for row in own]
    return found


def _paths(value: Any, at: str = "") -> Iterator[str]:
    """The keys in a value. One that is no plain name (an id, a caller's text) is told
    as `*`.
    """
    if isinstance(value, dict):
        for name, one in value.items():
            path = f"{at}/{name if _A_NAME.fullmatch(name) else '*'}"
            yield path
            yield from () if name in _FREE else _paths(one, path)
    elif isinstance(value, list):
        for one in value:
            yield from _paths(one, f"{at}[]")


def text() -> str:
    return json.dumps(strings(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    GOLDEN.write_text(text())
    print(f"{GOLDEN}: {len(GOLDEN.read_text()):,} bytes")
