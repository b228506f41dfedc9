"""The report at the end of a run, with the clauses and the tiers of each store.

A clause passed, failed, was not judged, or does not apply.
"""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from memory.ports.capabilities import CACHE_NEEDS, FLAGS, HOME_NEEDS, Capabilities
from memory.ports.contract.capability_tests import MARK, fits, hooks_of
from memory.ports.contract.clauses import CLAUSES, EDITION, Clause
from memory.ports.contract.clauses import MARK as CLAUSE_MARK

if TYPE_CHECKING:
    from memory.ports.contract.harness import Harness

PROPERTY = "memory_contract"
"""The report property that names the clauses of a test and its harness.

It travels with the test's report, also from a worker of pytest-xdist.
"""
SEED = "memory_history_seed"
EVERYONE = "every store"

LEVELS: Mapping[str, Capabilities] = {
    "short": CACHE_NEEDS,
    "mid": replace(HOME_NEEDS, durable=True),
    "long": replace(HOME_NEEDS, durable=True),
}
"""The capabilities that a store must claim to serve a tier; `short` as a cache."""
_HOOKS = {
    "remote": "set `remote` and implement the hooks under it, if the store talks to a server",
    "built": "give `urls`",
    "cramped": "implement `make_with_limited_space` and `make_room`",
    "derived": "implement `damage_derived`, if the store derives anything",
    "tiny": "implement `tiny`, if the adapter puts anything off",
    "files": "implement `files`, if the store keeps its data in files",
    "address": "implement `address`, if processes may share the store",
}
"""The hooks of a harness that let more of its store be judged."""


