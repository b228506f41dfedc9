"""Proxies: objects whose calls run on the event loop of another thread.

The original objects live on that loop and know nothing of their proxies. There are two
sorts: those of `own_loop` are awaited on any event loop, and the blocking classes of
`memory.sync` need none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from memory.facade.runtime.loop_thread import LoopThread
from memory.facade.runtime.shared_handle import SharedHandle

READ_AHEAD = 0.001
"""Seconds for which an iteration reads ahead on the private loop."""
MOST_AHEAD = 64
"""Items that one call to the private loop returns at most."""
CONTEXT = ("__aenter__", "__aexit__", "__call__")
"""The special methods that a proxy has."""


class Proxy(SharedHandle):
    """The base class of proxies. A proxy holds the original and the loop of its calls.

    A proxy that owns the loop stops it in `close`.
    """

    __wrapped__: ClassVar[type]
    _original: Any
    _loop: LoopThread
    _owns_loop: bool

    @classmethod
    def _class_for(cls, kind: type) -> type[Proxy]:
        """Return the class of the proxies of a class, of the same sort as this one."""
        raise NotImplementedError

    @classmethod
    def _stand_for(cls, original: Any, loop: LoopThread) -> Self:
        proxy: Self = object.__new__(cls)
        proxy._bind(original, loop, owns_loop=False)
        return proxy

    def _bind(self, original: Any, loop: LoopThread, *, owns_loop: bool) -> None:
        for name, value in (("_original", original), ("_loop", loop), ("_owns_loop", owns_loop)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._handed_out(getattr(self._original, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._original, name, value)

    def __repr__(self) -> str:
        return repr(self._original).replace(type(self._original).__name__, type(self).__name__, 1)

    def _handed_out(self, value: Any) -> Any:
        """Return the value for the caller, with proxies in place of async objects."""
        if value is self._original:
            return self
        if type(value) is list:
            return [self._handed_out(item) for item in value]
        original: type = type(value)
        return self._class_for(original)._stand_for(value, self._loop) if is_async(original) else value

    def _argument(self, value: Any) -> Any:
        """Return an argument for a call of the original.

        An argument that is a proxy on the same loop is replaced by its original.
        """
        return value._original if isinstance(value, Proxy) and value._loop is self._loop else value

    def _leaves_inherited(self, name: str, args: Sequence[Any]) -> bool:
        """Return whether this is the end of a block in a forked child, by an error.

        The child, such as one that leaves by SystemExit, must end with that error.
        """
        return name == "__aexit__" and self._loop.is_inherited and args[0] is not None


@functools.cache
def is_async(kind: type) -> bool:
    """Return whether a class has public async methods or an async context."""
    methods = [
        member for name, member in members_of(kind).items() if not name.startswith("_") or name in CONTEXT
    ]
    return any(
        inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) for method in methods
    )


def members_of(kind: type) -> dict[str, Any]:
    """Return the members of a class and of its bases, by name."""
    return {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}


def attribute(name: str, member: Any) -> Any:
    """Return the proxy's counterpart of a property, a field or a class attribute."""
    return (
        property(functools.partial(_attribute_of, name), doc=member.__doc__)
        if isinstance(member, property)
        else _Attribute(name)
    )


class _Attribute:
    """A class attribute, or a field of that name where an original has one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, proxy: Proxy | None, owner: type[Proxy]) -> Any:
        return getattr(owner.__wrapped__, self._name) if proxy is None else _attribute_of(self._name, proxy)


def _attribute_of(name: str, proxy: Proxy) -> Any:
    return proxy._handed_out(getattr(proxy._original, name))


def unwrap(value: Any, loops: list[LoopThread], kind: type[Proxy]) -> Any:
    """Return an argument for the constructor of an original, and note its loop.

    Proxies of this kind on the first loop of `loops` are replaced by their originals,
    also in lists and in fields of dataclasses. Proxies on another loop stay: they may
    be called from any loop.
    """
    if isinstance(value, kind):
        if value._loop not in loops:
            loops.append(value._loop)
        return value._original if value._loop is loops[0] else value
    if isinstance(value, list | tuple):
        return [unwrap(item, loops, kind) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {one.name: getattr(value, one.name) for one in dataclasses.fields(value) if one.init}
        changed = {name: unwrap(held[name], loops, kind) for name in held if isinstance(held[name], kind)}
        return dataclasses.replace(value, **changed) if changed else value
    return value


def make_original(
    kind: type[Proxy], original: type, args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> tuple[Any, LoopThread, bool]:
    """Make the original of a new proxy, from arguments that may be proxies.

    Returns:
        The original, the loop of its calls, and whether the proxy owns that loop: that
        of the arguments, or a new one with this name. The loop of a memory ends with
        the last call after the memory was closed.
    """
    loops: list[LoopThread] = []
    own = [unwrap(value, loops, kind) for value in args]
    named = {key: unwrap(value, loops, kind) for key, value in kwargs.items()}
    made: Any = object.__new__(original)
    made.__init__(*own, **named)
    if loops:
        return made, loops[0], False
    access = getattr(made, "_access", None)
    return made, LoopThread(name, None if access is None else lambda: bool(access.is_open)), True


async def read_ahead(items: AsyncIterator[Any]) -> tuple[list[Any], bool, Exception | None]:
    """Read at least one item, and those that follow within a millisecond.

    Returns:
        The items, whether no more will come, and the error that came after them.
    """
    found = list[Any]()
    clock = asyncio.get_running_loop().time
    until = clock() + READ_AHEAD
    try:
        while len(found) < MOST_AHEAD and (not found or clock() < until):
            found.append(await anext(items))
    except StopAsyncIteration:
        return found, True, None
    except Exception as error:
        if not found:
            raise
        return found, True, error
    return found, False, None
