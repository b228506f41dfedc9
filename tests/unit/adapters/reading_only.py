"""A memory that may only read, over any store that can be opened so."""

from __future__ import annotations

import pytest

from memory import BlockingMemory, Memory
from memory.domain.errors import ConfigError, StoreError

READS = """
import sys
from memory import BlockingMemory, StoreError
with BlockingMemory(sys.argv[1], embedder="none") as memory:
    print([entry.content for entry in memory.retrieve("user:ada")], [hit.entry.content for hit in memory.search("tea", scope="user:ada")])
    print([message.text for message in memory.session("s", create=False).context().messages], [one.ok for one in memory.admin.check()])
    try:
        memory.write("more", scope="user:ada")
    except StoreError as error:
        print("read only" in str(error))
"""


async def fill(url: str) -> None:
    async with Memory(url) as memory:
        await memory.write("Ada likes tea", scope="user:ada")
        await memory.session("s", user="ada").append({"role": "user", "content": "hello"})


async def a_user_who_may_only_read_reads_and_searches(
    url: str, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What `fill` wrote, as a user of the server who has no other rights."""
    async with Memory(url) as memory:
        assert [entry.content for entry in await memory.retrieve("user:ada")] == ["Ada likes tea"]
        assert [hit.entry.content for hit in await memory.search("tea", scope="user:ada")] == [
            "Ada likes tea"
        ]
        assert [message.content for message in (await memory.session("s").context()).messages] == ["hello"]
        with pytest.raises(ConfigError, match=refusal):
            await memory.write("x", scope="user:ada")
        await memory.admin.sweep()
    assert [one.getMessage() for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == [], (
        "nothing was tried that may not be done"
    )


async def what_tables_lack_is_added_beside_it(url: str, owner: str) -> None:
    """What `fill` wrote, in tables of an earlier release; the owner adds what they lack
    while the other has them open.
    """
    async with Memory(url) as memory:
        assert [message.content for message in (await memory.session("s").context()).messages] == ["hello"]
        assert [hit.item.message.content for hit in await memory.search_messages("hello", user="ada")] == [
            "hello"
        ]
        assert [hit.entry.content for hit in await memory.search("tea", scope="user:ada")] == [
            "Ada likes tea"
        ]
        await memory.admin.sweep()
        async with Memory(owner) as writing:
            await writing.session("s", user="ada").append({"role": "user", "content": "more"})
        assert [hit.item.message.content for hit in await memory.search_messages("more", user="ada")] == [
            "more"
        ]


def it_reads_and_refuses_every_write(reading: BlockingMemory, ids: set[str], place: object) -> None:
    """A memory that is opened to read only, with entries of these ids about tea and
    "hello" in session `s`.
    """
    assert {hit.id for hit in reading.search("tea", scope="user:ada")} == ids
    assert [message.text for message in reading.session("s").context().messages] == ["hello"]
    assert [one.ok for one in reading.admin.check()] == [True]
    assert [one.error for one in reading.admin.audit()] == [""]
    for call in (
        lambda: reading.write("more", scope="user:ada"),
        lambda: reading.delete(min(ids)),
        lambda: reading.admin.erase("user:ada"),
        lambda: reading.session("s").append({"role": "user", "content": "more"}),
        lambda: reading.session("new").append({"role": "user", "content": "more"}),
    ):
        with pytest.raises(StoreError, match=f"{place} is opened to read only"):
            call()