class Verdict(Enum):
    """The result of one clause for one harness."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"
    NO_HOOK = "not judged"
    DOES_NOT_APPLY = "does not apply"


@dataclass
class Verdicts:
    """The results of the clauses, by harness."""

    harnesses: Mapping[str, type[Harness]] = field(default_factory=dict)
    passed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    failed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    edition: int = EDITION

    seeds: set[str] = field(default_factory=set)

    def take(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, list) and (report.when == "call" or report.failed):
                harness, *clauses = value
                (self.passed if report.passed else self.failed)[harness].update(clauses)

            if name == SEED and report.when == "call":
                self.seeds.add(str(value))

    @property
    def names(self) -> list[str]:
        """The harnesses of which any test ran."""
        return sorted({*self.passed, *self.failed})

    def verdict(self, name: str, clause: Clause) -> Verdict:
        """Return the result of a clause.

        A failed test always counts. A passed test counts only if the clause applies.
        """
        if clause.id in self.failed[name]:
            return Verdict.FAILED
        harness = self.harnesses.get(name)
        if harness is not None and (open_ := _unmet(clause, harness)) is not None:
            return open_
        return Verdict.PASSED if clause.id in self.passed[name] else Verdict.NOT_RUN

    def by_verdict(self, name: str) -> dict[Verdict, list[str]]:
        """Return the clauses of the pinned edition, by result."""
        told: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
        for clause in CLAUSES.values():
            if clause.edition <= self.edition:
                told[self.verdict(name, clause)].append(clause.id)
        return told

    def levels(self, name: str) -> dict[str, str]:
        """Return for each tier why the store does not fit it; empty if it does."""
        told, harness = self.by_verdict(name), self.harnesses.get(name)
        why = []
        if told[Verdict.FAILED]:
            why.append(f"failed: {', '.join(sorted(told[Verdict.FAILED]))}")
        if told[Verdict.NOT_RUN]:
            why.append(f"{len(told[Verdict.NOT_RUN])} clauses were not run")
        lacking = {
            level: harness.claims.missing(needs) if harness is not None else []
            for level, needs in LEVELS.items()
        }
        return {
            level: "; ".join([*([f"lacks {', '.join(missing)}"] if missing else []), *why])
            for level, missing in lacking.items()
        }

    def lines(self, whole: bool) -> Iterator[str]:
        for name in self.names:
            told = self.by_verdict(name)
            failed = sorted(told[Verdict.FAILED])
            yield f"{name}: {len(told[Verdict.PASSED])} clauses passed" + (
                f", {len(failed)} failed: {', '.join(failed)}" if failed else ""
            )
            if whole or len(self.names) <= _FEW:
                yield from self._rest(name, told)
            if whole:
                passed = set(told[Verdict.PASSED])
                for needs in dict.fromkeys(c.needs for c in CLAUSES.values()):
                    mine = [c.id for c in CLAUSES.values() if c.needs == needs and c.id in passed]
                    if mine:
                        yield f"    {needs or EVERYONE}: {', '.join(mine)}"
        if self.seeds:
            yield f"histories, by seed: {'; '.join(sorted(self.seeds))}"

    def _rest(self, name: str, told: Mapping[Verdict, Iterable[str]]) -> Iterator[str]:
        """Yield the clauses that were not judged, the missing hooks, and the tiers."""
        harness = self.harnesses.get(name)
        if harness is not None:
            for hook in hooks_missing(harness):
                unjudged = [c for c in told[Verdict.NO_HOOK] if CLAUSES[c].needs == hook]
                yield (
                    f"    not judged: {', '.join(unjudged) or 'the adapter with every threshold tiny'}"
                    f" ({_HOOKS[hook]})"
                )
        if not_run := list(told[Verdict.NOT_RUN]):
            yield (
                f"    not run: {', '.join(not_run) if len(not_run) <= _NAMED else f'{len(not_run)} clauses'}"
            )
        for level, why in self.levels(name).items():
            yield f"    {level}: {why or 'fit'}"

    def as_json(self) -> str:
        """Return the whole report as JSON, for programs."""
        harnesses = {}
        for name in self.names:
            harness = self.harnesses.get(name)
            harnesses[name] = {
                "claims": None if harness is None else _claims(harness.claims),
                "clauses": {
                    c.id: {"verdict": self.verdict(name, c).value, "edition": c.edition}
                    for c in CLAUSES.values()
                },
                "not_judged": (
                    {} if harness is None else {hook: _HOOKS[hook] for hook in hooks_missing(harness)}
                ),
                "levels": {level: {"fit": not why, "why": why} for level, why in self.levels(name).items()},
            }
        return json.dumps(
            {"edition": EDITION, "pinned": self.edition, "harnesses": harnesses}, indent=2, sort_keys=True
        )


_FEW = 3
"""The most harnesses that are reported in full by default."""
_NAMED = 12


def hooks_missing(harness: type[Harness]) -> list[str]:
    """Return the hooks that the harness does not implement."""
    given = hooks_of(harness)  # type: ignore[arg-type]  # mypy takes no class for hashable
    return [hook for hook, is_given in given.items() if not is_given]


def _unmet(clause: Clause, harness: type[Harness]) -> Verdict | None:
    """Return why the clause cannot be judged for this store; None if it can."""
    if clause.needs in _HOOKS:
        return Verdict.NO_HOOK if clause.needs in hooks_missing(harness) else None
    asked = _askable(harness)  # type: ignore[arg-type]  # mypy takes no class for hashable
    return None if clause.id in asked else Verdict.DOES_NOT_APPLY


@cache
def _askable(harness: type[Harness]) -> frozenset[str]:
    """Return the clauses that bind the store and have a test that fits it."""
    alike = (harness.claims, *hooks_of(harness).values())  # type: ignore[arg-type]  # mypy takes no class for hashable
    if alike not in _ASKABLE:
        _ASKABLE[alike] = _found_askable(harness)
    return _ASKABLE[alike]


_ASKABLE: dict[tuple[object, ...], frozenset[str]] = {}
"""The answers of `_askable` for harnesses that claim the same."""


def _found_askable(harness: type[Harness]) -> frozenset[str]:
    suite = importlib.import_module("memory.ports.contract.suite")
    asked = set[str]()
    for name, test in vars(suite).items():
        marks = getattr(test, "pytestmark", ()) if name.startswith("test_") else ()
        if all(fits(mark, harness) for mark in marks if mark.name == MARK):
            asked |= {i for mark in marks if mark.name == CLAUSE_MARK for i in mark.args}
    unclaimed = {flag for flag in (*FLAGS, "loss_window") if not getattr(harness.claims, flag)}
    return frozenset(i for i in asked if CLAUSES[i].needs not in unclaimed)


def _claims(claims: Capabilities) -> dict[str, Any]:
    window = claims.loss_window
    return {**asdict(claims), "loss_window": None if window is None else window.total_seconds()}
