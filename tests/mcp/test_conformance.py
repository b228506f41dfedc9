"""The conformance suite of the protocol, for both versions; `make conformance`."""

from __future__ import annotations

import shutil

import pytest

from tests.mcp.conformance.__main__ import SERVERS, run_both

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore:The sampling capability is deprecated"),  # and the suite asks for it
    pytest.mark.skipif(shutil.which("npm") is None, reason="the conformance suite needs npm"),
]


@pytest.mark.parametrize("server", SERVERS)
async def test_both_versions_conform_but_for_the_expected_failures(server: str) -> None:
    for run in await run_both(server):
        assert run.is_as_expected, run.output
        assert len(run.passed) >= 20
