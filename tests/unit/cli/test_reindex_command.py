"""`memory reindex`, and what doctor says of one that is under way."""

from __future__ import annotations

from pathlib import Path

from memory import BlockingMemory
from tests.support.turned import Embedder
from tests.unit.cli.conftest import CommandLine

OLD, NEW = Embedder("of yesterday"), Embedder("of today", turned=1)
USER, CONFIG = "user:ada", ("-c", "memory.db")


def fill(folder: Path) -> None:
    with BlockingMemory(str(folder / "memory.db"), embedder=OLD) as memory:
        for text in ("Ada prefers tea", "A heron stood there"):
            memory.write(text, scope=USER)
        memory.session("s1").append([{"role": "user", "content": "tea with milk"}])


def test_it_makes_all_vectors_with_the_embedder_that_is_configured(
    memory: CommandLine, tmp_path: Path
) -> None:
    fill(tmp_path)
    memory = CommandLine(tmp_path, {**memory.environ, "MEMORY__EMBEDDER": "wordllama"})
    assert "memory reindex" in memory("search", "beverage", "--scope", USER, *CONFIG).stderr
    assert memory.ok("reindex", *CONFIG).startswith("3 vectors rebuilt with wordllama")
    assert memory.json("reindex", *CONFIG) | {"model": ""} == {
        "model": "",
        "ended": True,
        "made": 0,
        "left": 0,
        "waiting": [],
    }
    assert "Ada prefers tea" in memory.ok("search", "beverage", "--scope", USER, *CONFIG)


def test_without_an_embedder_it_says_so_and_begins_nothing(memory: CommandLine) -> None:
    refused = memory("reindex", *CONFIG)
    assert refused.exit_code == 4
    assert "embedder: none is configured" in refused.stderr


def test_doctor_tells_that_one_is_under_way_and_how_many_are_left(
    memory: CommandLine, tmp_path: Path
) -> None:
    fill(tmp_path)
    assert memory.json("doctor", *CONFIG)["reindex"] is None
    begun = BlockingMemory(str(tmp_path / "memory.db"), embedder=NEW)
    begun.open(reindex=True)
    begun.close()
    shown = " ".join(memory.ok("doctor", *CONFIG).split())
    assert "a reindex to of today (3 dimensions, cosine) is not complete: 3 vectors are left" in shown
    assert "of yesterday (3 dimensions, cosine), with a reindex to of today" in shown
    assert begun.admin.reindex().ended
    assert memory.json("doctor", *CONFIG)["reindex"] is None
