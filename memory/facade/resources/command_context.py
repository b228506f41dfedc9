"""The memory that commands use: a tenant, its readable scopes, a scope to write."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import cast

from memory.commands import command_context as asked_by
from memory.domain import validation
from memory.domain.artifact import Artifact
from memory.domain.enrichment import WriteReport
from memory.domain.entry import Entry
from memory.domain.errors import InvalidInput, StoreError
from memory.domain.relation import Relation
from memory.domain.scope import Scope, Subtree
from memory.domain.search_results import FoundEntry, SearchResult
from memory.domain.short_id import NumberedItem, NumberedKind
from memory.facade.resources.artifacts import Artifacts
from memory.facade.resources.relations import Relations
from memory.facade.resources.scratchpads import Scratchpads
from memory.facade.resources.short_ids import ShortIds
from memory.facade.runtime.access import Access, Scopes
from memory.facade.runtime.view_results import hide_outside
from memory.facade.write_options import WriteOptions
from memory.orchestrator.entries.short_ids import reference_of
from memory.orchestrator.storage.collections import ENTRIES
from memory.policies.entry_query import where_of
from memory.policies.ranking.constants import MIN_RELEVANCE
from memory.policies.ranking.preferences import Preferences
from memory.ports.advisor import Advisor
from memory.ports.query import Eq, Query, Tenant, covers
from memory.ports.record import Partition, Record

log = logging.getLogger(__name__)

SOURCE = "agent"
"""The source of entries that a command adds."""
READ_LINKS = (200, validation.MAX_LIMIT)
"""How many links of an entry to read in each direction.

