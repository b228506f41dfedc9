"""The run and the disk delay of this machine, for embedded stores.

Stores that do not wait for the disk report these.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

WRITTEN_BACK = timedelta(seconds=35)
"""How long Linux may take to write data to the disk by default.

It writes data after 30 seconds, and looks every 5 seconds.
"""


def run_of_the_machine() -> str:
    """Return an id of the machine's current run, since its start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # pragma: no cover - elsewhere than on Linux
        return socket.gethostname()
