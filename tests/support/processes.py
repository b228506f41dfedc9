"""Other Pythons that run beside a test."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Another Python running this program."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(processes: Sequence[subprocess.Popen[str]], within: float = 60) -> list[str]:
    """What each printed; all must have ended well."""
    outputs = []
    for process in processes:
        out, err = process.communicate(timeout=within)
        assert process.returncode == 0, err
        outputs.append(out)
    return outputs


def last_before_kill(writer: subprocess.Popen[str], number: int) -> int:
    """The last number that it printed; it is killed once it has printed this one, and
    has gone on until it noticed.
    """
    last = -1
    assert writer.stdout is not None
    for line in writer.stdout:
        last = int(line)
        if last == number:
            writer.send_signal(signal.SIGKILL)
    assert writer.wait() == -signal.SIGKILL
    return last


class Racers:
    """Processes that each carry out what they are told at the same moment."""

    def __init__(self, program: str, config: dict[str, Any], names: Sequence[str]) -> None:
        self._processes = {
            name: subprocess.Popen(
                [sys.executable, "-c", program, json.dumps(config), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in names
        }

    def race(self, *told: object) -> dict[str, Any]:
        """What each answers to these arguments, by its name."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.write(json.dumps(told) + "\n")
            process.stdin.flush()
        return {name: json.loads(line_of(process)) for name, process in self._processes.items()}

    def wait_until_open(self) -> None:
        for process in self._processes.values():
            assert line_of(process) == "open", process.stderr.read() if process.stderr else ""

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()


@contextmanager
def racers(
    program: str, config: dict[str, Any], names: Sequence[str] = ("left", "right")
) -> Iterator[Racers]:
    """Processes over one configuration. The program gets it and its name, prints "open",
    and then an answer in JSON for each line of JSON.
    """
    made = Racers(program, config, names)
    try:
        made.wait_until_open()
        yield made
    finally:
        made.end()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
