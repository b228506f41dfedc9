"""`memory.numbers`: the running numbers by which people and commands name entries and
artifacts.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.domain import door
from memory.domain.corrections import explain_guesses
from memory.facade.access import Access
from memory.facade.arguments import id_of
from memory.orchestrator.numbers import NumberedKind, Referent, kind_of, reference_of


@explain_guesses
class Numbers:
    """A running number of the tenant for each entry and artifact that was ever shown by
    one, `#42`, beside its id, which the other calls take.

    shown = await memory.numbers.of([entry.id for entry in entries])
    found = await memory.numbers.resolve("#42")
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def of(self, ids: Sequence[str], *, kind: NumberedKind = "entry") -> dict[str, int]:
        """The numbers of these entries, or artifacts, by id, given now where they have
        none; at most 1,000 at once. All are of one sequence.

        What is unknown, deleted, of the other kind or another tenant's has none and is
        left out. A number is never given twice, also after a deletion; some are never
        given. It stays with its entry when that is edited, retired or moved, with its
        artifact when that is replaced, and ends with it; copies and imports get their
        own. Raises `StoreError` where a store fails: show the id then.
        """
        return await self._access.engine.numbers.of(self._access.tenant, _named(ids), kind_of(kind))

    async def resolve(self, text: str) -> Referent | None:
        """What `#42`, `42` or an id names, spaces around them aside (D114): which kind
        of thing, its id, and its number where it has one.

        None where there is no such thing any more, or never was; retired and expired
        entries are found. Anything else is `InvalidInput`.
        """
        return (await self.resolve_many([text]))[0]

    async def resolve_many(self, texts: Sequence[str]) -> list[Referent | None]:
        """What each of these names, in order; see `resolve`. At most 1,000 at once."""
        references = [reference_of(text) for text in _named(texts)]
        return await self._access.engine.numbers.resolve(self._access.tenant, references)


def _named(values: Sequence[str]) -> list[str]:
    return [id_of(value) for value in door.sequence("ids", values, at_most=door.MAX_LIMIT)]
