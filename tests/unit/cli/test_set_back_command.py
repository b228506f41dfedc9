"""What `memory doctor` says of a store that was set back alone, and what comes of
`--repair`.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory import Memory
from tests.acceptance.support import Clock
from tests.unit.cli.conftest import CommandLine

CONFIG = ("-c", "memory.toml")
TIERS = ("short", "mid", "long")


@pytest.fixture
async def edited(tmp_path: Path) -> str:
    """An entry that was edited twice since the file was copied that now stands for the
    middle store again: its id.
    """
    stores = "".join(f'[stores.{tier}]\nurl = "sqlite:///{tier}.db"\n' for tier in TIERS)
    tiers = "".join(f'{tier} = "{tier}"\n' for tier in TIERS)
    config = tmp_path / "memory.toml"
    config.write_text(f'embedder = "none"\n{stores}[tiers]\n{tiers}[durations]\nsweep_every = "0s"\n')
    clock = Clock(datetime.now(UTC))
    clock.moment -= timedelta(hours=1)
    async with Memory(str(config), clock=clock) as memory:
        entry = await memory.write("Ada prefers tea", scope="user:ada")
        await memory.admin.sweep()
    shutil.copy(tmp_path / "mid.db", tmp_path / "backup")
    async with Memory(str(config), clock=clock) as memory:
        for drink in ("coffee", "water"):
            await memory.update(entry.id, content=f"Ada prefers {drink}")
        clock.moment += timedelta(minutes=6)
        await memory.admin.sweep()
        assert await memory.admin.rolled_back_stores() == []
    shutil.move(tmp_path / "backup", tmp_path / "mid.db")
    return entry.id


def test_doctor_names_the_store_and_repair_heals_it_and_says_what_is_lost(
    edited: str, memory: CommandLine
) -> None:
    named = memory.json("doctor", *CONFIG, code=1)
    assert [one["store"] for one in named["rolled_back_stores"]] == ["mid"]
    assert "compared" not in named
    shown = memory("doctor", *CONFIG).stdout
    assert "store 'mid' was restored to" in shown
    assert "`memory doctor --repair` repairs" in " ".join(shown.split())
    assert memory.json("stats", *CONFIG)["rolled_back_stores"] == [named["rolled_back_stores"][0]["said"]]
    found = memory.json("doctor", "--audit", *CONFIG, code=1)["compared"]
    assert (found["differs"], found["repaired"]) == ({"home older than its replica": 1}, False)
    healed = memory.json("doctor", "--repair", *CONFIG)
    assert (healed["ok"], healed["rolled_back_stores"]) == (True, [])
    (lost,) = healed["compared"]["lost"]
    assert lost["id"] == edited
    assert lost["said"].startswith("its versions between ")
    assert "Ada prefers water" in memory.ok("show", edited, *CONFIG)
    assert memory.json("doctor", "--audit", *CONFIG)["compared"] | {"entries": 0} == {
        "entries": 0,
        "differs": {},
        "repaired": False,
        "lost": [],
        "left": [],
        "unknown": [],
        "error": "",
    }


def test_what_repair_did_is_shown_to_people(edited: str, memory: CommandLine) -> None:
    prose = " ".join(memory.ok("doctor", "--repair", *CONFIG).split())
    assert (
        "1 entry compared between the stores; these differences were found and were repaired: - 1: home older"
        " than its replica" in prose
    )
    assert f"- {edited} of default: its versions between" in prose
    assert "1 entry compared between the stores; nothing differs" in " ".join(
        memory.ok("doctor", "--audit", *CONFIG).split()
    )


def test_a_store_that_is_not_there_any_more_is_named_without_being_made(
    edited: str, memory: CommandLine, tmp_path: Path
) -> None:
    memory.ok("doctor", "--repair", *CONFIG)
    (tmp_path / "long.db").unlink()
    named = memory.json("doctor", *CONFIG, code=1)["rolled_back_stores"]
    assert [(one["store"], one["to"]) for one in named] == [("long", 0)]
    assert not (tmp_path / "long.db").exists()
    assert memory.ok("stats", *CONFIG)
    assert memory.json("doctor", "--repair", *CONFIG)["compared"]["differs"] == {
        "the expected replica is missing": 1
    }
    assert memory.json("doctor", *CONFIG)["rolled_back_stores"] == []
