"""`memory.session("s1")`: one session's conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from secrets import token_hex
from typing import Any, Literal

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.scope import Scope
from memory.domain.session import Compaction, Context, FoundMessages, HistoryPage, SessionInfo
from memory.domain.shapes import import_message, import_messages
from memory.facade.arguments import changes_of, flag, function
from memory.facade.resources.message_stream import MessageStream
from memory.facade.resources.recall import found_for, room_for, with_recalled
from memory.facade.resources.runs import Runs
from memory.facade.resources.tasks import Tasks
from memory.facade.runtime.access import MAX_QUERY_BYTES, SEARCH_LIMIT, Access
from memory.facade.search_options import least_relevance, search_mode
from memory.orchestrator.conversations.conversation import Checkpoint, Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.compaction import Summarise
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.conversations.window.reads import lends_reads, reads_of_caller
from memory.orchestrator.conversations.window.streaming import StreamedMessage
from memory.orchestrator.tiering.promotion import PromotionReport
from memory.policies.compaction_thresholds import MessageThreshold, TurnThreshold, WindowPolicy
from memory.policies.context import ContextRequest
from memory.policies.list_compaction import CompactionSettings, summary_of
from memory.policies.window import TokenThreshold

MOST_AT_ONCE = 500
"""Messages of one append."""
HISTORY_LIMIT = 100

MessageLike = Message | Mapping[str, Any] | object
"""A message of ours or of OpenAI, Anthropic or LangChain; see `memory.formats`."""


@explain_guesses
class Session:
    """One session: what was said in it, and what of that a model is to be sent.

        session = memory.session("s1", user="ada", system="You are a helpful assistant.")
        await session.append({"role": "user", "content": "hello"})
        context = await session.context(4_000)

    Made without a call to any store; the session is created by the first call where
    there is none, or with `create=False` that raises `NotFound`. Its history is a log:
    every change is one write at the next place, so several processes may write to one
    session, lose nothing, and agree on one order.
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
        return str(self._draft.id)

    @property
    def tasks(self) -> Tasks:
        """What the session has to do."""
        return Tasks(self._access, self._conversation, self.id)

    @property
    def runs(self) -> Runs:
        """What the session gave to others to do."""
        return Runs(self._access, self._conversation, self.id)

    async def _conversation(self) -> Conversation:
        engine = self._access.engine
        if self._held is None:
            self._held = await engine.conversations.open(
                self._access.tenant, self._draft, create=self._creates
            )
        else:
            await self._held.refuse_if_over()
        return self._held

    def _in_call_order(self, message_ids: Iterable[str]) -> AbstractAsyncContextManager[None]:
        return self._access.engine.conversations.in_call_order(
            self._access.tenant, self.id, "message", message_ids
        )

    # -- messages ----------------------------------------------------------------------

    @lends_reads
    async def append(
        self, message: MessageLike | Sequence[MessageLike], *, in_history: bool = True
    ) -> list[Message]:
        """Add a message, or several in order; returns them as stored, each with its id.

        Messages are taken as they are: ours, plain `{role, content}`, OpenAI's,
        Anthropic's, LangChain's. One may have 32 MiB in texts of more than 64 KiB, such
        as images in base64, and 1 MiB of all else. One whose `id` the session has
        replaces what that message said, where it stands: so a streamed answer is one
        message however often it is told (B20 to B23), and a call that failed can be
        repeated. So can one without ids where this process appends nothing else to the
        session in between, and what is given is kept together (one message; several
        where the store is `atomic`); else it is said twice.

        Under legal hold a message is replaced only by one that says all that it said,
        and more, as a streamed one does: else `LegalHoldActive` is raised.

        With `in_history=False` a message is in the window only (B24). Appended again
        without that, it enters the history: it keeps its place and gets the next
        number.

        Values beside what a model is sent, such as parsed output, artifacts and
        metadata, may be datetimes, dates, UUIDs, decimals, enums, dataclasses and
        pydantic models, and are stored as JSON. For any other value a placeholder with
        the type's name is stored; `placeholders` of a returned message lists their
        paths.

        Texts of more than 64 KiB count in a quota of `artifact_bytes`: beyond it
        `QuotaExceeded` is raised, and none of the new messages is stored. What replaces
        what a message said counts too, and is not refused.
        """
        if isinstance(message, list | tuple) and len(message) > MOST_AT_ONCE:
            raise InvalidInput("message", f"takes at most {MOST_AT_ONCE} messages per call. Split the list")
        messages = import_messages(message) if isinstance(message, list | tuple) else import_message(message)
        async with self._in_call_order(message.id for message in messages if message.id is not None):
            return await (await self._conversation()).append(messages, in_history=bool(in_history))

    async def update(self, message_id: str, **changes: Any) -> Message:
        """Change what a message says: `content`, `reasoning`, `tool_calls`, `usage`,
        `finish_reason`, `metadata`, `name`. Its number stays (B26).

        A whole message (`**message.model_dump()`) does too: what of it cannot be
        changed, its id and its role among it, stays as it is stored. No earlier version
        is kept, so it raises `LegalHoldActive` where the session is under legal hold.
        """
        checked, changed = validation.identifier("message_id", message_id), changes_of(changes)
        async with self._in_call_order([checked]):
            return await (await self._conversation()).update(checked, changed)

    def stream(
        self, *, role: Literal["assistant", "user"] = "assistant", message_id: str | None = None
    ) -> MessageStream:
        """A message whose text arrives in pieces: `async with session.stream() as out:
        await out.write("…")`. One message, however they arrive (B21).

        Under an id of its own where none is given. One that is there already is said
        anew, where it stands (B20).
        """
        speaks = Role(validation.one_of("role", role, ("assistant", "user")))

        async def begin(name: str) -> StreamedMessage:
            return StreamedMessage(await self._conversation(), self._access.engine.placement, speaks, name)

        name = token_hex(16) if message_id is None else validation.identifier("message_id", message_id)
        return MessageStream(begin, name, self._access.check_process)

    async def exclude(self, message_id: str, reason: str = "manual") -> bool:
        """Take a message out of the window; the history keeps it and says why (B27,
        B28). False where it is not there, or is the system message.
        """
        return await (await self._conversation()).exclude(
            validation.identifier("message_id", message_id),
            validation.text("reason", reason, min_chars=1, max_chars=200),
        )

    async def erase(self, message_id: str) -> bool:
        """Erase what a message said and who said it, everywhere; false where there is
        none of the id.

        Its place in the history stays, with its number and its role (`is_redacted`),
        and so do all counts. It leaves the window. Summaries of which it was a part,
        and summaries of those, are erased with it: they may say what it said. So are
        entries that were made of it, and what was made of these, in any scope. So are
        its copies in forks, with all of that, but for forks under legal hold. Its id is
        free again. What of this a crash cut off, a sweep does.
        """
        checked = validation.identifier("message_id", message_id)
        if checked == "system":
            raise InvalidInput(
                "message_id", "'system' is the session's system message: update it, or delete the session"
            )
        return await self._access.engine.conversations.redaction.erase(
            (await self._conversation()).log, checked
        )

    async def restore(self, message_id: str) -> bool:
        """Take an excluded message back into the window. False where it is there,
        unknown, or was compacted away.
        """
        return await (await self._conversation()).restore(validation.identifier("message_id", message_id))

    async def clear(self) -> int:
        """Take all messages out of the window but the system message; the history keeps
        them (B30, B31). How many.
        """
        return await (await self._conversation()).clear()

    @lends_reads
    async def replace(self, messages: Sequence[MessageLike], *, revive: bool = False) -> list[Message]:
        """Let the window consist of these messages, and return them as stored; the
        history keeps the others, and gains only what is new (C22).

        A message is one that is there when its id is; without ids, when it says the
        same at the same place of the longest common run. So what was read can be
        changed and handed back whole, again too. One that is there stands at its first
        place (B29), so new ones come behind those with ids. A message leaves the window
        only if the calling task has seen it: the last `context` that the task read
        showed it, or this handle wrote it since. What a `budget` or `last` left out of
        that context stays. A read by a child task, such as a function that
        `asyncio.wait_for` runs, counts as the caller's; of an empty session it does
        only if the caller itself has made a call of the library before, such as
        `memory.session`. Where the task has read none, every message that is in the
        window when this call begins may leave. What `context` added for the model
        (recalled facts, results of interrupted calls) is not stored. Messages that
        others wrote since stay, behind the list. The system message stays as it is. A
        message that was edited since that read stays as it is now, and one that was
        erased is not written again, unless `revive`. Messages that the
        list lacks leave the window (see `on_window_exit` of `Memory`), and so does a
        message that was edited without its id; to take one out for good, `exclude` or
        `erase` it. It is several writes, what is
        new first: cut off half-way it leaves what is new behind what was there, and the
        same list again ends it.
        """
        said = import_messages(validation.sequence("messages", messages), "messages")
        conversation = await self._conversation()
        if not flag("revive", revive):
            read = reads_of_caller().settle(conversation.log.life.incarnation, said)
            said = await conversation.without_erased(said, () if read is None else read.versions)
        return await conversation.replace(said, revive=revive)

    async def checkpoint(self, name: str | None = None) -> Checkpoint:
        """A point to roll back to. One with a name is noted in the log."""
        return await (await self._conversation()).checkpoint(
            None if name is None else validation.identifier("name", name)
        )

    async def roll_back(self, checkpoint: Checkpoint, reason: str = "manual") -> int:
        """Restore exactly the window that stood at the checkpoint (B52).

        Messages added or restored since leave the window; the history keeps them, with
        this reason. Messages that were excluded, cleared, replaced or compacted since
        come back; erased ones do not. Edited messages keep their new text. What others
        write while the call runs stays.

        Returns:
            How many messages left the window.
        """
        if not isinstance(checkpoint, Checkpoint):
            raise InvalidInput(
                "checkpoint", f"must be one that `checkpoint` returned, not {type(checkpoint).__name__}"
            )
        return await (await self._conversation()).roll_back(
            checkpoint, validation.text("reason", reason, min_chars=1, max_chars=200)
        )

    async def repair_tool_calls(self) -> list[Message]:
        """Repair the tool calls of a run that was cut off, so that providers accept them.

        Each call without a result gets one that says so; these messages are returned.
        Results without a call, and second results of a call, leave the window. The
        history lists them as excluded, `invalid_response`.
        """
        return await (await self._conversation()).repair_tool_calls()

    # -- reading -----------------------------------------------------------------------

    async def info(self) -> SessionInfo:
        """The session and its counts, as they are now."""
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
        """What a model is to be sent, within a budget of tokens: the system message,
        the newest summary, then the newest messages that fit.

        A result never comes without its call, nor a call of several parts in part; with
        `by="turns"` no turn is cut. The last user message is always kept, and
        `over_budget` says by how much that is too much. What `tools` (their schemas)
        take counts too.

        With `slack`, a share of the budget, older messages go in steps of that size:
        until one has to go every context begins as the one before it, to the byte,
        which is what a prompt cache needs. With `layered` all summaries come, archived
        ones too, and the newest 80 messages or `last` (B51); `layers` says of each what
        it is. With `recall` what memory finds for that query, in the scopes of the
        session and of this handle's user, comes as one message before the last one of
        the user, and takes a quarter of the budget at most. `min_relevance`, from 0 to
        1, leaves out what answers `recall` less well.

        A call that was never answered is followed by a result that says so
        (`TOOL_CALL_INTERRUPTED`), in this answer only, since providers refuse a call
        without one. `interrupted` lists these calls, and `repair_tool_calls` stores such
        results.

        With a budget, and without `last`, the context starts at a message of the user,
        after system messages and summaries: several providers refuse another first
        message. Older messages are left out for that. Where no message of the user
        fits, it starts with any. Pass `start="any"` to start wherever the budget cuts,
        `start="user"` for the other reads.

        While the store of the session does not answer, this is what the process saw of
        it within the last minute, where it remembers all that is shown: `degraded` says
        so. Else `StoreUnavailable` is raised.
        """
        for name, value in (("budget", budget), ("last", last)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise InvalidInput(name, "must be a whole number, not below 0")
        if isinstance(slack, bool) or not isinstance(slack, int | float) or not 0 <= slack < 1:
            raise InvalidInput("slack", "must be a share of the budget: 0 or more, and below 1")
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

    async def _stored_window(self) -> Context:
        """The window as it is stored: calls without a result get no stand-in. It does
        not count as a read of the calling task.
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
        """A page of all that was ever said: of these ids, numbers from `first` to
        `last`, these roles; what one compaction archived (B33).

        100 messages unless told, 1,000 at most; the page's `cursor` asks for those
        behind it.
        """
        asked = HistoryQuery(
            ids=None
            if ids is None
            else [
                validation.identifier("ids", one)
                for one in validation.sequence("ids", ids, at_most=validation.MAX_LIMIT)
            ],
            first=_number("first", first),
            last=_number("last", last),
            roles=[
                validation.one_of("roles", role, Role)
                for role in validation.sequence("roles", roles, at_most=len(Role))
            ],
            summaries=bool(summaries),
            archived_by=None if archived_by is None else validation.identifier("archived_by", archived_by),
            descending=validation.one_of("order", order, ("oldest", "newest")) == "newest",
            limit=validation.whole_limit(limit, default=HISTORY_LIMIT),
            offset=_number("offset", offset) or 0,
            cursor=None if cursor is None else validation.text("cursor", cursor, max_bytes=4096),
        )
        return await (await self._conversation()).history(asked)

    async def search(
        self,
        query: str,
        *,
        mode: Literal["hybrid", "lexical", "semantic"] = "hybrid",
        limit: int | None = None,
        min_relevance: float | None = None,
    ) -> FoundMessages:
        """What was said here that answers best, by words and by meaning; 10 unless
        told. Compacted messages are found, excluded ones are not.

        `mode` says how messages are found: by shared words (`"lexical"`), by embeddings
        (`"semantic"`) or by both (`"hybrid"`). Messages of another process are found
        lexically at once and semantically a few seconds later. Results of tools are not
        found. The query is plain text, never syntax.

        Raises:
            InvalidInput: `mode="semantic"` where messages have no vectors
                (`conversations.meaning`). `"hybrid"` is lexical there.
        """
        text = validation.text("query", query, max_bytes=MAX_QUERY_BYTES)
        checked, least = search_mode(mode), least_relevance(min_relevance)
        return await self._access.engine.message_search.find_in(
            await self._conversation(),
            text,
            validation.whole_limit(limit, default=SEARCH_LIMIT),
            checked,
            least,
        )

    # -- compaction --------------------------------------------------------------------

    async def compact(
        self, summarise: Summarise, *, keep_last: int, reason: str = "manual", trigger_id: str | None = None
    ) -> Compaction:
        """Let a summary stand for all but the last `keep_last` messages of the window
        (B34 to B42): one write.

        `summarise` gets copies of the messages, an earlier summary first, and returns
        (or awaits) its text, or a message in any shape. Where another compaction was
        first, that one is returned. Raises `CompactionError` if the summary says
        nothing or asks for a tool, or if `summarise` fails: then nothing has changed,
        and an earlier summary stays as it is.
        """
        function("summarise", summarise)
        if isinstance(keep_last, bool) or not isinstance(keep_last, int):
            raise InvalidInput("keep_last", "must be a whole number")
        return await (await self._conversation()).compact(
            summarise,
            keep_last=keep_last,
            reason=validation.text("reason", reason, min_chars=1, max_chars=200),
            trigger_id=None if trigger_id is None else validation.identifier("trigger_id", trigger_id),
        )

    async def compact_if_needed(
        self,
        policy: WindowPolicy | CompactionSettings,
        summarise: Summarise = summary_of,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Compaction | None:
        """Compact the window before a model is asked, if the policy says so.

        Appending never compacts (B43, B44). A policy counts tokens with those of the
        `tools` (`TokenThreshold(max_tokens)`), messages (`MessageThreshold(most)`) or turns
        (`TurnThreshold(most)`). The last user message stays (B46); by messages and
        turns, all that follows it stays too.

        With `CompactionSettings`, duplicates go first, then the least important
        messages; then the older part becomes a summary (A121). Messages that go without
        a summary leave the window with that step as the reason, and move to the next
        tier too.

        Args:
            policy: When to compact, and how far.
            summarise: Makes the summary of the messages that leave. By default it takes their first
                sentences, without a model.
            tools: The schemas of the tools that the model is sent.

        Returns:
            The compaction, or None if there was none.

        Raises:
            CompactionError: The summary says nothing or asks for a tool, or `summarise` failed.
                Nothing has changed.
        """
        if not isinstance(policy, TokenThreshold | MessageThreshold | TurnThreshold | CompactionSettings):
            raise InvalidInput(
                "policy",
                f"must be a TokenThreshold, MessageThreshold, TurnThreshold or CompactionSettings, not {type(policy).__name__}",
            )
        return await (await self._conversation()).compact_if_needed(
            policy, function("summarise", summarise), tools=_schemas(tools)
        )

    async def compactions(self) -> list[Compaction]:
        """Every compaction of the session, the first one first."""
        return await (await self._conversation()).compactions()

    # -- its life ----------------------------------------------------------------------

    async def end(self) -> PromotionReport:
        """End the session: nothing is appended until `resume`.

        The memory's `on_window_exit` makes entries of the messages that are left in the
        window, and the promotion rules for session ends move the session's entries to
        later tiers. Sweeps do what the report lists under `waiting` once the stores are
        back, unless the session is resumed before. Call it again to do that at once.
        """
        conversation = await self._conversation()
        await conversation.close("ended")
        left = await conversation.handle_window_exit()
        report = await self._access.engine.end_session(
            self._access.tenant, Scope.session(self.id), left.owing
        )
        report.derived, report.waiting = left.entries, [*left.waiting, *report.waiting]
        return report

    async def archive(self) -> bool:
        """Put the session away: nothing is appended until `resume`. False where it was
        archived already.
        """
        return await (await self._conversation()).close("archived")

    async def resume(self) -> bool:
        """Go on with a session that was ended or archived; false where it is active."""
        return await (await self._conversation()).resume()

    async def fork(self, at: str | None = None, session_id: str | None = None) -> Session:
        """A new session that begins with copies of what a model was sent up to the
        message `at`, that one included, under the same ids; or all of it.

        To answer again, fork at the user's message; to edit it and ask again, `update`
        it there. This session stays as it is, also one that has ended. The new one has
        its user, agent, namespace, title, tags and metadata, and `forked_from` in the
        metadata. What was excluded since is not copied. Raises `NotFound` where there
        is no such message, `Conflict` where there is a session of that id,
        `QuotaExceeded` beyond a quota of `artifact_bytes`, for which the copies of
        large texts count: then there is no new session. Cut off half-way, it leaves the
        new session with the first of its messages.
        """
        at = None if at is None else validation.identifier("at", at)
        draft, messages = await (await self._conversation()).as_of(at)
        draft = replace(
            draft, id=None if session_id is None else validation.identifier("session_id", session_id)
        )
        return Session._of(
            self._access, await self._access.engine.conversations.fork(self._access.tenant, draft, messages)
        )

    async def delete(self) -> bool:
        """Erase the session with everything said in it, the entries of its scope, and
        those that `on_window_exit` made of it; false where there was none.

        Forks of it stay, with the messages that they began with: delete each, or
        `erase` a message before, which reaches its copies. Raises
        `SessionOwnerMismatch` where the session belongs to another user, agent or
        namespace than this handle names, and erases nothing.
        """
        self._held = None
        return await self._access.engine.conversations.sessions.delete(
            self._access.tenant, self.id, self._draft
        )


def _schemas(tools: Sequence[Mapping[str, Any]] | None) -> Sequence[Mapping[str, Any]]:
    """The schemas of tools: JSON, for they are counted as it. They are kept nowhere, so
    no other rule of what is stored holds for them.
    """
    given = [] if tools is None else validation.sequence("tools", tools)
    for tool in given:
        if not isinstance(tool, Mapping):
            raise InvalidInput("tools", f"each must be a schema, an object, not {type(tool).__name__}")
        try:
            json.dumps(dict(tool))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput("tools", f"is not JSON: {error}") from None
    return given


def _number(field: str, value: int | None) -> int | None:
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63
    ):
        raise InvalidInput(field, "must be a whole number, not below 0")
    return value
