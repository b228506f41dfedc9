"""The graph: what is linked to what, then and around an entry, compared with the links
and lives of the model; and what somebody might break.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory.facade.resources.relations import Relations
from tests.model import check
from tests.model.mutants import Method, mutant
from tests.model.operations import Gone, Operation, operation, resolved
from tests.model.said import Said
from tests.support import linked

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

MOST = 1_000
CUT = 50
"""Entries and links of one direction of which an expansion may leave out others."""
LOOKED_AROUND = 8
"""Entries around which it is looked when the whole is; others the next time."""


def model_of(run: Run, tenant: str, now: datetime) -> linked.Model:
    """The graph of a tenant as a reader of this moment may ask about it."""
    model = linked.Model(now)
    for life in run.model.of(tenant):
        ends = [version.stored[1] for version in life.versions[1:]]
        told = [(version.stored[1], version.fields) for version in life.versions]
        model.scopes[life.id] = life.scope
        model.entries[life.id] = [
            linked.Stood(since, until, fields["valid_from"], fields["valid_to"], fields["expires_at"])
            for (since, fields), until in zip(told, [*ends, None], strict=True)
        ]
    links = run.model.links.get(tenant, {}).values()
    model.links = [
        linked.Link(link.id, link.source_id, link.target_id, link.label, link.created_at) for link in links
    ]
    return model


def is_certain(run: Run, tenant: str, known_at: datetime | None) -> bool:
    """Whether it can be told to the microsecond what was known then."""
    return known_at is None or all(life.known(known_at)[1] for life in run.model.of(tenant))


# -- what is asked ---------------------------------------------------------------------


def _draw_related(g: Generator, run: Run, tenant: str) -> Drawn | None:
    ref, of = g.ref(run, tenant), g.chance.choice(("source_id", "target_id"))
    named = {of: ref} if ref and g.chance.random() < 0.3 else {}
    when = _moments(g, run, tenant) if g.chance.random() < 0.7 else {}
    return "related_then", {"named": named, "active": not when or g.chance.random() < 0.4, "moments": when}


def _moments(g: Generator, run: Run, tenant: str) -> dict[str, Any]:
    return {g.chance.choice(("as_of", "known_at")): _moment(g, run, tenant)}


def _moment(g: Generator, run: Run, tenant: str) -> dict[str, Any]:
    """Mostly one at which a link was made, or just before."""
    links = [ref for ref, link in run.made_links.items() if link in run.model.links.get(tenant, {})]
    if links and g.chance.random() < 0.6:
        return {"link": g.chance.choice(links), "plus": g.chance.choice((-1, 0, 0, 1))}
    return g.moment(run, g.ref(run, tenant))


def _draw_expand(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly around an entry with links."""
    from tests.model.generate import SCOPES

    ends = {
        end for link in run.model.links.get(tenant, {}).values() for end in (link.source_id, link.target_id)
    }
    refs = [ref for ref, key in run.made.items() if key[0] == tenant and key[1] in ends]
    ref = g.chance.choice(refs) if refs and g.chance.random() < 0.8 else g.ref(run, tenant)
    if ref is None:
        return None
    scopes = g.chance.sample(SCOPES, 3) if g.chance.random() < 0.2 else None
    return "expand", {
        "entry": ref,
        "depth": g.chance.choice((1, 2, 2, 3)),
        "superseded": g.chance.random() < 0.4,
        "scopes": scopes,
    }


def _draw_graph(g: Generator, run: Run, tenant: str) -> Drawn | None:
    when = _moments(g, run, tenant) if g.chance.random() < 0.4 else {}
    return "draw_graph", {
        "scopes": g.chance.choice((None, g.places(g.chance.choice((1, 3))))),
        "moments": when,
    }


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {
    "related_then": (0.8, _draw_related),
    "expand": (1, _draw_expand),
    "draw_graph": (0.7, _draw_graph),
}


# -- and what must be answered ---------------------------------------------------------


@operation
async def related_then(run: Run, op: Operation) -> None:
    named = dict[str, Any]()
    for name, ref in op.args["named"].items():
        if ref not in run.made:
            raise Gone
        named[name] = run.made[ref][1]
    active, moments = op.args["active"], resolved(run, op.args["moments"])
    said = await run.ask(op, "relations.find", limit=MOST, active=active, **named, **moments)
    shown = model_of(run, op.tenant, said.begun).related(active=active, **moments)
    wanted = [link.id for link in run.model.related_to(op.tenant, **named) if link.id in shown]
    if is_certain(run, op.tenant, moments.get("known_at")):
        _same(said, "are others", [link.id for link in said.given()], wanted)


