"""Partitions and their generations, in `partition.json`.

Both copies of this file always are current, because an older generation would let
erased records return. If neither can be read, writes to the partition are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memory.adapters.file.codec import DamagedRecord, seal, unseal
from memory.adapters.file.commits import StagedCommit
from memory.adapters.file.disk import Disk, NotRegularFile
from memory.adapters.file.names import PARTITION, UNSEEN, Table, decode_name, encode_name, is_cut, is_name
from memory.domain import ids
from memory.domain.errors import StoreError
from memory.ports.record import Key, Partition

_BACKUP = PARTITION + ".bak"


@dataclass(slots=True)
class State:
    """Generation of a partition."""

    partition: Partition
    generation: int = 0
    written: bool = False
    """Whether it is on disk."""

    @property
    def folder(self) -> tuple[str, str]:
        return (encode_name(self.partition.tenant), encode_name(self.partition.scope))

    @property
    def must_be_written(self) -> bool:
        """Whether the file is needed because the folder's name is truncated."""
        return not self.written and any(map(is_cut, self.folder))

    def stage(self, staged: StagedCommit) -> None:
        named = {"tenant": self.partition.tenant, "scope": self.partition.scope}
        content = seal({**named, "generation": self.generation})
        staged.write(self.folder, _BACKUP, content)
        staged.write(self.folder, PARTITION, content)

    def stage_removal(self, staged: StagedCommit) -> None:
        """Stage the removal of both files."""
        for name in (PARTITION, _BACKUP):
            staged.remove(self.folder, name)


class Partitions:
    def __init__(self, store: str, disk: Disk) -> None:
        self._store, self._disk = store, disk
        self._known: dict[str, dict[str, int | None]] = {}
        """Folders of scopes by the tenant's folder, with the digest in their ids."""
        self._cut: dict[tuple[str, str], str] = {}
        """Scopes of folders whose names are truncated."""

    def forget(self) -> None:
        self._known.clear()
        self._cut.clear()

    # -- what is counted ---------------------------------------------------------------

    def state(self, partition: Partition) -> State:
        """Read the state from disk."""
        problems: list[str] = []
        for state in self._copies(partition, problems):
            return state
        if problems:
            raise StoreError(
                self._store,
                "the generation of a partition cannot be read, so nothing is written there; restore one of"
                f" its files: {'; '.join(problems)}",
            )
        return State(partition)

    def copies(self, partition: Partition) -> tuple[list[State], list[str]]:
        """Read both files, and return the states and the problems.

        Both files must be equal, or neither may exist.
        """
        problems: list[str] = []
        return list(self._copies(partition, problems)), problems

    def _copies(self, partition: Partition, problems: list[str]) -> Iterator[State]:
        folder = State(partition).folder
        for name in (PARTITION, _BACKUP):
            try:
                text = self._disk.read(folder, name)
                if text is None:
                    continue
                payload = unseal(text)
                yield State(partition, int(payload["generation"]), written=True)
            except (DamagedRecord, NotRegularFile, KeyError, TypeError, ValueError, AttributeError) as exc:
                problems.append(f"'{'/'.join((*folder, name))}': {exc}")

    # -- where to look -----------------------------------------------------------------

    def tenants(self) -> list[str]:
        """Return the folders of all tenants."""
        return sorted(name for name in self._disk.folders(()) if is_name(name))

    def on_disk(self) -> list[Partition]:
        """Return every partition that has a folder and whose name is known."""
        found = []
        for tenant in self.tenants():
            for scope in sorted(name for name in self._disk.folders((tenant,)) if is_name(name)):
                named = self._recorded_partition(tenant, scope) or {}
                texts = (decode_name(tenant) or named.get("tenant"), decode_name(scope) or named.get("scope"))
                found += [Partition(str(texts[0]), str(texts[1]))] if None not in texts else []
        return found

    def unknown(self) -> list[tuple[str, str]]:
        """Return folders of scopes that this process missed.

        Only tenants that it has examined before are checked.
        """
        return [
            (tenant, scope)
            for tenant, known in self._known.items()
            for scope in self._disk.folders((tenant,))
            if is_name(scope) and scope not in known
        ]

    def scopes(self, tenant: str) -> list[str]:
        """Return the folders of a tenant's scopes, and the one beside them."""
        return [*self._of(tenant), UNSEEN]

    def tables(self, collection: str, key: Key) -> Iterable[Table]:
        """Yield the places where a record with this key may be, likeliest first."""
        tenant, digest = encode_name(key.tenant), ids.digest_of(key.id)
        for scope, carried in list(self._of(tenant).items()):
            if carried is None:
                carried = self._known[tenant][scope] = self._digest(key.tenant, tenant, scope)
            if (
                carried == digest
            ):  # None if a truncated name's partition is not known yet; it is read again the next time
                yield Table(tenant, scope, collection)
        yield Table(tenant, UNSEEN, collection)

    def note_partition(self, tenant: str, scope: str) -> None:
        """Remember that the partition has, or will have, data."""
        known = self._known.get(tenant)
        if known is not None and scope != UNSEEN:
            known.setdefault(scope, None)

    def tenant_named(self, folder: str) -> str:
        """Return the tenant of this folder.

        For a truncated name, its partitions tell the tenant; otherwise it is the name
        itself.
        """
        plain = decode_name(folder)
        if plain is not None:
            return plain
        for scope in self.scopes(folder):
            if (payload := self._recorded_partition(folder, scope)) is not None:
                return str(payload["tenant"])
        return folder

    def scope_named(self, tenant: str, folder: str) -> str | None:
        """Return the scope of this folder.

        For a truncated name, its partition file tells the scope. It is written with the
        first record. None if there is none, or if the folder is of no scope.
        """
        plain = None if folder == UNSEEN else decode_name(folder)
        if plain is not None or not is_cut(folder):
            return plain
        if (tenant, folder) not in self._cut:
            payload = self._recorded_partition(tenant, folder)
            if payload is None:
                return None
            self._cut[tenant, folder] = str(payload["scope"])
        return self._cut[tenant, folder]

    def _of(self, tenant: str) -> dict[str, int | None]:
        known = self._known.get(tenant)
        if known is None:
            known = self._known[tenant] = {
                scope: None for scope in sorted(self._disk.folders((tenant,))) if is_name(scope)
            }
        return known

    def _digest(self, name: str, tenant: str, scope: str) -> int | None:
        """Return the digest in the ids of a scope.

        The result is None for a truncated name without a partition file. That happens
        after a crash of the process that created it.
        """
        plain = decode_name(scope)
        if plain is None:
            payload = self._recorded_partition(tenant, scope)
            if payload is None:
                return None
            plain = str(payload["scope"])
        return ids.partition_digest(name, plain)

    def _recorded_partition(self, tenant: str, scope: str) -> dict[str, object] | None:
        """Return the content of a partition's file that names its partition."""
        for name in (PARTITION, _BACKUP):
            try:
                text = self._disk.read((tenant, scope), name)
                payload = unseal(text) if text is not None else {}
            except (DamagedRecord, NotRegularFile):
                continue
            if {"tenant", "scope"} <= payload.keys():
                return payload
        return None
