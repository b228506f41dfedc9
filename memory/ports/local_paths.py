"""The local path of a store's URL: one rule for all adapters with a file or folder.

    scheme:path               the path as it is, relative to the working directory or
        absolute
    scheme:///path            absolute, as RFC 8089 has it for `file:`; more slashes add
        nothing, and `~` is the user's folder
    sqlite:///path            SQLite alone: the path as it is, as everybody writes it
        since SQLAlchemy; absolute with four slashes

So `scheme:folder/name`, `scheme:/srv/name`, `scheme:~/name` and `scheme:////srv/name`
mean the same on every adapter. Only three slashes differ.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

LOCAL_SCHEMES = ("sqlite", "file", "qdrant+edge")
"""The schemes of built-in adapters whose stores are files on this machine."""


def local_path(url: str) -> str | None:
    """Return the path that the URL names; None if it names none or another machine.

    Percent signs stay as they are, and options are left out.
    """
    scheme, colon, rest = url.partition(":")
    place = rest.partition("?")[0]
    if not colon or not place:
        return None
    if not place.startswith("//"):
        return place
    host, slash, path = place[2:].partition("/")
    if host not in ("", "localhost") or not slash or not path.strip("/"):
        return None
    if scheme.lower() == "sqlite":
        return path
    path = path.lstrip("/")
    return path if path.startswith("~") else f"/{path}"


def absolute_path(given: str | PathLike[str]) -> Path:
    """Return the absolute path, resolved against the current working directory.

    `~` is the user's folder. The path stays the same when the process changes its
    directory.
    """
    return Path(given).expanduser().absolute()


def local_url(scheme: str, path: str) -> str:
    """Return the URL of an absolute path."""
    return f"{scheme}:///{path}" if scheme == "sqlite" else f"{scheme}://{path}"
