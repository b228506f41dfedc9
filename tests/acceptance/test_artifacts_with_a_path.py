"""Artifacts with a path: put, read, listed, replaced, deleted, with their session too.
On every topology.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from memory import Conflict, InvalidInput, LegalHoldActive, NotFound, QuotaExceeded
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.conversations.blobs import manifests
from memory.orchestrator.storage.collections import ARTIFACTS, MANIFESTS
from memory.ports.contract.cells import cells
from memory.ports.query import Query, Tenant
from tests.acceptance.conftest import keeping_bytes
from tests.acceptance.support import USER, watching

config = keeping_bytes()


async def chunks(memory: Memory) -> int:
    """How many chunks and manifests stand."""
    archive = engine_of(memory).topology.archive
    return sum(
        [
            len((await archive.query(Query(kind, Tenant(memory.tenant)))).records)
            for kind in (ARTIFACTS, MANIFESTS)
        ]
    )


@pytest.mark.behaviour("D6")
async def test_an_artifact_is_put_read_replaced_and_deleted(memory: Memory) -> None:
    await memory.sessions.create("s1")
    first = await memory.artifacts.put("s1", "out/żółć.md", b"# Findings", media_type="text/markdown")
    assert (first.session_id, first.path, first.media_type, first.size) == (
        "s1",
        "out/żółć.md",
        "text/markdown",
        10,
    )
    assert first.sha256 == sha256(b"# Findings").hexdigest()
    assert first.created_at == first.updated_at
    assert await memory.artifacts.get(first.id) == await memory.artifacts.get(("s1", "out/żółć.md")) == first
    assert await memory.artifacts.read(first.id) == b"# Findings"
    second = await memory.artifacts.put("s1", "out/żółć.md", b"\x00\xff" * 5_000)
    assert (second.id, second.created_at, second.size, second.media_type) == (
        first.id,
        first.created_at,
        10_000,
        "application/octet-stream",
    )
    assert second.updated_at > first.updated_at
    assert await memory.artifacts.read(("s1", "out/żółć.md")) == b"\x00\xff" * 5_000
    empty = await memory.artifacts.put("s1", "empty", b"")
    assert (await memory.artifacts.read(empty.id), empty.size) == (b"", 0)
    assert (await memory.artifacts.list("s1")).artifacts == [second, empty]
    page = await memory.artifacts.list("s1", limit=1)
    assert page.artifacts == [second]
    assert (await memory.artifacts.list("s1", limit=1, cursor=page.cursor)).artifacts == [empty]
    assert await chunks(memory) == 3, "of what was replaced nothing is left"
    assert await memory.artifacts.delete(first.id) is True
    assert await memory.artifacts.delete(first.id) is False
    assert await memory.artifacts.get(first.id) is None
    with pytest.raises(NotFound, match="artifact not found"):
        await memory.artifacts.read(first.id)
    again = await memory.artifacts.put("s1", "out/żółć.md", b"again")
    assert again.id != first.id
    assert await memory.artifacts.get(first.id) is None
    assert await chunks(memory) == 3
    assert await engine_of(memory).conversations.reservations.used_bytes(memory.tenant) == 5


@pytest.mark.behaviour("D6")
async def test_what_is_large_comes_back_whole_however_it_is_handed_in(memory: Memory, tmp_path: Path) -> None:
    await memory.sessions.create("s1")
    data = bytes(range(256)) * 12_000 + b"end"  # three chunks of 1 MiB, not quite

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_001):
            yield data[start : start + 100_001]

    path = tmp_path / "file"
    path.write_bytes(data)
    with path.open("rb") as file:
        for given in (data, bytearray(data), memoryview(data), path, io.BytesIO(data), pieces(), file):
            artifact = await memory.artifacts.put("s1", "file", given)
            assert (artifact.size, artifact.sha256) == (len(data), sha256(data).hexdigest())
            assert b"".join([piece async for piece in memory.artifacts.stream(artifact.id)]) == data
        file.seek(3_000_000)
        assert (await memory.artifacts.put("s1", "file", file)).size == len(data) - 3_000_000
    with pytest.raises(InvalidInput, match="limit"):
        await memory.artifacts.read(artifact.id, limit=72_002)
    assert (
        await engine_of(memory).conversations.reservations.used_bytes(memory.tenant) == len(data) - 3_000_000
    )


async def test_a_part_of_a_file_is_read(memory: Memory) -> None:
    await memory.sessions.create("s1")
    data = bytes(range(250))
    file = await memory.artifacts.put("s1", "a.bin", data)
    for start, end in ((0, None), (3, None), (0, 5), (100, 120), (249, 999), (250, None), (7, 7), (9, 3)):
        part = b"".join([one async for one in memory.artifacts.stream(file.id, start=start, end=end)])
        assert part == data[start:end], (start, end)
    for given in ({"start": -1}, {"end": -1}, {"start": "1"}, {"end": True}):
        with pytest.raises(InvalidInput, match=next(iter(given))):
            await anext(aiter(memory.artifacts.stream(file.id, **given)))


async def test_a_file_that_was_replaced_is_not_read_as_the_one_before(memory: Memory) -> None:
    await memory.sessions.create("s1")
    before = await memory.artifacts.put("s1", "a.bin", b"before")
    after = await memory.artifacts.put("s1", "a.bin", b"after it")
    for end in (None, before.size):
        with pytest.raises(Conflict, match="replaced"):
            await anext(aiter(memory.artifacts.stream(before.id, end=end, sha256=before.sha256)))
    assert await anext(aiter(memory.artifacts.stream(after.id, sha256=after.sha256))) == b"after it"


@pytest.mark.behaviour("D6", "D19")
async def test_an_artifact_ends_with_its_session_and_no_other_tenant_sees_it(memory: Memory) -> None:
    await memory.sessions.create("s1", user="ada")
    artifact = await memory.artifacts.put("s1", "a", b"secret")
    async with memory.for_tenant("another") as another:
        await another.sessions.create("s1")
        assert await another.artifacts.get(artifact.id) is None
        assert await another.artifacts.get(("s1", "a")) is None
        assert await another.artifacts.delete(artifact.id) is False
        theirs = await another.artifacts.put("s1", "a", b"theirs")
        await memory.sessions.delete("s1")
        assert await memory.artifacts.get(artifact.id) is None
        assert await memory.artifacts.get(("s1", "a")) is None
        with pytest.raises(NotFound, match="session not found"):
            await memory.artifacts.list("s1")
        with pytest.raises(NotFound, match="session not found"):
            await memory.artifacts.put("s1", "a", b"late")
        await memory.sessions.create("s1", user="ada")
        assert (await memory.artifacts.list("s1")).artifacts == []
        assert await memory.artifacts.get(artifact.id) is None
        assert await chunks(memory) == 0
        fresh = await memory.artifacts.put("s1", "a", b"fresh")
        assert fresh.id != artifact.id
        await memory.admin.erase_user("ada")
        assert await memory.artifacts.get(fresh.id) is None
        await memory.sessions.create("s2")
        last = await memory.artifacts.put("s2", "a", b"last")
        await memory.admin.erase_tenant()
        assert await memory.artifacts.get(last.id) is None
        assert await engine_of(memory).conversations.reservations.used_bytes(memory.tenant) == 0
        assert await another.artifacts.read(theirs.id) == b"theirs"


async def test_a_quota_refuses_what_has_no_room_and_evicts_nothing(config: dict[str, Any]) -> None:
    quota = {"name": "files", "per": "tenant", "artifact_bytes": 10_000}
    async with Memory(config, quotas=[quota]) as memory:
        await memory.sessions.create("s1")
        first = await memory.artifacts.put("s1", "a", b"x" * 6_000)

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield b"y" * 1_000

        for data in (b"y" * 4_001, pieces()):
            with pytest.raises(
                QuotaExceeded, match=r"'files': tenant '.*' holds 6,000 of at most 10,000 bytes of artifacts"
            ):
                await memory.artifacts.put("s1", "b", data)
        assert (await memory.artifacts.list("s1")).artifacts == [first]
        await memory.artifacts.put("s1", "b", b"y" * 4_000)
        with pytest.raises(QuotaExceeded):
            await memory.artifacts.put("s1", "c", b"z")
        await memory.artifacts.delete(first.id)
        await memory.artifacts.put("s1", "c", b"z" * 6_000)
        together = [memory.artifacts.delete(("s1", "b")), memory.artifacts.delete(("s1", "c"))]
        assert await asyncio.gather(*together) == [True, True]
        outcomes = await asyncio.gather(
            *(memory.artifacts.put("s1", f"{n}", b"x" * 4_000) for n in range(4)), return_exceptions=True
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == [
            "Artifact",
            "Artifact",
            "QuotaExceeded",
            "QuotaExceeded",
        ]
        assert len((await memory.artifacts.list("s1")).artifacts) == 2


async def test_who_reads_what_is_replaced_or_deleted_meanwhile_is_told(memory: Memory) -> None:
    await memory.sessions.create("s1")
    with patch.object(manifests, "CHUNK_BYTES", 10), patch.object(manifests, "PORTION", 2):
        artifact = await memory.artifacts.put("s1", "a", b"old bytes " * 5)
        for error in (Conflict, NotFound):
            reading = memory.artifacts.stream(artifact.id)
            await anext(reading)
            if error is Conflict:
                await memory.artifacts.put("s1", "a", b"new bytes " * 5)
            else:
                await memory.artifacts.delete(artifact.id)
            with pytest.raises(error):
                _ = [data async for data in reading]


async def test_what_is_under_legal_hold_is_neither_replaced_nor_deleted(plain: Memory) -> None:
    await plain.sessions.create("s1")
    artifact = await plain.artifacts.put("s1", "a", b"evidence")
    await plain.admin.legal_holds.add("case", scope="session:s1", reason="r")
    for call in (plain.artifacts.put("s1", "a", b"other"), plain.artifacts.delete(artifact.id)):
        with pytest.raises(LegalHoldActive):
            await call
    assert await plain.artifacts.read(artifact.id) == b"evidence"
    await plain.artifacts.put("s1", "b", b"more evidence")


@pytest.mark.behaviour("D6")
@cells(
    "field, given",
    [
        *(
            ("path", path)
            for path in (
                "",
                "/a",
                "a//b",
                "a/",
                ".",
                "..",
                "a/../b",
                "./a",
                "a\\b",
                "a\x00b",
                "x" * 1_025,
                "ż" * 513,
                7,
                None,
                "\ud800",
            )
        ),
        *(
            ("media_type", kind)
            for kind in ("", "text", "text/", "/plain", "text/plain\n", "text/pl ain", "a/" + "b" * 254, 7)
        ),
        *(("data", data) for data in ("text", None, 7, [b"a"])),
        ("session_id", ""),
    ],
    shared=True,
)
async def test_what_cannot_be_put_is_refused_before_any_store_is_touched(
    plain: Memory, field: str, given: Any
) -> None:
    arguments: dict[str, Any] = {
        "session_id": "s1",
        "path": "a",
        "data": b"",
        "media_type": "text/plain; charset=utf-8",
        field: given,
    }
    with watching(plain) as touched, pytest.raises(InvalidInput, match=field):
        await plain.artifacts.put(**arguments)
    assert touched == []


async def test_what_is_too_large_is_refused_and_leaves_nothing(config: dict[str, Any]) -> None:
    async with Memory(config, artifacts={"max_bytes": 1_000}) as memory:
        await memory.sessions.create("s1")
        kept = await memory.artifacts.put("s1", "a", b"x" * 1_000)

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(2):
                yield b"y" * 501

        async def fails() -> AsyncIterator[bytes]:
            yield b"y" * 500
            raise OSError("no more")

        async def letters() -> AsyncIterator[Any]:
            yield "text"

        for data, error in (
            (b"y" * 1_001, InvalidInput),
            (pieces(), InvalidInput),
            (fails(), OSError),
            (letters(), InvalidInput),
        ):
            with pytest.raises(error):
                await memory.artifacts.put("s1", "a", data)
        assert await memory.artifacts.read(kept.id) == b"x" * 1_000
        assert await chunks(memory) == 2
        assert await engine_of(memory).conversations.reservations.used_bytes(memory.tenant) == 1_000


# -- entries that point to artifacts ---------------------------------------------------


@pytest.mark.behaviour("D6", "D14", "D15", "D18")
async def test_an_entry_points_to_an_artifact_and_a_read_of_it_tells_of_that(memory: Memory) -> None:
    await memory.sessions.create("s1")
    first, second = [await memory.artifacts.put("s1", path, path.encode()) for path in ("a", "b")]
    entry = await memory.write("The findings.", scope=USER, artifact_id=first.id)
    (other,) = await memory.write_many([{"content": "More of them.", "scope": USER, "artifact_id": first.id}])
    assert (entry.artifact_id, entry.artifact) == (first.id, None)
    found = await memory.get(entry.id)
    assert found is not None
    assert found.artifact == first
    assert found.to_dict() == entry.to_dict() | {"artifact": first.to_dict()}
    assert [(one.artifact_id, one.artifact) for one in await memory.retrieve(USER)] == [(first.id, None)] * 2
    first = await memory.artifacts.put("s1", "a", b"replaced")
    assert (await memory.get(other.id)).artifact == first  # type: ignore[union-attr]
    assert (await memory.update(entry.id, content="Other findings.")).artifact_id == first.id
    assert (await memory.update(entry.id, artifact_id=second.id)).artifact_id == second.id
    assert (await memory.get(entry.id)).artifact == second  # type: ignore[union-attr]
    assert (await memory.update(entry.id, artifact_id=None)).artifact_id is None
    assert (await memory.get(entry.id)).artifact is None  # type: ignore[union-attr]
    keyed = [
        await memory.write("x", scope=USER, key="k", artifact_id=one, if_exists="replace")
        for one in (first.id, second.id, None)
    ]
    assert [one.artifact_id for one in keyed] == [first.id, second.id, None]


@pytest.mark.behaviour("D6", "D15")
async def test_an_artifact_that_is_not_there_is_refused_and_nothing_is_written(memory: Memory) -> None:
    await memory.sessions.create("s1")
    entry = await memory.write("The findings.", scope=USER)
    gone = await memory.artifacts.put("s1", "a", b"a")
    await memory.artifacts.delete(gone.id)
    async with memory.for_tenant("another") as another:
        await another.sessions.create("s1")
        theirs = await another.artifacts.put("s1", "a", b"a")
    for unknown in (gone.id, theirs.id, entry.id, "no id"):
        with pytest.raises(InvalidInput, match="artifact_id: there is no artifact"):
            await memory.write("x", scope=USER, artifact_id=unknown)
        with pytest.raises(InvalidInput, match="artifact_id: there is no artifact"):
            await memory.scoped(USER).write("x", artifact_id=unknown)
        with pytest.raises(InvalidInput, match="artifact_id: there is no artifact"):
            await memory.write("x", scope=USER, artifact_id=unknown, key="k", if_exists="replace")
        with pytest.raises(InvalidInput, match="artifact_id: there is no artifact"):
            await memory.write_many(
                [{"content": "y", "scope": USER}, {"content": "x", "scope": USER, "artifact_id": unknown}]
            )
        with pytest.raises(InvalidInput, match="artifact_id: there is no artifact"):
            await memory.update(entry.id, artifact_id=unknown)
    assert await memory.retrieve(USER) == [entry]


@pytest.mark.behaviour("D19")
@pytest.mark.parametrize("how", ["artifact", "session"])
async def test_what_pointed_to_an_artifact_that_is_deleted_stays_and_points_to_none(
    memory: Memory, how: str
) -> None:
    await memory.sessions.create("s1")
    await memory.sessions.create("s2")
    artifact, other = [await memory.artifacts.put(session, "a", b"a") for session in ("s1", "s2")]
    entry = await memory.write("The findings.", scope=USER, artifact_id=artifact.id)
    retired = await memory.write("Former findings.", scope=USER, artifact_id=artifact.id)
    edited = await memory.update(
        (await memory.write("Findings.", scope=USER, artifact_id=artifact.id)).id, content="All findings."
    )
    apart = await memory.write("Others.", scope=USER, artifact_id=other.id)
    await memory.entries.invalidate(retired.id)
    before = {one.id: (await memory.entries.history(one.id))[-1] for one in (entry, retired, edited)}
    await (memory.artifacts.delete(artifact.id) if how == "artifact" else memory.sessions.delete("s1"))
    for one in before.values():
        history = await memory.entries.history(one.id)
        assert history[-1] == one.model_copy(update={"artifact_id": None}), "nothing else of it has changed"
        assert len(history) == 1 + (one.id != entry.id), "no version is kept of that"
    found = await memory.get(entry.id)
    assert found is not None
    assert (found.artifact_id, found.artifact) == (None, None)
    assert {one.artifact_id for one in await memory.retrieve(USER)} == {None, other.id}
    assert (await memory.get(apart.id)).artifact == other  # type: ignore[union-attr]
    assert (await memory.update(entry.id, content="Still findings.")).artifact_id is None


@pytest.mark.behaviour("D19")
async def test_a_roll_back_brings_no_artifact_back_that_is_gone(memory: Memory) -> None:
    await memory.sessions.create("s1")
    gone, stays, other = [
        await memory.artifacts.put("s1", path, b"data") for path in ("gone", "stays", "other")
    ]
    for before in (gone, stays):
        entry = await memory.write(f"see {before.path}", scope=USER, artifact_id=before.id)
        await memory.update(entry.id, artifact_id=other.id, tags=["changed"], agent="mallory")
    await memory.artifacts.delete(gone.id)
    assert len((await memory.admin.revert_source(agent="mallory")).entries) == 2
    pointing = {entry.content: (entry.artifact_id, entry.tags) for entry in await memory.retrieve(USER)}
    assert pointing == {"see gone": (None, []), "see stays": (stays.id, [])}
    assert not (await memory.admin.revert_source(agent="mallory")).entries, "once, not again and again"
