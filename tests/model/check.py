"""Questions to the memory, each answered by the model too; and the look at the whole."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.domain.entry import Entry
from memory.domain.ids import keyed_id
from memory.domain.maintenance_reports import SweepReport
from memory.domain.versions import version_text
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.collections import (
    ARTIFACTS,
    DOCUMENTS,
    ENTRIES,
    ENTRY_VERSIONS,
    MANIFESTS,
    NUMBERS,
    OPERATIONS,
    RELATIONS,
    RESERVATIONS,
    SCRATCHPADS,
)
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.collections import Collection
from memory.ports.full_scan import scan
from memory.ports.query import Everywhere, Query, RowType
from memory.ports.record import Mark, Record, Role, Tombstone
from tests.model.model import TIERS, Asked, Id, Life, Version
from tests.model.not_yet import NOT_YET
from tests.model.said import Said, Wrong, differences, plain
from tests.model.sessions import check as sessions
from tests.model.structured import filter_of
from tests.model.words import OWN, TOPICS, is_own, owned
from tests.model.workers import Here
from tests.support.delivered import undelivered
from tests.support.long_texts import astray

if TYPE_CHECKING:
    from tests.model.run import Run

SEARCHED_AT_ONCE = 25
"""How many entries are looked for by their own words when the whole is looked at;
others the next time.
"""
MOST = 1_000
PAGES = 30
"""How many pages of one list are read at most."""
LEASE = timedelta(milliseconds=2)
"""When that of who died has run out; no rule's moment lies within it."""
ROUNDS, SETTLED_AFTER = 12, 4
"""How many rounds each worker does; and how many sweeps it takes at most until nothing
is left: to end a session, note what was said, delete it, and once more for what was
made of it.
"""
DONE = ("expired", "deleted", "ended", "dropped_versions", "moved")
BESIDE = (SCRATCHPADS, NUMBERS, MANIFESTS, ARTIFACTS, RESERVATIONS, DOCUMENTS)
"""Of what else records are judged, by those who play it."""
OURS = frozenset({"kept", "kept.before", "kept.new", "model.pickle", "operations.jsonl"})
"""What a run keeps beside its stores."""


Look = Callable[["Run", str, int], Awaitable[None]]
LOOKS: list[Look] = []
"""What else is looked at of each tenant, by a worker, when the whole is."""


def look(of: Look) -> Look:
    LOOKS.append(of)
    return of


# -- one entry -------------------------------------------------------------------------


async def get(
    run: Run,
    tenant: str,
    entry_id: str,
    *,
    worker: int = 0,
    as_of: datetime | None = None,
    known_at: datetime | None = None,
) -> None:
    moments: dict[str, Any] = {
        name: moment for name, moment in (("as_of", as_of), ("known_at", known_at)) if moment is not None
    }
    said = await run.ask(None, "get", entry_id, tenant=tenant, worker=worker, **moments)
    life = run.model.life(tenant, entry_id)
    version, certain = (None, True) if life is None else life.seen(said.begun, as_of, known_at)
    if not certain:
        return
    label = f"get({', '.join(sorted(moments))})"
    found = said.given()
    if (found is None) != (version is None):
        raise Wrong(
            f"{label} shows {'nothing' if found is None else 'what must be hidden'}",
            f"{entry_id}, {moments}: {found!r}, model: {version}",
        )
    if life is not None and version is not None and found is not None:
        _same_entry(label, found, version, life)


async def history(run: Run, tenant: str, entry_id: str, *, worker: int = 0) -> None:
    said = await run.ask(None, "entries.history", entry_id, tenant=tenant, worker=worker)
    life = run.model.life(tenant, entry_id)
    if life is None or life.now.expired(said.begun):
        said.refused("NotFound")
        return
    found = said.given()
    if len(found) != len(life.versions):
        raise Wrong(
            "history has another number of versions",
            f"{[e.content for e in found]}, wanted {[v.fields['content'] for v in life.versions]}",
        )
    for entry, version in zip(found, life.versions, strict=True):
        _same_entry("history", entry, version, life)


