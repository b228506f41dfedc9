"""Mutations in the engine's conversations that a run of sessions must notice, by the name
of what goes wrong then.

Of the design's mutants those of copies in the short tier are in `copies`, and those of
retention have nothing to change: there is none.
"""

from __future__ import annotations

from memory.orchestrator.conversations import conversation, derived_entries, redaction, sessions, window_exits
from memory.orchestrator.conversations.log import events, folding, log, seen
from memory.orchestrator.conversations.window import compaction as compacting
from memory.orchestrator.conversations.window import handle
from memory.policies import window
from tests.support.mutations import Mutation

_ALWAYS = "__import__('memory.ports.writes').ports.writes.Always()"

MUTATIONS: dict[str, Mutation] = {
    # the log
    "a-place-is-taken-whoever-has-it": Mutation(log, "Log._put", "Absent()", _ALWAYS),
    "anyone-s-event-is-taken-for-ours": Mutation(
        log, "Log._is_ours", "there.draft.nonce == event.draft.nonce", "True"
    ),
    "our-own-event-is-taken-for-another-s": Mutation(
        log, "Log._is_ours", "there.draft.nonce == event.draft.nonce", "False"
    ),
    "an-append-whose-answer-was-lost-is-made-again": Mutation(
        log, "Log._find_stored_drafts", "if not unsure or", "if True or"
    ),
    "ids-are-not-looked-up": Mutation(
        log, "Log.find", "if as_seen and seen.since <= FIRST_PLACE:", "if as_seen:"
    ),
    "an-id-is-looked-up-before-the-head-is-known": Mutation(
        conversation,
        "Conversation._drafts",
        "any(seen.ids.get(name, place) != place for name, place in known.items())",
        "False",
    ),
    "created-at-is-as-the-clock-says": Mutation(
        folding, "State.next", "max(self.created_at + _TICK, now)", "now"
    ),
    "a-batch-is-put-out-of-order": Mutation(
        log, "Log._append_laying", "left if together else left[:1]", "left if together else left[-1:]"
    ),
    "what-is-true-after-a-lost-place-is-copied": Mutation(
        log, "Log._meet", "seen.take(there)", "seen.state = seen.state.past(event.place)"
    ),
    "a-row-is-of-no-generation": Mutation(
        log, "Log.record_of", "generation=life.generation", "generation=None"
    ),
    "a-key-is-of-every-life": Mutation(
        events,
        "place_key",
        "ids.beside(incarnation,",
        "ids.beside(f'00000000-0000-8000-{incarnation[19:24]}{int(incarnation[24:], 16) >> 30 << 30:012x}',",
    ),
    "something-is-said-in-a-session-that-has-ended": Mutation(
        conversation, "Conversation._refuse_if_not_active", 'seen.state.after.status != "active"', "False"
    ),
    # what is remembered
    "an-edit-is-not-told": Mutation(log, "Log._put_over", "await self.tell_edit(new)", "pass"),
    "what-was-edited-is-remembered": Mutation(
        seen, "LogSnapshot._forget", "if known is not None and", "if False and"
    ),
    "what-came-since-is-not-asked-for": Mutation(
        log, "Log._refresh", "elif rows[ahead[0]] is not None:", "elif False:"
    ),
    # the window
    "a-clear-takes-what-came-meanwhile": Mutation(
        handle,
        "Handle._remove_from_window",
        "for place in known if place in seen.state.window",
        "for place in (seen.state.window if seen.state.window else known)",
    ),
    "a-replacement-takes-what-others-said": Mutation(
        conversation, "Conversation.replace", "if read is None or not read.is_read:", "if True:"
    ),
    "a-policy-takes-the-last-user-message": Mutation(
        window, "split_by_policy", "cut if of_user is None else min(cut, of_user)", "cut"
    ),
    "a-budget-takes-the-last-user-message": Mutation(
        window, "fit_to_budget", "if keep_last_user else None", "if False else None"
    ),
    "results-stand-where-they-came": Mutation(
        window, "arrange", "found.unit.append(position)", "units.append([position])"
    ),
    "what-a-summary-stands-for-comes-back": Mutation(
        conversation,
        "Conversation._restore_event",
        "if (await self._history.window_exits([event]))[0].archived_by is not None:",
        "if False:",
    ),
    # compactions
    "a-summary-of-others-rows": Mutation(
        compacting,
        "WindowCompaction._compact_once",
        '"left": left.to_json()',
        '"left": (self._log.seen or window).state.window.to_json()',
    ),
    "a-second-compaction-is-let-in": Mutation(
        compacting,
        "WindowCompaction._compact_once",
        "if seen.state.after.compactions != before or any(at not in seen.state.window for at in left):",
        "if False:",
    ),
    # onward
    "what-leaves-is-settled-before-its-entries": Mutation(
        window_exits,
        "WindowExitHandler._leave",
        "made = await self.derived.store(owner, session, owed.data)",
        "await self._outbox._settle([(pending, (owed,))], set())\n    made = await self.derived.store(owner,"
        " session, owed.data)",
    ),
    "an-end-lets-what-has-left-before-leave": Mutation(
        window_exits,
        "WindowExitHandler.exit_data_and_steps",
        "places.between(after.exited_until + 1,",
        "places.between(0,",
    ),
    "a-compaction-owes-nothing-onward": Mutation(
        compacting, "WindowCompaction._compact_once", "owed=owed)]", "owed=())]"
    ),
    "a-cut-owes-nothing-onward": Mutation(handle, "Handle._remove_from_window", "owed=owed)]", "owed=())]"),
    "what-was-cut-off-and-came-back-goes-twice": Mutation(
        window_exits, "WindowExitHandler._exiting_messages", " and why.cut_by in (None, event.place)", ""
    ),
    "an-erased-summary-lets-nothing-leave": Mutation(events, "Event.as_redacted", "LEAVES, ", ""),
    "entries-of-an-erased-message-stay": Mutation(
        derived_entries, "DerivedEntries.forget", "source.has(event.place, event.number or 0)", "False"
    ),
    "a-deleted-session-teaches": Mutation(
        derived_entries, "DerivedEntries._is_of_past_incarnations", "lives - {living} and", "False and"
    ),
    # erasing
    "an-erased-message-leaves-a-hole": Mutation(
        log,
        "Log.redact",
        "return await self._put_over(event, new, erases=True)",
        "deletes = __import__('memory.ports.writes').ports.writes.Delete(MESSAGES, event.key, version,"
        " AtVersion(event.version))\n    await self._placement.write_one('log.change', self.store, deletes)\n"
        "    return new",
    ),
    "summaries-of-an-erased-message-stay": Mutation(
        redaction, "Redaction._made_of", "if place in left_by(event.draft)", "if False"
    ),
    "an-erased-message-stays-in-the-window": Mutation(
        redaction, "Redaction._redact_noted", "await self._leave_window(log, event.place)", "pass"
    ),
    "an-erased-message-is-previewed": Mutation(
        redaction,
        "Redaction._redact_noted",
        "await self._sessions.tell(record, (await log.load()).state, record.created_at, fence=True)",
        "pass",
    ),
    # its record
    "lists-are-not-owed-the-end": Mutation(
        conversation,
        "Conversation.close",
        "owed=(*self._sessions.owed_follow, *owed, *ends)",
        "owed=(*owed, *ends)",
    ),
    "lists-do-not-follow": Mutation(sessions, "SessionRecords.catch_up", "await self.tell(*seen)", "pass"),
    "lists-tell-of-less": Mutation(
        sessions,
        "SessionRecords.follow",
        '"messages": state.after.number',
        '"messages": state.after.number - 1',
    ),
}
