"""Writes memory/facade/blocking.pyi: what type checkers see of the blocking twins, made from the async classes' own source.

python -m tools.blocking_stub          writes it
python -m tools.blocking_stub --check  fails where it is stale
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

from memory.facade import blocking
from memory.facade.twin import CONTEXT, Twin

STUB = Path(blocking.__file__).with_suffix(".pyi")
TWINS = {name: twin.__wrapped__ for name, twin in vars(blocking).items() if inspect.isclass(twin) and issubclass(twin, Twin)}
"""By the name of the twin, the async class."""
RENAMED = {"AsyncIterator": "Iterator", **{original.__name__: name for name, original in TWINS.items()}}
DUNDERS = {"__init__": "__init__", **CONTEXT}


class _Rename(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(RENAMED.get(node.id, node.id), node.ctx)


def main() -> int:
    made = stub()
    if "--check" in sys.argv[1:]:
        if not STUB.exists() or STUB.read_text() != made:
            sys.stderr.write("memory/facade/blocking.pyi is stale: python -m tools.blocking_stub\n")
            return 1
        return 0
    STUB.write_text(made)
    return 0


def stub() -> str:
    imports: list[str] = ["from collections.abc import Iterator"]
    aliases: list[ast.Assign] = []
    classes: list[str] = []
    for name, original in TWINS.items():
        tree = ast.parse(inspect.getsource(inspect.getmodule(original) or blocking))
        imports += [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        aliases += [node for node in tree.body if isinstance(node, ast.Assign)]
        found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == original.__name__)
        classes.append(_class(found, name))
    text = "\n\n".join(classes)
    used = [ast.unparse(node) for node in aliases if re.search(rf"\b{re.escape(ast.unparse(node.targets[0]))}\b", text)]
    plain = sorted(dict.fromkeys(imports), key=lambda line: not line.startswith("from __future__"))
    head = "# Made by tools/blocking_stub.py from the async classes. Do not edit.\n# ruff: noqa: A002\n"
    return _tidy("\n".join([head, *plain, *used, "", text, ""]))


def _tidy(source: str) -> str:
    """Unused and doubled imports dropped, formatted: by ruff."""
    for arguments in (["check", "--fix-only", "--quiet", "--select", "I,F401,F811"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(STUB), "-"]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


def _class(found: ast.ClassDef, name: str) -> str:
    lines = [f"class {name}:"]
    for node in found.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (not node.name.startswith("_") or node.name in DUNDERS):
            lines += [f"    @{ast.unparse(decorator)}" for decorator in node.decorator_list]
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