def _same_entry(label: str, found: Entry, version: Version, life: Life) -> None:
    tier = {"tier": life.tier} if version is life.now else {}
    if told := differences(plain(found), version.fields | tier):
        raise Wrong(f"{label} shows another entry", f"{found.id}: {told}")


# -- many ------------------------------------------------------------------------------


async def retrieve(
    run: Run,
    asked: Asked,
    *,
    order: str = "newest",
    limit: int = MOST,
    worker: int = 0,
    with_session: str | None = None,
) -> None:
    given, named = _arguments(asked), _named(asked)
    if with_session is not None:
        given |= {"include_narrower": True, "session_id": with_session}
        asked = _widened(asked, with_session)
    said = await run.ask(
        None,
        "retrieve",
        named,
        tenant=asked.tenant,
        worker=worker,
        order=order,
        limit=limit,
        **given,
    )
    wanted, certain = run.model.retrieved(asked, said.begun, order)
    found = said.given()
    if found.degraded:
        raise Wrong("retrieve is degraded", str(found.degraded))
    if certain:
        same_entries("retrieve" + _of(asked), run, asked, list(found), wanted[:limit])


async def paged(
    run: Run,
    asked: Asked,
    *,
    order: str = "newest",
    limit: int = 20,
    worker: int = 0,
    with_session: str | None = None,
) -> None:
    """Page by page it is the same list, each entry once."""
    given = _arguments(asked) | (
        {} if with_session is None else {"include_narrower": True, "session_id": with_session}
    )
    whole = asked if with_session is None else _widened(asked, with_session)
    told: dict[str, Any] = {"tenant": asked.tenant, "worker": worker, "order": order}
    found, (begun, ended) = await in_pages(run, "retrieve", _named(asked), limit=limit, **told, **given)
    at_first, certain = run.model.retrieved(whole, begun, order)
    at_last, still = run.model.retrieved(whole, ended, order)
    if certain and still and at_first == at_last:
        same_entries("retrieve in pages" + _of(asked), run, whole, found, at_first[: PAGES * limit])


async def in_pages(
    run: Run, call: str, *args: Any, limit: int, **given: Any
) -> tuple[list[Entry], tuple[datetime, datetime]]:
    """A list page by page, as far as it is read, and when that was begun and ended."""
    found, cursor, begun = list[Entry](), None, run.clock.now
    for _ in range(PAGES):
        said = await run.ask(None, call, *args, limit=limit, cursor=cursor, **given)
        page = said.given()
        found += page
        if len(page) > limit or (page.cursor is not None and not page) or page.degraded:
            raise Wrong(
                "a page is too long, or empty, or lacks something", f"{len(page)} of {limit}, {page.degraded}"
            )
        if (cursor := page.cursor) is None:
            break
    return found, (begun, said.ended)


async def search_word(
    run: Run,
    asked: Asked,
    word: str,
    *,
    worker: int = 0,
    with_session: str | None = None,
    preferred: dict[str, Any] | None = None,
) -> None:
    """A word that few entries hold finds these and, by words, what was said just before
    and after them, whatever is preferred.
    """
    given = _of_search(asked) | _boosts(preferred or {})
    if with_session is not None:
        given |= {"include_narrower": True, "session_id": with_session}
    scopes = list(asked.scopes)
    asked = asked if with_session is None else _widened(asked, with_session)
    said = await run.ask(None, "search", word, scope=scopes, tenant=asked.tenant, worker=worker, **given)
    visible, certain = run.model.matching(asked, said.begun)
    if not certain:
        return
    visible = [version for version in visible if version.fields["searchable"]]
    wanted = {version.fields["id"]: version for version in visible if word in version.words}
    found = [hit.entry for hit in said.given()]
    if said.value.degraded:
        raise Wrong("search is degraded", str(said.value.degraded))
    label = "search by a word" + _of(asked)
    if len(wanted) > 10:
        return
    near = _near(run, asked, said, visible, lambda version: word in version.words)
    found = [entry for entry in found if entry.id in wanted or entry.id not in near]
    _check_found(label, f"{word} in {asked}", found, wanted)
    for entry in found:
        _same_entry(label, entry, wanted[entry.id], run.model.lives[asked.tenant, entry.id])


