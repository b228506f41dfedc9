"""The topologies under compose/: each has a configuration beside it that fits, and
exposes nothing beyond this machine.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from memory.facade.config.settings import MemoryConfig, load
from memory.facade.config.values import scheme_of
from memory.facade.runtime.build import adapter_for
from tests.support.servers import IMAGES
from tools.compose import OWN

FOLDER = Path(__file__).resolve().parents[2] / "compose"
TOPOLOGIES = sorted(FOLDER.glob("*.yaml"))
PORT = re.compile(r"127\.0\.0\.1:(\d+):\1")


def services(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The servers of stores, and the services of this project's own image."""
    servers: dict[str, Any] = yaml.safe_load(file.read_text())["services"]
    return servers, {name: servers.pop(name) for name in OWN}


def asked_ports(config: MemoryConfig) -> set[int]:
    """Every port that the configuration's stores are asked on."""
    places = chain.from_iterable(
        urlsplit(store.url).netloc.rpartition("@")[2].split(",") for store in config.stores_in_use()
    )
    return {int(place.rpartition(":")[2]) for place in places}


def listening(service: dict[str, Any]) -> set[int]:
    """The ports of this machine that a service takes: those it publishes, or any that
    its command or environment names on the host's network.
    """
    if service.get("network_mode") != "host":
        return {int(found[1]) for port in service["ports"] if (found := PORT.fullmatch(port))}
    said = [str(part) for part in (*service["command"], *service.get("environment", {}).values())]
    return {int(part) for part in said if part.isdigit()}


def test_there_are_topologies() -> None:
    assert {file.stem for file in TOPOLOGIES} >= {
        "redis-postgres-qdrant",
        "postgres-only",
        "redis-mongo-qdrant",
        "redis-mysql-qdrant",
        "cluster",
    }


@pytest.mark.parametrize("file", TOPOLOGIES, ids=lambda file: file.stem)
def test_the_configuration_beside_it_finds_its_servers(file: Path) -> None:
    config = MemoryConfig.load(file.with_suffix(".toml"))
    offered = set().union(*(listening(service) for service in services(file)[0].values()))
    assert asked_ports(config) <= offered
    for store in config.stores_in_use():
        adapter = adapter_for(scheme_of(store.url) or "", store.name)
        adapter.build(store.name, store.url, store.options)


@pytest.mark.parametrize("file", TOPOLOGIES, ids=lambda file: file.stem)
def test_every_server_is_watched_and_reachable_from_this_machine_only(file: Path) -> None:
    for name, service in services(file)[0].items():
        assert service["healthcheck"]["test"], name
        if service.get("network_mode") == "host":
            said = [*service["command"], *service.get("environment", {}).values()]
            assert any("127.0.0.1" in str(part) for part in said), f"{name} listens everywhere"
        else:
            assert all(PORT.fullmatch(port) for port in service["ports"]), name
        for volume in service["volumes"]:
            assert volume.partition(":")[0] in yaml.safe_load(file.read_text())["volumes"], name


@pytest.mark.parametrize("file", TOPOLOGIES, ids=lambda file: file.stem)
def test_images_are_those_that_are_tested_and_can_be_replaced(file: Path) -> None:
    known = {f"${{{image.variable}:-{image.default}}}" for image in IMAGES.values()}
    assert {service["image"] for service in services(file)[0].values()} <= known


@pytest.mark.parametrize("file", TOPOLOGIES, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", OWN)
def test_its_own_services_have_the_same_configuration_with_the_servers_by_their_names(
    file: Path, name: str
) -> None:
    servers, own = services(file)
    service = own[name]
    assert service["volumes"] == [f"./{file.stem}.toml:{service['environment']['MEMORY_CONFIG']}:ro"]
    here = load(file.with_suffix(".toml"), environ={})
    inside = load(file.with_suffix(".toml"), environ=service["environment"])
    on_host = service.get("network_mode") == "host"
    for store, there in zip(here.stores_in_use(), inside.stores_in_use(), strict=True):
        assert on_host or store.name in servers
        assert there.url == (store.url if on_host else store.url.replace("127.0.0.1", store.name))


@pytest.mark.parametrize("file", TOPOLOGIES, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", OWN)
def test_its_own_services_run_only_where_asked_for_and_after_every_server(file: Path, name: str) -> None:
    servers, own = services(file)
    assert own[name]["profiles"] == [name]
    assert own[name]["depends_on"] == {name: {"condition": "service_healthy"} for name in servers}
    (default,) = re.findall(r"(?m)^IMAGE \?= (\S+)$", (FOLDER.parent / "Makefile").read_text())
    assert own[name]["image"] == f"${{MEMORY_WORKER_IMAGE:-{default}}}"


@pytest.mark.parametrize("file", TOPOLOGIES, ids=lambda file: file.stem)
def test_its_http_server_needs_keys_and_is_reachable_from_this_machine_only(file: Path) -> None:
    serve = services(file)[1]["serve"]
    command, *options = serve["command"]
    assert command == "serve"
    assert "--dev" not in options
    if serve.get("network_mode") == "host":
        assert not options  # it listens on 127.0.0.1
    else:
        assert serve["ports"] == ["127.0.0.1:8080:8080"]
    assert "/health/ready" in serve["healthcheck"]["test"][-1]
