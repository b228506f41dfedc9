"""Every public call that changes something takes a `request_id`, or says why not."""

from __future__ import annotations

import inspect
from typing import get_type_hints

from memory import Memory
from memory.facade.memory import NOUNS
from memory.facade.resources.legal_holds import LegalHolds
from memory.facade.resources.message_stream import MessageStream
from memory.facade.resources.runs import Runs
from memory.facade.resources.session import Session
from memory.facade.resources.tasks import Tasks
from memory.facade.scoped import ScopedMemory
from memory.facade.write_options import EntryPatch
from memory.ports.contract.cells import cells

CLASSES = {
    "Memory": Memory,
    "ScopedMemory": ScopedMemory,
    **NOUNS,
    "admin.legal_holds": LegalHolds,
    "session": Session,
    "session.tasks": Tasks,
    "session.runs": Runs,
    "session.stream": MessageStream,
}
READS = {
    "Memory": "browse enrichment for_tenant get get_many open restrict retrieve scoped search search_messages session",
    "ScopedMemory": "get get_many retrieve browse search",
    "entries": "history iterate source_messages",
    "relations": "all density expand find graph",
    "short_ids": "resolve resolve_many",
    "sessions": "delegation get list runs",
    "scratchpads": "read",
    "documents": "find get get_many iterate list",
    "scopes": "list",
    "artifacts": "get list read stream",
    "commands": "schema",
    "admin": "audit blocked_sources check compare export plan rolled_back_stores route stats where why",
    "admin.legal_holds": "list",
    "session": "compactions context history info search state stream window",
    "session.tasks": "get list",
    "session.runs": "get list",
}
"""Calls that change nothing that a caller stored."""
WITHOUT = {
    "Memory.close": "ends the use of a memory",
    "Memory.maintain": "does work that is due, and again only what is due then",
    "documents.edit": "its function sees in the document whether an earlier attempt was stored",
    "short_ids.of": "an entry keeps its short id",
    "admin.backup": "writes a file that must not exist",
    "admin.embed_messages": "adds what is missing",
    "admin.erase": "shall erase what exists when it ends, also what was written since",
    "admin.erase_tenant": "as admin.erase",
    "admin.erase_user": "as admin.erase",
    "ScopedMemory.erase": "as admin.erase",
    "admin.flush": "delivers what is pending",
    "admin.forget_store": "a store is forgotten once",
    "admin.import_": "finds by their ids what an earlier call has imported",
    "admin.move": "an entry is in one tier, whoever moved it",
    "admin.reindex": "goes on where an earlier call ended",
    "admin.sweep": "as Memory.maintain",
    "admin.vacuum": "frees what is free",
    "session.stream.write": "the id of the message names it",
    "session.stream.finish": "as session.stream.write",
}
"""Calls that change something and take no request id, with the reason."""


def _changing_calls() -> dict[str, inspect.Signature]:
    return {
        f"{name}.{method}": inspect.signature(function)
        for name, kind in CLASSES.items()
        for method, function in inspect.getmembers(kind, inspect.isfunction)
        if not method.startswith("_") and method not in READS.get(name, "").split()
    }


@cells("name", _changing_calls(), shared=True)
def test_a_call_that_changes_something_takes_a_request_id(name: str) -> None:
    options = get_type_hints(_IN_OPTIONS[name]) if name in _IN_OPTIONS else {}
    takes = "request_id" in {*_changing_calls()[name].parameters, *options}
    assert takes != (name in WITHOUT), (
        f"{name}: take a request_id (see docs/guide/repeats.md), or list the call here with the reason"
    )


_IN_OPTIONS = {
    "Memory.update": EntryPatch,
    "ScopedMemory.update": EntryPatch,
}
"""Calls whose `request_id` is one of their keyword options."""


def test_the_lists_name_existing_calls() -> None:
    public = {
        f"{name}.{method}"
        for name, kind in CLASSES.items()
        for method, _ in inspect.getmembers(kind, inspect.isfunction)
        if not method.startswith("_")
    }
    listed = {f"{name}.{method}" for name, methods in READS.items() for method in methods.split()}
    assert listed | WITHOUT.keys() | _IN_OPTIONS.keys() <= public
