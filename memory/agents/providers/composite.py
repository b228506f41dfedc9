"""A provider made of several providers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal
from uuid import uuid4

from memory.agents.providers.provider import (
    HELD,
    Messages,
    Provider,
    SessionProvider,
    read_asked,
    storable_messages,
    trim_to_newest,
)
from memory.agents.providers.turn import DEFAULT, TurnMixin, described_as, written_new
from memory.domain import validation
from memory.domain.agent_results import ProviderEntry
from memory.domain.corrections import explain_guesses
from memory.domain.errors import ForkedProcess, InvalidInput, ProviderFailure, error_text
from memory.domain.message import Message
from memory.facade.runtime.own_loop import LoopBound
from memory.orchestrator.conversations.log.events import copy_of
from memory.orchestrator.conversations.window.reads import (
    WindowRead,
    WindowReads,
    lends_reads,
    reads_of_caller,
    with_reads,
)
from memory.orchestrator.storage.places import Places
from memory.policies.message_alignment import align_messages, begins_at, merge_messages, other_ids
from memory.policies.message_ranking import best_of, ranks_by_words
from memory.ports.concurrency import outcomes_at_once

log = logging.getLogger(__name__)


@explain_guesses
class CompositeProvider(TurnMixin, LoopBound):
    """Several providers used as one: writes go to all of them.

    A written message without an id gets one here, so that all parts use the same ids. A
    list without ids is recognised if it starts like the last read or write here.

    Args:
        parts: Objects with `read` and `write`. Their namespaces must differ.
        read: `"first-hit"` returns the messages of the first part that has any, and
            copies them to the parts before it. It does not copy them after a read with
            a limit, a query or tags. `"merge"` concatenates the messages of all parts
            without duplicates, which have the same id or, written to the parts one by
            one, the same content. With a `query` and a `limit` it returns the best
            matches by words.
    """

    type: ClassVar[str] = "composite"
    takes_new: ClassVar[bool] = True

    def __init__(
        self, parts: Sequence[Provider], *, read: Literal["first-hit", "merge"] = "first-hit"
    ) -> None:
        self._parts = validation.sequence("parts", parts)
        if not self._parts:
            raise InvalidInput("parts", "At least one provider required.")
        for part in self._parts:
            if not isinstance(part, Provider):
                raise InvalidInput(
                    "parts", f"each must have read and write, and {type(part).__name__} does not"
                )
        names = [part.namespace for part in self._parts if hasattr(part, "namespace")]
        if len(names) != len(set(names)):
            raise InvalidInput("parts", f"must have different namespaces, not {', '.join(map(str, names))}")
        self._name = uuid4()
        reads_of_caller()  # then reads of child tasks are known to the caller
        self._merges = validation.one_of("read", read, ("first-hit", "merge")) == "merge"

    @lends_reads
    async def read(
        self,
        session_id: str = DEFAULT,
        *,
        limit: int | None = None,
        query: str | None = None,
        tags: Sequence[str] = (),
    ) -> list[Message]:
        """Return the messages of a session, as `SessionProvider.read` does.

        A part that fails is skipped.

        Raises:
            ProviderFailure: If all parts fail.
        """
        read_asked(limit, query, tags)
        found = await self._read(session_id, limit=limit, query=query, tags=tags)
        self._note_read(session_id, found)
        return [copy_of(message) for message in found]

    async def _read(
        self, session_id: str, *, limit: int | None, query: str | None, tags: Sequence[str]
    ) -> list[Message]:
        validation.identifier("session_id", session_id)
        asked = {"limit": limit, "query": query, "tags": tags}
        if self._merges:
            results = await outcomes_at_once(part.read(session_id, **asked) for part in self._parts)
            self._raise_where("read", results, all_of_them=True)
            together = merge_messages([result for result in results if not isinstance(result, BaseException)])
            if limit is not None and query is not None and len(together) > limit:
                ranks = ranks_by_words(together, query)
                others = {
                    at: 2 * len(together) - at for at in range(len(together))
                }  # those that the words of the query do not find
                return best_of(together, others | ranks, most=limit)
            return together if limit is None else trim_to_newest(together, limit)
        failed: list[BaseException | None] = []
        for number, part in enumerate(self._parts):
            try:
                found = await part.read(session_id, **asked)
            except ForkedProcess:
                raise
            except Exception as error:  # noqa: BLE001 - parts may raise anything
                log.warning("%s could not be read: %s", _name(part), error_text(error))
                failed.append(error)
                continue
            failed.append(None)
            if found:
                missing = [
                    earlier
                    for earlier, error in zip(self._parts[:number], failed, strict=False)
                    if error is None
                ]
                if limit is None and query is None and not tags:
                    await self._fill(missing, part, session_id, found)
                return list(found) if limit is None else trim_to_newest(found, limit)
        self._raise_where("read", failed, all_of_them=True)
        return []

    async def _fill(
        self, missing: Sequence[Any], source: Any, session_id: str, found: Sequence[Message]
    ) -> None:
        """Copy the messages to the parts before the source.

        A failure is logged, because the messages can be returned anyway.
        """
        entries = await source.entries(session_id) if missing and hasattr(source, "entries") else []
        described = {"tags": entries[0].tags, "agent": entries[0].agent} if entries else {}
        for part in missing:
            try:
                await part.write([copy_of(message) for message in found], session_id, **described)
                await with_reads(
                    WindowReads(), self._take_back, part, source, session_id, found
                )  # the caller does not see these reads
            except Exception as error:  # noqa: BLE001 - parts may raise anything
                log.warning(
                    "%s could not be filled from %s: %s", _name(part), _name(source), error_text(error)
                )

    async def _take_back(self, part: Any, source: Any, session_id: str, found: Sequence[Message]) -> None:
        """Apply erasures and edits to a part that the source had during the copy."""
        if isinstance(source, SessionProvider):
            erased, edited = await source._changed_since(session_id, found)
        else:
            there = {message.id: message for message in await source.read(session_id)}
            erased, edited = [str(message.id) for message in found if there.get(message.id) != message], []
        if not erased and not edited:
            return
        filled = {str(message.id) for message in await part.read(session_id)}
        if isinstance(part, SessionProvider):  # do not clear it: others may have written to it
            await part._follow(
                session_id,
                [one for one in erased if one in filled],
                [one for one in edited if one.id in filled],
            )
        elif filled <= set(erased) and hasattr(part, "clear"):
            await part.clear(session_id)

    @lends_reads
    async def write(
        self,
        messages: Messages,
        session_id: str = DEFAULT,
        *,
        tags: Sequence[str] = (),
        agent: str | None = None,
        new: bool = False,
    ) -> list[str]:
        """Write to all parts, even if some of them fail.

        Repeating a failed call duplicates nothing.

        Args:
            messages: One message or several, in any supported shape.
            session_id: The session.
            tags: The tags of the session from now on.
            agent: The agent that writes.
            new: Append the messages instead of matching them with the stored ones.

        Returns:
            Notes about limits that a part could not keep; usually none.

        Raises:
            ProviderFailure: Names the parts that failed.
        """
        validation.identifier("session_id", session_id)
        described_as(tags, agent)
        given = storable_messages(messages)
        reads_of_caller().settle(self._known_as(session_id), given)
        said = await self._with_ids(session_id, given, new)
        known = self._shown_to_caller(session_id)
        named = [one for one, before in zip(said, given, strict=True) if before.id is not None]
        self._note_read(session_id, [*(known or []), *said] if new else said)

        async def to(part: Any) -> list[str]:
            if new:
                own = [copy_of(message) for message in said]
                return await written_new(part, own, session_id, tags=tags, agent=agent)
            ids = await _other_ids(part, session_id, known or named)
            own = _with_other_ids(said, ids)
            if known is not None and isinstance(part, SessionProvider):
                await part._assume_read(session_id, _with_other_ids(known, ids))
            return list(await part.write(own, session_id, tags=tags, agent=agent) or [])

        reads = reads_of_caller()  # each part is written in its own task
        results = await outcomes_at_once(with_reads(reads, to, part) for part in self._parts)
        self._raise_where("write", results)
        return [note for result in results if not isinstance(result, BaseException) for note in result]

    def _note_read(self, session_id: str, messages: list[Message]) -> None:
        places = Places.of(_place(message) for message in messages)
        reads_of_caller().put(
            self._known_as(session_id), WindowRead(places, shown=messages if len(messages) <= HELD else None)
        )

    def _shown_to_caller(self, session_id: str) -> list[Message] | None:
        """Return the messages that every read behind the written list has shown.

        None if the caller has not read here.
        """
        read = reads_of_caller().get(self._known_as(session_id))
        if read is None or read.shown is None:
            return None
        places = set(read.places)
        return [message for message in read.shown if _place(message) in places]

    def _last_read(self, session_id: str) -> list[Message] | None:
        """Return the messages that the calling task last read or wrote here, with ids.

        None if it did neither.
        """
        read = reads_of_caller().get(self._known_as(session_id))
        return None if read is None else read.shown

    def _known_as(self, session_id: str) -> str:
        return f"{self._name}/{session_id}"

    async def _with_ids(self, session_id: str, messages: Sequence[Message], new: bool) -> list[Message]:
        """Give every message an id: its own, that of its match, or a new one."""
        ids = [message.id for message in messages]
        if not new and None in ids:
            known = self._last_read(session_id)
            seen = await self.read(session_id) if known is None else known
            if begins_at(messages, seen):
                ids = [
                    own or (None if at is None else seen[at].id)
                    for own, at in zip(ids, align_messages(messages, seen), strict=True)
                ]
        return [
            message.model_copy(update={"id": known or str(uuid4())})
            for message, known in zip(messages, ids, strict=True)
        ]

    async def clear(self, session_id: str | None = None) -> None:
        """Clear one session, or all of them, in every part that has `clear`.

        Raises:
            ProviderFailure: Names the parts that failed.
        """
        if session_id is not None:
            validation.identifier("session_id", session_id)
            self._note_read(session_id, [])
        else:
            self._name = uuid4()
        able = [part for part in self._parts if hasattr(part, "clear")]
        self._raise_where(
            "clear",
            await outcomes_at_once(part.clear(session_id) for part in able),
            of=able,
        )

    async def entries(self, session_id: str | None = None) -> list[ProviderEntry]:
        """Return the entries of every part that has `entries`, part by part."""
        able = [part for part in self._parts if hasattr(part, "entries")]
        return [entry for part in able for entry in await part.entries(session_id)]

    def _raise_where(
        self,
        call: str,
        results: Sequence[object],
        *,
        of: Sequence[Any] | None = None,
        all_of_them: bool = False,
    ) -> None:
        names = [_name(part) for part in (self._parts if of is None else of)]
        told = [
            name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names, 1)
        ]
        failed = [
            (name, error)
            for name, error in zip(told, results, strict=True)
            if isinstance(error, BaseException)
        ]
        if forked := next((error for _, error in failed if isinstance(error, ForkedProcess)), None):
            raise forked
        if failed and (not all_of_them or len(failed) == len(results)):
            raise ProviderFailure(call, {name: error_text(error) for name, error in failed}) from failed[0][1]


async def _other_ids(part: Any, session_id: str, shown: Sequence[Message]) -> dict[str, str]:
    """Return the ids that a part has for messages which were shown with another's ids.

    Messages that were written to the parts one by one have an id in each of them.
    """
    if not shown:
        return {}
    try:  # the caller does not see this read
        own = await with_reads(WindowReads(), part.read, session_id)
    except Exception:  # noqa: BLE001 - the write says what is wrong with the part
        return {}
    return other_ids(shown, own)


def _with_other_ids(messages: Sequence[Message], others: Mapping[str, str]) -> list[Message]:
    return [
        copy_of(message).model_copy(update={"id": others.get(str(message.id), message.id)})
        for message in messages
    ]


def _place(message: Message) -> int:
    """Return a number that represents the place of a message.

    Messages have places in the parts, not in the composite.
    """
    return hash(message.id)


def _name(part: Any) -> str:
    return str(getattr(part, "namespace", None) or getattr(part, "type", None) or type(part).__name__)
