"""`memory.relations`: links between entries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from memory.domain.corrections import explain_guesses
from memory.domain.entry import EntryType
from memory.facade.arguments import Moment, flag, id_of, moment, whole
from memory.facade.runtime.access import Access, Scopes, scopes_of
from memory.orchestrator.entries.graph import Density, Expansion, Graph
from memory.orchestrator.entries.relations import Relation, RelationVisibility

GRAPH_LIMIT = 200
MOST_STEPS = 2
"""How far an expansion goes: more is asked for in vain, not refused (D117)."""


@explain_guesses
class Relations:
    """Labelled links between a tenant's entries. They go with the entries they link.

    await memory.relations.relate(newer.id, "supersedes", older.id)
    replaced = await memory.relations.find(source_id=newer.id, label="supersedes")
    around = await memory.relations.expand(newer.id, depth=2)
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def relate(self, source_id: str, label: str, target_id: str) -> Relation:
        """Link two active entries: relates_to, refines, contradicts, supersedes or
        supports. The same link again is a `Conflict`.
        """
        return await self._access.engine.relations.relate(
            self._access.tenant, id_of(source_id), label, id_of(target_id)
        )

    async def find(
        self,
        *,
        source_id: str | None = None,
        target_id: str | None = None,
        label: str | None = None,
        limit: int | None = None,
        active: bool = False,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> list[Relation]:
        """The relations that match, newest first; 200 unless told. Those of retired
        entries are among them.

        With `active` only those whose ends are both valid (D45). At a moment, those
        whose ends were valid then (`as_of`) or are known to have been, by links that
        were made by then (`known_at`); of a `supersedes` one end is enough, since it
        hides the other.
        """
        source = None if source_id is None else id_of(source_id)
        target = None if target_id is None else id_of(target_id)
        asked_of, known = moment("as_of", as_of), moment("known_at", known_at)
        both = flag("active", active)
        shown = (
            RelationVisibility(asked_of, known, superseded=not both)
            if both or asked_of is not None or known is not None
            else None
        )
        return await self._access.engine.relations.find(
            self._access.tenant, source_id=source, target_id=target, label=label, limit=limit, shown=shown
        )

    async def expand(
        self, entry_id: str, *, depth: int = 1, scope: Scopes | None = None, superseded: bool = False
    ) -> Expansion:
        """What is linked to an entry, breadth first in both directions, in one step or
        two (D117).

        Retired entries are passed over, and with `scope` all of other scopes. At most
        50 entries are shown, and of each at most 50 links in a direction, the newest;
        `notices` say where there are more. Raises `NotFound` where the entry is not
        active.

        With `superseded` a `supersedes` shows too of which one end is retired: that end
        is named by `retired`, and no other link of it shows. The entry may then be a
        retired one itself, with what superseded it.
        """
        steps = min(max(whole("depth", depth), 1), MOST_STEPS)
        return await self._access.engine.graphs.expand(
            self._access.tenant,
            id_of(entry_id),
            depth=steps,
            scopes=self._within(scope),
            superseded=flag("superseded", superseded),
        )

    async def density(self, entry_id: str, *, scope: Scopes | None = None) -> Density:
        """How closely an entry is linked: isolated, sparse, or dense where four entries
        or more are within two steps (D118). See `expand`.
        """
        return await self._access.engine.graphs.density(
            self._access.tenant, id_of(entry_id), scopes=self._within(scope)
        )

    async def graph(
        self,
        scope: Scopes | None = None,
        *,
        types: Sequence[EntryType | str] | None = None,
        limit: int | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> Graph:
        """The newest entries, of the tenant or of these scopes, and the relations of
        which both ends are among them (D129); 200 unless told.

        What a visible entry superseded is there too, and named by `retired`.
        """
        asked = self._access.entry_query(
            scope,
            limit=limit,
            unless_told=GRAPH_LIMIT,
            types=types,
            as_of=as_of,
            known_at=known_at,
            anywhere=scope is None,
        )
        return await self._access.engine.graphs.graph(asked)

    @staticmethod
    def _within(scope: Scopes | None) -> frozenset[str] | None:
        return None if scope is None else frozenset(one.text for one in scopes_of(scope))

    async def all(self) -> AsyncIterator[Relation]:
        """Every relation of the tenant, in no order."""
        async for relation in self._access.engine.relations.everything(self._access.tenant):
            yield relation

    async def unrelate(self, relation_id: str) -> bool:
        """Delete a relation: true once, then false."""
        return await self._access.engine.relations.unrelate(self._access.tenant, id_of(relation_id))
