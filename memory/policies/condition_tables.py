"""Read conditions from tables of TOML or Python; each key is one condition.

A table with several keys needs all of them.

    when = { all = [ { older_than = "7d" }, { not = { tag = "pinned" } } ] }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memory.domain.corrections import nearest
from memory.domain.errors import InvalidInput
from memory.policies.conditions import AllOf, AnyOf, NoneOf, RuleCondition, walk_conditions
from memory.policies.record_facts import MEASURES
from memory.policies.single_conditions import (
    AccessCountAtLeast,
    ConfidenceAtLeast,
    HasTag,
    IdleFor,
    OlderThan,
    ScopeExceeds,
    ScopeKindIs,
    TenantIs,
    TierIs,
    TypeIs,
)

MOST_LEVELS = 10
MOST_CONDITIONS = 100
"""Limits on the nesting and number of conditions in a rule.

Stores receive all conditions of a rule as one filter.
"""


def condition_of(given: object, path: str) -> RuleCondition:
    """Return a condition, or read it from a table; several keys must all hold.

    Raises:
        InvalidInput: With the path of a value that cannot be read.
    """
    condition = given if isinstance(given, RuleCondition) else _read(given, path, MOST_LEVELS)
    if _levels(condition) > MOST_LEVELS:
        raise InvalidInput(path, f"nests deeper than {MOST_LEVELS} levels")
    if sum(1 for _ in walk_conditions(condition)) > MOST_CONDITIONS:
        raise InvalidInput(path, f"holds more than {MOST_CONDITIONS} conditions")
    return condition


def _levels(condition: RuleCondition) -> int:
    return 1 + max((_levels(part) for part in condition.parts()), default=0)


def _read(given: object, path: str, room: int) -> RuleCondition:
    if isinstance(given, RuleCondition):
        return given
    if not isinstance(given, Mapping):
        raise InvalidInput(
            path,
            f'should be a table of conditions, such as {{ older_than = "7d" }}, not {type(given).__name__}',
        )
    if not given:
        raise InvalidInput(path, 'has no condition. Write one, such as { older_than = "7d" }')
    if not room:
        raise InvalidInput(path, f"nests deeper than {MOST_LEVELS} levels")
    read = [_read_one(str(name), value, path, room - 1) for name, value in given.items()]
    return read[0] if len(read) == 1 else AllOf(tuple(read))


def _read_one(name: str, value: object, path: str, room: int) -> RuleCondition:
    here = f"{path}.{name}"
    if name in ("all", "any"):
        if not isinstance(value, list | tuple) or not value:
            raise InvalidInput(here, "should be a list of one condition or more")
        parts = tuple(_read(part, f"{here}[{number}]", room) for number, part in enumerate(value))
        return AllOf(parts) if name == "all" else AnyOf(parts)
    if name == "not":
        return NoneOf(_read(value, here, room))
    try:
        return _read_single(name, value)
    except InvalidInput as error:
        inner = error.field.removeprefix(name)
        raise InvalidInput(here + inner, error.problem) from None


def _read_single(name: str, value: object) -> RuleCondition:
    if name in _OF_A_VALUE:
        return _OF_A_VALUE[name](value)
    if name in _OF_NAMES:
        return _OF_NAMES[name](*(value if isinstance(value, list | tuple) else (value,)))
    if name == "scope_over":
        if not isinstance(value, Mapping) or not value or not set(value) <= set(MEASURES):
            raise InvalidInput(
                name, f"should be a table of one of {', '.join(MEASURES)}, such as {{ count = 1000 }}"
            )
        return ScopeExceeds(**value)
    close = nearest(name, NAMES, 0.5)
    raise InvalidInput(
        name,
        "is not a condition; " + (f"did you mean {close}?" if close else f"there are {', '.join(NAMES)}"),
    )


_OF_A_VALUE: Mapping[str, Callable[..., RuleCondition]] = {
    kind.key: kind for kind in (OlderThan, IdleFor, AccessCountAtLeast, ConfidenceAtLeast)
}
_OF_NAMES: Mapping[str, Callable[..., RuleCondition]] = {
    kind.key: kind for kind in (TypeIs, HasTag, TierIs, ScopeKindIs, TenantIs)
}
NAMES = (*_OF_A_VALUE, *_OF_NAMES, "scope_over", "all", "any", "not")
"""The keys of a table of conditions."""
