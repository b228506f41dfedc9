"""What must not be committed: addresses of package registries, paths of one machine,
and other people's data.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.ports.contract.cells import cells

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"

FORBIDDEN = {
    "the address of a package registry": re.compile(
        r"\b(?:files|upload|test|www)?\.?(?:pypi|pythonhosted|npmjs|crates)\.(?:org|io)\b|\b(?:deb|security|archive|ports)\.(?:debian|ubuntu)\.(?:org|com)\b"
        r"|https?://[^\s\"')]+/simple\b|--(?:extra-)?index-url[= ]http",
    ),
    "a path of one machine": re.compile(
        r"/(?<![\w.~-]/)(?:(?:work|root|opt)/[\w.]|(?:home|Users)/(?!project\b)\w+/)"
    ),
}
HERE = "tests/meta/test_tracked_files.py"
WIDTH = 30
"""Of a window: half of the shortest sentence that is looked for."""


def committed() -> Iterator[tuple[str, str]]:
    """Name and text of every file that is, or is about to be, committed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            yield name, path.read_bytes().decode("utf-8", errors="replace")


def test_no_file_holds_what_is_forbidden() -> None:
    found = [
        f"{name}:{text[: match.start()].count(chr(10)) + 1}: {what}: {match[0]}"
        for name, text in committed()
        if name != HERE
        for what, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]
    assert found == []


@cells(
    "what, line",
    [
        ("the address of a package registry", "--index-url https://" + "pypi" + ".org/simple"),
        ("the address of a package registry", "https://files." + "pythonhosted" + ".org/packages/x.whl"),
        ("the address of a package registry", "mirror=http://deb." + "debian" + ".org/debian"),
        ("the address of a package registry", "http://10.0.0.1:8080/simple"),
        ("a path of one machine", "cd /" + "work/main"),
        ("a path of one machine", '"/' + 'root/.cache"'),
        ("a path of one machine", "file:/home/ada/project"),
    ],
    shared=True,
)
def test_the_patterns_find_what_they_are_for(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not beside this clone")
def test_no_sentence_of_the_shared_data_is_copied() -> None:
    sentences: set[str] = set()

    def gather(value: object) -> None:
        if isinstance(value, str) and len(value) >= 2 * WIDTH:
            sentences.add(value)
        elif isinstance(value, list | dict):
            for inner in value.values() if isinstance(value, dict) else value:
                gather(inner)

    for path in DATA.glob("*.json"):
        gather(json.loads(path.read_text()))
    assert len(sentences) > 1000
    everything = "\n".join(text for name, text in committed() if not name.endswith(".lock"))
    assert copied(sentences, everything) == set()


def copied(sentences: set[str], everything: str) -> set[str]:
    """The sentences that stand in a text. Wherever one begins, one of its first windows
    lies on a multiple of the width; to look for each sentence would take much longer.
    """
    windows = defaultdict[str, list[tuple[str, int]]](list)
    for sentence in sentences:
        for offset in range(WIDTH):
            windows[sentence[offset : offset + WIDTH]].append((sentence, offset))
    return {
        sentence
        for start in range(0, len(everything), WIDTH)
        for sentence, offset in windows.get(everything[start : start + WIDTH], ())
        if start >= offset and everything.startswith(sentence, start - offset)
    }


def test_a_sentence_is_found_wherever_it_begins() -> None:
    sentence = "".join(map(chr, range(200, 200 + 2 * WIDTH)))
    for start in range(2 * WIDTH):
        assert copied({sentence}, "x" * start + sentence) == {sentence}, start
    assert copied({sentence}, sentence[:-1]) == set()
