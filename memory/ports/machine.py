"""What embedded stores say of the machine they run on, where they do not wait for its
disk.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

WRITTEN_BACK = timedelta(seconds=35)
"""By when Linux has written to the disk what it was given, as it is set up by default:
after 30 seconds, looked at every 5.
"""


def run_of_the_machine() -> str:
    """Names the time since the machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # pragma: no cover - elsewhere than on Linux
        return socket.gethostname()
