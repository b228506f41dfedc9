"""Artifacts in exports and imports: they come along whole, what points to them follows,
and of what is damaged nothing stands. On every topology.
"""

from __future__ import annotations

import json
import random
import tracemalloc
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from memory import InvalidInput, Memory, QuotaExceeded
from memory.facade.runtime.access import engine_of
from memory.facade.transfer import artifact_lines
from memory.facade.transfer.artifact_lines import ARTIFACT_FORMAT, CHUNK_FORMAT
from memory.facade.transfer.importer import BadFile
from memory.orchestrator.conversations.blobs import manifests
from memory.ports.contract.cells import cells
from tests.acceptance.support import HOUR, USER, Clock
from tests.support.depth import seeds
from tests.support.reserved import assert_reserved

PLACED = {
    "tiers": dict.fromkeys(("short", "mid", "long"), "memory://"),
    "embedder": "none",
    "durations": {"sweep_every": "0s"},
}
Lines = list[dict[str, Any]]


@pytest.fixture
async def other(clock: Clock) -> AsyncIterator[Memory]:
    """An empty memory of its own, of the same tenant."""
    async with Memory(PLACED, clock=clock) as opened:
        yield opened


async def exported(memory: Memory, scope: str | None = None) -> Lines:
    return [line async for line in memory.admin.export(scope)]


async def files(memory: Memory) -> dict[tuple[str, str], tuple[str, bytes]]:
    """What stands under each path of each session."""
    found = dict[tuple[str, str], tuple[str, bytes]]()
    for info in (await memory.sessions.list()).sessions:
        for one in (await memory.artifacts.list(info.id, limit=100)).artifacts:
            found[one.session_id, one.path] = one.media_type, await memory.artifacts.read(one.id)
    return found


async def pointing(memory: Memory) -> dict[str, tuple[str, str] | None]:
    """To what each entry points, by its content; that must be there."""
    found = dict[str, tuple[str, str] | None]()
    async for entry in memory.entries.iterate(include_retired=True):
        there = None if entry.artifact_id is None else await memory.artifacts.get(entry.artifact_id)
        assert (entry.artifact_id is None) == (there is None), "an entry points to nothing"
        found[entry.content] = None if there is None else (there.session_id, there.path)
    return found


async def lived_in(memory: Memory, data: bytes = b"# Findings" * 9) -> None:
    await memory.sessions.create("s1")
    await memory.sessions.create("s/2")
    report = await memory.artifacts.put("s1", "out/żółć.md", data, media_type="text/markdown")
    empty = await memory.artifacts.put("s/2", "empty", b"")
    await memory.write("findings", scope=USER, artifact_id=report.id)
    await memory.entries.invalidate((await memory.write("former", scope=USER, artifact_id=report.id)).id)
    edited = await memory.write("nothing yet", scope="session:s1", artifact_id=report.id)
    await memory.update(edited.id, content="nothing", artifact_id=empty.id)
    await memory.write("none", scope=USER)


def of(lines: Lines, form: str) -> list[int]:
    return [at for at, line in enumerate(lines) if line["format"] == form]


@pytest.fixture
def in_tens() -> Any:
    """Chunks of ten bytes."""
    with (
        patch.object(manifests, "CHUNK_BYTES", 10),
        patch.object(manifests, "PORTION", 2),
        patch.object(artifact_lines, "CHUNK_BYTES", 10),
    ):
        yield


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize("same_ids", [True, False])
async def test_artifacts_come_along_and_what_points_to_them_follows(
    memory: Memory, other: Memory, same_ids: bool
) -> None:
    await lived_in(memory, bytes(range(256)) * 9_000)
    lines = await exported(memory)
    assert [len(b64decode(lines[at]["data"])) for at in of(lines, CHUNK_FORMAT)] == [
        2**20,
        2**20,
        256 * 9_000 - 2 * 2**20,
    ]
    report = await other.admin.import_(lines, same_ids=same_ids)
    assert (report.sessions, report.artifacts, report.imported, report.problems) == (2, 2, 4, [])
    assert await files(other) == await files(memory)
    assert await pointing(other) == await pointing(memory)
    old = {lines[at]["id"] for at in of(lines, ARTIFACT_FORMAT)}
    assert not old & {one.artifact_id async for one in other.entries.iterate(include_retired=True)}
    if same_ids:
        kept = [
            len(await other.entries.history(one.id))
            async for one in other.entries.iterate(include_retired=True)
        ]
        assert sorted(kept) == [1, 1, 2, 2]
    before = await exported(other)
    again = await other.admin.import_(lines, same_ids=same_ids)
    assert (again.artifacts, again.imported, again.already_there, again.problems) == (0, 0, 4, [])
    assert await exported(other) == before
    await assert_reserved(engine_of(other), other.tenant)
    async with other.for_tenant("another") as theirs:
        refused = await theirs.admin.import_(lines, same_ids=True)
        assert (refused.artifacts, await files(theirs)) == (0, {})
        report = await theirs.admin.import_(before)
        assert (report.artifacts, report.problems) == (2, [])
        assert (await files(theirs), await pointing(theirs)) == (await files(memory), await pointing(memory))


