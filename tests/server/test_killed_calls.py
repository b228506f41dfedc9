"""`memory serve` is killed while it exports, imports, erases a tenant or stores a file:
afterwards the state is the one before, or a repeat of the call completes it.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import lt
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.load import connected, history_of, key_headers, pages
from tests.server.serving import LOADED, Server, check_health, create_key, toml_of
from tests.server.support import ENTRIES
from tests.support.backends import marks_of
from tests.support.depth import FIRST_SEED
from tests.support.placings import ORDINARY, STORIES, forget

PLACES = [next(one for one in ORDINARY if one.name == "default"), STORIES[0]]
pytestmark = pytest.mark.nightly
KILLS = 2
FILES = "/v1/memory/artifacts"
LINES = {"Content-Type": "application/jsonl"}
OCTETS = {"Content-Type": "application/octet-stream"}


@dataclass
class Mortal:
    """A server that is killed and started again, and keys of two tenants."""

    folder: Path
    config: str
    http: httpx.AsyncClient
    server: Server
    keys: dict[str, str]
    random: random.Random
    killed: asyncio.Event

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.end, signal.SIGKILL)
        self.killed.set()
        self.server = await asyncio.to_thread(start, self.folder, self.config)

    async def renew_key(self, tenant: str) -> None:
        given = {"role": "operator", "tenant": tenant}
        self.keys[tenant] = (await self.done("POST", "/v1/admin/keys", json=given)).json()["key"]

    async def call(self, method: str, path: str, tenant: str = "default", **given: Any) -> httpx.Response:
        headers = {**key_headers(self.keys[tenant]), **given.pop("headers", {})}
        return await self.http.request(method, self.server.url + path, headers=headers, **given)

    async def done(self, method: str, path: str, tenant: str = "default", **given: Any) -> httpx.Response:
        answer = await self.call(method, path, tenant, **given)
        assert answer.is_success, answer.text
        return answer

    async def kill_during(
        self, call: Callable[[], Any], within: float, *, after: asyncio.Event | None = None
    ) -> httpx.Response | None:
        """Begin a call, and kill the server at a drawn moment. Return an answer that came."""
        self.killed.clear()
        calling = asyncio.ensure_future(call())
        if after is not None:
            begun = asyncio.ensure_future(after.wait())
            await asyncio.wait([calling, begun], return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
        await asyncio.sleep(self.random.uniform(0, within))
        await self.restart()
        try:
            answer: httpx.Response = await calling
        except httpx.TransportError:
            return None
        return answer

    async def reaches(self, changed: asyncio.Event, tenant: str, wanted: Callable[[int], bool]) -> None:
        """Set an event once the tenant has a number of entries that is wanted."""
        while not wanted((await self.contents(tenant)).total()):
            pass
        changed.set()

    async def loses_its_key(self, changed: asyncio.Event, tenant: str) -> None:
        """Set an event once the erasure of the tenant has begun."""
        while (await self.call("GET", ENTRIES, tenant, params={"limit": 1})).status_code != 401:
            pass
        changed.set()

    async def contents(self, tenant: str = "default") -> Counter[str]:
        every = pages(self.http, self.server.url + ENTRIES, self.keys[tenant], "entries")
        return Counter([one["content"] async for one in every])


def start(folder: Path, config: str) -> Server:
    return Server(folder, config=config, dev=False, **LOADED)


@pytest.fixture(params=[pytest.param(one, id=one.name, marks=marks_of(*one.backends)) for one in PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param.config(tmp_path)
    forget(tmp_path)


@pytest.fixture
async def mortal(place: dict[str, Any], tmp_path: Path) -> AsyncIterator[Mortal]:
    config = toml_of(tmp_path, place)
    keys = {tenant: create_key(tmp_path, config, "operator", "--tenant", tenant) for tenant in TENANTS}
    print(f"seed {FIRST_SEED}")
    async with connected() as http:
        server, rng = start(tmp_path, config), random.Random(FIRST_SEED)  # noqa: S311
        one = Mortal(tmp_path, config, http, server, keys, rng, asyncio.Event())
        try:
            yield one
        finally:
            code = one.server.end()
    assert code == 0
    await asyncio.to_thread(check_health, tmp_path, config, "--audit")


TENANTS = ("default", "gone")


async def end(task: asyncio.Task[None]) -> None:
    """End a task that the death of the server may have ended."""
    task.cancel()
    await asyncio.wait([task])


async def fill(mortal: Mortal, tenant: str, number: int) -> None:
    """Write entries, messages and a file."""
    drafts = [{"scope": f"user:u{n % 7}", "content": f"{tenant} {n} {'x' * 800}"} for n in range(number)]
    for at in range(0, number, 500):
        await mortal.done("POST", f"{ENTRIES}/batch", tenant, json={"entries": drafts[at : at + 500]})
    messages = [{"role": "user", "content": f"{tenant} {n}"} for n in range(200)]
    await mortal.done("POST", "/v1/sessions/talk/messages", tenant, json={"messages": messages})
    where = {"session_id": "talk", "path": "kept.bin"}
    await mortal.done("PUT", FILES, tenant, params=where, content=b"kept" * 100_000, headers=OCTETS)


async def read_until_killed(mortal: Mortal) -> None:
    """Begin to read an export, and kill the server before the rest."""
    url, headers = f"{mortal.server.url}/v1/admin/export", key_headers(mortal.keys["default"])
    async with mortal.http.stream("GET", url, headers=headers) as stream:
        pieces = stream.aiter_bytes()
        await anext(pieces)
        await mortal.restart()
        async for _ in pieces:
            pass


async def test_an_export_breaks_off_and_changes_nothing(mortal: Mortal) -> None:
    await fill(mortal, "default", 2000)
    whole = (await mortal.done("GET", "/v1/admin/export")).text.splitlines()
    for _ in range(KILLS):
        with pytest.raises(httpx.TransportError):
            await read_until_killed(mortal)
        again = (await mortal.done("GET", "/v1/admin/export")).text.splitlines()
        assert Counter(again) == Counter(whole)


async def test_an_import_is_untouched_or_completed_by_a_repeat(mortal: Mortal) -> None:
    texts = [f"imported {n}" for n in range(2000)]
    messages = [{"role": "user", "content": text, "id": text} for text in texts]
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in messages)
    where: dict[str, Any] = {"params": {"scope": "user:ada", "name": "talk"}, "headers": LINES}

    sent = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield lines[: len(lines) // 2]
        sent.set()
        await mortal.killed.wait()

    assert (
        await mortal.kill_during(
            lambda: mortal.call("POST", "/v1/admin/import", content=half(), **where), 0.3, after=sent
        )
        is None
    )
    assert not await mortal.contents()
    seen = set()
    for _ in range(KILLS):
        begun, before = asyncio.Event(), (await mortal.contents()).total()
        looking = asyncio.ensure_future(mortal.reaches(begun, "default", partial(lt, before)))
        await mortal.kill_during(
            lambda: mortal.call("POST", "/v1/admin/import", content=lines, **where), 0.2, after=begun
        )
        await end(looking)
        found = await mortal.contents()
        seen.add(found.total())
        assert max(found.values(), default=1) == 1
        assert found.keys() <= set(texts)
    print("imported when it was killed:", seen)
    await mortal.done("POST", "/v1/admin/import", content=lines, **where)
    assert await mortal.contents() == Counter(texts)


async def test_the_erasure_of_a_tenant_is_completed_by_a_repeat(mortal: Mortal) -> None:
    await fill(mortal, "default", 50)
    kept = await mortal.contents()
    left = set()
    for _ in range(KILLS):
        await mortal.renew_key("gone")  # an erasure revokes the keys of its tenant
        await fill(mortal, "gone", 500)
        begun = asyncio.Event()
        looking = asyncio.ensure_future(mortal.loses_its_key(begun, "gone"))
        answer = await mortal.kill_during(
            lambda: mortal.call("DELETE", "/v1/admin/tenants/gone"), 0.2, after=begun
        )
        await end(looking)
        await mortal.renew_key("gone")
        found = await mortal.contents("gone")
        left.add(found.total())
        if answer is not None and answer.is_success:
            assert not found
        await mortal.done("DELETE", "/v1/admin/tenants/gone")
        await mortal.renew_key("gone")
        assert not await mortal.contents("gone")
        assert (await mortal.done("GET", "/v1/sessions", "gone")).json()["sessions"] == []
        assert not (await mortal.done("GET", "/v1/admin/export", "gone")).text.strip()
    print("left when it was killed:", left)
    assert await mortal.contents() == kept
    history = history_of(mortal.http, mortal.server.url, mortal.keys["default"], "talk")
    assert [one async for one in history] == [f"default {n}" for n in range(200)]


async def test_a_file_is_whole_or_the_one_before(mortal: Mortal) -> None:
    await fill(mortal, "default", 1)
    where = {"session_id": "talk", "path": "kept.bin"}
    (before,) = (await mortal.done("GET", FILES, params={"session_id": "talk"})).json()["artifacts"]
    new = bytes(range(256)) * 20_000
    for number in range(2 * KILLS):
        sent = asyncio.Event()

        async def body(is_whole: bool = number % 2 == 1, sent: asyncio.Event = sent) -> AsyncIterator[bytes]:
            for at in range(0, len(new) if is_whole else len(new) // 2, 65_536):
                yield new[at : at + 65_536]
            sent.set()
            if not is_whole:
                await mortal.killed.wait()

        headers = {**OCTETS, "Idempotency-Key": f"file-{number}"}

        def put(content: Any, headers: dict[str, str] = headers) -> Any:
            return mortal.call("PUT", FILES, params=where, content=content, headers=headers)

        answer = await mortal.kill_during(partial(put, body()), 0.3, after=sent)
        (found,) = (await mortal.done("GET", FILES, params={"session_id": "talk"})).json()["artifacts"]
        data = (await mortal.done("GET", f"{FILES}/{found['id']}/raw")).content
        if number % 2 == 0:
            assert answer is None
            assert (found, data) == (before, b"kept" * 100_000)
        elif answer is not None and answer.is_success:
            assert data == new
        else:
            assert (data == new) or (found, data) == (before, b"kept" * 100_000)
        stored = await put(new)
        assert stored.status_code == 201, stored.text
        raw = await mortal.done("GET", f"{FILES}/{stored.json()['id']}/raw")
        assert raw.content == new
        await mortal.done("PUT", FILES, params=where, content=b"kept" * 100_000, headers=OCTETS)
        (before,) = (await mortal.done("GET", FILES, params={"session_id": "talk"})).json()["artifacts"]
