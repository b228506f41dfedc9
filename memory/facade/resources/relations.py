"""`memory.relations`: links between entries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.entry import EntryType
from memory.domain.errors import NotFound
from memory.domain.relation import Density, Expansion, Graph, Relation, RelationPage
from memory.domain.relation_labels import LABELS
from memory.facade.arguments import Moment, flag, id_of, moment, whole
from memory.facade.runtime.access import Access, Scopes
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.request_ids import noted_flag, read_flag, request_about
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.entries.relations import LIST_LIMIT, RelationVisibility
from memory.orchestrator.storage.requests import RequestMark

GRAPH_LIMIT = 200
MOST_STEPS = 2
"""The largest depth of an expansion. A larger one is reduced to it, not refused."""


@guard_calls
@explain_guesses
class Relations:
    """Labelled links between a tenant's entries. They are deleted with either entry.

        await memory.relations.relate(newer.id, "supersedes", older.id)
        replaced = await memory.relations.find(source_id=newer.id, label="supersedes")
        around = await memory.relations.expand(newer.id, depth=2)

    A relation leads from its source to its target.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def relate(
        self, source_id: str, label: str, target_id: str, *, request_id: str | None = None
    ) -> Relation:
        """Link two active entries.

        Args:
            label: `"relates_to"`, `"refines"`, `"contradicts"`, `"supersedes"` or
                `"supports"`.
            request_id: As in `Memory.write`.

        Raises:
            Conflict: The link exists already. Or `request_id` was used for another
                request.
        """
        source, target = id_of(source_id, "source_id"), id_of(target_id, "target_id")
        validation.one_of("relation", label, LABELS)
        request = request_about("relate", request_id, {"label": label}, source, target)
        relations, tenant = self._access.engine.relations, self._access.tenant

        async def read(noted: Any) -> Relation:
            if (there := await relations.get(tenant, noted["relation"])) is None:
                raise NotFound(noted["relation"], "relation")
            return there

        async def relate(mark: RequestMark | None) -> Relation:
            seen = await self._access.known_ids([source, target]) if source != target else [source, target]
            said = self._access.sign_link(None)
            return await relations.relate(tenant, seen[0], label, seen[1], said=said, request=mark)

        return await self._access.once(request, relate, lambda made: {"relation": made.id}, read)

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
        cursor: str | None = None,
    ) -> RelationPage:
        """List the relations that match, newest first; 200 by default.

        By default relations of retired entries are listed too. The list has a `cursor`
        if there may be more.

        Args:
            active: Only relations with two valid entries.
            as_of: Only relations whose entries were valid at this moment.
            known_at: Only relations made by this moment, whose entries were known to be
                valid then. For `supersedes`, one valid entry is enough here and with
                `as_of`, because the relation hides the other entry.
            cursor: The `cursor` of an earlier list, to continue after it.
        """
        source = None if source_id is None else id_of(source_id, "source_id")
        target = None if target_id is None else id_of(target_id, "target_id")
        asked_of, known = moment("as_of", as_of), moment("known_at", known_at)
        both = flag("active", active)
        if label is not None:
            validation.one_of("relation filter", label, LABELS)
        most = validation.whole_limit(limit, default=LIST_LIMIT)
        shown = (
            RelationVisibility(asked_of, known, superseded=not both)
            if both or asked_of is not None or known is not None
            else None
        )
        tenant = self._access.tenant
        seal = CursorSeal("relations", tenant, source, target, label, both, asked_of, known)
        after = seal.unseal(cursor)
        page = await self._access.engine.relations.find(
            tenant,
            source_id=source,
            target_id=target,
            label=label,
            limit=most,
            shown=shown,
            within=self._access.place(),
            cursor=after,
        )
        page.cursor = seal.seal(page.cursor)
        return page

    async def expand(
        self, entry_id: str, *, depth: int = 1, scope: Scopes | None = None, superseded: bool = False
    ) -> Expansion:
        """Return the entries linked to an entry, breadth first in both directions.

        Retired entries are left out. At most 50 entries are shown, and of each at most
        50 links in each direction, the newest. `notices` say where there are more.

        Args:
            depth: One step or two.
            scope: Leave out entries of other scopes.
            superseded: Show `supersedes` links of which one entry is retired too.
                `retired` names that entry, and its other links are not shown. The entry
                to expand may then be retired; the entry that superseded it is shown.

        Raises:
            NotFound: The entry is not active.
        """
        steps = min(max(whole("depth", depth), 1), MOST_STEPS)
        wanted, within, retired = id_of(entry_id), self._access.place(scope), flag("superseded", superseded)
        await self._access.require_entries([wanted])
        return await self._access.engine.graphs.expand(
            self._access.tenant, wanted, depth=steps, place=within, superseded=retired
        )

    async def density(self, entry_id: str, *, scope: Scopes | None = None) -> Density:
        """Return how closely an entry is linked: isolated, sparse or dense.

        It is dense if four or more entries are within two steps. See `expand`.
        """
        wanted, within = id_of(entry_id), self._access.place(scope)
        await self._access.require_entries([wanted])
        return await self._access.engine.graphs.density(self._access.tenant, wanted, place=within)

    async def graph(
        self,
        scope: Scopes | None = None,
        *,
        types: Sequence[EntryType | str] | None = None,
        limit: int | None = None,
        as_of: Moment | None = None,
        known_at: Moment | None = None,
    ) -> Graph:
        """Return the newest entries and all relations between them.

        At most 200 entries are returned by default.

        Entries that a visible entry superseded are shown too, and `retired` names them.

        Args:
            scope: One scope or several; all of the tenant by default.
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

    async def all(self) -> AsyncIterator[Relation]:
        """Yield every relation of the tenant, in no particular order."""
        async for relation in self._access.engine.relations.everything(
            self._access.tenant, self._access.place()
        ):
            yield relation

    async def unrelate(self, relation_id: str, *, request_id: str | None = None) -> bool:
        """Delete a relation.

        Args:
            request_id: As in `Memory.write`.

        Returns:
            True if this call deleted it; False if there was none.
        """
        named = id_of(relation_id, "relation_id")
        request = request_about("unrelate", request_id, {}, named)
        tenant, engine = self._access.tenant, self._access.engine
        within = self._access.place()

        async def unrelate(mark: RequestMark | None) -> bool:
            if within is not None and await engine.relations.is_outside(tenant, named, within):
                return False
            return await engine.relations.unrelate(tenant, named, mark)

        return await self._access.once(request, unrelate, noted_flag, read_flag)
