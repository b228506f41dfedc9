"""The base class of rules that take records by a condition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import model_validator

from memory.policies.condition_tables import condition_of
from memory.policies.conditions import EVERYTHING, RuleCondition
from memory.policies.named_model import NamedModel
from memory.policies.record_facts import Fields, Measure
from memory.ports.query import Condition


class ConditionalRule(NamedModel):
    """A rule for the records of which its condition is true."""

    @model_validator(mode="before")
    @classmethod
    def _reads_its_condition(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("when") is not None:
            return {**given, "when": condition_of(given["when"], cls.path(given.get("name"), "when"))}
        return given

    @property
    def condition(self) -> RuleCondition | None:
        """The whole condition of the rule; None if it takes every record."""
        raise NotImplementedError

    @property
    def measures(self) -> frozenset[Measure]:
        """The measures of a record's `rank` that evaluation needs."""
        return frozenset() if self.condition is None else self.condition.measures()

    def takes(self, now: datetime, known: Fields) -> Condition:
        """Return a filter for the records that the rule takes, by these fields.

        Other records may match the filter too.
        """
        return EVERYTHING if self.condition is None else self.condition.filter(now, known)