def _check_found(label: str, asked: str, found: Sequence[Entry], wanted: Mapping[str, Version]) -> None:
    """Just the wanted entries are found, each once."""
    there = {entry.id for entry in found}
    if there == wanted.keys() and len(found) == len(wanted):
        return
    what = (
        "shows what it must not"
        if there - wanted.keys()
        else "shows an entry twice"
        if len(found) > len(wanted)
        else "misses"
    )
    raise Wrong(
        f"{label} {what}",
        f"{asked}: found {[(e.id, e.content) for e in found]}, wanted {list(wanted)}",
    )


def _near(
    run: Run, asked: Asked, said: Said, visible: Sequence[Version], matches: Callable[[Version], bool]
) -> set[str]:
    """Visible entries that were said beside a match. Stores have no index of metadata,
    so a match with other metadata counts as a neighbour too.
    """
    matching = [
        version
        for version in run.model.matching(replace(asked, metadata=(), where=()), said.begun)[0]
        if version.fields["searchable"] and matches(version)
    ]
    return {version.fields["id"] for version in visible if any(_beside(version, one) for one in matching)}


def _beside(one: Version, other: Version) -> bool:
    """Whether they were said in one conversation, at most two numbers apart."""
    one, other = one.unhidden or one, other.unhidden or other
    numbers = (one.fields["number_in_conversation"], other.fields["number_in_conversation"])
    alike = all(one.fields[name] == other.fields[name] is not None for name in ("scope", "conversation_id"))
    return alike and None not in numbers and abs(numbers[0] - numbers[1]) <= 2


async def search_topic(
    run: Run,
    asked: Asked,
    topic: str,
    *,
    worker: int = 0,
    with_session: str | None = None,
    preferred: dict[str, Any] | None = None,
) -> None:
    """What a topic means is found by a word that no text holds, and nothing else but
    what was said beside it, whatever is preferred.
    """
    given = _of_search(asked) | _boosts(preferred or {})
    said = await run.ask(
        None,
        "search",
        TOPICS[topic],
        scope=list(asked.scopes),
        tenant=asked.tenant,
        worker=worker,
        limit=100,
        **given,
    )
    visible, certain = run.model.matching(asked, said.begun)

    def is_about(version: Version) -> bool:
        return topic in f"{version.fields['title'] or ''} {version.fields['content']}".split()

    visible = [version for version in visible if version.fields["searchable"]]
    wanted = {version.fields["id"]: version for version in visible if is_about(version)}
    found = [hit.entry for hit in said.given()]
    if not certain or len(wanted) > 100:
        return
    near = _near(run, asked, said, visible, is_about)
    found = [entry for entry in found if entry.id in wanted or entry.id not in near]
    if (since := run.unseen_since(worker, said.begun)) is not None:
        there = {entry.id for entry in found}
        wanted = {i: version for i, version in wanted.items() if i in there or version.stored[1] < since}
    _check_found("search by meaning" + _of(asked), f"{topic} in {asked}", found, wanted)


def same_entries(
    label: str, run: Run, asked: Asked, found: Sequence[Entry], wanted: Sequence[Version]
) -> None:
    ids = [entry.id for entry in found]
    if ids != [version.fields["id"] for version in wanted]:
        there = {version.fields["id"] for version in wanted}
        more, less = set(ids) - there, there - set(ids)
        what = (
            "shows an entry twice"
            if len(set(ids)) < len(ids)
            else "shows what it must not"
            if more
            else "misses"
            if less
            else "is in another order"
        )
        raise Wrong(
            f"{label} {what}",
            f"{asked}: more {more}, less {less}; found {ids}, wanted {[v.fields['id'] for v in wanted]}",
        )
    for entry, version in zip(found, wanted, strict=True):
        _same_entry(label, entry, version, run.model.lives[asked.tenant, entry.id])


def _named(asked: Asked) -> str | list[str]:
    """The scopes as they are asked for: one alone, or several in a list."""
    return asked.scopes[0] if len(asked.scopes) == 1 else list(asked.scopes)


