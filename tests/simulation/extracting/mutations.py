"""Mutations in what records, holds and tells what is said, that a run of recordings must
notice, by the name of what goes wrong then.
"""

from __future__ import annotations

from memory.agents.manager import manager, recording, spool
from tests.support.mutations import Mutation

MUTATIONS: dict[str, Mutation] = {
    # marks
    "a-mark-is-noted-before-the-store-has-it": Mutation(
        recording,
        "Attachment._deliver_pending",
        "await self._deliver(",
        "await self._spool.told(self._store.name, behind)\n            await self._deliver(",
    ),
    "what-failed-is-not-told-again": Mutation(
        recording,
        "Attachment._deliver_pending",
        "await self._deliver(",
        "self._come, self._owes_note = Position(behind), True\n            await self._deliver(",
    ),
    "a-mark-goes-back": Mutation(spool, "Position.at", "max(mark, self.mark)", "mark"),
    "a-mark-that-could-not-be-noted-is-forgotten": Mutation(
        recording,
        "Attachment._deliver_pending",
        "if self._owes_note:",
        "if self._owes_note and not setattr(self, '_owes_note', False):",
    ),
    "two-marks-are-noted-at-once": Mutation(
        spool,
        "Log._change",
        "change(there := _position_of(run, log.life.incarnation))",
        "change(there := come)",
    ),
    # what is told
    "a-number-is-a-position": Mutation(
        recording, "Attachment._deliver", "[number for number, _ in batch]", "list(range(len(batch)))"
    ),
    "numbers-have-no-gaps": Mutation(
        recording,
        "Attachment._deliver_pending",
        "[(number, left) for number",
        "[(mark + number % 2, left) for number",
    ),
    "saves-of-one-store-overlap": Mutation(
        recording, "Attachment.save", "async with self._turn:", "if True:"
    ),
    # ranges
    "a-retry-loses-the-range": Mutation(
        recording,
        "Attachment.save",
        "self._failures += 1",
        "self._failures, self._come = self._failures + 1, self._come and Position(self._come.mark)",
    ),
    "a-range-is-not-noted": Mutation(
        recording,
        "Attachment._deliver_pending",
        "await self._spool.begin_delivery(self._store.name, mark, behind)",
        "Position(mark, behind)",
    ),
    "a-range-that-another-began-is-not-kept-to": Mutation(
        spool, "Log.begin_delivery", "told.until is not None or told.mark >= until", "told.mark >= until"
    ),
    # what is let go
    "a-buffer-is-let-go-before-every-store-has-it": Mutation(spool, "Buffer.commit", "min(", "max("),
    "a-buffer-is-never-let-go": Mutation(spool, "Buffer.commit", "self._first += gone", "self._first += 0"),
    "a-run-is-completed-too-early": Mutation(
        spool, "Log.is_delivered", "one.mark >= there", "one.mark >= there - 1"
    ),
    "what-is-added-contradicts-nobody": Mutation(spool, "Log.add", "await self.wait()", "pass"),
    "what-is-past-the-recording-contradicts-nobody": Mutation(
        recording, "Recording.turn_ended", "self._behind(self._waits())", "pass"
    ),
    "that-nothing-waits-is-noted-whoever-contradicts": Mutation(
        spool, "Log.close", "if come.closing == self._token", "if True"
    ),
    "it-is-noted-to-wait-once-it-was-said": Mutation(
        manager, "MemoryManager._begin_recording", "await spool.open()", "pass"
    ),
    "a-session-is-done-with-before-it-is-gone": Mutation(
        recording,
        "Recording.close",
        "await self._spool.is_delivered()",
        "await self._spool.is_delivered() and await self._spool.close()",
    ),
    "an-erasure-leaves-what-waits": Mutation(
        manager, "MemoryManager.record", "namespace=NAMESPACE, user=user", "namespace=NAMESPACE"
    ),
    # who fails
    "one-failing-store-holds-the-others-back": Mutation(
        recording,
        "Recording.flush",
        "for attachment in self._attachments)",
        "for attachment in self._attachments if not any(one._failures for one in self._attachments if one is"
        " not attachment))",
    ),
    "the-back-off-never-ends": Mutation(
        recording, "Attachment.save", "if self._waited % SELDOM:", "if True:"
    ),
    "a-flush-waits-for-nobody-s-patience": Mutation(
        recording, "Attachment.save", "if not whatever and self._failures", "if self._failures"
    ),
}
