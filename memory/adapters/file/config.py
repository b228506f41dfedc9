"""Capabilities and options of the adapter."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import unquote

from pydantic import Field
from pydantic.dataclasses import dataclass

from memory.adapters.file.thresholds import THRESHOLDS, Thresholds
from memory.ports.capabilities import Capabilities
from memory.ports.local_paths import absolute_path, local_path
from memory.ports.options import Flag, SecondsOrZero, StoreOptions, Whole, wrong
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
    semantic=True,
    tenant_statistics=True,
    fenced=True,
)


Mode = Annotated[Literal["rw", "ro"], Field(description="'rw' or 'ro'")]


@dataclass(frozen=True, slots=True)
class FileConfig(StoreOptions):
    """Location and options of a folder.

    Args:
        fsync: Acknowledge a write only when it is on disk. Without, a crash of the
            machine may lose the last half minute; a crash of the process loses nothing.
        mode: "ro" opens the folder for reading and searching only. A folder without
            write permission is always opened so.
        lock_timeout: Seconds that a call waits for other processes' writes before it
            raises `StoreUnavailable`.
        cache_bytes: Most bytes that queries and searches keep in memory.
    """

    where: ClassVar[frozenset[str]] = frozenset({"path", "thresholds"})
    product: ClassVar[str] = "a file store"
    path: Path
    fsync: Flag = True
    mode: Mode = "rw"
    lock_timeout: SecondsOrZero = 10.0
    cache_bytes: Whole = 256 * 2**20
    thresholds: Thresholds = THRESHOLDS


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> FileConfig:
    """Parse `file:///absolute/folder` or `file:relative/folder`.

    Options may be in the query part or separate. See `memory.ports.local_paths` for
    paths.
    """
    if sys.platform == "win32":
        raise wrong(
            name, "the file store needs the file locks of Linux, macOS or BSD; use sqlite:/// on Windows"
        )
    scheme, colon, rest = url.partition(":")
    if scheme != "file" or not colon:
        raise wrong(name, f"the URL of a file store begins with 'file:', not '{scheme}'")
    place, query = local_path(url), rest.partition("?")[2]
    if place is None:
        raise wrong(
            name,
            "a file store is a folder on this machine: write 'file:///absolute/folder' or"
            " 'file:relative/folder'",
        )
    folder = unquote(place)
    if not folder.strip("/") or "\0" in folder:
        raise wrong(name, "write 'file:///' and the path of a separate folder, or 'file:relative/folder'")
    return FileConfig.read(name, query, options, path=absolute_path(folder))
