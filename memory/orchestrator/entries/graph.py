"""The graph of a tenant's entries: neighbours, density, and the whole graph.

The graph is read in rounds, not entry by entry: first the links of all entries of a
round, then the entries at their other ends. Limits apply to neighbours that count. So
an entry with very many links to retired entries is read again alone, in pages, and does
not hide other entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from memory.domain.entry import Entry
from memory.domain.errors import NotFound
from memory.domain.relation import Density, DensityVerdict, Expansion, Graph, Node, Relation
from memory.domain.relation_labels import SUPERSEDES
from memory.orchestrator.entries.browsing import EntryBrowser
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.relations import relation_of
from memory.orchestrator.storage.collections import RELATIONS
from memory.orchestrator.storage.placement import Placement
from memory.policies.entry_query import EntryQuery
from memory.ports.concurrency import both_at_once
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Eq, In, Order, Query, Tenant, Where, all_of, covers, encode_cursor
from memory.ports.record import Partition, Record

MOST_NODES = 50
"""The maximum number of entries in an expansion, with the first entry."""
LINKS_A_SIDE = 50
"""How many links of one entry count in each direction."""
MOST_READ = 20_000
"""How many links an expansion reads in all, with those to retired entries."""
PAGE = 1_000
CHAIN = 100
"""The maximum number of entries in a chain of superseded entries."""
DENSE = 4
"""The number of entries within reach from which a neighbourhood is dense."""

Side = Literal["source_id", "target_id"]


@dataclass(slots=True)
class _Links:
    """The links of one entry in one direction that were read, newest first."""

    rows: list[Record] = field(default_factory=list)
    cut: bool = False
    """Whether others may follow."""


class _Budget:
    """How many more links may be read."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.spent_on: dict[str, None] = {}

    def notices(self) -> list[str]:
        return [f"entry {one} has more links than were read" for one in self.spent_on]


