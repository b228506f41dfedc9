"""Hostile callers: drawn requests over the whole API, with ids, keys, scopes, cursors and
versions of records outside of what the caller may see. Each is answered exactly as by a
server in which these records do not exist, and none of them changes anything outside.
Only the deletion of a session inside reaches further, as decision 066 says: entries
outside that name it are unpinned from it. The last request of each round is such a one.

The requests are drawn from the description of the API, so that a new route is in the
test at once.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory import Memory
from memory.server.callers import Role
from tests.acceptance.support import DAY, Clock
from tests.acceptance.test_hostile_views import (
    INSIDE,
    MOMENT_TEXT,
    OUTSIDE,
    UNKNOWN_ID,
    UUID_TEXT,
    Side,
    difference,
)
from tests.server.callers import KeyServer, key_server
from tests.support.backends import marks_of
from tests.support.depth import FIRST_SEED, NIGHTLY
from tests.support.placings import ORDINARY, Placing, forget, two_of

REQUESTS = 120 if NIGHTLY else 100
SCOPES = ["user:ada", "session:s-ada-2", "workspace:w1", "path:teams/red/**"]
CALLERS: tuple[tuple[str, str, Role, list[str]], ...] = (
    ("scoped reader", "acme", "reader", SCOPES),
    ("scoped writer", "acme", "writer", SCOPES),
    ("reader", "solo", "reader", []),
    ("writer", "solo", "writer", []),
    ("admin", "solo", "admin", []),
    ("operator", "solo", "operator", []),
)
"""In `acme` are records outside of the scopes. `solo` is all inside, and `other` outside."""
NOT_ASKED = (
    "/health/",  # of no tenant
    "/v1/admin/sweep",  # says whether work of any tenant is left
    "/v1/admin/tenants/",  # its own tenant would be gone; test_audit asks for another one
)
PINNED_TO = "s-ada-1"
"""A session inside. Entries outside name it as their conversation."""
LAST = {"caller": "scoped writer", "method": "DELETE", "path": f"/v1/sessions/{PINNED_TO}"}
OF_ALL_TENANTS = ("/metrics", "/v1/admin/stores", "/v1/admin/audit")
"""Operators learn here how much there is, and of nobody what: only statuses are compared."""
ROUNDS = range(len(CALLERS) if NIGHTLY else 1)
"""Each has a seed of its own, and begins with new servers, since its deletions leave less to find."""
PLACES = ("default", "redis-postgres-edge", "redis-mongo-edge")
CASES = [
    pytest.param(
        (place, FIRST_SEED + number),
        id=f"{place.name}-{number}",  # a fresh seed would differ between workers
        marks=[*marks_of(*place.backends), *([] if place.name == "default" else [pytest.mark.nightly])],
    )
    for place in ORDINARY
    if place.name in PLACES
    for number in ROUNDS
]
_KEEPS = 0.15
"""How often a drawn deletion is asked. Otherwise little would be left to find."""
_RANDOM = re.compile(r"\b[0-9a-f]{12,64}\b")
"""Versions, digests and random texts."""
_KEY_ID = re.compile(r"\b[0-9A-Za-z]{10}\b")
_KEY = re.compile(r"mt_\w{10}_\w{43}|\bkey:\w{10}\b")


class Server:
    """One server, with or without the outside records."""

    def __init__(self, server: KeyServer, clock: Clock) -> None:
        self.server, self.clock = server, clock
        self.names: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.acme = Side(server.memory.for_tenant("acme"), SCOPES)

    async def fill(self, *, outside: bool) -> None:
        solo = Side(self.server.memory.for_tenant("solo"), SCOPES)
        other = Side(self.server.memory.for_tenant("other"), SCOPES)
        if outside:
            await self.acme.fill_outside_sessions()
        for side in (self.acme, solo):
            await side.fill_inside(red=True)
        if outside:
            await self.acme.fill_outside()
            await other.fill_inside(red=True)
            self.names |= {f"out:other:{name}": value for name, value in other.names.items()}
        self.names |= {f"solo:{name}": value for name, value in solo.names.items()}
        self.names |= self.acme.names
        for caller in CALLERS:
            await self.renew(caller)

    async def renew(self, caller: tuple[str, str, Role, list[str]]) -> None:
        """Give a caller a key, also after a drawn request has revoked it."""
        name, tenant, role, scopes = caller
        self.keys[name] = await self.server.key(tenant, role, *scopes)
        self.names[f"key:{name}"] = self.keys[name].split("_")[1]

    async def ask(self, asked: Mapping[str, Any], shared: Mapping[str, str]) -> Any:
        """The answer to a request, without what always differs between two servers."""
        names = {**shared, **self.names}
        given = _with_names(asked, names)
        await self.server.audit.flush()
        for tenant in ("acme", "solo"):  # it brings counts and previews up to date
            await self.server.memory.for_tenant(tenant).sessions.list()
        answer = await self.server.call(self.keys[given.pop("caller")], **given)
        assert "Bob's secret" not in answer.text or "secret" in str(asked), (asked, answer.text)
        return _Plain(names).answer(answer)


class _Plain:
    """Answers without ids, moments and random texts."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._known = {value: name for name, value in names.items()}

    def answer(self, answer: httpx.Response) -> Any:
        headers = {
            name: "Link" if name == "link" else re.sub(r"/keys/\w+", "/keys/<key id>", self._text(value))
            for name, value in sorted(answer.headers.items())
            if name not in ("x-request-id", "content-length", "date")
        }
        kind = answer.headers.get("content-type", "")
        if kind.startswith("application/jsonl"):
            lines = [json.loads(line) for line in answer.text.splitlines()]
            return answer.status_code, headers, self._value(lines, "lines")
        if not kind.startswith(("application/json", "application/problem+json")):
            return answer.status_code, headers, answer.content
        return answer.status_code, headers, self._value(answer.json() if answer.content else None)

    def _value(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            if "role" in value and "scopes" in value:
                value = {**value, "id": "<key id>"}
            return {self._text(name): self._value(one, name) for name, one in sorted(value.items())}
        if isinstance(value, list):
            items = [self._value(one, field) for one in value]
            if items and isinstance(items[0], dict) and items[0].get("score") is not None:
                items = _without_ties(items)
            elif field in ("relations", "nodes", "entries", "scopes", "lines"):
                items.sort(key=json.dumps)  # several may be of one moment
            return items
        return self._single(value, field)

    def _single(self, value: Any, field: str) -> Any:
        if field in ("cursor", "instance", "key_id", "request_id", "started_at", "latency_ms"):
            return value is None
        if field == "existing_id" and value is not None and not UUID_TEXT.fullmatch(value):
            return "<key id>"
        if isinstance(value, int) and value > 10**12:
            return "<moment>"
        if isinstance(value, float):
            return round(value, 6)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, value: str) -> str:
        value = UUID_TEXT.sub(lambda found: self._known.get(found[0], "<id>"), value)
        value = _KEY.sub("<key>", _RANDOM.sub("<random>", value))
        value = _KEY_ID.sub(lambda found: self._known.get(found[0], found[0]), value)
        return MOMENT_TEXT.sub("<moment>", value)


