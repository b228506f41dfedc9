"""Entries in the place of others, and the current value of something: what is asked,
and what must have come of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.model.model import SKEW, WHERE_SAID, Id, Link, Model, came_of
from tests.model.mutants import Method, mutant
from tests.model.operations import Gone, Operation, operation, resolved
from tests.model.said import Said, Wrong, plain, same

if TYPE_CHECKING:
    from memory import Memory
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

CURRENT = ("home", "work", "mood")
"""Keys under which somebody remembers what is true now."""


# -- what somebody does ----------------------------------------------------------------


def draw_supersede(g: Generator, run: Run, tenant: str) -> Drawn | None:
    refs = dict.fromkeys(
        ref for _ in range(g.chance.choice((1, 1, 2, 3))) if (ref := g.ref(run, tenant)) is not None
    )
    key = f"k{g.number}" if g.chance.random() < 0.3 else None
    return ("supersede", {"draft": g.draft(key=key), "entries": list(refs)}) if refs else None


def draw_upsert(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly of a key that is used for that; at times of any other, and at times with
    what was said there before.
    """
    draft = g.draft(key=g.chance.choice(CURRENT))
    draft.pop("created_at", None)
    used = [written for owner, written in run.drafts.values() if owner == tenant]
    if used and g.chance.random() < 0.3:
        other = g.chance.choice(used)
        draft |= {"scope": other["scope"], "key": other["key"]}
    elif g.chance.random() < 0.3:
        draft |= {"scope": "user:ada", "content": "the same as ever"}
    return "upsert", {"draft": draft}


# -- and what comes of it --------------------------------------------------------------


@operation
async def supersede(run: Run, op: Operation) -> None:
    draft, ids = resolved(run, op.args["draft"]), _ids(run, op.args["entries"])
    said = await run.ask(op, "write", **draft, supersedes=ids)
    again: dict[str, dict[str, Any]] = {}
    links: list[Any] = []
    if said.failure is None:
        for entry_id in ids:
            history = await run.ask(op, "entries.history", entry_id, reading=True)
            again |= {} if history.failure is not None else {entry_id: plain(history.given()[-1])}
        links = (await run.ask(op, "relations.find", source_id=said.value.id, reading=True)).given()
    made = superseded(run.model, said, op.tenant, draft, ids, again, links)
    run.note(op, [made] if made else [])


def _ids(run: Run, refs: Sequence[str]) -> list[str]:
    if not all(ref in run.made for ref in refs):
        raise Gone
    return list(dict.fromkeys(run.made[ref][1] for ref in refs))


def superseded(
    model: Model,
    said: Said,
    tenant: str,
    draft: dict[str, Any],
    ids: Sequence[str],
    again: Mapping[str, dict[str, Any]],
    links: Sequence[Any],
) -> Id | None:
    """`again` are the others' current versions by their histories, `links` all links
    from the new entry.
    """
    given = draft.get("created_at")
    if given is not None and given > said.ended + SKEW:
        said.refused("InvalidInput")
        return None
    if model._beyond_quotas(said, tenant, [draft["scope"]]):
        return None
    others = [life for entry_id in ids if (life := model.active(tenant, entry_id, said.begun)) is not None]
    if len(others) < len(ids) or (
        given is not None and any(given <= life.now.fields["valid_from"] for life in others)
    ):
        said.refused("InvalidInput")
        return None
    wanted = Said(
        said.call, said.begun, said.ended, [said.value] if said.failure is None else None, said.failure
    )
    (made,) = model._written(wanted, tenant, [draft], revive=False)
    moment = model.lives[made].now.fields["valid_from"]
    model.evict(wanted, tenant, {draft["scope"]}, [made])
    stand = [life for life in others if (tenant, life.id) in model.lives]
    for life in stand:
        if life.id not in again:
            said.wrong("loses what it supersedes", life.id)
        model._next(
            said,
            life,
            again[life.id],
            {"valid_to": max(moment, life.now.fields["valid_from"])},
            came_of(model.lives[made].now.fields),
        )
    found = {(link.label, link.target_id, link.created_at) for link in links}
    if found != {("supersedes", life.id, moment) for life in stand}:
        said.wrong("links others", f"{found}, wanted {[life.id for life in stand]} at {moment}")
    model.links.setdefault(tenant, {}).update(
        {one.id: Link(one.id, made[1], one.target_id, one.label, one.created_at) for one in links}
    )
    return made


