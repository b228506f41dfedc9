"""Errors that name the right argument, method or setting where a guessed one was used.

`explain_guesses` decorates the classes that users hold. It changes no signature, and a
call with right names costs one more Python call.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from memory.domain.errors import WrongArguments
from memory.domain.guesses import (
    ARGUMENTS,
    ATTRIBUTES,
    CALLS,
    NAMES,
    PARTS_OF_MESSAGE,
    PLACES,
    SETTINGS,
    VALUE_NOTES,
    VALUES,
    Answer,
)

C = TypeVar("C")
T = TypeVar("T")

_HOLDING = ("memory", "session")
"""Objects whose methods and resources are suggested for other objects."""
_LONGEST = 80
"""Characters of a guess that are compared and shown."""
_CLASSES: dict[str, type] = {}
"""The decorated classes, by name."""


def explain_guesses(kind: type[C]) -> type[C]:
    """Make wrong arguments and unknown attributes of a class name the right ones.

    Public methods and the constructor raise `WrongArguments`, a `TypeError`, for
    arguments that do not fit their signature. Unknown attributes raise
    `AttributeError`.
    """
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _with_explained_call(member))
    inherited = getattr(kind, "__getattr__", None)

    def explain(self: Any, name: str) -> Any:
        if name.startswith("_"):  # copy, pickle and pydantic ask for such names
            if inherited is not None:
                return inherited(self, name)
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if hasattr(type(self), name):  # a property of that name failed, or the field is not set yet
            return object.__getattribute__(self, name)
        found: Any = type(self)
        raise AttributeError(unknown_attribute(found, name), name=name, obj=None)

    setattr(kind, "__getattr__", explain)  # noqa: B010 - type checkers must not see it
    _CLASSES[kind.__name__] = kind
    return kind


def explain_arguments(kind: type[C]) -> type[C]:
    """Make the constructor of a class name the right arguments, and nothing else of it.

    It is for values that callers build, such as rules. Subclasses inherit it.
    """
    setattr(kind, "__init__", _with_explained_call(vars(kind)["__init__"]))  # noqa: B010 - mypy refuses it
    return kind


def explain_subscripts(kind: type[C]) -> type[C]:
    """Make `message["content"]` raise a `TypeError` that says `message.content`."""

    def explain(self: Any, key: object) -> Any:
        raise TypeError(subscript_problem(type(self), key))

    setattr(kind, "__getitem__", explain)  # noqa: B010 - type checkers must not see it
    return kind


def subscript_problem(kind: type, key: object) -> str:
    """Return why this key cannot subscript an object, and the right expression."""
    name = key[:_LONGEST] if isinstance(key, str) else type(key).__name__
    right = _attribute_answer(kind, name)
    if right is None and hasattr(kind, name) | (name in getattr(kind, "model_fields", ())):
        right = f"{PLACES.get(kind.__name__, 'it')}.{name}"
    return f"'{kind.__name__}' object has no item {name!r}" + (
        f"; use {right}" if right else "; use attributes"
    )


@functools.lru_cache(maxsize=512)  # frameworks ask every object for the same few names
def unknown_attribute(kind: type, name: str) -> str:
    """Return the message for an attribute that a class does not have."""
    problem = f"'{kind.__name__}' object has no attribute '{name}'"
    if name in getattr(kind, "model_fields", ()):
        return f"{problem}, because the call left it out. Name {name!r} in include=, or call without include="
    if (right := _attribute_answer(kind, name)) is not None:
        return f"{problem}; use {right}"
    place = PLACES.get(kind.__name__, "")
    homes = [
        f"{home}.{name}"
        for other, home in PLACES.items()
        if home.partition(".")[0] in _HOLDING and hasattr(_CLASSES.get(other), name)
    ]
    if homes and place.partition(".")[0] in (*_HOLDING, "view"):
        return f"{problem}; did you mean {' or '.join(homes)}?"
    known = [*dir(kind), *getattr(kind, "model_fields", ())]
    close = nearest(name, [one for one in known if not one.startswith("_")], 0.7)
    return problem + (f"; did you mean {close}?" if close else "")


def unknown_export(name: str, known: Iterable[str]) -> str:
    """Return the message for a name that the package `memory` does not export."""
    problem = f"module 'memory' has no attribute '{name}'"
    if (right := look_up(NAMES, name)) is not None:
        return f"{problem}; use {right}"
    return problem + did_you_mean(name, known)


def _attribute_answer(kind: type, name: str) -> str | None:
    for base in kind.__mro__:
        if (right := look_up(ATTRIBUTES.get(base.__name__, {}), name)) is not None:
            return right
    return None


def _with_explained_call(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that arguments that do not fit are explained.

    Python checks the arguments of a correct call only once. No frame of this wrapper
    stays in the traceback of a coroutine (from Python 3.12 on).
    """
    names, by_position = frozenset[str](), sys.maxsize
    # Options take any name, and a decorated method binds its arguments when awaited.
    checks_names = _name_options(method) or hasattr(method, "__wrapped__")
    if checks_names:
        parameters = inspect.signature(method).parameters.values()
        names = frozenset(p.name for p in parameters)
        by_position = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        error = None
        if checks_names and (len(args) > by_position or not kwargs.keys() <= names):
            error = _binding_error(method, args, kwargs)
        try:
            if error is None:
                return method(*args, **kwargs)
        except TypeError:
            error = _binding_error(method, args, kwargs)
            if error is None:
                raise
        raise error

    return as_coroutine_function(call, method)


