"""What the Qdrant adapter can do at best, and its configuration; readable without a driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from memory.adapters.qdrant.thresholds import THRESHOLDS, Thresholds
from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.local import local_path
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
SERVER_CLAIMS = replace(CLAIMS, fenced=False, max_record_bytes=12 * 2**20)
"""A server takes requests of 32 MiB; as JSON in JSON a record can take twice its size and more. It cannot make a record conditional on its
partition's generation, which is another point (see `applying`)."""
LOCAL_CLAIMS = replace(CLAIMS, durable=False, shared=False, fenced=False)

EDGE, SERVER, SERVER_BY_TLS = "qdrant+edge", "qdrant", "qdrants"
SCHEMES = (SERVER, SERVER_BY_TLS, EDGE)


@dataclass(frozen=True, slots=True)
class EdgeConfig:
    """A folder of Qdrant Edge.

    `log_bytes`: about how much is logged before the log is cut, which takes about a second. `reserve_bytes`: with less than this free on its
    disk nothing is written (`StoreFull`), because Edge does not survive a full disk: it writes through mapped memory, and the system then
    kills the process. Deletions may use half of it.
    """

    path: Path
    log_bytes: int = 256 * 2**20
    reserve_bytes: int = 128 * 2**20
    thresholds: Thresholds = THRESHOLDS


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A Qdrant server, or the client's local mode (`host` of None), which is for tests.

    `collection` is the Qdrant collection everything is kept in. `timeout` is how many seconds a call may take before it fails as
    `StoreTimeout`. `shard_key` sends everything to the shards of that key, for collections sharded by hand; `shard_number`,
    `replication_factor` and `write_consistency_factor` are the server's, used when the collection is made. `exact` searches without the
    vector index: slower, and misses nothing.
    """

    host: str | None
    port: int = 6333
    https: bool = False
    prefix: str = ""
    api_key: str | None = field(default=None, repr=False)
    collection: str = "memory"
    timeout: int = 10
    shard_key: str | None = None
    shard_number: int | None = None
    replication_factor: int | None = None
    write_consistency_factor: int | None = None
    exact: bool = False
    thresholds: Thresholds = THRESHOLDS


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> EdgeConfig | ServerConfig:
    """The config of one of these, with options in the query part or apart:

    qdrant+edge:///absolute/folder (or qdrant:///…), qdrant+edge:relative/folder (see `memory.ports.local`)
    qdrant://host[:6333][/prefix], qdrants://host (TLS, as with https=true)
    qdrant://:memory: (tests)
    """
    scheme, colon, rest = url.partition(":")
    if scheme not in SCHEMES or not (rest.startswith("//") or (scheme == EDGE and colon)):
        raise ConfigError(f"store '{name}': the URL of a Qdrant store begins with 'qdrant://', 'qdrants://' or 'qdrant+edge:///'")
    place, _, query = rest.partition("?")
    given: dict[str, JsonValue] = {**dict(parse_qsl(query, keep_blank_values=True)), **options}
    in_a_folder = scheme == EDGE or (scheme == SERVER and place.startswith("///"))
    config = _edge(name, local_path(url), given) if in_a_folder else _server(name, scheme, place.removeprefix("//"), given)
    if given:
        raise ConfigError(f"store '{name}': a Qdrant store of this kind has no option {', '.join(map(repr, sorted(given)))}")
    return config


def claims_of(config: EdgeConfig | ServerConfig) -> Capabilities:
    if isinstance(config, EdgeConfig):
        return EDGE_CLAIMS
    return LOCAL_CLAIMS if config.host is None else SERVER_CLAIMS


def _edge(name: str, place: str | None, given: dict[str, JsonValue]) -> EdgeConfig:
    if place is None or not place.strip("/"):
        raise ConfigError(f"store '{name}': write 'qdrant+edge:///' and the absolute path of the folder, or 'qdrant+edge:relative/folder'")
    return EdgeConfig(
        Path(unquote(place)).expanduser(),
        _whole(name, "log_bytes", given.pop("log_bytes", 256 * 2**20), 2**20),
        _whole(name, "reserve_bytes", given.pop("reserve_bytes", 128 * 2**20), 0),
    )


def _server(name: str, scheme: str, place: str, given: dict[str, JsonValue]) -> ServerConfig:
    if place == ":memory:":
        return ServerConfig(None, collection=_text(name, "collection", given.pop("collection", "memory")))
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:  # whose text repeats what stands in the URL
        raise ConfigError(f"store '{name}': the URL's host and port cannot be read; write 'qdrant://host:6333'") from None
    if not host or parts.username is not None or parts.password is not None:
        raise ConfigError(f"store '{name}': write 'qdrant://host:6333'; a key goes into the option api_key")
    https = _yes(name, "https", given.pop("https", scheme == SERVER_BY_TLS))
    return ServerConfig(
        host,
        port or 6333,
        https,
        unquote(parts.path.strip("/")),
        _maybe_text(name, "api_key", given.pop("api_key", None)),
        _text(name, "collection", given.pop("collection", "memory")),
        _whole(name, "timeout", given.pop("timeout", 10), 1),
        _maybe_text(name, "shard_key", given.pop("shard_key", None)),
        _maybe_whole(name, "shard_number", given),
        _maybe_whole(name, "replication_factor", given),
        _maybe_whole(name, "write_consistency_factor", given),
        _yes(name, "exact", given.pop("exact", False)),
    )


def _text(name: str, option: str, value: JsonValue) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"store '{name}': {option} must be a text that is not empty")
    return value


def _maybe_text(name: str, option: str, value: JsonValue) -> str | None:
    return None if value is None else _text(name, option, value)


def _whole(name: str, option: str, value: JsonValue, least: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number < 2**40:
        raise ConfigError(f"store '{name}': {option} is a whole number of at least {least}, not {value!r}")
    return number


def _maybe_whole(name: str, option: str, given: dict[str, JsonValue]) -> int | None:
    value = given.pop(option, None)
    return None if value is None else _whole(name, option, value, 1)


def _yes(name: str, option: str, value: JsonValue) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise ConfigError(f"store '{name}': {option} is true or false, not {value!r}")
    return text in ("true", "1", "yes")
