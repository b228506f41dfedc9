"""Uses of Claude's memory tool, beside Anthropic's own tool for local files."""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool

from memory import BlockingMemory, InvalidInput, Memory
from tests.fitness.anthropic_memory_tool.adapter import AsyncDocumentMemoryTool, DocumentMemoryTool
from tests.fitness.suites import memory, shared_memory

__all__ = ["memory", "shared_memory"]
SCOPE = "user:ada"


NAMES = ["a", "b", "a.md", "a-b", ".hidden", "ü ñ", "%2e%2e", "a\\b"]
TEXTS = ["", "\n", "one", "one\ntwo", "one\ntwo\n", "one\r\ntwo\r\none\r\n", "\none\n\n", "ones one"]


def drawn_path(draw: random.Random) -> str:
    names = [draw.choice(NAMES) for _ in range(draw.randint(0, 4))]
    if draw.random() < 0.1:
        names.insert(draw.randint(0, len(names)), draw.choice(["..", ".", ""]))
    root = "/memories" if draw.random() < 0.95 else draw.choice(["/etc", "memories", ""])
    return "/".join([root, *names])


def drawn_command(draw: random.Random, known: list[str]) -> dict[str, Any]:
    def path() -> str:
        return draw.choice(known) if known and draw.random() < 0.6 else drawn_path(draw)

    kind = draw.choice(["view", "view", "create", "create", "str_replace", "insert", "delete", "rename"])
    values: dict[str, Any] = {"command": kind, "path": path()}
    if kind == "view" and draw.random() < 0.3:
        values["view_range"] = [draw.randint(0, 4), draw.choice([-1, 1, 2, 9])]
    elif kind == "create":
        values["file_text"] = draw.choice(TEXTS)
        known.append(values["path"])
    elif kind == "str_replace":
        values |= {
            "old_str": draw.choice(["one", "two", "\n", "on", "x"]),
            "new_str": draw.choice(["", "2", "one"]),
        }
    elif kind == "insert":
        values |= {
            "insert_line": draw.randint(-1, 4),
            "insert_text": draw.choice(["new", "new\n", "", "a\nb"]),
        }
    elif kind == "rename":
        values = {"command": kind, "old_path": path(), "new_path": drawn_path(draw)}
        known.append(values["new_path"])
    return values


def outcome(tool: Any, values: dict[str, Any]) -> str:
    """Return the answer without the sizes of folders, which each has of its own."""
    try:
        answer = str(tool.call(dict(values)))
    except ToolError as error:
        return f"refused: {error}"
    except OSError:  # what the disk says where a file is no folder
        return "refused: by the disk"
    if answer.startswith("Here're"):
        lines = answer.split("\n")
        lines[1] = lines[1].partition("\t")[2]
        answer = "\n".join(re.sub(r"^[^\t]*\t(.*/)$", r"\1", line) for line in lines)
    return answer


def remove_empty_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        if folder != str(root) and not os.listdir(folder):
            os.rmdir(folder)


@pytest.mark.parametrize("seed", range(4))
def test_drawn_commands_are_answered_as_anthropics_tool_answers_them(
    memory: Memory, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)  # noqa: S311
    ours, theirs = DocumentMemoryTool(memory, SCOPE), BetaLocalFilesystemMemoryTool(str(tmp_path / "disk"))
    known: list[str] = []
    for number in range(250):
        values = drawn_command(draw, known)
        expected, answer = outcome(theirs, values), outcome(ours, values)
        remove_empty_folders(tmp_path / "disk" / "memories")
        if "by the disk" in expected or "is a file, not a directory" in answer:
            assert {answer[:7], expected[:7]} == {"refused"}, (number, values)
        else:
            assert answer == expected, (number, values)


def call(tool: DocumentMemoryTool, command: str, **values: Any) -> Any:
    return tool.call({"command": command, **values})


async def test_edits_at_once_are_all_made(memory: Memory) -> None:
    tool = AsyncDocumentMemoryTool(memory, SCOPE)
    made = await asyncio.gather(
        *(
            tool.call({"command": "create", "path": "/memories/a", "file_text": f"by {n}\n"})
            for n in range(5)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(one, ToolError) for one in made) == 4
    await asyncio.gather(
        *(
            tool.call(
                {"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": f"line {n}"}
            )
            for n in range(12)
        )
    )
    answer = str(await tool.call({"command": "view", "path": "/memories/a"}))
    assert sorted(re.findall(r"line \d+", answer)) == sorted(f"line {n}" for n in range(12))


@pytest.mark.parametrize("count", [1, 50, 51, 130])
def test_folders_of_many_files_are_renamed_and_deleted(memory: Memory, count: int) -> None:
    tool, documents = DocumentMemoryTool(memory, SCOPE), BlockingMemory(memory).documents
    for number in range(count):
        documents.put(SCOPE, f"memories/old/{number}", f"text {number}".encode())
    call(tool, "create", path="/memories/older", file_text="stays")
    call(tool, "rename", old_path="/memories/old", new_path="/memories/new/deep")
    assert f"text {count - 1}" in call(tool, "view", path=f"/memories/new/deep/{count - 1}")
    with pytest.raises(ToolError, match="does not exist"):
        call(tool, "view", path="/memories/old")
    call(tool, "delete", path="/memories/new")
    assert [info.key for info in documents.list(SCOPE).documents] == ["memories/older"]


def test_big_files_and_sizes(memory: Memory) -> None:
    tool, text = DocumentMemoryTool(memory, SCOPE), "line ü\n" * 400_000
    call(tool, "create", path="/memories/big", file_text=text)
    call(tool, "create", path="/memories/small", file_text="ü" * 768)
    assert call(tool, "view", path="/memories").endswith("\n3.1M\t/memories/big\n1.5K\t/memories/small")
    call(tool, "str_replace", path="/memories/small", old_str="ü" * 768, new_str="")
    assert "\n0B\t/memories/small" in call(tool, "view", path="/memories")
    answer = call(tool, "view", path="/memories/big", view_range=[400_000, -1])
    assert answer.endswith("\n400000\tline ü\n400001\t")


def test_other_documents_tenants_and_users_are_left_alone(memory: Memory) -> None:
    blocking = BlockingMemory(memory)
    blocking.documents.put(SCOPE, "settings", 1)
    tools = [
        DocumentMemoryTool(memory, SCOPE),
        DocumentMemoryTool(memory, "user:bob"),
        DocumentMemoryTool(memory.for_tenant("other"), SCOPE),
    ]
    for tool in tools:
        call(tool, "create", path="/memories/a", file_text="tea")
    assert tools[0].clear_all_memory() == "All memory cleared"
    assert ["/memories/a" in call(tool, "view", path="/memories") for tool in tools] == [False, True, True]
    assert [info.key for info in blocking.documents.list(SCOPE).documents] == ["settings"]
    blocking.admin.erase_user("bob")
    assert ["/memories/a" in call(tool, "view", path="/memories") for tool in tools] == [False, False, True]


@pytest.mark.parametrize("name", ["n" * 600, "a\x00b", "\ud800"])
def test_names_that_are_no_keys_are_refused(memory: Memory, name: str) -> None:
    tool = DocumentMemoryTool(memory, SCOPE)
    with pytest.raises((InvalidInput, UnicodeEncodeError)):
        call(tool, "create", path=f"/memories/{name}", file_text="x")
    assert call(tool, "view", path="/memories").endswith("\n0B\t/memories")
