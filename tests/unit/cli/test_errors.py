"""How errors become exit codes and one clear line."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from memory.cli.command import Cli, run
from memory.cli.exit_codes import classify_error
from memory.cli.main import GUESSES, app, main
from memory.domain import errors
from memory.domain.legal_hold import LegalHold
from memory.ports.contract.cells import cells
from tests.unit.cli.conftest import CommandLine

HOLD = LegalHold("case-17", "user", "ada", "a lawsuit", None, datetime(2026, 3, 1, tzinfo=UTC))
JUDGED = [
    (errors.InvalidInput("limit", "must be 1..1000"), 2, "invalid_input"),
    (errors.NotFound("x"), 1, "not_found"),
    (errors.Conflict("taken", "y"), 6, "conflict"),
    (errors.LegalHoldActive(HOLD), 6, "legal_hold_active"),
    (errors.QuotaExceeded("personal", "scope 'user:ada'", "entries", 10, 10, 1), 6, "quota_exceeded"),
    (errors.RejectedByGate("'source:web' is a blocked source"), 6, "rejected_by_gate"),
    (errors.InvalidScopePromotion("org", "user"), 2, "invalid_scope_promotion"),
    (errors.CompactionError(["a"], "no"), 2, "invalid_compaction"),
    (errors.Unsupported("ttl", store="s"), 4, "unsupported"),
    (errors.StoreUnavailable("s", "down"), 3, "store_unavailable"),
    (errors.StoreTimeout("s", "late"), 3, "store_timeout"),
    (errors.StoreFull("s", "full"), 3, "store_full"),
    (errors.CorruptRecord("s", "r", "checksum"), 5, "corrupt_record"),
    (errors.ConfigError("no"), 4, "invalid_config"),
    (errors.EmbedderMismatch("s", "a", "b"), 4, "embedder_mismatch"),
    (errors.EmbedderTimeout(timedelta(minutes=2)), 3, "embedder_timeout"),
    (FileNotFoundError(2, "No such file or directory", "x"), 2, "file"),
    (errors.NotOpen("memory"), 70, "not_open"),
    (ZeroDivisionError("division by zero"), 70, "internal"),
]


PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "errors.md"


def test_the_guide_lists_every_public_error_with_its_code_and_exit_code() -> None:
    row = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \|", re.MULTILINE)
    listed = {name: (int(exit_code), code) for name, code, exit_code in row.findall(PAGE.read_text())}
    public = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.MemoryTiersError)
    }
    del public["MemoryTiersError"]
    assert listed == {name: classify_error(kind.__new__(kind)) for name, kind in public.items()}


def ended(error: BaseException, cli: Cli) -> int:
    def work() -> None:
        raise error

    return run(cli, work)


@cells("error, code, name", JUDGED, ids=lambda case: type(case[0]).__name__, shared=True)
def test_every_error_has_its_exit_code_its_name_and_one_line(
    error: Exception, code: int, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert classify_error(error) == (code, name)
    assert ended(error, Cli(json=True)) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["error"].items() >= {"code": name, "exit": code}.items()
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_bug_says_that_it_is_one_and_shows_its_traceback_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(KeyError("x"), Cli()) == 70
    assert (
        capsys.readouterr().err
        == "error: this is a bug: KeyError: 'x' (--traceback shows where; please report it)\n"
    )
    assert ended(KeyError("x"), Cli(traceback=True)) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_message_of_several_lines_or_control_codes_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended(errors.ConfigError("first\nsecond \x1b[31m"), Cli())
    assert capsys.readouterr().err == "error: first second [31m\n"


def test_interruption_and_typers_own_ends_are_left_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(KeyboardInterrupt(), Cli()) == 130
    assert (
        capsys.readouterr().err
        == "interrupted; everything reported as done is stored; run the command again for the rest\n"
    )
    assert ended(typer.Exit(7), Cli()) == 7
    with pytest.raises(typer.Abort):
        ended(typer.Abort(), Cli())


def test_version_is_the_distributions(memory: CommandLine) -> None:
    assert memory.ok("--version") == f"memory-tiers {version('memory-tiers')}\n"


def test_help_names_the_exit_codes_and_every_command(memory: CommandLine) -> None:
    text = memory.ok("--help")
    commands = (
        "demo",
        "init",
        "doctor",
        "stats",
        "route",
        "plan",
        "why",
        "sweep",
        "write",
        "search",
        "list",
        "browse",
        "show",
        "promote",
        "forget",
        "import",
        "export",
        "config",
    )
    for words in (*commands, "Exit codes: 0 done; 1 nothing found"):
        assert words in text
    for command in commands[:-1]:
        assert "--json" in memory.ok(command, "--help")


def test_every_option_and_argument_has_help() -> None:
    commands: list[tuple[str, Any]] = [("memory", get_command(app))]
    silent = list[str]()
    for path, command in commands:  # which grows by the commands of each group
        silent += [f"{path} {one.name}" for one in command.params if not one.help]
        commands += [(f"{path} {name}", one) for name, one in getattr(command, "commands", {}).items()]
    assert len(commands) > 60
    assert silent == []


def test_a_guessed_command_is_answered_with_the_right_one() -> None:
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    guesses = [guess for guesses in GUESSES for guess in guesses.split()]
    assert not commands & set(guesses)
    assert {right for right in GUESSES.values() if not right.startswith("-")} <= commands
    assert len(guesses) == len(set(guesses))
    for guess, right in (("get", "show"), ("delete", "forget")):
        with pytest.raises(typer.BadParameter.__base__, match=f"Use 'memory {right}'"):  # type: ignore[arg-type]
            get_command(app)([guess], standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["update", "1", "green", "tea"], ". Pass a new text as --content 'green tea' (try: "),
        (["search", "--scope", "user:ada", "green", "tea"], ". Put a text of several words in quotes (try: "),
    ],
)
def test_a_text_without_quotes_is_explained(
    words: list[str], advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["memory", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert advice in capsys.readouterr().err


def test_a_closed_standard_output_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python does for `memory … >&-`
    monkeypatch.setattr(sys, "argv", ["memory", "config", "show"])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stdout.close()
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("list", "-s", "user:ada", "--limit", "x"), "'--limit' / '-n': must be a whole number, not \"x\""),
        (("write", "x", "-s", "user:ada", "--confidence", "high"), 'must be a number, not "high"'),
        (("serve", "--port", "99999"), "'--port': must be at most 65535, not \"99999\""),
    ],
)
def test_a_value_of_another_type_is_answered_with_what_is_accepted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["memory", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_an_error_at_the_command_line_has_no_types_of_python(memory: CommandLine) -> None:
    refused = memory("write", "x", "-s", "user:ada", "--metadata", "[1]")
    assert "metadata: must be an object, not a list" in refused.stderr


def test_an_update_that_changes_nothing_is_refused(memory: CommandLine) -> None:
    memory.ok("write", "x", "-s", "user:ada")
    for words in ((), ("--expected-version", "abc")):
        refused = memory("update", "1", *words)
        assert refused.exit_code == 2
        assert "would change nothing" in refused.stderr
