"""The five open conversations beside the project: how fast they are imported, and how well what was said is found again."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from bench.measure import Figure, side_by_side
from bench.raw import RawStore
from memory import Memory, Scope

SHARED = Path(__file__).resolve().parents[2] / "shared"
DATA = SHARED / "data" / "locomo_open.json"
JUDGE = SHARED / "bench" / "retrieval_eval.py"
SHOWN = ("R@1", "R@5", "R@10", "MRR", "nDCG@10")
DEPTH = 100
"""How deep the fused list is asked for, so that its best by words alone and by meaning alone are in it."""


def judge() -> ModuleType:
    """The shared script that knows the format and the metrics."""
    spec = importlib.util.spec_from_file_location("retrieval_eval", JUDGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draft(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn as an entry, in the scope of its conversation."""
    content = f"{turn['speaker']}: {turn['text']}" + (f" [shows: {turn['caption']}]" if turn["caption"] else "")
    return {"content": content, "scope": Scope.workspace(turn["scope"]), "created_at": turn["time"], "key": turn["id"]}


def absent() -> str:
    return "" if DATA.exists() and JUDGE.exists() else "the conversations are not beside this clone"


async def imports(folder: Path, rounds: int) -> list[Figure]:
    names = tuple(f"import of 2,760 turns, {how}" for how in ("write_many", "write_many, opening and loading included", "`memory import`"))
    if reason := absent():
        return [Figure(name, None, "turns/s", 1500, at_least=True, note=reason) for name in names]
    turns, _ = judge().load(str(DATA))
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
    facade = Figure(names[0], len(turns) / median(written), "turns/s", 1500, at_least=True, raw=len(turns) / median(bare))
    whole = Figure(names[1], len(turns) / whole_s, "turns/s", 1500, at_least=True, raw=len(turns) / raw_whole_s)
    return [facade, whole, command_line(folder, rounds, turns, names[2])]


def command_line(folder: Path, rounds: int, turns: Sequence[dict[str, Any]], name: str) -> Figure:
    """The same through the command, start-up included."""
    file = folder / "turns.jsonl"
    lines = ({"role": t["speaker"], "content": draft(t)["content"], "time": t["time"], "id": t["id"]} for t in turns)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    taken = []
    for number in range(rounds):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "memory_tiers", "import", str(file), "--scope", "workspace:bench"]
        environment = os.environ | {"MEMORY_CONFIG": f"sqlite:///{folder / f'cli-{number}.db'}"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            return Figure(name, None, "turns/s", 1500, at_least=True, note=(done.stderr.strip() or done.stdout.strip())[-160:])
        taken.append(time.perf_counter() - begun)
    return Figure(name, len(turns) / median(taken), "turns/s", 1500, at_least=True, note="start-up included")


async def quality(folder: Path, rounds: int) -> list[Figure]:
    """Each turn an entry, each conversation a scope, each question a search; the shared script's metrics, in percent."""
    names = [f"LoCoMo, by {way}: {metric}" for way in ("words", "meaning", "both") for metric in SHOWN]
    if reason := absent():
        return [Figure(name, None, "%", note=reason) for name in names]
    script = judge()
    turns, questions = script.load(str(DATA))
    runs: dict[str, dict[str, list[str]]] = {"words": {}, "meaning": {}, "both": {}}
    async with Memory(f"sqlite:///{folder / 'quality.db'}") as memory:
        written = await memory.write_many([draft(t) for t in turns])
        turn_of = {entry.id: turn["id"] for entry, turn in zip(written, turns, strict=True)}
        for question in questions:
            hits = await memory.search(question["text"], scope=Scope.workspace(question["scope"]), limit=DEPTH, explain=True)
            runs["both"][question["qid"]] = [turn_of[h.entry.id] for h in hits]
            for way in ("words", "meaning"):
                ranked = sorted((h.explanation[f"by_{way}"]["rank"], turn_of[h.entry.id]) for h in hits if f"by_{way}" in h.explanation)
                runs[way][question["qid"]] = [turn for _, turn in ranked]
    scores = {way: script.score(questions, run) for way, run in runs.items()}
    return [Figure(f"LoCoMo, by {way}: {metric}", scores[way][metric], "%") for way in runs for metric in SHOWN]
