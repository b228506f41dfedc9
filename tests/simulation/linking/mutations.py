"""Mutations in links and the graph that a run must notice, by the name of what goes wrong
then.
"""

from __future__ import annotations

from memory.orchestrator.enrichment import superseding
from memory.orchestrator.entries import entries, graph, orphans, relations
from tests.support.mutations import Mutation

_STORED = "await self._entries.writer.put(one.store, [one], write.revive, write.consistency)"
_RETIRED = (
    "[await self._entries.retire(one.record.key.tenant, record.key.id, write.at) for record, _ in homes]"
)

MUTATIONS: dict[str, Mutation] = {
    "a-link-comes-before-its-entry": Mutation(
        relations,
        "Relations.relate",
        "        await self._entries.confirmed_record(tenant, target_id, active=restored_from is None)\n",
        "        made = await self._put(tenant, source, label, target_id, restored_from)\n"
        "        await self._entries.confirmed_record(tenant, target_id, active=restored_from is None)\n"
        "        return relation_of(made)\n",
    ),
    "others-are-retired-before-the-entry-is-there": Mutation(
        superseding,
        "SupersedeWriter._write_entry",
        f"    else:\n        {_STORED}\n",
        f"    else:\n        {_RETIRED}\n        {_STORED}\n        return\n",
    ),
    "an-erased-end-stays-linked": Mutation(
        orphans,
        "OrphanCollector._drop",
        "if not named[head.key] <= there:",
        "if not named[head.key] & there:",
    ),
    "a-graph-tells-of-links-with-one-end": Mutation(
        graph, "Graphs.graph", "_ends(row) <= ends and", "_ends(row) & ends and"
    ),
    "a-graph-forgets-who-superseded-whom": Mutation(
        graph, "Graphs.graph", '"target_id", there, SUPERSEDES', '"target_id", (), SUPERSEDES'
    ),
    "a-graph-tells-of-links-made-later": Mutation(
        graph, "Graphs.graph", "asked.known_at is None or row.created_at <= asked.known_at", "True"
    ),
    "what-is-dimmed-shows-all-its-links": Mutation(
        graph,
        "_may_show",
        'hidden == 0 or (hidden == 1 and row.fields["relation"] == SUPERSEDES)',
        "hidden < 2",
    ),
    "what-is-dimmed-is-of-any-scope": Mutation(
        graph,
        "Graphs._superseded_entries",
        "covers(asked.place, Partition(asked.tenant, entry.scope.text))",
        "True",
    ),
    "an-expansion-goes-one-way": Mutation(
        graph,
        "Graphs._step",
        '(("source_id", outgoing), ("target_id", incoming))',
        '(("source_id", outgoing), ("target_id", dict.fromkeys(begun, _Links())))',
    ),
    "an-expansion-leaves-its-scopes": Mutation(
        graph, "Graphs._look", "place is None or covers(place, Partition(tenant, entry.scope.text))", "True"
    ),
    "an-expansion-shows-all-that-is-retired": Mutation(
        graph, "_Walk.visible_links", " and _may_show(row, self.retired)", ""
    ),
    "a-second-step-begins-at-the-first-alone": Mutation(
        graph,
        "Graphs._step",
        "if node.depth == step - 1][:at_most]",
        "if node.depth == step - 1][: at_most or 1]",
    ),
    "links-at-a-moment-are-those-of-today": Mutation(
        relations,
        "Relations._visible_rows",
        "as_of=shown.as_of, known_at=shown.known_at",
        "as_of=None, known_at=None",
    ),
    "a-link-that-was-made-later-was-known": Mutation(
        relations,
        "Relations._visible_rows",
        "shown.known_at is None or row.created_at <= shown.known_at",
        "True",
    ),
    "what-supersedes-is-hidden-with-what-it-hides": Mutation(
        relations, "Relations._visible_rows", "shown.superseded and", "False and"
    ),
    "what-was-retired-is-seen-as-it-is": Mutation(
        entries,
        "Entries._visible_at",
        "record if retired or (is_current(record, now) if at is None else is_active(record, at, now)) else"
        " None",
        "record",
    ),
}
