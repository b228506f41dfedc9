"""The clauses: every promise of the port, with an id and one sentence.

A clause also names the docstring that makes the promise, and the capability without
which it does not apply.

The list is kept by hand. A test of the contract cites the clauses that it proves with
`@clause("…")`. A clause without a test, and a test without a clause, stop the run
(`plugin.py`). So no promise is added or dropped unnoticed. Docstrings of the port cite
an id if a sentence has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])

MARK = "memory_clause"
EDITION = 3
"""The edition of the contract.

It grows when clauses or tests are added that an older store may fail.
"""


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise of the port.

    `where` names the docstring that makes it. `needs` names the capability, or hooks of
    the harness, that it belongs to. `edition` is the contract's edition that added it.
    """

    id: str
    says: str
    where: str
    needs: str = ""
    edition: int = 1


class UnknownClause(Exception):
    """A contract test cites a clause that does not exist."""


def clause(*ids: str, since: int = 1) -> Callable[[Test], Test]:
    """Mark a test that proves these clauses, or its part of them.

    It runs from the edition `since` on.
    """
    if unknown := [i for i in ids if i not in CLAUSES]:
        raise UnknownClause(
            f"no clause is called {', '.join(map(repr, unknown))}; see memory.ports.contract.clauses"
        )
    mark: Callable[[Test], Test] = getattr(pytest.mark, MARK)(*ids, since=since)
    return mark


