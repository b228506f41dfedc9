"""What the adapter can do at best, and its options: readable without pymongo."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, unquote, unquote_plus

from memory.adapters.mongo.thresholds import THRESHOLDS, Thresholds
from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
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
"""On a replica set or a sharded cluster. A server on its own has no transactions: there `atomic` is off.

`ttl` is not claimed: MongoDB's own expiry wants a date, which drops microseconds, and would not wait for steps that are owed; the engine sweeps.
`semantic` is not claimed either: vector search is a service beside the server. Vectors are kept and come back as they were.
Nor is `fenced`: a generation and a record are two documents (see `partitions`).
A document ends at 16 MiB. A record may take half of it; the rest is for the index of its words.
"""

SCHEMES = ("mongodb", "mongodb+srv")

_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_DATABASE = re.compile(r"[^/\\. \"$*<>:|?\x00]{1,63}")
_OURS_TO_SET = frozenset(
    "w j journal fsync wtimeout wtimeoutms readconcernlevel readpreference readpreferencetags maxstalenessseconds "
    "timeoutms sockettimeoutms connecttimeoutms serverselectiontimeoutms waitqueuetimeoutms maxpoolsize minpoolsize "
    "uuidrepresentation tz_aware unicode_decode_error_handler".split()
)
"""Options of a MongoDB URL that decide what an acknowledgement means, what is read, or when a call ends."""


@dataclass(frozen=True, slots=True)
class MongoConfig:
    """Where the database is and how it is used. All times are seconds.

    Collections are called `prefix` and the collection's name: stores with different prefixes may share a database. Each operation on the server ends
    within `timeout`, finding a server, waiting for one of the `connections` and connecting (`connect_timeout` at most) included. `uri` is what the
    driver is given: it may hold a password.
    """

    uri: str = field(repr=False)
    hosts: str = ""
    database: str = "agent_memory"
    prefix: str = "memory_"
    timeout: float = 10.0
    connect_timeout: float = 5.0
    connections: int = 32
    thresholds: Thresholds = THRESHOLDS

    @property
    def place(self) -> str:
        """Where it is, for messages: no user, no password."""
        return f"{self.hosts}/{self.database}, collections {self.prefix}*"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> MongoConfig:
    """The config of `mongodb://[user:password@]host[:port][,host…][/database][?option=…]`, with options in the query part or apart; those apart win.

    Beside our own options a URL may carry MongoDB's: `replicaSet`, `authSource`, `tls` and the like. Those that this store sets itself are refused.
    What is wrong is named; the URL is never repeated.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise _wrong(name, "the URL of a MongoDB store begins with mongodb:// or mongodb+srv://")
    if "#" in rest:
        raise _wrong(name, "the URL has a '#' in it; write it as %23")
    rest, _, query = rest.partition("?")
    credentials, at, behind = rest.rpartition("@")
    hosts, _, path = behind.partition("/")
    if not hosts or any(not host for host in hosts.split(",")) or "/" in credentials:
        raise _wrong(name, "name the host: mongodb://user:password@host:27017/database, special characters as %2F for /")
    pairs = [(unquote_plus(key), unquote_plus(value)) for key, _, value in (part.partition("=") for part in re.split("[&;]", query) if part)]
    ours, theirs = {k: v for k, v in pairs if k in _OPTIONS}, [(k, v) for k, v in pairs if k not in _OPTIONS]
    if refused := sorted(k for k, _ in theirs if k.lower() in _OURS_TO_SET):
        raise _wrong(
            name,
            f"{', '.join(refused)} cannot be set in the URL: this store writes to a majority and its journal, reads what it wrote, and has a timeout",
        )
    given: dict[str, JsonValue] = {**({"database": unquote(path)} if path else {}), **ours, **options}
    found: dict[str, Any] = {}
    for option, read in _OPTIONS.items():
        if option in given:
            try:
                found[option] = read(given.pop(option))
            except (TypeError, ValueError) as exc:
                raise _wrong(name, f"{option} {exc}") from None
    if given:
        raise _wrong(name, f"a MongoDB store has no option {', '.join(map(repr, sorted(given)))}")
    # Who the user is, is kept with the database that the URL names, also where an option names another for the data.
    authenticates = at and path and not any(k.lower() == "authsource" for k, _ in theirs)
    theirs += [("authSource", unquote(path))] if authenticates else []
    uri = f"{scheme}://{credentials}{at}{hosts}/?{'&'.join(f'{quote_plus(k)}={quote_plus(v)}' for k, v in theirs)}"
    return MongoConfig(uri, hosts, **found)


def _wrong(name: str, problem: str) -> ConfigError:
    return ConfigError(f"store '{name}': {problem}")


def _seconds(value: JsonValue) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number <= 3_600:
        raise ValueError(f"is a number of seconds above 0, at most an hour, not {value!r}")
    return number


def _count(value: JsonValue) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if not 0 < number < 10_000 or isinstance(value, float | bool):
        raise ValueError(f"is a whole number from 1 to 9999, not {value!r}")
    return number


def _prefix(value: JsonValue) -> str:
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise ValueError("is made of up to 64 letters, digits and '_', and begins with no digit")
    return value


def _database(value: JsonValue) -> str:
    if not isinstance(value, str) or not _DATABASE.fullmatch(value) or value in ("admin", "local", "config"):
        raise ValueError('is the name of a database of your own: up to 63 characters, none of / \\ . " $ * < > : | ? or a space')
    return value


_OPTIONS: dict[str, Callable[[JsonValue], Any]] = {
    "database": _database,
    "prefix": _prefix,
    "timeout": _seconds,
    "connect_timeout": _seconds,
    "connections": _count,
}
