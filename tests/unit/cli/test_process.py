"""`memory` as a process: how fast it says what it is, how it ends when interrupted,
killed, or not listened to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MESSAGES = 8_000
HEAVY = ("pydantic", "sqlalchemy", "numpy", "tokenizers", "wordllama", "asyncio", "platformdirs")


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY")}
    return {**clean, "MEMORY__EMBEDDER": "none", **more}


def start(folder: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "memory.cli", *words]
    pipes = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "encoding": "utf-8",
    }
    return subprocess.Popen(command, cwd=folder, env=environment(), **{**pipes, **options})


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def help_by(script: str, folder: Path) -> str:
    """What a script that runs the command line prints for `--help`."""
    command = [sys.executable, "-c", script, "--help"]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=True, timeout=600
    ).stdout


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    file = tmp_path / "chat.jsonl"
    file.write_text(
        "".join(
            json.dumps({"role": "user", "content": f"turn {n} " + "x" * 500, "id": f"m{n}"}) + "\n"
            for n in range(MESSAGES)
        )
    )
    return file


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom memory.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n   "
        " print('LOADED', *sorted(sys.modules))"
    )
    out = help_by(script, tmp_path)
    assert "Exit codes" in out
    assert not set(HEAVY) & set(out.partition("LOADED")[2].split())


def test_a_process_that_ends_looks_through_nothing_for_garbage(tmp_path: Path) -> None:
    script = (
        "import atexit, gc\nfrom memory_tiers import main\natexit.register(lambda: print('LEFT',"
        " len(gc.get_objects())))\nmain()"
    )
    out = help_by(script, tmp_path)
    assert int(out.partition("LEFT ")[2]) < 1_000


def test_json_output_is_json_and_nothing_else(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "--config", "m.db", "write", "héllo", "-s", "user:ada", "--json")
    assert (code, json.loads(out)["content"], err) == (0, "héllo", "")


@pytest.mark.thorough
def test_an_interrupted_import_ends_with_130_and_can_be_finished(tmp_path: Path, conversation: Path) -> None:
    acknowledged = cut_off(tmp_path, conversation, signal.SIGINT, expected=130)
    lines = conversation.read_text().splitlines(keepends=True)[: acknowledged + 500]
    conversation.write_text("".join(lines))  # all 8,000 messages would take seconds
    finished = json.loads(run(tmp_path, "--config", "m.db", "import", conversation.name, "--json")[1])
    assert finished["already_there"] >= acknowledged
    assert finished["imported"] + finished["already_there"] == len(lines)


@pytest.mark.nightly
def test_a_killed_import_loses_nothing_acknowledged_and_doubles_nothing(
    tmp_path: Path, conversation: Path
) -> None:
    acknowledged = cut_off(tmp_path, conversation, signal.SIGKILL, expected=-signal.SIGKILL)
    there = exported(tmp_path)
    assert len(there) == len(set(there)) >= acknowledged
    assert {f"turn {n}" for n in range(acknowledged)} <= set(there)
    assert run(tmp_path, "--config", "m.db", "import", conversation.name)[0] == 0
    assert sorted(exported(tmp_path)) == sorted(f"turn {n}" for n in range(MESSAGES))


def cut_off(folder: Path, conversation: Path, how: signal.Signals, *, expected: int) -> int:
    """End an import after a few acknowledged batches; how many messages it had
    acknowledged.

    The import steps back behind this process, which has to end it in time also where
    both wait for a processor.
    """

    def behind() -> None:
        os.nice(10)
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # a shell's background jobs ignore it, and so would their children

    process = start(folder, "--config", "m.db", "import", conversation.name, "--acks", preexec_fn=behind)
    assert process.stderr is not None
    acks = [json.loads(process.stderr.readline())["committed"] for _ in range(3)]
    process.send_signal(how)
    _, err = process.communicate(timeout=600)
    assert process.returncode == expected
    assert "Traceback" not in err
    acks += [
        json.loads(line)["committed"]
        for line in err.splitlines()
        if line.startswith("{") and line.endswith("}")
    ]
    assert acks[-1] < MESSAGES
    return int(acks[-1])


def exported(folder: Path) -> list[str]:
    _, out, _ = run(folder, "--config", "m.db", "export")
    return [json.loads(line)["content"].partition(" x")[0] for line in out.splitlines()]


@pytest.mark.thorough
def test_a_reader_that_goes_away_is_no_drama(tmp_path: Path, conversation: Path) -> None:
    some = tmp_path / "some.jsonl"
    some.write_text(
        "".join(conversation.read_text().splitlines(keepends=True)[:1_000])
    )  # more than waits in a pipe
    assert run(tmp_path, "--config", "m.db", "import", some.name)[0] == 0
    process = start(tmp_path, "--config", "m.db", "export")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("{")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=600) == 141


def test_a_reader_of_what_is_for_people_may_go_away_too(tmp_path: Path) -> None:
    process = start(tmp_path, "--config", "m.db", "doctor", stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=600) == 141
