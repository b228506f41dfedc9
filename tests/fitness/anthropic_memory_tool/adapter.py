"""The memory tool of Claude, over documents of memory-tiers.

tool = AsyncDocumentMemoryTool(memory, "user:ada")
client.beta.messages.tool_runner(tools=[tool], …)
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from memory import ABSENT, Conflict, DocumentDelete, DocumentInfo, DocumentPut, Memory, Scope
from tests.fitness.halves import blocking

ROOT = "/memories"
KEYS = "memories/"
"""The beginning of the keys of all files."""
MOST_RENAMED = 50
"""Files of one group of changes."""


class _Files:
    """The six commands, with the answers of Anthropic's own tool for local files.

    A file is one document. A folder exists as long as there is a file below it.

    Args:
        memory: The memory. `memory.for_tenant("acme")` keeps tenants apart. Make it
            with `loop="own"` for the blocking tool, or for several event loops.
        scope: The scope of the files, such as `"user:ada"`. Its erasure erases them.
        **settings: `cache_control`, as of Anthropic's own tools.
    """

    def __init__(self, memory: Memory, scope: Scope | str, **settings: Any) -> None:
        super().__init__(**settings)
        self._memory: Any = memory
        self._scope = scope

    async def view(self, command: Any) -> str:
        """Return a file with line numbers, or the files of a folder."""
        key = _key(command.path)
        if (found := await self._read(key)) is not None:
            return _numbered(command.path, found.value.decode(), command.view_range)
        return _listing(command.path, await self._below(key, command.path), key)

    async def create(self, command: Any) -> str:
        """Create a file. A file or folder that exists is never replaced."""
        key, path = _key(command.path), command.path
        await self._refuse_taken(key, f"File {path} already exists")
        try:
            await self._put(key, command.file_text, ABSENT)
        except Conflict:
            raise ToolError(f"File {path} already exists") from None
        return f"File created successfully at: {path}"

    async def str_replace(self, command: Any) -> str:
        """Replace a text that a file has exactly once."""
        old, path = command.old_str, command.path
        line = 0

        def replace(text: str) -> str:
            nonlocal line
            if old not in text:
                raise ToolError(
                    f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."
                )
            places = [found.start() for found in re.finditer(f"(?={re.escape(old)})", text)]
            numbers = [text.count("\n", 0, place) + 1 for place in places]
            if text.count(old) > 1:
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines:"
                    f" {', '.join(map(str, numbers))}. Please ensure it is unique"
                )
            line = numbers[0] - 1
            return text.replace(old, command.new_str)

        lines = (await self._edit(path, replace)).split("\n")
        first = max(0, line - 2)
        header = (
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        )
        return f"{header}\n{_with_numbers(lines[first : line + 3], first)}"

    async def insert(self, command: Any) -> str:
        """Insert lines behind the line of a number, or before the first one."""

        def insert(text: str) -> str:
            lines = text.removesuffix("\n").split("\n") if text else []
            if not 0 <= command.insert_line <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {command.insert_line}."
                    f" It should be within the range [0, {len(lines)}]."
                )
            lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
            return "\n".join(lines).removesuffix("\n") + "\n"

        await self._edit(command.path, insert)
        return f"The file {command.path} has been edited."

    async def delete(self, command: Any) -> str:
        """Delete a file, or a folder with all that it has."""
        key, path = _key(command.path), command.path
        if key == KEYS:
            raise ToolError(f"Cannot delete the {ROOT} directory itself")
        documents = self._memory.documents
        is_deleted = await documents.delete(self._scope, key)
        if not await documents.delete_many(self._scope, prefix=f"{key}/") and not is_deleted:
            raise ToolError(f"The path {path} does not exist")
        return f"Successfully deleted {path}"

    async def rename(self, command: Any) -> str:
        """Rename a file, or a folder with all that it has.

        Up to 50 files are renamed in one step, and more of them in several.
        """
        old, new = _key(command.old_path), _key(command.new_path)
        if old == KEYS:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")
        await self._refuse_taken(new, f"The destination {command.new_path} already exists")
        if new.startswith(f"{old}/"):
            raise ToolError(f"Cannot move {command.old_path} into itself")
        keys = [old] if await self._read(old) else [info.key for info in await self._listed(f"{old}/")]
        if not keys:
            raise ToolError(f"The path {command.old_path} does not exist")
        for first in range(0, len(keys), MOST_RENAMED):
            some = keys[first : first + MOST_RENAMED]
            changes: list[DocumentPut | DocumentDelete] = []
            for one in filter(None, await self._memory.documents.get_many(self._scope, some)):
                moved = new + one.key.removeprefix(old)
                changes.append(DocumentPut(self._scope, moved, one.value, expected_version=ABSENT))
                changes.append(DocumentDelete(self._scope, one.key, one.version))
            try:
                await self._memory.documents.apply(changes)
            except Conflict:
                raise ToolError(f"{command.old_path} was changed meanwhile. View it, and try again") from None
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    async def clear_all_memory(self) -> str:
        await self._memory.documents.delete_many(self._scope, prefix=KEYS)
        return "All memory cleared"

    async def _read(self, key: str) -> Any:
        return None if key == KEYS else await self._memory.documents.get(self._scope, key)

    async def _put(self, key: str, text: str, expected: Any) -> None:
        await self._memory.documents.put(self._scope, key, text.encode(), expected_version=expected)

    async def _edit(self, path: str, change: Callable[[str], str]) -> str:
        """Change the text of a file as it is now, and return the new text."""
        key = _key(path)
        while True:
            if (found := await self._read(key)) is None:
                await self._below(key, path)
                raise ToolError(f"The path {path} is not a file.")
            text = change(found.value.decode())
            with suppress(Conflict):
                await self._put(key, text, found.version)
                return text

    async def _refuse_taken(self, key: str, problem: str) -> None:
        """Refuse a path that is a file or a folder, or is below a file."""
        folders = [key[:at] for at, sign in enumerate(key) if sign == "/" and at >= len(KEYS)]
        taken = [one for one in await self._memory.documents.get_many(self._scope, [*folders, key]) if one]
        if key == KEYS or taken or await self._listed(f"{key}/"):
            above = [one.key for one in taken if one.key != key]
            raise ToolError(f"/{above[0]} is a file, not a directory" if above else problem)

    async def _below(self, key: str, path: str) -> list[DocumentInfo]:
        found = await self._listed(key if key == KEYS else f"{key}/")
        if not found and key != KEYS:
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        return found

    async def _listed(self, prefix: str) -> list[DocumentInfo]:
        found: list[DocumentInfo] = []
        cursor, more = None, True
        while more:
            page = await self._memory.documents.list(self._scope, prefix=prefix, limit=1_000, cursor=cursor)
            found += page.documents
            cursor, more = page.cursor, page.cursor is not None
        return found


class AsyncDocumentMemoryTool(_Files, BetaAsyncAbstractMemoryTool):
    """Claude's memory tool over documents, for `AsyncAnthropic`."""


