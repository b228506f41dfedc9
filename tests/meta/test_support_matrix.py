"""The table of docs/backends.md says what the tests hold the backends to."""

from __future__ import annotations

from memory.ports.capabilities import Capabilities
from tools import support_matrix


def test_the_table_is_fresh() -> None:
    assert support_matrix.main(["--check"]) == 0


def test_a_changed_claim_makes_it_stale() -> None:
    page = support_matrix.PAGE.read_text(encoding="utf-8")
    altered = page.replace("| ✓ |", "|  |", 1)
    assert altered != page
    assert support_matrix.written(altered) == page


def test_tiers_follow_from_what_the_engine_needs() -> None:
    assert support_matrix.tiers(Capabilities()) == "none"
    assert support_matrix.tiers(Capabilities(conditional=True, tenant_wide=True)).startswith(
        "short, as a cache"
    )
    home = Capabilities(durable=True, conditional=True, filter=True, order=True, tenant_wide=True)
    assert support_matrix.tiers(home) == "any; by meaning with another in long"


def test_a_backend_that_ci_does_not_require_is_said_not_to_be_run() -> None:
    assert "not run" in support_matrix.tested("qdrant_server", support_matrix.required())
    assert support_matrix.tested("redis", {"redis"}) == "CI, on `redis:7`"