class Graphs:
    """Reads the graph of a tenant."""

    def __init__(self, placement: Placement, *, entries: Entries, browser: EntryBrowser) -> None:
        self._placement = placement
        self._entries = entries
        self._browser = browser

    # -- around one entry --------------------------------------------------------------

    async def expand(
        self,
        tenant: str,
        entry_id: str,
        *,
        depth: int = 1,
        place: Where | None = None,
        superseded: bool = False,
    ) -> Expansion:
        """Expand breadth first, in both directions.

        With `place`, only entries in it are followed. With `superseded`, the
        entry may be retired, and a `supersedes` link counts if one of its ends is
        visible.

        Raises:
            NotFound: The entry is not active.
        """
        walk = _Walk(
            await self._begin(tenant, entry_id, retired=superseded),
            MOST_NODES,
            superseded=superseded,
            now=self._placement.now(),
        )
        budget = _Budget(MOST_READ)
        for step in range(1, depth + 1):
            await self._step(tenant, walk, step, place, budget)
        notices = [f"more than {MOST_NODES} entries are linked; the others are left out"] * walk.is_full
        notices += [*walk.notices, *budget.notices()]
        return Expansion(
            tuple(walk.nodes.values()),
            tuple(walk.relations.values()),
            tuple(notices),
            frozenset(walk.retired & walk.nodes.keys()),
        )

    async def density(self, tenant: str, entry_id: str, *, place: Where | None = None) -> Density:
        """Return how closely an entry is linked. See `Density`.

        The neighbours of the first 50 neighbours are read. A notice says if there are
        more.
        """
        walk, budget = (
            _Walk(await self._begin(tenant, entry_id), None, now=self._placement.now()),
            _Budget(MOST_READ),
        )
        await self._step(tenant, walk, 1, place, budget)
        own, near = list(walk.relations.values()), len(walk.nodes) - 1
        await self._step(tenant, walk, 2, place, budget, at_most=LINKS_A_SIDE)
        far = len(walk.nodes) - 1 - near
        verdict: DensityVerdict = "isolated" if near == 0 else "sparse" if near + far < DENSE else "dense"
        outgoing = sum(relation.source_id == entry_id for relation in own)
        labels = tuple(sorted({relation.label for relation in own}))
        notices = [
            f"more than {LINKS_A_SIDE} entries are linked; only links of the first {LINKS_A_SIDE} were"
            " followed"
        ] * (near > LINKS_A_SIDE)
        notices += [*walk.notices, *budget.notices()]
        return Density(outgoing, len(own) - outgoing, labels, near, far, verdict, tuple(notices))

    async def _begin(self, tenant: str, entry_id: str, *, retired: bool = False) -> Entry:
        entry = await self._entries.get(tenant, entry_id)
        if entry is None and retired:
            entry = (await self._entries.get_many(tenant, [entry_id], retired=True)).get(entry_id)
        if entry is None:
            raise NotFound(entry_id)
        return entry

    async def _step(
        self,
        tenant: str,
        walk: _Walk,
        step: int,
        place: Where | None,
        budget: _Budget,
        at_most: int | None = None,
    ) -> None:
        """Run one round.

        It reads the links of the entries that the last round reached, and the entries
        at their other ends.
        """
        begun = [node.entry.id for node in walk.nodes.values() if node.depth == step - 1][:at_most]
        if not begun:
            return
        outgoing, incoming = await both_at_once(
            self._links(tenant, "source_id", begun), self._links(tenant, "target_id", begun)
        )
        sides: tuple[tuple[Side, dict[str, _Links]], ...] = (("source_id", outgoing), ("target_id", incoming))
        await self._look(
            tenant,
            walk,
            {_behind(row, side) for side, found in sides for links in found.values() for row in links.rows},
            place,
        )
        for entry_id in begun:
            for side, found in sides:
                await self._complete(tenant, walk, side, entry_id, found[entry_id], place, budget)
                walk.take(entry_id, found[entry_id].rows, side, step)

    async def _links(self, tenant: str, side: Side, entry_ids: Sequence[str]) -> dict[str, _Links]:
        """Return the newest links of each entry.

        They are `LINKS_A_SIDE` or more, if an entry has so many. An entry that has more
        is not read further.
        """
        found = {entry_id: _Links() for entry_id in entry_ids}
        asking, cursor = list(entry_ids), None
        while asking:
            most = min(PAGE, LINKS_A_SIDE * len(asking) + 1)
            page = await self._page(tenant, side, asking, most, cursor)
            for row in page:
                found[str(row.fields[side])].rows.append(row)
            if len(page) < most:
                break
            cursor = _behind_which(page[-1])
            for entry_id in asking:
                found[entry_id].cut = len(found[entry_id].rows) > LINKS_A_SIDE
            asking = [entry_id for entry_id in asking if not found[entry_id].cut]
        return found

    async def _page(
        self, tenant: str, side: Side, entry_ids: Sequence[str], limit: int, cursor: str | None
    ) -> list[Record]:
        """Return up to `limit` links, newest first; fewer at the end."""
        query = Query(
            RELATIONS,
            Tenant(tenant),
            In(side, tuple(entry_ids)),
            (Order("created_at", descending=True),),
            limit,
            cursor,
        )
        found: list[Record] = []
        async for page in self._placement.pages("relation.list", self._placement.topology.archive, query):
            found += [row for row in page.records if isinstance(row, Record)]
            if len(found) >= limit:
                break
        return found[:limit]

    async def _complete(
        self,
        tenant: str,
        walk: _Walk,
        side: Side,
        entry_id: str,
        links: _Links,
        place: Where | None,
        budget: _Budget,
    ) -> None:
        """Read more links of an entry until enough of them count.

        The reading ends earlier if there are no more links, or the budget is spent.
        """
        while links.cut and len(walk.visible_links(links.rows, side)) < LINKS_A_SIDE:
            if budget.left <= 0:
                budget.spent_on[entry_id] = None
                return
            page = await self._page(tenant, side, [entry_id], PAGE, _behind_which(links.rows[-1]))
            budget.left -= PAGE
            await self._look(tenant, walk, {_behind(row, side) for row in page}, place)
            links.rows += page
            links.cut = len(page) == PAGE

    async def _look(self, tenant: str, walk: _Walk, named: set[str], place: Where | None) -> None:
        """Look up the named entries that were not looked up yet.

        Only visible entries in the place are kept. Retired ones are included if they
        may be shown.
        """
        found = await self._entries.get_many(tenant, sorted(named - walk.seen), retired=walk.superseded)
        walk.know(
            named,
            {
                entry.id: entry
                for entry in found.values()
                if place is None or covers(place, Partition(tenant, entry.scope.text))
            },
        )

    # -- a whole -----------------------------------------------------------------------

    async def graph(self, asked: EntryQuery) -> Graph:
        """Return the newest requested entries up to the limit, and their relations."""
        found = await self._browser.browse(asked)
        there = {entry.id: entry for entry in found}
        rows = await self._all_links(asked.tenant, "source_id", there)
        rows += await self._all_links(asked.tenant, "target_id", there, SUPERSEDES)
        known = {
            row.key.id: row for row in rows if asked.known_at is None or row.created_at <= asked.known_at
        }
        retired = await self._superseded_entries(asked, there, known.values())
        ends = there.keys() | retired.keys()
        between = [
            relation_of(row)
            for row in known.values()
            if _ends(row) <= ends and _may_show(row, retired.keys())
        ]
        notices = [
            *found.degraded,
            *[f"more than {asked.limit} entries are there; the newest are shown"]
            * (found.cursor is not None),
        ]
        return Graph(
            (*found, *retired.values()),
            tuple(sorted(between, key=lambda relation: (relation.created_at, relation.id), reverse=True)),
            frozenset(retired),
            tuple(notices),
        )

    async def _all_links(
        self, tenant: str, side: Side, entry_ids: Iterable[str], label: str | None = None
    ) -> list[Record]:
        """Return all links of these entries, or those with one label."""
        ids, found = sorted(entry_ids), list[Record]()
        if not ids:
            return found
        wanted = all_of(In(side, tuple(ids)), None if label is None else Eq("relation", label))
        query = Query(RELATIONS, Tenant(tenant), wanted, (Order("created_at", descending=True),), PAGE)
        async for page in self._placement.pages("relation.list", self._placement.topology.archive, query):
            found += [row async for row in iterate_cooperatively(page.records) if isinstance(row, Record)]
        return found

    async def chain(
        self, tenant: str, entry_id: str, readable: Callable[[Collection[str]], Awaitable[set[str]]]
    ) -> list[str]:
        """Return an entry and all entries that it superseded, also indirectly.

        At most `CHAIN` entries are returned. Only the ids that `readable` returns are
        followed.
        """
        found, step = [entry_id], [entry_id]
        while step and len(found) < CHAIN:
            named = dict.fromkeys(
                str(row.fields["target_id"])
                for row in await self._all_links(tenant, "source_id", step, SUPERSEDES)
            )
            shown = await readable(named.keys()) if named else set()
            step = [one for one in named if one in shown and one not in found][: CHAIN - len(found)]
            found += step
        return found

    async def _superseded_entries(
        self, asked: EntryQuery, there: Mapping[str, Entry], rows: Iterable[Record]
    ) -> dict[str, Entry]:
        """Return the entries at the hidden ends of `supersedes` links."""
        ends = {end for row in rows if row.fields["relation"] == SUPERSEDES for end in _ends(row)}
        found = await self._entries.get_many(asked.tenant, ends - there.keys(), retired=True)
        at = asked.as_of or asked.known_at or self._placement.now()
        return {
            entry.id: entry
            for entry in found.values()
            if not entry.is_active(at)
            and covers(asked.place, Partition(asked.tenant, entry.scope.text))
            and (not asked.types or entry.type in asked.types)
        }