@pytest.mark.behaviour("D6")
@pytest.mark.parametrize("same_ids", [True, False])
async def test_an_import_puts_back_what_is_lacking_and_replaces_nothing(
    memory: Memory, other: Memory, same_ids: bool
) -> None:
    await lived_in(other)
    lines = await exported(other)
    await memory.admin.import_(lines, same_ids=same_ids)
    await memory.artifacts.delete(("s/2", "empty"))
    edited = await memory.artifacts.put("s1", "out/żółć.md", b"edited since")
    again = await memory.admin.import_(lines, same_ids=same_ids)
    assert (again.artifacts, again.imported, again.already_there, again.refused_lines) == (0, 0, 4, [])
    assert await files(memory) == {("s1", "out/żółć.md"): ("application/octet-stream", b"edited since")}
    assert (await memory.artifacts.get(("s1", "out/żółć.md"))) == edited
    assert (await pointing(memory))["nothing"] is None
    assert len(again.unlinked_lines) == 1
    assert "has no artifact" in again.problems[0]
    async with memory.for_tenant("another") as theirs:
        await theirs.admin.import_([line for line in lines if line.get("kind") == "sessions"])
        await theirs.artifacts.put("s1", "out/żółć.md", b"theirs")
        report = await theirs.admin.import_(lines)
        assert (report.artifacts, len(report.refused_lines), len(report.unlinked_lines)) == (1, 1, 2)
        assert "another artifact uses it here" in report.problems[0]
        assert await theirs.artifacts.read(("s1", "out/żółć.md")) == b"theirs"
        await theirs.sessions.delete("s1")
        report = await theirs.admin.import_(lines)
        assert (report.artifacts, set(await files(theirs))) == (0, {("s/2", "empty")})
        assert await pointing(theirs) == {"findings": None, "former": None, "none": None}, (
            "the session took its own along"
        )


async def test_an_entry_whose_artifact_does_not_come_along_points_to_none_and_is_named(
    plain: Memory, other: Memory
) -> None:
    await lived_in(other)
    lines = await exported(other, "user:u1")
    assert of(lines, ARTIFACT_FORMAT) == []
    report = await plain.admin.import_(lines)
    assert (report.imported, report.unlinked_lines, len(report.problems)) == (3, [1, 2], 2)
    assert "line 1: artifact_id" in report.problems[0]
    assert set((await pointing(plain)).values()) == {None}
    again = await plain.admin.import_(lines)
    assert (again.imported, again.already_there) == (0, 3)
    here = await other.admin.import_(lines)
    assert (here.imported, here.unlinked_lines) == (3, []), "where the artifact still stands it is pointed to"
    assert of(await exported(other, "session:s1"), ARTIFACT_FORMAT) == [1]
    assert (await plain.admin.import_(await exported(other))).unlinked_lines == []
    assert (await plain.admin.import_(await exported(other))).artifacts == 0


@pytest.mark.parametrize("same_ids", [True, False])
async def test_an_artifact_that_comes_later_changes_nothing_of_what_was_imported_without_it(
    plain: Memory, other: Memory, same_ids: bool
) -> None:
    await lived_in(other)
    lines = await exported(other)
    first = await plain.admin.import_(
        [line for line in lines if line["format"] not in (ARTIFACT_FORMAT, CHUNK_FORMAT)], same_ids=same_ids
    )
    assert (first.imported, first.artifacts, len(first.unlinked_lines)) == (4, 0, 5 if same_ids else 3)
    report = await plain.admin.import_(lines, same_ids=same_ids)
    assert (report.artifacts, report.imported, report.already_there, report.refused_lines) == (2, 0, 4, [])
    assert set((await pointing(plain)).values()) == {None}


async def test_of_a_session_that_has_expired_no_artifact_is_carried(plain: Memory, clock: Clock) -> None:
    await plain.sessions.create("brief", expires_at=HOUR)
    await plain.artifacts.put("brief", "a", b"a")
    assert len(of(await exported(plain), ARTIFACT_FORMAT)) == 1
    clock.advance(2 * HOUR)
    assert await exported(plain) == []


