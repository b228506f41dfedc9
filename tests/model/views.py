"""Restricted views: somebody who has a part of a tenant asks and changes what others
do, too. What is outside is to that reader as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memory import Memory
from memory.domain.entry import Entry
from memory.domain.ids import digest_of, is_id, partition_digest
from memory.facade.resources.entries import Entries
from memory.facade.resources.relations import Relations
from memory.facade.runtime.access import Access, access_of
from tests.model.model import BELOW, Life, Model, Version, covers, roots_in
from tests.model.mutants import Method, mutant
from tests.model.operations import PERFORMED, Gone, Operation, operation
from tests.model.said import Said, differences, plain
from tests.model.sessions.calls import View

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

READS = (
    "get",
    "history",
    "retrieve",
    "browse",
    "search_word",
    "relations",
    "list_scopes",
    "read_document",
    "list_documents",
)
CHANGES = (
    "write",
    "update",
    "retire",
    "delete",
    "relate",
    "promote",
    "delete_many",
    "delete_scope",
    "erase_subtree",
    "put_document",
    "delete_document",
    "delete_documents",
)
RARE = ("delete_many", "delete_scope", "erase_subtree", "delete_documents")
ENTRIES_NAMED = ("entry", "source", "target", "source_id", "target_id")


# -- what is drawn ---------------------------------------------------------------------


def _draw(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """What is drawn for anybody, mostly with scopes of the view."""
    from tests.model.generate import draw

    scopes = g.places(g.chance.choice((1, 2, 3)))
    weights = [2.0] * len(READS) + [0.2 if kind in RARE else 1.0 for kind in CHANGES]
    kind = g.chance.choices((*READS, *CHANGES), weights)[0]
    drawn = draw(kind, g, run, tenant)
    if drawn is None:
        return None
    kind, args = drawn
    args.pop("session", None)
    args.pop("max_depth", None)
    for name in ("conversation_id", "number_in_conversation", "speaker"):
        args.get("draft", {}).pop(name, None)
    args.get("asked", {}).pop("conversation", None)
    if g.chance.random() < 0.75:
        args = _inside(g, scopes, args)
    role = g.chance.choice((None, None, "writer", "reader"))
    return "in_view", {"scopes": scopes, "role": role, "kind": kind, "args": args}


def _inside(g: Generator, scopes: list[str], args: dict[str, Any]) -> dict[str, Any]:
    """The same of the scopes of a view."""
    one = g.chance.choice([place.removesuffix(BELOW) if roots_in([place]) else place for place in scopes])
    if "draft" in args:
        return args | {"draft": args["draft"] | {"scope": one}}
    if "asked" in args:
        several = g.chance.sample(scopes, g.chance.randint(1, len(scopes)))
        is_browse = args.get("scopes", several) is None
        named = {"scopes": None if is_browse else several} if "scopes" in args else {}
        own = {"scopes": several} if "scopes" in args["asked"] else {}
        return args | named | {"asked": args["asked"] | own}
    if "prefix" in args:
        return args | {"prefix": None}
    place = {"scope": one} if args.get("scope") is not None and not roots_in([args["scope"]]) else {}
    return args | place | ({"to": one} if "to" in args else {})


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {"in_view": (5, _draw)}


# -- what is done ----------------------------------------------------------------------


@operation
async def in_view(run: Run, op: Operation) -> None:
    """Done as anybody does it; by the model of what the view has, or, where that
    changes, by the whole one.
    """
    view = View(tuple(op.args["scopes"]), op.args["role"])
    kind, args = op.args["kind"], op.args["args"]
    inner = replace(op, kind=kind, args=args)
    is_refused = not covers_all(view.scopes, _named(kind, args)) or (
        view.role == "reader" and kind in CHANGES
    )
    there = [
        run.model.lives.get(run.made.get(args[name], ("", ""))) for name in ENTRIES_NAMED if name in args
    ]
    if kind == "promote" and None in there:
        raise Gone
    is_inside = all(life is not None and covers(view.scopes, life.scope) for life in there)
    is_whole = kind in CHANGES and is_inside
    whole, run.view = run.model, View(view.scopes, view.role, is_refused, is_whole)
    run.whole_model = whole
    run.model = whole if is_whole else seen_in(run, whole, op.tenant, view)
    try:
        await PERFORMED[kind](run, inner)
    finally:
        run.view, run.model, run.whole_model = None, whole, None


def covers_all(scopes: Sequence[str], named: Sequence[str]) -> bool:
    """Whether each scope named, and all of each subtree, is in these."""
    return all(one in scopes or one.startswith(tuple(roots_in(scopes))) for one in named)


def _named(kind: str, args: Mapping[str, Any]) -> list[str]:
    """The scopes that a call names."""
    if "draft" in args:
        return [args["draft"]["scope"]]
    found = [*(args.get("scopes") or ()), *args.get("asked", {}).get("scopes", ())]
    found += [args[name] for name in ("scope", "to") if args.get(name) is not None]
    prefix = args.get("prefix")
    if kind == "list_scopes" and prefix is not None:
        found.append(prefix if roots_in([prefix]) else prefix + BELOW)
    return found


async def completed(run: Run, said: Said, tenant: str, number: int) -> Any:
    """The answer that a caller without a view would get: the entries in it with the ids
    that the view must hide.
    """
    assert run.view is not None
    if isinstance(said.value, list):
        return [await completed(run, replace(said, value=one), tenant, number) for one in said.value]
    if not isinstance(said.value, Entry):
        return said.value
    history = await run.workers[number].call(tenant, "entries.history", (said.value.id,), {})
    whole = [one for one in history if one.version == said.value.version] if isinstance(history, list) else []
    if not whole:  # it had expired when it was written
        return said.value
    if told := differences(plain(said.value), hidden(run, run.model, tenant, run.view, plain(whole[0]))):
        said.wrong("in a view shows another entry", told)
    return whole[0]


# -- what a view shows -----------------------------------------------------------------


def seen_in(run: Run, model: Model, tenant: str, view: View) -> Model:
    """The model of what a view has of a tenant."""
    seen = Model(model.talks)
    seen.shelf = model.shelf
    for life in model.of(tenant):
        if covers(view.scopes, life.scope):
            versions = [
                Version(hidden(run, model, tenant, view, one.fields), one.stored, one)
                for one in life.versions
            ]
            seen.lives[tenant, life.id] = Life(versions, life.tier, life.born_in)
    inside = {entry_id for _, entry_id in seen.lives}
    seen.links[tenant] = {
        name: link
        for name, link in model.links.get(tenant, {}).items()
        if {link.source_id, link.target_id} <= inside
    }
    return seen


def hidden(run: Run, model: Model, tenant: str, view: View, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says without the ids of what is outside."""

    def is_seen(entry_id: str) -> bool:
        """By the scope in its id; where subtrees are named, by that of the entry."""
        if roots_in(view.scopes):
            life = model.lives.get((tenant, entry_id))
            return life is not None and covers(view.scopes, life.scope)
        return digest_of(entry_id) in {partition_digest(tenant, scope) for scope in view.scopes}

    found = dict(fields)
    if found["promoted_from_id"] is not None and not is_seen(found["promoted_from_id"]):
        found["promoted_from_id"] = None
    found["compacted_from_ids"] = [one for one in found["compacted_from_ids"] or () if is_seen(one)] or None
    found["contributors"] = [one for one in found["contributors"] or () if is_seen(one["entry_id"])] or None
    names = {one: one.partition(":")[2] for one in found["origins"] or ()}
    found["origins"] = [one for one, name in names.items() if not is_id(name) or is_seen(name)] or None
    if not _sees_session(run, tenant, view, found["conversation_id"]):
        found |= {"conversation_id": None, "number_in_conversation": None}
    return found


