"""With --json, standard output holds one JSON document, whatever the command and
however it ends.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.main import get_command

from memory.cli.main import app, main
from memory.ports.contract.cells import cells
from tests.unit.cli.conftest import CommandLine

COMMANDS: Any = get_command(app)
"""The group of all commands, some of which are groups."""


def _paths(group: Any, *before: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, one in group.commands.items():
        found += _paths(one, *before, name) if hasattr(one, "commands") else [(*before, name)]
    return found


def _required(path: tuple[str, ...]) -> list[str]:
    """Words for what a command cannot be called without."""
    one = COMMANDS
    for name in path:
        one = one.commands[name]
    words: list[str] = []
    for parameter in one.params:
        if parameter.required:
            said = "user:ada" if "scope" in parameter.name else "1"
            words += [said] if parameter.param_type_name == "argument" else [parameter.opts[0], said]
    return words


def _end(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, Any, str]:
    monkeypatch.setattr("sys.argv", ["memory", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), json.loads(out), err


@cells("path", _paths(COMMANDS), ids=" ".join, shared=True)
def test_every_command_ends_in_json_where_it_is_wrong(
    path: tuple[str, ...],
    memory: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, told, err = _end([*path, "--json", "--no-such-option"], monkeypatch, capsys)
    assert (code, told["error"]["code"], told["error"]["exit"]) == (2, "usage", 2)
    assert err.startswith("error: ")
    if path[0] in ("demo", "init"):  # these read no configuration
        return
    code, told, err = _end(
        [*path, *_required(path), "--json", "--config", "nosuch.yaml"], monkeypatch, capsys
    )
    assert told["error"]["exit"] == code != 0
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["--json", "--version"], ["--version", "--json"]], ids=" ".join)
def test_the_version_is_told_in_json(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told, err = _end(words, monkeypatch, capsys)
    assert (code, list(told), err) == (0, ["version"], "")


def test_nothing_asked_is_wrong_usage_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told, _ = _end(["--json"], monkeypatch, capsys)
    assert (code, told["error"]["code"]) == (2, "usage")


@cells(
    "words",
    [("bogus",), ("search",), ("stats", "--nope"), ("search", "x", "-s", "user:a", "-n", "many")],
    shared=True,
)
def test_wrong_usage_is_one_line_and_an_object_too(
    words: tuple[str, ...],
    memory: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, told, err = _end([*words, "--json"], monkeypatch, capsys)
    assert (code, told["error"]["code"]) == (2, "usage")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
