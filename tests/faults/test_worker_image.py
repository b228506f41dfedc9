"""The image: made from what is here without a network, it runs without rights, works
off what a process that died left behind, and serves HTTP and MCP.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.lease import Lease
from tests.support import postgres_servers, redis_servers, servers
from tests.support.backends import marks_of
from tests.unit.facade.test_upkeep import _forget_replica
from tools import image as images

pytestmark = marks_of("image", "redis", "postgresql")


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, made from the first of the images here that has what it
    takes: a Python of 3.11 or newer, and glibc.
    """
    name = f"memory-tiers:tests-{os.getpid()}"
    try:
        images.build(_base(), name)
        yield name
    finally:
        subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True)


def _base() -> images.Base:
    unfit = []
    for name in servers.bases():
        try:
            return images.Base.asked(name)
        except images.Unfit as reason:
            unfit.append(str(reason))
    pytest.skip(f"{'; '.join(unfit)} (name an image in {servers.BASE.variable})")


@contextmanager
def working(
    image: str, environment: dict[str, str], *words: str, entrypoint: str = "memory"
) -> Iterator[str]:
    """A container of the image that runs the command, on the network of this machine."""
    given = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    container = docker(
        "run",
        "--detach",
        "--network",
        "host",
        "--label",
        f"{servers.OWNER}={servers.owner()}",
        "--entrypoint",
        entrypoint,
        *given,
        image,
        *words,
    )
    try:
        yield container
    finally:
        docker("rm", "--force", "--volumes", container)


def test_it_needs_no_right_no_network_and_no_disk_but_its_home(image: str) -> None:
    user = docker("image", "inspect", "--format", "{{.Config.User}}", image)
    assert all(int(number) > 0 for number in user.split(":"))
    bare = ("run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL")
    written = json.loads(
        docker(*bare, image, "write", "Ada prefers tea to coffee", "--scope", "user:ada", "--json")
    )
    assert written["content"] == "Ada prefers tea to coffee"


async def test_it_does_what_a_process_that_died_left_and_ends_when_asked_to(image: str) -> None:
    server = postgres_servers.container()
    tiers = {
        "short": f"redis://127.0.0.1:{redis_servers.durable().port}?prefix=image",
        "mid": server.url(schema="image_mid"),
        "long": server.url(schema="image_long"),
    }
    config: dict[str, Any] = {"tiers": tiers, "durations": {"sweep_every": "0s", "lease": "3s"}}
    environment = {f"MEMORY__TIERS__{tier.upper()}": url for tier, url in tiers.items()}
    async with Memory(config) as dead, Memory(config) as memory:
        entry = await memory.write("the ferry runs on Sundays", scope="user:ada", consistency="replicated")
        await _forget_replica(config, entry.id)
        await Lease(engine_of(dead).placement).hold()
        with working(image, environment, "worker", "--every", "500ms") as worker:
            async with asyncio.timeout(60):
                while len(await memory.admin.where(entry.id)) < 2:
                    assert docker("inspect", "--format", "{{.State.Running}}", worker) == "true", docker(
                        "logs", worker
                    )
                    await asyncio.sleep(0.1)
            docker("stop", "--time", "30", worker)
            assert docker("inspect", "--format", "{{.State.ExitCode}}", worker) == "0"


def test_it_serves_http_and_mcp_with_keys_and_ends_when_asked_to(image: str) -> None:
    script = "memory keys create --role operator --json > key.json && exec memory serve --port 0"
    with working(image, {}, "-c", script, entrypoint="sh") as server:
        ends = time.monotonic() + 60
        while not (address := docker("logs", server)) and time.monotonic() < ends:
            time.sleep(0.1)
        key = json.loads(docker("exec", server, "cat", "key.json"))["key"]
        with httpx.Client(base_url=address.removeprefix("serving ")) as http:
            assert http.get("/v1/scopes").status_code == 401
            http.headers["Authorization"] = f"Bearer {key}"
            written = http.post(
                "/v1/memory/entries", json={"scope": "user:ada", "content": "Ada prefers tea to coffee"}
            )
            assert written.status_code == 201, written.text
            listed = http.post(
                "/mcp",
                json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
                headers={"Accept": "application/json, text/event-stream"},
            )
            assert "search_memory" in {one["name"] for one in listed.json()["result"]["tools"]}
            assert "memory_http_requests_total" in http.get("/metrics").text
        docker("stop", "--time", "30", server)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", server) == "0"
