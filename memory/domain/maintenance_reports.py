"""Reports of maintenance: sweeps, reindexes, and comparisons of stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory.domain.results import ResultMixin
from memory.domain.time import moment


@dataclass(slots=True, repr=False)
class SweepReport(ResultMixin):
    """The result of one sweep.

    `ran` is false if another process holds the lease, or if the store of tier `mid`
    does not answer. `more` says that there was more to do than the budget allowed. The
    next sweep continues there. `waiting` lists work that a store prevented. `stays`
    lists problems that need an operator: records that a tier refuses, and steps that a
    store refuses or that a newer version of the library left.

    `healed` counts scopes in which a store was behind the others. `reindexed` counts
    vectors that were renewed after a reindex. Of the work of retention rules, `deleted`
    counts entries and sessions, `ended` sessions, and `dropped_versions` kept versions.
    `held` counts records that stay because of a legal hold.
    """

    ran: bool = True
    more: bool = False
    finished: int = 0
    pending_steps: int = 0
    removed_copies: int = 0
    purged: int = 0
    dropped_relations: int = 0
    moved: int = 0
    expired: int = 0
    deleted: int = 0
    ended: int = 0
    dropped_versions: int = 0
    held: int = 0
    repeated_erasures: int = 0
    forgotten_scopes: int = 0
    healed: int = 0
    reindexed: int = 0
    waiting: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """The worst result: "stays", "waiting", "elsewhere", "more" or "done".

        "elsewhere" means that the sweep did not run.
        """
        if self.stays or self.waiting:
            return "stays" if self.stays else "waiting"
        return "elsewhere" if not self.ran else "more" if self.more else "done"


@dataclass(frozen=True, slots=True, repr=False)
class ReindexReport(ResultMixin):
    """The result of a reindex.

    `made` counts the vectors that this call made, including those of copies. If `ended`
    is true, none is left, and the stores accept only this embedder. Otherwise the call
    can be repeated: `left` counts the remaining records, and `waiting` says why.
    """

    model: str
    ended: bool
    made: int
    left: int = 0
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class RolledBackStore(ResultMixin):
    """A store that was rolled back.

    `to` is the version that its own note had when the rollback was found; 0 if there
    was no note. `seen` is the version that others had seen, and `found` is when it was
    found.
    """

    store: str
    to: int
    seen: int
    found: int

    def __str__(self) -> str:
        said = (
            f"to its state at {_minute(self.to)} or soon after"
            if self.to
            else "to a state before its first note, or replaced by an empty store"
        )
        return f"store '{self.store}' was restored {said}; at {_minute(self.seen)} it held later data"


@dataclass(frozen=True, slots=True, repr=False)
class LostWrite(ResultMixin):
    """An acknowledged write that no store has any more, or not in its last version."""

    tenant: str
    id: str
    said: str


@dataclass(slots=True, repr=False)
class StoreComparison(ResultMixin):
    """The result of a comparison of the stores, and of the balances of artifacts.

    `entries` counts the entries that were compared. `differs` counts the differences by
    kind. With `repair`, all were repaired except those in `left`, with a sentence for
    each. `lost` lists losses that cannot be restored, and `unknown` says what else may
    be lost. `error` says why the comparison ended early.
    """

    entries: int = 0
    differs: dict[str, int] = field(default_factory=dict)
    repaired: bool = False
    lost: list[LostWrite] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unknown: tuple[str, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.error and not self.left and (self.repaired or not self.differs)


def _minute(version: int) -> str:
    return f"{moment(version):%Y-%m-%d %H:%M} UTC"
