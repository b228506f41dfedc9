"""Rewrite the files and folders that are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tools.codemods.rename import OLD, renamed, renamed_text


def _files(given: str) -> Iterator[Path]:
    path = Path(given)
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    yield from (file for file in found if file.suffix in (".py", ".pyi", ".md"))


def main(paths: list[str]) -> int:
    if not paths:
        print(__doc__, "python -m tools.codemods PATH…")
        return 2
    for path in (file for given in paths for file in _files(given)):
        before = path.read_text()
        if OLD.search(before) is None:
            continue
        after = renamed_text(before) if path.suffix == ".md" else renamed(before)
        if after != before:
            path.write_text(after)
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
