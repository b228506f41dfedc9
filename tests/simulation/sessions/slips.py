"""Slips in the engine's conversations that a run of sessions must notice, by the name of what goes wrong then."""

from __future__ import annotations

from memory.orchestrator.conversations import compacting, conversation, folding, log
from memory.policies import window
from tests.simulation.slips import Slip

_ALWAYS = "__import__('memory.ports.writes').ports.writes.Always()"

SLIPS: dict[str, Slip] = {
    "a-place-is-taken-whoever-has-it": Slip(log, "Log._put", "Absent()", _ALWAYS),
    "anyone-s-event-is-taken-for-ours": Slip(log, "Log._is_ours", "there.draft.nonce == event.draft.nonce", "True"),
    "ids-are-not-looked-up": Slip(log, "Log.find", "if as_seen and seen.since <= FIRST_PLACE:", "if as_seen:"),
    "an-id-is-looked-up-before-the-head-is-known": Slip(conversation, "Conversation._drafts", "any(name in seen.ids for name in named)", "False"),
    "created-at-is-as-the-clock-says": Slip(folding, "State.next", "max(self.created_at + _TICK, now)", "now"),
    "a-summary-of-others-rows": Slip(
        compacting, "Compacting._compacted", '"left": left.to_json()', '"left": (self._log.seen or window).state.window.to_json()'
    ),
    "a-second-compaction-is-let-in": Slip(
        compacting,
        "Compacting._compacted",
        "if seen.state.after.compactions != before or any(at not in seen.state.window for at in left):",
        "if False:",
    ),
    "a-batch-is-put-out-of-order": Slip(log, "Log._append", "left if together else left[:1]", "left if together else left[-1:]"),
    "what-is-true-after-a-lost-place-is-copied": Slip(log, "Log._meet", "seen.take(there)", "seen.state = seen.state.past(event.place)"),
    "results-stand-where-they-came": Slip(window, "arranged", "(asked, *results))", "(asked, *results))\n    order = tuple(sorted(order))"),
}
