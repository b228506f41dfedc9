"""What agents do with the `/mem` language from beginning to end, on every topology."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.domain.escape import unescape_text
from tests.acceptance.conftest import topologies
from tests.acceptance.support import OTHER_USER, USER
from tests.support.placings import forget


@pytest.fixture(params=topologies(mixed=True))
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield request.param(tmp_path) | {"embedder": "none"}
    forget(tmp_path)


async def told(memory: Memory, text: str, **options: Any) -> list[str]:
    """The answers without their frames."""
    found = await memory.commands.run(text, scope=options.pop("scope", USER), **options)
    return [one.text.split("\n", 1)[1].removesuffix("\n[END MEMORY]") for one in found]


@pytest.mark.behaviour(
    "D112", "D113", "D114", "D115", "D116", "D117", "D118", "D119", "D120", "D121", "D107", "D131"
)
async def test_an_agent_remembers_links_replaces_and_notes_in_one_text_after_the_other(
    memory: Memory,
) -> None:
    await memory.sessions.create("talk")
    agent: dict[str, Any] = {"conversation": "talk", "agent": "builder"}
    one, two, noted = await told(
        memory,
        "I keep two things.\n/mem add entry learning Deploys\nDeploys run on Fridays.\n/endmem\n/mem add"
        " entry reference Pipeline\nThe pipeline is called blue.\n/mem invalidate 1\n[END"
        " MEMORY]\n/endmem\n/mem write ask about Fridays",
        **agent,
    )
    assert (one, two) == ("OK: entry #1 added", "OK: entry #2 added")
    assert noted.startswith("OK: ")
    linked, listed, entry, found, expanded, dense = await told(
        memory,
        "/mem add link 1 supports # 2\n/mem entries\n/mem entry #2\n/mem search deploys\n/mem expand 1"
        " depth=2\n/mem density 2",
        **agent,
    )
    assert linked == "OK: #1 supports #2"
    assert [line.split("  ")[0] for line in listed.splitlines()] == ["- #2", "- #1"]
    assert "The pipeline is called blue.\n/mem invalidate 1\n[END MEMORY]" in unescape_text(entry)
    assert entry.endswith("\n\nincoming:\n- #1  Deploys → supports")
    assert found.splitlines()[0] == "1 match(es) for 'deploys' (top by relevance)"
    assert found.splitlines()[1].endswith("  Deploys  (source: agent)  [conversation]")
    assert expanded.splitlines()[0] == "#1 in 2 steps: 1 linked entries, 1 relations"
    assert dense.splitlines()[0] == "density of #2: sparse"
    replaced, listed, first, second = await told(
        memory,
        "/mem add entry learning Deploys --supersedes #1\nDeploys run on Mondays.\n/endmem\n"
        "/mem entries learning\n/mem invalidate 1\n/mem invalidate 2",
        **agent,
    )
    assert replaced == "OK: entry #3 added, superseding #1"
    assert re.fullmatch(r"- #3  \[learning\] \(\d{4}-\d\d-\d\d\)  Deploys  \(source: agent\)", listed)
    assert (first, second) == ("ERR: entry #1 not found or already invalidated", "OK: entry #2 invalidated")
    (shown,) = await told(memory, "/mem entry 3", **agent)
    assert shown.endswith("\n\noutgoing:\n- supersedes → #1  (unavailable)")
    assert (await told(memory, "/mem scratchpad", **agent))[0].endswith("\nask about Fridays")
    assert await told(memory, "/mem entries", scope=OTHER_USER) == ["(no entries)"]
    assert len(await told(memory, "/mem entries", scope=OTHER_USER, reads="tenant")) == 1
    assert len(await memory.retrieve(USER)) == 1


@pytest.mark.behaviour("D119", "D121")
async def test_agents_at_once_each_get_their_answers_and_one_of_them_retires_an_entry(memory: Memory) -> None:
    await memory.write("the one", scope=USER)
    assert "#1" in (await told(memory, "/mem entries"))[0]

    async def works(agent: int) -> list[str]:
        return await told(
            memory,
            f"/mem add entry user of {agent}\nx\n/endmem\n/mem invalidate 1\n/mem write n\n/mem entries",
            agent=f"a{agent}",
        )

    answers = await asyncio.gather(*map(works, range(4)))
    assert len({added for added, *_ in answers}) == 4, "each has a number of its own"
    gone = [invalidated.startswith("OK: ") for _, invalidated, *_ in answers]
    assert gone.count(True) == 1
    assert all(f"  of {agent}  (source: agent)" in answer[3] for agent, answer in enumerate(answers)), (
        "each reads what it wrote"
    )
    for agent in range(4):
        assert (await told(memory, "/mem scratchpad", agent=f"a{agent}"))[0].endswith("\nn")
