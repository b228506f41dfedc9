"""Fixtures of stored data: what a version of the library leaves in each store, for
tests that later versions open it.

    python -m tools.stored_fixtures write [BACKEND …] [--to FOLDER]

writes `tests/fixtures/stored/format_N/BACKEND.tar.xz` for the format N of the code that
runs: the dump of the store (`dump/`) and what the facade told of it (`told.json`). To
write those of another checkout, run this file there:

    cd CHECKOUT && PYTHONPATH=$PWD python …/tools/stored_fixtures.py write --to …

`restore` puts a dump into an empty store through its driver, without other programs.
All texts are invented here.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory import Memory, Unsupported

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "stored"
EMBEDDED = ("sqlite", "file", "qdrant_edge")
SERVERS = ("redis", "postgresql", "mariadb", "mongo")
ADA, BOB = "user:ada", "user:bob"
LONG = " ".join(
    f"On day {day % 30} the barometer showed {990 + day % 30} and the wind turned." for day in range(1_200)
)
"""Over 64 KiB: it is stored apart from its message."""


def settings(url: str) -> dict[str, Any]:
    """The configuration of a memory over one store, in which nothing happens by itself."""
    return {
        "stores": {"only": {"url": url}},
        "tiers": dict.fromkeys(("short", "mid", "long"), "only"),
        "durations": {"sweep_every": 0},
        "quotas": [{"name": "personal", "scope_kinds": ["user"], "entries": 10_000}],
    }


def memory_over(url: str, **options: Any) -> Memory:
    return Memory(settings(url), **options)


def memory_has_index(url: str) -> bool:
    """Whether the store finds messages by meaning."""
    return url.startswith(("sqlite", "file", "qdrant"))


# -- content ---------------------------------------------------------------------------


async def fill(url: str, *, pending: bool = True) -> None:
    """Write something of every kind that the library stores; with `pending` a step that
    is not done, too.
    """
    async with memory_over(url) as memory:
        await _entries(memory)
        await _conversations(memory)
        await _others(memory)
        await memory.for_tenant("acme").write(
            "The acme warehouse opens at seven", scope="org:acme", tags=["hours"]
        )
        if memory_has_index(url):
            await memory.admin.embed_messages()
        await memory.admin.flush()
    if pending:
        subprocess.run([sys.executable, __file__, "owe", url], check=True, env=os.environ)  # noqa: ASYNC221


async def _entries(memory: Memory) -> None:
    for scope in ("session:walk", ADA, "workspace:boats", "org:rowers", "object:thing:lamp"):
        await memory.write(
            f"The lantern hangs beside the {scope.partition(':')[0]} door",
            scope=scope,
            tags=["lantern", "door"],
        )
    for kind in ("user", "feedback", "project", "reference", "learning", "context"):
        await memory.write(
            f"A note of the kind {kind} about the harbour",
            scope=ADA,
            type=kind,
            title=f"On {kind}",
            source=f"file:{kind}.md",
        )
    tea = await memory.write(
        "Ada drinks green tea — 緑茶 — in the morning",
        scope=ADA,
        metadata={"nested": {"list": [1, 2.5, None, True]}, "empty": "", "umlaut": "Öl"},
        confidence=0.75,
        key="tea",
        agent="assistant",
        run="r1",
        origins=["source:web:example.com"],
    )
    await memory.update(tea.id, content="Ada drinks white tea in the morning")
    await memory.update(tea.id, tags=["tea", "morning"], metadata={"nested": {"list": []}})
    lisbon = await memory.write("Ada works in Lisbon", scope=ADA)
    porto = await memory.write("Ada works in Porto", scope=ADA, supersedes=[lisbon.id])
    await memory.relations.relate(porto.id, "supports", tea.id)
    gone = await memory.write("The old boathouse code is 7781", scope=ADA, key="gone")
    await memory.delete(gone.id)
    ended = await memory.write("The ferry sails on Sundays", scope=ADA)
    await memory.entries.invalidate(ended.id)
    await memory.write("This expires far from now", scope=ADA, expires_at="2099-01-01T00:00:00+00:00")
    await memory.write(
        "This expires at once",
        scope=ADA,
        expires_at="2026-11-29T00:00:00+00:00",
        created_at="2026-11-28T00:00:00+00:00",
    )
    await memory.write(LONG[:6_000], scope=BOB, title="A long report on the weather")  # passages
    kept = await memory.write("Bob keeps his oars in the shed", scope=BOB, key="oars")
    await memory.admin.legal_holds.add("case-17", entry_id=kept.id, reason="a test of holds")
    await memory.admin.block_source(source="web:bad.example", reason="a poisoned page")
    shared = await memory.write("The tide table hangs in the hall", scope=ADA, tags=["tide"])
    await memory.promote(shared.id, "org:rowers")
    several = [await memory.write(f"Leg {n} of the trip took {n} hours", scope=BOB) for n in range(3)]
    await memory.compact(
        [one.id for one in several], lambda entries: f"{len(entries)} legs of the trip took 3 hours"
    )
    await memory.short_ids.of([tea.id, porto.id])


async def _conversations(memory: Memory) -> None:
    session = await memory.sessions.create(
        "ada/trip",
        user="ada",
        agent="assistant",
        namespace="travel",
        system="You are a ferryman.",
        title="A trip",
        tags=["boats"],
        metadata={"a": 1},
    )
    await session.append(
        {
            "id": "m1",
            "role": "user",
            "content": "Where do we land? My number is 555-0199.",
            "at": "2026-11-20T10:00:00+00:00",
        }
    )
    await session.append(
        [
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [_call("c1", "tide", {"port": "Porto"})],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "High at noon"},
            {
                "id": "m4",
                "role": "assistant",
                "content": [{"type": "text", "text": "At the old pier, at noon."}],
            },
        ]
    )
    picture = "data:image/png;base64," + base64.b64encode(hashlib.sha256(b"picture").digest()).decode()
    await session.append(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Like here?"},
                {"type": "image_url", "image_url": {"url": picture}},
            ],
        }
    )
    await session.append({"id": "long", "role": "user", "content": LONG})
    await session.append(
        {"id": "m7", "role": "assistant", "content": "I will take a blue boat.", "metadata": {"mood": "calm"}}
    )
    await session.update("m7", content="I will take a red boat.")
    before = await session.checkpoint("before")
    await session.append({"id": "m8", "role": "user", "content": "Forget the anchor."})
    await session.roll_back(before)
    await session.append(
        [
            {"id": f"n{n}", "role": ("user", "assistant")[n % 2], "content": f"Stage {n} of the trip"}
            for n in range(6)
        ]
    )
    await session.exclude("n1", "a slip")
    await session.compact(lambda messages: f"{len(messages)} messages about landing at the pier", keep_last=3)
    async with session.stream() as out:
        await out.write("We leave ")
        await out.write("at dawn.")
    await session.tasks.save("t1", title="Book the ferry", status="in_progress", metadata={"seats": 2})
    await session.tasks.save("t2", title="Pack the tent", parent_id="t1", status="completed", result="packed")
    await session.runs.save(
        "r1", child_id="ada/trip/search", status="completed", message_count=12, metadata={"model": "none"}
    )
    fork = await session.fork("n3", "ada/fork")
    await fork.append({"role": "user", "content": "In the fork we take the train."})
    lunch = memory.session("ada/lunch", user="ada")
    await lunch.append(
        [{"role": "user", "content": "I like figs."}, {"role": "assistant", "content": "Noted."}]
    )
    await lunch.end()
    room = await memory.sessions.create("room", shared=True)
    await room.append({"role": "user", "content": "Who is here?"})
    await memory.session("room", user="bob").append(
        {"role": "user", "content": "Bob is here, with his boat."}
    )
    await memory.write(
        "Ada lands at the old pier",
        scope=ADA,
        conversation_id="ada/trip",
        number_in_conversation=3,
        speaker="assistant",
    )


def _call(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


async def _others(memory: Memory) -> None:
    small = await memory.artifacts.put(
        "ada/trip", "out/plan.md", b"# The plan\n\nLeave at dawn.\n", media_type="text/markdown"
    )
    await memory.artifacts.put(
        "ada/trip", "out/map.bin", hashlib.shake_256(b"map").digest(64) * 4_800
    )  # several chunks
    await memory.write("The plan is written down", scope=ADA, artifact_id=small.id)
    await memory.scratchpads.append("next: ask Bob about the oars", agent="assistant")
    await memory.scratchpads.append("the shared list", None)
    await memory.scratchpads.append("of yesterday", agent="cook")
    await memory.scratchpads.clear("cook")
    with suppress(Unsupported):  # of a store that is no home of documents
        await memory.documents.put(ADA, "settings", {"theme": "dark"}, metadata={"by": "ada"})
        await memory.documents.put(ADA, "chart", hashlib.shake_256(b"chart").digest(64) * 4_800)
        await memory.documents.put(ADA, "chart", hashlib.shake_256(b"sea").digest(64) * 4_800)


async def owe(url: str) -> None:
    """Write an entry that waits for an advisor, and die while the advisor thinks: the
    step stays pending.
    """

    def think(_: Any) -> str:
        os._exit(0)

    memory = memory_over(url, advisor=think)
    await memory.open()
    await memory.write("Bob polished the brass bell", scope=BOB, auto_tag=True)
    await asyncio.sleep(30)
    sys.exit("the advisor was not asked")


# -- what the facade tells of it -------------------------------------------------------


async def told(memory: Memory) -> dict[str, Any]:
    """All of a memory that `fill` made, as JSON, long texts by their digests. Reading
    counts are left out: they change by looking.
    """
    scopes = ("session:walk", ADA, BOB, "workspace:boats", "org:rowers", "object:thing:lamp")
    entries = [entry async for entry in memory.entries.iterate(include_retired=True)]
    found: dict[str, Any] = {
        "entries": {entry.id: _plain(entry) for entry in entries},
        "by scope": {scope: sorted(entry.id for entry in await memory.retrieve(scope)) for scope in scopes},
        "versions": {
            e.id: [_plain(version) for version in await memory.entries.history(e.id)]
            for e in entries
            if e.valid_to is None
        },
        "relations": sorted([[r.source_id, r.label, r.target_id] async for r in memory.relations.all()]),
        "words": {
            q: [hit.entry.id for hit in await memory.search(q, scope=[ADA, BOB], mode="lexical")]
            for q in ("white tea", "oars", "brass bell")
        },
        "meaning": {
            q: (await memory.search(q, scope=[ADA, BOB], mode="semantic"))[0].entry.id
            for q in ("a hot drink at breakfast", "the weather")
        },
        "messages": sorted(
            [one.item.message.id for one in await memory.search_messages("boat", mode="lexical")]
        ),
        "sessions": {},
        "scratchpads": [
            (await memory.scratchpads.read(agent)).content for agent in ("assistant", None, "cook")
        ],
        "holds": [[hold.name, hold.target, hold.reason] for hold in await memory.admin.legal_holds.list()],
        "distrusted": [[one.origin, one.reason] for one in await memory.admin.blocked_sources()],
        "numbers": [
            [one.kind, one.id] for one in await memory.short_ids.resolve_many(["#1", "#2"]) if one is not None
        ],
    }
    for name in ("ada/trip", "ada/fork", "ada/lunch", "room"):
        session = memory.session(name)
        files = (await memory.artifacts.list(name)).artifacts
        info = await session.info()
        found["sessions"][name] = {
            "info": [
                info.user,
                info.agent,
                info.namespace,
                info.title,
                info.status,
                sorted(info.tags),
                info.metadata,
                info.message_count,
            ],
            "context": [[m.id, m.role, m.text] for m in (await session.context()).messages],
            "history": [
                [i.message.id, i.number, i.excluded, _plain(i.message)]
                for i in (await session.history()).items
            ],
            "tasks": [
                [t.id, t.title, t.status, t.parent_id, t.result] for t in (await session.tasks.list()).tasks
            ],
            "runs": [[r.id, r.child_id, r.status, r.message_count] for r in (await session.runs.list()).runs],
            "compactions": [c.summary.text for c in await session.compactions()],
            "artifacts": [
                [
                    a.path,
                    a.media_type,
                    a.size,
                    a.sha256,
                    hashlib.sha256(await memory.artifacts.read(a.id)).hexdigest(),
                ]
                for a in files
            ],
        }
    found["acme"] = [entry.content for entry in await memory.for_tenant("acme").retrieve("org:acme")]
    return dict(_short(json.loads(json.dumps(found, default=str))))


def _plain(shown: Any) -> dict[str, Any]:
    plain = shown.model_dump(mode="json")
    for name in ("access_count", "accessed_at", "last_accessed_at"):
        plain.pop(name, None)
    return dict(plain)


def _short(value: Any) -> Any:
    """The value with a digest in the place of each long text."""
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return (
        hashlib.sha256(value.encode()).hexdigest() if isinstance(value, str) and len(value) > 200 else value
    )


# -- dumps -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """An empty store: its URL for a memory, and how to dump it into a folder and to
    restore it from one.
    """

    url: str
    dump: Callable[[Path], Awaitable[None]]
    restore: Callable[[Path], Awaitable[None]]


def embedded(backend: str, folder: Path) -> Place:
    """A store of this process, in the folder."""
    here = folder / ("memory.db" if backend == "sqlite" else "data")
    schemes = {"sqlite": "sqlite:///", "file": "file://", "qdrant_edge": "qdrant+edge://"}

    async def dump(to: Path) -> None:
        if backend == "sqlite":
            with sqlite3.connect(here) as connection:  # one file
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        subprocess.run(["cp", "-r", "--sparse=always", str(here), str(to)], check=True)  # noqa: ASYNC221

    async def restore(dumped: Path) -> None:
        shutil.copytree(dumped, folder, dirs_exist_ok=True)

    return Place(f"{schemes[backend]}{here}", dump, restore)


def redis(url: str) -> Place:
    """A database of Redis: each key by its type, so that any version restores it."""
    from redis.asyncio import Redis

    read: dict[str, Callable[[Any, bytes], Awaitable[Any]]] = {
        "string": lambda client, key: client.get(key),
        "hash": lambda client, key: client.hgetall(key),
        "set": lambda client, key: client.smembers(key),
        "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
        "list": lambda client, key: client.lrange(key, 0, -1),
    }

    async def dump(to: Path) -> None:
        async with Redis.from_url(url) as client:
            with (to / "keys.jsonl").open("w") as out:
                for key in sorted([key async for key in client.scan_iter(count=1_000)]):
                    kind = str(_text(await client.type(key)))
                    value = await read[kind](client, key)
                    pairs = value.items() if kind == "hash" else value
                    flat = (
                        [value]
                        if kind == "string"
                        else [part for one in pairs for part in (one if isinstance(one, tuple) else (one,))]
                    )
                    line = {
                        "key": _text(key),
                        "type": kind,
                        "expires": await client.pexpiretime(key),
                        "value": [_text(part) for part in flat],
                    }
                    out.write(json.dumps(line) + "\n")

    async def restore(dumped: Path) -> None:
        async with Redis.from_url(url) as client:
            pipe = client.pipeline(transaction=False)
            for line in (dumped / "keys.jsonl").read_text().splitlines():
                one = json.loads(line)
                key, value = _bytes(one["key"]), [_bytes(part) for part in one["value"]]
                pairs = list(zip(value[::2], value[1::2], strict=len(value) % 2 == 0))
                match one["type"]:
                    case "string":
                        pipe.set(key, value[0])
                    case "hash":
                        pipe.hset(key, mapping=dict(pairs))
                    case "set":
                        pipe.sadd(key, *value)
                    case "zset":
                        pipe.zadd(key, {member: float(score) for member, score in pairs})
                    case "list":
                        pipe.rpush(key, *value)
                if one["expires"] > 0:
                    pipe.pexpireat(key, one["expires"])
            await pipe.execute()

    return Place(url, dump, restore)


def _text(part: Any) -> str:
    """Bytes as they read, others in base64 behind a NUL."""
    if isinstance(part, float):
        return repr(part)
    try:
        if b"\0" not in part:
            return str(part.decode())
    except UnicodeDecodeError:
        pass
    return "\0" + base64.b64encode(part).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text[1:]) if text.startswith("\0") else text.encode()


def postgresql(
    url: str, connect: Callable[[], Awaitable[Any]], run: Callable[..., str], password: str
) -> Place:
    """The schema `memory` of a PostgreSQL server, dumped by its own `pg_dump`; `run`
    runs a command beside the server.
    """

    async def dump(to: Path) -> None:
        text = run(
            "env",
            f"PGPASSWORD={password}",
            "pg_dump",
            "-U",
            "postgres",
            "--schema=memory",
            "--inserts",
            "--rows-per-insert=100",
            "--no-owner",
            "--no-comments",
            "postgres",
        )
        (to / "dump.sql").write_text(
            "".join(line for line in text.splitlines(True) if not line.startswith("\\"))
        )

    async def restore(dumped: Path) -> None:
        connection = await connect()
        try:
            await connection.execute((dumped / "dump.sql").read_text())
        finally:
            await connection.close()

    return Place(url, dump, restore)


def mariadb(url: str, connect: Callable[[], Awaitable[Any]], run: Callable[..., str], password: str) -> Place:
    """The database `memory` of a MariaDB or MySQL server, dumped by its own program."""

    async def dump(to: Path) -> None:
        options = (
            "--hex-blob",
            "--skip-add-locks",
            "--skip-comments",
            "--skip-add-drop-table",
            "--skip-set-charset",
            "--order-by-primary",
        )
        (to / "dump.sql").write_text(
            run(
                "sh",
                "-c",
                'mariadb-dump -h "$(hostname -i)" -uroot "$@"',
                "sh",
                f"-p{password}",
                *options,
                "memory",
            )
        )

    async def restore(dumped: Path) -> None:
        connection = await connect()
        try:
            cursor = connection.cursor()
            for statement in (dumped / "dump.sql").read_text().split(";\n"):
                if statement.strip() and not statement.lstrip().startswith("/*"):
                    await cursor.execute(statement)
            await connection.commit()
        finally:
            connection.close()

    return Place(url, dump, restore)


def mongo(url: str, connect: Callable[[], Any]) -> Place:
    """The database `memory` of a MongoDB server: collections with their indexes, and
    their documents.
    """
    from bson import json_util

    def lines(database: Any) -> Iterator[dict[str, Any]]:
        for name in sorted(database.list_collection_names()):
            indexes = [dict(index) for index in database[name].list_indexes() if index["name"] != "_id_"]
            yield {
                "collection": name,
                "indexes": indexes,
                "documents": list(database[name].find().sort("_id", 1)),
            }

    async def dump(to: Path) -> None:
        with connect() as client:
            text = "".join(
                json_util.dumps(one, json_options=json_util.CANONICAL_JSON_OPTIONS) + "\n"
                for one in lines(client["memory"])
            )
            (to / "collections.jsonl").write_text(text)

    async def restore(dumped: Path) -> None:
        with connect() as client:
            for line in (dumped / "collections.jsonl").read_text().splitlines():
                one = json_util.loads(line)
                collection = client["memory"].create_collection(one["collection"])
                for index in one["indexes"]:
                    keys = list(index.pop("key").items())
                    collection.create_index(
                        keys, **{name: value for name, value in index.items() if name != "v"}
                    )
                if one["documents"]:
                    collection.insert_many(one["documents"])

    return Place(url, dump, restore)


def served(backend: str) -> Place:
    """An empty store of this backend on a server of the tests."""
    from tests.support import mongo_servers, mysql_servers, postgres_servers, redis_servers

    if backend == "redis":
        port = redis_servers.durable().port
        redis_servers.emptied(port)
        return redis(f"redis://127.0.0.1:{port}/0")
    if backend == "postgresql":
        import asyncpg

        server = postgres_servers.container()
        return postgresql(
            server.url("memory"),
            lambda: asyncpg.connect(**server.settings),
            server.run,
            postgres_servers.PASSWORD,
        )
    if backend == "mariadb":
        database = mysql_servers.container()
        return mariadb(
            database.url("memory"),
            lambda: mysql_servers._connect(database.port, "memory"),
            database.run,
            mysql_servers.PASSWORD,
        )
    replica_set = mongo_servers.replica_set()
    return mongo(replica_set.url("memory"), replica_set.connected)


# -- files -----------------------------------------------------------------------------


async def write(backend: str, to: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, packed = Path(name) / "store", Path(name) / "packed"
        (packed / "dump").mkdir(parents=True)
        folder.mkdir()
        place = embedded(backend, folder) if backend in EMBEDDED else served(backend)
        if backend == "mariadb":
            from tests.support import mysql_servers

            await mysql_servers.container().fresh("memory")
        await fill(place.url)
        await place.dump(packed / "dump")
        async with memory_over(place.url) as memory:  # after the dump: reading counts
            (packed / "told.json").write_text(json.dumps(await told(memory), indent=1, ensure_ascii=False))
        to.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
        archive = str(to.absolute() / f"{backend}.tar.xz")  # noqa: ASYNC240
        pack = [
            "tar",
            "--sparse",
            "--hole-detection=raw",
            "--format=gnu",
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--mtime=@0",
        ]
        subprocess.run([*pack, "-cJf", archive, "dump", "told.json"], cwd=packed, check=True)  # noqa: ASYNC221


def unpack(backend: str, number: int, to: Path) -> tuple[Path, dict[str, Any]]:
    """Unpack a fixture: the folder with the dump, and what was told of it."""
    with tarfile.open(FIXTURES / f"format_{number}" / f"{backend}.tar.xz") as archive:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4
        archive.extractall(to, **safely)  # noqa: S202 - our own
    return to / "dump", json.loads((to / "told.json").read_text())


def main() -> None:
    sys.path.insert(0, os.getcwd())
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write the fixtures of the code that runs")
    writing.add_argument(
        "backends", nargs="*", help=f"of {', '.join((*EMBEDDED, *SERVERS))}; all unless told"
    )
    writing.add_argument("--to", type=Path, help="the folder; that of the current format unless told")
    owing = commands.add_parser("owe", help="write an entry, and die while an advisor is asked about it")
    owing.add_argument("url")
    given = parser.parse_args()
    if given.command == "owe":
        asyncio.run(owe(given.url))
        return
    to = given.to
    if to is None:
        from memory.ports.formats import FORMAT

        to = FIXTURES / f"format_{FORMAT}"
    for backend in given.backends or (*EMBEDDED, *SERVERS):
        asyncio.run(write(backend, to))
        print(f"{backend}: {(to / f'{backend}.tar.xz').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
