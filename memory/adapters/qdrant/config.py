"""Capabilities and options of the Qdrant adapter, readable without a driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import unquote, urlsplit

from pydantic import Field
from pydantic.dataclasses import dataclass

from memory.adapters.qdrant.thresholds import THRESHOLDS, Thresholds
from memory.ports.capabilities import Capabilities
from memory.ports.local_paths import absolute_path, local_path
from memory.ports.options import Count, Flag, MaybeCount, MaybeText, StoreOptions, Text, Whole, wrong
from memory.ports.record import JsonValue

CLAIMS = Capabilities(
    durable=True,
    shared=True,
    conditional=True,
    filter=True,
    order=True,
    tenant_wide=True,
    lexical=True,
    semantic=True,
    tenant_statistics=True,
    fenced=True,
    max_vector_dims=65_535,
)
EDGE_CLAIMS = replace(CLAIMS, shared=False)
SERVER_CLAIMS = replace(CLAIMS, fenced=False, max_record_bytes=2 * 2**20)
"""Capabilities of a server.

A server accepts requests of 32 MiB. A record of short, distinct words takes 10 times
its size with its search data. A record cannot be conditional on its partition's
generation, which is another point (see `batch`).
"""
LOCAL_CLAIMS = replace(CLAIMS, durable=False, shared=False, fenced=False)

EDGE, SERVER, SERVER_BY_TLS = "qdrant+edge", "qdrant", "qdrants"
SCHEMES = (SERVER, SERVER_BY_TLS, EDGE)


@dataclass(frozen=True, slots=True)
class EdgeConfig(StoreOptions):
    """A folder of Qdrant Edge.

    Args:
        log_bytes: Approximate size of the log before it is truncated, which takes about
            a second.
        reserve_bytes: With less free space on the disk, nothing is written
            (`StoreFull`). Edge writes through mapped memory, so a full disk kills the
            process. Deletions may use half of the reserve.
    """

    where: ClassVar[frozenset[str]] = frozenset({"path", "thresholds"})
    product: ClassVar[str] = "a folder of Qdrant Edge"
    path: Path
    log_bytes: Annotated[Whole, Field(ge=2**20, description=f"a whole number of at least {2**20}")] = (
        256 * 2**20
    )
    reserve_bytes: Whole = 128 * 2**20
    thresholds: Thresholds = THRESHOLDS


@dataclass(frozen=True, slots=True)
class ServerConfig(StoreOptions):
    """A Qdrant server, or the client's local mode for tests (`host` of None).

    Args:
        collection: Qdrant collection for all data.
        timeout: Seconds after which a call raises `StoreTimeout`.
        shard_key: Shard key for all data, for collections with custom sharding.
        shard_number: Number of shards (default 1), used when the collection is created.
            Later, this and the next two must equal the collection's.
        replication_factor: The server's setting.
        write_consistency_factor: The server's setting.
        exact: Search without the vector index: slower, but misses nothing.
    """

    where: ClassVar[frozenset[str]] = frozenset({"host", "port", "prefix", "thresholds"})
    product: ClassVar[str] = "a Qdrant store of this kind"
    host: str | None
    port: int = 6333
    https: Flag = False
    prefix: str = ""
    api_key: MaybeText = Field(default=None, repr=False)
    collection: Text = "memory"
    timeout: Count = 10
    shard_key: MaybeText = None
    shard_number: MaybeCount = None
    replication_factor: MaybeCount = None
    write_consistency_factor: MaybeCount = None
    exact: Flag = False
    thresholds: Thresholds = THRESHOLDS


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> EdgeConfig | ServerConfig:
    """Parse a URL; options may be in its query part or separate.

        qdrant+edge:///absolute/folder (or qdrant:///…), qdrant+edge:relative/folder
        qdrant://host[:6333][/prefix]
        qdrants://host (TLS, as with https=true)
        qdrant://:memory: (tests)

    See `memory.ports.local_paths` for paths.
    """
    scheme, colon, rest = url.partition(":")
    if scheme not in SCHEMES or not (rest.startswith("//") or (scheme == EDGE and colon)):
        raise wrong(
            name, "the URL of a Qdrant store begins with 'qdrant://', 'qdrants://' or 'qdrant+edge:///'"
        )
    place, _, query = rest.partition("?")
    if scheme == EDGE or (scheme == SERVER and place.startswith("///")):
        folder = local_path(url)
        if folder is None or not folder.strip("/"):
            raise wrong(
                name,
                "write 'qdrant+edge:///' and the absolute path of the folder, or"
                " 'qdrant+edge:relative/folder'",
            )
        return EdgeConfig.read(name, query, options, path=absolute_path(unquote(folder)))
    place = place.removeprefix("//")
    if place == ":memory:":
        return ServerConfig.read(name, query, options, among=("collection",), host=None)
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:  # its text repeats parts of the URL
        raise wrong(name, "the URL's host and port cannot be read; write 'qdrant://host:6333'") from None
    if not host or parts.username is not None or parts.password is not None:
        raise wrong(name, "write 'qdrant://host:6333'; a key goes into the option api_key")
    prefix = unquote(parts.path.strip("/"))
    config = ServerConfig.read(
        name, query, options, host=host, port=port or 6333, https=scheme == SERVER_BY_TLS, prefix=prefix
    )
    confirmations, replicas = config.write_consistency_factor or 1, config.replication_factor
    if replicas is not None and confirmations > replicas:
        raise wrong(
            name,
            f"write_consistency_factor={confirmations} is more than the number of replicas ({replicas});"
            " lower it",
        )
    return config


def claims_of(config: EdgeConfig | ServerConfig) -> Capabilities:
    if isinstance(config, EdgeConfig):
        return EDGE_CLAIMS
    return LOCAL_CLAIMS if config.host is None else SERVER_CLAIMS
