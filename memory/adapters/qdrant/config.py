"""What the Qdrant adapter can do at best, and its configuration; readable without a
driver.
"""

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
"""A server takes requests of 32 MiB, and a record of short words that all differ takes
10 times its size, with what it is found by. A server cannot make a record conditional
on its partition's generation, which is another point (see `batch`).
"""
LOCAL_CLAIMS = replace(CLAIMS, durable=False, shared=False, fenced=False)

EDGE, SERVER, SERVER_BY_TLS = "qdrant+edge", "qdrant", "qdrants"
SCHEMES = (SERVER, SERVER_BY_TLS, EDGE)


@dataclass(frozen=True, slots=True)
class EdgeConfig(StoreOptions):
    """A folder of Qdrant Edge.

    `log_bytes`: about how much is logged before the log is cut, which takes about a
    second. `reserve_bytes`: with less than this free on its disk nothing is written
    (`StoreFull`), because Edge does not survive a full disk: it writes through mapped
    memory, and the system then kills the process. Deletions may use half of it.
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
    """A Qdrant server, or the client's local mode (`host` of None), which is for tests.

    `collection` is the Qdrant collection everything is kept in. `timeout` is how many
    seconds a call may take before it fails as `StoreTimeout`. `shard_key` sends
    everything to the shards of that key, for collections sharded by hand.
    `shard_number` (1 if not given), `replication_factor` and `write_consistency_factor`
    are the server's, used when the collection is made; later they must be what the
    collection has. `exact` searches without the vector index: slower, and misses
    nothing.
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
    """The config of one of these, with options in the query part or apart:

    qdrant+edge:///absolute/folder (or qdrant:///…), qdrant+edge:relative/folder (see
    `memory.ports.local_paths`) qdrant://host[:6333][/prefix], qdrants://host (TLS, as with
    https=true) qdrant://:memory: (tests)
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
                "write 'qdrant+edge:///' and the absolute path of the folder, or 'qdrant+edge:relative/folder'",
            )
        return EdgeConfig.read(name, query, options, path=absolute_path(unquote(folder)))
    place = place.removeprefix("//")
    if place == ":memory:":
        return ServerConfig.read(name, query, options, among=("collection",), host=None)
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:  # whose text repeats what stands in the URL
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
            f"write_consistency_factor={confirmations} asks for more confirmations than there are replicas ({replicas})",
        )
    return config


def claims_of(config: EdgeConfig | ServerConfig) -> Capabilities:
    if isinstance(config, EdgeConfig):
        return EDGE_CLAIMS
    return LOCAL_CLAIMS if config.host is None else SERVER_CLAIMS
