"""Writes the byte code of test modules as pytest rewrites their assertions.

    python -m tools.compile_tests [FOLDER…]

Each worker of a run would rewrite all of them in a fresh checkout, at the same time as
the others. Here every processor takes its share, once. What is out of date afterwards,
pytest rewrites as it always does.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from _pytest.assertion.rewrite import PYC_TAIL, get_cache_dir, rewrite_asserts

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "tests", ROOT / "memory" / "ports" / "contract")


def modules_in(folders: Iterable[Path]) -> Iterator[Path]:
    """The files whose assertions pytest rewrites."""
    for folder in folders:
        yield from sorted({*folder.rglob("test_*.py"), *folder.rglob("conftest.py")})


def compile_module(file: Path) -> Path:
    """Write the byte code of one module where pytest looks for it; returns that file."""
    source, status = file.read_bytes(), file.stat()
    tree = ast.parse(source, filename=str(file))
    rewrite_asserts(tree, source, str(file))
    code = marshal.dumps(compile(tree, str(file), "exec", dont_inherit=True))
    written_for = struct.pack("<LLL", 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    place = get_cache_dir(file) / f"{file.stem}{PYC_TAIL}"
    place.parent.mkdir(exist_ok=True)
    whole = place.with_name(f"{place.name}.{os.getpid()}")
    whole.write_bytes(importlib.util.MAGIC_NUMBER + written_for + code)
    return whole.replace(place)


def main(*folders: str) -> None:
    with ProcessPoolExecutor() as processes:
        files = list(modules_in(map(Path, folders) if folders else FOLDERS))
        for _ in processes.map(compile_module, files, chunksize=8):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
