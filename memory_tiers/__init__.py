"""The door of the `memory` command, outside the `memory` package: it can still speak
where another `memory` stands in front of it.

A file `memory.py`, or a folder `memory` with an `__init__.py`, in a directory that
Python searches first hides the library of that name. Nothing inside the library can say
so then; this can. It imports nothing but the standard library until it has looked.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent.parent / "memory" / "__init__.py"
IN_THE_WAY = 2
"""The exit code where another `memory` is found first: like a wrong argument, it is for
the caller to mend.
"""


def shadowing() -> str | None:
    """The file that Python finds under the name `memory` in place of this library, or
    None where it finds the library.
    """
    spec = importlib.util.find_spec("memory")
    if spec is None:
        return f"nothing at all, though it belongs at {LIBRARY}"
    found = spec.origin or next(iter(spec.submodule_search_locations or ()), "another module")
    return None if Path(found).resolve() == LIBRARY else found


def explain(found: str) -> str:
    """What a person can do about it."""
    return (
        f"memory: the name 'memory' leads Python to {found}\n"
        f"        and not to the library memory-tiers, installed at {LIBRARY.parent}.\n"
        "        Rename that file or folder, or run the command from another directory; then try again."
    )


INTERRUPTED = 130
"""The exit code after Ctrl-C, as `memory.cli.exit_codes` has it."""
RARELY = 100_000
"""How many new objects make Python look for garbage, where 700 is usual: a command
makes many, keeps most and ends soon.
"""


def main() -> None:
    """Run the `memory` command, or say what is in its way."""
    gc.set_threshold(RARELY)
    found = shadowing()
    if found is not None:
        sys.stderr.write(explain(found) + "\n")
        sys.exit(IN_THE_WAY)
    try:
        from memory.cli.main import main as command

        command()
    except KeyboardInterrupt:  # before the command line can report it
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    finally:
        gc.freeze()  # the end of a process would look through all there is, for a third of a second
