"""Writes memory/facade/blocking.pyi: what type checkers see of the blocking twins, made from the async classes' own source.

python -m tools.blocking_stub          writes it
python -m tools.blocking_stub --check  fails where it is stale
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FACADE = Path(__file__).resolve().parent.parent / "memory" / "facade"
STUB = FACADE / "blocking.pyi"
TWINS = {"memory.py": ("Memory", "BlockingMemory"), "view.py": ("ScopedMemory", "BlockingScopedMemory")}
RENAMED = {"AsyncIterator": "Iterator", "Memory": "BlockingMemory", "ScopedMemory": "BlockingScopedMemory"}
ALIASES = ("Moment", "EmbedFunction")
DUNDERS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__init__": "__init__"}


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(RENAMED.get(node.id, node.id), node.ctx)


def main() -> int:
    made = stub()
    if "--check" in sys.argv[1:]:
        if STUB.read_text() != made:
            sys.stderr.write("memory/facade/blocking.pyi is stale: python -m tools.blocking_stub\n")
            return 1
        return 0
    STUB.write_text(made)
    return 0


def stub() -> str:
    imports: list[str] = ["from __future__ import annotations", "from typing import Any, Self", "from collections.abc import Iterator"]
    classes: list[str] = []
    for file, (original, twin) in TWINS.items():
        tree = ast.parse((FACADE / file).read_text())
        imports += [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        imports += [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ALIASES]
        found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == original)
        classes.append(_class(found, twin))
    plain = [line for line in dict.fromkeys(imports) if "memory.facade.view" not in line]
    plain.sort(key=lambda line: (not line.startswith("from __future__"), "import" not in line))
    head = "# Made by tools/blocking_stub.py from memory.py and view.py. Do not edit.\n# ruff: noqa: A002\n"
    return _tidy(head + "\n".join(plain) + "\n\n" + "\n\n".join(classes) + "\n")


def _tidy(source: str) -> str:
    """Unused and doubled imports dropped, formatted: by ruff."""
    for arguments in (["check", "--fix-only", "--quiet", "--select", "I,F401,F811"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(STUB), "-"]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def _class(found: ast.ClassDef, name: str) -> str:
    lines = [f"class {name}:"]
    fields = {"BlockingMemory": ["config: MemoryConfig", "tenant: str"], "BlockingScopedMemory": ["scope: Scope"]}[name]
    lines += [f"    {field}" for field in fields]
    for node in found.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (not node.name.startswith("_") or node.name in DUNDERS):
            if name == "BlockingScopedMemory" and node.name == "__init__":
                continue
            lines.append(_method(node))
    return "\n".join(lines)


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = _Rename().visit(node.args)
    for position, default in enumerate(arguments.defaults):
        arguments.defaults[position] = ast.Constant(...) if default is not None else default
    arguments.kw_defaults = [None if d is None else ast.Constant(...) for d in arguments.kw_defaults]
    returns = "" if node.returns is None else f" -> {ast.unparse(_Rename().visit(node.returns))}"
    return f"    def {DUNDERS.get(node.name, node.name)}({ast.unparse(arguments)}){returns}: ..."


if __name__ == "__main__":
    raise SystemExit(main())
