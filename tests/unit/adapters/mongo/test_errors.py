"""The driver's errors as ours: which kind, and that what a server quotes is not passed
on.
"""

from __future__ import annotations

import pytest
from bson.errors import InvalidDocument
from pymongo import errors as driver

from memory.adapters.mongo.errors import is_refused, translate
from memory.domain.errors import (
    ConfigError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from memory.ports.base import LoginRefused
from memory.ports.contract.cells import cells

QUOTED = "dup key: { body: 'what a record said' }"


def _labelled(label: str) -> driver.OperationFailure:
    return driver.OperationFailure(QUOTED, 112, {"errorLabels": [label]})


CASES: list[tuple[BaseException, type[Exception], bool]] = [
    (driver.ConfigurationError(QUOTED), ConfigError, False),
    (driver.WaitQueueTimeoutError(QUOTED), StoreTimeout, True),
    (driver.ServerSelectionTimeoutError(QUOTED), StoreUnavailable, True),
    (driver.NetworkTimeout(QUOTED), StoreTimeout, True),
    (driver.ExecutionTimeout(QUOTED, 50), StoreTimeout, True),
    (driver.WTimeoutError(QUOTED, 64), StoreTimeout, True),
    (driver.AutoReconnect(QUOTED), StoreUnavailable, True),
    (driver.NotPrimaryError(QUOTED), StoreUnavailable, True),
    (driver.DocumentTooLarge(QUOTED), InvalidInput, False),
    (driver.OperationFailure(QUOTED, 18), LoginRefused, False),
    (driver.OperationFailure(QUOTED, 13), ConfigError, False),
    (driver.OperationFailure(QUOTED, 14031), StoreFull, False),
    (driver.OperationFailure(QUOTED, 10107), StoreUnavailable, True),
    (_labelled("TransientTransactionError"), StoreUnavailable, True),
    (
        driver.BulkWriteError({"writeErrors": [{"index": 0, "code": 14031, "errmsg": QUOTED}]}),
        StoreFull,
        False,
    ),
    (
        driver.BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 91, "errmsg": QUOTED}]}),
        StoreUnavailable,
        True,
    ),
    (driver.OperationFailure(QUOTED, 9), StoreError, False),
    (driver.PyMongoError(QUOTED), StoreError, False),
    (InvalidDocument(QUOTED), StoreError, False),
    (ConnectionResetError(QUOTED), StoreUnavailable, True),
]


@cells(
    "error, kind, retryable",
    CASES,
    ids=lambda case: type(case[0]).__name__,
    shared=True,
)
def test_each_error_of_the_driver_is_one_of_ours(
    error: BaseException, kind: type[Exception], retryable: bool
) -> None:
    ours = translate("mid", "db/notes", error)
    assert type(ours) is kind
    assert getattr(ours, "retryable", False) is retryable
    assert "what a record said" not in f"{ours} {ours!r}"
    assert "mid" in str(ours)


def test_what_is_not_the_drivers_is_left_alone() -> None:
    assert translate("mid", "db", KeyError("x")) is None


@pytest.mark.parametrize("code", [11000, 13113, 241])
def test_a_refused_write_is_told_also_inside_a_bulk(code: int) -> None:
    assert is_refused(driver.OperationFailure(QUOTED, code))
    assert is_refused(driver.BulkWriteError({"writeErrors": [{"index": 1, "code": code}]}))
    assert not is_refused(driver.OperationFailure(QUOTED, 112))