def _sees_session(run: Run, tenant: str, view: View, session: str | None) -> bool:
    talk = run.talks.all.get((tenant, session or ""))
    return f"session:{session}" in view.scopes or (
        talk is not None and talk.user is not None and f"user:{talk.user}" in view.scopes
    )


# -- what somebody might break ---------------------------------------------------------


def _without_view(access: Access) -> Access:
    return Access(access.config, access._life, access.tenant, owns_life=False)


@mutant("get")
async def a_view_shows_an_entry_of_another_scope(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    found = await whole(memory, *args, **kwargs)
    access = access_of(memory)
    if found is not None or access.view is None:
        return found
    return await whole(Memory._over(_without_view(access)), *args, **kwargs)


@mutant("entries.history")
async def the_history_of_an_entry_is_open_to_every_view(
    whole: Method, entries: Entries, *args: Any, **kwargs: Any
) -> Any:
    return await whole(Entries(_without_view(access_of(entries))), *args, **kwargs)


@mutant("relations.find")
async def relations_that_lead_out_of_a_view_are_shown(
    whole: Method, relations: Relations, **kwargs: Any
) -> Any:
    return await whole(Relations(_without_view(access_of(relations))), **kwargs)


@mutant("browse")
async def a_view_for_reading_is_asked_for_all_scopes(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    view = access_of(memory).view
    if view is None or view.role == "writer":
        return await whole(memory, *args, **kwargs)
    return await whole(Memory._over(_without_view(access_of(memory))), *args, **kwargs)


@mutant("update")
async def a_reader_may_edit(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    view = access_of(memory).view
    if view is None or view.role == "writer":
        return await whole(memory, *args, **kwargs)
    return await whole(Memory._over(_without_view(access_of(memory))), *args, **kwargs)
