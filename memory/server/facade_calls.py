"""Calls of the facade by their names, such as `session.append`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, Unpack, get_args, get_origin, get_type_hints

from memory.domain.errors import CompactionError, ConfigError, Conflict, InvalidInput
from memory.facade.memory import NOUNS, Memory
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.resources.runs import Runs
from memory.facade.resources.session import Session
from memory.facade.resources.tasks import Tasks
from memory.facade.runtime.view_guard import CALLS, ViewCall
from memory.server.advice import in_http_words
from memory.server.problems import Problem

Values: TypeAlias = dict[str, Any]
"""The arguments of a call, by name."""

CLASSES: Final[Mapping[str, type]] = {
    "memory": Memory,
    **NOUNS,
    "session": Session,
    "session.tasks": Tasks,
    "session.runs": Runs,
    "admin.legal_holds": LegalHolds,
}
"""The classes of the facade whose calls have routes."""


def function_of(call: str) -> Callable[..., Any]:
    """Return the method that a name means."""
    holder, _, name = call.rpartition(".")
    found: Callable[..., Any] = getattr(CLASSES[holder], name)
    return found


def concerns_stores(call: str) -> bool:
    """Return whether a call concerns the stores, and so other tenants too."""
    holder, _, name = call.rpartition(".")
    return CALLS[f"{CLASSES[holder].__name__}.{name}"] is ViewCall.STORES


def hints_of(call: str) -> Values:
    """Return the types of the arguments of a call, and of its result."""
    hints = get_type_hints(inspect.unwrap(function_of(call)))
    for name, hint in list(hints.items()):
        if get_origin(hint) is Unpack:
            hints |= get_type_hints(get_args(hints.pop(name))[0])
    return hints


async def call_facade(
    memory: Memory,
    call: str,
    values: Values,
    *,
    renames: Mapping[str, str],
    handle: Sequence[str],
    creates: bool,
) -> Any:
    """Call the facade.

    Args:
        memory: The memory, or a view of it.
        call: The name of the call.
        values: The arguments, and those of the session's handle.
        renames: The arguments whose fields in the request have other names.
        handle: The arguments of `Memory.session` among the values.
        creates: Create the session if there is none.

    Raises:
        Problem: 409 if the configuration does not allow the call.
    """
    holder, _, name = call.rpartition(".")
    target: Any = memory
    first, *others = holder.split(".")
    if first == "session":
        given = {one: values.pop(one) for one in handle if one in values}
        target = target.session(values.pop("session_id"), **{"create": creates, **given})
    elif first != "memory":
        target = getattr(target, first)
    for one in others:
        target = getattr(target, one)
    arguments = {renames.get(one, one): value for one, value in values.items()}
    try:
        result = getattr(target, name)(**arguments)
        return await result if inspect.isawaitable(result) else result
    except CompactionError as error:
        if isinstance(error.__cause__, Conflict):  # the client's own condition, see the routes of compactions
            raise error.__cause__ from None
        raise
    except ConfigError as error:
        raise Problem(409, error.code, in_http_words(str(error))) from None
    except InvalidInput as error:
        raise _with_field_names(error, renames) from None


def _with_field_names(error: InvalidInput, renames: Mapping[str, str]) -> InvalidInput:
    """Return an error that names fields of the request in place of arguments."""
    for name, argument in renames.items():
        if re.match(rf"{argument}\b", error.field):
            field = f"{name}{error.field.removeprefix(argument)}"
            return InvalidInput(field, error.problem.replace(f" {error.field}:", f" {field}:"))
    return error
