"""`memory.artifacts`: files of sessions."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, BinaryIO, TypeAlias

from memory.domain import validation
from memory.domain.artifact import ANY_MEDIA_TYPE, Artifact, ArtifactPage, check_media_type, check_path
from memory.domain.corrections import explain_guesses
from memory.domain.errors import Conflict, InvalidInput, NotFound, RequestIdReused
from memory.facade.arguments import id_of, whole
from memory.facade.runtime.access import Access
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.request_ids import (
    check_request_id,
    noted_flag,
    read_flag,
    request_of,
    request_of_session,
)
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.conversations.blobs.manifests import artifact_of
from memory.orchestrator.storage.requests import RequestMark, is_later
from memory.ports.record import Record

LIST_LIMIT = 50
MOST_READ = 16 * 2**20
PIECE = 4 * 2**20
"""Bytes that are read from a file at once."""
HASHED_AT_ONCE = 256 * 1024
"""Bytes that are hashed in a thread, because they would block the event loop."""

Data: TypeAlias = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO | AsyncIterable[bytes]
"""The content of an artifact: bytes, the path of a file, an open file or a stream.

A file must be open for reading bytes. A stream yields bytes, one piece after the other.
"""
ArtifactRef: TypeAlias = str | tuple[str, str]
"""The id of an artifact, or its session and path."""


@guard_calls
@explain_guesses
class Artifacts:
    """Files of sessions, each under a path. Entries point to them by id.

        report = await memory.artifacts.put(
            "s1", "out/report.md", b"# Findings", media_type="text/markdown"
        )
        print((await memory.artifacts.read(report.id)).decode())

    Files are stored and read as streams, so that no file is ever in memory as a whole.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def put(
        self,
        session_id: str,
        path: str,
        data: Data,
        *,
        media_type: str = ANY_MEDIA_TYPE,
        request_id: str | None = None,
    ) -> Artifact:
        """Store a file of a session under a path, in place of the one stored there.

        Nobody sees the file before all of its bytes are stored. The id is new if the
        path was free; otherwise it stays.

        Args:
            path: A relative path of at most 1,024 bytes. `/` divides its parts. Empty
                parts, `.`, `..`, backslash and NUL are refused.
            request_id: As in `Memory.write`. A repeat stores nothing, and returns the
                artifact as it is now. Bytes are part of the request; the content of
                files and streams is not.

        Raises:
            NotFound: There is no such session.
            LegalHoldActive: The file stored there is under legal hold.
            InvalidInput: The file exceeds `artifacts.max_bytes` (1 GiB).
            QuotaExceeded: The file exceeds the quota of `artifact_bytes`. A replaced
                file counts until it is deleted.
            Conflict: `request_id` was used for another request, or a repeat finds that
                the artifact was deleted.
        """
        session, named, kind = (
            validation.identifier("session_id", session_id),
            check_path(path),
            check_media_type(media_type),
        )
        await self._access.require_session(session)
        engine, tenant = self._access.engine, self._access.tenant
        asked = {"path": named, "media_type": kind}
        if check_request_id(request_id) is not None and isinstance(data, bytes | bytearray):
            asked["sha256"] = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        request = request_of_session("artifacts.put", tenant, session, request_id, asked)
        pieces, size = await _open_pieces(data)
        content = None if request is None or "sha256" in asked else _HashedPieces(pieces)

        async def put(mark: RequestMark | None) -> Artifact:
            given = pieces if content is None else content.read()
            return await engine.conversations.manifests.put(
                tenant, session, named, kind, given, size, request=mark, writer=self._access.writer
            )

        def note(made: Artifact) -> dict[str, Any]:
            return {"artifact": made.id, "sha256": None if content is None else content.sha256}

        async def read(noted: Any) -> Artifact:
            if content is not None and request is not None and noted.get("sha256") is not None:
                await content.read_to_end()
                if content.sha256 != noted["sha256"]:
                    raise RequestIdReused(request.request_id)
            return artifact_of(await self._require_record((session, named)))

        try:
            return await self._access.once(request, put, note, read)
        finally:
            await pieces.aclose()

    async def get(self, artifact: ArtifactRef) -> Artifact | None:
        """Return the description of an artifact, without its bytes.

        Args:
            artifact: The id, or the session and the path.

        Returns:
            The artifact, or None if there is no such artifact or session.
        """
        found = await self._find(artifact)
        return None if found is None else artifact_of(found)

    async def stream(
        self, artifact: ArtifactRef, *, start: int = 0, end: int | None = None, sha256: str | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of an artifact in order, at most 1 MiB at a time.

        The bytes are those of one `put` as a whole. Otherwise an error is raised, at
        the latest before the end. For a part of the file, only this part is read. Its
        bytes are of one `put` too, and not compared with the SHA-256 of the file.

        Args:
            artifact: The id, or the session and the path.
            start: The place of the first byte; 0 is the first one of the file.
            end: The place behind the last byte; by default the end of the file.
            sha256: The SHA-256 of the file that the caller knows.

        Raises:
            NotFound: There is no such artifact, or it is deleted meanwhile.
            Conflict: The artifact is replaced meanwhile, or has another SHA-256.
            CorruptRecord: Bytes are missing, or their SHA-256 differs from that of the
                stored file.
        """
        first, behind = whole("start", start), None if end is None else whole("end", end)
        for name, place in (("start", first), ("end", behind)):
            if place is not None and place < 0:
                raise InvalidInput(name, f"must not be negative, as {place} is")
        known = None if sha256 is None else validation.text("sha256", sha256)
        found, manifests = await self._require_record(artifact), self._access.engine.conversations.manifests
        shown = artifact_of(found)
        if known not in (None, shown.sha256):
            raise Conflict("the artifact was replaced. Read it again", shown.id)
        size = shown.size
        last = size if behind is None else min(behind, size)
        is_all = first == 0 and last == size
        async for data in manifests.stream(found) if is_all else manifests.stream_part(found, first, last):
            yield data

    async def read(self, artifact: ArtifactRef, limit: int = MOST_READ) -> bytes:
        """Return all bytes of an artifact.

        Args:
            limit: The most bytes to read; 16 MiB by default.

        Raises:
            InvalidInput: The artifact is larger than `limit`. Use `stream` instead.
            NotFound: As in `stream`; `Conflict` and `CorruptRecord` too.
        """
        most, found = whole("limit", limit), await self._require_record(artifact)
        if artifact_of(found).size > most:
            raise InvalidInput(
                "limit",
                f"the artifact has {artifact_of(found).size:,} bytes, more than {most:,}. Raise the limit, or"
                " read it with `stream`",
            )
        return b"".join([data async for data in self._access.engine.conversations.manifests.stream(found)])

    async def list(
        self, session_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> ArtifactPage:
        """Return a page of a session's artifacts, oldest first; 50 by default.

        They are ordered by the moment when their path was first stored.

        Raises:
            NotFound: There is no such session.
        """
        session, most = (
            validation.identifier("session_id", session_id),
            validation.whole_limit(limit, default=LIST_LIMIT),
        )
        tenant = self._access.tenant
        seal = CursorSeal("artifacts", tenant, session)
        after = seal.unseal(cursor)
        await self._access.require_session(session)
        page = await self._access.engine.conversations.manifests.list(tenant, session, most, after)
        return replace(page, cursor=seal.seal(page.cursor))

    async def delete(self, artifact: ArtifactRef, *, request_id: str | None = None) -> bool:
        """Delete an artifact.

        Args:
            artifact: The id, or the session and the path.
            request_id: As in `Memory.write`. A repeat spares a file that was put under
                the path since.

        Returns:
            True if this call deleted it; False if there was none.

        Raises:
            LegalHoldActive: The session of the artifact is under legal hold.
        """
        engine, tenant = self._access.engine, self._access.tenant
        named = list(artifact) if isinstance(artifact, tuple) else id_of(artifact, "artifact")
        request = request_of("artifacts.delete", request_id, {"artifact": named})

        async def delete(mark: RequestMark | None) -> bool:
            found = await self._find(artifact)
            if mark is not None and mark.repeats and (found is None or is_later(found.created_at, mark)):
                return await self._was_deleted_by(artifact, mark)
            return found is not None and await engine.conversations.manifests.delete(
                tenant, artifact_of(found).id, mark
            )

        return await self._access.once(request, delete, noted_flag, read_flag)

    async def _was_deleted_by(self, artifact: ArtifactRef, mark: RequestMark) -> bool:
        """Return whether an earlier attempt of the request deleted the artifact.

        One that is named by its id counts as deleted once it is gone.
        """
        if not isinstance(artifact, tuple):
            return True
        session, path = validation.identifier("session_id", artifact[0]), check_path(artifact[1])
        manifests = self._access.engine.conversations.manifests
        return await manifests.was_deleted_by(self._access.tenant, session, path, mark)

    async def _find(self, artifact: ArtifactRef) -> Record | None:
        manifests = self._access.engine.conversations.manifests
        if isinstance(artifact, tuple):
            if len(artifact) != 2:
                raise InvalidInput(
                    "artifact", f"must be an id, or a tuple of session id and path, not {len(artifact)} items"
                )
            session, path = validation.identifier("session_id", artifact[0]), check_path(artifact[1])
            if not await self._access.sees_session(session):
                return None
            return await manifests.at(self._access.tenant, session, path)
        named = id_of(artifact, "artifact")
        if named not in await self._access.visible_artifacts([named]):
            return None
        return await manifests.get(self._access.tenant, named)

    async def _require_record(self, artifact: ArtifactRef) -> Record:
        found = await self._find(artifact)
        if found is None:
            raise NotFound(": ".join(artifact) if isinstance(artifact, tuple) else artifact, "artifact")
        return found


class _HashedPieces:
    """Pieces of a file, and their SHA-256 once all of them were read."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces
        self.sha256: str | None = None

    async def read(self) -> AsyncGenerator[bytes, None]:
        found = hashlib.sha256()
        async for piece in self._pieces:
            if len(piece) < HASHED_AT_ONCE:
                found.update(piece)
            else:
                await asyncio.to_thread(found.update, piece)
            yield piece
        self.sha256 = found.hexdigest()

    async def read_to_end(self) -> None:
        async for _ in self.read():
            pass


async def _open_pieces(data: object) -> tuple[AsyncGenerator[bytes, None], int | None]:
    """Return the data as pieces of bytes, and its size in bytes where that is known."""
    if isinstance(data, bytes | bytearray | memoryview):
        if isinstance(data, memoryview) and not data.c_contiguous:
            raise InvalidInput("data", "must be contiguous. Pass bytes(data)")
        return _alone(data), memoryview(data).nbytes
    if isinstance(data, os.PathLike):
        size = await asyncio.to_thread(_size_at, data)
        return _read_at(data), size
    if isinstance(data, AsyncIterable):
        return _check_pieces(data), None
    if callable(getattr(data, "read", None)):
        return _read(data), _size_of(data)
    raise InvalidInput(
        "data",
        f"must be bytes, a Path, an open file, or an async iterable of bytes, not {type(data).__name__}",
    )


def _size_at(path: os.PathLike[str]) -> int:
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InvalidInput("data", f"cannot be read: {error}. Check the path and its permissions") from error


async def _alone(data: bytes | bytearray | memoryview) -> AsyncGenerator[bytes, None]:
    yield memoryview(data).cast("B")  # type: ignore[misc]


async def _read_at(path: os.PathLike[str]) -> AsyncGenerator[bytes, None]:
    file = await asyncio.to_thread(open, path, "rb")
    try:
        async for piece in _read(file):
            yield piece
    finally:
        file.close()


async def _read(file: Any) -> AsyncGenerator[bytes, None]:
    while piece := await asyncio.to_thread(file.read, PIECE):
        yield _bytes(piece)


async def _check_pieces(data: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in data:
        yield _bytes(piece)


def _bytes(piece: object) -> bytes:
    if isinstance(piece, bytes | bytearray):
        return piece  # type: ignore[return-value]
    raise InvalidInput("data", f"must yield bytes, not {type(piece).__name__}. Open files with mode 'rb'")


def _size_of(file: Any) -> int | None:
    """Return the unread size of an open file; None if it is unknown, as for a pipe."""
    with suppress(OSError, AttributeError, ValueError):
        at = int(file.tell())
        return max(os.fstat(file.fileno()).st_size - at, 0)
    return None