@operation
async def upsert(run: Run, op: Operation) -> None:
    draft = resolved(run, op.args["draft"])
    there = set(run.model.lives)
    made = upserted(run.model, await run.ask(op, "write", **draft, if_exists="replace"), op.tenant, draft)
    run.note(op, [made] if made else [], draft=draft if made not in there else None)
    named = {"scope": draft["scope"], "key": draft["key"]}
    found = (await run.ask(op, "get", **named, reading=True)).given()
    if found is not None and (made is None or found.id != made[1] or found.key != draft["key"]):
        raise Wrong("finds another entry by a key", f"{named}: {found!r}")


def upserted(model: Model, said: Said, tenant: str, draft: dict[str, Any]) -> Id | None:
    key = (tenant, model.keys.get((tenant, draft["scope"], draft["key"]), ""))
    life = model.lives.get(key)
    if life is not None and life.now.expired(said.begun):
        if model.held(tenant, life):
            said.refused("Conflict")
            return None
        model.bury(tenant, [life.id], said.begun)
        life = None
    if life is None:
        wanted = Said(
            said.call, said.begun, said.ended, [said.value] if said.failure is None else None, said.failure
        )
        return next(iter(model.written(wanted, tenant, [draft], revive=True)), None)
    if not life.active(said.begun):
        said.refused("Conflict")
        return None
    says = {
        "content": draft.get("content", ""),
        "title": draft.get("title"),
        "type": draft.get("type", "context"),
        "source": draft.get("source"),
        "tags": list(dict.fromkeys(draft.get("tags", ()))),
        "metadata": draft.get("metadata") or {},
        "data": draft.get("data"),
        "searchable": draft.get("searchable", True),
        "expires_at": draft.get("expires_at"),
        **{name: draft.get(name) for name in WHERE_SAID},
    }
    found = plain(said.given())
    if all(same(life.now.fields[name], value) for name, value in says.items()):
        model._match(said, found, life.current())
    else:
        model._next(said, life, found, says)
    return key


# -- what somebody might break ---------------------------------------------------------


@mutant("write")
async def what_is_superseded_stays_valid(
    whole: Method, memory: Memory, *args: Any, supersedes: Sequence[str] = (), **kwargs: Any
) -> Any:
    made = await whole(memory, *args, **kwargs)
    for entry_id in supersedes:
        await memory.relations.relate(made.id, "supersedes", entry_id)
    return made


@mutant("write")
async def what_is_superseded_is_not_linked(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    made = await whole(memory, *args, **kwargs)
    if kwargs.get("supersedes"):
        for link in await memory.relations.find(source_id=made.id):
            await memory.relations.unrelate(link.id)
    return made


@mutant("write")
async def an_upsert_keeps_what_it_is_not_told(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    made = await whole(memory, *args, **kwargs)
    if kwargs.get("if_exists") != "replace":
        return made
    history = await memory.entries.history(made.id)
    tags = history[-2].tags if len(history) > 1 else []
    return await memory.update(made.id, tags=tags) if tags and not kwargs.get("tags") else made


@mutant("write")
async def an_upsert_forgets_what_was_there(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("if_exists") == "replace":
        made = await whole(memory, *args, **kwargs)
        if len(await memory.entries.history(made.id)) > 1:
            await memory.delete(made.id)
            return await whole(memory, *args, **kwargs)
        return made
    return await whole(memory, *args, **kwargs)