Some lead to unreadable entries. If too few remain, the second number is read.
"""
READ_POINTING = 200
"""How many entries that point to an artifact to read; some may be unreadable."""


@dataclass(frozen=True, slots=True)
class MemoryCommandContext:
    """See `memory.commands.command_context.Reach`."""

    access: Access
    scope: Scope
    reads: tuple[Scope | Subtree, ...] | None
    """The readable scopes; None for all of the tenant's."""
    conversation: str | None
    agent: str | None
    preferred: Preferences
    expands: bool
    enriched: WriteOptions
    """The enrichment of added entries, if it is set."""
    advisor: Advisor | None
    request_id: str | None = None

    def for_command(self, number: int) -> MemoryCommandContext:
        if self.request_id is None:
            return self
        return replace(self, request_id=f"{self.request_id}/{number}")

    @property
    def now(self) -> datetime:
        return self.access.engine.placement.now()

    # -- entries -----------------------------------------------------------------------

    async def find(self, named: Sequence[str]) -> Mapping[str, Entry]:
        found = dict(zip(named, await self._resolve(named), strict=True))
        for one, referent in found.items():
            if (
                referent is not None
                and referent.kind == "artifact"
                and await self._may_read_artifact(referent.id) is not None
            ):
                raise InvalidInput("id", f"{asked_by.as_typed(one)} is an artifact, not an entry")
        ids = {one: referent.id for one, referent in found.items() if referent is not None}
        there = await self._readable(ids.values())
        return {one: there[entry_id] for one, entry_id in ids.items() if entry_id in there}

    async def _resolve(self, named: Sequence[str]) -> list[NumberedItem | None]:
        """Find what each text names. A view of some scopes has no short ids."""
        if not self.access.hides:
            return await ShortIds(self.access).resolve_many(named)
        references = [reference_of(one) for one in named]
        ids = [one for one in references if isinstance(one, str)]
        found = iter(await self.access.engine.short_ids.resolve(self.access.tenant, ids))
        return [next(found) if isinstance(one, str) else None for one in references]

    async def _readable(self, ids: Iterable[str]) -> Mapping[str, Entry]:
        """Return those of the entries that are active and readable, by id."""
        there = await self.access.engine.entries.get_many(self.access.tenant, ids)
        readable = {entry_id: entry for entry_id, entry in there.items() if self._may_read(entry)}
        return await hide_outside(self.access, readable)

    async def numbers(self, ids: Iterable[str], kind: NumberedKind = "entry") -> Mapping[str, int]:
        if self.access.hides:
            return {}
        try:
            return await ShortIds(self.access).of(list(ids), kind=kind)
        except StoreError as error:
            log.warning("short ids could not be read, so results show full ids: %s", error)
            return {}

    async def list_entries(self, types: Sequence[str], tag: str | None, limit: int) -> asked_by.EntryList:
        for one in types:
            validation.one_of("type filter", one, asked_by.TYPES)
        tags = None if tag is None else [tag]
        everywhere = self.reads is None
        asked = self.access.entry_query(
            self.reads,
            types=types,
            tags=tags,
            limit=limit,
            unless_told=limit,
            along="updated_at",
            anywhere=everywhere,
        )
        page = await self.access.browse(asked)
        return asked_by.EntryList(page, page.cursor is not None, page.degraded)

    async def search(self, query: str, limit: int, *, rerank: bool) -> asked_by.SearchHits:
        scopes, notes = (self.reads, ()) if self.reads is not None else await self._all_scopes()
        if not scopes:
            return asked_by.SearchHits([])
        found = await self.access.search(
            query,
            scopes,
            limit=limit,
            preferred=self.preferred,
            explain=True,
            expand=self.expands,
            rerank=rerank,
            advisor=self.advisor,
        )
        told = [
            block.note
            for block in (found.expansion, found.rerank)
            if block is not None and block.note and block.model is not None
        ]
        unasked = (
            [found.rerank.note]
            if found.rerank is not None and found.rerank.note and found.rerank.model is None
            else []
        )
        also = found.expansion.queries if found.expansion is not None else ()
        matching = [hit.entry for hit in found if self._matches(found, hit)]
        return asked_by.SearchHits(
            matching, also, [*dict.fromkeys((*notes, *told, *unasked, *found.degraded))]
        )

    @staticmethod
    def _matches(found: SearchResult, hit: FoundEntry) -> bool:
        """Return whether a command shows a hit.

        It does if the hit or its neighbours contain a word of the query, if it is
        relevant, or if an advisor took part.
        """
        advised = any(block is not None and block.applied for block in (found.expansion, found.rerank))
        has_word = hit.explanation["relevance"]["lexical_share"] > 0
        return advised or has_word or hit.relevance is None or hit.relevance >= MIN_RELEVANCE

    # -- links -------------------------------------------------------------------------

    async def around(self, entry: Entry) -> asked_by.EntryLinks:
        entry_id, artifact = entry.id, (await self.access.with_artifact(entry)).artifact
        await self.access.note_reads([entry])
        others: dict[str, Entry | None] = {entry_id: entry}
        outgoing, more_outgoing = await self._links(others, source_id=entry_id)
        incoming, more_incoming = await self._links(others, target_id=entry_id)
        named = {one.target_id for one in outgoing} | {one.source_id for one in incoming}
        return asked_by.EntryLinks(
            outgoing, incoming, {end: others[end] for end in named}, more_outgoing or more_incoming, artifact
        )

    async def _links(
        self, others: dict[str, Entry | None], source_id: str | None = None, target_id: str | None = None
    ) -> tuple[list[asked_by.Link], bool]:
        """Return the newest links in one direction with readable ends.

        Add these ends to `others`. Also return whether there may be more links.
        """
        engine, tenant, most = self.access.engine, self.access.tenant, asked_by.LINKS_A_SIDE
        for read in READ_LINKS:
            rows = await engine.relations.find(
                tenant, source_id=source_id, target_id=target_id, limit=read, within=self.access.place()
            )
            ends = {end for one in rows for end in _ends(one)}
            found = await engine.entries.get_many(tenant, ends - others.keys(), retired=True)
            others |= {
                one.id: one if one.is_active(self.now) else None
                for one in found.values()
                if self._may_read(one)
            }
            links = [_link(one) for one in rows if _ends(one) <= others.keys()]
            if len(links) > most or len(rows) < read:
                break
        return links[:most], len(links) > most or len(rows) == read

    async def expand(self, entry_id: str, depth: int) -> asked_by.LinkedEntries:
        found = await Relations(self.access).expand(entry_id, depth=depth, scope=self.reads)
        return asked_by.LinkedEntries(
            [node.entry for node in found.nodes], [_link(one) for one in found.relations], found.notices
        )

    async def density(self, entry_id: str) -> asked_by.LinkDensity:
        found = await Relations(self.access).density(entry_id, scope=self.reads)
        return asked_by.LinkDensity(
            found.outgoing,
            found.incoming,
            found.labels,
            found.one_step,
            found.two_steps,
            found.verdict,
            found.notices,
        )

    # -- artifacts ---------------------------------------------------------------------

    async def artifact(self, named: str) -> Artifact | None:
        [referent] = await self._resolve([named])
        if referent is None:
            return (
                None if named.isdigit() else await self._may_read_artifact(named)
            )  # which also reports damage
        if referent.kind == "artifact":
            return await self._may_read_artifact(referent.id)
        if await self._readable([referent.id]):
            raise InvalidInput("id", f"{asked_by.as_typed(named)} is an entry, not an artifact")
        return None

    async def _may_read_artifact(self, artifact_id: str) -> Artifact | None:
        """Return the artifact's description if it is readable."""
        found = await Artifacts(self.access).get(artifact_id)
        if found is None or self._may_read_of(found.session_id) or await self._is_pointed_to(found.id):
            return found
        return None

    async def beginning(self, artifact_id: str, most: int) -> bytes:
        data = b""
        async with aclosing(
            cast("AsyncGenerator[bytes, None]", Artifacts(self.access).stream(artifact_id))
        ) as pieces:
            async for piece in pieces:
                data += piece[: most - len(data)]
                if len(data) == most:
                    break
        return data

    # -- writing -----------------------------------------------------------------------

    async def add(
        self, kind: str, title: str, content: str, supersedes: Sequence[str], artifact: str | None
    ) -> tuple[Entry, Sequence[str]]:
        if self.conversation is not None and await self._find_conversation() is None:
            raise InvalidInput(
                "conversation", f"there is no conversation {self.conversation!r}, so nothing was written"
            )
        options: WriteOptions = {
            "type": kind,
            "title": title,
            "source": SOURCE,
            "agent": self.agent,
            "conversation_id": self.conversation,
            "supersedes": supersedes,
            "artifact_id": artifact,
            "request_id": self.request_id,
            **self.enriched,
        }
        unasked = []
        if not self._may_read_in(self.scope):
            unasked, options["auto_supersede"] = self._skipped_advice_notes(options), False
        written = await self.access.write_with_report(content, self.scope, options, None)
        return written.entry, [*await self._enrichment_notes(written), *unasked]

    async def _find_conversation(self) -> Record | None:
        """Return the record of the commands' session; None if there is none."""
        if self.conversation is None or not await self.access.sees_session(self.conversation):
            return None
        return await self.access.engine.conversations.find(self.access.tenant, self.conversation)

    def _skipped_advice_notes(self, options: WriteOptions) -> list[str]:
        """Return a note if the entry's scope is not readable, so nothing is superseded.

        It is empty if no advisor was to be asked.
        """
        engine, wanted = (
            self.access.engine,
            options.get("auto_supersede", self.access.config.enrichment.auto_supersede),
        )
        asks = wanted and not options["supersedes"] and engine.enricher.pending_steps(["auto_supersede"])
        return [f"auto_supersede was skipped: these commands may not read {self.scope.text}"] if asks else []

    async def _enrichment_notes(self, written: WriteReport) -> list[str]:
        """Return what enrichment did for an added entry."""
        lines = []
        if written.auto_tag is not None:
            lines.append(
                f"tags by {written.auto_tag.model}:"
                f" {', '.join(written.auto_tag.added) or written.auto_tag.note}"
            )
        if written.supersede is not None:
            gone = written.supersede.invalidated
            numbers = await self.numbers(gone)
            named = ", ".join(f"#{numbers[one]}" if one in numbers else one for one in gone)
            lines.append(f"superseded by {written.supersede.model}: {named or written.supersede.note}")
        return lines

    async def link(self, source_id: str, label: str, target_id: str) -> None:
        await Relations(self.access).relate(source_id, label, target_id, request_id=self.request_id)

    async def invalidate(self, entry_id: str) -> bool:
        return await self.access.invalidate(entry_id, None, None, None, self.request_id)

    async def write(self, text: str, *, shared: bool) -> int:
        pads = Scratchpads(self.access)
        return await pads.append(text, self._whose(shared), request_id=self.request_id)

    async def scratchpad(self, *, shared: bool) -> asked_by.ScratchpadContent:
        found = await Scratchpads(self.access).read(self._whose(shared))
        return asked_by.ScratchpadContent(found.content, found.exists)

    async def clear(self, *, shared: bool) -> bool:
        return await Scratchpads(self.access).clear(self._whose(shared), request_id=self.request_id)

    # -- shared ------------------------------------------------------------------------

    def _may_read(self, entry: Entry) -> bool:
        return self._may_read_in(entry.scope)

    def _may_read_in(self, scope: Scope) -> bool:
        tenant = self.access.tenant
        return covers(where_of(tenant, self.reads or ()), Partition(tenant, scope.text))

    def _may_read_of(self, session_id: str) -> bool:
        """Return whether the records of a session are readable."""
        return (
            self.reads is None
            or session_id == self.conversation
            or self._may_read_in(Scope.session(session_id))
        )

    async def _is_pointed_to(self, artifact_id: str) -> bool:
        """Return whether a readable entry points to the artifact."""
        engine, tenant = self.access.engine, self.access.tenant
        asked = Query(
            ENTRIES, where_of(tenant, self.reads or ()), Eq("artifact_id", artifact_id), limit=READ_POINTING
        )
        ids = [
            row.key.id
            for store in engine.topology.homes
            for row in (await engine.placement.page("commands.pointing", store, asked)).records
        ]
        return bool(await engine.entries.get_many(tenant, ids))

    def _whose(self, shared: bool) -> str | None:
        return None if shared else self.agent

    async def _all_scopes(self) -> tuple[Scopes, Sequence[str]]:
        """Return the scopes of the tenant, because a search needs scopes by name."""
        engine, tenant = self.access.engine, self.access.tenant
        found: dict[str, Scope] = {}
        for store in engine.topology.homes:
            async for partition, _ in engine.placement.partitions("commands.scopes", store, Tenant(tenant)):
                if (scope := _scope_in(partition.scope)) is not None:
                    found[partition.scope] = scope
                if len(found) > validation.MAX_SCOPES:
                    break
        notes = (
            [f"only {validation.MAX_SCOPES:,} scopes were searched, and the memory has more"]
            if len(found) > validation.MAX_SCOPES
            else []
        )
        return list(islice(found.values(), validation.MAX_SCOPES)), notes


def _link(relation: Relation) -> asked_by.Link:
    return asked_by.Link(relation.label, relation.source_id, relation.target_id)


def _ends(relation: Relation) -> set[str]:
    return {relation.source_id, relation.target_id}


def _scope_in(text: str) -> Scope | None:
    """Return the scope of a partition; None for partitions of other kinds."""
    try:
        scope = Scope.parse(text)
    except InvalidInput:
        return None
    return scope if scope.text == text else None
