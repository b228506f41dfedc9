"""Writes and finds one entry with whatever `memory` is installed: `python
tools/smoke.py`, on any Python, needs no test tools.
"""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from memory import BlockingMemory, Scope


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        BlockingMemory(f"sqlite:///{Path(folder) / 'smoke.db'}") as memory,
    ):
        memory.write("Ada prefers tea to coffee", scope=Scope.user("ada"))
        (hit,) = memory.search("what does Ada drink? tea?", scope=Scope.user("ada"))
        assert hit.entry.content == "Ada prefers tea to coffee", hit
    print(f"Python {platform.python_version()}: written and found")


if __name__ == "__main__":
    main()
