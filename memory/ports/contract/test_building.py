"""Building a store from configuration.

It does no I/O, refuses unknown options by name, and shows no secret.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Any

import pytest

from memory.domain.errors import ConfigError
from memory.ports.adapter import Adapter
from memory.ports.contract.capability_tests import needs_urls
from memory.ports.contract.clauses import clause
from memory.ports.contract.harness import Harness

SECRET = "hunter2-cormorant"  # noqa: S105
_TOUCHES = frozenset(
    {
        "socket.connect",
        "socket.getaddrinfo",
        "sqlite3.connect",
        "os.mkdir",
        "subprocess.Popen",
        "os.remove",
        "os.rename",
    }
)
_touched: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Record every audit event of Python, but only while a store is built."""
    if _touched is not None and (
        event in _TOUCHES
        or (event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"))
    ):
        _touched.append(f"{event} {arguments[0]}")


def _adapter(harness: Harness, url: str) -> Adapter:
    if harness.adapter is not None:
        return harness.adapter
    (point,) = entry_points(group="memory.adapters", name=url.partition(":")[0])
    adapter: Adapter = point.load()
    return adapter


def _assert_refused(adapter: Adapter, url: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        adapter.build("of-the-contract", url, options)
    assert named in str(caught.value)
    assert "of-the-contract" in str(caught.value), "it says of which store"
    assert SECRET not in str(caught.value)


@clause("build.refuses", "build.no-io", "build.no-secrets")
@needs_urls
def test_an_adapter_refuses_wrong_urls_and_options_by_name_and_shows_no_secret(harness: Harness) -> None:
    global _touched
    sys.addaudithook(_watch)
    for url in harness.urls:
        adapter = _adapter(harness, url)
        assert url.partition(":")[0] in adapter.schemes
        assert adapter.build("first", url, {}).name == "first"  # modules may already be loaded
        _touched = []
        try:
            second = adapter.build("second", url, {})
            touched = list(_touched)
        finally:
            _touched = None
        assert touched == [], "building does no I/O"
        assert second.name == "second"
        assert SECRET not in repr(second)
        _assert_refused(adapter, url, {"no_such_option": SECRET}, "no_such_option")
        _assert_refused(adapter, url, {"no_such_option": None}, "no_such_option")
        _assert_refused(adapter, f"{url}{'&' if '?' in url else '?'}no_such_option={SECRET}", {}, "")
        _assert_refused(adapter, f"no-such-scheme://user:{SECRET}@nowhere/db", {}, "")
