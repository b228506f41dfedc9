"""The store: one round trip an operation where one will do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from redis.exceptions import ResponseError

from memory.adapters.redis import auditing as audit
from memory.adapters.redis.asking import Match, Question
from memory.adapters.redis.cluster import ClusterLink
from memory.adapters.redis.config import CLAIMS, RedisConfig, parse
from memory.adapters.redis.errors import translate
from memory.adapters.redis.inspection import Inspection
from memory.adapters.redis.link import Link
from memory.adapters.redis.names import SCHEMA, place_of
from memory.adapters.redis.packing import SEAL_END, grave_parts, identity_of
from memory.adapters.redis.reading import Spot
from memory.adapters.redis.scripts import Call
from memory.adapters.redis.single import ServerLink
from memory.adapters.redis.thresholds import THRESHOLDS, Thresholds
from memory.adapters.redis.unpacking import content_size, is_set_aside, stored_in, version_in
from memory.adapters.redis.upkeep import forget_partitions, idle_partitions, note_collections
from memory.adapters.redis.writing import (
    Answer,
    answer_in,
    call_for,
    delete_call,
    is_displaced,
    outcome_of,
    prepare_call,
    raise_beside_call,
    set_aside_call,
)
from memory.domain.errors import ConfigError
from memory.ports.answering import expecting
from memory.ports.base import BaseStore
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.pace import paced
from memory.ports.query import Count, Page, Query
from memory.ports.record import Corrupt, JsonValue, Key, Partition, Record, Stored
from memory.ports.storable import Unstorable
from memory.ports.store import Audit, Health
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

log = logging.getLogger(__name__)


class RedisStore(BaseStore):
    """Records in Redis or Valkey, 6.2 or later: a single server, one found by Sentinel, or a cluster. See `RedisConfig` for the options.

    `durable` only where the server writes each acknowledged write to disk (`appendonly yes`, `appendfsync always`) and drops nothing
    (`maxmemory-policy noeviction`); what to change is logged at open. On a single server every `apply` is kept whole or not at all; on a cluster
    only what one partition's records make up is one step. Filters and orders other than by creation read what they choose from.
    """

    claims: ClassVar[Capabilities] = CLAIMS

    def __init__(self, url: str, name: str = "redis", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue) -> None:
        super().__init__(name)
        self._config = replace(parse(name, url, options), thresholds=thresholds)
        self._link: Link = _link_for(self._config)
        self._calls = 0
        self._idle = asyncio.Event()

    @property
    def epoch(self) -> str:
        return "" if self.capabilities.durable else self._link.epoch

    # -- life ---------------------------------------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._link = _link_for(self._config)
        inspection = Inspection(self.name, self._link)
        try:
            host, port = self._config.nodes[0]
            if self._config.kind == "single":
                await expecting(
                    "Redis", self.name, host, port, self._reached(inspection), lambda error: isinstance(error, ResponseError | ConfigError)
                )
            else:
                await self._reached(inspection)
            await inspection.require_schema()
            safety = await inspection.safety()
            await note_collections(self._link, collections)
        except BaseException:
            await self._link.close()
            raise
        self._capabilities = replace(self.claims, durable=safety.durable, atomic=self._link.one_server, loss_window=safety.loss_window)
        for line in safety.advice:
            log.warning("store '%s' is not durable: %s", self.name, line)

    async def _reached(self, inspection: Inspection) -> None:
        await self._link.open()
        await inspection.require_server()

    async def _close(self) -> None:
        while self._calls:
            self._idle.clear()
            await self._idle.wait()
        await self._link.close()

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """A call that closing waits for."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _check(self) -> Health:
        inspection = Inspection(self.name, self._link)
        try:
            with self._under_way():
                version = await inspection.version()
                safety = await inspection.safety()
        except Exception as exc:
            ours = self._translate(exc)
            if ours is None:
                raise
            return Health(ok=False, detail=str(ours), epoch=self.epoch)
        facts: dict[str, JsonValue] = {**safety.facts, "durable": safety.durable, "schema": SCHEMA, "servers": len(self._link.runs)}
        notes = [self._config.place, *safety.advice]
        weaker = self.capabilities.durable and not safety.durable
        if weaker:
            notes.insert(1, "its settings changed since it was opened: it is no longer durable")
        return Health(ok=not weaker, detail="; ".join(notes), version=version, epoch=self.epoch, facts=facts)

    # -- work ---------------------------------------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        places = [place_of(collection.name, key) for key in keys]
        with self._under_way():
            values = await self._link.values(places)
            found = paced(zip(keys, values, strict=True))
            answers = [None if value is None else stored_in(collection, value, key) async for key, value in found]
            for answer, value, place in zip(answers, values, places, strict=True):
                if isinstance(answer, Corrupt) and value is not None:
                    await self._set_aside(Spot(place), answer, value)
        return answers

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        with self._under_way():
            return await self._carried_out(writes, together)

    async def _carried_out(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(writes)
        calls: list[tuple[int, Call]] = []
        async for number, write in paced(enumerate(writes)):
            try:
                if not self._link.one_server and is_displaced(write):
                    await self._run(writes, calls, outcomes, together)
                    calls = []
                    outcomes[number] = await self._displaced(write)  # type: ignore[arg-type]
                else:
                    calls.append((number, call_for(write)))
            except Unstorable as exc:
                outcomes[number] = Outcome(Status.REJECTED, reason=str(exc))
        if together and any(outcome is not None for outcome in outcomes):
            return [outcome or Outcome(Status.SKIPPED) for outcome in outcomes]
        await self._run(writes, calls, outcomes, together)
        done = [outcome for outcome in outcomes if outcome is not None]
        if together and not all(outcome.applied for outcome in done):
            return [Outcome(Status.SKIPPED) if outcome.applied else outcome for outcome in done]
        return done

    async def _run(self, writes: Sequence[Write], calls: Sequence[tuple[int, Call]], outcomes: list[Outcome | None], together: bool) -> None:
        answers = await self._write([call for _, call in calls], together)
        for (number, _), answer in zip(calls, answers, strict=True):
            write = writes[number]
            outcomes[number] = outcome_of(write, answer)
            if isinstance(write, RaiseGeneration) and answer.value and not self._link.one_server:
                buckets = answer.value.decode()
                beside = [raise_beside_call(buckets[i : i + 2], write.partition, answer.number) for i in range(0, len(buckets), 2)]
                await self._write(beside)

    async def _displaced(self, write: Put) -> Outcome:
        """On a cluster, a record whose id belongs to another bucket than its partition: the partition is asked first."""
        call_for(write)  # of what cannot be stored nothing is told
        (told,) = await self._write([prepare_call(write)])
        (answer,) = await self._write([call_for(write, told.generation)])
        return outcome_of(write, answer)

    async def _write(self, calls: Sequence[Call], together: bool = False) -> list[Answer]:
        options = (int(together), int(self._link.one_server), int(self._config.grace * 1000))
        return [answer_in(raw) for raw in await self._link.run("apply", calls, options, repeatable=False)]

    async def _query(self, query: Query) -> Page:
        with self._under_way():
            page, spoiled = await Question(self._link, query).page()
            for match in spoiled:
                if isinstance(match.found, Corrupt):
                    await self._set_aside(match.entry.spot, match.found, match.entry.value)
        return page

    async def _count(self, query: Query) -> Count:
        records = size = 0
        with self._under_way():
            async for matches in Question(self._link, query).matching():
                kept = [match for match in matches if not isinstance(match.found, Corrupt)]
                records += len(kept)
                size += sum(content_size(match.entry.value) for match in kept)
        return Count(records, size)

    async def _delete_matching(self, query: Query, version: int, discard_at: datetime | None, keep: Sequence[str]) -> int:
        deleted = 0
        with self._under_way():
            async for matches in Question(self._link, query).matching():
                while matches:
                    calls = [self._burial(match, version, discard_at, keep) for match in matches]
                    answers = await self._write(calls)
                    deleted += sum(answer.status == "A" for answer in answers)
                    matches = await self._again(query, [m for m, answer in zip(matches, answers, strict=True) if answer.status != "A"])
        return deleted

    def _burial(self, match: Match, version: int, discard_at: datetime | None, keep: Sequence[str]) -> Call:
        """A tombstone for what was read, if exactly that still stands there."""
        found, value = match.found, match.entry.value
        stood = found.version if not isinstance(found, Corrupt) else version_in(value)
        fields = found.fields if isinstance(found, Record) else {}
        note = {name: fields[name] for name in keep if fields.get(name) is not None}
        tombstone = grave_parts(identity_of(found.key), "", (), discard_at, note)
        return delete_call(match.entry.spot.place, b"S" + value[:SEAL_END], b"", max(stood + 1, version), tombstone)

    async def _again(self, query: Query, matches: Sequence[Match]) -> list[Match]:
        """What changed between reading and deleting, where it still matches."""
        if not matches:
            return []
        values = await self._link.values([match.entry.spot.place for match in matches])
        changed = [replace(m.entry, value=value) for m, value in zip(matches, values, strict=True) if value is not None]
        return await Question(self._link, query).matches(changed)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        """`vacuum` is not offered: Redis gives room back by itself."""
        with self._under_way():
            look = audit.Audit(self._link, repair=repair)
            problems = await look.look()
        return Audit(look.checked, tuple(problems))

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        with self._under_way():
            return await idle_partitions(self._link, limit)

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        with self._under_way():
            return await forget_partitions(self._link, dict(idle))

    # -- what cannot be read ------------------------------------------------------------------------------------------

    async def _set_aside(self, spot: Spot, found: Corrupt, value: bytes) -> None:
        """Keep a copy for people to look at and a note in its place. A server that takes no writes just now still does not serve it."""
        if is_set_aside(value):
            return
        try:
            await self._write([set_aside_call(spot, found.key, value, found.problem)])
        except Exception as exc:
            if self._translate(exc) is None:
                raise
            log.warning("store '%s': record %s is corrupt and could not be set aside: %s", self.name, found.key.id, exc)

    def _translate(self, error: Exception) -> Exception | None:
        return translate(self.name, error)


def _link_for(config: RedisConfig) -> Link:
    return ClusterLink(config) if config.kind == "cluster" else ServerLink(config)
