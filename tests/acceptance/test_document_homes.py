"""Documents whose home is the short tier: `documents.short` names their scopes. All
calls answer as if one store had all documents, and what a changed setting leaves behind
is named and moved.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from memory import (
    ABSENT,
    DocumentDelete,
    DocumentPut,
    Filter,
    InvalidInput,
    LegalHoldActive,
    Memory,
    MemoryConfig,
    Quota,
    QuotaExceeded,
    VersionConflict,
)
from memory.domain.errors import ConfigError, Forbidden
from memory.domain.scope import Scope
from memory.domain.store_reports import Examination
from memory.facade.reports import examine
from memory.facade.runtime.build import build_engine
from memory.orchestrator.storage.collections import DOCUMENT_CHUNKS, DOCUMENTS
from memory.ports.contract.cells import cells
from memory.ports.query import Everywhere, Query, RowType
from memory.server.identity.key_store import KeyStore
from memory.server.identity.reserved import RESERVED_TENANT
from tests.acceptance.conftest import DEFAULT, NIGHTLY, asked, placed
from tests.acceptance.support import DAY, HOUR, USER, Clock, stores_of, watching
from tests.support.backends import marks_of, run_here
from tests.support.placings import PLACINGS

CACHE, BESIDE, ABOVE = Scope.path("app", "cache", "a"), Scope.path("app", "cached"), Scope.path("app")
SESSION, ORG = Scope.session("s1"), Scope.org("acme")
SHORT = ("path:app/cache/", "session", "org")
IN_SHORT, IN_MID = (CACHE, Scope.path("app", "cache"), SESSION, ORG), (BESIDE, ABOVE, USER)
LARGE = b"large" * 100_000
"""Stored in chunks."""


def two_files(folder: Path) -> dict[str, Any]:
    mid = f"sqlite:///{folder / 'mid.db'}"
    return {"tiers": {"short": f"sqlite:///{folder / 'one.db'}", "mid": mid, "long": mid}}


TWO_FILES = pytest.param(two_files, id="two-files", marks=pytest.mark.backend("sqlite"))
SERVERS = [
    pytest.param(placing.config, id=placing.name, marks=[*marks_of(*placing.backends), NIGHTLY])
    for placing in PLACINGS[:1]
    if run_here(*placing.backends)
]


@pytest.fixture(params=[TWO_FILES if one is DEFAULT else one for one in asked([TWO_FILES, *SERVERS])])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    with placed(request.param, tmp_path) as tiers:
        yield tiers | {"documents": {"short": list(SHORT)}}


async def stored(memory: Memory, tier: str, types: Sequence[RowType] = (RowType.RECORD,)) -> list[int]:
    """How many documents and chunks the store of a tier has."""
    store = stores_of(memory)[("short", "mid").index(tier)]
    queries = [Query(c, Everywhere(), types=frozenset(types)) for c in (DOCUMENTS, DOCUMENT_CHUNKS)]
    return [(await store.count(query)).records for query in queries]


async def keys_of(memory: Memory, scope: Any, **given: Any) -> list[tuple[str, str]]:
    """Scopes and keys of all pages, in their order."""
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        page = await memory.documents.list(scope, cursor=cursor, **given)
        found += [(one.scope, one.key) for one in page.documents]
        if (cursor := page.cursor) is None:
            return found


async def doctor(config: dict[str, Any], *, audited: bool = False, repair: bool = False) -> Examination:
    engine = build_engine(MemoryConfig.load(config), embedder=None, clock=Clock())
    return await examine(engine, audited=audited, repair=repair)


async def test_each_scope_has_one_home_and_all_calls_find_it(memory: Memory) -> None:
    for number, scope in enumerate((*IN_SHORT, *IN_MID)):
        await memory.documents.put(scope, "small", {"of": scope.text})
        await memory.documents.put(scope, "large", LARGE)
        there = await stored(memory, "short" if scope in IN_SHORT else "mid")
        assert there[0] == 2 * (number + 1 if scope in IN_SHORT else number + 1 - len(IN_SHORT))
        found = await memory.documents.get_many(scope, ["small", "large", "none"])
        assert [None if one is None else one.value for one in found] == [{"of": scope.text}, LARGE, None]
        assert await keys_of(memory, scope) == [(scope.text, "large"), (scope.text, "small")]
        report = memory.admin.route(scope, collection="documents")
        assert report.tier == ("short" if scope in IN_SHORT else "mid")
        assert ("documents.short" in " ".join(report.because)) is (scope in IN_SHORT)
    counted = await memory.admin.stats()
    assert counted.documents == 14
    assert counted.document_bytes > 7 * len(LARGE)
    for scope in (*IN_SHORT, *IN_MID):
        assert await memory.documents.delete(scope, "small")
        assert await memory.documents.delete_many(scope) == 1
    assert await stored(memory, "short") == await stored(memory, "mid") == [0, 0]


async def test_a_list_over_both_homes_is_one_list(memory: Memory) -> None:
    drawn = random.Random(8)  # noqa: S311 - the same puts each time
    scopes = [CACHE, BESIDE, ABOVE, Scope.path("app", "cache"), Scope.path("app", "z")]
    keys = [f"{drawn.choice('abc')}/{number:03}" for number in range(60)]
    puts = [
        DocumentPut(drawn.choice(scopes), key, {"n": n}, metadata={"odd": n % 2})
        for n, key in enumerate(keys)
    ]
    await memory.documents.put_many(puts)
    by_key = sorted((key, scope) for scope, key in [(str(put.scope), put.key) for put in puts])
    whole = [(scope, key) for key, scope in by_key]
    tree = ABOVE.subtree()
    for limit in (1, 7, 100):
        assert await keys_of(memory, tree, limit=limit) == whole
        assert await keys_of(memory, tree, limit=limit, reverse=True) == whole[::-1]
        assert await keys_of(memory, tree, limit=limit, values=True) == whole
    part = [one for one in whole if one[1].startswith("b/")]
    assert await keys_of(memory, tree, prefix="b/", limit=4) == part
    odd = {put.key for put in puts if put.metadata == {"odd": 1}}
    asked_for = Filter.metadata("odd") == 1
    assert await keys_of(memory, tree, filter=asked_for, limit=5) == [one for one in whole if one[1] in odd]
    assert {key for _, key in await keys_of(memory, tree, order="updated", limit=9)} == set(keys)
    assert [one.key async for one in memory.documents.iterate(tree)] == [key for _, key in whole]
    found = await memory.documents.find(tree, puts[0].key)
    assert [(one.scope, one.key) for one in found.documents] == [(str(puts[0].scope), puts[0].key)]
    assert await keys_of(memory, Scope.path("app", "cache").subtree()) == [
        one for one in whole if one[0].startswith("path:app/cache/")
    ]


async def test_changes_of_one_scope_in_short_are_made_together(memory: Memory) -> None:
    first = await memory.documents.put(CACHE, "a", 1)
    with pytest.raises(VersionConflict):
        await memory.documents.apply(
            [DocumentPut(CACHE, "b", LARGE), DocumentPut(CACHE, "a", 2, expected_version=ABSENT)]
        )
    assert await keys_of(memory, CACHE) == [(CACHE.text, "a")]
    changes: list[DocumentPut | DocumentDelete] = [
        DocumentPut(CACHE, "b", LARGE),
        DocumentPut(CACHE, "c", 3),
        DocumentDelete(CACHE, "a", expected_version=first.version),
    ]
    await memory.documents.apply(changes, request_id="r1")
    await memory.documents.apply(changes, request_id="r1")
    assert await keys_of(memory, CACHE) == [(CACHE.text, "b"), (CACHE.text, "c")]
    across = [DocumentPut(CACHE, "d", 4), DocumentPut(USER, "d", 4)]
    with pytest.raises(InvalidInput):
        await memory.documents.apply(across)
    await memory.documents.apply(across, atomic=False)
    assert [found.value for found in await memory.documents.get_many(USER, ["d"]) if found] == [4]


async def test_what_expires_in_short_is_swept_there_with_its_chunks(memory: Memory, clock: Clock) -> None:
    await memory.documents.put(CACHE, "small", 1, expires_in=HOUR)
    await memory.documents.put(CACHE, "large", LARGE, expires_in=HOUR)
    await memory.documents.put(CACHE, "kept", LARGE, expires_in=HOUR, refresh_on_read=True)
    clock.advance(HOUR / 2)
    assert await memory.documents.get(CACHE, "kept") is not None
    clock.advance(HOUR * 3 / 4)
    assert await keys_of(memory, CACHE) == [(CACHE.text, "kept")]
    clock.advance(DAY * 1.01)
    await memory.admin.sweep()
    assert await stored(memory, "short") == [1, 1]
    clock.advance(HOUR * 2)
    await memory.admin.sweep()
    assert await stored(memory, "short") == [0, 0]
    assert await stored(memory, "mid", [RowType.TOMBSTONE]) == [0, 0]


@pytest.mark.parametrize("what", ["scope", "subtree", "user", "tenant"])
async def test_an_erasure_reaches_both_homes(memory: Memory, what: str) -> None:
    whole = [CACHE, BESIDE, SESSION, USER]
    for scope in whole:
        await memory.documents.put_many([DocumentPut(scope, "a", 1), DocumentPut(scope, "b", LARGE)])
    gone = {"scope": [CACHE], "subtree": [CACHE, BESIDE], "user": [USER], "tenant": whole}[what]
    for dry_run in (True, False):
        if what == "tenant":
            done = await memory.admin.erase_tenant(dry_run=dry_run)
            documents = sum(done.records["documents"].values())
        elif what == "user":
            documents = (await memory.admin.erase_user(USER.id, dry_run=dry_run)).documents
        else:
            place = CACHE if what == "scope" else ABOVE.subtree()
            documents = (await memory.admin.erase(place, dry_run=dry_run)).documents
        assert documents == 2 * len(gone)
    left = [scope.text for scope in whole if scope not in gone]
    assert [scope.text for scope in whole if await keys_of(memory, scope)] == left
    assert sum((await stored(memory, "short"))[:1] + (await stored(memory, "mid"))[:1]) == 2 * len(left)
    listed = await memory.scopes.list()
    assert {one.scope.text: one.documents for one in listed.scopes} == dict.fromkeys(left, 2)


async def test_a_hold_in_short_stops_deletion_and_expiry(memory: Memory, clock: Clock) -> None:
    await memory.documents.put(CACHE, "a", LARGE, expires_in=HOUR)
    await memory.documents.put(CACHE, "b", 1)
    await memory.admin.legal_holds.add("case", reason="a claim", scope=ABOVE.subtree())
    with pytest.raises(LegalHoldActive):
        await memory.documents.delete(CACHE, "b")
    with pytest.raises(LegalHoldActive):
        await memory.admin.erase(CACHE)
    clock.advance(2 * DAY)
    await memory.admin.sweep()
    assert (await stored(memory, "short"))[0] == 2
    await memory.admin.legal_holds.remove("case")
    await memory.admin.sweep()
    assert (await stored(memory, "short"))[0] == 1


async def test_a_quota_counts_both_homes(config: dict[str, Any], clock: Clock) -> None:
    quota = Quota(name="app", under="path:app/", document_bytes=40_000)
    async with Memory(config, clock=clock, quotas=[quota]) as memory:
        for scope in (CACHE, BESIDE):
            await memory.documents.put(scope, "a", "x" * 15_000)
        for scope in (CACHE, BESIDE):
            with pytest.raises(QuotaExceeded):
                await memory.documents.put(scope, "b", "x" * 15_000)
        await memory.documents.put(SESSION, "b", "x" * 15_000)


async def test_scopes_are_counted_over_both_homes(memory: Memory) -> None:
    for number, scope in enumerate((*IN_SHORT, *IN_MID), 1):
        await memory.documents.put_many([DocumentPut(scope, f"k{n}", n) for n in range(number)])
    listed = {one.scope.text: one.documents for one in (await memory.scopes.list()).scopes}
    assert listed == {scope.text: number for number, scope in enumerate((*IN_SHORT, *IN_MID), 1)}
    (above,) = (await memory.scopes.list(kind="path", max_depth=1)).scopes
    assert (above.scope, above.documents) == (ABOVE, 1 + 2 + 5 + 6)


async def test_exports_have_both_homes(memory: Memory) -> None:
    for scope in (*IN_SHORT, *IN_MID):
        await memory.documents.put_many([DocumentPut(scope, "a", 1), DocumentPut(scope, "b", LARGE)])
    lines = [line async for line in memory.admin.export()]
    other = memory.for_tenant("other")
    report = await other.admin.import_(lines)
    assert report.documents == 14
    for scope in (*IN_SHORT, *IN_MID):
        assert [one.value async for one in other.documents.iterate(scope, values=True)] == [1, LARGE]  # type: ignore[attr-defined]
    again = await other.admin.import_(lines)
    assert again.documents == 0


async def test_a_restricted_view_sees_its_part_of_both_homes(memory: Memory) -> None:
    for scope in (CACHE, BESIDE, ABOVE, SESSION):
        await memory.documents.put(scope, "k", scope.text)
    view = memory.restrict(scopes=[Scope.path("app", "cache").subtree(), BESIDE])
    assert [one.scope async for one in view.documents.iterate(CACHE)] == [CACHE.text]
    assert {one.scope.text: one.documents for one in (await view.scopes.list()).scopes} == {
        CACHE.text: 1,
        BESIDE.text: 1,
    }
    for outside in (ABOVE, SESSION, ABOVE.subtree()):
        with pytest.raises(Forbidden):
            await view.documents.list(outside)


async def test_the_documents_of_the_library_are_always_in_mid(memory: Memory) -> None:
    """Its keys are in a scope of a kind that the setting names."""
    key, _ = await KeyStore(memory).create("acme", "reader")
    own = memory.for_tenant(RESERVED_TENANT)
    await own.documents.put(SESSION, "record", 1)
    await memory.documents.put(SESSION, "k", 1, request_id="r1")
    assert await stored(memory, "short") == [1, 0]
    assert await stored(memory, "mid") == [2, 0]
    assert [one.id for one in await KeyStore(memory).list()] == [key.id]


async def test_a_call_asks_only_the_stores_that_can_have_its_documents(memory: Memory) -> None:
    short, mid = [store.name for store in stores_of(memory)][:2]
    with watching(memory) as calls:
        await memory.documents.put(CACHE, "k", 1)
        await memory.documents.get(CACHE, "k")
        await memory.documents.list(CACHE)
        await memory.documents.list(Scope.path("app", "cache").subtree())
    assert calls == [f"{short}.{call}" for call in ("get", "apply", "get", "query", "query")]
    with watching(memory) as calls:
        await memory.documents.put(USER, "k", 1)
        await memory.documents.get(USER, "k")
        await memory.documents.list(Scope.path("other").subtree())
        await memory.documents.list(Scope.path("app", "cached").subtree())
    assert calls == [f"{mid}.{call}" for call in ("get", "apply", "get", "query", "query")]
    with watching(memory) as calls:
        await memory.documents.list(ABOVE.subtree())
    assert sorted(calls) == sorted([f"{short}.query", f"{mid}.query"])


# -- a changed setting -----------------------------------------------------------------


@asynccontextmanager
async def opened(config: dict[str, Any], *short: str) -> AsyncIterator[Memory]:
    async with Memory(config | {"documents": {"short": list(short)}}) as memory:
        yield memory


PUTS: dict[Scope, dict[str, Any]] = {
    CACHE: {"a": {"n": 1}, "b": LARGE},
    USER: {"a": 2},
    SESSION: {"a": LARGE},
}


async def test_documents_follow_a_changed_setting_once_repaired(
    config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="memory")
    async with opened(config) as memory:
        for scope, values in PUTS.items():
            await memory.documents.put_many([DocumentPut(scope, k, v) for k, v in values.items()])
        before = [one for scope in PUTS async for one in memory.documents.iterate(scope)]
        await memory.for_tenant(RESERVED_TENANT).documents.put(SESSION, "record", 1)
    for short in (("path:app/", "session"), ("user",), (), ("path:app/cache/",)):
        caplog.clear()
        async with opened(config, *short) as memory:
            assert "so they are not found. Run `memory doctor --repair`" in caplog.text
        changed = config | {"documents": {"short": list(short)}}
        found = await doctor(changed)
        assert not found.ok
        assert any("whose home is now store" in problem for problem in found.problems)
        repaired = await doctor(changed, repair=True)
        assert repaired.ok, repaired.problems
        assert any("were moved from store" in said for said in repaired.healed)
        assert (await doctor(changed, audited=True)).ok
        caplog.clear()
        async with opened(config, *short) as memory:
            assert not caplog.records
            assert [one for scope in PUTS async for one in memory.documents.iterate(scope)] == before
            for scope, values in PUTS.items():
                found_there = await memory.documents.get_many(scope, list(values))
                assert [one and one.value for one in found_there] == list(values.values())
            tiers = [await stored(memory, tier) for tier in ("short", "mid")]
            assert [sum(counts) for counts in zip(*tiers, strict=True)] == [5, 2]
            assert memory.admin.route(CACHE, collection="documents").tier == (
                "short" if "path" in "".join(short) else "mid"
            )
    async with opened(config) as memory:
        assert (await memory.for_tenant(RESERVED_TENANT).documents.get(SESSION, "record")) is not None


async def test_of_a_document_in_both_places_the_newest_counts(config: dict[str, Any]) -> None:
    async with opened(config) as memory:
        for key in ("replaced", "deleted", "kept"):
            await memory.documents.put(CACHE, key, LARGE)
    async with opened(config, *SHORT) as memory:
        assert await keys_of(memory, CACHE) == []
        await memory.documents.put(CACHE, "replaced", "new")
        await memory.documents.put(CACHE, "deleted", "new")
        await memory.documents.delete(CACHE, "deleted")
    assert (await doctor(config, repair=True)).ok
    async with opened(config, *SHORT) as memory:
        found = await memory.documents.get_many(CACHE, ["replaced", "deleted", "kept"])
        assert [one and one.value for one in found] == ["new", None, LARGE]
        assert await stored(memory, "mid") == [0, 0]
        await memory.documents.put(CACHE, "replaced", "older")
    changed = config | {"documents": {"short": []}}
    async with opened(config) as memory:
        await memory.documents.put(CACHE, "replaced", "newest")
    assert (await doctor(changed, repair=True)).ok
    async with opened(config) as memory:
        found = await memory.documents.get_many(CACHE, ["replaced", "deleted", "kept"])
        assert [one and one.value for one in found] == ["newest", None, LARGE]
        assert await stored(memory, "short") == [0, 0]


class Killed(BaseException):
    """The process ends here."""


async def test_a_repair_that_dies_at_any_call_loses_nothing(config: dict[str, Any]) -> None:
    async with opened(config) as memory:
        await memory.documents.put(CACHE, "a", {"n": 1}, metadata={"m": 1})
        await memory.documents.put(CACHE, "b", LARGE)
        before = [one async for one in memory.documents.iterate(CACHE, values=True)]
    sides: list[tuple[str, ...]] = [SHORT, ()]
    number = side = 0
    while number < 60:
        changed = config | {"documents": {"short": list(sides[side])}}
        if not await _relocated(changed, dies_at=number):
            number += 1
        else:
            assert number > 3
            break
        if number % 2:
            async with Memory(changed) as memory:
                await memory.admin.sweep()
        assert await _relocated(changed)
        async with Memory(changed) as memory:
            assert [one async for one in memory.documents.iterate(CACHE, values=True)] == before
            counts = [await stored(memory, tier) for tier in ("short", "mid")]
            assert sorted(counts) == [[0, 0], [2, 1]]
        side = 1 - side


async def _relocated(config: dict[str, Any], dies_at: int | None = None) -> bool:
    """Move all documents home; false if the process died at the write of that number."""
    engine = build_engine(MemoryConfig.load(config), embedder=None, clock=Clock())
    await engine.open()
    left = [dies_at]

    def counted(apply: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            return await apply(*args, **kwargs)

        return call

    patches = [patch.object(store, "apply", counted(store.apply)) for store in engine.topology.stores]
    try:
        for one in patches:
            one.start()
        await engine.documents.relocation.relocate()
        assert await engine.documents.relocation.look(thorough=True) == []
    except Killed:
        return False
    finally:
        for one in patches:
            one.stop()
        await engine.close()
    return True


# -- refused ---------------------------------------------------------------------------


@cells(
    "short, problem",
    [
        (["path:cache"], "path:cache/"),
        (["path:cache/**"], "Omit the **"),
        (["planet"], "kind of scope"),
        (["user:ada"], "'user:ada' is one scope"),
        (["path:a/", "path:a/b/"], "'path:a/b/' is in 'path:a/' already"),
        (["path:a/b/", "path:a/"], "'path:a/b/' is in 'path:a/' already"),
        (["path:a/", "path"], "'path:a/' is in 'path' already"),
        (["session", "session"], "'session' is in 'session' already"),
        ("session", "must be a list"),
        ([1], "documents.short"),
    ],
    shared=True,
)
def test_a_setting_that_cannot_be_is_refused_by_name(short: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        MemoryConfig(documents={"short": short})
    assert "documents.short" in str(refused.value)
    assert problem in str(refused.value)


def test_settings_that_are_not_inside_each_other_are_taken() -> None:
    config = MemoryConfig(documents={"short": ["path:a/", "path:ab/", "user"]})
    assert config.documents.prefixes == ("path:a/", "path:ab/", "user:")
    assert config.leaves()["documents.short"] == ("path:a/", "path:ab/", "user")


async def test_a_cache_is_no_home_of_documents(tmp_path: Path) -> None:
    tiers = {"short": "memory://", "mid": f"sqlite:///{tmp_path / 'mid.db'}", "long": "mid"}
    config = {"embedder": "none", "documents": {"short": ["session"]}}
    tiers["long"] = tiers["mid"]
    with pytest.raises(
        ConfigError, match=r"documents\.short: store 'memory' of tier 'short' cannot be the home"
    ):
        async with Memory({**config, "tiers": tiers}):
            pass
    async with Memory({**config, "tiers": tiers, "accept_loss": ["memory"]}) as memory:
        await memory.documents.put(SESSION, "k", 1)
        assert await stored(memory, "short") == [1, 0]


@pytest.mark.backend("qdrant_local")
async def test_a_store_without_groups_is_no_home_of_documents(tmp_path: Path) -> None:
    mid = f"sqlite:///{tmp_path / 'mid.db'}"
    config = {"embedder": "none", "documents": {"short": ["session"]}, "accept_loss": ["qdrant"]}
    with pytest.raises(ConfigError, match="cannot store several changes of one scope together"):
        async with Memory({**config, "tiers": {"short": "qdrant://:memory:", "mid": mid, "long": mid}}):
            pass


async def test_one_store_for_both_tiers_needs_no_move(tmp_path: Path) -> None:
    config = {"embedder": "none", "tiers": dict.fromkeys(("short", "mid", "long"), "memory://")}
    async with opened(config, "session") as memory:
        await memory.documents.put(SESSION, "k", 1)
        assert await keys_of(memory, SESSION) == [(SESSION.text, "k")]
