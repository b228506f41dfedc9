"""Two `memory serve` processes over the same Redis and PostgreSQL act as one server."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.load import (
    CLIENTS,
    UNDER_WAY,
    Load,
    check_problem,
    connected,
    history_of,
    key_headers,
    pages,
)
from tests.server.serving import LOADED, Server, check_health, create_key, toml_of
from tests.server.support import ENTRIES
from tests.server.test_mcp_mount import ACCEPT, LISTEN
from tests.support.backends import marks_of
from tests.support.depth import FIRST_SEED
from tests.support.placings import OF_SERVERS

pytestmark = [*marks_of(*OF_SERVERS.backends), pytest.mark.nightly]


@dataclass
class Pair:
    """Two servers, and a key for both."""

    folder: Path
    config: str
    servers: list[Server]
    key: str
    http: httpx.AsyncClient

    @property
    def urls(self) -> list[str]:
        return [one.url for one in self.servers]

    async def call(self, server: int, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {**key_headers(given.pop("key", self.key)), **given.pop("headers", {})}
        return await self.http.request(method, self.urls[server] + path, headers=headers, **given)

    async def both(self, method: str, path: str, **given: Any) -> Any:
        """The one answer that both give."""
        first, second = [await self.call(number, method, path, **given) for number in (0, 1)]
        assert first.status_code == second.status_code == 200, (first.text, second.text)
        assert first.json() == second.json()
        return first.json()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, list[Server], str]]:
    folder = tmp_path_factory.mktemp("two")
    config = toml_of(folder, OF_SERVERS.config(folder))
    key = create_key(folder, config, "operator")
    servers = [Server(folder, config=config, dev=False, **LOADED) for _ in range(2)]
    yield folder, config, servers, key
    for one in servers:
        one.end(signal.SIGKILL)


@pytest.fixture
async def pair(started: tuple[Path, str, list[Server], str]) -> AsyncIterator[Pair]:
    async with connected() as http:
        yield Pair(*started, http)


def request_of(kind: str, text: str) -> tuple[str, str, dict[str, Any]]:
    """A request that creates something that can be counted."""
    octets = {"Content-Type": "application/octet-stream"}
    requests: dict[str, tuple[str, str, dict[str, Any]]] = {
        "entry": ("POST", ENTRIES, {"json": {"scope": "user:once", "content": text}}),
        "entry of a session": ("POST", ENTRIES, {"json": {"scope": "session:once", "content": text}}),
        "batch": (
            "POST",
            f"{ENTRIES}/batch",
            {"json": {"entries": [{"scope": "user:once", "content": f"{text}.{n}"} for n in range(3)]}},
        ),
        "message": (
            "POST",
            "/v1/sessions/once/messages",
            {"json": {"messages": [{"role": "user", "content": text}]}},
        ),
        "session": ("POST", "/v1/sessions", {"json": {"title": text, "user": "once"}}),
        "note": ("POST", "/v1/memory/scratchpads/once", {"json": {"text": text}}),
        "file": (
            "PUT",
            "/v1/memory/artifacts",
            {
                "params": {"session_id": "once", "path": text.replace(" ", "-")},
                "content": text,
                "headers": octets,
            },
        ),
        "key": ("POST", "/v1/admin/keys", {"json": {"role": "reader", "name": text}}),
    }
    return requests[kind]


KINDS = ("entry", "entry of a session", "batch", "message", "session", "note", "file", "key")


async def send_until_answered(pair: Pair, server: int, kind: str, text: str) -> Any:
    """The answer to a request, sent again while another one with its id runs."""
    while True:
        method, path, given = request_of(kind, text)
        headers = {**given.pop("headers", {}), "Idempotency-Key": text}
        answer = await pair.call(server, method, path, headers=headers, **given)
        if answer.is_success:
            return answer.json()
        code = check_problem(answer)
        if kind == "key" and code == "conflict":
            return {"id": answer.json()["existing_id"]}  # its text is shown once
        assert code in UNDER_WAY, answer.text
        await asyncio.sleep(0.02)


async def test_a_request_that_is_repeated_at_the_other_server_creates_nothing_twice(pair: Pair) -> None:
    """At once, and afterwards."""
    await pair.call(0, "POST", "/v1/sessions", json={"session_id": "once"})
    rng, numbers = random.Random(FIRST_SEED), iter(range(CLIENTS * 8))  # noqa: S311
    print(f"seed {FIRST_SEED}")
    made: dict[str, list[str]] = {kind: [] for kind in KINDS}

    async def client() -> None:
        for number in numbers:
            kind = rng.choice(KINDS)
            text, first = f"{kind} {number}", rng.randrange(2)
            calls = [send_until_answered(pair, (first + n) % 2, kind, text) for n in range(2)]
            outcomes = await asyncio.gather(*calls)
            outcomes.append(await send_until_answered(pair, rng.randrange(2), kind, text))
            if kind in ("entry", "entry of a session", "session", "file", "key"):
                assert len({one["id"] for one in outcomes}) == 1, outcomes
            made[kind].append(text)

    await asyncio.gather(*[client() for _ in range(CLIENTS)])
    print({kind: len(texts) for kind, texts in made.items()})
    url, http, key = pair.urls[0], pair.http, pair.key
    entries = Counter(
        [
            one["content"]
            for scope in ("user:once", "session:once")
            async for one in pages(http, url + ENTRIES, key, "entries", scope=scope)
        ]
    )
    written = [*made["entry"], *made["entry of a session"]]
    assert entries == Counter([*written, *[f"{text}.{n}" for text in made["batch"] for n in range(3)]])
    assert Counter([one async for one in history_of(http, url, key, "once")]) == Counter(made["message"])
    sessions = [one async for one in pages(http, f"{url}/v1/sessions", key, "sessions", user="once")]
    assert Counter(one["title"] for one in sessions) == Counter(made["session"])
    pad = (await pair.both("GET", "/v1/memory/scratchpads/once"))["content"]
    assert Counter(line for line in pad.splitlines() if line.startswith("note ")) == Counter(made["note"])
    files = [
        one async for one in pages(http, f"{url}/v1/memory/artifacts", key, "artifacts", session_id="once")
    ]
    assert Counter(one["path"] for one in files) == Counter(text.replace(" ", "-") for text in made["file"])
    keys = (await pair.both("GET", "/v1/admin/keys"))["keys"]
    assert Counter(one["name"] for one in keys if one["name"]) == Counter(made["key"])


async def test_of_changes_of_one_version_at_both_servers_exactly_one_is_made(pair: Pair) -> None:
    document = {"scope": "user:raced", "key": "settings"}
    for number in range(20):
        made = await pair.call(0, "POST", ENTRIES, json={"scope": "user:raced", "content": f"x{number}"})
        name, put = f"raced{number}", {**document, "key": f"settings{number}"}
        session = await pair.call(0, "POST", "/v1/sessions", json={"session_id": name})
        stored = await pair.call(0, "PUT", "/v1/documents/item", params=put, json={"value": 0})
        races: list[tuple[str, str, httpx.Response, dict[str, Any], Any]] = [
            ("PATCH", f"{ENTRIES}/{made.json()['id']}", made, {}, lambda n: {"content": f"changed {n}"}),
            ("PATCH", f"/v1/sessions/{name}", session, {}, lambda n: {"title": f"changed {n}"}),
            ("PUT", "/v1/documents/item", stored, put, lambda n: {"value": f"changed {n}"}),
        ]
        for method, path, before, params, body in races:
            given = {"params": params, "headers": {"If-Match": before.headers["etag"]}}
            calls = [pair.call(n % 2, method, path, json=body(n), **given) for n in range(8)]
            answers = await asyncio.gather(*calls)
            statuses = [one.status_code for one in answers]
            assert sorted(statuses) == [200, *[412] * 7], (path, [one.text for one in answers])
            won = statuses.index(200)
            found = await pair.both("GET", path, params=params)
            assert f"changed {won}" in json.dumps(found)
            now = await pair.call(1, "GET", path, params=params)
            assert now.headers["etag"] == answers[won].headers["etag"] != before.headers["etag"]
        new = {"scope": "user:raced", "key": f"new{number}"}
        calls = [
            pair.call(
                n % 2, "POST", ENTRIES, json={**new, "content": f"by {n}"}, headers={"If-None-Match": "*"}
            )
            for n in range(8)
        ]
        statuses = [one.status_code for one in await asyncio.gather(*calls)]
        assert sorted(statuses) == [201, *[412] * 7]


async def test_a_session_that_grows_at_both_servers_has_one_order(pair: Pair) -> None:
    await pair.call(0, "POST", "/v1/sessions", json={"session_id": "shared"})

    async def client(number: int) -> None:
        for n in range(6):
            message = {"role": "user", "content": f"{number}.{n}"}
            headers = {"Idempotency-Key": f"shared-{number}-{n}"}
            while True:
                answer = await pair.call(
                    (number + n) % 2,
                    "POST",
                    "/v1/sessions/shared/messages",
                    json={"messages": [message]},
                    headers=headers,
                )
                if answer.is_success:
                    break
                assert check_problem(answer) in UNDER_WAY, answer.text

    await asyncio.gather(*[client(number) for number in range(CLIENTS)])
    first, second = [
        [text async for text in history_of(pair.http, url, pair.key, "shared")] for url in pair.urls
    ]
    assert first == second
    assert Counter(first) == Counter(f"{number}.{n}" for number in range(CLIENTS) for n in range(6))
    for number in range(CLIENTS):
        own = [text for text in first if text.startswith(f"{number}.")]
        assert own == [f"{number}.{n}" for n in range(6)]
    windows = await pair.both("GET", "/v1/sessions/shared/context", params={"last": 100})
    assert len(windows["messages"]) == 100


async def drain(pieces: AsyncIterator[bytes]) -> None:
    async for _ in pieces:
        pass


async def test_a_key_that_is_revoked_at_one_server_ends_at_both_within_two_seconds(pair: Pair) -> None:
    made = (await pair.call(0, "POST", "/v1/admin/keys", json={"role": "writer"})).json()
    assert [(await pair.call(n, "GET", ENTRIES, key=made["key"])).status_code for n in (0, 1)] == [200, 200]
    headers = {**key_headers(made["key"]), **ACCEPT, "MCP-Protocol-Version": "2026-07-28"}
    headers["Mcp-Method"] = "subscriptions/listen"
    async with pair.http.stream("POST", f"{pair.urls[1]}/mcp", json=LISTEN, headers=headers) as stream:
        pieces = stream.aiter_bytes()
        opened = b""
        while b"subscriptions/acknowledged" not in opened:
            opened += await anext(pieces)
        assert (await pair.call(0, "DELETE", f"/v1/admin/keys/{made['id']}")).status_code == 204
        revoked = asyncio.get_running_loop().time()
        with pytest.raises(httpx.TransportError):  # it has no end, because it was cut off
            await asyncio.wait_for(drain(pieces), 60)
    await asyncio.sleep(revoked + 2 - asyncio.get_running_loop().time())
    for n in (0, 1):
        assert (await pair.call(n, "GET", ENTRIES, key=made["key"])).status_code == 401


async def test_a_killed_server_under_load_loses_and_doubles_nothing(pair: Pair) -> None:
    """Its clients repeat their requests at the other server. Both are killed in turn."""
    urls = pair.urls
    load = Load(pair.http, urls, pair.key, repeats=True)
    running = asyncio.create_task(load.run())
    for turn in (0, 1, 0):
        await load.reaches(150)
        await asyncio.to_thread(pair.servers[turn].end, signal.SIGKILL)
        await load.reaches(50)
        pair.servers[turn] = await asyncio.to_thread(
            lambda: Server(pair.folder, config=pair.config, dev=False, **LOADED)
        )
        urls[turn] = pair.servers[turn].url
    load.end()
    await running
    await load.check(whole=True)


async def test_afterwards_the_stores_are_sound(pair: Pair) -> None:
    assert [await asyncio.to_thread(one.end) for one in pair.servers] == [0, 0]
    await asyncio.to_thread(check_health, pair.folder, pair.config)
    assert "Traceback" not in pair.servers[0].log.read_text()
