"""`memory artifact`: files of sessions, in and out."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.unit.cli.conftest import CommandLine


def test_artifacts_are_put_listed_fetched_and_deleted(memory: CommandLine) -> None:
    here = memory.folder
    (here / "in.md").write_bytes(b"# Findings\n\x00")
    assert memory("artifact", "put", "s1", "in.md").exit_code == 1, "there is no such session"
    memory.ok("session", "import", memory.write_lines("s1.jsonl", {"role": "user", "content": "hello"}))
    put = memory.json("artifact", "put", "s1", "in.md", "--path", "out/report.md")
    assert (put["path"], put["media_type"], put["size"]) == ("out/report.md", "text/markdown", 12)
    assert [one["id"] for one in memory.json("artifact", "list", "s1")["artifacts"]] == [put["id"]]
    assert "out/report.md" in memory.ok("artifact", "list", "s1")
    assert memory.json("artifact", "get", put["id"])["file"] == "out/report.md"
    assert (here / "out" / "report.md").read_bytes() == b"# Findings\n\x00"
    assert "already exists" in memory("artifact", "get", "out/report.md", "-s", "s1").output
    memory.ok("artifact", "get", "out/report.md", "-s", "s1", "--force")
    memory.ok("artifact", "get", put["id"], "-o", "copy.md")
    assert sorted(path.name for path in here.iterdir() if path.suffix != ".db") == [
        "copy.md",
        "in.md",
        "out",
        "s1.jsonl",
    ], "nothing half is left"
    entry = memory.json("write", "the findings", "-s", "user:ada", "--artifact", put["id"])
    assert "out/report.md" in memory.ok("show", entry["id"])
    assert memory.json("artifact", "delete", put["id"])["deleted"] is True
    assert memory.json("artifact", "delete", put["id"], code=1)["deleted"] is False
    assert memory("artifact", "get", put["id"], "-o", "-").exit_code == 1
    assert memory("artifact", "list", "s1").exit_code == 1
    assert memory.json("show", entry["id"])["artifact_id"] is None


@pytest.mark.behaviour("D114")
def test_artifacts_are_named_by_the_numbers_they_are_listed_with(memory: CommandLine) -> None:
    memory.ok("session", "import", memory.write_lines("s1.jsonl", {"role": "user", "content": "hello"}))
    (memory.folder / "in.md").write_bytes(b"# Findings")
    first, second = [
        memory.json("artifact", "put", "s1", "in.md", "--path", path)["id"] for path in ("a.md", "b.md")
    ]
    assert len(memory.json("artifact", "list", "s1")["artifacts"]) == 2
    assert memory("artifact", "get", "#1").exit_code == 1, "programs are shown none, so none is given"
    listed = memory.ok("artifact", "list", "s1")
    assert f"#1 · {first}" in listed
    assert f"#2 · {second}" in listed
    assert memory.json("artifact", "get", "#2", "-o", "copy.md")["id"] == second
    entry = memory.json("write", "the findings", "-s", "user:ada", "--artifact", "1")
    assert entry["artifact_id"] == first
    assert f"#3 · {entry['id']}" in memory.ok("list", "-s", "user:ada")
    refused = memory("show", "#1")
    assert (refused.exit_code, "#1 is an artifact, not an entry" in refused.output) == (2, True)
    refused = memory("artifact", "delete", "3")
    assert (refused.exit_code, "3 is an entry, not an artifact" in refused.output) == (2, True)
    assert memory("forget", "#3", "#1").exit_code == 2
    assert memory.json("show", "#3")["id"] == entry["id"], "nothing was forgotten"
    assert memory.json("artifact", "delete", "#2")["deleted"] is True
    assert memory.json("artifact", "delete", "#2", code=1)["deleted"] is False


def test_paths_that_climb_are_refused_in_both_directions(
    memory: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here, elsewhere = memory.folder, tmp_path_factory.mktemp("elsewhere")
    memory.ok("session", "import", memory.write_lines("s1.jsonl", {"role": "user", "content": "hello"}))
    (here / "a").write_text("a")
    for path in ("../a", "/a", "b/../../a"):
        assert memory("artifact", "put", "s1", "a", "--path", path).exit_code == 2
    (here / "link").symlink_to(elsewhere)
    put = memory.json("artifact", "put", "s1", "a", "--path", "link/a")
    assert "leads out of this folder" in memory("artifact", "get", put["id"]).output
    assert list(elsewhere.iterdir()) == []
    assert memory("artifact", "get", put["id"], "-o", "-", "--json").exit_code == 2
    assert memory("artifact", "put", "s1", "-").exit_code == 2
    assert memory("artifact", "put", "s1", "missing").exit_code == 2


@pytest.mark.thorough
def test_what_is_piped_in_comes_out_as_it_was(memory: CommandLine) -> None:
    data = bytes(range(256)) * 5_000  # two chunks
    memory.ok("session", "import", "-", "--id", "s1", stdin='{"role": "user", "content": "hello"}\n')

    def called(*arguments: str, given: bytes = b"") -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "memory.cli", *arguments],
            input=given,
            cwd=memory.folder,
            env={**os.environ, **memory.environ},
            check=True,
            capture_output=True,
        ).stdout

    called("artifact", "put", "s1", "-", "--path", "a.bin", given=data)
    assert called("artifact", "get", "a.bin", "-s", "s1", "-o", "-") == data
