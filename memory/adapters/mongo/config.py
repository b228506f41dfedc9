"""Capabilities and options of the adapter, readable without pymongo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote, unquote_plus, urlencode

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from memory.adapters.mongo.thresholds import THRESHOLDS, Thresholds
from memory.ports.capabilities import Capabilities
from memory.ports.options import Count, Seconds, StoreOptions, wrong
from memory.ports.record import JsonValue

CLAIMS = Capabilities(
    durable=True,
    shared=True,
    conditional=True,
    atomic=True,
    filter=True,
    order=True,
    tenant_wide=True,
    lexical=True,
    tenant_statistics=True,
    max_record_bytes=8 * 2**20,
    max_batch=1_000,
)
"""Capabilities on a replica set or a sharded cluster.

A single server has no transactions, so `atomic` is off there.

- `ttl` is not claimed. MongoDB's own expiry needs a date, which drops microseconds, and
  does not wait for pending steps. The engine's sweep deletes instead.
- `semantic` is not claimed. Vector search is a separate service; vectors are only
  stored and returned.
- `fenced` is not claimed. A generation and a record are two documents (see
  `partitions`).

A document has at most 16 MiB. A record may take half of it, and the index of its words
the rest.
"""

SCHEMES = ("mongodb", "mongodb+srv")


def _own(name: str) -> str:
    """Reject databases that belong to the server."""
    if name in ("admin", "local", "config"):
        raise ValueError
    return name


_DATABASE = r'^[^/\\. "$*<>:|?\x00]{1,63}$'
_A_DATABASE = (
    'the name of a database of your own: up to 63 characters, none of / \\ . " $ * < > : | ? or a space'
)
Database = Annotated[str, Field(pattern=_DATABASE, description=_A_DATABASE), AfterValidator(_own)]
_A_PREFIX = "made of up to 64 letters, digits and '_', and begins with no digit"
Prefix = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$", description=_A_PREFIX)]
_OURS_TO_SET = frozenset(
    "w j journal fsync wtimeout wtimeoutms readconcernlevel readpreference readpreferencetags"
    " maxstalenessseconds timeoutms sockettimeoutms connecttimeoutms serverselectiontimeoutms"
    " waitqueuetimeoutms maxpoolsize minpoolsize uuidrepresentation tz_aware"
    " unicode_decode_error_handler".split()
)
"""URL options that change what an acknowledgement means, what is read, or when a call
ends.
"""
_MET = {"w": "majority", "journal": "true", "j": "true", "readpreference": "primary"}
"""Values of these options that are allowed, because the store uses them anyway."""


@dataclass(frozen=True, slots=True)
class MongoConfig(StoreOptions):
    """Location and options of a database. All times are in seconds.

    Args:
        prefix: Start of the names of collections. Stores with different prefixes may
            share a database.
        timeout: Limit of each operation. It includes finding a server, waiting for a
            connection and connecting.
        connect_timeout: Limit of connecting.
        connections: Most connections at a time.
        uri: URL for the driver. It may contain a password.
    """

    where: ClassVar[frozenset[str]] = frozenset({"uri", "hosts", "replica_set", "thresholds"})
    product: ClassVar[str] = "a MongoDB store"
    uri: str = Field(repr=False)
    hosts: str = ""
    replica_set: str = ""
    database: Database = "agent_memory"
    prefix: Prefix = "memory_"
    timeout: Seconds = 10.0
    connect_timeout: Seconds = 5.0
    connections: Count = 32
    thresholds: Thresholds = THRESHOLDS

    @property
    def place(self) -> str:
        """Location for messages, without user and password."""
        return f"{self.hosts}/{self.database}, collections {self.prefix}*"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> MongoConfig:
    """Parse a MongoDB URL; options may be in its query part or separate.

    Its form is `mongodb://[user:password@]host[:port][,host…][/database][?option=…]`.

    A URL may also have MongoDB's own options, such as `replicaSet`, `authSource` and
    `tls`. Options that this store sets itself are rejected. Errors name the problem and
    never repeat the URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise wrong(name, "the URL of a MongoDB store begins with mongodb:// or mongodb+srv://")
    if "#" in rest:
        raise wrong(name, "the URL has a '#' in it; write it as %23")
    rest, _, query = rest.partition("?")
    credentials, at, behind = rest.rpartition("@")
    hosts, _, path = behind.partition("/")
    if not hosts or any(not host for host in hosts.split(",")) or "/" in credentials:
        raise wrong(
            name,
            "name the host: mongodb://user:password@host:27017/database; write special characters as %2F"
            " for /",
        )
    pairs = [
        (unquote_plus(key), unquote_plus(value))
        for key, _, value in (part.partition("=") for part in re.split("[&;]", query) if part)
    ]
    known = MongoConfig.names()
    ours, theirs = [(k, v) for k, v in pairs if k in known], [(k, v) for k, v in pairs if k not in known]
    theirs = [(k, v) for k, v in theirs if _MET.get(k.lower()) != v.lower()]
    if refused := sorted(k for k, _ in theirs if k.lower() in _OURS_TO_SET):
        raise wrong(
            name,
            f"{', '.join(refused)} cannot be set in the URL: this store writes to a majority and its journal,"
            " reads what it wrote, and has a timeout",
        )
    # The user is stored in the database that the URL names, even if an option names
    # another database for the data.
    authenticates = at and path and not any(k.lower() == "authsource" for k, _ in theirs)
    theirs += [("authSource", unquote(path))] if authenticates else []
    found: dict[str, Any] = {"database": unquote(path)} if path else {}
    replica_set = next((v for k, v in theirs if k.lower() == "replicaset"), "")
    uri = f"{scheme}://{credentials}{at}{hosts}/?{urlencode(theirs)}"
    return MongoConfig.read(
        name, urlencode(ours), options, uri=uri, hosts=hosts, replica_set=replica_set, **found
    )
