"""`memory worker` as a process: it ends when asked to."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from tests.support.processes import line_of
from tests.unit.cli.test_process import run, start

pytestmark = pytest.mark.backend("sqlite")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_worker_ends_when_asked_to_and_tells_each_round(tmp_path: Path, number: signal.Signals) -> None:
    worker = start(tmp_path, "worker", "--config", "m.db", "--every", "50ms", "--json")
    rounds = [json.loads(line_of(worker)) for _ in range(2)]
    worker.send_signal(number)
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, err) == (0, "")
    assert all(one["ran"] and not one["waiting"] for one in [*rounds, *map(json.loads, out.splitlines())])


def test_one_that_is_asked_to_end_while_it_opens_its_stores_ends_well(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (tmp_path / "memory.toml").write_text(
            f'[tiers]\nshort = "redis://127.0.0.1:{port}"\nmid = "sqlite:///m.db"\nlong = "sqlite:///m.db"\n'
        )
        worker = start(tmp_path, "worker", "--json")
        opening, _ = silent.accept()
        worker.send_signal(signal.SIGTERM)
    opening.close()
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("words", [("--every", "soon"), ("--budget", "0s"), ("--rate", "0")])
def test_what_is_no_time_is_refused_by_name(tmp_path: Path, words: tuple[str, str]) -> None:
    code, out, err = run(tmp_path, "worker", *words, "--json")
    assert code == 2
    assert words[0] in json.loads(out)["error"]["message"]
    assert words[0] in err
