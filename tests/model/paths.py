"""Scopes arranged in paths: what is asked of a subtree, which scopes there are, what is
deleted and erased in a subtree; what must come of it; and what somebody might break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory import Memory, Scope
from memory.domain.scopes import ScopeInfo
from memory.facade.resources.admin import Admin
from memory.facade.resources.entries import Entries
from memory.facade.resources.scopes import ScopeListing
from memory.facade.runtime.access import access_of
from memory.orchestrator.erasure.legal_holds import LegalHoldRecords
from tests.model import check
from tests.model.model import BELOW, Asked, above, covers, kind_of, roots_in
from tests.model.mutants import Method, mutant
from tests.model.operations import Operation, operation
from tests.model.said import Said, Wrong
from tests.model.structured import drawn_where, filter_of

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

LABELS = (
    ("teams",),
    ("teams", "red"),
    ("teams", "red", "a/b %"),
    ("teams", "re_"),
    ("teams", "Red"),
    ("teams", "**"),
    ("teams", "r[e]*\n?"),
    ("teams", "redwood", "日本"),
)
"""A tree. No label has a meaning for a store: the subtree of one has none of the others."""
PATHS = tuple(Scope.path(*labels).text for labels in LABELS)
SUBTREES = tuple(
    Scope.path(*labels).subtree().text for labels in (*LABELS[:7], ("teams", "redwood"), ("team",), ("%",))
)


def around(scope: str) -> list[str]:
    """A subtree that has a path, or the scope itself."""
    return [above(scope)[0] + BELOW] if kind_of(scope) == "path" else [scope]


# -- what is done ----------------------------------------------------------------------


def _draw_list(g: Generator, run: Run, tenant: str) -> Drawn | None:
    may = g.chance.random
    prefix = g.chance.choice((*PATHS, *SUBTREES)) if may() < 0.5 else None
    kind = g.chance.choice(("path", "user", "session")) if prefix is None and may() < 0.5 else None
    depth = g.chance.choice((None, None, 1, 2, 3))
    return "list_scopes", {
        "prefix": prefix,
        "kind": kind,
        "max_depth": depth,
        "limit": g.chance.choice((1, 3, 100)),
    }


def _draw_delete(g: Generator, run: Run, tenant: str) -> Drawn | None:
    scope = g.places(1)[0] if g.chance.random() < 0.6 else None
    return "delete_many", {"scope": scope, "where": drawn_where(g), "retired": g.chance.random() < 0.2}


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {
    "list_scopes": (1, _draw_list),
    "delete_many": (1, _draw_delete),
    "erase_subtree": (0.4, lambda g, run, tenant: ("erase_subtree", {"scope": g.chance.choice(SUBTREES)})),
}


@operation
async def list_scopes(run: Run, op: Operation) -> None:
    await listed(run, op.tenant, worker=op.worker, **op.args)


@operation
async def delete_many(run: Run, op: Operation) -> None:
    """By a filter, in a scope, a subtree or the tenant."""
    scope, where, retired = op.args["scope"], op.args["where"], op.args["retired"]
    said = await run.ask(op, "entries.delete_many", filter_of(where), scope=scope, include_retired=retired)
    deleted_many(run, said, op.tenant, scope, where, retired=retired)


@operation
async def erase_subtree(run: Run, op: Operation) -> None:
    """It is counted first, without being erased. What is held stays, and both calls say
    so; the second once the rest is erased.
    """
    subtree = op.args["scope"]
    counted = await run.ask(op, "admin.erase", subtree, dry_run=True, reading=True)
    said = await run.ask(op, "admin.erase", subtree)
    scopes = sorted(run.model.scopes_below(op.tenant, subtree))
    held = [scope for scope in scopes if run.model.holds_any(op.tenant, scope)]
    for one in (counted, said):
        if held:
            one.refused("LegalHoldActive")
        else:
            run.model.counted(one, op.tenant, [subtree])
            if one.value.scopes != len(scopes):
                one.wrong("counts other scopes", f"{one.value.scopes}, wanted {scopes}")
    for scope in scopes:
        if scope not in held:
            run.model.erase(op.tenant, scope, said.ended)


def deleted_many(
    run: Run, said: Said, tenant: str, scope: str | None, where: list[Any], *, retired: bool
) -> None:
    model, now = run.model, said.begun
    view = None if run.view is None else run.view.scopes
    places = [scope] if scope is not None else view or sorted({life.scope for life in model.of(tenant)})
    asked = Asked(tenant, tuple(places), where=tuple(where))
    going = [life for life in model.passing(asked) if not life.now.expired(now)]
    going = [life for life in going if retired or life.now.before_end(now)]
    held = [life.id for life in going if model.held(tenant, life)]
    free = [life.id for life in going if life.id not in held]
    report = said.given()
    again = model.delete_together(tenant, free, said.ended)
    if not len(free) - again <= report.deleted <= len(free) or sorted(report.held) != sorted(held):
        said.wrong("deletes others", f"{report}, wanted {len(free)} but {again} twice, {held} held")
    kept = model.made_of(tenant, free, view)
    if not kept <= set(report.kept) <= kept | set(free) or not report.is_complete:
        said.wrong("keeps others", f"{report}, wanted {kept}")


# -- which scopes there are ------------------------------------------------------------


async def listed(
    run: Run,
    tenant: str,
    *,
    worker: int,
    prefix: str | None = None,
    kind: str | None = None,
    max_depth: int | None = None,
    limit: int = 100,
) -> None:
    """Page by page, each scope once, in order, with what it holds."""
    found, cursor = list[ScopeInfo](), None
    while True:
        given: dict[str, Any] = {"kind": kind, "max_depth": max_depth, "limit": limit, "cursor": cursor}
        said = await run.ask(None, "scopes.list", prefix, tenant=tenant, worker=worker, **given)
        page = said.given()
        found += page.scopes
        if (cursor := page.cursor) is None:
            break
        if len(page.scopes) > limit or len(found) > check.MOST:
            said.wrong("does not end", f"{len(page.scopes)} of {limit}")
    told = [(one.scope.text, one.entries, one.documents, one.sessions) for one in found]
    wanted = holding(run, tenant, said.begun, prefix, kind, max_depth)
    if told != wanted:
        raise Wrong("scopes are others", f"of {prefix}, {kind}, {max_depth}: {told}, wanted {wanted}")


def holding(
    run: Run, tenant: str, now: datetime, prefix: str | None, kind: str | None, depth: int | None
) -> list[tuple[str, int, int, int]]:
    """The scopes that hold something, in order, each with its entries, documents and
    sessions.
    """
    entries = Counter(life.scope for life in run.model.of(tenant) if not life.now.expired(now))
    sessions = Counter(f"session:{talk.id}" for talk in run.talks.of(tenant, now))
    counts = [entries, run.model.shelf.counts(tenant, now), sessions]
    root = None if prefix is None else prefix.removesuffix(BELOW) if roots_in([prefix]) else prefix
    shown: dict[str, list[int]] = {}
    for place, counted in enumerate(counts):
        for scope, count in counted.items():
            if run.view is not None and not covers(run.view.scopes, scope):
                continue
            if (root is None or scope.startswith(root)) and kind in (None, kind_of(scope)):
                shown.setdefault(_shown_as(scope, root, depth), [0, 0, 0])[place] += count
    return [(scope, *shown[scope]) for scope in sorted(shown)]  # type: ignore[misc]


def _shown_as(scope: str, root: str | None, depth: int | None) -> str:
    if depth is None or kind_of(scope) != "path":
        return scope
    paths = above(scope)
    return paths[: max(depth, 0 if root is None else len(above(root)))][-1]


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    await listed(run, tenant, worker=worker)
    for subtree in SUBTREES[:2]:
        if run.model.in_scopes(tenant, [subtree]):
            await check.paged(run, Asked(tenant, (subtree,)), limit=7, worker=worker)


# -- what somebody might break ---------------------------------------------------------


@mutant("search")
async def a_search_of_a_subtree_covers_its_root_alone(
    whole: Method, memory: Memory, query: str, *, scope: Any, **kwargs: Any
) -> Any:
    several = scope if isinstance(scope, list) else [scope]
    roots = [one.removesuffix(BELOW) if roots_in([one]) else one for one in several]
    return await whole(memory, query, scope=roots, **kwargs)


@mutant("retrieve")
async def a_subtree_is_every_path_that_begins_alike(
    whole: Method, memory: Memory, scope: Any, **kwargs: Any
) -> Any:
    """As with a prefix of text in place of labels, in any case."""
    found = await whole(memory, scope, **kwargs)
    if isinstance(scope, str) and roots_in([scope]) and not kwargs.get("cursor"):
        begins = scope.removesuffix(f"/{BELOW}").lower()
        more = [one for one in await memory.browse() if one.scope.text.lower().startswith(begins)]
        there = {one.id for one in found}
        found.extend(one for one in more if one.id not in there)
        del found[kwargs["limit"] :]
    return found


@mutant("admin.erase")
async def erasing_a_subtree_erases_its_root_alone(
    whole: Method, admin: Admin, scope: Any, **kwargs: Any
) -> Any:
    there = await whole(admin, scope, dry_run=True)
    if roots_in([scope]) and not kwargs:
        await whole(admin, scope.removesuffix(BELOW))
        return there
    return await whole(admin, scope, **kwargs)


@mutant("LegalHoldRecords.over")
async def a_hold_on_a_path_does_not_hold_what_is_below(
    whole: Method, holds: LegalHoldRecords, records: Any
) -> Any:
    own = {record.key: record.scope for record in records}
    return {
        key: held
        for key, held in (await whole(holds, records)).items()
        if any(kind_of(one.of) != "path" or one.of == own[key] for one in held.holds)
    }


@mutant("entries.delete_many")
async def a_deletion_by_a_filter_takes_the_retired_too(
    whole: Method, entries: Entries, *args: Any, **kwargs: Any
) -> Any:
    return await whole(entries, *args, **(kwargs | {"include_retired": True}))


@mutant("entries.delete_many")
async def a_deletion_by_a_filter_goes_beyond_its_scope(
    whole: Method, entries: Entries, *args: Any, **kwargs: Any
) -> Any:
    return await whole(entries, *args, **(kwargs | {"scope": None}))


@mutant("scopes.list")
async def scopes_of_which_all_is_retired_are_not_listed(
    whole: Method, scopes: ScopeListing, *args: Any, **kwargs: Any
) -> Any:
    page = await whole(scopes, *args, **kwargs)
    there = {one.scope.text for one in await Memory._over(access_of(scopes)).browse(limit=1_000)}
    page.scopes[:] = [one for one in page.scopes if one.documents or one.sessions or one.scope.text in there]
    return page
