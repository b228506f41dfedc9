"""The marks that the SDK's own tests have."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("allow_call_model_methods", "review_optional", "serial"):
        config.addinivalue_line("markers", f"{mark}: a mark of the SDK's tests")
