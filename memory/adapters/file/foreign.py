"""Finds files and folders that the store did not create.

They are reported and not touched.
"""

from __future__ import annotations

from collections.abc import Iterator

from memory.adapters.file.changes import NAME as LOG
from memory.adapters.file.commits import STAGING
from memory.adapters.file.disk import LOCK, Disk
from memory.adapters.file.names import BACKUP, PARTITION, SUFFIX, UNSEEN, is_name, stem_of_bytes
from memory.adapters.file.records import QUARANTINE

_OWN_FILES = frozenset({"store.json", LOCK, LOG})
_OWN_FOLDERS = frozenset({STAGING[0], QUARANTINE})
_COUNTED = frozenset({PARTITION, f"{PARTITION}.bak"})
LOOKED_AT = 10_000
"""Most names that one call examines."""


def foreign_names(disk: Disk, most: int) -> list[str]:
    """Return foreign paths below the root, sorted, at most `most`.

    Only the first names are examined.
    """
    found = list[str]()
    for looked_at, (path, is_ours) in enumerate(_walk(disk)):
        if not is_ours:
            found.append(path)
        if len(found) == most or looked_at == LOOKED_AT:
            break
    return sorted(found)


def _walk(disk: Disk) -> Iterator[tuple[str, bool]]:
    """Yield every name, and whether the store uses such names there."""
    for tenant, is_folder in _names(disk, ()):
        is_own = tenant in (_OWN_FOLDERS if is_folder else _OWN_FILES)
        is_tenant = is_folder and is_name(tenant)
        yield tenant, is_own or is_tenant
        if not is_tenant:
            continue
        for scope, is_scope in _names(disk, (tenant,)):
            is_ours = is_scope and (is_name(scope) or scope == UNSEEN)
            yield f"{tenant}/{scope}", is_ours
            if is_ours:
                yield from _in_scope(disk, tenant, scope)
    for name in disk.folders(STAGING):
        yield "/".join((*STAGING, name)), False


def _in_scope(disk: Disk, tenant: str, scope: str) -> Iterator[tuple[str, bool]]:
    for collection, is_folder in _names(disk, (tenant, scope)):
        is_ours = (is_folder and collection.isidentifier()) or (not is_folder and collection in _COUNTED)
        yield f"{tenant}/{scope}/{collection}", is_ours
        if is_ours and is_folder:
            for name, is_file in (
                (name, not folder) for name, folder in _names(disk, (tenant, scope, collection))
            ):
                yield f"{tenant}/{scope}/{collection}/{name}", is_file and _is_record(name)


def _is_record(name: str) -> bool:
    stem = name.removesuffix(BACKUP) if name.endswith(BACKUP) else name.removesuffix(SUFFIX)
    return (stem != name and is_name(stem)) or stem_of_bytes(name) is not None


def _names(disk: Disk, parts: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Return the names in a folder, and whether each is a folder.

    The result is empty if the folder cannot be read.
    """
    try:
        folders = set(disk.folders(parts))
        return [(name, name in folders) for name in sorted(disk.names(parts))]
    except OSError:
        return []
