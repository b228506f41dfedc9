"""Artifacts as lines of an export: a description, then the bytes in chunks.

A chunk has at most 1 MiB, so no artifact is in memory as a whole. The chunks of an
artifact follow each other by number, with no other line between them.

If the artifact is deleted, replaced or found damaged during the export, a line instead
of the next chunk says so (`broken`). An import ignores that sequence.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.domain import validation
from memory.domain.artifact import check_media_type, check_path
from memory.domain.errors import Conflict, CorruptRecord, InvalidInput, NotFound
from memory.domain.provenance import WRITTEN_BY, check_name
from memory.orchestrator.conversations.blobs.manifests import CHUNK_BYTES, Manifests, artifact_of
from memory.orchestrator.storage.session_keys import scope_of
from memory.ports.record import Record

ARTIFACT_FORMAT = "memory-artifact/1"
"""The format of an exported artifact, before its bytes."""
CHUNK_FORMAT = "memory-artifact-chunk/1"
"""The format of a chunk of its bytes."""

BROKEN = {NotFound: "deleted", Conflict: "replaced", CorruptRecord: "damaged"}
"""Reasons why a sequence ends before the artifact does."""
TRIES = 3
"""How often the export of an artifact is tried if it is replaced meanwhile."""

_SAID = ("format", "id", "session_id", "path", "media_type", "size", "sha256")
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ArtifactLine:
    """A validated artifact of an export, with its old id. Its chunks follow."""

    line: int
    id: str
    session_id: str
    path: str
    media_type: str
    size: int
    sha256: str
    written_by: str | None = None
    """The caller of a server that stored it, as the file claims."""

    @property
    def scope(self) -> str:
        return scope_of(self.session_id)


@dataclass(frozen=True, slots=True)
class ChunkLine:
    """A chunk of an artifact, numbered from 0, with the artifact's old id.

    If `broken` is set, the sequence ends here for that reason.
    """

    line: int
    artifact_id: str
    number: int
    data: bytes = b""
    broken: str | None = None


async def exported_artifact(manifests: Manifests, manifest: Record) -> AsyncIterator[dict[str, Any]]:
    """Yield the lines of an artifact.

    They follow its session and precede the entries that refer to it.
    """
    there: Record | None = manifest
    for _ in range(TRIES):
        if there is None:
            return
        artifact, number = artifact_of(there), 0
        yield {
            "format": ARTIFACT_FORMAT,
            **{name: getattr(artifact, name) for name in _SAID if name != "format"},
            **({} if artifact.written_by is None else {WRITTEN_BY: artifact.written_by}),
        }
        try:
            async for data in manifests.stream(there):
                yield _chunk(artifact.id, number, data=b64encode(data).decode())
                number += 1
            return
        except (NotFound, Conflict, CorruptRecord) as error:
            yield _chunk(artifact.id, number, broken=BROKEN[type(error)])
            if not isinstance(error, Conflict):
                return
        there = await manifests.get(manifest.key.tenant, artifact.id)


def _chunk(artifact_id: str, number: int, **said: str) -> dict[str, Any]:
    return {"format": CHUNK_FORMAT, "artifact_id": artifact_id, "number": number, **said}


def artifact_line(found: Mapping[str, Any], line: int) -> ArtifactLine:
    for name in _SAID:
        if name not in found:
            raise InvalidInput(name, "is missing from the exported artifact")
    digest = found["sha256"]
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise InvalidInput("sha256", "must be 64 hexadecimal digits")
    return ArtifactLine(
        line,
        validation.identifier("id", found["id"]),
        validation.identifier("session_id", found["session_id"]),
        check_path(found["path"]),
        check_media_type(found["media_type"]),
        _count("size", found["size"]),
        digest,
        check_name("source", found.get(WRITTEN_BY)),
    )


def chunk_line(found: Mapping[str, Any], line: int) -> ChunkLine:
    artifact_id, number = (
        validation.identifier("artifact_id", found.get("artifact_id")),
        _count("number", found.get("number")),
    )
    if "broken" in found:
        return ChunkLine(
            line,
            artifact_id,
            number,
            broken=validation.one_of("broken", found["broken"], tuple(BROKEN.values())),
        )
    try:
        data = b64decode(found.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidInput("data", "is not base64") from None
    if not 0 < len(data) <= CHUNK_BYTES:
        raise InvalidInput("data", f"must be 1 to {CHUNK_BYTES:,} bytes")
    return ChunkLine(line, artifact_id, number, data)


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < validation.INT64:
        raise InvalidInput(name, "must be a whole number of at least 0")
    return value


@dataclass
class Sequences:
    """Checks that the lines of each artifact are complete and in order.

    It receives the items of a file one after the other, and keeps no bytes. `whole`
    maps the line of each complete artifact to its number of chunks. Other artifacts are
    not imported.
    """

    whole: dict[int, int] = field(default_factory=dict)
    _open: ArtifactLine | None = None
    _size: int = 0
    _number: int = 0
    _hash: Any = None
    _passed_over: set[str] = field(default_factory=set)

    def pass_over(self, artifact_id: str) -> None:
        """Ignore the following chunks of this artifact, which is not imported."""
        self._passed_over.add(artifact_id)

    def give_up(self, artifact: ArtifactLine) -> None:
        """Leave the artifact out for a reason that is not in its lines."""
        self.whole.pop(artifact.line, None)
        self._open = None
        self.pass_over(artifact.id)

    def check_next(self, item: object) -> Iterator[tuple[int, str]]:
        """Yield the lines that the next item proves wrong, each with its problem.

        The item is None at the end of the file.
        """
        at = self._open
        if isinstance(item, ChunkLine) and at is not None and item.artifact_id == at.id:
            yield from self._goes_on(at, item)
            return
        if at is not None:
            yield self._reject(at, f"ends after {self._size:,} of its {at.size:,} bytes")
        if isinstance(item, ArtifactLine):
            self._open, self._size, self._number, self._hash = item, 0, 0, hashlib.sha256()
            self._passed_over.discard(item.id)
            if item.size == 0:
                yield from self._ends(item)
        elif isinstance(item, ChunkLine) and item.artifact_id not in self._passed_over:
            yield (
                item.line,
                (
                    f"belongs to artifact {item.artifact_id}, but the line of that artifact or the previous"
                    " chunk is not above it"
                ),
            )

    def _goes_on(self, at: ArtifactLine, chunk: ChunkLine) -> Iterator[tuple[int, str]]:
        if chunk.broken in ("deleted", "replaced"):  # a later sequence has the replacement
            self._open = None
        elif chunk.broken is not None:
            yield self._reject(at, "was already damaged when it was exported")
        elif chunk.number != self._number:
            yield self._reject(
                at,
                f"is incomplete: line {chunk.line} has chunk {chunk.number}, but chunk {self._number} must"
                " come next",
            )
        else:
            self._hash.update(chunk.data)
            self._size, self._number = self._size + len(chunk.data), self._number + 1
            if self._size >= at.size:
                yield from self._ends(at)

    def _ends(self, at: ArtifactLine) -> Iterator[tuple[int, str]]:
        if self._size != at.size:
            yield self._reject(at, f"has more bytes than its size of {at.size:,}")
        elif self._hash.hexdigest() != at.sha256:
            yield self._reject(at, "is damaged: its bytes do not match its SHA-256")
        else:
            self.whole[at.line], self._open = self._number, None

    def _reject(self, at: ArtifactLine, problem: str) -> tuple[int, str]:
        self.give_up(at)
        return at.line, f"artifact {at.id} {problem}; none of it is imported"
