"""Concurrent changes of one record keep each other: previews, system messages, tags by
an advisor, words that two sources stated.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.conversations.log.previews import preview_of
from memory.ports.advisor import Prompt

WORDS = "secretword 555-0199"
READ_BY = "memory.orchestrator.conversations.sessions.preview_of"


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db"


@pytest.mark.parametrize("how", ["list", "access"])
async def test_no_preview_that_was_read_before_an_erasure_is_stored_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with (
        Memory(url(tmp_path), embedder="none") as ours,
        Memory(url(tmp_path), embedder="none") as other,
    ):
        await ours.session("s", user="ada").append({"id": "m1", "role": "user", "content": WORDS})
        await other.session("s").append({"role": "assistant", "content": "ok"})
        if how == "access":
            await (
                other.sessions.list()
            )  # the preview is stored already: what remains is the record that others have read

        async def erased_behind(*asked: Any) -> Any:
            preview = await preview_of(*asked)
            monkeypatch.setattr(READ_BY, preview_of)
            assert await ours.session("s").erase("m1")
            return preview

        monkeypatch.setattr(READ_BY, erased_behind)
        await other.session("s").append({"role": "assistant", "content": "more"})
        await other.sessions.list()
        for memory in (ours, other):
            assert [session.preview for session in (await memory.sessions.list()).sessions] == [None]
            session = await memory.sessions.get("s")
            assert session is not None
            assert session.preview is None


async def test_two_processes_keep_each_others_change_of_a_system_message(tmp_path: Path) -> None:
    async with (
        Memory(url(tmp_path), embedder="none") as ours,
        Memory(url(tmp_path), embedder="none") as other,
    ):
        for each in map(str, range(8)):
            await ours.session(each, system="old text").info()
            await asyncio.gather(
                ours.session(each).update("system", content="new text"),
                other.session(each).update("system", metadata={"v": each}),
            )
            system = (await ours.session(each).context()).messages[0]
            assert (system.text, system.metadata) == ("new text", {"v": each})


@pytest.mark.parametrize(
    ("changes", "tags"),
    [
        ({"content": "(removed)", "tags": []}, []),
        ({"title": "x"}, []),
        ({"tags": ["own"]}, ["own", "illness"]),
    ],
)
async def test_tags_of_a_text_that_was_edited_away_are_not_added(
    tmp_path: Path, changes: dict[str, Any], tags: list[str]
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def advisor(prompt: Prompt) -> str:
        asked.set()
        await answer.wait()
        return "illness"

    async with Memory(url(tmp_path), embedder="none", advisor=advisor) as memory:
        entry = await memory.write("Ada has an illness", scope="user:ada", auto_tag=True)
        await asked.wait()
        await memory.update(entry.id, **changes)
        answer.set()
        await engine_of(memory).enricher.drain()
        found = await memory.get(entry.id)
        assert found is not None
        assert found.tags == tags


@pytest.mark.parametrize("again", ["update", "upsert"])
@pytest.mark.parametrize("born", ["crm", "web:evil"])
async def test_reverting_a_source_keeps_what_another_stated_in_the_same_words(
    tmp_path: Path, again: str, born: str
) -> None:
    said: dict[str, Any] = {
        "content": "Ada lives in Porto",
        "tags": ["home", "city"],
        "metadata": {"zip": "4000"},
    }
    async with Memory(url(tmp_path), embedder="none") as memory:
        entry = await memory.write(
            "Ada lives in Lisbon", scope="user:ada", key="home", source=born, tags=["home"]
        )
        for source in ("web:evil", "ada-herself"):
            if again == "update":
                await memory.update(entry.id, **said, source=source)
            else:
                await memory.write(scope="user:ada", key="home", source=source, if_exists="replace", **said)
        await memory.admin.revert_source(source="web:evil")
        found = await memory.get(entry.id)
        if again == "update" and born == "web:evil":
            assert (
                found is None or found.valid_to is not None
            )  # an update leaves the rest of the entry as its first writer had it
            return
        assert found is not None
        assert (found.content, found.tags, found.metadata) == (
            said["content"],
            said["tags"],
            said["metadata"],
        )
        assert found.source == "ada-herself"


async def test_reverting_a_source_takes_back_what_nobody_else_stated(tmp_path: Path) -> None:
    async with Memory(url(tmp_path), embedder="none") as memory:
        entry = await memory.write("Ada lives in Lisbon", scope="user:ada", source="crm", tags=["home"])
        await memory.update(
            entry.id, content="Ada lives in Porto", tags=["city"], metadata={"zip": "4000"}, source="web:evil"
        )
        await memory.update(entry.id, tags=["city"], source="ada-herself")
        await memory.admin.revert_source(source="web:evil")
        found = await memory.get(entry.id)
        assert found is not None
        assert (found.content, found.tags, found.metadata) == ("Ada lives in Lisbon", ["city"], {})
