"""One store of three is set back alone to an earlier moment: it is named, and healed
from the others, or what is lost is.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory import Memory
from memory.facade.runtime.access import engine_of
from tests.acceptance.support import Clock
from tests.support.depth import drawn
from tests.support.set_back import SCOPES, History, missing, wrong


def memory_on(folder: Path, clock: Clock) -> Memory:
    tiers = {tier: f"sqlite:///{folder / tier}.db" for tier in ("short", "mid", "long")}
    stores = {name: {"url": url} for name, url in tiers.items()}
    config = {
        "stores": stores,
        "tiers": {name: name for name in tiers},
        "embedder": "none",
        "durations": {"sweep_every": "0s"},
    }
    return Memory(config, clock=clock)


def copied(folder: Path, tier: str) -> Path:
    """A copy of one store's file, made while it is in use."""
    backup = folder / f"{tier}.backup"
    with (
        closing(sqlite3.connect(folder / f"{tier}.db")) as source,
        closing(sqlite3.connect(backup)) as target,
    ):
        source.backup(target)
    return backup


def restored(folder: Path, tier: str, backup: Path) -> None:
    for left in folder.glob(f"{tier}.db*"):
        left.unlink()
    backup.rename(folder / f"{tier}.db")


@pytest.mark.parametrize("seed", range(drawn(6, 1)))
@pytest.mark.parametrize("tier", ["short", "mid", "long"])
@pytest.mark.thorough
async def test_a_store_set_back_alone_is_named_and_healed_or_what_is_lost_is(
    tier: str, seed: int, tmp_path: Path
) -> None:
    clock = Clock(datetime.now(UTC))
    drawn = random.Random(seed * 3 + len(tier))  # noqa: S311 - to repeat it
    async with memory_on(tmp_path, clock) as memory:
        history = History(memory, clock, drawn)
        await history.go_on(60)
        assert (await memory.admin.compare()).ok, "nothing was set back"
        backup, since = copied(tmp_path, tier), clock()
        await history.go_on(40)
        if seed % 2:
            await history.erase(drawn.choice(SCOPES))
        await history.settle()
    restored(tmp_path, tier, backup)
    async with memory_on(tmp_path, clock) as memory:
        history.memory = memory
        if seed % 3:
            report = await memory.admin.sweep()
            assert [f"store '{tier}' was restored" in said for said in report.stays] == [True]
        named = await memory.admin.rolled_back_stores()
        assert [one.store for one in named] == [tier]
        healed = await memory.admin.compare(repair=True)
        assert (healed.error, healed.left) == ("", [])
        await history.settle()
        assert await wrong(engine_of(memory)) == []
        lost = {one.id for one in healed.lost}
        assert await missing(history, tier, since, lost) == []
        assert await memory.admin.rolled_back_stores() == []
        again = await memory.admin.compare()
        assert again.differs == {}


@pytest.mark.parametrize("sweeps", [0, 2])
async def test_a_session_deleted_since_does_not_come_back_with_the_store_that_alone_has_sessions(
    sweeps: int, tmp_path: Path
) -> None:
    clock = Clock(datetime.now(UTC))
    async with memory_on(tmp_path, clock) as memory:
        history = History(memory, clock, random.Random(1))  # noqa: S311 - to repeat it
        for name in ("gone", "stays"):
            await memory.session(name).append([{"role": "user", "content": f"what was said in {name}"}])
        await history.settle()
        backup = copied(tmp_path, "mid")
        await memory.sessions.delete("gone")
        await history.settle()
    restored(tmp_path, "mid", backup)
    async with memory_on(tmp_path, clock) as memory:
        for _ in range(sweeps):
            await memory.admin.sweep()
        healed = await memory.admin.compare(repair=True)
        assert healed.differs == {"a scope that a store had not erased": 2}, (
            "of its conversation and of its entries"
        )
        assert [session.id for session in (await memory.sessions.list()).sessions] == ["stays"]
        assert [hit.session_id for hit in await memory.search_messages("said")] == ["stays"]
        assert any("sessions, messages, tasks, relations" in said for said in healed.unknown)


async def test_a_store_whose_loss_is_accepted_is_not_said_to_be_set_back(tmp_path: Path) -> None:
    clock = Clock(datetime.now(UTC))
    tiers = {
        "short": "memory://",
        "mid": f"sqlite:///{tmp_path / 'mid.db'}",
        "long": f"sqlite:///{tmp_path / 'long.db'}",
    }
    for _ in range(3):
        async with Memory({"tiers": tiers, "accept_loss": True, "embedder": "none"}, clock=clock) as memory:
            clock.moment += timedelta(minutes=6)
            await memory.admin.sweep()
            assert await memory.admin.rolled_back_stores() == []