@pytest.mark.usefixtures("in_tens")
@pytest.mark.drawn
@pytest.mark.parametrize("seed", seeds(quick=3, nightly=6))
@pytest.mark.thorough
async def test_drawn_artifacts_come_back_and_of_a_damaged_one_nothing_stands(
    plain: Memory, other: Memory, seed: int
) -> None:
    """Sizes around those of chunks; then one line of the bytes is lost, doubled,
    swapped, changed or cut, and only its artifact is missing.
    """
    draw = random.Random(seed)  # noqa: S311
    for session in ("s1", "s2"):
        await other.sessions.create(session)
        for number in range(draw.randrange(1, 5)):
            size = max(draw.choice([0, 1, 10, 20, 30, 57]) + draw.choice([-1, 0, 1]), 0)
            one = await other.artifacts.put(session, f"d/{number}", draw.randbytes(size))
            await other.write(
                f"about {session} {number}", scope=draw.choice(["user:u1", "session:s1"]), artifact_id=one.id
            )
    await other.artifacts.put("s1", "long", draw.randbytes(41))
    lines, whole = await exported(other), await files(other)
    async with plain.for_tenant("whole") as there:
        assert (await there.admin.import_(lines)).artifacts == len(whole)
        assert (await files(there), await pointing(there)) == (whole, await pointing(other))
    for how in ("lost", "doubled", "swapped", "changed", "cut", "mangled", "first", "broken"):
        async with plain.for_tenant(how) as there:
            damaged, artifact_id = _damaged(lines, how, draw)
            (path,) = [(line["session_id"], line["path"]) for line in lines if line.get("id") == artifact_id]
            with pytest.raises(BadFile, match="nothing was imported"):
                await there.admin.import_(damaged)
            assert await files(there) == {}
            report = await there.admin.import_(damaged, skip_bad=True)
            assert await files(there) == {name: said for name, said in whole.items() if name != path}
            assert report.artifacts == len(whole) - 1
            said = " ".join(report.problems)
            assert how == "first" or artifact_id in said
            assert how != "swapped" or "must come next" in said, "the line where it breaks off is told"
            assert await pointing(there) == {
                text: None if at == path else at for text, at in (await pointing(other)).items()
            }
            await assert_reserved(engine_of(there), there.tenant)
            assert (await there.admin.import_(lines)).artifacts == 1
            assert await files(there) == whole


def _damaged(lines: Sequence[dict[str, Any]], how: str, draw: random.Random) -> tuple[Lines, str]:
    """The lines with one chunk damaged of the artifact that has several, and the id of
    that.
    """
    damaged = [dict(line) for line in lines]
    chunks = [
        at
        for at in of(damaged, CHUNK_FORMAT)
        if damaged[at]["artifact_id"] == damaged[at - 1].get("artifact_id")
    ]
    at = draw.choice(chunks)
    said, artifact_id = damaged[at], damaged[at]["artifact_id"]
    if how == "lost":
        del damaged[at]
    elif how == "doubled":
        damaged.insert(at - 1, dict(said))
    elif how == "swapped":
        damaged[at - 1], damaged[at] = said, damaged[at - 1]
    elif how == "changed":
        data = bytearray(b64decode(said["data"]))
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        said["data"] = b64encode(data).decode()
    elif how == "cut":
        said["data"] = b64encode(b64decode(said["data"])[:-1]).decode()
        if not said["data"]:
            del damaged[at]
    elif how == "mangled":
        said["data"] = "?"
    elif how == "first":
        del damaged[next(at for at, line in enumerate(damaged) if line.get("id") == artifact_id)]
    else:
        del said["data"]
        said["broken"] = "damaged"
    return damaged, artifact_id


@pytest.mark.usefixtures("in_tens")
async def test_what_is_replaced_or_deleted_while_it_is_written_out_is_carried_as_it_is_then(
    memory: Memory, other: Memory
) -> None:
    await memory.sessions.create("s1")
    gone = await memory.artifacts.put("s1", "a", b"x" * 50)
    one = await memory.artifacts.put("s1", "b", b"y" * 50)
    await memory.write("a", scope=USER, artifact_id=gone.id)
    await memory.write("b", scope=USER, artifact_id=one.id)
    lines: Lines = []
    async for line in memory.admin.export():
        lines.append(line)
        if line.get("number") == 0 and line["artifact_id"] == gone.id:
            await memory.artifacts.delete(gone.id)
        elif line.get("number") == 0 and one.size == 50:
            one = await memory.artifacts.put("s1", "b", b"z" * 35)
    assert [line["broken"] for line in lines if "broken" in line] == ["deleted", "replaced"]
    report = await other.admin.import_(lines)
    assert (report.artifacts, report.problems) == (1, [])
    assert await files(other) == {("s1", "b"): ("application/octet-stream", b"z" * 35)}
    assert await pointing(other) == {"a": None, "b": ("s1", "b")}


