"""Every error a caller can meet. Each says what was wrong, where, and what to do; none
prints a secret or shadows a builtin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from memory.domain.entry import Entry
    from memory.domain.hold import LegalHold

NAMED = 20
"""Ids that an error's text names; its attributes have them all."""


class Portable(Exception):
    """An exception that can be copied and pickled whatever its constructor takes: its
    arguments and attributes come back as they were.
    """

    def __reduce__(
        self,
    ) -> tuple[Callable[..., BaseException], tuple[type[BaseException], tuple[Any, ...], Mapping[str, Any]]]:
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(
    kind: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class MemoryTiersError(Portable):
    """The base of every error raised on purpose by this library. Each can be pickled,
    and leaves a process pool as it was raised.
    """


class InvalidInput(MemoryTiersError, ValueError):
    """Input refused at the door, before any store was touched. `field` names what was
    wrong.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class WrongArguments(InvalidInput, TypeError):
    """A call with arguments that its signature does not accept. Its text names the right
    ones. It is a `TypeError`, as Python's own is, and an `InvalidInput`.
    """

    def __init__(self, names: str, problem: str, *, field: str | None = None) -> None:
        super().__init__(names, problem)
        self.field = field or names


class NotFound(MemoryTiersError, LookupError):
    """Nothing live under this id for this tenant: unknown, foreign, deleted, expired
    and retired are one answer (D13, D23, D26).
    """

    def __init__(self, entry_id: str, kind: str = "entry") -> None:
        super().__init__(f"Memory {kind} not found: {entry_id}")
        self.entry_id = entry_id
        self.kind = kind


class Conflict(MemoryTiersError):
    """The call meets something already stored. `existing_id` names it where there is
    one (D40, decision A5).

    `deleted_at` says when it was deleted: then the key is taken, and nothing stands
    under it.
    """

    def __init__(
        self, problem: str, existing_id: str | None = None, *, deleted_at: datetime | None = None
    ) -> None:
        super().__init__(f"{problem} (existing: {existing_id})" if existing_id else problem)
        self.existing_id = existing_id
        self.deleted_at = deleted_at


_CHANGED_BY_UPDATE = {
    "system": "another system message",
    "title": "another title",
    "tags": "other tags",
    "metadata": "other metadata",
    "expires_at": "another expiry",
}
"""What a session is created with and `sessions.update` changes."""


class SessionOwnerMismatch(Conflict):
    """A session of this id exists and belongs to another user, agent or namespace, or
    was created otherwise. Nothing of it was read.

    `field` names what differs. What is stored is not told: it is the owner's.
    """

    def __init__(self, session_id: str, field: str, given: str | None, file: str | None = None) -> None:
        """`file` is the name of an import whose session has this id."""
        if file is not None:
            whose = f"that of the file {'belongs to none' if given is None else f'is of {given!r}'}"
            problem = (
                f"{field}: session '{session_id}' exists and belongs to another {field}, and {whose}; nothing was imported from {file}. "
                "Delete the session here, or leave that of the file out (skip_bad, on the command line --skip-bad)"
            )
        elif field == "shared":
            problem = f"shared: session '{session_id}' exists and is not shared. Omit shared=, or create a session of another id with shared=True"
        elif (stored := _CHANGED_BY_UPDATE.get(field)) is not None:
            problem = (
                f"{field}: session '{session_id}' has {stored}. "
                f"Omit {field}= to keep it, or change it with memory.sessions.update(session_id, {field}=…)"
            )
        else:
            problem = (
                f"{field}: session '{session_id}' exists and does not belong to {field} '{given}'. Session ids are unique per tenant: "
                f"make the id part of yours, as in f'{{{field}}}/{{name}}', omit {field}= to accept the stored one, "
                "or create the session with shared=True"
            )
        super().__init__(problem)
        self.existing_id = session_id
        self.field = field


class PartialWrite(Conflict):
    """Of several drafts written together some were in conflict; every other one is
    stored.

    `written` holds the entries stored, or found stored before under their key, and
    `conflicts` what stood against the rest; both by the position of their draft in the
    call.
    """

    def __init__(self, written: Mapping[int, Entry], conflicts: Mapping[int, Conflict]) -> None:
        first = min(conflicts)
        named = ", ".join(map(str, sorted(conflicts)[:20])) + ", …" * (len(conflicts) > 20)
        super().__init__(
            f"of {len(written) + len(conflicts)} drafts {len(conflicts)} were not stored, at position {named}; all others are. "
            f"Position {first}: {conflicts[first]}"
        )
        self.existing_id = conflicts[first].existing_id
        self.deleted_at = conflicts[first].deleted_at
        self.written = dict(written)
        self.conflicts = dict(conflicts)


class LegalHoldActive(MemoryTiersError):
    """What was to be deleted, or overwritten so that its text is lost, is under legal
    hold and stays as it is. `holds` has each.
    """

    def __init__(self, *holds: LegalHold) -> None:
        names = list(dict.fromkeys(hold.name for hold in holds))
        over = list(dict.fromkeys(hold.target for hold in holds))
        more = f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
        super().__init__(
            f"under legal hold {', '.join(map(repr, names[:NAMED]))}, over the {', the '.join(over[:NAMED])}{more}: "
            "nothing was deleted or overwritten; remove the hold first (memory.admin.legal_holds.remove, `memory legal-holds remove`)"
        )
        self.holds = holds


class RejectedByGate(MemoryTiersError):
    """The write gate refused a draft, or the draft comes from a blocked source.

    Nothing of the call was stored. `reason` says why; `position` is that of the first
    refused draft in the call.
    """

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"refused, and nothing was written: {reason}")
        self.reason = reason
        self.position = position


class QuotaExceeded(MemoryTiersError):
    """A write beyond a quota, of which nothing was stored. `quota` is its name; `most`,
    `held` and `asked` are in its `measure`.

    Of an import beside other writers a part may be imported: `imported` names its file.
    The message says how many lines are, and from which line on the rest begins.
    """

    def __init__(
        self,
        quota: str,
        where: str,
        measure: str,
        most: int,
        held: int,
        asked: int,
        imported: str | None = None,
        so_far: str = "",
    ) -> None:
        came = f"nothing was written: delete some, write less at once, or raise [[quotas]] '{quota}'"
        if imported is not None:
            came = f"{so_far}: delete some, or raise [[quotas]] '{quota}', and import the same file again; nothing is written twice"
        super().__init__(
            f"quota '{quota}': {where} holds {held:,} of at most {most:,} {measure}, and this would add {asked:,}; {came}"
        )
        self.quota = quota
        self.where = where
        self.measure = measure
        self.most = most
        self.held = held
        self.asked = asked
        self.imported = imported


class ScratchpadFull(MemoryTiersError):
    """An append to a scratchpad beyond its cap (D130). Nothing was written; what stands
    there stays as it is.
    """

    def __init__(self, agent: str | None, most: int, held: int, asked: int) -> None:
        whose = "the shared scratchpad" if agent is None else f"the scratchpad of agent '{agent}'"
        super().__init__(
            f"{whose} holds {held:,} of at most {most:,} bytes, and this would add {asked:,} with its header; nothing was written: "
            "clear it first (memory.scratchpads.clear, `memory scratchpad clear`)"
        )
        self.agent = agent
        self.most = most
        self.held = held
        self.asked = asked


class TooMuchContention(MemoryTiersError):
    """Others changed the same entry all the time that there was for this change, which
    was not made. No store is at fault; try again later.
    """

    retryable = True

    def __init__(self, entry_id: str, waited: timedelta) -> None:
        super().__init__(
            f"entry {entry_id} was being changed by others for {waited.total_seconds():g} s; nothing was changed by this call: try again"
        )
        self.entry_id = entry_id
        self.waited = waited


class InvalidScopePromotion(MemoryTiersError):
    """A promotion that the matrix of A59-A61 does not allow. Nothing was written or
    deleted (A62).
    """

    def __init__(self, source: str, target: str) -> None:
        super().__init__(f"Cannot promote memory from {source} scope to {target} scope.")
        self.source = source
        self.target = target


class CompactionError(MemoryTiersError):
    """A compaction that was refused or whose callback failed; sources are as they were
    (A73-A78).
    """

    def __init__(
        self, source_entry_ids: Sequence[str], problem: str, of: Literal["entries", "messages"] = "entries"
    ) -> None:
        more = f" and {len(source_entry_ids) - NAMED} more" if len(source_entry_ids) > NAMED else ""
        super().__init__(
            f"Compaction failed for {of} [{', '.join(source_entry_ids[:NAMED])}]{more}: {problem}"
        )
        self.source_entry_ids = tuple(source_entry_ids)


class ProviderFailure(MemoryTiersError):
    """Parts of a composite provider failed; every other one did what it was asked
    (C51). `failed` has what each said, by its name.
    """

    def __init__(self, call: str, failed: Mapping[str, str]) -> None:
        super().__init__(
            f"{call} failed for {'; '.join(f'{name}: {problem}' for name, problem in failed.items())}"
        )
        self.call = call
        self.failed = dict(failed)


class StoreAddFailure(MemoryTiersError):
    """Of what was to be kept in several stores something was not; all else is (E30,
    E38). `stores` names those that failed, and `causes` has what each raised, in the
    same order.
    """

    def __init__(self, failed: int, entries: int, causes: Sequence[tuple[str, BaseException]]) -> None:
        said = "; ".join(f"'{name}': {str(error) or type(error).__name__}" for name, error in causes[:NAMED])
        more = f" and {len(causes) - NAMED} more" if len(causes) > NAMED else ""
        super().__init__(f"failed to add {failed} of {entries} entries: {said}{more}")
        self.stores = tuple(name for name, _ in causes)
        self.causes = tuple(error for _, error in causes)


class Unsupported(MemoryTiersError):
    """A store was asked for what it does not claim. `missing` names the capabilities."""

    def __init__(self, missing: str | Sequence[str], *, store: str, tier: str | None = None) -> None:
        self.missing = (missing,) if isinstance(missing, str) else tuple(missing)
        self.store = store
        self.tier = tier
        where = f"store '{store}'" + (f" in tier '{tier}'" if tier else "")
        super().__init__(f"{where} does not support: {', '.join(self.missing)}")


class StoreError(MemoryTiersError):
    """A store failed. `retryable` says whether the same call may succeed later; an
    unknown failure is not retryable.
    """

    retryable = False

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(f"store '{store}': {problem}")
        self.store = store
        self.problem = problem


class StoreUnavailable(StoreError):
    """The store could not be reached or refuses work for now. A write that raised this
    may or may not have been applied.
    """

    retryable = True


class StoreTimeout(StoreUnavailable):
    """The store did not answer in time. A write that raised this may or may not have
    been applied.
    """


class StoreFull(StoreError):
    """The store has no room left (a full disk, a memory limit). Nothing of the failed
    call was kept.
    """


class CorruptRecord(StoreError):
    """A stored record fails its checksum or cannot be read. It is never served; its
    neighbours are.
    """

    def __init__(
        self,
        store: str,
        record_id: str | int | None,
        problem: str,
        then: str = " and is not served; `memory doctor` counts what is in quarantine",
    ) -> None:
        what = "the whole" if record_id is None else f"record {record_id}"
        super().__init__(store, f"{what} is corrupt ({problem}){then}")
        self.record_id = "-" if record_id is None else str(record_id)


class ConfigError(MemoryTiersError):
    """The configuration cannot be used as it stands; the message names the setting and
    what to change.
    """


class EmbedderMismatch(ConfigError):
    """Vectors were stored by one embedder and a different one was configured (model,
    dimensions or metric differ).
    """

    def __init__(self, store: str, stored: str, configured: str) -> None:
        super().__init__(
            f"store '{store}' holds vectors of {stored}, but the configured embedder is {configured}; "
            "configure the embedder the vectors were made with, make them anew with this one (`memory reindex`), "
            "or start a new store and import an export into it"
        )
        self.stored = stored
        self.configured = configured


class FormatMismatch(ConfigError):
    """A store has a format that this version cannot use: a newer one, or an older one
    that it may not upgrade.

    `found` is the format of the store, `known` the one that this version reads and
    writes.
    """

    def __init__(self, store: str, found: str, known: int, *, read_only: bool = False) -> None:
        super().__init__(
            f"store '{store}': its data has format {found}, and this version of memory-tiers reads format {known}. "
            + (
                "The store is opened to read only: open it once to write, which upgrades it"
                if read_only
                else "Upgrade memory-tiers to the version that wrote it, or use another store"
            )
        )
        self.store = store
        self.found = found
        self.known = known


class NotOpen(MemoryTiersError):
    """A call before `open()` or after `close()`."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is not open: use 'async with', or await open() first")


class ForkedProcess(NotOpen):
    """A memory was used in a forked child of the process that opened it. `process` is
    the id of the process that opened it.
    """

    def __init__(self, process: int) -> None:
        MemoryTiersError.__init__(
            self,
            f"this memory was opened in process {process}, and process {os.getpid()} inherited it through fork: "
            "open a new Memory after the fork. Connections and threads do not survive a fork",
        )
        self.process = process


class WrongEventLoop(NotOpen):
    """An open memory was used from another event loop than the one it was opened on, to
    which its connections belong.
    """

    def __init__(self, *, ended: bool) -> None:
        MemoryTiersError.__init__(
            self,
            "this memory was opened on another event loop"
            + (", which has ended: await close() lets go of it, then open it here" if ended else "")
            + "; open one Memory per event loop, or use BlockingMemory, which may be called from any thread",
        )
        self.ended = ended