def _arguments(asked: Asked) -> dict[str, Any]:
    given: dict[str, Any] = {
        "tags": list(asked.tags),
        "any_tags": list(asked.any_tags),
        "types": list(asked.types),
        "metadata": dict(asked.metadata),
    }
    given |= {"since": asked.since, "before": asked.before, "as_of": asked.as_of, "known_at": asked.known_at}
    given |= {"filter": filter_of(asked.where)}
    return {name: value for name, value in given.items() if value}


def _of_search(asked: Asked) -> dict[str, Any]:
    """Return the same for a search, where tags and types stand in `filter`."""
    given = _arguments(asked)
    filtered = {
        name: given.pop(name) for name in ("tags", "any_tags", "types", "metadata", "before") if name in given
    }
    filtered |= given.pop("filter", {})
    return given | ({"filter": filtered} if filtered else {})


def _boosts(preferred: dict[str, Any]) -> dict[str, Any]:
    """Return what a search prefers as its arguments: tags and types stand in `boost`."""
    boost = {name: preferred[name] for name in ("tags", "types") if name in preferred}
    others = {name: value for name, value in preferred.items() if name not in boost}
    return others | ({"boost": boost} if boost else {})


def _widened(asked: Asked, session: str) -> Asked:
    """A user's entries come with those of the session named; nobody else's do."""
    users = any(scope.startswith("user:") for scope in asked.scopes)
    scopes = (*asked.scopes, f"session:{session}") if users else asked.scopes
    return replace(asked, scopes=scopes)


def _of(asked: Asked) -> str:
    moments = [name for name in ("as_of", "known_at") if getattr(asked, name) is not None]
    return f"({', '.join(moments)})" if moments else ""


async def relations(run: Run, tenant: str, limit: int = 200, *, worker: int = 0, **given: Any) -> None:
    said = await run.ask(None, "relations.find", tenant=tenant, worker=worker, limit=limit, **given)
    wanted = run.model.related_to(tenant, **given)
    found = [(link.id, link.source_id, link.target_id, link.label, link.created_at) for link in said.given()]
    if found != [
        (link.id, link.source_id, link.target_id, link.label, link.created_at) for link in wanted[:limit]
    ]:
        raise Wrong(
            "relations differ",
            f"{given}, limit {limit}: {len(found)} {found}, wanted {len(wanted)}: {wanted[:limit]}",
        )


def imported(exported: Sequence[Entry], found: Sequence[Entry], tenant: str) -> None:
    """What was imported says what was exported; its ids are new, and what named an old
    one names the new one.
    """
    new = {entry.id: keyed_id(tenant, entry.scope.text, entry.key or entry.id) for entry in exported}
    if {entry.id for entry in found} != set(new.values()):
        raise Wrong("an import shows others", f"{len(found)} of {len(new)}")
    by_id = {entry.id: plain(entry) for entry in found}
    for entry in exported:
        wanted = plain(entry)
        wanted["promoted_from_id"] = new.get(entry.promoted_from_id or "", entry.promoted_from_id)
        if entry.compacted_from_ids is not None:
            wanted["compacted_from_ids"] = [new.get(source, source) for source in entry.compacted_from_ids]
        if wanted["contributors"] is not None:
            wanted["contributors"] = [
                c | {"entry_id": new.get(c["entry_id"], c["entry_id"])} for c in wanted["contributors"]
            ]
        for name in ("id", "tenant", "updated_at", "version", "tier"):
            del wanted[name]
        if told := differences(by_id[new[entry.id]], wanted):
            raise Wrong("an import differs", f"{entry.id}: {told}")


# -- the whole -------------------------------------------------------------------------


