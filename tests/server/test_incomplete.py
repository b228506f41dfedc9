"""An answer that lacks a store names it, and not its host, its folder or its process."""

from __future__ import annotations

import copy
import pickle

import pytest
from mcp import Client as McpClient

from memory import InvalidInput, Memory, StoreUnavailable
from memory.domain.error_table import notes_without_details, store_note
from memory.facade.resources.scopes import list_reachable
from memory.mcp.server import create_server
from memory.mcp.settings import McpSettings
from tests.server.support import ENTRIES, client_of
from tests.support.three_stores import STORES, THREE_STORES, embed, take_down

pytestmark = pytest.mark.backend("in_memory")
TOLD = "failed; the log has the reason"


async def test_a_caller_is_told_which_store_failed_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async with Memory(THREE_STORES, embedder=embed) as memory:
        await memory.write("green tea", scope="user:ada")
        await memory.write("black tea", scope="session:talk")
        take_down(memory, "long")
        async with client_of(memory) as http:
            for method, path, given in (
                ("GET", f"{ENTRIES}?q=tea&scope=user:ada,session:talk", None),
                ("GET", f"{ENTRIES}?q=tea", None),
                ("GET", ENTRIES, None),
                ("POST", "/v1/memory/retrieve", {"scope": "user:ada"}),
            ):
                shown = await http.call(method, path, json=given)
                assert shown["degraded"] == [f"store 'long' {TOLD}"], path
            shown = await http.call("GET", f"{ENTRIES}?q=tea")
            assert {one["content"] for one in shown["entries"]} == {"green tea", "black tea"}
        async with McpClient(
            create_server(memory, McpSettings(scopes=("user:ada", "session:talk")))
        ) as client:
            found = await client.call_tool("search_memory", {"query": "tea"})
            assert TOLD in str(found.content)
            for name in STORES:
                take_down(memory, name)
            failed = await client.call_tool("search_memory", {"query": "tea"})
            assert TOLD in str(failed.content)
        assert "down" not in f"{found.content}{failed.content}"
    assert "store 'long': down" in caplog.text


async def test_a_search_without_a_scope_covers_the_stores_that_answer() -> None:
    async with Memory(THREE_STORES, embedder="none") as memory:
        await memory.write("green tea", scope="user:ada")
        await memory.write("black tea", scope="session:talk")
        await memory.write("white tea", scope="session:other")
        with pytest.raises(InvalidInput):
            await list_reachable(memory.restrict(["user:ada"]), limit=10)
        async with client_of(memory) as http:
            take_down(memory, "mid")
            found = await http.call("GET", f"{ENTRIES}?q=tea")
            assert {one["content"] for one in found["entries"]} == {"black tea", "white tea"}
            assert f"store 'mid' {TOLD}" in found["degraded"]
            assert len(set(found["degraded"])) == len(found["degraded"])
            for name in STORES:
                take_down(memory, name)
            refused = await http.call("GET", f"{ENTRIES}?q=tea", 503)
            assert refused["code"] == "store_unavailable"


def test_what_an_answer_lacks_is_told_with_the_store() -> None:
    note = store_note(StoreUnavailable("mid", "vault:5432 refused"), "hits were left out")
    assert note == "store 'mid': vault:5432 refused; hits were left out"
    for one in (note, copy.deepcopy(note), pickle.loads(pickle.dumps(note))):  # noqa: S301 - our own
        assert notes_without_details([one, one]) == ["store 'mid' failed; hits were left out"]
    lost = "store 'short': its server lost all data while open"
    assert notes_without_details([lost]) == [lost]
