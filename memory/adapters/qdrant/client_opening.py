"""Opens a collection of a server.

It creates what is missing, and raises if the collection contradicts the options.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from qdrant_client.http.exceptions import UnexpectedResponse

from memory.adapters.qdrant.config import ServerConfig
from memory.adapters.qdrant.engine import MOST_VALUES, WORDS, Index
from memory.adapters.qdrant.wire import Wire
from memory.domain.errors import ConfigError

log = logging.getLogger(__name__)
T = TypeVar("T")

LEAST_SERVER = (1, 19)
"""Oldest supported server.

Conditional upserts came with 1.16, and their modes with 1.17. New vectors for existing
collections came with 1.18, and rarity per tenant with 1.19. Older servers ignore
unknown options instead of rejecting them, and would overwrite protected data.
"""
LEAST_RATE = 600
LEAST_IN_ONE = 64
"""Least rate limits, in requests per minute, and least limits of values.

Below them, a server would refuse ordinary work: a write takes four requests, a search
three.
"""
_NOT_FOUND = 404
_SCHEMAS: dict[str, Any] = {
    "keyword": "keyword",
    "tenant": {"type": "keyword", "is_tenant": True},
    "integer": "integer",
    "float": "float",
}
_FILTERED = (
    *[Index(path, "keyword") for path in ("token", "untagged", "id")],
    *[Index(path, "integer") for path in ("version", "generation", "accesses", "accessed_at")],
)
"""Indexes of further fields in filters.