class _Walk:
    """The state of an expansion."""

    def __init__(self, begin: Entry, most: int | None, *, now: datetime, superseded: bool = False) -> None:
        self.nodes = {begin.id: Node(begin, 0)}
        self.relations: dict[str, Relation] = {}
        self.seen: set[str] = set()
        self.retired: set[str] = set()
        self.is_full = False
        self.notices: list[str] = []
        self.superseded = superseded
        self._found: dict[str, Entry] = {}
        self._most = most
        self._now = now
        self.know([begin.id], {begin.id: begin})

    def know(self, named: Iterable[str], found: Mapping[str, Entry]) -> None:
        """Note which entries were looked up, and which of them were found."""
        self.seen.update(named)
        self._found.update(found)
        if self.superseded:
            self.retired.update(
                entry.id
                for entry in found.values()
                if entry.valid_to is not None and entry.valid_to <= self._now
            )

    def visible_links(self, rows: Iterable[Record], side: Side) -> list[Record]:
        """Return the links that count."""
        return [row for row in rows if _behind(row, side) in self._found and _may_show(row, self.retired)]

    def take(self, entry_id: str, rows: Iterable[Record], side: Side, step: int) -> None:
        """Follow the links that count, up to the limit per entry and direction."""
        counting = self.visible_links(rows, side)
        if len(counting) > LINKS_A_SIDE:
            way = "from" if side == "source_id" else "to"
            self.notices.append(
                f"more than {LINKS_A_SIDE} links lead {way} entry {entry_id}; only the newest {LINKS_A_SIDE}"
                " count"
            )
        for row in counting[:LINKS_A_SIDE]:
            other = _behind(row, side)
            if other not in self.nodes:
                if self._most is not None and len(self.nodes) >= self._most:
                    self.is_full = True
                    continue
                self.nodes[other] = Node(self._found[other], step)
            self.relations[row.key.id] = relation_of(row)


def _may_show(row: Record, retired: Set[str]) -> bool:
    """Return whether a relation may be shown.

    Both of its ends are visible, or it is a `supersedes` with one visible end.
    """
    hidden = len(_ends(row) & retired)
    return hidden == 0 or (hidden == 1 and row.fields["relation"] == SUPERSEDES)


def _ends(row: Record) -> set[str]:
    return {str(row.fields["source_id"]), str(row.fields["target_id"])}


def _behind(row: Record, side: Side) -> str:
    """Return the entry at the other end."""
    return str(row.fields["target_id" if side == "source_id" else "source_id"])


def _behind_which(row: Record) -> str:
    """Return the cursor of a page that ends with this link."""
    return encode_cursor((row.created_at,), row.key.id)
