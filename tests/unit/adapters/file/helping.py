"""What several of these tests need: stores on a folder, and the files in it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from memory.adapters.file.store import FileStore
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import id_of
from memory.ports.record import JsonValue


async def opened(folder: Path, **options: JsonValue) -> FileStore:
    store = FileStore(f"file://{folder}", **options)
    await store.open(DECLARED)
    return store


def table_of(folder: Path, collection: str = "samples") -> Path:
    """The folder of the usual partition's records."""
    return folder / "acme" / "user%3aann" / collection


def file_of(folder: Path, n: int = 1, collection: str = "samples") -> Path:
    return table_of(folder, collection) / f"{id_of(n)}.json"


def backup_of(folder: Path, n: int = 1) -> Path:
    file = file_of(folder, n)
    return file.with_name(f"{file.name}.bak")


def quarantined(folder: Path) -> list[Path]:
    return sorted((folder / "quarantine.d").rglob("*.corrupt-*"))


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def everything_below(folder: Path) -> list[Path]:
    return [folder, *sorted(folder.rglob("*"))]


def fill(disk: Path) -> None:
    """Leave no room."""
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(bytes(4096)):
            pass
