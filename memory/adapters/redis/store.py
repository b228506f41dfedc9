"""The Redis store. Most operations take one round trip."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from redis.exceptions import RedisError, ResponseError

from memory.adapters.redis.audit import Audit as Look
from memory.adapters.redis.batch import apply, send, still, write_call
from memory.adapters.redis.cluster import ClusterConnections
from memory.adapters.redis.codec import (
    CHECKSUM_END,
    held_in,
    is_listed,
    is_quarantined,
    lay_out,
    listed_in,
    note_of,
)
from memory.adapters.redis.config import CLAIMS, RedisConfig, parse
from memory.adapters.redis.connection import Connections, ServerConnections
from memory.adapters.redis.due import due_page
from memory.adapters.redis.errors import translate
from memory.adapters.redis.forms import PartitionIndexes
from memory.adapters.redis.inspection import Inspection
from memory.adapters.redis.keys import NOWHERE, SCHEMA, Address, address_of, home_bucket, partition_token
from memory.adapters.redis.partitions import forget_partitions, idle_partitions, partitions
from memory.adapters.redis.scripts import Call
from memory.adapters.redis.search import Match, Question
from memory.adapters.redis.thresholds import THRESHOLDS, Thresholds
from memory.domain.errors import ConfigError
from memory.ports.base import BaseStore
from memory.ports.batch import StoredRow, slot_of
from memory.ports.candidates import CandidateColumns, Candidates
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.due import DuePage
from memory.ports.heads import head_of
from memory.ports.partition_candidates import candidates_of
from memory.ports.query import Count, Everywhere, Page, Partitions, Query, Tenant
from memory.ports.query_evaluation import first_partitions
from memory.ports.record import Corrupt, JsonValue, Key, Partition, Record, Role, Stored
from memory.ports.rows import row_of, size_of, stored_of
from memory.ports.server_probe import expect_server, what_answers
from memory.ports.store import Audit, Health
from memory.ports.write_decision import tombstone_over
from memory.ports.writes import Outcome, Write

log = logging.getLogger(__name__)


class RedisStore(BaseStore):
    """Stores records in Redis or Valkey 6.2 or later.

    It supports a single server, Sentinel and Cluster; see `RedisConfig` for the
    options.

    The store is `durable` only if the server writes each acknowledged write to disk
    (`appendonly yes`, `appendfsync always`) and evicts nothing (`maxmemory-policy
    noeviction`). At open, it logs which settings to change.

    On a single server, every `apply` is atomic. On a cluster, only the writes to one
    partition's records are. Filters, and orders other than creation time, read all
    candidates.
    """

    claims: ClassVar[Capabilities] = CLAIMS
    notes_format: ClassVar[bool] = True

    def __init__(
        self, url: str, name: str = "redis", *, thresholds: Thresholds = THRESHOLDS, **options: JsonValue
    ) -> None:
        super().__init__(name)
        self.config = replace(parse(name, url, options), thresholds=thresholds)
        self._connections: Connections = _connections_for(self.config)
        self._forms = self._no_forms()
        self._evicts = False
        """Whether a server evicted keys under memory pressure at the last check."""
        self._mark = self._marked_in = self._lost = ""

    @property
    def epoch(self) -> str:
        return "" if self.capabilities.durable else self._connections.epoch

    @property
    def data_loss(self) -> str:
        return self._lost

    # -- life --------------------------------------------------------------------------

    async def _open(self, collections: Sequence[Collection]) -> None:
        self._connections = _connections_for(self.config)
        inspection = Inspection(self.name, self._connections)
        try:
            host, port = self.config.nodes[0]
            if self.config.kind == "single":
                await expect_server(
                    "Redis",
                    self.name,
                    host,
                    port,
                    self._connect(inspection),
                    lambda error: isinstance(error, ResponseError | ConfigError),
                )
            else:
                await self._connect(inspection)
            self._take_format(await inspection.require_schema())
            safety = await inspection.safety()
            self._mark, self._marked_in, self._lost = await inspection.mark_run(), self._connections.epoch, ""
            self._evicts = await inspection.evicts()
            self._forms = self._no_forms(
                0 if await inspection.may_drop_anything() else self.config.cache_bytes
            )
        except BaseException:
            await self._connections.close()
            raise
        self._capabilities = replace(
            self.claims,
            durable=safety.durable,
            atomic=self._connections.one_server,
            loss_window=safety.loss_window,
        )
        for line in safety.advice:
            log.warning("store '%s' is not durable: %s", self.name, line)

    async def _read_format(self) -> str | None:
        return await Inspection(self.name, self._connections).format_note()

    async def _swap_format(self, before: str | None, after: str) -> bool:
        return await Inspection(self.name, self._connections).swap_format(before, after)

    async def _connect(self, inspection: Inspection) -> None:
        await self._connections.open()
        try:
            await inspection.require_server()
        except (TimeoutError, RedisError) as error:
            if (
                self.config.tls and await what_answers(*self.config.nodes[0]) == "Redis"
            ):  # the server waits for the end of the line, because TLS is no command
                raise ConfigError(
                    f"store '{self.name}': the server at {self.config.place} offers no TLS: begin the URL"
                    " with redis://, or name its TLS port"
                ) from error
            raise

    def _no_forms(self, most: int = 0) -> PartitionIndexes:
        return PartitionIndexes(
            self._connections,
            most,
            lambda entry, found: self._quarantine(entry.address, found, entry.value, entry.index_place),
        )

    async def _close(self) -> None:
        self._forms = self._no_forms()
        await self._connections.close()

    async def _check(self) -> Health:
        inspection = Inspection(self.name, self._connections)
        version = await inspection.version()
        safety = await inspection.safety()
        self._evicts = await inspection.evicts()
        quarantined = await inspection.count_quarantined(list(self._collections))
        await self._notice_loss()
        facts: dict[str, JsonValue] = {
            **safety.facts,
            "durable": safety.durable,
            "schema": SCHEMA,
            "servers": len(self._connections.runs),
        }
        notes = [self.config.place, *safety.advice]
        weaker = self.capabilities.durable and not safety.durable
        if weaker:
            notes.insert(1, "its settings changed since it was opened: it is no longer durable")
        if self._lost:
            notes.insert(1, self._lost)
        ok = not weaker and not self._lost
        return Health(
            ok=ok,
            detail="; ".join(notes),
            version=version,
            epoch=self.epoch,
            facts=facts,
            quarantined=quarantined,
        )

    async def _notice_loss(self) -> None:
        """Check the mark after an empty answer, to notice lost data.

        A missing or different mark means data loss. If a server that is not durable has
        restarted, `epoch` tells so, and a new mark is made.
        """
        if not self._mark or self._lost:
            return
        inspection, known = Inspection(self.name, self._connections), self._mark
        if await inspection.mark() == known:
            self._marked_in = self._connections.epoch
            return
        if self._mark != known:
            return  # another call noticed the restart meanwhile and made a new mark
        if self._connections.epoch != self._marked_in and not self.capabilities.durable:
            self._mark, self._marked_in = await inspection.mark_run(), self._connections.epoch
            return
        self._lost = (
            f"store '{self.name}': its server lost all data while open (FLUSHALL, or an evicted mark): "
            "open the memory again to continue without that data"
        )
        log.warning("%s", self._lost)

    # -- work --------------------------------------------------------------------------

    async def _get(self, collection: Collection, keys: Sequence[Key]) -> list[Stored | None]:
        addresses = [address_of(collection.name, key) for key in keys]
        answers: list[Stored | None] = []
        values = await self._connections.values(addresses)
        async for key, address, value in iterate_cooperatively(zip(keys, addresses, values, strict=True)):
            held = held_in(collection, key, value)
            found = (
                Corrupt(key, held.problem)
                if held.problem
                else stored_of(collection, held.row)
                if held.row
                else None
            )
            if isinstance(found, Corrupt) and value is not None:
                await self._quarantine(address, found, value)
            answers.append(found)
        if not any(answers):
            await self._notice_loss()
        return answers

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        return await apply(self.name, self._connections, writes, together)

    async def _query(self, query: Query) -> Page:
        question = Question(self._connections, query, scans=await self._must_scan(query))
        page, corrupt = await question.page()
        if not page.records:
            await self._notice_loss()
        for match in corrupt:
            entry, found = match.entry, match.found
            await self._quarantine(entry.address, found, entry.value, entry.index_place)  # type: ignore[arg-type]
        if query.select is None:
            return page
        records = iterate_cooperatively([r for r in page.records if isinstance(r, Record)])
        heads = [
            head_of(query.collection, r, query.select, question.rows[r.key].words) async for r in records
        ]
        return replace(page, records=(), heads=tuple(heads))

    async def _count(self, query: Query) -> Count:
        records = size = 0
        scans = await self._must_scan(query)
        async for matches in Question(self._connections, query, scans=scans).find_matches():
            rows = [
                match.row
                for match in matches
                if match.row is not None and not isinstance(match.found, Corrupt)
            ]
            records += len(rows)
            size += sum(map(size_of, rows))
        return Count(records, size)

    async def _candidates(self, asked: Candidates) -> CandidateColumns:
        if not isinstance(asked.where, Partitions) or Role.CACHED in asked.roles:
            return await super()._candidates(asked)
        async with self._forms.current(asked.collection, asked.where.partitions) as forms:
            measured = candidates_of(asked, forms)
        if not measured.ids:
            await self._notice_loss()
        return measured

    async def _delete_matching(
        self, query: Query, version: int, discard_at: datetime | None, carry: frozenset[str]
    ) -> int:
        deleted = 0
        scans = await self._must_scan(query, deletes=True)
        async for matches in Question(self._connections, query, scans=scans).find_matches(all_there_is=True):
            while matches:
                calls = [_deletion(query.collection, match, version, discard_at, carry) for match in matches]
                answers = await send(self._connections, calls)
                deleted += sum(answer.applied for answer in answers)
                matches = await self._again(
                    query, [m for m, answer in zip(matches, answers, strict=True) if not answer.applied]
                )
        return deleted

    async def _must_scan(self, query: Query, *, deletes: bool = False) -> bool:
        """Whether to scan all keys, because the server may have evicted an index.

        The records of that index may remain. Deletions and queries for whole tenants
        scan then. A read of some partitions does not.
        """
        if not self._evicts or (isinstance(query.where, Partitions) and not deletes):
            return False
        return not await Inspection(self.name, self._connections).has_whole_indexes()

    async def _again(self, query: Query, matches: Sequence[Match]) -> list[Match]:
        """Return values that changed between reading and deleting, and still match.

        A tombstone that another client left in between is no damage of the index.
        """
        if not matches:
            return []
        values = await self._connections.values([match.entry.address for match in matches])
        changed = [
            replace(match.entry, value=value)
            for match, value in zip(matches, values, strict=True)
            if value is not None and is_listed(value)
        ]
        return await Question(self._connections, query).matches(changed)

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return await due_page(
            self._connections, tuple(self._collections.values()), now, limit, cursor, expired
        )

    async def _partitions(
        self, where: Tenant | Everywhere, prefix: str, after: Partition | None, limit: int
    ) -> list[tuple[Partition, int]]:
        found = await partitions(self._connections, where)
        if self._evicts:
            found = await self._with_unlisted(found, where)
        return first_partitions(found, where, prefix, after, limit)

    async def _with_unlisted(
        self, found: list[tuple[Partition, int]], where: Tenant | Everywhere
    ) -> list[tuple[Partition, int]]:
        """Add partitions whose names the server evicted while it kept their records."""
        listed, unlisted = {partition for partition, _ in found}, dict[Partition, None]()
        for collection in self._collections.values():
            query = Query(collection, where, roles=frozenset(Role))
            if not await self._must_scan(query):
                return found
            async for matches in Question(self._connections, query, scans=True).find_matches():
                records = [match.found for match in matches if isinstance(match.found, Record)]
                unlisted |= dict.fromkeys(
                    record.partition for record in records if record.partition not in listed
                )
        calls = [
            Call(bucket, ("generation", bucket, partition_token(p)))
            for p in unlisted
            for bucket in (home_bucket(p),)
        ]
        answers = await self._connections.run("read", calls, [0], repeatable=True)
        return [*found, *((p, int(answer)) for p, answer in zip(unlisted, answers, strict=True))]

    # -- upkeep ------------------------------------------------------------------------

    async def _audit(self, repair: bool) -> Audit:
        """Audit the indexes. There is no `vacuum`: Redis frees memory by itself."""
        look = Look(self._connections, repair=repair)
        problems = await look.look() + await self._forms.differences(drop=repair)
        return Audit(look.checked, tuple(problems))

    async def _idle_partitions(self, limit: int) -> list[tuple[Partition, int]]:
        return await idle_partitions(self._connections, limit)

    async def _forget_partitions(self, idle: Sequence[tuple[Partition, int]]) -> int:
        return await forget_partitions(self._connections, dict(idle))

    # -- what cannot be read -----------------------------------------------------------

    async def _quarantine(
        self, address: Address, found: Corrupt, value: bytes, listed: tuple[str, str] = (NOWHERE, "0" * 16)
    ) -> None:
        """Copy a damaged value into quarantine and put a note in its place.

        The note is in the same indexes. If the server accepts no writes now, the value
        is still not served.
        """
        if is_quarantined(value):
            return
        held = held_in(Collection(address.collection), found.key, value)
        note = note_of(found.key, held.version or 0, found.problem, *(listed_in(value) or listed))
        try:
            await send(self._connections, [write_call(address, still(held.token), note)])
        except Exception as exc:
            if self._translate(exc) is None:
                raise
            log.warning(
                "store '%s': record %s is corrupt and could not be moved to quarantine: %s",
                self.name,
                found.key.id,
                exc,
            )

    def _translate(self, error: Exception) -> Exception | None:
        return translate(self.name, error, self.config.prefix)


def _deletion(
    collection: Collection, match: Match, version: int, discard_at: datetime | None, carry: frozenset[str]
) -> Call:
    """Build a call that replaces exactly the value that was read by a tombstone."""
    address, value = match.entry.address, match.entry.value
    held = (
        held_in(collection, match.found.key, value)
        if match.row is None
        else StoredRow(match.row, value[:CHECKSUM_END])
    )
    tombstone = tombstone_over(
        match.found.key, slot_of(collection, match.found.key, held), version, discard_at, carry
    )
    return write_call(address, still(held.token), lay_out(collection, row_of(collection, tombstone)))


def _connections_for(config: RedisConfig) -> Connections:
    return ClusterConnections(config) if config.kind == "cluster" else ServerConnections(config)
