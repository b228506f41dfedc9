"""Every promise of the port, as a clause: its id, one sentence, where it is promised,
and the capability without which it binds nobody.

Kept by hand. A test of the contract cites what it proves with `@clause("…")`; a clause
without a test, and a test without a clause, stop the run (`plugin.py`), so that a
promise cannot be added or dropped in silence. Docstrings of the port cite an id where a
sentence has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])

MARK = "memory_clause"
EDITION = 2
"""The edition of the contract: it grows when clauses or tests are added that a store of
before may fail.
"""


@dataclass(frozen=True, slots=True)
class Clause:
    """One promise. `where` is the docstring that makes it; `needs` the capability, or
    hooks of the harness, it belongs to.

    `edition` is that of the contract in which it came.
    """

    id: str
    says: str
    where: str
    needs: str = ""
    edition: int = 1


class UnknownClause(Exception):
    """A contract test cites a clause that does not exist."""


def clause(*ids: str, since: int = 1) -> Callable[[Test], Test]:
    """The test proves these clauses, or its part of them. It is asked from the edition
    `since` on.
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
        "Nothing works before open and after close; opening and closing twice, or from many tasks, is once.",
        "Store.open, close",
    ),
    Clause(
        "life.close-keeps",
        "What was closed in good order is as it was when opened again, what it is found by too.",
        "Store.close",
    ),
    Clause(
        "life.close-waits",
        "Closing lets calls under way end, returns, and the store may be opened again.",
        "Store.close",
    ),
    Clause("life.known", "A collection the store was not opened with is refused by name.", "Store.open"),
    Clause(
        "declared.more",
        "Opened with fields more, a store keeps what it has: old records lack them, new ones are found by them.",
        "Store.open",
    ),
    Clause(
        "declared.fewer",
        "What a store does not declare stays with the records that have it, until a put replaces them.",
        "Store.open",
    ),
    Clause(
        "life.health",
        "A healthy store says so, has a name, and tells the run it is of.",
        "Store.check, Health, Store.epoch",
    ),
    Clause("life.claims", "An opened store claims what it is known to claim.", "Store.capabilities"),
    Clause(
        "life.cancelled",
        "A cancelled call ends cancelled, happened as a whole or not at all, and the store works on.",
        "Store",
    ),
    Clause(
        "life.at-once",
        "Any number of calls may be under way; each decides on what it finds in one step.",
        "Store",
    ),
    # -- keeping and answering
    Clause(
        "get.order",
        "One answer a key, in the order asked, None where nothing is, whatever the role or expiry.",
        "Store.get",
    ),
    Clause("get.latest", "Every write acknowledged before a call is seen by it.", "Store.get"),
    Clause(
        "content.exact",
        "Content comes back exactly, hostile texts and NUL included.",
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
        "Moments keep their microseconds and come back in UTC, whatever zone they came in.",
        "FieldValue",
    ),
    Clause(
        "bookkeeping.kept",
        "Role, tier, what is owed, previous, accesses, times and generation are kept as content is.",
        "Record",
    ),
    Clause(
        "write.owing",
        "What owes gives way only to a write that owes the same step, by its id, or settles it.",
        "Owed",
        "conditional",
    ),
    Clause("owed.untouched", "Steps are kept in order and untouched until settled.", "Owed"),
    Clause("shared.nothing-in", "What was handed in, changed later, changes nothing stored.", "Store"),
    Clause(
        "shared.nothing-out",
        "What was handed out, changed by its holder, changes nothing stored; nor do later writes change it.",
        "Store",
    ),
    Clause(
        "names.apart", "Tenants and scopes that are alike are held apart, in every call.", "Partition, Key"
    ),
    Clause(
        "names.or-refused",
        "A name that a store does not hold as it is is rejected, and touches nothing else.",
        "Partition, Key",
    ),
    Clause(
        "isolation.where",
        "A question sees the asked partitions and collection, and nothing of others.",
        "Partitions, Tenant, Collection",
    ),
    # -- refusing
    Clause(
        "refused.record",
        "What no store keeps of a record is rejected, and what stood there stands.",
        "memory.ports.record_validation",
    ),
    Clause("refused.writes", "So it is in every kind of write.", "memory.ports.record_validation"),
    Clause("refused.names", "Half a character in a name is refused.", "memory.ports.record_validation"),
    Clause(
        "refused.ids",
        "A record has an id of its partition; what is no id stands in no write and no question.",
        "Key, memory.domain.ids",
    ),
    Clause(
        "refused.by-name",
        "A rejection names field and limit, and nothing of what the record says.",
        "Outcome.reason",
    ),
    Clause(
        "refused.questions",
        "Wrong limits, cursors, orders, filters and vectors are InvalidInput by name; what lies just inside is answered.",
        "Query, Search, decode_cursor",
    ),
    # -- writes
    Clause(
        "apply.order",
        "Writes are carried out in order; a later one sees the earlier ones; one answer each.",
        "Store.apply",
    ),
    Clause("apply.neighbours", "One bad write never fails its batch.", "Store.apply"),
    Clause(
        "apply.repeatable",
        "A write applied twice leaves what applying it once leaves.",
        "memory.ports.writes",
    ),
    Clause(
        "write.table",
        "Conditions meet what stands there by the table; a conflict says what stands.",
        "memory.ports.writes",
        "conditional",
    ),
    Clause(
        "write.roles",
        "Role and tier in a condition ask for exactly that role and tier of a live copy.",
        "AtVersion",
        "conditional",
    ),
    Clause("put.whole", "A put replaces the whole record.", "Put"),
    Clause(
        "put.erases", "With `erases` nothing of what stood there is read or found any more.", "Put", edition=2
    ),
    Clause(
        "delete.leaves",
        "A deletion leaves a tombstone with what it was given, also where nothing stood.",
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
        "A stale copy does not bring a deleted record back; a newer one begins again.",
        "Newer, AtVersion",
        "conditional",
    ),
    Clause(
        "release.mark",
        "A release leaves a mark; repeated on its own mark it is applied without change.",
        "Release",
        "conditional",
    ),
    Clause(
        "release.home", "Only the home copy at exactly that version is released.", "Release", "conditional"
    ),
    Clause(
        "annotate.only",
        "An annotation changes the bookkeeping asked for and nothing else.",
        "Annotate",
        "conditional",
    ),
    Clause(
        "annotate.holds",
        "It applies at exactly that version and role, and to the dead only for what they have.",
        "Annotate",
        "conditional",
    ),
    Clause(
        "purge.holds",
        "Marks, tombstones and cached copies are purged, arriving ones by their role, nothing else.",
        "Purge",
        "conditional",
    ),
    Clause(
        "generation.counts",
        "Generations start at 0, never fall, are the partition's own, and are all counted.",
        "RaiseGeneration",
    ),
    Clause(
        "generation.binds",
        "A record of an erased generation is rejected whatever the condition, in every collection.",
        "Put",
    ),
    Clause(
        "generation.stamps",
        "A record without one takes the current; one that brings its own keeps it.",
        "Put",
    ),
    # -- questions
    Clause(
        "query.all",
        "The pages of a query, each as long as its limit but the last, answer everything that matches.",
        "Query",
    ),
    Clause("query.order", "Orders are total: missing values low, ties by id.", "Query", "order"),
    Clause("query.pages", "Pages lose and repeat nothing, under ties, inserts and deletions.", "Query"),
    Clause(
        "query.cursor", "Cursors are the same on every store; what is none is refused.", "memory.ports.query"
    ),
    Clause("query.roles", "Only the asked roles are answered.", "Query"),
    Clause("query.left", "Marks and tombstones are listed everywhere, apart, filtered and paged.", "Query"),
    Clause(
        "filter.holds",
        "Every operator holds for exactly what it says, missing values and nesting included.",
        "memory.ports.query",
        "filter",
    ),
    Clause(
        "filter.prefix",
        "`StartsWith` finds the texts that begin so, character by character, and no others.",
        "StartsWith",
        "filter",
    ),
    Clause("filter.zones", "A moment in a filter is the same moment in any zone.", "FieldValue", "filter"),
    Clause(
        "count.exact",
        "A count tells how many match, and roughly what they take, whatever limit and cursor; `counted_bytes` tells it of a record before it stands.",
        "Store.count, counted_bytes",
    ),
    Clause(
        "everywhere.all",
        "A whole tenant and everywhere answer everything there.",
        "Tenant, Everywhere",
        "tenant_wide",
    ),
    Clause(
        "partitions.exact",
        "Every partition with a live record or a generation is named once with it, and no other.",
        "Store.partitions",
        "tenant_wide",
    ),
    Clause(
        "partitions.pages",
        "Their pages lose and repeat nothing; a prefix is of scopes, to the letter.",
        "Store.partitions",
        "tenant_wide",
    ),
    Clause(
        "erase.matches",
        "Deleting what matches leaves tombstones above both versions for exactly what a query finds.",
        "Store.delete_matching",
    ),
    Clause("erase.all", "However many there are, limit and cursor aside.", "Store.delete_matching"),
    Clause(
        "erase.files",
        "After a vacuum, text that was deleted, or replaced by an erasing put, is in no file of the store.",
        "Store.vacuum, Put.erases",
        "files",
        edition=2,
    ),
    Clause(
        "erase.carries", "Tombstones go on owing the steps named and nothing else.", "Store.delete_matching"
    ),
    Clause(
        "due.exact",
        "What owes, arrives, has expired or may be discarded is told with why, and nothing else.",
        "Store.due, Why",
        "tenant_wide",
    ),
    Clause(
        "due.pages",
        "Pages of what is due lose and repeat nothing, whatever is seen to in between, and end.",
        "Store.due",
        "tenant_wide",
    ),
    Clause(
        "search.limit",
        "At most `limit` hits, best first, ties by id, the filter before the limit.",
        "Store.search",
    ),
    Clause(
        "heads.exact",
        "Heads carry exactly what `select` names, and tell which copy it is.",
        "Query.select, Search.select",
    ),
    Clause(
        "heads.pages",
        "Pages of heads are the pages of the records: the same order, cursors and corrupt keys.",
        "Query.select",
    ),
    Clause(
        "search.heads",
        "Whatever is selected, the hits are of the same copies with the same scores.",
        "Search.select",
    ),
    Clause(
        "lexical.words",
        "Any content word finds; text is never syntax; analysis is the table's.",
        "Words",
        "lexical",
    ),
    Clause("lexical.ranks", "Weights, rarity and length rank.", "Words, memory.ports.text", "lexical"),
    Clause(
        "lexical.follows",
        "What is found by words follows every write at once.",
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
        "What is found by meaning follows every write at once.",
        "Store.get, Near",
        "semantic",
    ),
    Clause(
        "candidates.found",
        "The best by each way and nothing that the question does not let through, each once.",
        "Store.candidates",
    ),
    Clause("candidates.around", "And what stands beside them, in their partition and group.", "Around"),
    Clause("candidates.among", "And those that are named.", "Candidates.among"),
    Clause("candidates.measured", "Each is measured by what its record says.", "Measured", "filter"),
    Clause("candidates.statistics", "What there is in all is counted, whatever the filter.", "Statistics"),
    Clause(
        "specification",
        "Random work has the outcomes and answers of the store in memory.",
        "memory.adapters.in_memory",
    ),
    # -- capabilities
    Clause("flag.works", "What is claimed works.", "Capabilities"),
    Clause("flag.refused", "What is not claimed is refused by name.", "Capabilities"),
    Clause(
        "limit.binds",
        "A limit binds at exactly its number, and there is none where none is set.",
        "Capabilities",
    ),
    Clause(
        "durable.survives",
        "What was acknowledged survives the death of process and server.",
        "Capabilities.durable",
        "durable",
    ),
    Clause(
        "loss.window",
        "What was acknowledged longer ago than `loss_window` survives the death of process and server.",
        "Capabilities.loss_window",
        "loss_window",
        edition=2,
    ),
    Clause(
        "epoch.tells", "A store that may lose data tells by its epoch that it was restarted.", "Store.epoch"
    ),
    Clause(
        "damage.apart",
        "A damaged record is answered as corrupt, and its neighbours are served.",
        "Corrupt",
        "durable",
    ),
    Clause("damage.counted", "What was found damaged is counted, until it is deleted.", "Health", "durable"),
    Clause(
        "damage.named",
        "An audit names every damaged record, met or not, which is counted from then on.",
        "Store.audit",
        "durable",
    ),
    Clause(
        "damage.writes",
        "No condition on what stands holds for a corrupt record; a new write heals.",
        "memory.ports.writes",
        "durable",
    ),
    Clause(
        "damage.erased",
        "Erasure reaches a corrupt record of the asked partitions and no other.",
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
        "Every kind of write is decided in one place, whoever brings it.",
        "Capabilities.conditional",
        "shared",
    ),
    Clause("shared.erases", "A generation that another client raised binds at once.", "Put", "shared"),
    Clause(
        "ttl.kinds",
        "Cached copies, marks and tombstones past their time are forgotten, other records never; without the flag nothing is.",
        "Capabilities.ttl",
    ),
    Clause("ttl.owing", "What owes a step is not forgotten until it is settled.", "Mark, Tombstone", "ttl"),
    Clause(
        "ttl.not-early", "Nothing is forgotten before its time.", "Mark, Tombstone, Capabilities.ttl", "ttl"
    ),
    Clause(
        "atomic.together",
        "Together all is kept or nothing, in generations and indexes too.",
        "Store.apply",
        "atomic",
    ),
    Clause(
        "atomic.cut-off",
        "A call that is cut off is kept whole or not at all.",
        "Capabilities.atomic",
        "atomic",
    ),
    Clause(
        "fenced.holds",
        "No record of a lower generation stands once a raise was acknowledged; one repeat of an erasure takes it.",
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
        "What was acknowledged while the server failed is there when it is back.",
        "Capabilities.durable",
        "remote",
    ),
    Clause("build.refuses", "A wrong URL or option is refused as ConfigError by name.", "Adapter", "built"),
    Clause("build.no-io", "Building does no I/O.", "Adapter", "built"),
    Clause("build.no-secrets", "No message shows a secret.", "Adapter, Store.name", "built"),
    Clause(
        "full.said",
        "A full store raises StoreFull, serves what it has, and works again when there is room.",
        "StoreFull",
        "cramped",
    ),
    Clause(
        "full.nothing-kept",
        "Nothing of the failed call was kept, everything acknowledged was.",
        "StoreFull",
        "cramped",
    ),
    Clause("upkeep.audit", "An audit of a healthy store finds nothing and changes nothing.", "Store.audit"),
    Clause(
        "upkeep.repairs",
        "An audit tells of damage to what is derived, and makes it anew where asked.",
        "Store.audit",
        "derived",
    ),
    Clause("upkeep.vacuum", "A vacuum changes nothing that can be asked.", "Store.vacuum"),
    Clause("upkeep.idle", "A partition is idle exactly where nothing stands in it.", "Store.idle_partitions"),
    Clause(
        "upkeep.forget",
        "Only an idle partition at the given generation is forgotten, and begins anew.",
        "Store.forget_partitions",
    ),
)

CLAUSES: Mapping[str, Clause] = MappingProxyType({c.id: c for c in _ALL})
"""Every clause by its id."""