They make no frequent query faster, but a server in strict mode refuses filters without
an index.
"""


class RequestSender(Protocol):
    def __call__(
        self, method: str, path: str, body: Any, read: Callable[[Any], T], **parameters: str
    ) -> Awaitable[T]: ...


@dataclass(slots=True)
class CollectionInspection:
    """Properties of the opened collection."""

    dimensions: set[int] = field(default_factory=set)
    exact_statistics: bool = True
    queries_at_once: int | None = None
    values_in_one: int | None = None
    """Most values per condition; `conditions_in_one` is per filter."""
    conditions_in_one: int | None = None


async def make_ready(
    store: str,
    config: ServerConfig,
    wire: Wire,
    ask: RequestSender,
    indexes: Sequence[Index],
    look: Callable[[], Awaitable[None]],
) -> CollectionInspection:
    """Create the collection, its shard key and its indexes if they are missing."""
    if config.host is None:  # the local mode has neither shards nor indexes
        if not await ask("GET", "/exists", None, lambda a: bool(a["exists"])):
            await ask("PUT", "", _collection(config), bool)
        await look()
        return CollectionInspection(await ask("GET", "", None, dimensions_of))
    _check_version(store, await _version(wire, config.timeout))
    if not await ask("GET", "/exists", None, lambda a: bool(a["exists"])):
        await _make_or_find(ask, "", _collection(config), lambda: _exists(ask), config.timeout)
    info = await ask("GET", "", None, dict)
    settings = info["config"]
    _check_collection(store, config, settings["params"])
    await _make_shard_key(store, config, ask, settings["params"])
    await look()
    strict = settings.get("strict_mode_config") or {}
    strict = strict if strict.get("enabled") else {}
    wanted = [*indexes, *_FILTERED] if strict else [i for i in (*indexes, *_FILTERED) if not i.optional]
    _check_strict_mode(store, config, strict, len({index.path for index in wanted}))
    standing = info.get("payload_schema") or {}
    for index in wanted:
        if index.path not in standing:
            schema = {"field_name": index.path, "field_schema": _SCHEMAS[index.kind]}
            await ask("PUT", "/index", schema, bool, wait="true")
    limits = [
        strict.get(name) for name in ("search_max_batchsize", "condition_max_size", "filter_max_conditions")
    ]
    return CollectionInspection(dimensions_of(info), _has_one_shard(store, settings["params"]), *limits)


def dimensions_of(info: Mapping[str, Any]) -> set[int]:
    """Return the dimensions for which the collection has a vector."""
    named = info["config"]["params"].get("vectors") or {}
    return {int(name.removeprefix("dense_")) for name in named if name.startswith("dense_")}


async def _version(wire: Wire, seconds: float) -> str:
    async with asyncio.timeout(seconds + 1):
        return await wire.version()


def _check_version(store: str, version: str) -> None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < LEAST_SERVER:
        raise ConfigError(
            f"store '{store}': this server is Qdrant {version}; upgrade it to"
            f" {'.'.join(map(str, LEAST_SERVER))} or later"
        )


def _collection(config: ServerConfig) -> dict[str, Any]:
    given = {
        "shard_number": config.shard_number or 1,
        "replication_factor": config.replication_factor,
        "write_consistency_factor": config.write_consistency_factor,
        "sharding_method": None if config.shard_key is None else "custom",
    }
    return {
        "vectors": {},
        "sparse_vectors": {WORDS: {"modifier": "idf"}},
        **{name: value for name, value in given.items() if value is not None},
    }


async def _make_or_find(
    ask: RequestSender,
    path: str,
    body: Any,
    stands: Callable[[], Awaitable[bool]],
    seconds: float,
) -> None:
    """Create something that another process may create at the same moment.

    The server then refuses it, for some time also with status 500.
    """
    late = time.monotonic() + seconds
    while True:
        try:
            await ask("PUT", path, body, bool)
            return
        except UnexpectedResponse:
            if await stands():
                return
            if time.monotonic() > late:
                raise
        await asyncio.sleep(0.1)


async def _exists(ask: RequestSender) -> bool:
    """Whether the collection exists and can be queried."""
    try:
        await ask("GET", "", None, dict)
    except UnexpectedResponse as exc:
        if exc.status_code != _NOT_FOUND:
            raise
        return False
    return True


def _check_collection(store: str, config: ServerConfig, params: Mapping[str, Any]) -> None:
    if WORDS not in (params.get("sparse_vectors") or {}):
        raise ConfigError(
            f"store '{store}': the collection '{config.collection}' was not created by this library (it has"
            f" no sparse vector '{WORDS}'); name another one with the option collection"
        )
    for option in ("shard_number", "replication_factor", "write_consistency_factor"):
        given, has = getattr(config, option), params.get(option) or 1
        if given is not None and given != has:
            raise ConfigError(
                f"store '{store}': {option}={given}, but the collection '{config.collection}' has {has};"
                " leave the option out, or change the collection first"
            )


async def _make_shard_key(
    store: str, config: ServerConfig, ask: RequestSender, params: Mapping[str, Any]
) -> None:
    """Create the shard key if the collection has none.

    A crash may leave a collection without a key.
    """
    custom, key = params.get("sharding_method") == "custom", config.shard_key
    if not custom and key is None:
        return
    if not custom:
        raise ConfigError(
            f"store '{store}': shard_key='{key}', but the collection '{config.collection}' distributes its"
            " points itself; leave the option out, or name another collection"
        )
    keys = await _shard_keys(ask)
    if key is None or (keys and key not in keys):
        has = ", ".join(f"'{name}'" for name in keys) or "none yet"
        raise ConfigError(
            f"store '{store}': shard_key={key!r}, but the collection '{config.collection}' has the shard keys"
            f" {has}; name one of them, or create the key on the server first"
        )
    if not keys:

        async def stands() -> bool:
            return key in await _shard_keys(ask)

        await _make_or_find(ask, "/shards", {"shard_key": key}, stands, config.timeout)


async def _shard_keys(ask: RequestSender) -> list[str]:
    return await ask("GET", "/shards", None, lambda a: [str(one["key"]) for one in a.get("shard_keys") or ()])


def _check_strict_mode(store: str, config: ServerConfig, strict: Mapping[str, Any], indexes: int) -> None:
    """Check the server's strict mode.

    The error names the settings under which the server would refuse requests.
    """
    problems = []
    if strict.get("search_allow_exact") is False:
        problems.append("search_allow_exact must be true: counts are exact")
    least = {
        "max_query_limit": MOST_VALUES,
        "max_timeout": config.timeout,
        "read_rate_limit": LEAST_RATE,
        "write_rate_limit": LEAST_RATE,
        "max_payload_index_count": indexes,
        "condition_max_size": LEAST_IN_ONE,
        "filter_max_conditions": LEAST_IN_ONE,
    }
    for name, number in least.items():
        has = strict.get(name)
        if has is not None and has < number:
            problems.append(f"{name} is {has} and must be at least {number}")
    if problems:
        raise ConfigError(
            f"store '{store}': the strict mode of the collection '{config.collection}' refuses requests of"
            f" this library; change strict_mode_config: {'; '.join(problems)}"
        )


def _has_one_shard(store: str, params: Mapping[str, Any]) -> bool:
    shards = params.get("shard_number") or 1
    if shards > 1:
        log.warning(
            "store '%s': its collection has %d shards, each of which counts words separately: scores of one"
            " search are not comparable, and a shard that is down fails reads of every record. Create the"
            " collection with shard_number=1",
            store,
            shards,
        )
    return bool(shards == 1)
