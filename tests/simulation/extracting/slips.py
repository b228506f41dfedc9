"""Slips in what records, holds and tells what is said, that a run of recordings must
notice, by the name of what goes wrong then.
"""

from __future__ import annotations

from memory.agents.manager import manager, recording, spool
from tests.support.slips import Slip

SLIPS: dict[str, Slip] = {
    # marks
    "a-mark-is-noted-before-the-store-has-it": Slip(
        recording,
        "Attachment._deliver_pending",
        "await self._deliver(",
        "await self._spool.told(self._store.name, behind)\n            await self._deliver(",
    ),
    "what-failed-is-not-told-again": Slip(
        recording,
        "Attachment._deliver_pending",
        "await self._deliver(",
        "self._come, self._owes_note = Position(behind), True\n            await self._deliver(",
    ),
    "a-mark-goes-back": Slip(spool, "Position.at", "max(mark, self.mark)", "mark"),
    "a-mark-that-could-not-be-noted-is-forgotten": Slip(
        recording,
        "Attachment._deliver_pending",
        "if self._owes_note:",
        "if self._owes_note and not setattr(self, '_owes_note', False):",
    ),
    "two-marks-are-noted-at-once": Slip(
        spool,
        "Log._change",
        "change(there := _position_of(run, log.life.incarnation))",
        "change(there := come)",
    ),
    # what is told
    "a-number-is-a-position": Slip(
        recording, "Attachment._deliver", "[number for number, _ in batch]", "list(range(len(batch)))"
    ),
    "numbers-have-no-gaps": Slip(
        recording,
        "Attachment._deliver_pending",
        "[(number, left) for number",
        "[(mark + number % 2, left) for number",
    ),
    "saves-of-one-store-overlap": Slip(recording, "Attachment.save", "async with self._turn:", "if True:"),
    # ranges
    "a-retry-loses-the-range": Slip(
        recording,
        "Attachment.save",
        "self._failures += 1",
        "self._failures, self._come = self._failures + 1, self._come and Come(self._come.mark)",
    ),
    "a-range-is-not-noted": Slip(
        recording,
        "Attachment._deliver_pending",
        "await self._spool.begin_delivery(self._store.name, mark, behind)",
        "Position(mark, behind)",
    ),
    "a-range-that-another-began-is-not-kept-to": Slip(
        spool, "Log.begin_delivery", "told.until is not None or told.mark >= until", "told.mark >= until"
    ),
    # what is let go
    "a-buffer-is-let-go-before-every-store-has-it": Slip(spool, "Buffer.commit", "min(", "max("),
    "a-buffer-is-never-let-go": Slip(spool, "Buffer.commit", "self._first += gone", "self._first += 0"),
    "a-run-is-completed-too-early": Slip(
        spool, "Log.is_delivered", "one.mark >= there", "one.mark >= there - 1"
    ),
    "what-is-added-contradicts-nobody": Slip(spool, "Log.add", "await self.wait()", "pass"),
    "what-is-past-the-recording-contradicts-nobody": Slip(
        recording, "Recording.turn_ended", "self._behind(self._waits())", "pass"
    ),
    "that-nothing-waits-is-noted-whoever-contradicts": Slip(
        spool, "Log.close", "if come.closing == self._token", "if True"
    ),
    "it-is-noted-to-wait-once-it-was-said": Slip(
        manager, "MemoryManager._begin_recording", "await spool.open()", "pass"
    ),
    "a-session-is-done-with-before-it-is-gone": Slip(
        recording,
        "Recording.close",
        "await self._spool.is_delivered()",
        "await self._spool.is_delivered() and await self._spool.close()",
    ),
    "an-erasure-leaves-what-waits": Slip(
        manager, "MemoryManager.record", "namespace=NAMESPACE, user=user", "namespace=NAMESPACE"
    ),
    # who fails
    "one-failing-store-holds-the-others-back": Slip(
        recording,
        "Recording.flush",
        "for attachment in self._attachments)",
        "for attachment in self._attachments if not any(one._failures for one in self._attachments if one is not attachment))",
    ),
    "the-back-off-never-ends": Slip(recording, "Attachment.save", "if self._waited % SELDOM:", "if True:"),
    "a-flush-waits-for-nobody-s-patience": Slip(
        recording, "Attachment.save", "if not whatever and self._failures", "if self._failures"
    ),
}