def as_coroutine_function(call: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Make `inspect.iscoroutinefunction` answer for a call as for the method."""
    if not inspect.iscoroutinefunction(method):
        return call
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(call)

    @functools.wraps(method)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    return awaited


class _Omitted:
    """The default of an option, which stays out of the call."""

    def __repr__(self) -> str:
        return "..."


_OMITTED = _Omitted()


def _name_options(method: Callable[..., Any]) -> bool:
    """Give a method with `**options: Unpack[Options]` a signature of all options.

    `help`, editors and the checks below read it; wrappers of the method copy it. False
    if the method takes no such options.
    """
    annotation = str(getattr(method, "__annotations__", {}).get("options"))
    if not annotation.startswith("Unpack["):
        return False
    options = method.__globals__[annotation.removeprefix("Unpack[").removesuffix("]")]
    signature = inspect.signature(method)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    named = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_OMITTED,
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in options.__annotations__.items()
    ]
    method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
    return True


def _binding_error(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> WrongArguments | None:
    """Return the error for the arguments of a call; None if they fit."""
    signature = inspect.signature(method)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        problem = str(error)
    else:
        return None
    parameters = list(signature.parameters.values())[1:]
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    accepted = [
        *by_position,
        *(f"*{p.name}" for p in parameters if p.kind is p.VAR_POSITIONAL),
        *(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
    ]
    called, given = method.__qualname__, len(args) - 1
    if method.__name__ == "__init__" and args:  # a subclass may inherit the constructor
        called = f"{type(args[0]).__name__}.__init__"
    if unknown := [name for name in kwargs if name not in accepted]:
        return unknown_arguments(called, unknown, accepted, first=by_position[0] if by_position else None)
    example = f" Write {CALLS[called]}." if called in CALLS else ""
    if given > len(by_position):
        expected = f"{len(by_position)} ({', '.join(by_position)})" if by_position else "none"
        return WrongArguments(
            _place(called),
            f"got {given} arguments by position and takes {expected}. Name the others.{example}"
            f"{_list_of(accepted)}",
        )
    required = [p.name for p in parameters if p.default is p.empty and p.name in accepted]
    missing = [name for name in required if name not in kwargs and name not in by_position[:given]]
    if missing:
        return WrongArguments(
            missing[0], f"is missing in the call of {_place(called)}().{example}{_list_of(accepted)}"
        )
    return WrongArguments(_place(called), f"{problem}.{example}{_list_of(accepted)}")


def unknown_arguments(
    called: str, names: Iterable[str], accepted: Collection[str], *, first: str | None = None
) -> WrongArguments:
    """Return the error for arguments that a call does not accept.

    Args:
        called: The call, such as `Memory.write`, or a class.
        names: The unknown arguments.
        accepted: The names that it accepts.
        first: The argument that examples pass by position.
    """
    names, place = [name[:_LONGEST] for name in names], _place(called)
    one = len(names) == 1
    hints = dict.fromkeys(filter(None, (_argument_hint(called, name, accepted, first) for name in names)))
    return WrongArguments(
        ", ".join(names),
        f"{'is not an argument' if one else 'are not arguments'} of"
        f" {place}().{''.join(hints)}{_list_of(accepted)}",
        field=names[0],
    )


def unknown_keys(
    argument: str, names: Collection[str], accepted: Collection[str], example: str
) -> WrongArguments:
    """Return the error for unknown keys of a dict argument, such as `filter`."""
    hint = did_you_mean(next(iter(names)), accepted)
    if not hint:
        hint = f". Write {argument}={example}."
        hint += ' A key of your own is {"metadata": {"kind": "recipe"}}.' if "metadata" in accepted else ""
    return WrongArguments(
        ", ".join(f"{argument}.{name[:_LONGEST]}" for name in names),
        f"{'is no key' if len(names) == 1 else 'are no keys'} of {argument}{hint}{_list_of(accepted)}",
        field=argument,
    )


def _argument_hint(called: str, name: str, accepted: Collection[str], first: str | None) -> str:
    for answer in look_up(ARGUMENTS, name) or ():
        if (hint := _applied(answer, called, accepted, first)) is not None:
            return hint
    close = nearest(name, accepted, 0.6)
    return f" Did you mean {close}=?" if close else ""


def _applied(answer: Answer, called: str, accepted: Collection[str], first: str | None) -> str | None:
    """Return an answer as sentences of an error; None if it does not apply."""
    where, example, note = (*answer, "")[:3]
    if where in accepted:
        given = example if where == first else f"..., {where}={example}"
        example = f"{_place(called)}({given})"
        use = f" Use {where}: {example}."
    elif where in ("", called, called.partition(".")[0]):
        use = f" Use {example}."
    else:
        return None
    return f"{use} {note}" if note else use


def value_hint(field: str, value: object, allowed: Collection[str]) -> str:
    """Return a hint for a value that an argument does not accept; empty without one."""
    argument = field.rpartition(".")[2].partition("[")[0]
    if note := VALUE_NOTES.get({"types": "type"}.get(argument, argument)):
        return f". {note}"
    if not isinstance(value, str):
        return ""
    right = look_up(VALUES.get(argument, {}), value) or nearest(value, allowed, 0.7)
    return f"; did you mean {str(right)!r}?" if right in allowed else ""


def setting_hint(name: str, known: Iterable[str], section: str = "") -> str:
    """Return a hint for a setting that does not exist; empty without one."""
    right = None if section else look_up(SETTINGS, name)
    return did_you_mean(name, known) if right is None else f". {right}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar name, as the end of a sentence."""
    close = nearest(name, known, 0.5)
    return f"; did you mean '{close}'?" if close else ""


def meant_name(name: str, known: Collection[str]) -> str | None:
    """Return the known name that a guessed one means; None if none is near.

    Names that are guessed for the same argument also stand for each other, except the
    parts of a message.
    """
    for names, answers in ARGUMENTS.items():
        guesses = names.split()
        if name in guesses or answers[0][0] == name:
            synonyms = [] if names == PARTS_OF_MESSAGE else guesses
            for right in [*(answer[0] for answer in answers), *synonyms]:
                if right in known:
                    return right
    return nearest(name.lower(), known, 0.6)


def nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    """Return the most similar known name; None if none is similar."""
    return next(iter(get_close_matches(name[:_LONGEST], list(known), n=1, cutoff=cutoff)), None)


def look_up(table: Mapping[str, T], name: str) -> T | None:
    """Return the answer of a table whose keys are guessed names, parted by blanks."""
    return next((answer for names, answer in table.items() if name in names.split()), None)


def _place(called: str) -> str:
    """Return a call as examples write it: `memory.write` for `Memory.write`."""
    kind, _, method = called.partition(".")
    if method in ("", "__init__"):
        return kind
    return f"{PLACES.get(kind, kind)}.{method}"


def _list_of(accepted: Collection[str]) -> str:
    return f" Accepted: {', '.join(accepted)}." if accepted else " It takes no arguments."
