"""The guard of restricted views: which calls a view has, and what they may name.

`guard_calls` decorates every class of the facade that holds an `Access`. Each public
method must have a line in `CALLS`, or its module does not load. So a new method is in
no view until somebody decides what it may do there.

In a view, the guard does five things around each call:

- It refuses a call that the view does not have, before any store is touched.
- It refuses a call that makes changes if the view's origin is a blocked source.
- It refuses scopes outside of the view in the arguments of `SCOPE_ARGUMENTS`.
- It removes the ids of outside records from the entries of the result.
- It raises an error if the result has an entry of another scope. That is a second line
  of defence: the call itself must ask for the view's scopes only.

In every memory, a call that begins while the memory is being opened waits for that. A
memory that opens on use is opened by the first call that needs a store.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from memory.domain.corrections import as_coroutine_function
from memory.domain.errors import Forbidden, InvalidInput, NotOpen, PartialWrite, QuotaExceeded
from memory.domain.guesses import PLACES
from memory.domain.view import View
from memory.facade.arguments import scope_or_subtree
from memory.facade.runtime.handles import copies_are_the_handle
from memory.facade.runtime.view_results import hide_outside
from memory.orchestrator.conversations.window.reads import lends_reads

if TYPE_CHECKING:
    from memory.facade.runtime.access import Access

C = TypeVar("C")
Opening: TypeAlias = Callable[[], Awaitable[object]]
"""Opens a memory for a call."""


class ViewCall(Enum):
    """The views that have a call, and how far it reaches in them."""

    READ = "read"
    """Every view has it, in its scopes."""
    WRITE = "write"
    """Views of writers have it, in their scopes."""
    TENANT_READ = "tenant read"
    """Views of all scopes have it."""
    TENANT_WRITE = "tenant write"
    """Views of all scopes have it, if they are of writers."""
    STORES = "stores"
    """No restricted view has it: it concerns the stores, and so other tenants."""
    LOCAL = "local"
    """It uses no record, or makes a view that is checked by itself."""


_KINDS: Final = {
    ViewCall.READ: """
        Memory.browse Memory.enrichment Memory.get Memory.get_many Memory.retrieve Memory.scoped
        Memory.search Memory.search_messages Memory.session
        ScopedMemory.browse ScopedMemory.get ScopedMemory.get_many ScopedMemory.retrieve
        ScopedMemory.search
        Entries.history Entries.iterate Entries.source_messages
        Relations.all Relations.density Relations.expand Relations.find Relations.graph
        Sessions.delegation Sessions.get Sessions.list Sessions.runs
        Session.compactions Session.context Session.history Session.info Session.search
        Session.state Session.window
        Tasks.get Tasks.list Runs.get Runs.list
        Documents.find Documents.get Documents.get_many Documents.iterate Documents.list
        Artifacts.get Artifacts.list Artifacts.read Artifacts.stream
        ScopeListing.list Commands.run
    """,
    ViewCall.WRITE: """
        Memory.compact Memory.delete Memory.promote Memory.update Memory.write Memory.write_many
        Memory.write_with_report
        ScopedMemory.delete ScopedMemory.erase ScopedMemory.update ScopedMemory.write
        ScopedMemory.write_with_report
        Entries.delete_many Entries.invalidate Relations.relate Relations.unrelate
        Sessions.create Sessions.delete Sessions.end Sessions.update
        Session.append Session.archive Session.checkpoint Session.clear Session.compact
        Session.compact_if_needed Session.delete Session.end Session.erase Session.exclude
        Session.fork Session.pop Session.repair_tool_calls Session.replace Session.restore
        Session.resume Session.roll_back Session.stream Session.update
        Tasks.delete Tasks.replace_all Tasks.save Runs.delete Runs.save
        Documents.apply Documents.delete Documents.delete_many Documents.edit Documents.put
        Documents.put_many
        Artifacts.delete Artifacts.put Admin.erase
    """,
    ViewCall.TENANT_READ: """
        ShortIds.of ShortIds.resolve ShortIds.resolve_many Scratchpads.read
        Admin.blocked_sources Admin.export Admin.route Admin.stats Admin.where Admin.why
        LegalHolds.list
    """,
    ViewCall.TENANT_WRITE: """
        Scratchpads.append Scratchpads.clear
        Admin.block_source Admin.embed_messages Admin.erase_tenant Admin.erase_user Admin.import_
        Admin.move Admin.revert_source Admin.unblock_source
        LegalHolds.add LegalHolds.remove
    """,
    ViewCall.STORES: """
        Memory.for_tenant Memory.maintain
        Admin.audit Admin.backup Admin.check Admin.compare Admin.flush Admin.forget_store Admin.plan
        Admin.reindex Admin.rolled_back_stores Admin.sweep Admin.vacuum
    """,
    ViewCall.LOCAL: "Memory.close Memory.open Memory.restrict Commands.schema",
}
CALLS: Final[Mapping[str, ViewCall]] = {
    name: kind for kind, names in _KINDS.items() for name in names.split()
}
"""Every public call of the facade's classes, and what a view may do with it."""
SCOPE_ARGUMENTS: Final = ("scope", "reads", "to", "target_scope", "messages_to")
"""The arguments that name scopes. The guard checks them in every call of a view."""
TENANT: Final = "tenant"
"""The value of `reads` for all scopes; in a view, for those of the view."""
_KEPT_BACK: Final = frozenset(
    """
    Memory.write Memory.write_many Memory.write_with_report
    ScopedMemory.write ScopedMemory.write_with_report
    """.split()
)
"""Calls that write new entries. The engine refuses or hides those of blocked sources.
"""
_CHANGES: Final = (ViewCall.WRITE, ViewCall.TENANT_WRITE)
_WHOLE_TENANT: Final = (ViewCall.TENANT_READ, ViewCall.TENANT_WRITE)


