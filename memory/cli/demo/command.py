"""The command `memory demo`: the main job on a bundled conversation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from memory.cli.command import Cli, add_commands


def register(app: typer.Typer) -> None:
    add_commands(app, {"demo": demo})


async def demo(
    cli: Cli,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="PATH", help="Keep the database in this file, to explore it afterwards."
        ),
    ] = None,
) -> int:
    """Run a demo: remember a conversation, answer questions, end the session.

    Then it repeats the conversation with a small context window. It runs on one
    temporary SQLite file, or on the stores that --config names. Exits with 1 if the
    evidence for an answer is not among the first five results, or if the history lacks
    a message.
    """
    from memory.domain.errors import InvalidInput

    if keep is not None and cli.config is not None:
        raise InvalidInput("--keep", "cannot be combined with --config, which already names the stores")
    with tempfile.TemporaryDirectory(prefix="memory-demo-") as folder:
        source = cli.config or str((keep or Path(folder) / "demo.db").absolute())
        return await _run_demo(cli, source, kept=keep)


async def _run_demo(cli: Cli, source: str, *, kept: Path | None) -> int:
    from memory.cli.demo import rendering
    from memory.cli.demo.run import Demo
    from memory.cli.demo.window import talk
    from memory.cli.transfer import progress
    from memory.facade.config.settings import MemoryConfig
    from memory.facade.memory import Memory

    started = time.perf_counter()
    document: dict[str, Any] = {}

    def section(name: str, found: Any) -> None:
        document[name] = found
        if not cli.json:
            rendering.SECTIONS[name](cli.out, found)

    async with Memory(MemoryConfig.load(source, tenant=cli.tenant)) as memory:
        main_job = Demo(memory)
        if not cli.json:
            rendering.opening(cli.out, memory.config)
        with progress(cli, "remembering") as advance:
            remembered = await main_job.remember(advance)
        section("remembered", remembered)
        section("routes", main_job.routes())
        answers = await main_job.answers()
        section("answers", answers)
        section("promotion", await main_job.end_session())
        again = await main_job.answer(answers[-1]["question"], answers[-1]["expected"])
        section("asked_again", again)
        section("tiers", await main_job.tiers())
        window = await talk(memory, answers)
        section("window", window)
    found = (
        all(answer["found_at"] is not None for answer in (*answers, again, *window["recalled"]))
        and window["kept"] == window["said"]
    )
    document |= {
        "all_found": found,
        "seconds": round(time.perf_counter() - started, 2),
        "kept_in": str(kept) if kept else None,
    }
    cli.emit(document, lambda out: rendering.closing(out, document))
    return 0 if found else 1
