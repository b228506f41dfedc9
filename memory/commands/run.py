"""Run the commands of a text in order, and answer each."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from memory.commands import parse, render
from memory.commands.command_context import (
    MOST_BODY_BYTES,
    MOST_ENTRIES,
    MOST_HITS,
    MOST_SUPERSEDED,
    CommandContext,
    as_typed,
)
from memory.domain.agent_results import Result
from memory.domain.artifact import Artifact
from memory.domain.entry import Entry
from memory.domain.errors import InvalidInput, MemoryTiersError
from memory.domain.escape import one_line

log = logging.getLogger(__name__)

NO_MEMORY = "no memory is available"
GONE = "entry {} not found or already invalidated"
READS = (
    parse.ListEntries,
    parse.ShowEntry,
    parse.Search,
    parse.Expand,
    parse.Density,
    parse.ReadArtifact,
    parse.Scratchpad,
)
"""The commands that change nothing."""


class _CommandError(Exception):
    """A command cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str
    whole: bool = True


async def answer(reach: CommandContext | None, text: str) -> list[Result]:
    """Return one result for each command of the text, in order; prose has none.

    Without a memory each result is an error.
    """
    results = []
    for number, command in enumerate(parse.commands_in(text), start=1):
        results.append(await _result(None if reach is None else reach.for_command(number), command))
    return results


async def _result(reach: CommandContext | None, command: parse.Command) -> Result:
    try:
        if isinstance(command, parse.InvalidCommand):
            return _error(command, render.usage(command.usage))
        if reach is None:
            raise _CommandError(NO_MEMORY)
        said = await _ANSWERS[type(command)](reach, command)
    except _CommandError as refused:
        return _error(command, render.error(str(refused)))
    except InvalidInput as refused:
        return _error(
            command, render.error(refused.problem if refused.field in refused.problem else str(refused))
        )
    except MemoryTiersError as failed:
        return _error(command, render.error(str(failed)))
    except Exception as failed:  # the results of earlier commands must not be lost
        log.exception("a command failed")
        return _error(
            command, render.error(f"the command failed ({type(failed).__name__}); see the log for details")
        )
    return Result(
        command.said,
        render.frame_answer(command, said.text),
        False,
        said.whole and isinstance(command, READS),
    )


def _error(command: parse.Command, text: str) -> Result:
    return Result(command.said, render.frame_answer(command, text), True, False)


async def _find_entries(
    reach: CommandContext, *named: str, missing: str = "entry {} not found"
) -> list[Entry]:
    """Return the named entries; each must be one that may be read."""
    found = await reach.find(named)
    if (lacks := next((one for one in named if one not in found), None)) is not None:
        raise _CommandError(missing.format(as_typed(lacks)))
    return [found[one] for one in named]


async def _artifact(reach: CommandContext, named: str) -> Artifact:
    found = await reach.artifact(named)
    if found is None:
        raise _CommandError(f"artifact {as_typed(named)} not found")
    return found


# -- reading ---------------------------------------------------------------------------


async def _entries(reach: CommandContext, command: parse.ListEntries) -> _Answer:
    found = await reach.list_entries(command.types, command.tag, MOST_ENTRIES)
    numbers = await reach.numbers(one.id for one in found.entries)
    return _Answer(render.entry_list(found, command.tag, numbers, reach.now), not found.notes)


async def _entry(reach: CommandContext, command: parse.ShowEntry) -> _Answer:
    [shown] = await _find_entries(reach, command.id)
    around = await reach.around(shown)
    numbers = await reach.numbers([shown.id, *around.others])
    if around.artifact is not None:
        numbers = {**numbers, **await reach.numbers([around.artifact.id], "artifact")}
    return _Answer(
        render.entry(shown, around, numbers, reach.now),
        shown.artifact_id is None or around.artifact is not None,
    )


async def _search(reach: CommandContext, command: parse.Search) -> _Answer:
    found = await reach.search(command.query, MOST_HITS, rerank=command.rerank)
    numbers = await reach.numbers(one.id for one in found.entries)
    return _Answer(render.hits(command.query, found, numbers, reach.now, reach.conversation), not found.notes)


async def _expand(reach: CommandContext, command: parse.Expand) -> _Answer:
    [begin] = await _find_entries(reach, command.id)
    found = await reach.expand(begin.id, command.depth)
    numbers = await reach.numbers(one.id for one in found.entries)
    return _Answer(render.linked_entries(found, command.depth, numbers, reach.now))


