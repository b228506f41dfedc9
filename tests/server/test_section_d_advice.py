"""Section D over HTTP: what an advisor does in searches and writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memory.facade.memory import Memory
from memory.ports.advisor import Prompt
from tests.server.support import ENTRIES, RELATIONS, Client, client_of

pytestmark = pytest.mark.backend("sqlite")


class Model:
    """An advisor whose next answers a test sets; without one it fails."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.asked: list[Prompt] = []

    def __call__(self, prompt: Prompt) -> str:
        self.asked.append(prompt)
        if not self.answers:
            raise RuntimeError("the model is away")
        return self.answers.pop(0)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
async def client(tmp_path: Path, model: Model) -> AsyncIterator[Client]:
    """A client of a server with an advisor, whose budget is 20 searches a minute."""
    async with (
        Memory(f"sqlite:///{tmp_path}/memory.db", advisor=model) as memory,
        client_of(memory, models=("small",), advice_per_minute=20) as one,
    ):
        yield one


async def found(client: Client, **query: Any) -> Any:
    return await client.call("GET", ENTRIES, params=query)


@pytest.mark.behaviour("D87", "D88", "D89", "D90", "D91")
async def test_an_expansion_searches_other_wordings_and_says_so(client: Client, model: Model) -> None:
    await client.write("Ada drinks oolong", title="Oolong")
    model.answers = ["1. oolong habits\n- beverages of Ada\nx\n"]
    answer = await found(client, q="what is her favourite drink", expand="small", mode="lexical")
    assert (answer["expansion"]["model"], answer["expansion"]["applied"]) == ("small", True)
    assert answer["expansion"]["queries"] == ["oolong habits", "beverages of Ada"]
    assert [one["title"] for one in answer["entries"]] == ["Oolong"]
    answer = await found(client, q="oolong", expand="small")
    assert answer["expansion"]["applied"] is False
    assert answer["expansion"]["note"]
    assert [one["title"] for one in answer["entries"]] == ["Oolong"]


@pytest.mark.behaviour("D92", "D93", "D94", "D95", "D96", "D97", "D98", "D99")
async def test_a_rerank_orders_the_best_and_says_so(client: Client, model: Model) -> None:
    for n in range(30):
        await client.write(f"tea number {n}", title=f"T{n}")
    assert "rerank" not in await found(client, q="tea", limit=5)
    assert model.asked == []
    model.answers = ["3, 1, 99"]
    plain = [one["title"] for one in (await found(client, q="tea", limit=25))["entries"]]
    answer = await found(client, q="tea", limit=5, rerank="small")
    assert answer["rerank"] == {
        "model": "small",
        "applied": True,
        "note": None,
        "fine_model": None,
        "fine_applied": False,
        "stages": 1,
    }
    assert [one["title"] for one in answer["entries"]] == [plain[n] for n in (2, 0, 1, 3, 4)]
    answer = await found(client, q="tea", limit=5, rerank="small")
    assert answer["rerank"]["applied"] is False
    assert answer["rerank"]["note"]
    assert [one["title"] for one in answer["entries"]] == plain[:5]
    model.answers = ["2", "1"]
    answer = await found(client, q="tea", limit=5, rerank="small", rerank_stages=2)
    assert (answer["rerank"]["stages"], answer["rerank"]["fine_applied"]) == (2, True)
    assert answer["rerank"]["fine_model"] == "small"
    for wrong in ({"rerank": "large"}, {"expand": "large"}, {"rerank_stages": "2"}):
        assert (await client.refused("GET", ENTRIES, params={"q": "tea", **wrong}))[0] in wrong
    assert (await client.refused("GET", ENTRIES, params={"rerank": "small"}))[0] == "rerank"


async def test_a_key_has_a_budget_of_advice(client: Client, model: Model) -> None:
    await client.write("tea")
    statuses = []
    for _ in range(21):
        model.answers = ["none"]
        answer = await client.answer("GET", ENTRIES, params={"q": "tea", "expand": "small"})
        statuses.append(answer.status_code)
    assert statuses == [200] * 20 + [429]
    assert 0 < int(answer.headers["retry-after"]) <= 61
    assert (await found(client, q="tea"))["entries"]


@pytest.mark.behaviour("D100", "D101")
async def test_without_an_advisor_its_options_do_nothing(tmp_path: Path) -> None:
    async with (
        Memory(f"sqlite:///{tmp_path}/memory.db") as memory,
        client_of(memory, models=("small",)) as client,
    ):
        made = await client.write("tea", title="Tea", auto_tag=True, auto_supersede=True)
        assert made["tags"] == []
        answer = await found(client, q="tea", expand="small", rerank="small")
        assert [one["title"] for one in answer["entries"]] == ["Tea"]


@pytest.mark.behaviour("D102", "D103", "D109", "D110")
async def test_auto_tag_appends_the_tags_of_the_advisor(client: Client, model: Model) -> None:
    model.answers = ["Green Tea, drink, HOME, a"]
    made = await client.write("Ada drinks sencha", title="Sencha", tags=["home"], auto_tag=True)
    assert made["tags"] == ["home", *made["auto_tag"]["added"]]
    assert made["auto_tag"]["applied"] is True
    assert "drink" in made["tags"]
    plain = await client.write("Ada drinks sencha", title="Sencha", tags=["home"])
    assert (plain["tags"], "auto_tag" in plain) == (["home"], False)
    made = await client.write("Ada drinks mate", title="Mate", tags=["home"], auto_tag=True)
    assert (made["tags"], made["auto_tag"]["applied"]) == (["home"], False)
    assert made["auto_tag"]["note"]
    stored = await client.call("GET", f"{ENTRIES}/{made['id']}/enrichment")
    assert stored["auto_tag"]["added"] == []


@pytest.mark.behaviour("D104", "D105", "D106", "D109")
async def test_auto_supersede_retires_what_the_advisor_names(client: Client, model: Model) -> None:
    old = await client.write("Ada lives in Rome", title="Home of Ada", type="user")
    await client.write("Ada lives in Rome", title="Home of Ada", type="project")
    model.answers = ["1"]
    made = await client.write("Ada lives in Oslo", title="Home of Ada", type="user", auto_supersede=True)
    assert made["supersede"]["candidates"] == [old["id"]] == made["supersede"]["invalidated"]
    await client.call("GET", f"{ENTRIES}/{old['id']}", 404)
    [link] = (await client.call("GET", RELATIONS))["relations"]
    assert (link["source_id"], link["relation"], link["target_id"]) == (made["id"], "supersedes", old["id"])


@pytest.mark.behaviour("D107", "D108", "D109", "D111")
async def test_supersedes_ids_retire_all_or_nothing(client: Client, model: Model) -> None:
    old = [await client.write(f"Ada lives in {n}", title="Home") for n in range(2)]
    ids = [one["id"] for one in old]
    new = {"scope": "user:ada", "content": "Ada lives in Oslo", "title": "Home"}
    field, _ = await client.refused("POST", ENTRIES, json={**new, "supersedes_ids": [*ids, "#999"]})
    assert field == "supersedes_ids"
    assert len(await client.titles()) == 2
    made = await client.write(**new, supersedes_ids=ids, auto_supersede=True)
    assert made["supersedes_manual"] == {"requested": ids, "invalidated": ids}
    assert model.asked == []
    assert await client.titles() == ["Home"]
    links = (await client.call("GET", RELATIONS, params={"source_id": made["id"]}))["relations"]
    assert sorted(one["target_id"] for one in links) == sorted(ids)
    await client.refused("POST", ENTRIES, json={**new, "supersedes_ids": ids})
