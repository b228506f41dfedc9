"""Mutations in scratchpads that a run must notice, by the name of what goes wrong then."""

from __future__ import annotations

from memory.orchestrator.entries import scratchpads
from tests.support.mutations import Mutation

_WRITES = "__import__('memory.ports.writes').ports.writes"

_PUT = 'await self._placement.write_one("scratchpad.put", archive, put)'

MUTATIONS: dict[str, Mutation] = {
    "the-cap-is-looked-at-before-the-append-only": Mutation(
        scratchpads,
        "Scratchpads._append",
        "        row = await self._put(partition, nonce, of, writer)\n",
        "        await of(await self._end(partition))\n"
        "        async def unasked(end):\n            return self._says(end, data)\n"
        "        row = await self._put(partition, nonce, unasked)\n",
    ),
    "a-clearing-takes-what-it-did-not-see": Mutation(
        scratchpads, "Scratchpads.clear", "max(last, end.cleared)", "max(end.place, end.cleared)"
    ),
    "a-clearing-gives-back-what-another-took": Mutation(
        scratchpads, "Scratchpads.clear", "max(last, end.cleared)", "seen.place"
    ),
    "after-a-clearing-all-counts-as-gone": Mutation(
        scratchpads, "Scratchpads.clear", "await self._size_behind(partition, upto)", "0"
    ),
    "an-append-whose-answer-was-lost-is-made-twice": Mutation(
        scratchpads,
        "Scratchpads._put",
        'outcome.applied or (isinstance(outcome.stored, Record) and outcome.stored.fields.get("nonce") =='
        " nonce)",
        "outcome.applied",
    ),
    "an-unknown-outcome-is-taken-for-done": Mutation(
        scratchpads,
        "Scratchpads._at_its_place",
        f"        outcome = {_PUT}\n    if",
        f"        outcome = {_WRITES}.Outcome({_WRITES}.Status.APPLIED)\n    if",
    ),
    "who-is-overtaken-writes-over-the-other": Mutation(
        scratchpads,
        "Scratchpads._at_its_place",
        f"    try:\n        outcome = {_PUT}\n",
        "    try:\n        outcome = "
        + _PUT.replace(", put)", f", replace(put, when={_WRITES}.Always()))")
        + "\n",
    ),
    "who-is-slow-writes-where-a-clearing-deleted": Mutation(
        scratchpads,
        "Scratchpads._at_its_place",
        ' and (await self._end(row.partition)).place < _number(row, "place")',
        "",
    ),
    "parts-come-after-their-row": Mutation(
        scratchpads,
        "Scratchpads._append",
        "        parts = await self._lay(partition, nonce, data)\n    try:\n        row = await"
        " self._put(partition, nonce, of, writer)\n",
        "        pass\n    try:\n        row = await self._put(partition, nonce, of, writer)\n"
        "        if len(data) > PART_BYTES:\n            parts = await self._lay(partition, nonce, data)\n",
    ),
    "parts-of-what-has-no-room-stay": Mutation(
        scratchpads,
        "Scratchpads._append",
        "        await self._take_back(nonce, parts)\n        raise",
        "        raise",
    ),
    "parts-are-taken-back-of-what-may-yet-stand": Mutation(
        scratchpads,
        "Scratchpads._append",
        "except (ScratchpadFull, Conflict, TooMuchContention):",
        "except (ScratchpadFull, StoreError):",
    ),
    "parts-whose-row-never-came-stay": Mutation(
        scratchpads, "Scratchpads._lay", "owed=(PendingStep(PART, PART, {}),),", "owed=(),"
    ),
    "parts-go-though-their-row-stands": Mutation(
        scratchpads, "Scratchpads._look_for_row", 'Gt("parts", 0)', 'Gt("parts", 9)'
    ),
    "parts-go-before-their-row-may-come": Mutation(
        scratchpads,
        "Scratchpads._look_for_row",
        "self._placement.settings.mark_life",
        "self._placement.settings.mark_life * 0",
    ),
    "what-was-cleared-is-never-deleted": Mutation(
        scratchpads, "Scratchpads._put", 'if said["bytes"] else', "if True else"
    ),
    "a-clearing-deletes-one-row-too-many": Mutation(
        scratchpads, "Scratchpads._drop_cleared", 'owed.data["upto"]', 'int(owed.data["upto"]) + 2'
    ),
    "parts-outlast-what-was-cleared": Mutation(
        scratchpads,
        "Scratchpads._drop_cleared",
        'await self._delete(pending.store, row, _parts_of(str(head.fields["nonce"])))',
        "pass",
    ),
    "the-end-is-the-oldest": Mutation(
        scratchpads, "Scratchpads._end", 'Order("created_at", descending=True)', 'Order("created_at")'
    ),
    "a-slow-clock-puts-a-row-before-the-last": Mutation(
        scratchpads,
        "Scratchpads._put",
        "now if end.created_at is None else max(now, end.created_at + TICK)",
        "now",
    ),
}
