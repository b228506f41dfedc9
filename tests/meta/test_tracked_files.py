"""What must not be committed: addresses of package registries, paths of one machine,
and other people's data.
"""

from __future__ import annotations

import json
import re
import subprocess
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
        r"(?<![\w.~-])/(?:work|root|opt)/[\w.]|(?<![\w.~-])/(?:home|Users)/(?!project\b)\w+/"
    ),
}
HERE = "tests/meta/test_tracked_files.py"


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


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    found = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in committed()
        if name != HERE
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN[what].search(line)
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
        if isinstance(value, str) and len(value) >= 60:
            sentences.add(value)
        elif isinstance(value, list | dict):
            for inner in value.values() if isinstance(value, dict) else value:
                gather(inner)

    for path in DATA.glob("*.json"):
        gather(json.loads(path.read_text()))
    assert len(sentences) > 1000
    everything = "\n".join(text for name, text in committed() if not name.endswith(".lock"))
    beginnings = {s[:60] for s in sentences}  # to look for each of them takes a quarter of a minute
    begun = {
        part for start in range(len(everything)) if (part := everything[start : start + 60]) in beginnings
    }
    assert [s for s in sentences if s[:60] in begun and s in everything] == []