async def swept(run: Run, worker: int = 0) -> None:
    """The plan names what the sweep then does, and the sweep does all that the rules
    say, and no more.
    """
    await sessions.touched(run, worker=worker)
    for number in range(len(run.workers)):
        await run.ask(
            None, "_access.engine.deliveries.flush", worker=number
        )  # a plan asks about what has been delivered, a sweep delivers first
    run.model.planned(await run.ask(None, "admin.plan", worker=worker))
    said = await run.ask(None, "admin.sweep", worker=worker)
    report, wanted = said.given(), await carried_out(run, said)
    told = {name: getattr(report, name) for name in ("ran", "more", "pending_steps", *DONE)}
    told |= {"waiting": len(report.waiting), "stays": len(report.stays)}
    held = range(wanted.pop("held"), wanted["held_perhaps"] + 1)
    del wanted["held_perhaps"]
    if told != {"ran": True, "more": False, "waiting": 0} | wanted or report.held not in held:
        said.wrong("does otherwise", f"{report}, wanted {wanted} and {held} held")


async def in_rounds(run: Run, workers: Sequence[int], *, dies: int | None = None) -> None:
    """Workers take turns at rounds that end after the first thing they do, each going
    on where its last one ended, until none has more to do or there were many; then at
    sweeps, until nothing is left: in all they do what the rules say, each thing once.

    `dies`: after so many turns one dies over it, and others take over, once its lease
    has run out; what that one did nobody tells.
    """
    await sessions.touched(run)
    begun, done, more = run.clock.now, Counter[str](), dict.fromkeys(workers, True)
    if dies is not None:
        await _dies(run, workers[-1], dies)
    for _ in range(ROUNDS):
        for number in [number for number in workers if more[number]]:
            said = await run.ask(None, "maintain", worker=number, budget="1us")
            more[number] = _counted_in(done, said).more
    for number in [number for number in workers for _ in range(SETTLED_AFTER)]:
        said = await run.ask(None, "admin.sweep", worker=number)
        _counted_in(done, said)
    wanted, all_of_it = Counter[str](), replace(said, begun=begun)
    for _ in range(SETTLED_AFTER):
        one = await carried_out(run, all_of_it, more=True)
        wanted.update({name: one[name] for name in DONE})
    if dies is None and +done != +wanted:
        said.wrong("of many rounds does otherwise", f"{done}, wanted {wanted}")
    await swept(run, workers[0])


def _counted_in(done: Counter[str], said: Said) -> SweepReport:
    report: SweepReport = said.given()
    if not report.ran or report.waiting:
        said.wrong("is kept from it", repr(report))
    done.update({name: getattr(report, name) for name in DONE})
    return report


async def _dies(run: Run, number: int, turns: int) -> None:
    if not isinstance(run.workers[number], Here):
        await run.forgets(number)
    run.clock.ticking = True
    await run.workers[number].dies("admin.sweep", turns)
    run.clock.now += LEASE


async def carried_out(run: Run, said: Said, *, more: bool = False) -> dict[str, int]:
    """What a sweep has to do, done in the model, in the order of its jobs: what it is
    to report. `more`: others have been since.
    """
    model, owing = run.model, sessions.owing(run, said)
    expired, held = model.expired(said)
    await sessions.owed_ends(run, said)
    deleted, held_by_rule = model.retire(said)
    of_sessions = await sessions.retired(run, said, owing)
    dropped, held_versions = model.let_go(said)
    moved, failing = model.move_on(said)
    moved += await _crowded_beside(run, said, await sessions.noted(run, said, owing, more=more))
    await sessions.ended_at_once(run, said)
    held += held_by_rule + held_versions + of_sessions.held
    return {
        "pending_steps": sum(len(owed) for _, owed in owing),
        "stays": failing,
        "expired": expired,
        "deleted": deleted + of_sessions.deleted,
        "ended": of_sessions.ended,
        "dropped_versions": dropped,
        "moved": moved,
        "held": held,
        "held_perhaps": held + of_sessions.perhaps_held,
    }


async def _crowded_beside(run: Run, said: Said, noted: Sequence[Id]) -> int:
    """What is noted while a sweep is under way may crowd others of its session out in
    it, or in the next one: how many it did.
    """
    places = {(tenant, run.model.lives[tenant, entry_id].scope) for tenant, entry_id in noted}
    taken = run.model.taken(said.begun)[0] if any(scope.startswith("session:") for _, scope in places) else {}
    crowded = [
        key
        for key, (_, _, rule) in taken.items()
        if rule == "crowded" and (key[0], run.model.lives[key].scope) in places
    ]
    moved = 0
    for tenant, entry_id in crowded:
        copies = (await run.ask(None, "admin.where", entry_id, tenant=tenant)).given()
        if any((copy.role, copy.tier) == ("home", "mid") for copy in copies):
            run.model.lives[tenant, entry_id].tier, moved = "mid", moved + 1
    return moved