def _without_ties(hits: list[Any]) -> list[Any]:
    """Hits in order; of those that share the least score only the score.

    Ids decide which of several equal hits are the last ones, and two servers differ.
    """
    least = min(one["score"] for one in hits)
    kept = sorted(
        (one for one in hits if one["score"] > least), key=lambda one: (-one["score"], json.dumps(one))
    )
    return [*kept, *[least for one in hits if one["score"] == least]]


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    """A drawn request with the ids of one server in place of their names."""
    if isinstance(value, dict):
        return {name: _with_names(one, names) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_names(one, names) for one in value]
    if isinstance(value, str):
        return re.sub(r"<<([^>]+)>>", lambda found: names[found[1]], value)
    return value


class Requests:
    """Draws requests from the description of the API."""

    def __init__(
        self, rng: random.Random, api: Mapping[str, Any], names: list[str], cursors: list[str]
    ) -> None:
        self._rng, self._schemas = rng, api["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in sorted(api["paths"].items())
            if not path.startswith(NOT_ASKED)
            for method, operation in sorted(methods.items())
        ]
        ids = [f"<<{name}>>" for name in names]
        entries = [one for one in ids if "entry:" in one or re.fullmatch(r"<<out:\d:\d>>", one)]
        links = [one for one in ids if "relation" in one]
        files = [one for one in ids if "artifact" in one]
        scopes = [*INSIDE, *INSIDE, *OUTSIDE, "user:nobody", "path:teams/red/", "path:teams/**"]
        sessions = ["s-ada-1", "s-ada-2", "s-bob", "s-bob-2", "s-none"]
        pools: dict[str, list[Any]] = {
            "entry_id source_id target_id": [*entries, UNKNOWN_ID, "#1", "1", "no id"],
            "entry_ids supersedes_ids ids": [*entries, UNKNOWN_ID],
            "relation_id": [*links, UNKNOWN_ID],
            "artifact_id": [*files, UNKNOWN_ID],
            "scope to target_scope messages_to reads prefix": scopes,
            "session_id conversation_id conversation child_id": sessions,
            "user": ["ada", "bob", "nobody"],
            "key keys": ["note-0", "note-2", "settings", "secret-0", "new"],
            "message_id last_id first last at": ["m1", "m2", "m3"],
            "task_id run_id": ["task-s-ada-1", "task-s-bob", "run-1"],
            "key_id": [*[f"<<key:{name}>>" for name, *_ in CALLERS], "nobody0000"],
            "tenant": ["acme", "solo", "other", "nobody", "~server"],
            "q query recall": ["tea", "secret tea", "bob's secret", ""],
            "source agent run origins": ["key:x", "helper", "source:web:a"],
            "text": ["/mem entries\n/mem search secret", "/mem add entry user drawn\nx\n/endmem"],
            "filter": ['{"tags": ["secret"]}', '{"metadata.n": 1}'],
            "name": ["case-1", "file"],
            "path": ["notes/tea.txt", "new.txt"],
            "cursor": cursors,
            "limit": [1, 2, 5],
        }
        self._pools = {name: values for several, values in pools.items() for name in several.split()}

    def draw(self) -> dict[str, Any]:
        while True:
            method, path, operation = self._rng.choice(self._operations)
            deletes = method == "DELETE" or re.search(r"/(delete|erase.*|clear|pop|end|archive)$", path)
            if not deletes or self._rng.random() < _KEEPS:
                return self._request(method, path, operation)

    def _request(self, method: str, path: str, operation: Mapping[str, Any]) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "caller": self._rng.choice(CALLERS)[0],
            "method": method,
            "params": {},
            "headers": {},
        }
        for one in operation.get("parameters", ()):
            value = self._value(one["name"], one["schema"])
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", str(value))
            elif one.get("required") or self._rng.random() < 0.25:
                if one["in"] == "query":
                    asked["params"][one["name"]] = value
                elif one["name"] == "If-Match":
                    asked["headers"]["If-Match"] = '"661729536934c"'
                elif one["name"] == "Idempotency-Key":
                    asked["headers"]["Idempotency-Key"] = self._rng.choice(["outside-0-0", "r1", "r2"])
        asked["path"] = path
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            asked["json"] = self._value("", content["application/json"]["schema"])
        elif content:
            asked["content"] = "{}\n"
            asked["headers"]["Content-Type"] = next(iter(content))
        return asked

    def _value(self, name: str, schema: Mapping[str, Any]) -> Any:
        """A value for a field: of a pool by its name, or else of its schema."""
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        kinds = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if kinds and name not in self._pools:
            return self._value(name, self._rng.choice(kinds))
        is_list = schema.get("type") == "array" or any(one.get("type") == "array" for one in kinds)
        if name in self._pools:
            pool = self._pools[name]
            return self._rng.choices(pool, k=2) if is_list else self._rng.choice(pool)
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if "properties" in schema:
            needed = schema.get("required", ())
            return {
                field: self._value(field, part)
                for field, part in schema["properties"].items()
                if field in needed or self._rng.random() < 0.3
            }
        if is_list:
            return [self._value("", schema.get("items", {}))]
        simple: dict[Any, Any] = {
            "integer": 1,
            "number": 0.5,
            "boolean": True,
            "object": {"role": "user", "content": "x"},
        }
        return simple.get(schema.get("type"), "drawn")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Placing, int]:
    """A topology and a seed."""
    chosen: tuple[Placing, int] = request.param
    return chosen


