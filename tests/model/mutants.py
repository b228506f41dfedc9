"""Faults put into the facade, each of which the judge must see: what somebody might
break one day.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any
from unittest.mock import patch

from memory import Memory, Session
from memory.domain.search_results import EntryPage, SearchResult
from memory.facade.memory import NOUNS
from memory.facade.resources.admin import Admin
from memory.facade.resources.entries import Entries
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.resources.relations import Relations
from memory.facade.resources.sessions import Sessions
from memory.facade.runtime.access import access_of
from memory.orchestrator.entries.derivation import Derivation
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.erasure.legal_holds import LegalHoldRecords
from memory.orchestrator.maintenance.sweeps import Maintenance
from memory.orchestrator.tiering.promotion import Promotion
from memory.orchestrator.tiering.quotas import Quotas
from memory.orchestrator.tiering.retention import Retention

BENEATH = (Derivation, Erasure, LegalHoldRecords, Maintenance, Promotion, Quotas, Retention)
OWNERS: dict[str, Any] = {"": Memory, **NOUNS, "admin.legal_holds": LegalHolds, "session": Session} | {
    owner.__name__: owner for owner in BENEATH
}
Method = Callable[..., Awaitable[Any]]
Fault = Callable[[Method], Method]

MUTANTS: dict[str, tuple[str, Fault]] = {}
"""By what is broken: the method, and what becomes of it."""


def mutant(method: str) -> Callable[[Callable[..., Awaitable[Any]]], None]:
    """A fault of a method of `Memory`, of one of its nouns or of what is beneath: it is
    called with the method as it was and all that the method is called with.
    """

    def declare(broken: Callable[..., Awaitable[Any]]) -> None:
        def fault(whole: Method) -> Method:
            @wraps(whole)
            async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
                return await broken(whole, self, *args, **kwargs)

            return call

        MUTANTS[broken.__name__.replace("_", " ")] = (method, fault)

    return declare


@contextmanager
def applied(name: str) -> Iterator[None]:
    path, fault = MUTANTS[name]
    noun, _, method = path.rpartition(".")
    owner = OWNERS[noun]
    with patch.object(owner, method, fault(getattr(owner, method))):
        yield


@mutant("search")
async def a_search_forgets_its_last_hit(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    found = await whole(memory, *args, **kwargs)
    return SearchResult(found[:-1]) if len(found) > 1 else found


@mutant("search")
async def a_search_knows_no_tags(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    return await whole(
        memory, *args, **(kwargs | {"filter": dict(kwargs.get("filter", {})) | {"tags": None}})
    )


@mutant("search")
async def a_search_leaves_out_what_has_none_of_the_tags_it_prefers(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    found, preferred = await whole(memory, *args, **kwargs), set(kwargs.get("boost", {}).get("tags", ()))
    return SearchResult(
        [hit for hit in found if not preferred or preferred & set(hit.entry.tags)], found.degraded
    )


@mutant("admin.erase")
async def erasing_a_scope_leaves_one_entry(whole: Method, admin: Admin, scope: Any) -> Any:
    memory = Memory._over(access_of(admin))
    there = await memory.retrieve(scope, limit=1)
    count = await whole(admin, scope)
    if len(there) == 1 and count > 2:
        await memory.write(there[0].content, scope=scope)
    return count


@mutant("get")
async def what_is_known_is_off_by_a_microsecond(
    whole: Method, memory: Memory, entry_id: str, **moments: Any
) -> Any:
    known_at = moments.get("known_at")
    return await whole(
        memory,
        entry_id,
        **(moments | ({"known_at": known_at - timedelta(microseconds=1)} if known_at else {})),
    )


@mutant("retrieve")
async def retrieving_then_shows_what_is_known_now(
    whole: Method, memory: Memory, scope: Any, **kwargs: Any
) -> Any:
    return await whole(memory, scope, **(kwargs | {"known_at": None}))


@mutant("write")
async def an_expiry_is_acknowledged_and_not_kept(
    whole: Method, memory: Memory, content: str = "", **kwargs: Any
) -> Any:
    entry = await whole(memory, content, **(kwargs | {"expires_at": None}))
    return entry.model_copy(update={"expires_at": kwargs.get("expires_at")})


@mutant("retrieve")
async def an_entry_that_expired_is_still_retrieved(
    whole: Method, memory: Memory, scope: Any, **kwargs: Any
) -> Any:
    found = await whole(memory, scope, **kwargs)
    ending = [entry for entry in found if entry.expires_at is not None]
    gone = [
        entry
        for entry in _ENDING.get(memory.tenant, [])
        if entry.scope.text == scope and entry.id not in {one.id for one in found}
    ]
    _ENDING[memory.tenant] = ending
    return EntryPage([*found, *gone][: kwargs.get("limit", 20)], found.degraded)


_ENDING: dict[str, list[Any]] = {}


@mutant("retrieve")
async def an_entry_comes_twice_after_a_move(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    found = await whole(memory, *args, **kwargs)
    return EntryPage([entry for entry in found for _ in range(1 + (entry.tier == "long"))], found.degraded)


@mutant("update")
async def an_update_of_tags_loses_the_rest(
    whole: Method, memory: Memory, entry_id: str, **changes: Any
) -> Any:
    return await whole(memory, entry_id, **({"tags": changes["tags"]} if "tags" in changes else changes))


@mutant("update")
async def an_edit_is_acknowledged_and_lost(
    whole: Method, memory: Memory, entry_id: str, **changes: Any
) -> Any:
    before = await memory.get(entry_id)
    after = await whole(memory, entry_id, **changes)
    if before is not None and "content" in changes and int(after.version, 16) % 3 == 0:
        await whole(memory, entry_id, content=before.content)
    return after


@mutant("relations.find")
async def relations_of_retired_entries_are_hidden(whole: Method, relations: Relations, **kwargs: Any) -> Any:
    memory = Memory._over(access_of(relations))
    return [link for link in await whole(relations, **kwargs) if await memory.get(link.target_id) is not None]


@mutant("delete")
async def a_deletion_is_only_the_end_of_validity(whole: Method, memory: Memory, entry_id: str) -> Any:
    return await memory.entries.invalidate(entry_id)


@mutant("compact")
async def a_summary_leaves_its_sources(whole: Method, memory: Memory, *args: Any, **kwargs: Any) -> Any:
    return await whole(memory, *args, **(kwargs | {"delete_sources": False}))


@mutant("promote")
async def a_promotion_takes_the_original_along(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    return await whole(memory, *args, **(kwargs | {"delete_original": True}))


@mutant("entries.history")
async def a_history_leaves_out_the_first_version(whole: Method, entries: Entries, entry_id: str) -> Any:
    versions = await whole(entries, entry_id)
    return versions[1:] if len(versions) > 2 else versions


@mutant("sessions.end")
async def the_end_of_a_session_moves_nothing_yet_says_so(
    whole: Method, sessions: Sessions, session_id: str
) -> Any:
    from memory.domain.promotion_report import PromotionReport

    return PromotionReport()


@mutant("write_many")
async def the_last_of_many_is_not_stored(whole: Method, memory: Memory, drafts: Any) -> Any:
    entries = await whole(memory, drafts)
    if len(entries) > 4:
        await memory.delete(entries[-1].id)
    return entries


@mutant("get")
async def another_tenants_entry_is_shown(whole: Method, memory: Memory, entry_id: str, **moments: Any) -> Any:
    found = await whole(memory, entry_id, **moments)
    return found or await whole(memory.for_tenant("globex"), entry_id, **moments)


@mutant("admin.sweep")
async def a_sweep_forgets_nothing(whole: Method, admin: Admin) -> Any:
    from memory.domain.maintenance_reports import SweepReport

    return SweepReport()


@mutant("retrieve")
async def a_page_leaves_out_what_follows_at_once(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    found = await whole(memory, *args, **kwargs)
    return (
        EntryPage(found[1:], found.degraded, found.cursor)
        if kwargs.get("cursor") and len(found) > 1
        else found
    )


@mutant("retrieve")
async def any_of_the_tags_is_taken_for_all_of_them(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    tags = [*kwargs.pop("any_tags", ()), *kwargs.get("tags", ())]
    return await whole(memory, *args, **(kwargs | {"tags": tags}))


@mutant("search")
async def what_was_created_at_the_very_end_of_a_time_is_found(
    whole: Method, memory: Memory, *args: Any, **kwargs: Any
) -> Any:
    filtered = dict(kwargs.get("filter", {}))
    later = {"before": filtered["before"] + timedelta(microseconds=1)} if filtered.get("before") else {}
    return await whole(memory, *args, **(kwargs | {"filter": filtered | later}))


@mutant("Derivation.promote")
async def a_copy_does_not_know_who_said_it(
    whole: Method, derivation: Derivation, *args: Any, **kwargs: Any
) -> Any:
    made = await whole(derivation, *args, **kwargs)
    return made.model_copy(update={"speaker": None})