class DocumentMemoryTool(_Files, BetaAbstractMemoryTool):
    """Claude's memory tool over documents, for `Anthropic`."""

    view = blocking(_Files.view)
    create = blocking(_Files.create)
    str_replace = blocking(_Files.str_replace)
    insert = blocking(_Files.insert)
    delete = blocking(_Files.delete)
    rename = blocking(_Files.rename)
    clear_all_memory = blocking(_Files.clear_all_memory)


def _key(path: str) -> str:
    """Return the key of a file or folder; `KEYS` for the root."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    resolved = posixpath.normpath(path)
    if resolved != ROOT and not resolved.startswith(f"{ROOT}/"):
        raise ToolError(f"Path {path} would escape {ROOT} directory")
    return KEYS + resolved.removeprefix(ROOT).removeprefix("/")


def _numbered(path: str, text: str, view_range: list[int] | None) -> str:
    lines = text.split("\n")
    if len(lines) > 999_999:
        raise ToolError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    first, last = 0, len(lines)
    if view_range and len(view_range) == 2:
        first = max(1, view_range[0]) - 1
        last = last if view_range[1] == -1 else view_range[1]
    return f"Here's the content of {path} with line numbers:\n" + _with_numbers(lines[first:last], first)


def _with_numbers(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, start=first + 1))


def _listing(path: str, files: list[DocumentInfo], key: str) -> str:
    """Return a folder's files and folders, two levels deep, without hidden ones."""
    sizes: dict[tuple[str, ...], int] = {(): 0}
    folders: set[tuple[str, ...]] = set()
    for info in files:
        names = tuple(info.key.removeprefix(key).strip("/").split("/"))
        for depth in range(min(len(names), 2) + 1):
            sizes[names[:depth]] = sizes.get(names[:depth], 0) + info.size
            folders |= {names[:depth]} if 0 < depth < len(names) else set()
    shown = [place for place in sorted(sizes) if not any(name.startswith(".") for name in place)]
    lines = [f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"]
    for place in shown:
        ending = "/" if place in folders else ""
        lines.append(f"{_size(sizes[place])}\t{'/'.join((path, *place))}{ending}")
    return "\n".join(lines)


def _size(count: int) -> str:
    unit = min((count.bit_length() - 1) // 10, 3) if count else 0
    size = count / 1024**unit
    return f"{size:.0f}{'BKMG'[unit]}" if size == int(size) else f"{size:.1f}{'BKMG'[unit]}"
