"""Inspects servers: their version, data layout and durability."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from redis import exceptions as driver

from memory.adapters.redis.connection import Connections
from memory.adapters.redis.keys import BUCKETS, SCHEMA
from memory.adapters.redis.scripts import Call
from memory.adapters.redis.settings import READ, Durability, safety_of, weakest
from memory.domain.errors import ConfigError
from memory.ports.formats import FormatNote, current_note

OLDEST = (6, 2)
"""Oldest supported server; it has `ZRANGE ... BYLEX` and `SET ... PXAT`."""
_SPARING = ("noeviction", "volatile")
"""Policies under which a server evicts no key without an expiry."""


_SWAP = """local found = redis.call('GET', KEYS[1]) or ''
if found == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end
return (found == ARGV[1] or found == ARGV[2]) and 1 or 0"""
"""If a lost answer causes a repetition, the script finds its own value."""


class Inspection:
    """Inspects the servers of the connections."""

    def __init__(self, name: str, connections: Connections) -> None:
        self._name = name
        self._connections = connections

    async def version(self) -> str:
        try:
            info = await self._info("server")
        except driver.NoPermissionError:
            return "Redis of unknown version (INFO is refused)"
        valkey = info.get("valkey_version")
        return f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', 'of unknown version')}"

    async def require_server(self) -> None:
        """Reject a server that is too old, a Sentinel, or an undeclared cluster."""
        try:
            server = await self._info("server")
        except driver.NoPermissionError:
            return
        if str(server.get("redis_mode")) == "sentinel":
            raise ConfigError(
                f"store '{self._name}': this is a Sentinel, not a server; begin the URL with"
                " redis+sentinel:// and end it with /service"
            )
        version = str(server.get("redis_version", ""))
        if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < OLDEST:
            raise ConfigError(
                f"store '{self._name}': needs Redis {OLDEST[0]}.{OLDEST[1]} or later, or Valkey; this server"
                f" reports {version or 'no version'}"
            )
        if (
            self._connections.one_server
            and str((await self._info("cluster")).get("cluster_enabled", "0")) == "1"
        ):
            raise ConfigError(
                f"store '{self._name}': this server is part of a cluster; begin the URL with redis+cluster://"
                " instead"
            )

    async def require_schema(self) -> str | None:
        """Write the layout version to new data, and reject data of another version.

        Data that has a version is only read.

        Returns:
            The note of the format.
        """
        key = f"{{{self._connections.config.prefix}}}:schema"
        found, noted = await self._connections.command("MGET", key, self._format_key)
        note = None if noted is None else _text(noted)
        FormatNote.parse(self._name, note)
        if found is None:
            try:
                if note is None:
                    await self._connections.command("SET", self._format_key, current_note(), "NX")
                await self._connections.command("SET", key, str(SCHEMA), "NX")
            except driver.OutOfMemoryError:
                return note or current_note()  # a later open writes the version once there is room
            found, noted = await self._connections.command("MGET", key, self._format_key)
            note = None if noted is None else _text(noted)
        found = _text(found)
        if found != str(SCHEMA):
            raise ConfigError(
                f"store '{self._name}': its data has layout {found[:20]}, but this version of memory-tiers"
                f" supports {SCHEMA}; upgrade memory-tiers, or choose another prefix"
            )
        return note

    async def format_note(self) -> str | None:
        """Return the note of the format."""
        found = await self._connections.command("GET", self._format_key)
        return None if found is None else _text(found)

    async def swap_format(self, before: str | None, after: str) -> bool:
        """Replace the note of the format if it equals `before`."""
        return bool(
            await self._connections.command(
                "EVAL", _SWAP, 1, self._format_key, "" if before is None else before, after
            )
        )

    @property
    def _format_key(self) -> str:
        return f"{{{self._connections.config.prefix}}}:format"

    async def mark_run(self) -> str:
        """Return the mark of the data as a whole; create it if it is missing.

        Flushing the server also deletes the mark. The result is empty if it cannot be
        stored.
        """
        if found := await self.mark():
            return found
        try:
            await self._connections.command("SET", self._mark_key, secrets.token_hex(8), "NX")
        except (driver.OutOfMemoryError, driver.NoPermissionError, driver.ReadOnlyError):
            return ""
        return await self.mark()

    async def mark(self) -> str:
        """Return the stored mark; empty if there is none."""
        found = await self._connections.command("GET", self._mark_key)
        return "" if found is None else _text(found)

    @property
    def _mark_key(self) -> str:
        return f"{{{self._connections.config.prefix}}}:mark"

    async def count_quarantined(self, collections: Sequence[str]) -> int:
        """Count the quarantined records of these collections."""
        calls = [Call(bucket, (bucket,)) for bucket in BUCKETS]
        return sum(
            map(
                int,
                await self._connections.run(
                    "quarantined", calls, (len(collections), *collections), repeatable=True
                ),
            )
        )

    async def safety(self) -> Durability:
        """Return the combined durability of all servers' settings."""
        fails_over = self._connections.config.kind == "sentinel"
        try:
            replication = [
                _mapping(answer) for answer in await self._connections.servers("INFO", "replication")
            ]
        except driver.NoPermissionError:
            replication = []
        fails_over = fails_over or any(
            int(info.get("connected_slaves", 0)) or _text(info.get("role")) in ("slave", "replica")
            for info in replication
        )
        return weakest([safety_of(settings, fails_over=fails_over) for settings in await self._settings()])

    async def has_whole_indexes(self) -> bool:
        """Whether no server can have evicted an index while its records remain.

        False if this is unknown: data of an earlier run may lack its indexes.
        """
        try:
            answers = [_mapping(answer) for answer in await self._connections.servers("INFO")]
        except driver.ResponseError:
            return False
        return all(
            str(info.get("evicted_keys")) == "0"
            and str(info.get("rdb_last_load_keys_loaded")) == "0"
            and str(info.get("aof_enabled")) == "0"
            for info in answers
        )

    async def evicts(self) -> bool:
        """Whether a server evicts keys under memory pressure, or does not tell."""
        try:
            answers = [_mapping(answer) for answer in await self._connections.servers("INFO", "memory")]
        except driver.ResponseError:
            return True
        return any(
            str(info.get("maxmemory")) != "0" and str(info.get("maxmemory_policy")) != "noeviction"
            for info in answers
        )

    async def may_drop_anything(self) -> bool:
        """Whether a server may evict any key if memory is short, or does not tell."""
        try:
            answers = [_mapping(answer) for answer in await self._connections.servers("INFO", "memory")]
        except driver.NoPermissionError:
            return True
        return any(
            str(info.get("maxmemory")) != "0" and not str(info.get("maxmemory_policy")).startswith(_SPARING)
            for info in answers
        )

    async def _settings(self) -> list[dict[str, str]]:
        """Return the settings of each server.

        They are empty if a server refuses to tell them, as many hosted ones do.
        """
        found: list[dict[str, str]] = []
        for setting in READ:
            try:
                answers = await self._connections.servers("CONFIG GET", setting)
            except (driver.ResponseError, driver.NoPermissionError):
                return [{}]
            found = found or [{} for _ in answers]
            for settings, answer in zip(found, answers, strict=True):
                settings.update({name: _text(value) for name, value in _mapping(answer).items()})
        return found

    async def _info(self, section: str) -> dict[str, Any]:
        return _mapping((await self._connections.servers("INFO", section))[0])


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _mapping(answer: Any) -> dict[str, Any]:
    """Return a name-value answer as a dict, in either form of the driver."""
    pairs = answer.items() if isinstance(answer, Mapping) else zip(answer[::2], answer[1::2], strict=True)
    return {_text(name): value for name, value in pairs}
