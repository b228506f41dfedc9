"""The provider interface, and the base class of the included providers.

Each session of a provider is a session of its memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from memory.agents.providers.turn import DEFAULT, TurnMixin, described_as
from memory.domain import validation
from memory.domain.agent_results import ProviderEntry
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput, NotFound
from memory.domain.message import Message, Role
from memory.domain.session import SessionInfo
from memory.domain.shapes import import_message, import_messages
from memory.facade.memory import Memory
from memory.facade.resources.session import MessageLike, Session
from memory.facade.runtime.access import MAX_QUERY_BYTES, access_of, engine_of
from memory.facade.runtime.own_loop import LoopBound
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.events import copy_of
from memory.orchestrator.conversations.window.reads import Version, WindowRead, lends_reads, reads_of_caller
from memory.orchestrator.storage.places import Places
from memory.policies.context import ContextRequest
from memory.policies.message_ranking import best_of
from memory.policies.window import is_made_for_reading, newest, with_stand_ins

HELD = 1_000
"""Limits of one instance: session handles kept, and messages recognised per session."""
PAGE = 200

Messages: TypeAlias = "Message | Mapping[str, Any] | Sequence[MessageLike]"


@runtime_checkable
class Provider(Protocol):
    """Anything that keeps the messages of sessions.

    `clear` and `entries`, as in `SessionProvider`, are optional.
    """

    async def read(
        self,
        session_id: str = DEFAULT,
        *,
        limit: int | None = None,
        query: str | None = None,
        tags: Sequence[str] = (),
    ) -> Sequence[Message]: ...

    async def write(
        self,
        messages: Sequence[Message],
        session_id: str = DEFAULT,
        *,
        tags: Sequence[str] = (),
        agent: str | None = None,
    ) -> Any: ...


@dataclass(slots=True)
class ProviderSession:
    """A session handle of this instance."""

    session: Session
    accessed_at: datetime | None = None


@explain_guesses
class SessionProvider(TurnMixin, LoopBound):
    """The base class of the included providers.

    A provider only reaches the sessions of its namespace, also in `clear`. It takes
    messages in any shape that `Session.append` takes, and returns copies. System
    messages belong to the run and are not stored. Several processes may use providers
    of one namespace.

    Args:
        memory: Keeps the sessions.
        namespace: The prefix of its sessions; the type of the provider by default.
        user: The owner of its sessions. Then the default session is the user's own, and
            `clear` and `entries` only reach the user's sessions. Another user's session
            raises `SessionOwnerMismatch`.
    """

    type: ClassVar[str] = "session"
    takes_new: ClassVar[bool] = True
    """Whether `write` takes `new`."""
    _max_tokens: int | None = None
    """The maximum number of tokens that a read returns."""

    def __init__(self, memory: Memory, *, namespace: str | None = None, user: str | None = None) -> None:
        self.namespace = validation.identifier("namespace", self.type if namespace is None else namespace)
        if "/" in self.namespace:
            raise InvalidInput("namespace", "must not contain '/', which separates it from the session id")
        self._user = None if user is None else validation.identifier("user", user)
        if not issubclass(getattr(type(memory), "__wrapped__", type(memory)), Memory):
            raise InvalidInput("memory", f"must be a Memory, not {type(memory).__name__}")
        self._memory = memory
        reads_of_caller()  # then reads of child tasks are known to the caller
        self._held: OrderedDict[str, ProviderSession] = OrderedDict()

    @lends_reads
    async def read(
        self,
        session_id: str = DEFAULT,
        *,
        limit: int | None = None,
        query: str | None = None,
        tags: Sequence[str] = (),
    ) -> list[Message]:
        """Return the messages of a session in the order in which they were said.

        The list is empty if the session does not exist or lacks one of the tags.

        Args:
            session_id: The session.
            limit: The maximum number of messages: the newest, or with `query` the best.
                A call is never returned without its results.
            query: Selects the messages that have words of the query.
            tags: Tags that the session must have.
        """
        most, asked, wanted = read_asked(limit, query, tags)
        await self._before()
        while True:
            held = self._handle(session_id)
            was_open = held.session._held is not None
            try:
                if wanted and not wanted <= set((await held.session.info()).tags):
                    return []
                window, seen = await self._window(held.session)
                if asked is None:
                    shown = with_stand_ins(await self._read_view(held, window))
                    shown = shown if most is None else trim_to_newest(shown, most)
                else:
                    shown = await self._best(held, window, asked, most)
                conversation = await held.session._conversation()
                held.accessed_at = await conversation.note_access()
            except NotFound:
                self._held.pop(session_id, None)
                if was_open:
                    continue  # another caller cleared it, and may have written it again
                reads_of_caller().put(self._unwritten(session_id), WindowRead())
                return []
            seen.shown = [message for message in shown if not is_made_for_reading(message)]
            seen.hide(
                {message.id for message in self._trim_window(window)} - {message.id for message in shown}
            )
            reads_of_caller().put(conversation.log.life.incarnation, seen)
            return [copy_of(message) for message in shown]

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
        """Store the messages of a run.

        Args:
            messages: One message or several, in any supported shape.
            session_id: The session; it is created if needed.
            tags: The tags of the session from now on.
            agent: The agent that writes.
            new: Append the messages instead of matching them with the stored ones.

        Returns:
            Notes about limits that could not be kept, or values that are not JSON;
            usually none.
        """
        said = storable_messages(messages)
        described = described_as(tags, agent)
        await self._before()
        try:
            notes = await self._write_messages(session_id, said, described, new)
        except NotFound:  # another caller has cleared it
            self._held.pop(session_id, None)
            notes = await self._write_messages(session_id, said, described, new)
        replaced = [
            f"messages[{number}].{path}"
            for number, message in enumerate(said)
            for path in message.placeholders
        ]
        return [*notes, *(f"{path} is not JSON: a placeholder is stored" for path in replaced)]

    async def _write_messages(
        self, session_id: str, said: list[Message], described: Mapping[str, Any], new: bool
    ) -> list[str]:
        held = self._handle(session_id, create=True)
        conversation = await held.session._conversation()
        self._settle_read(conversation, session_id, said)
        read = set[str | None]() if new else self._shown_to_caller(conversation)
        if not new:
            seen = self._last_read(conversation)
            said = await conversation.without_erased(said, () if seen is None else seen.versions)
        notes = await self._store(held, conversation, said, new)
        if not new:
            reads_of_caller().take_back(conversation.log.life.incarnation)
            reads_of_caller().take_back(self._unwritten(session_id))
        await conversation.enter_history(
            [message.id for message in said if message.id is not None and message.id not in read]
        )
        await conversation.describe(described)
        return notes

    async def clear(self, session_id: str | None = None) -> None:
        """Erase one session, or all of this provider's namespace.

        Nothing happens if there is no such session.

        Raises:
            InvalidInput: For an empty session id.
        """
        await self._before()
        if session_id is not None:
            await self._session(session_id, create=False).delete()
            self._held.pop(session_id, None)
            return
        for info in [info async for info in self._infos()]:
            await self._memory.session(
                info.id, create=False, namespace=self.namespace, user=self._user
            ).delete()
        self._held.clear()

    async def _changed_since(
        self, session_id: str, messages: Sequence[Message]
    ) -> tuple[list[str], list[Message]]:
        """Return the changes of messages that were read here earlier.

        Return the ids of erased messages, and the edited messages as they are now.
        """
        said = [message for message in messages if message.role is not Role.SYSTEM]
        session, erased, edited = self._session(session_id, create=False), list[str](), list[Message]()
        try:
            window, conversation = (await self._window(session))[0], await session._conversation()
        except NotFound:
            return [str(message.id) for message in said], []
        there = {message.id: message for message in window}
        for message in said:
            now = there.get(message.id) or await conversation.message(str(message.id))
            if now is None:
                erased.append(str(message.id))
            elif _says(now) != _says(message):
                edited.append(now)
        return erased, edited

    async def _follow(self, session_id: str, erased: Sequence[str], edited: Sequence[Message]) -> None:
        """Apply erasures and edits from another part."""
        session = self._session(session_id, create=False)
        for message_id in erased:
            await session.erase(message_id)
        if edited:
            await session.append(list(edited))

    async def entries(self, session_id: str | None = None) -> list[ProviderEntry]:
        """Return one session, or all of the namespace, with the stored messages.

        The list is empty if there is none.
        """
        await self._before()
        if session_id is None:
            return [
                entry
                async for info in self._infos()
                if (entry := await self._entry(info.id[len(self.namespace) + 1 :])) is not None
            ]
        entry = await self._entry(session_id)
        return [] if entry is None else [entry]

    # -- provider specific -------------------------------------------------------------

    async def _before(self) -> None:
        """Run before every call."""
        access_of(self._memory).check_process()

    def _trim_window(self, window: list[Message]) -> list[Message]:
        """Return the part of the window that this provider keeps.

        Of several concurrent writers, each keeps the messages of the others.
        """
        return window

    async def _read_view(self, held: ProviderSession, window: list[Message]) -> list[Message]:
        """Return the messages that a read without a query shows, the newest last."""
        return self._trim_window(window)

    async def _best(
        self, held: ProviderSession, window: list[Message], query: str, most: int | None
    ) -> list[Message]:
        """Return the messages that answer the query, within `most` and the tokens."""
        kept = with_stand_ins(self._trim_window(window))
        ranks = await ranks_of(held.session, kept, query)
        if self._max_tokens is None or not ranks:
            return best_of(kept, ranks, most=most)
        costs = await costs_of(held.session)
        return best_of(
            kept,
            ranks,
            most=most,
            costs=[costs.get(message.id, 0) for message in kept],
            budget=self._max_tokens,
        )

    async def _store(
        self, held: ProviderSession, conversation: Conversation, messages: list[Message], new: bool
    ) -> list[str]:
        """Store the written messages; return notes about limits that were not kept."""
        raise NotImplementedError

    # -- shared ------------------------------------------------------------------------

    async def _window(self, session: Session) -> tuple[list[Message], WindowRead]:
        """Return the current window and its versions.

        It does not count as a read of the calling task, which has not seen it yet.
        """
        context, read = await (await session._conversation()).read()
        window = [
            message for message in context.messages if message.is_summary or message.role is not Role.SYSTEM
        ]
        read.shown = list(window)
        return window, read

    def _last_read(self, conversation: Conversation) -> WindowRead | None:
        """Return the last read of the calling task, with its later writes.

        None if it has neither read nor written the session.
        """
        return reads_of_caller().get(conversation.log.life.incarnation)

    def _settle_read(
        self, conversation: Conversation, session_id: str, messages: Sequence[Message]
    ) -> WindowRead | None:
        """Return the read that the written messages come from.

        None if the calling task has read nothing.
        """
        reads = reads_of_caller()
        reads.begin(self._unwritten(session_id), conversation.log.life.incarnation)
        return reads.settle(conversation.log.life.incarnation, messages)

    async def _assume_read(self, session_id: str, shown: Sequence[Message]) -> None:
        """Record that the calling task has read these messages in another part.

        Messages with another content here count as edited since. A read of this part is
        kept, without the messages that the composite did not show.
        """
        held = self._handle(session_id)
        try:
            conversation = await held.session._conversation()
            seen = self._settle_read(conversation, session_id, shown)
            if seen is not None and seen.is_read and not seen.is_assumed:
                seen.hide(set(seen.versions) - {message.id for message in shown})
                return
            window, now = await self._window(held.session)
        except NotFound:
            self._held.pop(session_id, None)
            reads_of_caller().put(self._unwritten(session_id), WindowRead())
            return
        known = {message.id: message for message in shown}
        there = [message for message in window if message.id in known and message.id in now.versions]
        versions: dict[str, Version] = {}
        for message in there:
            place, edits = now.versions[str(message.id)]
            versions[str(message.id)] = place, edits if _says(message) == _says(known[message.id]) else -1
        read = WindowRead(
            Places.of(place for place, _ in versions.values()), versions, there, is_assumed=True
        )
        reads_of_caller().put(conversation.log.life.incarnation, read)

    def _shown_to_caller(self, conversation: Conversation) -> set[str | None]:
        """Return the ids of messages that the calling task has read, not created."""
        seen = self._last_read(conversation)
        if seen is None:
            return set()
        return set(seen.versions) if seen.shown is None else {message.id for message in seen.shown}

    def _knows(self, conversation: Conversation, messages: list[Message]) -> None:
        """Record the messages that the calling task knows after its write, in order.

        Its last read stays the same.
        """
        seen = self._last_read(conversation) or WindowRead(is_read=False)
        seen.shown = messages if len(messages) <= HELD else None
        reads_of_caller().put(conversation.log.life.incarnation, seen)

    def _unwritten(self, session_id: str) -> str:
        """Return the key for a read that found no session."""
        return f"{self._memory.tenant}/{self._key(session_id)}"

    def _key(self, session_id: str) -> str:
        named = validation.identifier("session_id", session_id)
        if self._user is not None and named == DEFAULT:
            named = f"{DEFAULT}@{self._user}"
        return f"{self.namespace}/{named}"

    def _session(self, session_id: str, *, create: bool) -> Session:
        return self._memory.session(
            self._key(session_id), create=create, namespace=self.namespace, user=self._user
        )

    def _handle(self, session_id: str, *, create: bool = False) -> ProviderSession:
        self._key(session_id)  # raises for an invalid id
        held = self._held.pop(session_id, None)
        if held is None or (create and not held.session._creates and held.session._held is None):
            held = ProviderSession(self._session(session_id, create=create))
        self._held[session_id] = held
        if len(self._held) > HELD:
            self._held.popitem(last=False)
        return held

    async def _infos(self) -> AsyncIterator[SessionInfo]:
        cursor, more = None, True
        while more:
            page = await self._memory.sessions.list(
                namespace=self.namespace,
                user=self._user,
                by="created",
                order="oldest",
                limit=PAGE,
                cursor=cursor,
            )
            for info in page.sessions:
                if info.id.startswith(f"{self.namespace}/"):
                    yield info
            cursor, more = page.cursor, page.cursor is not None

    async def _entry(self, session_id: str) -> ProviderEntry | None:
        session = self._session(session_id, create=False)
        try:
            info, context = await session.info(), await session._stored_window()
        except NotFound:
            return None
        held = self._held.get(session_id)
        moments = [info.accessed_at, None if held is None else held.accessed_at]
        accessed_at = max((moment for moment in moments if moment is not None), default=None)
        active = sum(
            tokens
            for message, tokens in zip(context.messages, context.tokens, strict=True)
            if not message.is_summary
        )  # without summaries
        return ProviderEntry(
            info.id, session_id, context.messages, info.created_at, accessed_at, info.agent, info.tags, active
        )


def _says(message: Message) -> tuple[object, ...]:
    return message.role, message.content, message.reasoning, message.tool_calls


def read_asked(
    limit: int | None, query: str | None, tags: Sequence[str]
) -> tuple[int | None, str | None, set[str]]:
    """Validate the limit, the query and the tags of a read."""
    most = None if limit is None else validation.whole_limit(limit, default=0)
    asked = None if query is None else validation.text("query", query, max_bytes=MAX_QUERY_BYTES)
    return most, asked, set(validation.tags(validation.sequence("tags", tags)))


def storable_messages(messages: Messages) -> list[Message]:
    """Return copies of the messages that can be stored.

    System messages are left out, and results that a read made up as placeholders.
    """
    alone = isinstance(messages, Message | Mapping)
    given = (
        import_message(messages)
        if alone
        else import_messages(validation.sequence("messages", messages), "messages")
    )
    return [said for said in given if said.role is not Role.SYSTEM and not is_made_for_reading(said)]


async def ranks_of(session: Session, messages: Sequence[Message], query: str) -> dict[int, int]:
    """Return the ranks of the messages that match the query, by position."""
    conversation, most, places = (
        await session._conversation(),
        PAGE,
        {message.id: at for at, message in enumerate(messages)},
    )
    while True:  # archived messages are found too, and must not displace those that can be shown
        hits = await engine_of(session).message_search.find_in(conversation, query, most, "lexical")
        found = [places[hit.message.id] for hit in hits if hit.message.id in places]
        if len(hits) < most or len(found) == len(places):
            return {at: rank for rank, at in enumerate(found)}
        most *= 4


async def costs_of(session: Session) -> dict[str | None, int]:
    """Return the session's token count of each message of the window, by id."""
    context, _ = await (await session._conversation()).read(ContextRequest(completes=True))
    return dict(zip([message.id for message in context.messages], context.tokens, strict=True))


def trim_to_newest(messages: Sequence[Message], most: int) -> list[Message]:
    """Return the newest messages, at most `most`; a call never without its results."""
    return list(messages) if len(messages) <= most else [messages[at] for at in newest(messages, most)]
