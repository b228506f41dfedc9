"""The knowledge graph of the reference server, over entries of one scope.

Entities and relations are entries with keys. Relations of the graph have free types,
and may name entities that do not exist. So they are no relations of the memory.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from memory.domain import validation
from memory.domain.entry import Entry, check_content
from memory.domain.errors import (
    InvalidInput,
    NotFound,
    PartialWrite,
    StoreUnavailable,
    TooMuchContention,
    VersionConflict,
)
from memory.domain.scope import Scope
from memory.mcp.reference.records import (
    ALL,
    ENTITIES,
    RELATIONS,
    Entity,
    Graph,
    Relation,
    add_entry,
    around,
    check_draft,
    entity_draft,
    identity,
    is_entity,
    observations_of,
    parse_key,
    relation_draft,
)

if TYPE_CHECKING:
    from memory.facade.memory import Memory

PAGE = 1_000
"""The number of entries that are read together."""
LOOKED_UP, FEW = 300, 100
"""The maximum number of names in one filter, and of ranges of keys."""
ATTEMPTS = 100
"""How often a change is tried while other clients change the same entity."""

T = TypeVar("T", Entity, Relation)


class EntityNotFound(NotFound):
    """Raised if the graph has no entity with this name; create it first."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "entity")
        self.args = (f"Entity with name {name} not found",)


