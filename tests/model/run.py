"""One run: the stores of a topology, the workers on them, the model, and the clock that
they share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.embeddings.partition_indexes import LASTS
from tests.model import browsing as _of_browsing  # noqa: F401 - declares it
from tests.model import documents as _of_documents  # noqa: F401 - declares what is done with them
from tests.model import graph as _of_the_graph  # noqa: F401 - declares what is asked of it
from tests.model import paths as _of_paths  # noqa: F401 - declares what is done in them
from tests.model import views
from tests.model.artifacts import Files
from tests.model.clock import ModelClock
from tests.model.learning import operations as _of_learning  # noqa: F401 - declares how stores learn from sessions
from tests.model.model import Id, Model
from tests.model.numbering import Numbers
from tests.model.operations import Gone, Operation, perform
from tests.model.rules import TENANTS
from tests.model.said import Failure, Said
from tests.model.scratchpads import Pads
from tests.model.script import Script
from tests.model.sessions import operations as _of_sessions  # noqa: F401 - declares what is done with sessions
from tests.model.sessions.calls import View
from tests.model.sessions.talks import Talks
from tests.model.topologies import TOPOLOGIES, Topology
from tests.model.workers import Elsewhere, Here, Worker

WHOLE_EVERY = 200
REMEMBERED = 20_000
"""Operations back that the moment of which can be asked about; a long run is not to
grow.
"""
GRAVES_KEPT = 500
READING = frozenset(
    {
        "get",
        "retrieve",
        "search",
        "entries.history",
        "entries.iterate",
        "relations.find",
        "relations.all",
        "admin.where",
        "admin.stats",
        "admin.legal_holds.list",
    }
    | {f"relations.{method}" for method in ("expand", "density", "graph")}
    | {
        "browse",
        "scopes.list",
        "documents.get",
        "documents.get_many",
        "documents.list",
        "documents.find",
        "scratchpads.read",
        "short_ids.resolve_many",
        "artifacts.get",
        "artifacts.read",
        "artifacts.list",
    }
    | {
        f"session.{method}"
        for method in ("info", "context", "history", "compactions", "search", "tasks.list", "runs.list")
    }
    | {"sessions.get", "sessions.list", "sessions.runs", "search_messages"}
)


class Run:
    """What a run of operations needs to know; all of it but the stores and the workers
    can be put away and taken up again.
    """

    def __init__(
        self, topology: Topology, config: dict[str, Any], folder: Path, *, alone: bool = False
    ) -> None:
        """`alone`: no worker in another process."""
        self.alone = alone
        self.topology = topology
        self.config = config
        self.folder = folder
        self.clock = ModelClock()
        self.talks = Talks()
        self.model = Model(self.talks)
        self.pads = Pads()
        self.numbers = Numbers()
        self.files = Files(self.talks)
        self.view: View | None = None
        """Through which view everything is asked for now."""
        self.whole_model: Model | None = None
        """While that is judged by what the view has: the model of all there is."""
        self.made: dict[str, Id] = {}
        """By operation, the ids of the entries it made."""
        self.made_links: dict[str, str | None] = {}
        self.drafts: dict[str, tuple[str, dict[str, Any]]] = {}
        """By operation, the keyed drafts it wrote, for which tenant."""
        self.begun: list[tuple[int, datetime]] = []
        self.wrote: dict[int, datetime] = {}
        """When each worker was done with its last call that may have written."""
        self.script = Script()
        self.workers: list[Worker] = []

    # -- life --------------------------------------------------------------------------

    async def __aenter__(self) -> Run:
        here = 2 if self.topology.shared else 1
        self.workers = [Here(self.config, self.clock) for _ in range(here)]
        if self.topology.shared and not self.alone:
            self.workers.append(Elsewhere(self.config, self.clock))
        self.talks.lets_go()
        self.model.evicted.clear()
        for worker in self.workers:
            await worker.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        for worker in self.workers:
            await worker.close()
        self.workers = []

    @property
    def memory(self) -> Memory:
        """One that is of this process."""
        first = self.workers[0]
        assert isinstance(first, Here)
        return first.memory

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"workers": [], "script": Script(), "topology": self.topology.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"topology": TOPOLOGIES[state["topology"]]})

    def unseen_since(self, worker: int, now: datetime) -> datetime | None:
        """Since when a search by meaning of a worker may miss what others wrote; None
        where it may not, since none did or the stores would tell.
        """
        can = [leaf.capabilities for leaf in engine_of(self.memory).topology.leaves]
        others = max(
            (ended for number, ended in self.wrote.items() if number != worker % len(self.workers)),
            default=now - LASTS,
        )
        return (
            now - LASTS
            if any(one.lexical and not one.semantic for one in can) and others > now - LASTS
            else None
        )

    # -- asking ------------------------------------------------------------------------

    async def ask(
        self,
        op: Operation | None,
        name: str,
        *args: Any,
        tenant: str | None = None,
        worker: int | None = None,
        reading: bool = False,
        more: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Said:
        """Call the facade. While something is only read, time stands still. `more`:
        arguments that are called as one of these is.
        """
        kwargs |= more or {}
        number = (worker if worker is not None else op.worker if op is not None else 0) % len(self.workers)
        owner = tenant or (op.tenant if op is not None else "acme")
        self.clock.ticking = not (reading or name in READING)
        if self.view is not None:
            name, args = f"view.{name}", (self.view, *args)
        begun = self.clock()
        self.script.called(begun, owner, name, args, kwargs)
        answer = await self.workers[number].call(owner, name, args, kwargs)
        self.script.answered(answer)
        ended = self.clock.now
        if self.clock.ticking:
            self.wrote[number] = ended
        failure = answer if isinstance(answer, Failure) else None
        said = Said(f"{name} of {owner}", begun, ended, None if failure else answer, failure)
        return said if self.view is None else await self._in_view(said, owner, number)

    async def _in_view(self, said: Said, owner: str, number: int) -> Said:
        """What a view is refused ends the operation."""
        assert self.view is not None
        if self.view.is_refused:
            said.refused("Forbidden")
            raise Gone
        if not self.view.is_whole or said.failure is not None:
            return said
        self.clock.ticking = False
        return replace(said, value=await views.completed(self, said, owner, number))

    async def forgets(self, number: int) -> None:
        """A worker is about to end: it tells what sessions have come to, and forgets
        how much it has evicted.
        """
        for tenant in TENANTS:
            await self.ask(None, "sessions.list", tenant=tenant, worker=number, limit=1)
            stats = (await self.ask(None, "admin.stats", tenant=tenant, worker=number)).given()
            self.model.evicted.subtract({(tenant, quota): count for quota, count in stats.evicted.items()})
        self.talks.lets_go(number)

    # -- remembering -------------------------------------------------------------------

    def begin(self, op: Operation) -> None:
        self.begun.append((op.number, self.clock.now))
        self.script.begin(op)
        if len(self.begun) > 2 * REMEMBERED:
            del self.begun[:REMEMBERED]
        if len(self.model.graves) > 2 * GRAVES_KEPT:
            self.model.forget_graves(self.clock.now, GRAVES_KEPT)
            self.made = {
                ref: made
                for ref, made in self.made.items()
                if made in self.model.lives or made in self.model.graves
            }
            self.drafts = {ref: draft for ref, draft in self.drafts.items() if ref in self.made}

    def moment_before(self, number: int) -> datetime:
        """When that operation began; where it has been taken out, the one before it."""
        place = bisect_left(self.begun, number, key=lambda one: one[0])
        return self.begun[min(place, len(self.begun) - 1)][1]

    def note(
        self, op: Operation, made: Sequence[Id], *, batch: bool = False, draft: dict[str, Any] | None = None
    ) -> None:
        """What an operation made, by the name that others call it by."""
        for place, one in enumerate(made):
            self.made[f"{op.number}.{place}" if batch else str(op.number)] = one
        if draft is not None and draft.get("key") and made:
            self.drafts[str(op.number)] = (op.tenant, draft)

    async def perform(self, operations: Sequence[Operation]) -> None:
        """Carry them out in order, each judged, and look at the whole at the end."""
        for op in operations:
            await perform(self, op)
        await perform(self, Operation(operations[-1].number if operations else 0, "whole"))
