"""Memory files of the Pydantic AI harness, kept as documents of memory-tiers.

Memory(store=DocumentMemoryStore(memory, "org:acme"), namespace=…)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias
from uuid import uuid4

from pydantic_ai_harness.memory import (
    InMemoryStore,
    MemoryConflictError,
    MemoryFile,
    MemoryMutation,
    MemoryOperation,
    MemoryOperationConflictError,
    MemorySearchResult,
)

from memory import ABSENT, Conflict, DocumentDelete, DocumentPut, Memory, Scope

SEGMENT = re.compile(r"[A-Za-z0-9_.-]{1,200}")
MOST_PATH_BYTES = 512
MOST_METADATA = 4_096
"""Characters of the metadata of one write, as JSON."""
DocumentChange: TypeAlias = DocumentPut | DocumentDelete
RECEIPTS = "~"
"""The first character of the keys of receipts. It is behind all characters of paths."""
PAGE = 1_000


class DocumentMemoryStore:
    """A `MemoryStore` of the Pydantic AI harness over documents of memory-tiers.

    A file is one document, under its path. A change of a file and the receipt of its
    operation are stored together or not at all. It also is a `SearchableMemoryStore`
    and a `MetadataMemoryStore`.

    Args:
        memory: The memory. `memory.for_tenant("acme")` keeps tenants apart. Make it
            with `loop="own"` to use the store from several event loops.
        scope: The scope of the files. Its erasure erases them.
        receipts_for: How long a repeat of an operation is recognised.
    """

    def __init__(
        self, memory: Memory, scope: Scope | str, *, receipts_for: timedelta = timedelta(days=1)
    ) -> None:
        self._documents = memory.documents
        self._scope = scope
        self._receipts_for = receipts_for

    async def read(self, path: str, *, max_chars: int) -> MemoryFile | None:
        """Return the first characters of a file, or None if there is none.

        Raises:
            ValueError: The path or the number is wrong.
        """
        _check_path(path)
        if max_chars <= 0:
            raise ValueError("max_chars must be positive")
        found = await self._documents.get(self._scope, path)
        if found is None:
            return None
        text, noted = found.value, found.metadata
        return MemoryFile(
            content=text[:max_chars],
            version=noted["version"],
            operation_id=noted["operation_id"],
            truncated=len(text) > max_chars,
            metadata=noted["write"] or None,
        )

    async def get_operation(self, operation: MemoryOperation) -> MemoryMutation | None:
        """Return the result of an operation that was made before.

        Raises:
            MemoryOperationConflictError: Its id was used with another fingerprint.
        """
        found = await self._documents.get(self._scope, _receipt_key(operation))
        if found is None:
            return None
        receipt = found.value
        if receipt["fingerprint"] != operation.fingerprint:
            raise MemoryOperationConflictError(
                f"operation id {operation.id!r} was used with other arguments. Use a new id"
            )
        return MemoryMutation(version=receipt["version"], replayed=True, existed=receipt["existed"])

    async def write(
        self,
        path: str,
        content: str,
        *,
        expected_version: str | None,
        operation: MemoryOperation | None = None,
    ) -> MemoryMutation:
        """Create or replace a file if it has the expected version; None for no file.

        Raises:
            MemoryConflictError: It has another version.
            MemoryOperationConflictError: As in `get_operation`.
            ValueError: The path is wrong.
        """
        return await self.write_with_metadata(
            path, content, expected_version=expected_version, metadata=None, operation=operation
        )

    async def write_with_metadata(
        self,
        path: str,
        content: str,
        *,
        expected_version: str | None,
        metadata: Mapping[str, str] | None,
        operation: MemoryOperation | None = None,
    ) -> MemoryMutation:
        """Write like `write`, and note metadata with this version of the file."""
        noted = _checked_metadata(metadata)
        version = uuid4().hex

        def put(stored: str | None) -> DocumentPut:
            known = {"version": version, "write": noted, "operation_id": operation.id if operation else None}
            return DocumentPut(self._scope, path, content, known, expected_version=stored or ABSENT)

        return await self._change(path, expected_version, operation, version, put)

    async def delete(
        self, path: str, *, expected_version: str | None, operation: MemoryOperation | None = None
    ) -> MemoryMutation:
        """Delete a file if it has the expected version; None for no file.

        Raises:
            MemoryConflictError: It has another version.
            MemoryOperationConflictError: As in `get_operation`.
            ValueError: The path is wrong.
        """

        def delete(stored: str | None) -> DocumentDelete | None:
            return None if stored is None else DocumentDelete(self._scope, path, stored)

        return await self._change(path, expected_version, operation, None, delete)

    async def _change(
        self,
        path: str,
        expected_version: str | None,
        operation: MemoryOperation | None,
        version: str | None,
        make: Callable[[str | None], DocumentChange | None],
    ) -> MemoryMutation:
        _check_path(path)
        if operation is not None and (done := await self.get_operation(operation)) is not None:
            return done
        found = await self._documents.get(self._scope, path)
        mutation = MemoryMutation(version=version, replayed=False, existed=found is not None)
        stored, known = (found.version, found.metadata["version"]) if found else (None, None)
        changes = [change] if (change := make(stored)) is not None else []
        if operation is not None:
            receipt = {"fingerprint": operation.fingerprint, "version": version, "existed": mutation.existed}
            key, kept = _receipt_key(operation), self._receipts_for
            changes += [DocumentPut(self._scope, key, receipt, expires_in=kept, expected_version=ABSENT)]
        try:
            if known != expected_version:
                raise Conflict(f"'{path}' has another version")
            await self._documents.apply(changes)
        except Conflict as error:
            if operation is not None and (done := await self.get_operation(operation)) is not None:
                return done
            raise MemoryConflictError(f"memory path {path!r} was changed. Read it again") from error
        return mutation

    async def list_paths(self, prefix: str = "", *, limit: int) -> list[str]:
        """Return the first paths that begin with a text, in order."""
        _check_path(prefix.removesuffix("/") or ".prefix")
        if limit <= 0:
            raise ValueError("limit must be positive")
        found: list[str] = []
        cursor, more = None, True
        while more and len(found) < limit:
            most = min(limit - len(found), PAGE)
            page = await self._documents.list(
                self._scope, prefix=prefix, stop=RECEIPTS, limit=most, cursor=cursor
            )
            found += [info.key for info in page.documents]
            cursor, more = page.cursor, page.cursor is not None
        return found

    async def search(
        self, prefix: str, query: str, *, limit: int, max_files: int, max_chars: int, max_file_chars: int
    ) -> MemorySearchResult:
        """Search the files directly below a prefix by their words."""
        _check_path(prefix.removesuffix("/") or ".prefix")
        if not query.split() or min(limit, max_files, max_chars, max_file_chars) <= 0:
            return MemorySearchResult(matches=[], scanned=0, truncated=False)
        files: dict[str, str] = {}
        paths = await self._children(prefix, max_files + 1)
        for first in range(0, len(paths), PAGE):
            found = await self._documents.get_many(self._scope, paths[first : first + PAGE])
            files |= {one.key: one.value for one in found if one is not None}
        bounds = {"max_files": max_files, "max_chars": max_chars, "max_file_chars": max_file_chars}
        return await InMemoryStore(files).search(prefix, query, limit=limit, **bounds)

    async def _children(self, prefix: str, most: int) -> Sequence[str]:
        """Return the first paths directly below a prefix. Folders below are skipped."""
        found: list[str] = []
        start, more = None, True
        while more and len(found) < most:
            page = await self._documents.list(
                self._scope, prefix=prefix, start=start, stop=RECEIPTS, limit=min(most, PAGE)
            )
            more = page.cursor is not None
            for info in page.documents:
                name, slash, _ = info.key.removeprefix(prefix).partition("/")
                if slash:
                    start, more = f"{prefix}{name}0", True  # "0" follows "/"
                    break
                found.append(info.key)
                start = f"{info.key}\x01"
        return found[:most]


def _check_path(path: str) -> None:
    segments = path.split("/")
    if not all(SEGMENT.fullmatch(one) and ".." not in one and one != "." for one in segments):
        raise ValueError(f"{path!r} is no memory path. Use names of letters, digits, '_', '.', '-' and '/'")
    if len(path) > MOST_PATH_BYTES:
        raise ValueError(f"a memory path has at most {MOST_PATH_BYTES} characters, not {len(path)}")


def _checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    noted = dict(metadata or {})
    if not all(isinstance(text, str) for pair in noted.items() for text in pair):
        raise TypeError("metadata must have texts as keys and values")
    if any("\x00" in text for pair in noted.items() for text in pair):
        raise ValueError("metadata must not contain NUL")
    if (size := len(json.dumps(noted, ensure_ascii=False, separators=(",", ":")))) > MOST_METADATA:
        raise ValueError(f"metadata has {size} characters as JSON; at most {MOST_METADATA} are accepted")
    return noted


def _receipt_key(operation: MemoryOperation) -> str:
    return RECEIPTS + hashlib.sha256(operation.id.encode()).hexdigest()
