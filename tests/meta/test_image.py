"""What goes into the image of the worker: of what the lock pins, what the base's own
Python and machine take. It is made and run in tests/faults/test_worker_image.py.
"""

from __future__ import annotations

import pytest

from tools import image as images

LINUX = {
    "python_full_version": "3.13.1",
    "python_version": "3.13",
    "sys_platform": "linux",
    "platform_machine": "x86_64",
}
LOCK = """\
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:aa \\
    --hash=sha256:ab
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:ba
redis==8.1.0 \\
    --hash=sha256:ca
"""


def test_of_two_pins_the_one_for_the_base_is_taken_with_its_hashes() -> None:
    assert images.pinned({"numpy"}, LINUX, LOCK) == "numpy==2.5.5 \\\n    --hash=sha256:ba\n"
    older = {**LINUX, "python_full_version": "3.11.2", "python_version": "3.11"}
    assert (
        images.pinned({"numpy"}, older, LOCK)
        == "numpy==2.4.6 \\\n    --hash=sha256:aa \\\n    --hash=sha256:ab\n"
    )


def test_what_the_lock_does_not_pin_is_refused_by_name() -> None:
    with pytest.raises(images.Unfit, match=r"pins no asyncpg for Python 3\.13"):
        images.pinned({"numpy", "asyncpg"}, LINUX, LOCK)