def guard_calls(kind: type[C]) -> type[C]:
    """Let restricted views have only the calls of a class that `CALLS` gives them.

    Raises:
        TypeError: A public method has no line in `CALLS`.
    """
    for name, member in list(vars(kind).items()):
        if not inspect.isfunction(member) or name.startswith("_"):
            continue
        called = f"{kind.__name__}.{name}"
        if called not in CALLS:
            raise TypeError(f"{called} is in no group of memory.facade.runtime.view_guard._KINDS. Add it")
        if CALLS[called] is not ViewCall.LOCAL:
            setattr(kind, name, _with_guard(called, member))
    return copies_are_the_handle(kind)


def check_call(view: View, called: str) -> None:
    """Raise `Forbidden` if a view does not offer a call."""
    call = CALLS[called]
    kind, _, method = called.partition(".")
    name = f"{PLACES[kind].removeprefix('memory.')}.{method}"
    if call is ViewCall.STORES and view.is_restricted:
        raise Forbidden(
            name, "concerns the stores or another tenant, which no restricted view reaches. Call the memory"
        )
    if call in _WHOLE_TENANT and view.scopes is not None:
        raise Forbidden(
            name,
            f"concerns all scopes of the tenant, and this view has {view.description}. Call the memory, or a"
            " view that is restricted by role= alone",
        )
    if call in _CHANGES and view.role == "reader":
        raise Forbidden(
            name, "makes changes, and this view is restricted to role 'reader'. Use a view with role='writer'"
        )


def _with_guard(called: str, method: Callable[..., Any]) -> Callable[..., Any]:
    guard = _Guard(called, method)
    restricted = guard.call
    after_opening: Callable[[Access, Any], Any] | None = None
    opened: Callable[[Opening, Callable[[], Any]], Any] | None = None
    if inspect.iscoroutinefunction(method):
        restricted, after_opening, opened = guard.call_async, _call_after_opening, _open_and_call
    elif inspect.iscoroutinefunction(inspect.unwrap(method)):
        restricted, after_opening, opened = (
            lends_reads(guard.call_async),
            _call_after_opening,
            _open_and_call,
        )
    elif inspect.isasyncgenfunction(inspect.unwrap(method)):
        restricted, after_opening, opened = guard.iterate, _iterate_after_opening, _open_and_iterate

    def call(self: Any, args: Any, kwargs: Any) -> Any:
        access: Access = self._access
        if access.view is None:
            made = method(self, *args, **kwargs)
        else:
            made = restricted(access, access.view, self, args, kwargs)
        return after_opening(access, made) if access.is_opening and after_opening is not None else made

    @functools.wraps(method)
    def call_guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        access: Access = self._access
        opening = access.opening
        if opening is not None and opened is not None:
            return opened(opening, functools.partial(call, self, args, kwargs))
        return call(self, args, kwargs)

    return as_coroutine_function(call_guarded, method)


