"""Settings of `memory serve`: the section `[server]` of a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator

from memory.domain.scope import Scope
from memory.domain.time import show_duration
from memory.facade.config.identity import AuditSettings, JwtSettings
from memory.facade.config.values import Duration, SettingsTable

MIB = 2**20
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


class ServerSettings(SettingsTable):
    """Settings of the HTTP server.

    The options of `memory serve` win over them.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """The port; 0 takes a free one."""
    root_path: str = ""
    """The prefix that a proxy in front takes off all paths, such as `/memory`."""
    default_scope: str | None = None
    """The scope of what a request writes without naming one."""
    body_bytes: Annotated[int, Field(ge=1024)] = 8 * MIB
    """The largest body of a request in bytes. Files and imports may be larger."""
    concurrency: Annotated[int, Field(ge=1)] = 64
    """The most requests of one key that run at once."""
    rate: Annotated[float, Field(gt=0)] = 500.0
    """The most requests of one key in a second, on average."""
    burst: Annotated[int, Field(ge=1)] = 1000
    """How many requests a key may make at once after a pause."""
    header_time: Duration = timedelta(seconds=10)
    """How long a client may take for a header, or between parts of a body."""
    grace: Duration = timedelta(seconds=20)
    """How long a stop waits for requests that run."""
    access_log: bool = False
    """Write a line for each request to standard error."""
    models: tuple[str, ...] = ()
    """The names that `expand=` and `rerank=` accept. All mean the advisor."""
    advice_per_minute: Annotated[int, Field(ge=1)] = 60
    """The most searches of one key in a minute that ask an advisor."""
    mcp_profile: Literal["memory", "reference"] = "memory"
    """The tools under /mcp; `reference` is the profile of the reference server."""

    tls_cert: str | None = None
    """The file of the certificate for HTTPS, with its chain."""
    tls_key: str | None = None
    """The file of the certificate's key."""
    behind_proxy: bool = False
    """A proxy in front of the server terminates TLS, so any address is allowed."""
    jwt: JwtSettings | None = None
    """Tokens of an identity provider; none are accepted by default."""
    audit: AuditSettings = AuditSettings()

    @field_validator("default_scope", mode="after")
    @classmethod
    def _is_a_scope(cls, value: str | None) -> str | None:
        return None if value is None else Scope.parse(value).text

    @field_validator("root_path", mode="after")
    @classmethod
    def _is_a_path(cls, value: str) -> str:
        path = value.rstrip("/")
        if not _PATH.fullmatch(path):
            raise ValueError("must be a path of letters, digits and -._~, such as /memory")
        return path

    def settings_by_name(self) -> dict[str, Any]:
        """Return the values that are set or have a default, for display."""
        return dict(_leaves(self))


def _leaves(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a section and its tables by dotted name."""
    for name, value in settings:
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, show_duration(value) if isinstance(value, timedelta) else value