_ALL = (
    # -- life
    Clause(
        "life.open",
        "No call works before open or after close; repeated or concurrent opening and closing counts once.",
        "Store.open, close",
    ),
    Clause(
        "life.close-keeps",
        "After a close in good order, the reopened store has the same data and finds the same.",
        "Store.close",
    ),
    Clause(
        "life.close-waits",
        "Closing waits for the calls in progress and returns, and the store may be opened again.",
        "Store.close",
    ),
    Clause("life.known", "A collection that the store was not opened with is refused by name.", "Store.open"),
    Clause(
        "declared.more",
        "A store opened with more fields keeps its records: old ones lack the fields, new ones are found by"
        " them.",
        "Store.open",
    ),
    Clause(
        "declared.fewer",
        "Undeclared fields stay with the records that have them, until a put replaces them.",
        "Store.open",
    ),
    Clause(
        "life.health",
        "A healthy store reports that it is healthy, its name and the server's run.",
        "Store.check, Health, Store.epoch",
    ),
    Clause("life.claims", "An opened store has exactly the expected capabilities.", "Store.capabilities"),
    Clause(
        "life.cancelled",
        "A cancelled call ends cancelled and is applied as a whole or not at all; the store works on.",
        "Store",
    ),
    Clause(
        "life.at-once",
        "Any number of calls may run at once; each reads and decides atomically.",
        "Store",
    ),
    Clause(
        "format.note",
        "A store that notes its format keeps the note exactly, swaps it in one step, and refuses a newer one.",
        "memory.ports.formats",
        edition=3,
    ),
    # -- keeping and answering
    Clause(
        "get.order",
        "`get` returns one answer for each key in the given order, None if nothing is stored, in any role or"
        " expiry.",
        "Store.get",
    ),
    Clause("get.latest", "A call sees every write that was acknowledged before it.", "Store.get"),
    Clause(
        "content.exact",
        "Content comes back exactly, including hostile texts and NUL.",
        "Record, FieldValue, JsonValue",
    ),
    Clause(
        "content.long",
        "Long bodies, texts, fields, tags and steps come back whole.",
        "Capabilities.max_record_bytes",
    ),
    Clause(
        "content.none", "A field of None is no field; empty text and empty tags are values.", "Record, IsNull"
    ),
    Clause("json.types", "JSON comes back as the same JSON text: true is not 1, 1 is not 1.0.", "JsonValue"),
    Clause("numbers.exact", "Integers keep all 64 bits, reals every bit.", "FieldType"),
    Clause(
        "moments.utc",
        "Moments keep their microseconds and come back in UTC, from any time zone.",
        "FieldValue",
    ),
    Clause(
        "bookkeeping.kept",
        "Role, tier, pending steps, previous, accesses, times and generation are kept like content.",
        "Record",
    ),
    Clause(
        "write.owing",
        "A pending step yields only to a write that has the same step, by its id, or settles it.",
        "PendingStep",
        "conditional",
    ),
    Clause("owed.untouched", "Steps are kept in order and unchanged until completed.", "PendingStep"),
    Clause("shared.nothing-in", "Changing an argument after the call changes nothing stored.", "Store"),
    Clause(
        "shared.nothing-out",
        "Changing a result changes nothing stored, and later writes change no result.",
        "Store",
    ),
    Clause("names.apart", "Similar tenants and scopes are kept apart in every call.", "Partition, Key"),
    Clause(
        "names.or-refused",
        "A name that a store cannot hold exactly is rejected, and other data are untouched.",
        "Partition, Key",
    ),
    Clause(
        "isolation.where",
        "A question sees only the asked partitions and collection.",
        "Partitions, Tenant, Collection",
    ),
    # -- refusing
    Clause(
        "refused.record",
        "A record with invalid parts is rejected, and the stored item stays.",
        "memory.ports.record_validation",
    ),
    Clause(
        "refused.writes",
        "Every kind of write rejects the same invalid values.",
        "memory.ports.record_validation",
    ),
    Clause(
        "refused.names", "A name with half of a surrogate pair is refused.", "memory.ports.record_validation"
    ),
    Clause(
        "refused.ids",
        "A record's id belongs to its partition; an invalid id is refused in every write and question.",
        "Key, memory.domain.ids",
    ),
    Clause(
        "refused.by-name",
        "A rejection names the field and the limit, and no content of the record.",
        "Outcome.reason",
    ),
    Clause(
        "refused.questions",
        "Wrong limits, cursors, orders, filters and vectors are InvalidInput by name; valid ones at the edge"
        " are answered.",
        "Query, Search, decode_cursor",
    ),
    # -- writes
    Clause(
        "apply.order",
        "Writes are applied in order; a later one sees the earlier ones; each has one outcome.",
        "Store.apply",
    ),
    Clause("apply.neighbours", "One bad write never fails its batch.", "Store.apply"),
    Clause(
        "apply.repeatable",
        "A write applied twice leaves the same state as applied once.",
        "memory.ports.writes",
    ),
    Clause(
        "write.table",
        "Conditions hold on the stored item by the table; a conflict returns the stored item.",
        "memory.ports.writes",
        "conditional",
    ),
    Clause(
        "write.roles",
        "Role and tier in a condition require exactly that role and tier of a live copy.",
        "AtVersion",
        "conditional",
    ),
    Clause("put.whole", "A put replaces the whole record.", "Put"),
    Clause(
        "put.erases",
        "After a put with `erases`, nothing of the replaced item is read or found.",
        "Put",
        edition=2,
    ),
    Clause(
        "delete.leaves",
        "A deletion leaves a tombstone with the given values, also if nothing was stored.",
        "Delete",
        "conditional",
    ),
    Clause(
        "delete.nothing-said",
        "Nothing of a deleted record's content stays readable or found.",
        "Delete",
        "conditional",
    ),
    Clause(
        "delete.stays",
        "A stale copy does not restore a deleted record; a newer one starts again.",
        "Newer, AtVersion",
        "conditional",
    ),
    Clause(
        "release.mark",
        "A release leaves a mark; repeated on its own mark it is applied and changes nothing.",
        "Release",
        "conditional",
    ),
    Clause(
        "release.home", "Only the home copy at exactly that version is released.", "Release", "conditional"
    ),
    Clause(
        "annotate.only",
        "An annotation changes only the requested bookkeeping.",
        "Annotate",
        "conditional",
    ),
    Clause(
        "annotate.expiry",
        "An annotation moves an expiry to a later moment only, and the store deletes by the later one.",
        "Annotate",
        "conditional",
    ),
    Clause(
        "annotate.holds",
        "It applies at exactly that version and role, and to marks and tombstones only for the values they"
        " have.",
        "Annotate",
        "conditional",
    ),
    Clause(
        "purge.holds",
        "Marks, tombstones and cached copies are purged, arriving ones by their role, and nothing else.",
        "Purge",
        "conditional",
    ),
    Clause(
        "generation.counts",
        "Generations start at 0, never fall, belong to one partition, and count every raise.",
        "RaiseGeneration",
    ),
    Clause(
        "generation.binds",
        "A record of an erased generation is rejected under any condition, in every collection.",
        "Put",
    ),
    Clause(
        "generation.stamps",
        "A record without a generation gets the current one; a record with one keeps it.",
        "Put",
    ),
    # -- questions
    Clause(
        "query.all",
        "The pages of a query return every match, and each but the last is as long as its limit.",
        "Query",
    ),
    Clause("query.order", "Orders are total: missing values low, ties by id.", "Query", "order"),
    Clause(
        "query.text-order",
        "A text in `orders` lists a partition by code points; it is required and bounded.",
        "Collection.orders",
    ),
    Clause("query.pages", "Pages lose and repeat nothing under ties, inserts and deletions.", "Query"),
    Clause(
        "query.cursor",
        "Cursors are the same on every store; an invalid cursor is refused.",
        "memory.ports.query",
    ),
    Clause("query.roles", "Only records in the requested roles are returned.", "Query"),
    Clause(
        "query.left", "Marks and tombstones are listed everywhere, separately, filtered and paged.", "Query"
    ),
    Clause(
        "filter.holds",
        "Every operator holds exactly as documented, including missing values and nesting.",
        "memory.ports.query",
        "filter",
    ),
    Clause(
        "filter.prefix",
        "`StartsWith` finds the texts that begin with the prefix, character by character, and no others.",
        "StartsWith",
        "filter",
    ),
    Clause(
        "filter.json",
        "A filter on values in bodies misses no record; the store makes each comparison exactly, or not at all.",
        "JsonPath",
        "filter",
    ),
    Clause("filter.zones", "A moment in a filter is the same moment in any zone.", "FieldValue", "filter"),
    Clause(
        "count.exact",
        "A count returns the number of matches and their rough size, ignoring limit and cursor;"
        " `counted_bytes` predicts a record's size.",
        "Store.count, counted_bytes",
    ),
    Clause(
        "everywhere.all",
        "Questions for a whole tenant and for everywhere return everything there.",
        "Tenant, Everywhere",
        "tenant_wide",
    ),
    Clause(
        "under.exact",
        "Questions for `Under` return everything in exactly those scopes of the tenant, each record once.",
        "Under",
        "tenant_wide",
        edition=2,
    ),
    Clause(
        "under.pages",
        "Their pages keep the order over all scopes, and lose and repeat nothing.",
        "Under, Query",
        "tenant_wide",
        edition=2,
    ),
    Clause(
        "under.found",
        "Searches and candidates there have the statistics of all those scopes and of no other.",
        "Under, Search, Candidates",
        "tenant_wide",
        edition=2,
    ),
    Clause(
        "under.erased",
        "`delete_matching` there deletes matches and corrupt records of those scopes only.",
        "Under, Store.delete_matching",
        "tenant_wide",
        edition=2,
    ),
    Clause(
        "partitions.exact",
        "Every partition with a live record or a generation is listed once with its generation, and no"
        " other.",
        "Store.partitions",
        "tenant_wide",
    ),
    Clause(
        "partitions.pages",
        "Their pages lose and repeat nothing; a prefix matches scopes exactly.",
        "Store.partitions",
        "tenant_wide",
    ),
    Clause(
        "erase.matches",
        "`delete_matching` leaves tombstones above both versions for exactly the records that a query finds.",
        "Store.delete_matching",
    ),
    Clause("erase.all", "It deletes all matches, ignoring limit and cursor.", "Store.delete_matching"),
    Clause(
        "erase.files",
        "After a vacuum, text that was deleted or erased by a put is in no file of the store.",
        "Store.vacuum, Put.erases",
        "files",
        edition=2,
    ),
    Clause("erase.carries", "Tombstones keep only the named pending steps.", "Store.delete_matching"),
    Clause(
        "due.exact",
        "Rows with pending steps, arriving, expired or discardable rows are reported with the reason, and no"
        " others.",
        "Store.due, DueReason",
        "tenant_wide",
    ),
    Clause(
        "due.pages",
        "Pages of due rows lose and repeat nothing while rows are processed, and they end.",
        "Store.due",
        "tenant_wide",
    ),
    Clause(
        "search.limit",
        "A search returns at most `limit` hits, best first, ties by id, and filters before the limit.",
        "Store.search",
    ),
    Clause(
        "heads.exact",
        "Heads carry exactly the values that `select` names, and identify the copy.",
        "Query.select, Search.select",
    ),
    Clause(
        "heads.pages",
        "Pages of heads are the pages of the records: the same order, cursors and corrupt keys.",
        "Query.select",
    ),
    Clause(
        "search.heads",
        "With any selection, the hits are the same copies with the same scores.",
        "Search.select",
    ),
    Clause(
        "lexical.words",
        "Any content word finds a record; text is never syntax; analysis follows the adapter's table.",
        "Words",
        "lexical",
    ),
    Clause(
        "lexical.ranks",
        "Weights, rarity and length determine the rank.",
        "Words, memory.ports.text",
        "lexical",
    ),
    Clause(
        "lexical.follows",
        "Search by words sees every write at once.",
        "Store.get, Words",
        "lexical",
    ),
    Clause(
        "semantic.nearest",
        "The nearest by cosine come first, with cosines as scores.",
        "Near, Hit",
        "semantic",
    ),
    Clause(
        "semantic.follows",
        "Search by meaning sees every write at once.",
        "Store.get, Near",
        "semantic",
    ),
    Clause(
        "candidates.found",
        "Candidates are the best by each way, each once, and nothing that the question excludes.",
        "Store.candidates",
    ),
    Clause(
        "candidates.around",
        "Candidates include the neighbours in the same partition and group.",
        "Neighbourhood",
    ),
    Clause("candidates.among", "Candidates include the records that are named.", "Candidates.among"),
    Clause(
        "candidates.measured",
        "Each candidate is measured by the content of its record.",
        "CandidateColumns",
        "filter",
    ),
    Clause(
        "candidates.statistics",
        "Statistics count all records of the question, before the filter.",
        "Statistics",
    ),
    Clause(
        "specification",
        "Random work has the same outcomes and answers as on the store in memory.",
        "memory.adapters.in_memory",
    ),
    # -- capabilities
    Clause("flag.works", "A claimed capability works.", "Capabilities"),
    Clause("flag.refused", "A capability that is not claimed is refused by name.", "Capabilities"),
    Clause(
        "limit.binds",
        "A limit binds at exactly its number; without a limit there is none.",
        "Capabilities",
    ),
    Clause(
        "durable.survives",
        "Acknowledged writes survive the death of process and server.",
        "Capabilities.durable",
        "durable",
    ),
    Clause(
        "loss.window",
        "Writes acknowledged longer ago than `loss_window` survive the death of process and server.",
        "Capabilities.loss_window",
        "loss_window",
        edition=2,
    ),
    Clause(
        "epoch.tells", "The epoch of a store that may lose data changes when it was restarted.", "Store.epoch"
    ),
    Clause(
        "damage.apart",
        "A damaged record is returned as corrupt, and its neighbours are served.",
        "Corrupt",
        "durable",
    ),
    Clause(
        "damage.counted",
        "A damaged record counts once it was found, until it is deleted.",
        "Health",
        "durable",
    ),
    Clause(
        "damage.named",
        "An audit names every damaged record, found before or not; all count from then on.",
        "Store.audit",
        "durable",
    ),
    Clause(
        "damage.writes",
        "No condition on the stored item holds for a corrupt record; a new write repairs it.",
        "memory.ports.writes",
        "durable",
    ),
    Clause(
        "damage.erased",
        "Erasure reaches a corrupt record of the given partitions and no other.",
        "Store.delete_matching",
        "durable",
    ),
    Clause(
        "shared.sees",
        "Clients see each other's acknowledged writes at once, in every question.",
        "Capabilities.shared",
        "shared",
    ),
    Clause(
        "shared.processes",
        "Processes see each other's acknowledged writes at once, and no increment of either is lost.",
        "Capabilities.shared",
        "address",
        edition=2,
    ),
    Clause(
        "shared.decides",
        "Every kind of write is decided atomically between clients.",
        "Capabilities.conditional",
        "shared",
    ),
    Clause("shared.erases", "A generation that another client raised binds at once.", "Put", "shared"),
    Clause(
        "ttl.kinds",
        "Expired cached copies, marks and tombstones are deleted, other records never; without the flag"
        " nothing is.",
        "Capabilities.ttl",
    ),
    Clause(
        "ttl.owing",
        "An item with a pending step is kept until the step is completed.",
        "Mark, Tombstone",
        "ttl",
    ),
    Clause(
        "ttl.not-early", "Nothing is deleted before its time.", "Mark, Tombstone, Capabilities.ttl", "ttl"
    ),
    Clause(
        "atomic.together",
        "With `together` all is kept or nothing, also in generations and indexes.",
        "Store.apply",
        "atomic",
    ),
    Clause(
        "atomic.cut-off",
        "An interrupted call is kept whole or not at all.",
        "Capabilities.atomic",
        "atomic",
    ),
    Clause(
        "grouped.together",
        "Writes of one partition and collection are kept whole or not at all with `together`.",
        "Capabilities.grouped",
        "grouped",
    ),
    Clause(
        "fenced.holds",
        "No record of a lower generation exists after a raise was acknowledged; otherwise one repeat of an"
        " erasure deletes it.",
        "Capabilities.fenced",
    ),
    Clause(
        "statistics.own",
        "Other tenants' data changes neither rank nor score.",
        "Capabilities.tenant_statistics",
        "tenant_statistics",
    ),
    # -- servers, building, room, upkeep
    Clause(
        "remote.in-time",
        "Calls to a server that freezes or dies end in time, and the store works on.",
        "Store, StoreUnavailable",
        "remote",
    ),
    Clause(
        "remote.kept",
        "Writes acknowledged while the server failed are there when it is back.",
        "Capabilities.durable",
        "remote",
    ),
    Clause("build.refuses", "A wrong URL or option is refused as ConfigError by name.", "Adapter", "built"),
    Clause("build.no-io", "Building does no I/O.", "Adapter", "built"),
    Clause("build.no-secrets", "No message shows a secret.", "Adapter, Store.name", "built"),
    Clause(
        "full.said",
        "A full store raises StoreFull, serves its data, and works again when there is space.",
        "StoreFull",
        "cramped",
    ),
    Clause(
        "full.nothing-kept",
        "Nothing of the failed call is kept, and every acknowledged write is.",
        "StoreFull",
        "cramped",
    ),
    Clause("upkeep.audit", "An audit of a healthy store finds nothing and changes nothing.", "Store.audit"),
    Clause(
        "upkeep.repairs",
        "An audit reports damage to derived data, and rebuilds them with `repair`.",
        "Store.audit",
        "derived",
    ),
    Clause("upkeep.vacuum", "A vacuum changes no answer.", "Store.vacuum"),
    Clause("upkeep.idle", "A partition is idle exactly if nothing is stored in it.", "Store.idle_partitions"),
    Clause(
        "upkeep.forget",
        "Only an idle partition at the given generation is forgotten, and it starts again at 0.",
        "Store.forget_partitions",
    ),
)

CLAUSES: Mapping[str, Clause] = MappingProxyType({c.id: c for c in _ALL})
"""Every clause by its id."""
