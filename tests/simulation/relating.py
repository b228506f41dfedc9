"""A worker links entries, cuts links and asks for them: what it is told goes to
`tests.simulation.links`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from memory.domain.errors import Conflict, InvalidInput
from memory.domain.relation import Relation
from tests.simulation.links import Link, LinkAct, LinkSight

if TYPE_CHECKING:
    from tests.simulation.client import EngineClient
    from tests.simulation.workload import Operation

LABELS = ("supports", "refines")


async def relate(client: EngineClient, o: Operation) -> None:
    """Link the entry to another one, or be linked from it."""
    _, entry_id = client.about(o)
    others = [
        i
        for n, i in client.world.ids.items()
        if client.history.registers[n].tenant == o.tenant and i != entry_id
    ]
    if not others:
        return await client.browse(o)
    links, other = client.history.links, others[o.pick % len(others)]
    source_id, target_id = (entry_id, other) if o.pick // 2 % 3 else (other, entry_id)
    link: Link = (o.tenant, source_id, LABELS[o.pick // 8 % 4 == 0], target_id)
    act = LinkAct(link, client.history.moment(), inf, f"relate {client.process.name}#{o.number}", maybe=True)
    links.made.append(act)

    async def made() -> bool:
        try:
            relation = await client.engine.relations.relate(*link)
        except Conflict as error:
            links.made.remove(act)
            links.sights.append(
                LinkSight(
                    o.tenant, frozenset({link}), act.start, client.history.moment(), act.by, whole=False
                )
            )
            links.ids[error.existing_id or ""] = link
            return False
        except InvalidInput:
            links.refused.append(replace(act, end=client.history.moment()))
            return False
        links.ids[relation.id] = link
        return True

    done = await client.attempt("relate", made)
    if done is not None and done[0]:
        links.made[links.made.index(act)] = replace(act, end=done[1].end, maybe=False, clock=done[1].clock[0])
    return None


async def unrelate(client: EngineClient, o: Operation) -> None:
    """Cut a link that somebody was told of."""
    links = client.history.links
    known = sorted(
        relation_id for relation_id, link in links.ids.items() if relation_id and link[0] == o.tenant
    )
    if not known:
        return await relate(client, o)
    relation_id = known[o.pick % len(known)]
    link = links.ids[relation_id]
    act = LinkAct(
        link, client.history.moment(), inf, f"unrelate {client.process.name}#{o.number}", maybe=True
    )
    links.cut.append(act)
    done = await client.attempt("unrelate", lambda: client.engine.relations.unrelate(o.tenant, relation_id))
    if done is None:
        return None
    links.cut.remove(act)
    if done[0]:
        links.cut.append(replace(act, end=done[1].end, maybe=False))
    else:
        _, source_id, label, target_id = link
        links.sights.append(
            LinkSight(
                o.tenant, frozenset(), act.start, done[1].end, act.by, True, source_id, target_id, label
            )
        )
    return None


async def related(client: EngineClient, o: Operation) -> None:
    """The links from an entry, to it, of one label, or of the whole tenant."""
    name, entry_id = client.about(o)
    tenant, relations = client.history.registers[name].tenant, client.engine.relations
    match o.pick % 5:
        case 0:
            await shown(
                client,
                "related",
                LinkSight(tenant, frozenset(), 0, 0, "", source_id=entry_id),
                lambda: relations.find(tenant, source_id=entry_id),
            )
        case 1:
            await shown(
                client,
                "related",
                LinkSight(tenant, frozenset(), 0, 0, "", target_id=entry_id),
                lambda: relations.find(tenant, target_id=entry_id),
            )
        case 2:
            asked = LinkSight(tenant, frozenset(), 0, 0, "", label=LABELS[0])
            await shown(client, "related", asked, lambda: relations.find(tenant, label=LABELS[0]))
        case 3:
            asked = LinkSight(tenant, frozenset(), 0, 0, "", source_id=entry_id)
            await shown(
                client, "related", asked, lambda: relations.find(tenant, source_id=entry_id, limit=1), 1
            )
        case _:
            await every_link(client, tenant, "every relation")


async def every_link(client: EngineClient, tenant: str, by: str) -> None:
    async def everything() -> list[Relation]:
        return [relation async for relation in client.engine.relations.everything(tenant)]

    await shown(client, by, LinkSight(tenant, frozenset(), 0, 0, ""), everything)


async def shown(
    client: EngineClient,
    by: str,
    asked: LinkSight,
    call: Callable[[], Awaitable[Iterable[Relation]]],
    limit: int | None = None,
) -> None:
    """An answer about links; whole where it is not cut off at its limit."""
    links = client.history.links
    done = await client.attempt(by, call)
    if done is None:
        return
    relations, ended = list(done[0]), done[1]
    seen: list[Link] = []
    for relation in relations:
        link: Link = (asked.tenant, relation.source_id, relation.label, relation.target_id)
        if links.ids.setdefault(relation.id, link) != link or link in seen:
            client.history.broken(
                "doubled", str(link), f"{by} was shown {relation}, known as {links.ids[relation.id]}"
            )
        seen.append(link)
    whole = limit is None or len(relations) < limit
    links.sights.append(
        replace(asked, shown=frozenset(seen), start=ended.start, end=ended.end, by=ended.by, whole=whole)
    )