async def _call_after_opening(access: Access, called: Coroutine[Any, Any, Any]) -> Any:
    try:
        await access.wait_for_opening()
    except BaseException:
        called.close()
        raise
    return await called


async def _iterate_after_opening(access: Access, iterator: AsyncIterator[Any]) -> AsyncIterator[Any]:
    await access.wait_for_opening()
    async for item in iterator:
        yield item


async def _open_and_call(opening: Opening, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Make a call; if it needs a store, open the memory and make it again."""
    try:
        return await call()
    except NotOpen:
        await opening()
    return await call()


async def _open_and_iterate(
    opening: Opening, iterate: Callable[[], AsyncIterator[Any]]
) -> AsyncIterator[Any]:
    """Iterate; if that needs a store, open the memory and begin again."""
    try:
        async for item in iterate():
            yield item
        return
    except NotOpen:
        await opening()
    async for item in iterate():
        yield item


class _Guard:
    """The guard of one call."""

    def __init__(self, called: str, method: Callable[..., Any]) -> None:
        self._called = called
        self._method = method
        self._signature = inspect.signature(method)
        self._is_blockable = CALLS[called] in _CHANGES and called not in _KEPT_BACK
        self._checked = [name for name in SCOPE_ARGUMENTS if name in self._signature.parameters]

    def call(self, access: Access, view: View, held: Any, args: Any, kwargs: Any) -> Any:
        self._check(view, held, args, kwargs)
        return self._method(held, *args, **kwargs)

    async def call_async(self, access: Access, view: View, held: Any, args: Any, kwargs: Any) -> Any:
        self._check(view, held, args, kwargs)
        if self._is_blockable:
            await access.refuse_blocked()
        try:
            return await hide_outside(access, await self._method(held, *args, **kwargs))
        except PartialWrite as error:
            await hide_outside(access, error.written)
            raise
        except QuotaExceeded as error:
            await hide_outside(access, error.written)
            if _is_own_quota(view, error):
                raise
            raise error.without_totals() from None

    async def iterate(
        self, access: Access, view: View, held: Any, args: Any, kwargs: Any
    ) -> AsyncIterator[Any]:
        self._check(view, held, args, kwargs)
        async for item in self._method(held, *args, **kwargs):
            yield await hide_outside(access, item)

    def _check(self, view: View, held: Any, args: Any, kwargs: Any) -> None:
        check_call(view, self._called)
        if view.scopes is None or not self._checked:
            return
        try:
            given = self._signature.bind(held, *args, **kwargs).arguments
        except TypeError:  # the call explains it
            return
        for name in self._checked:
            if given.get(name) is not None:
                _check_scopes(view, name, given[name])


def _check_scopes(view: View, name: str, given: Any) -> None:
    """Check scopes as a caller gives them. The call refuses those that are none."""
    if name == "reads" and given == TENANT:
        return
    several = given if isinstance(given, list | tuple | set | frozenset) else [given]
    named = []
    for one in several:
        try:
            scope = scope_or_subtree(one)
        except InvalidInput:
            return
        named.append(scope)
    view.require(name, named)


def _is_own_quota(view: View, error: QuotaExceeded) -> bool:
    """Return whether a quota counts one scope of the view, and nothing else."""
    if view.scopes is None:
        return True
    kind, _, text = error.where.partition(" ")
    return kind == "scope" and view.contains_text(text.strip("'"))
