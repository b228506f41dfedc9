"""Capabilities and options of the adapter, readable without redis-py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote

from pydantic import Field
from pydantic.dataclasses import dataclass

from memory.adapters.redis.thresholds import THRESHOLDS, Thresholds
from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.options import Count, Flag, MaybeText, Seconds, SecondsOrZero, StoreOptions, Whole, wrong
from memory.ports.record import JsonValue

CLAIMS = Capabilities(
    durable=True,
    shared=True,
    ttl=True,
    conditional=True,
    atomic=True,
    grouped=True,
    filter=True,
    order=True,
    tenant_wide=True,
    fenced=True,
)
"""Capabilities at best.

`durable` depends on the server's settings at open (see `settings`). `atomic` is off on
a cluster, where a call may touch several nodes.
"""

SCHEMES = (
    "redis",
    "rediss",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "valkey",
    "valkeys",
)
_ALIASES = {"valkey": "redis", "valkeys": "rediss"}
Prefix = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="made of up to 64 letters, digits, '_', '.' and '-'"
    ),
]
_PORTS = {"sentinel": 26379}


@dataclass(frozen=True, slots=True)
class RedisConfig(StoreOptions):
    """Location and options of a server. All times are in seconds.

    Args:
        kind: "single", "sentinel" or "cluster".
        nodes: The server, the sentinels, or some nodes of the cluster.
        timeout: Limit of each round trip. It includes waiting for a connection and
            connecting.
        connect_timeout: Limit of connecting.
        connections: Most connections at a time.
        prefix: Start of every key. Stores with different prefixes may share a server.
        grace: Time after its end when the server drops a cached copy, mark or
            tombstone.
        cache_bytes: Most bytes that the process caches of recently searched partitions.
    """

    where: ClassVar[frozenset[str]] = frozenset({"kind", "nodes", "database", "service", "tls", "thresholds"})
    product: ClassVar[str] = "a Redis store"
    kind: str
    nodes: tuple[tuple[str, int], ...]
    database: int = 0
    service: str = ""
    tls: bool = False
    username: MaybeText = None
    password: MaybeText = Field(default=None, repr=False)
    sentinel_username: MaybeText = None
    sentinel_password: MaybeText = Field(default=None, repr=False)
    prefix: Prefix = "memory"
    timeout: Seconds = 5.0
    connect_timeout: Seconds = 2.0
    connections: Count = 32
    grace: SecondsOrZero = 600.0
    cache_bytes: Whole = 256 * 2**20
    tls_ca: MaybeText = None
    tls_cert: MaybeText = None
    tls_key: MaybeText = None
    tls_check_hostname: Flag = True
    thresholds: Thresholds = THRESHOLDS

    @property
    def place(self) -> str:
        """Location for messages, without user and password."""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes)
        return f"{hosts}/{self.service}" if self.service else hosts


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> RedisConfig:
    """Parse a URL; options may be in its query part or separate.

        redis://[user:password@]host[:port][/database]
        redis+sentinel://[user:password@]host[:port][,host…]/service[/database]
        redis+cluster://[user:password@]host[:port][,host…]

    `rediss` instead of `redis` uses TLS. `valkey://` and `valkeys://` mean `redis://`
    and `rediss://`. User and password are the server's; options name those of the
    sentinels.
    """
    return _UrlParser(name).config(url, options)


class _UrlParser:
    """Parses one URL. Errors name the store and never repeat the URL."""

    def __init__(self, name: str) -> None:
        self._name = name

    def config(self, url: str, options: Mapping[str, JsonValue]) -> RedisConfig:
        scheme, separator, rest = url.partition("://")
        if not separator or scheme not in SCHEMES:
            raise self._wrong(
                f"the URL of a Redis store begins with one of {', '.join(s + '://' for s in SCHEMES)}"
            )
        protocol, _, kind = _ALIASES.get(scheme, scheme).partition("+")
        rest, _, query = rest.partition("?")
        authority, _, path = rest.partition("/")
        credentials, at, hosts = authority.rpartition("@")
        user, _, password = credentials.partition(":")
        nodes = tuple(self._node(host, _PORTS.get(kind, 6379)) for host in hosts.split(","))
        if not kind and len(nodes) > 1:
            raise self._wrong("several hosts need redis+sentinel:// or redis+cluster://")
        found: dict[str, Any] = (
            {"username": unquote(user) or None, "password": unquote(password) or None} if at else {}
        )
        found |= self._path(kind, path)
        if kind == "cluster" and found.get("database"):
            raise self._wrong("a cluster has only database 0; remove the number")
        return RedisConfig.read(
            self._name, query, options, kind=kind or "single", nodes=nodes, tls=protocol == "rediss", **found
        )

    def _node(self, text: str, port: int) -> tuple[str, int]:
        matched = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]\s]+))(?::(\d{1,5}))?", text)
        if matched is None or int(matched[3] or port) > 65_535:
            raise self._wrong("a host is written as 'name', 'name:port' or '[IPv6]:port'")
        return unquote(matched[1] or matched[2]), int(matched[3] or port)

    def _path(self, kind: str, path: str) -> dict[str, Any]:
        parts = [unquote(part) for part in path.split("/") if part]
        found: dict[str, Any] = {}
        if kind == "sentinel":
            if not parts:
                raise self._wrong("a sentinel URL names the service: redis+sentinel://host/service")
            found["service"] = parts.pop(0)
        if parts:
            if not parts[0].isdecimal() or len(parts) > 1:
                raise self._wrong("after the host, write the database number or nothing")
            found["database"] = int(parts[0])
        return found

    def _wrong(self, problem: str) -> ConfigError:
        return wrong(self._name, problem)
