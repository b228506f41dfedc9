"""What a measurement is, and how a table of them looks."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One measured number. `target` is met at or below it, or at or above it where
    `at_least`, and so is `ratio_target`. A value of None was not measured; `note` says
    why.
    """

    name: str
    value: float | None
    unit: str
    target: float | None = None
    at_least: bool = False
    raw: float | None = None
    ratio_target: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the raw engine's number this is."""
        return self.value / self.raw if self.value is not None and self.raw else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none or nothing was measured."""
        if self.value is None:
            return None
        verdicts = []
        if self.target is not None:
            verdicts.append(self.value >= self.target if self.at_least else self.value <= self.target)
        if self.ratio_target is not None and self.ratio is not None:
            verdicts.append(
                self.ratio >= self.ratio_target if self.at_least else self.ratio <= self.ratio_target
            )
        return all(verdicts) if verdicts else None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.999999) - 1))]


def resident() -> int:
    """The bytes of memory that this process has now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def seconds(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def side_by_side(rounds: int, *calls: Callable[[int], Awaitable[object]]) -> list[float]:
    """The median seconds of each call, taking turns, so that what slows the machine
    slows all of them.
    """
    taken: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            begun = time.perf_counter()
            await call(number)
            times.append(time.perf_counter() - begun)
    return [median(times) for times in taken]


def shown(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def aims(figure: Figure) -> str:
    parts = []
    if figure.target is not None:
        parts.append(f"{'≥' if figure.at_least else '≤'} {shown(figure.target)}")
    if figure.ratio_target is not None:
        parts.append(f"{'≥' if figure.at_least else '≤'} {figure.ratio_target:g} × raw")
    return ", ".join(parts)


def table(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = ["| what | measured | raw engine | ratio | target | met |", "|---|---|---|---|---|---|"]
    for f in figures:
        verdict = {True: "yes", False: "**no**", None: ""}[f.met]
        measured = f"{shown(f.value)} {f.unit}" if f.value is not None else f"not measured: {f.note}"
        raw = f"{shown(f.raw)} {f.unit}" if f.raw is not None else ""
        ratio = f"{f.ratio:.2f}" if f.ratio is not None else ""
        note = f" ({f.note})" if f.note and f.value is not None else ""
        lines.append(f"| {f.name}{note} | {measured} | {raw} | {ratio} | {aims(f)} | {verdict} |")
    return "\n".join(lines)


def machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python"
        f" {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def report(figures: Sequence[Figure], file: Path | None, how: str = "") -> None:
    """Print the table, and what falls short; write the figures as JSON where a file is
    named.
    """
    print(
        "\n"
        + "; ".join(filter(None, [machine(), how, f"load {os.getloadavg()[0]:.1f}"]))
        + f"\n\n{table(figures)}"
    )
    if file is not None:
        file.write_text(
            json.dumps({"machine": machine(), "figures": [f.as_json() for f in figures]}, indent=1) + "\n"
        )
    verdicts = {f.name: f.met for f in figures if f.met is not None}
    missed = [name for name, met in verdicts.items() if not met]
    if verdicts:
        print(
            "\nEvery target that was measured is met."
            if not missed
            else "\nTargets missed: " + "; ".join(missed) + "."
        )
