"""Vectors for records, and the notes in stores that name the embedder of the vectors.

A note names one embedder, and during a reindex (`reindexing.py`) the next one too. Then
both may be in use at once. Each record names the embedder of its vector, and a search
by meaning only compares vectors of its own embedder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from memory.domain import ids
from memory.domain.errors import (
    ConfigError,
    EmbedderMismatch,
    EmbedderTimeout,
    InvalidInput,
    MemoryTiersError,
    StoreError,
)
from memory.domain.validation import SYSTEM_TENANT
from memory.orchestrator.storage.collections import MODEL, SETTINGS, SETTINGS_SCOPE
from memory.orchestrator.storage.entry_records import meaning_of, own_vector, without_own_vector
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.topology import leaves_of
from memory.policies.entry_query import SearchMode
from memory.policies.ranking.calibration import EMBEDDERS
from memory.policies.ranking.unrelated_texts import UNRELATED_TEXTS
from memory.ports.embedder import Embedder, Fingerprint
from memory.ports.query import Condition, Eq, IsNull, Or
from memory.ports.record import FieldValue, Key, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Outcome, Put

if TYPE_CHECKING:
    from memory.policies.ranking.relevance import EmbedderScale

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmbedderNote:
    """The note of a store about the embedder of its vectors.

    `model` is the embedder, `to` the next one during a reindex, and `ended` the end of
    the last reindex. `version` is the version of the note as it was read.
    """

    model: Fingerprint
    to: Fingerprint | None = None
    ended: datetime | None = None
    version: int = 0

    def __str__(self) -> str:
        return str(self.model) if self.to is None else f"{self.model}, with a reindex to {self.to} under way"

    def names(self, model: Fingerprint) -> bool:
        return model in (self.model, self.to)


class Embeddings:
    """The embedder and its notes in the stores.

    Without an embedder, there is no search by meaning.
    """

    def __init__(self, placement: Placement, embedder: Embedder | None) -> None:
        self._placement = placement
        self._embedder = None if embedder is None else _TimedEmbedder(embedder, placement.settings.embedding)
        self._mine: Fingerprint | None = None
        self._scale: EmbedderScale | None = None
        self._noted: EmbedderNote | None = None
        """The archive's note as of the last look."""

    @property
    def on(self) -> bool:
        return self._embedder is not None

    async def embed_records(self, records: Sequence[Record]) -> list[Record]:
        """Return the records with their vectors. A record without text gets none.

        A vector of the caller stays if it has the length of this embedder's vectors.
        Otherwise the record gets the vector of its text. Without an embedder, records
        keep the vectors that they have. A reindex finds those that have none.
        """
        mine = await self._fingerprint()
        if mine is None:
            return [_as_it_was(one) for one in records]
        records = [
            one if own_vector(one) is None or _fits(one.vector, mine) else without_own_vector(one)
            for one in records
        ]
        whose = await self.whose()
        texts = [meaning_of(one) if own_vector(one) is None else "" for one in records]
        made = iter(await self.of_texts([text for text in texts if text.strip()]))
        return [
            replace(
                one,
                fields={**one.fields, **whose},
                vector=next(made) if text.strip() else own_vector(one),
            )
            for one, text in zip(records, texts, strict=True)
        ]

    async def check_vector(self, vector: bytes | None) -> None:
        """Raise `InvalidInput` unless a caller's vector has this embedder's length."""
        if vector is None:
            return
        mine = await self._fingerprint()
        if mine is None:
            raise InvalidInput(
                "vector",
                "needs an embedder, and none is configured. Configure the embedder that your vectors are"
                " comparable with",
            )
        if not _fits(vector, mine):
            raise InvalidInput(
                "vector",
                f"has {len(vector) // 4} dimensions, and the embedder {mine} has {mine.dimensions}. Pass a"
                " vector of that length",
            )

    async def with_room(self, records: Sequence[Record]) -> list[Record]:
        """Return the records with empty vectors of the final size.

        Callers use them to compute the size of the records.
        """
        mine = await self._fingerprint()
        if mine is None:
            return list(records)
        whose, vector = await self.whose(), bytes(4 * mine.dimensions)
        return [
            replace(
                r,
                fields={**r.fields, **whose},
                vector=own_vector(r) or (vector if meaning_of(r).strip() else None),
            )
            for r in records
        ]

    async def of_texts(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the vectors of texts; None for a text that has none."""
        if self._embedder is None or not texts:
            return [None] * len(texts)
        return [vector or None for vector in await self._embedder.embed(texts)]

    async def of_query(self, text: str, mode: SearchMode, lacking: AnswerGaps) -> bytes | None:
        """Return the vector of a query; None if it has none.

        Also None, with a note in the answer, if the embedder fails or is late, and
        words can answer in its place. A query waits at most as long as for a store.
        """
        if self._embedder is None or not text.strip():
            return None
        settings = self._placement.settings
        try:
            made = await self._embedder.embed([text], min(settings.deadline, settings.embedding))
            return made[0] or None
        except Exception as error:
            is_late = isinstance(error, EmbedderTimeout)
            if mode == "semantic" or (isinstance(error, MemoryTiersError) and not is_late):
                raise  # words cannot answer, or the embedder returned no vectors
            log.warning("the embedder failed, and a search was answered by words alone", exc_info=error)
            what = "did not return in time" if is_late else f"failed ({type(error).__name__})"
            lacking.say(f"the embedder {what}: the search was by words alone")
            return None

    async def scale(self) -> EmbedderScale | None:
        """Return the scale of relevance; None if the embedder has no calibration.

        Also None if there is no embedder.
        """
        if (
            self._scale is None
            and self._embedder is not None
            and (constants := EMBEDDERS.get(str(await self._fingerprint()))) is not None
        ):
            from memory.policies.ranking.relevance import (
                embedder_scale,
            )  # imports numpy: only searches need it

            self._scale = embedder_scale(constants, await self._embedder.embed(UNRELATED_TEXTS))
        return self._scale

    async def check_relevance(self, least: float | None, mode: SearchMode) -> None:
        """Raise `InvalidInput` if a minimum relevance cannot be computed."""
        if least is None or mode == "lexical" or self._embedder is None or await self.scale() is not None:
            return
        raise InvalidInput(
            "min_relevance",
            f"relevance is unknown with the embedder {await self._fingerprint()}, which has no calibration. "
            "Omit min_relevance, or search with mode='lexical'",
        )

    async def whose(self) -> dict[str, FieldValue]:
        """Return the field that names this embedder in a record with a vector."""
        mine = await self._fingerprint()
        return {} if mine is None else {MODEL: mine.digest}

    async def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the embedder.

        Raises:
            ConfigError: No embedder is configured.
        """
        if (mine := await self._fingerprint()) is None:
            raise ConfigError(
                "embedder: none is configured. Configure the embedder that the new vectors are made with"
            )
        return mine

    async def _fingerprint(self) -> Fingerprint | None:
        if self._mine is None and self._embedder is not None:
            self._mine = await self._embedder.fingerprint()
        return self._mine

    # -- beside another embedder -------------------------------------------------------

    @property
    def own(self) -> Condition | None:
        """The condition that selects records with a vector of this embedder.

        None if the stores note no other embedder, so that no condition is needed.
        """
        if (
            self._noted is None
            or self._mine is None
            or (self._noted.model, self._noted.to) == (self._mine, None)
        ):
            return None
        own = Eq(MODEL, self._mine.digest)
        return Or((IsNull(MODEL), own)) if self._noted.model == self._mine else own

    def is_own(self, model: object) -> bool:
        """Return whether a record's `MODEL` value names this embedder. See `own`."""
        if self._noted is None or self._mine is None:
            return True
        return model == self._mine.digest or (model is None and self._noted.model == self._mine)

    @property
    def lacks(self) -> str | None:
        """A note on results that search by meaning misses because of another embedder.

        None if the stores note no other.
        """
        if self.own is None or self._noted is None:
            return None
        if self._noted.to is None:
            return (
                f"the stores now hold vectors of {self._noted.model}; texts without a vector of {self._mine}"
                " were found by words alone"
            )
        return (
            f"a reindex to {self._noted.to} is under way; texts without a vector of {self._mine} were found"
            " by words alone"
        )

    @property
    def reindexed_at(self) -> datetime | None:
        """When the last reindex to this embedder ended; None if there was none."""
        return self._noted.ended if self._noted is not None and self._noted.model == self._mine else None

    async def look(self) -> None:
        """Read again which embedder the archive notes."""
        if await self._fingerprint() is not None:
            self._noted = await self.read_note()

    # -- notes -------------------------------------------------------------------------

    async def check(self) -> None:
        """Note the embedder in every store that has vectors.

        A store that is away is checked when it arrives. Nothing is noted before all
        notes have been read.

        Raises:
            EmbedderMismatch: A store notes another embedder, and no reindex to or from
                this embedder is under way.
        """
        if (mine := await self._fingerprint()) is None:
            return
        away = self._placement.topology.away
        stores = [store for store in self._having_vectors if store.name not in away]
        for store in stores:
            refuse_too_long(store, mine)
        with suppress(StoreError):  # the store is checked below, or is away
            await self.look()
        noted = [(store, await self.read_note_in(store)) for store in stores]
        for store, note in noted:
            self._refuse_other(store, note, mine)
        for store, note in noted:
            if note is None:
                await self._note_first(store, mine)

    async def check_store(self, store: Store) -> None:
        """Check one store that has arrived. See `check`."""
        mine = await self._fingerprint()
        if mine is None or store not in self._having_vectors:
            return
        refuse_too_long(store, mine)
        with suppress(StoreError):
            await self.look()
        note = await self.read_note_in(store)
        self._refuse_other(store, note, mine)
        if note is None:
            await self._note_first(store, mine)

    async def begin(self) -> Fingerprint:
        """Note in every store with vectors that a reindex to this embedder begins.

        If the stores note this embedder already, nothing is noted. The archive is
        first, because its note is authoritative. Raises if a store is away or does not
        take such vectors.

        Returns:
            The fingerprint of this embedder.
        """
        mine = await self.fingerprint()
        stores = self._having_vectors
        for store in stores:
            refuse_too_long(store, mine)
        noted = [note for store in stores if (note := await self.read_note_in(store)) is not None]
        if any((note.model, note.to) != (mine, None) for note in noted):
            for store in stores:
                await self._note(
                    store, lambda note: EmbedderNote(noted[0].model if note is None else note.model, mine)
                )
        for store in stores:
            await self._note(store, lambda note: note or EmbedderNote(mine))
        await self.look()
        return mine

    async def end(self) -> bool:
        """Note in all stores that only this embedder is in use, in the archive last.

        Returns:
            False if a reindex to another embedder has begun.
        """
        mine, now = await self._fingerprint(), self._placement.now()
        if mine is None:
            return False
        for store in reversed(self._having_vectors):
            if not await self._note(
                store,
                lambda note: (
                    EmbedderNote(mine, ended=now) if note and mine == (note.to or note.model) else None
                ),
            ):
                return False
        await self.look()
        return True

    async def read_note(self) -> EmbedderNote | None:
        """Return the archive's note, which is authoritative."""
        return await self.read_note_in(self._having_vectors[0])

    async def read_note_in(self, store: Store) -> EmbedderNote | None:
        """Return a store's note; None if it has none."""
        row = await self._placement.read_one("embedder.check", store, SETTINGS, _key())
        if not isinstance(row, Record):
            return None
        to: Any = row.body.get("to")
        ended: Any = row.body.get("ended")
        return EmbedderNote(
            _fingerprint(row.body),
            None if to is None else _fingerprint(to),
            None if ended is None else datetime.fromisoformat(ended),
            row.version,
        )

    @property
    def _having_vectors(self) -> tuple[Store, ...]:
        """The stores that note the embedder of their vectors.

        They are the archive, whose first part has the authoritative note, and the
        stores with search by meaning.
        """
        topology = self._placement.topology
        there = [leaf for home in topology.homes for leaf in leaves_of(home) if leaf.capabilities.semantic]
        return tuple(dict.fromkeys((*leaves_of(topology.archive), *there)))

    def _refuse_other(self, store: Store, note: EmbedderNote | None, mine: Fingerprint) -> None:
        if note is None or note.names(mine):
            return
        under_way = (
            self._noted is not None
            and self._noted.to is not None
            and self._noted.names(mine)
            and self._noted.names(note.model)
        )
        if not under_way:  # otherwise a reindex was interrupted between two notes
            raise EmbedderMismatch(store.name, str(note.model), str(mine))

    async def _note_first(self, store: Store, mine: Fingerprint) -> None:
        first = self._noted or EmbedderNote(mine)
        await self._put(store, EmbedderNote(first.model, first.to))
        self._refuse_other(store, await self.read_note_in(store), mine)
        with suppress(StoreError):
            await self.look()

    async def _note(self, store: Store, change: Callable[[EmbedderNote | None], EmbedderNote | None]) -> bool:
        """Change a store's note, and retry if another process changed it.

        Returns false if there is nothing to note.
        """
        while True:
            note = await self.read_note_in(store)
            new = change(note)
            if new is None:
                return False
            same = note is not None and (note.model, note.to) == (new.model, new.to)
            if same or (await self._put(store, new, 0 if note is None else note.version)).applied:
                return True

    async def _put(self, store: Store, note: EmbedderNote, over: int = 0) -> Outcome:
        now = self._placement.now()
        body = _body(note.model) | ({} if note.to is None else {"to": _body(note.to)})
        body |= {} if note.ended is None else {"ended": note.ended.isoformat()}
        record = Record(
            _key(), SETTINGS_SCOPE, self._placement.next_version(over), now, now, body=body, tier="mid"
        )
        return await self._placement.write_one(
            "embedder.note", store, Put(SETTINGS, record, AtVersion(over) if over else Absent())
        )


class _TimedEmbedder:
    """Calls an embedder, and gives up a call that does not return in time."""

    def __init__(self, embedder: Embedder, limit: timedelta) -> None:
        self._embedder = embedder
        self._limit = limit

    async def fingerprint(self) -> Fingerprint:
        return await _within(self._limit, self._embedder.fingerprint())

    async def embed(self, texts: Sequence[str], limit: timedelta | None = None) -> list[bytes]:
        return await _within(self._limit if limit is None else limit, self._embedder.embed(texts))


async def _within(limit: timedelta, call: Awaitable[T]) -> T:
    """Return the result of a call of the embedder. A limit of zero is none.

    Raises:
        EmbedderTimeout: It did not return within the limit.
    """
    if not limit:
        return await call
    timer = asyncio.timeout(limit.total_seconds())
    try:
        async with timer:
            return await call
    except TimeoutError:
        if not timer.expired():
            raise  # the embedder's own
        raise EmbedderTimeout(limit) from None


def _fits(vector: bytes | None, model: Fingerprint | None) -> bool:
    return vector is not None and model is not None and len(vector) == 4 * model.dimensions


def _as_it_was(record: Record) -> Record:
    """Return a record with the vector of its embedder, or without a vector."""
    if record.vector is not None and MODEL in record.fields:
        return record
    fields = {name: value for name, value in record.fields.items() if name != MODEL}
    return replace(without_own_vector(record), fields=fields)


def refuse_too_long(store: Store, model: Fingerprint) -> None:
    """Raise `ConfigError` if a store does not take vectors of the model's length."""
    limit = store.capabilities.max_vector_dims
    if limit is not None and model.dimensions > limit:
        raise ConfigError(
            f"store '{store.name}' takes vectors of at most {limit} dimensions; the embedder makes {model}"
        )


def _key() -> Key:
    return Key(SYSTEM_TENANT, ids.derived_id(SYSTEM_TENANT, SETTINGS_SCOPE, "embedder"))


def _body(model: Fingerprint) -> dict[str, Any]:
    return {"model": model.model, "dimensions": model.dimensions, "metric": model.metric}


def _fingerprint(body: Any) -> Fingerprint:
    return Fingerprint(body["model"], body["dimensions"], body["metric"])
