"""The tests of Anthropic's tool for local files, run on our tools in its place."""

from __future__ import annotations

import copy
import uuid
from pathlib import Path
from typing import Any

import pytest

from memory import BlockingMemory, Memory
from tests.fitness.anthropic_memory_tool.adapter import AsyncDocumentMemoryTool, DocumentMemoryTool
from tests.fitness.suites import memory, name_tests, shared_memory

name_tests("anthropic", "anthropic_tests")

from anthropic_tests.lib.tools.memory_tools import test_filesystem  # noqa: E402
from anthropic_tests.lib.tools.memory_tools.test_filesystem import *  # noqa: E402, F403

for theirs in (
    test_filesystem.TestBetaLocalFilesystemMemoryTool,
    test_filesystem.TestBetaAsyncLocalFilesystemMemoryTool,
):
    del theirs.test_mkdir_parents_not_world_writable_under_permissive_umask  # makes a tool of theirs

_LINKS = "files of ours are no files of the disk, and there are no symbolic links"
NOT_APPLICABLE = dict.fromkeys(
    (
        "test_validate_path_returns_resolved_path_not_symlink_target",
        "test_read_rejects_symlink_created_after_validation",
        "test_read_rejects_file_replaced_with_symlink_before_open",
        "test_view_rejects_directory_symlink_created_after_validation",
        "test_symlink_validation_reject_symlink_pointing_outside_memories",
        "test_view_lists_symlinks_only_when_they_stay_inside_memories",
        "test_symlink_validation_reject_creating_files_through_symlink_pointing_outside",
        "test_symlink_validation_reject_parent_directory_that_is_symlink_pointing_outside",
    ),
    _LINKS,
)
__all__ = ["memory", "shared_memory"]
SCOPE = "user:ada"


class FileOnDisk:
    """The calls of a path with which their tests write and read a file."""

    def __init__(self, memory: Memory, name: str = "") -> None:
        self._documents, self._name = BlockingMemory(memory).documents, name

    def __truediv__(self, name: str) -> FileOnDisk:
        made = copy.copy(self)
        made._name = name
        return made

    def mkdir(self, **_: bool) -> None:
        """Make nothing: a folder is there if it has files."""

    def is_dir(self) -> bool:
        return True

    def write_bytes(self, data: bytes) -> None:
        self._documents.put(SCOPE, f"memories/{self._name}", data)

    def read_bytes(self) -> bytes:
        found = self._documents.get(SCOPE, f"memories/{self._name}")
        assert found is not None
        return bytes(found.value)


class AsyncFileOnDisk(FileOnDisk):
    async def is_dir(self) -> bool:  # type: ignore[override]
        return True


@pytest.fixture(autouse=True)
def _snapshots_of_ours(memory: Memory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # tests of symbolic links write to the working directory

    def get_directory_snapshot(base_path: str) -> dict[str, str]:
        page = BlockingMemory(memory).documents.list(SCOPE, values=True)
        return {one.key: one.value.decode() for one in page.documents}  # type: ignore[attr-defined]

    def path(given: str) -> Path | FileOnDisk:
        return FileOnDisk(memory) if "FileOnDisk" in given else Path(given)

    monkeypatch.setattr(test_filesystem, "get_directory_snapshot", get_directory_snapshot)
    monkeypatch.setattr(test_filesystem, "Path", path)


@pytest.fixture
def sync_local_filesystem_tool(memory: Memory) -> DocumentMemoryTool:
    tool: Any = DocumentMemoryTool(memory, SCOPE)
    tool.base_path, tool.memory_root = uuid.uuid4().hex, FileOnDisk(memory)
    return tool  # type: ignore[no-any-return]


@pytest.fixture
def async_local_filesystem_tool(memory: Memory) -> AsyncDocumentMemoryTool:
    tool: Any = AsyncDocumentMemoryTool(memory, SCOPE)
    tool.base_path, tool.memory_root = uuid.uuid4().hex, AsyncFileOnDisk(memory)
    return tool  # type: ignore[no-any-return]