async def _density(reach: CommandContext, command: parse.Density) -> _Answer:
    [entry] = await _find_entries(reach, command.id)
    return _Answer(render.density(entry.id, await reach.density(entry.id), await reach.numbers([entry.id])))


async def _read(reach: CommandContext, command: parse.ReadArtifact) -> _Answer:
    found = await _artifact(reach, command.id)
    data = await reach.beginning(found.id, MOST_BODY_BYTES)
    return _Answer(render.artifact(found, data, await reach.numbers([found.id], "artifact")))


async def _scratchpad(reach: CommandContext, command: parse.Scratchpad) -> _Answer:
    return _Answer(render.scratchpad(await reach.scratchpad(shared=command.shared)))


# -- writing ---------------------------------------------------------------------------


async def _add_entry(reach: CommandContext, command: parse.AddEntry) -> _Answer:
    content = _body(command.body, "entry")
    if len(command.supersedes) > MOST_SUPERSEDED:
        raise _CommandError(
            f"at most {MOST_SUPERSEDED} entries can be superseded at once, not {len(command.supersedes)}:"
            " nothing was written"
        )
    old = (
        await _find_entries(reach, *command.supersedes, missing=f"{GONE}: nothing was written")
        if command.supersedes
        else []
    )
    superseded = list(dict.fromkeys(one.id for one in old))
    artifact = None if command.artifact is None else (await _artifact(reach, command.artifact)).id
    added, notes = await reach.add(command.type, command.title, content, superseded, artifact)
    numbers = await reach.numbers([added.id, *superseded])
    place = f", superseding {_names(superseded, numbers)}" if superseded else ""
    return _Answer(
        "\n".join([f"OK: entry {render.name(added.id, numbers)} added{place}", *map(one_line, notes)])
    )


async def _add_link(reach: CommandContext, command: parse.AddLink) -> _Answer:
    missing = "both entries must exist, be active and belong to this memory"
    if command.source == command.target:
        raise _CommandError("self-loops not allowed")
    source, target = (
        one.id for one in await _find_entries(reach, command.source, command.target, missing=missing)
    )
    try:
        await reach.link(source, command.relation, target)
    except InvalidInput as refused:
        raise _CommandError(refused.problem) from refused
    numbers = await reach.numbers([source, target])
    return _Answer(f"OK: {render.name(source, numbers)} {command.relation} {render.name(target, numbers)}")


async def _invalidate(reach: CommandContext, command: parse.Invalidate) -> _Answer:
    [entry] = await _find_entries(reach, command.id, missing=GONE)
    if not await reach.invalidate(entry.id):
        raise _CommandError(GONE.format(as_typed(command.id)))
    return _Answer(f"OK: entry {render.name(entry.id, await reach.numbers([entry.id]))} invalidated")


async def _write(reach: CommandContext, command: parse.Write) -> _Answer:
    size = await reach.write(_body(command.text, "text"), shared=command.shared)
    return _Answer(f"OK: the scratchpad holds {size:,} bytes")


async def _clear(reach: CommandContext, command: parse.Clear) -> _Answer:
    return _Answer("OK: cleared" if await reach.clear(shared=command.shared) else "OK: it was empty")


def _body(text: str | None, what: str) -> str:
    """Return the text to write. Check that it is closed, not empty and not too long."""
    if text is None:
        raise _CommandError(f"not closed with {parse.ENDS}: nothing was written")
    if not text.strip():
        raise _CommandError(f"the {what} has no text: nothing was written")
    if (size := len(text.encode(errors="surrogatepass"))) > MOST_BODY_BYTES:
        raise _CommandError(
            f"content exceeds {MOST_BODY_BYTES // 1024} KiB ({size:,} bytes): nothing was written"
        )
    return text


def _names(ids: Iterable[str], numbers: render.Numbers) -> str:
    return ", ".join(render.name(one, numbers) for one in ids)


async def _commands(reach: CommandContext, command: parse.ListCommands) -> _Answer:
    return _Answer(render.command_list(parse.USAGE.values()))


_ANSWERS: dict[type[parse.Command], Callable[[CommandContext, Any], Awaitable[_Answer]]] = {
    parse.ListCommands: _commands,
    parse.ListEntries: _entries,
    parse.ShowEntry: _entry,
    parse.Search: _search,
    parse.Expand: _expand,
    parse.Density: _density,
    parse.ReadArtifact: _read,
    parse.Scratchpad: _scratchpad,
    parse.AddEntry: _add_entry,
    parse.AddLink: _add_link,
    parse.Invalidate: _invalidate,
    parse.Write: _write,
    parse.Clear: _clear,
}
