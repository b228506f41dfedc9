"""Short ids such as `#42`, which people may type and read instead of ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory.cli.command import Cli
    from memory.domain.short_id import NumberedKind
    from memory.facade.memory import Memory

_NUMBER = re.compile(r"\s*#.*|\s*[0-9]{1,18}\s*", re.DOTALL)


async def ids_of(memory: Memory, typed: Sequence[str], kind: NumberedKind = "entry") -> list[str]:
    """Resolve typed ids: `#42` and `42` become the id of the entry or artifact.

    Other text stays as it is. So does a short id that names nothing; the call that gets
    it reports that.

    Raises:
        InvalidInput: An id is blank, or a short id names a thing of another kind.
    """
    from memory.domain.errors import InvalidInput

    if not all(map(str.strip, typed)):
        raise InvalidInput("id", f"is blank. Pass the id of an {kind}, such as #42")
    numbers = [text for text in typed if _NUMBER.fullmatch(text)]
    named = dict(zip(numbers, await memory.short_ids.resolve_many(numbers), strict=True)) if numbers else {}
    for text, found in named.items():
        if found is not None and found.kind != kind:
            raise InvalidInput("id", f"{text.strip()} is an {found.kind}, not an {kind}")
    return [found.id if (found := named.get(text)) is not None else text for text in typed]


async def id_of(memory: Memory, typed: str, kind: NumberedKind = "entry") -> str:
    """Resolve one typed id; see `ids_of`."""
    return (await ids_of(memory, [typed], kind))[0]


async def numbers_of(
    cli: Cli, memory: Memory, ids: Iterable[str], kind: NumberedKind = "entry"
) -> dict[str, int]:
    """Return the short ids to show people beside these ids.

    Empty with `--json`, and while a store fails.
    """
    from memory.domain.errors import MemoryTiersError

    if cli.json or not (asked := list(ids)):
        return {}
    try:
        return await memory.short_ids.of(asked, kind=kind)
    except MemoryTiersError as error:
        cli.say(f"short ids are not shown: {error}")
        return {}
