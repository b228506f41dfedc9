"""`memory.session("s1")`: the conversation of one session."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from secrets import token_hex
from typing import Any, Literal, TypeVar

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput, NotFound
from memory.domain.message import SYSTEM, Message, Role
from memory.domain.promotion_report import PromotionReport
from memory.domain.scope import Scope
from memory.domain.session import Compaction, Context, FoundMessages, HistoryPage, SessionInfo, SessionState
from memory.domain.shapes import export_originals, import_groups, import_message, import_messages
from memory.domain.versions import ExpectedVersion, check_expected
from memory.facade.arguments import changes_of, expected_version_of, flag, function
from memory.facade.resources.message_stream import MessageStream
from memory.facade.resources.recall import found_for, room_for, with_recalled
from memory.facade.resources.runs import Runs
from memory.facade.resources.tasks import Tasks
from memory.facade.runtime.access import MAX_QUERY_BYTES, SEARCH_LIMIT, Access
from memory.facade.runtime.cursors import CursorSeal
from memory.facade.runtime.request_ids import noted_flag, read_flag, request_of, request_of_session
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.search_options import least_relevance, search_mode
from memory.orchestrator.conversations.conversation import Checkpoint, Conversation, message_ids
from memory.orchestrator.conversations.log.session_state import MAX_STATE_BYTES, StateChange
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.compaction import Summarise
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.conversations.window.reads import lends_reads, reads_of_caller
from memory.orchestrator.conversations.window.streaming import StreamedMessage
from memory.orchestrator.storage.requests import RequestMark
from memory.policies.compaction_thresholds import MessageThreshold, TurnThreshold, WindowPolicy
from memory.policies.context import ContextRequest
from memory.policies.list_compaction import CompactionSettings, summary_of
from memory.policies.window import TokenThreshold

MOST_AT_ONCE = 500
"""Messages of one `append`."""
HISTORY_LIMIT = 100
T = TypeVar("T")

MessageLike = Message | Mapping[str, Any] | object
"""A message of this library or of a framework; see `memory.formats`."""


@guard_calls
@explain_guesses
class Session:
    """The conversation of one session, and the window of it that a model is sent.

        session = memory.session("s1", user="ada", system="You are helpful.")
        await session.append({"role": "user", "content": "hello"})
        context = await session.context(4_000)

    Making a `Session` calls no store. The first call creates the session if there is
    none; with `create=False` it raises `NotFound` instead.

    The history is a log, and every change is one write at the next place. So several
    processes may write to one session: they lose nothing and agree on one order.
    """

    def __init__(self, access: Access, draft: SessionDraft, *, create: bool) -> None:
        self._access = access
        self._draft = draft
        self._creates = create
        self._held: Conversation | None = None

    @classmethod
    def _of(cls, access: Access, held: Conversation) -> Session:
        session = cls(access, held.as_owned(), create=False)
        session._held = held
        return session

    def __repr__(self) -> str:
        return f"<Session tenant={self._access.tenant!r} id={self._draft.id!r}>"

    @property
    def id(self) -> str:
        """The id of the session."""
        return str(self._draft.id)

    @property
    def tasks(self) -> Tasks:
        """The to-do list of the session."""
        return Tasks(self._access, self._conversation, self.id)

    @property
    def runs(self) -> Runs:
        """The work that the session delegated to other sessions."""
        return Runs(self._access, self._conversation, self.id)

    async def _conversation(self, request: RequestMark | None = None) -> Conversation:
        """Open the session once, or create it.

        Raises:
            Conflict: A repeat of the request finds that the session was deleted.
        """
        await self._access.wait_for_opening()
        _ = self._access.engine  # it raises on another event loop and in another process
        if self._held is None:
            self._held = await self._access.open_session(self._draft, create=self._creates, request=request)
        else:
            await self._held.refuse_if_over()
        if request is not None:
            self._held.refuse_later_life(request)
        return self._held

    async def _once(
        self,
        operation: str,
        request_id: object,
        asked: Mapping[str, Any],
        work: Callable[[Conversation, RequestMark | None], Awaitable[T]],
        unchanged: T,
    ) -> T:
        """Change the session once for a request id; see `Requests.once_marked`."""
        tenant = self._access.tenant
        request = request_of_session(f"session.{operation}", tenant, self.id, request_id, asked)

        async def change(mark: RequestMark | None) -> T:
            return await work(await self._conversation(mark), mark)

        return await self._access.once_marked(request, change, unchanged)

    def _in_call_order(self, message_ids: Iterable[str]) -> AbstractAsyncContextManager[None]:
        return self._access.engine.conversations.in_call_order(
            self._access.tenant, self.id, "message", message_ids
        )

    # -- messages ----------------------------------------------------------------------

    @lends_reads
    async def append(
        self,
        message: MessageLike | Sequence[MessageLike],
        *,
        format: str = "auto",
        id: str | Sequence[str | None] | None = None,
        in_history: bool = True,
        state: Mapping[str, Any] | None = None,
        expected_version: ExpectedVersion | None = None,
        request_id: str | None = None,
    ) -> list[Message]:
        """Add a message, or several in order. Return them as stored, with their ids.

        Messages may be of this library, plain `{role, content}`, or in a format of
        `memory.formats.FORMATS`. Each keeps its original (`Message.raw`). A message
        with results of tools becomes several.

        A message whose `id` exists in the session replaces the stored one, in its
        place. So a streamed answer is one message however often it is appended, and a
        failed call can be repeated. A failed call without ids can be repeated too, on
        two conditions. This process appends nothing else to the session in between. And
        the call is stored as a whole: it has one message, or the store is `atomic`.
        Otherwise the messages are stored twice.

        Values that no model is sent, such as parsed output, artifacts and metadata, are
        stored as JSON. They may be datetimes, dates, UUIDs, decimals, enums,
        dataclasses and pydantic models. Any other value is replaced by a placeholder
        with the name of its type; `placeholders` of a returned message lists the paths.

        A message may have 32 MiB in texts of more than 64 KiB, such as images in
        base64, and 1 MiB of everything else. Such large texts count in the quota of
        `artifact_bytes`. The text of a message that replaces another counts too, but is
        never refused.

        With `state`, the messages and the change of `Session.state` are stored
        together, or neither is. All messages must be new then. Unless the store of tier
        `mid` is `atomic`, the call takes one message.

        Args:
            message: A message, or at most 500.
            format: One of `memory.formats.FORMATS`, or `"auto"`, which recognises the
                format of each message.
            id: The id of the message. For a list of messages, a list with an id or None
                for each. Ids inside a framework's messages are not used, because
                frameworks repeat them.
            state: New values of the session's state. Other values stay; None removes a
                value. The list of messages may be empty.
            expected_version: The `version` that the session's state must have, or
                `ABSENT` for no state. Only with `state`.
            in_history: False adds the message to the window only. Appended again with
                True, it enters the history: it keeps its place and gets the next
                number.
            request_id: As in `Memory.write`. Messages without an `id` get one that
                derives from it. A repeat appends nothing. It returns the messages as
                they are now, without those that were erased.

        Raises:
            LegalHoldActive: The session is under legal hold, and a message would lose
                text. Under a hold, a replacement must contain all of the stored
                message, as the next piece of a stream does.
            QuotaExceeded: The large texts exceed the quota of `artifact_bytes`. None of
                the new messages is stored.
            VersionConflict: The state has another version. Nothing is stored.
            Conflict: With `state`, a message with one of the ids exists. Or
                `request_id` was used for another request.
            InvalidInput: A message is of no known format. The error names the field.
        """
        if isinstance(message, list | tuple) and len(message) > MOST_AT_ONCE:
            raise InvalidInput("message", f"takes at most {MOST_AT_ONCE} messages per call. Split the list")
        groups = (
            import_groups(message, format=format)
            if isinstance(message, list | tuple)
            else [import_message(message, format)]
        )
        messages = _with_ids(groups, id, is_list=isinstance(message, list | tuple))
        change = _state_change(state, expected_version)
        if request_id is not None and change is not None and not messages:
            raise InvalidInput("request_id", "needs a message beside the state, which marks the request")
        said = [one.model_dump(mode="json") for one in messages]
        tenant, enters = self._access.tenant, flag("in_history", in_history)
        asked: dict[str, Any] = {"messages": said, "in_history": enters}
        if change is not None:
            asked["state"] = [dict(change.delta), change.expected]
        request = request_of_session("append", tenant, self.id, request_id, asked)

        async def append(mark: RequestMark | None) -> list[Message]:
            given = [one.id for one in messages] if mark is None else message_ids(messages, mark)
            async with self._in_call_order(name for name in given if name is not None):
                conversation = await self._conversation(mark)
                signed = await self._access.sign_messages(conversation, messages)
                return await conversation.append(signed, in_history=enters, change=change, request=mark)

        return await self._access.once(
            request, append, _noted_messages, self._read_messages, self._conversation
        )

    async def _read_messages(self, noted: Any) -> list[Message]:
        """Return the messages of a noted result as they are now; no erased ones."""
        conversation = await self._conversation()
        found = [await conversation.message(name) for name in noted["messages"]]
        return [one for one in found if one is not None]

    async def state(self) -> SessionState:
        """Return a copy of the state of the session, a JSON object of up to 64 KiB.

        It is empty until `append` changes it. Pass its `version` as `expected_version`
        of `append`. `roll_back` does not change the state, and a fork begins with it.
        """
        return await (await self._conversation()).state()

    @lends_reads
    async def pop(self, n: int = 1, *, request_id: str | None = None) -> list[dict[str, Any]]:
        """Take the newest messages out of the window, and return their originals.

        They leave in one step, even if others write to the session at the same time.
        The history keeps them with the reason `popped`, and `restore` puts them back.
        An original that became several messages counts as one, and leaves as a whole.
        The system message and summaries stay.

        Args:
            n: The number of originals, from 1 to 500.
            request_id: As in `Memory.write`. A repeat takes nothing. It returns the
                originals that the first call took, without those that were erased.

        Returns:
            The originals, oldest first. There are fewer than `n` if the window has
            fewer.
        """
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_AT_ONCE:
            raise InvalidInput("n", f"must be a whole number from 1 to {MOST_AT_ONCE}")

        async def pop(conversation: Conversation, mark: RequestMark | None) -> list[dict[str, Any]]:
            return export_originals(await conversation.pop(n, mark))

        return await self._once("pop", request_id, {"n": n}, pop, [])

    async def update(self, message_id: str, *, request_id: str | None = None, **changes: Any) -> Message:
        """Change the fields of a message. Its number in the history stays.

        No earlier version is kept.

        Args:
            request_id: As in `Memory.write`. A repeat changes nothing, and returns the
                message as it is now.
            **changes: `content`, `reasoning`, `tool_calls`, `usage`, `finish_reason`,
                `metadata` or `name`. A whole message (`**message.model_dump()`) will
                do: fields that cannot be changed, such as id and role, stay as stored.

        Raises:
            LegalHoldActive: The session is under legal hold.
        """
        checked, changed = validation.identifier("message_id", message_id), changes_of(changes)
        asked = {"message": checked, "changes": changed}
        tenant = self._access.tenant
        request = request_of_session("session.update", tenant, self.id, request_id, asked)

        async def update(mark: RequestMark | None) -> Message:
            async with self._in_call_order([checked]):
                conversation = await self._conversation(mark)
                return await conversation.change(
                    checked, lambda there: self._access.sign_change(there, changed), request=mark
                )

        async def read(noted: Any) -> Message:
            conversation = await self._conversation()
            if checked == SYSTEM:
                return await conversation.update(checked, {})
            if (there := await conversation.message(checked)) is None:
                raise NotFound(checked, "message")
            return there

        return await self._access.once(
            request, update, lambda message: {"message": True}, read, self._conversation
        )

    def stream(
        self, *, role: Literal["assistant", "user"] = "assistant", message_id: str | None = None
    ) -> MessageStream:
        """Return a stream that stores one message while its text arrives in pieces.

            async with session.stream() as out:
                await out.write("…")

        Args:
            message_id: The id of the message; a new one by default. A message that
                exists already is replaced, in its place.
        """
        speaks = Role(validation.one_of("role", role, ("assistant", "user")))

        async def begin(name: str) -> StreamedMessage:
            await self._access.refuse_blocked()
            conversation = await self._conversation()
            placement, metadata = self._access.engine.placement, self._access.sign_metadata()
            return StreamedMessage(conversation, placement, speaks, name, metadata)

        name = token_hex(16) if message_id is None else validation.identifier("message_id", message_id)
        return MessageStream(
            begin, name, self._access.check_process, self._access.check_claims, self._access.refuse_blocked
        )

    async def exclude(
        self, message_id: str, reason: str = "manual", *, request_id: str | None = None
    ) -> bool:
        """Take a message out of the window. The history keeps it, with the reason.

        Args:
            request_id: As in `Memory.write`.

        Returns:
            False if the message is not in the window or is the system message.
        """
        named = validation.identifier("message_id", message_id)
        why = validation.text("reason", reason, min_chars=1, max_chars=200)

        async def exclude(conversation: Conversation, mark: RequestMark | None) -> bool:
            return await conversation.exclude(named, why, mark)

        return await self._once("exclude", request_id, {"message": named, "reason": why}, exclude, False)

    async def erase(self, message_id: str, *, request_id: str | None = None) -> bool:
        """Erase the text of a message and the name of its speaker everywhere.

        These are erased too:

        - summaries that cover the message, and summaries of such summaries, since they
          may repeat it
        - entries that were made of the message, and everything made of these entries,
          in any scope
        - copies in forks, with everything made of the copies, except in forks under
          legal hold

        The message leaves the window. Its place in the history stays, with its number
        and its role (`is_redacted`), and so do all counts. Its id becomes free. A sweep
        completes an erasure that a crash cut off.

        Args:
            request_id: As in `Memory.write`. A repeat spares a message that got the id
                since.

        Returns:
            False if there is no message with this id.
        """
        checked = validation.identifier("message_id", message_id)
        if checked == "system":
            raise InvalidInput(
                "message_id", "'system' is the session's system message: update it, or delete the session"
            )
        redaction = self._access.engine.conversations.redaction

        async def erase(conversation: Conversation, mark: RequestMark | None) -> bool:
            return await redaction.erase(conversation.log, checked, mark)

        return await self._once("erase", request_id, {"message": checked}, erase, False)

    async def restore(self, message_id: str, *, request_id: str | None = None) -> bool:
        """Take an excluded message back into the window.

        Args:
            request_id: As in `Memory.write`.

        Returns:
            False if the message is in the window, is unknown, or was compacted away.
        """
        named = validation.identifier("message_id", message_id)

        async def restore(conversation: Conversation, mark: RequestMark | None) -> bool:
            return await conversation.restore(named, mark)

        return await self._once("restore", request_id, {"message": named}, restore, False)

    async def clear(self, *, request_id: str | None = None) -> int:
        """Take all messages but the system message out of the window.

        The history keeps them.

        Args:
            request_id: As in `Memory.write`. Messages that came after the first call
                stay.

        Returns:
            How many messages left the window.
        """

        async def clear(conversation: Conversation, mark: RequestMark | None) -> int:
            return await conversation.clear(mark)

        return await self._once("clear", request_id, {}, clear, 0)

    @lends_reads
    async def replace(
        self,
        messages: Sequence[MessageLike],
        *,
        revive: bool = False,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> list[Message]:
        """Make the window consist of these messages, and return them as stored.

        The history keeps all other messages, and gains only the new ones. The system
        message stays as it is.

        A message is recognised by its id. Without ids, it is recognised if it says the
        same at the same place of the longest common run. So the messages of a `context`
        can be changed and passed back as a whole, also repeatedly. Recognised messages
        keep their first place; new ones come after those with ids.

        A message that the list lacks leaves the window (see `on_window_exit` of
        `Memory`), but only if the calling task has seen it. The task has seen the
        messages of the last `context` that it read, and those that this handle wrote
        since. Messages that a `budget` or `last` left out of that context stay. If the
        task has read no context, every message that is in the window when this call
        begins may leave. Messages that others wrote since stay, after the list.

        A read by a child task, such as a function that `asyncio.wait_for` runs, counts
        as the caller's. For an empty session it counts only if the caller has called
        the library before, for example `memory.session`.

        Messages that `context` added for the model (recalled facts, results of
        interrupted calls) are not stored. Unless `revive` is set, messages that were
        edited since the read stay as they are now, and erased ones are not written
        again. A message that was edited in the list without its id leaves the window.
        To remove a message for good, `exclude` or `erase` it.

        With `expected_version`, the list is based on the read that had this version, by
        whichever process. If the window changed since, nothing is changed. So a list
        can be read, changed and written back without losing what others did.

        The call makes several writes, new messages first. If it is cut off, the new
        messages are after the old ones, and the same call again completes it. With
        `expected_version` the same call then finds another version: read again.

        Args:
            messages: The messages of the new window.
            revive: Write the messages as the list has them, also those that were edited
                or erased since the read.
            expected_version: The `window_version` that a `window` or `context` had.
            request_id: As in `Memory.write`. A repeat changes nothing, and returns the
                messages as they are now, without those that were erased.

        Raises:
            VersionConflict: The window has another version than `expected_version`.
        """
        said = import_messages(validation.sequence("messages", messages), "messages")
        revived, expected = flag("revive", revive), expected_version_of(expected_version)
        asked = {"messages": [one.model_dump(mode="json") for one in said], "revive": revived}
        if expected is not None:
            asked["expected"] = expected

        async def replace_window(conversation: Conversation, mark: RequestMark | None) -> list[Message]:
            wanted = said
            if not revived and expected is None:
                read = reads_of_caller().settle(conversation.log.life.incarnation, said)
                wanted = await conversation.without_erased(said, () if read is None else read.versions)
            wanted = await self._access.sign_messages(conversation, wanted)
            return await conversation.replace(wanted, revive=revived, expected=expected, request=mark)

        return await self._once("replace", request_id, asked, replace_window, [])

    async def checkpoint(self, name: str | None = None, *, request_id: str | None = None) -> Checkpoint:
        """Return a checkpoint, to which `roll_back` can restore the window.

        Args:
            name: Note the checkpoint in the log, under this name.
            request_id: As in `Memory.write`; only with a name. A repeat returns the
                first checkpoint.
        """
        named = None if name is None else validation.identifier("name", name)
        if named is None and request_id is not None:
            raise InvalidInput(
                "request_id", "needs a name: without one, a checkpoint stores nothing. Pass name= too"
            )

        async def note(conversation: Conversation, mark: RequestMark | None) -> Checkpoint | None:
            return await conversation.checkpoint(named, mark)

        made = await self._once("checkpoint", request_id, {"name": named}, note, None)
        assert made is not None  # noqa: S101 - it always notes one
        return made

    async def roll_back(
        self, checkpoint: Checkpoint, reason: str = "manual", *, request_id: str | None = None
    ) -> int:
        """Restore exactly the window at the checkpoint.

        Messages added or restored since leave the window; the history keeps them, with
        this reason. Messages that were excluded, cleared, replaced or compacted since
        come back; erased ones do not. Edited messages keep their new text. Messages
        that others write while the call runs stay.

        Args:
            request_id: As in `Memory.write`. Changes after the first call stay.

        Returns:
            How many messages left the window.
        """
        if not isinstance(checkpoint, Checkpoint):
            raise InvalidInput(
                "checkpoint", f"must be one that `checkpoint` returned, not {type(checkpoint).__name__}"
            )
        why = validation.text("reason", reason, min_chars=1, max_chars=200)
        asked = {"checkpoint": asdict(checkpoint), "reason": why}

        async def roll_back(conversation: Conversation, mark: RequestMark | None) -> int:
            return await conversation.roll_back(checkpoint, why, mark)

        return await self._once("roll_back", request_id, asked, roll_back, 0)

    async def repair_tool_calls(self, *, request_id: str | None = None) -> list[Message]:
        """Repair the tool calls of an interrupted run, so that model APIs accept them.

        Each call without a result gets a result that says so. The added results are
        returned. Results without a call, and second results of a call, leave the
        window. The history lists them as excluded, `invalid_response`.

        Args:
            request_id: As in `Memory.write`. A repeat returns the results as they are
                now, and adds none for later calls. Only after a first call that was cut
                off, a repeat repairs all calls of the window.
        """
        tenant = self._access.tenant
        request = request_of_session("session.repair_tool_calls", tenant, self.id, request_id, {})

        async def repair(mark: RequestMark | None) -> list[Message]:
            return await (await self._conversation(mark)).repair_tool_calls()

        return await self._access.once(
            request, repair, _noted_messages, self._read_messages, self._conversation
        )

    # -- reading -----------------------------------------------------------------------

    async def info(self) -> SessionInfo:
        """Return the session and its exact counts."""
        return await (await self._conversation()).info()

    @lends_reads
    async def context(
        self,
        budget: int | None = None,
        *,
        last: int | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        by: Literal["blocks", "turns"] = "blocks",
        slack: float = 0,
        layered: bool = False,
        recall: str | None = None,
        start: Literal["any", "user"] | None = None,
        min_relevance: float | None = None,
    ) -> Context:
        """Return the messages to send to a model, within a budget of tokens.

        These are the system message, the newest summary, then the newest messages that
        fit. A tool result never comes without its call, and a call of several parts
        comes whole. The budget never drops the last user message. If that message does
        not fit, `over_budget` says by how much the context exceeds the budget.

        A tool call without a result is followed by a result that says so
        (`TOOL_CALL_INTERRUPTED`), because model APIs refuse a call without one. The
        added result is only in the returned context. `interrupted` lists these calls,
        and `repair_tool_calls` stores such results.

        With a budget and without `last`, the context starts at a user message, after
        system messages and summaries. Several model APIs refuse any other first
        message, so messages before that user message are left out. If the window has no
        user message, the context starts with any message.

        If the session's store does not answer, the context shows the window as this
        process saw it within the last minute, and `degraded` says so.

        Args:
            budget: The most tokens of the context, the schemas of `tools` included.
            last: At most this many of the newest messages.
            tools: The schemas of the tools that the model is sent.
            by: `"turns"` keeps whole turns. `"blocks"` may cut within a turn.
            slack: A share of the budget. Older messages are cut in steps of this size.
                Until the next cut, every context begins with the same bytes as the one
                before, as a prompt cache needs.
            layered: Return all summaries, archived ones too, and the newest 80 messages
                or `last`. `layers` says of each message what it is.
            recall: A query. Entries that memory finds for it come as one message before
                the last user message, and take at most a quarter of the budget. The
                search covers the scopes of the session and of this handle's user.
            start: `"any"` starts wherever the budget cuts. `"user"` starts at a user
                message in other reads too.
            min_relevance: Leave out recalled entries below this relevance, from 0 to 1.

        Raises:
            StoreUnavailable: The session's store does not answer, and this process has
                not seen all of the context within the last minute.
        """
        for name, value in (("budget", budget), ("last", last)):
            _count(name, value)
        if isinstance(slack, bool) or not isinstance(slack, int | float) or not 0 <= slack < 1:
            raise InvalidInput(
                "slack",
                "must be a share of the budget, from 0 to below 1. Pass 0.25 for steps of a quarter",
            )
        validation.one_of("by", by, ("blocks", "turns"))
        for name, is_given in (("by", by == "turns"), ("slack", slack > 0)):
            if is_given and budget is None and last is not None:
                raise InvalidInput(
                    name,
                    f"applies to a token budget, and last= counts messages. Pass a budget, or omit {name}=",
                )
        begins: Any = "user" if budget is not None and last is None else "any"
        if start is not None:
            begins = validation.one_of("start", start, ("any", "user"))
        asked, schemas = (
            ContextRequest(budget, last, by, slack, flag("layered", layered), begins, completes=True),
            _schemas(tools),
        )
        question = None if recall is None else validation.text("recall", recall, max_bytes=MAX_QUERY_BYTES)
        least = least_relevance(min_relevance)
        if question is None and least is not None:
            raise InvalidInput(
                "min_relevance",
                "applies only with recall=. Pass the question as recall=, or omit min_relevance=",
            )
        conversation = await self._conversation()
        if question is None:
            return await conversation.context(asked, tools=schemas)
        recalled = await found_for(self._access, question, self.id, conversation.user, budget, least)
        if budget is not None:
            asked = replace(asked, budget=max(0, budget - room_for(recalled, budget, steady=slack > 0)))
        context = await conversation.context(asked, tools=schemas)
        return with_recalled(context, recalled, budget)

    @lends_reads
    async def window(self, last: int | None = None) -> Context:
        """Return the messages of the window as they were appended.

        Unlike `context`, this adds no result for an interrupted call. It moves no
        result to its call, and leaves out no result without a call. So
        `window().to(format)` returns equal what was appended in that format. The system
        message comes first, then the newest summary.

        Args:
            last: Only this many of the newest messages. The system message and
                summaries count too, as the oldest ones.

        Returns:
            The messages. `invalid` and `interrupted` name what a model API would
            refuse.

        Raises:
            StoreUnavailable: As in `context`.
        """
        return await (await self._conversation()).context(
            ContextRequest(last=_count("last", last), as_stored=True)
        )

    async def _stored_window(self) -> Context:
        """Return the window as stored: calls without a result get no stand-in.

        The call does not count as a read of the calling task.
        """
        context, _ = await (await self._conversation()).read()
        return context

    async def history(
        self,
        *,
        ids: Sequence[str] | None = None,
        first: int | None = None,
        last: int | None = None,
        roles: Sequence[Role | str] = (),
        summaries: bool = True,
        archived_by: str | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        limit: int | None = None,
        offset: int = 0,
        cursor: str | None = None,
    ) -> HistoryPage:
        """Return a page of all messages that were ever appended; 100 by default.

        Args:
            ids: Only messages with these ids.
            first: The lowest number of a message in the history.
            last: The highest number of a message in the history.
            roles: Only messages of these roles.
            summaries: Include summaries.
            archived_by: The id of a compaction: only the messages that it archived.
            order: `"oldest"` or `"newest"` first, by the places of the messages. A
                message that entered the history late, after it was only in the window,
                has its old place and a higher number.
            limit: At most 1,000.
            cursor: The cursor that the previous page returned.
        """
        asked = HistoryQuery(
            ids=(
                None
                if ids is None
                else [
                    validation.identifier("ids", one)
                    for one in validation.sequence("ids", ids, at_most=validation.MAX_LIMIT)
                ]
            ),
            first=_number("first", first),
            last=_number("last", last),
            roles=[
                str(validation.one_of("roles", role, Role))
                for role in validation.sequence("roles", roles, at_most=len(Role))
            ],
            summaries=flag("summaries", summaries),
            archived_by=None if archived_by is None else validation.identifier("archived_by", archived_by),
            descending=validation.one_of("order", order, ("oldest", "newest")) == "newest",
            limit=validation.whole_limit(limit, default=HISTORY_LIMIT),
            offset=_number("offset", offset) or 0,
        )
        question = replace(asked, limit=0, offset=0)
        seal = CursorSeal("history", self._access.tenant, self.id, question)
        asked = replace(asked, cursor=seal.unseal(cursor))
        page = await (await self._conversation()).history(asked)
        return replace(page, cursor=seal.seal(page.cursor))

    async def search(
        self,
        query: str,
        *,
        mode: Literal["hybrid", "lexical", "semantic"] = "hybrid",
        limit: int | None = None,
        min_relevance: float | None = None,
    ) -> FoundMessages:
        """Return the messages of this session that answer best; 10 by default.

        Compacted messages are found; excluded messages and results of tools are not.

        The query is plain text, never syntax. `mode` says how messages are found: by
        shared words (`"lexical"`), by embeddings (`"semantic"`) or by both
        (`"hybrid"`). Messages of another process are found lexically at once, and
        semantically a few seconds later.

        Args:
            min_relevance: Leave out messages below this relevance, from 0 to 1.

        Raises:
            InvalidInput: `mode="semantic"`, and messages have no vectors
                (`conversations.meaning`). Without vectors, `"hybrid"` is lexical.
        """
        text = validation.text("query", query, max_bytes=MAX_QUERY_BYTES)
        checked, least = search_mode(mode), least_relevance(min_relevance)
        most = validation.whole_limit(limit, default=SEARCH_LIMIT)
        conversation = await self._conversation()
        return await self._access.engine.message_search.find_in(conversation, text, most, checked, least)

    # -- compaction --------------------------------------------------------------------

    async def compact(
        self,
        summarise: Summarise,
        *,
        keep_last: int,
        reason: str = "manual",
        trigger_id: str | None = None,
        request_id: str | None = None,
    ) -> Compaction:
        """Replace all but the last messages of the window by a summary, in one write.

        If another compaction finished first, the call returns the other compaction.

        Args:
            summarise: Gets copies of the messages, an earlier summary first. It returns
                the text of the summary, or a message in any format, and may be async.
            keep_last: How many messages stay.
            reason: Why; stored with the compaction.
            request_id: As in `Memory.write`. A repeat returns the first compaction, and
                does not call `summarise`. The request does not include the function.

        Raises:
            CompactionError: The summary says nothing or asks for a tool, or `summarise`
                failed. Nothing has changed, and an earlier summary stays as it is.
        """
        function("summarise", summarise)
        if isinstance(keep_last, bool) or not isinstance(keep_last, int):
            raise InvalidInput(
                "keep_last",
                f"must be a whole number, not {type(keep_last).__name__}. It says how many messages stay",
            )
        why = validation.text("reason", reason, min_chars=1, max_chars=200)
        trigger = None if trigger_id is None else validation.identifier("trigger_id", trigger_id)
        asked = {"keep_last": keep_last, "reason": why, "trigger": trigger}

        async def compact(conversation: Conversation, mark: RequestMark | None) -> Compaction | None:
            return await conversation.compact(
                summarise, keep_last=keep_last, reason=why, trigger_id=trigger, request=mark
            )

        made = await self._compact_once("compact", request_id, asked, compact)
        assert made is not None  # noqa: S101 - it always makes one
        return made

    async def _compact_once(
        self,
        operation: str,
        request_id: object,
        asked: Mapping[str, Any],
        compact: Callable[[Conversation, RequestMark | None], Awaitable[Compaction | None]],
    ) -> Compaction | None:
        """Compact the window; a repeat returns the first compaction."""
        tenant = self._access.tenant
        request = request_of_session(f"session.{operation}", tenant, self.id, request_id, asked)

        async def change(mark: RequestMark | None) -> Compaction | None:
            return await compact(await self._conversation(mark), mark)

        async def read(noted: Any) -> Compaction | None:
            named = noted["compaction"]
            return None if named is None else await (await self._conversation()).compaction(named)

        def note(made: Compaction | None) -> dict[str, Any]:
            return {"compaction": None if made is None else made.id}

        return await self._access.once(request, change, note, read, self._conversation)

    async def compact_if_needed(
        self,
        policy: WindowPolicy | CompactionSettings,
        summarise: Summarise = summary_of,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        request_id: str | None = None,
    ) -> Compaction | None:
        """Compact the window if the policy says so. Call it before a model is asked.

        Appending never compacts. A policy counts tokens, those of `tools` included
        (`TokenThreshold(max_tokens)`), messages (`MessageThreshold(most)`) or turns
        (`TurnThreshold(most)`). The last user message stays. With a policy by messages
        or turns, all messages after it stay too.

        With `CompactionSettings`, duplicates go first, then the least important
        messages; then the older part becomes a summary. Messages that go without a
        summary leave the window with that step as the reason, and move to the next tier
        too.

        Args:
            policy: When to compact, and how far.
            summarise: Makes the summary of the messages that leave. By default it takes
                their first sentences, without a model.
            tools: The schemas of the tools that the model is sent.
            request_id: As in `compact`.

        Returns:
            The compaction; None if no summary was made. With `CompactionSettings`,
            messages may have left the window all the same.

        Raises:
            CompactionError: The summary says nothing or asks for a tool, or `summarise`
                failed. Nothing has changed.
        """
        if not isinstance(policy, TokenThreshold | MessageThreshold | TurnThreshold | CompactionSettings):
            raise InvalidInput(
                "policy",
                "must be a TokenThreshold, MessageThreshold, TurnThreshold or CompactionSettings, not"
                f" {type(policy).__name__}",
            )
        function("summarise", summarise)
        schemas = _schemas(tools)
        asked = {"policy": [type(policy).__name__, asdict(policy)], "tools": [dict(one) for one in schemas]}

        async def compact(conversation: Conversation, mark: RequestMark | None) -> Compaction | None:
            return await conversation.compact_if_needed(policy, summarise, tools=schemas, request=mark)

        return await self._compact_once("compact_if_needed", request_id, asked, compact)

    async def compactions(self) -> list[Compaction]:
        """List every compaction of the session, oldest first."""
        return await (await self._conversation()).compactions()

    # -- its life ----------------------------------------------------------------------

    async def end(self, *, request_id: str | None = None) -> PromotionReport:
        """End the session. Nothing can be appended until `resume`.

        The memory's `on_window_exit` makes entries of the messages that are left in the
        window. The promotion rules for session ends move the session's entries to later
        tiers.

        Args:
            request_id: As in `Memory.write`. A repeat returns the first report. It does
                not end a session that was resumed since.

        Returns:
            The report. Its `waiting` lists work for which a store did not answer.
            Sweeps do that work once the stores are back, unless the session is resumed
            before. Call `end` again to do it at once.
        """
        return await end_once(self._access, self.id, request_id, self._end)

    async def _end(self, mark: RequestMark | None) -> PromotionReport:
        conversation = await self._conversation(mark)
        await conversation.close("ended", request=mark)
        if mark is not None and mark.repeats and (await conversation.info()).status != "ended":
            return PromotionReport()  # resumed since
        left = await conversation.handle_window_exit()
        report = await self._access.engine.end_session(
            self._access.tenant, Scope.session(self.id), left.owing
        )
        report.derived, report.waiting = left.entries, [*left.waiting, *report.waiting]
        return report

    async def archive(self, *, request_id: str | None = None) -> bool:
        """Archive the session. Nothing can be appended until `resume`.

        Args:
            request_id: As in `Memory.write`.

        Returns:
            False if it was archived already.
        """

        async def archive(conversation: Conversation, mark: RequestMark | None) -> bool:
            return await conversation.close("archived", request=mark)

        return await self._once("archive", request_id, {}, archive, False)

    async def resume(self, *, request_id: str | None = None) -> bool:
        """Resume a session that was ended or archived.

        Args:
            request_id: As in `Memory.write`.

        Returns:
            False if it is active.
        """

        async def resume(conversation: Conversation, mark: RequestMark | None) -> bool:
            return await conversation.resume(mark)

        return await self._once("resume", request_id, {}, resume, False)

    async def fork(
        self, at: str | None = None, session_id: str | None = None, *, request_id: str | None = None
    ) -> Session:
        """Return a new session with copies of the messages in this session's window.

        The copies have the same ids. To get another answer, fork at the user's message.
        To edit that message first, `update` it in the fork.

        This session stays as it is, and may have ended. The new session has its user,
        agent, namespace, title, tags and metadata, and `forked_from` in the metadata.
        Messages that were excluded since are not copied. A fork that is cut off leaves
        the new session with the first of its messages.

        Args:
            at: The id of the last message to copy. The window as it was when this
                message was the newest is copied. By default the current window is
                copied.
            session_id: The id of the new session; a new id by default.
            request_id: As in `Memory.write`. A repeat returns the first fork, and
                completes it if it was cut off and has no other messages yet.

        Raises:
            NotFound: There is no such message.
            Conflict: A session with this id exists.
            QuotaExceeded: The copies of large texts exceed the quota of
                `artifact_bytes`. No new session is created.
        """
        last = None if at is None else validation.identifier("at", at)
        named = None if session_id is None else validation.identifier("session_id", session_id)
        conversations, tenant = self._access.engine.conversations, self._access.tenant
        asked = {"at": last, "session_id": named}
        request = request_of_session("session.fork", tenant, self.id, request_id, asked)

        async def fork(mark: RequestMark | None) -> Conversation:
            draft, messages = await (await self._conversation(mark)).as_of(last)
            draft = replace(draft, id=named)
            self._access.check_new_session(draft)
            return await conversations.fork(tenant, draft, messages, mark)

        async def read(noted: Any) -> Conversation:
            return await conversations.open(tenant, SessionDraft(noted["session"]), create=False)

        forked = await self._access.once(request, fork, lambda made: {"session": made.id}, read)
        return Session._of(self._access, forked)

    async def delete(self, *, request_id: str | None = None) -> bool:
        """Erase the session with its messages, and the entries of its scope.

        Entries that `on_window_exit` made of it are erased too. Forks of it stay, with
        the messages that they began with: delete each fork. Or `erase` a message
        before, which erases its copies too.

        Args:
            request_id: As in `Memory.write`. A repeat spares what was stored after the
                first call, also a new session with this id. If that call was cut off,
                the repeat erases the session with messages appended since.

        Returns:
            False if there was no such session. Of several calls at once, one returns
            True.

        Raises:
            SessionOwnerMismatch: The session belongs to another user, agent or
                namespace than this handle names. Nothing is erased.
        """
        self._held = None
        return await delete_once(self._access, self.id, request_id, self._draft)


async def end_once(
    access: Access,
    session_id: str,
    request_id: object,
    end: Callable[[RequestMark | None], Awaitable[PromotionReport]],
) -> PromotionReport:
    """End a session; a repeat of the request returns the first report."""
    request = request_of_session("sessions.end", access.tenant, session_id, request_id, {})

    async def read(noted: Any) -> PromotionReport:
        return PromotionReport.from_dict(noted)

    return await access.once(request, end, PromotionReport.to_dict, read)


async def delete_once(
    access: Access, session_id: str, request_id: object, draft: SessionDraft | None = None
) -> bool:
    """Erase a session; a repeat of the request spares what was stored since.

    The request does not name the session, whose erasure would delete its record.
    """
    sessions, tenant = access.engine.conversations.sessions, access.tenant
    request = request_of("sessions.delete", request_id, {"session": session_id})

    async def delete(mark: RequestMark | None) -> bool:
        if not await access.sees_session(session_id):
            return False
        return await sessions.delete(tenant, session_id, draft, mark)

    return await access.once(request, delete, noted_flag, read_flag)


def _noted_messages(stored: Sequence[Message]) -> dict[str, Any]:
    """Return what is noted about messages that a request has stored."""
    return {"messages": [one.id for one in stored]}


def _with_ids(
    groups: Sequence[list[Message]], given: str | Sequence[str | None] | None, *, is_list: bool
) -> list[Message]:
    """Return the messages with the ids that the caller gives them.

    If an original became several messages, the first has the id. The others have it
    with their number, from 2.
    """
    if given is not None:
        ids = validation.sequence("id", given) if is_list else [given]
        if len(ids) != len(groups):
            raise InvalidInput("id", f"names {len(ids)} messages, and {len(groups)} are given")
        for group, name in zip(groups, ids, strict=True):
            for number, message in enumerate(group if name is not None else (), start=1):
                message.id = validation.identifier("id", name if number == 1 else f"{name}:{number}")
    return [message for group in groups for message in group]


def _state_change(state: object, expected_version: object) -> StateChange | None:
    if state is None:
        if expected_version is not None:
            raise InvalidInput(
                "expected_version", "is checked only with a new state. Pass state= too, or omit it"
            )
        return None
    return StateChange(
        validation.json_object("state", state, max_bytes=MAX_STATE_BYTES), check_expected(expected_version)
    )


def _schemas(tools: Sequence[Mapping[str, Any]] | None) -> Sequence[Mapping[str, Any]]:
    """Check the schemas of tools, and return them.

    They must be JSON, because their tokens are counted as JSON. They are stored
    nowhere, so no other rule for stored values applies.
    """
    given = [] if tools is None else validation.sequence("tools", tools)
    for tool in given:
        if not isinstance(tool, Mapping):
            raise InvalidInput(
                "tools", f"must be a list of schemas, each a mapping, not {type(tool).__name__}"
            )
        try:
            json.dumps(dict(tool))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                "tools", f"must be JSON: {error}. Pass the schemas that the model is sent"
            ) from None
    return given


def _count(field: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise InvalidInput(field, f"must be a whole number of 0 or more, not {str(value)[:40]}")
    return value


def _number(field: str, value: int | None) -> int | None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63
    ):
        raise InvalidInput(field, "must be a whole number from 0 to 2**63 - 1")
    return value
