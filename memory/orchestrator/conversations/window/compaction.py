"""Compaction of a session's window: one write replaces messages by a summary."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from memory.domain.errors import CompactionError, Conflict, NotFound, error_text
from memory.domain.message import SYSTEM, Message, Role
from memory.domain.session import Compaction
from memory.domain.shapes import import_message
from memory.orchestrator.conversations.log.events import Draft, Event, EventType, copy_of
from memory.orchestrator.conversations.log.seen import LogSnapshot
from memory.orchestrator.conversations.window.handle import Handle
from memory.orchestrator.conversations.window.reading import COPIED, Window
from memory.orchestrator.storage.places import Places
from memory.orchestrator.storage.requests import RequestMark
from memory.policies.compaction_thresholds import WindowPolicy, archived_by
from memory.policies.list_compaction import CompactionResult, CompactionSettings, compact_messages
from memory.policies.tokens import message_tokens, tools_tokens
from memory.policies.window import TokenThreshold, split_for_compaction
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Eq
from memory.ports.record import JsonValue

Summary: TypeAlias = str | Message | Mapping[str, Any]
"""The text of a summary, or a message in the form of a common framework."""
log = logging.getLogger(__name__)

Summarise: TypeAlias = Callable[[list[Message]], Summary | Awaitable[Summary]]
Choose: TypeAlias = Callable[[Window], Awaitable[tuple[list[Message], Message] | None]]
"""Chooses the messages that leave a window, and makes their summary.

