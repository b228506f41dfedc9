"""`memory.short_ids`: short ids of entries and artifacts, for people and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import NotFound
from memory.domain.short_id import NumberedItem, NumberedKind
from memory.facade.arguments import id_of, ids_of
from memory.facade.runtime.access import Access
from memory.facade.runtime.request_ids import request_of
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.entries.short_ids import kind_of, reference_of
from memory.orchestrator.storage.requests import RequestMark


@guard_calls
@explain_guesses
class ShortIds:
    """Short ids, such as `#42`, of entries and artifacts.

        shown = await memory.short_ids.of([entry.id for entry in entries])
        found = await memory.short_ids.resolve("#42")

    An entry or artifact gets one when it is first asked for. All other calls take the
    full id.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def of(self, ids: Sequence[str], *, kind: NumberedKind = "entry") -> dict[str, int]:
        """Return the short ids of entries or artifacts, by full id.

        At most 1,000 ids are taken at once. Those without a short id get one now.
        Entries and artifacts share one sequence per tenant. Ids that are unknown,
        deleted, of the other kind or of another tenant are left out.

        A short id is never reused, and the sequence has gaps. An entry keeps its short
        id when it is edited, retired or moved; an artifact, when it is replaced. Copies
        and imports get their own.

        Raises:
            StoreError: A store failed. Show the full id instead.
        """
        asked, of_kind = ids_of(ids, "ids", at_most=validation.MAX_LIMIT), kind_of(kind)
        return await self._access.engine.short_ids.of(self._access.tenant, asked, of_kind)

    async def resolve(self, text: str, *, request_id: str | None = None) -> NumberedItem | None:
        """Find what `#42`, `42` or a full id names; spaces around it are ignored.

        Args:
            request_id: The id of the request that needs it, such as a deletion. A
                repeat finds what the first call found, even if it was deleted since.

        Returns:
            The kind, the full id and the short id, or None where nothing has this id.
            Retired and expired entries are found.

        Raises:
            InvalidInput: The text is neither a short id nor a full id.
        """
        if request_id is None:
            return (await self.resolve_many([text]))[0]
        reference = reference_of(id_of(text, "id"))
        request = request_of(f"short_ids.resolve {reference}", request_id, {})

        async def find(mark: RequestMark | None) -> NumberedItem:
            if (found := (await self.resolve_many([text]))[0]) is None:
                raise NotFound(str(reference), "short id")
            return found

        async def read(noted: Any) -> NumberedItem:
            return NumberedItem(**noted)

        try:
            return await self._access.once(request, find, NumberedItem.to_dict, read)
        except NotFound:
            return None

    async def resolve_many(self, texts: Sequence[str]) -> list[NumberedItem | None]:
        """Find what each text names, in order; see `resolve`. At most 1,000 at once."""
        given = validation.sequence("texts", texts, at_most=validation.MAX_LIMIT)
        references = [reference_of(id_of(text, "id")) for text in given]
        return await self._access.engine.short_ids.resolve(self._access.tenant, references)