async def holds(run: Run, tenant: str) -> None:
    said = await run.ask(None, "admin.legal_holds.list", tenant=tenant)
    found = sorted((hold.name, hold.over, hold.of) for hold in said.given())
    wanted = sorted(
        (name, *one) for (owner, name), held in run.model.holds.items() if owner == tenant for one in held
    )
    if found != wanted:
        raise Wrong("holds are others", f"{found}, wanted {wanted}")


async def delivered(run: Run) -> None:
    """No store is away in a run of the model test: what was written is delivered without a sweep."""
    for worker in range(len(run.workers)):
        (await run.ask(None, "admin.flush", worker=worker)).given()
    if wrong := await undelivered(engine_of(run.memory)):
        raise Wrong("something is not delivered", "; ".join(wrong[:5]))


async def whole(run: Run) -> None:
    """Everything that can be asked, at one moment, and everything that is stored."""
    await delivered(run)
    await swept(run)
    tenants = sorted(
        {tenant for tenant, *_ in (*run.model.lives, *run.model.graves, *run.talks.all, *run.model.shelf.all)}
        | {"acme"}
    )
    number = run.begun[-1][0]
    chosen = random.Random(number)  # noqa: S311 - the same for the same run
    for tenant in tenants:
        await _tenant(run, tenant, number % len(run.workers), chosen)
        for of in LOOKS:
            await of(run, tenant, number % len(run.workers))
    await sessions.whole(run, tenants)
    await stored(run)
    await long_texts(run)
    await audited(run)


async def _tenant(run: Run, tenant: str, worker: int, chosen: random.Random) -> None:
    lives = list(run.model.of(tenant))
    for life in lives:
        await get(run, tenant, life.id, worker=worker)
        if len(life.versions) > 1 or life.now.fields["valid_to"] is not None:
            await history(run, tenant, life.id, worker=worker)
    moments = [run.begun[chosen.randrange(len(run.begun))][1] for _ in range(2)]
    for scope in sorted({life.scope for life in lives}):
        for order in ("newest", "oldest"):
            await retrieve(run, Asked(tenant, (scope,)), order=order, worker=worker)
        await retrieve(run, Asked(tenant, (scope,)), limit=chosen.randint(1, 5), worker=worker)
        await paged(run, Asked(tenant, (scope,)), limit=chosen.randint(1, 9), worker=worker)
        for moment in moments:
            await retrieve(run, Asked(tenant, (scope,), known_at=moment), worker=worker)
            await retrieve(run, Asked(tenant, (scope,), as_of=moment), worker=worker)
    await _owned(run, tenant, worker)
    await relations(run, tenant, MOST, worker=worker)
    await _counted(run, tenant)
    scopes = tuple(sorted({life.scope for life in lives}))
    for life in chosen.sample(lives, min(SEARCHED_AT_ONCE, len(lives))):
        version = chosen.choice(life.versions)
        for word in [word for word in version.words if is_own(word)][:1]:
            await search_word(run, Asked(tenant, scopes), word, worker=worker)
            later = timedelta(seconds=0.4 * ("own moment" in NOT_YET))
            await search_word(
                run, Asked(tenant, (life.scope,), known_at=version.stored[1] + later), word, worker=worker
            )
    graves = [(key, grave) for key, grave in run.model.graves.items() if key[0] == tenant]
    for (_, entry_id), grave in chosen.sample(graves, min(SEARCHED_AT_ONCE, len(graves))):
        await get(run, tenant, entry_id, worker=worker)
        await history(run, tenant, entry_id, worker=worker)
        for word in [word for word in grave.words if is_own(word)][:1]:
            for known_at in (None, grave.fallen, grave.fallen - timedelta(days=1)):
                if scopes:
                    await search_word(run, Asked(tenant, scopes, known_at=known_at), word, worker=worker)


