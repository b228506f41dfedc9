"""The chapter "a fact changes its mind": its snippets run in order and print what it
says, and its picture is the one that they give.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memory.cli.main import app
from tests.support.readme import CHAPTER, blocks, commands

PICTURE = CHAPTER.with_suffix(".svg")
TRUE_NOW = "['Ada drinks coffee in Berlin', 'Ada goes to the office by tram 66', 'Ada lives in Berlin']"
PRINTED = [
    ["['Ada lives in Bonn']"],
    [TRUE_NOW, "[('supersedes', True)]", "ID"],
    [
        "[('Ada drinks tea in the morning', None), ('Ada drinks tea in the morning', '2025-09-02')]",
        "None",
        "['Ada drinks tea in the morning', 'Ada goes to the office by tram 66', 'Ada lives in Bonn']",
        "EntryPage([], degraded=[])",
    ],
    [
        (
            "[(0, 'Ada lives in Berlin', False), (1, 'Ada goes to the office by tram 66', False), (1, 'Ada"
            " lives in Bonn', True), (1, 'Ada drinks coffee in Berlin', False), (2, 'Ada drinks tea in the"
            " morning', True)]"
        ),
        "5 4 2",
    ],
    [
        "['Ada drinks tea in the morning', 'Ada goes to the office by tram 66', 'Ada lives in Berlin']",
        "True []",
    ],
]


def without_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", text)


def test_the_chapter_s_snippets_tell_its_story_and_draw_its_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[list[str]] = []
    snippets = blocks("python", CHAPTER)
    for number, snippet in enumerate(snippets):
        if number == len(snippets) - 1:
            drawn = _commands(printed[1][-1])
        exec(compile(snippet, f"snippet {number}", "exec"), {"__name__": "__main__"})  # noqa: S102 (ours)
        printed.append(capsys.readouterr().out.splitlines())
    assert [[without_ids(line) for line in lines] for lines in printed] == PRINTED
    assert drawn == PICTURE.read_text(encoding="utf-8"), (
        f"{PICTURE.name} is stale: write there what the commands of {CHAPTER.name} draw, with ID for each id"
    )
    assert f"]({PICTURE.name})" in CHAPTER.read_text(encoding="utf-8")


def _commands(entry_id: str) -> str:
    """The commands, before the last snippet undoes what they show; and the picture that
    they made, without the ids.
    """
    for command in commands(CHAPTER):
        words = [entry_id if word == "ID" else word for word in shlex.split(command)]
        assert words[0] == "memory"
        result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, (command, result.stderr)
        assert result.stdout.strip()
    return without_ids(Path(PICTURE.name).read_text(encoding="utf-8"))
