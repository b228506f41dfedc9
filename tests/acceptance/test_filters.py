"""What a search prefers leaves nothing out; `filter` filters, whatever it is that
answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from memory import FoundEntry, Memory, SearchFilter
from tests.acceptance.support import MICROSECOND, SESSION, USER, Clock, contents

KINDS = ("user", "project", "learning")


def found(hits: Iterable[FoundEntry]) -> list[str]:
    return sorted(hit.entry.content for hit in hits)


async def _written(memory: Memory, clock: Clock) -> None:
    """Three of a user, of which each has a type and a tag of its own, and one that all
    have; of a session as many, the second gone to `long`.
    """
    for scope in (USER, SESSION):
        for kind in KINDS:
            clock.advance()
            entry = await memory.write(
                f"tea {kind} {scope.kind}", scope=scope, type=kind, tags=["drink", kind]
            )
            if kind == "project" and scope == SESSION:
                await memory.admin.move([entry.id], "long")


EVERY = sorted(f"tea {kind} {scope}" for kind in KINDS for scope in ("user", "session"))


@pytest.mark.behaviour("D68")
async def test_boosts_of_a_search_leave_nothing_out(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock)
    for preferred in (
        {"types": ["user"]},
        {"tags": ["learning"]},
        {"types": ["reference"], "tags": ["nothing has it"]},
    ):
        assert found(await memory.search("tea", scope=[USER, SESSION], boost=preferred)) == EVERY  # type: ignore[call-overload]
        assert (
            found(await memory.search("tea", scope=[USER, SESSION], known_at=clock.moment, boost=preferred))  # type: ignore[call-overload]
            == EVERY
        )


FILTERS: list[tuple[SearchFilter, tuple[str, ...]]] = [
    ({}, KINDS),
    ({"types": [], "tags": None}, KINDS),
    ({"types": ["project"]}, ("project",)),
    ({"types": ["project", "learning"]}, ("project", "learning")),
    ({"types": ["feedback"]}, ()),
    ({"tags": ["drink"]}, KINDS),
    ({"tags": ["drink", "project"]}, ("project",)),
    ({"tags": ["user", "project"]}, ()),
    ({"types": ["project", "user"], "tags": ["project"]}, ("project",)),
    ({"types": ["user"], "tags": ["project"]}, ()),
]


@pytest.mark.behaviour("D66", "D68")
async def test_a_filter_applies_in_every_tier_and_at_every_moment(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock)
    for given, kinds in FILTERS:
        wanted = sorted(f"tea {kind} {scope}" for kind in kinds for scope in ("user", "session"))
        assert found(await memory.search("tea", scope=[USER, SESSION], filter=given)) == wanted, given
        assert (
            found(await memory.search("tea", scope=[USER, SESSION], filter=given, known_at=clock.moment))
            == wanted
        ), given
        assert found(await memory.scoped(USER).search("tea", filter=given)) == [
            one for one in wanted if one.endswith("user")
        ], given


@pytest.mark.behaviour("D68")
async def test_a_filter_removes_boosted_entries_too(memory: Memory, clock: Clock) -> None:
    await _written(memory, clock)
    hits = await memory.search(
        "tea",
        scope=USER,
        boost={"types": ["user"], "tags": ["user"]},
        filter={"types": ["project"], "tags": ["drink"]},
    )
    assert found(hits) == ["tea project user"]


@pytest.mark.behaviour("A33", "D68")
async def test_a_filter_applies_before_the_limit(memory: Memory) -> None:
    wanted = await memory.write(
        "tea, once among very many other words that nobody asks for", scope=USER, tags=["t"], type="user"
    )
    for n in range(60):
        await memory.write(f"tea {n}", scope=USER, tags=["t"])
        await memory.write(f"tea tea {n}", scope=USER, type="user")
    assert [
        hit.entry
        for hit in await memory.search("tea", scope=USER, filter={"types": ["user"], "tags": ["t"]}, limit=1)
    ] == [wanted]


async def test_a_filter_applies_by_any_tag_by_metadata_and_before_a_moment(
    memory: Memory, clock: Clock
) -> None:
    given: dict[str, dict[str, Any]] = {
        "one": {"n": 1, "on": True},
        "true": {"n": True, "on": True},
        "text": {"n": "1"},
        "nothing": {},
    }
    for name, metadata in given.items():
        entry = await memory.write(
            f"tea {name}", scope=SESSION, tags=[name], metadata=metadata, created_at=clock.advance()
        )
        if name == "true":
            await memory.admin.move([entry.id], "long")
            middle = entry.created_at
    filters: list[tuple[SearchFilter, list[str]]] = [
        ({"any_tags": ["one", "text"]}, ["tea one", "tea text"]),
        ({"any_tags": ["one", "text"], "tags": ["text"]}, ["tea text"]),
        ({"metadata": {"n": 1}}, ["tea one"]),
        ({"metadata": {"n": True, "on": True}}, ["tea true"]),
        ({"metadata": {"on": None}}, []),
        ({"metadata": {}}, sorted(f"tea {name}" for name in given)),
        ({"before": middle}, ["tea one"]),
        ({"before": middle + MICROSECOND, "metadata": {"on": True}}, ["tea one", "tea true"]),
    ]
    for asked, wanted in filters:
        assert found(await memory.search("tea", scope=SESSION, filter=asked)) == wanted, asked
        assert (
            found(await memory.search("tea", scope=SESSION, filter=asked, known_at=clock.advance())) == wanted
        ), asked
        assert found(await memory.search(" ", scope=SESSION, filter=asked)) == wanted, asked


async def test_what_is_rare_by_its_metadata_is_found_behind_what_answers_better(
    memory: Memory, clock: Clock
) -> None:
    drafts: list[dict[str, Any]] = [
        {"content": f"tea tea {n}", "scope": USER, "metadata": {"kind": "other"}} for n in range(300)
    ]
    await memory.write_many(
        [
            *drafts,
            {
                "content": "tea, once among many other words that nobody asks for",
                "scope": USER,
                "metadata": {"kind": "rare"},
            },
        ]
    )
    for known_at in (None, clock.advance()):
        hits = await memory.search(
            "tea", scope=USER, filter={"metadata": {"kind": "rare"}}, limit=1, known_at=known_at, explain=True
        )
        assert [hit.entry.metadata for hit in hits] == [{"kind": "rare"}]
        # a store that compares metadata itself returns none of the others
        assert hits.left_out in ({}, {"filtered_out": 300})


@pytest.mark.behaviour("D68")
async def test_a_filter_asks_an_edited_entry_what_it_said_at_the_moment_asked_about(
    memory: Memory, clock: Clock
) -> None:
    entry = await memory.write("tea", scope=USER, tags=["before"], type="user")
    then = clock.advance()
    clock.advance()
    await memory.update(entry.id, tags=["after"], type="project")
    for given in ({"tags": ["before"]}, {"types": ["user"]}):
        assert await memory.search("tea", scope=USER, filter=given) == []
        assert len(await memory.search("tea", scope=USER, filter=given, known_at=then)) == 1


@pytest.mark.behaviour("D66", "D68")
async def test_of_two_moments_since_both_hold(memory: Memory, clock: Clock) -> None:
    first, second, third = [
        (await memory.write(f"tea {n}", scope=USER, created_at=clock.advance())).created_at for n in range(3)
    ]
    assert found(await memory.search("tea", scope=USER, filter={"since": second})) == ["tea 1", "tea 2"]
    assert found(await memory.search("tea", scope=USER, filter={"since": second + MICROSECOND})) == ["tea 2"]
    assert found(await memory.search("tea", scope=USER, since=third, filter={"since": first})) == ["tea 2"]
    assert found(await memory.search("tea", scope=USER, since=first, filter={"since": third})) == ["tea 2"]


@pytest.mark.behaviour("D54")
@pytest.mark.parametrize("blank", ["", " \t\n"], ids=repr)
async def test_a_blank_query_browses_and_browsing_filters(memory: Memory, clock: Clock, blank: str) -> None:
    await _written(memory, clock)
    listed = await memory.retrieve(USER)
    assert [hit.entry for hit in await memory.search(blank, scope=USER)] == listed
    assert contents(listed) == [f"tea {kind} user" for kind in reversed(KINDS)]
    for asked in (
        {"types": ["user", "project"]},
        {"tags": ["drink", "user"]},
        {"types": ["user"], "tags": ["project"]},
    ):
        wanted = await memory.retrieve(USER, **asked)  # type: ignore[arg-type]
        assert [hit.entry for hit in await memory.search(blank, scope=USER, boost=asked)] == wanted  # type: ignore[call-overload]
        assert [hit.entry for hit in await memory.search(blank, scope=USER, filter=asked)] == wanted
    assert found(
        await memory.search(blank, scope=USER, boost={"tags": ["user"]}, filter={"tags": ["drink"]})
    ) == ["tea user user"]


@pytest.mark.behaviour("D51", "D54")
async def test_a_blank_query_of_a_conversation_shows_what_is_pinned_to_it_or_to_none(
    memory: Memory, clock: Clock
) -> None:
    for name in ("c1", "c2"):
        await memory.sessions.create(name)
    for number, pinned in enumerate(("c1", "c2", None)):
        clock.advance()
        await memory.write(f"tea {number}", scope=USER, conversation_id=pinned)
    assert found(await memory.search(" ", scope=USER, boost={"conversation_id": "c1"})) == ["tea 0", "tea 2"]
    assert contents(await memory.browse(USER, conversation="c1")) == ["tea 2", "tea 0"]
    assert found(await memory.search("tea", scope=USER, boost={"conversation_id": "c1"})) == [
        "tea 0",
        "tea 1",
        "tea 2",
    ]  # there it is preferred (D84)
