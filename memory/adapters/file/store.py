"""The file store. Each public call runs as one job in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar, TypeVar

from memory.adapters.file.batch import Batch
from memory.adapters.file.codec import seal_record
from memory.adapters.file.config import CLAIMS, parse
from memory.adapters.file.errors import translate
from memory.adapters.file.foreign import foreign_names
from memory.adapters.file.library import SCHEMA, Library, deadline_in
from memory.adapters.file.reading import Reader
from memory.adapters.file.thresholds import THRESHOLDS, Thresholds
from memory.adapters.file.upkeep import Upkeep
from memory.adapters.file.worker import Call, Worker, WritingWorker
from memory.domain.errors import StoreUnavailable
from memory.ports.base import BaseStore
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.machine import WRITTEN_BACK, run_of_the_machine
from memory.ports.query import Count, Everywhere, Hit, Page, Query, Search, Tenant
from memory.ports.query_evaluation import first_partitions
from memory.ports.record import JsonValue, Key, Partition, Record, Stored
from memory.ports.rows import row_of, standing_of
from memory.ports.store import Audit, Health
from memory.ports.writes import Outcome, Write

T = TypeVar("T")
AnyWorker = TypeVar("AnyWorker", bound=Worker)

_NAMED = 20
"""Most files that `check` names."""


class FileStore(BaseStore):
    """Stores records in a folder, one readable JSON file each.

    It is safe for many processes of one user. With `fsync`, the default, an
    acknowledged write survives a power failure. See `FileConfig` for the options.
    """

    answers_under: ClassVar[bool] = True
    claims: ClassVar[Capabilities] = CLAIMS
    notes_format: ClassVar[bool] = True

    def __init__(
        self, url: str, name: str = "file", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue
    ) -> None:
        super().__init__(name)
        self.config = replace(parse(name, url, options), thresholds=thresholds)
        if not self.config.fsync:
            self._capabilities = replace(self.claims, durable=False, loss_window=WRITTEN_BACK)
        self.library = Library(name, self.config)
        self._by_key = Library(name, self.config)
        self._worker: WritingWorker | None = None
        self._reader: Worker | None = None

    @property
    def epoch(self) -> str:
        """The machine's run id if `fsync` is off, because its crash may lose writes."""
        return "" if self.config.fsync else run_of_the_machine()

    @property
    def path(self) -> Path:
        return self.config.path.absolute()

    @property
    def reads_only(self) -> bool:
        return self.library.disk.read_only

    # -- life --------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        worker, reader = (
            WritingWorker(self.name, self._write, self.config.thresholds.writes_together),
            Worker(self.name),
        )
        try:
            await worker.run(lambda: self.library.open(self._deadline()))
            await reader.run(self._by_key.join)
        except BaseException:
            await self._end(worker, reader)
            raise
        self._worker, self._reader = worker, reader
        self._take_format(self.library.noted)

    async def _close(self) -> None:
        worker, reader = self._worker, self._reader
        self._worker = self._reader = None
        if worker is not None and reader is not None:
            await self._end(worker, reader)

    async def _end(self, *workers: Worker) -> None:
        for worker in workers:
            await worker.stop()
        self.library.close()
        self._by_key.close()

    async def _read_format(self) -> str | None:
        return await self._run(lambda: self.library.schema()[1])

    async def _swap_format(self, before: str | None, after: str) -> bool:
        return await self._run(lambda: self.library.swap_format(before, after, self._deadline()))

    async def _check(self) -> Health:
        quarantined = await self._run(self._all_quarantined)
        detail = str(self.config.path)
        if quarantined:
            detail += (
                f"; {len(quarantined)} damaged files are in its quarantine: inspect, repair or delete them"
            )
        foreign = await self._run(lambda: foreign_names(self.library.disk, _NAMED))
        if foreign:
            detail += f"; ignored, because this store did not create them: {', '.join(map(repr, foreign))}"
        named: list[JsonValue] = list(quarantined[:_NAMED])
        facts: dict[str, JsonValue] = {
            "schema": SCHEMA,
            "fsync": self.config.fsync,
            "quarantined_files": named,
        }
        facts |= {"read_only": True} if self.library.disk.read_only else {}
        facts |= {"foreign_files": list[JsonValue](foreign)} if foreign else {}
        return Health(
            ok=True,
            detail=detail,
            version=f"layout {SCHEMA}",
            epoch=self.epoch,
            facts=facts,
            quarantined=len(quarantined),
        )

    def _all_quarantined(self) -> Sequence[str]:
        with self.library.hold_lock(self._deadline()):
            self.library.schema()
        return self.library.records.all_quarantined()

    # -- work --------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        """Read in a separate thread: reads by key need no lock.

        So they do not wait for writes that wait for one.
        """
        deadline = self._deadline()
        looks = await self._at_work(self._reader).run(lambda: self._by_key.look(collection, keys, deadline))
        return [look.slot(key).stored_value for look, key in zip(looks, keys, strict=True)]

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        return await self._at_work(self._worker).apply(Call(writes, together, self._deadline()))

    async def _query(self, query: Query) -> Page:
        reading = Reader(self.name, self.library, self._deadline())
        return await self._run(lambda: reading.query(query))

    def counted_bytes(self, collection: Collection, record: Record) -> int:
        return seal_record(
            collection.name,
            standing_of(collection, row_of(collection, record)),
            self.config.thresholds.bytes_apart,
        ).size

    async def _count(self, query: Query) -> Count:
        reading = Reader(self.name, self.library, self._deadline())
        return await self._run(lambda: reading.count(query))

    async def _search(self, search: Search) -> list[Hit]:
        reading = Reader(self.name, self.library, self._deadline())
        return await self._run(lambda: reading.search(search))

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        deadline = self._deadline()

        def delete() -> int:
            reading, batch = Reader(self.name, self.library, deadline), Batch(self.library)
            with self.library.hold_lock(deadline):
                count = batch.delete(query.collection, reading.to_delete(query), version, discard_at, carry)
                batch.commit()
                return count

        return await self._run(delete)

    # -- upkeep ------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        collections = tuple(self._collections.values())
        return await self._run(lambda: self._upkeep().audit(collections, repair))

    async def _vacuum(self) -> int:
        return await self._run(lambda: self._upkeep().vacuum())

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        found = await self._run(lambda: self._upkeep().partitions())
        return first_partitions(found, where, prefix, after, limit)

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return await self._run(lambda: self._upkeep().idle(limit))

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await self._run(lambda: self._upkeep().forget(idle))

    def _upkeep(self) -> Upkeep:
        return Upkeep(self.library, self._deadline)

    # -- in the thread -----------------------------------------------------------------

    def _write(self, calls: list[Call]) -> None:
        """Commit the calls as one; if that changed nothing, commit each alone.

        So no call fails because of another.
        """
        batch = Batch(self.library)
        try:
            with self.library.hold_lock(calls[0].deadline):
                answers = [self._decide(batch, call) for call in calls]
                batch.commit()
        except (
            StoreUnavailable
        ) as exc:  # the first call has waited its full time for the lock; the others have some left
            calls[0].answer.set_exception(exc)
            if len(calls) > 1:
                self._write(calls[1:])
        except BaseException as exc:  # noqa: BLE001 - the caller receives it
            if len(calls) > 1 and not batch.begun:
                for call in calls:
                    self._write([call])
            else:
                for call in calls:
                    call.answer.set_exception(exc)
        else:
            for call, answer in zip(calls, answers, strict=True):
                if isinstance(answer, Exception):
                    call.answer.set_exception(answer)
                else:
                    call.answer.set_result(answer)

    @staticmethod
    def _decide(batch: Batch, call: Call) -> list[Outcome] | Exception:
        try:
            return batch.call(call.writes, call.together)
        except Exception as exc:  # noqa: BLE001 - the caller receives it
            return exc

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._at_work(self._worker).run(work)

    def _at_work(self, worker: AnyWorker | None) -> AnyWorker:
        if worker is None:
            raise StoreUnavailable(self.name, "the store is closing; open it again first")
        return worker

    def _deadline(self) -> float:
        return deadline_in(self.config.lock_timeout)

    def _translate(self, error: Exception) -> Exception | None:
        return translate(self.name, error)