async def _owned(run: Run, tenant: str, worker: int) -> None:
    for retired in (False, True):
        said = await run.ask(None, "entries.iterate", tenant=tenant, worker=worker, include_retired=retired)
        found = [entry.id for entry in said.given()]
        now = said.begun
        wanted = {
            life.id
            for life in run.model.of(tenant)
            if not life.now.expired(now) and (retired or life.now.before_end(now))
        }
        if set(found) != wanted or len(found) != len(wanted):
            raise Wrong(
                "entries are others",
                f"more {set(found) - wanted}, less {wanted - set(found)}, {len(found)} in all",
            )
    said = await run.ask(None, "relations.all", tenant=tenant, worker=worker)
    if {link.id for link in said.given()} != run.model.links.get(tenant, {}).keys():
        raise Wrong(
            "every relation is another", f"{len(said.value)} of {len(run.model.links.get(tenant, {}))}"
        )


async def _counted(run: Run, tenant: str) -> None:
    stats = (await run.ask(None, "admin.stats", tenant=tenant)).given()
    lives = list(run.model.of(tenant))
    wanted = {tier: sum(life.tier == tier for life in lives) for tier in TIERS}
    if (told := {tier.tier: tier.entries for tier in stats.tiers}) != wanted:
        raise Wrong("stats count otherwise", f"{told}, wanted {wanted}")
    if stats.documents != (documents := sum(tenant == owner for owner, _, _ in run.model.shelf.all)):
        raise Wrong("stats count other documents", f"{stats.documents}, wanted {documents}")
    types: dict[str, int] = {}
    for life in lives:
        types[life.now.fields["type"]] = types.get(life.now.fields["type"], 0) + 1
    if stats.by_type != types:
        raise Wrong("stats count types otherwise", f"{stats.by_type}, wanted {types}")
    if stats.pending_steps != (owed := sum(len(talk.owed) for talk in run.talks.all.values())):
        raise Wrong("something else is owed after a sweep", f"{stats.pending_steps}, wanted {owed}")
    evicted = Counter(stats.evicted)
    for number in range(1, len(run.workers)):
        evicted += Counter((await run.ask(None, "admin.stats", tenant=tenant, worker=number)).given().evicted)
    wanted_gone = Counter(
        {quota: count for (owner, quota), count in run.model.evicted.items() if owner == tenant and count}
    )
    if evicted != wanted_gone:
        raise Wrong("evictions are counted otherwise", f"{evicted}, wanted {wanted_gone}")
    await holds(run, tenant)


# -- what is stored --------------------------------------------------------------------


async def stored(run: Run) -> None:
    """Every store's every record: homes, kept versions and relations are those of the
    model and no others; no words of the deleted are left.
    """
    gone = _gone_words(run)
    said: dict[Collection, list[Record]] = {collection: [] for collection in (*sessions.COLLECTIONS, *BESIDE)}
    homes: list[tuple[str, str]] = []
    kept: list[tuple[str, str, str]] = []
    links: list[str] = []
    topology = engine_of(run.memory).topology
    for store in topology.leaves:
        for collection in KINDS.collections:
            async for page in scan(store, Query(collection, Everywhere(), roles=frozenset(Role))):
                for row in page.records:
                    if not isinstance(row, Record):
                        continue
                    if words := gone & _words_of(row):
                        raise Wrong("words of a deleted entry are stored", f"{words} in {store.name}: {row}")
                    if row.role is Role.HOME and collection is ENTRIES:
                        homes.append((row.key.tenant, row.key.id))
                    elif collection is ENTRY_VERSIONS and store is not topology.cache:
                        kept.append((row.key.tenant, str(row.fields["entry_id"]), version_text(row.version)))
                    elif collection is RELATIONS and store is not topology.cache:
                        links.append(row.key.id)
                    elif collection in said:
                        said[collection].append(row)
                if page.corrupt:
                    raise Wrong("a record is corrupt", f"{store.name}: {page.corrupt}")
    lives = run.model.lives
    sessions.stored(run, said)
    run.pads.stored(said[SCRATCHPADS])
    run.numbers.stored(said, run)
    run.files.stored(said)
    run.model.shelf.stored(said[DOCUMENTS])
    _as_many("homes", homes, list(lives))
    _as_many(
        "kept versions",
        kept,
        [(t, i, v.fields["version"]) for (t, i), life in lives.items() for v in life.versions[:-1]],
    )
    _as_many("relations", links, [link for of_tenant in run.model.links.values() for link in of_tenant])


