"""API keys: their texts, what a store has of them, and who may do what with them."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.datastructures import Headers
from starlette.responses import StreamingResponse

from memory import Conflict, InvalidInput, Memory, NotFound
from memory.domain.errors import ConfigError
from memory.facade.config.server import ServerSettings
from memory.server.callers import Role, Unauthenticated
from memory.server.identity import RESERVED_TENANT, KeyStore
from memory.server.identity.key_store import require_durable
from memory.server.identity.key_text import new_key_id, new_key_text, parse_key_text
from memory.server.run import serve
from tests.acceptance.support import watching
from tests.server.callers import KeyServer, key_server

KEYS = "/v1/admin/keys"
ENTRY = "/v1/memory/entries/0196f9d2-7e5c-8a41-9c1e-5b7d3f20a6e8"


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as memory:
        yield memory


@pytest.fixture
async def server(memory: Memory) -> AsyncIterator[KeyServer]:
    async with key_server(memory) as server:
        yield server


def test_a_text_is_a_key_only_with_its_checksum() -> None:
    text = new_key_text(new_key_id()).text
    assert parse_key_text(text) is not None
    assert len(text.rpartition("_")[2]) == 43
    for place in range(len(text)):
        other = "x" if text[place] != "x" else "y"
        assert parse_key_text(text[:place] + other + text[place + 1 :]) is None
    for bad in ("", "mt_", text + "a", text[:-1], f" {text}", f"{text}\n", text.upper(), "mt__" + "0" * 43):
        assert parse_key_text(bad) is None


async def test_a_wrong_checksum_needs_no_store(memory: Memory) -> None:
    keys = KeyStore(memory)
    _, text = await keys.create("acme", "reader")
    await memory.close()
    assert await keys.verify(text[:-1] + ("0" if text[-1] != "0" else "1")) is None


def _holds(path: Path, data: bytes) -> bool:
    return data in path.read_bytes()


async def test_the_store_has_a_digest_in_place_of_the_text(memory: Memory, tmp_path: Path) -> None:
    keys = KeyStore(memory)
    key, text = await keys.create("acme", "writer", scopes=["user:ada", "path:teams/red/**"], name="agent")
    assert (await keys.verify(text)) == key
    lines = [line async for line in memory.for_tenant(RESERVED_TENANT).admin.export()]
    assert key.id in json.dumps(lines)
    for secret in (text, text.rpartition("_")[2]):
        assert secret not in json.dumps(lines)
        assert not any(_holds(part, secret.encode()) for part in sorted(tmp_path.glob("*")))  # noqa: ASYNC240
    assert "sha" not in repr(key.to_dict())


async def test_bad_arguments_create_nothing(memory: Memory) -> None:
    keys = KeyStore(memory)
    for tenant, role, scopes, expires in (
        (RESERVED_TENANT, "reader", [], None),
        ("~memory", "reader", [], None),
        ("", "reader", [], None),
        ("acme", "root", [], None),
        ("acme", "reader", ["nonsense"], None),
        ("acme", "reader", [], timedelta()),
        ("acme", "admin", ["user:ada"], None),
        ("acme", "operator", ["user:ada"], None),
    ):
        with pytest.raises(InvalidInput):
            await keys.create(tenant, role, scopes=scopes, expires_in=expires)  # type: ignore[arg-type]
    assert await keys.list() == []


async def test_keys_expire_rotate_and_end(memory: Memory) -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    keys = KeyStore(memory, now=lambda: now)
    key, first = await keys.create("acme", "reader", expires_in=timedelta(days=2))
    rotated, second = await keys.rotate(key.id, overlap=timedelta(hours=1))
    assert rotated.id == key.id
    assert await keys.verify(first) == await keys.verify(second) != None  # noqa: E711
    now += timedelta(hours=2)
    assert await keys.verify(first) is None
    assert await keys.verify(second) is not None
    _, third = await keys.rotate(key.id, overlap=timedelta())
    assert await keys.verify(second) is None
    assert await keys.verify(third) is not None
    now += timedelta(days=2)
    assert await keys.verify(third) is None
    with pytest.raises(NotFound):
        await keys.rotate(key.id)
    other, text = await keys.create("acme", "reader")
    assert (await keys.revoke(other.id)).revoked_at == now
    assert await keys.verify(text) is None
    for call in (keys.revoke, keys.rotate):
        with pytest.raises(NotFound):
            await call(other.id)
        for unknown in ("nobody0000", "", "a/b", "x" * 600, "é"):
            with pytest.raises(NotFound):
                await call(unknown)
    with pytest.raises(InvalidInput):
        await keys.rotate(key.id, overlap=timedelta(seconds=-1))


async def test_two_rotations_at_once_both_hold(memory: Memory) -> None:
    first, second = KeyStore(memory), KeyStore(memory)
    key, text = await first.create("acme", "reader")
    made = await asyncio.gather(*(store.rotate(key.id) for store in (first, second, first, second)))
    for one in (text, *(new for _, new in made)):
        assert await KeyStore(memory).verify(one) is not None


async def test_another_process_obeys_a_revocation_within_two_seconds(memory: Memory) -> None:
    here, there = KeyStore(memory), KeyStore(memory)
    key, text = await here.create("acme", "reader")
    assert await there.verify(text) is not None
    await here.revoke(key.id)
    revoked = time.monotonic()
    while await there.verify(text) is not None:
        assert time.monotonic() - revoked < 30
        await asyncio.sleep(0.02)
    assert await here.verify(text) is None


async def test_keys_need_a_durable_store(memory: Memory) -> None:
    await require_durable(memory)
    async with Memory("memory://", embedder="none") as volatile:
        with pytest.raises(ConfigError, match="durable"):
            await require_durable(volatile)


async def test_every_bad_credential_gets_the_same_answer(server: KeyServer) -> None:
    good = await server.key()
    revoked, text = await server.keys.create("acme", "writer")
    await server.keys.revoke(revoked.id)
    unknown = new_key_text(new_key_id()).text
    other = new_key_text(parse_key_text(good).key_id).text  # type: ignore[union-attr]
    answers = []
    for headers in (
        [],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer x")],
        [("Authorization", f"Basic {good}")],
        [("Authorization", f"Bearer {good}x")],
        [("Authorization", f"Bearer {unknown}")],
        [("Authorization", f"Bearer {other}")],
        [("Authorization", f"Bearer {text}")],
        [("Authorization", f"Bearer {good}"), ("X-API-Key", good)],
        [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {good}")],
        [("X-API-Key", "mt_")],
        [("X-API-Key", "x" * 20_000)],
    ):
        answers.append(await server.http.get(ENTRY, headers=headers))
    assert {one.status_code for one in answers} == {401}
    assert len({one.text for one in answers}) == 1
    assert all(one.headers["WWW-Authenticate"] == "Bearer" for one in answers)
    for headers in ([("Authorization", f"bearer  {good}")], [("X-API-Key", good)]):
        assert (await server.http.get(ENTRY, headers=headers)).status_code == 404


async def test_a_caller_has_the_view_of_its_key(server: KeyServer) -> None:
    async def caller(tenant: str, role: Role, *scopes: str):  # type: ignore[no-untyped-def]
        text = await server.key(tenant, role, *scopes)
        return await server.authenticator.authenticate(Headers({"x-api-key": text}))

    await server.memory.for_tenant("acme").write("secret", scope="user:bob")
    ada = await caller("acme", "writer", "user:ada")
    entry = await ada.memory.write("tea", scope="user:ada")
    assert entry.origins == [f"source:key:{ada.key_id}"]
    assert [one.content for one in await ada.memory.browse()] == ["tea"]
    reader = await caller("acme", "reader")
    assert {one.content for one in await reader.memory.browse()} == {"tea", "secret"}
    with pytest.raises(Exception, match="reader"):
        await reader.memory.write("x", scope="user:ada")
    admin = await caller("acme", "admin")
    with pytest.raises(Exception, match="concerns the stores"):
        admin.memory.for_tenant("other")
    operator = await caller("acme", "operator")
    other = await operator.memory.for_tenant("other").write("x", scope="user:ada")
    assert other.origins == [f"source:key:{operator.key_id}"]


async def test_admins_manage_the_keys_of_their_tenant(server: KeyServer) -> None:
    admin, writer = await server.key("acme", "admin"), await server.key("acme", "writer")
    await server.key("other", "writer")
    hidden, _ = await server.keys.create("acme", "operator")
    foreign, _ = await server.keys.create("other", "reader")
    assert (await server.call(writer, "GET", KEYS)).status_code == 403
    body = {"role": "reader", "scopes": ["user:ada"], "expires": "90d", "name": "agent"}
    made = await server.call(admin, "POST", KEYS, json=body)
    assert made.status_code == 201, made.text
    shown = made.json()
    assert (shown["tenant"], shown["role"], shown["scopes"]) == ("acme", "reader", ["user:ada"])
    assert "no-store" in made.headers["Cache-Control"]
    assert (await server.call(shown["key"], "GET", ENTRY)).status_code == 404
    listed = (await server.call(admin, "GET", KEYS)).json()["keys"]
    assert {one["tenant"] for one in listed} == {"acme"}
    assert hidden.id not in {one["id"] for one in listed}
    assert "key" not in listed[0]
    rotated = await server.call(admin, "POST", f"{KEYS}/{shown['id']}/rotate", json={"overlap": "0s"})
    assert rotated.json()["key"] != shown["key"]
    assert (await server.call(shown["key"], "GET", ENTRY)).status_code == 401
    gone = await server.call(admin, "DELETE", f"{KEYS}/{shown['id']}")
    assert (gone.status_code, gone.content, gone.headers.get("content-type")) == (204, b"", None)
    assert (await server.call(rotated.json()["key"], "GET", ENTRY)).status_code == 401
    for key_id in (shown["id"], hidden.id, foreign.id, "nobody0000", "x" * 600):
        for method, more in (("DELETE", ""), ("POST", "/rotate")):
            assert (await server.call(admin, method, f"{KEYS}/{key_id}{more}")).status_code == 404


async def test_nobody_gives_more_rights_than_it_has(server: KeyServer) -> None:
    admin = await server.key("acme", "admin")
    operator = await server.key("ops", "operator")
    for key, body, status in (
        (admin, {"role": "operator"}, 403),
        (admin, {"role": "reader", "tenant": "other"}, 404),
        (operator, {"role": "operator", "tenant": "other"}, 201),
        (operator, {"role": "reader", "tenant": RESERVED_TENANT}, 400),
        (operator, {"role": "reader", "tenant": "~memory"}, 400),
        (admin, {"role": "reader", "scope": "user:ada"}, 400),
        (admin, {"role": "reader", "scopes": ["nonsense"]}, 400),
        (admin, {"role": "reader", "scopes": []}, 400),
        (admin, {"role": "root"}, 400),
        (admin, {"role": "admin", "scopes": ["user:ada"]}, 400),
        (admin, {"role": "reader", "expires": "soon"}, 400),
        (admin, {"role": "reader", "expires": "0s"}, 400),
        (admin, {"role": "reader", "expires": "9999999d"}, 400),
    ):
        answer = await server.call(key, "POST", KEYS, json=body)
        assert answer.status_code == status, (body, answer.text)
    tenants = {one["tenant"] for one in (await server.call(operator, "GET", KEYS)).json()["keys"]}
    assert tenants == {"acme", "ops", "other"}


async def test_an_overlap_without_end_is_refused(server: KeyServer) -> None:
    admin, made = await server.key("acme", "admin"), (await server.keys.create("acme", "reader"))[0]
    answer = await server.call(admin, "POST", f"{KEYS}/{made.id}/rotate", json={"overlap": "9999999d"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "overlap")


@pytest.mark.parametrize("tenant", ["a/b", "50%", "c d", "日本", "a%2Fb"])
async def test_a_tenant_of_any_name_is_erased(server: KeyServer, tenant: str) -> None:
    """A path that named another tenant would report an erasure that erased nothing."""
    callers: list[tuple[str, Role]] = [("ops", "operator"), (tenant, "admin")]
    for its, role in callers:
        caller = await server.key(its, role)
        await server.memory.for_tenant(tenant).write("secret", scope="user:ada")
        answer = await server.call(caller, "DELETE", f"/v1/admin/tenants/{quote(tenant, safe='')}")
        assert answer.status_code == 200, answer.text
        assert not await server.memory.for_tenant(tenant).browse()


async def test_a_repeated_request_creates_no_second_key(server: KeyServer) -> None:
    admin = await server.key("acme", "admin")
    again = {"headers": {"Idempotency-Key": "k1"}, "json": {"role": "reader"}}
    first, second = [await server.call(admin, "POST", KEYS, **again) for _ in range(2)]
    assert (first.status_code, second.status_code) == (201, 409)
    assert second.json()["existing_id"] == first.json()["id"]
    for body in ({"role": "writer"}, {"role": "reader", "expires": "1d"}, {"role": "reader", "name": "x"}):
        other = await server.call(admin, "POST", KEYS, headers=again["headers"], json=body)
        assert (other.status_code, other.json()["code"]) == (422, "request_id_reused"), body
    with pytest.raises(Conflict):
        await server.keys.create("acme", "reader", key_id=first.json()["id"])


async def test_a_stream_ends_soon_after_its_key(server: KeyServer) -> None:
    sent = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            sent.set()
            yield b"{}\n"
            await asyncio.sleep(0.02)

    @server.app.get("/v1/endless")
    async def stream() -> StreamingResponse:
        return StreamingResponse(endless())

    key, text = await server.keys.create("acme", "reader")
    parts: list[bytes] = []

    coming = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, object]:
        if not coming:
            await asyncio.sleep(3600)
        return coming.pop()

    async def send(message: object) -> None:
        parts.append(message.get("body", b""))  # type: ignore[attr-defined]

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/endless",
        "raw_path": b"/v1/endless",
        "query_string": b"",
        "headers": [(b"x-api-key", text.encode()), (b"host", b"127.0.0.1")],
        "http_version": "1.1",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "asgi": {"version": "3.0"},
    }
    running = asyncio.create_task(server.app(scope, receive, send))
    await asyncio.wait_for(sent.wait(), 60)
    await KeyStore(server.memory).revoke(key.id)  # as another process does
    await asyncio.wait_for(running, 60)
    assert len(parts) > 2
    with pytest.raises(Unauthenticated):
        await server.authenticator.authenticate(Headers({"x-api-key": text}))


async def test_the_keys_of_an_erased_tenant_end(server: KeyServer) -> None:
    operator, other = await server.key("ops", "operator"), await server.key("other", "writer")
    ended = [await server.key("acme", role) for role in ("reader", "writer", "admin")]
    erased = await server.call(operator, "DELETE", "/v1/admin/tenants/acme")
    assert (erased.status_code, erased.json()["keys_revoked"]) == (200, 3)
    assert [(await server.call(key, "GET", ENTRY)).status_code for key in ended] == [401] * 3
    assert (await server.call(other, "GET", ENTRY)).status_code == 404
    listed = (await server.call(operator, "GET", KEYS, params={"tenant": "acme"})).json()["keys"]
    assert all(one["revoked_at"] for one in listed)
    again = await server.call(operator, "DELETE", "/v1/admin/tenants/acme")
    assert (again.status_code, again.json()["keys_revoked"]) == (200, 0)


async def test_the_keys_of_a_held_tenant_stay(server: KeyServer) -> None:
    operator, writer = await server.key("ops", "operator"), await server.key("acme", "writer")
    holds = server.memory.for_tenant("acme").admin.legal_holds
    await holds.add("case 7", reason="litigation", tenant=True)
    refused = await server.call(operator, "DELETE", "/v1/admin/tenants/acme")
    assert refused.json()["code"] == "legal_hold_active"
    assert (await server.call(writer, "GET", ENTRY)).status_code == 404
    await holds.remove("case 7")
    erased = await server.call(operator, "DELETE", "/v1/admin/tenants/acme")
    assert (erased.status_code, erased.json()["keys_revoked"]) == (200, 1)


async def test_an_admin_that_erases_its_tenant_ends_its_own_key_last(server: KeyServer) -> None:
    admin, writer = await server.key("acme", "admin"), await server.key("acme", "writer")
    erased = await server.call(admin, "DELETE", "/v1/admin/tenants/acme")
    assert (erased.status_code, erased.json()["keys_revoked"]) == (200, 2)
    assert [(await server.call(key, "GET", ENTRY)).status_code for key in (admin, writer)] == [401] * 2


async def test_the_reads_of_the_store_do_not_tell_which_ids_exist(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyStore(memory)
    monkeypatch.setattr("memory.server.identity.key_store.FRESH_FOR", 3600)
    known, text = await keys.create("acme", "reader")
    revoked, _ = await keys.create("acme", "reader")
    await keys.revoke(revoked.id)
    calls = []
    for key_id in (known.id, revoked.id, new_key_id()):
        guess = new_key_text(key_id).text
        for _ in range(2):
            with watching(memory) as touched:
                assert await keys.verify(guess) is None
            calls.append(len(touched))
    assert calls == [1, 0] * 3
    assert await keys.verify(text) == known
    later = new_key_id()
    assert await keys.verify(new_key_text(later).text) is None
    made, text = await keys.create("acme", "reader", key_id=later)
    assert await keys.verify(text) == made, "a key that is created here is known at once"


async def test_a_stalled_reader_gets_no_more_after_its_key_ended(server: KeyServer) -> None:
    """The connection is reset, so that nothing of what waits for the client is sent."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    @server.app.get("/v1/endless")
    async def stream() -> StreamingResponse:
        return StreamingResponse(endless())

    running = asyncio.create_task(serve(server.app, ServerSettings(port=0), address.set_result))
    key, text = await server.keys.create("acme", "reader")
    port = int((await asyncio.wait_for(address, 30)).rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /v1/endless HTTP/1.1\r\nHost: x\r\nX-API-Key: {text}\r\n\r\n".encode())
    assert await asyncio.wait_for(reader.read(1), 30)
    await KeyStore(server.memory).revoke(key.id)  # as another process does

    async def read_all() -> None:
        while await reader.read(2**20):
            pass

    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(read_all(), 60)
    writer.close()
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(running, 60)
