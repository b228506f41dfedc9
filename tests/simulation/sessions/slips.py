"""Slips in the engine's conversations that a run of sessions must notice, by the name
of what goes wrong then.

Of the design's mutants those of copies in the short tier have nothing to change
(docs/decisions/036), and those of retention: there is none.
"""

from __future__ import annotations

from memory.orchestrator.conversations import conversation, derived_entries, redaction, sessions, window_exits
from memory.orchestrator.conversations.log import events, folding, log, seen
from memory.orchestrator.conversations.window import compaction as compacting
from memory.orchestrator.conversations.window import handle
from memory.policies import window
from tests.support.slips import Slip

_ALWAYS = "__import__('memory.ports.writes').ports.writes.Always()"

SLIPS: dict[str, Slip] = {
    # the log
    "a-place-is-taken-whoever-has-it": Slip(log, "Log._put", "Absent()", _ALWAYS),
    "anyone-s-event-is-taken-for-ours": Slip(
        log, "Log._is_ours", "there.draft.nonce == event.draft.nonce", "True"
    ),
    "our-own-event-is-taken-for-another-s": Slip(
        log, "Log._is_ours", "there.draft.nonce == event.draft.nonce", "False"
    ),
    "an-append-whose-answer-was-lost-is-made-again": Slip(
        log, "Log._find_stored_drafts", "if not unsure or", "if True or"
    ),
    "ids-are-not-looked-up": Slip(
        log, "Log.find", "if as_seen and seen.since <= FIRST_PLACE:", "if as_seen:"
    ),
    "an-id-is-looked-up-before-the-head-is-known": Slip(
        conversation,
        "Conversation._drafts",
        "any(seen.ids.get(name, place) != place for name, place in known.items())",
        "False",
    ),
    "created-at-is-as-the-clock-says": Slip(
        folding, "State.next", "max(self.created_at + _TICK, now)", "now"
    ),
    "a-batch-is-put-out-of-order": Slip(
        log, "Log._append_laying", "left if together else left[:1]", "left if together else left[-1:]"
    ),
    "what-is-true-after-a-lost-place-is-copied": Slip(
        log, "Log._meet", "seen.take(there)", "seen.state = seen.state.past(event.place)"
    ),
    "a-row-is-of-no-generation": Slip(log, "Log.record_of", "generation=life.generation", "generation=None"),
    "a-key-is-of-every-life": Slip(
        events,
        "place_key",
        "ids.beside(incarnation,",
        "ids.beside(f'00000000-0000-8000-{incarnation[19:24]}{int(incarnation[24:], 16) >> 30 << 30:012x}',",
    ),
    "something-is-said-in-a-session-that-has-ended": Slip(
        conversation, "Conversation._refuse_if_not_active", 'seen.state.after.status != "active"', "False"
    ),
    # what is remembered
    "an-edit-is-not-told": Slip(log, "Log._put_over", "await self.tell_edit(new)", "pass"),
    "what-was-edited-is-remembered": Slip(
        seen, "LogSnapshot._forget", "if known is not None and", "if False and"
    ),
    "what-came-since-is-not-asked-for": Slip(
        log, "Log._refresh", "elif rows[ahead[0]] is not None:", "elif False:"
    ),
    # the window
    "a-clear-takes-what-came-meanwhile": Slip(
        handle,
        "Handle._remove_from_window",
        "for place in known if place in seen.state.window",
        "for place in (seen.state.window if seen.state.window else known)",
    ),
    "a-replacement-takes-what-others-said": Slip(
        conversation, "Conversation.replace", "if read is None or not read.is_read:", "if True:"
    ),
    "a-policy-takes-the-last-user-message": Slip(
        window, "split_by_policy", "cut if of_user is None else min(cut, of_user)", "cut"
    ),
    "a-budget-takes-the-last-user-message": Slip(
        window, "fit_to_budget", "if keep_last_user else None", "if False else None"
    ),
    "results-stand-where-they-came": Slip(
        window, "arrange", "found.unit.append(position)", "units.append([position])"
    ),
    "what-a-summary-stands-for-comes-back": Slip(
        conversation,
        "Conversation._restore_event",
        "if (await self._history.window_exits([event]))[0].archived_by is not None:",
        "if False:",
    ),
    # compactions
    "a-summary-of-others-rows": Slip(
        compacting,
        "WindowCompaction._compact_once",
        '"left": left.to_json()',
        '"left": (self._log.seen or window).state.window.to_json()',
    ),
    "a-second-compaction-is-let-in": Slip(
        compacting,
        "WindowCompaction._compact_once",
        "if seen.state.after.compactions != before or any(at not in seen.state.window for at in left):",
        "if False:",
    ),
    # onward
    "what-leaves-is-settled-before-its-entries": Slip(
        window_exits,
        "WindowExitHandler._leave",
        "made = await self.derived.store(owner, session, owed.data)",
        "await self._outbox._settle([(pending, (owed,))], set())\n    made = await self.derived.store(owner, session, owed.data)",
    ),
    "an-end-lets-what-has-left-before-leave": Slip(
        window_exits,
        "WindowExitHandler.exit_data_and_steps",
        "places.between(after.exited_until + 1,",
        "places.between(0,",
    ),
    "a-compaction-owes-nothing-onward": Slip(
        compacting, "WindowCompaction._compact_once", "owed=owed)]", "owed=())]"
    ),
    "a-cut-owes-nothing-onward": Slip(handle, "Handle._remove_from_window", "owed=owed)]", "owed=())]"),
    "what-was-cut-off-and-came-back-goes-twice": Slip(
        window_exits, "WindowExitHandler._exiting_messages", " and why.cut_by in (None, event.place)", ""
    ),
    "an-erased-summary-lets-nothing-leave": Slip(events, "Event.as_redacted", "LEAVES, ", ""),
    "entries-of-an-erased-message-stay": Slip(
        derived_entries, "DerivedEntries.forget", "source.has(event.place, event.number or 0)", "False"
    ),
    "a-deleted-session-teaches": Slip(
        derived_entries, "DerivedEntries.entries_of_past_incarnations", "lives - {living} and", "False and"
    ),
    # erasing
    "an-erased-message-leaves-a-hole": Slip(
        log,
        "Log.redact",
        "return await self._put_over(event, event.as_redacted(owed, self.life.session_id, version=version, now=now), erases=True)",
        "deletes = __import__('memory.ports.writes').ports.writes.Delete(MESSAGES, event.key, version, AtVersion(event.version))\n"
        "    await self._placement.write_one('log.change', self.store, deletes)\n"
        "    return event.as_redacted(owed, self.life.session_id, version=version, now=now)",
    ),
    "summaries-of-an-erased-message-stay": Slip(
        redaction, "Redaction._made_of", "if place in left_by(event.draft)", "if False"
    ),
    "an-erased-message-stays-in-the-window": Slip(
        redaction, "Redaction._redact_noted", "await self._leave_window(log, event.place)", "pass"
    ),
    "an-erased-message-is-previewed": Slip(
        redaction,
        "Redaction._redact_noted",
        "await self._sessions.tell(record, (await log.load()).state, record.created_at, fence=True)",
        "pass",
    ),
    # its record
    "lists-are-not-owed-the-end": Slip(
        conversation,
        "Conversation.close",
        "owed=(*self._sessions.owed_follow, *owed, *ends)",
        "owed=(*owed, *ends)",
    ),
    "lists-do-not-follow": Slip(sessions, "SessionRecords.catch_up", "await self.tell(*seen)", "pass"),
    "lists-tell-of-less": Slip(
        sessions,
        "SessionRecords.follow",
        '"messages": state.after.number',
        '"messages": state.after.number - 1',
    ),
}