def _gone_words(run: Run) -> set[str]:
    """Words that were written once and are to be nowhere now."""
    gone = {word for grave in run.model.graves.values() for word in grave.words if is_own(word)}
    living = (
        run.model.living_words()
        | run.talks.living_words()
        | run.pads.living_words()
        | run.files.living_words()
        | run.model.shelf.living_words()
    )
    gone |= run.talks.gone_words() | run.pads.gone_words() | run.files.gone_words()
    return (gone | run.model.shelf.gone_words()) - living


def _words_of(row: Record) -> set[str]:
    texts = [
        str(value)
        for value in (
            *row.texts.values(),
            *row.body.values(),
            *row.fields.values(),
            *(o.data for o in row.owed),
        )
    ]
    return {word for text in texts for word in owned(text)}


def _as_many(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    if sorted(found) != sorted(wanted):
        raise Wrong(
            f"stored {what} are others",
            f"more {set(found) - set(wanted)}, less {set(wanted) - set(found)}, {len(found)} of"
            f" {len(wanted)}",
        )


async def long_texts(run: Run) -> None:
    """The parts of long entries that are found by meaning are those of what they say
    now.
    """
    if wrong := await astray(engine_of(run.memory)):
        raise Wrong("passages of long entries are others", str(wrong))


async def graves_are_gone(run: Run) -> None:
    """After months and sweeps no mark, tombstone or operation is left."""
    for store in engine_of(run.memory).topology.leaves:
        for collection in KINDS.collections:
            graves = Query(
                collection,
                Everywhere(),
                roles=frozenset(Role),
                types=frozenset({RowType.MARK, RowType.TOMBSTONE}),
            )
            if left := [
                row for row in (await store.query(graves)).records if isinstance(row, Mark | Tombstone)
            ]:
                raise Wrong("graves are left after months", f"{store.name}, {collection.name}: {left[:3]}")
        if (await store.query(Query(OPERATIONS, Everywhere()))).records:
            raise Wrong("operations are left after months", store.name)

        if idle := await store.idle_partitions():
            raise Wrong("something is kept of partitions that hold nothing", f"{store.name}: {idle[:3]}")


async def words_are_gone_from_files(run: Run) -> None:
    """Once room was given back no file holds a word of the deleted. That this can be
    seen is told by the words of the living.
    """
    if not run.topology.readable:
        return
    for store in engine_of(run.memory).topology.leaves:
        await store.vacuum()
    living = {word for word in run.model.living_words() | run.talks.living_words() if is_own(word)}
    gone = _gone_words(run) - run.talks.replaced_words() - run.model.shelf.replaced_words()
    files = [
        file
        for file in run.folder.rglob("*")
        if file.is_file() and not OURS & set(file.relative_to(run.folder).parts)
    ]
    written = {word.decode() for file in files for word in OWN.findall(await _bytes_of(file))}
    if left := gone & written:
        raise Wrong("files hold words of deleted entries", f"{sorted(left)[:5]}")
    if living and not living & written:
        raise Wrong("files do not show what they hold", f"none of {len(living)} words")


async def _bytes_of(file: Path) -> bytes:
    """Read by another process: one that closes a file gives up every lock it has on it,
    SQLite's too.
    """
    reading = await asyncio.create_subprocess_exec("cat", str(file), stdout=asyncio.subprocess.PIPE)
    content, _ = await reading.communicate()
    assert reading.returncode == 0
    return content


async def audited(run: Run) -> None:
    """What stores derive from their records is what it must be, and each can be read."""
    for store in engine_of(run.memory).topology.leaves:
        found = await store.audit()
        if found.problems or found.damaged:
            raise Wrong("an audit finds problems", f"{store.name}: {[*found.problems, *found.damaged][:3]}")
