"""What stands under a key on disk, and what is done when the file cannot be trusted.

`<id>.json` is what stands; `<id>.json.bak` the version before, kept only of a live record that was edited in the same role. A file that cannot
be read, or is gone without having been deleted, is restored from the version before: that version is then what stands, one step back, so
who had read the lost one and writes on condition of it meets a conflict and sees what is there. The bad file is kept in `set.aside`, a
warning is logged and `check` lists it. A deletion, a move or a change of role leaves no version before: what they did is never undone
by a restoration, and where such a file cannot be read the answer is `Corrupt`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memory.adapters.file.commits import Commits, Staged
from memory.adapters.file.disk import Disk, NoFile
from memory.adapters.file.names import OTHER, Place, Shelf, place_in, place_of
from memory.adapters.file.partitions import Partitions
from memory.adapters.file.sealing import Damaged, Foreign, unseal, unseal_record
from memory.domain.errors import StoreError
from memory.ports.collections import Collection
from memory.ports.deciding import Slot
from memory.ports.query import RowType
from memory.ports.record import Corrupt, Key, Record, Standing

log = logging.getLogger(__name__)

SET_ASIDE = "set.aside"


@dataclass(frozen=True, slots=True)
class Look:
    """What a place holds. `standing` and `damage` are both None where nothing is there; `before` is the version to restore, if there is one.

    A foreign file counts as nothing, and is kept when something is written in its place.
    """

    place: Place
    standing: Standing | None = None
    damage: Damaged | None = None
    before: Record | None = None
    foreign: bool = False
    bytes: int = 0

    @property
    def holds(self) -> bool:
        return self.standing is not None or self.damage is not None or self.before is not None

    def slot(self, key: Key) -> Slot:
        """As writes are decided on."""
        if self.damage is not None:
            return Slot(Corrupt(key, self.damage.problem), self.damage.version)
        return Slot(self.standing, None if self.standing is None else self.standing.version)


class Records:
    def __init__(self, disk: Disk, commits: Commits, partitions: Partitions) -> None:
        self._disk, self._commits, self._partitions = disk, commits, partitions

    def look(self, place: Place, collection: Collection, key: Key | None) -> Look:
        """Read what is there; where that fails, also the version before. Changes nothing."""
        foreign = False
        damage: Damaged | None = None
        try:
            text = self._disk.read(place.shelf.parts, place.file)
            if text is not None:
                standing = unseal_record(text, collection)
                check_place(standing, place, key)
                return Look(place, standing, bytes=len(text))
        except Foreign as exc:
            foreign = True
            log.warning("file '%s' is left alone: %s", place, exc)
        except Damaged as exc:
            damage = exc
        except NoFile as exc:
            damage = Damaged(str(exc))
        before, spoiled = self._before(place, collection, key)
        if damage is not None and damage.kind in (RowType.MARK, RowType.TOMBSTONE):
            before = None
        if damage is None and before is None and spoiled is not None:
            damage = Damaged(f"the file is gone, and of the version before {spoiled.problem}")
        return Look(place, None, damage, before, foreign)

    def _before(self, place: Place, collection: Collection, key: Key | None) -> tuple[Record | None, Damaged | None]:
        try:
            text = self._disk.read(place.shelf.parts, place.backup)
            if text is None:
                return None, None
            standing = unseal_record(text, collection)
            check_place(standing, place, key)
        except (Damaged, Foreign) as exc:
            return None, exc if isinstance(exc, Damaged) else None
        except NoFile as exc:
            return None, Damaged(str(exc))
        return (standing, None) if isinstance(standing, Record) else (None, None)

    # -- with the lock ------------------------------------------------------------------------------------------------

    def restored(self, look: Look, collection: Collection, key: Key | None) -> Look:
        """What stands there once the version before is put back. With the lock, and its change noted."""
        before = look.before
        if before is None:
            return look
        if not self._may_return(before):
            return Look(look.place, None, look.damage or Damaged("the file is gone, and the version before is of an erased scope"))
        try:
            self._restore(look, before)
        except OSError as exc:  # a full disk, or one that only reads: served from where it is
            log.warning("record '%s' cannot be restored now (%s), and is read from the version before", look.place, exc.strerror)
            return Look(look.place, before)
        return self.look(look.place, collection, key)

    def _may_return(self, before: Record) -> bool:
        """Whether its scope has not been erased since; not where that cannot be told."""
        try:
            return before.generation is not None and before.generation >= self._partitions.ledger(before.partition).generation
        except StoreError:
            return False

    def _restore(self, look: Look, before: Record) -> None:
        place = look.place
        good = self._disk.read(place.shelf.parts, place.backup)
        if good is None:
            return
        staged = Staged()
        kept = ""
        if look.damage is not None or look.foreign:
            kept = f" The bad file is kept as '{self.set_aside(place, staged)}'."
        staged.write(place.shelf.parts, place.file, good)
        self._commits.prepare(staged)
        self._commits.carry_out(staged, lambda: None)
        lost = "" if look.damage is None or look.damage.version is None else f" (version {look.damage.version})"
        problem = "it was gone" if look.damage is None else look.damage.problem
        log.warning("record '%s' was restored to version %d, the one before the last%s: %s.%s", place, before.version, lost, problem, kept)

    def set_aside(self, place: Place, staged: Staged) -> str:
        """Let the file that stands there be kept for people to look at. Returns where."""
        now = datetime.now(UTC).strftime("%Y%m%dt%H%M%S.%fz")
        folder, name = (SET_ASIDE, *place.shelf.parts), f"{place.file}.corrupt-{now}"
        staged.keep(place.shelf.parts, place.file, folder, name)
        return "/".join((*folder, name))

    def forget_set_aside(self, place: Place, staged: Staged) -> None:
        """Whatever was set aside of this key goes: what was deleted is nowhere to be read."""
        folder = (SET_ASIDE, *place.shelf.parts)
        for name in self._disk.names(folder):
            if name.startswith(f"{place.file}."):
                staged.remove(folder, name)

    def has_before(self, place: Place) -> bool:
        return self._disk.exists(place.shelf.parts, place.backup)

    def scopes_beside(self, tenant: str) -> set[str | None]:
        """The scopes of the records and marks beside the tenant's partitions, of whatever collection; None among them where one cannot be told."""
        found: set[str | None] = set()
        for collection in self._disk.folders((tenant, OTHER)):
            folder = (tenant, OTHER, collection)
            for name in self._disk.names(folder):
                try:
                    said = unseal(self._disk.read(folder, name) or b"")
                except (Damaged, NoFile) as exc:
                    found.add(exc.scope if isinstance(exc, Damaged) else None)
                    continue
                if said.get("kind") != RowType.TOMBSTONE.value:
                    found.add(said.get("scope"))
        return found

    # -- for people ---------------------------------------------------------------------------------------------------

    def all_set_aside(self) -> Sequence[str]:
        """Every file kept for people to look at, by its path in the folder."""
        found = []
        for tenant in self._disk.folders((SET_ASIDE,)):
            for scope in self._disk.folders((SET_ASIDE, tenant)):
                for collection in self._disk.folders((SET_ASIDE, tenant, scope)):
                    shelf = Shelf(tenant, scope, collection)
                    found += ["/".join((SET_ASIDE, *shelf.parts, name)) for name in self._disk.names((SET_ASIDE, *shelf.parts))]
        return sorted(found)


def check_place(standing: Standing, place: Place, key: Key | None = None) -> None:
    """Raises `Foreign` where the file does not stand where its key and scope belong."""
    belongs = place_of(place.shelf.collection, standing) or place_in(place.shelf.collection, standing.key, place.shelf.scope)
    if belongs != place or (key is not None and standing.key != key):
        raise Foreign(f"it is the record of '{belongs}'")