class KnowledgeGraph:
    """The knowledge graph of one scope. Its calls answer as the reference server does.

        graph = KnowledgeGraph(memory, Scope.user("ada"))
        await graph.create_entities(
            [{"name": "Ada", "entityType": "person", "observations": ["likes tea"]}]
        )

    An entity exists once for each name, whichever clients create it at once. No change
    of the observations is lost: each is made on the version that was read. Deleting
    retires the entry. An entity or a relation that is created again gets a new entry.

    Args:
        memory: The memory, or a view that has the scope.
        scope: The scope of the graph.
    """

    def __init__(self, memory: Memory, scope: Scope) -> None:
        self._memory, self._scope = memory, scope

    # -- writing -----------------------------------------------------------------------

    async def create_entities(self, entities: Sequence[Entity]) -> list[Entity]:
        """Store the entities whose names are new, and return them."""
        return await self._create("entities", ENTITIES, entities, entity_draft)

    async def create_relations(self, relations: Sequence[Relation]) -> list[Relation]:
        """Store the relations that are new, and return them."""
        return await self._create("relations", RELATIONS, relations, relation_draft)

    async def add_observations(self, additions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Add new observations to entities, and return the added ones.

        Args:
            additions: Objects with `entityName` and `contents`.

        Raises:
            EntityNotFound: An entity does not exist. If it did not exist at the start
                of the call, nothing was added to any of them.
        """
        groups = self._by_name(additions)
        there = await self._active(ENTITIES, map(identity, groups))
        for name, several in groups.items():
            entry = there.get(identity(name))
            if entry is None or not is_entity(entry):
                raise EntityNotFound(name)
            try:
                check_content("\n".join(_add_observations(observations_of(entry), several)[0]))
            except InvalidInput as error:
                raise InvalidInput(f"observations[{several[-1][0]}].contents", error.problem) from None
        results: dict[int, list[str]] = {}
        for name, several in groups.items():

            def add(old: list[str], several: Sequence[tuple[int, Any]] = several) -> list[str]:
                new, added = _add_observations(old, several)
                results.update(added)
                return new

            if not await self._change(there[identity(name)], add):
                raise EntityNotFound(name)
        return [
            {"entityName": addition["entityName"], "addedObservations": results[position]}
            for position, addition in enumerate(additions)
        ]

    async def delete_entities(self, names: Sequence[str]) -> None:
        """Retire entities, and the relations from and to them."""
        checked = _check_names("entityNames", names)
        for entry in (await self._active(ENTITIES, map(identity, checked))).values():
            await self._memory.entries.invalidate(entry.id)
        for part in _parts(checked):
            for entry in await self._every(RELATIONS, _one_end_in(part)):
                await self._memory.entries.invalidate(entry.id)

    async def delete_observations(self, deletions: Sequence[Mapping[str, Any]]) -> None:
        """Remove observations from entities. Those that do not exist are passed over.

        Args:
            deletions: Objects with `entityName` and `observations`.
        """
        groups = self._by_name(deletions)
        there = await self._active(ENTITIES, map(identity, groups))
        for name, several in groups.items():
            gone = {text for _, deletion in several for text in deletion["observations"]}
            entry = there.get(identity(name))
            if entry is not None and is_entity(entry):
                await self._change(entry, partial(_without, gone))

    async def delete_relations(self, relations: Sequence[Relation]) -> None:
        """Retire relations. Those that do not exist are passed over."""
        names = [relation_draft(relation)["data"]["id"] for relation in relations]
        for entry in (await self._active(RELATIONS, names)).values():
            await self._memory.entries.invalidate(entry.id)

    # -- reading -----------------------------------------------------------------------

    async def read_graph(self) -> Graph:
        """Return all entities and relations, in the order of their creation."""
        return await self._read({})

    async def search_nodes(self, query: str) -> Graph:
        """Return entities with a text in the name, the type or an observation.

        Relations from and to them are returned too. Letter case does not matter.
        """
        wanted, graph = validation.text("query", query).lower(), await self._read({})
        return around(
            graph,
            lambda one: any(
                wanted in text.lower() for text in (one["name"], one["entityType"], *one["observations"])
            ),
        )

    async def open_nodes(self, names: Sequence[str]) -> Graph:
        """Return the entities with these names, and the relations from and to them."""
        checked = frozenset(_check_names("names", names))
        within: dict[str, Any] = {}
        if len(checked) <= LOOKED_UP:
            listed = sorted(checked)
            named = {"data.id": {"$in": [identity(name) for name in listed]}}
            within = {"$or": [named, *_one_end_in(listed)["$or"]]}
        graph = await self._read(within) if checked else Graph(entities=[], relations=[])
        return around(graph, lambda one: one["name"] in checked)

    # -- entries -----------------------------------------------------------------------

    async def _read(self, more: Mapping[str, Any]) -> Graph:
        """Return the visible part of the graph that passes a filter.

        Raises:
            StoreUnavailable: A store did not answer. A part of the graph would look as
                if the rest had been deleted.
        """
        graph, cursor = Graph(entities=[], relations=[]), None
        while True:
            page = await self._memory.retrieve(
                self._scope, filter=_within(ALL, more), order="oldest", limit=PAGE, cursor=cursor
            )
            ended_early = page.cursor is not None and len(page) < PAGE  # by the filter, with a note
            if len(page.degraded) > ended_early:
                problem = "; ".join(page.degraded)
                raise StoreUnavailable(
                    "graph", f"a part of the graph could not be read: {problem}. Try again"
                )
            for entry in page:
                add_entry(graph, entry)
            if (cursor := page.cursor) is None:
                return graph

    async def _every(
        self, kind: str, more: Mapping[str, Any], *, include_retired: bool = False
    ) -> list[Entry]:
        """Return the entries of a kind that pass a filter, hidden ones too."""
        found = self._memory.entries.iterate(
            self._scope, filter=_within(kind, more), include_retired=include_retired
        )
        return [entry async for entry in found]

    async def _active(self, kind: str, identities: Iterable[str]) -> dict[str, Entry]:
        """Return the active entries of some entities or relations.

        Most have the number 1, and are read by their key. The others are searched.
        """
        found: dict[str, Entry] = {}
        for part in _parts(identities):
            keys = [f"{kind}{name}:1" for name in part]
            first = await self._memory.get_many(scope=self._scope, keys=keys)
            found |= {name: entry for name, entry in zip(part, first, strict=True) if entry is not None}
            if others := [name for name in part if name not in found]:
                entries = await self._every(kind, {"data.id": {"$in": others}})
                found |= {parse_key(kind, entry)[0]: entry for entry in entries}
        return found

    async def _create(
        self, field: str, kind: str, items: Sequence[T], draft_of: Callable[[T], dict[str, Any]]
    ) -> list[T]:
        """Store the items that have no active entry, and return them.

        The key of an entry has a number, because a retired entry keeps its key. The
        next number is used only after the entry before was seen retired. So clients
        that create one entity at once meet under one key.

        Raises:
            InvalidInput: A value is wrong. Nothing was stored.
        """
        drafts, by_name = dict[str, dict[str, Any]](), dict[str, T]()
        for position, item in enumerate(items):
            draft = draft_of(item)
            try:
                check_draft(draft)
            except InvalidInput as error:
                raise InvalidInput(f"{field}[{position}].{error.field}", error.problem) from None
            name = draft["data"]["id"]
            if name not in drafts:  # the first one of a call counts
                drafts[name], by_name[name] = draft, item
        created, left, started = set[str](), drafts, monotonic()
        for attempt in range(ATTEMPTS):
            numbers = await self._numbers(kind, left, by_key=attempt > 0)
            active = await self._active(kind, left)  # after the numbers: it sees whichever came meanwhile
            left = {name: draft for name, draft in left.items() if name not in active}
            if not left:
                return [item for name, item in by_name.items() if name in created]
            keys = {name: f"{kind}{name}:{numbers[name] + 1}" for name in left}
            keyed = [{**draft, "scope": self._scope, "key": keys[name]} for name, draft in left.items()]
            try:
                written = dict(enumerate(await self._memory.write_many(keyed, revive=True)))
            except PartialWrite as partial:  # others created some of them, with other values
                written = partial.written
            names = list(left)
            # An equal entry that others created and retired meanwhile is returned too.
            new = {names[position] for position, entry in written.items() if entry.valid_to is None}
            created |= new
            left = {name: draft for name, draft in left.items() if name not in new}
        raise TooMuchContention(next(iter(left)), timedelta(seconds=monotonic() - started))

    async def _numbers(self, kind: str, identities: Iterable[str], *, by_key: bool) -> dict[str, int]:
        """Return the number of each identity's latest entry; 0 if there is none.

        A search by key is slower, and finds entries whose data others replaced.
        """
        numbers = dict.fromkeys(identities, 0)
        for part in _parts(numbers, FEW if by_key else LOOKED_UP):
            ranges = [_within(f"{kind}{name}:", {}) for name in part]
            within = {"$or": ranges} if by_key else {"data.id": {"$in": part}}
            for entry in await self._every(kind, within, include_retired=True):
                name, number = parse_key(kind, entry)
                if name in numbers:
                    numbers[name] = max(numbers[name], number)
        return numbers

    async def _change(self, entry: Entry, change: Callable[[list[str]], list[str]]) -> bool:
        """Change the observations of an entity; return False if it was deleted."""
        started, there = monotonic(), entry
        for attempt in range(ATTEMPTS):
            old = observations_of(there)
            if (new := change(list(old))) == old:
                return True
            try:
                await self._memory.update(
                    there.id,
                    content="\n".join(new),
                    data={**there.data, "lengths": [len(text) for text in new]},
                    expected_version=there.version,
                )
            except VersionConflict:
                await asyncio.sleep(random.uniform(0, 0.001 * attempt))  # noqa: S311 - spreads writers
            except NotFound:
                return False
            else:
                return True
            if (now := await self._memory.get(there.id)) is None or not is_entity(now):
                return False
            there = now
        raise TooMuchContention(entry.id, timedelta(seconds=monotonic() - started))

    @staticmethod
    def _by_name(items: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, Mapping[str, Any]]]]:
        """Group the items of a call by their entity, each with its position."""
        groups: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
        for position, item in enumerate(items):
            groups.setdefault(item["entityName"], []).append((position, item))
        return groups


def _add_observations(
    old: list[str], several: Iterable[tuple[int, Mapping[str, Any]]]
) -> tuple[list[str], dict[int, list[str]]]:
    """Return the observations after some additions, and the new ones by position."""
    new, added = list(old), dict[int, list[str]]()
    for position, addition in several:
        added[position] = [text for text in addition["contents"] if text not in new]
        new += added[position]
    return new, added


def _within(kind: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filter of the graph's entries of a kind. `;` follows `:`."""
    return {"key": {"$gte": kind, "$lt": f"{kind[:-1]};"}, **more}


def _one_end_in(names: list[str]) -> dict[str, Any]:
    return {"$or": [{"data.from": {"$in": names}}, {"data.to": {"$in": names}}]}


def _without(gone: Container[str], old: list[str]) -> list[str]:
    return [text for text in old if text not in gone]


def _check_names(field: str, names: Sequence[str]) -> list[str]:
    return [validation.text(f"{field}[{position}]", name) for position, name in enumerate(names)]


def _parts(names: Iterable[str], most: int = LOOKED_UP) -> Iterator[list[str]]:
    """Yield the names in parts that fit into a filter."""
    left = iter(dict.fromkeys(names))
    while part := list(islice(left, most)):
        yield part
