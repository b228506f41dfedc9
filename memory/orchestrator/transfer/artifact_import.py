"""Import of an exported artifact.

It is put under its path like any other, if no artifact was ever there. So an import
replaces nothing, and restores nothing that was deleted. Its new id derives from the old
one, so that a repeated import finds the artifact.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from memory.domain import ids
from memory.domain.errors import InvalidInput, NotFound
from memory.orchestrator.conversations.blobs.manifests import Manifests, PathOccupied, artifact_of
from memory.orchestrator.storage.collections import MANIFESTS
from memory.orchestrator.storage.session_keys import scope_of
from memory.orchestrator.transfer.records import DELETED, THERE, WRITTEN, Fate, RestoreResult
from memory.ports.record import Record


async def restore_artifact(
    manifests: Manifests,
    tenant: str,
    session_id: str,
    path: str,
    media_type: str,
    old_id: str,
    sha256: str,
    size: int,
    data: AsyncIterator[bytes],
    writer: str | None = None,
) -> tuple[RestoreResult, str | None]:
    """Put an exported artifact; return the result and its id here.

    `data` is not read if the path is or was in use. Raises `QuotaExceeded`.
    """
    here = ids.derived_id(tenant, scope_of(session_id), "import", MANIFESTS.name, path, old_id)
    try:
        return WRITTEN, (
            await manifests.put(
                tenant, session_id, path, media_type, data, size, artifact_id=here, writer=writer
            )
        ).id
    except NotFound:
        return DELETED, None
    except InvalidInput as error:
        return RestoreResult(Fate.REFUSED, str(error)), None
    except PathOccupied as met:
        if not isinstance(met.stands, Record):
            return DELETED, None
        there = artifact_of(met.stands)
        if there.id in (here, old_id) or (there.sha256, there.size) == (sha256, size):
            return THERE, there.id
        return RestoreResult(Fate.REFUSED, "path: another artifact uses it here"), None
