"""Paths and their subtrees: read, listed, erased, held and limited by whole labels."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from memory import (
    InvalidInput,
    InvalidScopePromotion,
    LegalHoldActive,
    Memory,
    NotFound,
    Quota,
    QuotaExceeded,
    Scope,
    Subtree,
)
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import HOUR, USER, Clock, watching

config = keeping_bytes()

LABELS = (
    "acme",
    "acme-corp",
    "acme.corp",
    "ACME",
    "acm%",
    "acm_",
    "*",
    "**",
    "acme/",
    "/",
    "%2F",
    "acme\n",
    " acme",
    "acme ",
    "\\",
    "'\"",
    "\u00e9",
    "e\u0301",
    "\uffff",
    "\U0001f600",
    "path:acme",
    "..",
    "[a]",
    "0",
)
"""Labels that one store or another could take for a pattern or for each other."""


def is_below(path: Scope, root: Scope) -> bool:
    """The meaning of a subtree, by labels."""
    return path.labels[: len(root.labels)] == root.labels


def drawn_paths(seed: int, count: int) -> list[Scope]:
    chance = random.Random(seed)  # noqa: S311 - no secret
    every = [(label,) for label in LABELS]
    deeper = [tuple(chance.choices(LABELS, k=chance.randint(2, 4))) for _ in range(count)]
    return [Scope.path(*labels) for labels in dict.fromkeys(every + deeper)]


def texts_of(scopes: Iterable[Scope]) -> list[str]:
    return sorted(scope.text for scope in scopes)


async def test_a_subtree_matches_whole_labels_in_every_call(memory: Memory) -> None:
    paths = drawn_paths(7, 30)
    other = memory.for_tenant("other")
    await other.write_many([{"content": "tea of another", "scope": path} for path in paths])
    await memory.write_many([{"content": f"tea number {n}", "scope": p} for n, p in enumerate(paths)])
    await memory.write("tea of Ada", scope=USER)
    for number, path in enumerate(paths):
        await memory.documents.put(path, "about", number)
    roots = dict.fromkeys(Scope.path(*path.labels[:depth]) for path in paths for depth in (1, 2))
    for root in roots:
        below = root.subtree()
        expected = texts_of(path for path in paths if is_below(path, root))
        assert texts_of(path for path in paths if below.contains(path)) == expected
        found: dict[str, Iterable[Scope]] = {
            "browse": [entry.scope for entry in await memory.browse(below, limit=200)],
            "retrieve": [entry.scope for entry in await memory.retrieve(below.text, limit=200)],
            "iterate": [entry.scope async for entry in memory.entries.iterate(below)],
            "search": [hit.entry.scope for hit in await memory.search("tea", scope=below, limit=200)],
            "export": [
                Scope.parse(line["scope"])
                async for line in memory.admin.export(below)
                if line["format"].startswith("memory-entry")
            ],
            "documents": [
                Scope.parse(one.scope) for one in (await memory.documents.list(below, limit=200)).documents
            ],
            "find": [
                Scope.parse(one.scope) for one in (await memory.documents.find(below, "about")).documents
            ],
            "scopes": [one.scope for one in (await memory.scopes.list(below, limit=200)).scopes],
        }
        assert {name: texts_of(scopes) for name, scopes in found.items()} == dict.fromkeys(found, expected)


async def test_scopes_and_subtrees_are_searched_together(memory: Memory) -> None:
    red, blue = Scope.path("teams", "red"), Scope.path("teams", "blue")
    for scope in (red, Scope.path("teams", "red", "notes"), blue, Scope.path("teams", "blue", "x"), USER):
        await memory.write("we drink tea", scope=scope)
    asked: list[Scope | Subtree | str] = [red.subtree(), "path:teams/blue/", USER, red]
    found = [hit.entry.scope.text for hit in await memory.search("tea", scope=asked)]
    assert sorted(found) == ["path:teams/blue/", "path:teams/red/", "path:teams/red/notes/", "user:u1"]
    page = await memory.browse(asked, limit=3)
    rest = await memory.browse(asked, limit=3, cursor=page.cursor)
    assert sorted(e.scope.text for e in (*page, *rest)) == sorted(found)
    with pytest.raises(InvalidInput, match="another query"):
        await memory.browse(red.subtree(), limit=3, cursor=page.cursor)


async def test_links_are_followed_within_a_subtree(plain: Memory) -> None:
    red, redwood = Scope.path("red"), Scope.path("redwood")
    first = await plain.write("begin", scope=red)
    near = await plain.write("near", scope=Scope.path("red", "notes"))
    far = await plain.write("far", scope=redwood)
    for other in (near, far):
        await plain.relations.relate(first.id, "refines", other.id)
    found = await plain.relations.expand(first.id, scope=red.subtree())
    assert {node.entry.id for node in found.nodes} == {first.id, near.id}
    graph = await plain.relations.graph(scope=[red.subtree()])
    assert {entry.id for entry in graph.entries} == {first.id, near.id}


async def test_writes_and_single_scopes_refuse_a_subtree(plain: Memory) -> None:
    below = Scope.path("teams").subtree()
    for call in (
        plain.write("tea", scope=below),  # type: ignore[arg-type]
        plain.write("tea", scope=below.text),
        plain.documents.put(below.text, "key", 1),
        plain.documents.get(below.text, "key"),
        plain.documents.delete_many(below.text),
        plain.promote("0" * 32, to=below.text),
    ):
        with pytest.raises(InvalidInput, match="not the subtree 'path:teams/"):
            await call
    with pytest.raises(InvalidInput, match="should end each label"):
        await plain.browse("path:teams")
    with pytest.raises(InvalidInput, match=r"Scope\.path"):
        USER.subtree()


async def test_promotion_goes_from_sessions_to_paths_and_from_paths_to_organisations(plain: Memory) -> None:
    said = await plain.write("we drink tea", scope=Scope.session("s1"))
    shared = await plain.promote(said.id, to=Scope.path("teams", "red"))
    assert shared.scope == Scope.path("teams", "red")
    assert (await plain.promote(shared.id, to=Scope.org("acme"))).scope == Scope.org("acme")
    with pytest.raises(InvalidScopePromotion):
        await plain.promote(shared.id, to=USER)


async def listed(memory: Memory, limit: int = 100, **asked: Any) -> list[tuple[str, int, int, int]]:
    """All pages of a list of scopes."""
    found, cursor = [], None
    while True:
        page = await memory.scopes.list(limit=limit, cursor=cursor, **asked)
        assert len(page.scopes) <= limit
        found += [(one.scope.text, one.entries, one.documents, one.sessions) for one in page.scopes]
        if (cursor := page.cursor) is None:
            return found


async def test_scopes_are_listed_with_what_they_hold(memory: Memory, clock: Clock) -> None:
    a, b, c = Scope.path("a"), Scope.path("a", "b"), Scope.path("a", "b", "c")
    await memory.write("tea", scope=c)
    await memory.write("more tea", scope=c)
    await memory.documents.put(b, "key", 1)
    await memory.write("tea", scope=Scope.path("a-b"))
    await memory.write("tea", scope=Scope.path("b"), expires_at=HOUR)
    await memory.write("tea", scope=Scope.path("d"))
    await memory.write("tea", scope=USER)
    await memory.session("chat").append([{"role": "user", "content": "tea?"}])
    await memory.write("tea", scope=Scope.session("chat"))
    await memory.write("tea", scope=Scope.session("apart"))
    await memory.scratchpads.append("a note")
    await memory.for_tenant("other").write("tea", scope=a)
    await memory.admin.erase(Scope.path("d"))
    clock.advance(2 * HOUR)

    paths = [("path:a-b/", 1, 0, 0), ("path:a/b/", 0, 1, 0), ("path:a/b/c/", 2, 0, 0)]
    sessions = [("session:apart", 1, 0, 0), ("session:chat", 1, 0, 1)]
    for limit in (1, 2, 3, 100):
        assert await listed(memory, limit) == [*paths, *sessions, ("user:u1", 1, 0, 0)]
        assert await listed(memory, limit, kind="session") == sessions
        assert await listed(memory, limit, prefix=a) == paths[1:]
        assert await listed(memory, limit, prefix=b.subtree()) == paths[1:]
        assert await listed(memory, limit, prefix=a, max_depth=2) == [("path:a/b/", 2, 1, 0)]
        assert await listed(memory, limit, max_depth=1, kind="path") == [paths[0], ("path:a/", 2, 1, 0)]
    assert await listed(memory, prefix=Scope.path("none")) == []
    await memory.sessions.delete("chat")
    await memory.admin.erase(Scope.session("chat"))
    assert await listed(memory, kind="session") == sessions[:1]
    await memory.admin.erase_tenant()
    assert await listed(memory) == []


async def test_many_scopes_are_listed_page_by_page(memory: Memory) -> None:
    paths = drawn_paths(11, 150)
    expected = Counter(path.text for path in paths)
    await memory.write_many([{"content": "tea", "scope": path} for path in paths])
    assert [one[0] for one in await listed(memory, 7)] == sorted(expected)
    tops = Counter(Scope.path(path.labels[0]).text for path in paths)
    assert [one[:2] for one in await listed(memory, 5, max_depth=1)] == sorted(tops.items())
    for limit in (1, 2, 5):
        for top, there in tops.items():
            root = Scope.parse(top)
            assert await listed(memory, limit, prefix=root, max_depth=1) == [(top, there, 0, 0)]


async def test_cursors_hold_any_tenant_and_scope(plain: Memory) -> None:
    memory = plain.for_tenant("\x01" * 512)
    last = Scope.path(*["\x02" * 128] * 7, "\x02" * 115)
    paths = [Scope.path("\x01"), Scope.path(*last.labels[:-1]), last]
    await memory.write_many([{"content": "tea", "scope": path} for path in paths])
    assert [one[0] for one in await listed(memory, 1)] == [path.text for path in paths]


async def test_wrong_questions_for_scopes_say_what_to_do(plain: Memory) -> None:
    for asked, said in (
        ({"prefix": USER}, "kind='user'"),
        ({"prefix": "path:a"}, "should end each label"),
        ({"prefix": Scope.path("a"), "kind": "user"}, "only paths have a prefix"),
        ({"kind": "users"}, "user"),
        ({"max_depth": 0}, "1 to 16"),
        ({"max_depth": True}, "1 to 16"),
        ({"limit": 0}, "limit"),
        ({"cursor": "no cursor"}, "cursor"),
    ):
        with pytest.raises(InvalidInput, match=said):
            await plain.scopes.list(**asked)
    page = await plain.scopes.list()
    await plain.write_many([{"content": "tea", "scope": Scope.path(label)} for label in "ab"])
    page = await plain.scopes.list(limit=1)
    with pytest.raises(InvalidInput, match="belongs to another list"):
        await plain.for_tenant("other").scopes.list(cursor=page.cursor)


async def test_an_erased_subtree_is_gone_and_its_neighbours_stay(memory: Memory) -> None:
    paths = drawn_paths(13, 40)
    root = Scope.path("acme")
    await memory.write_many([{"content": "tea", "scope": path} for path in paths])
    for path in paths:
        await memory.documents.put(path, "about", path.text)
    gone = [path for path in paths if is_below(path, root)]
    would = await memory.admin.erase(root.subtree(), dry_run=True)
    assert (int(would), would.scopes) == (len(gone), len(gone))
    erased = await memory.admin.erase("path:acme/**")
    assert (int(erased), erased.scopes, erased.sessions_left) == (len(gone), len(gone), ())
    stays = [(path.text, 1, 1, 0) for path in paths if path not in gone]
    assert await listed(memory) == sorted(stays)
    assert int(await memory.admin.erase(root.subtree())) == 0
    await memory.write("tea again", scope=gone[-1])
    assert [entry.content for entry in await memory.browse(root.subtree())] == ["tea again"]


@pytest.mark.parametrize("erased", ["path:teams/red/", "path:teams/red/**", "path:teams/**"])
async def test_what_was_made_of_an_erased_path_is_erased_too(plain: Memory, erased: str) -> None:
    red, org, session = Scope.path("teams", "red"), Scope.org("acme"), Scope.session("s1")
    one = await plain.write("Ada owes Bob", scope=red)
    await plain.promote(one.id, to=org)
    said = await plain.promote((await plain.write("said by Ada", scope=session)).id, to=red)
    await plain.promote(said.id, to=org)
    other = await plain.write("beside it", scope=Scope.path("teams-2"))
    await plain.promote(other.id, to=org)
    moved = await plain.write("moved away", scope=red)
    await plain.promote(moved.id, to=org, delete_original=True)
    assert int(await plain.admin.erase(erased)) == 2
    left = sorted((entry.content, entry.scope.text) for entry in await plain.browse())
    assert left == [
        ("beside it", org.text),
        ("beside it", other.scope.text),
        ("moved away", org.text),
        ("said by Ada", session.text),
    ]


async def test_copies_made_beside_the_erasure_of_a_subtree_do_not_outlive_it(plain: Memory) -> None:
    red, org = Scope.path("teams", "red"), Scope.org("acme")
    entries = [await plain.write(f"secret {n}", scope=red) for n in range(20)]

    async def derive() -> None:
        for one in entries:
            with suppress(NotFound):
                await plain.promote(one.id, to=org)
                await plain.update(one.id, content="secret anew")

    await asyncio.gather(derive(), plain.admin.erase(red.subtree()))
    assert [entry.content async for entry in plain.entries.iterate(include_retired=True)] == []


@pytest.mark.parametrize("form", ["path", "subtree", "text"])
async def test_a_hold_on_a_path_holds_all_below_it(memory: Memory, form: str) -> None:
    red, deep, other = (
        Scope.path("teams", "red"),
        Scope.path("teams", "red", "a"),
        Scope.path("teams", "red-2"),
    )
    kept = await memory.write("tea", scope=deep)
    free = await memory.write("tea", scope=other)
    await memory.documents.put(deep, "key", 1)
    forms: dict[str, Any] = {"path": red, "subtree": red.subtree(), "text": "path:teams/red/**"}
    held = forms[form]
    placed = await memory.admin.legal_holds.add("case", scope=held, reason="a lawsuit")
    assert (placed.over, placed.of) == ("scope", red.text)
    for call in (
        memory.delete(kept.id),
        memory.documents.delete(deep, "key"),
        memory.admin.erase(deep),
        memory.admin.erase(red.subtree()),
        memory.admin.erase(red.subtree(), dry_run=True),
    ):
        with pytest.raises(LegalHoldActive):
            await call
    with pytest.raises(LegalHoldActive):
        await memory.admin.erase(Scope.path("teams").subtree())
    assert await memory.get(free.id) is None
    assert await memory.get(kept.id) is not None
    assert (await memory.documents.get(deep, "key")) is not None
    await memory.admin.legal_holds.remove("case")
    assert int(await memory.admin.erase(Scope.path("teams").subtree())) == 1


async def test_a_deletion_reads_the_holds_of_all_ancestors_at_once(plain: Memory) -> None:
    counts = []
    for depth in (2, 2, 16):  # the first one also reads what a new memory does not know
        scope = Scope.path(*map(str, range(depth)))
        entry = await plain.write("tea", scope=scope)
        await plain.documents.put(scope, "k", 1)
        await plain.admin.flush()
        with watching(plain) as calls:
            await plain.delete(entry.id)
            await plain.documents.delete(scope, "k")
        counts.append(sorted(calls))
    assert counts[1] == counts[2]


async def test_a_quota_under_a_path_counts_all_below_it(config: dict[str, Any], clock: Clock) -> None:
    quotas = [Quota(name="red", under="path:teams/red/", entries=2)]
    async with Memory(config | {"quotas": quotas}, clock=clock) as memory:
        red = Scope.path("teams", "red")
        await memory.write("one", scope=red)
        await memory.write("two", scope=Scope.path("teams", "red", "a"))
        await memory.write("beside", scope=Scope.path("teams", "red-2"))
        with pytest.raises(QuotaExceeded, match=r"path 'path:teams/red/'"):
            await memory.write("three", scope=Scope.path("teams", "red", "b"))
        await memory.for_tenant("other").write("of another tenant", scope=red)
        await memory.admin.erase(red.subtree())
        await memory.write("again", scope=Scope.path("teams", "red", "b"))
