"""Which partitions there are, and the generation of each, in `partition.json`.

Of this file both copies are always the current one: a generation that went one step
back would bring erased records in. Where neither can be read, writes to the partition
are refused.
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
    """What is counted for a partition."""

    partition: Partition
    generation: int = 0
    written: bool = False
    """Whether it stands on disk."""

    @property
    def folder(self) -> tuple[str, str]:
        return (encode_name(self.partition.tenant), encode_name(self.partition.scope))

    @property
    def must_be_written(self) -> bool:
        """Whether the folder's name alone does not tell the partition."""
        return not self.written and any(map(is_cut, self.folder))

    def stage(self, staged: StagedCommit) -> None:
        named = {"tenant": self.partition.tenant, "scope": self.partition.scope}
        content = seal({**named, "generation": self.generation})
        staged.write(self.folder, _BACKUP, content)
        staged.write(self.folder, PARTITION, content)

    def stage_removal(self, staged: StagedCommit) -> None:
        """So that nothing is counted there any more."""
        for name in (PARTITION, _BACKUP):
            staged.remove(self.folder, name)


class Partitions:
    def __init__(self, store: str, disk: Disk) -> None:
        self._store, self._disk = store, disk
        self._known: dict[str, dict[str, int | None]] = {}
        """By tenant's folder: the scopes' folders, with the digest that their ids
        carry.
        """

    def forget(self) -> None:
        self._known.clear()

    # -- what is counted ---------------------------------------------------------------

    def state(self, partition: Partition) -> State:
        """As it stands on disk."""
        problems: list[str] = []
        for state in self._copies(partition, problems):
            return state
        if problems:
            raise StoreError(
                self._store,
                f"what is counted for a partition cannot be read, so nothing is written there: {'; '.join(problems)}",
            )
        return State(partition)

    def copies(self, partition: Partition) -> tuple[list[State], list[str]]:
        """As each of the two files has it, and what keeps one from being read. Both are
        to be the same, or neither is to be there.
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
        """The folders of all tenants."""
        return sorted(name for name in self._disk.folders(()) if is_name(name))

    def on_disk(self) -> list[Partition]:
        """Every partition that has a folder, as far as that tells which it is."""
        found = []
        for tenant in self.tenants():
            for scope in sorted(name for name in self._disk.folders((tenant,)) if is_name(name)):
                named = self._recorded_partition(tenant, scope) or {}
                texts = (decode_name(tenant) or named.get("tenant"), decode_name(scope) or named.get("scope"))
                found += [Partition(str(texts[0]), str(texts[1]))] if None not in texts else []
        return found

    def unknown(self) -> list[tuple[str, str]]:
        """Folders of scopes that this process does not know of, though it looked at
        their tenant before.
        """
        return [
            (tenant, scope)
            for tenant, known in self._known.items()
            for scope in self._disk.folders((tenant,))
            if is_name(scope) and scope not in known
        ]

    def scopes(self, tenant: str) -> list[str]:
        """The folders of a tenant's scopes, and the one beside them."""
        return [*self._of(tenant), UNSEEN]

    def tables(self, collection: str, key: Key) -> Iterable[Table]:
        """Where a record with this key can be, likeliest first."""
        tenant, digest = encode_name(key.tenant), ids.digest_of(key.id)
        for scope, carried in list(self._of(tenant).items()):
            if carried is None:
                carried = self._known[tenant][scope] = self._digest(key.tenant, tenant, scope)
            if (
                carried == digest
            ):  # None where a cut name's partition is not known yet: it is asked for again the next time
                yield Table(tenant, scope, collection)
        yield Table(tenant, UNSEEN, collection)

    def note_partition(self, tenant: str, scope: str) -> None:
        """Something was or will be written there."""
        known = self._known.get(tenant)
        if known is not None and scope != UNSEEN:
            known.setdefault(scope, None)

    def tenant_named(self, folder: str) -> str:
        """The tenant of this folder; of a cut name what its partitions say, or else the
        name.
        """
        plain = decode_name(folder)
        if plain is not None:
            return plain
        for scope in self.scopes(folder):
            if (payload := self._recorded_partition(folder, scope)) is not None:
                return str(payload["tenant"])
        return folder

    def _of(self, tenant: str) -> dict[str, int | None]:
        known = self._known.get(tenant)
        if known is None:
            known = self._known[tenant] = {
                scope: None for scope in sorted(self._disk.folders((tenant,))) if is_name(scope)
            }
        return known

    def _digest(self, name: str, tenant: str, scope: str) -> int | None:
        """The digest of a scope's ids; None for a cut name whose partition has no file
        yet, as where the process that made it died.
        """
        plain = decode_name(scope)
        if plain is None:
            payload = self._recorded_partition(tenant, scope)
            if payload is None:
                return None
            plain = str(payload["scope"])
        return ids.partition_digest(name, plain)

    def _recorded_partition(self, tenant: str, scope: str) -> dict[str, object] | None:
        """What a partition's file says it is the partition of."""
        for name in (PARTITION, _BACKUP):
            try:
                text = self._disk.read((tenant, scope), name)
                payload = unseal(text) if text is not None else {}
            except (DamagedRecord, NotRegularFile):
                continue
            if {"tenant", "scope"} <= payload.keys():
                return payload
        return None
