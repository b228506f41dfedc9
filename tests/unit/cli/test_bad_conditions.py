"""The command line where something around it is bad: interrupts, full or closed outputs,
names that are no text.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.core import TyperGroup

import memory_tiers
from memory.cli import main as command_line
from memory.cli.command import Cli, run
from memory.cli.options import write_whole
from memory.domain.errors import InvalidInput
from tests.unit.cli.conftest import CommandLine

LATIN = os.fsdecode(b"caf\xe9")


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("where", "name"), [(command_line, "app"), (TyperGroup, "make_context"), (TyperGroup, "invoke")]
)
def test_an_interrupt_before_a_command_runs_is_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: Any, name: str
) -> None:
    monkeypatch.setattr(where, name, interrupt)
    monkeypatch.setattr(sys, "argv", ["memory", "stats", "--json"])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err) == (130, "interrupted\n")
    assert json.loads(printed.out)["error"]["code"] == "interrupted"


def test_an_interrupt_while_the_command_line_is_loaded_is_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "memory.cli.main", Interrupted("memory.cli.main"))
    with pytest.raises(SystemExit) as ended:
        memory_tiers.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def process(*words: str, out: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "memory.cli", *words],
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_an_output_that_is_full_is_one_line() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        said = process("--version", out=full)
    finally:
        os.close(full)
    assert said == (2, f"error: standard output: {os.strerror(errno.ENOSPC)}\n")


def test_help_whose_reader_has_gone_ends_quietly_with_141() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert process("--help", out=writer) == (141, "")
    finally:
        os.close(writer)


def test_logged_errors_are_one_line_except_of_commands_that_run_on() -> None:
    script = (
        "import logging\nfrom memory.cli.command import Cli, log_tracebacks, run\ndef fail():\n    try:\n       "
        " raise OSError('no luck')\n    except OSError:\n        logging.getLogger('memory').exception('a job"
        " failed')\ndef fail_in_server():\n    log_tracebacks()\n    fail()\nrun(Cli(), fail)\nprint('-',"
        " file=__import__('sys').stderr)\nrun(Cli(), fail_in_server)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    short, _, long = done.stderr.partition("-\n")
    assert short == "a job failed: no luck\n"
    assert "Traceback" in long


def test_a_file_whose_name_is_no_text_can_be_imported(memory: CommandLine) -> None:
    name = f"{LATIN}.jsonl"
    try:
        (memory.folder / name).write_text(json.dumps({"role": "user", "content": "Ada prefers tea"}) + "\n")
    except OSError:
        pytest.skip("the file system takes only names that are text")
    assert memory.json("import", name, "-s", "user:ada")["file"] == r"caf\xe9.jsonl"
    assert memory.json("import", name, "-s", "user:ada")["already_there"] == 1
    session = memory.json("session", "import", name)
    assert session["session_id"] == r"caf\xe9"


def test_an_argument_that_is_no_text_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise InvalidInput("content", "must not hold a lone surrogate")

    monkeypatch.setattr(sys, "argv", ["memory", "write", "tea"])
    assert run(Cli(), refuse) == 2
    assert "bytes" not in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["memory", "write", LATIN])
    assert run(Cli(), refuse) == 2
    assert "An argument holds bytes that are not utf-8: convert it first" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_whole_leaves_nothing_and_is_named(tmp_path: Path) -> None:
    def write_half() -> None:
        with write_whole(tmp_path / "all.jsonl") as file:
            file.write("half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=r"all\.jsonl"):
        write_half()
    assert list(tmp_path.iterdir()) == []
