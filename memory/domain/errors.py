"""All errors that the library raises on purpose.

Each message says what was wrong, where, and what to do next. No message shows a secret,
and no class has the name of a builtin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from memory.domain.legal_hold import LegalHold

NAMED = 20
"""How many ids the message of an error names. Its attributes hold all of them."""


class PicklableException(Exception):
    """An exception that can be copied and pickled with any constructor.

    The copy has the same arguments and attributes.
    """

    def __reduce__(
        self,
    ) -> tuple[Callable[..., BaseException], tuple[type[BaseException], tuple[Any, ...], Mapping[str, Any]]]:
        return _as_it_was, (type(self), self.args, self.__dict__)


def error_text(error: BaseException) -> str:
    """Return the text of an error of foreign code, to quote it in a message.

    It names the type if there is no text, or only a missing key: `KeyError: 'choices'`.
    """
    text, kind = str(error), type(error).__name__
    if not text.strip():
        return kind
    return f"{kind}: {text}" if isinstance(error, KeyError) else text


def _as_it_was(
    kind: type[BaseException], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class MemoryTiersError(PicklableException):
    """The base class of all errors that this library raises on purpose.

    Catch it to handle any of them. Every error can be pickled, so it leaves a process
    pool as it was raised.
    """

    code: ClassVar[str] = "internal"
    """The code that programs read, in JSON, HTTP and MCP. It never changes."""


class InvalidInput(MemoryTiersError, ValueError):
    """Raised for invalid input, before any store is touched.

    Correct the argument or setting that `field` names, and call again. `problem` says
    what is wrong with it.
    """

    code = "invalid_input"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def inside(self, place: str) -> InvalidInput:
        """Return the error of a check inside a place, such as an item of a list."""
        kind = WrongArguments if isinstance(self, WrongArguments) else InvalidInput
        names = str(self).removesuffix(f": {self.problem}")
        error = kind(f"{place}.{names}" if names else place, self.problem)
        error.field = f"{place}.{self.field}" if self.field else place
        return error


class WrongArguments(InvalidInput, TypeError):
    """Raised for a call with arguments that its signature does not accept.

    Use the arguments that the message names. The error is both a `TypeError`, like
    Python's own, and an `InvalidInput`.
    """

    code = "wrong_arguments"

    def __init__(self, names: str, problem: str, *, field: str | None = None) -> None:
        super().__init__(names, problem)
        self.field = field or names


class NotFound(MemoryTiersError, LookupError):
    """Raised if the tenant has nothing live with this id.

    The error does not tell whether the id is unknown, of another tenant, deleted,
    expired or retired. Check the id; `kind` says what it was looked up as. Only a
    handle that was open when its session expired tells so, by `expired_at`.
    """

    code = "not_found"

    def __init__(self, entry_id: str, kind: str = "entry", *, expired_at: datetime | None = None) -> None:
        since = (
            ""
            if expired_at is None
            else f". It expired at {expired_at:%Y-%m-%d %H:%M:%S} UTC. Open it again to begin a new one"
        )
        super().__init__(f"Memory {kind} not found: {entry_id}{since}")
        self.entry_id = entry_id
        self.kind = kind
        self.expired_at = expired_at


class Forbidden(MemoryTiersError):
    """Raised if a restricted view does not allow a call. No store was touched.

    Make the call on a view that has the scope or the role, or on the memory itself.
    `field` names the argument or the call that the view does not allow. The error does
    not tell whether anything exists outside of the view.
    """

    code = "forbidden"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Conflict(MemoryTiersError):
    """Raised if a call conflicts with something that is already stored.

    Use the stored record, which `existing_id` names where there is one, or use another
    id or key. `deleted_at` is set where the record was deleted: then the key is taken,
    and no record exists under it.
    """

    code = "conflict"

    def __init__(
        self, problem: str, existing_id: str | None = None, *, deleted_at: datetime | None = None
    ) -> None:
        super().__init__(f"{problem} (existing: {existing_id})" if existing_id else problem)
        self.existing_id = existing_id
        self.deleted_at = deleted_at


class VersionConflict(Conflict):
    """Raised if a record has another version than the caller expected.

    Nothing was changed. Read the record again, repeat your change on the new values,
    and call with the new version. `current_version` is the stored version. It is None
    if nothing is stored.
    """

    code = "version_conflict"

    def __init__(
        self,
        what: str,
        expected: str,
        current_version: str | None,
        existing_id: str | None = None,
        *,
        deleted_at: datetime | None = None,
    ) -> None:
        found = "does not exist" if current_version is None else f"has version {current_version}"
        wanted = "was expected to be absent" if expected == "ABSENT" else f"version {expected} was expected"
        super().__init__(
            f"{what} {found}, and {wanted}; nothing was changed. Read it again, then repeat the change with"
            " its version"
        )
        self.existing_id = existing_id
        self.deleted_at = deleted_at
        self.expected_version = expected
        self.current_version = current_version


class RequestIdReused(Conflict):
    """Raised if a request id was used before for another request.

    Nothing was changed. Use a new id for each request, and the same id only to repeat
    one. `request_id` is the id.
    """

    code = "request_id_reused"

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"request_id {request_id!r} was used for another request. Use a new id for each request, and the"
            " same id only to repeat one"
        )
        self.request_id = request_id


_CHANGED_BY_UPDATE = {
    "system": "another system message",
    "title": "another title",
    "tags": "other tags",
    "metadata": "other metadata",
    "expires_at": "another expiry",
}
"""Arguments of a new session that `sessions.update` can change."""


class SessionOwnerMismatch(Conflict):
    """Raised if the session exists with another owner or other settings.

    It belongs to another user, agent or namespace, or it was created with other
    arguments. Nothing of it was read. `field` names what differs; the message says how
    to proceed. The stored value is not shown, because it is the owner's.
    """

    code = "session_owner_mismatch"

    def __init__(self, session_id: str, field: str, given: str | None, file: str | None = None) -> None:
        """`file` is the name of the imported file that holds a session of this id."""
        if file is not None:
            whose = f"the one in the file {'has none' if given is None else f'belongs to {given!r}'}"
            problem = (
                f"{field}: session '{session_id}' exists and belongs to another {field}, and {whose}; nothing"
                f" was imported from {file}. Delete the session here, or skip the one in the file (skip_bad,"
                " on the command line --skip-bad)"
            )
        elif field == "shared":
            problem = (
                f"shared: session '{session_id}' exists and is not shared. Omit shared=, or create a session"
                " of another id with shared=True"
            )
        elif (stored := _CHANGED_BY_UPDATE.get(field)) is not None:
            problem = (
                f"{field}: session '{session_id}' has {stored}. "
                f"Omit {field}= to keep it, or change it with memory.sessions.update(session_id, {field}=…)"
            )
        else:
            problem = (
                f"{field}: session '{session_id}' exists and does not belong to {field} '{given}'. Session"
                f" ids are unique per tenant: make the id part of yours, as in f'{{{field}}}/{{name}}', omit"
                f" {field}= to accept the stored one, or create the session with shared=True"
            )
        super().__init__(problem)
        self.existing_id = session_id
        self.field = field


class PartialWrite(Conflict):
    """Raised if some drafts or puts of one call conflict; all others are stored.

    `written` maps the positions of drafts to entries, and those of puts to documents.
    It includes items that were stored already. `conflicts` maps the positions of the
    others to their errors. Correct these others, and write only them again.
    """

    code = "partial_write"
    written: dict[int, Any]

    def __init__(
        self, written: Mapping[int, Any], conflicts: Mapping[int, Conflict], what: str = "drafts"
    ) -> None:
        first = min(conflicts)
        named = ", ".join(map(str, sorted(conflicts)[:20])) + ", …" * (len(conflicts) > 20)
        others = "; all others are stored" if written else ""
        super().__init__(
            f"{len(conflicts)} of {len(written) + len(conflicts)} {what} were not stored, at position"
            f" {named}{others}. Position {first}: {conflicts[first]}"
        )
        self.existing_id = conflicts[first].existing_id
        self.deleted_at = conflicts[first].deleted_at
        self.written = dict(written)
        self.conflicts = dict(conflicts)


class LegalHoldActive(MemoryTiersError):
    """Raised if a legal hold protects what a call would delete or overwrite.

    Overwriting counts where the earlier text would be lost. Nothing was changed.
    Remove the holds first, with `admin.legal_holds.remove`; `holds` lists them.
    """

    code = "legal_hold_active"

    def __init__(self, *holds: LegalHold) -> None:
        names = list(dict.fromkeys(hold.name for hold in holds))
        over = list(dict.fromkeys(hold.target for hold in holds))
        more = f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
        super().__init__(
            f"under legal hold {', '.join(map(repr, names[:NAMED]))}, over the"
            f" {', the '.join(over[:NAMED])}{more}: nothing was deleted or overwritten. Remove the hold first"
            " (memory.admin.legal_holds.remove, `memory legal-holds remove`)"
        )
        self.holds = holds


class RejectedByGate(MemoryTiersError):
    """Raised if the write gate refuses a draft, or its source is blocked.

    Nothing of the call was stored. `reason` says why. `position` is the position of the
    first refused draft in the call: change that draft or leave it out.
    """

    code = "rejected_by_gate"

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"refused, and nothing was written: {reason}")
        self.reason = reason
        self.position = position


class QuotaExceeded(MemoryTiersError):
    """Raised if a write would exceed a quota. Nothing of the write was stored.

    Delete something, write less at once, or raise the quota that `quota` names. `most`,
    `held` and `asked` are amounts in `measure`.

    A call that writes many may have stored some before. Then the message says so, and
    `written` maps their positions to the stored entries or documents.

    An import that runs beside other writers may be stored in part. Then `imported`
    names its file, and the message says how many lines are imported and at which line
    the rest begins.

    In a restricted view, `most` and `held` of a quota over more than the view are 0.
    """

    code = "quota_exceeded"

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
        written: Mapping[int, Any] | None = None,
    ) -> None:
        came = f"nothing was written. Delete some, write less at once, or raise [[quotas]] '{quota}'"
        if written:
            came = (
                f"{len(written):,} of this call are stored, at the positions in `written`. Delete some, or"
                f" raise [[quotas]] '{quota}', and write only the others again"
            )
        if imported is not None:
            came = (
                f"{so_far}. Delete some, or raise [[quotas]] '{quota}', and import the same file again;"
                " nothing is written twice"
            )
        super().__init__(
            f"quota '{quota}': {where} holds {held:,} of at most {most:,} {measure}, and this would add"
            f" {asked:,}; {came}"
        )
        self.quota = quota
        self.where = where
        self.measure = measure
        self.most = most
        self.held = held
        self.asked = asked
        self.imported = imported
        self.written = dict(written or {})
        self._came = came

    def without_totals(self) -> QuotaExceeded:
        """Return the error without what the quota counts, for restricted views."""
        error = QuotaExceeded(self.quota, self.where, self.measure, 0, 0, self.asked, written=self.written)
        error.args = (f"quota '{self.quota}' has no room for {self.asked:,} {self.measure}; {error._came}",)
        return error

    def with_written(self, written: Mapping[int, Any]) -> QuotaExceeded:
        """Return the error of a call with several items that stored these before."""
        return QuotaExceeded(
            self.quota, self.where, self.measure, self.most, self.held, self.asked, written=written
        )


class ScratchpadFull(MemoryTiersError):
    """Raised if an append would exceed the size limit of a scratchpad.

    Nothing was written, and the stored text is unchanged. Clear the scratchpad first,
    with `scratchpads.clear`. `most`, `held` and `asked` are in bytes.
    """

    code = "scratchpad_full"

    def __init__(self, agent: str | None, most: int, held: int, asked: int) -> None:
        whose = "the shared scratchpad" if agent is None else f"the scratchpad of agent '{agent}'"
        super().__init__(
            f"{whose} holds {held:,} of at most {most:,} bytes, and this would add {asked:,} with its header;"
            " nothing was written. Clear it first (memory.scratchpads.clear, `memory scratchpad clear`)"
        )
        self.agent = agent
        self.most = most
        self.held = held
        self.asked = asked


class TooMuchContention(MemoryTiersError):
    """Raised if others kept changing the same record until the time was up.

    The change was not made, and no store is at fault. Try again later. `waited` is how
    long the call tried.
    """

    code = "too_much_contention"

    retryable = True

    def __init__(self, entry_id: str, waited: timedelta) -> None:
        super().__init__(
            f"entry {entry_id} was being changed by others for {waited.total_seconds():g} s; this call"
            " changed nothing. Try again"
        )
        self.entry_id = entry_id
        self.waited = waited


class InvalidScopePromotion(MemoryTiersError):
    """Raised for a promotion between scopes that is not allowed.

    Nothing was written or deleted. Promote to another scope; `source` and `target` are
    the kinds of the two scopes.
    """

    code = "invalid_scope_promotion"

    def __init__(self, source: str, target: str) -> None:
        super().__init__(f"Cannot promote memory from {source} scope to {target} scope.")
        self.source = source
        self.target = target


class CompactionError(MemoryTiersError):
    """Raised if a compaction is refused or its callback fails.

    The sources are unchanged; `source_entry_ids` names all of them. The message says
    what to correct before the next attempt.
    """

    code = "invalid_compaction"

    def __init__(
        self, source_entry_ids: Sequence[str], problem: str, of: Literal["entries", "messages"] = "entries"
    ) -> None:
        more = f" and {len(source_entry_ids) - NAMED} more" if len(source_entry_ids) > NAMED else ""
        super().__init__(
            f"Compaction failed for {of} [{', '.join(source_entry_ids[:NAMED])}]{more}: {problem}"
        )
        self.source_entry_ids = tuple(source_entry_ids)


class ProviderFailure(MemoryTiersError):
    """Raised if parts of a composite provider fail.

    All other parts completed the call. `failed` maps the name of each failed part to
    its error text.
    """

    code = "provider_failure"

    def __init__(self, call: str, failed: Mapping[str, str]) -> None:
        super().__init__(
            f"{call} failed for {'; '.join(f'{name}: {problem}' for name, problem in failed.items())}"
        )
        self.call = call
        self.failed = dict(failed)


class StoreAddFailure(MemoryTiersError):
    """Raised if some of several stores fail to add entries.

    Everything else is stored. `stores` names the stores that failed, and `causes` holds
    the error of each, in the same order.
    """

    code = "store_add_failure"

    def __init__(self, failed: int, entries: int, causes: Sequence[tuple[str, BaseException]]) -> None:
        said = "; ".join(f"'{name}': {error_text(error)}" for name, error in causes[:NAMED])
        more = f" and {len(causes) - NAMED} more" if len(causes) > NAMED else ""
        super().__init__(f"failed to add {failed} of {entries} entries: {said}{more}")
        self.stores = tuple(name for name, _ in causes)
        self.causes = tuple(error for _, error in causes)


class Unsupported(MemoryTiersError):
    """Raised if a store lacks a capability that a call or a tier needs.

    Use another store for it. `missing` names the capabilities.
    """

    code = "unsupported"

    def __init__(self, missing: str | Sequence[str], *, store: str, tier: str | None = None) -> None:
        self.missing = (missing,) if isinstance(missing, str) else tuple(missing)
        self.store = store
        self.tier = tier
        where = f"store '{store}'" + (f" in tier '{tier}'" if tier else "")
        super().__init__(f"{where} does not support: {', '.join(self.missing)}")


class StoreError(MemoryTiersError):
    """Raised if a store fails; `problem` says how.

    `retryable` says whether the same call may succeed later. An unknown failure is not
    retryable.
    """

    code = "store_error"

    retryable = False

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(f"store '{store}': {problem}")
        self.store = store
        self.problem = problem


class StoreUnavailable(StoreError):
    """Raised if a store cannot be reached or refuses work for now.

    Try again later. A write that raised this may or may not have been applied.
    """

    code = "store_unavailable"

    retryable = True


class StoreTimeout(StoreUnavailable):
    """Raised if a store does not answer in time.

    Try again later. A write that raised this may or may not have been applied.
    """

    code = "store_timeout"


class StoreFull(StoreError):
    """Raised if a store has no room left: a full disk, or a memory limit.

    Nothing of the failed call was stored. Make room, and call again.
    """

    code = "store_full"


class CorruptRecord(StoreError):
    """Raised if a stored record fails its checksum or cannot be read.

    The record is never returned; other records still are. `memory doctor` counts such
    records. `record_id` is "-" where the whole store or file cannot be read.
    """

    code = "corrupt_record"

    def __init__(
        self,
        store: str,
        record_id: str | int | None,
        problem: str,
        then: str = " and is not served; `memory doctor` counts what is in quarantine",
    ) -> None:
        what = "its content" if record_id is None else f"record {record_id}"
        super().__init__(store, f"{what} is corrupt ({problem}){then}")
        self.record_id = "-" if record_id is None else str(record_id)


class ConfigError(MemoryTiersError):
    """Raised if the configuration cannot be used.

    The message names the setting and what to change.
    """

    code = "invalid_config"


class EmbedderMismatch(ConfigError):
    """Raised if another embedder than the configured one made the stored vectors.

    The model, the dimensions or the metric differ. Configure the embedder of the stored
    vectors, or run `memory reindex` with the new one.
    """

    code = "embedder_mismatch"

    def __init__(self, store: str, stored: str, configured: str) -> None:
        super().__init__(
            f"store '{store}' holds vectors of {stored}, but the configured embedder is {configured}; "
            "configure the embedder that made the vectors, rebuild them with this one (`memory reindex`), "
            "or start a new store and import an export into it"
        )
        self.stored = stored
        self.configured = configured


class EmbedderTimeout(MemoryTiersError):
    """Raised if the embedder does not return in time. Nothing was stored.

    `limit` is the time that it had. Try again later.
    """

    code = "embedder_timeout"

    retryable = True

    def __init__(self, limit: timedelta) -> None:
        super().__init__(
            f"the embedder did not return within {limit.total_seconds():g} s. Try again, check the model,"
            " or raise durations.embedding"
        )
        self.limit = limit


class FormatMismatch(ConfigError):
    """Raised if this version cannot use the format of a store.

    The format is newer, or it is older and the store is opened to read only, so that it
    cannot be upgraded. `found` is the format of the store, and `known` is the format
    that this version reads and writes.
    """

    code = "format_mismatch"

    def __init__(self, store: str, found: str, known: int, *, read_only: bool = False) -> None:
        super().__init__(
            f"store '{store}': its data has format {found}, and this version of memory-tiers reads format"
            f" {known}. "
            + (
                "The store is opened to read only. Open it once to write, which upgrades it"
                if read_only
                else "Upgrade memory-tiers to the version that wrote it, or use another store"
            )
        )
        self.store = store
        self.found = found
        self.known = known


class NotOpen(MemoryTiersError):
    """Raised for a call before `open()` or after `close()`. Open the memory first.

    If the memory was closed while the call was under way, the outcome is unknown.
    """

    code = "not_open"

    def __init__(self, what: str, *, closed_meanwhile: bool = False) -> None:
        super().__init__(
            f"{what} was closed while the call was under way, and the call was ended. What it was to write"
            " may be written or not: open it again, and repeat the call"
            if closed_meanwhile
            else f"{what} is not open: call open() first, or use 'async with' (for a BlockingMemory 'with')"
        )


class ForkedProcess(NotOpen):
    """Raised if a memory is used in a forked child of the process that opened it.

    Open a new memory after the fork. `process` is the id of the process that opened
    this one.
    """

    code = "forked_process"

    def __init__(self, process: int) -> None:
        MemoryTiersError.__init__(
            self,
            f"this memory was opened in process {process}, and process {os.getpid()} inherited it through"
            " fork. Open a new Memory after the fork: connections and threads do not survive a fork",
        )
        self.process = process


class WrongEventLoop(NotOpen):
    """Raised if a memory is used on another event loop than the one that opened it.

    Its connections belong to that loop. Open one memory per event loop, or make one
    with `loop="own"`, which any loop may call, or use `BlockingMemory`. `ended` says
    whether that loop has ended.

    The error is also raised if a memory with `loop="own"` is called by a function that
    runs on its private loop, such as a gate.
    """

    code = "wrong_event_loop"

    def __init__(self, *, ended: bool = False, in_callback: bool = False) -> None:
        MemoryTiersError.__init__(
            self,
            "a memory that has an event loop of its own was called on that loop, from one of its callbacks."
            " Call it after the callback has returned, or from another thread"
            if in_callback
            else "this memory was opened on another event loop"
            + (", which has ended: await close(), then open it here" if ended else "")
            + "; open one Memory per event loop, or pass loop='own' to call one Memory from any loop, or use"
            " BlockingMemory, which may be called from any thread",
        )
        self.ended = ended
