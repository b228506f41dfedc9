"""All entries of a tenant, or of some scopes, by their last change, page by page; and
what somebody might break.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory import Memory
from memory.domain.search_results import EntryPage
from tests.model import check
from tests.model.model import Asked, Model, Version
from tests.model.mutants import Method, mutant
from tests.model.operations import Operation, operation, resolved
from tests.model.structured import filter_of

if TYPE_CHECKING:
    from tests.model.generate import Drawn, Generator
    from tests.model.run import Run

NOT_ASKED = ("scopes", "before", "any_tags", "metadata")
"""What retrieving asks and browsing does not, or otherwise."""
FEW, SOME = 2, 7


def _draw(g: Generator, run: Run, tenant: str) -> Drawn | None:
    """Mostly of the whole tenant; up to a moment that mostly is that of a change."""
    from tests.model.generate import CONVERSATIONS

    may, asked = g.chance.random, g.asked(run, tenant)
    scopes = None if may() < 0.6 else g.places(g.chance.choice((1, 2, 4)))
    asked = {name: value for name, value in asked.items() if name not in NOT_ASKED}
    asked |= {"conversation": g.chance.choice(CONVERSATIONS)} if may() < 0.3 else {}
    asked |= {"updated_before": g.moment(run, g.ref(run, tenant))} if may() < 0.25 else {}
    return "browse", {"scopes": scopes, "asked": asked, "limit": g.chance.choice((1, FEW, SOME, 50))}


DRAWS: dict[str, tuple[float, Callable[[Generator, Run, str], Drawn | None]]] = {"browse": (1.5, _draw)}


@operation
async def browse(run: Run, op: Operation) -> None:
    await browsed(
        run,
        op.tenant,
        op.args["scopes"],
        op.args["limit"],
        worker=op.worker,
        **resolved(run, op.args["asked"]),
    )


async def browsed(
    run: Run, tenant: str, scopes: list[str] | None, limit: int, *, worker: int, **given: Any
) -> None:
    """Each entry once, with the newest change first."""
    passing = {"filter": filter_of(given["where"])} if "where" in given else {}
    told = {name: value for name, value in given.items() if name != "where"} | passing
    found, (begun, ended) = await check.in_pages(
        run, "browse", scopes, tenant=tenant, limit=limit, worker=worker, **told
    )
    at_first, certain = shown(run.model, tenant, scopes, begun, **given)
    at_last, still = shown(run.model, tenant, scopes, ended, **given)
    if certain and still and at_first == at_last:
        asked = Asked(tenant, tuple(scopes or ()))
        check.same_entries(
            f"browse({', '.join(sorted(given))})", run, asked, found, at_first[: check.PAGES * limit]
        )


def shown(
    model: Model,
    tenant: str,
    scopes: list[str] | None,
    now: datetime,
    *,
    conversation: str | None = None,
    updated_before: datetime | None = None,
    **given: Any,
) -> tuple[list[Version], bool]:
    """What a browse shows, in order, and whether that is certain."""
    every = sorted({life.scope for life in model.of(tenant)}) if scopes is None else scopes
    within: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    visible, certain = model.matching(Asked(tenant, tuple(every), **within), now)
    found = [
        version
        for version in visible
        if conversation is None or version.fields["conversation_id"] in (None, conversation)
    ]
    found = [
        version
        for version in found
        if updated_before is None or version.fields["updated_at"] < updated_before
    ]
    return sorted(found, key=lambda version: version.fields["updated_at"])[::-1], certain


@check.look
async def whole(run: Run, tenant: str, worker: int) -> None:
    await browsed(run, tenant, None, SOME, worker=worker)


# -- what somebody might break ---------------------------------------------------------


@mutant("browse")
async def browsing_goes_by_when_entries_were_created(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    found = await whole(memory, *args, **kwargs)
    return EntryPage(
        sorted(found, key=lambda entry: (entry.created_at, entry.id), reverse=True),
        found.degraded,
        found.cursor,
    )


@mutant("browse")
async def browsing_in_a_conversation_shows_what_was_said_in_others(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    return await whole(memory, *args, **(kwargs | {"conversation": None}))


@mutant("browse")
async def what_has_moved_on_is_browsed_no_more(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    found = await whole(memory, *args, **kwargs)
    return EntryPage([entry for entry in found if entry.tier != "long"], found.degraded, found.cursor)