@operation
async def expand(run: Run, op: Operation) -> None:
    if op.args["entry"] not in run.made:
        raise Gone
    entry_id = run.made[op.args["entry"]][1]
    await around(
        run,
        op.tenant,
        entry_id,
        op.args["depth"],
        superseded=op.args["superseded"],
        scopes=op.args["scopes"],
        worker=op.worker,
    )


@operation
async def draw_graph(run: Run, op: Operation) -> None:
    await drawn(run, op.tenant, op.args["scopes"], resolved(run, op.args["moments"]), worker=op.worker)


async def around(
    run: Run,
    tenant: str,
    entry_id: str,
    depth: int,
    *,
    superseded: bool = False,
    scopes: list[str] | None = None,
    worker: int = 0,
) -> None:
    """What an expansion reaches, and how densely an entry is linked."""
    given: dict[str, Any] = {} if scopes is None else {"scope": scopes}
    said = await run.ask(
        None,
        "relations.expand",
        entry_id,
        tenant=tenant,
        worker=worker,
        depth=depth,
        superseded=superseded,
        **given,
    )
    model = model_of(run, tenant, said.begun)
    seen, there = model.visible(), model.lasting()
    if entry_id not in (there if superseded else seen):
        said.refused("NotFound")
    else:
        found = said.given()
        far, along = model.expand(entry_id, min(depth, 2), superseded=superseded, scopes=scopes or ())
        told = (
            {node.entry.id: node.depth for node in found.nodes},
            {link.id for link in found.relations},
            found.retired,
        )
        if not (found.notices and max(len(far), len(along)) > CUT):
            _same(said, "expands otherwise", (*told, found.notices), (far, along, far.keys() - seen, ()))
    said = await run.ask(None, "relations.density", entry_id, tenant=tenant, worker=worker)
    if entry_id not in seen:
        said.refused("NotFound")
    elif not (close := said.given()).notices:
        labels = {link.label for link in model.links if link.id in model.expand(entry_id, 1)[1]}
        told_of = (
            (close.outgoing, close.incoming, close.one_step, close.two_steps, close.verdict),
            close.labels,
        )
        _same(said, "is linked otherwise", told_of, (model.density(entry_id), tuple(sorted(labels))))


async def drawn(
    run: Run, tenant: str, scopes: list[str] | None, moments: dict[str, Any], *, worker: int = 0
) -> None:
    """The graph of a tenant or of scopes, as it is or was."""
    within = sorted({life.scope for life in run.model.in_scopes(tenant, scopes)}) or scopes if scopes else ()
    said = await run.ask(None, "relations.graph", scopes, tenant=tenant, worker=worker, limit=MOST, **moments)
    found = said.given()
    if not is_certain(run, tenant, moments.get("known_at")):
        return
    told = {entry.id for entry in found.entries}, set(found.retired), {link.id for link in found.relations}
    _same(
        said,
        "draws another graph",
        told,
        model_of(run, tenant, said.begun).graph(scopes=within, **moments),
    )
    ordered = sorted(found.relations, key=lambda link: (link.created_at, link.id), reverse=True)
    _same(
        said,
        "draws it otherwise",
        (len(found.entries), list(found.relations), found.notices),
        (len(told[0]), ordered, ()),
    )


def _same(said: Said, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        said.wrong(what, f"{found}, wanted {wanted}")


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    number = run.begun[-1][0]
    chosen = random.Random(number)  # noqa: S311 - the same for the same run
    await drawn(run, tenant, None, {}, worker=worker)
    ends = sorted(
        {end for link in run.model.links.get(tenant, {}).values() for end in (link.source_id, link.target_id)}
    )
    for entry_id in chosen.sample(ends, min(len(ends), LOOKED_AROUND)):
        await around(run, tenant, entry_id, 2, superseded=True, worker=worker)


# -- what somebody might break ---------------------------------------------------------


@mutant("relations.expand")
async def an_expansion_goes_one_step_alone(
    whole: Method, relations: Relations, entry_id: str, **kwargs: Any
) -> Any:
    return await whole(relations, entry_id, **(kwargs | {"depth": 1}))


@mutant("relations.find")
async def links_of_what_is_over_are_taken_for_active(
    whole: Method, relations: Relations, **kwargs: Any
) -> Any:
    return await whole(relations, **(kwargs | {"active": False}))


@mutant("relations.graph")
async def a_graph_forgets_what_was_superseded(
    whole: Method, relations: Relations, *args: Any, **kwargs: Any
) -> Any:
    found = await whole(relations, *args, **kwargs)
    left = [link for link in found.relations if not {link.source_id, link.target_id} & found.retired]
    return replace(
        found,
        entries=tuple(one for one in found.entries if one.id not in found.retired),
        relations=tuple(left),
        retired=frozenset(),
    )
