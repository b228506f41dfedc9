"""Commands as a user without root's rights runs them."""

from __future__ import annotations

import os
import shutil

import pytest


def as_anybody() -> list[str]:
    """The beginning of a command that runs without root's right to write everything."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everything, and setpriv is not here")
    rights = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
