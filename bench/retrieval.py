"""How well what was said is found again, and how fast: `python -m bench retrieval
--data FILE --out RUN.jsonl`, or this file as a program.

Each turn becomes an entry, each conversation a scope, each session of it a conversation
of entries, and each question a search. What was found is written a line a question,
`{"qid": ..., "ids": [...]}`, best first. With `--speed` made-up texts are searched
instead, on several topologies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

if not __package__:  # run as a file: beside it stand modules that are named like drivers
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.locomo import DEPTH, Question, Turn, load, scores
from bench.measure import Figure, percentile, report
from bench.placed import on_each, opened
from bench.speed import LARGEST, NAMES, SIZES, named, of, speed
from memory import EntryDraft, Memory, Scope

OPEN = Path(__file__).resolve().parents[2] / "shared" / "data" / "locomo_open.json"
"""Five open conversations, where they lie beside this clone."""
AT_ONCE = 500
"""Turns in one call of write_many, questions between two lines of progress."""
SHUFFLED_BY = 7


@dataclass(frozen=True, slots=True)
class Way:
    """How the turns are given: `plain` shuffles them and leaves out moment,
    conversation and speaker; `together` puts all of them in one scope.
    """

    name: str = "told in order"
    plain: bool = False
    together: bool = False

    def scope(self, conversation: str) -> Scope:
        return Scope.workspace("everything" if self.together else conversation)

    def given(self, turns: Sequence[Turn]) -> list[Turn]:
        """Those that say something, in the order in which they are written."""
        said = [turn for turn in turns if turn.text]
        if self.plain:
            random.Random(SHUFFLED_BY).shuffle(said)  # noqa: S311 - repeatable, not secret
        return said

    def draft(self, turn: Turn) -> EntryDraft:
        entry: dict[str, Any] = {"content": turn.text, "scope": self.scope(turn.conversation)}
        if self.plain:
            return EntryDraft(**entry)
        place = {
            "conversation_id": f"{turn.conversation}/{turn.session}",
            "number_in_conversation": turn.number,
        }
        return EntryDraft(**entry, **place, speaker=turn.speaker, created_at=turn.at)


TARGETS = {
    Way(): {"recall@5": 74, "recall@10": 81, "nDCG@10": 66},
    Way("plain facts", plain=True): {"recall@10": 62},
    Way("in one scope", together=True): {},
}
"""What is asked of the open conversations, in percent."""


@dataclass(frozen=True, slots=True)
class Run:
    """The turns found for each question, and the seconds each search took."""

    found: dict[str, list[str]]
    seconds: list[float]

    def write(self, file: Path) -> None:
        file.write_text(
            "".join(
                json.dumps({"qid": question, "ids": turns}) + "\n" for question, turns in self.found.items()
            )
        )


async def run(memory: Memory, turns: Sequence[Turn], questions: Sequence[Question], way: Way) -> Run:
    """Write the turns, ask the questions, and erase what was written."""
    turn_of: dict[str, str] = {}
    given, begun = way.given(turns), time.perf_counter()
    for start in range(0, len(given), AT_ONCE):
        some = given[start : start + AT_ONCE]
        entries = await memory.write_many([way.draft(turn) for turn in some])
        turn_of |= {entry.id: turn.id for entry, turn in zip(entries, some, strict=True)}
    await memory.admin.sweep()  # what was to be copied onward has arrived
    _say(f"{len(given):,} turns written in {time.perf_counter() - begun:.1f} s")
    asked = Run({}, [])
    for number, question in enumerate(questions, 1):
        begun = time.perf_counter()
        hits = await memory.search(question.text, scope=way.scope(question.conversation), limit=DEPTH)
        asked.seconds.append(time.perf_counter() - begun)
        asked.found[question.id] = [turn_of[hit.entry.id] for hit in hits]
        if number % AT_ONCE == 0 or number == len(questions):
            _say(f"{number:,} of {len(questions):,} questions asked")
    for conversation in dict.fromkeys(turn.conversation for turn in turns):
        await memory.admin.erase(way.scope(conversation))
    return asked


def figures(
    name: str, questions: Sequence[Question], asked: Run, targets: Mapping[str, float] | None = None
) -> list[Figure]:
    quality = scores(questions, asked.found)
    return [
        *(
            Figure(f"{name}: {metric}", value, "%", (targets or {}).get(metric), at_least=True)
            for metric, value in quality.items()
        ),
        Figure(f"{name}: a search, p50", median(asked.seconds) * 1000, "ms"),
        Figure(f"{name}: a search, p95", percentile(asked.seconds, 0.95) * 1000, "ms"),
    ]


async def retrieval(folder: Path, rounds: int) -> list[Figure]:
    """The open conversations on one file, in every way."""
    if not OPEN.exists():
        return [Figure("the open conversations", None, "%", note="they are not beside this clone")]
    turns, questions = load(OPEN)
    found: list[Figure] = []
    async with opened(f"sqlite:///{folder / 'retrieval.db'}") as memory:
        for way, targets in TARGETS.items():
            found += figures(
                f"open conversations, {way.name}",
                questions,
                await run(memory, turns, questions, way),
                targets,
            )
    return found


async def _asked(arguments: argparse.Namespace, name: str, memory: Memory) -> list[Figure]:
    turns, questions = load(arguments.data)
    async with memory:
        asked = await run(memory, turns, questions, Way(plain=arguments.plain, together=arguments.together))
    asked.write(arguments.out)
    said = [name for name in ("plain", "together") if getattr(arguments, name)]
    return figures(", ".join([arguments.data.stem, name, *said]), questions, asked)


async def _measured(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    """What was asked for, where it was asked for."""
    sizes = (*SIZES, LARGEST) if arguments.largest else SIZES

    async def there(name: str, config: str | dict[str, Any]) -> list[Figure]:
        memory = opened(config, arguments.embedder)
        return await (
            of(name, memory, arguments.rounds, sizes) if arguments.speed else _asked(arguments, name, memory)
        )

    if arguments.config is not None:
        return await there("as configured", arguments.config)
    if arguments.on is None and arguments.speed:
        return await speed(folder, arguments.rounds, sizes)
    if arguments.on is None and arguments.data is None:
        return await retrieval(folder, 1)
    return await on_each(
        [named(arguments.on or "default")],
        folder,
        "searches",
        lambda placing, place: there(placing.name, placing.config(place)),
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench retrieval",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE",
        help="conversations with questions; the open ones, in every way, where none is named",
    )
    parser.add_argument("--out", type=Path, metavar="RUN.jsonl", help="where what was found is written")
    parser.add_argument("--config", help="a memory.toml or a URL")
    parser.add_argument(
        "--on",
        choices=NAMES,
        help="a topology, on servers that are started for it; one file where neither is given",
    )
    parser.add_argument(
        "--embedder",
        metavar="NAME",
        help="instead of the configured one: its name, or the folder of an encoder",
    )
    parser.add_argument(
        "--plain", action="store_true", help="the turns shuffled, without moment, conversation and speaker"
    )
    parser.add_argument("--together", action="store_true", help="all conversations in one scope")
    parser.add_argument(
        "--speed",
        action="store_true",
        help=f"searches of scopes of {', '.join(f'{size:,}' for size in SIZES)} entries instead",
    )
    parser.add_argument("--largest", action="store_true", help=f"of {LARGEST:,} too")
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often the searches are repeated; the median counts"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    arguments = parser.parse_args(given)
    if arguments.data is not None and arguments.out is None:
        parser.error("--data wants --out")
    if (
        arguments.data is None
        and not arguments.speed
        and any((arguments.config, arguments.on, arguments.embedder, arguments.plain, arguments.together))
    ):
        parser.error("say what is asked for: --data, or --speed")
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        report(asyncio.run(_measured(arguments, Path(folder))), arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
