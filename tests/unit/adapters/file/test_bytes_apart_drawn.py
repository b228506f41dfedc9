"""Drawn histories of a record whose bytes lie apart: edited, deleted, erased, damaged
and cut off anywhere; and the mutations that they show.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import pytest

from memory.adapters.file import batch, records
from memory.adapters.file.disk import Disk
from memory.adapters.file.store import FileStore
from memory.adapters.file.thresholds import THRESHOLDS
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import delete, fetch_stored, id_of, key_of, one, put, query_ids, record
from memory.ports.record import Corrupt, Record, Stored, Tombstone
from memory.ports.writes import Always, Annotate, Put
from tests.support import noticed
from tests.support.mutations import Mutation
from tests.unit.adapters.file.helping import backup_of, file_of, opened, table_of
from tests.unit.adapters.file.test_killed import Killed

pytestmark = pytest.mark.backend("file")

MANY = THRESHOLDS.bytes_apart
STEPS = 25


def unsound(folder: Path) -> list[str]:
    """The files of bytes that are not what the record beside them, or the version
    before, says: each has just those, as they were written.
    """
    named: dict[str, tuple[int, str]] = {}
    for file in table_of(folder).glob("*.json*"):
        for name, said in json.loads(file.read_bytes()).get("fields", {}).items():
            if isinstance(said, dict):
                ending = ".bytes.bak" if file.name.endswith(".bak") else ".bytes"
                named[f"{file.name.partition('.')[0]}.{name}{ending}"] = (said["bytes"], said["sha256"])
    there = {file.name: file.read_bytes() for file in table_of(folder).glob("*.bytes*")}
    seen = {name: (len(content), sha256(content).hexdigest()) for name, content in there.items()}
    return sorted(name for name in named.keys() | seen.keys() if named.get(name) != seen.get(name))


@dataclass(frozen=True, slots=True)
class Said:
    """What stands under the key: a record of this version with these bytes, a
    tombstone, or what cannot be read.
    """

    version: int
    seal: bytes | None = None
    gone: bool = False
    corrupt: bool = False

    def is_(self, stored: Stored | None) -> bool:
        if self.corrupt or self.gone:
            return isinstance(stored, Corrupt if self.corrupt else Tombstone)
        return isinstance(stored, Record) and (stored.version, stored.fields.get("seal")) == (
            self.version,
            self.seal,
        )


@dataclass(slots=True)
class History:
    """Plays one record's history from a seed; `played` says what was wrong."""

    folder: Path
    seed: int
    now: Said = field(default_factory=lambda: Said(0, gone=True))
    before: Said | None = None
    version: int = 0

    async def played(self) -> Sequence[str]:
        drawn = random.Random(self.seed)  # noqa: S311
        store = await opened(self.folder, fsync=False)
        await one(store, delete(1, version=1))
        self.version = 1
        for step in range(STEPS):
            does, after = self._step(drawn)
            cut = drawn.random() < 0.3
            if not cut:
                await does(store)
            elif await self._cut_off(store, does, drawn):
                await store.close()
                store = await opened(self.folder, fsync=False)
            stored = await fetch_stored(store)
            fits = (
                [said for said in ((self.now, self.before), after) if said[0].is_(stored)]
                if cut
                else [after] * after[0].is_(stored)
            )
            if not fits:
                return [f"step {step}: {str(stored)[:200]} stands there, and not version {after[0].version}"]
            was, (self.now, self.before) = self.now, fits[-1]
            if cut and self.now is was and self._is_kept_twice():
                self.before = was
            if wrong := ([] if self.now.corrupt else unsound(self.folder)):
                return [f"step {step}: {', '.join(wrong)}"]
            if await query_ids(store) != [id_of(1)] * isinstance(stored, Record):
                return [f"step {step}: a query finds another"]
        told = list((await store.audit()).problems)
        await store.close()
        return told

    def _step(
        self, drawn: random.Random
    ) -> tuple[Callable[[FileStore], Awaitable[object]], tuple[Said, Said | None]]:
        """What is done next, and what stands there then, with the version before that
        may be restored.
        """
        is_record = not (self.now.gone or self.now.corrupt)
        kinds = ["put"] * 6 + ["delete"] + (["annotate", "erase", "damage", "damage"] if is_record else [])
        kind = drawn.choice(kinds)
        if kind == "damage":
            return self._damage(drawn), (self.before or Said(0, corrupt=True), self.before)
        if kind == "annotate":
            return lambda store: one(
                store, Annotate(SAMPLES, key_of(1), self.now.version, tier=drawn.choice("abc"))
            ), (self.now, self.before)
        self.version += 1
        if kind == "delete":
            gone = delete(1, version=self.version)
            return lambda store: one(store, gone), (Said(self.version, gone=True), None)
        new = Said(
            self.version,
            drawn.choice(
                [None, b"few", self.now.seal, *[bytes([self.version]) * (MANY + drawn.randrange(9))] * 3]
            ),
        )
        what = record(1, version=new.version, fields={} if new.seal is None else {"seal": new.seal})
        write = Put(SAMPLES, what, Always(), erases=True) if kind == "erase" else put(what)
        return lambda store: one(store, write), (new, self.now if is_record and kind == "put" else None)

    def _is_kept_twice(self) -> bool:
        """Whether what stands there is the version before too: of a write that was cut
        off when it had kept that.
        """
        kept = backup_of(self.folder)
        return kept.exists() and bool(json.loads(kept.read_bytes())["version"] == self.now.version)

    def _damage(self, drawn: random.Random) -> Callable[[FileStore], Awaitable[object]]:
        file = drawn.choice([file_of(self.folder), *table_of(self.folder).glob("*.bytes")])
        content = file.read_bytes()
        file.unlink()  # the version before may have the same bytes
        if drawn.random() < 0.7 or file == file_of(self.folder):
            file.write_bytes(drawn.choice([content[:-1], b"\xff" + content[1:]]))
        return fetch_stored

    async def _cut_off(
        self, store: FileStore, does: Callable[[FileStore], Awaitable[object]], drawn: random.Random
    ) -> bool:
        """Do it in a process that ends at some call. Whether it did."""
        method, at, calls = (
            drawn.choice(["write_new", "rename", "rename", "remove", "copy"]),
            drawn.randrange(6),
            0,
        )
        genuine: Callable[..., object] = getattr(Disk, method)

        def counted(disk: Disk, *arguments: object) -> object:
            nonlocal calls
            calls += 1
            if calls > at:
                raise Killed
            return genuine(disk, *arguments)

        with patch.object(Disk, method, counted):
            try:
                await does(store)
            except Killed:
                return True
        return False


