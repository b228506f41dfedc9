"""The command line, called in this process on a database file of its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer.testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from memory.cli.main import app

_made_once = functools.cache(get_command)
"""The runner makes every command anew for each call, which took nearly half of the time
of these tests.
"""


@dataclass(frozen=True)
class CommandLine:
    """`memory` in an empty folder."""

    folder: Path
    environ: Mapping[str, str]

    def __call__(self, *words: str, stdin: str | bytes | None = None) -> Result:
        with patch.object(typer.testing, "_get_command", _made_once):
            return CliRunner().invoke(
                app, list(words), input=stdin, env=dict(self.environ), catch_exceptions=False
            )

    def ok(self, *words: str, stdin: str | bytes | None = None) -> str:
        result = self(*words, stdin=stdin)
        assert result.exit_code == 0, result.stderr
        return str(result.stdout)

    def json(self, *words: str, stdin: str | bytes | None = None, code: int = 0) -> Any:
        result = self(*words, "--json", stdin=stdin)
        assert result.exit_code == code, result.stderr
        return json.loads(result.stdout)

    def write_lines(self, name: str, *objects: object) -> str:
        (self.folder / name).write_text("".join(json.dumps(item) + "\n" for item in objects))
        return name


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    environ = {"MEMORY_CONFIG": "sqlite:///memory.db", "MEMORY__EMBEDDER": "none", "COLUMNS": "200"}
    return CommandLine(tmp_path, environ)
