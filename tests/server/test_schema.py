"""The description of the API: whole, true, and kept by the server's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.datastructures import Headers

from memory.domain.scope import Scope
from memory.facade.config.server import ServerSettings
from memory.facade.memory import Memory
from memory.server.app import create_app
from memory.server.callers import Caller, DevAuthenticator, Unauthenticated
from tests.server.support import ENTRIES, client_of
from tests.support.backends import marks_of
from tests.support.depth import FIRST_SEED, NIGHTLY
from tests.support.placings import STORIES, forget

KEY = {"Authorization": "Bearer right"}
EXAMPLES, WALKS = (4, 20) if NIGHTLY else (1, 2)
ERASING = "/v1/admin/tenants/{tenant}"
"""It would erase what the stories are about."""
PATIENCE = 300
"""Seconds. A vacuum of Edge waits for the disk."""
EXCLUDED = [positive_data_acceptance]
"""A schema cannot say which scopes, files and ends of relations exist."""
NOT_IN_A_QUERY = {
    schemathesis.GenerationMode.POSITIVE: (dict,),
    schemathesis.GenerationMode.NEGATIVE: (dict, list),
}
"""Values that are sent as their texts, which are right where a text is asked for."""
DRAWN = settings(
    max_examples=EXAMPLES,
    derandomize=not NIGHTLY,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


def seeded(test: Any) -> Any:
    """Draw as SIMULATION_FIRST says in `make nightly`."""
    return hypothesis.seed(FIRST_SEED)(test) if NIGHTLY else test


@schemathesis.serializer("application/jsonl")
def as_bytes(_context: Any, value: Any) -> bytes:
    """A drawn body of lines as it is sent."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


