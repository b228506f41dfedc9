"""What the adapter can do at best, and its options: readable without pymongo."""

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
"""On a replica set or a sharded cluster. A server on its own has no transactions: there
`atomic` is off.

`ttl` is not claimed: MongoDB's own expiry wants a date, which drops microseconds, and
would not wait for steps that are owed; the engine sweeps. `semantic` is not claimed
either: vector search is a service beside the server. Vectors are kept and come back as
they were. Nor is `fenced`: a generation and a record are two documents (see
`partitions`). A document ends at 16 MiB. A record may take half of it; the rest is for
the index of its words.
"""

SCHEMES = ("mongodb", "mongodb+srv")


def _own(name: str) -> str:
    """Some databases are the server's."""
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
    "w j journal fsync wtimeout wtimeoutms readconcernlevel readpreference readpreferencetags maxstalenessseconds "
    "timeoutms sockettimeoutms connecttimeoutms serverselectiontimeoutms waitqueuetimeoutms maxpoolsize minpoolsize "
    "uuidrepresentation tz_aware unicode_decode_error_handler".split()
)
"""Options of a MongoDB URL that decide what an acknowledgement means, what is read, or
when a call ends.
"""
_MET = {"w": "majority", "journal": "true", "j": "true", "readpreference": "primary"}
"""What a URL may say of these: it is what the store does anyway."""


@dataclass(frozen=True, slots=True)
class MongoConfig(StoreOptions):
    """Where the database is and how it is used. All times are seconds.

    Collections are called `prefix` and the collection's name: stores with different
    prefixes may share a database. Each operation on the server ends within `timeout`,
    finding a server, waiting for one of the `connections` and connecting
    (`connect_timeout` at most) included. `uri` is what the driver is given: it may hold
    a password.
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
        """Where it is, for messages: no user, no password."""
        return f"{self.hosts}/{self.database}, collections {self.prefix}*"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> MongoConfig:
    """The config of
    `mongodb://[user:password@]host[:port][,host…][/database][?option=…]`, with options
    in the query part or apart.

    Beside our own options a URL may carry MongoDB's: `replicaSet`, `authSource`, `tls`
    and the like. Those that this store sets itself are refused. What is wrong is named;
    the URL is never repeated.
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
            "name the host: mongodb://user:password@host:27017/database, special characters as %2F for /",
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
            f"{', '.join(refused)} cannot be set in the URL: this store writes to a majority and its journal, reads what it wrote, and has a timeout",
        )
    # Who the user is, is kept with the database that the URL names, also where an
    # option names another for the data.
    authenticates = at and path and not any(k.lower() == "authsource" for k, _ in theirs)
    theirs += [("authSource", unquote(path))] if authenticates else []
    found: dict[str, Any] = {"database": unquote(path)} if path else {}
    replica_set = next((v for k, v in theirs if k.lower() == "replicaset"), "")
    uri = f"{scheme}://{credentials}{at}{hosts}/?{urlencode(theirs)}"
    return MongoConfig.read(
        name, urlencode(ours), options, uri=uri, hosts=hosts, replica_set=replica_set, **found
    )
