"""Every exception of the package can be copied and sent to another process."""

from __future__ import annotations

import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import typing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import memory
from memory.domain.errors import (
    CompactionError,
    Conflict,
    InvalidInput,
    MemoryTiersError,
    NotFound,
    StoreError,
    StoreFull,
    Unsupported,
)
from memory.domain.legal_hold import LegalHold
from memory.ports.contract.cells import cells
from memory.ports.record import Key
from tests.unit.domain.failing import fail

EXAMPLES: dict[Any, object] = {
    str: "what it was",
    str | None: "perhaps",
    str | Sequence[str]: ("ttl", "atomic"),
    Sequence[str]: ("e1", "e2"),
    int: 7,
    bool: True,
    float: 0.5,
    timedelta: timedelta(seconds=5),
    Mapping[str, str]: {"buffer": "is away"},
    Sequence[tuple[str, BaseException]]: (("personal", OSError("disk")),),
    Mapping[int, Conflict]: {1: Conflict("taken", "e1")},
    Mapping[int, Any]: {},
    Key: Key("acme", "e1"),
    LegalHold: LegalHold("case-17", "user", "ada", "a lawsuit", None, datetime(2026, 3, 1, tzinfo=UTC)),
}


def _exceptions() -> Iterator[type[BaseException]]:
    """Every exception class that a module of the package defines."""
    seen = set[type[BaseException]]()
    for module in pkgutil.walk_packages(memory.__path__, "memory."):
        if module.name.endswith("__main__"):
            continue
        for found in vars(importlib.import_module(module.name)).values():
            if (
                inspect.isclass(found)
                and issubclass(found, BaseException)
                and found.__module__.startswith("memory.")
                and found not in seen
            ):
                seen.add(found)
                yield found


def _example(kind: type[BaseException]) -> BaseException:
    """One of this class, made as its constructor wants."""
    if kind.__init__ in (BaseException.__init__, Exception.__init__, ValueError.__init__, OSError.__init__):
        return kind("what it was")
    home = importlib.import_module(kind.__module__)
    hints = typing.get_type_hints(
        kind.__init__,
        {**vars(typing), **vars(home), "Sequence": Sequence, "LegalHold": LegalHold},
    )
    every = list(inspect.signature(kind.__init__).parameters.values())[1:]
    more = [
        EXAMPLES[hints[p.name]] for p in every if p.kind is p.VAR_POSITIONAL and hints.get(p.name) in EXAMPLES
    ]
    parameters = [p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    given = {
        p.name: EXAMPLES.get(hints[p.name], ["one", 2] if "list" in str(hints[p.name]) else None)
        for p in parameters
    }
    return kind(*more, **given)


@cells(
    "kind",
    [pytest.param(kind, id=f"{kind.__module__}.{kind.__name__}") for kind in _exceptions()],
    shared=True,
)
def test_an_exception_is_the_same_after_a_copy_and_a_journey(kind: type[BaseException]) -> None:
    raised = _example(kind)
    raised.add_note("seen on Tuesday")
    for again in (
        copy.copy(raised),
        copy.deepcopy(raised),
        *(pickle.loads(pickle.dumps(raised, protocol)) for protocol in range(2, 6)),  # noqa: S301
    ):
        assert type(again) is kind
        assert str(again) == str(raised)
        assert again.args == raised.args
        assert repr(vars(again)) == repr(vars(raised))
        assert again is not raised


def test_the_walk_meets_the_errors_of_every_layer() -> None:
    modules = {kind.__module__.split(".")[1] for kind in _exceptions()}
    assert {"domain", "facade", "adapters", "ports"} <= modules
    assert sum(issubclass(kind, MemoryTiersError) for kind in _exceptions()) >= 18


CODES = {
    "CompactionError": "invalid_compaction",
    "ConfigError": "invalid_config",
    "Conflict": "conflict",
    "CorruptRecord": "corrupt_record",
    "EmbedderMismatch": "embedder_mismatch",
    "EmbedderTimeout": "embedder_timeout",
    "Forbidden": "forbidden",
    "ForkedProcess": "forked_process",
    "FormatMismatch": "format_mismatch",
    "InvalidInput": "invalid_input",
    "InvalidScopePromotion": "invalid_scope_promotion",
    "LegalHoldActive": "legal_hold_active",
    "MemoryTiersError": "internal",
    "NotFound": "not_found",
    "NotOpen": "not_open",
    "PartialWrite": "partial_write",
    "ProviderFailure": "provider_failure",
    "QuotaExceeded": "quota_exceeded",
    "RejectedByGate": "rejected_by_gate",
    "RequestIdReused": "request_id_reused",
    "ScratchpadFull": "scratchpad_full",
    "VersionConflict": "version_conflict",
    "SessionOwnerMismatch": "session_owner_mismatch",
    "StoreAddFailure": "store_add_failure",
    "StoreError": "store_error",
    "StoreFull": "store_full",
    "StoreTimeout": "store_timeout",
    "StoreUnavailable": "store_unavailable",
    "TooMuchContention": "too_much_contention",
    "Unsupported": "unsupported",
    "WrongArguments": "wrong_arguments",
    "WrongEventLoop": "wrong_event_loop",
}
"""What programs were promised. A code may be added; none changes."""


def test_every_public_error_keeps_its_own_code() -> None:
    public = {kind for kind in _exceptions() if kind.__module__ == MemoryTiersError.__module__}
    codes = {kind.__name__: kind.code for kind in public if issubclass(kind, MemoryTiersError)}
    assert codes == CODES
    assert len(set(codes.values())) == len(codes)


def test_attributes_are_there_after_the_journey() -> None:
    field = pickle.loads(pickle.dumps(InvalidInput("tags", "must be a list")))  # noqa: S301
    assert (field.field, field.problem, str(field)) == ("tags", "must be a list", "tags: must be a list")
    lost = pickle.loads(pickle.dumps(Unsupported(["ttl"], store="archive", tier="long")))  # noqa: S301
    assert (lost.missing, lost.store, lost.tier) == (("ttl",), "archive", "long")


@pytest.mark.thorough
def test_a_process_pool_hands_its_caller_the_error_that_was_raised() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(fail, number) for number in range(4)]
        found = [future.exception(timeout=60) for future in futures]
    assert [type(error) for error in found] == [InvalidInput, NotFound, CompactionError, StoreFull]
    assert isinstance(found[0], InvalidInput)
    assert found[0].field == "tags"
    assert isinstance(found[3], StoreError)
    assert found[3].store == "main"
