"""Other Pythons that run beside a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Another Python running this program."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(processes: Sequence[subprocess.Popen[str]], within: float = 60) -> list[str]:
    """What each printed; all must have ended well."""
    outputs = []
    for process in processes:
        out, err = process.communicate(timeout=within)
        assert process.returncode == 0, err
        outputs.append(out)
    return outputs
