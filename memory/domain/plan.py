"""Plans and forecasts of maintenance, and explanations of where a record is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from memory.domain.results import ResultMixin


@dataclass(frozen=True, slots=True, repr=False)
class _Action(ResultMixin):
    """An action on a record, the rule behind it, and the reason for or against it."""

    action: str
    collection: str
    id: str
    tenant: str
    scope: str
    rule: str
    because: str


@dataclass(frozen=True, slots=True, repr=False)
class PlannedAction(_Action):
    """One planned action of maintenance on one record, in its future state.

    `tier` is the record's tier. `to` is the target tier of a move, or the target scope
    of a copy. The values of `action` are:

    - move, copy, delete or end: by `rule`. A delete without a rule is for entries
      derived from a deleted session.
    - evict: for the quota that `rule` names.
    - expire: by no rule.
    - make: from an answer of `on_window_exit`.

    `depends` names decisions at run time that a plan does not make, such as the write
    gate or the slice of kept versions.
    """

    when: datetime
    tier: str = ""
    to: str = ""
    depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class BlockedAction(_Action):
    """One action of a sweep that something prevents, with the reason in `because`.

    Reasons are a full quota (`quota` is its name), a legal hold, a store that does not
    answer, or unhandled messages. `action`, `rule` and `tier` are as in planned
    actions. `to` is the tier, or the scope as the rule names it.
    """

    tier: str = ""
    to: str = ""
    quota: str = ""


@dataclass(slots=True, repr=False)
class Plan(ResultMixin):
    """The actions of a sweep run at `at`.

    It includes actions by rules, expiries, evictions, and entries made of messages. The
    order is roughly that of the sweep, which takes tenants in turn.

    `stays` lists actions that rules request and something prevents. `waiting` names
    stores and effects that could not be checked or predicted.
    """

    at: datetime
    planned: list[PlannedAction] = field(default_factory=list)
    stays: list[BlockedAction] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, repr=False)
class Forecast(ResultMixin):
    """The prediction of one rule for a record that is not edited meanwhile.

    `when` is the first moment at which the rule acts. It is None if the rule never acts
    or an event decides. `because` gives the reason. `depends` lists what decides
    besides time and edits.
    """

    rule: str
    action: str
    on: str
    to: str
    takes: bool
    when: datetime | None
    because: str
    depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class WhyReport(ResultMixin):
    """The place of an entry, and what the rules will do with it.

    - `next`: the rule that a sweep applies first, if the entry does not change.
    - `rules`: the forecasts of all rules, in order.
    - `held`: reasons that keep the entry in place, regardless of rules.
    """

    entry_id: str
    scope: str
    tier: str
    store: str
    next: Forecast | None
    rules: tuple[Forecast, ...]
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class RouteReport(ResultMixin):
    """The store of a new record, the stores of its copies, and the reasons.

    Each reason is one sentence.
    """

    collection: str
    scope: str
    tier: str
    store: str
    replicas: dict[str, str]
    """The store of each tier that gets a full copy for searches."""
    because: tuple[str, ...]