None if no message leaves.
"""


class WindowCompaction(Handle):
    """The operations of one session that limit the length of its window."""

    async def compactions(self) -> list[Compaction]:
        """Return every compaction, the oldest first."""
        return [
            self._compaction_of(event) for event in await self._log.whole(await self._compaction_events())
        ]

    async def _compaction_events(self) -> list[Event]:
        compactions = Eq("event", EventType.COMPACTION.value)
        return [event async for event in self._log.events_where("history.compactions", compactions)]

    async def compact(
        self,
        summarise: Summarise,
        *,
        keep_last: int,
        reason: str,
        trigger_id: str | None = None,
        request: RequestMark | None = None,
    ) -> Compaction:
        """Replace all but the last messages of the window by a summary, in one write.

        An earlier summary leaves with them. If another compaction took some of the
        messages meanwhile, nothing is written, and that compaction is returned.

        Raises:
            CompactionError: the summary cannot be made. Nothing has changed. An earlier
                summary is not used, because it does not cover the messages that leave
                now.
        """

        async def choose(window: Window) -> tuple[list[Message], Message]:
            archived = [
                window.messages[at] for at in split_for_compaction(window.messages, keep_last).archived
            ]
            return archived, await _summary(summarise, await self._whole(window, archived))

        made = await self._compact_once(choose, reason, trigger_id, request)
        assert made is not None  # noqa: S101 - it always chooses
        return made

    async def compact_if_needed(
        self,
        policy: WindowPolicy | CompactionSettings,
        summarise: Summarise,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        request: RequestMark | None = None,
    ) -> Compaction | None:
        """Compact if the policy says so; None if there is no new summary.

        The tokens of the tools count too.
        """
        of_tools = tools_tokens(tools, self._counter)

        async def choose(window: Window) -> tuple[list[Message], Message] | None:
            messages = window.messages
            if isinstance(policy, CompactionSettings):
                return await self._as_list(await self._whole(window, messages), policy, summarise, request)
            archived = [messages[at] for at in archived_by(policy, messages, window.costs, of_tools)]
            return (
                (archived, await _summary(summarise, await self._whole(window, archived)))
                if archived
                else None
            )

        reason = "token_limit" if isinstance(policy, TokenThreshold | CompactionSettings) else "auto"
        made = again = await self._compact_once(choose, reason, None, request)
        rounds = 0
        if isinstance(policy, TokenThreshold) and policy.keep_last is None:
            while (
                again is not None and (again.tokens_after or 0) + of_tools > policy.usable
            ):  # the summary is longer than its room
                rounds += 1
                part = None if request is None else request.part(rounds)
                try:
                    made, again = again, await self._compact_once(choose, reason, None, part)
                except CompactionError as error:
                    log.warning(
                        "session %s: its summary exceeds the limit, and no shorter one could be made: %s",
                        self.id,
                        error,
                    )
                    break
        return again or made

    async def _as_list(
        self,
        messages: list[Message],
        policy: CompactionSettings,
        summarise: Summarise,
        request: RequestMark | None,
    ) -> tuple[list[Message], Message] | None:
        """Compact the messages like a plain list.

        Messages that go without a summary leave the window here, with the strategy as
        the reason.
        """
        asked: list[list[Message]] = []

        def stand_in(sources: Sequence[Message]) -> str:
            asked.append(list(sources))
            return ""

        found = compact_messages(messages, policy, self._counter, stand_in)
        if asked:
            said = await _summary(summarise, asked[0])
            found = compact_messages(messages, policy, self._counter, lambda _: said)
        left = [messages[at] for at in found.removed]
        if found.summary is not None:
            return left, found.summary.model_copy(update={"id": None})
        await self._drop_messages(left, found, request)
        return None

    async def _drop_messages(
        self, left: Sequence[Message], found: CompactionResult, request: RequestMark | None
    ) -> None:
        if left:
            names = {message.id for message in left}
            places = Places.of(
                place for message_id, place in (await self._window()).places.items() if message_id in names
            )
            await self._remove_from_window(EventType.REPLACE, places, found.strategy, request)

    async def compaction(self, compaction_id: str) -> Compaction:
        """Return a compaction; its summary may be erased.

        Raises `NotFound` if there is none.
        """
        found = await self._log.find(compaction_id, redacted=True)
        if found is None or found.type is not EventType.COMPACTION:
            raise NotFound(compaction_id, "compaction")
        (whole,) = await self._log.whole([found])
        return self._compaction_of(whole)

    async def _compact_once(
        self, choose: Choose, reason: str, trigger_id: str | None, request: RequestMark | None
    ) -> Compaction | None:
        if (done := await self._log.find_made(request)) is not None:
            return await self.compaction(done.key.id) if done.type is EventType.COMPACTION else None
        while True:
            window = await self._window()
            messages, costs, state = (
                list(window.messages),
                dict(zip([m.id for m in window.messages], window.costs, strict=True)),
                window.state,
            )
            chosen = await choose(window)
            if chosen is None:
                return None
            archived, summary = chosen
            looked_up, summary = state.place, await self._under_free_id(summary)
            places = window.places
            left = Places.of(places[str(message.id)] for message in archived)
            cost = sum(window.costs)
            said: dict[str, JsonValue] = {
                "left": left.to_json(),
                "archived": [str(message.id) for message in archived],
                "before": len(messages),
                "after": len(messages) - len(archived) + 1,
                "tokens": [
                    cost,
                    cost
                    - sum(costs[message.id] for message in archived)
                    + message_tokens(summary, self._counter),
                ],
                "reason": reason,
                "trigger": trigger_id,
                "counter": self._counter.name,
            }
            writers = self._writers_of(
                [event for event in window.events if event is not None and event.place in left]
            )
            draft = Draft(
                EventType.COMPACTION, summary, said, message_tokens(summary, self._counter), said_by=writers
            )
            seen_before = state.after.compactions

            def decide(
                seen: LogSnapshot,
                left: Places = left,
                before: int = seen_before,
                draft: Draft = draft,
                looked_up: int = looked_up,
            ) -> list[Draft]:
                if seen.state.after.status != "active":
                    raise Conflict(
                        f"session '{self.id}' is {seen.state.after.status}; resume it first", self.id
                    )
                if seen.state.after.compactions != before or any(at not in seen.state.window for at in left):
                    return []
                leaves, owed = self._window_exit.exit_data_and_steps(left, seen.state.after)
                said = draft.message
                if said is not None and (seen.since > looked_up + 1 or said.id in seen.ids):
                    said = said.model_copy(update={"id": None})
                return [replace(draft, message=said, data={**draft.data, **leaves}, owed=owed)]

            appended = await self._log.whole(await self._log.append_once(decide, request))
            await self._touch()
            if appended:
                self._note_writes(*appended)
                return self._compaction_of(appended[0])
            if (await self._log.load()).state.after.compactions != seen_before:
                made = await self.compactions()
                if len(made) <= seen_before:
                    raise NotFound(self.id, "session")  # deleted since
                return made[seen_before]
            # one of these messages left the window meanwhile: choose again

    def _writers_of(self, events: Sequence[Event]) -> tuple[str, ...]:
        """Return the authors of a summary of these events.

        Empty if the only author is the session's user.
        """
        owner = self._log.life.user
        return (
            tuple(dict.fromkeys(user for event in events for user in event.writers(owner)))
            if any(e.draft.said_by for e in events)
            else ()
        )

    async def _under_free_id(self, summary: Message) -> Message:
        """Return the summary, without its id if the session already uses that."""
        taken = summary.id == SYSTEM or (
            summary.id is not None and await self._log.find(summary.id) is not None
        )
        return summary.model_copy(update={"id": None}) if taken else summary

    def _compaction_of(self, event: Event) -> Compaction:
        data: Mapping[str, Any] = event.draft.data
        message = event.message
        assert message is not None  # noqa: S101 - a compaction is a message
        before, after = data.get("tokens") or (None, None)
        return Compaction(
            event.key.id,
            self.id,
            event.created_at,
            message,
            list(data.get("archived", ())),  # an erased summary names none
            data["before"],
            data["after"],
            data["reason"],
            before,
            after,
            data.get("trigger"),
        )


async def _summary(summarise: Summarise, archived: list[Message]) -> Message:
    names, copies = (
        [str(message.id) for message in archived],
        [copy_of(message) async for message in iterate_cooperatively(archived, COPIED)],
    )
    try:
        made = summarise(copies)
        said = await made if inspect.isawaitable(made) else made
    except Exception as error:
        raise CompactionError(names, error_text(error), "messages") from error
    try:
        (summary,) = import_message(
            {"role": Role.SYSTEM.value, "content": said} if isinstance(said, str) else said
        )
    except ValueError as error:
        if isinstance(said, str):
            problem = f"the summary is not valid text of a message: {error}"
        elif isinstance(said, Mapping):
            problem = f"the summary is not a valid message: {error}"
        else:
            problem = f"the summary must be text or one message, not {type(said).__name__}"
        raise CompactionError(names, problem, "messages") from error
    if not summary.text.strip() or summary.tool_calls:
        raise CompactionError(
            names, "Summary generation failed: the summary is empty, or calls a tool", "messages"
        )
    return summary.model_copy(update={"is_summary": True})