class OneKey:
    """Takes one key, so that schemathesis can leave it out and send wrong ones."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._tenants = memory, 0
        self._dev = DevAuthenticator(memory, Scope.user("ada"))

    def move_to_new_tenant(self) -> None:
        """Let the key be of a tenant of which nothing is stored."""
        self._tenants += 1
        self._dev = DevAuthenticator(self._memory.for_tenant(f"story-{self._tenants}"), Scope.user("ada"))

    async def authenticate(self, headers: Headers) -> Caller:
        if headers.get("authorization") != KEY["Authorization"]:
            raise Unauthenticated
        return await self._dev.authenticate(headers)


def in_memory(folder: Path) -> Any:
    return "memory://"


PLACES = [
    pytest.param(in_memory, id="in-memory", marks=pytest.mark.backend("in_memory")),
    pytest.param(
        STORIES[0].config, id=STORIES[0].name, marks=[*marks_of(*STORIES[0].backends), pytest.mark.nightly]
    ),
]


@pytest.fixture(scope="module", params=PLACES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FastAPI, OneKey]]:
    folder = tmp_path_factory.mktemp("schema")
    memory = Memory(request.param(folder), loop="own")
    asyncio.run(memory.open())
    key = OneKey(memory)
    yield create_app(memory, ServerSettings(rate=1e6, burst=10**6), key), key
    asyncio.run(memory.close())
    forget(folder)


@pytest.fixture(scope="module")
def app(served: tuple[FastAPI, OneKey]) -> FastAPI:
    return served[0]


@pytest.fixture(scope="module")
def schema(app: FastAPI) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def operations(schema: Any) -> list[Any]:
    return [found.ok() for found in schema.get_all_operations()]


@pytest.mark.drawn
def test_drawn_requests_are_answered_as_the_description_says(schema: Any) -> None:
    """Valid and invalid requests, wrong keys, wrong methods: all checks of schemathesis."""
    print(f"seed {FIRST_SEED}")
    seen, failures = 0, list[str]()
    for operation in operations(schema):
        for mode, as_texts in NOT_IN_A_QUERY.items():

            @seeded
            @DRAWN
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def check(case: Any) -> None:
                nonlocal seen
                seen += 1
                hypothesis.assume(
                    not any(isinstance(one, as_texts) for one in (case.query or {}).values())  # noqa: B023
                )
                case.call_and_validate(headers=KEY, excluded_checks=EXCLUDED, timeout=PATIENCE)

            try:
                check()
            except hypothesis.errors.Unsatisfiable:
                assert mode is schemathesis.GenerationMode.NEGATIVE  # nothing of it can be wrong
            except BaseExceptionGroup as error:
                failures += [f"{operation.label} {mode.name}: {one}" for one in error.exceptions]
    assert not failures, "\n\n".join(failures)
    assert seen > len(operations(schema)) * EXAMPLES


@pytest.mark.drawn
def test_stories_along_the_links_are_answered_as_the_description_says(
    schema: Any, served: tuple[FastAPI, OneKey]
) -> None:
    """What is created is there, and what is deleted is not. Stories that begin alike
    go on alike, as Hypothesis demands: each has a tenant of its own.
    """
    machine = schema.exclude(path=ERASING).as_state_machine()

    @seeded
    class Story(machine):  # type: ignore[valid-type, misc]
        def setup(self) -> None:
            served[1].move_to_new_tenant()

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": KEY, "timeout": PATIENCE}

        def validate_response(self, response: Any, case: Any, **kwargs: Any) -> None:
            case.validate_response(response, excluded_checks=EXCLUDED)

    run_state_machine_as_test(
        Story,
        settings=settings(DRAWN, max_examples=WALKS, stateful_step_count=8),
    )


def test_the_description_is_whole(app: FastAPI) -> None:
    made = app.openapi()
    assert made["openapi"].startswith("3.1")
    names = [operation["operationId"] for path in made["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert {"4XX", "5XX"} <= operation["responses"].keys(), where
            assert "422" not in operation["responses"], where
            assert ("security" in operation) != path.startswith("/health"), where
            headers = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "header"}
            if method == "post" and not path.endswith(("/search", "/commands")):
                assert "Idempotency-Key" in headers, where


async def test_examples_of_bodies_are_accepted(schema: Any) -> None:
    """Each body that has an example in the description can be sent as it is."""
    bodies = schema.raw_schema["components"]["schemas"]
    async with Memory("memory://") as memory, client_of(memory) as client:
        made = await client.call("POST", ENTRIES, 201, json=bodies["NewEntry"]["examples"][0])
        for example in bodies["EntryChanges"]["examples"]:
            await client.call("PATCH", f"{ENTRIES}/{made['id']}", json=example)


async def test_answers_of_a_filled_memory_match_the_description(schema: Any) -> None:
    async with Memory("memory://") as memory, client_of(memory) as client:
        await memory.sessions.create("s1", user="ada")

        async def match(method: str, path: str, query: str = "", **given: Any) -> Any:
            values = given.pop("of", {})
            answer = await client.answer(method, path.format(**values) + query, **given)
            assert answer.status_code < 300, answer.text
            schema[path][method].validate_response(answer)
            return answer.json() if "json" in answer.headers["content-type"] else None

        one, two = [
            await match("POST", ENTRIES, json={"content": f"tea {n}", "title": "Tea", "tags": ["a"]})
            for n in range(2)
        ]
        new = {"content": "tea", "supersedes_ids": [two["id"]], "metadata": {"n": 1}, "data": [1]}
        three = await match("POST", ENTRIES, json=new)
        octets = {"Content-Type": "application/octet-stream"}
        where = "?session_id=s1&path=a.md"
        file = await match("PUT", "/v1/memory/artifacts", where, content=b"#", headers=octets)
        link = {"source_id": one["id"], "target_id": three["id"], "relation": "refines"}
        made = await match("POST", "/v1/memory/relations", json=link)
        of_one, of_file = {"entry_id": one["id"]}, {"artifact_id": file["id"]}
        await match("PATCH", ENTRIES + "/{entry_id}", of=of_one, json={"artifact_id": file["id"]})
        await match("GET", ENTRIES + "/{entry_id}", "?short_id=on", of=of_one)
        for part in ("history", "enrichment", "expand", "density", "messages"):
            await match("GET", ENTRIES + "/{entry_id}/" + part, of=of_one)
        await match("GET", ENTRIES, "?limit=1&short_id=on")
        await match("GET", ENTRIES, "?q=tea&explain=on")
        await match("POST", "/v1/memory/search", json={"query": "tea", "explain": True})
        await match("POST", ENTRIES + "/batch", json={"entries": [{"content": "x"}]})
        await match("GET", "/v1/memory/relations")
        await match("GET", "/v1/memory/graph")
        await match("GET", "/v1/memory/artifacts", "?session_id=s1")
        await match("GET", "/v1/memory/artifacts/{artifact_id}", of=of_file)
        await match("GET", "/v1/memory/artifacts/{artifact_id}/raw", of=of_file)
        await match("POST", "/v1/memory/scratchpad", json={"text": "x"})
        await match("GET", "/v1/memory/scratchpad")
        await match("DELETE", "/v1/memory/scratchpad")
        await match("DELETE", "/v1/memory/artifacts/{artifact_id}", of=of_file)
        await match("DELETE", "/v1/memory/relations/{relation_id}", of={"relation_id": made["id"]})
        await match("POST", ENTRIES + "/{entry_id}/invalidate", of=of_one)
        await match("DELETE", ENTRIES + "/{entry_id}", of=of_one)
        await match("POST", ENTRIES + "/delete", json={"filter": {"types": ["context"]}})
        await match("GET", "/health/ready")
        await match("DELETE", ERASING, of={"tenant": "default"})