@pytest.fixture
async def servers(case: tuple[Placing, int], tmp_path: Path) -> AsyncIterator[list[Server]]:
    """A server with outside records, and one without."""
    clocks, places = [Clock(), Clock()], two_of(case[0], tmp_path)
    how: dict[str, Any] = {"embedder": "none", "durations": {"sweep_every": "0s"}}
    async with (
        Memory({**places[0], **how}, clock=clocks[0]) as first,
        Memory({**places[1], **how}, clock=clocks[1]) as second,
        key_server(first, rate=1e9, burst=10**9) as whole,
        key_server(second, rate=1e9, burst=10**9) as alone,
    ):
        found = [Server(whole, clocks[0]), Server(alone, clocks[1])]
        await found[0].fill(outside=True)
        await found[1].fill(outside=False)
        yield found
    for part in ("one", "two"):
        forget(tmp_path / part)


async def _outside(server: Server) -> tuple[list[Any], Any]:
    """Return all of the tenant `other`, and of `acme` what is outside of the scopes.

    The export comes first: it updates the records of sessions, or raises if a store
    fails. A list of sessions would show an earlier state then.
    """
    other = [line async for line in server.server.memory.for_tenant("other").admin.export()]
    return other, await server.acme.outside()


def _unpinned(outside: tuple[list[Any], Any]) -> tuple[list[Any], Any]:
    """Return what is outside once the session that entries there name has ended."""
    other, (entries, *rest) = outside
    pin = {"conversation_id": None, "number_in_conversation": None}
    unpinned = [{**one, **pin} if one["conversation_id"] == PINNED_TO else one for one in entries]
    assert unpinned != entries
    return other, (unpinned, *rest)


