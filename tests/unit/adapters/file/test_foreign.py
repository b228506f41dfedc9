"""Files and folders of somebody else in the store's folder: reported by name, and in
nobody's way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from memory import BlockingMemory

pytestmark = pytest.mark.backend("file")
ADA = "default/user%3aada"


def put(path: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("somebody else's")

    return make


FOREIGN: dict[str, Callable[[Path], object]] = {
    ".DS_Store": put(".DS_Store"),
    "README.md": put("README.md"),
    ".git": put(".git/HEAD"),
    "Notes": put("Notes/x.txt"),
    "notes/x.txt": put("notes/x.txt"),
    "default/.DS_Store": put("default/.DS_Store"),
    "default/misc/x.txt": put("default/misc/x.txt"),
    "default/session%3as2": put("default/session%3as2"),
    "default/unseen.d": put("default/unseen.d"),
    f"{ADA}/notes.txt": put(f"{ADA}/notes.txt"),
    f"{ADA}/relations": put(f"{ADA}/relations"),
    f"{ADA}/photos/a.jpg": put(f"{ADA}/photos/a.jpg"),
    f"{ADA}/entries/notes.txt": put(f"{ADA}/entries/notes.txt"),
    f"{ADA}/entries/a (conflicted copy).json": put(f"{ADA}/entries/a (conflicted copy).json"),
    f"{ADA}/entries/x.json": lambda root: (root / ADA / "entries" / "x.json").mkdir(),
    f"{ADA}/entries/sub": put(f"{ADA}/entries/sub/x"),
    "default/link": lambda root: os.symlink(root.parent, root / "default" / "link"),
    "staging.d/sub": put("staging.d/sub/x"),
}


def test_foreign_files_break_neither_opening_nor_erasure_and_are_reported(tmp_path: Path) -> None:
    root = tmp_path / "files"
    url = f"file://{root}"
    with BlockingMemory(url, embedder="none") as memory:
        memory.write("of Ada", scope="user:ada")
        memory.session("s", user="ada").append({"role": "user", "content": "hello"})
        (report,) = memory.admin.check()
        assert "foreign_files" not in report.facts
    for make in FOREIGN.values():
        make(root)
    with BlockingMemory(url, embedder="none") as memory:
        (report,) = memory.admin.check()
        assert report.ok
        assert report.facts["foreign_files"] == sorted(FOREIGN)
        assert all(repr(name) in str(report.detail) for name in FOREIGN)
        assert [entry.content for entry in memory.retrieve("user:ada")] == ["of Ada"]
        assert not any(audit.error for audit in memory.admin.audit(repair=True))
        memory.admin.vacuum()
        assert memory.admin.sweep().ran
        assert memory.admin.erase("user:ada") == 1
        memory.write("of Ada again", scope="user:ada")
        erased = memory.admin.erase_user("ada")
        assert (erased.sessions, erased.entries) == (1, 1)
        memory.write("of Bob", scope="user:bob")
        memory.admin.erase_tenant()
        assert memory.retrieve("user:bob") == []
    with BlockingMemory(url, embedder="none") as memory:
        (report,) = memory.admin.check()
        assert report.facts["foreign_files"] == sorted(FOREIGN), "nothing of somebody else's was removed"
    assert "of Ada" not in "".join(
        path.read_text(errors="replace") for path in root.rglob("*") if path.is_file()
    )


def test_a_file_in_the_place_of_the_quarantine_is_reported(tmp_path: Path) -> None:
    put("files/quarantine.d")(tmp_path)
    with BlockingMemory(f"file://{tmp_path / 'files'}", embedder="none") as memory:
        memory.write("of Ada", scope="user:ada")
        assert memory.admin.erase("user:ada") == 1
        (report,) = memory.admin.check()
        assert report.ok
        assert report.facts["foreign_files"] == ["quarantine.d"]
