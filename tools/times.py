"""Where a run of the tests spends its time: on the clock, on the processor, and in the
processes that it starts.

    make test PYTEST_FLAGS="-p tools.times"      writes down what each test takes, in .times/
    python -m tools.times [file|function|test] [N]   the N that took most, and when each worker came to its end
    python -m tools.times busy [SECONDS]             how many processors the tests kept busy in each 20 seconds, and what each worker was at
    python -m tools.times slow SECONDS               adds the functions that took so long to tests/slow.txt, which everyone's run leaves to CI

Servers in containers take processor time that is nobody's child: it shows only as time
on the clock.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / ".times"
SLOW = FOLDER.parent / "tests" / "slow.txt"
_begun = time.monotonic()


def _now() -> tuple[float, float, float]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - _begun, own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def _say(what: str, since: tuple[float, float, float]) -> None:
    took = [round(now - then, 4) for now, then in zip(_now(), since, strict=True)]
    with (FOLDER / f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.jsonl").open("a") as file:
        file.write(json.dumps({"what": what, "at": round(_now()[0], 2), "took": took}) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    FOLDER.mkdir(exist_ok=True)
    if not hasattr(config, "workerinput"):
        for file in FOLDER.glob("*.jsonl"):
            file.unlink()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    began = _now()
    try:
        return (yield)
    finally:
        _say("collection", began)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    began = _now()
    try:
        return (yield)
    finally:
        _say(item.nodeid, began)


def _lines() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.jsonl")):
        yield from ((file.stem, json.loads(line)) for line in file.read_text().splitlines())


def _part(test: str, by: str) -> str:
    path, _, rest = test.partition("::")
    harness = test.rpartition("@")[2] if "test_built_ins" in path else ""
    return {
        "file": f"{path} {harness}".strip(),
        "function": f"{path}::{rest.partition('[')[0]}",
        "test": test,
    }[by]


def _add_slow(seconds: float) -> None:
    took: dict[str, float] = defaultdict(float)
    for _, line in _lines():
        took[_part(line["what"], "function")] += line["took"][1] + line["took"][2]
    lines = SLOW.read_text().splitlines()
    head = [line for line in lines if line.startswith("#")]
    of_tests = {
        function.partition("@")[0]: spent for function, spent in took.items() if function.startswith("tests/")
    }
    slow = {
        function
        for function, spent in of_tests.items()
        if spent >= seconds and "test_built_ins" not in function
    }  # the contract runs whole
    SLOW.write_text(
        "\n".join([*head, *sorted({line for line in lines if not line.startswith("#")} | slow)]) + "\n"
    )


def _show_busy(length: float) -> None:
    """Print a line for each length of the run. Where the number is low and servers are
    not what keeps the processors busy, workers wait: start something else beside it.
    """
    used: dict[int, float] = defaultdict(float)
    at: dict[int, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for worker, line in _lines():
        clock, *spent = line["took"]
        end = line["at"]
        group = line["what"].rpartition("@")[2]
        for part in range(int((end - clock) // length), int(end // length) + 1):
            within = min(end, (part + 1) * length) - max(end - clock, part * length)
            used[part] += sum(spent) * within / max(clock, 1e-9)
            at[part][worker][group] += within
    for part, seconds in sorted(used.items()):
        longest = {worker: max(groups, key=groups.__getitem__) for worker, groups in sorted(at[part].items())}
        print(f"{part * length:6.0f} {seconds / length:5.2f}  {'  '.join(longest.values())}")


def main(by: str = "file", most: str = "") -> None:
    if by == "slow":
        _add_slow(float(most))
        return
    if by == "busy":
        _show_busy(float(most or 20))
        return
    took: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    ended: dict[str, dict[str, Any]] = {}
    for worker, line in _lines():
        ended[worker] = line
        for place, amount in enumerate((1, *line["took"])):
            took[_part(line["what"], by)][place] += amount
    print("  tests    clock      own  children")
    for part, (tests, clock, own, children) in sorted(
        took.items(), key=lambda item: -item[1][2] - item[1][3]
    )[: int(most or 40)]:
        print(f"{tests:7} {clock:8.1f} {own:8.1f} {children:9.1f}  {part}")
    print(
        f"all     {sum(t[1] for t in took.values()):8.1f} {sum(t[2] for t in took.values()):8.1f}"
        f" {sum(t[3] for t in took.values()):9.1f}"
    )
    for worker, line in sorted(ended.items()):
        print(f"{worker} ended after {line['at']} s with {line['what']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