@pytest.mark.usefixtures("in_tens")
async def test_quotas_and_limits_hold_for_what_is_imported(other: Memory, clock: Clock) -> None:
    await lived_in(other)
    lines = await exported(other)
    async with Memory(
        PLACED, clock=clock, quotas=[{"name": "files", "per": "tenant", "artifact_bytes": 89}]
    ) as memory:
        with pytest.raises(QuotaExceeded):
            await memory.admin.import_(lines)
        assert await engine_of(memory).conversations.reservations.used_bytes(memory.tenant) == 0
    async with Memory(PLACED, clock=clock, artifacts={"max_bytes": 89}) as memory:
        report = await memory.admin.import_(lines)
        assert (report.artifacts, len(report.refused_lines), len(report.unlinked_lines)) == (1, 1, 2)
        assert set(await files(memory)) == {("s/2", "empty")}
        assert report.problems[0].endswith("store it elsewhere and its address here")


@pytest.fixture
async def archive(other: Memory) -> Lines:
    """What the other memory exports."""
    await lived_in(other)
    return await exported(other)


@pytest.mark.usefixtures("in_tens")
@cells(
    "form, changes, problem",
    [
        *(
            (ARTIFACT_FORMAT, {name: wrong}, name)
            for name, wrong in (("path", "../a"), ("media_type", "x"), ("size", -1), ("size", True))
        ),
        *(
            (ARTIFACT_FORMAT, {name: wrong}, name)
            for name, wrong in (("sha256", "x"), ("sha256", None), ("id", ""), ("session_id", None))
        ),
        (ARTIFACT_FORMAT, {"session_id": "s3"}, "is not above it"),
        (ARTIFACT_FORMAT, {"format": "memory-artifact/2"}, "this version reads"),
        *(
            (CHUNK_FORMAT, {name: wrong}, name)
            for name, wrong in (("number", "1"), ("number", -1), ("artifact_id", ""), ("broken", "otherwise"))
        ),
        *(
            (CHUNK_FORMAT, {"data": wrong}, "data")
            for wrong in (None, 7, "", "é", b64encode(b"x" * 11).decode())
        ),
        (CHUNK_FORMAT, {"artifact_id": "another"}, "is not above it"),
    ],
    shared=True,
)
async def test_a_line_that_is_none_of_an_artifact_is_refused_before_anything_is_written(
    plain: Memory, archive: Lines, form: str, changes: dict[str, Any], problem: str
) -> None:
    lines = archive.copy()
    lines[of(lines, form)[0]] = lines[of(lines, form)[0]] | changes
    with pytest.raises(InvalidInput, match="nothing was imported") as raised:
        await plain.admin.import_(lines)
    assert isinstance(raised.value, BadFile)
    assert any(problem in said for said in raised.value.problems)
    assert (await plain.sessions.list()).sessions == []


@pytest.mark.thorough
async def test_no_artifact_is_in_memory_as_a_whole(tmp_path: Path) -> None:
    size, most = 64 * 2**20, 32 * 2**20

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(size // 2**20):
            yield bytes([number]) * 2**20

    async with (
        Memory(f"sqlite:///{tmp_path}/a.db", embedder="none") as memory,
        Memory(f"sqlite:///{tmp_path}/b.db", embedder="none") as there,
    ):
        await memory.sessions.create("s1")
        await memory.artifacts.put("s1", "large", pieces())
        tracemalloc.start()
        try:
            with (tmp_path / "export").open("w") as file:
                async for line in memory.admin.export():
                    file.write(json.dumps(line) + "\n")
            assert tracemalloc.get_traced_memory()[1] < most
            report = await there.admin.import_(tmp_path / "export")
            assert (report.artifacts, report.problems) == (1, [])
            assert tracemalloc.get_traced_memory()[1] < most
        finally:
            tracemalloc.stop()


@pytest.mark.usefixtures("in_tens")
async def test_an_import_that_was_cut_off_is_repeated(plain: Memory, other: Memory) -> None:
    await lived_in(other)
    lines = await exported(other)
    put, calls = manifests.Manifests._put_chunks, 0

    async def failing(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("cut off")
        await put(*args)

    with patch.object(manifests.Manifests, "_put_chunks", failing), pytest.raises(OSError, match="cut off"):
        await plain.admin.import_(lines)
    assert ("s1", "out/żółć.md") not in await files(plain)
    told: list[tuple[int, int]] = []
    report = await plain.admin.import_(lines, progress=lambda done, total: told.append((done, total)))
    assert (await files(plain), report.problems) == (await files(other), [])
    assert told[-1] == (len(lines), len(lines))
    assert told == sorted(told)
    await assert_reserved(engine_of(plain), plain.tenant)