@pytest.mark.drawn
async def test_every_request_is_answered_as_if_nothing_outside_existed(
    case: tuple[Placing, int], servers: list[Server]
) -> None:
    whole, _ = servers
    print(f"seed {case[1]}")
    shared = {name: value for name, value in whole.names.items() if name.startswith("out:")}
    theirs = [await one.server.key("other", "writer") for one in servers]  # operators list keys of any tenant
    foreign = await whole.server.call(theirs[0], "GET", "/v1/memory/entries", params={"limit": 1})
    cursors = [foreign.json()["cursor"], "x"]
    rng = random.Random(case[1])  # noqa: S311
    requests = Requests(rng, whole.server.app.openapi(), sorted(whole.names), cursors)
    before = await _outside(whole)
    statuses: dict[int, int] = {}
    for number in range(REQUESTS + 1):
        asked = requests.draw() if number < REQUESTS else LAST
        for one in servers:
            one.clock.advance(DAY / 1_000)
            if asked is LAST:  # a drawn request may have revoked the key
                await one.renew(CALLERS[1])
        first, second = [await one.ask(asked, shared) for one in servers]
        if asked["path"].startswith(OF_ALL_TENANTS):
            first, second = (first[0], {}, {"code": ""}), (second[0], {}, {"code": ""})
        assert first == second, (number, asked, difference(first, second))
        if first[0] == 401:
            for caller in CALLERS:
                if caller[0] == asked["caller"]:
                    for one in servers:
                        await one.renew(caller)
        assert first[0] < 500 or first[2]["code"] == "invalid_config", (asked, first)
        statuses[first[0]] = statuses.get(first[0], 0) + 1
    after = await _outside(whole)
    possible = [_unpinned(before)]
    if first[0] == 404:  # a drawn request has deleted it, or let it expire, which unpins nothing yet
        possible.append(before)
    assert after in possible, difference(after, possible[0])
    assert {200, 400, 403, 404} <= statuses.keys(), statuses
