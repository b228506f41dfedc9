"""The five open conversations beside the project: how fast they are imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.locomo import Turn, load
from bench.measure import Figure, side_by_side
from bench.raw import RawStore
from bench.retrieval import OPEN
from memory import Memory, Scope


def draft(turn: Turn) -> dict[str, Any]:
    """A turn as an entry, in the scope of its conversation."""
    return {
        "content": f"{turn.speaker}: {turn.text}",
        "scope": Scope.workspace(turn.conversation),
        "created_at": turn.at,
        "key": turn.id,
    }


async def imports(folder: Path, rounds: int) -> list[Figure]:
    names = tuple(
        f"import of 2,760 turns, {how}"
        for how in ("write_many", "write_many, opening and loading included", "`memory import`")
    )
    if not OPEN.exists():
        return [
            Figure(
                name, None, "turns/s", 1500, at_least=True, note="the conversations are not beside this clone"
            )
            for name in names
        ]
    turns, _ = load(OPEN)
    drafts = [draft(t) for t in turns]
    contents = [d["content"] for d in drafts]

    bare, written = [], []

    async def ours(number: int) -> None:
        async with Memory(f"sqlite:///{folder / f'import-{number}.db'}") as memory:
            await memory.search("warm", scope=Scope.workspace("nobody's"))
            begun = time.perf_counter()
            entries = await memory.write_many(drafts)
            written.append(time.perf_counter() - begun)
            assert len({e.id for e in entries}) == len(turns)

    async def raw(number: int) -> None:
        store = RawStore(folder / f"raw-import-{number}.db")
        await store.open()
        begun = time.perf_counter()
        await store.upsert_many("all", contents)
        bare.append(time.perf_counter() - begun)
        await store.close()

    whole_s, raw_whole_s = await side_by_side(rounds, ours, raw)
    facade = Figure(
        names[0], len(turns) / median(written), "turns/s", 1500, at_least=True, raw=len(turns) / median(bare)
    )
    whole = Figure(
        names[1], len(turns) / whole_s, "turns/s", 1500, at_least=True, raw=len(turns) / raw_whole_s
    )
    return [facade, whole, command_line(folder, rounds, turns, names[2])]


def command_line(folder: Path, rounds: int, turns: Sequence[Turn], name: str) -> Figure:
    """The same through the command, start-up included."""
    file = folder / "turns.jsonl"
    lines = (
        {"role": t.speaker, "content": draft(t)["content"], "time": t.at.isoformat(), "id": t.id}
        for t in turns
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    taken = []
    for number in range(rounds):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "memory_tiers", "import", str(file), "--scope", "workspace:bench"]
        environment = os.environ | {"MEMORY_CONFIG": f"sqlite:///{folder / f'cli-{number}.db'}"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            return Figure(
                name,
                None,
                "turns/s",
                1500,
                at_least=True,
                note=(done.stderr.strip() or done.stdout.strip())[-160:],
            )
        taken.append(time.perf_counter() - begun)
    return Figure(name, len(turns) / median(taken), "turns/s", 1500, at_least=True, note="start-up included")
