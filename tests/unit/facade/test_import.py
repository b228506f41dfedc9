"""An export that is imported elsewhere: with the same ids it answers as it did, without
it is new; cut off and repeated, nothing is there twice.
"""

from __future__ import annotations

import gc
import io
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from memory import BlockingMemory, Conflict, EntryDraft, InvalidInput, Memory, Provenance, QuotaExceeded
from memory.cli.transfer import _summary as transfer_summary
from memory.domain.ids import new_id
from memory.domain.import_reports import ImportReport
from memory.domain.time import micros
from memory.domain.versions import version_text
from memory.facade.runtime.access import engine_of
from memory.facade.transfer import importer
from memory.facade.transfer.importer import BadFile
from memory.facade.transfer.lines import BadLine
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS
from memory.ports.query import Everywhere, Query
from memory.ports.record import Key, Record
from memory.ports.writes import Outcome
from tests.support import empty_file
from tests.support.depth import beyond

SCOPES = ("user:ada", "session:s1", "object:a%3Ab:t1")
EARLIER = Path(__file__).parent / "export-of-format-1.jsonl"
"""Written by the last version that did not export kept versions."""


class Clock:
    """A second passes with every look at it."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def embed(texts: Sequence[str]) -> list[list[float]]:
    """A vector that tells texts apart."""
    return [[byte / 255 + 0.01 for byte in blake2b(text.encode(), digest_size=8).digest()] for text in texts]


def _file(folder: Path, name: str) -> str:
    """The URL of a file that has its tables already."""
    path = folder / name
    if folder.is_dir() and not path.exists():
        empty_file.put(path)
    return f"sqlite:///{path}"


def one_file(folder: Path) -> dict[str, Any]:
    return {"tiers": dict.fromkeys(("short", "mid", "long"), _file(folder, "one.db"))}


def mixed(folder: Path) -> dict[str, Any]:
    return {
        "tiers": {"short": "memory://", "mid": _file(folder, "mid.db"), "long": _file(folder, "long.db")},
        "accept_loss": ["memory"],
    }


def cached(folder: Path) -> dict[str, Any]:
    mid = _file(folder, "mid.db")
    return {"tiers": {"short": "memory://", "mid": mid, "long": mid}}


PLACES = (one_file, mixed, cached)
"""What takes part in an import is above the stores: CI asks the file alone, but where
every kind of record is carried over and read.
"""


@pytest.fixture(
    params=[pytest.param(made, id=made.__name__, marks=beyond(made, [one_file], [])) for made in PLACES]
)
def config(request: pytest.FixtureRequest) -> Callable[[Path], dict[str, Any]]:
    return request.param  # type: ignore[no-any-return]


Maker = Callable[..., Any]


@pytest.fixture
async def new(tmp_path: Path, config: Callable[[Path], dict[str, Any]]) -> AsyncIterator[Maker]:
    """Makes open memories over stores of their own, all by one clock."""
    clock = Clock()
    async with AsyncExitStack() as stack:

        async def make(name: str, **more: Any) -> Memory:
            (tmp_path / name).mkdir(exist_ok=True)
            tiers = config(tmp_path / name)  # a slow test would meet a sweep, which moves entries
            settings = {**tiers, "durations": {"sweep_every": "0s"}}
            memory = Memory(settings, embedder=embed, **{"clock": clock, **more})
            return await stack.enter_async_context(memory)

        yield make


async def lived_in(memory: Memory) -> dict[str, str]:
    """A store with edits, deletions, second lives, relations and moves; its entries by
    name.
    """
    ids: dict[str, str] = {}
    for number, scope in enumerate(SCOPES):
        tea = await memory.write(
            "Ada drinks tea",
            scope=scope,
            key="drink",
            tags=["fact"],
            metadata={"confidence": 0.9, "n": [1, {"a": None}]},
        )
        await memory.update(tea.id, content="Ada drinks coffee", tags=["fact", "new"])
        await memory.update(tea.id, title="Drinks", expires_at="2990-01-01T00:00:00Z")
        await memory.update(tea.id, metadata={"n": 2.5}, source="letters")
        gone = await memory.write("Ada drank milk", scope=scope, key="gone")
        await memory.update(gone.id, content="Ada drank cold milk")
        await memory.delete(gone.id)
        again = await memory.write("Ada drinks water", scope=scope, key="gone", revive=True)
        await memory.update(again.id, content="Ada drinks sparkling water")
        deleted = await memory.write("nobody knows", scope=scope)
        retired = await memory.write(
            "Ada lives in Porto", scope=scope, created_at="2026-01-02T03:04:05.000006Z"
        )
        await memory.update(retired.id, content="Ada lives in Lisbon")
        await memory.entries.invalidate(retired.id)
        summary = await memory.compact(
            [tea.id, again.id], lambda entries: " and ".join(entry.content for entry in entries)
        )
        await memory.relations.relate(tea.id, "supersedes", again.id)
        await memory.relations.relate(summary.id, "refines", tea.id)
        await memory.relations.relate(tea.id, "supports", deleted.id)
        await memory.delete(deleted.id)
        ids |= {
            f"{name}{number}": entry.id
            for name, entry in {"tea": tea, "again": again, "retired": retired, "summary": summary}.items()
        }
    promoted = await memory.promote(ids["tea1"], "user:ada", tags=["promoted"])
    await memory.relations.relate(promoted.id, "supports", ids["tea0"])
    assert (await memory.sessions.end("s1")).moved
    return ids | {"promoted": promoted.id}


def moments_in(history: Sequence[dict[str, Any]]) -> list[datetime]:
    """When each version began, and half a second later: nothing changes in between."""
    begun = [datetime.fromisoformat(version["updated_at"]) for version in history]
    return [moment for at in begun for moment in (at, at + timedelta(milliseconds=500))]


async def answers(memory: Memory) -> dict[str, Any]:
    """What a store answers to every way of reading, now and at every moment something
    happened.
    """
    entries = [entry async for entry in memory.entries.iterate(include_retired=True)]
    histories = {
        entry.id: [version.to_dict() for version in await memory.entries.history(entry.id)]
        for entry in entries
    }
    moments_of = {entry_id: moments_in(history) for entry_id, history in histories.items()}
    moments = sorted({moment for own in moments_of.values() for moment in own})
    begun = {moment for own in moments_of.values() for moment in own[::2]}
    found: dict[str, Any] = {
        "entries": sorted(json.dumps(entry.to_dict()) for entry in entries),
        "histories": histories,
    }
    for entry in entries:
        for moment in (moments[0], *moments_of[entry.id], moments[-1]):
            for name in ("known_at", "as_of"):
                got = await memory.get(entry.id, **cast("dict[str, Any]", {name: moment}))
                found[f"{entry.id} {name} {moment}"] = None if got is None else got.to_dict()
    for at in (None, *moments):
        known: dict[str, Any] = {} if at is None else {"known_at": at}
        for scope in SCOPES:
            found[f"browse {scope} {at}"] = [
                e.to_dict() for e in await memory.retrieve(scope, limit=100, **known)
            ]
            if at in begun:
                continue
            hits = await memory.search("what does Ada drink, tea or water?", scope=scope, limit=20, **known)
            found[f"search {scope} {at}"] = sorted(
                (round(hit.score, 9), json.dumps(hit.entry.to_dict())) for hit in hits
            )
    found["relations"] = sorted([json.dumps(relation.to_dict()) async for relation in memory.relations.all()])
    return found


async def lines_of(memory: Memory) -> list[dict[str, Any]]:
    return [line async for line in memory.admin.export()]


def in_order(lines: Sequence[dict[str, Any]]) -> list[str]:
    """What is said, in whatever order tiers and stores tell it."""
    return sorted(json.dumps(line, sort_keys=True) for line in lines)


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {one.get(name)} / {other.get(name)}"
        for name in {*one, *other}
        if one.get(name) != other.get(name)
    ][:3]


@pytest.mark.thorough
@pytest.mark.parametrize("config", PLACES, indirect=True)
async def test_an_import_with_the_same_ids_answers_every_read_as_it_was_answered_before(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    ids = await lived_in(here)
    lines = await lines_of(here)
    formats = [line["format"] for line in lines]
    assert {name: formats.count(name) for name in set(formats)} == {
        "memory-entry/3": 13,
        "memory-version/2": 18,
        "memory-relation/1": 7,
    }

    report = await there.admin.import_(here.admin.export(), same_ids=True)
    assert (report.messages, report.imported, report.versions, report.relations, report.problems) == (
        13,
        13,
        18,
        7,
        [],
    )
    assert not differences(await answers(there), await answers(here))
    assert in_order(await lines_of(there)) == in_order(lines)
    assert (await there.admin.sweep()).stays == ()
    assert in_order(await lines_of(there)) == in_order(lines)

    # what comes later finds what it needs: keys, second lives, promotions, the chain of
    # versions
    same = await there.write(
        "Ada drinks tea",
        scope="user:ada",
        key="drink",
        tags=["fact"],
        metadata={"confidence": 0.9, "n": [1, {"a": None}]},
    )
    assert (same.id, same.content) == (ids["tea0"], "Ada drinks tea")
    with pytest.raises(Conflict):
        await there.write("Ada drinks wine", scope="user:ada", key="drink")
    assert (await there.promote(ids["tea1"], "user:ada", tags=["promoted"])).id == ids["promoted"]
    with pytest.raises(Conflict):
        await there.promote(ids["tea1"], "user:ada", tags=["otherwise"])
    await there.update(ids["again0"], content="Ada drinks juice")
    assert [v.content for v in await there.entries.history(ids["again0"])] == [
        "Ada drinks water",
        "Ada drinks sparkling water",
        "Ada drinks juice",
    ]


@pytest.mark.parametrize("config", [one_file], indirect=True)
@pytest.mark.parametrize(
    "sources",
    [
        1,
        "x",
        [1],
        [{}],
        [{"entry": 1, "version": 1, "scope": "user:ada", "generation": 0}],
        [{"session": "s1"}],
    ],
)
@pytest.mark.parametrize("same_ids", [True, False])
async def test_a_line_whose_sources_are_not_as_an_export_writes_them_is_refused(
    new: Maker, sources: object, same_ids: bool
) -> None:
    here = await new("here")
    await here.write("tea", scope="user:ada")
    [line] = await lines_of(here)
    with pytest.raises(BadLine, match="noted: is not in the form that an export writes"):
        await here.admin.import_([{**line, "noted": {"body": {"sources": sources}}}], same_ids=same_ids)


async def test_what_was_imported_with_its_versions_is_erased_with_them(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    ids = await lived_in(here)
    await there.admin.import_(here.admin.export(), same_ids=True)
    for entry_id in ids.values():
        await there.delete(entry_id)
    left = [row for store in engine_of(there).topology.homes for row in await kept_in(store)]
    assert left == []
    assert await lines_of(there) == []


async def kept_in(store: Any) -> list[Record]:
    return [
        row
        for row in (await store.query(Query(ENTRY_VERSIONS, Everywhere(), limit=1000))).records
        if isinstance(row, Record)
    ]


@pytest.mark.parametrize("same_ids", [True, False])
async def test_an_import_that_is_cut_off_anywhere_can_be_repeated(
    new: Maker, monkeypatch: pytest.MonkeyPatch, same_ids: bool
) -> None:
    monkeypatch.setattr(importer, "BATCH", 4)
    here, there, whole = await new("here"), await new("there"), await new("whole")
    await lived_in(here)
    lines = await lines_of(here)
    reports = []

    class Cut(Exception):
        pass

    for most in (1, 2, 3, 4, 5, 6, 7, 8, 100):
        times = iter(range(most))

        def told(done: int, total: int, times: Any = times) -> None:
            assert 0 < done <= total == len(lines)
            if next(times, None) is None:
                raise Cut

        try:
            reports.append(await there.admin.import_(lines, same_ids=same_ids, progress=told))
        except Cut:
            continue
    await whole.admin.import_(lines, same_ids=same_ids)
    assert len(reports) == 1
    own = {"updated_at", "version", "noted"}
    told_of = [
        [line if same_ids else {k: v for k, v in line.items() if k not in own} for line in await lines_of(m)]
        for m in (there, whole)
    ]
    assert in_order(told_of[0]) == in_order(told_of[1])
    again = await there.admin.import_(lines, same_ids=same_ids)
    assert (again.imported, again.already_there, again.versions, again.relations, again.refused_lines) == (
        0,
        13,
        0,
        0,
        [],
    )
    assert (in_order(await lines_of(there)) == in_order(lines)) is same_ids


async def test_without_the_flag_ids_are_new_and_versions_are_left_out(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    ids = await lived_in(here)
    report = await there.admin.import_(here.admin.export())
    assert (report.imported, report.versions, report.versions_left_out, report.relations) == (13, 0, 18, 7)
    entries = [entry async for entry in there.entries.iterate(include_retired=True)]
    keyed = {entry.id for entry in entries if entry.key is not None}  # the key names them in both
    assert {entry.id for entry in entries} & set(ids.values()) == keyed
    assert [len(await there.entries.history(entry.id)) for entry in entries] == [1] * 13
    made = {entry.promoted_from_id for entry in entries} | {
        source for entry in entries for source in entry.compacted_from_ids or ()
    }
    assert made - {None} <= {entry.id for entry in entries}


async def test_an_entry_edited_or_deleted_since_an_import_stays_so(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    ids = await lived_in(here)
    lines = await lines_of(here)
    await there.admin.import_(lines, same_ids=True)
    await there.update(ids["tea0"], content="Ada drinks wine")
    await there.delete(ids["again0"])
    before = await lines_of(there)
    report = await there.admin.import_(lines, same_ids=True)
    assert (
        report.imported,
        report.already_there,
        report.deleted_earlier,
        report.versions,
        report.refused_lines,
    ) == (0, 12, 1, 0, [])
    assert in_order(await lines_of(there)) == in_order(before)
    assert await there.get(ids["again0"]) is None


async def test_a_version_that_comes_while_its_entry_is_deleted_goes_with_it(
    new: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = await new("here"), await new("there")
    entry = await here.write("secret", scope="user:ada")
    for content in ("another secret", "other"):  # a deletion knows of the last version only
        await here.update(entry.id, content=content)
    placement = engine_of(there).placement
    write = placement.write

    async def deleted_before(name: str, *args: Any, **kwargs: Any) -> list[Outcome]:
        if name == "version.keep":
            assert await there.delete(entry.id)
        return await write(name, *args, **kwargs)

    monkeypatch.setattr(placement, "write", deleted_before)
    report = await there.admin.import_(here.admin.export(), same_ids=True)
    assert (report.imported, report.versions) == (1, 0)
    assert [row for store in engine_of(there).topology.homes for row in await kept_in(store)] == []


async def test_a_line_whose_id_is_taken_is_refused_with_what_hangs_on_it_and_nothing_else_is(
    new: Maker,
) -> None:
    here, there = await new("here"), await new("there")
    await there.write("Ada drinks wine", scope="user:ada", key="drink")
    ids = await lived_in(here)
    lines = await lines_of(here)
    own = [
        number
        for number, line in enumerate(lines, start=1)
        if ids["tea0"] in (line.get("id"), line.get("source_id"), line.get("target_id"))
    ]
    before = await there.get(ids["tea0"])
    report = await there.admin.import_(lines, same_ids=True, name="all.jsonl")
    assert report.refused_lines == own
    assert report.problems[0] == f"all.jsonl line {own[0]}: id: another record uses it here"
    assert (report.imported, report.versions, report.relations) == (12, 15, 4)
    assert await there.get(ids["tea0"]) == before
    taken = [
        line
        for line in lines
        if ids["tea0"] not in (line.get("id"), line.get("source_id"), line.get("target_id"))
    ]
    assert in_order(taken) == in_order(
        [line for line in await lines_of(there) if line.get("id") != ids["tea0"]]
    )


async def test_a_kept_version_under_another_s_number_is_refused(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    entry = await here.write("first", scope="user:ada")
    await here.update(entry.id, content="second")
    lines = await lines_of(here)
    await there.admin.import_(lines, same_ids=True)
    for changes, problem in (
        ({"content": "forged"}, "version: another version with this number is stored here"),
        (
            {"replaced_version": version_text(int(lines[0]["version"], 16) + 1)},
            "replaced_version: is later than the version of the entry",
        ),
        ({"noted": {"body": {"life": 7}}}, "belongs to another entry"),
    ):
        report = await there.admin.import_([lines[0], lines[1] | changes], same_ids=True)
        assert report.refused_lines == [2], problem
        assert problem in report.problems[0]
    assert in_order(await lines_of(there)) == in_order(lines)


async def test_an_id_of_another_tenant_or_scope_is_refused_and_the_rest_imported(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    ada, bob = await here.write("Ada's", scope="user:ada"), await here.write("Bob's", scope="user:bob")
    await here.update(bob.id, content="Bob's own")
    await here.relations.relate(ada.id, "supports", bob.id)
    lines = await lines_of(here)
    moved = [line | {"scope": "user:eve"} if line.get("id") == bob.id else line for line in lines]
    report = await there.admin.import_([*moved, lines[0] | {"id": "mine"}], same_ids=True)
    assert (report.imported, report.refused_lines) == (1, [2, 3, 5, 4])
    assert "line 2: id: belongs to another tenant or scope" in report.problems[0]
    assert "line 5: id: was not assigned by a store" in report.problems[2]
    assert f"line 4: id: belongs to {bob.id}, which was refused" in report.problems[3]
    assert [entry.id async for entry in there.entries.iterate()] == [ada.id]
    foreign = await there.for_tenant("globex").admin.import_(lines, same_ids=True)
    assert (foreign.imported, len(foreign.refused_lines)) == (0, 4)


async def test_an_export_from_before_versions_were_exported_is_imported_either_way(new: Maker) -> None:
    there, again, old = (
        await new("there"),
        await new("again"),
        [json.loads(line) for line in EARLIER.read_text().splitlines()],
    )
    report = await there.admin.import_(EARLIER, same_ids=True)
    assert (report.file, report.imported, report.versions, report.relations, report.problems) == (
        EARLIER.name,
        5,
        0,
        2,
        [],
    )
    assert in_order(await lines_of(there)) == in_order(
        [
            line | {"format": "memory-entry/3", "version": version_text(line["version"])}
            if line["format"] == "memory-entry/1"
            else line
            for line in old
        ]
    )
    report = await again.admin.import_(EARLIER)
    assert (report.imported, report.relations) == (5, 2)
    assert {entry.content async for entry in again.entries.iterate(include_retired=True)} == {
        line["content"] for line in old if "content" in line
    }


async def test_an_export_of_one_scope_is_its_entries_versions_and_relations(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    ids = await lived_in(here)
    report = await there.admin.import_(here.admin.export("session:s1"), same_ids=True)
    assert (report.imported, report.versions, report.relations) == (4, 6, 2)
    assert await there.entries.history(ids["tea1"]) == await here.entries.history(ids["tea1"])


# -- what is read ----------------------------------------------------------------------

TEXT = "the patient's diagnosis"
MANGLED: list[dict[str, Any]] = [
    {name: TEXT}
    for name in (
        "id",
        "scope",
        "type",
        "created_at",
        "updated_at",
        "expires_at",
        "version",
        "tier",
        "valid_from",
        "format",
        "noted",
        "tags",
    )
]
MANGLED += [
    {"metadata": {TEXT: float("nan")}},
    {"noted": {"body": {"content": TEXT}}},
    {"noted": {"previous": TEXT}},
    {"content": [TEXT]},
]
MANGLED += [
    {"tags": [TEXT * 10]},
    {"title": TEXT * 20},
    {"version": True},
    {"version": 2**63},
    {"created_at": None},
    {"updated_at": None},
    {"tier": 3},
]
MANGLED += [
    {"format": "memory-version/1", "replaced_version": TEXT},
    {"format": "memory-version/1", "replaced_version": 1},
    {"contributors": [TEXT]},
]
MANGLED += [{"compacted_from_ids": TEXT}, {"number_in_conversation": TEXT}]
NO_NOTES: list[Any] = [
    TEXT,
    {"auto_tag": TEXT},
    {"auto_tag": {}},
    {"auto_supersede": {"named": 3}},
    {"costs": [{TEXT: 1}]},
]
MANGLED += [{"noted": {"body": {"enrichment": said}}} for said in NO_NOTES]
MANGLED += [{"format": "memory-record/1", "kind": TEXT}, {"format": 7}, {"format": [TEXT]}]


@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_a_bad_line_is_told_by_its_number_without_anything_it_says(new: Maker) -> None:
    memory, now = await new("here"), micros(datetime(2026, 1, 31, tzinfo=UTC))
    at = {
        "created_at": "2026-01-31T09:30:00Z",
        "updated_at": "2026-01-31T09:30:00Z",
        "version": now,
        "tier": "mid",
    }
    entry_id = new_id(memory.tenant, "user:ada", now)
    good = {"format": "memory-entry/2", "id": entry_id, "scope": "user:ada", "content": TEXT, **at}
    for changes in MANGLED:
        line = {name: value for name, value in (good | changes).items() if value is not None}
        report = await memory.admin.import_([line, good | {"content": "fine"}], same_ids=True, skip_bad=True)
        assert len(report.problems) == 1, changes
        assert (report.skipped_lines or report.refused_lines) == [1], changes
        assert report.problems[0].startswith("import line 1: "), changes
        assert TEXT not in report.problems[0], changes
        assert "diagnosis" not in report.problems[0], changes
        if report.skipped_lines:
            with pytest.raises(BadLine) as bad:
                await memory.admin.import_([line], same_ids=True)
            assert bad.value.line == 1
            assert "diagnosis" not in str(bad.value)
    assert [entry.content async for entry in memory.entries.iterate()] == ["fine"]


@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_a_version_above_its_entry_or_a_relation_to_nobody_is_a_bad_line(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    one, two = await here.write("first", scope="user:ada"), await here.write("other", scope="user:ada")
    await here.update(one.id, content="second")
    await here.relations.relate(one.id, "supports", two.id)
    entry, version, other, relation = await lines_of(here)
    with pytest.raises(BadLine) as bad:
        await there.admin.import_([version, entry, other, relation], same_ids=True)
    assert (bad.value.line, "which is not above it" in str(bad.value)) == (1, True)
    with pytest.raises(BadLine) as bad:
        await there.admin.import_([relation, entry])
    assert (bad.value.line, f"links entry {two.id}, which is not in this file" in str(bad.value)) == (1, True)
    report = await there.admin.import_([relation, version, entry, other], same_ids=True, skip_bad=True)
    assert (report.imported, report.versions, report.relations, report.skipped_lines) == (2, 0, 1, [2])


def _set(line: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    """A copy of the line with something else at a path."""
    copy: Any = json.loads(json.dumps(line))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return copy  # type: ignore[no-any-return]


FUTURE = "2999-01-01T00:00:00Z"
BEYOND = 2**70
REFUSED_BY_WRITES: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "a message of the future": ("said", lambda line: line | {"time": FUTURE}),
    "a source that no store takes": (
        "made",
        lambda line: _set(line, "noted", "body", "sources", 0, "version", to=BEYOND),
    ),
    "a contributor that no store takes": (
        "made",
        lambda line: _set(line, "contributors", 0, "source", to=BEYOND),
    ),
    "a session with a number beyond 64 bits": (
        "sessions",
        lambda line: _set(line, "fields", "message_count", to=BEYOND),
    ),
    "a session with texts that are none": ("sessions", lambda line: line | {"texts": ["x"]}),
    "a session with a list for a body": ("sessions", lambda line: _set(line, "body", "title", to=[BEYOND])),
    "an id that is none": ("messages", lambda line: line | {"id": ["x"]}),
    "an event with texts that are none": ("messages", lambda line: line | {"texts": "x"}),
    "a large text of a message at no place": (
        "large",
        lambda line: _set(line, "body", "artifacts", 0, 0, to=["nowhere"]),
    ),
    "a value that is no JSON": ("said", lambda line: line | {"metadata": {"conn": {1, 2}}}),
}


@pytest.mark.behaviour("D11", "D32")
@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_a_line_that_a_write_would_refuse_is_found_before_anything_is_written(
    new: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "BATCH", 1)
    here = await new("here")
    one, two = (
        await here.write("first", scope="user:ada", source="chat"),
        await here.write("other", scope="user:ada"),
    )
    made = await here.compact([one.id, two.id], lambda _: "both")
    await here.session("s1", user="ada").append(
        [{"role": "user", "content": "hello"}, {"role": "user", "content": "large " * 20_000}]
    )
    lines = [*await lines_of(here), {"role": "user", "content": "said", "id": "m1"}]

    def called(line: dict[str, Any]) -> str:
        if "role" in line:
            return "said"
        if line["format"].startswith("memory-record/"):
            return "large" if line["body"].get("artifacts") else str(line["kind"])
        return "made" if line.get("id") == made.id else "entry" if line.get("id") == one.id else ""

    for number, (label, (which, changed)) in enumerate(REFUSED_BY_WRITES.items()):
        at = next(position for position, line in enumerate(lines) if called(line) == which)
        bad = [*lines[:at], changed(lines[at]), *lines[at + 1 :]]
        for same_ids in (False, True)[: 1 + (which in ("entry", "made"))]:
            there = await new(f"there{number}{same_ids}")
            with pytest.raises(BadFile, match=f"line {at + 1}: "):
                await there.admin.import_(bad, same_ids=same_ids, messages_to="user:bob")
            assert await lines_of(there) == [], label
            report = await there.admin.import_(bad, same_ids=same_ids, messages_to="user:bob", skip_bad=True)
            assert at + 1 in report.skipped_lines, label
            assert (report.refused_lines, report.imported) == (
                [],
                4 - (which in ("said", "entry", "made")),
            ), label


@pytest.mark.behaviour("D11")
@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_lines_may_hold_values_of_python(new: Maker) -> None:
    memory, at = await new("here"), datetime(2025, 3, 1, 12, tzinfo=UTC)
    session = memory.session("ada/1", user="ada")
    await session.append(
        [{"role": "user", "content": "hello", "at": at}, {"role": "assistant", "content": "so"}]
    )
    said = (await session.context()).messages
    mapping = {
        "role": "user",
        "content": "by hand",
        "time": at,
        "id": "m1",
        "price": Decimal("9.90"),
        "metadata": {"on": at.date()},
    }
    for number, given in enumerate(
        ([one.model_dump() for one in said], [one.model_dump(mode="json") for one in said], said)
    ):
        await memory.admin.import_(given, scope=f"user:u{number}")
        found = await memory.retrieve(f"user:u{number}", order="oldest")
        assert [(entry.content, entry.metadata) for entry in found] == [
            ("hello", {"role": "user"}),
            ("so", {"role": "assistant"}),
        ]
        assert found[0].created_at == at
    await memory.admin.import_([mapping], scope="user:ada")
    (entry,) = await memory.retrieve("user:ada")
    assert (entry.created_at, entry.metadata) == (at, {"role": "user", "price": "9.90", "on": "2025-03-01"})
    with pytest.raises(BadLine, match="line 1: time: has no time zone"):
        await memory.admin.import_([mapping | {"time": datetime(2025, 3, 1)}], scope="user:ada")
    with pytest.raises(BadLine, match="line 2: conn: has the type set; use JSON values"):
        await memory.admin.import_([mapping, mapping | {"conn": {1}}], scope="user:ada")
    with pytest.raises(BadLine, match=r"role: is missing\. To import an entry, keep its line"):
        await memory.admin.import_([entry], scope="user:ada")
    for of_mem0 in ({"id": "1", "memory": "tea", "user_id": "ada"}, {"results": [{"memory": "tea"}]}):
        with pytest.raises(BadLine, match=r"role: is missing\. Import a file of mem0 by its messages: jq"):
            await memory.admin.import_([of_mem0], scope="user:ada")
    with pytest.raises(InvalidInput, match=r"source: yields a list\. Each line must be text"):
        await memory.admin.import_([[mapping]], scope="user:ada")


@pytest.mark.behaviour("A5")
@pytest.mark.parametrize("config", [one_file], indirect=True)
@pytest.mark.parametrize("field", ["session_id", "conversation_id"])
async def test_ids_of_messages_are_those_of_the_conversation_that_they_name(new: Maker, field: str) -> None:
    memory, at = await new("here"), "2025-01-01T00:00:00Z"
    chats = {
        name: [
            {"id": str(n), "role": "user", "content": text, field: name, "time": at}
            for n, text in enumerate(("ok", f"I live in {name}"))
        ]
        for name in ("Porto", "Faro", "1:Porto", "x" * 500)
    }
    for every in range(2):
        report = await memory.admin.import_(
            [line for chat in chats.values() for line in chat], scope="user:one file"
        )
        assert (report.imported, report.already_there) == ((8, 0), (0, 8))[every]
        for chat in chats.values():
            report = await memory.admin.import_(chat, scope="user:each")
            assert (report.imported, report.already_there) == ((2, 0), (0, 2))[every]
    for scope in ("user:one file", "user:each"):
        found = await memory.retrieve(scope)
        assert sorted((entry.content, entry.conversation_id) for entry in found) == sorted(
            (text, name) for name in chats for text in ("ok", f"I live in {name}")
        )
    other = chats["Porto"][0] | {"content": "another"}
    with pytest.raises(BadLine, match="line 2: id: '0' is already used on line 1 for other content"):
        await memory.admin.import_([chats["Porto"][0], other], scope="user:new")
    with pytest.raises(Conflict, match=r"line 2: .* it was stored earlier with another text"):
        await memory.admin.import_([chats["Faro"][0], other], scope="user:each")
    report = await memory.admin.import_(
        [other, chats["Porto"][1] | {"id": "2"}], scope="user:each", skip_bad=True
    )
    assert (report.imported, report.refused_lines) == (1, [1])


@pytest.mark.backend("sqlite")
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("by", ["quota", "key"])
async def test_an_import_that_another_writer_stops_says_how_far_it_came_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, gate: bool
) -> None:
    monkeypatch.setattr(importer, "BATCH", 20)
    quota = {"name": "personal", "scope_kinds": ["user"], "entries": 45, "then": "refuse"}
    chat = [{"role": "user", "content": f"text {n}", "id": f"m{n}"} for n in range(45)]

    def other_writer() -> None:
        with BlockingMemory(f"sqlite:///{tmp_path / 'm.db'}") as other:
            if by == "quota":
                other.write_many([{"content": f"other {n}", "scope": "user:ada"} for n in range(11)])
            else:
                other.admin.import_([{**chat[33], "content": "another"}], name="import", scope="user:ada")

    def told(done: int, total: int) -> None:
        if (done, total) == (20, 45):
            thread = Thread(target=other_writer)
            thread.start()
            thread.join()

    def let_in(draft: EntryDraft, _: Provenance) -> bool | str:
        return draft.content != "text 25" or "not this"

    async with Memory(
        f"sqlite:///{tmp_path / 'm.db'}", quotas=[quota], write_gate=let_in if gate else None
    ) as memory:
        with pytest.raises((QuotaExceeded, Conflict)) as error:
            await memory.admin.import_(chat, scope="user:ada", progress=told)
        here = [
            one.content async for one in memory.entries.iterate("user:ada") if one.content.startswith("text")
        ]
        said = re.search(
            r"(\d+) of 45 lines of 'import' are imported; the rest begins at line (\d+)", str(error.value)
        )
        assert said, str(error.value)
        lines, first = map(int, said.groups())
        refused = int(gate and lines > 25)
        assert lines == len(here) + refused
        assert f"text {first - 1}" not in here
        assert {f"text {n}" for n in range(first - 1)} - set(here) <= {"text 25"}
        for one in [
            one async for one in memory.entries.iterate("user:ada") if not one.content.startswith("text")
        ]:
            await memory.delete(one.id)
        report = await memory.admin.import_(chat, scope="user:ada")
        assert (report.imported + report.deleted_earlier, report.already_there) == (
            45 - lines - (gate and lines <= 25),
            len(here),
        )


@pytest.mark.behaviour("D21", "D32")
@pytest.mark.parametrize("config", [one_file], indirect=True)
@pytest.mark.parametrize("same_ids", [False, True])
async def test_an_import_keeps_moments_that_lie_ahead_and_what_has_them_is_like_any_entry(
    new: Maker, same_ids: bool
) -> None:
    days = timedelta(days=10)
    here = await new("here", clock=lambda: datetime.now(UTC) + days)
    there = await new("there", clock=lambda: datetime.now(UTC))
    first = await here.write("a lamp", scope="user:ada", expires_at=timedelta(days=30))
    await here.update(first.id, content="a brass lamp")
    other, third = [await here.write(text, scope="user:ada") for text in ("an oil lamp", "a lantern")]
    await here.relations.relate(other.id, "supports", third.id)
    await here.session("s", user="ada").append({"role": "user", "content": "lights"})
    lines = await lines_of(here)

    for imported in (3, 0):
        report = await there.admin.import_(lines, same_ids=same_ids)
        assert (report.imported, report.skipped_lines, report.refused_lines) == (imported, [], [])
        assert report.ahead >= 4
        assert report.ahead_until is not None
        assert report.ahead_until > datetime.now(UTC) + days - timedelta(hours=1)
    assert "ahead of this machine's clock, up to" in transfer_summary(report)

    now = datetime.now(UTC)
    for page in (
        await there.retrieve("user:ada", order="oldest"),
        await there.retrieve("user:ada", order="oldest", as_of=now),
        (await there.browse("user:ada"))[::-1],
    ):
        assert [one.content for one in page] == ["a brass lamp", "an oil lamp", "a lantern"]
    pages, cursor = [], None
    while True:
        page = await there.browse("user:ada", limit=1, cursor=cursor)
        pages += [one.content for one in page]
        if (cursor := page.cursor) is None:
            break
    assert pages == ["a lantern", "an oil lamp", "a brass lamp"]
    hits = await there.search("lamp", scope="user:ada", mode="lexical")
    assert {hit.content for hit in hits} == {"a brass lamp", "an oil lamp"}
    one, two, three = await there.retrieve("user:ada", order="oldest")
    assert one.created_at > now + days - timedelta(hours=1)
    if same_ids:
        assert (one.id, one.created_at) == (first.id, first.created_at)
        assert [old.content for old in await there.entries.history(one.id)] == ["a lamp", "a brass lamp"]

    changed = await there.update(one.id, content="a tin lamp")
    assert (await there.update(one.id, tags=["t"], expected_version=changed.version)).tags == ["t"]
    newer = await there.write("a lamp of glass", scope="user:ada", supersedes=two.id)
    assert await there.entries.invalidate(three.id)
    assert [one.content for one in await there.retrieve("user:ada")] == ["a tin lamp", "a lamp of glass"]
    await there.session("s").append({"role": "user", "content": "more"})
    assert [said.text for said in (await there.session("s").window()).messages] == ["lights", "more"]
    await there.admin.sweep()
    assert await there.delete(one.id, request_id="r1")
    assert await there.admin.erase("user:ada") >= 2
    assert [found async for found in there.entries.iterate(include_retired=True)] == []
    assert (await there.get(newer.id)) is None


@pytest.mark.behaviour("D21")
@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_a_message_of_another_system_that_lies_ahead_is_refused(new: Maker) -> None:
    memory = await new("here")
    ahead = {"role": "user", "content": "hi", "time": "2999-01-01T00:00:00Z"}
    with pytest.raises(BadLine, match="line 1: created_at: lies in the future"):
        await memory.admin.import_([ahead], scope="user:ada")


@pytest.mark.behaviour("D11", "D37", "D46")
@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_a_relation_of_an_entry_to_itself_is_a_bad_line_before_anything_is_written(new: Maker) -> None:
    here, there = await new("here"), await new("there")
    one, two = await here.write("first", scope="user:ada"), await here.write("other", scope="user:ada")
    await here.relations.relate(one.id, "supports", two.id)
    entry, other, relation = await lines_of(here)
    bad = [entry, other, relation | {"target_id": one.id}]
    with pytest.raises(BadLine, match="self-loops") as refused:
        await there.admin.import_(bad)
    assert refused.value.line == 3
    assert [found async for found in there.entries.iterate()] == []
    report = await there.admin.import_(bad, skip_bad=True)
    assert (report.imported, report.relations, report.skipped_lines) == (2, 0, [3])


@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_what_can_be_imported_is_a_path_a_file_or_lines_in_any_form(new: Maker, tmp_path: Path) -> None:
    here = await new("here")
    await here.write("héllo\nthere", scope="user:ada")
    line = (await lines_of(here))[0]
    text = json.dumps(line, ensure_ascii=False)
    file = tmp_path / "all.jsonl"
    file.write_text(text)

    async def slowly() -> AsyncIterator[str]:
        yield text

    with file.open("rb") as binary, file.open(encoding="utf-8") as lines:
        sources: list[Any] = [
            file,
            str(file),
            binary,
            lines,
            [line],
            [text],
            [text.encode()],
            iter([text + "\n"]),
            slowly(),
            io.BytesIO(text.encode()),
        ]
        for number, source in enumerate(sources):
            report = await here.for_tenant(f"t{number}").admin.import_(source)
            assert (report.imported, report.file) == (1, "all.jsonl" if number < 2 else "import"), source
    for wrong in (7, b"x", {"a": 1}, [7], None):
        with pytest.raises(InvalidInput, match="source"):
            await here.admin.import_(wrong)
    for refused in ({"scope": "user:ada"}, {"revive": True}):
        with pytest.raises(InvalidInput, match="cannot be combined with same_ids"):
            await here.admin.import_([line], same_ids=True, **refused)


@pytest.mark.thorough
async def test_what_is_read_once_goes_through_a_file_and_only_ids_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "IN_MEMORY", 1_000)
    held: list[int] = []

    def look(done: int, total: int) -> None:
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])

    async def lines() -> AsyncIterator[dict[str, Any]]:
        for number in range(1_200):
            yield {"role": "user", "content": f"{number} " + "x" * 10_000, "id": str(number)}

    async with Memory(
        {"tiers": one_file(tmp_path)["tiers"], "embedder": "none", "durations": {"sweep_every": "0s"}}
    ) as memory:
        tracemalloc.start()
        try:
            report = await memory.admin.import_(lines(), messages_to="session:s1", progress=look)
            count = 0
            async for _ in memory.admin.export():
                count += 1
                if count % 250 == 100:
                    look(count, 0)
        finally:
            tracemalloc.stop()
    assert (report.imported, count) == (1_200, 1_200)
    # Mostly 7 MB. In a worker that has run many tests some chunks of 4 MB stay for longer: 18 MB were seen.
    assert max(held) < 22_000_000, f"{held} bytes; each line is held twice where it is held, as 24 MB"


def test_the_blocking_twin_imports_what_its_kind_exports(tmp_path: Path) -> None:
    with (
        BlockingMemory(f"sqlite:///{tmp_path}/a.db", embedder="none") as here,
        BlockingMemory(f"sqlite:///{tmp_path}/b.db", embedder="none") as there,
    ):
        entry = here.write("first", scope="user:ada")
        here.update(entry.id, content="second")
        report = there.admin.import_(here.admin.export(), same_ids=True)
        assert isinstance(report, ImportReport)
        assert [version.content for version in there.entries.history(entry.id)] == ["first", "second"]
        copy = here.for_tenant("copy").admin.import_(here.admin.export())  # both on one thread
        assert copy.imported == 1


@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_what_stands_damaged_under_an_id_is_refused(new: Maker, tmp_path: Path) -> None:
    import sqlite3

    here, there = await new("here"), await new("there")
    entry = await here.write("text", scope="user:ada")
    lines = await lines_of(here)
    await there.admin.import_(lines, same_ids=True)
    with sqlite3.connect(tmp_path / "there" / "one.db") as raw:
        assert (
            raw.execute("UPDATE entries SET text_content = replace(text_content, 'text', 'tezt')").rowcount
            == 1
        )
    raw.close()
    report = await there.admin.import_(lines, same_ids=True)
    assert report.refused_lines == [1]
    assert "is damaged" in report.problems[0]
    assert (await engine_of(there).placement.locate_many(ENTRIES, [Key(there.tenant, entry.id)]))[
        0
    ].corrupt is not None


@pytest.mark.parametrize("same_ids", [True, False])
@pytest.mark.behaviour("D6")
async def test_an_import_points_to_no_artifact_that_is_not_here_and_says_so(
    tmp_path: Path, same_ids: bool
) -> None:
    async with (
        Memory(**one_file(tmp_path), embedder="none") as here,
        Memory("memory://", embedder="none") as there,
    ):
        await here.sessions.create("s1")
        gone, stays = [await here.artifacts.put("s1", path, b"data") for path in ("gone", "stays")]
        for artifact in (gone, stays):
            entry = await here.write(f"see {artifact.path}", scope="user:ada", artifact_id=artifact.id)
            await here.update(entry.id, tags=["read"])
        lines = [line for line in await lines_of(here) if not line["format"].startswith("memory-artifact")]
        for already_there in (0, 2):  # what was left out makes no other request of it
            report = await there.admin.import_(lines, same_ids=same_ids)
            assert (report.already_there, report.imported, bool(report.unlinked_lines)) == (
                already_there,
                2 - already_there,
                True,
            )
        assert [entry.artifact_id for entry in await there.retrieve("user:ada")] == [None, None]
        await here.admin.import_(lines, same_ids=same_ids)
        for line in lines:
            if line["format"] == "memory-entry/3":
                await here.update(line["id"], tags=["read again"])
        await here.artifacts.delete(gone.id)
        report = await here.admin.import_(lines, same_ids=same_ids)
        assert (report.refused_lines, bool(report.unlinked_lines)) == ([], True), (
            "what stands let go of its artifact too, and is the same"
        )
        pointing = {entry.content: entry.artifact_id for entry in await here.retrieve("user:ada")}
        assert pointing == {"see gone": None, "see stays": stays.id}


async def test_an_import_leaves_out_the_number_of_another_store() -> None:
    async with Memory("memory://", embedder="none") as memory:
        entry = await memory.write("Ada drinks tea", scope="user:ada")
        (line,) = await lines_of(memory)
        assert (await memory.admin.import_([line | {"id": "another", "number": 42}])).imported == 1
        assert sorted(
            (
                await memory.short_ids.of([entry.id, *[one.id for one in await memory.retrieve("user:ada")]])
            ).values()
        ) == [1, 2]


@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_a_key_that_a_line_repeats_is_named_and_no_value_is_lost_in_silence(
    new: Maker, tmp_path: Path
) -> None:
    here, there = await new("here"), await new("there")
    await here.write("a lamp", scope="user:ada", metadata={"n": 1})
    (entry,) = await lines_of(here)
    good = json.dumps({"role": "user", "content": "hello"})
    for line, key in (
        (json.dumps(entry)[:-1] + ', "content": "two lamps"}', "content"),
        (json.dumps(entry).replace('{"n": 1}', '{"n": 1, "n": 2}'), "n"),
        ('{"role": "user", "content": "hi", "content": "bye"}', "content"),
    ):
        assert line.count(f'"{key}"') > 1
        for text in (f"{good}\n{line}\n", f"[{good},\n{line}]"):
            file = tmp_path / "lines.jsonl"
            file.write_text(text)
            with pytest.raises(BadLine, match=f"line 2: the key '{key}' occurs more than once"):
                await there.admin.import_(file, messages_to="user:ada")
            report = await there.admin.import_(file, messages_to="user:ada", skip_bad=True)
            assert report.skipped_lines == [2]
    assert [one.content for one in await there.retrieve("user:ada")] == ["hello"]


@pytest.mark.parametrize("config", [one_file], indirect=True)
async def test_a_refused_file_counts_all_of_its_bad_lines(new: Maker) -> None:
    memory = await new("here")
    with pytest.raises(BadFile, match=r"line 1: .*; 1,500 more bad lines; nothing was imported") as refused:
        await memory.admin.import_(["{"] * 1_501)
    assert len(refused.value.problems) == 1_000
