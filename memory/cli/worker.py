"""The command `memory worker`, which runs maintenance."""

from __future__ import annotations

import json
import signal
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from memory.cli.command import Cli, add_commands, log_tracebacks

if TYPE_CHECKING:
    from memory.domain.maintenance_reports import SweepReport


def register(app: typer.Typer) -> None:
    add_commands(app, {"worker": worker})


def _length(text: str) -> timedelta:
    from memory.domain.errors import InvalidInput
    from memory.facade.arguments import length

    try:
        return length("time", text)
    except InvalidInput as error:
        raise typer.BadParameter(error.problem) from None


async def worker(
    cli: Cli,
    every: Annotated[
        timedelta,
        typer.Option(
            parser=_length,
            metavar="TIME",
            help="The pause after a round that left nothing to do, such as 5m.",
            show_default="5m",
        ),
    ] = timedelta(minutes=5),
    budget: Annotated[
        timedelta,
        typer.Option(
            parser=_length,
            metavar="TIME",
            help="The longest time of one round, such as 30s.",
            show_default="30s",
        ),
    ] = timedelta(seconds=30),
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="Change at most N records per second.")
    ] = None,
) -> None:
    """Run maintenance until stopped: complete writes, move and delete records.

    A worker runs rounds (sweeps). Each round completes the work that writes left for
    later, such as copies in other stores, deletes expired data, and applies the rules.

    Run as many workers as you like, on any number of machines. One works at a time;
    another takes over when that worker ends or dies. SIGTERM or Ctrl-C stops a worker
    after its current records; a second signal stops it at once.
    """
    import asyncio

    from memory.domain.time import show_duration
    from memory.facade.memory import Memory
    from memory.facade.worker import Worker

    log_tracebacks()
    settings = cli.settings()
    own = settings.model_copy(
        update={"durations": settings.durations.model_copy(update={"sweep_every": timedelta(0)})}
    )
    memory = Memory(own)
    working = Worker(memory, every=every, budget=budget, rate=rate, told=lambda report: _tell(cli, report))
    loop = asyncio.get_running_loop()

    def asked_to_end(number: signal.Signals) -> None:
        cli.say("stopping after the current records; a second signal stops at once")
        working.stop()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_end, number)
    async with memory:
        cli.say(
            f"working: a round takes at most {show_duration(budget)}, the pause between rounds is"
            f" {show_duration(every)}; Ctrl-C stops the worker"
        )
        await working.run()
    cli.say("stopped; the next worker continues")


def _tell(cli: Cli, report: SweepReport) -> None:
    """Print a line for each round: JSON for programs, else words."""
    said = report.to_dict()
    if cli.json:
        sys.stdout.write(json.dumps(said, default=str) + "\n")
        sys.stdout.flush()
        return
    if not report.ran:
        cli.say("another worker is running")
        return
    done = [
        f"{name.replace('_', ' ')} {count}" for name, count in said.items() if type(count) is int and count
    ]
    cli.say(", ".join(done) or "nothing to do")
    for sentence in (*report.waiting, *report.stays):
        cli.say(f"  {sentence}")