@pytest.mark.parametrize("seed", range(12))
async def test_a_record_and_its_bytes_are_of_one_version_whatever_happens(tmp_path: Path, seed: int) -> None:
    assert await History(tmp_path / "data", seed).played() == []


MUTATIONS = {
    "the digest is not asked": Mutation(
        records, "Records._whole", " or BlobReference.of(content) != said", ""
    ),
    "record and bytes are no one commit": Mutation(
        batch, "Batch._stage_all", " and APART not in step.name", ""
    ),
    "a restored record has not its bytes": Mutation(
        records, "Records._restore", "in apart.items():", "in ():"
    ),
    "the bytes of what was lost stay": Mutation(
        records, "Records._restore", "if name not in apart:", "if False:"
    ),
    "the version before has not its bytes": Mutation(
        batch, "Batch._stage_keeping", "for name in look.apart:", "for name in ():"
    ),
    "the bytes of the version before that stay": Mutation(
        batch, "Batch._stage_keeping", "if file not in kept:", "if False:"
    ),
    "a record without bytes leaves those of another": Mutation(
        batch, "Batch._stage_bytes", "if file not in files:", "if False:"
    ),
    "bytes that are there are taken for those that come": Mutation(
        batch, "Batch._stage_bytes", "there.get(name) != sealed.apart[name]", "name not in there"
    ),
    "what is erased is left in the version before": Mutation(
        batch,
        "Batch._stage_no_version_before",
        "records.bytes_files(place, collection, place.bytes_before)",
        "()",
    ),
}


@pytest.mark.parametrize("name", noticed.cases("bytes apart/", MUTATIONS))
def test_a_mutation_shows(tmp_path: Path, name: str) -> None:
    async def played(seed: int) -> Sequence[str]:
        return await History(tmp_path / str(seed), seed).played()

    assert MUTATIONS[name].seen_in(played, 60, f"bytes apart/{name}", has_threads=True), "nobody noticed"
