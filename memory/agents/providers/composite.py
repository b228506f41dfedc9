"""Several providers as one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Literal
from uuid import uuid4

from memory.agents.providers.provider import (
    HELD,
    Messages,
    Provider,
    ProviderEntry,
    SessionProvider,
    read_asked,
    storable_messages,
    trim_to_newest,
)
from memory.agents.providers.turn import DEFAULT, TurnMixin, described_as, written_new
from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import ForkedProcess, InvalidInput, ProviderFailure
from memory.domain.message import Message
from memory.orchestrator.conversations.log.events import copy_of
from memory.orchestrator.conversations.window.reads import (
    WindowRead,
    WindowReads,
    lends_reads,
    reads_of_caller,
    with_reads,
)
from memory.orchestrator.storage.places import Places
from memory.policies.message_alignment import align_messages, begins_at, merge_messages
from memory.policies.message_ranking import best_of, ranks_by_words

log = logging.getLogger(__name__)


@explain_guesses
class CompositeProvider(TurnMixin):
    """Several providers, each any object with `read` and `write`: written to all, read
    from the first that has something, or from all.

    With `read="first-hit"` what an earlier part lacks is written to it when a later one
    has it (C47, C51). With `read="merge"` their messages come behind each other, each
    once (C48, C49); with a `query` and a `limit` the best of them by words. Messages
    get their ids here, so that the parts agree on which is which; a list without ids
    that begins as what was last read or written here is known again by that.
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
        reads_of_caller()  # child tasks of the caller let it know what they read
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
        """What the parts have of a session; a part that fails is passed over, unless
        all do.
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
            results = await asyncio.gather(
                *(part.read(session_id, **asked) for part in self._parts), return_exceptions=True
            )
            self._raise_where("read", results, all_of_them=True)
            together = merge_messages([result for result in results if not isinstance(result, BaseException)])
            if limit is not None and query is not None and len(together) > limit:
                ranks = ranks_by_words(together, query)
                others = {
                    at: 2 * len(together) - at for at in range(len(together))
                }  # found by other means than words
                return best_of(together, others | ranks, most=limit)
            return together if limit is None else trim_to_newest(together, limit)
        failed: list[BaseException | None] = []
        for number, part in enumerate(self._parts):
            try:
                found = await part.read(session_id, **asked)
            except ForkedProcess:
                raise
            except Exception as error:  # noqa: BLE001 - a part is anybody's
                log.warning("%s could not be read: %s", _name(part), error)
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
        """Write what was found to those before it. That this fails is no reason not to
        show what was found.
        """
        entries = await source.entries(session_id) if missing and hasattr(source, "entries") else []
        described = {"tags": entries[0].tags, "agent": entries[0].agent} if entries else {}
        for part in missing:
            try:
                await part.write([copy_of(message) for message in found], session_id, **described)
                await with_reads(
                    WindowReads(), self._take_back, part, source, session_id, found
                )  # the caller is not shown what this reads
            except Exception as error:  # noqa: BLE001 - a part is anybody's
                log.warning("%s could not be filled from %s: %s", _name(part), _name(source), error)

    async def _take_back(self, part: Any, source: Any, session_id: str, found: Sequence[Message]) -> None:
        """Let a part follow erasures and edits that came to the source while the part
        was filled from it.
        """
        if isinstance(source, SessionProvider):
            erased, edited = await source._changed_since(session_id, found)
        else:
            there = {message.id: message for message in await source.read(session_id)}
            erased, edited = [str(message.id) for message in found if there.get(message.id) != message], []
        if not erased and not edited:
            return
        filled = {str(message.id) for message in await part.read(session_id)}
        if isinstance(part, SessionProvider):  # others may have written to it meanwhile: it is not cleared
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
        """Write to all parts, whatever becomes of one; `ProviderFailure` names those that
        failed, and the same again doubles nothing (C50, C51).

        Says what could not be kept to, mostly nothing.
        """
        validation.identifier("session_id", session_id)
        described_as(tags, agent)
        given = storable_messages(messages)
        reads_of_caller().settle(self._known_as(session_id), given)
        said = await self._with_ids(session_id, given, new)
        known = self._shown_to_caller(session_id)
        self._note_read(session_id, [*(known or []), *said] if new else said)

        async def to(part: Any) -> list[str]:
            own = [copy_of(message) for message in said]
            if new:
                return await written_new(part, own, session_id, tags=tags, agent=agent)
            if known is not None and isinstance(part, SessionProvider):
                await part._assume_read(session_id, known)
            return list(await part.write(own, session_id, tags=tags, agent=agent) or [])

        reads = reads_of_caller()  # each part is written in a task of its own
        results = await asyncio.gather(
            *(with_reads(reads, to, part) for part in self._parts), return_exceptions=True
        )
        self._raise_where("write", results)
        return [note for result in results if not isinstance(result, BaseException) for note in result]

    def _note_read(self, session_id: str, messages: list[Message]) -> None:
        places = Places.of(_place(message) for message in messages)
        reads_of_caller().put(
            self._known_as(session_id), WindowRead(places, shown=messages if len(messages) <= HELD else None)
        )

    def _shown_to_caller(self, session_id: str) -> list[Message] | None:
        """Those of the messages `_seen` that every read showed which the written list
        may come from.
        """
        read = reads_of_caller().get(self._known_as(session_id))
        if read is None or read.shown is None:
            return None
        places = set(read.places)
        return [message for message in read.shown if _place(message) in places]

    def _last_read(self, session_id: str) -> list[Message] | None:
        """The messages that the calling task last read or wrote here, with ids; None
        where it did neither.
        """
        read = reads_of_caller().get(self._known_as(session_id))
        return None if read is None else read.shown

    def _known_as(self, session_id: str) -> str:
        return f"{self._name}/{session_id}"

    async def _with_ids(self, session_id: str, messages: Sequence[Message], new: bool) -> list[Message]:
        """The messages, each with an id: its own, that of the message that it is, or
        another.
        """
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
        """Clear every part that can be (C15, C50)."""
        if session_id is not None:
            validation.identifier("session_id", session_id)
            self._note_read(session_id, [])
        else:
            self._name = uuid4()
        able = [part for part in self._parts if hasattr(part, "clear")]
        self._raise_where(
            "clear",
            await asyncio.gather(*(part.clear(session_id) for part in able), return_exceptions=True),
            of=able,
        )

    async def entries(self, session_id: str | None = None) -> list[ProviderEntry]:
        """The entries of every part that has them, part by part."""
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
            raise ProviderFailure(call, {name: str(error) for name, error in failed}) from failed[0][1]


def _place(message: Message) -> int:
    """Stands for the place of a message, which it has in each part, not in the
    composite.
    """
    return hash(message.id)


def _name(part: Any) -> str:
    return str(getattr(part, "namespace", None) or getattr(part, "type", None) or type(part).__name__)
